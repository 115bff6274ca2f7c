//! The answer of a run as a comment: an output that the command line of `publish` allows, not the job.

use serde_json::{Value, json};

use crate::event::{PARENT, RunModel};
use crate::outputs::{Entry, Kind, KindName, Output, Outputs, Target};

/// The name of this output. No output of a job can have it.
pub(super) const ANSWER_OUTPUT: &str = "--comment";

/// Allows the answer as a comment on the issue or pull request of this process's event, in place of an earlier one.
pub fn allow_answer(policy: &mut Outputs) {
    let kind = Kind::Comment { update: true, closes: false };
    let output = Output { kind, target: Some(Target::Trigger), max: 1, on_checks_failed: false };
    policy.allowed.insert(ANSWER_OUTPUT.to_owned(), output);
}

/// The answer as an entry; `None` if there is none.
pub(super) fn answer_entry(model: &RunModel, id: &str) -> Option<Entry> {
    let result = model.result()?;
    let body = match (result.text.trim(), &result.result) {
        // No line of JSON can end the fence.
        ("", Some(data)) => format!("```json\n{data:#}\n```"),
        ("", None) => return None,
        (text, _) => text.to_owned(),
    };
    Some(Entry {
        id: id.to_owned(),
        name: ANSWER_OUTPUT.to_owned(),
        kind: KindName::Comment,
        key: None,
        target: None,
        data: Value::from_iter([("body", json!(body))]),
        agent: PARENT.to_owned(),
        call_id: String::new(),
    })
}
