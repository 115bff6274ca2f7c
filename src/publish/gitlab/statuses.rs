//! Commit statuses.

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::project::Gitlab;
use crate::outputs::{KindName, gitlab_text};
use crate::publish::failure::Failure;
use crate::publish::forge::{CheckRun, Post};
use crate::publish::http_client::{Effect, encode};
use crate::text::truncate::ellipsize;

/// The longest description of a status, in characters.
const MAX_DESCRIPTION_CHARS: usize = 250;

#[derive(Deserialize)]
struct Status {
    id: u64,
    status: String,
    name: String,
    description: Option<String>,
}

impl From<Status> for Post {
    fn from(found: Status) -> Self {
        Self { id: found.id, author: String::new(), body: String::new(), url: None }
    }
}

/// The state and the description of a check. GitLab has no neutral state.
fn state_of(check: &CheckRun) -> (&'static str, String) {
    let state = match check.conclusion.as_str() {
        "success" | "neutral" | "skipped" => "success",
        "cancelled" => "canceled",
        _ => "failed",
    };
    let first = check.summary.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let text = match check.conclusion.as_str() {
        "success" | "failure" => first.to_owned(),
        other => format!("{other}: {first}"),
    };
    (state, ellipsize(&text, MAX_DESCRIPTION_CHARS))
}

pub(super) fn find(gitlab: &Gitlab, check: &CheckRun) -> Result<Option<Post>, Failure> {
    let path = format!("{}/repository/commits/{}/statuses", gitlab.root, encode(&check.commit));
    let (state, description) = state_of(check);
    let mut found = None;
    gitlab.http.list(&path, &[("name", check.name.as_str())], &mut |status: Status| {
        let is_same = status.name == check.name
            && status.status == state
            && status.description.as_deref().unwrap_or_default() == description;
        found = found.take().or(is_same.then(|| status.into()));
        found.is_none()
    })?;
    Ok(found)
}

pub(super) fn create(gitlab: &Gitlab, check: &CheckRun) -> Result<Post, Failure> {
    let (state, description) = state_of(check);
    let content = json!({ "state": state, "name": check.name, "description": description });
    let path = format!("{}/statuses/{}", gitlab.root, encode(&check.commit));
    let made: Result<Status, _> = gitlab.http.send(Effect::Content, &Method::POST, &path, &content);
    made.map(Post::from).map_err(|failure| failure.needing(&gitlab_text(KindName::Check)))
}
