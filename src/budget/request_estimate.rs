//! What a request may use, and what it uses.

use std::io;

use serde::{Deserialize, Serialize};

use crate::event::LimitReached;
use crate::pricing::Rates;

/// The least tokens of a reply. If less is left, the limit is reached.
pub const MIN_REPLY_TOKENS: u32 = 256;

/// How many tokens a prompt may grow before the final request: short results of calls, and the note. Longer results are
/// truncated for that request.
pub(super) const FINAL_PROMPT_EXTRA_TOKENS: u64 = 256;

/// What a request is expected to use.
#[derive(Debug, Clone, Copy)]
pub struct RequestEstimate {
    /// The estimated tokens of its prompt.
    pub prompt_tokens: u64,
    /// The longest reply that it wants.
    pub max_tokens: u32,
    /// What its model's tokens cost. Without rates, the request counts as free.
    pub rates: Option<Rates>,
    /// Whether enough must be left for a final request after it, with its prompt, its whole reply and a little more.
    pub reserves_final_request: bool,
}

/// Tokens, and what they cost in US dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Amount {
    /// How many tokens.
    pub tokens: u64,
    /// Their cost; 0 where no rates are known.
    pub cost_usd: f64,
}

/// Why a request gets nothing.
#[derive(Debug)]
pub enum ReserveError {
    /// A limit is reached.
    Limit(LimitReached),
    /// The ledger of the map can't be read or written.
    Ledger(io::Error),
}

impl Amount {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_add(other.tokens), cost_usd: self.cost_usd + other.cost_usd }
    }

    /// The larger of each.
    pub(crate) fn max(self, other: Self) -> Self {
        Self { tokens: self.tokens.max(other.tokens), cost_usd: self.cost_usd.max(other.cost_usd) }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        // Sums of fractions don't return to exactly 0.
        Self { tokens: self.tokens.saturating_sub(other.tokens), cost_usd: (self.cost_usd - other.cost_usd).max(0.0) }
    }
}

impl RequestEstimate {
    /// The longest reply for which this many tokens are left. A final request sends this prompt and this reply again, so
    /// the reply counts twice.
    pub(crate) fn by_tokens(&self, left: u64, least: u32) -> u32 {
        let left = left.saturating_sub(self.prompt_tokens);
        let longest = if self.reserves_final_request {
            left.saturating_sub(self.prompt_tokens + FINAL_PROMPT_EXTRA_TOKENS + u64::from(least)) / 2
        } else {
            left
        };
        u32::try_from(longest).unwrap_or(u32::MAX)
    }

    /// The longest reply for which this many US dollars are left.
    pub(crate) fn by_cost(&self, left: f64, least: u32) -> u32 {
        // A request without a known price isn't counted, and is allowed as long as counted ones are.
        let Some(rates) = self.rates else { return if left > 0.0 { u32::MAX } else { 0 } };
        let (input, output) = highest_rates(rates);
        let prompt = self.prompt_tokens as f64 * input;
        let (left, each) = if self.reserves_final_request {
            let last = prompt + FINAL_PROMPT_EXTRA_TOKENS as f64 * input + f64::from(least) * output;
            (left - prompt - last, output + input)
        } else {
            (left - prompt, output)
        };
        match left {
            left if left < 0.0 => 0,
            _ if each <= 0.0 => u32::MAX,
            // `as` saturates.
            left => (left / each) as u32,
        }
    }
}

/// The most that a request uses. Without rates it is free.
pub(super) fn worst_case_use(prompt_tokens: u64, max_tokens: u32, rates: Option<Rates>) -> Amount {
    let (input, output) = rates.map_or((0.0, 0.0), highest_rates);
    let cost = prompt_tokens as f64 * input + f64::from(max_tokens) * output;
    Amount { tokens: prompt_tokens.saturating_add(u64::from(max_tokens)), cost_usd: cost }
}

/// US dollars for a token of a prompt and of a reply. A prompt's new tokens may be written to a cache, which can cost
/// more than reading them.
fn highest_rates(rates: Rates) -> (f64, f64) {
    (rates.input.max(rates.cache_write) / 1e6, rates.output / 1e6)
}
