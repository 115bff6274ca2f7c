//! A run's cost is limited, and the limit can be enforced.

use crate::diagnostic::{Diagnostic, Severity, SourceSpan, rule};
use crate::job::Limits;
use crate::providers::Model;
use crate::yaml::NodeKind;

use super::key_aliases::is_alias_of;
use super::{Lint, LintContext, UserConfig, models};

/// The warnings about a run's cost. They don't apply if a script replies, which costs nothing.
pub const COST_WARNINGS: &[&str] = &["no-cost-limit", "untracked-cost"];

/// Checks the limits on cost.
pub(super) const LINT: Lint = Lint {
    rules: &[rule!(Error "unknown-price"), rule!(Warning "untracked-cost"), rule!(Warning "no-cost-limit")],
    check,
};

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    unknown_prices(subject, findings);
    missing_limit(subject, findings);
}

fn unknown_prices(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    for spec in models::specs(job) {
        let Ok(model) = models::resolve(spec, &subject.user_config.servers) else { continue };
        let Some(mut finding) = unknown_price(&job.limits, &model, subject.user_config) else { continue };
        let name = models::name_node(spec).place();
        let is_misspelt =
            models::near_model(&model, &subject.user_config.prices).is_some() || model.retirement().is_some();
        findings.push(if finding.severity == Severity::Error && is_misspelt {
            // The limit is right: the mistake is in the name.
            let limit = std::mem::replace(&mut finding.span, name);
            finding.label(limit, "the limit")
        } else {
            finding.label(name, "the model")
        });
    }
}

fn missing_limit(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let limits = subject.root.get("limits");
    // A misspelled or misplaced limit shows that one was intended, and a syntax error may have hidden one.
    let is_limit = |found: &Diagnostic| {
        let key = found.span.source.text[found.span.range.clone()].split(':').next().unwrap_or_default();
        let is_in_limits = limits.as_ref().is_some_and(|limits| found.span.overlaps(&limits.place()));
        found.code == "unknown-key" && (is_in_limits || is_alias_of(key, "limits") || is_alias_of(key, "cost_usd"))
    };
    let is_meant = subject.root.is_incomplete()
        || subject.reported.iter().any(is_limit)
        || limits.as_ref().is_some_and(|limits| {
            let has = |key| limits.get(key).is_some();
            limits.kind() != NodeKind::Mapping || limits.is_incomplete() || has("cost_usd") || has("tokens")
        });
    if is_meant || job.limits.cost_usd.is_some() || job.limits.tokens.is_some() || job.model.node.is_placeholder() {
        return;
    }
    let asks = |spec| models::resolve(spec, &subject.user_config.servers).is_ok_and(|model| !model.is_scripted());
    if models::specs(job).any(asks) {
        let place = match limits.and_then(|limits| limits.own_key()) {
            Some(key) => key.place(),
            None => models::name_node(&job.model).place(),
        };
        let finding = Diagnostic::warning("no-cost-limit", place, "no limit on the cost of a run");
        findings.push(finding.help("add `cost_usd` or `tokens` to `limits`, such as `limits: { cost_usd: 2.00 }`"));
    }
}

/// Whether a limit on cost can be enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostTracking {
    /// What the model costs is known.
    Known,
    /// The price isn't known, but the model runs on this machine, and may run without its cost being counted.
    UntrackedLocal,
    /// The price isn't known.
    Unknown,
}

impl CostTracking {
    /// Whether the cost of `model` can be counted. A server on this machine costs nothing that legwork knows of. If its
    /// model could also be a misspelled one of a provider that charges, a limit on tokens is required.
    pub fn of(model: &Model, has_token_limit: bool, user_config: &UserConfig) -> Self {
        // Errors in a server's own table are reported there.
        if model.is_scripted() || model.spec().is_none() || user_config.prices.has_price(model.price_key()) {
            return Self::Known;
        }
        match user_config.local_providers.contains(&model.provider) && (has_token_limit || model.allows_unknown_names())
        {
            true => Self::UntrackedLocal,
            false => Self::Unknown,
        }
    }
}

/// The finding for a limit on cost that can't be enforced because the model's price isn't known.
pub fn unknown_price(limits: &Limits, model: &Model, user_config: &UserConfig) -> Option<Diagnostic> {
    let limit: SourceSpan = limits.cost_usd.as_ref()?.place();
    let in_file = format!("`[models.\"{model}\"]` in your `prices.toml`");
    match CostTracking::of(model, limits.tokens.is_some(), user_config) {
        CostTracking::Known => None,
        CostTracking::UntrackedLocal => {
            let message = format!("the price of `{model}` is unknown, so its cost doesn't count toward this limit");
            let help = format!("it runs on this machine; set its price in {in_file}, 0 if it is free");
            Some(Diagnostic::warning("untracked-cost", limit, message).help(help))
        }
        CostTracking::Unknown => {
            let message = format!("the price of `{model}` is unknown, so `cost_usd` can't be enforced");
            let help = if user_config.local_providers.contains(&model.provider) {
                format!("it runs on this machine: also limit `tokens`, or set its price in {in_file}")
            } else {
                format!("set its price in {in_file}, or limit `tokens` instead")
            };
            // A retired model isn't misspelled.
            let is_known = model.retirement().is_some();
            let near = models::near_model(model, &user_config.prices).filter(|_| !is_known);
            let help = match near {
                Some(near) => format!("did you mean the model `{}`? If not, {help}", near.name),
                None => help,
            };
            Some(Diagnostic::error("unknown-price", limit, message).help(help))
        }
    }
}
