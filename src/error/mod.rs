//! Errors for the operator, each with a hint and an exit code. (Authors of jobs get `Diagnostic`s, models get `ToolError`s.)

mod obstacle;

use std::io;
use std::path::{Path, PathBuf};

pub use self::obstacle::{ContinuedBy, OTHER_KEY, Obstacle, previous_attempt_of, record_of};
use crate::diagnostic::Diagnostic;
use crate::event::{FORMAT, Outcome};
use crate::exit_code::{EXIT_ENVIRONMENT, EXIT_INVALID, EXIT_TEMPORARY, EXIT_USAGE};
use crate::mcp::StartError;
use crate::plan::LimitOverrideError;
use crate::providers::ProviderError;
use crate::sandbox::SandboxUnavailable;
use crate::text::shell_words::shell_quote;

/// The record of a run belongs to another process: the cause of an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("another process has taken over this run, because this one was suspended for too long")]
pub struct TakenOver;

/// Why a command of the command line failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line is invalid.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// How to fix it.
        hint: Option<String>,
    },
    /// The job file or its inputs are invalid.
    #[error("the job can't run")]
    Invalid(Vec<Diagnostic>),
    /// The user's configuration has errors.
    #[error("the configuration has errors")]
    Configuration(Vec<Diagnostic>),
    /// The record can't be written or read.
    #[error("{}: the run's record can't be written or read", path.display())]
    Record {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The record of a running run can't be continued.
    #[error("{}: the run's record can't be written any more", path.display())]
    BrokenRecord {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The process may open too few files to run anything.
    #[error("at most {limit} files can be open at once here, and this needs {needed}")]
    FewDescriptors {
        /// The hard limit.
        limit: u64,
        /// The least that is needed.
        needed: u64,
    },
    /// The workspace can't be opened.
    #[error("the workspace {} can't be opened", path.display())]
    Workspace {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Something else on this machine fails.
    #[error("{message}")]
    Environment {
        /// What fails.
        message: String,
        /// The cause.
        source: io::Error,
    },
    /// A folder or file isn't a valid record of a run.
    #[error("{} isn't a run's record: {why}", path.display())]
    NotARecord {
        /// The path.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Another version of legwork wrote the record, in another format.
    #[error("{}: {}", path.display(), other_format(*format))]
    OtherFormat {
        /// The file that has the other format.
        path: PathBuf,
        /// The format.
        format: u64,
        /// The version that wrote it, if known.
        version: Option<String>,
    },
    /// Another process uses the run's folder.
    #[error("{}: the run is still running", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// Another process executes the run with this key.
    #[error("{}: another process is executing this run", path.display())]
    KeyInUse {
        /// The folder.
        path: PathBuf,
    },
    /// Another process publishes the outputs of this record.
    #[error("another process is publishing with {}", path.display())]
    PublishedElsewhere {
        /// Its file of what was published.
        path: PathBuf,
    },
    /// The file of what was published can't be written or read.
    #[error("{} can't be written or read, so nothing more was published", path.display())]
    PublishedFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Nothing can be published: there is no token, it isn't accepted, or a record isn't what is required.
    #[error("{message}")]
    CannotPublish {
        /// What is wrong.
        message: String,
        /// How to fix it.
        hint: String,
        /// Whether it may work later.
        is_temporary: bool,
    },
    /// Another run of the job has its state.
    #[error("{}: another run of this job is using its state", path.display())]
    StateInUse {
        /// The file of the state.
        path: PathBuf,
    },
    /// The file of a job's state can't be used.
    #[error("{}: {why}", path.display())]
    StateFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
        /// How to fix it.
        hint: String,
    },
    /// A run has completed, and its state couldn't be saved.
    #[error("the run has completed, and its state can't be saved in {}", path.display())]
    StateNotSaved {
        /// The file of the state.
        path: PathBuf,
        /// The record, which has the state.
        record: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another process has taken over the run, because this one was suspended.
    #[error("{}: {}", path.display(), TakenOver)]
    TakenOver {
        /// The folder.
        path: PathBuf,
    },
    /// The record of a run may not continue, or not like this.
    #[error("{}", obstacle.message(record))]
    CannotContinue {
        /// The record.
        record: PathBuf,
        /// What is in the way.
        obstacle: Obstacle,
        /// What was to continue it.
        by: ContinuedBy,
    },
    /// The run has ended, so it can't be resumed.
    #[error("the run {run_id} has ended: {outcome}")]
    RunEnded {
        /// Its id.
        run_id: String,
        /// How it ended.
        outcome: Outcome,
        /// Its exit code.
        exit_code: u8,
    },
    /// No run has this name.
    #[error("no run is called `{wanted}` in {}", out.display())]
    NoSuchRun {
        /// The name.
        wanted: String,
        /// The folder that was searched.
        out: PathBuf,
    },
    /// There is no run at all in a folder.
    #[error("there are no runs in {} yet", out.display())]
    NoRuns {
        /// The folder that was searched.
        out: PathBuf,
    },
    /// It is the name of a map, which has a run for each row.
    #[error("`{wanted}` is a map, which has a run for each of its rows")]
    IsMap {
        /// The name.
        wanted: String,
        /// The map's folder.
        map: PathBuf,
    },
    /// It is the name of a job, which has runs.
    #[error("`{job}` is a job in {}, not a run", out.display())]
    IsJob {
        /// The job.
        job: String,
        /// The folder that was searched.
        out: PathBuf,
    },
    /// Several runs match a name.
    #[error("several runs begin with `{wanted}`: {}", ids.join(", "))]
    AmbiguousRun {
        /// The name.
        wanted: String,
        /// Their ids.
        ids: Vec<String>,
    },
    /// The required sandbox doesn't work on this machine.
    #[error("{0}")]
    SandboxUnavailable(SandboxUnavailable),
    /// A required tool server doesn't start, or its tools aren't as expected.
    #[error("{0}")]
    ToolServer(StartError),
    /// A signal stopped the run while its tool servers started.
    #[error("stopped while the tool servers started: nothing was spent")]
    StoppedAtStart {
        /// The signal's number.
        signal: u8,
    },
    /// A provider can't be used at all; found before the run begins.
    #[error("{}", .0.message)]
    Provider(ProviderError),
}

impl From<LimitOverrideError> for Error {
    fn from(error: LimitOverrideError) -> Self {
        Self::usage(error.message, error.hint)
    }
}

/// The verdict on a record that another version wrote in another format.
pub fn other_format(format: u64) -> String {
    format!("the record's format is {format}, and this legwork reads format {FORMAT}")
}

/// Says what can read a record in another format, which this version wrote.
pub fn reader_of(version: Option<&str>) -> String {
    match version {
        Some(version) => format!("Legwork {version}, which wrote it, can read it"),
        None => "The legwork that wrote it can read it".to_owned(),
    }
}

/// What to do if a record can't be written any more.
pub fn recovery_hint(failure: &io::Error, folder: &Path) -> String {
    use io::ErrorKind::{InvalidData, NotFound};
    match failure.kind() {
        NotFound | InvalidData => {
            "A command of the run, such as `git clean -x`, or another program moved, deleted or changed the record. Start the job \
             again, and keep them away from the record; --out DIR keeps it outside of the workspace."
                .into()
        }
        _ if is_out_of_descriptors(failure) => {
            format!("{RAISE_DESCRIPTORS}, then resume the run: legwork resume {}", folder.display())
        }
        _ => format!("Free some disk space, then resume the run: legwork resume {}", folder.display()),
    }
}

impl Error {
    /// An error of the command line, with a hint.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: Some(hint.into()) }
    }

    /// Adds to an I/O error what fails because of it.
    pub fn environment(message: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let message = message.into();
        move |source| Self::Environment { message, source }
    }

    /// How to fix the error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Usage { hint, .. } => hint.clone(),
            Self::Provider(error) => error.hint.clone(),
            Self::ToolServer(error) if error.is_time_up => {
                let text = "Nothing was spent. Give the run more time: a larger `wall_clock`, or --limit wall_clock=DURATION.";
                Some(text.to_owned())
            }
            Self::ToolServer(_) => {
                let text = "Nothing was spent. Check its declaration under `mcp`. A program in a folder of your own may need \
                            --allow-read DIR; `required: false` runs the job without the server.";
                Some(text.to_owned())
            }
            Self::FewDescriptors { .. } => Some(format!("{RAISE_DESCRIPTORS}.")),
            Self::Record { source, .. } if is_out_of_descriptors(source) => {
                Some(format!("{RAISE_DESCRIPTORS}, then repeat the command."))
            }
            Self::Record { source, .. }
                if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
            {
                // In another folder, runs with a key and rows of a map that have ended would be paid for again.
                Some("Free some disk space, then repeat the command; with --out DIR, it starts again in another folder.".into())
            }
            Self::Record { .. } => Some("Choose another folder with --out DIR.".into()),
            Self::BrokenRecord { path, source } => Some(recovery_hint(source, path)),
            Self::Workspace { .. } => Some("Choose an existing folder with --workspace DIR.".into()),
            Self::NoSuchRun { .. } => {
                Some(
                "Name a run by its folder, its id or the beginning of its id, its key, JOB/KEY, the id of a row, MAP/ROW, \
                     JOB/MAP/ROW, JOB/latest, or latest."
                    .into(),
            )
            }
            Self::IsJob { job, .. } => Some(format!(
                "Its newest run is `{job}/latest`; `legwork runs` lists all."
            )),
            Self::IsMap { map, .. } => Some(format!(
                "`legwork show {0}` shows how its rows ended. For one of them, name {0}/ROW; `legwork runs --rows` lists them, and \
                 {1} has all. To continue the map, repeat the command `legwork map`.",
                map.file_name().unwrap_or_default().to_string_lossy(),
                map.join("results.csv").display()
            )),
            Self::NoRuns { .. } => Some(
                "Start one with `legwork run JOB.yaml`, or name the folder of your runs with --out DIR.".into(),
            ),
            Self::AmbiguousRun { .. } => Some("Give more characters of the id, or the job as well: JOB/ID.".into()),
            Self::OtherFormat { version, .. } => Some(format!("{}.", reader_of(version.as_deref()))),
            Self::CannotContinue { record, obstacle, by } => Some(obstacle.hint(record, *by)),
            Self::KeyInUse { .. } => {
                Some("Repeat the command later: it prints the answer of the run, or resumes it.".into())
            }
            Self::PublishedElsewhere { .. } => Some("Repeat the command later: it publishes what isn't there yet.".into()),
            Self::PublishedFile { .. } => Some("If the record is read-only, name another file with --state FILE.".into()),
            Self::CannotPublish { hint, .. } => Some(hint.clone()),
            Self::StateInUse { .. } => {
                Some("Repeat the command later: runs that share a state run one after the other.".into())
            }
            Self::StateFile { hint, .. } => Some(hint.clone()),
            Self::StateNotSaved { record, .. } => Some(format!(
                "The state is in the record. Fix the cause, then save it with `legwork resume {}`: nothing is asked again.",
                shell_quote(record)
            )),
            Self::TakenOver { .. } => Some("The other process continues it. Repeat the command later.".into()),
            Self::InUse { .. } => Some("Wait until it has ended, or stop it.".into()),
            Self::RunEnded { .. } => Some("Only an interrupted run can be resumed. Start a new one.".into()),
            Self::SandboxUnavailable(SandboxUnavailable { remedy: Some(remedy), .. }) => {
                Some(format!("{remedy}, or run commands without a sandbox, with all your permissions: --sandbox off."))
            }
            Self::SandboxUnavailable(_) => Some("Run commands without a sandbox, with all your permissions: --sandbox off.".into()),
            Self::Invalid(_)
            | Self::Configuration(_)
            | Self::Environment { .. }
            | Self::NotARecord { .. }
            | Self::StoppedAtStart { .. } => None,
        }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage { .. }
            | Self::NoSuchRun { .. }
            | Self::NoRuns { .. }
            | Self::IsMap { .. }
            | Self::IsJob { .. }
            | Self::AmbiguousRun { .. }
            | Self::CannotContinue { .. }
            | Self::OtherFormat { .. }
            | Self::NotARecord { .. } => EXIT_USAGE,
            Self::RunEnded { exit_code, .. } => *exit_code,
            Self::StoppedAtStart { signal } => 128 + signal,
            Self::ToolServer(error) if error.is_time_up => Outcome::TimedOut.exit_code(None),
            Self::KeyInUse { .. } | Self::TakenOver { .. } => Outcome::ProviderFailed.exit_code(None),
            Self::PublishedElsewhere { .. } | Self::StateInUse { .. } => EXIT_TEMPORARY,
            Self::CannotPublish { is_temporary: true, .. } => EXIT_TEMPORARY,
            Self::CannotPublish { .. } | Self::PublishedFile { .. } => EXIT_ENVIRONMENT,
            Self::Invalid(_) => EXIT_INVALID,
            Self::InUse { .. }
            | Self::SandboxUnavailable(_)
            | Self::ToolServer(_)
            | Self::Configuration(_)
            | Self::Record { .. }
            | Self::BrokenRecord { .. }
            | Self::StateFile { .. }
            | Self::StateNotSaved { .. }
            | Self::FewDescriptors { .. }
            | Self::Workspace { .. }
            | Self::Environment { .. } => EXIT_ENVIRONMENT,
            Self::Provider(error) => Outcome::from(error.kind).exit_code(None),
        }
    }
}

/// What to do about a low limit of open files.
pub(crate) const RAISE_DESCRIPTORS: &str =
    "Raise the limit of open files (`ulimit -n 1024`; for a container, `docker run --ulimit nofile=1024`)";

/// Whether something failed because no more files can be opened.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(rustix::io::Errno::from_io_error(error), Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
}
