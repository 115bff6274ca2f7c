//! Check runs.

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::repository::Github;
use crate::outputs::{KindName, github_text};
use crate::publish::failure::Failure;
use crate::publish::forge::{CheckRun, Post};
use crate::publish::http_client::Effect;

#[derive(Deserialize)]
struct Runs {
    check_runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    id: u64,
    external_id: Option<String>,
    conclusion: Option<String>,
    html_url: Option<String>,
    output: Option<Output>,
}

#[derive(Deserialize)]
struct Output {
    summary: Option<String>,
}

impl From<Run> for Post {
    fn from(run: Run) -> Self {
        Self { id: run.id, author: String::new(), body: String::new(), url: run.html_url }
    }
}

/// A check with this content. Only the content counts: any app could have written the id.
pub(super) fn find(github: &Github, check: &CheckRun) -> Result<Option<Post>, Failure> {
    let path = format!("{}/commits/{}/check-runs", github.root, check.commit);
    let query = [("check_name", check.name.as_str()), ("filter", "all"), ("per_page", "100")];
    let found: Result<Runs, _> = github.http.get(&path, &query);
    let found = found.map_err(|failure| {
        let absent = || format!("{} has no commit {}", github.repository, check.commit);
        failure.needing(&github_text(KindName::Check)).when_missing(absent)
    })?;
    let is_same = |run: &Run| {
        run.external_id.as_deref() == Some(&check.external_id)
            && run.conclusion.as_deref() == Some(&check.conclusion)
            && run.output.as_ref().and_then(|output| output.summary.as_deref()) == Some(&check.summary)
    };
    Ok(found.check_runs.into_iter().find(is_same).map(Post::from))
}

pub(super) fn create(github: &Github, check: &CheckRun) -> Result<Post, Failure> {
    let content = json!({
        "name": check.name,
        "head_sha": check.commit,
        "external_id": check.external_id,
        "status": "completed",
        "conclusion": check.conclusion,
        "output": { "title": check.name, "summary": check.summary },
    });
    let path = format!("{}/check-runs", github.root);
    let made: Result<Run, _> = github.http.send(Effect::Content, &Method::POST, &path, &content);
    made.map(Post::from).map_err(|failure| failure.needing(&github_text(KindName::Check)))
}
