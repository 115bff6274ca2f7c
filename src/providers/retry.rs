//! When a failed request is worth another try, and how long to wait before it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::http::Endpoint;
use super::rate_governor::{Governor, Throttle};
use super::rate_headers::{self, seconds};
use super::{Fault, FaultKind, Retry};

/// How often a request is repeated that failed for another reason than its rate: six tries in all.
const REPEATS: u32 = 5;
/// A server that asks for a longer pause than this is believed, and not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// No new try begins later than this after the first; and none of a request that was refused for its rate later than this
/// after the server last took a request of anybody.
const LONGEST_EFFORT_MS: u64 = 30 * 60_000;
/// From here on a pause is only said to be long.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A failed try.
#[derive(Debug)]
pub(super) struct Failure {
    /// What it means if nothing follows.
    pub(super) fault: Fault,
    /// Whether another try can help.
    pub(super) again: Again,
}

/// Whether another try can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// The same request gets the same answer.
    Never,
    /// After a pause.
    Soon,
    /// After at least the pause that the server asked for.
    After(Duration),
    /// When the rate governor admits it again.
    Throttled(Throttle),
    /// Where the server has answered well before: what came isn't the API's answer at all, which then is a moment's trouble
    /// of something in between. Else the address may be wrong.
    IfProven,
}

impl Failure {
    /// A failure that no further try mends.
    pub(super) fn last(fault: Fault) -> Self {
        Self { fault, again: Again::Never }
    }

    /// An answer that isn't the API's: final where the server has never answered well.
    pub(super) fn odd(fault: Fault) -> Self {
        Self { fault, again: Again::IfProven }
    }

    /// What it means where the server has answered well before, or hasn't.
    pub(super) fn judged(self, is_proven: bool) -> Self {
        match self.again {
            Again::IfProven if is_proven => {
                let fault = Fault { kind: FaultKind::Failed, hint: None, ..self.fault };
                Self { fault, again: Again::Soon }
            }
            Again::IfProven => Self::last(self.fault),
            _ => self,
        }
    }

    /// A failure that may pass.
    pub(super) fn passing(message: impl Into<String>) -> Self {
        Self { fault: Fault::new(FaultKind::Failed, message), again: Again::Soon }
    }
}

/// How long to wait, and for what; shared by all conversations with one server.
#[derive(Debug, Clone)]
pub(super) struct Patience {
    base: Duration,
    longest: Duration,
    governor: Arc<Governor>,
}

impl Patience {
    /// Pauses of at most one second at first, and tries for half an hour, or what `LEGWORK_RETRY_BASE_MS` and
    /// `LEGWORK_RETRY_PATIENCE_MS` say (not for users: they let tests of the whole program fail quickly).
    ///
    /// # Errors
    /// A variable holds something else than a number.
    pub(super) fn new(variable: &dyn Fn(&str) -> Option<String>, endpoint: &Endpoint) -> Result<Self, Fault> {
        let base = super::http::milliseconds(variable, "LEGWORK_RETRY_BASE_MS", 1_000)?;
        let longest = super::http::milliseconds(variable, "LEGWORK_RETRY_PATIENCE_MS", LONGEST_EFFORT_MS)?;
        Ok(Self { base, longest, governor: Governor::shared(endpoint.identity(), base) })
    }

    /// What decides when a request may be sent.
    pub(super) fn governor(&self) -> &Arc<Governor> {
        &self.governor
    }

    /// The tries of one request, none of them begun after `deadline`.
    pub(super) fn begin(&self, deadline: Instant) -> Tries {
        let begun = Instant::now();
        Tries { base: self.base, attempt: 0, failed: 0, deadline, begun, longest: self.longest, chance }
    }
}

/// The tries of one request.
#[derive(Debug)]
pub(super) struct Tries {
    base: Duration,
    attempt: u32,
    /// How many of them failed for another reason than their rate.
    failed: u32,
    deadline: Instant,
    begun: Instant,
    longest: Duration,
    chance: fn() -> f64,
}

impl Tries {
    /// A try begins. The first may have waited for its turn, and that time isn't lost to the others.
    pub(super) fn next(&mut self) {
        if self.attempt == 0 {
            self.begun = Instant::now();
        }
    }

    /// What follows a failed try: a pause and another one, or the fault that ends it. The pause is anything between
    /// nothing and a bound that doubles each time, so that agents that were throttled together don't come back together;
    /// where the server asked for a longer one, it is that.
    ///
    /// # Errors
    /// The fault, where no further try is worth it or in time.
    pub(super) fn after(&mut self, failure: Failure) -> Result<Retry, Fault> {
        let bound = self.base.saturating_mul(1 << self.failed.min(REPEATS));
        self.attempt += 1;
        let Failure { fault, again } = failure;
        let mut fault = with_hint(fault);
        let asked = match again {
            Again::Never | Again::IfProven => return Err(fault),
            Again::Soon => Duration::ZERO,
            Again::After(asked) => asked,
            Again::Throttled(throttle) => throttle.pause.unwrap_or_default(),
        };
        self.failed += 1;
        if self.failed > REPEATS {
            fault.message = format!("{} (tried {} times)", fault.message, self.attempt);
            return Err(fault);
        }
        let wait = bound.mul_f64((self.chance)()).max(asked);
        let end = self.deadline.min(self.begun + self.longest);
        self.again(fault, wait, end.saturating_duration_since(Instant::now()).min(LONGEST_WAIT))
    }

    /// What follows a try that was refused for its rate, or for overload: the rate governor has closed its gate for `wait`. As
    /// long as the server takes requests of others, it is worth waiting: `last_taken` says when it last did.
    ///
    /// # Errors
    /// The fault, where there is no time for another try.
    pub(super) fn throttled(
        &mut self,
        fault: Fault,
        wait: Duration,
        last_taken: Option<Instant>,
    ) -> Result<Retry, Fault> {
        self.attempt += 1;
        let since = last_taken.map_or(self.begun, |taken| taken.max(self.begun));
        let end = self.deadline.min(since + self.longest);
        self.again(with_hint(fault), wait, end.saturating_duration_since(Instant::now()))
    }

    fn again(&self, mut fault: Fault, wait: Duration, left: Duration) -> Result<Retry, Fault> {
        if wait >= left {
            let away = if wait > YEAR { "more than a year".to_owned() } else { format!("{:.1} s", wait.as_secs_f64()) };
            fault.message = format!(
                "{} (tried {}; the next try would be {away} away, and there are {:.1} s for it)",
                fault.message,
                if self.attempt == 1 { "once".to_owned() } else { format!("{} times", self.attempt) },
                left.as_secs_f64(),
            );
            return Err(fault);
        }
        Ok(Retry {
            attempt: self.attempt,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            why: fault.message,
            spent: fault.spent,
        })
    }
}

fn with_hint(mut fault: Fault) -> Fault {
    if fault.kind == FaultKind::Failed {
        fault.hint.get_or_insert_with(|| "the provider, or the way to it, has trouble: try again later".to_owned());
    }
    fault
}

/// A random number from 0 up to 1.
pub(super) fn chance() -> f64 {
    // Every RandomState has fresh keys, so an empty hash is a random number. A float holds 53 bits of it.
    let random = RandomState::new().build_hasher().finish() >> 11;
    random as f64 / (1_u64 << 53) as f64
}

/// The pause that a server asks for: `retry-after-ms` (as OpenAI and Anthropic send it), or `retry-after` in seconds or as
/// a date (RFC 9110, section 10.2.3). A date is taken against the server's own clock where it says what that shows. LiteLLM
/// passes on what stands behind it with `llm_provider-` before each name.
pub(super) fn asked_pause(headers: &reqwest::header::HeaderMap) -> Option<Duration> {
    let text = |name: &str| rate_headers::text(headers, name);
    if let Some(milliseconds) = text("retry-after-ms").and_then(number) {
        return seconds(milliseconds / 1000.0);
    }
    let after = text("retry-after")?;
    if let Some(number) = number(after) {
        return seconds(number);
    }
    let now = text("date").and_then(date).unwrap_or_else(|| jiff::Timestamp::now().to_zoned(TimeZone::UTC).datetime());
    Some(Duration::try_from(date(after)?.duration_since(now)).unwrap_or(Duration::ZERO))
}

/// A date of RFC 9110 (section 5.6.7), in its three forms, all of them in UTC.
fn date(text: &str) -> Option<DateTime> {
    const FORMS: [&str; 3] = ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    FORMS.into_iter().find_map(|form| DateTime::strptime(form, text).ok())
}

/// A number that is written in digits, however long it is; a word such as `inf` isn't one.
fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|_| text.starts_with(|first: char| first.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries(base_ms: u64, left: Duration) -> Tries {
        let base = Duration::from_millis(base_ms);
        let longest = Duration::from_millis(LONGEST_EFFORT_MS);
        Patience { base, longest, governor: Governor::shared([0; 32], base) }.begin(Instant::now() + left)
    }

    fn failure(again: Again) -> Failure {
        Failure { again, ..Failure::passing("overloaded") }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    /// The pauses of all tries, where chance is the given number.
    fn pauses(chance: fn() -> f64, again: Again) -> Vec<u64> {
        let mut tries = Tries { chance, ..tries(100, HOUR) };
        let pauses = (1..=5).map(|attempt| {
            let retry = tries.after(failure(again)).unwrap();
            assert_eq!(retry.attempt, attempt);
            retry.wait_ms
        });
        let pauses = pauses.collect();
        assert_eq!(tries.after(failure(again)).unwrap_err().message, "overloaded (tried 6 times)");
        pauses
    }

    #[test]
    fn pauses_are_anything_below_a_bound_that_doubles() {
        assert_eq!(pauses(|| 0.0, Again::Soon), [0; 5]);
        assert_eq!(pauses(|| 0.5, Again::Soon), [50, 100, 200, 400, 800]);
        assert_eq!(pauses(|| 1.0, Again::Soon), [100, 200, 400, 800, 1600]);
    }

    #[test]
    fn chance_is_even() {
        let mut tenths = [0; 10];
        for _ in 0..10_000 {
            tenths[(chance() * 10.0) as usize] += 1;
        }
        // Nine standard deviations.
        assert!(tenths.iter().all(|count| (730..=1_270).contains(count)), "{tenths:?}");
    }

    #[test]
    fn the_servers_wish_is_a_floor() {
        assert_eq!(pauses(|| 0.5, Again::After(Duration::from_millis(300))), [300, 300, 300, 400, 800]);
        assert_eq!(pauses(|| 0.5, Again::After(Duration::ZERO)), [50, 100, 200, 400, 800]);
    }

    #[test]
    fn no_try_begins_after_the_deadline_or_an_endless_pause() {
        let fault =
            tries(100, Duration::from_secs(5)).after(failure(Again::After(Duration::from_secs(60)))).unwrap_err();
        assert!(
            fault.message.starts_with("overloaded (tried once; the next try would be 60.0 s away"),
            "{}",
            fault.message
        );
        assert!(tries(100, HOUR).after(failure(Again::After(Duration::from_secs(1800)))).is_err());
        assert!(tries(100, HOUR).after(failure(Again::Never)).unwrap_err().message == "overloaded");
    }

    #[test]
    fn a_request_that_is_refused_for_its_rate_has_as_many_tries_as_fit_into_its_time() {
        let fault = || failure(Again::Soon).fault;
        let mut tries = tries(100, HOUR);
        for attempt in 1..=50 {
            let retry = tries.throttled(fault(), Duration::from_secs(60), None).unwrap();
            assert_eq!((retry.attempt, retry.wait_ms), (attempt, 60_000));
        }
        // Nobody was served for half an hour.
        tries.begun -= Duration::from_secs(30 * 60);
        assert!(tries.throttled(fault(), Duration::ZERO, None).is_err());
        let just_now = Some(Instant::now());
        tries.throttled(fault(), Duration::from_secs(60), just_now).unwrap();
        let fault = tries.throttled(fault(), Duration::MAX, just_now).unwrap_err();
        assert!(
            fault.message.contains("(tried 53 times; the next try would be more than a year away, and there are 1"),
            "{}",
            fault.message
        );
        tries.deadline = Instant::now() + Duration::from_secs(59);
        assert!(tries.throttled(fault, Duration::from_secs(60), just_now).is_err());
    }

    #[test]
    fn what_is_not_the_apis_answer_is_final_only_from_a_server_that_never_gave_one() {
        let odd = || Failure::odd(Fault::new(FaultKind::Rejected, "a page").hint("is the address right?"));
        let first = odd().judged(false);
        assert_eq!((first.again, first.fault.kind), (Again::Never, FaultKind::Rejected));
        let later = odd().judged(true);
        assert_eq!((later.again, later.fault.kind, later.fault.hint), (Again::Soon, FaultKind::Failed, None));
    }

    #[test]
    fn pauses_are_read_in_every_form() {
        let pause = |pairs: &[(&'static str, &str)]| {
            let headers = pairs.iter().map(|(name, value)| {
                (reqwest::header::HeaderName::from_static(name), value.parse::<reqwest::header::HeaderValue>().unwrap())
            });
            asked_pause(&headers.collect())
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
