//! Open files: how many this process may have, and what that is enough for.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the runtime, the record, the first connection and the like take together.
const RESERVED: u64 = 48;
/// The most that one agent has open at once: its journal, a connection that is looked up and made, and either a command with
/// its pipes or eight reading calls, each with a file and the folders above it. What a search keeps open besides is given
/// back as soon as it ends.
const PER_AGENT: u64 = 24;

/// The limit that this program was started with.
static ORIGINAL: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit to the hard one. To be called once, at the start: a run has hundreds of subagents at once, and many
/// systems begin with a soft limit of 1024 only because select(2) knows no greater numbers, which isn't used here.
pub fn raise_limit() {
    let original = ORIGINAL.get_or_init(|| getrlimit(Resource::Nofile));
    // Where the system refuses, there is as much as before.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: original.maximum, maximum: original.maximum });
}

/// The limit for programs that are started from here, some of which use select(2); `None` where it was never raised.
pub(crate) fn original_limit() -> Option<Rlimit> {
    ORIGINAL.get().cloned()
}

/// How many agents can work at once, at least one.
pub fn max_concurrent_agents() -> usize {
    let open = std::fs::read_dir("/dev/fd").map_or(0, Iterator::count) as u64;
    agents_within(getrlimit(Resource::Nofile).current, open)
}

fn agents_within(limit: Option<u64>, open: u64) -> usize {
    let free = limit.unwrap_or(u64::MAX).saturating_sub(open).saturating_sub(RESERVED);
    usize::try_from(free / PER_AGENT).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_enough_for_few_agents() {
        assert_eq!(agents_within(None, 10), usize::try_from((u64::MAX - 58) / 24).unwrap());
        assert_eq!(agents_within(Some(1024), 16), 40);
        assert_eq!(agents_within(Some(64), 16), 1);
        assert_eq!(agents_within(Some(10), 16), 1);
    }
}
