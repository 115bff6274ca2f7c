//! The checks of a plan, and the environment variables that they get.

use serde_json::Value;

use super::resolve_inputs::ResolvedInputs;
use super::{Plan, PlannedCheck};
use crate::diagnostic::Diagnostic;
use crate::job::{Check, DEFAULT_CHECK_SECONDS, input_variable, input_variables};
use crate::lints::{ambiguous_condition, parse_condition};
use crate::template::{Engine, Template};
use crate::yaml::Spanned;

/// The longest `NAME=VALUE` of an environment, in bytes with its NUL (Linux's MAX_ARG_STRLEN). A command has the same limit.
const MAX_VARIABLE: usize = 128 << 10;

/// Plans a check: decides whether it runs.
pub(super) fn plan_check(
    engine: &mut Engine<'_>,
    check: &Check,
    when: Option<&Template>,
    inputs: &ResolvedInputs,
) -> Result<PlannedCheck, Box<Diagnostic>> {
    let runs = match check.when.as_ref().zip(when) {
        None => true,
        Some((when, template)) => {
            let rendered = engine.render(template)?;
            parse_condition(&rendered).ok_or_else(|| Box::new(ambiguous_condition(when, "when", &rendered)))?
        }
    };
    check_script(&check.run, runs, inputs)?;
    Ok(PlannedCheck {
        name: check.name.value.trim().to_owned(),
        run: check.run.value.clone(),
        timeout_ms: check.timeout.as_ref().map_or(DEFAULT_CHECK_SECONDS * 1000, |timeout| timeout.value.milliseconds()),
        skipped: !runs,
    })
}

/// Checks that a script, and the variables of inputs that it names, fit into an environment. `runs` is whether it runs at all.
pub(super) fn check_script(run: &Spanned<String>, runs: bool, inputs: &ResolvedInputs) -> Result<(), Box<Diagnostic>> {
    if run.value.len() >= MAX_VARIABLE {
        let finding = Diagnostic::error("out-of-range", run.place(), "the command is longer than 128 kB");
        return Err(Box::new(finding.help("put it into a script in the workspace")));
    }
    let plain = inputs.plain.iter().map(|(name, value)| (input_variable(name), shell_text(value)));
    let secret = inputs.secrets.pairs().iter().map(|(name, value)| (input_variable(name), value.clone()));
    let unfit: Vec<String> =
        plain.chain(secret).filter(|(name, value)| !is_possible(name, value)).map(|(name, _)| name).collect();
    let is_unfit = |name: &str| unfit.iter().any(|known| known == name);
    if let Some(mention) =
        input_variables(&run.value).into_iter().find(|it| runs && is_unfit(&run.value[it.range.clone()]))
    {
        let message =
            "with these inputs, the variable can't be set: its value is longer than 128 kB or has a NUL character";
        let finding = Diagnostic::error("bad-input", run.node.place_of_range(mention.range), message);
        return Err(Box::new(finding.help("give a shorter text, or the path of a file")));
    }
    Ok(())
}

impl Plan {
    /// The environment variables that checks get in addition to those of `bash`: each input, and the run's id. A value that
    /// no variable can hold is left out; no command of a check names it.
    pub fn check_variables(&self, run_id: &str) -> impl Iterator<Item = (String, String)> {
        let inputs = self.inputs.iter().map(|(name, value)| (input_variable(name), shell_text(value)));
        let run = ("LEGWORK_RUN_ID".to_owned(), run_id.to_owned());
        inputs.filter(|(name, value)| is_possible(name, value)).chain([run])
    }
}

fn is_possible(name: &str, value: &str) -> bool {
    name.len() + value.len() + 2 <= MAX_VARIABLE && !value.contains('\0')
}

/// A value as a variable of the shell holds it; a list has one item per line.
fn shell_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(shell_text).collect::<Vec<_>>().join("\n"),
        other => other.to_string(),
    }
}
