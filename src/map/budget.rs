//! The budget of a map, which the requests of all its rows share, also with those in other processes.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

use super::ledger::{Ledger, MapLimitHit, MapLimits};
use crate::budget::{Amount, MAP_LIMIT, MIN_REPLY_TOKENS, RequestEstimate, ReserveError, SharedBudget};
use crate::event::LimitReached;

/// How often a request that waits looks whether other processes have returned something. The pauses become longer.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What this process may spend for a map.
#[derive(Debug)]
pub struct MapBudget {
    ledger: Ledger,
    limits: MapLimits,
    /// Notified when something that was reserved here is returned.
    returned: Notify,
    /// Held by the request that waits for something to be returned. All others wait for it, in order.
    waiting: Mutex<()>,
    /// Set when a request got nothing: the limit that left no room, and why in one sentence.
    exhausted: OnceLock<(MapLimitHit, String)>,
}

impl MapBudget {
    /// A budget that is shared by a ledger with these limits.
    pub fn new(ledger: Ledger, limits: MapLimits) -> Self {
        Self { ledger, limits, returned: Notify::new(), waiting: Mutex::new(()), exhausted: OnceLock::new() }
    }

    /// Which limit is used up, in one sentence, if one is.
    pub fn exhausted(&self) -> Option<&str> {
        self.exhausted.get().map(|(_, message)| message.as_str())
    }

    /// An argument for `--limit` that allows twice as much as the limit that is used up, or as what is used.
    pub fn limit_argument(&self) -> Option<String> {
        let (MapLimitHit { limit, claimed, .. }, _) = self.exhausted.get()?;
        Some(match (*limit, self.limits) {
            ("cost_usd", MapLimits { cost_usd: Some(limit), .. }) if claimed.cost_usd > limit => {
                // Whole cents.
                format!("cost_usd={}", (200.0 * claimed.cost_usd).ceil() / 100.0)
            }
            ("cost_usd", MapLimits { cost_usd: Some(limit), .. }) => format!("cost_usd={}", 2.0 * limit),
            (_, MapLimits { tokens: Some(limit), .. }) => {
                format!("tokens={}", limit.max(claimed.tokens).saturating_mul(2))
            }
            _ => return None,
        })
    }

    /// What all processes have used for certain, and the map's limits.
    pub fn spent(&self) -> (Amount, MapLimits) {
        (self.ledger.total(), self.limits)
    }

    /// Counts what the records of the rows have used, if killed processes haven't counted all of it.
    ///
    /// # Errors
    /// If the ledger can't be read or written.
    pub fn count_recorded(&self, tokens: u64, cost_usd: f64) -> io::Result<()> {
        self.ledger.count_recorded(Amount { tokens, cost_usd })
    }

    /// Returns what this process hasn't used, so that other processes can.
    ///
    /// # Errors
    /// If the ledger can't be written.
    pub fn close(&self) -> io::Result<()> {
        self.ledger.close()
    }

    /// Reserves what a request may use at most. It waits while only reservations are in its way, of this process's other rows
    /// or of other processes that are alive. Returns the length of a shorter reply if only that fits; nothing is reserved then.
    async fn reserve_now_or_later(
        &self,
        estimate: &RequestEstimate,
        most: Amount,
        max_tokens: u32,
    ) -> Result<Option<u32>, ReserveError> {
        let try_now = || self.ledger.reserve(most).map_err(ReserveError::Ledger);
        if try_now()?.is_ok() {
            return Ok(None);
        }
        let _turn = self.waiting.lock().await;
        let mut pause = FIRST_PAUSE;
        loop {
            let returned = self.returned.notified();
            tokio::pin!(returned);
            // From here on, nothing that is returned is missed.
            returned.as_mut().enable();
            match try_now()? {
                Ok(()) => return Ok(None),
                Err(hit) if !hit.may_change => return self.shorter_reply(estimate, &hit, max_tokens).map(Some),
                Err(_) => {}
            }
            let _ = timeout(with_jitter(pause), returned).await;
            pause = LONGEST_PAUSE.min(2 * pause);
        }
    }

    /// The longest reply for what the limits leave.
    fn shorter_reply(
        &self,
        estimate: &RequestEstimate,
        hit: &MapLimitHit,
        max_tokens: u32,
    ) -> Result<u32, ReserveError> {
        let least = MIN_REPLY_TOKENS.min(estimate.max_tokens);
        let tokens = self.limits.tokens.map(|limit| limit.saturating_sub(hit.claimed.tokens));
        let cost = self.limits.cost_usd.map(|limit| limit - hit.claimed.cost_usd);
        let fitting = [
            Some(max_tokens.saturating_sub(1)),
            tokens.map(|left| estimate.by_tokens(left, least)),
            cost.map(|left| estimate.by_cost(left, least)),
        ];
        let longest = fitting.into_iter().flatten().min().unwrap_or_default();
        if longest >= least && longest > 0 {
            return Ok(longest);
        }
        let message = match hit.limit {
            "cost_usd" => format!(
                "${:.4} of the map's ${:.4} are spent or reserved, and the rest isn't enough to continue",
                hit.claimed.cost_usd,
                self.limits.cost_usd.unwrap_or_default()
            ),
            _ => format!(
                "{} of the map's {} tokens are used or reserved, and the rest isn't enough to continue: the next prompt alone \
                 takes about {}",
                hit.claimed.tokens,
                self.limits.tokens.unwrap_or_default(),
                estimate.prompt_tokens
            ),
        };
        let _ = self.exhausted.set((hit.clone(), message.clone()));
        Err(ReserveError::Limit(LimitReached::new(MAP_LIMIT, message)))
    }
}

impl SharedBudget for MapBudget {
    fn reserve<'a>(
        &'a self,
        estimate: &'a RequestEstimate,
        most: Amount,
        max_tokens: u32,
    ) -> BoxFuture<'a, Result<Option<u32>, ReserveError>> {
        self.reserve_now_or_later(estimate, most, max_tokens).boxed()
    }

    fn count(&self, used: Amount) {
        self.ledger.count(used);
    }

    fn count_unknown(&self, most: Amount) {
        self.ledger.count_unknown(most);
    }

    fn release(&self, most: Amount) {
        self.ledger.release(most);
        self.returned.notify_waiters();
    }
}

/// Between half and the whole of a pause, so that processes don't look at the same moments.
fn with_jitter(pause: Duration) -> Duration {
    // Every RandomState has new keys, so an empty hash is a random number.
    let random = RandomState::new().build_hasher().finish() % 1_000;
    pause / 2 + pause * u32::try_from(random).unwrap_or_default() / 2_000
}
