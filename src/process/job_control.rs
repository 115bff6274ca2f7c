//! What a shell's job control says about this process.

use rustix::fd::AsFd;
use rustix::process::getppid;

/// The process group and the session of a process.
type Ids = (i32, i32);

/// Whether another job of the shell is in the foreground of a terminal now.
pub(crate) fn is_in_background(terminal: impl AsFd) -> bool {
    let Ok(foreground) = rustix::termios::tcgetpgrp(terminal) else { return false };
    own_ids().is_some_and(|(group, _)| group != foreground.as_raw_nonzero().get())
}

/// Whether the parent is in another process group of the same session, as a shell is that started us as a job.
pub(crate) fn is_job_of_a_shell() -> bool {
    let Some((parent_group, parent_session)) = getppid().and_then(ids) else { return false };
    own_ids().is_some_and(|(group, session)| session == parent_session && group != parent_group)
}

fn own_ids() -> Option<Ids> {
    ids(rustix::process::getpid())
}

/// Read from /proc: in a container, a group or session from outside has the id 0, at which rustix panics.
#[cfg(target_os = "linux")]
fn ids(process: rustix::process::Pid) -> Option<Ids> {
    super::process_tree::ProcStat::of(process).map(|stat| (stat.group, stat.session))
}

#[cfg(not(target_os = "linux"))]
fn ids(process: rustix::process::Pid) -> Option<Ids> {
    let group = rustix::process::getpgid(Some(process)).ok()?;
    let session = rustix::process::getsid(Some(process)).ok()?;
    Some((group.as_raw_nonzero().get(), session.as_raw_nonzero().get()))
}
