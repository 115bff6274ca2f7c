//! Calls a function at intervals on a thread of its own.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::sync::IgnorePoison;

/// Calls a function at intervals until it is dropped.
pub(super) struct Ticker {
    stopped: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts to call `tick`.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(super) fn start(interval: Duration, tick: impl Fn() + Send + 'static) -> io::Result<Self> {
        let stopped = Arc::new((Mutex::new(false), Condvar::new()));
        let of_thread = Arc::clone(&stopped);
        let run = move || {
            let (stopped, changed) = &*of_thread;
            let mut guard = stopped.lock().ignore_poison();
            while !*guard {
                guard = changed.wait_timeout(guard, interval).ignore_poison().0;
                if !*guard {
                    drop(guard);
                    tick();
                    guard = stopped.lock().ignore_poison();
                }
            }
        };
        let thread = Builder::new().name("progress".to_owned()).spawn(run)?;
        Ok(Self { stopped, thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        *self.stopped.0.lock().ignore_poison() = true;
        self.stopped.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
