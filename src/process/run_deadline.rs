//! When the time of a run is up.

use std::time::Duration;

use crate::running_clock::{RunningInstant, sleep_until};

/// When a run's time is up. Time in which this process can't run doesn't count.
#[derive(Debug, Clone, Copy)]
pub struct RunDeadline(RunningInstant);

impl RunDeadline {
    /// A deadline after this much running time, which is at most some centuries.
    pub fn after(time: Duration) -> Self {
        Self(RunningInstant::now() + time)
    }

    /// When the time is up.
    pub fn end(&self) -> RunningInstant {
        self.0
    }

    /// Whether the time is up.
    pub fn is_expired(&self) -> bool {
        self.0.has_passed()
    }

    /// Waits until the time is up.
    pub async fn expired(&self) {
        sleep_until(self.0).await;
    }
}
