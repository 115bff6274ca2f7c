//! Runs a plan: connects providers, tools and the record, and ends the run on a signal.

mod change_tracking;
mod resume_state;
mod signals;
mod used_limit;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::watch;

use self::change_tracking::BaselineTask;
pub use self::resume_state::ResumeState;
pub use self::signals::Signals;
pub use self::used_limit::UsedLimit;
use crate::agent::{
    Agent, ConfineCopy, MessageFile, OwnWorkspaces, RunAbort, RunDeps, RunGates, RunHistory, RunState, ToolDeps,
};
use crate::attachment::Attachment;
use crate::budget::SharedBudget;
use crate::error::{Error, TakenOver};
use crate::event::{
    AgentFinished, ErrorInfo, Event, FORMAT, JournalEntry, Outcome, PARENT, Resumed, RunFinished, RunOptions,
    RunResult, RunStarted, RunSummary, Sink,
};
use crate::formats::html;
use crate::git::GitProgram;
pub use crate::git::head_commit;
use crate::job::{Compaction, Keep};
use crate::mcp::Servers;
use crate::plan::Plan;
use crate::plan::SharedPrefixes;
use crate::pricing::Prices;
use crate::process::Environment;
use crate::process::spawn::EnvironmentError;
use crate::providers::{ConnectContext, Model, Provider, ProviderError, ProviderErrorKind};
use crate::record::Recorder;
use crate::redaction::Redactor;
use crate::sandbox::Sandbox;
use crate::sandbox::protected_paths::{ProtectedPaths, ProtectionConfig, Repositories};
use crate::sync::IgnorePoison;
use crate::tools::ToolServers;
use crate::workspace::Workspace;
use crate::workspace_changes::{ChangeTracker, FileId};

/// Shows what happens in a run.
pub trait RunObserver: Send + Sync {
    /// Called after an event was recorded.
    fn event(&self, entry: &JournalEntry);
}

/// A run that is about to start.
pub struct Run<'a> {
    /// The plan, rendered with this run's id.
    pub plan: Plan,
    /// The job file, byte for byte. A resumed run uses the one in its record.
    pub job_file: &'a str,
    /// Absolute paths that tools may not change: the job file and its prompts.
    pub protected: Vec<PathBuf>,
    /// The protected paths, if they were searched for already.
    pub found: Option<ProtectedPaths>,
    /// The git program, if there is one that no tool can change.
    pub git: Option<GitProgram>,
    /// The files that stdout and stderr go to. They don't count as changes of the run.
    pub outputs: Vec<FileId>,
    /// The absolute path of the folder of all runs. Tools can neither find nor change its contents.
    pub out: PathBuf,
    /// The user's home folder. The git configuration there can name files of the workspace.
    pub home: Option<PathBuf>,
    /// Where replies come from, by [`Model::source`].
    pub providers: BTreeMap<String, Arc<dyn Provider>>,
    /// What models cost.
    pub prices: Prices,
    /// The secrets that must not appear anywhere.
    pub mask: Redactor,
    /// The environment variables that commands see.
    pub environment: Environment,
    /// How commands are confined.
    pub sandbox: Arc<Sandbox>,
    /// The tool servers that have started.
    pub servers: Option<Arc<Servers>>,
    /// How long their start took, which counts as running time.
    pub servers_took: Duration,
    /// Confines the tools of subagents that work in a copy of the workspace.
    pub confine_copy: Arc<ConfineCopy>,
    /// Writes the record.
    pub recorder: Recorder,
    /// Show what happens.
    pub observers: Vec<Arc<dyn RunObserver>>,
    /// The current time.
    pub clock: fn() -> Timestamp,
    /// The absolute paths of the scripts that models of the plan answer from, by the model's name.
    pub scripts: BTreeMap<String, String>,
    /// The options of the command line.
    pub options: RunOptions,
    /// Digests of the secrets' values, for the record.
    pub secrets: BTreeMap<String, String>,
    /// The state of a run that is resumed; `None` for a new run.
    pub resume_state: Option<ResumeState>,
    /// The signals that stop it.
    pub signals: Signals,
    /// False while the readers of the output don't keep up. Agents then wait.
    pub output_ready: watch::Receiver<bool>,
    /// The budget of the map that the run is a row of.
    pub map_budget: Option<Arc<dyn SharedBudget>>,
    /// What the rows of that map share.
    pub shared_prefixes: Arc<SharedPrefixes>,
    /// Receives the git repositories that commands created in the workspace.
    pub planted_repositories: Arc<OnceLock<Repositories>>,
}

/// Opens every provider that the plan's models for which `is_wanted` is true need, without sending anything. A missing key is
/// found here.
///
/// # Errors
/// A provider can't be used.
pub fn connect<'a>(
    plan: &Plan,
    is_wanted: &dyn Fn(&Model) -> bool,
    with: impl Fn(&Model) -> Result<ConnectContext<'a>, Error>,
) -> Result<BTreeMap<String, Arc<dyn Provider>>, Error> {
    let mut opened = BTreeMap::new();
    for model in plan.models().filter(|model| is_wanted(model)) {
        let key = model.reply_source();
        if opened.contains_key(&key) {
            continue;
        }
        let entry = model.spec().ok_or_else(|| {
            let what = format!("there is no provider `{}`", model.provider);
            let hint = "`legwork providers` lists all providers, and says where you can add a server of your own";
            Error::Provider(ProviderError::new(ProviderErrorKind::Rejected, what).with_hint(hint))
        })?;
        opened.insert(key, (entry.connect)(&with(model)?).map_err(Error::Provider)?);
    }
    Ok(opened)
}

impl Run<'_> {
    /// Runs to the end, whatever it is. The record is complete then.
    ///
    /// # Errors
    /// The run couldn't start, or its result couldn't be written.
    pub async fn execute(self) -> Result<RunResult, Error> {
        let signals = self.signals;
        let begun = Instant::now();
        let longest = self.plan.limits.wall_clock_ms.map(Duration::from_millis);
        let elapsed = self.resume_state.as_ref().map(ResumeState::elapsed).unwrap_or_default();
        let folder = self.recorder.folder.clone();
        let record_failed = |source| Error::Record { path: folder.clone(), source };
        let broken = |source: io::Error| match source.get_ref() {
            Some(error) if error.is::<TakenOver>() => Error::TakenOver { path: folder.clone() },
            _ => Error::BrokenRecord { path: folder.clone(), source },
        };
        let root = Path::new(&self.plan.workspace);
        let commit = head_commit(root);
        let names = self.protected.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        // The whole workspace can't be read-only. If it is in the folder of all runs, those of this job are.
        let of_job = self.out.join(&self.plan.job);
        let of_job = if folder.starts_with(&of_job) { &of_job } else { folder.parent().unwrap_or(&folder) };
        let records = if root.starts_with(&self.out) { of_job } else { &self.out };
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
        // A resumed run has these files, unless they were deleted.
        let started = self.resume_state.as_ref().map(|state| &state.started);
        let (job_file, plan) = started.map_or((self.job_file, &self.plan), |it| (it.job_file.as_str(), &*it.plan));
        self.recorder.write_source(job_file, plan).map_err(record_failed)?;
        self.sandbox.record_written().map_err(record_failed)?;
        for child in course.summaries() {
            // The run may have been interrupted just before this was written.
            self.recorder.write_summary(child).map_err(record_failed)?;
        }

        let keeper = Arc::new(RecordingSink {
            recorder: Arc::new(self.recorder),
            observers: self.observers,
            clock: self.clock,
            state: Mutex::new(RecordedState {
                summary: course,
                has_acted: false,
                recovery_hint: None,
                reply_counts: self.resume_state.as_ref().map(ResumeState::reply_counts).unwrap_or_default(),
            }),
        });
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let workspace_name = self.plan.workspace.clone();
        let sandbox = self.sandbox.tier().to_string();
        let opening: Event = match &self.resume_state {
            None => RunStarted {
                format: FORMAT,
                version,
                run_id: keeper.recorder.run_id.clone(),
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
                limits: before.limits.clone(),
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
        let needed: BTreeMap<_, _> = self.plan.models().map(|model| (model.reply_source(), model)).collect();
        self.prices.load_in_background(needed.into_values().map(Model::price_key));
        let tools = ToolDeps {
            workspace: Arc::new(workspace),
            redactor: Arc::new(self.mask),
            environment: Arc::new(self.environment),
            sandbox: self.sandbox,
            servers: self.servers.clone().map(|servers| servers as Arc<dyn ToolServers>),
        };
        let own_workspaces = self.plan.copies_workspace().then(|| {
            let workspace = Arc::clone(&tools.workspace);
            OwnWorkspaces::new(&self.out, &folder, workspace, self.git.clone(), self.confine_copy)
                .map(Arc::new)
                .map_err(|source| Error::Record { path: self.out.clone(), source })
        });
        let own_workspaces = own_workspaces.transpose()?;
        let tracker = self.plan.changes_files().then(|| ChangeTracker {
            workspace: Arc::clone(&tools.workspace),
            record: keeper.recorder.open_folder().clone(),
            mask: Arc::clone(&tools.redactor),
            outputs: self.outputs,
            git: self.git,
            shows_content: !self.resume_state.as_ref().is_some_and(|before| before.has_new_secrets),
        });
        let (first, baseline_ready) = match tracker {
            Some(tracker) => {
                let (first, ready) = BaselineTask::begin(tracker, self.resume_state.as_ref(), &signals);
                (Some(first), ready)
            }
            None => (None, watch::channel(true).1),
        };
        let cursors = self.resume_state.map(ResumeState::into_cursors).unwrap_or_default();
        let run = RunState::new(RunDeps {
            map_budget: self.map_budget,
            shared_prefixes: self.shared_prefixes,
            run_id: keeper.recorder.run_id.clone(),
            plan: self.plan.clone(),
            providers: self.providers.clone(),
            prices: self.prices,
            message_file: Arc::new(MessageFile::new(Some(folder.clone()))),
            clock: self.clock,
            tools,
            own_workspaces: own_workspaces.clone(),
            sink: Arc::clone(&keeper) as Arc<dyn Sink>,
            // The end of the run isn't a signal.
            stop: signals.stop.child_token(),
            gates: RunGates { baseline_ready, output_ready: self.output_ready },
            history: RunHistory { cursors, elapsed: elapsed + self.servers_took, ..RunHistory::default() },
        });
        let is_resumed = matches!(opening, Event::Resumed(_));
        // The plan in the first event names them. A resumed run has them.
        let mut given = self.plan.attachments.iter().map(|input| &input.file).filter(|file| !file.data.is_empty());
        let mut recorded = given.try_for_each(|file| keeper.keep(file));
        recorded = recorded.and_then(|()| keeper.record(PARENT, opening));
        // A new run has nothing to lose before its first call with an effect.
        if is_resumed && recorded.is_ok() {
            recorded = keeper.recorder.flush(PARENT).await;
        }
        if let Err(error) = recorded {
            // The scan must not write to the record while it is removed.
            if let Some(first) = first {
                first.skip().await;
            }
            return Err(record_failed(error));
        }
        keeper.recorder.remove_result().map_err(broken)?;
        keeper.recorder.keep_alive(self.clock);

        if !html::has_compiled_templates() {
            // The task begins when the parent waits for the first time, and the thread is the one that ends the record.
            tokio::spawn(async { tokio::task::spawn_blocking(html::compile_templates).await });
        }
        let parent = Agent::run_parent(&run).await;
        let unasked =
            keeper.unused_replies(&self.plan, &self.providers).filter(|_| parent.outcome == Outcome::Completed);
        let servers_end = match &self.servers {
            Some(servers) => servers.stop(signals.stop.is_cancelled()).await,
            None => Ok(()),
        };
        let (mut outcome, mut error) = match unasked.map(RunAbort::from) {
            Some(abort) => (abort.outcome, Some(abort.error_info())),
            None => (parent.outcome, error_info(&run, &parent)),
        };
        if let Err(tampered) = servers_end
            && outcome == Outcome::Completed
        {
            let abort = RunAbort::from(EnvironmentError::Tampered(tampered));
            (outcome, error) = (abort.outcome, Some(abort.error_info()));
        }
        let has_bash = self.plan.agents().flat_map(|agent| &agent.tools).any(|grant| grant.name == "bash");
        if has_bash || self.plan.starts_servers() {
            let mut planted = repositories.added_since(
                root,
                records,
                longest.map(|longest| longest.saturating_sub(elapsed + begun.elapsed())),
            );
            // A repository that `git: commit` allows to change was checked.
            planted.folders.retain(|path| !allowed.git_folders.contains(path));
            if !planted.is_complete && outcome == Outcome::Completed {
                let abort = RunAbort::repository_scan_incomplete();
                (outcome, error) = (abort.outcome, Some(abort.error_info()));
            }
            let _ = self.planted_repositories.set(planted);
        }
        let error = error.map(|error| keeper.with_recovery_hint(error));
        let exit_code = outcome.exit_code(signals.first());
        if let Some(copies) = own_workspaces.filter(|_| !(outcome.can_be_resumed() || outcome.is_a_limit())) {
            copies.remove_all();
        }
        let acts = keeper.state().has_acted;
        let changed = match first {
            // It was killed between its last steps and has done nothing since.
            Some(first) if !acts && changed_before.is_some() => {
                first.skip().await;
                changed_before
            }
            Some(first) if acts || has_acted => first.compare(&signals).await,
            Some(first) => Some(first.skip().await),
            None => None,
        };
        if let Some(changed) = changed.clone() {
            // If the journal can't be written, the next write reports it.
            let _ = keeper.record(PARENT, changed.into());
        }
        let closing = RunFinished { outcome, exit_code, error };
        let last_line = keeper.record(PARENT, closing.into());
        let unknown = || broken(io::Error::other("the journal doesn't say how the run ended"));
        let mut result = keeper.state().summary.result().ok_or_else(unknown)?;
        // If the journal failed earlier, that is already reported.
        if let Err(failure) = last_line
            && result.outcome != Outcome::EnvironmentFailed
        {
            mark_record_failure(&mut result, &failure, &folder);
        }
        let keep = match self.plan.keep {
            Keep::Always => true,
            Keep::OnFailure => result.outcome != Outcome::Completed,
            // They are needed to resume the run.
            Keep::Never => result.outcome.can_be_resumed() || result.outcome.is_a_limit(),
        };
        if let Err(failure) = keeper.recorder.finish(&self.plan, &result, changed.as_ref(), keep).await {
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

/// What to do if a record can't be written any more.
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

fn error_info(run: &RunState, parent: &AgentFinished) -> Option<ErrorInfo> {
    if parent.outcome == Outcome::Completed {
        return None;
    }
    if let Some(abort) = run.abort().filter(|abort| abort.outcome == parent.outcome) {
        return Some(abort.error_info());
    }
    let (message, hint) = match parent.outcome {
        Outcome::ChecksFailed => {
            let hint = "Their output is in transcript.md. With `repairs`, the parent gets it and tries again.";
            ("a check doesn't pass", Some(hint))
        }
        Outcome::TurnLimit => (
            "the parent used all its turns",
            Some("Raise parent.max_turns or delegate more; `legwork resume --limit max_turns=N` continues this run."),
        ),
        Outcome::BudgetExceeded => (
            "a limit of the run was reached",
            Some("Raise it in `limits`; `legwork resume --limit NAME=VALUE` continues this run."),
        ),
        Outcome::Stuck => ("the same call failed again and again", Some("Read the last calls in transcript.md.")),
        Outcome::ReplyCut => ("the last answer was cut by max_tokens", Some("Raise parent.max_tokens.")),
        Outcome::Refused => {
            ("the model refused", Some("Explain the purpose of the work in the prompt, or try another model."))
        }
        Outcome::ResultInvalid => (
            "the parent ended without a result that matches its schema",
            Some("Read the tool's errors in transcript.md, and say in the prompt what the result must contain."),
        ),
        Outcome::ContextFull => {
            let hint = match run.deps.plan.compaction {
                _ if parent.turns == 0 => {
                    "Shorten the prompt, lower `max_tokens`, or use a model with a larger window. `model: { context: TOKENS }` says \
                     how large the window is."
                }
                Compaction::Off => "Remove `compaction: off`, or delegate more to subagents.",
                Compaction::Results => {
                    "Remove `compaction: results`, so that the model writes summaries, or delegate more to subagents."
                }
                Compaction::Summary => {
                    "Delegate more to subagents, read less at once, lower `max_tokens`, or use a model with a larger window."
                }
            };
            ("the conversation fills the model's window", Some(hint))
        }
        _ => ("the run didn't complete", None),
    };
    let message = run.last_note(parent.outcome).unwrap_or_else(|| message.to_owned());
    Some(ErrorInfo { code: parent.outcome.to_string(), message, hint: hint.map(str::to_owned) })
}

/// Records events, then shows them.
struct RecordingSink {
    recorder: Arc<Recorder>,
    observers: Vec<Arc<dyn RunObserver>>,
    clock: fn() -> Timestamp,
    state: Mutex<RecordedState>,
}

/// What is known from the recorded events.
struct RecordedState {
    summary: RunSummary,
    /// Whether any call or check was started in this part of the run.
    has_acted: bool,
    /// What to do about the first event that couldn't be written.
    recovery_hint: Option<String>,
    /// How many replies each agent has got.
    reply_counts: BTreeMap<String, usize>,
}

impl Sink for RecordingSink {
    fn record(&self, agent: &str, event: Event) -> io::Result<()> {
        let at = (self.clock)();
        let mut state = self.state();
        match event {
            Event::CallStarted(_) | Event::CheckStarted(_) => state.has_acted = true,
            Event::ReplyReceived(_) => {
                let count = state.reply_counts.entry(agent.to_owned()).or_default();
                *count = count.saturating_add(1);
            }
            _ => {}
        }
        if agent == PARENT {
            // Before it is written: the spend of a subagent counts even if the event can't be written.
            state.summary.apply(&event, at);
        }
        drop(state);
        let entry = self.recorder.append(agent, event, at).inspect_err(|error| self.fail(error))?;
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

    fn flush<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { self.recorder.flush(agent).await.inspect_err(|error| self.fail(error)) })
    }

    fn keep(&self, attachment: &Attachment) -> io::Result<()> {
        self.recorder.write_attachment(attachment).inspect_err(|error| self.fail(error))
    }
}

impl RecordingSink {
    /// Takes the hint of the first failure.
    fn fail(&self, error: &io::Error) {
        self.state().recovery_hint.get_or_insert_with(|| recovery_hint(error, &self.recorder.folder));
    }

    /// Adds what to do about a record that couldn't be written.
    fn with_recovery_hint(&self, mut error: ErrorInfo) -> ErrorInfo {
        if error.code == Outcome::EnvironmentFailed.to_string() {
            error.hint = self.state().recovery_hint.clone().or(error.hint);
        }
        error
    }

    fn state(&self) -> MutexGuard<'_, RecordedState> {
        self.state.lock().ignore_poison()
    }

    /// Whether a script or a record has replies left that no agent asked for.
    fn unused_replies(&self, plan: &Plan, providers: &BTreeMap<String, Arc<dyn Provider>>) -> Option<ProviderError> {
        let replied = &self.state().reply_counts;
        providers.iter().find_map(|(source, provider)| {
            let is_asked =
                |agent: &str| plan.agent(agent).is_some_and(|planned| planned.model.reply_source() == *source);
            provider
                .unused_replies(&|agent| replied.get(agent).copied().filter(|_| is_asked(agent)).unwrap_or_default())
        })
    }
}
