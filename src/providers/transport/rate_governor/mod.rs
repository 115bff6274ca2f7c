//! The rate governor decides when the next request to a server may be sent.
//!
//! A process has one governor for each base address and key. All conversations with that server share it: a parent, its
//! subagents, and other runs. A response to one of them affects all:
//! - throttling (429) or overload (529, and 503 with a `retry-after`) closes the gate for all of them until the
//!   requested pause, plus some jitter, is over; without a pause the backoff is exponential;
//! - when the gate opens, waiting requests are sent one by one in order, at a limited rate;
//! - the rate is learned from how many requests the server accepted between two refusals. The governor approaches it
//!   from below, keeps it for a while, and then exceeds it by increasing steps, as in TCP CUBIC, so that refusals
//!   become rare and a higher limit is found;
//! - rate-limit headers ([`super::rate_headers`]) delay requests that would be refused;
//! - the number of concurrent requests is halved at a refusal and grows by one with each accepted request (AIMD).
//!
//! Attempts aren't counted here. A throttled request may wait for its turn any number of times; [`super::retry`] limits
//! the total time.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::header::HeaderMap;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::message::Usage;
use crate::providers::transport::rate_headers;
use crate::providers::transport::rate_headers::{LIMIT_COUNT, LimitReport, Unit};
use crate::running_clock::RunningInstant;
use crate::sync::IgnorePoison;

/// The exponent of the longest backoff.
const MAX_BACKOFF_DOUBLINGS: u32 = 6;
/// The maximum time for which the gate is closed. All waiting requests give up earlier.
const MAX_CLOSURE: Duration = Duration::from_secs(24 * 3600);
/// The maximum jitter.
const MAX_JITTER: Duration = Duration::from_secs(5);
/// The minimum of the concurrency limit.
const MIN_CONCURRENCY: f64 = 4.0;
/// The maximum delay of a request because of headers. They may be wrong; if they are right, the server refuses the
/// request.
const MAX_HEADER_WAIT: Duration = Duration::from_secs(60);
/// If a limit resets within this time, requests wait for the reset.
const SHORT_RESET: Duration = Duration::from_secs(2);
/// The rate in requests a second after the first refusal, when nothing else is known.
const INITIAL_RATE: f64 = 10.0;
/// The minimum learned rate. The gate enforces slower rates.
const MIN_RATE: f64 = 0.2;
/// The fraction of a learned rate that is used at first.
const RATE_BACKOFF_FACTOR: f64 = 0.7;
/// The number of steps until the learned rate is reached again. After that it is exceeded. A step is an accepted
/// request, or [`STEP_TIME`].
const RECOVERY_STEPS: f64 = 16.0;
/// A request that isn't refused within this time counts as accepted.
const ACCEPTED_AFTER: Duration = Duration::from_millis(500);
/// The duration of a step without accepted requests.
const STEP_TIME: Duration = Duration::from_secs(5);

/// A temporary refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Throttle {
    /// The pause that the server asks for.
    pub(crate) retry_after: Option<Duration>,
    /// Whether it is because of the client's rate, rather than the server's load.
    pub(crate) is_for_rate: bool,
}

/// The governor of one server and key.
#[derive(Debug)]
pub(crate) struct RateGovernor {
    state: Mutex<GovernorState>,
    /// Held by the request whose turn is next; it is fair.
    queue: tokio::sync::Mutex<()>,
    /// Notified when a request may be sent earlier than expected.
    changed: Notify,
}

type Governors = HashMap<[u8; 32], Weak<RateGovernor>>;

static GOVERNORS: LazyLock<Mutex<Governors>> = LazyLock::new(Mutex::default);

impl RateGovernor {
    /// The governor for an identity (base address and key). `unit` is the upper bound of the first backoff.
    pub(crate) fn shared(identity: [u8; 32], unit: Duration) -> Arc<Self> {
        let mut governors = GOVERNORS.lock().ignore_poison();
        governors.retain(|_, governor| governor.strong_count() > 0);
        if let Some(governor) = governors.get(&identity).and_then(Weak::upgrade) {
            return governor;
        }
        let state = Mutex::new(GovernorState::new(unit));
        let governor = Arc::new(Self { state, queue: Default::default(), changed: Notify::new() });
        governors.insert(identity, Arc::downgrade(&governor));
        governor
    }

    /// Waits until a request may be sent. Dropping the future leaves the queue.
    pub(crate) async fn admit(self: &Arc<Self>) -> Permit {
        let _turn = self.queue.lock().await;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Register now, so that no change after this check is missed.
            changed.as_mut().enable();
            let admitted = self.state().admit(Instant::now());
            match admitted {
                Ok(number) => return Permit { governor: self.clone(), number, is_accepted: false },
                Err(Some(until)) => {
                    tokio::select! {
                        () = sleep_until(until.into()) => {}
                        () = changed => {}
                    }
                }
                Err(None) => changed.await,
            }
        }
    }

    /// Whether the server has ever sent a reply to this process.
    pub(crate) fn has_replied(&self) -> bool {
        self.state().has_replied
    }

    /// When the server last accepted a request.
    pub(crate) fn last_accepted(&self) -> Option<RunningInstant> {
        self.state().last_accepted
    }

    fn state(&self) -> MutexGuard<'_, GovernorState> {
        self.state.lock().ignore_poison()
    }
}

/// The permission to send a request, which counts as in flight until this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    governor: Arc<RateGovernor>,
    number: u64,
    is_accepted: bool,
}

impl Permit {
    /// Records the start of a response. `is_taken` is whether the server accepted the request.
    pub(crate) fn on_response_head(&mut self, is_taken: bool, headers: &HeaderMap) {
        self.is_accepted = is_taken;
        let reported = rate_headers::parse_limits(headers, Timestamp::now());
        let mut state = self.governor.state();
        let now = Instant::now();
        state.apply_headers(now, self.number, &reported);
        if is_taken {
            state.last_accepted = Some(RunningInstant::now());
            state.on_accepted(self.number);
        }
        drop(state);
        self.governor.changed.notify_waiters();
    }

    /// Whether the server accepted the request, so that it may be billed even if it fails later.
    pub(crate) fn is_accepted(&self) -> bool {
        self.is_accepted
    }

    /// Records a complete reply.
    pub(crate) fn on_reply(&self, usage: &Usage) {
        self.governor.state().on_reply(usage);
    }

    /// Records a temporary refusal, and returns the minimum time for which the gate stays closed.
    pub(crate) fn on_throttle(&self, throttle: Throttle) -> Duration {
        self.governor.state().on_throttle(Instant::now(), self.number, throttle, random_fraction())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.governor.state().on_finished(self.number);
        self.governor.changed.notify_waiters();
    }
}

/// The state of a server. It doesn't read the clock: methods get the time as an argument.
#[derive(Debug, Default)]
struct GovernorState {
    backoff_unit: Duration,
    /// The number of admitted requests, which is also the number of the last one.
    admitted: u64,
    /// The requests in flight, by number, and when they were admitted.
    in_flight: BTreeMap<u64, Instant>,
    last_admitted: Option<Instant>,
    last_accepted: Option<RunningInstant>,
    has_replied: bool,
    closed_until: Option<Instant>,
    /// The number of closures since the server last accepted a request.
    closures: u32,
    /// The last time that a request sent after the gate had opened closed it again.
    last_closure: Option<Closure>,
    /// The maximum number of requests in flight.
    concurrency_limit: f64,
    rate: Option<LearnedRate>,
    limits: [Option<ReportedLimit>; LIMIT_COUNT],
    /// The moving average of prompt and reply tokens of a request.
    mean_tokens: Option<(f64, f64)>,
}

#[derive(Debug)]
struct Closure {
    at: Instant,
    /// The last request that was admitted before the closure.
    number: u64,
}

/// A learned rate.
#[derive(Debug)]
struct LearnedRate {
    /// What the server accepts, in requests a second.
    base_rate: f64,
    since: Instant,
    /// Requests accepted since then.
    accepted: f64,
}

impl LearnedRate {
    fn rate(&self, now: Instant) -> f64 {
        let steps = self.accepted + now.saturating_duration_since(self.since).div_duration_f64(STEP_TIME);
        let from_there = (steps - RECOVERY_STEPS) / RECOVERY_STEPS;
        self.base_rate * (1.0 + (1.0 - RATE_BACKOFF_FACTOR) * from_there.powi(3))
    }
}

/// A limit in a server's headers.
#[derive(Debug)]
struct ReportedLimit {
    report: LimitReport,
    at: Instant,
    reset: Instant,
    /// The number of the request whose response reported it.
    number: u64,
}

impl ReportedLimit {
    /// When enough is left for another request of this cost. `admitted` is the number of the last request.
    fn ready_at(&self, admitted: u64, cost: f64) -> Instant {
        let LimitReport { limit, remaining, .. } = self.report;
        let left = remaining - admitted.saturating_sub(self.number) as f64 * cost;
        let missing = cost.min(limit.unwrap_or(f64::MAX)) - left;
        if missing <= 0.0 {
            return self.at;
        }
        let whole = self.reset.saturating_duration_since(self.at);
        let parts = limit.filter(|limit| *limit > remaining).map_or(1.0, |limit| missing / (limit - remaining));
        // Assume that the limit refills evenly. If it doesn't, the request is refused, which isn't worth risking to
        // avoid a short wait.
        let parts = if whole > SHORT_RESET { parts } else { parts.ceil() };
        let wait = rate_headers::duration_from_secs(whole.as_secs_f64() * parts).unwrap_or(MAX_HEADER_WAIT);
        self.at + wait.min(MAX_HEADER_WAIT)
    }
}

impl GovernorState {
    fn new(unit: Duration) -> Self {
        Self { backoff_unit: unit, concurrency_limit: f64::INFINITY, ..Self::default() }
    }

    /// Admits a request and returns its number. Otherwise returns when to try again, which may be earlier if something
    /// changes.
    fn admit(&mut self, now: Instant) -> Result<u64, Option<Instant>> {
        if let Some(until) = self.closed_until.filter(|until| *until > now) {
            return Err(Some(until));
        }
        if self.in_flight.len() as f64 >= self.concurrency_limit.floor() {
            return Err(None);
        }
        let paced = self
            .last_admitted
            .zip(self.rate.as_ref())
            .and_then(|(last, pace)| last.checked_add(Duration::try_from_secs_f64(1.0 / pace.rate(now)).ok()?));
        let limited =
            self.limits.iter().flatten().map(|limit| limit.ready_at(self.admitted, self.cost(limit.report.unit)));
        if let Some(until) = paced.into_iter().chain(limited).max().filter(|until| *until > now) {
            return Err(Some(until));
        }
        self.admitted += 1;
        self.in_flight.insert(self.admitted, now);
        self.last_admitted = Some(now);
        Ok(self.admitted)
    }

    /// The cost of a request in the unit of a limit.
    fn cost(&self, unit: Unit) -> f64 {
        let (input, output) = self.mean_tokens.unwrap_or_default();
        let tokens = match unit {
            Unit::Requests => 1.0,
            Unit::Tokens => input + output,
            Unit::InputTokens => input,
            Unit::OutputTokens => output,
        };
        tokens.max(1.0)
    }

    fn apply_headers(&mut self, now: Instant, number: u64, reported: &[LimitReport]) {
        // The server updated its counts when the request arrived.
        let at = self.in_flight.get(&number).copied().unwrap_or(now);
        for &report in reported {
            // Responses may arrive out of order. The response to the later request is newer.
            if let Some(known) = self.limits.get_mut(report.table_index)
                && known.as_ref().is_none_or(|known| known.number <= number)
            {
                let reset = if report.is_clock_time { now } else { at } + report.reset.min(MAX_CLOSURE);
                *known = Some(ReportedLimit { report, at, reset, number });
            }
        }
    }

    fn on_accepted(&mut self, number: u64) {
        self.concurrency_limit += 1.0;
        // A request that was sent before the closure says nothing about the current state.
        if self.last_closure.as_ref().is_none_or(|closure| number > closure.number) {
            self.closures = 0;
            if let Some(pace) = &mut self.rate {
                pace.accepted += 1.0;
            }
        }
    }

    fn on_reply(&mut self, usage: &Usage) {
        self.has_replied = true;
        let now = ((usage.input_tokens + usage.cache_write_tokens) as f64, usage.output_tokens as f64);
        let mean = |before: f64, now: f64| before + (now - before) / 4.0;
        self.mean_tokens = Some(self.mean_tokens.map_or(now, |before| (mean(before.0, now.0), mean(before.1, now.1))));
    }

    /// Closes the gate, and returns the minimum time, without jitter. `chance` is a random number from 0 up to 1.
    fn on_throttle(&mut self, now: Instant, number: u64, throttle: Throttle, chance: f64) -> Duration {
        let is_new = self.last_closure.as_ref().is_none_or(|closure| number > closure.number);
        if is_new {
            self.closures += 1;
            self.reduce_concurrency(now);
            self.learn_rate(now, throttle.is_for_rate);
            self.last_closure = Some(Closure { at: now, number: self.admitted });
        }
        let pause = throttle.retry_after.unwrap_or_default();
        let (wait, jitter) = if is_new {
            let bound = self.backoff_unit.saturating_mul(1 << (self.closures - 1).min(MAX_BACKOFF_DOUBLINGS));
            let backoff = bound.mul_f64(0.5 + chance / 2.0);
            (pause.max(backoff), (pause / 4).min(MAX_JITTER).mul_f64(chance))
        } else {
            (pause, Duration::ZERO)
        };
        let before = self.closed_until.unwrap_or(now);
        let until = now + wait.saturating_add(jitter).min(MAX_CLOSURE);
        self.closed_until = Some(until.max(before));
        wait.max(before.saturating_duration_since(now))
    }

    /// Halves the concurrency limit, but not below the number of requests that count as accepted.
    fn reduce_concurrency(&mut self, now: Instant) {
        let is_accepted = |admitted: &&Instant| now.saturating_duration_since(**admitted) > ACCEPTED_AFTER;
        let accepted = self.in_flight.values().filter(is_accepted).count() as f64;
        let width = self.concurrency_limit.min(self.in_flight.len() as f64);
        self.concurrency_limit = (width / 2.0).max(accepted).max(MIN_CONCURRENCY);
    }

    fn learn_rate(&mut self, now: Instant, is_for_rate: bool) {
        let learned = self.measured_rate(now).filter(|_| is_for_rate);
        let learned = learned.or(self.rate.as_ref().map(|pace| pace.base_rate)).unwrap_or(INITIAL_RATE);
        self.rate = Some(LearnedRate { base_rate: learned, since: now, accepted: 0.0 });
    }

    /// The server's rate after a refusal. It is between the current rate, which was too high, and the average rate of
    /// accepted requests since the last refusal, which may be too low.
    fn measured_rate(&self, now: Instant) -> Option<f64> {
        let (pace, closure) = (self.rate.as_ref()?, self.last_closure.as_ref()?);
        let time = now.saturating_duration_since(closure.at).as_secs_f64();
        let taken = (self.admitted - closure.number).saturating_sub(1) as f64;
        (taken > 0.0 && time > 0.0).then(|| (pace.rate(now).min(INITIAL_RATE) * taken / time).sqrt().max(MIN_RATE))
    }

    fn on_finished(&mut self, number: u64) {
        self.in_flight.remove(&number);
    }
}

/// A random number from 0 up to 1.
pub(crate) fn random_fraction() -> f64 {
    // Each RandomState has new keys, so the hash of no input is a random number. A float holds 53 bits of it.
    let random = RandomState::new().build_hasher().finish() >> 11;
    random as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests;
