//! The end of a process tree, whatever its processes do to leave it.
//!
//! On Linux this process is the reaper of its descendants: when a command ends, those that it leaves behind become our
//! children, and are told apart by their session, or by a mark in their environment where they made a session of
//! their own. Elsewhere only the command's process group is ended.
//!
//! Whoever starts a child that makes a session of its own must start it through [`Tree::start`], or it is taken for an
//! orphan.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal};

/// The environment variable by which a process is known as part of a call.
pub(super) const MARK: &str = "LEGWORK_CALL";

/// The commands that run now.
static RUNNING: Mutex<Vec<(Pid, String)>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<(Pid, String)>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All that one command started.
pub(super) struct Tree {
    /// The command's process; its session and its group have the same id.
    id: Pid,
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only the group is known there"))]
    mark: String,
    ended: bool,
}

impl Tree {
    /// Starts a command through `spawn`, which gives its process id.
    pub(super) fn start<T>(mark: String, spawn: impl FnOnce() -> io::Result<(T, Pid)>) -> io::Result<(T, Self)> {
        #[cfg(target_os = "linux")]
        adopt_descendants()?;
        // Held over the start, so that nobody takes the new process for an orphan.
        let mut running = running();
        let (started, id) = spawn()?;
        running.push((id, mark.clone()));
        Ok((started, Self { id, mark, ended: false }))
    }

    pub(super) fn id(&self) -> Pid {
        self.id
    }

    fn forget(&mut self) {
        self.ended = true;
        running().retain(|(id, _)| *id != self.id);
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if !self.ended {
            // The call was given up. The command was killed with its group; what it left is killed once it is ours.
            self.forget();
            #[cfg(target_os = "linux")]
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                let (id, mark) = (self.id, std::mem::take(&mut self.mark));
                runtime.spawn(async move { linux::end(id, &mark).await });
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Tree {
    /// Kills what the command left in its group. The command itself has ended and was reaped.
    pub(super) async fn end(&mut self) {
        self.forget();
        // There may be nothing left.
        let _ = rustix::process::kill_process_group(self.id, Signal::KILL);
    }
}

#[cfg(target_os = "linux")]
impl Tree {
    /// Kills and reaps all that the command left. The command itself has ended and was reaped.
    pub(super) async fn end(&mut self) {
        self.forget();
        linux::end(self.id, &self.mark).await;
    }
}

#[cfg(target_os = "linux")]
fn adopt_descendants() -> io::Result<()> {
    use std::sync::OnceLock;
    static DONE: OnceLock<rustix::io::Result<()>> = OnceLock::new();
    let done = DONE.get_or_init(|| rustix::process::set_child_subreaper(Some(rustix::process::getpid())));
    (*done).map_err(io::Error::from)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::time::Duration;

    use rustix::process::{WaitOptions, getpid, kill_process, kill_process_group, waitpid};

    use super::{MARK, Pid, Signal, running};
    use crate::tools::ancestry::Ancestry;

    /// How often orphans are looked for; the waits between add up to about two seconds.
    const PASSES: u32 = 60;

    /// Kills the orphans of a command until none is left. One that the kernel can't end (it waits for a device) is given up.
    pub(super) async fn end(command: Pid, mark: &str) {
        let mut clear = 0;
        for pass in 0..PASSES {
            let children = children();
            // The list can lack a child while another ends, so only an empty one is believed at once.
            if children.is_empty() || clear == 2 {
                return;
            }
            match kill_orphans(command, mark, children) {
                None => clear += 1,
                Some(left) => {
                    clear = 0;
                    if left > 0 {
                        tokio::time::sleep(Duration::from_millis(u64::from(pass + 1))).await;
                    }
                }
            }
        }
    }

    /// One pass: `None` where there was nothing to kill, else how many could not be reaped yet. The end of an orphan can make
    /// its children ours.
    fn kill_orphans(command: Pid, mark: &str, children: Vec<Pid>) -> Option<usize> {
        let others = running().clone();
        let own_session = Ancestry::of(getpid()).map(|own| own.session);
        let mut left = None;
        for child in children {
            // What is in our own session was not started by a command, for each has its own.
            let Some(Ancestry { session, group, .. }) = Ancestry::of(child) else { continue };
            let command_itself = others.iter().any(|(id, _)| *id == child);
            if command_itself || Some(session) == own_session {
                continue;
            }
            if session != command.as_raw_nonzero().get() && belongs_to_other(child, session, mark, &others) {
                continue;
            }
            if group == command.as_raw_nonzero().get() {
                // At once, so that none can make new ones meanwhile. It may be gone already.
                let _ = kill_process_group(command, Signal::KILL);
            }
            let _ = kill_process(child, Signal::KILL);
            let reaped = matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(Some(_)));
            left = Some(left.unwrap_or(0) + usize::from(!reaped));
        }
        left
    }

    /// Whether an orphan comes from another command that still runs. One that hides its origin belongs to whoever ends
    /// first.
    fn belongs_to_other(child: Pid, session: i32, mark: &str, others: &[(Pid, String)]) -> bool {
        if others.is_empty() {
            return false;
        }
        if others.iter().any(|(id, _)| id.as_raw_nonzero().get() == session) {
            return true;
        }
        let environment = fs::read(format!("/proc/{}/environ", child.as_raw_nonzero())).unwrap_or_default();
        let prefix = format!("{MARK}=");
        let mut marks = environment.split(|byte| *byte == 0).filter_map(|entry| entry.strip_prefix(prefix.as_bytes()));
        marks
            .next()
            .is_some_and(|found| found != mark.as_bytes() && others.iter().any(|(_, other)| other.as_bytes() == found))
    }

    /// Our children: those of the first thread, to which the kernel gives orphans.
    fn children() -> Vec<Pid> {
        let own = getpid().as_raw_nonzero();
        let parse = |text: &str| text.parse().ok().and_then(Pid::from_raw);
        if let Ok(list) = fs::read_to_string(format!("/proc/self/task/{own}/children")) {
            return list.split_whitespace().filter_map(parse).collect();
        }
        // A kernel without that file (CONFIG_PROC_CHILDREN): look at every process.
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let processes = entries.flatten().filter_map(|entry| parse(entry.file_name().to_str()?));
        processes.filter(|process| Ancestry::of(*process).is_some_and(|of| of.parent == own.get())).collect()
    }
}
