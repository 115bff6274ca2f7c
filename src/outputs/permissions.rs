//! What a token needs to publish each kind of output.

use super::output::KindName;

/// A permission of a token on GitHub, as workflows write it: this one with `write`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    /// Its name, such as `issues`.
    pub name: &'static str,
    /// On what the kind needs it; empty for all.
    pub place: &'static str,
}

const CHECKS: Permission = Permission { name: "checks", place: "" };
const CONTENTS: Permission = Permission { name: "contents", place: "" };
const ISSUES: Permission = Permission { name: "issues", place: "" };
const PULL_REQUESTS: Permission = Permission { name: "pull-requests", place: "" };

const ON_EITHER: &[Permission] = &[
    Permission { name: "issues", place: " on an issue" },
    Permission { name: "pull-requests", place: " on a pull request" },
];

/// The permissions that a kind needs on GitHub, each to write.
pub fn on_github(kind: KindName) -> &'static [Permission] {
    match kind {
        KindName::Comment | KindName::Labels | KindName::Close => ON_EITHER,
        KindName::Review => &[PULL_REQUESTS],
        KindName::PullRequest => &[CONTENTS, PULL_REQUESTS],
        KindName::Push => &[CONTENTS],
        KindName::Issue => &[ISSUES],
        KindName::Check => &[CHECKS],
        KindName::Command => &[],
    }
}

/// The role that a token with the scope `api` needs on GitLab; `None` for commands.
pub fn on_gitlab(kind: KindName) -> Option<&'static str> {
    match kind {
        KindName::Comment | KindName::Labels | KindName::Close | KindName::Review | KindName::Issue => Some("Reporter"),
        KindName::PullRequest | KindName::Push | KindName::Check => Some("Developer"),
        KindName::Command => None,
    }
}

/// The permissions of a kind on GitHub, for messages and the book.
pub fn github_text(kind: KindName) -> String {
    let word = if on_github(kind).iter().any(|permission| !permission.place.is_empty()) { " or " } else { " and " };
    let permissions = on_github(kind).iter().map(|Permission { name, place }| format!("`{name}: write`{place}"));
    permissions.collect::<Vec<_>>().join(word)
}

/// What a kind needs on GitLab, for messages.
pub fn gitlab_text(kind: KindName) -> String {
    on_gitlab(kind).map(|role| format!("the scope `api` and the role {role}")).unwrap_or_default()
}
