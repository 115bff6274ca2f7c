//! How an agent or a run can end, and the exit code that follows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exit_code::{EXIT_DIFFERENT, EXIT_ENVIRONMENT, EXIT_FAILED, EXIT_LIMIT, EXIT_SIGNAL, EXIT_TEMPORARY};
use crate::providers::ProviderErrorKind;

/// Every way in which an agent or a run can end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran to its end.
    Completed,
    /// There was nothing to do, and no agent started.
    Skipped,
    /// A check still fails.
    ChecksFailed,
    /// The final data doesn't fit its schema.
    ResultInvalid,
    /// The model refused.
    Refused,
    /// `max_turns` was reached.
    TurnLimit,
    /// A limit of the tree was reached.
    BudgetExceeded,
    /// The wall clock ran out.
    TimedOut,
    /// The same failure over and over.
    Stuck,
    /// The last answer was cut by `max_tokens`.
    ReplyCut,
    /// The conversation fills the model's window.
    ContextFull,
    /// No sandbox, no tool server, a full disk.
    // Also what an agent has that comes to no other end.
    #[default]
    EnvironmentFailed,
    /// No key, or a key, model or request that the provider refuses for good.
    ProviderRejected,
    /// A replay has no reply for what is asked, or differs from its record.
    ReplayDiffers,
    /// Throttled, overloaded or unreachable after all retries.
    ProviderFailed,
    /// Stopped by a signal.
    Interrupted,
}

impl Outcome {
    /// All outcomes, in the order of their declaration.
    pub const ALL: [Self; Self::Interrupted as usize + 1] = [
        Self::Completed,
        Self::Skipped,
        Self::ChecksFailed,
        Self::ResultInvalid,
        Self::Refused,
        Self::TurnLimit,
        Self::BudgetExceeded,
        Self::TimedOut,
        Self::Stuck,
        Self::ReplyCut,
        Self::ContextFull,
        Self::EnvironmentFailed,
        Self::ProviderRejected,
        Self::ReplayDiffers,
        Self::ProviderFailed,
        Self::Interrupted,
    ];

    /// The exit code of the process. `signal` is the number of the signal that interrupted the run, 2 if unknown.
    pub fn exit_code(self, signal: Option<u8>) -> u8 {
        match self {
            Self::Completed | Self::Skipped => 0,
            Self::ChecksFailed | Self::ResultInvalid | Self::Refused => EXIT_FAILED,
            Self::TurnLimit
            | Self::BudgetExceeded
            | Self::TimedOut
            | Self::Stuck
            | Self::ReplyCut
            | Self::ContextFull => EXIT_LIMIT,
            Self::EnvironmentFailed | Self::ProviderRejected => EXIT_ENVIRONMENT,
            Self::ReplayDiffers => EXIT_DIFFERENT,
            Self::ProviderFailed => EXIT_TEMPORARY,
            Self::Interrupted => EXIT_SIGNAL + signal.unwrap_or(2),
        }
    }

    /// Whether a run with this outcome has succeeded: it did its work, or there was nothing to do.
    pub fn is_success(self) -> bool {
        matches!(self, Self::Completed | Self::Skipped)
    }

    /// Whether a run with this outcome can be resumed.
    pub fn can_be_resumed(self) -> bool {
        matches!(self, Self::Interrupted | Self::ProviderFailed | Self::ProviderRejected | Self::EnvironmentFailed)
    }

    /// Whether a run with this outcome can be resumed once the limit that ended it is raised.
    pub fn is_a_limit(self) -> bool {
        matches!(self, Self::TurnLimit | Self::BudgetExceeded | Self::TimedOut)
    }

    /// Whether an agent with this outcome was stopped in the middle of its work. It continues from its last step when the run
    /// is resumed.
    pub fn was_cut_off(self) -> bool {
        self.can_be_resumed() || self == Self::TimedOut
    }

    /// Whether a subagent with this outcome ends the whole run. Any other outcome is reported to the parent.
    pub fn ends_the_run(self) -> bool {
        self.was_cut_off() || matches!(self, Self::BudgetExceeded | Self::ReplayDiffers)
    }
}

impl From<ProviderErrorKind> for Outcome {
    fn from(kind: ProviderErrorKind) -> Self {
        match kind {
            ProviderErrorKind::Rejected => Self::ProviderRejected,
            ProviderErrorKind::Failed => Self::ProviderFailed,
            ProviderErrorKind::ContextFull => Self::ContextFull,
            ProviderErrorKind::Differs => Self::ReplayDiffers,
        }
    }
}

impl std::fmt::Display for Outcome {
    /// The name in `result.json`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}
