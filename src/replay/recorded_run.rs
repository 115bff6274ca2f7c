//! A recorded run, agent by agent.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;

use super::normalized_event::normalize;
use crate::agent::{JournalCursor, JournalSplit, RaisedLimits, ReplayRules, RunAbort};
use crate::error::Error;
use crate::event::{AgentFinished, Event, JournalEntry, Outcome, PARENT, RunStarted};
use crate::job::Keep;
use crate::journal::journal_file;
use crate::plan::Plan;
use crate::record::{LOST_START, NOT_STARTED, Record};

/// A recorded run.
#[derive(Debug)]
pub(super) struct RecordedRun {
    pub(super) started: RunStarted,
    pub(super) started_at: Timestamp,
    /// The normalized journals of the agents, by their ids.
    pub(super) agents: BTreeMap<String, Vec<JournalEntry>>,
    /// The ends of the subagents that can't run again, and why they can't.
    pub(super) ends: BTreeMap<String, (AgentFinished, &'static str)>,
    /// When it was resumed, in order.
    pub(super) resumed: Vec<Timestamp>,
    /// What ended the run early.
    pub(super) abort: Option<RunAbort>,
}

impl RecordedRun {
    /// Reads and verifies a record's journals.
    ///
    /// # Errors
    /// A journal or an image can't be used, or the journal of a subagent that hadn't ended is missing.
    pub(super) fn read(record: &Record) -> Result<Self, Error> {
        let journals = record.journals()?;
        record.check_attachments(&journals)?;
        Self::from_journals(record, journals, false)
    }

    /// Reads a record's journals up to the first defect of each, which is returned in a sentence. A missing journal isn't an
    /// error.
    ///
    /// # Errors
    /// The parent's journal can't be used at all.
    pub(super) fn read_damaged(record: &Record) -> Result<(Self, Vec<String>), Error> {
        let (mut journals, mut defects) = (BTreeMap::new(), Vec::new());
        for agent in record.agents()? {
            let mut entries = Vec::new();
            for entry in record.entries(&agent)? {
                match entry {
                    Ok(entry) if entry.agent == agent => entries.push(entry),
                    Ok(_) => {
                        defects.push(format!("{} contains another agent's events.", journal_file(&agent)));
                        break;
                    }
                    Err(error) => {
                        defects.push(format!("{} ends early: {error}.", journal_file(&agent)));
                        break;
                    }
                }
            }
            journals.insert(agent, entries);
        }
        Ok((Self::from_journals(record, journals, true)?, defects))
    }

    fn from_journals(
        record: &Record,
        journals: BTreeMap<String, Vec<JournalEntry>>,
        may_lack_journals: bool,
    ) -> Result<Self, Error> {
        let unusable = |why: &str| Error::NotARecord { path: record.folder.clone(), why: why.to_owned() };
        let mut agents = BTreeMap::new();
        let (mut started, mut abort, mut resumed) = (None, None, Vec::new());
        for (agent, entries) in journals {
            for entry in &entries {
                match &entry.event {
                    Event::RunStarted(run) => started = Some((run.clone(), entry.at)),
                    Event::Resumed(_) => {
                        resumed.push(entry.at);
                        abort = None;
                    }
                    Event::RunFinished(finished) if aborts_run(finished.outcome) => {
                        abort = finished.error.as_ref().map(|error| RunAbort {
                            outcome: finished.outcome,
                            message: error.message.clone(),
                            hint: error.hint.clone(),
                        });
                    }
                    _ => {}
                }
            }
            let entries = JournalSplit::new(&agent, entries, &RaisedLimits::default()).active;
            let events = normalize(&agent, entries);
            agents.insert(agent, events);
        }
        let Some((started, started_at)) = started else {
            return Err(unusable(if record.result().is_some() { LOST_START } else { NOT_STARTED }));
        };
        let mut run = Self { started, started_at, agents, ends: BTreeMap::new(), resumed, abort };
        match run.drop_missing_journals() {
            Err(id) if !may_lack_journals => {
                Err(unusable(&format!("the journal of {id} is missing, and it hadn't ended")))
            }
            _ => Ok(run),
        }
    }

    /// Moves the ends of subagents without a complete journal of their own from the parent's journal to `ends`. Fails with
    /// the id of a subagent that has neither.
    fn drop_missing_journals(&mut self) -> Result<(), String> {
        let why = match self.started.plan.keep {
            Keep::Always => "its journal is missing",
            Keep::OnFailure | Keep::Never => "its journal wasn't kept",
        };
        let Some(parent) = self.agents.get(PARENT) else { return Ok(()) };
        let begun = parent.iter().filter_map(|it| match &it.event {
            Event::CallStarted(call) => call.child.clone(),
            _ => None,
        });
        let unended: BTreeSet<String> = begun.filter(|id| self.end(id).is_none()).collect();
        for it in parent {
            if let Event::AgentFinished(end) = &it.event
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
            parent.retain(|event| !is_known(&event.event));
        }
        let is_lost = |id: &String| !self.ends.contains_key(id) && !self.agents.contains_key(id);
        unended.into_iter().find(is_lost).map_or(Ok(()), Err)
    }

    /// The recorded steps of every agent, for a replay of `plan`.
    pub(super) fn cursors(&self, plan: &Plan, runs_tools: bool) -> HashMap<String, JournalCursor> {
        let cursor = |agent: &String| (agent.clone(), self.cursor(agent, plan, runs_tools));
        self.agents.keys().map(cursor).collect()
    }

    fn cursor(&self, agent: &str, plan: &Plan, runs_tools: bool) -> JournalCursor {
        let events = self.agents.get(agent).map_or(&[][..], Vec::as_slice);
        let (then, now) = (self.started.plan.agent(agent), plan.agent(agent));
        let was_aborted = self.was_aborted(agent);
        let mut entries = Vec::with_capacity(events.len());
        for JournalEntry { seq, at, suspended_ms, event, .. } in events {
            let entry = |event| JournalEntry {
                seq: *seq,
                at: *at,
                suspended_ms: *suspended_ms,
                agent: agent.to_owned(),
                event,
            };
            let mut event = event.clone();
            match &mut event {
                // A stopped agent has no end of its own, and the other agents run again.
                Event::AgentFinished(end) if was_aborted || end.id != agent => continue,
                Event::RequestStarted(request) if request.kept_turns.is_none() => {
                    // An edited plan may ask for another length. What a limit had lowered stays lowered.
                    if let Some(now) = now {
                        let fallback = request.model.as_deref();
                        let was_lowered = then.is_none_or(|then| request.max_tokens < then.max_tokens_of(fallback));
                        let most = if was_lowered { request.max_tokens } else { u32::MAX };
                        request.max_tokens = now.max_tokens_of(fallback).min(most);
                    }
                }
                _ => {}
            }
            // A subagent that can't run again gives its recorded end.
            let end = match &event {
                Event::CallStarted(call) => call.child.as_ref().and_then(|child| self.ends.get(child)),
                _ => None,
            };
            entries.push(entry(event));
            entries.extend(end.map(|(end, _)| entry(end.clone().into())));
        }
        let rules = ReplayRules {
            // An agent that never started ended with the run.
            stopped: was_aborted.then(|| self.abort_of(if events.is_empty() { PARENT } else { agent })),
            never_started: events.is_empty(),
            runs_tools,
            has_other_max_turns: then.map(|then| then.max_turns) != now.map(|now| now.max_turns),
        };
        JournalCursor::for_replay(entries, rules)
    }

    /// How an agent ended according to its own journal; `None` if the journal was cut off.
    pub(super) fn end(&self, agent: &str) -> Option<&AgentFinished> {
        match self.agents.get(agent)?.last().map(|event| &event.event) {
            Some(Event::AgentFinished(end)) if end.id == agent => Some(end),
            _ => None,
        }
    }

    /// What stopped an agent where its journal ends.
    pub(super) fn abort_of(&self, agent: &str) -> RunAbort {
        let outcome = self.end(agent).map(|end| end.outcome).filter(|outcome| aborts_run(*outcome));
        match (&self.abort, outcome) {
            (Some(abort), Some(outcome)) if abort.outcome == outcome => abort.clone(),
            (_, Some(outcome)) => RunAbort { outcome, message: format!("the agent ended with {outcome}"), hint: None },
            (_, None) => RunAbort { outcome: Outcome::Interrupted, message: "the record ends here".into(), hint: None },
        }
    }

    /// Whether an agent's journal is complete. If the record couldn't be written, the step that failed may be missing, and
    /// other agents may have continued for a while.
    pub(super) fn is_complete(&self, agent: &str) -> bool {
        self.end(agent).is_some_and(|end| end.outcome != Outcome::EnvironmentFailed)
    }

    /// Whether an agent was stopped before it had finished, or its journal was cut off.
    pub(super) fn was_aborted(&self, agent: &str) -> bool {
        self.end(agent).is_none_or(|end| aborts_run(end.outcome))
    }
}

/// Whether this outcome means that an agent was stopped from outside, in the middle of its work.
pub(super) fn aborts_run(outcome: Outcome) -> bool {
    outcome.ends_the_run() && outcome != Outcome::BudgetExceeded
}
