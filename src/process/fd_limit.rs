//! The limit of open files, and how many agents it allows.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that the process itself needs: the runtime, the record, the first connection and the like.
const RESERVED: u64 = 48;
/// The most descriptors that one agent needs at once: its journal, a connection and its name lookup, and either a command
/// with its pipes or eight reading calls, each with a file and its parent folders. What a search keeps open beyond that is
/// closed as soon as it ends.
const PER_AGENT: u64 = 24;

/// With fewer, not even one agent can open its record, its connection and the pipes of a command.
const MINIMUM: u64 = 64;
/// What each tool server adds to the minimum.
const PER_SERVER: u64 = 8;

/// `OPEN_MAX`: macOS refuses a higher soft limit, whatever the hard one is, see setrlimit(2) there.
const MACOS_OPEN_MAX: u64 = 10_240;

/// The limit that this process started with.
static ORIGINAL: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit to the hard one. Call it once, at startup. A run can have hundreds of concurrent subagents, and
/// many systems start with a soft limit of 1024 only because select(2) can't handle more, which legwork doesn't use.
pub fn raise_limit() {
    let original = ORIGINAL.get_or_init(|| getrlimit(Resource::Nofile));
    let current = if cfg!(target_os = "macos") {
        Some(original.maximum.map_or(MACOS_OPEN_MAX, |maximum| maximum.min(MACOS_OPEN_MAX)))
    } else {
        original.maximum
    };
    // If the system refuses, the old limit stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum: original.maximum });
}

/// The limit for child processes, some of which may use select(2); `None` if it was never raised.
pub(crate) fn original_limit() -> Option<Rlimit> {
    ORIGINAL.get().cloned()
}

/// The limit, and how many descriptors a run with this many tool servers needs, if the limit is lower.
pub fn too_low_for(servers: usize) -> Option<(u64, u64)> {
    let (limit, needed) = (getrlimit(Resource::Nofile).current?, MINIMUM + PER_SERVER * servers as u64);
    (limit < needed).then_some((limit, needed))
}

/// How many agents can run concurrently; at least one.
pub fn max_concurrent_agents() -> usize {
    let open = std::fs::read_dir("/dev/fd").map_or(0, Iterator::count) as u64;
    agents_within(getrlimit(Resource::Nofile).current, open)
}

/// How many runs with this many agents each can run concurrently; at least one.
pub fn max_concurrent_runs(agents: usize) -> usize {
    (max_concurrent_agents() / agents.max(1)).max(1)
}

fn agents_within(limit: Option<u64>, open: u64) -> usize {
    let free = limit.unwrap_or(u64::MAX).saturating_sub(open).saturating_sub(RESERVED);
    usize::try_from(free / PER_AGENT).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_agents_depends_on_the_limit() {
        assert_eq!(agents_within(None, 10), usize::try_from((u64::MAX - 58) / 24).unwrap());
        assert_eq!(agents_within(Some(1024), 16), 40);
        assert_eq!(agents_within(Some(64), 16), 1);
        assert_eq!(agents_within(Some(10), 16), 1);
    }
}
