//! How long a reply may be so that no limit is overshot.

use super::{FINAL_PROMPT_EXTRA_TOKENS, MIN_REPLY_TOKENS, RequestEstimate};
use crate::pricing::Rates;

/// The limits' keys in the job file.
pub(super) const TOKENS_KEY: &str = "limits.tokens";
pub(super) const COST_KEY: &str = "limits.cost_usd";

/// What the limits leave; `None` where there is no such limit.
pub(super) struct Rest {
    pub(super) tokens: Option<u64>,
    /// US dollars; may be less than nothing.
    pub(super) cost: Option<f64>,
}

/// Room for a request.
pub(super) struct ReplyAllowance {
    /// The longest reply.
    pub(super) max_tokens: u32,
    /// The key of the limit that makes it shorter than wished; `limits` where none does.
    pub(super) limit: &'static str,
}

impl ReplyAllowance {
    /// The longest reply, at most as wished, that the rest has room for.
    ///
    /// # Errors
    /// The key of the limit that leaves too little.
    pub(super) fn within(wish: &RequestEstimate, rest: &Rest) -> Result<Self, &'static str> {
        let least = MIN_REPLY_TOKENS.min(wish.max_tokens);
        let mut room = Self { max_tokens: wish.max_tokens, limit: "limits" };
        let by_tokens = rest.tokens.map(|left| (TOKENS_KEY, by_tokens(wish, left, least)));
        let by_cost = rest.cost.map(|left| (COST_KEY, by_cost(wish, left, least)));
        for (limit, longest) in by_tokens.into_iter().chain(by_cost) {
            if longest < least {
                return Err(limit);
            }
            if longest < room.max_tokens {
                room = Self { max_tokens: longest, limit };
            }
        }
        Ok(room)
    }
}

/// The next prompt holds this prompt and this reply: so with a last request to come, the reply counts twice.
fn by_tokens(wish: &RequestEstimate, left: u64, least: u32) -> u32 {
    let longest = if wish.reserves_final_request {
        let last = wish.prompt_tokens.saturating_add(FINAL_PROMPT_EXTRA_TOKENS).saturating_add(u64::from(least));
        left.saturating_sub(wish.prompt_tokens).saturating_sub(last) / 2
    } else {
        left.saturating_sub(wish.prompt_tokens)
    };
    u32::try_from(longest).unwrap_or(u32::MAX)
}

fn by_cost(wish: &RequestEstimate, left: f64, least: u32) -> u32 {
    // What nobody knows the cost of isn't counted, and goes on for as long as what is counted may.
    let Some(rates) = wish.rates else { return if left > 0.0 { u32::MAX } else { 0 } };
    let (input, output) = highest_rates(rates);
    let prompt = wish.prompt_tokens as f64 * input;
    let (left, each) = if wish.reserves_final_request {
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

/// What a request uses at most: tokens and US dollars; without rates it costs nothing.
pub(super) fn worst_case_use(prompt_tokens: u64, max_tokens: u32, rates: Option<Rates>) -> (u64, f64) {
    let (input, output) = rates.map_or((0.0, 0.0), highest_rates);
    let cost = prompt_tokens as f64 * input + f64::from(max_tokens) * output;
    (prompt_tokens.saturating_add(u64::from(max_tokens)), cost)
}

/// US dollars for a token of a prompt and of a reply. A prompt's new tokens may be written to a cache, which can cost
/// more than reading them.
fn highest_rates(rates: Rates) -> (f64, f64) {
    (rates.input.max(rates.cache_write) / 1e6, rates.output / 1e6)
}
