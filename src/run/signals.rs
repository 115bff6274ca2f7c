//! The signals that stop a run. They are caught on a thread of their own, so that they work while the run waits for the
//! readers of its output.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures_util::future::select_all;
use rustix::process::{Pid, Signal, getppid};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::process::kill_all;

/// How long a run may take to end after a signal. Then the process exits; the journal is complete up to that point.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(2_700);

/// How often the existence of the parent process is checked.
const PARENT_POLL_INTERVAL: Duration = Duration::from_millis(300);

/// The signals that were caught. Clones are the same signals.
#[derive(Clone)]
pub struct Signals {
    first: Arc<AtomicU8>,
    /// Cancelled by the first signal.
    pub stop: CancellationToken,
}

impl Signals {
    /// No signals: nothing stops the run but who cancels [`Self::stop`].
    pub fn none() -> Self {
        Self { first: Arc::default(), stop: CancellationToken::new() }
    }

    /// Starts to catch signals. The first SIGINT, SIGTERM or SIGHUP, any other signal that would end the process, or the end
    /// of the parent process stops the run. A second SIGINT, or 2.7 seconds without an end, ends the process and all
    /// processes that it has started. A file at its size limit (SIGXFSZ) becomes a failed write.
    ///
    /// # Errors
    /// The system has no threads or file descriptors left.
    pub fn catch() -> Result<Self, Error> {
        Self::catch_within(SHUTDOWN_GRACE)
    }

    /// Like [`Self::catch`], with another time to end after a signal.
    ///
    /// # Errors
    /// The system has no threads or file descriptors left.
    pub fn catch_within(grace: Duration) -> Result<Self, Error> {
        Self::listen(grace)
            .map_err(|source| Error::Environment { message: "signals can't be caught".to_owned(), source })
    }

    fn listen(grace: Duration) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let streams = {
            let _entered = runtime.enter();
            SignalStreams::catch()?
        };
        let first = Arc::new(AtomicU8::new(0));
        let (caught, cancel) = (Arc::clone(&first), stop.clone());
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || runtime.block_on(streams.listen(&cancel, &caught, grace)))?;
        Ok(Self { first, stop })
    }

    /// Does what must be done before there is a record. A signal, or the end of the parent process, ends the process and all
    /// processes that it has started.
    ///
    /// # Errors
    /// The system has no file descriptors left.
    pub async fn exit_unless_done<T>(work: impl Future<Output = T>) -> Result<T, Error> {
        let streams = SignalStreams::catch();
        let mut streams =
            streams.map_err(|source| Error::Environment { message: "signals can't be caught".to_owned(), source })?;
        tokio::select! {
            done = work => Ok(done),
            number = streams.next() => exit_all(128 + i32::from(number)),
        }
    }

    /// The same signals for a part of the work, which `stop` can also end without a signal.
    #[must_use]
    pub fn for_part(&self) -> Self {
        self.with_stop(self.stop.child_token())
    }

    /// The same signals for a part of the work that `stop` ends.
    #[must_use]
    pub fn with_stop(&self, stop: CancellationToken) -> Self {
        Self { first: Arc::clone(&self.first), stop }
    }

    /// The number of the first signal, if one was caught.
    pub fn first(&self) -> Option<u8> {
        Some(self.first.load(Ordering::SeqCst)).filter(|number| *number != 0)
    }
}

/// Whether the parent process made us ignore hang-ups, as `nohup` does.
#[cfg(target_os = "linux")]
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The lowest bit is signal 1.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Whether the parent process made us ignore hang-ups, as `nohup` does.
#[cfg(not(target_os = "linux"))]
#[allow(unsafe_code)]
fn hangup_is_ignored() -> bool {
    // SAFETY: all zeros is a valid action, and without a new action, the call only writes the current one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Waits until our parent has another id: then it has ended. A parent-death signal would be simpler, but it comes at the
/// end of the thread that started us.
async fn parent_exited(parent: Option<Pid>) {
    let Some(parent) = parent else { return std::future::pending().await };
    while getppid() == Some(parent) {
        tokio::time::sleep(PARENT_POLL_INTERVAL).await;
    }
}

/// SIGTERM, and the other signals that end a process by default and that users, batch systems and the kernel send: they
/// count as SIGTERM.
/// SIGPIPE is ignored, and signals that a bug raises, such as SIGSEGV, end the process.
const TERMINATING_SIGNALS: &[Signal] = &[
    Signal::TERM,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::XCPU,
];

struct SignalStreams {
    /// The signals, each with the number of the one that it counts as.
    signals: Vec<(u8, unix::Signal)>,
    /// The process that started us; `None` if we may outlive it, because we ignore hang-ups, or if it isn't known.
    parent: Option<Pid>,
}

impl SignalStreams {
    /// Starts to catch signals, in the current runtime.
    fn catch() -> io::Result<Self> {
        let is_immune = hangup_is_ignored();
        let hangup = (!is_immune).then_some((1, Signal::HUP));
        let numbers = TERMINATING_SIGNALS.iter().map(|kind| (15, *kind));
        let catch = |kind: Signal| signal(SignalKind::from_raw(kind.as_raw()));
        // Catching it is enough. Child processes don't inherit a caught signal, as they would an ignored one.
        let _ = catch(Signal::XFSZ)?;
        let all = std::iter::once((2, Signal::INT)).chain(numbers).chain(hangup);
        Ok(Self {
            signals: all.map(|(number, kind)| Ok((number, catch(kind)?))).collect::<io::Result<_>>()?,
            parent: getppid().filter(|parent| !is_immune && *parent != Pid::INIT),
        })
    }

    async fn next(&mut self) -> u8 {
        let caught = self.signals.iter_mut().map(|(number, signal)| {
            Box::pin(async {
                signal.recv().await;
                *number
            })
        });
        tokio::select! {
            (number, ..) = select_all(caught) => number,
            () = parent_exited(self.parent) => 15,
        }
    }

    /// Waits for the first signal or the end of the parent, then for a second signal.
    async fn listen(mut self, stop: &CancellationToken, caught: &AtomicU8, grace: Duration) {
        let first = self.next().await;
        self.parent = None;
        caught.store(first, Ordering::SeqCst);
        stop.cancel();
        let again = async { while self.next().await != 2 {} };
        let code = match tokio::time::timeout(grace, again).await {
            Ok(()) => 130,
            Err(_) => 128 + i32::from(first),
        };
        // The journal is complete; the rest of the record can be rebuilt from it.
        exit_all(code)
    }
}

/// Ends the process and all processes that it has started.
#[allow(clippy::exit)]
fn exit_all(code: i32) -> ! {
    kill_all();
    std::process::exit(code)
}
