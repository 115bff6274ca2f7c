//! What must hold after the last answer: commands with the values filled in.

use super::PlannedCheck;
use crate::diagnostic::Diagnostic;
use crate::job::{Check, DEFAULT_CHECK_SECONDS};
use crate::lints::{CheckTemplates, ambiguous_condition, parse_condition};
use crate::template::Engine;

/// The longest command, in bytes with its NUL: Linux takes no longer argument (MAX_ARG_STRLEN).
const MAX_COMMAND: usize = 128 << 10;

/// Makes the check as it will be run. A check that isn't run may have a command that can't be rendered, for its condition
/// may ask for just that; it is then left empty.
pub(super) fn plan_check(
    engine: &mut Engine<'_>,
    check: &Check,
    texts: &CheckTemplates,
) -> Result<PlannedCheck, Box<Diagnostic>> {
    let runs = match check.when.as_ref().zip(texts.when.as_ref()) {
        None => true,
        Some((when, template)) => {
            let rendered = engine.render(template)?;
            parse_condition(&rendered).ok_or_else(|| Box::new(ambiguous_condition(when, &rendered)))?
        }
    };
    let run = match engine.render(&texts.run) {
        Ok(run) if run.len() >= MAX_COMMAND => {
            let message = "the command is longer than 128 kB";
            let finding = Diagnostic::error("render-failed", check.run.place(), message);
            return Err(Box::new(finding.help("give it shorter values, or files to read them from")));
        }
        Ok(run) => run,
        Err(_) if !runs => String::new(),
        Err(finding) => return Err(finding),
    };
    if runs && run.trim().is_empty() {
        let message = "with these inputs, the command is empty";
        let finding = Diagnostic::error("empty-check", check.run.place(), message);
        return Err(Box::new(finding.help("say under `when` when the check is run")));
    }
    Ok(PlannedCheck {
        name: check.name.value.trim().to_owned(),
        run,
        timeout_ms: check.timeout.as_ref().map_or(DEFAULT_CHECK_SECONDS * 1000, |timeout| timeout.value.milliseconds()),
        skipped: !runs,
    })
}
