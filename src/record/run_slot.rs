//! The slots of runs that run at once in a map. A run that only waits for the disk gives its slot up, so that the next one
//! begins meanwhile: disks are slow, and one flush serves many runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts the runs that have given their slot up and haven't ended.
#[derive(Debug, Default)]
pub struct RunSlots {
    given_up: AtomicUsize,
    /// Whether no further run begins.
    is_closed: Arc<AtomicBool>,
    changed: Notify,
}

impl RunSlots {
    /// Slots for runs; `is_closed` says that no further one begins.
    pub fn new(is_closed: Arc<AtomicBool>) -> Self {
        Self { is_closed, ..Self::default() }
    }

    /// A slot for a run.
    pub fn slot(self: &Arc<Self>) -> Arc<RunSlot> {
        Arc::new(RunSlot { slots: Arc::clone(self), is_given_up: AtomicBool::new(false) })
    }

    /// How many runs have given their slot up and haven't ended.
    pub fn given_up(&self) -> usize {
        self.given_up.load(Ordering::SeqCst)
    }

    /// Waits until a run gives its slot up.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// The slot of a run.
#[derive(Debug)]
pub struct RunSlot {
    slots: Arc<RunSlots>,
    is_given_up: AtomicBool,
}

impl RunSlot {
    /// Gives the slot up: the run has done all its work, and its record is complete except for the name of its result. Returns
    /// whether another run may begin in its place.
    pub fn give_up(&self) -> bool {
        if !self.is_given_up.swap(true, Ordering::SeqCst) {
            self.slots.given_up.fetch_add(1, Ordering::SeqCst);
            self.slots.changed.notify_one();
        }
        !self.slots.is_closed.load(Ordering::SeqCst)
    }
}

impl Drop for RunSlot {
    fn drop(&mut self) {
        if *self.is_given_up.get_mut() {
            self.slots.given_up.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slot_is_given_up_once_and_until_the_run_ends() {
        let is_closed = Arc::<AtomicBool>::default();
        let slots = Arc::new(RunSlots::new(Arc::clone(&is_closed)));
        let [first, second] = [slots.slot(), slots.slot()];
        assert!(first.give_up());
        is_closed.store(true, Ordering::SeqCst);
        assert!(!first.give_up() && !second.give_up());
        slots.changed().await;
        assert_eq!(slots.given_up(), 2);
        drop((first, second));
        assert_eq!(slots.given_up(), 0);
    }
}
