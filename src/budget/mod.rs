//! The budget of a run: every request reserves what it may use at most, and settles with what it really used.

mod request_estimate;

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use self::request_estimate::worst_case_use;
pub use self::request_estimate::{Amount, MIN_REPLY_TOKENS, RequestEstimate, ReserveError};
use crate::event::LimitReached;
use crate::message::Usage;
use crate::plan::PlannedLimits;
use crate::pricing::Rates;
use crate::sync::IgnorePoison;

/// How many tokens of budget are held for the summary of a subagent.
pub const SUBAGENT_SUMMARY_TOKENS: u64 = 1_024;

/// The key of the limit on tool calls in the job file.
pub const TOOL_CALLS_KEY: &str = "limits.tool_calls";
/// The key of a map's limits in a row's record.
pub const MAP_LIMIT: &str = "limits.map";
/// The key of a reservation that no limit has made shorter.
const NO_LIMIT: &str = "limits";
const TOKENS_KEY: &str = "limits.tokens";
const COST_KEY: &str = "limits.cost_usd";

/// A budget that several runs share, in this process and in others: that of a map.
pub trait SharedBudget: std::fmt::Debug + Send + Sync {
    /// Reserves what a request may use at most. It waits while only reservations are in its way that others may return. Returns
    /// the length of a shorter reply if only that fits; nothing is reserved then.
    fn reserve<'a>(
        &'a self,
        estimate: &'a RequestEstimate,
        most: Amount,
        max_tokens: u32,
    ) -> BoxFuture<'a, Result<Option<u32>, ReserveError>>;

    /// Counts what a request has really used.
    fn count(&self, used: Amount);

    /// Counts what a request that was stopped may have used beyond what was received.
    fn count_unknown(&self, most: Amount);

    /// Returns a reservation.
    fn release(&self, most: Amount);
}

/// What a request has reserved until its real usage is known. A reservation that is dropped counts as unused before the
/// request is sent, and as used in full afterwards.
#[derive(Debug)]
#[must_use]
pub struct Reservation<'b> {
    /// The output tokens that the request may ask for: as many as it wants, or what is left.
    pub max_tokens: u32,
    /// The key of the limit that left less than the request wanted, if one did.
    pub limit: &'static str,
    /// What is reserved.
    pub most: Amount,
    /// Whether the same is reserved from the map's budget.
    in_map: bool,
    /// Whether the request was sent and has no known end.
    is_sent: bool,
    budget: &'b Budget,
}

/// What is held back for a later request until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct BudgetHold<'b> {
    held: Amount,
    budget: &'b Budget,
}

#[derive(Debug, Default)]
struct RunLedger {
    spent: Amount,
    held: Amount,
    reserved: Amount,
    reservations: usize,
    tool_calls: u64,
    subagents: u64,
}

/// The budget of a run, shared by all its agents.
#[derive(Debug)]
pub struct Budget {
    limits: PlannedLimits,
    ledger: Mutex<RunLedger>,
    /// Notified when a reservation ends.
    settled: Notify,
    /// The budget of the map that the run is a row of.
    map: Option<Arc<dyn SharedBudget>>,
}

impl Budget {
    /// Creates an unspent budget.
    pub fn new(limits: PlannedLimits) -> Self {
        Self { limits, ledger: Mutex::default(), settled: Notify::new(), map: None }
    }

    /// Lets every request also reserve from the budget of a map, if there is one.
    #[must_use]
    pub fn within_map(mut self, map: Option<Arc<dyn SharedBudget>>) -> Self {
        self.map = map;
        self
    }

    /// Adds what an earlier part of the run has spent.
    pub fn restore_spend(&self, spent: Amount, tool_calls: u64, subagents: u64) {
        let mut ledger = self.lock();
        ledger.spent = ledger.spent.plus(spent);
        ledger.tool_calls = ledger.tool_calls.saturating_add(tool_calls);
        ledger.subagents = ledger.subagents.saturating_add(subagents);
    }

    /// Reserves what a request may use at most: its prompt and its reply. The reply is shortened if less is left. The
    /// reservations of others neither shorten a reply nor end an agent: the request waits for them. It reserves nothing
    /// meanwhile, so agents can't deadlock.
    ///
    /// # Errors
    /// What is spent leaves less than [`MIN_REPLY_TOKENS`] for the reply, or the ledger of the map can't be used.
    pub async fn reserve(&self, mut estimate: RequestEstimate) -> Result<Reservation<'_>, ReserveError> {
        let planned = estimate.max_tokens;
        loop {
            let mut reservation = self.reserve_from_run(estimate).await.map_err(ReserveError::Limit)?;
            let Some(map) = &self.map else { return Ok(reservation) };
            match map.reserve(&estimate, reservation.most, reservation.max_tokens).await? {
                // The run's own reservation must have the same size, so it is made again.
                Some(shorter) => estimate.max_tokens = shorter,
                None => {
                    reservation.in_map = true;
                    if estimate.max_tokens < planned && reservation.limit == NO_LIMIT {
                        reservation.limit = MAP_LIMIT;
                    }
                    return Ok(reservation);
                }
            }
        }
    }

    async fn reserve_from_run(&self, estimate: RequestEstimate) -> Result<Reservation<'_>, LimitReached> {
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            // From here on, no end of a reservation is missed.
            settled.as_mut().enable();
            if let Some(reservation) = self.try_reserve(&estimate)? {
                return Ok(reservation);
            }
            settled.await;
        }
    }

    /// Returns `None` if the request must wait.
    fn try_reserve(&self, estimate: &RequestEstimate) -> Result<Option<Reservation<'_>>, LimitReached> {
        let mut ledger = self.lock();
        let used = ledger.spent.plus(ledger.held);
        let (max_tokens, limit) =
            self.longest_reply(used, estimate).map_err(|limit| self.limit_reached(&ledger, limit, estimate))?;
        let with_others = self.longest_reply(used.plus(ledger.reserved), estimate);
        if ledger.reservations > 0 && !with_others.is_ok_and(|(left, _)| left >= max_tokens) {
            return Ok(None);
        }
        let most = worst_case_use(estimate.prompt_tokens, max_tokens, estimate.rates);
        ledger.reservations += 1;
        ledger.reserved = ledger.reserved.plus(most);
        Ok(Some(Reservation { max_tokens, limit, most, in_map: false, is_sent: false, budget: self }))
    }

    /// The longest reply, at most what the request wants, if this much is used, with the key of the limit that makes it
    /// shorter; `limits` if none does.
    ///
    /// # Errors
    /// The key of the limit that leaves too little.
    fn longest_reply(&self, used: Amount, estimate: &RequestEstimate) -> Result<(u32, &'static str), &'static str> {
        let least = MIN_REPLY_TOKENS.min(estimate.max_tokens);
        let by_tokens = |limit: u64| (TOKENS_KEY, estimate.by_tokens(limit.saturating_sub(used.tokens), least));
        let by_cost = |limit: f64| (COST_KEY, estimate.by_cost(limit - used.cost_usd, least));
        let mut longest = (estimate.max_tokens, NO_LIMIT);
        let limits = self.limits.tokens.map(by_tokens).into_iter().chain(self.limits.cost_usd.map(by_cost));
        for (limit, tokens) in limits {
            if tokens < least {
                return Err(limit);
            }
            if tokens < longest.0 {
                longest = (tokens, limit);
            }
        }
        Ok(longest)
    }

    fn limit_reached(&self, ledger: &RunLedger, limit: &'static str, estimate: &RequestEstimate) -> LimitReached {
        let RunLedger { spent, held, .. } = ledger;
        let held_for = "are held for agents that wait for their subagents";
        let message = if limit == COST_KEY {
            let all = self.limits.cost_usd.unwrap_or_default();
            let held = if held.cost_usd > 0.0 { format!(", ${:.4} {held_for}", held.cost_usd) } else { String::new() };
            format!("${:.4} of ${all:.4} are spent{held}, and the rest isn't enough to continue", spent.cost_usd)
        } else {
            let all = self.limits.tokens.unwrap_or_default();
            let held = if held.tokens > 0 { format!(", {} {held_for}", held.tokens) } else { String::new() };
            let last = match estimate.reserves_final_request {
                true => ", and the final request more than that again",
                false => "",
            };
            format!(
                "{} of {all} tokens are used{held}, and the rest isn't enough to continue: the next prompt alone takes \
                 about {}{last}",
                spent.tokens, estimate.prompt_tokens
            )
        };
        LimitReached::new(limit, message)
    }

    /// Holds back enough for a request with this prompt and a short reply, for an agent that waits while others spend.
    pub fn hold(&self, prompt_tokens: u64, rates: Option<Rates>) -> BudgetHold<'_> {
        let held = worst_case_use(prompt_tokens, MIN_REPLY_TOKENS, rates);
        let mut ledger = self.lock();
        ledger.held = ledger.held.plus(held);
        BudgetHold { held, budget: self }
    }

    /// Counts a tool call that is about to be made.
    ///
    /// # Errors
    /// The limit is reached; the call must not be made.
    pub fn count_call(&self) -> Result<(), LimitReached> {
        count(&mut self.lock().tool_calls, self.limits.tool_calls, TOOL_CALLS_KEY, "tool calls")
    }

    /// Counts a subagent that is about to be started.
    ///
    /// # Errors
    /// The limit is reached; the subagent must not be started.
    pub fn count_subagent(&self) -> Result<(), LimitReached> {
        count(&mut self.lock().subagents, self.limits.subagents, "limits.subagents", "subagents")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RunLedger> {
        self.ledger.lock().ignore_poison()
    }
}

impl Reservation<'_> {
    /// To be called before the request is sent.
    pub fn mark_sent(&mut self) {
        self.is_sent = true;
    }

    /// Counts what a failed try has used. The reservation stays for the next try.
    ///
    /// # Errors
    /// The limits have no room for another try.
    pub fn count_failed(&self, used: &Usage, cost: Option<f64>) -> Result<(), LimitReached> {
        self.count(used, cost);
        let ledger = self.budget.lock();
        let all = ledger.spent.plus(ledger.held).plus(ledger.reserved);
        let limits = &self.budget.limits;
        let over = match (limits.tokens, limits.cost_usd) {
            (Some(limit), _) if all.tokens > limit => TOKENS_KEY,
            (_, Some(limit)) if all.cost_usd > limit => COST_KEY,
            _ => return Ok(()),
        };
        Err(LimitReached::new(over, "failed requests have used what another try would need"))
    }

    /// Replaces the reservation by what was really used. An unknown cost counts as what was reserved.
    pub fn settle(mut self, used: &Usage, cost: Option<f64>) {
        self.is_sent = false;
        self.count(used, cost);
    }

    /// Ends the reservation of a request that was stopped, of which this much had arrived. The provider may count more, so the
    /// budget counts what was reserved.
    pub fn interrupt(mut self, received: &Usage, cost: Option<f64>) {
        self.is_sent = false;
        let received = Amount { tokens: received.total(), cost_usd: cost.unwrap_or(self.most.cost_usd) };
        let mut ledger = self.budget.lock();
        ledger.spent = ledger.spent.plus(self.most);
        drop(ledger);
        if let Some(map) = &self.budget.map {
            map.count(received);
            map.count_unknown(self.most.minus(received));
        }
    }

    fn count(&self, used: &Usage, cost: Option<f64>) {
        let used = Amount { tokens: used.total(), cost_usd: cost.unwrap_or(self.most.cost_usd) };
        let mut ledger = self.budget.lock();
        ledger.spent = ledger.spent.plus(used);
        drop(ledger);
        if let Some(map) = &self.budget.map {
            map.count(used);
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.is_sent {
            let mut ledger = self.budget.lock();
            ledger.spent = ledger.spent.plus(self.most);
            drop(ledger);
            if let Some(map) = &self.budget.map {
                map.count_unknown(self.most);
            }
        }
        let mut ledger = self.budget.lock();
        ledger.reservations = ledger.reservations.saturating_sub(1);
        // Sums of fractions don't return to exactly 0.
        ledger.reserved = if ledger.reservations == 0 { Amount::default() } else { ledger.reserved.minus(self.most) };
        drop(ledger);
        self.budget.settled.notify_waiters();
        if let Some(map) = self.budget.map.as_ref().filter(|_| self.in_map) {
            map.release(self.most);
        }
    }
}

impl Drop for BudgetHold<'_> {
    fn drop(&mut self) {
        let mut ledger = self.budget.lock();
        ledger.held = ledger.held.minus(self.held);
        drop(ledger);
        self.budget.settled.notify_waiters();
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
