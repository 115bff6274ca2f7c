//! How much a run may send.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;

/// Counts what all commands of a run send, and says when it is enough. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct UploadMeter(Arc<Meter>);

#[derive(Debug, Default)]
struct Meter {
    sent: AtomicU64,
    limit: Option<u64>,
    reached: CancellationToken,
}

impl UploadMeter {
    /// A meter for a run that has sent some bytes before it was resumed.
    pub fn new(limit: Option<u64>, sent: u64) -> Self {
        let meter = Self(Arc::new(Meter { sent: AtomicU64::new(sent), limit, reached: CancellationToken::new() }));
        meter.check(sent);
        meter
    }

    /// The bytes that were sent so far.
    pub fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::Relaxed)
    }

    /// The limit in bytes.
    pub fn limit(&self) -> Option<u64> {
        self.0.limit
    }

    /// Cancelled when a byte more than the limit was to be sent; also the reason why connections are cut.
    pub fn reached(&self) -> &CancellationToken {
        &self.0.reached
    }

    /// Counts bytes before they are sent. Returns whether they may be.
    #[must_use]
    pub fn send(&self, bytes: u64) -> bool {
        let Some(limit) = self.0.limit else {
            self.0.sent.fetch_add(bytes, Ordering::Relaxed);
            return true;
        };
        let add = |sent: u64| sent.checked_add(bytes).filter(|sum| *sum <= limit);
        let is_within = self.0.sent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
        if !is_within {
            self.0.reached.cancel();
        }
        is_within && !self.0.reached.is_cancelled()
    }

    fn check(&self, sent: u64) {
        if self.0.limit.is_some_and(|limit| sent > limit) {
            self.0.reached.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_limit_can_be_sent() {
        let meter = UploadMeter::new(Some(10), 4);
        assert!(meter.clone().send(6));
        assert!(!meter.reached().is_cancelled());
        assert!(!meter.send(1));
        assert!(meter.reached().is_cancelled());
        assert_eq!(meter.sent(), 10);
        assert!(UploadMeter::new(None, 0).send(u64::MAX / 2));
        assert!(UploadMeter::new(Some(1), 2).reached().is_cancelled());
    }
}
