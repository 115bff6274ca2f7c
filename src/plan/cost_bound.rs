//! The greatest amount that a run can cost.

use indexmap::IndexSet;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::{Plan, PlannedAgent};
use crate::pricing::{PriceKey, Prices};
use crate::providers::Model;
use crate::tools::task::Task;

/// The greatest amount that a run can cost, by what bounds it.
#[derive(Debug, Clone, PartialEq)]
pub enum CostBound {
    /// Nothing: every reply comes from a script or a record.
    Free,
    /// The limit on cost, in US dollars.
    Limit(f64),
    /// The limit on tokens, at the price of the most expensive kind of token.
    Tokens {
        /// US dollars for all of them.
        usd: f64,
        /// US dollars for a million tokens of that kind.
        rate: f64,
        /// The model with that price, as `provider/name`.
        model: String,
        /// The day of the prices, in UTC.
        day: Date,
    },
    /// Unknown, because these models have no price: `provider/name`.
    Unknown(Vec<String>),
    /// There is no limit on cost or tokens.
    Unbounded,
}

impl Plan {
    /// The greatest amount that a run of this plan can cost at the prices of `at`: the lower one of its limits on cost and
    /// tokens. The limits are enforced by estimates, so the last request may exceed them slightly.
    pub fn cost_bound(&self, prices: &Prices, at: Timestamp) -> CostBound {
        // Without `task`, only the parent can send requests.
        let delegates = self.parent.tools.iter().any(|grant| grant.name == Task::NAME);
        let agents = self.agents().take(if delegates { usize::MAX } else { 1 });
        let mut models: Vec<&Model> = agents.flat_map(PlannedAgent::models).collect();
        models.retain(|model| !model.is_scripted());
        models.dedup();
        if models.is_empty() {
            return CostBound::Free;
        }
        let (limit, tokens) = (self.limits.cost_usd, self.limits.tokens);
        if limit.is_none() && tokens.is_none() {
            return CostBound::Unbounded;
        }
        let (rate, model) = match highest_priced(&models, prices, at) {
            Ok(highest) => highest,
            Err(unknown) => return CostBound::Unknown(unknown),
        };
        let by_tokens = tokens.map(|tokens| tokens as f64 * rate / 1e6);
        match (limit, by_tokens) {
            (limit, Some(usd)) if limit.is_none_or(|limit| usd < limit) => {
                CostBound::Tokens { usd, rate, model, day: at.to_zoned(TimeZone::UTC).date() }
            }
            (limit, _) => CostBound::Limit(limit.unwrap_or_default()),
        }
    }
}

/// The price of the most expensive kind of token, in US dollars for a million, and its model.
///
/// # Errors
/// The models without a price.
fn highest_priced(models: &[&Model], prices: &Prices, at: Timestamp) -> Result<(f64, String), Vec<String>> {
    let mut highest = (0.0, String::new());
    let mut unknown = IndexSet::new();
    for model in models {
        let name = model.to_string();
        match highest_rate(model.price_key(), prices, at) {
            None => drop(unknown.insert(name)),
            Some(rate) if rate > highest.0 || highest.1.is_empty() => highest = (rate, name),
            Some(_) => {}
        }
    }
    if unknown.is_empty() { Ok(highest) } else { Err(unknown.into_iter().collect()) }
}

/// US dollars for a million tokens of the most expensive kind, over all lengths of prompts.
fn highest_rate(item: PriceKey<'_>, prices: &Prices, at: Timestamp) -> Option<f64> {
    let sheet = prices.model_pricing(item, at.into())?;
    Some(sheet.tiers.iter().flat_map(|tier| tier.rates.each()).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Source;
    use crate::lints;
    use crate::plan::{InputValues, RunContext};

    fn most(model: &str, rest: &str) -> CostBound {
        let text = format!("model: {model}\nparent: {{ prompt: x, tools: [task] }}\n{rest}");
        let job = lints::check(&Source::new("job.yaml", text), None).job.unwrap();
        let facts = RunContext {
            workspace: "/w".to_owned(),
            inputs_from: None,
            run_id: String::new(),
            run_date: String::new(),
            model_override: None,
            trigger: None,
        };
        let (plan, _) = Plan::new(&job, &InputValues::default(), &facts).unwrap();
        plan.cost_bound(&Prices::new(), "2026-11-21T23:30:00Z".parse().unwrap())
    }

    const HAIKU: &str = "anthropic/claude-haiku-4-5";
    const OPUS: &str = "anthropic/claude-opus-4-1";

    #[test]
    fn the_lower_of_two_limits_counts() {
        assert_eq!(most(HAIKU, "limits: { cost_usd: 2 }"), CostBound::Limit(2.0));
        assert_eq!(most(HAIKU, "limits: { cost_usd: 2, tokens: 1000000 }"), CostBound::Limit(2.0));
        let CostBound::Tokens { usd, rate, model, day } = most(HAIKU, "limits: { cost_usd: 2, tokens: 100000 }") else {
            panic!("the tokens cost less than the limit");
        };
        assert!((usd - 0.5).abs() < 1e-9 && (rate - 5.0).abs() < 1e-9, "{usd} {rate}");
        assert_eq!((model.as_str(), day.to_string().as_str()), (HAIKU, "2026-11-21"));
        assert_eq!(most(HAIKU, ""), CostBound::Unbounded);
    }

    #[test]
    fn the_most_expensive_reachable_model_counts() {
        let subagents = format!("limits: {{ tokens: 1000000 }}\nsubagents: {{ a: {{ tools: [], model: {OPUS} }} }}\n");
        assert!(matches!(most(HAIKU, &subagents), CostBound::Tokens { model, usd, .. } if model == OPUS && usd > 70.0));
        let alone = format!("parent: {{ prompt: x, tools: [] }}\n{subagents}");
        let job = lints::check(&Source::new("job.yaml", format!("model: {HAIKU}\n{alone}")), None).job.unwrap();
        let facts = RunContext {
            workspace: "/w".to_owned(),
            inputs_from: None,
            run_id: String::new(),
            run_date: String::new(),
            model_override: None,
            trigger: None,
        };
        let plan = Plan::new(&job, &InputValues::default(), &facts).unwrap().0;
        let most = plan.cost_bound(&Prices::new(), "2026-11-21T00:00:00Z".parse().unwrap());
        assert!(matches!(most, CostBound::Tokens { model, .. } if model == HAIKU));
    }

    #[test]
    fn free_and_unknown_are_not_unbounded() {
        assert_eq!(most("replay/x.script.yaml", ""), CostBound::Free);
        let own = "anthropic/our-own-model";
        assert_eq!(most(own, "limits: { tokens: 10 }"), CostBound::Unknown(vec![own.to_owned()]));
        assert_eq!(most(own, ""), CostBound::Unbounded);
        let mixed = format!("limits: {{ tokens: 10 }}\nsubagents: {{ a: {{ tools: [], model: {own} }} }}\n");
        assert_eq!(most("replay/x.script.yaml", &mixed), CostBound::Unknown(vec![own.to_owned()]));
    }
}
