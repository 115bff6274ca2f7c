//! Why nobody can say what started a run.

use std::io;
use std::path::PathBuf;

use super::forms::MAX_EVENT_BYTES;

/// Why an event can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TriggerError {
    /// The event file can't be read.
    #[error("the event file {} can't be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The event file is too large.
    #[error("the event file {} is larger than {} MB", path.display(), MAX_EVENT_BYTES >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The event file isn't an event.
    #[error("{} isn't an event of a forge: {why}", path.display())]
    NotAnEvent {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A variable has a value that it can't have.
    #[error("{name} is `{value}`, which isn't {expected}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value, shortened.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// The variables of both forges are set.
    #[error("the variables of GitHub and of GitLab are both set, so the forge isn't known")]
    BothForges,
}

impl TriggerError {
    /// What to do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => {
                "Name the JSON file of an event with --event FILE, such as \"$GITHUB_EVENT_PATH\"."
            }
            Self::TooLarge { .. } => "GitHub's events have at most 25 MB: name the file of one.",
            Self::NotAnEvent { .. } => {
                "It needs the JSON that GitHub writes to the file in GITHUB_EVENT_PATH, or the body of a webhook of GitLab."
            }
            Self::Variable { .. } => "The forge's runner sets this variable; leave it as it is.",
            Self::BothForges => {
                "Say which one is meant: --event FILE with its event or, for publish, --to github or --to gitlab."
            }
        }
    }
}
