//! What the whole tree may spend: reserved before it is spent, settled with what was really used.

mod reply_allowance;

use std::sync::Mutex;

use tokio::sync::Notify;

use self::reply_allowance::{ReplyAllowance, Rest};
use crate::event::LimitReached;
use crate::message::Usage;
use crate::plan::PlannedLimits;
use crate::pricing::Rates;

/// A reply needs room for at least this many tokens; where less is left, the limit is reached.
pub const MIN_REPLY_TOKENS: u32 = 256;

/// A subagent's summary may come to so many tokens, as far as room is kept for it.
pub const SUBAGENT_SUMMARY_TOKENS: u64 = 1_024;

/// So many tokens are kept for what comes to a prompt before the last request: short answers to calls, and our own note.
/// Where longer answers leave no room, they are shortened for that request.
const FINAL_PROMPT_EXTRA_TOKENS: u64 = 256;

/// A limit of the tree that leaves no room for the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitHit {
    /// Its key in the job file.
    pub limit: &'static str,
    /// What happened, in one sentence.
    pub message: String,
}

impl LimitHit {
    /// What the model is told of a call that isn't run for it.
    pub fn refusal(&self) -> String {
        format!("Not run: {}.", self.message)
    }
}

impl From<&LimitReached> for LimitHit {
    fn from(reached: &LimitReached) -> Self {
        const KEYS: &[&str] =
            &["max_turns", "stuck", "limits.tokens", "limits.cost_usd", "limits.tool_calls", "limits.subagents"];
        let limit = KEYS.iter().copied().find(|key| *key == reached.limit).unwrap_or("limits");
        Self { limit, message: reached.message.clone() }
    }
}

/// A request that is about to be made.
#[derive(Debug, Clone, Copy)]
pub struct RequestEstimate {
    /// Its prompt, as estimated.
    pub prompt_tokens: u64,
    /// The longest reply that is wanted.
    pub max_tokens: u32,
    /// What its model's tokens cost; only looked at where costs are bounded. Without, the request counts as costing nothing.
    pub rates: Option<Rates>,
    /// Whether it is made only where, after it, one more can be made: with its prompt, its whole reply, and a little.
    pub reserves_final_request: bool,
}

/// What a request has set aside until its real usage is known. Where it is dropped, nothing was used.
#[derive(Debug)]
#[must_use]
pub struct Reservation<'b> {
    /// The output tokens that the request may ask for: as wished, or what is left.
    pub max_tokens: u32,
    /// The key of the limit that left less than wished, where that is so.
    pub limit: &'static str,
    /// Tokens set aside.
    pub tokens: u64,
    /// What they cost at most in US dollars; 0 where no rates were given.
    pub cost: f64,
    budget: &'b Budget,
}

/// What is kept from all others for a request that comes later, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct BudgetHold<'b> {
    tokens: u64,
    cost: f64,
    budget: &'b Budget,
}

#[derive(Debug, Default)]
struct Ledger {
    tokens: u64,
    cost: f64,
    held_tokens: u64,
    held_cost: f64,
    reservations: usize,
    reserved_tokens: u64,
    reserved_cost: f64,
    tool_calls: u64,
    subagents: u64,
}

/// The tree's one budget, shared by all its agents.
#[derive(Debug)]
pub struct Budget {
    limits: PlannedLimits,
    ledger: Mutex<Ledger>,
    /// Told whenever a reservation ends.
    settled: Notify,
}

impl Budget {
    /// A budget of which nothing is spent.
    pub fn new(limits: PlannedLimits) -> Self {
        Self { limits, ledger: Mutex::default(), settled: Notify::new() }
    }

    /// Takes over what an earlier part of the run has spent.
    pub fn restore_spend(&self, tokens: u64, cost: f64, tool_calls: u64, subagents: u64) {
        let mut spent = self.lock();
        spent.tokens = spent.tokens.saturating_add(tokens);
        spent.cost += cost;
        spent.tool_calls = spent.tool_calls.saturating_add(tool_calls);
        spent.subagents = spent.subagents.saturating_add(subagents);
    }

    /// Sets aside what a request may use at most: its prompt and its reply, which is lowered to what is left where that
    /// is less. What others have only reserved makes no reply shorter and ends nobody: the request waits for them. It
    /// holds nothing by then, so agents can't wait for each other in a circle.
    ///
    /// # Errors
    /// Where what is spent leaves less than [`LEAST_REPLY_TOKENS`] for the reply.
    pub async fn reserve(&self, wish: RequestEstimate) -> Result<Reservation<'_>, LimitHit> {
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            // From here on no end of a reservation is missed.
            settled.as_mut().enable();
            if let Some(reservation) = self.try_reserve(wish)? {
                return Ok(reservation);
            }
            settled.await;
        }
    }

    /// `None` where it must wait.
    fn try_reserve(&self, wish: RequestEstimate) -> Result<Option<Reservation<'_>>, LimitHit> {
        let mut spent = self.lock();
        let ReplyAllowance { max_tokens: alone, limit } = self.allowance(&spent, false, &wish)?;
        let max_tokens = if spent.reservations == 0 {
            alone
        } else {
            match self.allowance(&spent, true, &wish) {
                Ok(room) if room.max_tokens >= alone => alone,
                _ => return Ok(None),
            }
        };
        let (tokens, cost) = reply_allowance::worst_case_use(wish.prompt_tokens, max_tokens, wish.rates);
        spent.reservations += 1;
        spent.reserved_tokens = spent.reserved_tokens.saturating_add(tokens);
        spent.reserved_cost += cost;
        Ok(Some(Reservation { max_tokens, limit, tokens, cost, budget: self }))
    }

    fn allowance(
        &self,
        spent: &Ledger,
        with_reservations: bool,
        wish: &RequestEstimate,
    ) -> Result<ReplyAllowance, LimitHit> {
        let tokens = spent.tokens.saturating_add(spent.held_tokens);
        let cost = spent.cost + spent.held_cost;
        let (tokens, cost) = if with_reservations {
            (tokens.saturating_add(spent.reserved_tokens), cost + spent.reserved_cost)
        } else {
            (tokens, cost)
        };
        let rest = Rest {
            tokens: self.limits.tokens.map(|limit| limit.saturating_sub(tokens)),
            cost: self.limits.cost_usd.map(|limit| limit - cost),
        };
        ReplyAllowance::within(wish, &rest).map_err(|limit| self.limit_hit(spent, limit, wish))
    }

    fn limit_hit(&self, spent: &Ledger, limit: &'static str, wish: &RequestEstimate) -> LimitHit {
        let kept = |sum: Option<String>| match sum {
            Some(sum) => format!(", {sum} are kept for whoever waits for a subagent"),
            None => String::new(),
        };
        let message = match (self.limits.cost_usd, self.limits.tokens) {
            (Some(all), _) if limit == reply_allowance::COST_KEY => {
                let kept = kept(Some(spent.held_cost).filter(|cost| *cost > 0.0).map(|cost| format!("${cost:.4}")));
                format!("${:.4} of ${all:.4} are spent{kept}, and the rest isn't enough to go on", spent.cost)
            }
            (_, Some(all)) if limit == reply_allowance::TOKENS_KEY => {
                let kept = kept(Some(spent.held_tokens).filter(|tokens| *tokens > 0).map(|tokens| tokens.to_string()));
                let last =
                    if wish.reserves_final_request { ", and the request to sum up more than that again" } else { "" };
                format!(
                    "{} of {all} tokens are used{kept}, and the rest isn't enough to go on: the next prompt alone takes \
                     about {}{last}",
                    spent.tokens, wish.prompt_tokens
                )
            }
            _ => format!("{limit} leaves no room to go on"),
        };
        LimitHit { limit, message }
    }

    /// Keeps room for a request with such a prompt and a short reply: for one who waits while others spend.
    pub fn hold(&self, prompt_tokens: u64, rates: Option<Rates>) -> BudgetHold<'_> {
        let (tokens, cost) = reply_allowance::worst_case_use(prompt_tokens, MIN_REPLY_TOKENS, rates);
        let mut spent = self.lock();
        spent.held_tokens = spent.held_tokens.saturating_add(tokens);
        spent.held_cost += cost;
        BudgetHold { tokens, cost, budget: self }
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Reservation<'_> {
    /// Counts what a failed try has used; what was set aside stays so for the next one.
    ///
    /// # Errors
    /// Where the limits have no room for a next one beside it.
    pub fn count_failed(&self, used: &Usage, cost: Option<f64>) -> Result<(), LimitHit> {
        let mut spent = self.budget.lock();
        spent.add(used, cost.unwrap_or(self.cost));
        let limits = &self.budget.limits;
        let tokens = spent.tokens.saturating_add(spent.held_tokens).saturating_add(spent.reserved_tokens);
        let cost = spent.cost + spent.held_cost + spent.reserved_cost;
        let over = match (limits.tokens, limits.cost_usd) {
            (Some(limit), _) if tokens > limit => reply_allowance::TOKENS_KEY,
            (_, Some(limit)) if cost > limit => reply_allowance::COST_KEY,
            _ => return Ok(()),
        };
        Err(LimitHit { limit: over, message: "failed requests have used what another try would need".to_owned() })
    }

    /// Replaces what was set aside by what was really used. A cost that isn't known counts as what was set aside.
    pub fn settle(self, used: &Usage, cost: Option<f64>) {
        self.budget.lock().add(used, cost.unwrap_or(self.cost));
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        {
            let mut spent = self.budget.lock();
            spent.reservations = spent.reservations.saturating_sub(1);
            spent.reserved_tokens = spent.reserved_tokens.saturating_sub(self.tokens);
            // Sums of fractions don't come back to nothing by themselves.
            let rest = (spent.reserved_cost - self.cost).max(0.0);
            spent.reserved_cost = if spent.reservations == 0 { 0.0 } else { rest };
        }
        self.budget.settled.notify_waiters();
    }
}

impl Drop for BudgetHold<'_> {
    fn drop(&mut self) {
        let mut spent = self.budget.lock();
        spent.held_tokens = spent.held_tokens.saturating_sub(self.tokens);
        spent.held_cost = (spent.held_cost - self.cost).max(0.0);
        drop(spent);
        self.budget.settled.notify_waiters();
    }
}

impl Ledger {
    fn add(&mut self, used: &Usage, cost: f64) {
        self.tokens = self.tokens.saturating_add(used.total());
        self.cost += cost;
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
mod tests;
