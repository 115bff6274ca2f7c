//! What becomes of checks where nobody gives anything for the inputs.

use crate::diagnostic::Diagnostic;
use crate::job::Check;
use crate::lints::checks::{ambiguous_condition, parse_condition};
use crate::lints::{CheckTemplates, LintContext};
use crate::template::{Template, Templates};

use super::DefaultRenderer;

/// Renders conditions, and the commands of checks that may be run. After so many failures the rest is left.
pub(super) fn check_commands(
    subject: &LintContext<'_>,
    ahead: &mut DefaultRenderer<'_>,
    most: usize,
    findings: &mut Vec<Diagnostic>,
) {
    let templates = &subject.prompts.templates;
    let mut failed = 0;
    for (check, texts) in subject.job.checks.iter().zip(&subject.prompts.checks) {
        let found = match condition_value(templates, ahead, check, texts) {
            // What isn't run needs no command.
            Ok(Some(false)) => continue,
            Ok(_) => None,
            Err(finding) => Some(finding),
        };
        let command = final_text(templates, ahead, &texts.run).and_then(Result::err);
        for finding in found.into_iter().chain(command) {
            findings.push(*finding);
            failed += 1;
        }
        if failed > most || ahead.is_exhausted() {
            return;
        }
    }
}

/// What a check's condition surely comes to.
fn condition_value(
    templates: &Templates,
    ahead: &mut DefaultRenderer<'_>,
    check: &Check,
    texts: &CheckTemplates,
) -> Result<Option<bool>, Box<Diagnostic>> {
    let Some((when, template)) = check.when.as_ref().zip(texts.when.as_ref()) else { return Ok(Some(true)) };
    if when.value.trim().is_empty() || when.node.is_placeholder() {
        return Ok(None);
    }
    let rendered = match templates.has_tags(template) {
        false => when.value.clone(),
        true => match final_text(templates, ahead, template) {
            None => return Ok(None),
            Some(rendered) => rendered?,
        },
    };
    parse_condition(&rendered).map(Some).ok_or_else(|| Box::new(ambiguous_condition(when, &rendered)))
}

/// What a text with tags comes to where nobody gives anything for the inputs; `None` where that depends on what is given.
fn final_text(
    templates: &Templates,
    ahead: &mut DefaultRenderer<'_>,
    template: &Template,
) -> Option<Result<String, Box<Diagnostic>>> {
    if !templates.has_tags(template) || !templates.is_valid(template) {
        return None;
    }
    let foreseen = ahead.render(template);
    foreseen.is_final.then_some(foreseen.rendered)
}
