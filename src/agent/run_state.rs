//! The state that all agents of a run share.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::journal_cursor::{JournalCursor, RequestSpend};
use super::message_store::MessageFile;
use super::network_deps::{NetworkDeps, RefusedLines};
use super::own_workspaces::OwnWorkspaces;
use super::run_abort::RunAbort;
use super::step_deps::{LateState, StepDeps};
use crate::attachment::Attachment;
use crate::budget::{Amount, Budget, SharedBudget};
use crate::event::{Event, Outcome, Sink};
use crate::message::Usage;
use crate::outputs::{Accepted, Outputs, OwnChanges, Proposal, Proposals, TriggerChanges};
use crate::plan::SharedPrefixes;
use crate::plan::{Plan, PlannedAgent};
use crate::pricing::{Prices, Rates};
use crate::process::fd_limit::max_concurrent_agents;
use crate::process::spawn::EnvironmentError;
use crate::process::{CallLimits, Environment, RunDeadline};
use crate::providers::{Model, Provider};
use crate::sync::IgnorePoison;
use crate::tools::toolbox::ToolDeps;

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
    /// Where the messages of conversations are kept for compaction.
    pub message_file: Arc<MessageFile>,
    /// The current time; prices depend on the day.
    pub clock: fn() -> Timestamp,
    /// What tools and checks work with.
    pub tools: ToolDeps,
    /// The ways out of commands.
    pub network: NetworkDeps,
    /// What the steps before the agent run with.
    pub steps: StepDeps,
    /// The copies of the workspace for subagents that don't share it; `None` in a replay, which makes none.
    pub own_workspaces: Option<Arc<OwnWorkspaces>>,
    /// Checks the changes of the run before a call proposes to publish them.
    pub changes: Option<Arc<dyn OwnChanges>>,
    /// Knows the lines of the pull request that started the run.
    pub trigger_changes: Option<Arc<dyn TriggerChanges>>,
    /// Where events go.
    pub sink: Arc<dyn Sink>,
    /// Cancelled by a signal.
    pub stop: CancellationToken,
    /// What the run shares with other rows of its map.
    pub map: MapShare,
    /// What the run waits for.
    pub gates: RunGates,
    /// The part of the run that is already recorded.
    pub history: RunHistory,
}

impl RunDeps {
    /// The parts of a new run that shares nothing with others, waits for nothing and isn't stopped from outside.
    pub fn new(
        run_id: String,
        plan: Plan,
        providers: BTreeMap<String, Arc<dyn Provider>>,
        tools: ToolDeps,
        sink: Arc<dyn Sink>,
    ) -> Self {
        Self {
            run_id,
            plan,
            providers,
            prices: Prices::new(),
            message_file: Arc::default(),
            clock: Timestamp::now,
            tools,
            network: NetworkDeps::default(),
            steps: StepDeps::default(),
            own_workspaces: None,
            changes: None,
            trigger_changes: None,
            sink,
            stop: CancellationToken::new(),
            map: MapShare::default(),
            gates: RunGates::default(),
            history: RunHistory::default(),
        }
    }
}

/// What a run shares with the other rows of its map; nothing for a run of its own.
#[derive(Clone, Default)]
pub struct MapShare {
    /// The budget of the map.
    pub budget: Option<Arc<dyn SharedBudget>>,
    /// The beginnings of prompts that its rows have in common.
    pub prefixes: Arc<SharedPrefixes>,
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
    /// Whether the record is replayed rather than resumed: nothing goes live.
    pub is_replay: bool,
    /// What ended the recorded run of a replay early.
    pub abort: Option<RunAbort>,
}

/// What all agents of a run share: one budget, one clock, one place for events.
pub struct RunState {
    /// What the caller provided.
    pub deps: RunDeps,
    pub(super) budget: Budget,
    /// The environment variables that checks see.
    pub(super) check_environment: Environment,
    /// The places for subagents that run at the same time.
    pub(super) subagent_slots: Semaphore,
    pub(super) deadline: RunDeadline,
    /// What the agents have proposed to do outside; `None` if the job has no outputs.
    pub(super) proposals: Option<Arc<Proposals>>,
    /// What is known since the steps before the agent have run.
    pub(super) late: OnceLock<LateState>,
    is_replay: bool,
    shared: Mutex<SharedState>,
}

/// The state that agents change.
#[derive(Debug, Default)]
pub(super) struct SharedState {
    /// Why the run ended early, if it did.
    abort: Option<RunAbort>,
    /// Whether a call or a check has ended the run.
    environment_failed: bool,
    /// The state that the parent has set.
    pub(super) state: Option<Value>,
    /// What the operator should know about an outcome.
    notes: Vec<(Outcome, String)>,
    /// Where the agents of a replay left their records.
    divergences: BTreeMap<String, String>,
    /// The records of the agents that haven't started yet.
    cursors: HashMap<String, JournalCursor>,
    /// What the tools of subagents with a copy of the workspace work with, by the subagents' ids.
    own_tools: HashMap<String, ToolDeps>,
    /// The refusals of connections.
    pub(super) refused_lines: RefusedLines,
    /// The last number of each kind of subagent.
    subagent_numbers: HashMap<String, u32>,
    /// The windows that servers reported in this run when a prompt was too long, by the models' names.
    reported_windows: HashMap<String, u64>,
}

/// How many subagents of a plan can run at once.
fn subagent_places(plan: &Plan) -> usize {
    // Counting the open descriptors takes longer the more rows of a map there are.
    if plan.subagents.is_empty() {
        return 1;
    }
    (plan.limits.parallel_subagents.max(1) as usize).min(max_concurrent_agents())
}

impl RunState {
    /// Starts the clock of a run.
    pub fn new(mut deps: RunDeps) -> Self {
        // A run without a limit ends, too; a century keeps the arithmetic safe.
        let longest = Duration::from_secs(100 * 365 * 24 * 3600);
        let wall_clock = deps.plan.limits.wall_clock_ms.map_or(longest, Duration::from_millis).min(longest);
        let RunHistory { cursors, elapsed, is_replay, abort } = std::mem::take(&mut deps.history);
        let (changes, trigger_changes) = (deps.changes.take(), deps.trigger_changes.take());
        let outputs = deps.plan.outputs.clone().map(Arc::new);
        let proposals = outputs.map(|outputs| Arc::new(Proposals::new(outputs, changes, trigger_changes)));
        let run = Self {
            proposals,
            budget: Budget::new(deps.plan.limits.clone()).within_map(deps.map.budget.take()),
            subagent_slots: Semaphore::new(subagent_places(&deps.plan)),
            deadline: RunDeadline::after(wall_clock.saturating_sub(elapsed)),
            check_environment: deps.tools.environment.with_variables(deps.plan.check_variables(&deps.run_id)),
            late: OnceLock::new(),
            deps,
            is_replay,
            shared: Mutex::new(SharedState { abort, cursors, ..SharedState::default() }),
        };
        if !run.is_replay {
            run.restore_spend();
            run.restore_proposals();
        }
        run
    }

    pub(super) fn shared(&self) -> std::sync::MutexGuard<'_, SharedState> {
        self.shared.lock().ignore_poison()
    }

    /// Restores the spend of a resumed run, that of agents that have ended included, and the windows that servers reported.
    fn restore_spend(&self) {
        let cursors = std::mem::take(&mut self.shared().cursors);
        for (id, cursor) in &cursors {
            let Some(agent) = self.deps.plan.agent(id) else { continue };
            for (fallback, window) in cursor.reported_windows() {
                self.record_window(agent.model_named(fallback), window);
            }
            let mut spent = Amount::default();
            for spend in cursor.request_spend() {
                let of_usage = || (spend.usage.total(), self.recorded_cost(agent, &spend));
                let (tokens, cost) = spend.in_budget.unwrap_or_else(of_usage);
                spent.tokens = spent.tokens.saturating_add(tokens);
                spent.cost_usd += cost.unwrap_or_default();
            }
            let (calls, subagents) = cursor.calls_started();
            self.budget.restore_spend(spent, calls, subagents);
        }
        self.shared().cursors = cursors;
    }

    /// What the agents have proposed to do outside; `None` if the job has no outputs.
    pub fn accepted_outputs(&self) -> Option<Accepted> {
        self.proposals.as_ref().map(|proposals| proposals.accepted())
    }

    /// What the job allows its agents to propose, with the lists that steps have printed; `None` if it has no outputs.
    pub fn allowed_outputs(&self) -> Option<&Outputs> {
        self.proposals.as_ref().map(|proposals| proposals.outputs())
    }

    /// Why the lines of a review that was accepted weren't checked at the call, if they weren't.
    pub fn unchecked_review_lines(&self) -> Option<String> {
        self.proposals.as_ref()?.unchecked_lines()
    }

    /// Restores what the agents had proposed before the run was resumed, in the order of the calls.
    fn restore_proposals(&self) {
        let Some(proposals) = &self.proposals else { return };
        let shared = self.shared();
        let mut recorded: Vec<(Timestamp, &Proposal)> =
            shared.cursors.values().flat_map(JournalCursor::proposals).collect();
        recorded.sort_by_key(|(at, _)| *at);
        recorded.iter().for_each(|(_, proposal)| proposals.restore(proposal));
    }

    /// Gives a subagent tools of its own, which work in its copy of the workspace.
    pub(super) fn set_own_tools(&self, id: &str, tools: ToolDeps) {
        self.shared().own_tools.insert(id.to_owned(), tools);
    }

    /// What the tools of an agent that starts now work with.
    pub(super) fn take_tools(&self, id: &str) -> ToolDeps {
        let own = self.shared().own_tools.remove(id);
        let is_own_copy = own.is_some();
        let mut tools = own.unwrap_or_else(|| self.deps.tools.clone());
        self.narrow_network(id, is_own_copy, &mut tools);
        tools
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

    /// Returns the recorded steps of an agent that hasn't taken all of them.
    pub(super) fn return_cursor(&self, id: &str, cursor: JournalCursor) {
        self.shared().cursors.insert(id.to_owned(), cursor);
    }

    /// The environment variables of a step before the agent. One that a map runs once gets no inputs.
    pub(super) fn step_environment(&self, is_once: bool) -> &Environment {
        if is_once { &self.deps.tools.environment } else { &self.check_environment }
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
    pub(super) fn recorded_cost(&self, agent: &PlannedAgent, spend: &RequestSpend) -> Option<f64> {
        let model = agent.model_named(spend.fallback.as_deref());
        match spend.reserved_cost_usd {
            Some(reserved) if !model.is_scripted() => reserved,
            _ => self.cost(model, &spend.usage, spend.at),
        }
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
        self.shared().notes.push((outcome, message.to_owned()));
    }

    /// Ends the run; the first reason counts. Returns the outcome of the agent that met it: the agent's own, or for the
    /// parent that of the run.
    pub(super) fn abort_run(&self, abort: RunAbort, is_parent: bool) -> Outcome {
        let own = abort.outcome;
        let first = self.shared().abort.get_or_insert(abort).outcome;
        // In a replay, the record of each agent says how far it came.
        if !self.is_replay {
            self.deps.stop.cancel();
        }
        if is_parent { first } else { own }
    }

    pub(super) fn record(&self, agent: &str, event: impl Into<Event>) -> Result<(), RunAbort> {
        self.deps.sink.record(agent, event.into()).map_err(|error| self.abort_for_journal(&error))
    }

    /// Keeps the bytes of images and documents before an event names them.
    pub(super) fn keep(&self, attachments: &[Attachment]) -> Result<(), RunAbort> {
        let kept = attachments.iter().try_for_each(|attachment| self.deps.sink.keep(attachment));
        kept.map_err(|error| self.abort_for_journal(&error))
    }

    /// Returns once an agent's events are on the disk.
    pub(super) async fn flush(&self, agent: &str) -> Result<(), RunAbort> {
        self.deps.sink.flush(agent).await.map_err(|error| self.abort_for_journal(&error))
    }

    /// Ends the run at once, so that no other agent takes another step.
    fn abort_for_journal(&self, error: &std::io::Error) -> RunAbort {
        let abort = RunAbort::journal_write_failed(error);
        self.abort_run(abort.clone(), false);
        abort
    }

    /// Whether a signal or another agent has stopped the run.
    pub(super) fn is_stopped(&self) -> bool {
        self.deps.stop.is_cancelled()
    }

    /// Checks that another step may start.
    pub(super) fn check_running(&self) -> Result<(), RunAbort> {
        if self.is_stopped() {
            return Err(RunAbort::interrupted());
        }
        if self.deadline.is_expired() {
            return Err(RunAbort::timed_out(&self.deps.plan.limits));
        }
        Ok(())
    }

    /// Ends the run if a call or a check says that it must. A command chose the names in the message.
    pub(super) fn fail(&self, failure: Option<EnvironmentError>) -> Result<(), RunAbort> {
        let Some(mut abort) = failure.map(RunAbort::from) else { return Ok(()) };
        abort.message = self.deps.tools.redactor.redact(&abort.message).into_owned();
        self.shared().environment_failed = true;
        Err(abort)
    }

    /// Whether a call or a check has ended the run.
    pub fn environment_failed(&self) -> bool {
        self.shared().environment_failed
    }

    /// Waits until tools may change the workspace.
    pub(super) async fn wait_for_baseline(&self) -> Result<(), RunAbort> {
        self.wait_for(&self.deps.gates.baseline_ready).await?;
        self.wait_for(&self.deps.gates.output_ready).await
    }

    /// Waits until a gate is open.
    pub(super) async fn wait_for(&self, gate: &watch::Receiver<bool>) -> Result<(), RunAbort> {
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
            () = self.deps.stop.cancelled() => RunAbort::interrupted(),
            () = self.deadline.expired() => RunAbort::timed_out(&self.deps.plan.limits),
        }
    }

    /// When a tool call or a check must be over.
    pub(super) fn call_limits(&self) -> CallLimits {
        CallLimits { deadline: self.deadline, cancel: self.deps.stop.clone() }
    }

    /// What a request cost at a time: nothing with scripted replies, `None` where the price isn't known.
    pub(super) fn cost(&self, model: &Model, usage: &Usage, at: Timestamp) -> Option<f64> {
        if model.is_scripted() || *usage == Usage::default() {
            return Some(0.0);
        }
        self.deps.prices.cost(model.price_key(), usage, at.into())
    }

    /// Whether the cache of an agent's model is asked to keep the system prompt and the tools for an hour.
    pub(super) fn caches_for_hour(&self, agent: &PlannedAgent, model: &Model) -> bool {
        model.has_hour_cache() && self.deps.map.prefixes.are_kept_for_hour(agent)
    }

    /// What the tokens of an agent's request with a prompt of this size cost at most.
    pub(super) fn rates(&self, agent: &PlannedAgent, model: &Model, prompt_tokens: u64) -> Option<Rates> {
        if model.is_scripted() {
            return Some(Rates { input: 0.0, output: 0.0, cache_read: 0.0, cache_write: 0.0 });
        }
        let mut rates = self.deps.prices.rates(model.price_key(), prompt_tokens, (self.deps.clock)().into())?;
        if self.caches_for_hour(agent, model) {
            rates.cache_write = rates.cache_write_1h();
        }
        Some(rates)
    }

    /// The window of a model as the job or the price table has it, and the most tokens of a prompt, independent of the window.
    pub(super) fn known_limits(&self, model: &Model) -> (Option<u64>, u64) {
        match model.context {
            // If the job says how large the window is, all of it can be used.
            Some(window) => (Some(window), u64::MAX),
            None => {
                let prices = &self.deps.prices;
                let window = prices.context_window(model.price_key());
                (window, prices.prompt_limit(model.price_key()).unwrap_or(u64::MAX))
            }
        }
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
