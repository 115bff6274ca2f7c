//! The parts of GitLab's answers that are read.

use serde::Deserialize;

use crate::publish::forge::Post;

/// The headers of each request.
pub(in crate::publish) const HEADERS: &[(&str, &str)] = &[("accept", "application/json")];

#[derive(Deserialize)]
pub(super) struct User {
    pub(super) username: String,
}

#[derive(Deserialize)]
pub(super) struct Project {
    pub(super) default_branch: String,
}

/// A note of an issue or a merge request. It has no address of its own.
#[derive(Deserialize)]
pub(super) struct Note {
    pub(super) id: u64,
    body: Option<String>,
    author: Option<User>,
    #[serde(default)]
    pub(super) system: bool,
}

impl Note {
    /// The note, whose page is that of what it is on.
    pub(super) fn into_post(self, page: &str) -> Post {
        Post {
            id: self.id,
            author: self.author.map(|user| user.username).unwrap_or_default(),
            body: self.body.unwrap_or_default(),
            url: (!page.is_empty()).then(|| format!("{page}#note_{}", self.id)),
        }
    }
}

/// What is read of an issue or a merge request.
#[derive(Deserialize)]
pub(super) struct Issue {
    pub(super) iid: u64,
    pub(super) state: String,
    description: Option<String>,
    author: Option<User>,
    pub(super) web_url: Option<String>,
    #[serde(default)]
    pub(super) labels: Vec<String>,
}

impl From<Issue> for Post {
    fn from(found: Issue) -> Self {
        Self {
            id: found.iid,
            author: found.author.map(|user| user.username).unwrap_or_default(),
            body: found.description.unwrap_or_default(),
            url: found.web_url,
        }
    }
}
