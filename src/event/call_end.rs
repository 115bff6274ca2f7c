//! How a tool call ended, in the words of every output.

use std::fmt;

use super::{CallFinished, NoResult};

/// How a call ended. Everything that shows calls says it in these words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd<'c> {
    /// The tool answered.
    Succeeded,
    /// The tool answered with an error.
    Failed,
    /// It was refused, because this limit was reached.
    Refused(&'c str),
    /// The run was interrupted during the call, so its effect is unknown.
    Interrupted,
    /// It didn't start.
    NotRun,
    /// It started, and the record has no end of it.
    NotFinished,
}

impl<'c> CallEnd<'c> {
    /// The end of a call that has a result.
    pub fn of_result(no_result: Option<&'c NoResult>, is_error: bool) -> Self {
        match no_result {
            Some(NoResult::Limit(limit)) => Self::Refused(limit),
            Some(NoResult::Interrupted) => Self::Interrupted,
            None if is_error => Self::Failed,
            None => Self::Succeeded,
        }
    }

    /// Whether the call has no good result.
    pub fn is_failure(self) -> bool {
        self != Self::Succeeded
    }

    /// Whether the tool was started.
    pub fn was_run(self) -> bool {
        !matches!(self, Self::Refused(_) | Self::NotRun)
    }
}

impl CallFinished {
    /// How the call ended.
    pub fn end(&self) -> CallEnd<'_> {
        CallEnd::of_result(self.no_result.as_ref(), self.result.is_error)
    }
}

impl fmt::Display for CallEnd<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Refused(limit) => return write!(f, "not run because of {limit}"),
            Self::Interrupted => "interrupted",
            Self::NotRun => "not run",
            Self::NotFinished => "not finished",
        })
    }
}
