//! `legwork run --save-case`: saves a run as a test case. Copies the workspace before the run and records the replies during
//! it.

mod workspace_copy;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, io, slice};

use serde_json::{Map, Value};

use self::workspace_copy::WorkspaceCopy;
use super::arguments::reject_escaping_symlinks;
use super::env::CliEnv;
use super::output::printable;
use super::read_files::parent_folder;
use super::sandbox_options::SandboxOptions;
use super::test;
use crate::cases::generate::{self, FileOutcome, RecordedReply, WorkspaceOutcome};
use crate::cases::{
    BEFORE_FILE, EVENT_FILE, EXPECT_FILE, INPUTS_FILE, OUTPUTS_SNAPSHOT, SCRIPT_FILE, SNAPSHOTS_FOLDER, TESTS_FOLDER,
    WORKSPACE_FOLDER, fixture, outputs_snapshot, with_placeholder,
};
use crate::error::Error;
use crate::event::{Event, JournalEntry, Outcome, RunModel, RunResult};
use crate::git::{self, is_worktree_root};
use crate::job::STATE_FILE;
use crate::lints::JobTrust;
use crate::message::ToolCall;
use crate::plan::Plan;
use crate::record::Record;
use crate::redaction::Redactor;
use crate::reports::test_text;
use crate::run::{RunObserver, Signals, StateFile, state_content};
use crate::sync::IgnorePoison;
use crate::{job, yaml};

/// The most changed files in the expectations.
const MAX_CHANGED_FILES: usize = 200;
/// The largest file that gets a snapshot, in bytes.
const MAX_SNAPSHOT_BYTES: usize = 256 * 1024;
/// The deepest path whose links are followed: a link can lead below itself.
const MAX_DEPTH: usize = 100;
/// The time for the case's first run to end after a signal.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(15);

/// Tools whose calls need no other file than the one that they name.
const SINGLE_FILE_TOOLS: [&str; 3] = [READ_FILE, "write_file", "edit_file"];
const READ_FILE: &str = "read_file";
/// Tools that need no file of the workspace, except for those of skills.
const FILELESS_TOOLS: [&str; 5] = ["todo", "task", "skill", "submit_result", "set_state"];

/// The files of the workspace that a run needs.
struct NeededFiles {
    /// Files and folders, with the links that lead to them.
    paths: BTreeSet<PathBuf>,
    /// Those that calls may have changed.
    written: BTreeSet<PathBuf>,
}

impl NeededFiles {
    fn has(&self, file: &Path) -> bool {
        file.ancestors().any(|path| self.paths.contains(path))
    }
}

/// The files that a run needs: those that its calls and inputs name, its context files, and its skills. `None` if it may need
/// any file, because it searched, ran commands or checks, or called a tool server.
fn needed_files<'a>(
    plan: &Plan,
    calls: impl Iterator<Item = &'a ToolCall>,
    copy: &WorkspaceCopy,
) -> Option<NeededFiles> {
    if plan.active_checks().next().is_some() {
        return None;
    }
    let outputs = plan.outputs.as_ref();
    let is_output =
        |tool: &str| tool == job::NOTHING_TO_DO || outputs.is_some_and(|outputs| outputs.allowed.contains_key(tool));
    let mut named: Vec<PathBuf> = Vec::new();
    let mut written = BTreeSet::new();
    for call in calls {
        match call.tool.as_str() {
            tool if SINGLE_FILE_TOOLS.contains(&tool) => {
                let input = serde_json::from_str::<Value>(call.input.get()).unwrap_or_default();
                let path = Path::new(input.get("path").and_then(Value::as_str).unwrap_or_default());
                // A path that leads elsewhere is in a copy of the workspace, or the call failed.
                let path = path.strip_prefix(&copy.workspace).unwrap_or(path);
                if path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
                    return None;
                }
                let path: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
                if tool != READ_FILE {
                    written.insert(path.clone());
                }
                named.push(path);
            }
            tool if FILELESS_TOOLS.contains(&tool) || is_output(tool) => {}
            _ => return None,
        }
    }
    named.extend(plan.inputs.values().filter_map(Value::as_str).map(PathBuf::from));
    for agent in plan.agents() {
        let entries = || agent.context.iter().chain(&agent.skills);
        // A pattern, or a file of a commit.
        if entries().any(|entry| entry.contains(['*', '?', '[', '{', ':'])) {
            return None;
        }
        named.extend(entries().map(PathBuf::from));
    }
    named.retain(|name| !name.as_os_str().is_empty());
    let mut paths = BTreeSet::new();
    while let Some(name) = named.pop() {
        let is_new = !paths.contains(&name) && name.components().count() < MAX_DEPTH;
        if let Some((target, link)) = copy.follow_link(&name).filter(|_| is_new) {
            if written.contains(&name) {
                written.insert(target.clone());
            }
            paths.insert(link);
            named.push(target);
        }
        paths.insert(name);
    }
    Some(NeededFiles { paths, written })
}

/// Records a case.
pub(super) struct CaseRecorder {
    job_file: PathBuf,
    /// The folder of the case, which doesn't exist yet.
    folder: PathBuf,
    fixture: WorkspaceCopy,
    redactor: Redactor,
    is_repository: bool,
    replies: Arc<ReplyRecorder>,
}

impl CaseRecorder {
    /// Copies the workspace.
    ///
    /// # Errors
    /// The name is invalid or taken, or the workspace can't be copied.
    pub(super) fn begin(
        name: &str,
        job_file: &Path,
        workspace: &Path,
        out: &Path,
        state: Option<&StateFile>,
        redactor: &Redactor,
        env: &CliEnv,
    ) -> Result<Self, Error> {
        if !job::is_name(name) {
            let hint = "A name has at most 64 lower-case letters, digits and `-`, and doesn't start with `-`.";
            return Err(Error::usage(format!("`{name}` isn't a valid case name"), hint));
        }
        let tests_folder = job_file.parent().unwrap_or(Path::new("")).join(TESTS_FOLDER);
        check_links(job_file)?;
        let folder = tests_folder.join(job_file.file_stem().unwrap_or_default()).join(name);
        if fs::symlink_metadata(&folder).is_ok() {
            let message = format!("{} already exists", folder.display());
            return Err(Error::usage(message, "Choose another name, or remove the folder."));
        }
        let variable = |name: &str| env.variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = variable("HOME");
        let own_list = home.map(|home| git::own_ignore_file(&home, variable("XDG_CONFIG_HOME").as_deref()));
        let state = state.into_iter().flat_map(StateFile::paths).map(Path::to_owned);
        let excluded: Vec<PathBuf> = [out.to_owned(), tests_folder].into_iter().chain(state).collect();
        let copied = WorkspaceCopy::copy(workspace, &excluded, own_list, redactor);
        let fixture = copied.map_err(Error::environment("the workspace can't be copied for --save-case"))?;
        Ok(Self {
            job_file: job_file.to_owned(),
            folder,
            fixture,
            redactor: redactor.clone(),
            is_repository: is_worktree_root(workspace),
            replies: Arc::default(),
        })
    }

    /// The observer that records the replies.
    pub(super) fn observer(&self) -> Arc<dyn RunObserver> {
        Arc::clone(&self.replies) as Arc<dyn RunObserver>
    }

    /// Saves the case of a run that has ended, and runs it once. Reports problems on stderr, without effect on the exit code.
    pub(super) fn finish(mut self, plan: &Plan, record: &Path, sandbox_options: &SandboxOptions, env: &CliEnv) {
        let result = fs::read(record.join("result.json")).ok();
        let result = result.and_then(|bytes| serde_json::from_slice::<RunResult>(&bytes).ok());
        let Some(result) = result else {
            return env.console.warning("no case was saved: the run has no result");
        };
        if result.outcome.can_be_resumed() || matches!(result.outcome, Outcome::TimedOut | Outcome::ReplayDiffers) {
            let why = format!("no case was saved: a script can't reproduce the outcome `{}`", result.outcome);
            return env.console.warning(&why);
        }
        let model = Record::open(record).map(|record| record.model()).unwrap_or_default();
        let shown = printable(&self.folder.to_string_lossy());
        // The run may have made links.
        let written = check_links(&self.job_file).map_err(|error| io::Error::other(error.to_string()));
        let needed = match written.and_then(|()| self.write(plan, &result, &model, env)) {
            Err(error) => return env.console.warning(&format!("no case was saved in {shown}: {error}")),
            Ok(needed) => needed,
        };
        let is_needed = |path: &Path| needed.as_ref().is_none_or(|needed| needed.has(path));
        env.console.eprint(&format!("case:   {shown} ({})", self.fixture.summary(is_needed)));
        for line in self.fixture.skipped_summary(is_needed) {
            env.console.eprint(&format!("        {}", printable(&line)));
        }
        if !plan.secret_inputs.is_empty() {
            let names = plan.secret_inputs.join(", ");
            env.console.eprint(&format!("        secret inputs are replaced by placeholders: {names}"));
        }
        self.verify(sandbox_options, env);
    }

    /// Runs the case as `legwork test` does, and reports failures.
    fn verify(&self, sandbox_options: &SandboxOptions, env: &CliEnv) {
        let ran = test::load_cases(slice::from_ref(&self.folder), &[], JobTrust::Trusted, env).and_then(|cases| {
            let signals = Signals::catch_within(SHUTDOWN_GRACE)?;
            let options = test::TestRunOptions {
                accept: false,
                repeat: NonZeroU32::MIN,
                jobs: None,
                untrusted: false,
                sandbox_options: sandbox_options.clone(),
            };
            test::run_cases(&cases, &options, env, &signals, &|_| {})
        });
        match ran {
            Ok(report) if report.failed() == 0 => {}
            Ok(report) => {
                env.console.warning("the saved case fails, as the run isn't fully reproducible; edit its expectations");
                env.console.eprint(&test_text::summary(&report, env.console.stderr_display()));
            }
            Err(error) => {
                env.console.warning("the saved case can't be run:");
                env.console.error(&error);
            }
        }
    }

    /// Writes the case. Returns the files that the run needs, if it needs only some.
    fn write(
        &mut self,
        plan: &Plan,
        result: &RunResult,
        model: &RunModel,
        env: &CliEnv,
    ) -> io::Result<Option<NeededFiles>> {
        let above = self.folder.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(above)?;
        // Prepare the case in a temporary folder, so that it appears atomically.
        let temporary = tempfile::Builder::new().prefix(".saving-").tempdir_in(above)?;
        let at = |name: &str| temporary.path().join(name);
        let mut replies = self.replies.by_agent.lock().ignore_poison();
        for (agent, list) in replies.iter_mut() {
            for RecordedReply { reply, answers, .. } in list {
                let mistakes = reply.tool_calls().filter(|call| plan.is_unavailable(agent, call));
                mistakes.for_each(|call| drop(answers.remove(&call.id)));
            }
        }
        let workspace = self.fixture.workspace.to_string_lossy().into_owned();
        // The token usage matters only if a limit ended an agent.
        let hit_limit = |outcome| outcome == Outcome::BudgetExceeded;
        let with_usage =
            hit_limit(result.outcome) || result.subagents.iter().any(|subagent| hit_limit(subagent.outcome));
        let script =
            generate::generate_script(&replies, &workspace, with_usage, |agent, call| plan.is_unavailable(agent, call));
        fs::write(at(SCRIPT_FILE), script)?;
        if !plan.inputs.is_empty() {
            let inputs = plan.inputs.iter().map(|(name, value)| (name.clone(), value.clone()));
            fs::write(at(INPUTS_FILE), yaml::to_yaml(&Value::Object(inputs.collect())))?;
        }
        if !plan.before.is_empty() {
            let values = Value::Object(self.replies.steps.lock().ignore_poison().clone());
            fs::write(at(BEFORE_FILE), yaml::to_yaml(&values))?;
        }
        if let Some(state) = &result.state {
            fs::write(at(STATE_FILE), state_content(&plan.job, &state.before))?;
        }
        let calls = replies.values().flatten().flat_map(|recorded| recorded.reply.tool_calls());
        let needed = needed_files(plan, calls, &self.fixture);
        if let Some(needed) = &needed {
            self.fixture.note_ignored(needed.paths.difference(&needed.written));
            let is_unchanged = |path: &Path| needed.has(path) && !needed.written.contains(path);
            self.fixture.copy_needed(is_unchanged, &self.redactor)?;
        }
        let is_needed = |path: &Path| needed.as_ref().is_none_or(|needed| needed.has(path));
        if self.fixture.files.iter().any(|path| is_needed(path)) {
            fixture::copy_verbatim(self.fixture.temp_folder.path(), &at(WORKSPACE_FOLDER))?;
            self.fixture.remove_others(&at(WORKSPACE_FOLDER), is_needed)?;
        }
        let outcome = WorkspaceOutcome {
            files: self.snapshot_changes(result, &at(SNAPSHOTS_FOLDER), env)?,
            has_outputs: plan.outputs.is_some(),
            is_git_repository: self.is_repository,
        };
        if let Some(proposed) = model.proposed_outputs() {
            fs::write(at(OUTPUTS_SNAPSHOT), outputs_snapshot(&proposed, &workspace))?;
        }
        if let Some(trigger) = plan.outputs.as_ref().and_then(|outputs| outputs.trigger.as_ref()) {
            fs::write(at(EVENT_FILE), format!("{:#}\n", trigger.to_event()))?;
        }
        fs::write(at(EXPECT_FILE), generate::generate_expect(result, &replies, &outcome, &workspace))?;
        if fs::symlink_metadata(&self.folder).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it was created in the meantime"));
        }
        fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o755))?;
        fs::rename(temporary.path(), &self.folder)?;
        // The temporary name no longer exists.
        let _ = temporary.keep();
        Ok(needed)
    }

    /// The files that the run changed. Writes their snapshots to `snapshots`.
    fn snapshot_changes(
        &self,
        result: &RunResult,
        snapshots: &Path,
        env: &CliEnv,
    ) -> io::Result<BTreeMap<String, FileOutcome>> {
        let mut files = BTreeMap::new();
        let mut changed = self.fixture.changed_files()?;
        if let Some(changes) = &result.changes {
            // Leave out files that legwork itself wrote, such as that of `--result`.
            changed.retain(|path| changes.iter().any(|change| Path::new(&change.path) == path));
        }
        if changed.len() > MAX_CHANGED_FILES {
            let omitted = changed.len() - MAX_CHANGED_FILES;
            env.console.warning(&format!("the saved case leaves out {omitted} more changed files"));
        }
        for path in changed.into_iter().take(MAX_CHANGED_FILES) {
            let (Some(name), Some(escaped)) = (path.to_str(), fixture::escape_path(&path)) else { continue };
            files.insert(name.to_owned(), self.snapshot(&path, &snapshots.join(escaped))?);
        }
        Ok(files)
    }

    /// Writes the snapshot of a file, unless it is too large or contains a secret.
    fn snapshot(&self, file: &Path, target: &Path) -> io::Result<FileOutcome> {
        if self.fixture.root.stat(file).is_err() {
            return Ok(FileOutcome::Absent);
        }
        let Ok(mut bytes) = self.fixture.root.read(file, MAX_SNAPSHOT_BYTES as u64) else {
            return Ok(FileOutcome::Exists);
        };
        let text = String::from_utf8_lossy(&bytes);
        if self.redactor.redact(&text) != text {
            return Ok(FileOutcome::Exists);
        }
        if let Ok(text) = str::from_utf8(&bytes) {
            bytes = with_placeholder(text, &self.fixture.workspace.to_string_lossy()).into_bytes();
        }
        fs::create_dir_all(parent_folder(target))?;
        fs::write(target, bytes)?;
        Ok(FileOutcome::Snapshot)
    }
}

/// Records the replies of the models, by agent.
#[derive(Default)]
struct ReplyRecorder {
    by_agent: Mutex<BTreeMap<String, Vec<RecordedReply>>>,
    /// The number of turns that a summary keeps, for agents whose last request was for a summary.
    kept_turns: Mutex<BTreeMap<String, Option<u32>>>,
    /// The values of the steps before the agent, by name.
    steps: Mutex<Map<String, Value>>,
}

impl RunObserver for ReplyRecorder {
    fn event(&self, entry: &JournalEntry) {
        let mut kept_turns = self.kept_turns.lock().ignore_poison();
        match &entry.event {
            Event::BeforeFinished(step) => {
                self.steps.lock().ignore_poison().insert(step.name.clone(), step.value.clone());
            }
            Event::RequestStarted(request) => drop(kept_turns.insert(entry.agent.clone(), request.kept_turns)),
            Event::ReplyReceived(received) => {
                let kept_turns = kept_turns.get(&entry.agent).copied().flatten();
                let mut all = self.by_agent.lock().ignore_poison();
                let reply = RecordedReply { reply: received.reply.clone(), kept_turns, answers: BTreeMap::new() };
                all.entry(entry.agent.clone()).or_default().push(reply);
            }
            Event::CallFinished(end) if end.tool.contains(job::SERVER_SEPARATOR) => {
                let mut all = self.by_agent.lock().ignore_poison();
                if let Some(last) = all.get_mut(&entry.agent).and_then(|replies| replies.last_mut()) {
                    last.answers.insert(end.result.call_id.clone(), end.result.clone());
                }
            }
            _ => {}
        }
    }
}

/// Checks that cases are saved next to their job.
fn check_links(job_file: &Path) -> Result<(), Error> {
    let of_job = Path::new(TESTS_FOLDER).join(job_file.file_stem().unwrap_or_default());
    reject_escaping_symlinks(parent_folder(job_file), &of_job, "Remove the link: cases are saved next to their job.")
}
