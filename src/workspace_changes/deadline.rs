//! The time limit of a baseline or a comparison.

use std::cell::OnceCell;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// How long the work may continue once the run is in a hurry.
const HURRY_TIMEOUT: Duration = Duration::from_millis(800);

/// A deadline that moves closer when the run is in a hurry to end.
pub struct Deadline {
    end: Instant,
    hurry: CancellationToken,
    hurried_end: OnceCell<Instant>,
    /// Ends the work at once, without a result.
    pub cancel: CancellationToken,
}

impl Deadline {
    /// Expires after `timeout`, or 0.8 seconds after `hurry` was noticed.
    pub fn new(timeout: Duration, hurry: CancellationToken) -> Self {
        let end = Instant::now() + timeout;
        Self { end, hurry, hurried_end: OnceCell::new(), cancel: CancellationToken::new() }
    }

    /// Whether the time is up.
    pub fn is_expired(&self) -> bool {
        self.cancel.is_cancelled() || Instant::now() >= self.end()
    }

    /// When the time is up, as of now.
    pub(super) fn end(&self) -> Instant {
        match self.hurry.is_cancelled() {
            true => self.end.min(*self.hurried_end.get_or_init(|| Instant::now() + HURRY_TIMEOUT)),
            false => self.end,
        }
    }
}
