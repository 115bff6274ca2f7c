//! What becomes of checks where nobody gives anything for the inputs.

use crate::diagnostic::Diagnostic;
use crate::job::Check;
use crate::lints::checks::{truth, unclear};
use crate::lints::{CheckTexts, Subject};
use crate::template::{Template, Templates};

use super::Forecast;

/// Renders conditions, and the commands of checks that may be run. After so many failures the rest is left.
pub(super) fn look(subject: &Subject<'_>, ahead: &mut Forecast<'_>, most: usize, findings: &mut Vec<Diagnostic>) {
    let templates = &subject.prompts.templates;
    let mut failed = 0;
    for (check, texts) in subject.job.checks.iter().zip(&subject.prompts.checks) {
        let found = match condition(templates, ahead, check, texts) {
            // What isn't run needs no command.
            Ok(Some(false)) => continue,
            Ok(_) => None,
            Err(finding) => Some(finding),
        };
        let command = surely(templates, ahead, &texts.run).and_then(Result::err);
        for finding in found.into_iter().chain(command) {
            findings.push(*finding);
            failed += 1;
        }
        if failed > most || ahead.is_spent() {
            return;
        }
    }
}

/// What a check's condition surely comes to.
fn condition(
    templates: &Templates,
    ahead: &mut Forecast<'_>,
    check: &Check,
    texts: &CheckTexts,
) -> Result<Option<bool>, Box<Diagnostic>> {
    let Some((when, template)) = check.when.as_ref().zip(texts.when.as_ref()) else { return Ok(Some(true)) };
    if when.value.trim().is_empty() || when.node.is_made_up() {
        return Ok(None);
    }
    let rendered = match templates.has_tags(template) {
        false => when.value.clone(),
        true => match surely(templates, ahead, template) {
            None => return Ok(None),
            Some(rendered) => rendered?,
        },
    };
    truth(&rendered).map(Some).ok_or_else(|| Box::new(unclear(when, &rendered)))
}

/// What a text with tags comes to where nobody gives anything for the inputs; `None` where that depends on what is given.
fn surely(
    templates: &Templates,
    ahead: &mut Forecast<'_>,
    template: &Template,
) -> Option<Result<String, Box<Diagnostic>>> {
    if !templates.has_tags(template) || !templates.is_sound(template) {
        return None;
    }
    let foreseen = ahead.render(template);
    foreseen.is_sure.then_some(foreseen.rendered)
}
