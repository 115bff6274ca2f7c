//! Runs a recorded run again: the same loop takes its replies and results from the record, and what it does is compared with
//! the record.

mod compare;
mod edit_impact;
mod edited_plan;
mod live_tools;
mod normalized_event;
mod recorded_run;
mod report;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use self::compare::{CompareRules, differences};
use self::edit_impact::edit_impact;
pub use self::live_tools::LiveTools;
use self::normalized_event::normalize;
use self::recorded_run::RecordedRun;
pub use self::report::{EventLocation, ReplayDifference, ReplayReport};
use crate::agent::{Agent, JournalCursor, NetworkDeps, RunDeps, RunHistory, RunState, StepDeps, ToolDeps};
use crate::error::Error;
use crate::event::{Event, JournalEntry, Outcome, PARENT, RunStarted, Sink};
use crate::message::{Message, Reply, StopReason};
use crate::plan::{Plan, PlannedLimits};
use crate::pricing::Prices;
use crate::providers::{
    Conversation, ConversationConfig, Provider, ProviderError, ProviderErrorKind, ReplyRequest, StreamObserver,
};
use crate::record::{FILES_FOLDER, Record};
use crate::sandbox::Sandbox;
use crate::sync::IgnorePoison;
use crate::workspace::Workspace;

/// A recorded run that can be replayed.
#[derive(Debug)]
pub struct Replay {
    recorded: RecordedRun,
    /// The folder of the record.
    pub folder: PathBuf,
}

impl Replay {
    /// Reads a whole record and verifies each journal.
    ///
    /// # Errors
    /// A journal was changed, has another format, or is missing and its agent hadn't ended.
    pub fn read(record: &Record) -> Result<Self, Error> {
        Ok(Self { recorded: RecordedRun::read(record)?, folder: record.folder.clone() })
    }

    /// Reads what can be read of a record. Each defect is returned in a sentence.
    ///
    /// # Errors
    /// The parent's journal can't be used at all.
    pub fn read_damaged(record: &Record) -> Result<(Self, Vec<String>), Error> {
        let (recorded, defects) = RecordedRun::read_damaged(record)?;
        Ok((Self { recorded, folder: record.folder.clone() }, defects))
    }

    /// The ids of the agents that have a journal.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        self.recorded.agents.keys().map(String::as_str)
    }

    /// Runs the loop again over the record, so that a provider's conversations get every message that they had. Returns whether
    /// the loop followed the record.
    ///
    /// # Errors
    /// The replay can't start.
    pub async fn rebuild_conversations(&self, provider: &Arc<dyn Provider>) -> Result<bool, Error> {
        let plan = (*self.recorded.started.plan).clone();
        let cursors = self.recorded.cursors(&plan, false);
        let sink = Arc::new(EventCollector::default());
        let run = self.run_state(plan, cursors, &Prices::new(), provider, self.no_tools()?, &sink);
        Agent::run_parent(&run, || {}).await;
        Ok(self.agents().all(|id| run.divergence(id).is_none()))
    }

    /// The reply that ended an agent, which isn't in its provider's conversation: no request followed it.
    pub fn last_reply(&self, agent: &str) -> Option<Reply> {
        let (mut last, mut is_summary) = (None, false);
        for entry in self.recorded.agents.get(agent)? {
            match &entry.event {
                Event::RequestStarted(request) => (last, is_summary) = (None, request.kept_turns.is_some()),
                Event::ReplyReceived(received) if !is_summary => last = Some(&received.reply),
                // A note continues the conversation.
                Event::ReplyDiscarded(_) | Event::NoteSent(_) => last = None,
                _ => {}
            }
        }
        let ends = |reply: &&Reply| {
            reply.tool_calls().next().is_none() && reply.stop != StopReason::Pause && !reply.blocks.is_empty()
        };
        last.filter(ends).cloned()
    }

    /// The first event of the recorded run.
    pub fn started(&self) -> &RunStarted {
        &self.recorded.started
    }

    /// When the recorded run started.
    pub fn started_at(&self) -> Timestamp {
        self.recorded.started_at
    }

    /// Runs the recorded plan, or an edited one, up to the end of the record, and compares. Only real tools write anything.
    /// `prices` determine where an edited limit on cost would have been reached.
    ///
    /// # Errors
    /// The replay can't start.
    pub async fn execute(
        &self,
        edited: Option<&Plan>,
        prices: &Prices,
        tools: Option<LiveTools>,
    ) -> Result<ReplayReport, Error> {
        let recorded = &self.recorded;
        let collector = Arc::new(EventCollector::default());
        let runs_tools = tools.is_some();
        let mut plan = edited.unwrap_or(&recorded.started.plan).clone();
        let cursors = recorded.cursors(&plan, runs_tools);
        // The record says where compaction happened and which limits were reached. Only real tools need a time limit.
        plan.compaction = recorded.started.plan.compaction;
        plan.limits = PlannedLimits {
            cost_usd: None,
            tokens: None,
            wall_clock_ms: plan.limits.wall_clock_ms.filter(|_| runs_tools),
            tool_calls: None,
            subagents: None,
            upload_bytes: None,
            parallel_subagents: plan.limits.parallel_subagents,
        };
        let provider: Arc<dyn Provider> = Arc::new(NoProvider);
        let tools = tools.map_or_else(|| self.no_tools(), Ok)?;
        let run = self.run_state(plan, cursors, prices, &provider, tools, &collector);
        Agent::run_parent(&run, || {}).await;
        let rules = CompareRules { is_complete: true, max_tokens: edited.is_none(), tools: runs_tools };
        let mut report = self.compare(&collector.events(), &run, rules);
        if let Some(edited) = edited {
            report.plan = recorded.started.plan.changes_to(edited);
            report.differences.extend(edit_impact(recorded, edited, prices));
        }
        report.sort(runs_tools);
        report.stopped = match (run.deps.stop.is_cancelled(), run.environment_failed()) {
            (true, _) => Some(Outcome::Interrupted),
            (false, true) => Some(Outcome::EnvironmentFailed),
            (false, false) => None,
        };
        Ok(report)
    }

    /// A run that takes what it does from the record.
    fn run_state(
        &self,
        plan: Plan,
        cursors: HashMap<String, JournalCursor>,
        prices: &Prices,
        provider: &Arc<dyn Provider>,
        tools: LiveTools,
        sink: &Arc<EventCollector>,
    ) -> RunState {
        let providers = plan.models().map(|model| (model.reply_source(), Arc::clone(provider))).collect();
        let abort = self.recorded.abort.clone();
        let (id, sink) = (self.recorded.started.run_id.clone(), Arc::clone(sink) as Arc<dyn Sink>);
        RunState::new(RunDeps {
            prices: prices.clone(),
            stop: tools.stop,
            steps: StepDeps {
                files: Some(Path::new(&self.recorded.started.folder).join(FILES_FOLDER)),
                ..StepDeps::default()
            },
            // The record says what was merged, so no subagent gets a copy of the workspace.
            history: RunHistory { cursors, is_replay: true, abort, ..RunHistory::default() },
            network: tools.network,
            ..RunDeps::new(id, plan, providers, tools.deps, sink)
        })
    }

    /// Replaces tools that don't run.
    fn no_tools(&self) -> Result<LiveTools, Error> {
        let path = self.folder.clone();
        let workspace =
            Workspace::open(&self.folder, Vec::new(), Vec::new()).map_err(|source| Error::Record { path, source })?;
        let deps = ToolDeps {
            workspace: Arc::new(workspace),
            redactor: Arc::default(),
            environment: Arc::default(),
            sandbox: Arc::new(Sandbox::unused()),
            egress: None,
            servers: None,
            files: None,
        };
        Ok(LiveTools { deps, network: NetworkDeps::default(), stop: CancellationToken::new() })
    }

    fn compare(
        &self,
        replayed: &BTreeMap<String, Vec<JournalEntry>>,
        run: &RunState,
        rules: CompareRules,
    ) -> ReplayReport {
        let recorded = &self.recorded;
        let mut report = ReplayReport {
            run_id: recorded.started.run_id.clone(),
            recorded: recorded.end(PARENT).map(|end| end.outcome),
            ..ReplayReport::default()
        };
        for (id, (_, why)) in &recorded.ends {
            report.left_out.push(format!("{id} is replayed as its summary: {why}"));
        }
        let ids = recorded.agents.keys().chain(replayed.keys().filter(|id| !recorded.agents.contains_key(*id)));
        for id in ids {
            let mut then = recorded.agents.get(id).map_or(&[][..], Vec::as_slice);
            if !replayed.contains_key(id) && !then.is_empty() && !recorded.is_complete(PARENT) {
                report.left_out.push(format!("{id} is not replayed: the parent's journal ends before its task"));
                continue;
            }
            report.agents += usize::from(!then.is_empty());
            let mut is_summary = false;
            for event in then.iter().map(|event| &event.event) {
                if let Event::RequestStarted(request) = event {
                    is_summary = request.kept_turns.is_some();
                }
                report.turns += u64::from(matches!(event, Event::ReplyReceived(_)) && !is_summary);
                report.calls += u64::from(matches!(event, Event::CallStarted(_)));
            }
            let now = replayed.get(id).cloned().unwrap_or_default();
            let is_complete = recorded.is_complete(id) || !recorded.agents.contains_key(id);
            if !is_complete && recorded.end(id).is_some() {
                then = &then[..then.len() - 1];
            }
            let mut found = differences(id, then, &normalize(id, now), CompareRules { is_complete, ..rules });
            // The place where the agent left its record is the last difference.
            if let Some(last) = found.last_mut() {
                last.why = run.divergence(id);
            }
            report.differences.extend(found);
        }
        report
    }
}

/// A provider for agents whose replies are all recorded.
struct NoProvider;

impl Provider for NoProvider {
    fn open(&self, _: ConversationConfig) -> Result<Box<dyn Conversation>, ProviderError> {
        Ok(Box::new(Self))
    }
}

impl Conversation for NoProvider {
    fn push(&mut self, _: &Message) {}

    fn clear(&mut self) {}

    fn ask<'a>(
        &'a mut self,
        _: ReplyRequest,
        _: &'a dyn StreamObserver,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        let error = ProviderError::new(ProviderErrorKind::Differs, "the record has no reply to this");
        Box::pin(std::future::ready(Err(error)))
    }

    fn prompt_bytes(&self) -> usize {
        0
    }
}

/// Keeps the events of each agent in memory.
#[derive(Default)]
struct EventCollector(Mutex<BTreeMap<String, Vec<JournalEntry>>>);

impl EventCollector {
    fn events(&self) -> MutexGuard<'_, BTreeMap<String, Vec<JournalEntry>>> {
        self.0.lock().ignore_poison()
    }
}

impl Sink for EventCollector {
    fn record(&self, agent: &str, event: Event) -> io::Result<()> {
        let mut agents = self.events();
        let events = agents.entry(agent.to_owned()).or_default();
        // Times aren't compared.
        let (seq, at) = (events.len() as u64 + 1, Timestamp::MIN);
        events.push(JournalEntry { seq, at, suspended_ms: 0, agent: agent.to_owned(), event });
        Ok(())
    }

    fn flush<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
