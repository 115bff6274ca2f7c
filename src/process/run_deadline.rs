//! When the time of a run is up. Time in which this process was stopped (SIGSTOP, Ctrl-Z, a paused container) doesn't count:
//! a thread notes the time at short intervals, and a long gap between two notes is time in which nothing could run. The clock
//! itself doesn't count the time in which the machine sleeps.

use std::sync::{Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

use crate::sync::IgnorePoison;

/// How often the time is noted.
const TICK: Duration = Duration::from_millis(250);
/// A longer gap is time in which the process was stopped. A busy machine makes shorter ones.
const MIN_GAP: Duration = Duration::from_secs(2);

/// The last note, and the time in which the process was stopped before it.
type Clock = Option<(Instant, Duration)>;

static CLOCK: Mutex<Clock> = Mutex::new(None);

/// Notes the time. Returns how long the process has been stopped altogether.
fn note(clock: &mut Clock, now: Instant) -> Duration {
    let (last, stopped) = clock.unwrap_or((now, Duration::ZERO));
    let gap = now.saturating_duration_since(last);
    let stopped = stopped + if gap > MIN_GAP { gap - TICK } else { Duration::ZERO };
    *clock = Some((now.max(last), stopped));
    stopped
}

/// How long the process has been stopped altogether, since the first note.
fn stopped_time() -> Duration {
    note(&mut CLOCK.lock().ignore_poison(), Instant::now())
}

/// When a run's time is up.
#[derive(Debug, Clone, Copy)]
pub struct RunDeadline {
    end: Instant,
    /// How long the process had been stopped when the time began.
    stopped_before: Duration,
}

impl RunDeadline {
    /// A deadline after this much running time, which is at most some centuries.
    pub fn after(time: Duration) -> Self {
        static STARTED: Once = Once::new();
        STARTED.call_once(|| {
            // Without a thread, a stopped process is only noticed where the deadline is looked at.
            let tick = || loop {
                thread::sleep(TICK);
                stopped_time();
            };
            let _ = thread::Builder::new().name("clock".to_owned()).spawn(tick);
        });
        Self { stopped_before: stopped_time(), end: Instant::now() + time }
    }

    /// When the time is up, if the process isn't stopped any more until then.
    pub fn end(&self) -> Instant {
        self.end + stopped_time().saturating_sub(self.stopped_before)
    }

    /// Whether the time is up.
    pub fn is_expired(&self) -> bool {
        Instant::now() >= self.end()
    }

    /// Waits until the time is up.
    pub async fn expired(&self) {
        while !self.is_expired() {
            tokio::time::sleep_until(self.end().into()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_gaps_are_time_in_which_the_process_was_stopped() {
        let start = Instant::now();
        let mut clock = None;
        let mut at = |milliseconds: u64| note(&mut clock, start + Duration::from_millis(milliseconds)).as_millis();
        assert_eq!([at(0), at(250), at(1_900), at(1_800)], [0; 4], "a busy machine isn't a stopped process");
        assert_eq!([at(32_000), at(32_250)], [29_850; 2]);
        assert_eq!(at(42_500), 39_850);
    }

    #[test]
    fn a_deadline_expires() {
        assert!(RunDeadline::after(Duration::ZERO).is_expired());
        let deadline = RunDeadline::after(Duration::from_secs(3_600));
        assert!(!deadline.is_expired() && deadline.end() > Instant::now() + Duration::from_secs(3_000));
    }
}
