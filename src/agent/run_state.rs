//! What all agents of a run share.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::check_repairs::CheckRunner;
use super::context_window::LearnedWindows;
use super::journal_cursor::{JournalCursor, RequestSpend};
use super::lock;
use super::recorded_tool::RecordedTool;
use super::replay_driver::ReplayDriver;
use crate::budget::Budget;
use crate::event::{Durability, ErrorInfo, Event, Outcome, Sink};
use crate::job::Compaction;
use crate::message::Usage;
use crate::plan::{Plan, PlannedAgent};
use crate::pricing::{Prices, Rates};
use crate::process::fd_limit::max_concurrent_agents;
use crate::providers::{Model, Provider, ProviderError, ProviderErrorKind};
use crate::redaction::Redactor;
use crate::sandbox::{Sandbox, TamperError};
use crate::tools::environment::Environment;
use crate::tools::task::Task;
use crate::tools::toolbox::Toolbox;
use crate::workspace::Workspace;

/// What a tree is made of; whoever starts a run brings it.
pub struct RunDeps {
    /// What runs.
    pub plan: Plan,
    /// Where replies come from, by [`Model::source`]; every model of the plan has one.
    pub providers: BTreeMap<String, Arc<dyn Provider>>,
    /// What tokens cost.
    pub prices: Prices,
    /// The wall clock; prices depend on the day.
    pub clock: fn() -> Timestamp,
    /// Where tools work.
    pub workspace: Arc<Workspace>,
    /// What must not be seen.
    pub mask: Arc<Redactor>,
    /// What `bash` sees of the environment.
    pub environment: Arc<Environment>,
    /// How commands are confined.
    pub sandbox: Arc<Sandbox>,
    /// Who runs the job's checks.
    pub check_runner: Arc<dyn CheckRunner>,
    /// Where events go.
    pub sink: Arc<dyn Sink>,
    /// Cancelled by a signal.
    pub stop: CancellationToken,
    /// What the journals hold already, by the agents' ids; empty for a new run.
    pub cursors: HashMap<String, JournalCursor>,
    /// How long the run has run before.
    pub elapsed: Duration,
    /// Becomes true, or is dropped, when something may change: the workspace was looked at as it was.
    pub baseline_ready: watch::Receiver<bool>,
    /// False while those who read the output don't keep up.
    pub output_ready: watch::Receiver<bool>,
    /// The record that is replayed, where one is.
    pub replay_driver: Option<Arc<dyn ReplayDriver>>,
}

/// What all agents of a run share: one budget, one clock, one place for events.
pub struct RunState {
    pub(super) plan: Plan,
    pub(super) budget: Budget,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) deadline: Instant,
    pub(super) children: Semaphore,
    pub(super) stop: CancellationToken,
    pub(super) prices: Prices,
    pub(super) learned_windows: LearnedWindows,
    clock: fn() -> Timestamp,
    providers: BTreeMap<String, Arc<dyn Provider>>,
    workspace: Arc<Workspace>,
    pub(super) mask: Arc<Redactor>,
    environment: Arc<Environment>,
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) check_runner: Arc<dyn CheckRunner>,
    numbers: Mutex<HashMap<String, u32>>,
    abort: Mutex<Option<RunAbort>>,
    notes: Mutex<Vec<(Outcome, String)>>,
    cursors: Mutex<HashMap<String, JournalCursor>>,
    baseline_ready: watch::Receiver<bool>,
    output_ready: watch::Receiver<bool>,
    pub(super) replay_driver: Option<Arc<dyn ReplayDriver>>,
}

/// Why the whole run ends before its parent does by itself.
#[derive(Debug, Clone)]
pub struct RunAbort {
    /// How the run ends.
    pub outcome: Outcome,
    /// What happened, in one sentence.
    pub message: String,
    /// What the operator can do.
    pub hint: Option<String>,
}

impl RunAbort {
    /// The journal can't be written: nothing may happen that it wouldn't hold.
    pub(super) fn journal_write_failed(error: &io::Error) -> Self {
        Self {
            outcome: Outcome::EnvironmentFailed,
            message: format!("the run's record can't be written: {error}"),
            // Who keeps the record knows what to do about it.
            hint: None,
        }
    }

    /// The same, where the failure was told already.
    pub(super) fn journal_failed_earlier() -> Self {
        Self::journal_write_failed(&io::Error::other("an earlier write failed"))
    }

    /// The journal and the plan don't fit each other.
    pub(super) fn journal_mismatch(agent: &str, kind: &str) -> Self {
        Self {
            outcome: Outcome::EnvironmentFailed,
            message: format!("the journal of {agent} doesn't fit the plan where it has, or should have, `{kind}`"),
            hint: Some("The record was changed, or another version wrote it: run the job anew.".into()),
        }
    }

    /// A command changed what none may change: nothing that it left can be trusted.
    pub(super) fn tampered(breach: &TamperError) -> Self {
        Self {
            outcome: Outcome::EnvironmentFailed,
            message: breach.to_string(),
            hint: Some("Read the last calls in transcript.md, and look at the workspace before you use it.".into()),
        }
    }

    /// A command couldn't be started: what it was to do is not done.
    fn command_not_started(why: &str) -> Self {
        Self {
            outcome: Outcome::EnvironmentFailed,
            message: why.to_owned(),
            hint: Some(
                "Give the run more descriptors (ulimit -n), processes or memory, or lower limits.parallel_subagents; \
                 then `legwork resume` goes on."
                    .into(),
            ),
        }
    }

    /// The workspace isn't where it was.
    fn workspace_moved(error: &io::Error) -> Self {
        Self {
            outcome: Outcome::EnvironmentFailed,
            message: error.to_string(),
            hint: Some("Put it back, or name it with --workspace; then `legwork resume` goes on.".into()),
        }
    }

    /// Nobody knows whether commands made a repository.
    pub fn repository_scan_incomplete() -> Self {
        Self {
            outcome: Outcome::EnvironmentFailed,
            message: "the workspace has too many files to be searched for git repositories that commands made"
                .to_owned(),
            hint: Some("Don't run git in the workspace before you have looked for folders named `.git` in it.".into()),
        }
    }

    /// Whether it ends an agent that is only summing up; a provider that fails then changes nothing.
    pub(super) fn is_fatal_during_final_request(&self) -> bool {
        matches!(self.outcome, Outcome::EnvironmentFailed | Outcome::Interrupted)
    }

    /// The same for `result.json`.
    pub fn error_info(&self) -> ErrorInfo {
        ErrorInfo { code: self.outcome.to_string(), message: self.message.clone(), hint: self.hint.clone() }
    }
}

impl From<ProviderError> for RunAbort {
    fn from(fault: ProviderError) -> Self {
        let outcome = match fault.kind {
            ProviderErrorKind::Rejected => Outcome::ProviderRejected,
            ProviderErrorKind::Failed => Outcome::ProviderFailed,
            ProviderErrorKind::ContextFull => Outcome::ContextFull,
            ProviderErrorKind::Differs => Outcome::ReplayDiffers,
        };
        Self { outcome, message: fault.message, hint: fault.hint }
    }
}

impl RunState {
    /// Takes the parts and starts the clock.
    pub fn new(parts: RunDeps) -> Self {
        // A run without a limit of its own still ends some day; a century keeps the arithmetic safe.
        let longest = std::time::Duration::from_secs(100 * 365 * 24 * 3600);
        let wall_clock = parts.plan.limits.wall_clock_ms.map_or(longest, std::time::Duration::from_millis).min(longest);
        let tree = Self {
            budget: Budget::new(parts.plan.limits.clone()),
            children: Semaphore::new(
                (parts.plan.limits.parallel_subagents.max(1) as usize).min(max_concurrent_agents()),
            ),
            deadline: Instant::now() + wall_clock.saturating_sub(parts.elapsed),
            plan: parts.plan,
            prices: parts.prices,
            clock: parts.clock,
            sink: parts.sink,
            stop: parts.stop,
            providers: parts.providers,
            workspace: parts.workspace,
            mask: parts.mask,
            environment: parts.environment,
            sandbox: parts.sandbox,
            check_runner: parts.check_runner,
            learned_windows: LearnedWindows::default(),
            numbers: Mutex::default(),
            abort: Mutex::new(parts.replay_driver.as_ref().and_then(|recorded| recorded.run_abort())),
            notes: Mutex::default(),
            cursors: Mutex::new(parts.cursors),
            baseline_ready: parts.baseline_ready,
            output_ready: parts.output_ready,
            replay_driver: parts.replay_driver,
        };
        tree.restore_spend();
        tree
    }

    /// What was spent stays spent, by agents that have ended as well; and what was said of windows stays said.
    fn restore_spend(&self) {
        for (id, past) in &*lock(&self.cursors) {
            let Some(model) = self.model_of(id) else { continue };
            past.windows().for_each(|window| self.record_window(model, window));
            let (mut tokens, mut cost) = (0_u64, 0.0);
            for spent in past.request_spend() {
                tokens = tokens.saturating_add(spent.usage.total());
                cost += self.journaled_cost(model, &spent).unwrap_or_default();
            }
            let (calls, subagents) = past.calls_begun();
            self.budget.restore_spend(tokens, cost, calls, subagents);
        }
    }

    /// The model of an agent, by its id.
    fn model_of(&self, id: &str) -> Option<&Model> {
        Some(&self.plan.agent(id)?.model)
    }

    /// What the journal holds of an agent; nothing from the second time on.
    pub(super) fn take_cursor(&self, id: &str) -> JournalCursor {
        lock(&self.cursors).remove(id).unwrap_or_default()
    }

    /// Whether the journal holds anything of an agent that it hasn't gone on with yet.
    pub(super) fn has_cursor(&self, id: &str) -> bool {
        lock(&self.cursors).get(id).is_some_and(|past| !past.is_exhausted())
    }

    /// What a request cost that is in the journal.
    pub(super) fn journaled_cost(&self, model: &Model, spent: &RequestSpend) -> Option<f64> {
        match spent.reserved_cost_usd {
            _ if model.is_scripted() || spent.usage == Usage::default() => Some(0.0),
            Some(reserved) => reserved,
            None => self.prices.cost(model.price_key(), &spent.usage, spent.at.into()),
        }
    }

    /// What is done with conversations that outgrow their windows.
    pub fn compaction(&self) -> Compaction {
        self.plan.compaction
    }

    /// Why the run ended early, where it did.
    pub fn abort(&self) -> Option<RunAbort> {
        lock(&self.abort).clone()
    }

    /// What was last noted about an outcome, for the operator.
    pub fn last_note(&self, outcome: Outcome) -> Option<String> {
        lock(&self.notes).iter().rev().find(|(noted, _)| *noted == outcome).map(|(_, message)| message.clone())
    }

    pub(super) fn note(&self, outcome: Outcome, message: &str) {
        lock(&self.notes).push((outcome, self.mask.redact(message).into_owned()));
    }

    /// Ends the run; the first reason stays. Returns the outcome of the agent that met it: its own, but for the
    /// parent, whose outcome is the run's.
    pub(super) fn abort_run(&self, mut halt: RunAbort, parent: bool) -> Outcome {
        for text in std::iter::once(&mut halt.message).chain(&mut halt.hint) {
            *text = self.mask.redact(text).into_owned();
        }
        let own = halt.outcome;
        let first = lock(&self.abort).get_or_insert(halt).outcome;
        // Where a record is replayed, it says of each agent how far it came.
        if self.replay_driver.is_none() {
            self.stop.cancel();
        }
        if parent { first } else { own }
    }

    pub(super) fn record(&self, agent: &str, event: impl Into<Event>, durability: Durability) -> Result<(), RunAbort> {
        self.sink.record(agent, event.into(), durability).map_err(|error| {
            let halt = RunAbort::journal_write_failed(&error);
            // At once: the agents that work beside may take no further step either.
            self.abort_run(halt.clone(), false);
            halt
        })
    }

    /// Whether another step may begin.
    pub(super) fn check_running(&self) -> Result<(), RunAbort> {
        if self.stop.is_cancelled() {
            return Err(interrupted());
        }
        if Instant::now() >= self.deadline {
            return Err(self.timed_out());
        }
        Ok(())
    }

    /// Whether what tools and checks did can be trusted: they were started, kept to what they may change, and worked where
    /// the workspace is.
    pub(super) fn check_integrity(&self) -> Result<(), RunAbort> {
        if let Some(breach) = self.sandbox.tamper_error() {
            return Err(RunAbort::tampered(breach));
        }
        if self.replay_driver.is_some() {
            return Ok(());
        }
        if let Some(why) = self.sandbox.failure() {
            return Err(RunAbort::command_not_started(why));
        }
        self.workspace.check_not_moved().map_err(|error| RunAbort::workspace_moved(&error))
    }

    /// Waits until something may change.
    pub(super) async fn wait_for_baseline(&self) -> Result<(), RunAbort> {
        self.wait_for(&self.baseline_ready).await?;
        self.wait_for_output().await
    }

    /// Waits until those who read the output have caught up.
    pub(super) async fn wait_for_output(&self) -> Result<(), RunAbort> {
        self.wait_for(&self.output_ready).await
    }

    async fn wait_for(&self, ready: &watch::Receiver<bool>) -> Result<(), RunAbort> {
        if *ready.borrow() {
            return Ok(());
        }
        let mut ready = ready.clone();
        tokio::select! {
            biased;
            halt = self.wait_for_stop() => Err(halt),
            _ = ready.wait_for(|ready| *ready) => Ok(()),
        }
    }

    /// Waits until the run is stopped or its time is up, and says why.
    pub(super) async fn wait_for_stop(&self) -> RunAbort {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => interrupted(),
            () = tokio::time::sleep_until(self.deadline) => self.timed_out(),
        }
    }

    fn timed_out(&self) -> RunAbort {
        let seconds = self.plan.limits.wall_clock_ms.unwrap_or_default() as f64 / 1000.0;
        RunAbort {
            outcome: Outcome::TimedOut,
            message: format!("the run's time is up: limits.wall_clock is {seconds} s"),
            hint: Some(
                "Raise limits.wall_clock or give the job less to do; `legwork resume --limit wall_clock=TIME` goes on with \
                 this run."
                    .into(),
            ),
        }
    }

    pub(super) fn provider(&self, model: &Model) -> Result<&Arc<dyn Provider>, RunAbort> {
        self.providers.get(&model.reply_source()).ok_or_else(|| RunAbort {
            outcome: Outcome::EnvironmentFailed,
            message: format!("no provider was opened for {model}"),
            hint: None,
        })
    }

    /// What one request costs; a replay costs nothing, and an unknown price is `None`.
    pub(super) fn cost(&self, model: &Model, usage: &Usage) -> Option<f64> {
        if model.is_scripted() || *usage == Usage::default() {
            return Some(0.0);
        }
        self.prices.cost(model.price_key(), usage, (self.clock)().into())
    }

    /// What the tokens of a request with such a prompt cost.
    pub(super) fn rates(&self, model: &Model, prompt_tokens: u64) -> Option<Rates> {
        if model.is_scripted() {
            return Some(Rates { input: 0.0, output: 0.0, cache_read: 0.0, cache_write: 0.0 });
        }
        self.prices.rates(model.price_key(), prompt_tokens, (self.clock)().into())
    }

    pub(super) fn toolbox(&self, agent: &str, planned: &PlannedAgent, parent: bool) -> Result<Toolbox, RunAbort> {
        let failed = |message| RunAbort { outcome: Outcome::EnvironmentFailed, message, hint: None };
        let mut toolbox = Toolbox::new(
            &planned.tools,
            Arc::clone(&self.workspace),
            Arc::clone(&self.mask),
            Arc::clone(&self.environment),
            Arc::clone(&self.sandbox),
        )
        .map_err(failed)?;
        if let Some(recorded) = &self.replay_driver {
            toolbox = toolbox.map(|tool| Box::new(RecordedTool::new(tool, agent, Arc::clone(recorded))));
        }
        if parent && toolbox.has(Task::NAME) {
            toolbox.add(Box::new(self.plan.task_tool()));
        }
        if let Some(tool) = self.plan.submit_result(planned).map_err(failed)? {
            toolbox.add(Box::new(tool));
        }
        Ok(toolbox)
    }

    /// The next id of a kind of subagent: `explorer-1`, `explorer-2`.
    pub(super) fn next_id(&self, subagent: &str) -> String {
        let mut numbers = lock(&self.numbers);
        let number = numbers.entry(subagent.to_owned()).or_default();
        *number += 1;
        format!("{subagent}-{number}")
    }

    /// An id that was given before.
    pub(super) fn mark_id_used(&self, subagent: &str, id: &str) {
        let given: u32 = id.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or_default();
        let mut numbers = lock(&self.numbers);
        let number = numbers.entry(subagent.to_owned()).or_default();
        *number = given.max(*number);
    }
}

pub(super) fn interrupted() -> RunAbort {
    RunAbort {
        outcome: Outcome::Interrupted,
        message: "the run was stopped".into(),
        hint: Some("Everything up to here is in the record.".into()),
    }
}
