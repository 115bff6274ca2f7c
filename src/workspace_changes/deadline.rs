//! The time limit of a baseline or a comparison.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the work may continue once the run is in a hurry.
const HURRY_TIMEOUT: Duration = Duration::from_millis(800);

/// A deadline that moves closer when the run is in a hurry to end.
pub struct Deadline {
    end: Cell<Instant>,
    must_hurry: Box<dyn Fn() -> bool + Send>,
    is_hurried: Cell<bool>,
    cancelled: Arc<AtomicBool>,
}

impl Deadline {
    /// Expires after `timeout`, or 0.8 seconds after `must_hurry` first returns true.
    pub fn new(timeout: Duration, must_hurry: impl Fn() -> bool + Send + 'static) -> Self {
        Self {
            end: Cell::new(Instant::now() + timeout),
            must_hurry: Box::new(must_hurry),
            is_hurried: Cell::new(false),
            cancelled: Arc::default(),
        }
    }

    /// A flag that, when set, ends the work at once, without a result.
    pub fn cancel_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancelled)
    }

    /// Whether the time is up.
    pub(super) fn is_expired(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || Instant::now() >= self.end()
    }

    /// Whether the run is in a hurry.
    pub(super) fn is_hurried(&self) -> bool {
        self.end();
        self.is_hurried.get() || self.cancelled.load(Ordering::Relaxed)
    }

    /// When the time is up, as of now.
    pub(super) fn end(&self) -> Instant {
        if !self.is_hurried.get() && (self.must_hurry)() {
            self.is_hurried.set(true);
            self.end.set(self.end.get().min(Instant::now() + HURRY_TIMEOUT));
        }
        self.end.get()
    }
}
