//! Calls a function at intervals on a thread of its own.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

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
            let mut guard = stopped.lock().unwrap_or_else(PoisonError::into_inner);
            while !*guard {
                guard = changed.wait_timeout(guard, interval).unwrap_or_else(PoisonError::into_inner).0;
                if !*guard {
                    drop(guard);
                    tick();
                    guard = stopped.lock().unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        let thread = Builder::new().name("progress".to_owned()).spawn(run)?;
        Ok(Self { stopped, thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        *self.stopped.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stopped.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
