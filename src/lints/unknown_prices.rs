//! A limit on cost that can be kept.

use super::{Lint, LintContext, UserConfig, models};
use crate::diagnostic::{Diagnostic, Rule, Severity, SourceSpan, rule, suggest_name};
use crate::job::Limits;
use crate::providers::Model;

/// A limit on cost, and models whose price isn't known.
pub(super) struct UnknownPrices;

const RULES: &[Rule] = &[rule!(Error "unknown-price"), rule!(Warning "untracked-cost")];

impl Lint for UnknownPrices {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
        let job = subject.job;
        for spec in models::specs(job) {
            let model = models::resolve(spec, &subject.user_config.servers).ok();
            let Some(model) = model else { continue };
            let Some(mut finding) = unknown_price(&job.limits, &model, subject.user_config) else { continue };
            let name = models::name_node(spec).place();
            let is_misspelt = suggest_name(&model.name, subject.user_config.prices.models(model.price_provider()))
                .is_some()
                || model.retirement().is_some();
            findings.push(if finding.severity == Severity::Error && is_misspelt {
                // The limit is right: the mistake is in the name.
                let limit = std::mem::replace(&mut finding.span, name);
                finding.label(limit, "the limit")
            } else {
                finding.label(name, "the model")
            });
        }
    }
}

/// Whether a limit on cost can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostTracking {
    /// What the model costs is known.
    Known,
    /// Nobody knows, but it is a model of this machine's own: it may run without its cost being counted.
    UntrackedLocal,
    /// Nobody knows.
    Unknown,
}

impl CostTracking {
    /// Whether what `model` costs can be counted. A server on this machine is the user's own, and so are the models that
    /// no list has; where such a name could as well be a misspelt one of somebody who charges for it, a limit on tokens
    /// has to bound the run.
    pub fn of(model: &Model, has_token_limit: bool, own: &UserConfig) -> Self {
        // Of a server whose table has mistakes nothing is known, and nothing else is said.
        if model.is_scripted() || model.spec().is_none() || own.prices.has_price(model.price_key()) {
            return Self::Known;
        }
        match own.local_providers.contains(&model.provider) && (has_token_limit || model.allows_unknown_names()) {
            true => Self::UntrackedLocal,
            false => Self::Unknown,
        }
    }
}

/// The finding for a limit on cost that can't be kept, where the model's price isn't known.
pub fn unknown_price(limits: &Limits, model: &Model, own: &UserConfig) -> Option<Diagnostic> {
    let limit: SourceSpan = limits.cost_usd.as_ref()?.place();
    let in_file = format!("`[models.\"{model}\"]` in your `prices.toml`");
    match CostTracking::of(model, limits.tokens.is_some(), own) {
        CostTracking::Known => None,
        CostTracking::UntrackedLocal => {
            let message = format!("the price of `{model}` isn't known, so its cost isn't counted against this limit");
            let help =
                format!("it is asked on this machine, so it runs; say what it costs, 0 where nothing, at {in_file}");
            Some(Diagnostic::warning("untracked-cost", limit, message).help(help))
        }
        CostTracking::Unknown => {
            let message = format!("the price of `{model}` isn't known, so `cost_usd` can't be kept");
            let help = if own.local_providers.contains(&model.provider) {
                format!(
                    "bound the run with `tokens` as well, for it is asked on this machine; or say what it costs at {in_file}"
                )
            } else {
                format!("say what it costs at {in_file}, or bound the run with `tokens` instead")
            };
            // One that its maker has turned off isn't misspelt.
            let is_known = model.retirement().is_some();
            let near = suggest_name(&model.name, own.prices.models(model.price_provider())).filter(|_| !is_known);
            let help = match near {
                Some(near) => format!("did you mean the model `{near}`? For another, {help}"),
                None => help,
            };
            Some(Diagnostic::error("unknown-price", limit, message).help(help))
        }
    }
}
