//! `legwork run --save-case`: a case of a real run. The workspace is copied before the run; what the models reply is taken
//! down while it goes on.

mod workspace_copy;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io};

use serde_json::Value;

use self::workspace_copy::WorkspaceCopy;
use super::output::printable;
use super::sandbox_options::SandboxOptions;
use super::symlink_guard::reject_escaping_symlinks;
use super::{CliEnv, test};
use crate::cases::generate::{self, FileOutcome, RecordedReply, WorkspaceOutcome};
use crate::cases::{
    EXPECT_FILE, INPUTS_FILE, SCRIPT_FILE, SNAPSHOTS_FOLDER, TESTS_FOLDER, WORKSPACE_FOLDER, fixture, with_placeholder,
};
use crate::error::Error;
use crate::event::{Event, JournalEntry, Outcome, RunResult};
use crate::plan::Plan;
use crate::redaction::Redactor;
use crate::run::{RunObserver, Signals};
use crate::{formats, job, yaml};

/// The most changed files that are expected.
const MAX_CHANGED_FILES: usize = 200;
/// The longest file of which a snapshot is made, in bytes.
const MAX_SNAPSHOT_BYTES: usize = 256 * 1024;
/// How long the case's first run may take to end after a signal.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(15);

/// A case that is about to be made.
pub(super) struct CaseRecorder {
    /// The case's folder, which isn't there yet.
    folder: PathBuf,
    workspace: PathBuf,
    fixture: WorkspaceCopy,
    mask: Redactor,
    is_repository: bool,
    replies: Arc<ReplyRecorder>,
}

impl CaseRecorder {
    /// Copies the workspace as it is now.
    ///
    /// # Errors
    /// Where the name can't be, is taken, or the workspace can't be copied.
    pub(super) fn begin(
        name: &str,
        job_file: &Path,
        workspace: &Path,
        out: &Path,
        mask: &Redactor,
    ) -> Result<Self, Error> {
        let usage = |message: String, hint: &str| Error::Usage { message, hint: Some(hint.into()) };
        if !job::is_name(name) {
            let hint = "A name is made of lower-case letters, digits and `-`, at most 64, and begins with no `-`.";
            return Err(usage(format!("`{name}` can't be a case's name"), hint));
        }
        let beside = job_file.parent().unwrap_or(Path::new("")).join(TESTS_FOLDER);
        let of_job = Path::new(TESTS_FOLDER).join(job_file.file_stem().unwrap_or_default());
        let base = job_file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        reject_escaping_symlinks(base, &of_job, "Remove the link: cases are kept beside their job.")?;
        let folder = beside.join(job_file.file_stem().unwrap_or_default()).join(name);
        if fs::symlink_metadata(&folder).is_ok() {
            let message = format!("{} is there already", folder.display());
            return Err(usage(message, "Give another name, or remove it."));
        }
        let copied = WorkspaceCopy::copy(workspace, &[out.to_owned(), beside], mask);
        let fixture = copied.map_err(|source| Error::Environment {
            message: "the workspace can't be copied for --save-case".into(),
            source,
        })?;
        Ok(Self {
            folder,
            workspace: workspace.to_owned(),
            fixture,
            mask: mask.clone(),
            is_repository: workspace.join(".git").exists(),
            replies: Arc::default(),
        })
    }

    /// Who takes down the replies.
    pub(super) fn observer(&self) -> Arc<dyn RunObserver> {
        Arc::clone(&self.replies) as Arc<dyn RunObserver>
    }

    /// Makes the case of a run that has ended, and runs it once. What comes of it is said on stderr; it changes nothing
    /// about the run's own end.
    pub(super) fn finish(self, plan: &Plan, record: &Path, confinement: &SandboxOptions, around: &CliEnv) {
        let result = fs::read(record.join("result.json")).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Some(result) = result else {
            return around.console.warning("no case was saved: the run has no result");
        };
        let repeatable = |result: &RunResult| {
            !result.outcome.can_be_resumed() && !matches!(result.outcome, Outcome::TimedOut | Outcome::ReplayDiffers)
        };
        if !repeatable(&result) {
            let why = format!("no case was saved: the run ended `{}`, which no script repeats", result.outcome);
            return around.console.warning(&why);
        }
        let shown = printable(&self.folder.to_string_lossy());
        if let Err(error) = self.write(plan, &result, around) {
            return around.console.warning(&format!("no case was saved in {shown}: {error}"));
        }
        around.console.eprint(&format!("case:   {shown} ({})", self.fixture.summary()));
        self.fixture
            .skipped_summary()
            .iter()
            .for_each(|left| around.console.eprint(&format!("        {}", printable(left))));
        if !plan.secret_inputs.is_empty() {
            let names = plan.secret_inputs.join(", ");
            around
                .console
                .eprint(&format!("        secret inputs aren't in it, a stand-in takes their place: {names}"));
        }
        self.verify(confinement, around);
    }

    /// Runs the case as `legwork test` does, and says where it doesn't pass.
    fn verify(&self, confinement: &SandboxOptions, around: &CliEnv) {
        let ran = test::load_case(&self.folder, around).and_then(|cases| {
            let signals = Signals::catch_within(SHUTDOWN_GRACE)?;
            test::run_cases(&cases, test::TestRunConfig::ONCE, confinement, around, &signals, &|_| {})
        });
        match ran {
            Ok(report) if report.failed() == 0 => {}
            Ok(report) => {
                let shown = formats::find("text")
                    .and_then(|format| format.test_report(&report, around.console.stderr_display()));
                around.console.warning(
                    "the saved case doesn't pass: not everything is the same again, so change what it expects",
                );
                around.console.eprint(&shown.unwrap_or_default());
            }
            Err(error) => {
                around.console.warning("the saved case can't be run:");
                around.console.error(&error);
            }
        }
    }

    fn write(&self, plan: &Plan, result: &RunResult, around: &CliEnv) -> io::Result<()> {
        let above = self.folder.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(above)?;
        // It appears whole or not at all.
        let fresh = tempfile::Builder::new().prefix(".saving-").tempdir_in(above)?;
        let at = |name: &str| fresh.path().join(name);
        let replies = self.replies.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        let workspace = self.workspace.to_string_lossy();
        // Where no limit bit, what was used of tokens changes nothing.
        let bit = |outcome| outcome == Outcome::BudgetExceeded;
        let with_usage = bit(result.outcome) || result.subagents.iter().any(|subagent| bit(subagent.outcome));
        let script =
            generate::generate_script(&replies, &workspace, with_usage, |agent, call| plan.is_unavailable(agent, call));
        fs::write(at(SCRIPT_FILE), script)?;
        if !plan.inputs.is_empty() {
            let inputs = plan.inputs.iter().map(|(name, value)| (name.clone(), value.clone()));
            fs::write(at(INPUTS_FILE), yaml::to_yaml(&Value::Object(inputs.collect())))?;
        }
        if !self.fixture.is_empty() {
            fixture::copy_verbatim(self.fixture.folder(), &at(WORKSPACE_FOLDER))?;
        }
        let drafted = WorkspaceOutcome {
            files: self.snapshot_changes(result, &at(SNAPSHOTS_FOLDER), around)?,
            is_git_repository: self.is_repository,
        };
        fs::write(at(EXPECT_FILE), generate::generate_expect(result, &replies, &drafted, &workspace))?;
        if fs::symlink_metadata(&self.folder).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "somebody else has made it meanwhile"));
        }
        fs::set_permissions(fresh.path(), fs::Permissions::from_mode(0o755))?;
        fs::rename(fresh.path(), &self.folder)?;
        // Nothing is left of it under that name.
        let _ = fresh.keep();
        Ok(())
    }

    /// The files that the run has changed; their snapshots go to `snapshots`.
    fn snapshot_changes(
        &self,
        result: &RunResult,
        snapshots: &Path,
        around: &CliEnv,
    ) -> io::Result<BTreeMap<String, FileOutcome>> {
        let mut files = BTreeMap::new();
        let mut changed = self.fixture.changed_files()?;
        if let Some(changes) = &result.changes {
            // What else is new there was written beside the run, as the file of `--result` is.
            changed.retain(|path| changes.iter().any(|change| Path::new(&change.path) == path));
        }
        if changed.len() > MAX_CHANGED_FILES {
            let beyond = changed.len() - MAX_CHANGED_FILES;
            around.console.warning(&format!("{beyond} more changed files aren't expected by the saved case"));
        }
        for path in changed.into_iter().take(MAX_CHANGED_FILES) {
            let (Some(name), Some(escaped)) = (path.to_str(), fixture::escape_path(&path)) else { continue };
            let there = self.workspace.join(&path);
            let fate = match fs::symlink_metadata(&there) {
                Err(_) => FileOutcome::Absent,
                Ok(data) if !data.is_file() || data.len() > MAX_SNAPSHOT_BYTES as u64 => FileOutcome::Exists,
                Ok(_) => {
                    let bytes = fs::read(&there)?;
                    let text = String::from_utf8_lossy(&bytes);
                    if self.mask.redact(&text) == text {
                        let target = snapshots.join(escaped);
                        fs::create_dir_all(target.parent().unwrap_or(snapshots))?;
                        let bytes = match str::from_utf8(&bytes) {
                            Ok(text) => with_placeholder(text, &self.workspace.to_string_lossy()).into_bytes(),
                            Err(_) => bytes.clone(),
                        };
                        fs::write(target, bytes)?;
                        FileOutcome::Snapshot
                    } else {
                        FileOutcome::Exists
                    }
                }
            };
            files.insert(name.to_owned(), fate);
        }
        Ok(files)
    }
}

/// What the models reply, agent by agent.
#[derive(Default)]
struct ReplyRecorder {
    by_agent: Mutex<BTreeMap<String, Vec<RecordedReply>>>,
    /// How many turns the summary leaves as they are that an agent was last asked for, if it was one.
    kept_turns: Mutex<BTreeMap<String, Option<u32>>>,
}

impl RunObserver for ReplyRecorder {
    fn event(&self, entry: &JournalEntry) {
        let mut keeps = self.kept_turns.lock().unwrap_or_else(PoisonError::into_inner);
        match &entry.event {
            Event::RequestStarted(asked) => drop(keeps.insert(entry.agent.clone(), asked.kept_turns)),
            Event::ReplyReceived(replied) => {
                let kept_turns = keeps.get(&entry.agent).copied().flatten();
                let mut all = self.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
                let spoken = RecordedReply { reply: replied.reply.clone(), kept_turns };
                all.entry(entry.agent.clone()).or_default().push(spoken);
            }
            _ => {}
        }
    }

    fn text(&self, _: &str, _: &str) {}
}
