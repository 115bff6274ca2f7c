//! What a run did before it was cut off.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;

use crate::agent::{Past, Stopwatch};
use crate::event::{Course, Entry, Event, PARENT, RunStarted};

/// The journals of a run that goes on.
#[derive(Debug)]
pub struct Before {
    journals: BTreeMap<String, Vec<Entry>>,
    started: RunStarted,
}

impl Before {
    /// From the journals' events, oldest first, by the agents' ids; `None` where the run hadn't begun.
    pub fn new(journals: BTreeMap<String, Vec<Entry>>) -> Option<Self> {
        let first = journals.get(PARENT)?.first()?;
        let Event::RunStarted(started) = &first.event else { return None };
        Some(Self { started: started.clone(), journals })
    }

    /// Whether any call or check was begun, and so may have changed something.
    pub(super) fn has_acted(&self) -> bool {
        let mut all = self.journals.values().flatten();
        all.any(|entry| matches!(entry.event, Event::CallStarted(_) | Event::CheckStarted(_)))
    }

    /// How it began.
    pub fn started(&self) -> &RunStarted {
        &self.started
    }

    /// The workspace that it last worked in, and the commit that was checked out there.
    pub fn place(&self) -> (&str, Option<&str>) {
        let parent = self.journals.get(PARENT).into_iter().flatten().rev();
        let last = parent.filter_map(|entry| match &entry.event {
            Event::Resumed(resumed) => Some((resumed.workspace.as_str(), resumed.commit.as_deref())),
            _ => None,
        });
        last.chain([(self.started.workspace.as_str(), self.started.commit.as_deref())]).next().unwrap_or_default()
    }

    /// When it went on, in order.
    fn resumed(&self) -> Vec<Timestamp> {
        let parent = self.journals.get(PARENT).into_iter().flatten();
        parent.filter(|entry| matches!(entry.event, Event::Resumed(_))).map(|entry| entry.at).collect()
    }

    /// How long it ran, pauses not counted.
    pub fn elapsed(&self) -> Duration {
        let resumed = self.resumed();
        let mut times: Vec<Timestamp> = self.journals.values().flatten().map(|entry| entry.at).collect();
        times.sort();
        let mut clock = Stopwatch::new(&resumed);
        times.into_iter().for_each(|at| clock.note(at));
        clock.total()
    }

    /// What its events came to.
    pub(super) fn course(&self) -> Course {
        let mut course = Course::default();
        for entry in self.journals.get(PARENT).into_iter().flatten() {
            course.note(&entry.event, entry.at);
        }
        course
    }

    /// How many replies each agent got: all that there are, where it had ended, for its own journal may end before.
    pub(super) fn replied(&self) -> BTreeMap<String, usize> {
        let is_reply = |entry: &&Entry| matches!(entry.event, Event::Replied(_));
        let count = |(agent, entries): (&String, &Vec<Entry>)| (agent.clone(), entries.iter().filter(is_reply).count());
        let mut replied: BTreeMap<String, usize> = self.journals.iter().map(count).collect();
        for entry in self.journals.get(PARENT).into_iter().flatten() {
            if let Event::AgentFinished(end) = &entry.event
                && end.id != PARENT
                && !end.outcome.can_be_resumed()
            {
                replied.insert(end.id.clone(), usize::MAX);
            }
        }
        replied
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
