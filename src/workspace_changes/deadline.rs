//! How long looking may take.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a look may go on once there is haste.
const HURRY_TIMEOUT: Duration = Duration::from_millis(800);

/// An end to every look: a time, and an earlier one from when there is haste.
pub struct Deadline {
    end: Cell<Instant>,
    must_hurry: Box<dyn Fn() -> bool + Send>,
    is_hurried: Cell<bool>,
    cancelled: Arc<AtomicBool>,
}

impl Deadline {
    /// `longest` from now, or 0.8 seconds from when `hurried` first says so.
    pub fn new(longest: Duration, hurried: impl Fn() -> bool + Send + 'static) -> Self {
        Self {
            end: Cell::new(Instant::now() + longest),
            must_hurry: Box::new(hurried),
            is_hurried: Cell::new(false),
            cancelled: Arc::default(),
        }
    }

    /// Set it, and the look ends at once, without a result.
    pub fn cancel_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancelled)
    }

    /// Whether the time is up.
    pub(super) fn is_expired(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || Instant::now() >= self.end()
    }

    /// Whether there is haste.
    pub(super) fn is_hurried(&self) -> bool {
        self.end();
        self.is_hurried.get() || self.cancelled.load(Ordering::Relaxed)
    }

    /// When it is, as far as that is known.
    pub(super) fn end(&self) -> Instant {
        if !self.is_hurried.get() && (self.must_hurry)() {
            self.is_hurried.set(true);
            self.end.set(self.end.get().min(Instant::now() + HURRY_TIMEOUT));
        }
        self.end.get()
    }
}
