//! A process's parent, group and session, from /proc/PID/stat.

use std::fs;

use rustix::process::Pid;

/// What the kernel reports about a process. An id is 0 if it belongs to a process outside of our pid namespace, such as the
/// session leader of a process that a container's supervisor started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcStat {
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// Whether it is exiting or a zombie. Its environment is gone then.
    pub(crate) is_ending: bool,
}

/// The process flag `PF_EXITING` in the kernel's `include/linux/sched.h`.
const PF_EXITING: u32 = 0x4;

impl ProcStat {
    /// Reads the status of a process; `None` if it no longer exists.
    pub(crate) fn of(process: Pid) -> Option<Self> {
        // Not with getsid and getpgid: they can return 0, at which rustix panics.
        Self::parse(&fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?)
    }

    /// Parses the text of `/proc/PID/stat`, see proc_pid_stat(5).
    fn parse(stat: &str) -> Option<Self> {
        // The command name before the last parenthesis can contain anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse().ok();
        let flags: u32 = fields.get(6)?.parse().ok()?;
        // The flags are those of the first thread. While there are others, the process continues.
        let is_ending = flags & PF_EXITING != 0 && number(17)? <= 1;
        Some(Self { parent: number(1)?, group: number(2)?, session: number(3)?, is_ending })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_outside_of_the_namespace_are_zero() {
        let stat = "7 (a ) S (b) R 1 0 0 0 -1 4194304 123 0 0 0 0 0 0 0 20 0 1 0 99";
        assert_eq!(ProcStat::parse(stat), Some(ProcStat { parent: 1, group: 0, session: 0, is_ending: false }));
        assert_eq!(ProcStat::parse("7 (cut"), None);
        assert_eq!(ProcStat::parse("7 (cut) S 1 2"), None);
    }

    #[test]
    fn a_process_ends_with_the_last_of_its_threads() {
        let of = |state, flags, threads| {
            ProcStat::parse(&format!("7 (a) {state} 1 7 7 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 {threads} 0 99")).unwrap()
        };
        assert!(of("Z", 4_194_316, 1).is_ending);
        assert!(of("R", 4_194_308, 1).is_ending, "its memory may be gone before it is a zombie");
        assert!(!of("Z", 4_194_316, 2).is_ending, "its first thread has ended, but not the other");
        assert!(!of("S", 4_194_304, 1).is_ending);
    }

    #[test]
    fn our_own_status_is_right() {
        let own = ProcStat::of(rustix::process::getpid()).unwrap();
        assert_eq!(own.parent, Pid::as_raw(rustix::process::getppid()));
    }
}
