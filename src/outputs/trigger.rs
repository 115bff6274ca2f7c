//! What started a run on a forge: an issue, a pull request, a push, a schedule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A forge: where issues and pull requests are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Forge {
    /// GitHub, or a server with its API.
    Github,
    /// GitLab.
    Gitlab,
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// An issue.
    Issue,
    /// A pull request, or a merge request of GitLab.
    PullRequest,
    /// Neither: a push, a schedule, a start by hand.
    Other,
}

/// A branch of a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Branch {
    /// The branch's name.
    #[serde(rename = "ref")]
    pub name: String,
    /// Its commit.
    pub sha: String,
    /// The repository that it is in, `OWNER/NAME`; `None` if that was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
}

/// What outputs need to know about what started the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trigger {
    /// The forge.
    pub forge: Forge,
    /// The repository, `OWNER/NAME`, on GitLab the project's path.
    pub repository: String,
    /// The address of its pages without a path, such as `https://github.com`.
    pub server: String,
    /// What the event is about.
    pub subject: Subject,
    /// The number of the issue or pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// The branch of the pull request, or the pushed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Branch>,
    /// The branch that the pull request is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Branch>,
}

impl Trigger {
    /// Whether the pull request's branch is in another repository, in which a token of this one can't write.
    pub fn is_fork(&self) -> bool {
        let head = self.head.as_ref();
        head.is_some_and(|head| head.repository.as_deref() != Some(&*self.repository))
    }
}
