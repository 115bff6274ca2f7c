//! The sandbox: what commands may read, change and reach, and how that is enforced.
//!
//! [`Sandbox::detect`] finds the best [`Tier`] that works, once and before anything is spent; [`Sandbox::command`] then
//! prepares every command of the run for that tier. A test of bubblewrap that has succeeded in an earlier run may still be running
//! when the first request is sent, but not when the first command starts.

pub mod allowed_changes;
#[cfg(target_os = "linux")]
mod bpf;
#[cfg(target_os = "linux")]
mod bubblewrap;
mod call_id;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod command_watch_tests;
#[cfg(target_os = "linux")]
mod hidden_paths;
pub mod home;
#[cfg(target_os = "linux")]
pub mod host_access;
#[cfg(target_os = "linux")]
pub mod kill_guard;
#[cfg(target_os = "linux")]
pub mod landlock;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod namespace_sockets;
mod object_stage;
mod policy;
#[cfg(target_os = "linux")]
mod probe_cache;
pub mod programs;
pub mod protected_paths;
#[cfg(target_os = "linux")]
mod readable_paths;
pub mod restorer;
mod scratch_dirs;
#[cfg(any(test, target_os = "macos"))]
mod seatbelt;
#[cfg(target_os = "linux")]
pub mod seccomp;
#[cfg(target_os = "linux")]
pub mod supervisor;
#[cfg(target_os = "linux")]
mod syscall_broker;
mod tamper_error;
pub mod tamper_guard;
mod tamper_watch;
mod tier_probe;

use std::collections::BTreeMap;
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

pub(crate) use self::call_id::{CALL_ID_VARIABLE, call_prefix};
#[cfg(target_os = "linux")]
pub use self::landlock::restrict_git;
pub use self::object_stage::{GuardedFiles, ObjectStages};
pub use self::policy::{
    HiddenPaths, MAX_RESTARTS, OwnsRecord, PreparedCommand, RecordVerifier, SandboxMode, SandboxPolicy,
    SandboxUnavailable, Tier, VerifyRecord,
};
pub(crate) use self::scratch_dirs::ScratchDirs;
pub use self::tamper_error::{TamperError, UndoneChanges};
use self::tamper_watch::TamperWatch;
use crate::egress::CallEgress;
#[cfg(target_os = "linux")]
use crate::egress::ProxyUsers;
use crate::job::GitAccess;

/// There is nothing like landlock.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn restrict_git(_files: &crate::git::GitFiles) -> io::Result<Option<Arc<dyn crate::git::Restriction>>> {
    Ok(None)
}

/// Starts the commands of one run.
#[derive(Debug)]
pub struct Sandbox {
    backend: Backend,
    /// What is missing compared with the best tier, as one sentence without a full stop. `None` if nothing is, or if no sandbox
    /// was asked for.
    pub(crate) degradation: Option<String>,
    git: GitAccess,
    tamper_watch: Option<TamperWatch>,
    /// The first one that was found.
    tamper_error: OnceLock<TamperError>,
    /// Folders that commands may change.
    pub(crate) writable: Vec<PathBuf>,
    /// Kept open by the supervisors of commands.
    held_open: Option<Arc<OwnedFd>>,
}

/// The record of the run whose commands are confined.
#[derive(Debug)]
pub struct RecordGuard<'a> {
    /// The folder with the records of all runs, or of those of this job.
    pub runs: &'a Path,
    /// The record itself.
    pub folder: &'a Path,
    /// Its lock, which the last process of the last command holds until it ends.
    pub lock: Option<OwnedFd>,
    /// Recognizes planted records of other runs.
    pub verifier: Option<RecordVerifier>,
}

#[derive(Debug)]
enum Backend {
    Unconfined(Tier),
    #[cfg(target_os = "linux")]
    Landlock(Arc<landlock::Landlock>, Arc<ScratchDirs>),
    #[cfg(target_os = "linux")]
    Bubblewrap(Arc<bubblewrap::Bubblewrap>),
    #[cfg(target_os = "macos")]
    Seatbelt(Box<seatbelt::Seatbelt>),
}

impl Sandbox {
    /// For a run without commands: nothing is probed.
    pub fn unused() -> Self {
        Self::new(Backend::Unconfined(Tier::Unused), None)
    }

    /// No confinement: commands can do whatever this process can do.
    pub fn off() -> Self {
        Self::new(Backend::Unconfined(Tier::Off), None)
    }

    fn new(backend: Backend, degradation: Option<String>) -> Self {
        Self {
            backend,
            degradation,
            git: GitAccess::Read,
            tamper_watch: None,
            tamper_error: OnceLock::new(),
            writable: Vec::new(),
            held_open: None,
        }
    }

    /// Finds the best tier that works by running a command with exactly the flags that every command gets. Takes some
    /// milliseconds, and at most about ten seconds if something hangs. Call it from the thread that will start the commands.
    ///
    /// # Errors
    /// If no acceptable tier works.
    pub fn detect(mode: SandboxMode, policy: SandboxPolicy) -> Result<Self, SandboxUnavailable> {
        Self::detect_with_cache(mode, policy, None)
    }

    /// The same, but if bubblewrap has worked here before, according to the file `cache`, then its test runs in the background,
    /// and the first command waits for it. If it fails, no command is started. The file grants nothing else, and other tiers
    /// aren't remembered.
    ///
    /// # Errors
    /// If no acceptable tier works.
    pub fn detect_with_cache(
        mode: SandboxMode,
        policy: SandboxPolicy,
        cache: Option<PathBuf>,
    ) -> Result<Self, SandboxUnavailable> {
        let writable = policy.writable_roots().cloned().collect();
        let sandbox = if mode == SandboxMode::Off { Self::off() } else { Self::detect_tier(mode, policy, cache)? };
        Ok(Self { writable, ..sandbox })
    }

    #[cfg(target_os = "linux")]
    fn detect_tier(
        mode: SandboxMode,
        policy: SandboxPolicy,
        cache: Option<PathBuf>,
    ) -> Result<Self, SandboxUnavailable> {
        let scratch = Arc::new(Self::create_scratch_dirs(&policy)?);
        let cache = cache.map(probe_cache::ProbeCache::new);
        let mut unavailable = match bubblewrap::Bubblewrap::detect(policy.clone(), Arc::clone(&scratch), cache.as_ref())
        {
            Ok((bubblewrap, degradation)) => {
                return Ok(Self::new(Backend::Bubblewrap(bubblewrap), degradation));
            }
            Err(error) => error,
        };
        policy.object_stages.clear();
        if mode == SandboxMode::Required {
            return Err(unavailable);
        }
        match Self::prepare_landlock(policy, &scratch) {
            Ok(landlock) => {
                if !landlock.scopes_signals() {
                    let limitation =
                        "this kernel can't keep commands from sending signals to other processes of the same user";
                    unavailable.reasons.push(limitation.to_owned());
                }
                Ok(Self::new(Backend::Landlock(landlock, scratch), Some(unavailable.reasons.join("; "))))
            }
            Err(reason) => {
                unavailable.reasons.push(format!("landlock can't be used: {reason}"));
                Err(unavailable)
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn prepare_landlock(mut policy: SandboxPolicy, scratch: &ScratchDirs) -> Result<Arc<landlock::Landlock>, String> {
        if let Some(file) =
            policy.hidden_files.iter().find(|file| programs::Folders::new(&policy.writable).lead_through(file))
        {
            return Err(format!("{} is in a folder of --allow-write, and only bubblewrap can hide it", file.display()));
        }
        let home = policy.home.as_ref().and_then(|home| home.canonicalize().ok());
        if let Some(home) = home.filter(|home| home.parent().is_some()) {
            // Commands get another home folder, in which they look for toolchains and for the folders opened to them.
            let opened: Vec<PathBuf> = policy.readable.iter().chain(&policy.writable).cloned().collect();
            home::link_toolchains(&home, &scratch.home(), &opened);
            policy.readable.extend(home::readable_paths(&home));
        }
        let landlock = landlock::Landlock::prepare(&policy, &scratch.home()).map_err(|error| error.to_string())?;
        landlock.probe()?;
        Ok(landlock)
    }

    /// There is one tier only, so `required` means the same as `auto`.
    #[cfg(target_os = "macos")]
    #[allow(clippy::needless_pass_by_value, reason = "other systems keep it")]
    fn detect_tier(_: SandboxMode, policy: SandboxPolicy, _: Option<PathBuf>) -> Result<Self, SandboxUnavailable> {
        let seatbelt = seatbelt::Seatbelt::detect(&policy, Arc::new(Self::create_scratch_dirs(&policy)?))?;
        let limitation = "macOS can't end all processes of a command: one that starts a session of its own and whose parent \
             ends at once continues, confined";
        Ok(Self::new(Backend::Seatbelt(Box::new(seatbelt)), Some(limitation.to_owned())))
    }

    #[cfg(not(any(target_os = "linux", target_os = "macos")))]
    fn detect_tier(_: SandboxMode, _: SandboxPolicy, _: Option<PathBuf>) -> Result<Self, SandboxUnavailable> {
        Err(SandboxUnavailable { reasons: vec!["there is no sandbox for this system".to_owned()], remedy: None })
    }

    #[cfg(any(target_os = "linux", target_os = "macos"))]
    fn create_scratch_dirs(policy: &SandboxPolicy) -> Result<ScratchDirs, SandboxUnavailable> {
        ScratchDirs::create(policy).map_err(|error| SandboxUnavailable {
            reasons: vec![format!("the folders for HOME and /tmp can't be created ({error})")],
            remedy: None,
        })
    }

    /// The sandbox of a run: its last process keeps the record's lock, and after each command it is compared what the tier can't
    /// protect, such as protected paths that don't exist yet.
    ///
    /// If this process is killed before it could restore protected files, another one does. Only the legwork program itself
    /// may call this: it is started a second time and must call [`restorer::run_restorer`] then.
    ///
    /// # Errors
    /// The existing objects of git can't be kept.
    pub fn for_record(self, policy: &SandboxPolicy, record: RecordGuard<'_>) -> io::Result<Self> {
        let RecordGuard { runs, folder, lock, verifier } = record;
        // The process that restores files holds the lock, too.
        let sandbox = self.keeping_open(lock);
        if let Backend::Unconfined(_) = sandbox.backend {
            return Ok(sandbox);
        }
        let restorer = restorer::Restorer::new(sandbox.tier(), sandbox.held_open.clone());
        let watch = TamperWatch::new(policy, sandbox.tier(), runs, folder, verifier, restorer)?;
        Ok(Self { tamper_watch: Some(watch), git: policy.allowed_changes.git, ..sandbox })
    }

    /// The tier in use.
    pub fn tier(&self) -> Tier {
        match &self.backend {
            Backend::Unconfined(tier) => *tier,
            #[cfg(target_os = "linux")]
            Backend::Landlock(..) => Tier::Landlock,
            #[cfg(target_os = "linux")]
            Backend::Bubblewrap(_) => Tier::Bubblewrap,
            #[cfg(target_os = "macos")]
            Backend::Seatbelt(_) => Tier::Seatbelt,
        }
    }

    /// Keeps a descriptor open as long as any process of a command lives, even if this program is killed.
    #[must_use]
    pub fn keeping_open(self, descriptor: Option<OwnedFd>) -> Self {
        Self { held_open: descriptor.map(Arc::new), ..self }
    }

    /// Prepares a command that runs `program` in `folder` with exactly these variables, plus `HOME` and `TMPDIR`, which the
    /// tier sets. With `read_only` it can only write to its private `HOME` and `/tmp`. It reaches the hosts of `egress` if the policy
    /// has [`NetworkAccess::Hosts`](crate::egress::NetworkAccess::Hosts).
    ///
    /// # Errors
    /// If the system refuses a resource that the start needs.
    pub fn command(
        &self,
        program: &Path,
        folder: &Path,
        variables: &BTreeMap<String, String>,
        read_only: bool,
        egress: Option<&CallEgress>,
    ) -> io::Result<PreparedCommand> {
        let direct = || {
            let mut command = Command::new(program);
            command.current_dir(folder).env_clear().envs(variables);
            command
        };
        match &self.backend {
            Backend::Unconfined(_) => self.unconfined(direct(), egress),
            #[cfg(target_os = "linux")]
            Backend::Landlock(landlock, scratch) => {
                scratch.settle();
                let mut command = direct();
                command.env("HOME", scratch.home());
                let mut prepared = self.supervised(command);
                prepared.hosts = landlock.confine(&mut prepared.command, read_only, egress)?;
                Ok(prepared)
            }
            #[cfg(target_os = "linux")]
            Backend::Bubblewrap(bubblewrap) => bubblewrap.command(program, folder, variables, read_only, egress),
            #[cfg(target_os = "macos")]
            Backend::Seatbelt(seatbelt) => Ok(self.supervised(seatbelt.command(program, folder, variables, read_only))),
        }
    }

    /// A command that nothing confines. It learns of its hosts' proxy, and can get around it.
    #[cfg(target_os = "linux")]
    fn unconfined(&self, mut command: Command, egress: Option<&CallEgress>) -> io::Result<PreparedCommand> {
        let Some(egress) = egress else { return Ok(self.supervised(command)) };
        let proxy = egress.proxy(ProxyUsers::Everybody)?;
        command.envs(proxy.door().variables());
        Ok(PreparedCommand { hosts: Some(host_access::HostAccess::Proxy(proxy)), ..self.supervised(command) })
    }

    #[cfg(not(target_os = "linux"))]
    fn unconfined(&self, command: Command, _: Option<&CallEgress>) -> io::Result<PreparedCommand> {
        Ok(self.supervised(command))
    }

    /// A command whose process tree is ended by a supervisor process.
    #[cfg(target_os = "linux")]
    fn supervised(&self, mut command: Command) -> PreparedCommand {
        let liveness_pipe = self.tamper_watch.as_ref().and_then(|watch| watch.restorer.liveness_pipe());
        supervisor::supervise(&mut command, [self.held_open.clone(), liveness_pipe]);
        PreparedCommand { is_supervised: true, ..PreparedCommand::direct(command) }
    }

    #[cfg(not(target_os = "linux"))]
    fn supervised(&self, command: Command) -> PreparedCommand {
        PreparedCommand::direct(command)
    }

    /// Waits for the test of the sandbox if it is still running. [`command`](Self::command) does so, too.
    ///
    /// # Errors
    /// The sandbox worked in an earlier run, but no longer does. No command may be started.
    pub fn confirm(&self) -> io::Result<()> {
        match &self.backend {
            Backend::Unconfined(_) => Ok(()),
            #[cfg(target_os = "linux")]
            Backend::Landlock(..) => Ok(()),
            #[cfg(target_os = "linux")]
            Backend::Bubblewrap(bubblewrap) => bubblewrap.confirm(),
            #[cfg(target_os = "macos")]
            Backend::Seatbelt(_) => Ok(()),
        }
    }

    /// A note for the model if a failed command's output looks as if the sandbox kept it from changing a git folder.
    pub fn explain_failure(&self, output: &str) -> Option<&'static str> {
        let is_confined = !matches!(self.backend, Backend::Unconfined(_));
        let denials: &[&str] = match self.tier() {
            Tier::Seatbelt => &["Operation not permitted"],
            _ => &["Read-only file system", "Permission denied"],
        };
        let is_denied = denials.iter().any(|error| output.contains(error));
        let is_about_git = output.contains(".git") || output.contains("object");
        if !(is_confined && is_denied && is_about_git) {
            return None;
        }
        Some(match self.git {
            GitAccess::Read => {
                "(This job has `git: read`: git folders are read-only for commands. git status, diff, log and show work; \
                 add, commit, stash, checkout and other commands that write to the repository don't. Don't try again.)"
            }
            GitAccess::Commit => {
                "(This job has `git: commit`: in git folders, commands can add objects and change branches, tags, notes, \
                 stashes, logs, the index and HEAD. The configuration, hooks and everything else there are read-only.)"
            }
        })
    }

    /// Watches what is protected from before a command starts until it has ended.
    ///
    /// # Errors
    /// If nothing could be restored in case this program is killed.
    pub fn watch_command(&self) -> io::Result<CommandWatch<&Self>> {
        self.command_starting()?;
        Ok(CommandWatch(self, false))
    }

    /// Watches what is protected as long as a server lives.
    ///
    /// # Errors
    /// If nothing could be restored in case this program is killed.
    pub fn watch_server(self: &Arc<Self>) -> io::Result<CommandWatch<Arc<Self>>> {
        self.command_starting()?;
        Ok(CommandWatch(Arc::clone(self), false))
    }

    /// Checks what commands and servers that are still running have changed, before this program itself runs git there.
    ///
    /// # Errors
    /// The first change that was found in this run.
    pub fn check_protected(&self) -> Result<(), TamperError> {
        if let Some(watch) = &self.tamper_watch
            && let Err(error) = watch.check_running()
        {
            let _ = self.tamper_error.set(error);
        }
        self.tamper_error.get().cloned().map_or(Ok(()), Err)
    }

    /// Must be called after the files of the record were written, which tool servers may not change.
    ///
    /// # Errors
    /// If nothing could be restored in case this program is killed.
    pub fn record_written(&self) -> io::Result<()> {
        if let Some(watch) = &self.tamper_watch {
            watch.record_written()?;
        }
        Ok(())
    }

    fn command_starting(&self) -> io::Result<()> {
        if let Some(watch) = &self.tamper_watch {
            watch.command_starting()?;
        }
        Ok(())
    }
}

/// A command that is running, as the tamper guard counts it. If this is dropped early, the command counts as ended, and
/// what it changed is reported for the next one.
#[derive(Debug)]
#[must_use]
pub struct CommandWatch<S: Deref<Target = Sandbox>>(S, bool);

impl<S: Deref<Target = Sandbox> + Clone> CommandWatch<S> {
    /// Checks after the command whether anything protected has changed. Returns what was undone in git folders, if the run can
    /// continue.
    ///
    /// # Errors
    /// The first change that was found in this run, for every later command as well: the run must end.
    pub fn finish(mut self) -> Result<Option<UndoneChanges>, TamperError> {
        let sandbox = self.0.clone();
        let undone = self.end();
        match sandbox.tamper_error.get() {
            Some(error) => Err(error.clone()),
            None => Ok(undone),
        }
    }
}

impl<S: Deref<Target = Sandbox>> CommandWatch<S> {
    fn end(&mut self) -> Option<UndoneChanges> {
        if std::mem::replace(&mut self.1, true) {
            return None;
        }
        let result = self.0.tamper_watch.as_ref().map_or(Ok(None), TamperWatch::command_ended);
        result.unwrap_or_else(|error| {
            let _ = self.0.tamper_error.set(error);
            None
        })
    }
}

impl<S: Deref<Target = Sandbox>> Drop for CommandWatch<S> {
    fn drop(&mut self) {
        self.end();
    }
}
