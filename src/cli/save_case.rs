//! `legwork run --save-case`: a case of a real run. The workspace is copied before the run; what the models reply is taken
//! down while it goes on.

mod copy;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use self::copy::Fixture;
use super::confine::Confinement;
use super::print::printable;
use super::stay_inside::stay_inside;
use super::{Surroundings, test};
use crate::cases::draft::{self, Drafted, Fate, Spoken};
use crate::cases::{EXPECT_FILE, INPUTS_FILE, SCRIPT_FILE, SNAPSHOTS, TESTS, WORKSPACE, fixture, with_mark};
use crate::error::Error;
use crate::event::{Entry, Event, Outcome, RunResult};
use crate::formats;
use crate::job;
use crate::mask::Mask;
use crate::plan::Plan;
use crate::run::{Observer, Signals};
use crate::yaml;

/// The most changed files that are expected.
const MAX_CHANGED: usize = 200;
/// The longest file of which a snapshot is made, in bytes.
const MAX_SNAPSHOT: usize = 256 * 1024;
/// How long the case's first run may take to end after a signal.
const GRACE: Duration = Duration::from_secs(15);

/// A case that is about to be made.
pub(super) struct Saving {
    /// The case's folder, which isn't there yet.
    folder: PathBuf,
    workspace: PathBuf,
    fixture: Fixture,
    mask: Mask,
    is_repository: bool,
    replies: Arc<Replies>,
}

impl Saving {
    /// Copies the workspace as it is now.
    ///
    /// # Errors
    /// Where the name can't be, is taken, or the workspace can't be copied.
    pub(super) fn begin(name: &str, job_file: &Path, workspace: &Path, out: &Path, mask: &Mask) -> Result<Self, Error> {
        let usage = |message: String, hint: &str| Error::Usage { message, hint: Some(hint.into()) };
        if !job::is_name(name) {
            let hint = "A name is made of lower-case letters, digits and `-`, at most 64, and begins with no `-`.";
            return Err(usage(format!("`{name}` can't be a case's name"), hint));
        }
        let beside = job_file.parent().unwrap_or(Path::new("")).join(TESTS);
        let of_job = Path::new(TESTS).join(job_file.file_stem().unwrap_or_default());
        let base = job_file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        stay_inside(base, &of_job, "Remove the link: cases are kept beside their job.")?;
        let folder = beside.join(job_file.file_stem().unwrap_or_default()).join(name);
        if fs::symlink_metadata(&folder).is_ok() {
            let message = format!("{} is there already", folder.display());
            return Err(usage(message, "Give another name, or remove it."));
        }
        let copied = Fixture::copy(workspace, &[out.to_owned(), beside], mask);
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
    pub(super) fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.replies) as Arc<dyn Observer>
    }

    /// Makes the case of a run that has ended, and runs it once. What comes of it is said on stderr; it changes nothing
    /// about the run's own end.
    pub(super) fn finish(self, plan: &Plan, record: &Path, confinement: &Confinement, around: &Surroundings) {
        let result = fs::read(record.join("result.json")).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Some(result) = result else {
            return around.out.warning("no case was saved: the run has no result");
        };
        let repeatable = |result: &RunResult| {
            !result.outcome.can_be_resumed() && !matches!(result.outcome, Outcome::TimedOut | Outcome::ReplayDiffers)
        };
        if !repeatable(&result) {
            let why = format!("no case was saved: the run ended `{}`, which no script repeats", result.outcome);
            return around.out.warning(&why);
        }
        let shown = printable(&self.folder.to_string_lossy());
        if let Err(error) = self.write(plan, &result, around) {
            return around.out.warning(&format!("no case was saved in {shown}: {error}"));
        }
        around.out.beside(&format!("case:   {shown} ({})", self.fixture.summary()));
        self.fixture.left_out().iter().for_each(|left| around.out.beside(&format!("        {}", printable(left))));
        if !plan.secret_inputs.is_empty() {
            let names = plan.secret_inputs.join(", ");
            around.out.beside(&format!("        secret inputs aren't in it, a stand-in takes their place: {names}"));
        }
        self.prove(confinement, around);
    }

    /// Runs the case as `legwork test` does, and says where it doesn't pass.
    fn prove(&self, confinement: &Confinement, around: &Surroundings) {
        let ran = test::one(&self.folder, around).and_then(|cases| {
            let signals = Signals::catch_within(GRACE)?;
            test::run(&cases, test::How::ONCE, confinement, around, &signals, &|_| {})
        });
        match ran {
            Ok(report) if report.failed() == 0 => {}
            Ok(report) => {
                let shown = formats::find("text").and_then(|format| format.cases(&report, around.out.look_beside()));
                around.out.warning(
                    "the saved case doesn't pass: not everything is the same again, so change what it expects",
                );
                around.out.beside(&shown.unwrap_or_default());
            }
            Err(error) => {
                around.out.warning("the saved case can't be run:");
                around.out.error(&error);
            }
        }
    }

    fn write(&self, plan: &Plan, result: &RunResult, around: &Surroundings) -> io::Result<()> {
        let above = self.folder.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(above)?;
        // It appears whole or not at all.
        let fresh = tempfile::Builder::new().prefix(".saving-").tempdir_in(above)?;
        let at = |name: &str| fresh.path().join(name);
        let replies = self.replies.all.lock().unwrap_or_else(PoisonError::into_inner);
        let workspace = self.workspace.to_string_lossy();
        // Where no limit bit, what was used of tokens changes nothing.
        let bit = |outcome| outcome == Outcome::BudgetExceeded;
        let with_usage = bit(result.outcome) || result.subagents.iter().any(|subagent| bit(subagent.outcome));
        let script = draft::script(&replies, &workspace, with_usage, |agent, call| plan.has_no(agent, call));
        fs::write(at(SCRIPT_FILE), script)?;
        if !plan.inputs.is_empty() {
            let inputs = plan.inputs.iter().map(|(name, value)| (name.clone(), value.clone()));
            fs::write(at(INPUTS_FILE), yaml::written(&Value::Object(inputs.collect())))?;
        }
        if !self.fixture.is_empty() {
            fixture::lay_as_it_is(self.fixture.folder(), &at(WORKSPACE))?;
        }
        let drafted = Drafted { files: self.changes(result, &at(SNAPSHOTS), around)?, git: self.is_repository };
        fs::write(at(EXPECT_FILE), draft::expect(result, &replies, &drafted, &workspace))?;
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
    fn changes(
        &self,
        result: &RunResult,
        snapshots: &Path,
        around: &Surroundings,
    ) -> io::Result<BTreeMap<String, Fate>> {
        let mut files = BTreeMap::new();
        let mut changed = self.fixture.changed()?;
        if let Some(changes) = &result.changes {
            // What else is new there was written beside the run, as the file of `--result` is.
            changed.retain(|path| changes.iter().any(|change| Path::new(&change.path) == path));
        }
        if changed.len() > MAX_CHANGED {
            let beyond = changed.len() - MAX_CHANGED;
            around.out.warning(&format!("{beyond} more changed files aren't expected by the saved case"));
        }
        for path in changed.into_iter().take(MAX_CHANGED) {
            let (Some(name), Some(escaped)) = (path.to_str(), fixture::escaped_path(&path)) else { continue };
            let there = self.workspace.join(&path);
            let fate = match fs::symlink_metadata(&there) {
                Err(_) => Fate::Absent,
                Ok(data) if !data.is_file() || data.len() > MAX_SNAPSHOT as u64 => Fate::Exists,
                Ok(_) => {
                    let bytes = fs::read(&there)?;
                    let text = String::from_utf8_lossy(&bytes);
                    if self.mask.text(&text) == text {
                        let target = snapshots.join(escaped);
                        fs::create_dir_all(target.parent().unwrap_or(snapshots))?;
                        let bytes = match str::from_utf8(&bytes) {
                            Ok(text) => with_mark(text, &self.workspace.to_string_lossy()).into_bytes(),
                            Err(_) => bytes.clone(),
                        };
                        fs::write(target, bytes)?;
                        Fate::Snapshot
                    } else {
                        Fate::Exists
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
struct Replies {
    all: Mutex<BTreeMap<String, Vec<Spoken>>>,
    /// How many turns the summary leaves as they are that an agent was last asked for, if it was one.
    keeps_turns: Mutex<BTreeMap<String, Option<u32>>>,
}

impl Observer for Replies {
    fn event(&self, entry: &Entry) {
        let mut keeps = self.keeps_turns.lock().unwrap_or_else(PoisonError::into_inner);
        match &entry.event {
            Event::Asked(asked) => drop(keeps.insert(entry.agent.clone(), asked.keeps_turns)),
            Event::Replied(replied) => {
                let keeps_turns = keeps.get(&entry.agent).copied().flatten();
                let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
                let spoken = Spoken { reply: replied.reply.clone(), keeps_turns };
                all.entry(entry.agent.clone()).or_default().push(spoken);
            }
            _ => {}
        }
    }

    fn text(&self, _: &str, _: &str) {}
}
