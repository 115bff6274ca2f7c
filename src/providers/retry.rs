//! When a failed request is worth another try, and how long to wait before it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

use super::{Fault, FaultKind, Retry};

/// How often a request is repeated: six tries in all.
const REPEATS: u32 = 5;
/// A server that asks for a longer pause than this is believed, and not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// No new try begins later than this after the first.
const LONGEST_EFFORT: Duration = Duration::from_secs(30 * 60);

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
}

impl Failure {
    /// A failure that no further try mends.
    pub(super) fn last(fault: Fault) -> Self {
        Self { fault, again: Again::Never }
    }

    /// A failure that may pass.
    pub(super) fn passing(message: impl Into<String>) -> Self {
        Self { fault: Fault::new(FaultKind::Failed, message), again: Again::Soon }
    }
}

/// The lengths of the pauses.
#[derive(Debug, Clone)]
pub(super) struct Patience {
    base: Duration,
}

impl Patience {
    /// Pauses of at most one second at first, or of what `LEGWORK_RETRY_BASE_MS` says (not for users: it lets tests of the
    /// whole program fail quickly).
    ///
    /// # Errors
    /// The variable holds something else than a number.
    pub(super) fn new(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, Fault> {
        Ok(Self { base: super::http::milliseconds(variable, "LEGWORK_RETRY_BASE_MS", 1_000)? })
    }

    /// The tries of one request, none of them begun after `deadline`.
    pub(super) fn begin(&self, deadline: Instant) -> Tries {
        Tries { base: self.base, attempt: 0, deadline, end: Instant::now() + LONGEST_EFFORT, chance }
    }
}

/// The tries of one request.
#[derive(Debug)]
pub(super) struct Tries {
    base: Duration,
    attempt: u32,
    deadline: Instant,
    end: Instant,
    chance: fn() -> f64,
}

impl Tries {
    /// What follows a failed try: a pause and another one, or the fault that ends it. The pause is anything between
    /// nothing and a bound that doubles each time, so that agents that were throttled together don't come back together;
    /// where the server asked for a longer one, it is that.
    ///
    /// # Errors
    /// The fault, where no further try is worth it or in time.
    pub(super) fn after(&mut self, failure: Failure) -> Result<Retry, Fault> {
        let bound = self.base.saturating_mul(1 << self.attempt.min(REPEATS));
        self.attempt += 1;
        let Failure { mut fault, again } = failure;
        if fault.kind == FaultKind::Failed {
            fault.hint.get_or_insert_with(|| "the provider, or the way to it, has trouble: try again later".to_owned());
        }
        let asked = match again {
            Again::Never => return Err(fault),
            Again::Soon => Duration::ZERO,
            Again::After(asked) => asked,
        };
        if self.attempt > REPEATS {
            fault.message = format!("{} (tried {} times)", fault.message, self.attempt);
            return Err(fault);
        }
        let wait = bound.mul_f64((self.chance)()).max(asked);
        let left = self.deadline.min(self.end).saturating_duration_since(Instant::now());
        if wait > LONGEST_WAIT || wait >= left {
            let left = left.min(LONGEST_WAIT);
            fault.message = format!(
                "{} (tried {}; the next try would be {:.1} s away, and there are {:.1} s for it)",
                fault.message,
                if self.attempt == 1 { "once".to_owned() } else { format!("{} times", self.attempt) },
                wait.as_secs_f64(),
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

/// A random number from 0 up to 1.
fn chance() -> f64 {
    // Every RandomState has fresh keys, so an empty hash is a random number. A float holds 53 bits of it.
    let random = RandomState::new().build_hasher().finish() >> 11;
    random as f64 / (1_u64 << 53) as f64
}

/// The pause that a server asks for: `retry-after-ms` (as OpenAI and Anthropic send it), or `retry-after` in seconds or as
/// a date (RFC 9110, section 10.2.3). A date is taken against the server's own clock where it says what that shows. LiteLLM
/// passes on what stands behind it with `llm_provider-` before each name.
pub(super) fn asked_pause(headers: &reqwest::header::HeaderMap) -> Option<Duration> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let text = |name: &str| header(name).or_else(|| header(&format!("llm_provider-{name}")));
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
    if let Some(milliseconds) = text("retry-after-ms").and_then(|text| text.parse::<f64>().ok()) {
        return seconds(milliseconds / 1000.0);
    }
    let after = text("retry-after")?;
    if let Ok(number) = after.parse::<f64>() {
        return seconds(number);
    }
    let date = |text| jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok();
    let now = text("date").and_then(date).unwrap_or_else(jiff::Timestamp::now);
    Some(Duration::try_from(date(after)?.duration_since(now)).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries(base_ms: u64, left: Duration) -> Tries {
        Patience { base: Duration::from_millis(base_ms) }.begin(Instant::now() + left)
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
        for nonsense in ["", "-1", "NaN", "inf", "soon", "1e300"] {
            assert_eq!(pause(&[("retry-after", nonsense)]), None, "{nonsense}");
        }
    }
}
