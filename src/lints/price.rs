//! A limit on cost that can be kept.

use super::{Lint, Own, Subject, models};
use crate::diagnostic::{Diagnostic, Place, Rule, Severity, nearest, rule};
use crate::job::Limits;
use crate::providers::Model;

/// A limit on cost, and models whose price isn't known.
pub(super) struct Price;

const RULES: &[Rule] = &[rule!(Error "unknown-price"), rule!(Warning "uncounted-cost")];

impl Lint for Price {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &Subject<'_>, findings: &mut Vec<Diagnostic>) {
        let job = subject.job;
        for spec in models::specs(job) {
            let model = models::resolve(spec, &subject.own.servers).ok();
            let Some(model) = model else { continue };
            let Some(mut finding) = unpriced(&job.limits, &model, subject.own) else { continue };
            let name = models::name_node(spec).place();
            let is_misspelt = nearest(&model.name, subject.own.prices.models(model.price_list())).is_some()
                || model.retired().is_some();
            findings.push(if finding.severity == Severity::Error && is_misspelt {
                // The limit is right: the mistake is in the name.
                let limit = std::mem::replace(&mut finding.place, name);
                finding.label(limit, "the limit")
            } else {
                finding.label(name, "the model")
            });
        }
    }
}

/// Whether a limit on cost can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Countable {
    /// What the model costs is known.
    Yes,
    /// Nobody knows, but it is a model of this machine's own: it may run without its cost being counted.
    Here,
    /// Nobody knows.
    No,
}

impl Countable {
    /// Whether what `model` costs can be counted. A server on this machine is the user's own, and so are the models that
    /// no list has; where such a name could as well be a misspelt one of somebody who charges for it, a limit on tokens
    /// has to bound the run.
    pub fn of(model: &Model, has_token_limit: bool, own: &Own) -> Self {
        // Of a server whose table has mistakes nothing is known, and nothing else is said.
        if model.provider == "replay" || model.entry().is_none() || own.prices.knows(model.item()) {
            return Self::Yes;
        }
        match own.here.contains(&model.provider) && (has_token_limit || model.may_have_any_name()) {
            true => Self::Here,
            false => Self::No,
        }
    }
}

/// The finding for a limit on cost that can't be kept, where the model's price isn't known.
pub fn unpriced(limits: &Limits, model: &Model, own: &Own) -> Option<Diagnostic> {
    let limit: Place = limits.cost_usd.as_ref()?.place();
    let in_file = format!("`[models.\"{model}\"]` in your `prices.toml`");
    match Countable::of(model, limits.tokens.is_some(), own) {
        Countable::Yes => None,
        Countable::Here => {
            let message = format!("the price of `{model}` isn't known, so its cost isn't counted against this limit");
            let help =
                format!("it is asked on this machine, so it runs; say what it costs, 0 where nothing, at {in_file}");
            Some(Diagnostic::warning("uncounted-cost", limit, message).help(help))
        }
        Countable::No => {
            let message = format!("the price of `{model}` isn't known, so `cost_usd` can't be kept");
            let help = if own.here.contains(&model.provider) {
                format!(
                    "bound the run with `tokens` as well, for it is asked on this machine; or say what it costs at {in_file}"
                )
            } else {
                format!("say what it costs at {in_file}, or bound the run with `tokens` instead")
            };
            // One that its maker has turned off isn't misspelt.
            let is_known = model.retired().is_some();
            let near = nearest(&model.name, own.prices.models(model.price_list())).filter(|_| !is_known);
            let help = match near {
                Some(near) => format!("did you mean the model `{near}`? For another, {help}"),
                None => help,
            };
            Some(Diagnostic::error("unknown-price", limit, message).help(help))
        }
    }
}
