//! How a command is confined: what it may read, change and reach. Two tiers, the better one where it works.
//!
//! [`Sandbox::reach`] looks once, before anything is spent, for the best tier that works here; [`Sandbox::command`] then
//! starts every command of the run by it.

pub mod allowed_changes;
#[cfg(target_os = "linux")]
mod bpf;
#[cfg(target_os = "linux")]
mod bubblewrap;
#[cfg(target_os = "linux")]
mod capabilities;
#[cfg(target_os = "linux")]
mod chmod_broker;
#[cfg(target_os = "linux")]
mod hidden_paths;
pub mod home;
#[cfg(target_os = "linux")]
pub mod landlock;
#[cfg(target_os = "linux")]
mod mounts;
pub mod programs;
pub mod protected_paths;
#[cfg(target_os = "linux")]
mod readable_paths;
#[cfg(target_os = "linux")]
pub mod restorer;
#[cfg(target_os = "linux")]
mod scratch_dirs;
#[cfg(target_os = "linux")]
pub mod seccomp;
#[cfg(target_os = "linux")]
pub mod supervisor;
#[cfg(target_os = "linux")]
pub mod tamper_guard;
#[cfg(target_os = "linux")]
mod tamper_watch;
#[cfg(target_os = "linux")]
mod tier_probe;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use self::allowed_changes::AllowedChanges;
#[cfg(target_os = "linux")]
use self::scratch_dirs::ScratchDirs;
use crate::job::{GitAccess, Network};

/// What the commands of a run may reach; the same for all of them.
#[derive(Debug, Clone)]
pub struct SandboxPolicy {
    /// The workspace, canonical: what commands may change, protected paths aside.
    pub workspace: PathBuf,
    /// Absolute paths beneath the workspace that stay read-only; some don't exist yet.
    pub protected: Vec<PathBuf>,
    /// Links beneath the workspace that must stay what they are: they can only be looked at after each call.
    pub protected_links: Vec<PathBuf>,
    /// What may change within what is protected.
    pub allowed_changes: AllowedChanges,
    /// Whether commands reach the network.
    pub network: Network,
    /// Folders beside the system's that commands may read, absolute.
    pub readable: Vec<PathBuf>,
    /// Folders beside the workspace that commands may change, absolute.
    pub writable: Vec<PathBuf>,
    /// The home folder of whoever started the run; commands get an empty one in its place.
    pub home: Option<PathBuf>,
    /// The absolute entries of `PATH`.
    pub path_dirs: Vec<PathBuf>,
}

/// How commands are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// There are none: no agent has a tool that starts one.
    Unused,
    /// Not at all.
    Off,
    /// By landlock, seccomp and the loss of all capabilities, in the process itself.
    Landlock,
    /// By namespaces of their own, made by bubblewrap.
    Bubblewrap,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unused => "unused",
            Self::Off => "off",
            Self::Landlock => "landlock",
            Self::Bubblewrap => "bubblewrap",
        })
    }
}

/// What the person at the command line asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxMode {
    /// The best tier that works, but one of them.
    #[default]
    Auto,
    /// Bubblewrap.
    Required,
    /// None.
    Off,
}

/// Why no tier that would do was reached: for each that was tried, its name and what went wrong.
#[derive(Debug, thiserror::Error)]
#[error("commands can't be confined here: {}", reasons.join("; "))]
pub struct SandboxUnavailable {
    /// One for each tier.
    pub reasons: Vec<String>,
    /// What would make the best tier work, as the beginning of a sentence; `None` where nothing is known to.
    pub remedy: Option<&'static str>,
}

fn unreached(reasons: Vec<String>, remedy: Option<&'static str>) -> SandboxUnavailable {
    SandboxUnavailable { reasons, remedy }
}

/// Something that no command may change was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TamperError(pub String);

/// Whether a folder, of which this is the path, is the record of a run that was made there by legwork, and not by a command.
#[derive(Clone)]
pub struct RecordVerifier(pub Arc<VerifyRecord>);

/// Judges an open folder by its path.
pub type VerifyRecord = dyn Fn(&OwnedFd, &Path) -> bool + Send + Sync;

impl fmt::Debug for RecordVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IsGenuine")
    }
}

/// How the commands of one run are started.
#[derive(Debug)]
pub struct Sandbox {
    kind: Backend,
    degradation: Option<String>,
    git: GitAccess,
    #[cfg(target_os = "linux")]
    watch: Option<tamper_watch::TamperWatch>,
    tamper_error: OnceLock<TamperError>,
    failure: OnceLock<String>,
    /// Folders that commands may change.
    writable: Vec<PathBuf>,
    /// Kept open by the supervisors of commands.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there are supervisors on Linux only"))]
    held: Option<Arc<OwnedFd>>,
}

/// A command that is about to be started.
#[derive(Debug)]
pub struct PreparedCommand {
    /// The caller adds its arguments, standard streams and its own steps before exec; `arg0` and `env` aren't for it, for
    /// it may be another program that starts this one.
    pub command: Command,
    /// Whether the process that is started is a [`supervisor`] of the command's.
    pub is_supervised: bool,
    /// Where the program that makes the sandbox says that the command has begun and ended; without a line of its end, the
    /// command was never started.
    pub status_pipe: Option<PipeReader>,
}

#[derive(Debug)]
enum Backend {
    Unconfined(Tier),
    #[cfg(target_os = "linux")]
    Landlock(landlock::Landlock, Arc<ScratchDirs>),
    #[cfg(target_os = "linux")]
    Bubblewrap(Box<bubblewrap::Bubblewrap>),
}

impl Sandbox {
    /// For a run without commands: nothing is looked for and nothing is started.
    pub fn unused() -> Self {
        Self::new(Backend::Unconfined(Tier::Unused), None)
    }

    /// No confinement: commands can do whatever we can do.
    pub fn off() -> Self {
        Self::new(Backend::Unconfined(Tier::Off), None)
    }

    fn new(kind: Backend, shortfall: Option<String>) -> Self {
        Self {
            kind,
            degradation: shortfall,
            git: GitAccess::Read,
            #[cfg(target_os = "linux")]
            watch: None,
            tamper_error: OnceLock::new(),
            failure: OnceLock::new(),
            writable: Vec::new(),
            held: None,
        }
    }

    /// Finds the best tier that works, by trying it with the very flags that every command gets. Takes some milliseconds,
    /// and at most about ten seconds where something hangs. Call it from the thread that will start the commands.
    ///
    /// # Errors
    /// Where no tier that would do works.
    pub fn detect(wanted: SandboxMode, boundary: SandboxPolicy) -> Result<Self, SandboxUnavailable> {
        let writable = std::iter::once(&boundary.workspace).chain(&boundary.writable).cloned().collect();
        let sandbox = if wanted == SandboxMode::Off { Self::off() } else { Self::detect_tier(wanted, boundary)? };
        Ok(Self { writable, ..sandbox })
    }

    #[cfg(target_os = "linux")]
    fn detect_tier(wanted: SandboxMode, boundary: SandboxPolicy) -> Result<Self, SandboxUnavailable> {
        let private = ScratchDirs::create(&boundary)
            .map_err(|error| unreached(vec![format!("no folder can be made for HOME and /tmp ({error})")], None))?;
        let private = Arc::new(private);
        let (first, remedy) = match bubblewrap::Bubblewrap::reach(boundary.clone(), Arc::clone(&private)) {
            Ok((bubblewrap, shortfall)) => return Ok(Self::new(Backend::Bubblewrap(Box::new(bubblewrap)), shortfall)),
            Err(unusable) => (format!("bubblewrap can't be used: {}", unusable.why), unusable.remedy),
        };
        if wanted == SandboxMode::Required {
            return Err(unreached(vec![first], remedy));
        }
        match Self::prepare_landlock(boundary, &private) {
            Ok(landlock) => {
                let mut shortfall = first;
                for missing in landlock.limitations() {
                    shortfall.push_str("; this kernel doesn't keep commands from ");
                    shortfall.push_str(missing);
                }
                Ok(Self::new(Backend::Landlock(landlock, private), Some(shortfall)))
            }
            Err(why) => Err(unreached(vec![first, format!("landlock can't be used: {why}")], remedy)),
        }
    }

    #[cfg(target_os = "linux")]
    fn prepare_landlock(mut boundary: SandboxPolicy, private: &ScratchDirs) -> Result<landlock::Landlock, String> {
        let home = boundary.home.as_ref().and_then(|home| home.canonicalize().ok());
        if let Some(home) = home.filter(|home| home.parent().is_some()) {
            // Another folder is the home one there, so the toolchains and what was opened are looked for in it.
            let opened: Vec<PathBuf> = boundary.readable.iter().chain(&boundary.writable).cloned().collect();
            home::link_toolchains(&home, &private.home(), &opened);
            boundary.readable.extend(home::readable_paths(&home));
        }
        let landlock = landlock::Landlock::prepare(&boundary, &private.home()).map_err(|error| error.to_string())?;
        landlock.probe()?;
        Ok(landlock)
    }

    #[cfg(not(target_os = "linux"))]
    fn confined(_: SandboxMode, _: SandboxPolicy) -> Result<Self, SandboxUnavailable> {
        Err(unreached(vec!["there is no sandbox for this system yet".to_owned()], None))
    }

    /// Begins to look after each call at what the tier can't hold: protected paths that aren't there yet, say. The record
    /// of the run lies in `record`, within the folder of all runs, `out`. `judge` tells records of other runs from planted ones.
    #[must_use]
    pub fn with_tamper_watch(
        self,
        boundary: &SandboxPolicy,
        out: &Path,
        record: &Path,
        judge: Option<RecordVerifier>,
    ) -> Self {
        #[cfg(target_os = "linux")]
        if let Backend::Landlock(..) | Backend::Bubblewrap(_) = self.kind {
            let watch = tamper_watch::TamperWatch::new(boundary, self.tier(), out, record, judge);
            return Self { watch: Some(watch), git: boundary.allowed_changes.git, ..self };
        }
        let _ = (boundary, out, record, judge);
        self
    }

    /// Has another process put back what [`Sandbox::watching`] looks at, where this program is killed before it did. For
    /// this very program alone: it is started once more, and has to call [`restorer::restore`] then.
    #[must_use]
    pub fn with_restorer(self) -> Self {
        #[cfg(target_os = "linux")]
        if let Some(watch) = self.watch {
            // Bubblewrap ends commands by itself.
            let ends_late = matches!(self.kind, Backend::Bubblewrap(_));
            let restorer = restorer::Restorer::new(ends_late, self.held.clone());
            return Self { watch: Some(watch.with_restorer(restorer)), ..self };
        }
        self
    }

    /// The tier that was reached.
    pub fn tier(&self) -> Tier {
        match &self.kind {
            Backend::Unconfined(tier) => *tier,
            #[cfg(target_os = "linux")]
            Backend::Landlock(..) => Tier::Landlock,
            #[cfg(target_os = "linux")]
            Backend::Bubblewrap(_) => Tier::Bubblewrap,
        }
    }

    /// What is lacking to the best, in one sentence without a full stop; `None` where nothing is, or where nobody asked
    /// for a sandbox.
    pub fn degradation(&self) -> Option<&str> {
        self.degradation.as_deref()
    }

    /// Keeps a descriptor open for as long as any process of a command lives, even where this program is killed.
    #[must_use]
    pub fn keeping_open(self, held: OwnedFd) -> Self {
        Self { held: Some(Arc::new(held)), ..self }
    }

    /// Folders that commands may change: the workspace, and what the command line opens.
    pub fn writable(&self) -> &[PathBuf] {
        &self.writable
    }

    /// A command that runs `program` in `folder` with exactly these variables (but `HOME` and `TMPDIR`, which the tier
    /// sets). With `read_only` it changes nothing but the private `HOME` and `/tmp`.
    ///
    /// # Errors
    /// Where the system refuses what a start takes.
    pub fn command(
        &self,
        program: &Path,
        folder: &Path,
        variables: &BTreeMap<String, String>,
        read_only: bool,
    ) -> io::Result<PreparedCommand> {
        #[cfg(target_os = "linux")]
        if let Some(watch) = &self.watch {
            watch.command_starting()?;
        }
        match &self.kind {
            Backend::Unconfined(_) => {
                let mut command = Command::new(program);
                command.current_dir(folder).env_clear().envs(variables);
                Ok(self.supervised(command))
            }
            #[cfg(target_os = "linux")]
            Backend::Landlock(landlock, private) => {
                let mut command = Command::new(program);
                command.current_dir(folder).env_clear().envs(variables).env("HOME", private.home());
                let mut start = self.supervised(command);
                landlock.confine(&mut start.command, read_only);
                Ok(start)
            }
            #[cfg(target_os = "linux")]
            Backend::Bubblewrap(bubblewrap) => bubblewrap.command(program, folder, variables, read_only),
        }
    }

    /// A command whose process tree is ended by a process of its own.
    #[cfg(target_os = "linux")]
    fn supervised(&self, mut command: Command) -> PreparedCommand {
        let line = self.watch.as_ref().and_then(tamper_watch::TamperWatch::liveness_pipe);
        supervisor::supervise(&mut command, [self.held.clone(), line]);
        PreparedCommand { command, is_supervised: true, status_pipe: None }
    }

    #[cfg(not(target_os = "linux"))]
    fn supervised(&self, command: Command) -> PreparedCommand {
        PreparedCommand { command, is_supervised: false, report: None }
    }

    /// What a failed command's output has to be read with, where it was kept from changing a git folder.
    pub fn explain_failure(&self, output: &str) -> Option<&'static str> {
        let is_confined = !matches!(self.kind, Backend::Unconfined(_));
        let is_denied = ["Read-only file system", "Permission denied"].iter().any(|why| output.contains(why));
        let is_about_git = output.contains(".git") || output.contains("object");
        match self.git {
            GitAccess::Read if is_confined && is_denied && is_about_git => Some(
                "(This job has `git: read`: git folders are read-only to commands. git status, diff, log and show work; \
                 add, commit, stash, checkout and whatever else writes to the repository don't. Don't try again.)",
            ),
            GitAccess::Commit if is_confined && is_denied && is_about_git => Some(
                "(This job has `git: commit`: in git folders, commands can change objects, branches, tags, logs, the index \
                 and HEAD. The configuration, hooks and everything else there are read-only.)",
            ),
            _ => None,
        }
    }

    /// Looks after a command whether anything is changed that no command may change.
    ///
    /// # Errors
    /// The first breach, again and again: the run must end.
    pub fn check_tampering(&self) -> Result<(), TamperError> {
        #[cfg(target_os = "linux")]
        if let Some(found) = self.watch.as_ref().and_then(tamper_watch::TamperWatch::command_ended) {
            return Err(self.tamper_error.get_or_init(|| found).clone());
        }
        self.tamper_error().cloned().map_or(Ok(()), Err)
    }

    /// Takes note that a command couldn't be started for want of something that this machine lacks: the run must end.
    pub fn record_start_failure(&self, why: String) {
        let _ = self.failure.set(why);
    }

    /// Why a command couldn't be started, where one couldn't.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// The breach that was found, if one was.
    pub fn tamper_error(&self) -> Option<&TamperError> {
        self.tamper_error.get()
    }
}
