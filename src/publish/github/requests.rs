//! The parts of GitHub's answers that are read, and the headers of each request.

use serde::Deserialize;

use crate::outputs::Branch;
use crate::publish::forge::{Post, PullRequest};

/// The headers of each request.
pub(in crate::publish) const HEADERS: &[(&str, &str)] =
    &[("accept", "application/vnd.github+json"), ("x-github-api-version", "2022-11-28")];

#[derive(Deserialize)]
pub(super) struct User {
    pub(super) login: String,
}

#[derive(Deserialize)]
pub(super) struct Repository {
    pub(super) default_branch: String,
}

/// A comment or a review.
#[derive(Deserialize)]
pub(super) struct Comment {
    id: u64,
    body: Option<String>,
    user: Option<User>,
    html_url: Option<String>,
}

impl From<Comment> for Post {
    fn from(found: Comment) -> Self {
        Self {
            id: found.id,
            author: found.user.map(|user| user.login).unwrap_or_default(),
            body: found.body.unwrap_or_default(),
            url: found.html_url,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Label {
    pub(super) name: String,
}

/// A label of an issue: GitHub allows a name in its place.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum IssueLabel {
    Name(String),
    Label { name: Option<String> },
}

/// An issue or a pull request.
#[derive(Deserialize)]
pub(super) struct Issue {
    number: u64,
    pub(super) state: String,
    body: Option<String>,
    user: Option<User>,
    html_url: Option<String>,
    #[serde(default)]
    pub(super) labels: Vec<IssueLabel>,
}

impl From<Issue> for Post {
    fn from(found: Issue) -> Self {
        Self {
            id: found.number,
            author: found.user.map(|user| user.login).unwrap_or_default(),
            body: found.body.unwrap_or_default(),
            url: found.html_url,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Pull {
    number: u64,
    state: String,
    body: Option<String>,
    user: Option<User>,
    html_url: Option<String>,
    head: PullBranch,
}

#[derive(Deserialize)]
struct PullBranch {
    #[serde(rename = "ref")]
    name: String,
    sha: String,
    repo: Option<FullName>,
}

#[derive(Deserialize)]
struct FullName {
    full_name: String,
}

impl From<Pull> for PullRequest {
    fn from(found: Pull) -> Self {
        let PullBranch { name, sha, repo } = found.head;
        Self {
            is_open: found.state == "open",
            head: Branch { name, sha, repository: repo.map(|repo| repo.full_name) },
            post: Post {
                id: found.number,
                author: found.user.map(|user| user.login).unwrap_or_default(),
                body: found.body.unwrap_or_default(),
                url: found.html_url,
            },
        }
    }
}
