//! Texts say something.

use crate::diagnostic::{Diagnostic, Rule, rule};
use crate::yaml::Node;

use super::{Lint, LintContext, misplaced_keys};

/// Prompts and descriptions that are empty.
pub(super) struct BlankPrompts;

const RULES: &[Rule] = &[rule!(Error "empty-prompt"), rule!(Error "empty-description")];

impl Lint for BlankPrompts {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
        let prompts = subject.prompts;
        let prompt = &subject.job.parent.prompt;
        let is_blank = prompts.prompt.as_ref().is_some_and(|prompt| prompts.templates.is_blank(prompt));
        // Its lines may be among those that can't be read, which is said there.
        let is_torn = prompt.node.is_block() && subject.root.get("parent").is_some_and(|parent| parent.is_incomplete());
        if is_blank && !prompt.node.is_placeholder() && !is_torn && !has_unindented_text(subject, &prompt.node) {
            findings.push(
                Diagnostic::error("empty-prompt", prompt.place(), "the prompt is empty")
                    .help("say what the job is to do"),
            );
        }
        for description in subject.job.subagents.values().filter_map(|subagent| subagent.description.as_ref()) {
            if description.value.trim().is_empty() && !description.node.is_placeholder() {
                findings.push(
                    Diagnostic::error("empty-description", description.place(), "the description is empty")
                        .help("say what to hand to this subagent: the parent's model knows no more about it"),
                );
            }
        }
    }
}

/// Whether the empty text of a block is followed by a key that no parent has: a line of the text, which isn't indented as
/// one. That is said of the key.
fn has_unindented_text(subject: &LintContext<'_>, prompt: &Node) -> bool {
    let Some(parent) = subject.root.get("parent") else { return false };
    let is_block = prompt.is_block();
    let next = parent.entries().find(|(key, _)| key.place().range.start >= prompt.place().range.end);
    is_block && next.is_some_and(|(key, _)| !misplaced_keys::AGENT.contains(&key.text().unwrap_or_default()))
}
