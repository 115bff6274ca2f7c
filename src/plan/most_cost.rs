//! The most that a run can cost.

use jiff::Timestamp;

use super::Plan;
use crate::message::Usage;
use crate::price::Prices;

impl Plan {
    /// The most that a run of this plan can cost in US dollars at the prices of `at`: its cost limit, or what its
    /// token limit would cost at the dearest of its models' rates; `None` where neither bounds it or a price isn't
    /// known. A replay costs nothing.
    pub fn most_cost(&self, at: Timestamp) -> Option<f64> {
        let mut models = self.agents().map(|agent| &agent.model).filter(|model| model.provider != "replay").peekable();
        if models.peek().is_none() {
            return Some(0.0);
        }
        if self.limits.cost_usd.is_some() {
            return self.limits.cost_usd;
        }
        let tokens = self.limits.tokens?;
        let million = 1_000_000;
        let prompt = Usage { input_tokens: million, ..Usage::default() };
        let written = Usage { cache_write_tokens: million, ..Usage::default() };
        let both = Usage { output_tokens: million, ..prompt };
        let mut dearest = 0.0_f64;
        for model in models {
            // Long prompts can cost more per token, so a long one is priced, too.
            let cost = |usage| Prices::new().cost(&model.provider, &model.name, &usage, at.into());
            let short = Prices::new().rates(&model.provider, &model.name, at.into())?;
            let long_reply = cost(both)? - cost(prompt)?;
            for rate in [short.input, short.cache_write, short.output, cost(prompt)?, cost(written)?, long_reply] {
                dearest = dearest.max(rate);
            }
        }
        Some(tokens as f64 * dearest / 1e6)
    }
}
