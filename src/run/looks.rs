//! The two looks at the workspace, at the start and at the end of a run, on a thread of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Before, Signals};
use crate::changes::{LONGEST_END, LONGEST_START, Looker, Pace};
use crate::event::Changed;

/// How long a look is waited for beyond its own end, where the disk doesn't answer.
const PATIENCE: Duration = Duration::from_millis(1_200);
/// How often it is asked whether there is haste.
const GLANCE: Duration = Duration::from_millis(20);

/// The look at the start, under way.
pub(super) struct First {
    looker: Looker,
    look: Option<JoinHandle<()>>,
    give_up: Arc<AtomicBool>,
}

impl First {
    /// Begins to look, beside whatever else happens. Nothing may change before the receiver says so. A run that goes on
    /// has looked already; one that lost what it saw then can't look any more.
    pub(super) fn begin(looker: Looker, before: Option<&Before>, signals: &Signals) -> (Self, watch::Receiver<bool>) {
        let is_late = looker.has_start() || before.is_some_and(Before::has_acted);
        let (tell, ready) = watch::channel(is_late);
        let pace = Pace::new(LONGEST_START, signals.caught());
        let give_up = pace.given_up();
        let look = (!is_late).then(|| {
            let looker = looker.clone();
            tokio::task::spawn_blocking(move || {
                // Without it nobody can say what has changed, and the result says so: `changes` is null.
                let _ = looker.begin(&pace);
                let _ = tell.send(true);
            })
        });
        (Self { looker, look, give_up }, ready)
    }

    /// For a run that has begun no call and no check: it has changed nothing, and nobody has to look.
    pub(super) async fn give_up(self) -> Changed {
        self.give_up.store(true, Ordering::Relaxed);
        if let Some(look) = self.look {
            // It ends within some files; a disk that doesn't answer isn't waited for.
            let _ = tokio::time::timeout(PATIENCE, look).await;
        }
        Changed { changes: Vec::new(), total: None, patch: String::new(), incomplete: None }
    }

    /// What has changed since; `None` where nothing is known of the start, or the disk doesn't answer.
    pub(super) async fn compare(self, signals: &Signals) -> Option<Changed> {
        let (end, caught) = (Instant::now() + LONGEST_END, signals.caught());
        let looker = self.looker;
        let pace = Pace::new(LONGEST_END, signals.caught());
        let first = self.look;
        let work = async move {
            if let Some(first) = first {
                first.await.ok()?;
            }
            tokio::task::spawn_blocking(move || looker.changed(&pace)).await.ok()?
        };
        let too_long = async move {
            let mut end = end + PATIENCE;
            let mut in_haste = false;
            while Instant::now() < end {
                tokio::time::sleep(GLANCE).await;
                if !in_haste && caught() {
                    in_haste = true;
                    end = end.min(Instant::now() + PATIENCE);
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
