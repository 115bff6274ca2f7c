//! Reports inputs that nothing uses.

use std::collections::HashSet;

use crate::diagnostic::{Diagnostic, Rule, rule};
use crate::job::{input_variable, input_variables};
use crate::template::{TagPurpose, stray_tags};

use super::{Lint, LintContext};

/// Inputs that nothing uses.
pub(super) struct UnusedInputs;

const RULES: &[Rule] = &[rule!(Warning "unused-input")];

impl Lint for UnusedInputs {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
        let uses = subject.prompts.templates.used_inputs();
        let commands = || subject.job.checks.iter().map(|check| &check.run);
        // A tag in a command is an error, and stands for the variable of an input.
        let are_commands_complete = commands().all(|run| {
            let has_tags = stray_tags(&run.value).iter().any(|tag| tag.purpose != TagPurpose::Other);
            !run.node.is_placeholder() && !run.node.is_incomplete() && !has_tags
        });
        if !subject.is_complete || !uses.is_complete() || !are_commands_complete {
            return;
        }
        let variables: HashSet<&str> =
            commands().flat_map(|run| input_variables(&run.value).into_iter().map(|it| &run.value[it.range])).collect();
        let has_bash = subject.job.agents().any(|agent| agent.tools.iter().any(|tool| tool.value.name() == "bash"));
        let has_commands = has_bash || !subject.job.checks.is_empty();
        for (name, input) in subject.job.inputs() {
            let (is_used, message, help) = match input.is_secret() {
                // A template that uses a secret is an error of its own.
                true => (
                    has_commands || uses.has(&name.value),
                    "no command can use the secret input",
                    "remove it: only commands get secrets, and there are no checks and no agent with `bash`",
                ),
                false => (
                    uses.has(&name.value) || variables.contains(input_variable(&name.value).as_str()),
                    "nothing uses the input",
                    "remove it, or use it in a prompt",
                ),
            };
            if !is_used {
                let message = format!("{message} `{}`", name.value);
                let help = match input.is_secret() {
                    true => help.to_owned(),
                    false => format!("{help}: `{{{{ inputs.{} }}}}`", name.value),
                };
                findings.push(Diagnostic::warning("unused-input", name.place(), message).help(help));
            }
        }
    }
}
