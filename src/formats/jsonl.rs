//! JSON Lines: the events of a run as they happen.

use super::{Format, PlanPreview, Subject};
use crate::event::JournalEntry;
use crate::text::sanitize;

pub(super) struct Jsonl;

impl Format for Jsonl {
    fn name(&self) -> &'static str {
        "jsonl"
    }

    fn subjects(&self) -> &'static [Subject] {
        &[Subject::Run]
    }

    fn plan(&self, preview: &PlanPreview<'_>) -> Option<String> {
        serde_json::to_string(preview.plan).ok().map(|line| sanitize::escape_json(&line))
    }

    fn event(&self, entry: &JournalEntry) -> Option<String> {
        entry.to_json().ok().map(|line| sanitize::escape_json(&line))
    }
}
