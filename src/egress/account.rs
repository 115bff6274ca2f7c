//! Counts what passes through one connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::egress::CallEgress;
use super::names::HostName;
use super::refused_reason::RefusedReason;

/// How long nothing may pass.
const MAX_IDLE: Duration = Duration::from_secs(600);

/// One connection to a host.
#[derive(Debug)]
pub(super) struct Account {
    call: CallEgress,
    host: HostName,
    port: u16,
    begin: Instant,
    /// When something has passed last, in milliseconds since the begin.
    last: AtomicU64,
}

impl Account {
    /// Counts a connection that has been made.
    pub(super) fn open(call: &CallEgress, host: &HostName, port: u16) -> Self {
        call.count(host, port, 1, 0, 0);
        Self { call: call.clone(), host: host.clone(), port, begin: Instant::now(), last: AtomicU64::new(0) }
    }

    /// Counts bytes before they are sent.
    ///
    /// # Errors
    /// The run has sent as much as it may.
    pub(super) fn send(&self, bytes: usize) -> Result<(), RefusedReason> {
        if !self.call.egress().upload().send(bytes as u64) {
            return Err(RefusedReason::UploadLimit);
        }
        self.call.count(&self.host, self.port, 0, bytes as u64, 0);
        self.touch();
        Ok(())
    }

    /// Counts bytes that were received.
    pub(super) fn receive(&self, bytes: usize) {
        self.call.count(&self.host, self.port, 0, 0, bytes as u64);
        self.touch();
    }

    fn touch(&self) {
        let now = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Returns when the connection must be cut: nothing has passed for a long time, or the run has sent as much as it may.
    pub(super) async fn must_end(&self) -> Result<(), RefusedReason> {
        let idle = async {
            loop {
                let end = self.begin + Duration::from_millis(self.last.load(Ordering::Relaxed)) + MAX_IDLE;
                if Instant::now() >= end {
                    return;
                }
                tokio::time::sleep_until(end).await;
            }
        };
        tokio::select! {
            () = idle => Ok(()),
            () = self.call.egress().upload().reached().cancelled() => Err(RefusedReason::UploadLimit),
        }
    }
}
