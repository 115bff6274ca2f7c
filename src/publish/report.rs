//! What became of the outputs of a record.

use super::failure::Failure;
use crate::exit_code::{EXIT_ENVIRONMENT, EXIT_FAILED, EXIT_TEMPORARY};

/// What became of one output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryReport {
    /// Its id; in a map, with the row's id before it.
    pub id: String,
    /// The kind of output.
    pub kind: &'static str,
    /// What became of it.
    pub status: EntryStatus,
}

/// What became of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryStatus {
    /// It was published now, or was found.
    Done {
        /// Its address.
        url: Option<String>,
    },
    /// An earlier process has published it.
    AlreadyDone {
        /// Its address.
        url: Option<String>,
    },
    /// It would be published: what would be sent, in paragraphs.
    Planned(Vec<String>),
    /// It wasn't, and may be later.
    Later(String),
    /// It may not be published.
    Refused(String),
    /// The token isn't accepted, or lacks a permission.
    Forbidden(String),
    /// It announces something that isn't there.
    Waiting(String),
}

impl From<Failure> for EntryStatus {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unclear(why) => {
                Self::Later(format!("{why}. Nobody knows whether it is there; the same command looks for it first"))
            }
            Failure::Later(why) => Self::Later(why),
            Failure::Forbidden(why) => Self::Forbidden(why),
            Failure::Missing(why) | Failure::Refused(why) => Self::Refused(why),
        }
    }
}

/// What became of all outputs.
#[derive(Debug, Default)]
pub struct PublishReport {
    /// The outputs, in the order in which they were published.
    pub entries: Vec<EntryReport>,
}

impl PublishReport {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        let any = |is: fn(&EntryStatus) -> bool| self.entries.iter().any(|entry| is(&entry.status));
        match () {
            () if any(|status| matches!(status, EntryStatus::Later(_))) => EXIT_TEMPORARY,
            () if any(|status| matches!(status, EntryStatus::Refused(_))) => EXIT_FAILED,
            () if any(|status| matches!(status, EntryStatus::Forbidden(_))) => EXIT_ENVIRONMENT,
            () => 0,
        }
    }
}
