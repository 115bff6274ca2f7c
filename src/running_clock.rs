//! A clock that stands still while this process can't run: stopped (SIGSTOP, Ctrl-Z, a paused container), or on a machine that
//! sleeps or is paused.
//!
//! A thread notes the time at short intervals. If it comes late although it didn't wait for a processor, nothing could run in
//! the meantime. Between two notes, the clock is at most one interval ahead of the last one, so that nobody's time is up before
//! the thread has said why it is late.

use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

use crate::sync::IgnorePoison;

/// How often the time is noted.
const TICK: Duration = Duration::from_millis(250);
/// The thread is never late by more than this, unless it waited for a processor or the process was stopped.
const MAX_DELAY: Duration = Duration::from_millis(250);
/// The same where the system doesn't say how long the thread waited for a processor.
const MAX_UNKNOWN_DELAY: Duration = Duration::from_secs(2);
/// The shortest time to wait before the clock is read again.
pub(crate) const MIN_SLEEP: Duration = Duration::from_millis(1);

/// How long the process has been running, and how long it couldn't.
#[derive(Debug, Clone, Copy)]
struct Clock {
    noted_at: Instant,
    /// How long the thread had waited for a processor by then, where the system says so.
    waited: Option<Duration>,
    running: Duration,
    stopped: Duration,
}

/// The clock, and whether a thread notes the time.
static CLOCK: LazyLock<Mutex<(Clock, bool)>> = LazyLock::new(|| {
    // Not zero, so that there are moments before the first one.
    let running = Duration::from_secs(1 << 32);
    Mutex::new((Clock { noted_at: Instant::now(), waited: None, running, stopped: Duration::ZERO }, false))
});

impl Clock {
    /// Notes the time. `waited` is how long the thread that notes it has waited for a processor since it was started.
    fn note(&mut self, now: Instant, waited: Option<Duration>) {
        let gap = now.saturating_duration_since(self.noted_at);
        let late = gap.saturating_sub(TICK);
        let stopped = match (self.waited, waited) {
            (Some(before), Some(waited)) => {
                Some(late.saturating_sub(waited.saturating_sub(before))).filter(|time| *time > MAX_DELAY)
            }
            _ => Some(late).filter(|time| *time > MAX_UNKNOWN_DELAY),
        };
        let stopped = stopped.unwrap_or_default();
        *self = Self {
            noted_at: self.noted_at.max(now),
            waited,
            running: self.running + (gap - stopped),
            stopped: self.stopped + stopped,
        };
    }

    /// The running time.
    fn running_at(&self, now: Instant) -> Duration {
        self.running + now.saturating_duration_since(self.noted_at).min(TICK)
    }
}

/// How long this thread has waited for a processor, where the system says so.
fn processor_wait() -> Option<Duration> {
    // The time on a processor, the time waited for one, and the number of time slices.
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// Notes the time for ever.
fn tick() {
    loop {
        let waited = processor_wait();
        CLOCK.lock().ignore_poison().0.note(Instant::now(), waited);
        thread::sleep(TICK);
    }
}

/// The clock as it is now.
fn read_clock() -> (Clock, Instant) {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        LazyLock::force(&CLOCK);
        let thread = thread::Builder::new().name("clock".to_owned()).spawn(tick);
        CLOCK.lock().ignore_poison().1 = thread.is_ok();
    });
    let mut clock = CLOCK.lock().ignore_poison();
    let now = Instant::now();
    if !clock.1 {
        // Without a thread, the time is noted where it is asked for.
        clock.0.note(now, None);
    }
    (clock.0, now)
}

/// A moment of the running clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunningInstant(Duration);

impl RunningInstant {
    /// The present moment.
    pub fn now() -> Self {
        let (clock, now) = read_clock();
        Self(clock.running_at(now))
    }

    /// How much running time has passed since.
    pub fn elapsed(self) -> Duration {
        Self::now().duration_since(self)
    }

    /// The running time since an earlier moment; none if it is a later one.
    pub fn duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// How much running time is left until then.
    pub fn left(self) -> Duration {
        self.duration_since(Self::now())
    }

    /// The moment that was this much earlier.
    #[cfg(test)]
    pub(crate) fn before(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time))
    }

    /// Whether it has come.
    pub fn has_passed(self) -> bool {
        self.left().is_zero()
    }
}

impl Add<Duration> for RunningInstant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

/// Waits until a moment has come.
pub async fn sleep_until(end: RunningInstant) {
    // The clock may stand still for some time yet.
    while !end.has_passed() {
        tokio::time::sleep(end.left().max(MIN_SLEEP)).await;
    }
}

/// Waits for this much running time.
pub async fn sleep(time: Duration) {
    sleep_until(RunningInstant::now() + time).await;
}

/// The running time is up.
#[derive(Debug)]
pub struct Elapsed;

/// Waits for a future, or until this much running time has passed.
///
/// # Errors
/// The time is up.
pub async fn timeout<F: Future>(time: Duration, future: F) -> Result<F::Output, Elapsed> {
    timeout_at(RunningInstant::now() + time, future).await
}

/// Waits for a future, or until a moment has come.
///
/// # Errors
/// The moment has come.
pub async fn timeout_at<F: Future>(end: RunningInstant, future: F) -> Result<F::Output, Elapsed> {
    tokio::select! {
        biased;
        output = future => Ok(output),
        () = sleep_until(end) => Err(Elapsed),
    }
}

/// For how long this process couldn't run since a moment, while the time of day went on.
#[derive(Debug, Clone, Copy)]
pub struct Suspensions(Duration);

impl Suspensions {
    /// Begins to count.
    pub fn since_now() -> Self {
        Self(suspended())
    }

    /// How long it couldn't run since then, in milliseconds.
    pub fn total_ms(self) -> u64 {
        u64::try_from(suspended().saturating_sub(self.0).as_millis()).unwrap_or(u64::MAX)
    }
}

/// For how long this process was stopped and the machine slept.
fn suspended() -> Duration {
    read_clock().0.stopped + slept()
}

/// For how long the machine has slept since it was started. The monotonic clock doesn't count that.
fn slept() -> Duration {
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    #[cfg(target_os = "linux")]
    {
        use rustix::time::{ClockId, clock_gettime};
        let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        let with_sleep = read(ClockId::Boottime);
        // In this order, so that a pause between the two is never taken for sleep.
        let slept = with_sleep.saturating_sub(read(ClockId::Monotonic));
        KNOWN.fetch_max(u64::try_from(slept.as_millis()).unwrap_or_default(), Ordering::Relaxed);
    }
    Duration::from_millis(KNOWN.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_process_could_not_run_is_not_running_time() {
        let start = Instant::now();
        let zero = Duration::ZERO;
        let mut clock = Clock { noted_at: start, waited: Some(zero), running: zero, stopped: zero };
        let mut at = |milliseconds: u64, waited: Option<u64>| {
            let now = start + Duration::from_millis(milliseconds);
            let before = clock.running_at(now);
            clock.note(now, waited.map(Duration::from_millis));
            assert!(clock.running_at(now) >= before, "it never goes back");
            (clock.running.as_millis(), clock.stopped.as_millis())
        };
        assert_eq!(at(250, Some(0)), (250, 0));
        assert_eq!(at(1_250, Some(700)), (1_250, 0), "a busy machine isn't a stopped process");
        assert_eq!(at(2_250, Some(700)), (1_500, 750), "stopped for less than two seconds");
        assert_eq!(at(4_500, Some(1_200)), (2_250, 2_250), "stopped, and then waited for a processor");
        assert_eq!(at(34_500, Some(1_200)), (2_500, 32_000));
        assert_eq!(at(34_400, Some(1_200)), (2_500, 32_000), "a clock that goes back");
        assert_eq!(at(36_500, None), (4_500, 32_000), "without the time of waiting, only long gaps count");
        assert_eq!(at(46_500, None), (4_750, 41_750));
    }

    #[test]
    fn the_clock_is_at_most_one_interval_ahead_of_the_last_note() {
        let start = Instant::now();
        let zero = Duration::ZERO;
        let clock = Clock { noted_at: start, waited: None, running: zero, stopped: zero };
        let at = |milliseconds| clock.running_at(start + Duration::from_millis(milliseconds)).as_millis();
        assert_eq!([at(0), at(100), at(30_000)], [0, 100, 250]);
    }

    #[tokio::test]
    async fn the_clock_runs_while_the_process_does() {
        let begun = RunningInstant::now();
        sleep(Duration::from_millis(600)).await;
        assert!(begun.elapsed() >= Duration::from_millis(600) && !(begun + Duration::from_secs(3_600)).has_passed());
        assert!(timeout(Duration::from_millis(1), std::future::pending::<()>()).await.is_err());
        assert_eq!(timeout(Duration::from_secs(60), async { 1 }).await.ok(), Some(1));
    }
}
