//! What a job allows in a text.

use crate::outputs::Forge;

/// What a text that a model proposes may contain.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextRules<'a> {
    /// The logins and teams that it may mention, such as `octocat` or `org/team`.
    pub mentions: &'a [String],
    /// The hosts that it may link to: `docs.example.org`, `*.example.org` for all below it, with a port if it isn't 443.
    pub links: &'a [String],
    /// The repository where it will be published, to which links are free.
    pub own: Option<OwnRepository<'a>>,
    /// The number of the issue that it may close with a keyword.
    pub closes: Option<u64>,
}

/// The repository where a text will be published.
#[derive(Debug, Clone, Copy)]
pub struct OwnRepository<'a> {
    /// What forge it is on.
    pub forge: Forge,
    /// The forge's address, such as `https://github.com`.
    pub server: &'a str,
    /// `OWNER/NAME`, on GitLab the project's path.
    pub repository: &'a str,
}
