//! Texts say something.

use crate::diagnostic::{Diagnostic, Rule, rule};

use super::{Lint, Subject};

/// Prompts and descriptions that are empty.
pub(super) struct Blank;

const RULES: &[Rule] = &[rule!(Error "empty-prompt"), rule!(Error "empty-description")];

impl Lint for Blank {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &Subject<'_>, findings: &mut Vec<Diagnostic>) {
        let prompts = subject.prompts;
        let prompt = &subject.job.parent.prompt;
        let is_blank = prompts.prompt.as_ref().is_some_and(|prompt| prompts.templates.is_blank(prompt));
        if is_blank && !prompt.node.is_made_up() {
            findings.push(
                Diagnostic::error("empty-prompt", prompt.place(), "the prompt is empty")
                    .help("say what the job is to do"),
            );
        }
        for description in subject.job.subagents.values().filter_map(|subagent| subagent.description.as_ref()) {
            if description.value.trim().is_empty() && !description.node.is_made_up() {
                findings.push(
                    Diagnostic::error("empty-description", description.place(), "the description is empty")
                        .help("say what to hand to this subagent: the parent's model knows no more about it"),
                );
            }
        }
    }
}
