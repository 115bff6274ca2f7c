//! What a run did before it was cut off.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;

use super::Children;
use crate::agent::{Past, Stopwatch};
use crate::event::{Entry, Event, PARENT, RunStarted};

/// The journals of a run that goes on.
#[derive(Debug)]
pub struct Before {
    journals: BTreeMap<String, Vec<Entry>>,
    started: RunStarted,
    started_at: Timestamp,
}

impl Before {
    /// From the journals' events, oldest first, by the agents' ids; `None` where the run hadn't begun.
    pub fn new(journals: BTreeMap<String, Vec<Entry>>) -> Option<Self> {
        let first = journals.get(PARENT)?.first()?;
        let (Event::RunStarted(started), started_at) = (&first.event, first.at) else { return None };
        Some(Self { started: started.clone(), started_at, journals })
    }

    /// How it began.
    pub fn started(&self) -> &RunStarted {
        &self.started
    }

    /// When it began.
    pub(super) fn started_at(&self) -> Timestamp {
        self.started_at
    }

    /// When it went on, in order.
    fn resumed(&self) -> Vec<Timestamp> {
        let parent = self.journals.get(PARENT).into_iter().flatten();
        parent.filter(|entry| matches!(entry.event, Event::Resumed(_))).map(|entry| entry.at).collect()
    }

    /// How long it ran, pauses not counted.
    pub(super) fn elapsed(&self) -> Duration {
        let resumed = self.resumed();
        let mut times: Vec<Timestamp> = self.journals.values().flatten().map(|entry| entry.at).collect();
        times.sort();
        let mut clock = Stopwatch::new(&resumed);
        times.into_iter().for_each(|at| clock.note(at));
        clock.total()
    }

    /// The subagents that were begun, and those of them that have ended for good.
    pub(super) fn children(&self) -> Children {
        let mut children = Children::default();
        for entry in self.journals.get(PARENT).into_iter().flatten() {
            match &entry.event {
                Event::CallStarted(started) => children.order.extend(started.child.clone()),
                Event::AgentFinished(end) if end.subagent.is_some() && !end.outcome.can_be_resumed() => {
                    children.finished.insert(end.id.clone(), end.clone());
                }
                _ => {}
            }
        }
        children
    }

    /// What each agent goes on from.
    pub(super) fn past(self) -> HashMap<String, Past> {
        let resumed = self.resumed();
        let past = self.journals.into_iter().map(|(agent, entries)| {
            let past = Past::new(&agent, entries, &resumed);
            (agent, past)
        });
        past.collect()
    }
}
