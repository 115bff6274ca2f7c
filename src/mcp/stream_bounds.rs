//! What a server may send, whatever its transport.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

/// The longest message of a server, in bytes.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// The most bytes that a server may send before it answers.
pub(super) const MAX_UNANSWERED_BYTES: usize = 64 << 20;

/// What a server has sent.
#[derive(Debug, Default)]
pub(super) struct StreamBounds {
    /// The bytes since it last answered.
    unanswered: AtomicUsize,
    violation: OnceLock<&'static str>,
    /// Cancelled at a violation.
    violated: CancellationToken,
}

impl StreamBounds {
    /// Called when an answer has arrived.
    pub(super) fn reset(&self) {
        self.unanswered.store(0, Ordering::Relaxed);
    }

    /// Counts bytes that arrived.
    ///
    /// # Errors
    /// The server has exceeded a bound, now or before.
    pub(super) fn count(&self, bytes: usize) -> Result<(), &'static str> {
        let unanswered = self.unanswered.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if unanswered > MAX_UNANSWERED_BYTES {
            self.violate("it sent more than 64 MiB without an answer");
        }
        self.violation().map_or(Ok(()), Err)
    }

    /// The server has exceeded a bound: it can't be used any more.
    pub(super) fn violate(&self, what: &'static str) {
        let _ = self.violation.set(what);
        self.violated.cancel();
    }

    /// The bound that the server exceeded, if it did.
    pub(super) fn violation(&self) -> Option<&'static str> {
        self.violation.get().copied()
    }

    /// Waits until the server exceeds a bound.
    pub(super) async fn violated(&self) {
        self.violated.cancelled().await;
    }
}
