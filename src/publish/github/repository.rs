//! The repository that requests are about, and what was read of it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use serde::Deserialize;

use crate::publish::http_client::HttpClient;

/// A repository on GitHub.
pub(in crate::publish) struct Github {
    pub(super) http: HttpClient,
    /// `OWNER/NAME`.
    pub(super) repository: String,
    /// Its path in the API.
    pub(super) root: String,
    /// Whether this is a job of Actions.
    pub(super) on_actions: bool,
    pub(super) trees: Trees,
}

impl Github {
    pub(in crate::publish) fn new(http: HttpClient, repository: &str, on_actions: bool) -> Self {
        let root = format!("/repos/{repository}");
        Self { http, repository: repository.to_owned(), root, on_actions, trees: Trees::default() }
    }

    /// What is said of a number that isn't there.
    pub(super) fn absent(&self, number: u64) -> String {
        format!("{} has no #{number} that the token can see", self.repository)
    }
}

/// The trees that were read, by the names of their objects.
#[derive(Default)]
pub(super) struct Trees(pub(super) RefCell<HashMap<String, Rc<Vec<TreeEntry>>>>);

#[derive(Deserialize)]
pub(super) struct TreeEntry {
    pub(super) path: String,
    pub(super) mode: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) sha: String,
}
