//! What a process passes on to the programs that it starts: ignored signals, limits, the umask.

use std::sync::Once;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use tokio::signal::unix::{SignalKind, signal};

/// How many descriptors the programs may open, if the hard limit allows it.
const DESCRIPTORS: u64 = 1024;

/// Gives the programs that the tests start what a login shell would give them, whoever started the tests: the background job
/// of a script ignores SIGINT, and what runs under `nohup` ignores SIGHUP.
pub(super) fn reset() {
    static RESET: Once = Once::new();
    RESET.call_once(|| {
        umask(Mode::WGRP | Mode::WOTH);
        raise_limits();
        handle_ignored_signals();
    });
}

fn raise_limits() {
    raise_limit(Resource::Nofile, DESCRIPTORS);
    for resource in [Resource::Fsize, Resource::Nproc, Resource::Data, Resource::As] {
        raise_limit(resource, u64::MAX);
    }
}

/// Raises the soft limit to `wanted` or, if that is lower, to the hard limit.
fn raise_limit(resource: Resource, wanted: u64) {
    let Rlimit { current, maximum } = getrlimit(resource);
    // None: unlimited.
    let to = maximum.unwrap_or(u64::MAX).min(wanted);
    if current.is_some_and(|current| current < to) {
        let current = Some(to).filter(|to| *to < u64::MAX);
        let _ = setrlimit(resource, Rlimit { current, maximum });
    }
}

/// A signal with a handler has its default action in a new program; one that is ignored stays so. The handlers do nothing.
/// What is ignored is known on Linux only.
fn handle_ignored_signals() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let _entered = runtime.enter();
    for kind in [
        SignalKind::hangup(),
        SignalKind::interrupt(),
        SignalKind::quit(),
        SignalKind::terminate(),
        SignalKind::alarm(),
        SignalKind::child(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
        SignalKind::window_change(),
    ] {
        if ignored >> (kind.as_raw_value() - 1) & 1 == 1 {
            // The handler stays when this is dropped.
            drop(signal(kind).expect("a handler"));
        }
    }
}
