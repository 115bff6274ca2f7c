//! The variable `inputs` while some of its values aren't known yet.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use minijinja::Value;
use minijinja::value::{Enumerator, Object};

/// The variable `inputs`. It records whether a value that isn't known was read.
#[derive(Debug)]
pub(super) struct TrackedInputs {
    pub(super) values: Value,
    /// The size of all values, in bytes.
    pub(super) size: u64,
    pub(super) unknown: HashSet<String>,
    pub(super) has_read_unknown: AtomicBool,
}

impl Object for TrackedInputs {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        if key.as_str().is_some_and(|name| self.unknown.contains(name)) {
            self.has_read_unknown.store(true, Ordering::Relaxed);
        }
        self.values.get_item(key).ok().filter(|value| !value.is_undefined())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.values.try_iter().map(Iterator::collect).unwrap_or_default())
    }
}
