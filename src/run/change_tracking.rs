//! The two looks at the workspace, at the start and at the end of a run, on a thread of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{ResumeState, Signals};
use crate::event::WorkspaceChanged;
use crate::workspace_changes::{BASELINE_TIMEOUT, COMPARISON_TIMEOUT, ChangeTracker, Deadline};

/// How long a look is waited for beyond its own end, where the disk doesn't answer.
const DISK_GRACE: Duration = Duration::from_millis(1_200);
/// How often it is asked whether there is haste.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The look at the start, under way.
pub(super) struct BaselineTask {
    looker: ChangeTracker,
    task: Option<JoinHandle<()>>,
    cancel: Arc<AtomicBool>,
}

impl BaselineTask {
    /// Begins to look, beside whatever else happens. Nothing may change before the receiver says so. A run that goes on
    /// has looked already; one that lost what it saw then can't look any more.
    pub(super) fn begin(
        looker: ChangeTracker,
        before: Option<&ResumeState>,
        signals: &Signals,
    ) -> (Self, watch::Receiver<bool>) {
        let is_late = looker.has_baseline() || before.is_some_and(ResumeState::has_acted);
        let (tell, ready) = watch::channel(is_late);
        let pace = Deadline::new(BASELINE_TIMEOUT, signals.caught());
        let give_up = pace.cancel_flag();
        let look = (!is_late).then(|| {
            let looker = looker.clone();
            tokio::task::spawn_blocking(move || {
                // Without it nobody can say what has changed, and the result says so: `changes` is null.
                let _ = looker.take_baseline(&pace);
                let _ = tell.send(true);
            })
        });
        (Self { looker, task: look, cancel: give_up }, ready)
    }

    /// For a run that has begun no call and no check: it has changed nothing, and nobody has to look.
    pub(super) async fn skip(self) -> WorkspaceChanged {
        self.cancel.store(true, Ordering::Relaxed);
        if let Some(look) = self.task {
            // It ends within some files; a disk that doesn't answer isn't waited for.
            let _ = tokio::time::timeout(DISK_GRACE, look).await;
        }
        WorkspaceChanged { changes: Vec::new(), total: None, patch: String::new(), incomplete: None }
    }

    /// What has changed since; `None` where nothing is known of the start, or the disk doesn't answer.
    pub(super) async fn compare(self, signals: &Signals) -> Option<WorkspaceChanged> {
        let (end, caught) = (Instant::now() + COMPARISON_TIMEOUT, signals.caught());
        let looker = self.looker;
        let pace = Deadline::new(COMPARISON_TIMEOUT, signals.caught());
        let first = self.task;
        let work = async move {
            if let Some(first) = first {
                first.await.ok()?;
            }
            tokio::task::spawn_blocking(move || looker.compare_with_baseline(&pace)).await.ok()?
        };
        let too_long = async move {
            let mut end = end + DISK_GRACE;
            let mut in_haste = false;
            while Instant::now() < end {
                tokio::time::sleep(POLL_INTERVAL).await;
                if !in_haste && caught() {
                    in_haste = true;
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
