//! Checks the declarations of steps before the agent, and the condition that skips a run.

use std::collections::HashMap;

use crate::diagnostic::{Diagnostic, rule};
use crate::job::{
    BeforeStep, FILES_PART, Job, MAX_STEPS, STEP_NAME_FORM, VariableMention, input_variable, input_variables,
    is_input_name,
};
use crate::yaml::Spanned;

use super::checks::check_variables;
use super::{Lint, LintContext};

/// Steps before the agent.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Error "empty-step"), rule!(Error "duplicate-step")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let mut earlier: HashMap<&str, &Spanned<String>> = HashMap::new();
    for step in &job.before {
        let run = &step.run;
        if run.value.trim().is_empty() && !run.node.is_placeholder() {
            let finding = Diagnostic::error("empty-step", run.place(), "the step's `run` is empty");
            findings.push(finding.help("write the command whose output is the value"));
        }
        if !subject.prompts.variables.inputs_incomplete {
            check_inputs(job, step, findings);
        }
        let name = &step.name;
        if name.node.is_placeholder() {
            continue;
        }
        if !is_input_name(&name.value) {
            let message = format!("`{}` isn't a valid name", name.value);
            findings.push(Diagnostic::error("bad-name", name.place(), message).help(STEP_NAME_FORM));
        } else if name.value == FILES_PART {
            let message = "a step can't have the name `files`: `before.files` is the folder in which steps leave files";
            findings.push(Diagnostic::error("bad-name", name.place(), message).help("give the step another name"));
        }
        if let Some(first) = earlier.insert(&name.value, name) {
            let finding =
                Diagnostic::error("duplicate-step", name.place(), format!("two steps have the name `{}`", name.value));
            let finding = finding.label(first.place(), "first here");
            findings.push(finding.help("give each step its own name: templates use its output by that"));
        }
    }
    if let (Some(beyond), Some(before)) = (job.before.get(MAX_STEPS), subject.root.get("before")) {
        let place = if beyond.name.node.is_placeholder() { before.place() } else { beyond.name.place() };
        let message = format!("there are {} steps, and a job can have {MAX_STEPS}", job.before.len());
        findings.push(Diagnostic::error("out-of-range", place, message).help("combine several commands in one step"));
    }
    if let Some(condition) = job.skip_if.as_ref().filter(|it| it.value.trim().is_empty() && !it.node.is_placeholder()) {
        let finding = Diagnostic::error("bad-condition", condition.place(), "`skip_if` is empty");
        findings.push(finding.help("remove the key, or write when there is nothing to do"));
    }
}

/// Reports variables of inputs that don't exist, or that a step doesn't get because it runs once for all rows of a map.
fn check_inputs(job: &Job, step: &BeforeStep, findings: &mut Vec<Diagnostic>) {
    if !step.is_once() {
        return check_variables(job, &step.run, findings);
    }
    let is_secret = |name: &str| job.inputs().any(|(input, it)| it.is_secret() && input_variable(&input.value) == name);
    let run = &step.run;
    for VariableMention { range, is_needed } in input_variables(&run.value) {
        let name = &run.value[range.clone()];
        if is_needed && !is_secret(name) && !job.env.iter().any(|known| known.value == name) {
            let message = format!("a step with `once: true` gets no inputs, and no `{name}`");
            let finding = Diagnostic::error("undefined-variable", run.node.place_of_range(range), message);
            findings
                .push(finding.help("remove `once: true`, so that each row of a map runs the step with its own inputs"));
        }
    }
}
