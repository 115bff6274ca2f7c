//! Issues, and what issues and pull requests share: labels and their end.

use reqwest::Method;
use serde_json::{Value, json};

use super::repository::Github;
use super::requests::{Issue, IssueLabel, Label};
use crate::outputs::{KindName, github_text};
use crate::publish::failure::Failure;
use crate::publish::forge::{Post, Visit};
use crate::publish::http_client::{Effect, encode};

pub(super) fn list_since(github: &Github, since: jiff::Timestamp, visit: Visit<'_, Post>) -> Result<(), Failure> {
    let since = since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let query = [("state", "all"), ("sort", "created"), ("direction", "desc"), ("since", since.as_str())];
    let path = format!("{}/issues", github.root);
    let listed = github.http.list(&path, &query, &mut |issue: Issue| visit(issue.into()));
    listed.map_err(|failure| failure.needing("`issues: read`"))
}

pub(super) fn create(github: &Github, title: &str, body: &str, labels: &[String]) -> Result<Post, Failure> {
    let mut content = json!({ "title": title, "body": body });
    if !labels.is_empty() {
        content["labels"] = json!(labels);
    }
    let path = format!("{}/issues", github.root);
    let made: Result<Issue, _> = github.http.send(Effect::Content, &Method::POST, &path, &content);
    let disabled = || format!("{} has no issues, or the token can't see it", github.repository);
    made.map(Post::from).map_err(|failure| failure.needing(&github_text(KindName::Issue)).when_missing(disabled))
}

fn get(github: &Github, number: u64) -> Result<Issue, Failure> {
    let found = github.http.get(&format!("{}/issues/{number}", github.root), &[]);
    found.map_err(|failure: Failure| failure.needing("`issues: read`").when_missing(|| github.absent(number)))
}

pub(super) fn is_open(github: &Github, number: u64) -> Result<bool, Failure> {
    Ok(get(github, number)?.state == "open")
}

pub(super) fn close(github: &Github, number: u64, reason: &str) -> Result<Post, Failure> {
    let content = json!({ "state": "closed", "state_reason": reason });
    let path = format!("{}/issues/{number}", github.root);
    let made: Result<Issue, _> = github.http.send(Effect::Content, &Method::PATCH, &path, &content);
    made.map(Post::from)
        .map_err(|failure| failure.needing(&github_text(KindName::Labels)).when_missing(|| github.absent(number)))
}

pub(super) fn labels(github: &Github, number: u64) -> Result<Vec<String>, Failure> {
    let labels = get(github, number)?.labels.into_iter();
    let name = |label| match label {
        IssueLabel::Name(name) => Some(name),
        IssueLabel::Label { name } => name,
    };
    Ok(labels.filter_map(name).collect())
}

pub(super) fn add_labels(github: &Github, number: u64, labels: &[String]) -> Result<(), Failure> {
    let path = format!("{}/issues/{number}/labels", github.root);
    let content = json!({ "labels": labels });
    let made: Result<Vec<Label>, _> = github.http.send(Effect::Content, &Method::POST, &path, &content);
    let made =
        made.map_err(|failure| failure.needing(&github_text(KindName::Labels)).when_missing(|| github.absent(number)))?;
    let has = |wanted: &String| made.iter().any(|label| label.name.eq_ignore_ascii_case(wanted));
    match labels.iter().all(has) {
        true => Ok(()),
        false => Err(Failure::Unclear("the forge answered with other labels".to_owned())),
    }
}

pub(super) fn remove_label(github: &Github, number: u64, label: &str) -> Result<(), Failure> {
    let path = format!("{}/issues/{number}/labels/{}", github.root, encode(label));
    let removed: Result<Value, _> = github.http.send(Effect::Content, &Method::DELETE, &path, &Value::Null);
    match removed {
        // Somebody else has removed it.
        Err(Failure::Missing(_)) => Ok(()),
        removed => removed.map(drop).map_err(|failure| failure.needing(&github_text(KindName::Labels))),
    }
}
