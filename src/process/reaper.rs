//! Ends all processes of a command, even those that left its process group or session.
//!
//! On Linux, this process is the subreaper of its descendants: the processes that a command leaves behind become our
//! children. They are attributed to their command by session, or by a variable in their environment if they started their
//! own session. On macOS, they are those in the command's session and those that were seen as its descendants while it ran.
//! On other systems, only the command's process group is killed.
//!
//! A child that starts its own session must be started with [`CommandTree::start`], or it is treated as an orphan.

#[cfg(target_os = "macos")]
use std::collections::HashSet;
use std::io;
use std::sync::{Mutex, MutexGuard};

use rustix::process::{Pid, Signal};

#[cfg(target_os = "macos")]
use super::orphan_guard::OrphanGuard;
#[cfg(target_os = "macos")]
use super::process_table::{self, ProcessId};
#[cfg(target_os = "linux")]
use crate::sandbox::restorer::is_helper;
pub(crate) use crate::sandbox::{CALL_ID_VARIABLE, call_prefix};
use crate::sync::IgnorePoison;

/// The running commands, with their call ids.
static RUNNING: Mutex<Vec<(Pid, String)>> = Mutex::new(Vec::new());

#[cfg(target_os = "macos")]
static ORPHAN_GUARD: OrphanGuard = OrphanGuard::new();

fn running() -> MutexGuard<'static, Vec<(Pid, String)>> {
    RUNNING.lock().ignore_poison()
}

/// All processes of one command.
pub(crate) struct CommandTree {
    /// The command's process; its session and its group have the same id.
    id: Pid,
    #[cfg(target_os = "linux")]
    call_id: String,
    /// The processes that were seen while the command ran.
    #[cfg(target_os = "macos")]
    seen: Mutex<HashSet<ProcessId>>,
    ended: bool,
}

impl CommandTree {
    /// Starts a command with `spawn`, which returns its process id.
    pub(crate) fn start<T>(call_id: String, spawn: impl FnOnce() -> io::Result<(T, Pid)>) -> io::Result<(T, Self)> {
        #[cfg(target_os = "linux")]
        become_subreaper()?;
        #[cfg(target_os = "macos")]
        ORPHAN_GUARD.arm()?;
        // Locked during the start, so that the new process isn't mistaken for an orphan.
        let mut running = running();
        let (started, id) = spawn()?;
        running.push((id, call_id.clone()));
        // Nothing shows the variables of another process there.
        #[cfg(not(target_os = "linux"))]
        drop(call_id);
        #[cfg(target_os = "macos")]
        ORPHAN_GUARD.started(id);
        let tree = Self {
            id,
            #[cfg(target_os = "linux")]
            call_id,
            #[cfg(target_os = "macos")]
            seen: Mutex::default(),
            ended: false,
        };
        Ok((started, tree))
    }

    pub(crate) fn id(&self) -> Pid {
        self.id
    }

    /// Whether the command has more than `max` processes, including orphans. Only Linux and macOS tell.
    pub(crate) fn has_more_than(&self, max: usize) -> bool {
        #[cfg(target_os = "linux")]
        {
            linux::has_more_than(self.id, &self.call_id, max)
        }
        #[cfg(target_os = "macos")]
        {
            let mut seen = self.seen.lock().ignore_poison();
            *seen = process_table::members(self.id, &seen);
            seen.len() > max
        }
        #[cfg(not(any(target_os = "linux", target_os = "macos")))]
        {
            max == 0
        }
    }

    /// Kills and reaps all remaining processes of the command; on other systems than Linux, the rest of its process group. The
    /// command itself has ended and was reaped.
    pub(crate) async fn kill_leftovers(&mut self) {
        self.forget();
        #[cfg(target_os = "linux")]
        linux::kill_orphans(self.id, &self.call_id).await;
        // The group may be empty.
        #[cfg(not(target_os = "linux"))]
        let _ = rustix::process::kill_process_group(self.id, Signal::KILL);
        #[cfg(target_os = "macos")]
        macos::kill_members(self.id, self.take_seen()).await;
    }

    fn forget(&mut self) {
        self.ended = true;
        running().retain(|(id, _)| *id != self.id);
        #[cfg(target_os = "macos")]
        ORPHAN_GUARD.ended(self.id);
    }

    #[cfg(target_os = "macos")]
    fn take_seen(&mut self) -> HashSet<ProcessId> {
        std::mem::take(self.seen.get_mut().ignore_poison())
    }
}

impl Drop for CommandTree {
    fn drop(&mut self) {
        if !self.ended {
            // The call was abandoned, and the command was killed with its group. Its orphans are killed in the background.
            self.forget();
            #[cfg(target_os = "linux")]
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                let (id, call_id) = (self.id, std::mem::take(&mut self.call_id));
                runtime.spawn(async move { linux::kill_orphans(id, &call_id).await });
            }
            #[cfg(target_os = "macos")]
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                let (id, seen) = (self.id, self.take_seen());
                runtime.spawn(macos::kill_members(id, seen));
            }
        }
    }
}

/// Kills all processes that commands have started, without waiting for them to end. For a process that is about to exit.
pub fn kill_all() {
    // Repeated, because a process that moves away during the search becomes our child.
    #[cfg(target_os = "linux")]
    for _ in 0..3 {
        use super::process_tree::{children_of, kill_trees};
        kill_trees(children_of(rustix::process::getpid()).into_iter().filter(|child| !is_helper(*child)));
    }
    for (id, _) in running().iter() {
        #[cfg(target_os = "macos")]
        process_table::kill(&process_table::members(*id, &HashSet::new()));
        // It may have ended already.
        let _ = rustix::process::kill_process_group(*id, Signal::KILL);
    }
}

#[cfg(target_os = "linux")]
fn become_subreaper() -> io::Result<()> {
    use std::sync::OnceLock;
    static DONE: OnceLock<rustix::io::Result<()>> = OnceLock::new();
    let done = DONE.get_or_init(|| rustix::process::set_child_subreaper(Some(rustix::process::getpid())));
    (*done).map_err(io::Error::from)
}

#[cfg(target_os = "macos")]
mod macos {
    use std::collections::HashSet;
    use std::time::{Duration, Instant};

    use rustix::process::Pid;

    use crate::process::process_table::{self, ProcessId};

    /// How long to try to kill processes. One that waits for a device, or that has other privileges, may not end.
    const KILL_TIMEOUT: Duration = Duration::from_secs(5);
    /// The pause between two attempts.
    const PAUSE: Duration = Duration::from_millis(5);

    /// Kills the processes of a command that has ended, until none is left.
    pub(super) async fn kill_members(command: Pid, mut seen: HashSet<ProcessId>) {
        let begun = Instant::now();
        while begun.elapsed() < KILL_TIMEOUT {
            seen = process_table::members(command, &seen);
            if seen.is_empty() {
                return;
            }
            process_table::kill(&seen);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::time::{Duration, Instant};

    use rustix::process::{PidfdFlags, WaitOptions, getpid, kill_process_group, pidfd_open, waitpid};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::{CALL_ID_VARIABLE, Pid, Signal, is_helper, running};
    use crate::process::process_tree::{self, ProcStat};

    /// How long to try to kill orphans. A process that waits for a device, or that has other privileges, may not end.
    const KILL_TIMEOUT: Duration = Duration::from_secs(5);
    /// The longest pause between two attempts.
    const MAX_PAUSE: Duration = Duration::from_millis(20);

    /// Kills the orphans of a command and their descendants, until none is left.
    pub(crate) async fn kill_orphans(command: Pid, call_id: &str) {
        let begun = Instant::now();
        let mut empty_results = 0;
        let mut pause = Duration::ZERO;
        while begun.elapsed() < KILL_TIMEOUT {
            let children = children();
            // The kernel's list can miss a child while another one exits, so only an empty list is trusted at once.
            if children.is_empty() || empty_results == 2 {
                return;
            }
            let orphans = orphans(command, call_id, &children);
            if orphans.is_empty() {
                empty_results += 1;
                continue;
            }
            empty_results = 0;
            if orphans.iter().any(|orphan| orphan.group == command.as_raw_nonzero().get()) {
                // All at once, so that none can start new ones. The group may be gone already.
                let _ = kill_process_group(command, Signal::KILL);
            }
            let is_left = |orphan: &&Orphan| !matches!(waitpid(Some(orphan.id), WaitOptions::NOHANG), Ok(Some(_)));
            // The init process of a namespace has usually ended already, with everything in the namespace.
            let mut left: Vec<&Orphan> = orphans.iter().filter(is_left).collect();
            process_tree::kill_trees(left.iter().map(|orphan| orphan.id));
            left.retain(is_left);
            // When an orphan ends, its children become ours.
            if let Some(left) = left.first() {
                pause = (pause + Duration::from_millis(1)).min(MAX_PAUSE);
                // Each command in namespaces leaves its init process, which takes less time to end than the shortest timer.
                let has_ended = tokio::time::timeout(pause, wait_for_exit(left.id)).await.is_ok();
                // A traced process can't be reaped yet.
                if has_ended && is_left(left) {
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Waits until one of our children has ended; for ever if the kernel has no pidfd.
    #[allow(unsafe_code)]
    async fn wait_for_exit(child: Pid) {
        let Ok(descriptor) = pidfd_open(child, PidfdFlags::NONBLOCK) else { return std::future::pending().await };
        // SAFETY: the descriptor is open, and only its new owner can close it.
        match unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) } {
            Ok(descriptor) => drop(descriptor.readable().await),
            Err(_) => std::future::pending().await,
        }
    }

    /// Whether a running command and its orphans are more than `max` processes.
    pub(crate) fn has_more_than(command: Pid, call_id: &str, max: usize) -> bool {
        // A cheap upper bound: all threads of the machine.
        if process_tree::thread_count().is_none_or(|all| all <= max) {
            return false;
        }
        // A process that is exiting no longer reveals its call. Orphans of other commands aren't counted, even if those have
        // ended.
        let counts = |orphan: &Orphan| !orphan.is_ending && orphan.call_id.as_deref().is_none_or(|id| id == call_id);
        let orphans = orphans(command, call_id, &children()).into_iter().filter(counts);
        process_tree::exceeds(orphans.map(|orphan| orphan.id).chain([command]), max)
    }

    /// A process that became our child when its parent ended.
    struct Orphan {
        id: Pid,
        group: i32,
        is_ending: bool,
        /// The call in its environment, which it may have removed.
        call_id: Option<String>,
    }

    /// Our children that a command has left behind, or that no running command accounts for.
    fn orphans(command: Pid, call_id: &str, children: &[Pid]) -> Vec<Orphan> {
        let others = running().clone();
        let own_session = ProcStat::of(getpid()).map(|own| own.session);
        let left = |child: &Pid| {
            // Each command has its own session, so a process in ours was not started by one.
            let ProcStat { session, group, is_ending, .. } = ProcStat::of(*child)?;
            let is_command = others.iter().any(|(id, _)| id == child);
            if is_command || Some(session) == own_session {
                return None;
            }
            let orphan = Orphan { id: *child, group, is_ending, call_id: call_id_of(*child) };
            let is_in_session = session == command.as_raw_nonzero().get();
            (is_in_session || !belongs_to_other(&orphan, session, call_id, &others)).then_some(orphan)
        };
        children.iter().filter_map(left).collect()
    }

    /// Whether an orphan comes from another running command. One that hides its origin is killed with the first command that
    /// ends.
    fn belongs_to_other(orphan: &Orphan, session: i32, call_id: &str, others: &[(Pid, String)]) -> bool {
        let is_other = |found: &String| found != call_id && others.iter().any(|(_, other)| other == found);
        others.iter().any(|(id, _)| id.as_raw_nonzero().get() == session)
            || orphan.call_id.as_ref().is_some_and(is_other)
    }

    /// The call id in a process's environment.
    fn call_id_of(process: Pid) -> Option<String> {
        let environment = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())).ok()?;
        let prefix = format!("{CALL_ID_VARIABLE}=");
        let mut ids = environment.split(|byte| *byte == 0).filter_map(|entry| entry.strip_prefix(prefix.as_bytes()));
        Some(String::from_utf8_lossy(ids.next()?).into_owned())
    }

    /// Our children, without those of legwork's own. The kernel gives orphans to the first thread.
    fn children() -> Vec<Pid> {
        let listed = process_tree::children_of_first_thread(getpid());
        let mut children = listed.unwrap_or_else(|| process_tree::children_of(getpid()));
        children.retain(|child| !is_helper(*child));
        children
    }
}
