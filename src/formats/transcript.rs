//! A recorded run.

use crate::event::{JournalEntry, RunResult, in_call_order};
use crate::plan::Plan;

/// A recorded run.
pub struct Transcript<'a> {
    /// The plan of the run.
    pub plan: &'a Plan,
    /// The result; `None` if the run hasn't ended.
    pub result: Option<&'a RunResult>,
    /// The parent's events, sorted for reading.
    pub(super) entries: Box<dyn Iterator<Item = JournalEntry> + 'a>,
}

impl<'a> Transcript<'a> {
    /// Takes the parent's events in the order of the journal.
    pub fn new(
        plan: &'a Plan,
        result: Option<&'a RunResult>,
        journal: impl Iterator<Item = JournalEntry> + 'a,
    ) -> Self {
        Self { plan, result, entries: Box::new(in_call_order(journal)) }
    }
}
