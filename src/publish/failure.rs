//! Why something wasn't published.

/// Why a request to a forge, or what it was for, failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Nobody knows whether the request had an effect: a 5xx, a time-out, a dropped connection, an answer that isn't one.
    Unclear(String),
    /// Nothing happened, and it may work later: a rate limit.
    Later(String),
    /// The token isn't accepted, or lacks a permission.
    Forbidden(String),
    /// What the request is about isn't there, or the token can't see it.
    Missing(String),
    /// It can't be published, now or later.
    Refused(String),
}

impl Failure {
    /// What happened, in one sentence without a period.
    pub fn message(&self) -> &str {
        match self {
            Self::Unclear(why) | Self::Later(why) | Self::Forbidden(why) | Self::Missing(why) | Self::Refused(why) => {
                why
            }
        }
    }

    /// Adds the permission that the token needs for this.
    pub(super) fn needing(self, permission: &str) -> Self {
        match self {
            Self::Forbidden(why) => Self::Forbidden(format!("{why}; the token needs {permission}")),
            other => other,
        }
    }

    /// What the absence of something means for what is to be published.
    pub(super) fn when_missing(self, what: impl FnOnce() -> String) -> Self {
        match self {
            Self::Missing(_) => Self::Refused(what()),
            other => other,
        }
    }
}
