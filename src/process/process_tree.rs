//! The descendants of a process, found in /proc.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, Signal, getpid, kill_process};

use super::proc_stat::ProcStat;

/// The children of a process, including those of all its threads; none if it no longer exists.
pub(crate) fn children_of(process: Pid) -> Vec<Pid> {
    let parse = |text: &str| text.parse().ok().and_then(Pid::from_raw);
    let parent = process.as_raw_nonzero().get();
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let lists: Vec<_> = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("children"))).collect();
    if lists.iter().any(Result::is_ok) {
        let lists = lists.into_iter().flatten();
        return lists.flat_map(|list| list.split_whitespace().filter_map(parse).collect::<Vec<_>>()).collect();
    }
    // A kernel without CONFIG_PROC_CHILDREN: check every process.
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let processes = entries.flatten().filter_map(|entry| parse(entry.file_name().to_str()?));
    processes.filter(|process| ProcStat::of(*process).is_some_and(|of| of.parent == parent)).collect()
}

/// Kills some of our children and all their descendants. All are stopped first, parents before their children, because a
/// stopped process starts nothing new and can't react to the end of the others.
pub(crate) fn kill_trees(roots: impl IntoIterator<Item = Pid>) {
    let own = getpid().as_raw_nonzero().get();
    let mut found = HashSet::new();
    let mut stopped = Vec::new();
    let mut waiting: Vec<(Pid, i32)> = roots.into_iter().map(|root| (root, own)).collect();
    while let Some((process, parent)) = waiting.pop() {
        // The id may have been reused. A process whose parent has ended is our child.
        let is_descendant = ProcStat::of(process).is_some_and(|now| now.parent == parent || now.parent == own);
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
    let text = fs::read_to_string("/proc/loadavg").ok()?;
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
}
