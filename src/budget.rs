//! What the whole tree may spend: reserved before it is spent, settled with what was really used.

use std::sync::Mutex;

use crate::message::Usage;
use crate::plan::PlannedLimits;
use crate::price::Rates;

/// A reply needs room for at least this many tokens; where less is left, the limit is reached.
pub const LEAST_REPLY_TOKENS: u32 = 256;

/// A limit of the tree that leaves no room for the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitHit {
    /// Its key in the job file.
    pub limit: &'static str,
    /// What happened, in one sentence.
    pub message: String,
}

/// What a request sets aside until its real usage is known. Settle it, also when the request failed.
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    /// The output tokens that the request may ask for: as wished, or what is left.
    pub max_tokens: u32,
    /// Tokens set aside.
    pub tokens: u64,
    cost: f64,
}

#[derive(Debug, Default)]
struct Spent {
    tokens: u64,
    reserved_tokens: u64,
    cost: f64,
    reserved_cost: f64,
    tool_calls: u64,
    subagents: u64,
}

/// The tree's one budget, shared by all its agents.
#[derive(Debug)]
pub struct Budget {
    limits: PlannedLimits,
    spent: Mutex<Spent>,
}

impl Budget {
    /// A budget of which nothing is spent.
    pub fn new(limits: PlannedLimits) -> Self {
        Self { limits, spent: Mutex::default() }
    }

    /// Whether costs are bounded, so that a request can't be made without knowing its model's rates.
    pub fn bounds_cost(&self) -> bool {
        self.limits.cost_usd.is_some()
    }

    /// Sets aside what a request may use at most: its prompt as estimated and its reply, which is lowered to what is
    /// left where that is less.
    ///
    /// # Errors
    /// Where less than [`LEAST_REPLY_TOKENS`] would be left for the reply.
    pub fn reserve(&self, prompt_tokens: u64, wish: u32, rates: Option<Rates>) -> Result<Reservation, LimitHit> {
        let mut spent = self.lock();
        let mut max_tokens = u64::from(wish);
        let least = u64::from(LEAST_REPLY_TOKENS.min(wish));
        if let Some(limit) = self.limits.tokens {
            let left = limit.saturating_sub(spent.tokens.saturating_add(spent.reserved_tokens));
            max_tokens = max_tokens.min(left.saturating_sub(prompt_tokens));
            if max_tokens < least {
                return Err(LimitHit {
                    limit: "limits.tokens",
                    message: format!(
                        "{} of {limit} tokens are used, and the next request needs about {prompt_tokens} for its prompt alone",
                        spent.tokens
                    ),
                });
            }
        }
        // A prompt's new tokens may be written to a cache, which can cost more than reading them.
        let (input, output) =
            rates.map_or((0.0, 0.0), |rates| (rates.input.max(rates.cache_write) / 1e6, rates.output / 1e6));
        if let Some(limit) = self.limits.cost_usd {
            let left = limit - spent.cost - spent.reserved_cost - prompt_tokens as f64 * input;
            if output > 0.0 {
                // `as` saturates: a negative rest is no tokens.
                max_tokens = max_tokens.min((left / output) as u64);
            }
            if max_tokens < least || left < 0.0 {
                return Err(LimitHit {
                    limit: "limits.cost_usd",
                    message: format!(
                        "${:.4} of ${limit:.4} are spent, and the rest isn't enough for the next request",
                        spent.cost
                    ),
                });
            }
        }
        let reservation = Reservation {
            max_tokens: u32::try_from(max_tokens).unwrap_or(wish),
            tokens: prompt_tokens.saturating_add(max_tokens),
            cost: prompt_tokens as f64 * input + max_tokens as f64 * output,
        };
        spent.reserved_tokens = spent.reserved_tokens.saturating_add(reservation.tokens);
        spent.reserved_cost += reservation.cost;
        Ok(reservation)
    }

    /// Replaces a reservation by what was really used.
    pub fn settle(&self, reservation: &Reservation, used: &Usage, cost: Option<f64>) {
        let mut spent = self.lock();
        spent.reserved_tokens = spent.reserved_tokens.saturating_sub(reservation.tokens);
        spent.reserved_cost = (spent.reserved_cost - reservation.cost).max(0.0);
        spent.tokens = spent.tokens.saturating_add(used.total());
        spent.cost += cost.unwrap_or(0.0);
    }

    /// Counts a tool call that is about to be made.
    ///
    /// # Errors
    /// Where the limit is reached; the call must not be made.
    pub fn count_call(&self) -> Result<(), LimitHit> {
        let mut spent = self.lock();
        count(&mut spent.tool_calls, self.limits.tool_calls, "limits.tool_calls", "tool calls")
    }

    /// Counts a subagent that is about to be started.
    ///
    /// # Errors
    /// Where the limit is reached; the subagent must not be started.
    pub fn count_subagent(&self) -> Result<(), LimitHit> {
        let mut spent = self.lock();
        count(&mut spent.subagents, self.limits.subagents, "limits.subagents", "subagents")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn count(used: &mut u64, limit: Option<u64>, key: &'static str, what: &str) -> Result<(), LimitHit> {
    if let Some(limit) = limit
        && *used >= limit
    {
        return Err(LimitHit { limit: key, message: format!("the run has used all its {limit} {what}") });
    }
    *used += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> PlannedLimits {
        PlannedLimits {
            cost_usd: None,
            tokens: None,
            wall_clock_ms: None,
            tool_calls: None,
            subagents: None,
            parallel_subagents: 1,
        }
    }

    fn used(tokens: u64) -> Usage {
        Usage { input_tokens: tokens, ..Usage::default() }
    }

    #[test]
    fn a_reply_is_lowered_to_what_is_left_and_then_refused() {
        let budget = Budget::new(PlannedLimits { tokens: Some(2_000), ..limits() });
        let first = budget.reserve(500, 1_000, None).unwrap();
        assert_eq!(first.max_tokens, 1_000);
        assert_eq!(budget.reserve(100, 1_000, None).unwrap().max_tokens, 400, "what others reserved is not left");
        assert_eq!(budget.reserve(100, 1_000, None).unwrap_err().limit, "limits.tokens");
        budget.settle(&first, &used(600), None);
        assert_eq!(budget.reserve(100, 1_000, None).unwrap().max_tokens, 800, "what wasn't used comes back");
    }

    #[test]
    fn cost_counts_prompt_and_reply() {
        let budget = Budget::new(PlannedLimits { cost_usd: Some(1.0), ..limits() });
        let rates = Some(Rates { input: 100.0, output: 1000.0, cache_read: 10.0, cache_write: 100.0 });
        let first = budget.reserve(1_000, 10_000, rates).unwrap();
        assert_eq!(first.max_tokens, 900);
        assert_eq!(budget.reserve(1, 10_000, rates).unwrap_err().limit, "limits.cost_usd");
        budget.settle(&first, &used(1_000), Some(0.1));
        assert_eq!(budget.reserve(0, 10_000, rates).unwrap().max_tokens, 900);
    }

    #[test]
    fn a_small_wish_is_no_reached_limit() {
        let budget = Budget::new(PlannedLimits { tokens: Some(100), ..limits() });
        assert_eq!(budget.reserve(10, 50, None).unwrap().max_tokens, 50);
    }

    #[test]
    fn calls_and_subagents_are_counted_to_their_limit() {
        let budget = Budget::new(PlannedLimits { tool_calls: Some(1), subagents: Some(1), ..limits() });
        budget.count_call().unwrap();
        assert_eq!(budget.count_call().unwrap_err().limit, "limits.tool_calls");
        budget.count_subagent().unwrap();
        assert_eq!(budget.count_subagent().unwrap_err().limit, "limits.subagents");
    }
}
