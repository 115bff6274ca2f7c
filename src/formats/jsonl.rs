//! JSON Lines: the events as they happen.

use super::{Format, Preview, Subject, harmless};
use crate::event::Entry;

/// See the module.
pub(super) struct Jsonl;

impl Format for Jsonl {
    fn name(&self) -> &'static str {
        "jsonl"
    }

    fn shows(&self) -> &'static [Subject] {
        &[Subject::Run]
    }

    fn plan(&self, preview: &Preview<'_>) -> Option<String> {
        serde_json::to_string(preview.plan).ok().map(|line| harmless::json(&line))
    }

    fn event(&self, entry: &Entry) -> Option<String> {
        entry.to_json().ok().map(|line| harmless::json(&line))
    }
}
