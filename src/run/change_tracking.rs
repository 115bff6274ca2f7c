//! Compares the workspace at the end of a run with its state at the start, on threads of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{ResumeState, Signals};
use crate::event::WorkspaceChanged;
use crate::workspace_changes::{BASELINE_TIMEOUT, COMPARISON_TIMEOUT, ChangeTracker, Deadline};

/// How long a scan is waited for after its deadline, if the disk doesn't respond.
const DISK_GRACE: Duration = Duration::from_millis(1_200);
/// How often a waiting comparison checks for a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The scan of the workspace at the start of a run.
pub(super) struct BaselineTask {
    tracker: ChangeTracker,
    task: Option<JoinHandle<()>>,
    cancel: Arc<AtomicBool>,
}

impl BaselineTask {
    /// Starts the scan in the background. Nothing may change before the receiver gets `true`. A resumed run
    /// already has its baseline; if it was lost, it can't be taken any more.
    pub(super) fn begin(
        tracker: ChangeTracker,
        before: Option<&ResumeState>,
        signals: &Signals,
    ) -> (Self, watch::Receiver<bool>) {
        let is_late = tracker.has_baseline() || before.is_some_and(ResumeState::has_acted);
        let (sender, ready) = watch::channel(is_late);
        let deadline = Deadline::new(BASELINE_TIMEOUT, signals.caught());
        let cancel = deadline.cancel_flag();
        let task = (!is_late).then(|| {
            let tracker = tracker.clone();
            tokio::task::spawn_blocking(move || {
                // Without a baseline the changes aren't known, and `changes` in the result is null.
                let _ = tracker.take_baseline(&deadline);
                let _ = sender.send(true);
            })
        });
        (Self { tracker, task, cancel }, ready)
    }

    /// Ends the scan of a run that has started no call and no check: it has changed nothing.
    pub(super) async fn skip(self) -> WorkspaceChanged {
        self.cancel.store(true, Ordering::Relaxed);
        if let Some(task) = self.task {
            // It ends after a few files; a disk that doesn't respond isn't waited for.
            let _ = tokio::time::timeout(DISK_GRACE, task).await;
        }
        WorkspaceChanged { changes: Vec::new(), total: None, patch: String::new(), incomplete: None }
    }

    /// The changes since the start; `None` if the start isn't known, or the disk doesn't respond.
    pub(super) async fn compare(self, signals: &Signals) -> Option<WorkspaceChanged> {
        let (end, caught) = (Instant::now() + COMPARISON_TIMEOUT, signals.caught());
        let tracker = self.tracker;
        let deadline = Deadline::new(COMPARISON_TIMEOUT, signals.caught());
        let first = self.task;
        let work = async move {
            if let Some(first) = first {
                first.await.ok()?;
            }
            tokio::task::spawn_blocking(move || tracker.compare_with_baseline(&deadline)).await.ok()?
        };
        let too_long = async move {
            let mut end = end + DISK_GRACE;
            let mut is_stopping = false;
            while Instant::now() < end {
                tokio::time::sleep(POLL_INTERVAL).await;
                if !is_stopping && caught() {
                    is_stopping = true;
                    end = end.min(Instant::now() + DISK_GRACE);
                }
            }
        };
        tokio::select! {
            biased;
            changed = work => changed,
            () = too_long => None,
        }
    }
}
