//! The project that requests are about.

use crate::outputs::Subject;
use crate::publish::forge::Target;
use crate::publish::http_client::{HttpClient, encode};

/// A project on GitLab.
pub(in crate::publish) struct Gitlab {
    pub(super) http: HttpClient,
    /// Its path.
    pub(super) project: String,
    /// Its path in the API.
    pub(super) root: String,
}

impl Gitlab {
    pub(in crate::publish) fn new(http: HttpClient, project: &str) -> Self {
        Self { http, project: project.to_owned(), root: format!("/projects/{}", encode(project)) }
    }

    /// The path of an issue or a merge request in the API. Their numbers are different.
    pub(super) fn path_of(&self, target: Target) -> String {
        let kind = if target.subject == Subject::PullRequest { "merge_requests" } else { "issues" };
        format!("{}/{kind}/{}", self.root, target.number)
    }

    /// What is said of a number that isn't there.
    pub(super) fn absent(&self, target: Target) -> String {
        let kind = if target.subject == Subject::PullRequest { "merge request !" } else { "issue #" };
        format!("{} has no {kind}{} that the token can see", self.project, target.number)
    }
}
