//! What a record holds of a run, agent by agent.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::normalized_event::{NormalizedEvent, normalize};
use crate::agent::{JournalSplit, RaisedLimits, RunAbort};
use crate::error::Error;
use crate::event::{AgentFinished, Event, Outcome, PARENT, RunStarted};
use crate::job::Keep;
use crate::plan::{Plan, PlannedLimits};
use crate::record::Record;

/// A recorded run.
#[derive(Debug)]
pub(super) struct RecordedRun {
    pub(super) started: RunStarted,
    /// What each agent did, by its id, for those whose journals are there.
    pub(super) agents: BTreeMap<String, Vec<NormalizedEvent>>,
    /// How subagents ended that can't be run again, and why they can't.
    pub(super) ends: BTreeMap<String, (AgentFinished, &'static str)>,
    /// When it went on, in order.
    pub(super) resumed: Vec<Timestamp>,
    /// What ended the run, where it didn't end by itself.
    pub(super) abort: Option<RunAbort>,
    /// The limits of the whole tree, one after the other as they were replaced.
    pub(super) limits: Vec<PlannedLimits>,
    /// The plan with the last of all limits.
    final_plan: Plan,
}

impl RecordedRun {
    /// Reads and verifies a record's journals.
    ///
    /// # Errors
    /// Where one can't be used, or the one of a subagent is missing that hadn't ended.
    pub(super) fn read(record: &Record) -> Result<Self, Error> {
        let unusable = |why: &str| Error::NotARecord { path: record.folder().to_owned(), why: why.to_owned() };
        let mut agents = BTreeMap::new();
        let (mut started, mut halt, mut resumed, mut replaced) = (None, None, Vec::new(), Vec::new());
        for (agent, entries) in record.journals()? {
            for entry in &entries {
                match &entry.event {
                    Event::RunStarted(run) => started = Some(run.clone()),
                    Event::Resumed(event) => {
                        resumed.push(entry.at);
                        replaced.push(event.limits.clone());
                        halt = None;
                    }
                    Event::RunFinished(finished) if aborts_run(finished.outcome) => {
                        halt = finished.error.as_ref().map(|error| RunAbort {
                            outcome: finished.outcome,
                            message: error.message.clone(),
                            hint: error.hint.clone(),
                        });
                    }
                    _ => {}
                }
            }
            let entries = JournalSplit::new(&agent, entries, &RaisedLimits::default()).active;
            let moments = entries.into_iter().map(NormalizedEvent::from).collect();
            agents.insert(agent.clone(), normalize(&agent, moments));
        }
        let Some(started) = started else {
            return Err(unusable("it was cut off before anything happened"));
        };
        let mut last = (*started.plan).clone();
        let mut limits = vec![last.limits.clone()];
        for replaced in replaced.iter().filter(|replaced| !replaced.is_empty()) {
            last.set_limits(replaced).map_err(|bad| unusable(&bad.message))?;
            limits.push(last.limits.clone());
        }
        let mut past = Self { started, agents, ends: BTreeMap::new(), resumed, abort: halt, limits, final_plan: last };
        past.drop_missing_journals()
            .map_err(|id| unusable(&format!("the journal of {id} isn't there, and it hadn't ended")))?;
        Ok(past)
    }

    /// Takes the ends of those subagents out of the parent's journal that have no journal of their own, or one that was
    /// cut off.
    fn drop_missing_journals(&mut self) -> Result<(), String> {
        let why = match self.started.plan.keep {
            Keep::Always => "its journal isn't there",
            Keep::OnFailure | Keep::Never => "its journal wasn't kept",
        };
        let Some(parent) = self.agents.get(PARENT) else { return Ok(()) };
        let begun = parent.iter().filter_map(|moment| match &moment.event {
            Event::CallStarted(call) => call.child.clone(),
            _ => None,
        });
        let unended: BTreeSet<String> = begun.filter(|id| self.end(id).is_none()).collect();
        for moment in parent {
            if let Event::AgentFinished(end) = &moment.event
                && unended.contains(&end.id)
            {
                let why = if self.agents.contains_key(&end.id) { "its journal ends before it did" } else { why };
                self.ends.insert(end.id.clone(), (end.clone(), why));
            }
        }
        let ends = &self.ends;
        self.agents.retain(|id, _| !ends.contains_key(id));
        if let Some(parent) = self.agents.get_mut(PARENT) {
            let is_known = |event: &Event| matches!(event, Event::AgentFinished(end) if ends.contains_key(&end.id));
            parent.retain(|moment| !is_known(&moment.event));
        }
        let is_lost = |id: &String| !self.ends.contains_key(id) && !self.agents.contains_key(id);
        unended.into_iter().find(is_lost).map_or(Ok(()), Err)
    }

    /// The plan that ran.
    pub(super) fn plan(&self) -> &Plan {
        &self.started.plan
    }

    /// How many turns an agent had: as many as it made, where the limit bit, else what the last limit says.
    pub(super) fn max_turns(&self, agent: &str, planned: u32) -> u32 {
        let moments = self.agents.get(agent).map_or(&[][..], Vec::as_slice);
        let bit = moments.iter().find(|moment| match &moment.event {
            Event::LimitReached(reached) => reached.limit == "max_turns",
            _ => false,
        });
        let made = moments.last().map_or(0, |moment| moment.turn);
        let last = self.final_plan.agent(agent).map_or(planned, |planned| planned.max_turns);
        bit.map_or(last.max(made), |moment| moment.turn)
    }

    /// How an agent ended by its own journal; `None` where that was cut off before.
    pub(super) fn end(&self, agent: &str) -> Option<&AgentFinished> {
        match self.agents.get(agent)?.last().map(|moment| &moment.event) {
            Some(Event::AgentFinished(end)) if end.id == agent => Some(end),
            _ => None,
        }
    }

    /// Why an agent went no further than its journal does.
    pub(super) fn abort_of(&self, agent: &str) -> RunAbort {
        let outcome = self.end(agent).map(|end| end.outcome).filter(|outcome| aborts_run(*outcome));
        match (&self.abort, outcome) {
            (Some(halt), Some(outcome)) if halt.outcome == outcome => halt.clone(),
            (_, Some(outcome)) => RunAbort { outcome, message: format!("the agent ended with {outcome}"), hint: None },
            (_, None) => RunAbort { outcome: Outcome::Interrupted, message: "the record ends here".into(), hint: None },
        }
    }

    /// Whether an agent's journal goes up to its end. Where the record couldn't be kept, the step that failed may be
    /// missing in it, and others may have gone on for a while.
    pub(super) fn is_complete(&self, agent: &str) -> bool {
        self.end(agent).is_some_and(|end| end.outcome != Outcome::EnvironmentFailed)
    }

    /// Whether an agent ended because it had to, or its record was cut off.
    pub(super) fn was_aborted(&self, agent: &str) -> bool {
        self.end(agent).is_none_or(|end| aborts_run(end.outcome))
    }
}

/// Whether an agent that ends so was stopped from outside, in the middle of what it did.
pub(super) fn aborts_run(outcome: Outcome) -> bool {
    outcome.ends_the_run() && outcome != Outcome::BudgetExceeded
}
