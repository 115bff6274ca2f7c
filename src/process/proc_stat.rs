//! Where a process comes from, as the kernel tells it.

use std::fs;

use rustix::process::Pid;

/// A process's parent, process group and session. Each is 0 where that process is outside of our pid namespace, as a
/// session's leader is for whatever a container's supervisor started from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcStat {
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// Whether it ends, or has ended and only waits for its parent to notice. It has no environment any more.
    pub(crate) is_ending: bool,
}

/// Among a process's flags: it ends. `PF_EXITING` of the kernel's `include/linux/sched.h`.
const EXITING: u32 = 0x4;

impl ProcStat {
    /// `None` for a process that is gone.
    pub(crate) fn of(process: Pid) -> Option<Self> {
        // Not by getsid and getpgid: rustix has no word for the 0 that they can answer, and panics.
        Self::read(&fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?)
    }

    /// From the text of `/proc/PID/stat`, see proc_pid_stat(5).
    fn read(stat: &str) -> Option<Self> {
        // The name before it is in parentheses and can hold anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse().ok();
        let flags: u32 = fields.get(6)?.parse().ok()?;
        // The flag and the state are its first thread's: with others left it goes on.
        let is_ending = flags & EXITING != 0 && number(17)? <= 1;
        Some(Self { parent: number(1)?, group: number(2)?, session: number(3)?, is_ending })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_outside_of_the_namespace_are_zero() {
        let stat = "7 (a ) S (b) R 1 0 0 0 -1 4194304 123 0 0 0 0 0 0 0 20 0 1 0 99";
        assert_eq!(ProcStat::read(stat), Some(ProcStat { parent: 1, group: 0, session: 0, is_ending: false }));
        assert_eq!(ProcStat::read("7 (cut"), None);
        assert_eq!(ProcStat::read("7 (cut) S 1 2"), None);
    }

    #[test]
    fn a_process_ends_with_the_last_of_its_threads() {
        let of = |state, flags, threads| {
            ProcStat::read(&format!("7 (a) {state} 1 7 7 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 {threads} 0 99")).unwrap()
        };
        assert!(of("Z", 4_194_316, 1).is_ending);
        assert!(of("R", 4_194_308, 1).is_ending, "its memory may be gone before it is a zombie");
        assert!(!of("Z", 4_194_316, 2).is_ending, "its first thread has ended, and the other works");
        assert!(!of("S", 4_194_304, 1).is_ending);
    }

    #[test]
    fn our_own_are_those_that_the_kernel_names() {
        let own = ProcStat::of(rustix::process::getpid()).unwrap();
        assert_eq!(own.parent, Pid::as_raw(rustix::process::getppid()));
    }
}
