//! Lines in a log while nothing else is printed, so that no CI system takes a run for dead.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::cli::env::CliEnv;
use crate::sync::IgnorePoison;

/// The longest time without a line in a log.
const INTERVAL: Duration = Duration::from_secs(60);

/// Knows when the last line was printed.
pub(super) struct Heartbeat {
    interval: Duration,
    last_line: Mutex<Instant>,
}

impl Heartbeat {
    /// A line is due after a minute. In debug builds, LEGWORK_HEARTBEAT_MS sets another time for tests.
    pub(super) fn new(env: &CliEnv) -> Self {
        let shorter = if cfg!(debug_assertions) { env.variable("LEGWORK_HEARTBEAT_MS") } else { None };
        let shorter = shorter.and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
        Self { interval: shorter.unwrap_or(INTERVAL), last_line: Mutex::new(Instant::now()) }
    }

    /// How often to look whether a line is due.
    pub(super) fn tick(&self) -> Duration {
        // Half a second earlier than a minute, rather than later.
        (self.interval / 2).min(Duration::from_millis(250))
    }

    /// Notes that a line was printed.
    pub(super) fn line_printed(&self) {
        *self.last_line.lock().ignore_poison() = Instant::now();
    }

    /// Whether a line is due. If so, the caller prints it.
    pub(super) fn is_due(&self) -> bool {
        let mut last = self.last_line.lock().ignore_poison();
        let is_due = last.elapsed() + self.tick() > self.interval;
        if is_due {
            *last = Instant::now();
        }
        is_due
    }
}
