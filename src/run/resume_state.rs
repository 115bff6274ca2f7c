//! The state of a run that is resumed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use super::used_limit::{UsedLimit, limit_value};
use crate::agent::{JournalCursor, RaisedLimits};
use crate::budget::MAP_LIMIT;
use crate::event::{
    Event, JournalEntry, Outcome, PARENT, Resumed, RunModel, RunOptions, RunResult, RunStarted, WorkspaceChanged,
    running_time,
};
use crate::plan::{LimitOverrideError, Plan};

/// The journals of a run that is resumed.
#[derive(Debug)]
pub struct ResumeState {
    journals: BTreeMap<String, Vec<JournalEntry>>,
    /// The first event of the run.
    pub started: RunStarted,
    /// The limits that `--limit` replaces now.
    pub(super) limits: BTreeMap<String, String>,
    /// When a run that was killed was last alive.
    pub last_seen: Option<Timestamp>,
    /// Whether a secret had another value before, which can't be redacted any more.
    pub has_new_secrets: bool,
    /// Whether the run is a row of a map, whose limits may be higher than before.
    pub is_row: bool,
}

impl ResumeState {
    /// Takes the events of the journals, oldest first, by the agents' ids. `None` if the run hadn't started.
    pub fn new(journals: BTreeMap<String, Vec<JournalEntry>>) -> Option<Self> {
        let first = journals.get(PARENT)?.first()?;
        let Event::RunStarted(started) = &first.event else { return None };
        let started = started.clone();
        let mut state =
            Self { started, journals, limits: BTreeMap::new(), last_seen: None, has_new_secrets: false, is_row: false };
        state.has_new_secrets = state.last_resume().is_some_and(|resumed| resumed.has_new_secrets);
        Some(state)
    }

    /// Replaces limits in the plan: first those that earlier resumes replaced, then these.
    ///
    /// # Errors
    /// There is no such limit, or the value isn't valid.
    pub fn replace_limits(
        &mut self,
        plan: &mut Plan,
        limits: BTreeMap<String, String>,
    ) -> Result<(), LimitOverrideError> {
        self.apply_recorded_limits(plan, usize::MAX)?;
        plan.set_limits(&limits)?;
        self.limits = limits;
        Ok(())
    }

    /// A recorded plan with the limits that resumes have replaced so far.
    ///
    /// # Errors
    /// The journal names an unknown limit.
    pub fn effective_plan(&self, plan: &Plan) -> Result<Plan, LimitOverrideError> {
        let mut plan = plan.clone();
        self.apply_recorded_limits(&mut plan, usize::MAX)?;
        Ok(plan)
    }

    /// The events of all agents, in the order in which they happened.
    pub fn entries(&self) -> Vec<&JournalEntry> {
        let mut entries: Vec<&JournalEntry> = self.journals.values().flatten().collect();
        // The order of an agent's own events stays.
        entries.sort_by_key(|entry| entry.at);
        entries
    }

    /// When the run started first.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.parent().first().map(|entry| entry.at)
    }

    /// The limit that ended a run; `None` if none did.
    ///
    /// # Errors
    /// The journal names an unknown limit.
    pub fn used_limit(&self, result: &RunResult) -> Result<Option<UsedLimit>, LimitOverrideError> {
        if !result.outcome.is_a_limit() {
            return Ok(None);
        }
        // A run that was killed right after a resume with other limits was ended by the earlier ones.
        let end = self.parent().iter().rposition(|entry| matches!(entry.event, Event::RunFinished(_)));
        let mut plan = (*self.started.plan).clone();
        self.apply_recorded_limits(&mut plan, end.unwrap_or(usize::MAX))?;
        let limit_of = |name: &str| limit_value(name, &plan.limits, plan.parent.max_turns);
        let (tokens, cost) = (result.usage.total() as f64, result.cost_usd.unwrap_or_default());
        let share = |used: f64, name: &str| limit_of(name).map_or(0.0, |limit| used / limit);
        let (calls, subagents) = self.calls_started();
        let (name, used) = match (result.outcome, self.last_limit()) {
            (Outcome::TimedOut, _) => ("wall_clock", self.elapsed().as_secs_f64()),
            (Outcome::TurnLimit, _) => ("max_turns", f64::from(result.turns)),
            // The journal also has the calls that were refused.
            (_, Some("limits.tool_calls")) => {
                ("tool_calls", limit_of("tool_calls").map_or(calls as f64, |limit| limit.min(calls as f64)))
            }
            (_, Some("limits.upload")) => ("upload", self.sent_bytes() as f64),
            (_, Some("limits.subagents")) => ("subagents", subagents as f64),
            (_, Some("limits.cost_usd")) => ("cost_usd", cost),
            (_, Some("limits.tokens")) => ("tokens", tokens),
            // A reply was cut short, by the limit that has less left.
            _ if share(cost, "cost_usd") > share(tokens, "tokens") => ("cost_usd", cost),
            _ => ("tokens", tokens),
        };
        Ok(Some(UsedLimit { name, used, limit: limit_of(name) }))
    }

    /// Replaces limits in a plan as the first events of the parent's journal say.
    fn apply_recorded_limits(&self, plan: &mut Plan, events: usize) -> Result<(), LimitOverrideError> {
        for entry in self.parent().iter().take(events) {
            if let Event::Resumed(resumed) = &entry.event {
                plan.set_limits(&resumed.limits)?;
            }
        }
        Ok(())
    }

    /// The last limit of the run that an agent reached, as its journal names it.
    fn last_limit(&self) -> Option<&str> {
        let all = self.journals.values().flatten().filter_map(|entry| match &entry.event {
            Event::LimitReached(reached) if reached.limit.starts_with("limits.") => Some((entry.at, &reached.limit)),
            _ => None,
        });
        all.max_by_key(|(at, _)| *at).map(|(_, limit)| limit.as_str())
    }

    /// Whether the last limit that an agent reached is one of the map that the run is a row of.
    pub fn reached_map_limit(&self) -> bool {
        self.last_limit() == Some(MAP_LIMIT)
    }

    /// How many calls were started, and how many of them for a subagent.
    fn calls_started(&self) -> (u64, u64) {
        let past = self.journals.iter().map(|(agent, entries)| {
            JournalCursor::for_resume(agent, entries.iter().cloned(), &[], &RaisedLimits::default()).calls_started()
        });
        past.fold((0, 0), |(all, children), (more, of_them)| (all + more, children + of_them))
    }

    /// How many bytes commands and tool servers have sent.
    pub fn sent_bytes(&self) -> u64 {
        let used = self.journals.values().flatten().filter_map(|entry| match &entry.event {
            Event::NetworkUsed(used) => Some(used.sent_bytes),
            _ => None,
        });
        used.fold(0, u64::saturating_add)
    }

    /// How many refusals of connections are recorded.
    pub(super) fn refused_lines(&self) -> u64 {
        let refused = self.journals.values().flatten().filter(|entry| matches!(entry.event, Event::NetworkRefused(_)));
        refused.count() as u64
    }

    /// The limits that are raised: those that are replaced now, and those of the last resume if it was interrupted before
    /// they had an effect.
    fn raised_limits(&self) -> RaisedLimits {
        let mut names: BTreeSet<String> = self.limits.keys().cloned().collect();
        for entry in self.parent().iter().rev() {
            match &entry.event {
                Event::LimitReached(_) => break,
                Event::Resumed(resumed) => {
                    names.extend(resumed.limits.keys().cloned());
                    break;
                }
                _ => {}
            }
        }
        let subagents = self.journals.keys().filter(|id| *id != PARENT).cloned().collect();
        let mut raised = RaisedLimits { names, subagents };
        if self.is_row && self.reached_map_limit() {
            raised.add_map_limits();
        }
        raised
    }

    /// Whether any call or check was started, which may have changed something.
    pub(super) fn has_acted(&self) -> bool {
        let mut all = self.journals.values().flatten();
        all.any(|entry| matches!(entry.event, Event::CallStarted(_) | Event::CheckStarted(_)))
    }

    /// The last workspace, and the commit that was checked out there.
    pub fn last_workspace(&self) -> (&str, Option<&str>) {
        match self.last_resume() {
            Some(resumed) => (&resumed.workspace, resumed.commit.as_deref()),
            None => (&self.started.workspace, self.started.commit.as_deref()),
        }
    }

    /// The last options of the command line.
    pub fn options(&self) -> &RunOptions {
        self.last_resume().map_or(&self.started.options, |resumed| &resumed.options)
    }

    /// The secrets that had another value or don't exist any more. `now` has the digests of their values.
    pub fn changed_secrets(&self, now: &BTreeMap<String, String>) -> Vec<&str> {
        let then = self.last_resume().map_or(&self.started.secrets, |resumed| &resumed.secrets);
        then.iter().filter(|(name, digest)| now.get(*name) != Some(*digest)).map(|(name, _)| name.as_str()).collect()
    }

    /// The last folder of the record.
    pub fn folder(&self) -> &Path {
        Path::new(self.last_resume().map_or(&self.started.folder, |resumed| &resumed.folder))
    }

    /// The parent's journal, oldest entries first.
    fn parent(&self) -> &[JournalEntry] {
        self.journals.get(PARENT).map_or(&[], Vec::as_slice)
    }

    /// When the run was resumed, in order, and how.
    fn resumes(&self) -> impl DoubleEndedIterator<Item = (Timestamp, &Resumed)> {
        self.parent().iter().filter_map(|entry| match &entry.event {
            Event::Resumed(resumed) => Some((entry.at, resumed)),
            _ => None,
        })
    }

    fn last_resume(&self) -> Option<&Resumed> {
        self.resumes().next_back().map(|(_, resumed)| resumed)
    }

    fn resumed_at(&self) -> Vec<Timestamp> {
        self.resumes().map(|(at, _)| at).collect()
    }

    /// How long the run has run, without pauses.
    pub fn elapsed(&self) -> Duration {
        let entries = self.journals.values().flatten();
        let mut times: Vec<_> = entries.map(|entry| (entry.at, Some(entry.suspended_ms))).collect();
        let last_seen = self.resumes().filter_map(|(_, resumed)| resumed.last_seen);
        times.extend(last_seen.chain(self.last_seen).map(|at| (at, None)));
        running_time(times, &self.resumed_at())
    }

    /// The changes that the last part of the run recorded, if it came to its end.
    pub(super) fn workspace_changed(&self) -> Option<WorkspaceChanged> {
        self.parent().iter().rev().find_map(|entry| match &entry.event {
            Event::WorkspaceChanged(changed) => Some(Some(changed.clone())),
            Event::Resumed(_) => Some(None),
            _ => None,
        })?
    }

    /// What has happened in the run. A subagent that has ended counts as having got all of its replies, because its own journal may
    /// be incomplete.
    pub(super) fn model(&self) -> RunModel {
        let mut model = RunModel::default();
        for entry in self.journals.values().flatten() {
            model.apply(&entry.agent, &entry.event, entry.at);
        }
        let ended: Vec<String> =
            model.summaries().filter(|end| !end.outcome.was_cut_off()).map(|end| end.id.clone()).collect();
        for id in ended {
            model.agents.entry(id).or_default().replies = usize::MAX;
        }
        model
    }

    /// The recorded steps of each agent.
    pub(super) fn into_cursors(self) -> HashMap<String, JournalCursor> {
        let resumed = self.resumed_at();
        let raised = self.raised_limits();
        // The run's time is the parent's.
        let elapsed = self.elapsed();
        let cursors = self.journals.into_iter().map(|(agent, entries)| {
            let mut cursor = JournalCursor::for_resume(&agent, entries, &resumed, &raised);
            if agent == PARENT {
                cursor.elapsed = elapsed;
            }
            (agent, cursor)
        });
        cursors.collect()
    }
}
