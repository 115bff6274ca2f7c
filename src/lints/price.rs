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
            let model = models::resolve(spec, &subject.own.servers).ok();
            let finding = model.and_then(|model| unpriced(limit.place(), &model, &subject.own.prices));
            findings.extend(finding.map(|finding| finding.label(spec.place(), "the model")));
        }
    }
}

/// The finding for a limit on cost that can't be kept, where the model's price isn't known.
pub fn unpriced(limit: Place, model: &Model, prices: &Prices) -> Option<Diagnostic> {
    if model.provider == "replay" || prices.knows(model.item()) {
        return None;
    }
    let message = format!("the price of `{model}` isn't known, so this limit can't be kept");
    let own = "give it a price in your `prices.toml`, or bound the run with `tokens` instead";
    let help = match nearest(&model.name, prices.models(model.price_list())) {
        Some(near) => format!("did you mean the model `{near}`? For another, {own}"),
        None => own.to_owned(),
    };
    Some(Diagnostic::error("unknown-price", limit, message).help(help))
}
