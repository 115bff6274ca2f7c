//! How long a reply may be without exceeding a limit.

use crate::pricing::Rates;

/// The least tokens of a reply. If less is left, the limit is reached.
pub const MIN_REPLY_TOKENS: u32 = 256;

/// How many tokens a prompt may grow before the final request: short results of calls, and the note. Longer results are
/// truncated for that request.
pub(super) const FINAL_PROMPT_EXTRA_TOKENS: u64 = 256;

/// The limits' keys in the job file.
pub(super) const TOKENS_KEY: &str = "limits.tokens";
pub(super) const COST_KEY: &str = "limits.cost_usd";

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

/// What the limits leave; `None` where there is no such limit.
pub(super) struct Rest {
    pub(super) tokens: Option<u64>,
    /// In US dollars; can be negative.
    pub(super) cost: Option<f64>,
}

/// How long a reply may be.
pub(super) struct ReplyAllowance {
    /// The longest reply.
    pub(super) max_tokens: u32,
    /// The key of the limit that makes it shorter than the request wants; `limits` if none does.
    pub(super) limit: &'static str,
}

impl ReplyAllowance {
    /// The longest reply, at most what the request wants, that the rest has room for.
    ///
    /// # Errors
    /// The key of the limit that leaves too little.
    pub(super) fn within(estimate: &RequestEstimate, rest: &Rest) -> Result<Self, &'static str> {
        let least = MIN_REPLY_TOKENS.min(estimate.max_tokens);
        let mut allowance = Self { max_tokens: estimate.max_tokens, limit: "limits" };
        let by_tokens = rest.tokens.map(|left| (TOKENS_KEY, by_tokens(estimate, left, least)));
        let by_cost = rest.cost.map(|left| (COST_KEY, by_cost(estimate, left, least)));
        for (limit, longest) in by_tokens.into_iter().chain(by_cost) {
            if longest < least {
                return Err(limit);
            }
            if longest < allowance.max_tokens {
                allowance = Self { max_tokens: longest, limit };
            }
        }
        Ok(allowance)
    }
}

/// A final request sends this prompt and this reply again, so the reply counts twice.
fn by_tokens(estimate: &RequestEstimate, left: u64, least: u32) -> u32 {
    let longest = if estimate.reserves_final_request {
        let last = estimate.prompt_tokens.saturating_add(FINAL_PROMPT_EXTRA_TOKENS).saturating_add(u64::from(least));
        left.saturating_sub(estimate.prompt_tokens).saturating_sub(last) / 2
    } else {
        left.saturating_sub(estimate.prompt_tokens)
    };
    u32::try_from(longest).unwrap_or(u32::MAX)
}

fn by_cost(estimate: &RequestEstimate, left: f64, least: u32) -> u32 {
    // A request without a known price isn't counted, and is allowed as long as counted ones are.
    let Some(rates) = estimate.rates else { return if left > 0.0 { u32::MAX } else { 0 } };
    let (input, output) = highest_rates(rates);
    let prompt = estimate.prompt_tokens as f64 * input;
    let (left, each) = if estimate.reserves_final_request {
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

/// The most that a request uses, in tokens and US dollars. Without rates it is free.
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
