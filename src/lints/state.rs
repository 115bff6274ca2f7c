//! The state that a job keeps between its runs: its first value, its size, and whether anything reads it.

use serde_json::Value;

use crate::diagnostic::{Diagnostic, rule};
use crate::job::{JobState, MAX_STATE_BYTES};
use crate::json_schema::{SchemaValidator, enum_inputs};
use crate::tools::set_state::value_mistake;
use crate::yaml::{Node, Spanned};

use super::{Lint, LintContext};

/// Checks the state.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Error "bad-state"), rule!(Warning "unused-state")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(Spanned { value: state, node }) = &subject.job.state else { return };
    if let Some(max) = state.max.as_ref().filter(|max| max.value.bytes() > MAX_STATE_BYTES) {
        let finding = Diagnostic::error("out-of-range", max.place(), "a state has at most 1 MiB");
        findings.push(finding.help("write a smaller size, or keep a part of it elsewhere"));
    }
    if let Some(initial) = &state.initial {
        check_initial(subject, state, initial, findings);
    }
    let templates = &subject.prompts.templates;
    if subject.is_complete && templates.used_inputs.is_complete() && !templates.uses_state() {
        let place = node.parent().and_then(|root| root.entries().find(|(key, _)| key.text() == Some("state")));
        let place = place.map_or_else(|| node.place(), |(key, _)| key.place());
        let finding = Diagnostic::warning(
            "unused-state",
            place,
            "no template reads the state, so no run knows what the last one kept",
        );
        findings.push(finding.help("use it in the prompt: `{{ state }}`; or remove `state`"));
    }
}

/// The first value, like any other, fits the schema and the size.
fn check_initial(subject: &LintContext<'_>, state: &JobState, initial: &Node, findings: &mut Vec<Diagnostic>) {
    let value = initial.to_json();
    // The values of inputs aren't known yet, and nobody's time is spent on a job that is refused anyway.
    let is_checkable = |schema: &&Value| enum_inputs(schema).is_empty() && !subject.is_untrusted;
    let mistake = value_mistake(&value, state.max_bytes()).or_else(|| {
        let schema = subject.schemas.state.as_ref().filter(is_checkable)?;
        let (violations, _) = SchemaValidator::new(schema).ok()?.violations(&value, 1);
        violations.first().map(ToString::to_string)
    });
    if let Some(why) = mistake {
        let finding = Diagnostic::error("bad-state", initial.place(), format!("`initial` can't be the state: {why}"));
        findings.push(finding.help("change it so that it fits `schema` and `max`"));
    }
}
