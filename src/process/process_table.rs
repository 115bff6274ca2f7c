//! What macOS reports about processes. It has no /proc, and the processes that a command leaves behind become children of
//! launchd, so they are found by their session, and by what was seen of them before.

use std::collections::HashSet;

use rustix::process::{Pid, Signal, kill_process};

/// The status of a process that has ended and wasn't reaped: `SZOMB` in sys/proc.h.
const ZOMBIE: u32 = 5;

/// What identifies a process: its id, and when it was started, because ids are reused.
pub(crate) type ProcessId = (i32, u64, u64);

/// A process of this machine.
#[derive(Debug, Clone, Copy)]
struct Process {
    id: ProcessId,
    parent: i32,
    session: i32,
}

/// Lists all processes that this user may look at.
#[allow(unsafe_code)]
fn list() -> Vec<Process> {
    // SAFETY: without a buffer, the call only returns the number of processes.
    let count = unsafe { libc::proc_listallpids(std::ptr::null_mut(), 0) };
    // Some may be started meanwhile.
    let mut ids: Vec<i32> = vec![0; usize::try_from(count).unwrap_or_default() + 256];
    let bytes = i32::try_from(size_of_val(ids.as_slice())).unwrap_or_default();
    // SAFETY: the buffer has this many bytes.
    let count = unsafe { libc::proc_listallpids(ids.as_mut_ptr().cast(), bytes) };
    ids.truncate(usize::try_from(count).unwrap_or_default());
    ids.into_iter().filter(|id| *id > 0).filter_map(process).collect()
}

/// One process; `None` if it has ended.
#[allow(unsafe_code)]
fn process(id: i32) -> Option<Process> {
    // SAFETY: all zeros is a valid value of this structure of numbers.
    let mut info: libc::proc_bsdinfo = unsafe { std::mem::zeroed() };
    let bytes = i32::try_from(size_of_val(&info)).ok()?;
    let buffer = std::ptr::from_mut(&mut info).cast();
    // SAFETY: the buffer has this many bytes.
    let written = unsafe { libc::proc_pidinfo(id, libc::PROC_PIDTBSDINFO, 0, buffer, bytes) };
    if written != bytes || info.pbi_status == ZOMBIE {
        return None;
    }
    // SAFETY: a plain system call.
    let session = unsafe { libc::getsid(id) };
    let parent = i32::try_from(info.pbi_ppid).ok()?;
    Some(Process { id: (id, info.pbi_start_tvsec, info.pbi_start_tvusec), parent, session })
}

/// The processes of a command: those in its session, those among the `known` ones that still exist, and the descendants of both.
pub(crate) fn members(session: Pid, known: &HashSet<ProcessId>) -> HashSet<ProcessId> {
    let session = session.as_raw_nonzero().get();
    let all = list();
    let is_root = |process: &&Process| process.session == session || known.contains(&process.id);
    let mut found: HashSet<ProcessId> = all.iter().filter(is_root).map(|process| process.id).collect();
    let mut parents: HashSet<i32> = found.iter().map(|(id, ..)| *id).collect();
    loop {
        let is_new = |process: &&Process| parents.contains(&process.parent) && !found.contains(&process.id);
        let new: Vec<ProcessId> = all.iter().filter(is_new).map(|process| process.id).collect();
        if new.is_empty() {
            return found;
        }
        parents.extend(new.iter().map(|(id, ..)| *id));
        found.extend(new);
    }
}

/// Kills these processes. All are stopped first: a stopped process starts nothing new.
pub(crate) fn kill(processes: &HashSet<ProcessId>) {
    for signal in [Signal::STOP, Signal::KILL] {
        for (id, ..) in processes {
            // It may have ended, or have other privileges.
            let _ = Pid::from_raw(*id).map(|id| kill_process(id, signal));
        }
    }
}
