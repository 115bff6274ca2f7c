//! Where a process comes from, as the kernel tells it.

use std::fs;

use rustix::process::Pid;

/// A process's parent, process group and session. Each is 0 where that process is outside of our pid namespace, as a
/// session's leader is for whatever a container's supervisor started from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ancestry {
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// Whether it has ended, and only waits for its parent to notice. It has no environment any more.
    pub(super) has_ended: bool,
}

impl Ancestry {
    /// `None` for a process that is gone.
    pub(super) fn of(process: Pid) -> Option<Self> {
        // Not by getsid and getpgid: rustix has no word for the 0 that they can answer, and panics.
        Self::read(&fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?)
    }

    /// From the text of `/proc/PID/stat`, see proc_pid_stat(5).
    fn read(stat: &str) -> Option<Self> {
        // The name before it is in parentheses and can hold anything.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X");
        let mut next = || fields.next()?.parse().ok();
        Some(Self { parent: next()?, group: next()?, session: next()?, has_ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_outside_of_the_namespace_are_zero() {
        let stat = "7 (a ) S (b) R 1 0 0 0 -1 4194304 123";
        assert_eq!(Ancestry::read(stat), Some(Ancestry { parent: 1, group: 0, session: 0, has_ended: false }));
        assert!(Ancestry::read("7 (R) Z 1 7 7").unwrap().has_ended);
        assert_eq!(Ancestry::read("7 (cut"), None);
        assert_eq!(Ancestry::read("7 (cut) S 1 2"), None);
    }

    #[test]
    fn our_own_are_those_that_the_kernel_names() {
        let own = Ancestry::of(rustix::process::getpid()).unwrap();
        assert_eq!(own.parent, Pid::as_raw(rustix::process::getppid()));
    }
}
