//! Executes one run: opens it, runs its agents, and completes its record.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::ResumeState;
use super::change_tracking::{BaselineTask, CurrentChanges};
use super::confinement::{Confined, ConfinedTools, Confinement, RecordAccess, RunPlaces};
use super::connect::Scripts;
use super::host::Host;
use super::pull_request_lines::PullRequestLines;
use super::recording_sink::{RecordingSink, RunObserver};
use super::run_error::{error_info, mark_record_failure};
use super::secrets::RunSecrets;
use super::signals::Signals;
use super::state_file::StateSource;
use super::tool_servers::{self, StartContext};
use super::way_out::way_out;
use crate::agent::{
    Agent, FILES_VARIABLE, MapShare, MessageFile, NetworkDeps, OwnWorkspaces, RunAbort, RunDeps, RunGates, RunHistory,
    RunState, StepDeps, ToolDeps, copy_step_files, write_event,
};
use crate::apply::check_patch;
use crate::egress::Egress;
use crate::error::{Error, TakenOver};
use crate::event::{
    AgentFinished, ErrorInfo, Event, FORMAT, Outcome, OutputsProposed, PARENT, Resumed, RunFinished, RunModel,
    RunOptions, RunResult, RunStarted, Sink, StateSet, WorkspaceChanged,
};
use crate::git::{GitProgram, head_commit};
use crate::job::Keep;
use crate::journal::Fault;
use crate::mcp::Servers;
use crate::outputs::{Accepted, Outputs};
use crate::plan::Plan;
use crate::process::spawn::EnvironmentError;
use crate::providers::{Model, Provider};
use crate::record::{FILES_FOLDER, Recorder, WrittenFile};
use crate::reports::html;
use crate::reports::record_files::write_reports;
use crate::running_clock::RunningInstant;
use crate::sandbox::Tier;
use crate::sandbox::protected_paths::{ProtectedPaths, Repositories};
use crate::tools::ToolServers;
use crate::workspace::Workspace;
use crate::workspace_changes::ChangeTracker;

/// A run that is about to start or to continue: what it does.
pub struct Prepared<'a> {
    /// The plan, rendered with this run's id.
    pub plan: Plan,
    /// What must not appear anywhere, and what commands see of it.
    pub secrets: RunSecrets,
    /// The job file, byte for byte. A resumed run uses the one in its record.
    pub job_file: &'a str,
    /// SHA-256 of the files that it names, for a new run of a job with outputs.
    pub job_files: BTreeMap<String, String>,
    /// What models of the plan answer from, if it isn't a provider that sends requests.
    pub scripts: Scripts,
    /// The options of the command line, as the journal records them.
    pub options: RunOptions,
    /// Values that are taken instead of running steps before the agent, by the names of the steps.
    pub given_steps: Map<String, Value>,
    /// A folder with files that such steps have left.
    pub given_files: Option<PathBuf>,
    /// The event that started a new run, which such steps find among the files.
    pub event: Option<Arc<[u8]>>,
    /// The state, if the job keeps one.
    pub state: Option<StateSource>,
}

/// The locked record of a run.
#[derive(Debug)]
pub struct OpenRecord {
    /// Writes it.
    pub recorder: Recorder,
    /// What is in it; `None` for a new run.
    pub before: Option<ResumeState>,
}

/// What a run works with.
pub struct Backends<'a> {
    /// The machine and the user.
    pub host: Host<'a>,
    /// Where replies come from, by [`Model::reply_source`].
    pub providers: BTreeMap<String, Arc<dyn Provider>>,
    /// The git program, if there is one that no tool can change.
    pub git: Option<GitProgram>,
    /// What the run shares with other rows of its map.
    pub map: MapShare,
    /// The signals that stop it.
    pub signals: Signals,
    /// False while the readers of the output don't keep up. Agents then wait.
    pub output_ready: watch::Receiver<bool>,
}

impl<'a> Backends<'a> {
    /// For a run that shares nothing with others, and whose readers always keep up.
    pub fn new(
        host: Host<'a>,
        providers: BTreeMap<String, Arc<dyn Provider>>,
        git: Option<GitProgram>,
        signals: Signals,
    ) -> Self {
        let output_ready = RunGates::default().output_ready;
        Self { host, providers, git, map: MapShare::default(), signals, output_ready }
    }
}

/// A run that can start as soon as its record is open.
pub struct RunSetup<'a> {
    /// What it does.
    pub prepared: Prepared<'a>,
    /// How its tools are confined.
    pub confinement: Confinement,
    /// What it works with.
    pub backends: Backends<'a>,
    /// Show what happens.
    pub observers: Vec<Arc<dyn RunObserver>>,
}

impl RunSetup<'_> {
    /// Runs to the end, and prints nothing. Several threads can do so at once, each on a runtime of its own; one runtime can
    /// execute several runs.
    ///
    /// # Errors
    /// The run couldn't start, or its result couldn't be written.
    pub async fn execute(self, record: OpenRecord) -> Result<Ended, Error> {
        let session = Session::open(self.prepared, record, self.confinement, self.backends).await?;
        session.run(self.observers).await
    }
}

/// A run that has ended. Its record is complete.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub result: RunResult,
    /// What has happened.
    pub model: RunModel,
    /// The values of its inputs, as the record has them.
    pub inputs: IndexMap<String, Value>,
    /// The folder that its tools worked in.
    workspace: PathBuf,
    /// The git repositories that commands have created there, if they were searched for.
    planted: Option<Repositories>,
    changes_unknown: bool,
    /// Why the lines of a review weren't checked, if they weren't.
    unchecked_lines: Option<String>,
}

/// A run whose record is open and whose tool servers have started.
pub struct Session<'a> {
    plan: Plan,
    recorder: Recorder,
    before: Option<ResumeState>,
    opening: Event,
    backends: Backends<'a>,
    tools: ToolDeps,
    servers: Option<Arc<Servers>>,
    own_workspaces: Option<Arc<OwnWorkspaces>>,
    network: NetworkDeps,
    steps: StepDeps,
    state: Option<StateSource>,
    protected: Protected,
    /// How long the run has run, with the start of its tool servers.
    elapsed: Duration,
}

/// What is compared at the end of a run.
struct Protected {
    repositories: Repositories,
    /// The git folders in which the job allows changes.
    git_folders: BTreeSet<PathBuf>,
    /// The folder of records, in which no repository is searched for.
    records: PathBuf,
}

/// A run whose start is in the journal.
struct Running<'a> {
    backends: Backends<'a>,
    run: RunState,
    sink: Arc<RecordingSink>,
    servers: Option<Arc<Servers>>,
    own_workspaces: Option<Arc<OwnWorkspaces>>,
    state: Option<StateSource>,
    protected: Protected,
    changes: Option<BaselineTask>,
    past: Past,
    /// How long the run had run when this part of it began.
    elapsed: Duration,
    begun: RunningInstant,
}

/// What the parts of a run before a resume have done.
#[derive(Debug, Default)]
struct Past {
    /// Whether they have started a call or a check.
    has_acted: bool,
    /// What the last part recorded about the workspace, if it came to its end.
    changed: Option<WorkspaceChanged>,
}

/// How a run ends.
struct End {
    outcome: Outcome,
    error: Option<ErrorInfo>,
    planted: Option<Repositories>,
}

impl<'a> Session<'a> {
    /// Starts the tool servers of a run, and writes the files of its record that are known before its first event. If this
    /// fails, a new record is removed.
    ///
    /// # Errors
    /// The run can't start.
    pub async fn open(
        mut prepared: Prepared<'a>,
        mut record: OpenRecord,
        confinement: Confinement,
        backends: Backends<'a>,
    ) -> Result<Self, Error> {
        record.recorder.faults.fault = injected_fault(&backends.host);
        let folder = record.recorder.folder.clone();
        let record_failed = |source| Error::Record { path: folder.clone(), source };
        let RunPlaces { job_files, runs_folder, .. } = confinement.places().clone();
        let confined = confinement.for_record(&RecordAccess::of(&record.recorder), prepared.plan.mcp.values())?;
        let elapsed = record.before.as_ref().map(ResumeState::elapsed).unwrap_or_default();
        let begun = RunningInstant::now();
        let sent = record.before.as_ref().map_or(0, ResumeState::sent_bytes);
        let egress = way_out(&prepared.plan, &prepared.options, sent, &backends.host)?;
        let ways = (&confined, egress.as_ref());
        let servers = start_servers(&mut prepared, ways, &backends, begun, elapsed, record.before.is_some());
        let servers = servers.await?;
        let elapsed = elapsed + begun.elapsed();
        prepared.plan = prepared.plan.redacted(&prepared.secrets.redactor);
        let written = record.write_source(&prepared).map_err(record_failed)?;
        let confined = confined.record_written(&written).map_err(record_failed)?;
        let opening = opening(&prepared, &record, &job_files, confined.sandbox.tier());
        let Prepared { plan, mut secrets, given_steps, given_files, event, state, .. } = prepared;
        let files = (!plan.before.is_empty()).then(|| folder.join(FILES_FOLDER));
        if let Some(files) = &files {
            record.recorder.open_folder().create_dir(Path::new(FILES_FOLDER), 0o700).map_err(record_failed)?;
            if let Some(given) = given_files.as_ref().filter(|_| record.before.is_none()) {
                copy_step_files(given, files).map_err(record_failed)?;
            }
            if let Some(event) = event.as_ref().filter(|_| record.before.is_none()) {
                write_event(files, event).map_err(record_failed)?;
            }
            let variable = (FILES_VARIABLE.to_owned(), files.to_string_lossy().into_owned());
            secrets.environment = secrets.environment.with_variables([variable]);
        }
        let of_servers = servers.clone().map(|servers| servers as Arc<dyn ToolServers>);
        let lock = state.as_ref().and_then(StateSource::lock).map(Path::to_owned).into_iter().collect();
        let mut tools = confined.open(Path::new(&plan.workspace), lock, secrets, of_servers)?;
        tools.egress = plan.network.hosts().and(egress.clone());
        if let Some(files) = &files {
            tools.files =
                Some(Arc::new(Workspace::open(files, vec![files.clone()], Vec::new()).map_err(record_failed)?));
        }
        let refused_lines = record.before.as_ref().map_or(0, ResumeState::refused_lines);
        let network = NetworkDeps { egress, narrowed: confined.narrowed.clone(), refused_lines };
        let ConfinedTools { protected, records, confine_copy, confine_steps, .. } = confined;
        let read = state.as_ref().map(StateSource::start).unwrap_or_default();
        let steps = StepDeps { confine: Some(confine_steps), files, given: given_steps, state: read };
        let ProtectedPaths { allowed_changes: allowed, repositories, .. } = protected;
        let own_workspaces = plan.copies_workspace().then(|| {
            let (workspace, git) = (Arc::clone(&tools.workspace), backends.git.clone());
            let opened = OwnWorkspaces::new(&runs_folder, &folder, workspace, git, confine_copy);
            opened.map(Arc::new).map_err(|source| Error::Record { path: runs_folder, source })
        });
        let own_workspaces = own_workspaces.transpose()?;
        let protected = Protected { repositories, git_folders: allowed.git_folders, records };
        let OpenRecord { recorder, before } = record;
        Ok(Self {
            plan,
            recorder,
            before,
            opening,
            backends,
            tools,
            servers,
            own_workspaces,
            network,
            steps,
            state,
            protected,
            elapsed,
        })
    }

    /// Runs to the end, whatever it is. The record is complete then.
    ///
    /// # Errors
    /// The run couldn't start, or its result couldn't be written.
    pub async fn run(self, observers: Vec<Arc<dyn RunObserver>>) -> Result<Ended, Error> {
        let running = self.start(observers).await?;
        let begin_scan = || running.changes.iter().for_each(BaselineTask::begin);
        let parent = Agent::run_parent(&running.run, begin_scan).await;
        let end = running.end(&parent).await;
        running.finish(end).await
    }

    /// Records that the run starts or continues.
    async fn start(mut self, observers: Vec<Arc<dyn RunObserver>>) -> Result<Running<'a>, Error> {
        let folder = self.recorder.folder.clone();
        let record_failed = |source| Error::Record { path: folder.clone(), source };
        let (host, signals) = (&self.backends.host, &self.backends.signals);
        let needed: BTreeMap<_, _> = self.plan.models().map(|model| (model.reply_source(), model)).collect();
        host.prices.load_in_background(needed.into_values().map(Model::price_key));
        let sink = RecordingSink::new(self.recorder, observers, host.clock, self.before.as_ref());
        let sink = Arc::new(sink);
        sink.write_summaries().map_err(record_failed)?;
        let trigger = self.plan.outputs.as_ref().and_then(|outputs| outputs.trigger.as_ref());
        let lines = PullRequestLines::new(self.backends.git.clone(), PathBuf::from(&self.plan.workspace), trigger);
        let tracker = self.plan.changes_files().then(|| ChangeTracker {
            workspace: Arc::clone(&self.tools.workspace),
            record: sink.recorder.open_folder().clone(),
            mask: Arc::clone(&self.tools.redactor),
            outputs: host.outputs.clone(),
            git: self.backends.git.take(),
            shows_content: !self.before.as_ref().is_some_and(|before| before.has_new_secrets),
            keeps_binary: self.plan.outputs.as_ref().is_some_and(Outputs::take_binary),
        });
        let current = CurrentChanges { tracker: tracker.clone(), stop: signals.stop.clone() };
        let changes = tracker.map(|tracker| BaselineTask::new(tracker, self.before.as_ref(), signals));
        let (changes, baseline_ready) = changes.unzip();
        // What steps before the agent change isn't a change of the run.
        if let Some(changes) = changes.as_ref().filter(|_| self.plan.before.is_empty()) {
            changes.begin();
        }
        let past = self.before.as_ref().map_or_else(Past::default, |before| Past {
            has_acted: before.has_acted(),
            changed: before.workspace_changed(),
        });
        let cursors = self.before.map(ResumeState::into_cursors).unwrap_or_default();
        let (id, providers) = (sink.recorder.run_id.clone(), self.backends.providers.clone());
        let deps = RunDeps::new(id, self.plan, providers, self.tools, Arc::clone(&sink) as Arc<dyn Sink>);
        let run = RunState::new(RunDeps {
            map: self.backends.map.clone(),
            prices: host.prices.clone(),
            message_file: Arc::new(MessageFile::new(Some(folder.clone()))),
            clock: host.clock,
            network: self.network,
            steps: self.steps,
            own_workspaces: self.own_workspaces.clone(),
            changes: Some(Arc::new(current)),
            trigger_changes: Some(Arc::new(lines)),
            // The end of the run isn't a signal.
            stop: signals.stop.child_token(),
            gates: RunGates {
                baseline_ready: baseline_ready.unwrap_or_else(|| watch::channel(true).1),
                output_ready: self.backends.output_ready.clone(),
            },
            history: RunHistory { cursors, elapsed: self.elapsed, ..RunHistory::default() },
            ..deps
        });
        let noted = match self.state.as_mut().and_then(StateSource::file) {
            Some(file) => file.begin(&folder, &sink.recorder.run_id),
            None => Ok(()),
        };
        let opened = match noted {
            Ok(()) => record_opening(&sink, &run.deps.plan, self.opening).await,
            Err(error) => Err(error),
        };
        if let Err(error) = opened {
            // The scan must not write to the record while it is removed.
            if let Some(changes) = changes {
                changes.skip().await;
            }
            return Err(record_failed(error));
        }
        sink.recorder.remove_result().map_err(|error| broken(&folder, error))?;
        sink.recorder.keep_alive(self.backends.host.clock);
        if !html::has_compiled_templates() {
            // The task begins when the parent waits for the first time, and the thread is the one that ends the record.
            tokio::spawn(async { tokio::task::spawn_blocking(html::compile_templates).await });
        }
        let Self { backends, servers, own_workspaces, state, protected, elapsed, .. } = self;
        let begun = RunningInstant::now();
        Ok(Running { backends, run, sink, servers, own_workspaces, state, protected, changes, past, elapsed, begun })
    }
}

impl Running<'_> {
    /// Stops the tool servers, and finds out how the run ends.
    async fn end(&self, parent: &AgentFinished) -> End {
        let plan = &self.run.deps.plan;
        let unused = self.sink.unused_replies(plan, &self.backends.providers);
        let unused = unused.filter(|_| parent.outcome == Outcome::Completed);
        for (server, traffic) in self.servers.iter().flat_map(|servers| servers.take_all_traffic()) {
            // If the journal can't be written, the next write reports it.
            let _ = self.run.record_traffic(PARENT, &format!("server {server}"), &traffic);
        }
        let _ = self.run.record_refused_rest();
        let servers_end = match &self.servers {
            Some(servers) => servers.stop(self.backends.signals.stop.is_cancelled()).await,
            None => Ok(()),
        };
        let (outcome, error) = match unused.map(RunAbort::from) {
            Some(abort) => (abort.outcome, Some(abort.error_info())),
            None => (parent.outcome, error_info(&self.run, parent)),
        };
        let mut end = End { outcome, error, planted: None };
        if let Err(tampered) = servers_end {
            end.replace_success(|| EnvironmentError::Tampered(tampered).into());
        }
        if plan.has_commands() || plan.starts_servers() {
            let Protected { repositories, git_folders, records } = &self.protected;
            let time = plan.limits.wall_clock_ms.map(Duration::from_millis);
            let time = time.map(|time| time.saturating_sub(self.elapsed + self.begun.elapsed()));
            let mut planted = repositories.added_since(Path::new(&plan.workspace), records, time);
            // A repository that `git: commit` allows to change was checked.
            planted.folders.retain(|path| !git_folders.contains(path));
            if !planted.is_complete {
                end.replace_success(RunAbort::repository_scan_incomplete);
            }
            end.planted = Some(planted);
        }
        end.error = end.error.map(|error| self.sink.with_recovery_hint(error));
        end
    }

    /// Records how the run ends, and writes the files of its record that are made at the end.
    async fn finish(self, end: End) -> Result<Ended, Error> {
        let Self { backends, run, sink, own_workspaces, mut state, past, changes, .. } = self;
        let End { outcome, error, planted } = end;
        let (plan, recorder) = (&run.deps.plan, &sink.recorder);
        let is_final = |outcome: Outcome| !(outcome.can_be_resumed() || outcome.is_a_limit());
        if let Some(copies) = own_workspaces.filter(|_| is_final(outcome)) {
            copies.remove_all();
        }
        let acts = sink.state().has_acted;
        let changed = match changes {
            // It was killed between its last steps and has done nothing since.
            Some(changes) if !acts && past.changed.is_some() => {
                changes.skip().await;
                past.changed
            }
            Some(changes) if acts || past.has_acted => changes.compare(&backends.signals).await,
            Some(changes) => Some(changes.skip().await),
            None => None,
        };
        if let Some(changed) = changed.clone() {
            // If the journal can't be written, the next write reports it.
            let _ = sink.record(PARENT, changed.into());
        }
        let unchecked_lines = run.unchecked_review_lines();
        let (mut outcome, mut error) = (outcome, error);
        if let Some(accepted) = run.accepted_outputs() {
            if let Err(why) = check_proposed_patch(run.allowed_outputs(), &accepted, changed.as_ref())
                && outcome == Outcome::Completed
            {
                let abort = RunAbort::patch_not_publishable(&why);
                (outcome, error) = (abort.outcome, Some(abort.error_info()));
            }
            let _ = sink.record(PARENT, OutputsProposed { accepted }.into());
        }
        let mut file = state.as_mut().and_then(StateSource::file);
        let set = run.states().filter(|_| outcome == Outcome::Completed).and_then(|(before, set)| Some((before, set?)));
        if let Some((before, value)) = &set {
            let _ = sink.record(PARENT, StateSet::new(before, value).into());
            file.iter_mut().for_each(|file| file.set_pending());
        }
        let exit_code = outcome.exit_code(backends.signals.first());
        let last_line = sink.record(PARENT, RunFinished { outcome, exit_code, error }.into());
        let folder = &recorder.folder;
        let unknown = || broken(folder, io::Error::other("the journal doesn't say how the run ended"));
        let mut result = sink.state().model.result().ok_or_else(unknown)?;
        let last_line = match (last_line, &set) {
            // The state of a run must not be saved before it is certain that it has completed.
            (Ok(()), Some(_)) => sink.flush(PARENT).await,
            (last_line, _) => last_line,
        };
        match (&last_line, &set, &mut file) {
            (Ok(()), Some((_, value)), Some(file)) if result.outcome == Outcome::Completed => {
                let saved = recorder.faults.operation().and_then(|()| file.save(value, &recorder.faults));
                saved.map_err(|source| file.not_saved(folder, source))?;
            }
            (_, _, Some(file)) => file.unset_pending(),
            _ => {}
        }
        // If the journal failed earlier, that is already reported.
        if let Err(failure) = last_line
            && result.outcome != Outcome::EnvironmentFailed
        {
            mark_record_failure(&mut result, &failure, folder);
        }
        let keep = match plan.keep {
            Keep::Always => true,
            Keep::OnFailure => !result.outcome.is_success(),
            // They are needed to resume the run.
            Keep::Never => !is_final(result.outcome),
        };
        let model = sink.state().model.outside();
        if let Err(failure) = recorder.finish(plan, &result, &model, keep, write_reports).await {
            if result.outcome != Outcome::EnvironmentFailed {
                mark_record_failure(&mut result, &failure, folder);
            }
            recorder.write_result(&result).map_err(|_| broken(folder, failure))?;
        }
        let changes_unknown = plan.changes_files() && result.changes.is_none();
        let (inputs, workspace) = (plan.inputs.clone(), PathBuf::from(&plan.workspace));
        let model = std::mem::take(&mut sink.state().model);
        Ok(Ended { result, model, inputs, workspace, planted, changes_unknown, unchecked_lines })
    }
}

impl End {
    /// Ends a run that would have completed for another reason.
    fn replace_success(&mut self, abort: impl FnOnce() -> RunAbort) {
        if self.outcome == Outcome::Completed {
            let abort = abort();
            (self.outcome, self.error) = (abort.outcome, Some(abort.error_info()));
        }
    }
}

impl Ended {
    /// What the user should know about the workspace.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.planted.as_ref().map(|found| self.repository_warnings(found)).unwrap_or_default();
        if self.changes_unknown {
            warnings.push(
                "the changes to the workspace are unknown (`changes` is null): scanning its files took too long, or the \
                 baseline from the start of the run is lost"
                    .to_owned(),
            );
        }
        if let Some(why) = &self.unchecked_lines {
            warnings.push(format!(
                "the lines of a review weren't checked, because {why}; `publish` checks them, and moves comments whose lines the forge \
                 doesn't show into the review's text. With actions/checkout, `fetch-depth: 0` fetches all commits"
            ));
        }
        warnings
    }

    /// Warnings about git repositories that commands created: their configuration takes effect when the user next runs git
    /// there.
    fn repository_warnings(&self, repositories: &Repositories) -> Vec<String> {
        let mut warnings = Vec::new();
        if !repositories.is_complete {
            warnings.push(
                "the workspace has too many files to search for git repositories that commands created: look for folders \
                 named `.git` before you run git here"
                    .to_owned(),
            );
        }
        let Some(first) = repositories.folders.first() else { return warnings };
        let first = first.strip_prefix(&self.workspace).unwrap_or(first).to_string_lossy();
        let others = match repositories.folders.len() - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        warnings.push(format!(
            "commands created a git repository, `{first}`{others}: git obeys its configuration, so check that before you run \
             git here"
        ));
        warnings
    }
}

impl OpenRecord {
    /// Writes the files that are known before the first event. A resumed run has them, unless they were deleted.
    fn write_source(&self, prepared: &Prepared<'_>) -> io::Result<[WrittenFile; 2]> {
        match &self.before {
            Some(before) => self.recorder.write_source(&before.started.job_file, &before.started.plan),
            None => self.recorder.write_source(prepared.job_file, &prepared.plan),
        }
    }
}

/// The first event of this part of a run.
fn opening(prepared: &Prepared<'_>, record: &OpenRecord, job_files: &[PathBuf], tier: Tier) -> Event {
    let Prepared { plan, secrets, job_file, job_files: digests_of_files, scripts, options, .. } = prepared;
    let OpenRecord { recorder, before } = record;
    let (version, sandbox) = (env!("CARGO_PKG_VERSION").to_owned(), tier.to_string());
    let (workspace, commit) = (plan.workspace.clone(), head_commit(Path::new(&plan.workspace)));
    let (folder, options) = (recorder.folder.to_string_lossy().into_owned(), options.clone());
    let digests = |run_id: &str| recorder.digests(run_id, &secrets.redacted_command_secrets());
    match before {
        None => RunStarted {
            format: FORMAT,
            version,
            run_id: recorder.run_id.clone(),
            job: plan.job.clone(),
            workspace,
            sandbox,
            commit,
            protected: job_files.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
            scripts: scripts.iter().map(|(model, opened)| (model.clone(), opened.path.clone())).collect(),
            folder,
            options,
            secrets: digests(&recorder.run_id),
            job_files: digests_of_files.clone(),
            job_file: (*job_file).to_owned(),
            plan: Box::new(plan.clone()),
        }
        .into(),
        Some(before) => Resumed {
            version,
            workspace,
            sandbox,
            commit,
            limits: before.limits.clone(),
            last_seen: before.last_seen,
            folder,
            options,
            secrets: digests(&before.started.run_id),
            has_new_secrets: before.has_new_secrets,
        }
        .into(),
    }
}

/// Checks the changes of a run once more, if it proposes to publish them: they may have changed since the call.
fn check_proposed_patch(
    allowed: Option<&Outputs>,
    accepted: &Accepted,
    changed: Option<&WorkspaceChanged>,
) -> Result<(), String> {
    let outputs = accepted.entries.iter().filter_map(|entry| allowed?.allowed.get(&entry.name));
    let mut rules = outputs.filter_map(|output| output.kind.patch_rules());
    rules.try_for_each(|rules| match changed {
        Some(changed) => check_patch(rules, changed),
        None => Err("the changes of the run aren't known".to_owned()),
    })
}

/// Starts the tool servers, before anything is spent.
async fn start_servers(
    prepared: &mut Prepared<'_>,
    (confined, egress): (&Confined, Option<&Egress>),
    backends: &Backends<'_>,
    begun: RunningInstant,
    elapsed: Duration,
    is_resumed: bool,
) -> Result<Option<Arc<Servers>>, Error> {
    let time_limit = prepared.plan.limits.wall_clock_ms.map(Duration::from_millis);
    let context = StartContext {
        confined,
        workspace: &prepared.plan.workspace.clone(),
        redactor: &prepared.secrets.redactor,
        stop: &backends.signals.stop,
        deadline: time_limit.map(|limit| begun + limit.saturating_sub(elapsed)),
        is_offline: prepared.options.offline,
        egress,
    };
    // They have the servers' answers.
    let scripts = prepared.scripts.iter().filter(|_| !prepared.plan.mcp.is_empty());
    let scripts = scripts.map(|(model, opened)| (model.clone(), opened.script.clone())).collect();
    let servers = tool_servers::start_planned(&mut prepared.plan, scripts, context, is_resumed, &backends.host).await;
    servers.map_err(|error| match backends.signals.first() {
        Some(signal) => Error::StoppedAtStart { signal },
        None => error,
    })
}

/// Records the first event of this part of a run, after the images that its plan names.
async fn record_opening(sink: &RecordingSink, plan: &Plan, opening: Event) -> io::Result<()> {
    let is_resumed = matches!(opening, Event::Resumed(_));
    // A resumed run has them.
    let mut given = plan.attachments.iter().map(|input| &input.file).filter(|file| !file.data.is_empty());
    given.try_for_each(|file| sink.keep(file))?;
    sink.record(PARENT, opening)?;
    // A new run has nothing to lose before its first call with an effect.
    if is_resumed { sink.recorder.flush(PARENT).await } else { Ok(()) }
}

/// The error of a run whose record can't be written any more.
fn broken(folder: &Path, source: io::Error) -> Error {
    let path = folder.to_owned();
    match source.get_ref() {
        Some(error) if error.is::<TakenOver>() => Error::TakenOver { path },
        _ => Error::BrokenRecord { path, source },
    }
}

/// A fault to inject, for tests. It has no effect in release builds.
fn injected_fault(host: &Host<'_>) -> Option<Fault> {
    let faults = [
        ("LEGWORK_KILL_AFTER", Fault::KillAfter as fn(u64) -> Fault),
        ("LEGWORK_KILL_AT", Fault::KillAt),
        ("LEGWORK_FAIL_AT", Fault::FailAt),
        ("LEGWORK_FAIL_ONCE_AT", Fault::FailOnceAt),
    ];
    faults.into_iter().find_map(|(name, fault)| Some(fault(host.variable(name)?.parse().ok()?)))
}
