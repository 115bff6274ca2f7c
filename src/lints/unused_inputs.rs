//! What is declared is used.

use crate::diagnostic::{Diagnostic, Rule, rule};

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
        if !subject.is_complete || !uses.is_complete() {
            return;
        }
        let has_bash = subject.job.agents().any(|agent| agent.tools.iter().any(|tool| tool.value.name() == "bash"));
        let has_commands = has_bash || !subject.job.checks.is_empty();
        for (name, input) in subject.job.inputs() {
            let (is_used, message, help) = match input.is_secret() {
                // No text can name a secret, and one that does is an error already.
                true => (
                    has_commands || uses.has(&name.value),
                    "no agent can use the secret input",
                    "remove it: only commands see a secret, and no agent has `bash`",
                ),
                false => (uses.has(&name.value), "no text uses the input", "remove it, or use it in a prompt"),
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
