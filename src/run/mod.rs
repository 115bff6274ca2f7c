//! Wires plan, providers, tools, record and formats into one run, and ends it on a signal.

mod change_tracking;
mod resume_state;
mod signals;
mod used_limit;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::watch;

use self::change_tracking::BaselineTask;
pub use self::resume_state::ResumeState;
pub use self::signals::Signals;
pub use self::used_limit::UsedLimit;
use crate::agent::{Agent, RunAbort, RunDeps, RunState};
use crate::checks::CommandCheckRunner;
use crate::error::Error;
use crate::event::{
    AgentFinished, Durability, ErrorInfo, Event, FORMAT, JournalEntry, Outcome, PARENT, Resumed, RunFinished,
    RunOptions, RunResult, RunStarted, RunSummary, Sink,
};
pub use crate::git::head::commit;
use crate::job::{Compaction, Keep};
use crate::plan::Plan;
use crate::pricing::Prices;
use crate::providers::{ConnectContext, Model, Provider, ProviderError, ProviderErrorKind};
use crate::record::Recorder;
use crate::redaction::Redactor;
use crate::sandbox::Sandbox;
use crate::sandbox::protected_paths::{ProtectedPaths, ProtectionConfig, Repositories};
use crate::tools::environment::Environment;
use crate::workspace::Workspace;
use crate::workspace_changes::{ChangeTracker, FileId};

/// Someone who looks on: shows what happens, changes nothing.
pub trait RunObserver: Send + Sync {
    /// An event that is in the record by now.
    fn event(&self, entry: &JournalEntry);
    /// A piece of an agent's text as it streams in. Whoever shows it takes it back where a `retrying` or `dropped` event
    /// follows, or the agent's end without a `replied`: the text comes again or never.
    fn text(&self, agent: &str, piece: &str);
}

/// A run that is about to begin.
pub struct Run<'a> {
    /// What runs, rendered with this run's id.
    pub plan: Plan,
    /// The job file, byte for byte; a run that goes on has it in its record.
    pub job_file: &'a str,
    /// Absolute paths that tools may not change: the job file and its prompts.
    pub protected: Vec<PathBuf>,
    /// All that stays as it is, where it was looked for already.
    pub found: Option<ProtectedPaths>,
    /// A git that no tool can change, absolute, where there is one.
    pub git: Option<PathBuf>,
    /// The files that stdout and stderr go to: what is printed is no change of the run.
    pub outputs: Vec<FileId>,
    /// The folder of all runs, absolute; tools may neither find nor change what is in it.
    pub out: PathBuf,
    /// The home folder of whoever runs this: git's configuration there can name files of the workspace.
    pub home: Option<PathBuf>,
    /// Where replies come from, by [`Model::source`].
    pub providers: BTreeMap<String, Arc<dyn Provider>>,
    /// What models cost.
    pub prices: Prices,
    /// Names and values that must not be seen.
    pub mask: Redactor,
    /// What `bash` sees of the environment.
    pub environment: Environment,
    /// How commands are confined.
    pub sandbox: Arc<Sandbox>,
    /// Where it is written down.
    pub recorder: Recorder,
    /// Who looks on.
    pub observers: Vec<Arc<dyn RunObserver>>,
    /// The wall clock.
    pub clock: fn() -> Timestamp,
    /// The scripts that models of the plan answer from, by the model's name, absolute.
    pub scripts: BTreeMap<String, String>,
    /// What the command line asked for.
    pub options: RunOptions,
    /// What stands for the values of the secrets in the record.
    pub secrets: BTreeMap<String, String>,
    /// What it did before it was cut off; `None` for a new run.
    pub resume_state: Option<ResumeState>,
    /// What stops it.
    pub signals: Signals,
    /// False while those who read the output don't keep up: agents wait for them.
    pub output_ready: watch::Receiver<bool>,
    /// Gets the repositories that commands made in the workspace, where commands could run.
    pub planted_repositories: Arc<OnceLock<Repositories>>,
}

/// Opens every provider that the plan needs; contacts nobody. A missing key is found here.
///
/// # Errors
/// Where a provider can't be used.
pub fn connect<'a>(
    plan: &Plan,
    with: impl Fn(&Model) -> Result<ConnectContext<'a>, Error>,
) -> Result<BTreeMap<String, Arc<dyn Provider>>, Error> {
    let mut opened = BTreeMap::new();
    for agent in plan.agents() {
        let key = agent.model.reply_source();
        if opened.contains_key(&key) {
            continue;
        }
        let entry = agent.model.spec().ok_or_else(|| {
            let what = format!("there is no provider `{}`", agent.model.provider);
            let hint = "`legwork providers` lists all, and says where a server of your own is named";
            Error::Provider(ProviderError::new(ProviderErrorKind::Rejected, what).with_hint(hint))
        })?;
        opened.insert(key, (entry.connect)(&with(&agent.model)?).map_err(Error::Provider)?);
    }
    Ok(opened)
}

impl Run<'_> {
    /// Runs to the end, whatever the end is. The record is whole by then.
    ///
    /// # Errors
    /// Where the run couldn't begin, or its result couldn't be written.
    pub async fn execute(self) -> Result<RunResult, Error> {
        let signals = self.signals;
        let begun = Instant::now();
        let longest = self.plan.limits.wall_clock_ms.map(Duration::from_millis);
        let before = self.resume_state.as_ref().map(ResumeState::elapsed).unwrap_or_default();
        let folder = self.recorder.folder().to_owned();
        let record_failed = |source| Error::Record { path: folder.clone(), source };
        let broken = |source| Error::BrokenRecord { path: folder.clone(), source };
        let root = Path::new(&self.plan.workspace);
        let commit = commit(root);
        let names = self.protected.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        // The whole workspace can't be read-only; of runs that lie right in it, those of this job are.
        let records = if root.starts_with(&self.out) { folder.parent().unwrap_or(&folder) } else { &self.out };
        let protected = match self.found {
            Some(found) => found,
            None if self.plan.changes_files() => ProtectedPaths::find(&ProtectionConfig {
                workspace: root,
                job_files: &self.protected,
                out: records,
                home: self.home.as_deref(),
                git: self.plan.git,
                protect: &self.plan.protect,
                allow_changes: &self.plan.allow_changes,
                write: &[],
                has_commands: false,
                time: longest,
            }),
            None => ProtectedPaths::default(),
        };
        let ProtectedPaths { paths, allowed_changes: allowed, repositories, .. } = protected;
        let workspace = Workspace::open(root, paths, vec![records.to_owned()])
            .map_err(|source| Error::Workspace { path: root.to_owned(), source })?
            .with_unprotected(&allowed.unprotected);
        let course = self.resume_state.as_ref().map(ResumeState::run_summary).unwrap_or_default();
        // Where the run goes on they are there, unless somebody took them away.
        let started = self.resume_state.as_ref().map(ResumeState::started);
        let (job_file, plan) = started.map_or((self.job_file, &self.plan), |it| (it.job_file.as_str(), &*it.plan));
        self.recorder.write_source(job_file, plan).map_err(record_failed)?;
        for child in course.summaries() {
            // The run may have been cut off just before it was written.
            self.recorder.write_summary(child).map_err(record_failed)?;
        }

        let keeper = Arc::new(RecordingSink {
            recorder: self.recorder,
            observers: self.observers,
            clock: self.clock,
            summary: Mutex::new(course),
            has_acted: AtomicBool::new(false),
            recovery_hint: Mutex::default(),
            reply_counts: Mutex::new(self.resume_state.as_ref().map(ResumeState::reply_counts).unwrap_or_default()),
        });
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let workspace_name = self.plan.workspace.clone();
        let sandbox = self.sandbox.tier().to_string();
        let opening: Event = match &self.resume_state {
            None => RunStarted {
                format: FORMAT,
                version,
                run_id: keeper.recorder.run_id().to_owned(),
                job: self.plan.job.clone(),
                workspace: workspace_name,
                sandbox: sandbox.clone(),
                commit,
                protected: names,
                scripts: self.scripts,
                folder: folder.to_string_lossy().into_owned(),
                options: self.options,
                secrets: self.secrets,
                job_file: self.job_file.to_owned(),
                plan: Box::new(self.plan.clone()),
            }
            .into(),
            Some(before) => Resumed {
                version,
                workspace: workspace_name,
                sandbox: sandbox.clone(),
                commit,
                limits: before.new_limits().clone(),
                last_seen: before.last_seen,
                folder: folder.to_string_lossy().into_owned(),
                options: self.options,
                secrets: self.secrets,
                has_new_secrets: before.has_new_secrets,
            }
            .into(),
        };
        let has_acted = self.resume_state.as_ref().is_some_and(ResumeState::has_acted);
        let changed_before = self.resume_state.as_ref().and_then(ResumeState::workspace_changed);
        let needed: BTreeMap<_, _> =
            self.plan.agents().map(|agent| (agent.model.reply_source(), &agent.model)).collect();
        self.prices.load_in_background(needed.into_values().map(Model::price_key));
        let (workspace, mask) = (Arc::new(workspace), Arc::new(self.mask));
        let environment = Arc::new(self.environment);
        let checks = CommandCheckRunner {
            workspace: Arc::clone(&workspace),
            mask: Arc::clone(&mask),
            environment: Arc::new(environment.with_variables(self.plan.check_variables(keeper.recorder.run_id()))),
            sandbox: Arc::clone(&self.sandbox),
        };
        let looker = self.plan.changes_files().then(|| ChangeTracker {
            workspace: Arc::clone(&workspace),
            record: folder.clone(),
            mask: Arc::clone(&mask),
            outputs: self.outputs,
            git: self.git,
            shows_content: !self.resume_state.as_ref().is_some_and(|before| before.has_new_secrets),
        });
        let (first, ready) = match looker {
            Some(looker) => {
                let (first, ready) = BaselineTask::begin(looker, self.resume_state.as_ref(), &signals);
                (Some(first), ready)
            }
            None => (None, watch::channel(true).1),
        };
        let tree = RunState::new(RunDeps {
            plan: self.plan.clone(),
            providers: self.providers.clone(),
            prices: self.prices,
            clock: self.clock,
            workspace,
            mask,
            environment,
            baseline_ready: ready,
            output_ready: self.output_ready,
            sandbox: self.sandbox,
            check_runner: Arc::new(checks),
            sink: Arc::clone(&keeper) as Arc<dyn Sink>,
            stop: signals.stop(),
            elapsed: self.resume_state.as_ref().map(ResumeState::elapsed).unwrap_or_default(),
            cursors: self.resume_state.map(ResumeState::into_cursors).unwrap_or_default(),
            replay_driver: None,
        });
        keeper.record(PARENT, opening, Durability::Flushed).map_err(record_failed)?;
        keeper.recorder.remove_result().map_err(broken)?;
        keeper.recorder.keep_alive(self.clock);

        let parent = Agent::run_parent(&tree).await;
        let unasked =
            keeper.unused_replies(&self.plan, &self.providers).filter(|_| parent.outcome == Outcome::Completed);
        let (mut outcome, mut error) = match unasked.map(RunAbort::from) {
            Some(halt) => (halt.outcome, Some(halt.error_info())),
            None => (parent.outcome, error_info(&tree, &parent)),
        };
        if self.plan.agents().flat_map(|agent| &agent.tools).any(|grant| grant.name == "bash") {
            let mut planted = repositories.added_since(
                root,
                records,
                longest.map(|longest| longest.saturating_sub(before + begun.elapsed())),
            );
            // One that `git: commit` allows was looked at.
            planted.folders.retain(|path| !allowed.git_folders.contains(path));
            if !planted.is_complete && outcome == Outcome::Completed {
                let halt = RunAbort::repository_scan_incomplete();
                (outcome, error) = (halt.outcome, Some(halt.error_info()));
            }
            let _ = self.planted_repositories.set(planted);
        }
        let error = error.map(|error| keeper.with_recovery_hint(error));
        let exit_code = outcome.exit_code(signals.first());
        let acts = keeper.has_acted.load(Ordering::Relaxed);
        let changed = match first {
            // It was killed between its last steps, and has done nothing since.
            Some(first) if !acts && changed_before.is_some() => {
                first.skip().await;
                changed_before
            }
            Some(first) if acts || has_acted => first.compare(&signals).await,
            Some(first) => Some(first.skip().await),
            None => None,
        };
        if let Some(changed) = changed.clone() {
            // A journal that takes no more lines says so at the next.
            let _ = keeper.record(PARENT, changed.into(), Durability::Written);
        }
        let closing = RunFinished { outcome, exit_code, error };
        let last_line = keeper.record(PARENT, closing.into(), Durability::Flushed);
        let unknown = || broken(io::Error::other("nothing is known of how the run went"));
        let mut result = keeper.summary().result().ok_or_else(unknown)?;
        // A journal that broke earlier takes no last line either; what broke it is said already.
        if let Err(failure) = last_line
            && result.outcome != Outcome::EnvironmentFailed
        {
            mark_record_failure(&mut result, &failure, &folder);
        }
        let keep = match self.plan.keep {
            Keep::Always => true,
            Keep::OnFailure => result.outcome != Outcome::Completed,
            // Resuming such a run needs them.
            Keep::Never => result.outcome.can_be_resumed() || result.outcome.is_a_limit(),
        };
        if let Err(failure) = keeper.recorder.finish(&self.plan, &result, changed.as_ref(), keep) {
            if result.outcome != Outcome::EnvironmentFailed {
                mark_record_failure(&mut result, &failure, &folder);
            }
            keeper.recorder.write_result(&result).map_err(|_| broken(failure))?;
        }
        Ok(result)
    }
}

fn mark_record_failure(result: &mut RunResult, failure: &io::Error, folder: &Path) {
    result.outcome = Outcome::EnvironmentFailed;
    result.exit_code = result.outcome.exit_code(None);
    result.error = Some(ErrorInfo {
        code: result.outcome.to_string(),
        message: format!("the run's record can't be written: {failure}"),
        hint: Some(recovery_hint(failure, folder)),
    });
}

/// What to do where a record that was begun takes nothing more.
fn recovery_hint(failure: &io::Error, folder: &Path) -> String {
    use io::ErrorKind::{InvalidData, NotFound};
    match failure.kind() {
        NotFound | InvalidData => {
            "Another program moved, deleted or changed the record. Start the job again, and keep other programs away from the record."
                .into()
        }
        _ => format!("Free some disk space, then resume the run: legwork resume {}", folder.display()),
    }
}

fn error_info(tree: &RunState, parent: &AgentFinished) -> Option<ErrorInfo> {
    if parent.outcome == Outcome::Completed {
        return None;
    }
    if let Some(halt) = tree.abort().filter(|halt| halt.outcome == parent.outcome) {
        return Some(halt.error_info());
    }
    let (message, hint) = match parent.outcome {
        Outcome::ChecksFailed => {
            let hint = "Their output is in transcript.md; with `repairs` it goes back to the parent, which works on.";
            ("a check doesn't pass", Some(hint))
        }
        Outcome::TurnLimit => (
            "the parent used all its turns",
            Some(
                "Raise parent.max_turns or delegate more; `legwork resume --limit max_turns=N` goes on with this run.",
            ),
        ),
        Outcome::BudgetExceeded => (
            "a limit of the run was reached",
            Some("Raise it below `limits`; `legwork resume --limit NAME=VALUE` goes on with this run."),
        ),
        Outcome::Stuck => ("the same failure came over and over", Some("Read the last calls in transcript.md.")),
        Outcome::ReplyCut => ("the last answer was cut by max_tokens", Some("Raise parent.max_tokens.")),
        Outcome::Refused => {
            ("the model refused", Some("Say in the prompt what the work is for, or try another model."))
        }
        Outcome::ResultInvalid => (
            "the parent ended without a result that fits its schema",
            Some("Read in transcript.md what it was told; say in the prompt what the result must hold."),
        ),
        Outcome::ContextFull => {
            let hint = match tree.compaction() {
                _ if parent.turns == 0 => {
                    "Shorten the prompt, lower `max_tokens`, or take a model with a larger window; `context` beside the \
                     model's name says how large it is."
                }
                Compaction::Off => "Leave `compaction: off` away, or hand more to subagents.",
                Compaction::Results => {
                    "Leave `compaction: results` away, so that the model sums up, or hand more to subagents."
                }
                Compaction::Summary => {
                    "Hand more to subagents, read less at once, lower `max_tokens`, or take a model with a larger window."
                }
            };
            ("the conversation fills the model's window", Some(hint))
        }
        _ => ("the run didn't complete", None),
    };
    let message = tree.last_note(parent.outcome).unwrap_or_else(|| message.to_owned());
    Some(ErrorInfo { code: parent.outcome.to_string(), message, hint: hint.map(str::to_owned) })
}

/// Records each event, then shows it.
struct RecordingSink {
    recorder: Recorder,
    observers: Vec<Arc<dyn RunObserver>>,
    clock: fn() -> Timestamp,
    /// What the events come to.
    summary: Mutex<RunSummary>,
    /// Whether any call or check was begun in this part of the run.
    has_acted: AtomicBool,
    /// What to do, where the record took no more.
    recovery_hint: Mutex<Option<String>>,
    /// How many replies each agent got.
    reply_counts: Mutex<BTreeMap<String, usize>>,
}

impl Sink for RecordingSink {
    fn record(&self, agent: &str, event: Event, durability: Durability) -> io::Result<()> {
        let at = (self.clock)();
        if matches!(event, Event::CallStarted(_) | Event::CheckStarted(_)) {
            self.has_acted.store(true, Ordering::Relaxed);
        }
        if agent == PARENT {
            // Before it is written: what a subagent has spent counts, even where it can't be written any more.
            self.summary().apply(&event, at);
        }
        if matches!(event, Event::ReplyReceived(_)) {
            let mut replied = self.reply_counts();
            let count = replied.entry(agent.to_owned()).or_default();
            *count = count.saturating_add(1);
        }
        let entry = self.recorder.append(agent, event, durability, at).inspect_err(|error| self.fail(error))?;
        if let Event::AgentFinished(finished) = &entry.event
            && agent == PARENT
            && finished.subagent.is_some()
        {
            self.recorder.write_summary(finished).inspect_err(|error| self.fail(error))?;
        }
        for observer in &self.observers {
            observer.event(&entry);
        }
        Ok(())
    }

    fn text(&self, agent: &str, piece: &str) {
        for observer in &self.observers {
            observer.text(agent, piece);
        }
    }
}

impl RecordingSink {
    /// The first failure says what to do.
    fn fail(&self, error: &io::Error) {
        let mut failed = self.recovery_hint.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert_with(|| recovery_hint(error, self.recorder.folder()));
    }

    /// Says what to do about a record that took no more.
    fn with_recovery_hint(&self, mut error: ErrorInfo) -> ErrorInfo {
        let failed = self.recovery_hint.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hint) = failed.as_ref().filter(|_| error.code == Outcome::EnvironmentFailed.as_str()) {
            error.hint = Some(hint.clone());
        }
        error
    }

    fn reply_counts(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.reply_counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a script or a record that replies came from has more of them than were asked for.
    fn unused_replies(&self, plan: &Plan, providers: &BTreeMap<String, Arc<dyn Provider>>) -> Option<ProviderError> {
        let replied = self.reply_counts();
        providers.iter().find_map(|(source, provider)| {
            let is_asked =
                |agent: &str| plan.agent(agent).is_some_and(|planned| planned.model.reply_source() == *source);
            provider
                .unused_replies(&|agent| replied.get(agent).copied().filter(|_| is_asked(agent)).unwrap_or_default())
        })
    }

    fn summary(&self) -> MutexGuard<'_, RunSummary> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
