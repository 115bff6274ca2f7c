//! What /proc reports about processes, and the descendants of a process.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use rustix::process::{Pid, Signal, getpid, kill_process};

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
        Self::parse(&read_proc(Path::new(&format!("/proc/{}/stat", process.as_raw_nonzero())))?)
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

/// The children of a process, including those of all its threads; none if it no longer exists.
pub(crate) fn children_of(process: Pid) -> Vec<Pid> {
    let parent = process.as_raw_nonzero().get();
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let lists: Vec<_> = threads.flatten().filter_map(|thread| read_children(&thread.path())).collect();
    if !lists.is_empty() {
        return lists.concat();
    }
    // A kernel without CONFIG_PROC_CHILDREN: check every process.
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let processes = entries.flatten().filter_map(|entry| parse_pid(entry.file_name().to_str()?));
    processes.filter(|process| ProcStat::of(*process).is_some_and(|of| of.parent == parent)).collect()
}

/// The children of a process's first thread, which inherits orphans. `None` if the kernel doesn't list them.
pub(crate) fn children_of_first_thread(process: Pid) -> Option<Vec<Pid>> {
    let number = process.as_raw_nonzero();
    read_children(format!("/proc/{number}/task/{number}").as_ref())
}

fn read_children(thread: &Path) -> Option<Vec<Pid>> {
    let list = read_proc(&thread.join("children"))?;
    Some(list.split_whitespace().filter_map(parse_pid).collect())
}

/// Reads a file of /proc, in which the name of a process needn't be UTF-8. The size of such a file isn't known before, and
/// `fs::read` would begin with a few bytes.
fn read_proc(path: &Path) -> Option<String> {
    let mut text = Vec::with_capacity(1024);
    File::open(path).ok()?.read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

/// Kills some of our children and all their descendants. All are stopped first, parents before their children, because a
/// stopped process starts nothing new and can't react to the end of the others.
pub(crate) fn kill_trees(roots: impl IntoIterator<Item = Pid>) {
    let this_process = getpid().as_raw_nonzero().get();
    let mut found = HashSet::new();
    let mut stopped = Vec::new();
    let mut waiting: Vec<(Pid, i32)> = roots.into_iter().map(|root| (root, this_process)).collect();
    while let Some((process, parent)) = waiting.pop() {
        // The id may have been reused. A process whose parent has ended is our child.
        let is_descendant = ProcStat::of(process).is_some_and(|now| now.parent == parent || now.parent == this_process);
        if !is_descendant || !found.insert(process) {
            continue;
        }
        // Not permitted for a process with other privileges.
        if kill_process(process, Signal::STOP).is_ok() {
            stopped.push(process);
        }
        let number = process.as_raw_nonzero().get();
        waiting.extend(children_of(process).into_iter().map(|child| (child, number)));
    }
    for process in stopped {
        let _ = kill_process(process, Signal::KILL);
    }
}

/// Whether some processes and their descendants are more than `max`.
pub(crate) fn exceeds(roots: impl IntoIterator<Item = Pid>, max: usize) -> bool {
    let mut found = HashSet::new();
    let mut waiting: Vec<Pid> = roots.into_iter().collect();
    while let Some(process) = waiting.pop() {
        if found.len() + waiting.len() >= max {
            return true;
        }
        if found.insert(process) {
            waiting.extend(children_of(process));
        }
    }
    false
}

/// The number of threads on the machine, see proc_loadavg(5).
pub(crate) fn thread_count() -> Option<usize> {
    let text = read_proc(Path::new("/proc/loadavg"))?;
    text.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    /// Whether a process exists and isn't a zombie.
    fn is_running(process: Pid) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
    }

    #[test]
    fn all_generations_are_killed_and_none_sees_another_end() {
        let folder = tempfile::tempdir().unwrap();
        let line = "trap 'touch seen' CHLD; setsid bash -c 'trap \"touch seen\" CHLD; echo $$ >>pids; \
                    setsid bash -c \"echo \\$\\$ >>pids; sleep 131 & echo \\$! >>pids; wait\" & wait; wait' & wait; wait";
        let mut child = Command::new("bash").args(["-c", line]).current_dir(folder.path()).spawn().unwrap();
        let begun = Instant::now();
        let pids = loop {
            let text = fs::read_to_string(folder.path().join("pids")).unwrap_or_default();
            let pids: Vec<Pid> = text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect();
            if pids.len() == 3 && text.ends_with('\n') {
                break pids;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "{text}");
        };
        assert!(pids.iter().all(|process| is_running(*process)));
        let root = Pid::from_child(&child);
        assert!(exceeds([root], 3) && !exceeds([root], 4), "one and its three descendants");
        kill_trees([root]);
        child.wait().unwrap();
        while pids.iter().any(|process| is_running(*process)) {
            assert!(begun.elapsed() < Duration::from_secs(120), "some are left");
            std::thread::yield_now();
        }
        assert!(!folder.path().join("seen").exists());
    }

    #[test]
    fn a_process_cannot_hide_behind_its_name() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(std::ffi::OsStr::from_bytes(b"a\xff) S 1"));
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = Command::new(program).arg("131").spawn().unwrap();
        let stat = ProcStat::of(Pid::from_child(&child));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(stat.map(|stat| stat.parent), Some(Pid::as_raw(Some(getpid()))));
    }

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
