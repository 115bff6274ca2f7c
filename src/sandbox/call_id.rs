//! The id of a call, which every process of its command has in its environment.

use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;

/// The environment variable that attributes a process to a call.
pub(crate) const CALL_ID_VARIABLE: &str = "LEGWORK_CALL";

/// What the ids of all calls of this process begin with. No other process of the machine has the same, whatever namespace its
/// number is from.
pub(crate) fn call_prefix() -> &'static str {
    static PREFIX: LazyLock<String> = LazyLock::new(|| {
        // Every RandomState has new keys, so an empty hash is a random number.
        let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
        format!("{}-{random:016x}.", std::process::id())
    });
    &PREFIX
}
