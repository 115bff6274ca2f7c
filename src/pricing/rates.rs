//! Prices per million tokens, and the keys to look them up.

use serde::Serialize;

use crate::message::Usage;

/// The key of a price.
#[derive(Debug, Clone, Copy)]
pub struct PriceKey<'a> {
    /// The model's provider, as a job writes it.
    pub provider: &'a str,
    /// The model's name, as a job writes it.
    pub name: &'a str,
    /// The vendor in the table that has its price; empty if the table doesn't apply.
    pub price_provider: &'a str,
    /// The model's name there.
    pub price_model: &'a str,
    /// Whether requests are for flex processing.
    pub is_flex: bool,
}

/// US dollars for a million tokens of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Uncached prompt tokens.
    pub input: f64,
    /// Tokens of the reply.
    pub output: f64,
    /// Prompt tokens read from a cache.
    pub cache_read: f64,
    /// Prompt tokens written to a cache.
    pub cache_write: f64,
}

/// The rates for prompts above a length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Tier {
    /// Requests with more prompt tokens than this have these rates, for all their tokens.
    pub above: u64,
    /// US dollars for a million tokens.
    #[serde(flatten)]
    pub rates: Rates,
}

impl Rates {
    /// The rates for input, output, cache reads and cache writes.
    pub fn each(&self) -> [f64; 4] {
        [self.input, self.output, self.cache_read, self.cache_write]
    }

    /// The rate for prompt tokens that are written to a cache for an hour: twice that for input
    /// (<https://platform.claude.com/docs/en/build-with-claude/prompt-caching>).
    pub fn cache_write_1h(&self) -> f64 {
        self.cache_write.max(2.0 * self.input)
    }

    /// The cost of a request in US dollars.
    pub(super) fn cost(&self, usage: &Usage) -> f64 {
        let tokens = [usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens];
        let cost = tokens.into_iter().zip(self.each()).map(|(tokens, rate)| tokens as f64 * rate).sum::<f64>() / 1e6;
        cost + self.hour_surcharge(usage)
    }

    /// What the writes for an hour cost more than as many for five minutes, in US dollars.
    pub(super) fn hour_surcharge(&self, usage: &Usage) -> f64 {
        usage.cache_write_1h_tokens as f64 * (self.cache_write_1h() - self.cache_write) / 1e6
    }
}
