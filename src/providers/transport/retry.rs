//! Decides whether and when a failed request is retried.

use std::sync::Arc;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::providers::api::{ProviderError, ProviderErrorKind, ReplyRequest, Retry};
use crate::providers::env_config::env_millis;
use crate::providers::spec::ConnectContext;
use crate::providers::transport::rate_governor::{RateGovernor, Throttle, random_fraction};
use crate::providers::transport::rate_headers::{duration_from_secs, header_text};
use crate::running_clock::RunningInstant;

/// How many times a request is tried, not counting throttled ones, unless `providers.toml` says otherwise.
const DEFAULT_TRIES: u32 = 6;
/// How many times the backoff is doubled.
const MAX_DOUBLINGS: u32 = 5;
/// A request isn't retried if the server asks for a longer pause than this.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// No retry starts later than this after the first attempt; for a throttled request, after the server last accepted any
/// request.
const MAX_ELAPSED_MS: u64 = 30 * 60_000;
/// The same if another model can answer.
const MAX_ELAPSED_WITH_FALLBACK: Duration = Duration::from_secs(120);
/// Longer pauses are reported without a number.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A failed attempt.
#[derive(Debug)]
pub(crate) struct FailedAttempt {
    /// The error to report if no retry follows.
    pub(crate) error: ProviderError,
    /// Whether a retry can help.
    pub(crate) retry: RetryDecision,
    /// The server's own message, if the response contains an error.
    pub(crate) server_message: Option<String>,
    /// Whether the server refuses the key, which may have expired.
    pub(crate) is_key_refused: bool,
}

/// Whether a retry can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// The same request would get the same response.
    Never,
    /// After a pause.
    Backoff,
    /// After at least the pause that the server asked for.
    After(Duration),
    /// When the rate governor admits it again.
    Throttled(Throttle),
    /// Only if the server has replied before. The response isn't from the API: either an intermediary has a temporary
    /// problem, or, if the server has never replied, the address may be wrong.
    IfServerProven,
}

impl FailedAttempt {
    /// A failure that no retry fixes.
    pub(crate) fn permanent(error: ProviderError) -> Self {
        Self { error, retry: RetryDecision::Never, server_message: None, is_key_refused: false }
    }

    /// A response that isn't from the API: permanent unless the server has replied before.
    pub(crate) fn unrecognized(message: String, hint: impl Into<String>) -> Self {
        let error = ProviderError::rejected(message).with_hint(hint);
        Self { retry: RetryDecision::IfServerProven, ..Self::permanent(error) }
    }

    /// Resolves [`RetryDecision::IfServerProven`]. `is_proven` is whether the server has replied before.
    pub(crate) fn resolve(self, is_proven: bool) -> Self {
        match self.retry {
            RetryDecision::IfServerProven if is_proven => {
                let error = ProviderError { kind: ProviderErrorKind::Failed, hint: None, ..self.error };
                Self { retry: RetryDecision::Backoff, ..Self::permanent(error) }
            }
            RetryDecision::IfServerProven => Self::permanent(self.error),
            _ => self,
        }
    }

    /// A failure that a retry may fix.
    pub(crate) fn transient(message: impl Into<String>) -> Self {
        let error = ProviderError::new(ProviderErrorKind::Failed, message);
        Self { retry: RetryDecision::Backoff, ..Self::permanent(error) }
    }
}

/// When to retry; shared by all conversations with one server.
#[derive(Debug, Clone)]
pub(crate) struct RetryPolicy {
    base_delay: Duration,
    max_elapsed: Duration,
    /// How many times a request is tried, not counting throttled ones.
    tries: u32,
    /// Decides when a request may be sent.
    pub(super) governor: Arc<RateGovernor>,
}

impl RetryPolicy {
    /// Backoff starts at one second and ends after half an hour, or the values of `LEGWORK_RETRY_BASE_MS` and
    /// `LEGWORK_RETRY_PATIENCE_MS` (not for users: they make tests of the whole program fail quickly).
    ///
    /// # Errors
    /// A variable isn't a number.
    pub(crate) fn new(connect: &ConnectContext<'_>, identity: [u8; 32]) -> Result<Self, ProviderError> {
        let variable = connect.env;
        let tries = connect.settings.and_then(|it| it.settings.tries).unwrap_or(DEFAULT_TRIES);
        let base = env_millis(variable, "LEGWORK_RETRY_BASE_MS", 1_000)?;
        let longest = env_millis(variable, "LEGWORK_RETRY_PATIENCE_MS", MAX_ELAPSED_MS)?;
        Ok(Self { base_delay: base, max_elapsed: longest, tries, governor: RateGovernor::shared(identity, base) })
    }

    /// The attempts of one request. None of them starts after the request's deadline.
    pub(crate) fn start(&self, request: &ReplyRequest) -> RetryState {
        let ReplyRequest { deadline, has_fallback, .. } = *request;
        let longest = if has_fallback { MAX_ELAPSED_WITH_FALLBACK } else { Duration::MAX };
        RetryState {
            policy: Self { max_elapsed: self.max_elapsed.min(longest), ..self.clone() },
            attempt: 0,
            failed: 0,
            deadline,
            begun: RunningInstant::now(),
            random: random_fraction,
        }
    }
}

/// The attempts of one request.
#[derive(Debug)]
pub(crate) struct RetryState {
    policy: RetryPolicy,
    attempt: u32,
    /// How many of them failed for a reason other than throttling.
    failed: u32,
    deadline: RunningInstant,
    begun: RunningInstant,
    random: fn() -> f64,
}

impl RetryState {
    /// Starts an attempt. The time that the first one waited for the rate governor doesn't count.
    pub(crate) fn start_attempt(&mut self) {
        if self.attempt == 0 {
            self.begun = RunningInstant::now();
        }
    }

    /// The retry after a failed attempt, or the final error. Exponential backoff with full jitter keeps agents that
    /// failed together from retrying together; a longer pause that the server asks for takes precedence.
    ///
    /// # Errors
    /// The final error, if no retry helps or there is no time for one.
    pub(crate) fn after_failure(&mut self, failure: FailedAttempt) -> Result<Retry, ProviderError> {
        let bound = self.policy.base_delay.saturating_mul(1 << self.failed.min(MAX_DOUBLINGS));
        self.attempt += 1;
        let FailedAttempt { error, retry, .. } = failure;
        let mut error = with_default_hint(error);
        let asked = match retry {
            RetryDecision::Never | RetryDecision::IfServerProven => return Err(error),
            RetryDecision::Backoff => Duration::ZERO,
            RetryDecision::After(asked) => asked,
            RetryDecision::Throttled(throttle) => throttle.retry_after.unwrap_or_default(),
        };
        self.failed += 1;
        if self.failed >= self.policy.tries {
            error.message = format!("{} (tried {})", error.message, self.tried());
            return Err(error);
        }
        let wait = bound.mul_f64((self.random)()).max(asked);
        let end = self.deadline.min(self.begun + self.policy.max_elapsed);
        self.schedule(error, wait, end.left().min(MAX_WAIT))
    }

    /// The retry after throttling or overload, after which the rate governor closed its gate for `wait`. Waiting makes
    /// sense as long as the server accepts other requests. `last_accepted` is when it last did.
    ///
    /// # Errors
    /// The final error, if there is no time for a retry.
    pub(crate) fn after_throttle(
        &mut self,
        error: ProviderError,
        wait: Duration,
        last_accepted: Option<RunningInstant>,
    ) -> Result<Retry, ProviderError> {
        self.attempt += 1;
        let since = last_accepted.map_or(self.begun, |accepted| accepted.max(self.begun));
        let end = self.deadline.min(since + self.policy.max_elapsed);
        self.schedule(with_default_hint(error), wait, end.left())
    }

    fn tried(&self) -> String {
        if self.attempt == 1 { "once".to_owned() } else { format!("{} times", self.attempt) }
    }

    fn schedule(&self, mut error: ProviderError, wait: Duration, left: Duration) -> Result<Retry, ProviderError> {
        if wait >= left {
            let away = if wait > YEAR { "more than a year".to_owned() } else { format!("{:.1} s", wait.as_secs_f64()) };
            error.message = format!(
                "{} (tried {}; the next try would start in {away}, and only {:.1} s are left)",
                error.message,
                self.tried(),
                left.as_secs_f64(),
            );
            return Err(error);
        }
        Ok(Retry {
            attempt: self.attempt,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            reason: error.message,
            usage: error.usage,
        })
    }
}

fn with_default_hint(mut error: ProviderError) -> ProviderError {
    if error.kind == ProviderErrorKind::Failed {
        error.hint.get_or_insert_with(|| "the provider or the network is having problems: try again later".to_owned());
    }
    error
}

/// The pause that a server asks for: `retry-after-ms` (OpenAI and Anthropic), or `retry-after` in seconds or as a date
/// (RFC 9110, section 10.2.3). A date is relative to the server's own `date` header, if there is one. LiteLLM passes on
/// the headers of the server behind it with the prefix `llm_provider-`.
pub(crate) fn parse_retry_after(headers: &reqwest::header::HeaderMap) -> Option<Duration> {
    let text = |name: &str| header_text(headers, name);
    if let Some(milliseconds) = text("retry-after-ms").and_then(number) {
        return duration_from_secs(milliseconds / 1000.0);
    }
    let after = text("retry-after")?;
    if let Some(number) = number(after) {
        return duration_from_secs(number);
    }
    let now = text("date").and_then(date).unwrap_or_else(|| jiff::Timestamp::now().to_zoned(TimeZone::UTC).datetime());
    Some(Duration::try_from(date(after)?.duration_since(now)).unwrap_or(Duration::ZERO))
}

/// A date of RFC 9110 (section 5.6.7), in its three forms, all of them in UTC.
fn date(text: &str) -> Option<DateTime> {
    const FORMS: [&str; 3] = ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    FORMS.into_iter().find_map(|form| DateTime::strptime(form, text).ok())
}

/// A number in digits of any length, but not a word such as `inf`.
fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|_| text.starts_with(|first: char| first.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries(base_ms: u64, left: Duration) -> RetryState {
        tries_of(base_ms, left, false)
    }

    fn tries_of(base_ms: u64, left: Duration, has_fallback: bool) -> RetryState {
        let base = Duration::from_millis(base_ms);
        let longest = Duration::from_millis(MAX_ELAPSED_MS);
        RetryPolicy {
            base_delay: base,
            max_elapsed: longest,
            tries: DEFAULT_TRIES,
            governor: RateGovernor::shared([0; 32], base),
        }
        .start(&ReplyRequest {
            max_tokens: 1,
            tools_allowed: true,
            requires_content: false,
            deadline: RunningInstant::now() + left,
            has_fallback,
        })
    }

    fn failure(again: RetryDecision) -> FailedAttempt {
        FailedAttempt { retry: again, ..FailedAttempt::transient("overloaded") }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    /// The pauses before all retries, with this source of random numbers.
    fn pauses(chance: fn() -> f64, again: RetryDecision) -> Vec<u64> {
        let mut tries = RetryState { random: chance, ..tries(100, HOUR) };
        let pauses = (1..=5).map(|attempt| {
            let retry = tries.after_failure(failure(again)).unwrap();
            assert_eq!(retry.attempt, attempt);
            retry.wait_ms
        });
        let pauses = pauses.collect();
        assert_eq!(tries.after_failure(failure(again)).unwrap_err().message, "overloaded (tried 6 times)");
        pauses
    }

    #[test]
    fn pauses_are_random_below_a_doubling_bound() {
        assert_eq!(pauses(|| 0.0, RetryDecision::Backoff), [0; 5]);
        assert_eq!(pauses(|| 0.5, RetryDecision::Backoff), [50, 100, 200, 400, 800]);
        assert_eq!(pauses(|| 1.0, RetryDecision::Backoff), [100, 200, 400, 800, 1600]);
    }

    #[test]
    fn random_fractions_are_uniform() {
        let mut tenths = [0; 10];
        for _ in 0..10_000 {
            tenths[(random_fraction() * 10.0) as usize] += 1;
        }
        // Nine standard deviations either way.
        assert!(tenths.iter().all(|count| (730..=1_270).contains(count)), "{tenths:?}");
    }

    #[test]
    fn the_servers_retry_delay_is_a_minimum() {
        assert_eq!(pauses(|| 0.5, RetryDecision::After(Duration::from_millis(300))), [300, 300, 300, 400, 800]);
        assert_eq!(pauses(|| 0.5, RetryDecision::After(Duration::ZERO)), [50, 100, 200, 400, 800]);
    }

    #[test]
    fn no_attempt_starts_after_the_deadline_or_an_endless_pause() {
        let fault = tries(100, Duration::from_secs(5))
            .after_failure(failure(RetryDecision::After(Duration::from_secs(60))))
            .unwrap_err();
        assert!(
            fault.message.starts_with("overloaded (tried once; the next try would start in 60.0 s"),
            "{}",
            fault.message
        );
        assert!(tries(100, HOUR).after_failure(failure(RetryDecision::After(Duration::from_secs(1800)))).is_err());
        assert!(tries(100, HOUR).after_failure(failure(RetryDecision::Never)).unwrap_err().message == "overloaded");
    }

    #[test]
    fn a_rate_limited_request_is_retried_as_often_as_time_allows() {
        let fault = || failure(RetryDecision::Backoff).error;
        let mut tries = tries(100, HOUR);
        for attempt in 1..=50 {
            let retry = tries.after_throttle(fault(), Duration::from_secs(60), None).unwrap();
            assert_eq!((retry.attempt, retry.wait_ms), (attempt, 60_000));
        }
        // No request was accepted for half an hour.
        tries.begun = tries.begun.before(Duration::from_secs(30 * 60));
        assert!(tries.after_throttle(fault(), Duration::ZERO, None).is_err());
        let just_now = Some(RunningInstant::now());
        tries.after_throttle(fault(), Duration::from_secs(60), just_now).unwrap();
        let fault = tries.after_throttle(fault(), Duration::MAX, just_now).unwrap_err();
        assert!(
            fault.message.contains("(tried 53 times; the next try would start in more than a year, and only 1"),
            "{}",
            fault.message
        );
        tries.deadline = RunningInstant::now() + Duration::from_secs(59);
        assert!(tries.after_throttle(fault, Duration::from_secs(60), just_now).is_err());
    }

    #[test]
    fn a_throttled_request_waits_two_minutes_if_another_model_can_answer() {
        let fault = || failure(RetryDecision::Backoff).error;
        for (has_fallback, waits) in [(false, true), (true, false)] {
            let mut tries = tries_of(100, HOUR, has_fallback);
            assert!(tries.after_throttle(fault(), Duration::from_secs(60), None).is_ok());
            tries.begun = tries.begun.before(Duration::from_secs(61));
            assert_eq!(tries.after_throttle(fault(), Duration::from_secs(60), None).is_ok(), waits);
        }
    }

    #[test]
    fn an_unrecognized_response_is_final_only_before_the_first_valid_one() {
        let odd = || FailedAttempt::unrecognized("a page".to_owned(), "is the address right?");
        let first = odd().resolve(false);
        assert_eq!((first.retry, first.error.kind), (RetryDecision::Never, ProviderErrorKind::Rejected));
        let later = odd().resolve(true);
        assert_eq!(
            (later.retry, later.error.kind, later.error.hint),
            (RetryDecision::Backoff, ProviderErrorKind::Failed, None)
        );
    }

    #[test]
    fn retry_delays_are_parsed_in_every_form() {
        let pause = |pairs: &[(&'static str, &str)]| {
            let headers = pairs.iter().map(|(name, value)| {
                (reqwest::header::HeaderName::from_static(name), value.parse::<reqwest::header::HeaderValue>().unwrap())
            });
            parse_retry_after(&headers.collect())
        };
        assert_eq!(pause(&[("retry-after", "3")]), Some(Duration::from_secs(3)));
        assert_eq!(pause(&[("retry-after", "0.5")]), Some(Duration::from_millis(500)));
        assert_eq!(pause(&[("retry-after-ms", "250"), ("retry-after", "3")]), Some(Duration::from_millis(250)));
        assert_eq!(pause(&[("llm_provider-retry-after", "3")]), Some(Duration::from_secs(3)));
        assert_eq!(pause(&[("retry-after", "1"), ("llm_provider-retry-after", "3")]), Some(Duration::from_secs(1)));
        let date = ("date", "Sat, 21 Nov 2026 10:00:00 GMT");
        assert_eq!(pause(&[date, ("retry-after", "Sat, 21 Nov 2026 10:01:30 GMT")]), Some(Duration::from_secs(90)));
        assert_eq!(pause(&[date, ("retry-after", "Sat, 21 Nov 2026 09:00:00 GMT")]), Some(Duration::ZERO));
        for other in ["Saturday, 21-Nov-26 10:01:30 GMT", "Sat Nov 21 10:01:30 2026"] {
            assert_eq!(pause(&[date, ("retry-after", other)]), Some(Duration::from_secs(90)), "{other}");
        }
        let centuries = pause(&[date, ("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")]).unwrap();
        assert!(centuries > 7_900 * YEAR, "{centuries:?}");
        for endless in ["99999999999999999999999", "1e300", &"9".repeat(400)] {
            assert_eq!(pause(&[("retry-after", endless)]), Some(Duration::MAX), "{endless}");
        }
        for nonsense in ["", "-1", "NaN", "inf", "soon"] {
            assert_eq!(pause(&[("retry-after", nonsense)]), None, "{nonsense}");
        }
    }
}
