//! Writing to stdout and stderr: at once, or from a queue while a run goes on, so that a reader who stands still holds up
//! neither the run's clock nor its commands.
//!
//! Nothing is left out while there is hope. The queue takes whatever comes; once it is long, agents take no further step until
//! the readers have caught up, the run's time is up, or a signal comes.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::watch;

/// How much may wait before agents do, in bytes.
const BACKPRESSURE_BYTES: usize = 1 << 20;
/// How long readers are waited for after the run's end, at least.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Where text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn write(self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())
            }
            Self::Stderr => io::stderr().lock().write_all(bytes),
        }
    }
}

/// What waits to be written, in its order over both streams.
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
    has_capacity: watch::Sender<bool>,
    deadline: Instant,
}

#[derive(Default)]
struct QueueState {
    chunks: VecDeque<(Stream, Vec<u8>)>,
    /// What they have together, and what is being written.
    bytes: usize,
    /// Why stdout didn't take something.
    stdout_error: Option<io::Error>,
    mode: Mode,
}

/// What becomes of text.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Mode {
    #[default]
    Queued,
    /// The run is over and everything was read: it is written at once.
    Direct,
    /// The readers stand still: it is written where that takes no waiting.
    Abandoned,
}

static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let mut waiting = self.lock();
        match waiting.mode {
            Mode::Queued => {}
            Mode::Direct => return stream.write(bytes),
            Mode::Abandoned if stream == Stream::Stderr && stderr_has_room(bytes) => return stream.write(bytes),
            Mode::Abandoned => return Ok(()),
        }
        waiting.bytes += bytes.len();
        waiting.chunks.push_back((stream, bytes.to_owned()));
        if waiting.bytes > BACKPRESSURE_BYTES {
            self.has_capacity.send_if_modified(|keeps_up| std::mem::replace(keeps_up, false));
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Writes what comes, for ever.
    fn write_loop(&self) {
        let mut waiting = self.lock();
        loop {
            let Some((stream, bytes)) = waiting.chunks.pop_front() else {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(waiting);
            let written = stream.write(&bytes);
            waiting = self.lock();
            if let (Err(error), Stream::Stdout) = (written, stream) {
                waiting.stdout_error.get_or_insert(error);
            }
            waiting.bytes = waiting.bytes.saturating_sub(bytes.len());
            if waiting.bytes <= BACKPRESSURE_BYTES / 2 {
                self.has_capacity.send_if_modified(|keeps_up| !std::mem::replace(keeps_up, true));
            }
            self.changed.notify_all();
        }
    }

    /// Waits until everything is written.
    fn drain(&self) -> io::Result<()> {
        let until = self.deadline.max(Instant::now() + DRAIN_TIMEOUT);
        let mut waiting = self.lock();
        while waiting.bytes > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                waiting.mode = Mode::Abandoned;
                let why = "its reader took nothing until the run's time was up";
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            waiting = self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        waiting.mode = Mode::Direct;
        waiting.stdout_error.take().map_or(Ok(()), Err)
    }
}

/// Whether stderr has room for a few words, so that writing them waits for nobody.
fn stderr_has_room(bytes: &[u8]) -> bool {
    let stderr = io::stderr();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A pipe that says so has room for that many bytes (PIPE_BUF).
    bytes.len() <= 4096 && poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&now)) == Ok(1)
}

/// Writes text whole, or puts it into the queue where there is one.
pub(super) fn write(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match QUEUE.get() {
        Some(queue) => queue.push(stream, bytes),
        None => stream.write(bytes),
    }
}

/// From now on text is written from a queue; at the end its readers are waited for until `deadline`. Gives what is false
/// while the queue is long.
///
/// # Errors
/// Where the system has no thread left.
pub(super) fn start(deadline: Instant) -> io::Result<watch::Receiver<bool>> {
    let (keeps_up, _) = watch::channel(true);
    let queue = Arc::new(Queue { state: Mutex::default(), changed: Condvar::new(), has_capacity: keeps_up, deadline });
    let writer = Arc::clone(&queue);
    std::thread::Builder::new().name("outputs".to_owned()).spawn(move || writer.write_loop())?;
    Ok(QUEUE.get_or_init(|| queue).has_capacity.subscribe())
}

/// Waits for the readers of what is in the queue.
///
/// # Errors
/// Where stdout didn't take everything: it failed, or its reader stood still until the time was up.
pub(super) fn drain() -> io::Result<()> {
    QUEUE.get().map_or(Ok(()), |queue| queue.drain())
}
