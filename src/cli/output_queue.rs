//! Writes to stdout and stderr: directly, or from a queue during a run, so that a stalled reader blocks neither the run's
//! timers nor its commands.
//!
//! The queue accepts everything. When it is long, agents pause until the readers catch up, the run's time is up, or a signal
//! arrives.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::watch;

use crate::running_clock::RunningInstant;
use crate::sync::IgnorePoison;

/// The queue length in bytes from which on agents pause.
const BACKPRESSURE_BYTES: usize = 1 << 20;
/// The least time to wait for readers after the end of a run.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The queue length in bytes from which on live lines aren't drawn: the terminal is stopped or slow.
const LIVE_LINES_BACKLOG: usize = 16 << 10;

/// The most time to wait for the terminal before the process stops.
const PAUSE_TIMEOUT: Duration = Duration::from_millis(200);

/// Erases the live lines, if the cursor is at the beginning of the first one.
pub(super) const ERASE_LIVE_LINES: &str = "\r\u{1b}[J";

/// Whether live lines are on the terminal, with the cursor at the beginning of the first one.
static LIVE_LINES: Mutex<LiveLines> = Mutex::new(LiveLines::Erased);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LiveLines {
    Shown,
    Erased,
    /// They aren't drawn, because the process is about to stop.
    Paused,
}

/// An output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn write(self, bytes: &[u8]) {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush()).unwrap_or_else(record_stdout_error);
            }
            // There is nowhere left to report an error.
            Self::Stderr => drop(io::stderr().lock().write_all(bytes)),
        }
    }
}

/// The first error of stdout, other than a closed pipe.
static STDOUT_ERROR: Mutex<Option<io::Error>> = Mutex::new(None);

/// Records an error of stdout, except for a closed pipe.
fn record_stdout_error(error: io::Error) {
    if error.kind() != io::ErrorKind::BrokenPipe {
        STDOUT_ERROR.lock().ignore_poison().get_or_insert(error);
    }
}

/// The queue of both streams, in order.
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
    has_capacity: watch::Sender<bool>,
    deadline: RunningInstant,
}

#[derive(Default)]
struct QueueState {
    chunks: VecDeque<(Stream, Vec<u8>)>,
    /// Bytes in `chunks`, plus those being written.
    bytes: usize,
    mode: Mode,
}

/// How text is written.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Mode {
    #[default]
    Queued,
    /// The run is over and the queue is empty: write directly.
    Direct,
    /// The readers are stalled: write only what doesn't block.
    Abandoned,
}

static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().ignore_poison()
    }

    fn push(&self, stream: Stream, bytes: &[u8]) {
        let mut state = self.lock();
        match state.mode {
            Mode::Queued => {}
            Mode::Direct => return stream.write(bytes),
            Mode::Abandoned if stream == Stream::Stderr && stderr_has_capacity(bytes) => return stream.write(bytes),
            Mode::Abandoned => return,
        }
        state.bytes += bytes.len();
        state.chunks.push_back((stream, bytes.to_owned()));
        if state.bytes > BACKPRESSURE_BYTES {
            self.has_capacity.send_if_modified(|has_capacity| std::mem::replace(has_capacity, false));
        }
        self.changed.notify_all();
    }

    /// Writes chunks as they arrive, forever.
    fn write_loop(&self) {
        let mut state = self.lock();
        loop {
            let Some((stream, bytes)) = state.chunks.pop_front() else {
                state = self.changed.wait(state).ignore_poison();
                continue;
            };
            drop(state);
            stream.write(&bytes);
            state = self.lock();
            state.bytes = state.bytes.saturating_sub(bytes.len());
            if state.bytes <= BACKPRESSURE_BYTES / 2 {
                self.has_capacity.send_if_modified(|has_capacity| !std::mem::replace(has_capacity, true));
            }
            self.changed.notify_all();
        }
    }

    /// Waits until the queue is empty.
    fn drain(&self) {
        let until = self.deadline.max(RunningInstant::now() + DRAIN_TIMEOUT);
        let mut state = self.lock();
        while state.bytes > 0 {
            let left = until.left();
            if left.is_zero() {
                state.mode = Mode::Abandoned;
                let why = "its reader stalled until the run's time was up";
                return record_stdout_error(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            state = self.changed.wait_timeout(state, left).ignore_poison().0;
        }
        state.mode = Mode::Direct;
    }
}

/// Whether a short text can be written to stderr without blocking.
fn stderr_has_capacity(bytes: &[u8]) -> bool {
    let stderr = io::stderr();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A writable pipe has room for PIPE_BUF bytes.
    bytes.len() <= 4096 && poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&now)) == Ok(1)
}

/// Writes text, or queues it during a run. Live lines are erased first.
pub(super) fn write(stream: Stream, bytes: &[u8]) {
    if stream == Stream::Stdout {
        return push(stream, bytes);
    }
    let mut lines = live_lines();
    if *lines == LiveLines::Shown {
        *lines = LiveLines::Erased;
        return push(stream, &[ERASE_LIVE_LINES.as_bytes(), bytes].concat());
    }
    push(stream, bytes);
}

/// Draws live lines on stderr, with text that leaves the cursor at the beginning of the first one. Returns whether they were
/// drawn: not while much text waits for the terminal.
pub(super) fn write_live(bytes: &[u8]) -> bool {
    if QUEUE.get().is_some_and(|queue| queue.lock().bytes > LIVE_LINES_BACKLOG) {
        return false;
    }
    let mut lines = live_lines();
    if *lines == LiveLines::Paused {
        return false;
    }
    *lines = LiveLines::Shown;
    push(Stream::Stderr, bytes);
    true
}

/// Erases the live lines, and waits for a moment until that is written. None are drawn until [`resume_live_lines`].
pub(super) fn pause_live_lines() {
    let mut lines = live_lines();
    if std::mem::replace(&mut *lines, LiveLines::Paused) == LiveLines::Shown {
        push(Stream::Stderr, ERASE_LIVE_LINES.as_bytes());
    }
    drop(lines);
    if let Some(queue) = QUEUE.get() {
        let state = queue.lock();
        // A stalled terminal gets nothing more anyway.
        drop(queue.changed.wait_timeout_while(state, PAUSE_TIMEOUT, |state| state.bytes > 0));
    }
}

/// Lets live lines be drawn again.
pub(super) fn resume_live_lines() {
    *live_lines() = LiveLines::Erased;
}

fn live_lines() -> MutexGuard<'static, LiveLines> {
    LIVE_LINES.lock().ignore_poison()
}

fn push(stream: Stream, bytes: &[u8]) {
    match QUEUE.get() {
        Some(queue) => queue.push(stream, bytes),
        None => stream.write(bytes),
    }
}

/// Starts the queue. [`finish`] waits for readers until `deadline`. The receiver's value is false while the queue is long.
///
/// # Errors
/// The thread can't be started.
pub(super) fn start(deadline: RunningInstant) -> io::Result<watch::Receiver<bool>> {
    let (has_capacity, _) = watch::channel(true);
    let queue = Arc::new(Queue { state: Mutex::default(), changed: Condvar::new(), has_capacity, deadline });
    let writer = Arc::clone(&queue);
    std::thread::Builder::new().name("outputs".to_owned()).spawn(move || writer.write_loop())?;
    Ok(QUEUE.get_or_init(|| queue).has_capacity.subscribe())
}

/// Waits until the queue is written. Returns the first error of stdout, which is also that its reader stalled until the
/// deadline.
pub(super) fn finish() -> Option<io::Error> {
    if let Some(queue) = QUEUE.get() {
        queue.drain();
    }
    STDOUT_ERROR.lock().ignore_poison().take()
}
