//! Compares the workspace at the end of a run with its state at the start, on threads of their own.

use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{ResumeState, Signals};
use crate::apply::check_patch;
use crate::event::WorkspaceChanged;
use crate::outputs::{OwnChanges, PatchRules};
use crate::sync::IgnorePoison;
use crate::workspace_changes::{BASELINE_TIMEOUT, COMPARISON_TIMEOUT, ChangeTracker, Deadline};

/// How long a scan is waited for after its deadline, if the disk doesn't respond.
const DISK_GRACE: Duration = Duration::from_millis(1_200);

/// The scan of the workspace at the start of a run.
pub(super) struct BaselineTask {
    tracker: ChangeTracker,
    /// Gets `true` when tools may change the workspace; `None` once the scan has started.
    ready: Mutex<Option<watch::Sender<bool>>>,
    task: Mutex<Option<JoinHandle<()>>>,
    stop: CancellationToken,
    cancel: CancellationToken,
}

impl BaselineTask {
    /// Prepares the scan. Nothing may change before the receiver gets `true`, except by the steps before the agent, which come
    /// before the scan. A resumed run already has its baseline; if it was lost, it can't be taken any more.
    pub(super) fn new(
        tracker: ChangeTracker,
        before: Option<&ResumeState>,
        signals: &Signals,
    ) -> (Self, watch::Receiver<bool>) {
        let is_late = tracker.has_baseline() || before.is_some_and(ResumeState::has_acted);
        let (sender, ready) = watch::channel(is_late);
        let stop = signals.stop.clone();
        let sender = Mutex::new((!is_late).then_some(sender));
        (Self { tracker, ready: sender, task: Mutex::default(), stop, cancel: CancellationToken::new() }, ready)
    }

    /// Starts the scan in the background.
    pub(super) fn begin(&self) {
        let Some(sender) = self.ready.lock().ignore_poison().take() else { return };
        let mut deadline = Deadline::new(BASELINE_TIMEOUT, self.stop.clone());
        deadline.cancel = self.cancel.clone();
        let tracker = self.tracker.clone();
        let task = tokio::task::spawn_blocking(move || {
            // Without a baseline the changes aren't known, and `changes` in the result is null.
            let _ = tracker.take_baseline(&deadline);
            let _ = sender.send(true);
        });
        *self.task.lock().ignore_poison() = Some(task);
    }

    /// Ends the scan of a run that has started no call and no check: it has changed nothing.
    pub(super) async fn skip(self) -> WorkspaceChanged {
        self.cancel.cancel();
        let task = self.task.into_inner().ignore_poison();
        if let Some(task) = task {
            // It ends after a few files; a disk that doesn't respond isn't waited for.
            let _ = timeout(DISK_GRACE, task).await;
        }
        WorkspaceChanged::default()
    }

    /// The changes since the start; `None` if the start isn't known, or the disk doesn't respond.
    pub(super) async fn compare(self, signals: &Signals) -> Option<WorkspaceChanged> {
        let tracker = self.tracker;
        let deadline = Deadline::new(COMPARISON_TIMEOUT, signals.stop.clone());
        let first = self.task.into_inner().ignore_poison();
        let work = async move {
            if let Some(first) = first {
                first.await.ok()?;
            }
            tokio::task::spawn_blocking(move || tracker.compare_with_baseline(&deadline)).await.ok()?
        };
        let too_long = async {
            let _ = timeout(COMPARISON_TIMEOUT, signals.stop.cancelled()).await;
            sleep(DISK_GRACE).await;
        };
        tokio::select! {
            biased;
            changed = work => changed,
            () = too_long => None,
        }
    }
}

/// The changes of a run that isn't over.
pub(super) struct CurrentChanges {
    /// Compares the workspace with the start; `None` if no tool of the run changes files.
    pub(super) tracker: Option<ChangeTracker>,
    pub(super) stop: CancellationToken,
}

impl OwnChanges for CurrentChanges {
    fn check(&self, rules: PatchRules) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let Some(tracker) = self.tracker.clone() else {
                return Err("no tool of this job changes files, so there is nothing to publish".to_owned());
            };
            let deadline = Deadline::new(COMPARISON_TIMEOUT, self.stop.clone());
            let compared = tokio::task::spawn_blocking(move || tracker.compare_with_baseline(&deadline));
            match timeout(COMPARISON_TIMEOUT + DISK_GRACE, compared).await {
                Ok(Ok(Some(changed))) => check_patch(&rules, &changed),
                _ => Err("the changes of this run aren't known, so they can't be published".to_owned()),
            }
        })
    }
}
