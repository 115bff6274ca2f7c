//! The budget of a run: every request reserves what it may use at most, and settles with what it really used.

mod reply_allowance;

use std::sync::Mutex;

use tokio::sync::Notify;

pub use self::reply_allowance::{MIN_REPLY_TOKENS, RequestEstimate};
use self::reply_allowance::{ReplyAllowance, Rest};
use crate::event::LimitReached;
use crate::message::Usage;
use crate::plan::PlannedLimits;
use crate::pricing::Rates;

/// How many tokens of budget are held for the summary of a subagent.
pub const SUBAGENT_SUMMARY_TOKENS: u64 = 1_024;

/// The key of the limit on tool calls in the job file.
pub const TOOL_CALLS_KEY: &str = "limits.tool_calls";

/// What a request has reserved until its real usage is known. A reservation that is dropped counts as unused.
#[derive(Debug)]
#[must_use]
pub struct Reservation<'b> {
    /// The output tokens that the request may ask for: as many as it wants, or what is left.
    pub max_tokens: u32,
    /// The key of the limit that left less than the request wanted, if one did.
    pub limit: &'static str,
    /// The reserved tokens.
    pub tokens: u64,
    /// The most that they cost in US dollars; 0 where no rates were given.
    pub cost: f64,
    budget: &'b Budget,
}

/// What is held back for a later request until this is dropped.
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

/// The budget of a run, shared by all its agents.
#[derive(Debug)]
pub struct Budget {
    limits: PlannedLimits,
    ledger: Mutex<Ledger>,
    /// Notified when a reservation ends.
    settled: Notify,
}

impl Budget {
    /// Creates an unspent budget.
    pub fn new(limits: PlannedLimits) -> Self {
        Self { limits, ledger: Mutex::default(), settled: Notify::new() }
    }

    /// Adds what an earlier part of the run has spent.
    pub fn restore_spend(&self, tokens: u64, cost: f64, tool_calls: u64, subagents: u64) {
        let mut ledger = self.lock();
        ledger.tokens = ledger.tokens.saturating_add(tokens);
        ledger.cost += cost;
        ledger.tool_calls = ledger.tool_calls.saturating_add(tool_calls);
        ledger.subagents = ledger.subagents.saturating_add(subagents);
    }

    /// Reserves what a request may use at most: its prompt and its reply. The reply is shortened if less is left. The
    /// reservations of others neither shorten a reply nor end an agent: the request waits for them. It reserves nothing
    /// meanwhile, so agents can't deadlock.
    ///
    /// # Errors
    /// What is spent leaves less than [`MIN_REPLY_TOKENS`] for the reply.
    pub async fn reserve(&self, estimate: RequestEstimate) -> Result<Reservation<'_>, LimitReached> {
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            // From here on, no end of a reservation is missed.
            settled.as_mut().enable();
            if let Some(reservation) = self.try_reserve(estimate)? {
                return Ok(reservation);
            }
            settled.await;
        }
    }

    /// Returns `None` if the request must wait.
    fn try_reserve(&self, estimate: RequestEstimate) -> Result<Option<Reservation<'_>>, LimitReached> {
        let mut ledger = self.lock();
        let ReplyAllowance { max_tokens: alone, limit } = self.allowance(&ledger, false, &estimate)?;
        let max_tokens = if ledger.reservations == 0 {
            alone
        } else {
            match self.allowance(&ledger, true, &estimate) {
                Ok(room) if room.max_tokens >= alone => alone,
                _ => return Ok(None),
            }
        };
        let (tokens, cost) = reply_allowance::worst_case_use(estimate.prompt_tokens, max_tokens, estimate.rates);
        ledger.reservations += 1;
        ledger.reserved_tokens = ledger.reserved_tokens.saturating_add(tokens);
        ledger.reserved_cost += cost;
        Ok(Some(Reservation { max_tokens, limit, tokens, cost, budget: self }))
    }

    fn allowance(
        &self,
        ledger: &Ledger,
        with_reservations: bool,
        estimate: &RequestEstimate,
    ) -> Result<ReplyAllowance, LimitReached> {
        let tokens = ledger.tokens.saturating_add(ledger.held_tokens);
        let cost = ledger.cost + ledger.held_cost;
        let (tokens, cost) = if with_reservations {
            (tokens.saturating_add(ledger.reserved_tokens), cost + ledger.reserved_cost)
        } else {
            (tokens, cost)
        };
        let rest = Rest {
            tokens: self.limits.tokens.map(|limit| limit.saturating_sub(tokens)),
            cost: self.limits.cost_usd.map(|limit| limit - cost),
        };
        ReplyAllowance::within(estimate, &rest).map_err(|limit| self.limit_hit(ledger, limit, estimate))
    }

    fn limit_hit(&self, ledger: &Ledger, limit: &'static str, estimate: &RequestEstimate) -> LimitReached {
        let kept = |sum: Option<String>| match sum {
            Some(sum) => format!(", {sum} are held for agents that wait for their subagents"),
            None => String::new(),
        };
        let message = match (self.limits.cost_usd, self.limits.tokens) {
            (Some(all), _) if limit == reply_allowance::COST_KEY => {
                let kept = kept(Some(ledger.held_cost).filter(|cost| *cost > 0.0).map(|cost| format!("${cost:.4}")));
                format!("${:.4} of ${all:.4} are spent{kept}, and the rest isn't enough to go on", ledger.cost)
            }
            (_, Some(all)) if limit == reply_allowance::TOKENS_KEY => {
                let kept = kept(Some(ledger.held_tokens).filter(|tokens| *tokens > 0).map(|tokens| tokens.to_string()));
                let last =
                    if estimate.reserves_final_request { ", and the final request more than that again" } else { "" };
                format!(
                    "{} of {all} tokens are used{kept}, and the rest isn't enough to go on: the next prompt alone takes \
                     about {}{last}",
                    ledger.tokens, estimate.prompt_tokens
                )
            }
            _ => format!("{limit} leaves no room to go on"),
        };
        LimitReached::new(limit, message)
    }

    /// Holds back enough for a request with this prompt and a short reply, for an agent that waits while others spend.
    pub fn hold(&self, prompt_tokens: u64, rates: Option<Rates>) -> BudgetHold<'_> {
        let (tokens, cost) = reply_allowance::worst_case_use(prompt_tokens, MIN_REPLY_TOKENS, rates);
        let mut ledger = self.lock();
        ledger.held_tokens = ledger.held_tokens.saturating_add(tokens);
        ledger.held_cost += cost;
        BudgetHold { tokens, cost, budget: self }
    }

    /// Counts a tool call that is about to be made.
    ///
    /// # Errors
    /// The limit is reached; the call must not be made.
    pub fn count_call(&self) -> Result<(), LimitReached> {
        let mut ledger = self.lock();
        count(&mut ledger.tool_calls, self.limits.tool_calls, TOOL_CALLS_KEY, "tool calls")
    }

    /// Counts a subagent that is about to be started.
    ///
    /// # Errors
    /// The limit is reached; the subagent must not be started.
    pub fn count_subagent(&self) -> Result<(), LimitReached> {
        let mut ledger = self.lock();
        count(&mut ledger.subagents, self.limits.subagents, "limits.subagents", "subagents")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Reservation<'_> {
    /// Counts what a failed try has used. The reservation stays for the next try.
    ///
    /// # Errors
    /// The limits have no room for another try.
    pub fn count_failed(&self, used: &Usage, cost: Option<f64>) -> Result<(), LimitReached> {
        let mut ledger = self.budget.lock();
        ledger.add(used, cost.unwrap_or(self.cost));
        let limits = &self.budget.limits;
        let tokens = ledger.tokens.saturating_add(ledger.held_tokens).saturating_add(ledger.reserved_tokens);
        let cost = ledger.cost + ledger.held_cost + ledger.reserved_cost;
        let over = match (limits.tokens, limits.cost_usd) {
            (Some(limit), _) if tokens > limit => reply_allowance::TOKENS_KEY,
            (_, Some(limit)) if cost > limit => reply_allowance::COST_KEY,
            _ => return Ok(()),
        };
        Err(LimitReached::new(over, "failed requests have used what another try would need"))
    }

    /// Replaces the reservation by what was really used. An unknown cost counts as what was reserved.
    pub fn settle(self, used: &Usage, cost: Option<f64>) {
        self.budget.lock().add(used, cost.unwrap_or(self.cost));
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        {
            let mut ledger = self.budget.lock();
            ledger.reservations = ledger.reservations.saturating_sub(1);
            ledger.reserved_tokens = ledger.reserved_tokens.saturating_sub(self.tokens);
            // Sums of fractions don't return to exactly 0.
            let rest = (ledger.reserved_cost - self.cost).max(0.0);
            ledger.reserved_cost = if ledger.reservations == 0 { 0.0 } else { rest };
        }
        self.budget.settled.notify_waiters();
    }
}

impl Drop for BudgetHold<'_> {
    fn drop(&mut self) {
        let mut ledger = self.budget.lock();
        ledger.held_tokens = ledger.held_tokens.saturating_sub(self.tokens);
        ledger.held_cost = (ledger.held_cost - self.cost).max(0.0);
        drop(ledger);
        self.budget.settled.notify_waiters();
    }
}

impl Ledger {
    fn add(&mut self, used: &Usage, cost: f64) {
        self.tokens = self.tokens.saturating_add(used.total());
        self.cost += cost;
    }
}

fn count(used: &mut u64, limit: Option<u64>, key: &str, what: &str) -> Result<(), LimitReached> {
    if let Some(limit) = limit.filter(|limit| *used >= *limit) {
        return Err(LimitReached::new(key, format!("the run has used all its {limit} {what}")));
    }
    *used += 1;
    Ok(())
}

#[cfg(test)]
mod tests;
