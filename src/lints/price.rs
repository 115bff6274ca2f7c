//! A limit on cost that can be kept.

use super::{Lint, Subject, models};
use crate::diagnostic::{Diagnostic, Place, Rule, nearest, rule};
use crate::price::Prices;
use crate::providers::Model;

/// A limit on cost, and models whose price isn't known.
pub(super) struct Price;

const RULES: &[Rule] = &[rule!(Error "unknown-price")];

impl Lint for Price {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &Subject<'_>, findings: &mut Vec<Diagnostic>) {
        let job = subject.job;
        let Some(limit) = &job.limits.cost_usd else { return };
        for spec in models::specs(job) {
            let finding = models::resolve(spec, subject.servers).ok().and_then(|model| unpriced(limit.place(), &model));
            findings.extend(finding.map(|finding| finding.label(spec.place(), "the model")));
        }
    }
}

/// The finding for a limit on cost that can't be kept, where the model's price isn't known.
pub fn unpriced(limit: Place, model: &Model) -> Option<Diagnostic> {
    let list = model.price_list();
    if model.provider == "replay" || (!list.is_empty() && Prices::new().knows(list, &model.name)) {
        return None;
    }
    let message = format!("the price of `{model}` isn't known, so this limit can't be kept");
    if list.is_empty() {
        let help = "what a server of your own costs is for you to know: bound the run with `tokens` instead";
        return Some(Diagnostic::error("unknown-price", limit, message).help(help));
    }
    let help = match nearest(&model.name, Prices::new().models(list)) {
        Some(near) => format!("did you mean the model `{near}`? For another, bound the run with `tokens` instead"),
        None => "bound the run with `tokens` instead, or name another model".to_owned(),
    };
    Some(Diagnostic::error("unknown-price", limit, message).help(help))
}
