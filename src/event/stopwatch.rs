//! The running time of a run, from the times of its events.

use std::time::Duration;

use jiff::Timestamp;

/// Adds up the time between events, without the pauses between an interruption and the next resume.
pub struct Stopwatch<'a> {
    resumed: &'a [Timestamp],
    last: Option<Timestamp>,
    total: Duration,
}

impl<'a> Stopwatch<'a> {
    /// Creates a stopwatch for a run that was resumed at these times, in order.
    pub fn new(resumed: &'a [Timestamp]) -> Self {
        Self { resumed, last: None, total: Duration::ZERO }
    }

    /// Adds the time of an event. Events must be in order; those of several journals are sorted together.
    pub fn advance(&mut self, at: Timestamp) {
        let mut from = self.last;
        while let Some(first) = self.resumed.first().filter(|resumed| **resumed <= at) {
            // Only the time since the resume counts, and only for an agent that had started before it.
            from = from.map(|_| *first);
            self.resumed = &self.resumed[1..];
        }
        if let Some(from) = from {
            // Where the clock was set back, nothing is added.
            self.total += Duration::try_from(at.duration_since(from)).unwrap_or_default();
        }
        self.last = Some(at);
    }

    /// The running time so far.
    pub fn total(&self) -> Duration {
        self.total
    }
}

/// The running time of a run, without pauses. `times` are those of its events and when it was last alive, in any order;
/// `resumed` are the times at which it was resumed, in order.
pub fn running_time(mut times: Vec<Timestamp>, resumed: &[Timestamp]) -> Duration {
    times.sort_unstable();
    let mut stopwatch = Stopwatch::new(resumed);
    times.into_iter().for_each(|at| stopwatch.advance(at));
    stopwatch.total()
}
