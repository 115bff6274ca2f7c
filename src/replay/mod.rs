//! A recorded run, run again: by the same loop, with the replies and the results of the record, and compared with it.

mod agent_script;
mod compare;
mod driver;
mod edit_impact;
mod normalized_event;
mod recorded_run;
mod report;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use self::compare::{CompareRules, differences};
use self::driver::{RecordDriver, RecordedProvider};
use self::edit_impact::edit_impact;
use self::normalized_event::{NormalizedEvent, normalize};
use self::recorded_run::RecordedRun;
pub use self::report::{EventLocation, ReplayDifference, ReplayReport};
use crate::agent::{Agent, CheckRunner, RunDeps, RunState};
use crate::checks::CommandCheckRunner;
use crate::error::Error;
use crate::event::{Durability, Event, PARENT, RunStarted, Sink};
use crate::plan::{Plan, PlannedLimits};
use crate::pricing::Prices;
use crate::process::Environment;
use crate::providers::Provider;
use crate::record::Record;
use crate::redaction::Redactor;
use crate::sandbox::Sandbox;
use crate::workspace::Workspace;

/// A recorded run that is about to be run again.
#[derive(Debug)]
pub struct Replay {
    recorded: Arc<RecordedRun>,
    folder: std::path::PathBuf,
}

/// Where tools run for real.
pub struct LiveTools {
    /// The folder that they work in.
    pub workspace: Workspace,
    /// What must not be seen.
    pub mask: Redactor,
    /// What `bash` sees of the environment.
    pub environment: Environment,
    /// How commands are confined.
    pub sandbox: Arc<Sandbox>,
    /// Cancelled by a signal.
    pub stop: CancellationToken,
}

impl Replay {
    /// Reads a record, whole: each journal is verified.
    ///
    /// # Errors
    /// Where it can't be used: a journal was changed, or another version wrote it, or it is missing and its agent hadn't
    /// ended.
    pub fn read(record: &Record) -> Result<Self, Error> {
        Ok(Self { recorded: Arc::new(RecordedRun::read(record)?), folder: record.folder().to_owned() })
    }

    /// How the recorded run began.
    pub fn started(&self) -> &RunStarted {
        &self.recorded.started
    }

    /// Runs the recorded plan, or an edited one, to where the record ends, and compares. Nothing is written but what real
    /// tools write. By `prices` it says where an edited limit on cost would have been reached.
    ///
    /// # Errors
    /// Where it can't begin.
    pub async fn execute(
        &self,
        edited: Option<&Plan>,
        prices: &Prices,
        tools: Option<LiveTools>,
    ) -> Result<ReplayReport, Error> {
        let past = Arc::clone(&self.recorded);
        let guide = Arc::new(RecordDriver::new(Arc::clone(&past), tools.is_some()));
        let collector = Arc::new(EventCollector::default());
        let mut plan = edited.unwrap_or(past.plan()).clone();
        // The record says where room was made, and where a limit bit; only what runs for real can take too long.
        plan.compaction = past.plan().compaction;
        plan.limits = PlannedLimits {
            cost_usd: None,
            tokens: None,
            wall_clock_ms: plan.limits.wall_clock_ms.filter(|_| tools.is_some()),
            tool_calls: None,
            subagents: None,
            parallel_subagents: plan.limits.parallel_subagents,
        };
        let replies: Arc<dyn Provider> = Arc::new(RecordedProvider(Arc::clone(&guide)));
        let sources = plan.agents().map(|agent| (agent.model.reply_source(), Arc::clone(&replies))).collect();
        let are_real = tools.is_some();
        let tools = match tools {
            Some(tools) => tools,
            None => self.no_tools()?,
        };
        let (workspace, mask) = (Arc::new(tools.workspace), Arc::new(tools.mask));
        let environment = Arc::new(tools.environment);
        let check_variables: Vec<_> = plan.check_variables(&past.started.run_id).collect();
        let checks = || CommandCheckRunner {
            workspace: Arc::clone(&workspace),
            mask: Arc::clone(&mask),
            environment: Arc::new(environment.with_variables(check_variables)),
            sandbox: Arc::clone(&tools.sandbox),
        };
        let review: Arc<dyn CheckRunner> = if are_real { Arc::new(checks()) } else { Arc::clone(&guide) as Arc<_> };
        let (stop, sandbox) = (tools.stop.clone(), Arc::clone(&tools.sandbox));
        let tree = RunState::new(RunDeps {
            plan,
            providers: sources,
            prices: prices.clone(),
            clock: Timestamp::now,
            workspace,
            mask,
            environment,
            sandbox: tools.sandbox,
            check_runner: review,
            sink: Arc::clone(&collector) as Arc<dyn Sink>,
            stop: tools.stop,
            cursors: HashMap::new(),
            elapsed: Duration::ZERO,
            baseline_ready: tokio::sync::watch::channel(true).1,
            output_ready: tokio::sync::watch::channel(true).1,
            replay_driver: Some(Arc::clone(&guide) as Arc<_>),
        });
        Agent::run_parent(&tree).await;
        let mut report = self.compare(&collector.take(), &guide, edited.is_none());
        if let Some(edited) = edited {
            report.plan = past.plan().changes_to(edited);
            report.differences.extend(edit_impact(&past, edited, prices));
        }
        report.sort(are_real);
        let has_failed = sandbox.tamper_error().is_some() || sandbox.failure().is_some();
        report.stopped = match (stop.is_cancelled(), has_failed) {
            (true, _) => Some(crate::event::Outcome::Interrupted),
            (false, true) => Some(crate::event::Outcome::EnvironmentFailed),
            (false, false) => None,
        };
        Ok(report)
    }

    /// What stands where tools would run; none of it is used.
    fn no_tools(&self) -> Result<LiveTools, Error> {
        let path = self.folder.clone();
        Ok(LiveTools {
            workspace: Workspace::open(&self.folder, Vec::new(), Vec::new())
                .map_err(|source| Error::Record { path, source })?,
            mask: Redactor::default(),
            environment: Environment::default(),
            sandbox: Arc::new(Sandbox::unused()),
            stop: CancellationToken::new(),
        })
    }

    fn compare(&self, now: &BTreeMap<String, Vec<Event>>, guide: &RecordDriver, max_tokens: bool) -> ReplayReport {
        let past = &self.recorded;
        let mut report = ReplayReport {
            run_id: past.started.run_id.clone(),
            recorded: past.end(PARENT).map(|end| end.outcome),
            ..ReplayReport::default()
        };
        for (id, (_, why)) in &past.ends {
            report.left_out.push(format!("{id} is replayed as its summary: {why}"));
        }
        let ids = past.agents.keys().chain(now.keys().filter(|id| !past.agents.contains_key(*id)));
        for id in ids {
            let mut then = past.agents.get(id).map_or(&[][..], Vec::as_slice);
            if !now.contains_key(id) && !then.is_empty() && !past.is_complete(PARENT) {
                report.left_out.push(format!("{id} is not replayed: the parent's journal ends before its task"));
                continue;
            }
            report.agents += usize::from(!then.is_empty());
            let mut is_summary = false;
            for event in then.iter().map(|moment| &moment.event) {
                if let Event::RequestStarted(asked) = event {
                    is_summary = asked.kept_turns.is_some();
                }
                report.turns += u64::from(matches!(event, Event::ReplyReceived(_)) && !is_summary);
                report.calls += u64::from(matches!(event, Event::CallStarted(_)));
            }
            let events = now.get(id).into_iter().flatten();
            let at =
                past.agents.get(PARENT).and_then(|moments| moments.first()).map_or(Timestamp::MIN, |first| first.at);
            let moments = events.map(|event| NormalizedEvent { seq: 0, at, turn: 1, event: event.clone() }).collect();
            let is_whole = past.is_complete(id) || !past.agents.contains_key(id);
            if !is_whole && past.end(id).is_some() {
                then = &then[..then.len() - 1];
            }
            let rules = CompareRules { is_complete: is_whole, max_tokens, tools: guide.tools };
            let mut found = differences(id, then, &normalize(id, moments), rules);
            // Where it left the record is the last of them.
            if let Some(last) = found.last_mut() {
                last.why = guide.divergence(id);
            }
            report.differences.extend(found);
        }
        report
    }
}

/// Keeps the events of each agent, in memory.
#[derive(Default)]
struct EventCollector {
    events: Mutex<BTreeMap<String, Vec<Event>>>,
}

impl EventCollector {
    fn take(&self) -> BTreeMap<String, Vec<Event>> {
        std::mem::take(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for EventCollector {
    fn record(&self, agent: &str, event: Event, _: Durability) -> io::Result<()> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.entry(agent.to_owned()).or_default().push(event);
        Ok(())
    }

    fn text(&self, _: &str, _: &str) {}
}
