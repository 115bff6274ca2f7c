//! JSON Lines: the events as they happen.

use super::{Format, Subject};
use crate::event::Entry;
use crate::plan::Plan;

/// See the module.
pub(super) struct Jsonl;

impl Format for Jsonl {
    fn name(&self) -> &'static str {
        "jsonl"
    }

    fn shows(&self) -> &'static [Subject] {
        &[Subject::Run]
    }

    fn plan(&self, plan: &Plan, _: Option<f64>) -> Option<String> {
        serde_json::to_string(plan).ok()
    }

    fn event(&self, entry: &Entry) -> Option<String> {
        entry.to_json().ok()
    }
}
