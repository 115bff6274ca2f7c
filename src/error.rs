//! What the operator must fix: causes, a hint and an exit code. (A job's author reads `Diagnostic`s, a model reads
//! `ToolError`s.)

use std::io;
use std::path::PathBuf;

use crate::diagnostic::Diagnostic;
use crate::event::{EXIT_ENVIRONMENT, EXIT_INVALID, EXIT_USAGE, FORMAT, Outcome};
use crate::providers::{ProviderError, ProviderErrorKind};
use crate::sandbox::SandboxUnavailable;

/// Why a command couldn't do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line asks for something that can't be.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// The job file or its inputs are invalid.
    #[error("the job can't run")]
    Invalid(Vec<Diagnostic>),
    /// The user's own configuration has mistakes.
    #[error("the configuration has mistakes")]
    Configuration(Vec<Diagnostic>),
    /// A file that was named can't be read.
    #[error("{} can't be read", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The record can't be written or read.
    #[error("{}: the run's record can't be kept here", path.display())]
    Record {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The record of a run that has begun takes nothing more.
    #[error("{}: the run's record can't be written any more", path.display())]
    BrokenRecord {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The workspace can't be opened.
    #[error("the workspace {} can't be opened", path.display())]
    Workspace {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something else of the surroundings fails.
    #[error("{message}")]
    Environment {
        /// What.
        message: String,
        /// Why.
        source: io::Error,
    },
    /// A folder that was named as a run isn't one.
    #[error("{} isn't a run's record: {why}", path.display())]
    NotARecord {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A legwork that writes another format wrote the record.
    #[error("{}: the record's format is {format}, and this legwork reads format {FORMAT}", path.display())]
    OtherFormat {
        /// The file that says so.
        path: PathBuf,
        /// The format.
        format: u64,
        /// The version of the legwork that wrote it, where that is known.
        version: Option<String>,
    },
    /// Another process has the run's folder.
    #[error("{}: the run is still going on", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The record wasn't made here, so that what it grants was granted by nobody here.
    #[error("{}: this record wasn't made here, or not with this key", path.display())]
    ForeignRecord {
        /// The folder.
        path: PathBuf,
    },
    /// The record is a copy of another one that is there, too.
    #[error("{}: this is a copy of the record {}, which can go on itself", path.display(), original.display())]
    Copied {
        /// The folder.
        path: PathBuf,
        /// The record that it was made from.
        original: PathBuf,
    },
    /// The run has ended, so that it can't be resumed.
    #[error("the run {run_id} has ended: {outcome}")]
    RunEnded {
        /// Its id.
        run_id: String,
        /// How.
        outcome: Outcome,
        /// The exit code that it had.
        exit_code: u8,
    },
    /// The workspace isn't as the run left it.
    #[error("the workspace is at another commit than the run was: {now} instead of {then}")]
    CommitMismatch {
        /// The commit that is checked out.
        now: String,
        /// The one that was.
        then: String,
    },
    /// No run fits the name.
    #[error("no run is called `{wanted}` in {}", out.display())]
    NoSuchRun {
        /// The name.
        wanted: String,
        /// Where it was looked for.
        out: PathBuf,
    },
    /// No run at all was recorded there.
    #[error("there are no runs in {} yet", out.display())]
    NoRuns {
        /// Where one was looked for.
        out: PathBuf,
    },
    /// Several runs fit the name.
    #[error("several runs begin with `{wanted}`: {}", ids.join(", "))]
    AmbiguousRun {
        /// The name.
        wanted: String,
        /// Their ids.
        ids: Vec<String>,
    },
    /// Commands can't be confined as they must be.
    #[error("{0}")]
    SandboxUnavailable(SandboxUnavailable),
    /// A provider can't be used at all, found before the run begins.
    #[error("{}", .0.message)]
    Provider(ProviderError),
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Usage { hint, .. } => hint.clone(),
            Self::Provider(fault) => fault.hint.clone(),
            Self::Record { .. } => Some("Choose another folder with --out DIR.".into()),
            Self::BrokenRecord { path, .. } => {
                Some(format!("Make room for the record, then go on: legwork resume {}", path.display()))
            }
            Self::Workspace { .. } => Some("Choose a folder that exists with --workspace DIR.".into()),
            Self::NoSuchRun { .. } => {
                Some("Name a folder, a run id or the start of one, JOB/latest, or latest.".into())
            }
            Self::NoRuns { .. } => Some(
                "Make one with `legwork run JOB.yaml`, or name the folder that holds your runs with --out DIR.".into(),
            ),
            Self::AmbiguousRun { .. } => Some("Write more of the id.".into()),
            Self::OtherFormat { version: Some(version), .. } => {
                Some(format!("Legwork {version}, which wrote it, can read it."))
            }
            Self::OtherFormat { version: None, .. } => Some("The legwork that wrote it can read it.".into()),
            Self::ForeignRecord { .. } => Some(
                "Look at what it grants, and go on with it all the same with --trust-record. Machines that share runs have \
                 the same LEGWORK_RECORD_KEY."
                    .into(),
            ),
            Self::Copied { original, .. } => Some(format!(
                "Go on with the original: legwork resume {}. With --force the copy goes on, too, and what follows happens \
                 twice.",
                original.display()
            )),
            Self::InUse { .. } => Some("Wait for its end, or stop it.".into()),
            Self::RunEnded { .. } => Some("Only a run that was cut off can go on; start a new one.".into()),
            Self::SandboxUnavailable(SandboxUnavailable { remedy: Some(remedy), .. }) => {
                Some(format!("{remedy}, or let commands do whatever you can do with --sandbox off."))
            }
            Self::SandboxUnavailable(_) => Some("Let commands do whatever you can do with --sandbox off.".into()),
            Self::CommitMismatch { .. } => Some("Check that commit out, or go on all the same with --force.".into()),
            Self::Invalid(_)
            | Self::Configuration(_)
            | Self::Unreadable { .. }
            | Self::Environment { .. }
            | Self::NotARecord { .. } => None,
        }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage { .. }
            | Self::NoSuchRun { .. }
            | Self::NoRuns { .. }
            | Self::AmbiguousRun { .. }
            | Self::CommitMismatch { .. }
            | Self::ForeignRecord { .. }
            | Self::Copied { .. }
            | Self::OtherFormat { .. }
            | Self::NotARecord { .. } => EXIT_USAGE,
            Self::RunEnded { exit_code, .. } => *exit_code,
            Self::InUse { .. } | Self::SandboxUnavailable(_) => EXIT_ENVIRONMENT,
            Self::Invalid(_) | Self::Unreadable { .. } => EXIT_INVALID,
            Self::Configuration(_)
            | Self::Record { .. }
            | Self::BrokenRecord { .. }
            | Self::Workspace { .. }
            | Self::Environment { .. } => EXIT_ENVIRONMENT,
            Self::Provider(fault) => match fault.kind {
                ProviderErrorKind::Rejected | ProviderErrorKind::ContextFull => {
                    Outcome::ProviderRejected.exit_code(None)
                }
                ProviderErrorKind::Failed => Outcome::ProviderFailed.exit_code(None),
                ProviderErrorKind::Differs => Outcome::ReplayDiffers.exit_code(None),
            },
        }
    }
}
