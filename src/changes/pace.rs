//! How long looking may take.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a look may go on once there is haste.
const HASTE: Duration = Duration::from_millis(800);

/// An end to every look: a time, and an earlier one from when there is haste.
pub struct Pace {
    end: Cell<Instant>,
    hurried: Box<dyn Fn() -> bool + Send>,
    in_haste: Cell<bool>,
    given_up: Arc<AtomicBool>,
}

impl Pace {
    /// `longest` from now, or 0.8 seconds from when `hurried` first says so.
    pub fn new(longest: Duration, hurried: impl Fn() -> bool + Send + 'static) -> Self {
        Self {
            end: Cell::new(Instant::now() + longest),
            hurried: Box::new(hurried),
            in_haste: Cell::new(false),
            given_up: Arc::default(),
        }
    }

    /// Set it, and the look ends at once, without a result.
    pub fn given_up(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.given_up)
    }

    /// Whether the time is up.
    pub(super) fn is_over(&self) -> bool {
        self.given_up.load(Ordering::Relaxed) || Instant::now() >= self.end()
    }

    /// Whether there is haste.
    pub(super) fn in_haste(&self) -> bool {
        self.end();
        self.in_haste.get() || self.given_up.load(Ordering::Relaxed)
    }

    /// When it is, as far as that is known.
    pub(super) fn end(&self) -> Instant {
        if !self.in_haste.get() && (self.hurried)() {
            self.in_haste.set(true);
            self.end.set(self.end.get().min(Instant::now() + HASTE));
        }
        self.end.get()
    }
}
