//! The signals that stop a run: caught on a thread of their own, so that they count even while the run is held up by
//! an output that nobody reads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::process::{Pid, getppid};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::process::kill_all;

/// A run that hasn't ended by itself so long after a signal is left where it is. Its journal is whole by then.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(2_700);

/// How often it is looked whether the process that started us is still there.
const PARENT_POLL_INTERVAL: Duration = Duration::from_millis(300);

/// What was caught so far.
pub struct Signals {
    first: Arc<AtomicU8>,
    stop: CancellationToken,
}

impl Signals {
    /// From now on the first SIGINT, SIGTERM or SIGHUP, any other signal that would end the process, or the
    /// end of the process that started us, stops the run; a second SIGINT, or 2.7 seconds without an end, ends the process and all that it has started. A file that may not grow any more (SIGXFSZ) is
    /// from now on a write that fails.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub fn catch() -> Result<Self, Error> {
        Self::catch_within(SHUTDOWN_GRACE)
    }

    /// As [`Self::catch`], with another time to end after a signal.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub fn catch_within(grace: Duration) -> Result<Self, Error> {
        Self::listen(grace)
            .map_err(|source| Error::Environment { message: "signals can't be caught".to_owned(), source })
    }

    fn listen(grace: Duration) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let caught = {
            let _entered = runtime.enter();
            // That it is caught is enough; and what we start doesn't inherit that, as it would if it were ignored.
            let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
            SignalStreams {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
                others: other_signals()?,
                hangup: if hangup_is_ignored() { None } else { Some(signal(SignalKind::hangup())?) },
                parent: getppid(),
            }
        };
        let first = Arc::new(AtomicU8::new(0));
        let (told, stopped) = (Arc::clone(&first), stop.clone());
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || runtime.block_on(caught.listen(&stopped, &told, grace)))?;
        Ok(Self { first, stop })
    }

    /// Cancelled by the first signal.
    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Whether one has come, to be asked on any thread.
    pub(super) fn caught(&self) -> impl Fn() -> bool + Send + 'static {
        let first = Arc::clone(&self.first);
        move || first.load(Ordering::SeqCst) != 0
    }

    /// The number of the first signal.
    pub fn first(&self) -> Option<u8> {
        Some(self.first.load(Ordering::SeqCst)).filter(|number| *number != 0)
    }
}

/// Whether whoever started us wants a hang-up to change nothing, as `nohup` does. Known on Linux only.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // A mask in which the lowest bit is signal 1.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Waits until the process isn't our parent any more: then it has ended. A signal at its end would be simpler, but it
/// comes at the end of the thread that started us.
async fn parent_exited(parent: Option<Pid>) {
    match parent {
        None => std::future::pending().await,
        Some(parent) => {
            while getppid() == Some(parent) {
                tokio::time::sleep(PARENT_POLL_INTERVAL).await;
            }
        }
    }
}

/// Signals that would end the process by default, and that users, batch systems and the kernel send for that: they count
/// as SIGTERM. SIGPIPE is ignored; what a mistake in the program raises, such as SIGSEGV, ends it.
const OTHER_TERMINATING_SIGNALS: &[rustix::process::Signal] = &[
    rustix::process::Signal::QUIT,
    rustix::process::Signal::USR1,
    rustix::process::Signal::USR2,
    rustix::process::Signal::ALARM,
    rustix::process::Signal::VTALARM,
    rustix::process::Signal::PROF,
    rustix::process::Signal::XCPU,
];

/// One stream of them all.
fn other_signals() -> io::Result<tokio::sync::mpsc::Receiver<()>> {
    let (tell, told) = tokio::sync::mpsc::channel(1);
    for kind in OTHER_TERMINATING_SIGNALS {
        let mut signals = signal(SignalKind::from_raw(kind.as_raw()))?;
        let tell = tell.clone();
        tokio::spawn(async move { while signals.recv().await.is_some() && tell.send(()).await.is_ok() {} });
    }
    Ok(told)
}

struct SignalStreams {
    interrupt: Signal,
    terminate: Signal,
    others: tokio::sync::mpsc::Receiver<()>,
    hangup: Option<Signal>,
    /// Who started us; `None` where that is outside of our namespace of processes.
    parent: Option<Pid>,
}

impl SignalStreams {
    async fn next(&mut self) -> u8 {
        // Whoever ignores hang-ups wants to outlive what started it.
        let watched = self.parent.filter(|parent| self.hangup.is_some() && *parent != Pid::INIT);
        let hung_up = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
            Some(()) = self.others.recv() => 15,
            _ = hung_up => 1,
            () = parent_exited(watched) => 15,
        }
    }

    /// The first signal, and then only signals: a parent vanishes once.
    async fn listen(mut self, stop: &CancellationToken, told: &AtomicU8, grace: Duration) {
        let first = self.next().await;
        self.parent = None;
        told.store(first, Ordering::SeqCst);
        stop.cancel();
        let again = async { while self.next().await != 2 {} };
        let code = match tokio::time::timeout(grace, again).await {
            Ok(()) => 130,
            Err(_) => 128 + i32::from(first),
        };
        kill_all();
        // The journal is whole up to here; what is left of the record can be rebuilt from it.
        #[allow(clippy::exit)]
        std::process::exit(code);
    }
}
