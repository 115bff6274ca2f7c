//! How long a run or an agent has run, computed from the times of its events.

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

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(resumed: &[i64], events: &[i64]) -> u64 {
        let at = |second: &i64| Timestamp::from_second(*second).unwrap();
        let resumed: Vec<Timestamp> = resumed.iter().map(at).collect();
        let mut stopwatch = Stopwatch::new(&resumed);
        events.iter().for_each(|second| stopwatch.advance(at(second)));
        stopwatch.total().as_secs()
    }

    #[test]
    fn pauses_and_the_time_before_an_agent_started_are_not_running_time() {
        assert_eq!(seconds(&[], &[10, 15, 30]), 20);
        assert_eq!(seconds(&[100], &[10, 15, 103]), 5 + 3);
        assert_eq!(seconds(&[100, 200], &[10, 15, 203]), 5 + 3, "interrupted twice");
        assert_eq!(seconds(&[100], &[150, 160]), 10, "started after the resume");
        assert_eq!(seconds(&[], &[30, 10, 15]), 5, "the clock was set back");
    }
}
