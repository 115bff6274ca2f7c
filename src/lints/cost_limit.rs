//! A run's cost has a bound.

use crate::diagnostic::{Diagnostic, Rule, rule};
use crate::yaml::{Node, NodeKind};

use super::key_aliases::is_alias_of;
use super::{Lint, LintContext, models};

/// Jobs that may cost any amount.
pub(super) struct CostLimit;

const RULES: &[Rule] = &[rule!(Warning "no-cost-limit")];

/// The warnings about what a run may cost; they say nothing where a script answers, which costs nothing.
pub const COST_WARNINGS: &[&str] = &["no-cost-limit", "untracked-cost"];

impl Lint for CostLimit {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
        let job = subject.job;
        let limits = subject.root.get("limits");
        // What is written wrongly or elsewhere was meant, and what is torn may have held one.
        let is_elsewhere = |mapping: &Node| {
            let is_limit =
                |key: &str| ["limits", "cost_usd"].into_iter().any(|ours| is_alias_of(key, ours) || key == ours);
            mapping.entries().any(|(key, _)| key.text().is_some_and(is_limit))
        };
        let subagents = subject.root.get("subagents");
        let agents = subagents.iter().flat_map(|all| all.entries().map(|(_, agent)| agent).collect::<Vec<_>>());
        let is_meant = subject.root.is_incomplete()
            || subject.root.get("parent").into_iter().chain(agents).any(|agent| is_elsewhere(&agent))
            || subject
                .root
                .entries()
                .any(|(key, _)| key.text().is_some_and(|key| is_alias_of(key, "cost_usd") || key == "cost_usd"))
            || limits.as_ref().is_some_and(|limits| {
                let has = |(key, _): (Node, Node)| {
                    let name = key.text().and_then(|name| name.split(':').next()).unwrap_or_default();
                    ["cost_usd", "tokens"].into_iter().any(|ours| is_alias_of(name, ours))
                };
                limits.kind() != NodeKind::Mapping || limits.is_incomplete() || limits.entries().any(has)
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
            findings.push(
                Diagnostic::warning("no-cost-limit", place, "nothing limits what a run can cost")
                    .help("add `cost_usd` or `tokens` to `limits`, such as `limits: { cost_usd: 2.00 }`"),
            );
        }
    }
}
