//! The running time of a run, from the times of its events.

use std::time::Duration;

use jiff::Timestamp;

/// Adds up the time between events, without the pauses between an interruption and the next resume, and without the time in
/// which the process couldn't run.
pub struct Stopwatch<'a> {
    resumed: &'a [Timestamp],
    last: Option<Timestamp>,
    /// For how long this part of the run couldn't run before the last event.
    suspended_ms: u64,
    total: Duration,
}

impl<'a> Stopwatch<'a> {
    /// Creates a stopwatch for a run that was resumed at these times, in order.
    pub fn new(resumed: &'a [Timestamp]) -> Self {
        Self { resumed, last: None, suspended_ms: 0, total: Duration::ZERO }
    }

    /// Adds the time of an event, before which its part of the run couldn't run for `suspended_ms`. Events must be in order; those
    /// of several journals are sorted together.
    pub fn advance(&mut self, at: Timestamp, suspended_ms: u64) {
        let mut from = self.last;
        while let Some(first) = self.resumed.first().filter(|resumed| **resumed <= at) {
            // Only the time since the resume counts, and only for an agent that had started before it.
            from = from.map(|_| *first);
            self.suspended_ms = 0;
            self.resumed = &self.resumed[1..];
        }
        let suspended = Duration::from_millis(suspended_ms.saturating_sub(self.suspended_ms));
        self.suspended_ms = self.suspended_ms.max(suspended_ms);
        if let Some(from) = from {
            // Where the clock was set back, nothing is added. A suspension may only be known after the first event that follows it.
            self.total += Duration::try_from(at.duration_since(from)).unwrap_or_default();
            self.total = self.total.saturating_sub(suspended);
        }
        self.last = Some(at);
    }

    /// The running time so far.
    pub fn total(&self) -> Duration {
        self.total
    }
}

/// The running time of a run, without pauses. `times` are those of its events, with how long each part of the run couldn't run
/// before, and when it was last alive, in any order; `resumed` are the times at which it was resumed, in order.
pub fn running_time(mut times: Vec<(Timestamp, Option<u64>)>, resumed: &[Timestamp]) -> Duration {
    times.sort_unstable();
    let mut stopwatch = Stopwatch::new(resumed);
    for (at, suspended_ms) in times {
        let known = stopwatch.suspended_ms;
        stopwatch.advance(at, suspended_ms.unwrap_or(known));
    }
    stopwatch.total()
}
