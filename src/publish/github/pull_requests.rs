//! Pull requests.

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::repository::Github;
use super::requests::Pull;
use crate::outputs::{ChangedFile, KindName, github_text};
use crate::publish::failure::Failure;
use crate::publish::forge::{NewPullRequest, Post, PullRequest, Visit};
use crate::publish::http_client::Effect;

/// The most files of a pull request that are read. GitHub lists at most this many.
const MAX_FILES: usize = 3_000;

pub(super) fn get(github: &Github, number: u64) -> Result<PullRequest, Failure> {
    let found: Result<Pull, _> = github.http.get(&format!("{}/pulls/{number}", github.root), &[]);
    let absent = || format!("{} has no pull request #{number} that the token can see", github.repository);
    found.map(PullRequest::from).map_err(|failure| failure.needing("`pull-requests: read`").when_missing(absent))
}

pub(super) fn of_branch(
    github: &Github,
    repository: &str,
    branch: &str,
    visit: Visit<'_, PullRequest>,
) -> Result<(), Failure> {
    let owner = repository.split('/').next().unwrap_or_default();
    let head = format!("{owner}:{branch}");
    let query = [("state", "all"), ("head", head.as_str())];
    // A server that doesn't know the parameter would list all of them.
    let mut visit_own = |pull: Pull| {
        let pull = PullRequest::from(pull);
        pull.head.name != branch || visit(pull)
    };
    let listed = github.http.list(&format!("{}/pulls", github.root), &query, &mut visit_own);
    listed.map_err(|failure| failure.needing("`pull-requests: read`"))
}

pub(super) fn create(github: &Github, new: &NewPullRequest) -> Result<Post, Failure> {
    let NewPullRequest { branch, base, title, body, draft, .. } = new;
    let content = json!({ "title": title, "head": branch, "base": base, "body": body, "draft": draft });
    let made: Result<Pull, _> =
        github.http.send(Effect::Content, &Method::POST, &format!("{}/pulls", github.root), &content);
    let made = made.map_err(|failure| {
        let setting = "and in the repository's settings, Actions must be allowed to create pull requests";
        failure.needing(&format!("{}, {setting}", github_text(KindName::Review)))
    })?;
    Ok(PullRequest::from(made).post)
}

pub(super) fn update(github: &Github, number: u64, title: &str, body: &str) -> Result<Post, Failure> {
    let path = format!("{}/pulls/{number}", github.root);
    let content = json!({ "title": title, "body": body });
    let made: Result<Pull, _> = github.http.send(Effect::Content, &Method::PATCH, &path, &content);
    made.map(|pull| PullRequest::from(pull).post).map_err(|failure| failure.needing(&github_text(KindName::Review)))
}

#[derive(Deserialize)]
struct File {
    filename: String,
    previous_filename: Option<String>,
    patch: Option<String>,
}

pub(super) fn changed_files(github: &Github, number: u64) -> Result<Vec<ChangedFile>, Failure> {
    let path = format!("{}/pulls/{number}/files", github.root);
    let mut files = Vec::new();
    let mut keep = |file: File| {
        let old_path = file.previous_filename.unwrap_or_else(|| file.filename.clone());
        files.push(ChangedFile { path: file.filename, old_path, hunks: file.patch });
        files.len() < MAX_FILES
    };
    let listed = github.http.list(&path, &[], &mut keep);
    listed.map_err(|failure| failure.needing("`pull-requests: read`"))?;
    Ok(files)
}
