//! Models that are turned off, or will be.

use super::{Lint, LintContext, models};
use crate::diagnostic::{Diagnostic, Rule, rule};
use crate::providers::Model;

/// Models that their makers retire.
pub(super) struct RetiredModels;

const RULES: &[Rule] = &[rule!(Warning "retired-model")];

impl Lint for RetiredModels {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
        for spec in models::specs(subject.job) {
            let Ok(model) = models::resolve(spec, &subject.user_config.servers) else { continue };
            let node = models::name_node(spec);
            let Some((message, help)) = retirement(&model).filter(|_| !node.is_placeholder()) else { continue };
            let start = model.provider.len() + 1;
            let place = node.place_of_range(start..start + model.name.len());
            findings.push(Diagnostic::warning("retired-model", place, message).help(help));
        }
    }
}

/// What to say of a model that its maker retires, and what to do.
pub fn retirement(model: &Model) -> Option<(String, String)> {
    let retired = model.retirement()?;
    let message = format!("`{}` is turned off by its maker on {}", model.name, retired.date);
    let help =
        format!("name a newer one, such as `{}/{}`; see {}", model.provider, retired.replacement, retired.source);
    Some((message, help))
}
