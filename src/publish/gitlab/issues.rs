//! Issues, and what issues and merge requests share: labels and their end.

use reqwest::Method;
use serde_json::{Value, json};

use super::project::Gitlab;
use super::requests::Issue;
use crate::outputs::{KindName, gitlab_text};
use crate::publish::failure::Failure;
use crate::publish::forge::{Post, Target, Visit};
use crate::publish::http_client::Effect;

fn get(gitlab: &Gitlab, target: Target) -> Result<Issue, Failure> {
    let found: Result<Issue, _> = gitlab.http.get(&gitlab.path_of(target), &[]);
    found.map_err(|failure| failure.needing(&gitlab_text(KindName::Issue)).when_missing(|| gitlab.absent(target)))
}

fn change(gitlab: &Gitlab, target: Target, content: &Value) -> Result<Issue, Failure> {
    let made: Result<Issue, _> = gitlab.http.send(Effect::Content, &Method::PUT, &gitlab.path_of(target), content);
    made.map_err(|failure| failure.needing(&gitlab_text(KindName::Issue)).when_missing(|| gitlab.absent(target)))
}

/// The address of its page; empty if nobody knows.
pub(super) fn page_of(gitlab: &Gitlab, target: Target) -> String {
    get(gitlab, target).ok().and_then(|issue| issue.web_url).unwrap_or_default()
}

pub(super) fn list_since(gitlab: &Gitlab, since: jiff::Timestamp, visit: Visit<'_, Post>) -> Result<(), Failure> {
    let since = since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let query = [("scope", "all"), ("created_after", since.as_str())];
    let listed = gitlab.http.list(&format!("{}/issues", gitlab.root), &query, &mut |issue: Issue| visit(issue.into()));
    listed.map_err(|failure| failure.needing(&gitlab_text(KindName::Issue)))
}

pub(super) fn create(gitlab: &Gitlab, title: &str, body: &str, labels: &[String]) -> Result<Post, Failure> {
    let content = json!({ "title": title, "description": body, "labels": joined(labels)? });
    let path = format!("{}/issues", gitlab.root);
    let made: Result<Issue, _> = gitlab.http.send(Effect::Content, &Method::POST, &path, &content);
    let disabled = || format!("{} has no issues, or the token can't see it", gitlab.project);
    made.map(Post::from).map_err(|failure| failure.needing(&gitlab_text(KindName::Issue)).when_missing(disabled))
}

pub(super) fn is_open(gitlab: &Gitlab, target: Target) -> Result<bool, Failure> {
    Ok(get(gitlab, target)?.state == "opened")
}

pub(super) fn close(gitlab: &Gitlab, target: Target) -> Result<Post, Failure> {
    Ok(change(gitlab, target, &json!({ "state_event": "close" }))?.into())
}

pub(super) fn labels(gitlab: &Gitlab, target: Target) -> Result<Vec<String>, Failure> {
    Ok(get(gitlab, target)?.labels)
}

pub(super) fn change_labels(gitlab: &Gitlab, target: Target, field: &str, labels: &[String]) -> Result<(), Failure> {
    change(gitlab, target, &json!({ field: joined(labels)? })).map(drop)
}

/// Labels as GitLab takes them: a list that commas separate.
pub(super) fn joined(labels: &[String]) -> Result<String, Failure> {
    match labels.iter().find(|label| label.contains(',')) {
        None => Ok(labels.join(",")),
        Some(label) => {
            Err(Failure::Refused(format!("the label `{label}` has a comma, which GitLab takes for two labels")))
        }
    }
}
