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

#[cfg(target_os = "linux")]
use crate::sandbox::restorer::is_restorer;

/// The environment variable by which a process is known as part of a call.
pub(crate) const CALL_ID_VARIABLE: &str = "LEGWORK_CALL";

/// The commands that run now.
static RUNNING: Mutex<Vec<(Pid, String)>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<(Pid, String)>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All that one command started.
pub(crate) struct CommandTree {
    /// The command's process; its session and its group have the same id.
    id: Pid,
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only the group is known there"))]
    call_id: String,
    ended: bool,
}

impl CommandTree {
    /// Starts a command through `spawn`, which gives its process id.
    pub(crate) fn start<T>(mark: String, spawn: impl FnOnce() -> io::Result<(T, Pid)>) -> io::Result<(T, Self)> {
        #[cfg(target_os = "linux")]
        become_subreaper()?;
        // Held over the start, so that nobody takes the new process for an orphan.
        let mut running = running();
        let (started, id) = spawn()?;
        running.push((id, mark.clone()));
        Ok((started, Self { id, call_id: mark, ended: false }))
    }

    pub(crate) fn id(&self) -> Pid {
        self.id
    }

    /// Whether the command has more than `most` processes, orphans included; known on Linux only.
    #[cfg(target_os = "linux")]
    pub(crate) fn has_more_than(&self, most: usize) -> bool {
        linux::has_more_than(self.id, &self.call_id, most)
    }

    /// Whether the command has more than `most` processes: not known here.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn is_above(&self, _most: usize) -> bool {
        false
    }

    fn forget(&mut self) {
        self.ended = true;
        running().retain(|(id, _)| *id != self.id);
    }
}

impl Drop for CommandTree {
    fn drop(&mut self) {
        if !self.ended {
            // The call was given up. The command was killed with its group; what it left is killed once it is ours.
            self.forget();
            #[cfg(target_os = "linux")]
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                let (id, mark) = (self.id, std::mem::take(&mut self.call_id));
                runtime.spawn(async move { linux::kill_orphans(id, &mark).await });
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl CommandTree {
    /// Kills what the command left in its group. The command itself has ended and was reaped.
    pub(crate) async fn end(&mut self) {
        self.forget();
        // There may be nothing left.
        let _ = rustix::process::kill_process_group(self.id, Signal::KILL);
    }
}

#[cfg(target_os = "linux")]
impl CommandTree {
    /// Kills and reaps all that the command left. The command itself has ended and was reaped.
    pub(crate) async fn kill_leftovers(&mut self) {
        self.forget();
        linux::kill_orphans(self.id, &self.call_id).await;
    }
}

/// Kills all that commands have started, without waiting for its end: for a process that is about to exit.
pub fn kill_all() {
    #[cfg(target_os = "linux")]
    kill_descendants();
    for (id, _) in running().iter() {
        // It may be gone already.
        let _ = rustix::process::kill_process_group(*id, Signal::KILL);
    }
}

/// Only what is stopped whole can't move on while it is looked for, and what moves becomes ours.
#[cfg(target_os = "linux")]
fn kill_descendants() {
    use super::process_tree::{children_of, kill_trees};
    for _ in 0..3 {
        kill_trees(children_of(rustix::process::getpid()).into_iter().filter(|child| !is_restorer(*child)));
    }
}

#[cfg(target_os = "linux")]
fn become_subreaper() -> io::Result<()> {
    use std::sync::OnceLock;
    static DONE: OnceLock<rustix::io::Result<()>> = OnceLock::new();
    let done = DONE.get_or_init(|| rustix::process::set_child_subreaper(Some(rustix::process::getpid())));
    (*done).map_err(io::Error::from)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::time::{Duration, Instant};

    use rustix::process::{PidfdFlags, WaitOptions, getpid, kill_process_group, pidfd_open, waitpid};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::{CALL_ID_VARIABLE, Pid, Signal, is_restorer, running};
    use crate::process::proc_stat::ProcStat;
    use crate::process::process_tree;

    /// How long orphans are looked for. One that the kernel can't end (it waits for a device), or that isn't ours to end
    /// (it has other rights), is given up then.
    const KILL_TIMEOUT: Duration = Duration::from_secs(5);
    /// The longest pause between two looks.
    const PAUSE: Duration = Duration::from_millis(20);

    /// Kills the orphans of a command, and all that descends from them, until none is left.
    pub(crate) async fn kill_orphans(command: Pid, mark: &str) {
        let begun = Instant::now();
        let mut clear = 0;
        let mut pause = Duration::ZERO;
        while begun.elapsed() < KILL_TIMEOUT {
            let children = children();
            // The list can lack a child while another ends, so only an empty one is believed at once.
            if children.is_empty() || clear == 2 {
                return;
            }
            let orphans = orphans(command, mark, &children);
            if orphans.is_empty() {
                clear += 1;
                continue;
            }
            clear = 0;
            if orphans.iter().any(|orphan| orphan.group == command.as_raw_nonzero().get()) {
                // At once, so that none can make new ones meanwhile. It may be gone already.
                let _ = kill_process_group(command, Signal::KILL);
            }
            process_tree::kill_trees(orphans.iter().map(|orphan| orphan.id));
            let is_left = |orphan: &&Orphan| !matches!(waitpid(Some(orphan.id), WaitOptions::NOHANG), Ok(Some(_)));
            let left: Vec<&Orphan> = orphans.iter().filter(is_left).collect();
            // The end of an orphan makes its children ours.
            if let Some(left) = left.first() {
                pause = (pause + Duration::from_millis(1)).min(PAUSE);
                // Each command in namespaces leaves its first process, whose end takes less time than the shortest timer.
                let has_ended = tokio::time::timeout(pause, wait_for_exit(left.id)).await.is_ok();
                // One that is traced can't be reaped yet.
                if has_ended && is_left(left) {
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Waits until one of our children has ended and can be reaped; for ever where the kernel doesn't report it.
    #[allow(unsafe_code)]
    async fn wait_for_exit(child: Pid) {
        let Ok(descriptor) = pidfd_open(child, PidfdFlags::NONBLOCK) else { return std::future::pending().await };
        // SAFETY: the descriptor is open, and nothing but its new owner can close it.
        match unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) } {
            Ok(descriptor) => drop(descriptor.readable().await),
            Err(_) => std::future::pending().await,
        }
    }

    /// Whether a command, which still runs, and what it has left are more than `most` processes.
    pub(crate) fn has_more_than(command: Pid, mark: &str, most: usize) -> bool {
        // They are among all that the kernel schedules, which it tells at once.
        if process_tree::scheduled().is_none_or(|all| all <= most) {
            return false;
        }
        // One that ends takes no part, and doesn't tell any more whose it was. What another command has left isn't counted
        // here, even when that one has ended meanwhile.
        let counts = |orphan: &Orphan| !orphan.is_ending && orphan.call_id.as_deref().is_none_or(|found| found == mark);
        let orphans = orphans(command, mark, &children()).into_iter().filter(counts);
        process_tree::exceeds(orphans.map(|orphan| orphan.id).chain([command]), most)
    }

    /// A process that came to us when its parent ended.
    struct Orphan {
        id: Pid,
        group: i32,
        is_ending: bool,
        /// The call that it says it is part of. It may hide that.
        call_id: Option<String>,
    }

    /// Those of our children that a command has left, or that nobody else will end.
    fn orphans(command: Pid, mark: &str, children: &[Pid]) -> Vec<Orphan> {
        let others = running().clone();
        let own_session = ProcStat::of(getpid()).map(|own| own.session);
        let left = |child: &Pid| {
            // What is in our own session was not started by a command, for each has its own.
            let ProcStat { session, group, is_ending, .. } = ProcStat::of(*child)?;
            let command_itself = others.iter().any(|(id, _)| id == child);
            if command_itself || Some(session) == own_session {
                return None;
            }
            let orphan = Orphan { id: *child, group, is_ending, call_id: call_id_of(*child) };
            let is_ours = session == command.as_raw_nonzero().get();
            (is_ours || !belongs_to_other(&orphan, session, mark, &others)).then_some(orphan)
        };
        children.iter().filter_map(left).collect()
    }

    /// Whether an orphan comes from another command that still runs. One that hides its origin belongs to whoever ends
    /// first.
    fn belongs_to_other(orphan: &Orphan, session: i32, mark: &str, others: &[(Pid, String)]) -> bool {
        let is_other = |found: &String| found != mark && others.iter().any(|(_, other)| other == found);
        others.iter().any(|(id, _)| id.as_raw_nonzero().get() == session)
            || orphan.call_id.as_ref().is_some_and(is_other)
    }

    /// The call in a process's environment.
    fn call_id_of(process: Pid) -> Option<String> {
        let environment = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())).ok()?;
        let prefix = format!("{CALL_ID_VARIABLE}=");
        let mut marks = environment.split(|byte| *byte == 0).filter_map(|entry| entry.strip_prefix(prefix.as_bytes()));
        Some(String::from_utf8_lossy(marks.next()?).into_owned())
    }

    /// Our children: those of the first thread, to which the kernel gives orphans. The process that restores protected files
    /// isn't one that a command has left.
    fn children() -> Vec<Pid> {
        let own = getpid();
        let parse = |text: &str| text.parse().ok().and_then(Pid::from_raw);
        match fs::read_to_string(format!("/proc/self/task/{}/children", own.as_raw_nonzero())) {
            Ok(list) => list.split_whitespace().filter_map(parse).filter(|child| !is_restorer(*child)).collect(),
            Err(_) => process_tree::children_of(own).into_iter().filter(|child| !is_restorer(*child)).collect(),
        }
    }
}
