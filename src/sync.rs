//! Locks that stay usable after a panic.

use std::sync::{LockResult, PoisonError};

/// Takes what a lock protects even if a thread panicked while it held the lock.
///
/// A panic is a bug and is reported as one. What it left half done must not make every later use of the lock panic, too,
/// above all not on the way to the end of a run.
pub(crate) trait IgnorePoison {
    /// A guard, or the value itself.
    type Value;

    /// The value, poisoned or not.
    fn ignore_poison(self) -> Self::Value;
}

impl<T> IgnorePoison for LockResult<T> {
    type Value = T;

    fn ignore_poison(self) -> T {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_lock_is_usable_after_a_panic() {
        let mutex = Mutex::new(1);
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = mutex.lock();
            std::panic::resume_unwind(Box::new("a bug"));
        }));
        assert!(panic.is_err() && mutex.is_poisoned());
        *mutex.lock().ignore_poison() += 1;
        assert_eq!(mutex.into_inner().ignore_poison(), 2);
    }
}
