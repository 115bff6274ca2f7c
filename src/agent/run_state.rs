//! The state that all agents of a run share.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::journal_cursor::JournalCursor;
use super::request_spend::RequestSpend;
use super::run_abort::RunAbort;
use crate::budget::Budget;
use crate::event::{Durability, Event, Outcome, Sink};
use crate::job::Compaction;
use crate::message::Usage;
use crate::plan::{Plan, PlannedAgent};
use crate::pricing::{Prices, Rates};
use crate::process::CallLimits;
use crate::process::Environment;
use crate::process::fd_limit::max_concurrent_agents;
use crate::providers::{Model, Provider};
use crate::redaction::Redactor;
use crate::sandbox::Sandbox;
use crate::tools::task::Task;
use crate::tools::toolbox::Toolbox;
use crate::workspace::Workspace;

/// The parts of a run, which the caller provides.
pub struct RunDeps {
    /// The id of the run.
    pub run_id: String,
    /// The plan to run.
    pub plan: Plan,
    /// Where replies come from, by [`Model::reply_source`]. Every model of the plan has one.
    pub providers: BTreeMap<String, Arc<dyn Provider>>,
    /// What tokens cost.
    pub prices: Prices,
    /// The current time; prices depend on the day.
    pub clock: fn() -> Timestamp,
    /// What tools and checks work with.
    pub tools: ToolDeps,
    /// Where events go.
    pub sink: Arc<dyn Sink>,
    /// Cancelled by a signal.
    pub stop: CancellationToken,
    /// What the run waits for.
    pub gates: RunGates,
    /// The part of the run that is already recorded.
    pub history: RunHistory,
}

/// What tools and checks work with.
#[derive(Debug, Clone)]
pub struct ToolDeps {
    /// The folder that they work in.
    pub workspace: Arc<Workspace>,
    /// The secrets that must not appear in their output.
    pub redactor: Arc<Redactor>,
    /// The environment variables that commands see.
    pub environment: Arc<Environment>,
    /// How commands are confined.
    pub sandbox: Arc<Sandbox>,
}

/// What a run waits for before it takes a step.
#[derive(Debug, Clone)]
pub struct RunGates {
    /// Becomes true, or is dropped, when the state of the workspace at the start is known and tools may change it.
    pub baseline_ready: watch::Receiver<bool>,
    /// False while the readers of the output don't keep up.
    pub output_ready: watch::Receiver<bool>,
}

impl Default for RunGates {
    /// Gates that are open.
    fn default() -> Self {
        Self { baseline_ready: watch::channel(true).1, output_ready: watch::channel(true).1 }
    }
}

/// The part of a run that is already recorded; empty for a new run.
#[derive(Debug, Default)]
pub struct RunHistory {
    /// The recorded steps of the agents, by their ids.
    pub cursors: HashMap<String, JournalCursor>,
    /// How long the run has run.
    pub elapsed: Duration,
    /// Set if the record is replayed rather than resumed.
    pub replay: Option<ReplayedRun>,
}

/// A recorded run that is replayed: nothing goes live.
#[derive(Debug, Default)]
pub struct ReplayedRun {
    /// What ended the recorded run early.
    pub abort: Option<RunAbort>,
}

/// What all agents of a run share: one budget, one clock, one place for events.
pub struct RunState {
    pub(super) plan: Plan,
    pub(super) budget: Budget,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) tools: ToolDeps,
    /// The environment variables that checks see.
    pub(super) check_environment: Environment,
    /// The places for subagents that run at the same time.
    pub(super) subagent_slots: Semaphore,
    pub(super) deadline: Instant,
    stop: CancellationToken,
    gates: RunGates,
    providers: BTreeMap<String, Arc<dyn Provider>>,
    prices: Prices,
    clock: fn() -> Timestamp,
    is_replay: bool,
    shared: Mutex<SharedState>,
}

/// The state that agents change.
#[derive(Debug, Default)]
struct SharedState {
    /// Why the run ended early, if it did.
    abort: Option<RunAbort>,
    /// What the operator should know about an outcome.
    notes: Vec<(Outcome, String)>,
    /// Where the agents of a replay left their records.
    divergences: BTreeMap<String, String>,
    /// The records of the agents that haven't started yet.
    cursors: HashMap<String, JournalCursor>,
    /// The last number of each kind of subagent.
    subagent_numbers: HashMap<String, u32>,
    /// The windows that servers reported in this run when a prompt was too long, by the models' names.
    reported_windows: HashMap<String, u64>,
}

impl RunState {
    /// Starts the clock of a run.
    pub fn new(deps: RunDeps) -> Self {
        // A run without a limit ends, too; a century keeps the arithmetic safe.
        let longest = Duration::from_secs(100 * 365 * 24 * 3600);
        let wall_clock = deps.plan.limits.wall_clock_ms.map_or(longest, Duration::from_millis).min(longest);
        let RunHistory { cursors, elapsed, replay } = deps.history;
        let run = Self {
            budget: Budget::new(deps.plan.limits.clone()),
            subagent_slots: Semaphore::new(
                (deps.plan.limits.parallel_subagents.max(1) as usize).min(max_concurrent_agents()),
            ),
            deadline: Instant::now() + wall_clock.saturating_sub(elapsed),
            check_environment: deps.tools.environment.with_variables(deps.plan.check_variables(&deps.run_id)),
            plan: deps.plan,
            sink: deps.sink,
            tools: deps.tools,
            stop: deps.stop,
            gates: deps.gates,
            providers: deps.providers,
            prices: deps.prices,
            clock: deps.clock,
            is_replay: replay.is_some(),
            shared: Mutex::new(SharedState {
                abort: replay.and_then(|replay| replay.abort),
                cursors,
                ..SharedState::default()
            }),
        };
        if !run.is_replay {
            run.restore_spend();
        }
        run
    }

    fn shared(&self) -> std::sync::MutexGuard<'_, SharedState> {
        self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Restores the spend of a resumed run, that of agents that have ended included, and the windows that servers reported.
    fn restore_spend(&self) {
        let cursors = std::mem::take(&mut self.shared().cursors);
        for (id, cursor) in &cursors {
            let Some(agent) = self.plan.agent(id) else { continue };
            cursor.reported_windows().for_each(|window| self.record_window(&agent.model, window));
            let (mut tokens, mut cost) = (0_u64, 0.0);
            for spend in cursor.request_spend() {
                tokens = tokens.saturating_add(spend.usage.total());
                cost += self.recorded_cost(&agent.model, &spend).unwrap_or_default();
            }
            let (calls, subagents) = cursor.calls_started();
            self.budget.restore_spend(tokens, cost, calls, subagents);
        }
        self.shared().cursors = cursors;
    }

    /// Takes the recorded steps of an agent. In a replay every agent has some.
    pub(super) fn take_cursor(&self, id: &str) -> Result<JournalCursor, RunAbort> {
        let cursor = self.shared().cursors.remove(id);
        match cursor {
            Some(cursor) if self.is_replay && cursor.is_exhausted() => {
                Err(cursor.stopped().cloned().unwrap_or_else(|| self.diverge(id, "the record has no step of it")))
            }
            Some(cursor) => Ok(cursor),
            None if self.is_replay => Err(self.diverge(id, "the record has no such agent")),
            None => Ok(JournalCursor::default()),
        }
    }

    /// Whether steps of an agent are recorded that it hasn't taken yet.
    pub(super) fn has_recorded_steps(&self, id: &str) -> bool {
        self.shared().cursors.get(id).is_some_and(|cursor| !cursor.is_exhausted())
    }

    /// Why a subagent doesn't start in a replay, if the recorded one never did.
    pub(super) fn never_started(&self, id: &str) -> Option<RunAbort> {
        self.shared().cursors.get(id)?.never_started().cloned()
    }

    /// Ends an agent of a replay that takes a step that isn't in its record.
    pub(super) fn diverge(&self, agent: &str, difference: &str) -> RunAbort {
        self.shared().divergences.entry(agent.to_owned()).or_insert_with(|| difference.to_owned());
        RunAbort::new(Outcome::ReplayDiffers, format!("{agent}: {difference}"))
    }

    /// Where an agent of a replay left its record, in words.
    pub fn divergence(&self, agent: &str) -> Option<String> {
        self.shared().divergences.get(agent).cloned()
    }

    /// What a recorded request cost.
    pub(super) fn recorded_cost(&self, model: &Model, spend: &RequestSpend) -> Option<f64> {
        match spend.reserved_cost_usd {
            _ if model.is_scripted() || spend.usage == Usage::default() => Some(0.0),
            Some(reserved) => reserved,
            None => self.prices.cost(model.price_key(), &spend.usage, spend.at.into()),
        }
    }

    /// How the job treats conversations that outgrow their windows.
    pub fn compaction(&self) -> Compaction {
        self.plan.compaction
    }

    /// Why the run ended early, if it did.
    pub fn abort(&self) -> Option<RunAbort> {
        self.shared().abort.clone()
    }

    /// The last note about an outcome, for the operator.
    pub fn last_note(&self, outcome: Outcome) -> Option<String> {
        self.shared().notes.iter().rev().find(|(noted, _)| *noted == outcome).map(|(_, message)| message.clone())
    }

    pub(super) fn note(&self, outcome: Outcome, message: &str) {
        let message = self.tools.redactor.redact(message).into_owned();
        self.shared().notes.push((outcome, message));
    }

    /// Ends the run; the first reason counts. Returns the outcome of the agent that met it: the agent's own, or for the
    /// parent that of the run.
    pub(super) fn abort_run(&self, mut abort: RunAbort, is_parent: bool) -> Outcome {
        for text in std::iter::once(&mut abort.message).chain(&mut abort.hint) {
            *text = self.tools.redactor.redact(text).into_owned();
        }
        let own = abort.outcome;
        let first = self.shared().abort.get_or_insert(abort).outcome;
        // In a replay, the record of each agent says how far it came.
        if !self.is_replay {
            self.stop.cancel();
        }
        if is_parent { first } else { own }
    }

    pub(super) fn record(&self, agent: &str, event: impl Into<Event>, durability: Durability) -> Result<(), RunAbort> {
        self.sink.record(agent, event.into(), durability).map_err(|error| {
            let abort = RunAbort::journal_write_failed(&error);
            // At once, so that no other agent takes another step.
            self.abort_run(abort.clone(), false);
            abort
        })
    }

    /// Whether a signal or another agent has stopped the run.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Checks that another step may start.
    pub(super) fn check_running(&self) -> Result<(), RunAbort> {
        if self.is_stopped() {
            return Err(RunAbort::interrupted());
        }
        if Instant::now() >= self.deadline {
            return Err(self.timed_out());
        }
        Ok(())
    }

    /// Checks that what tools and checks did can be trusted: they could be started, changed nothing that is protected, and
    /// worked in the workspace of the run.
    pub(super) fn check_integrity(&self) -> Result<(), RunAbort> {
        if let Some(error) = self.tools.sandbox.tamper_error() {
            return Err(RunAbort::tampered(error));
        }
        if self.is_replay {
            return Ok(());
        }
        if let Some(reason) = self.tools.sandbox.start_failure.get() {
            return Err(RunAbort::command_not_started(reason));
        }
        self.tools.workspace.check_not_moved().map_err(|error| RunAbort::workspace_moved(&error))
    }

    /// Waits until tools may change the workspace.
    pub(super) async fn wait_for_baseline(&self) -> Result<(), RunAbort> {
        self.wait_for(&self.gates.baseline_ready).await?;
        self.wait_for_output().await
    }

    /// Waits until the readers of the output have caught up.
    pub(super) async fn wait_for_output(&self) -> Result<(), RunAbort> {
        self.wait_for(&self.gates.output_ready).await
    }

    async fn wait_for(&self, gate: &watch::Receiver<bool>) -> Result<(), RunAbort> {
        if *gate.borrow() {
            return Ok(());
        }
        let mut gate = gate.clone();
        tokio::select! {
            biased;
            abort = self.wait_for_stop() => Err(abort),
            _ = gate.wait_for(|is_open| *is_open) => Ok(()),
        }
    }

    /// Waits until the run is stopped or its time is up, and says why.
    pub(super) async fn wait_for_stop(&self) -> RunAbort {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => RunAbort::interrupted(),
            () = tokio::time::sleep_until(self.deadline) => self.timed_out(),
        }
    }

    fn timed_out(&self) -> RunAbort {
        RunAbort::timed_out(self.plan.limits.wall_clock_ms.unwrap_or_default())
    }

    /// When a tool call or a check must be over.
    pub(super) fn call_limits(&self) -> CallLimits {
        CallLimits { deadline: self.deadline.into(), cancel: self.stop.clone() }
    }

    pub(super) fn provider(&self, model: &Model) -> Result<&Arc<dyn Provider>, RunAbort> {
        self.providers
            .get(&model.reply_source())
            .ok_or_else(|| RunAbort::new(Outcome::EnvironmentFailed, format!("no provider was opened for {model}")))
    }

    /// What a request costs: nothing with scripted replies, `None` where the price isn't known.
    pub(super) fn cost(&self, model: &Model, usage: &Usage) -> Option<f64> {
        if model.is_scripted() || *usage == Usage::default() {
            return Some(0.0);
        }
        self.prices.cost(model.price_key(), usage, (self.clock)().into())
    }

    /// What the tokens of a request with a prompt of this size cost.
    pub(super) fn rates(&self, model: &Model, prompt_tokens: u64) -> Option<Rates> {
        if model.is_scripted() {
            return Some(Rates { input: 0.0, output: 0.0, cache_read: 0.0, cache_write: 0.0 });
        }
        self.prices.rates(model.price_key(), prompt_tokens, (self.clock)().into())
    }

    /// How many tokens a model's prompt and reply may have together, as the job says or else the price table.
    pub(super) fn known_window(&self, model: &Model) -> Option<u64> {
        model.context.or_else(|| self.prices.context_window(model.price_key()))
    }

    /// How many tokens a model's prompt may have, where that is less than its window. If the job says how large the window
    /// is, all of it can be used.
    pub(super) fn prompt_limit(&self, model: &Model) -> Option<u64> {
        if model.context.is_some() { None } else { self.prices.prompt_limit(model.price_key()) }
    }

    /// The window of a model as its server reported it in this run.
    pub(super) fn reported_window(&self, model: &Model) -> Option<u64> {
        self.shared().reported_windows.get(&model.to_string()).copied()
    }

    /// Takes the window that a server reported; the smallest one counts.
    pub(super) fn record_window(&self, model: &Model, window: u64) {
        let mut shared = self.shared();
        let known = shared.reported_windows.entry(model.to_string()).or_insert(window);
        *known = window.min(*known);
    }

    pub(super) fn toolbox(&self, planned: &PlannedAgent, is_parent: bool) -> Result<Toolbox, RunAbort> {
        let failed = |message: String| RunAbort::new(Outcome::EnvironmentFailed, message);
        let ToolDeps { workspace, redactor, environment, sandbox } = self.tools.clone();
        let mut toolbox = Toolbox::new(&planned.tools, workspace, redactor, environment, sandbox).map_err(failed)?;
        if is_parent && toolbox.has(Task::NAME) {
            toolbox.add(Box::new(self.plan.task_tool()));
        }
        if let Some(tool) = self.plan.submit_result(planned).map_err(failed)? {
            toolbox.add(Box::new(tool));
        }
        Ok(toolbox)
    }

    /// The next id of a kind of subagent: `explorer-1`, `explorer-2`.
    pub(super) fn next_id(&self, subagent: &str) -> String {
        let mut shared = self.shared();
        let number = shared.subagent_numbers.entry(subagent.to_owned()).or_default();
        *number += 1;
        format!("{subagent}-{number}")
    }

    /// Marks the id of a recorded subagent as used.
    pub(super) fn mark_id_used(&self, id: &str) {
        let (subagent, number) = id.rsplit_once('-').unwrap_or((id, ""));
        let mut shared = self.shared();
        let last = shared.subagent_numbers.entry(subagent.to_owned()).or_default();
        *last = number.parse::<u32>().unwrap_or_default().max(*last);
    }
}
