//! The types that every part of the sandbox shares: what a run's commands may do, and how they can be confined.

use std::fmt;
use std::io::PipeReader;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use super::allowed_changes::AllowedChanges;
use super::object_stage::{GuardedFiles, ObjectStages};
use crate::egress::NetworkAccess;
use crate::job::Network;

/// What the commands of a run may read, change and reach; the same for all of them.
#[derive(Debug, Clone)]
pub struct SandboxPolicy {
    /// The workspace, canonical. Commands may change everything in it except protected paths.
    pub workspace: PathBuf,
    /// Absolute paths in the workspace that stay read-only; some may not exist yet.
    pub protected: Vec<PathBuf>,
    /// Symbolic links in the workspace that must not change. Nothing can prevent that, so they are compared after each
    /// command.
    pub protected_links: Vec<PathBuf>,
    /// Exceptions: what may change inside protected paths.
    pub allowed_changes: AllowedChanges,
    /// What commands may reach.
    pub network: NetworkAccess,
    /// Folders that commands may read in addition to the system's, absolute.
    pub readable: Vec<PathBuf>,
    /// Folders that commands may change in addition to the workspace, absolute.
    pub writable: Vec<PathBuf>,
    /// Files that commands can neither read nor change, wherever they are. Only bubblewrap can hide one in a writable folder.
    pub hidden_files: Vec<PathBuf>,
    /// The home folder of the user who started the run. Commands get an empty one instead.
    pub home: Option<PathBuf>,
    /// The absolute entries of `PATH`.
    pub path_dirs: Vec<PathBuf>,
    /// What commands see in place of git's object folders. Sandboxes of one run share it.
    pub object_stages: ObjectStages,
    /// Files that commands can't make writable. Sandboxes of one run share it.
    pub guarded_files: GuardedFiles,
}

impl SandboxPolicy {
    /// The object folders in what commands may change, canonical.
    pub(super) fn object_folders(&self) -> Vec<PathBuf> {
        let roots: Vec<PathBuf> = self.writable_roots().filter_map(|root| root.canonicalize().ok()).collect();
        let folders =
            self.allowed_changes.git_folders.iter().filter_map(|folder| folder.join("objects").canonicalize().ok());
        let mut all: Vec<PathBuf> =
            folders.filter(|path| path.is_dir() && roots.iter().any(|root| path.starts_with(root))).collect();
        all.sort();
        all.dedup();
        all
    }

    /// All folders that commands may change: the workspace first.
    pub(super) fn writable_roots(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.workspace).chain(&self.writable)
    }
}

impl From<&Network> for NetworkAccess {
    fn from(network: &Network) -> Self {
        match network {
            Network::None => Self::None,
            Network::Allow(_) => Self::Hosts,
            Network::Open => Self::Open,
        }
    }
}

/// How commands are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// No agent has a tool that starts commands.
    Unused,
    /// No confinement.
    Off,
    /// Landlock rules, a seccomp filter and no capabilities, applied to the process itself.
    Landlock,
    /// A profile that the kernel of macOS enforces, applied by `sandbox-exec`.
    Seatbelt,
    /// Separate namespaces, made by bubblewrap.
    Bubblewrap,
}

impl Tier {
    /// Whether commands can be kept to a list of hosts, or at least be told of it without a sandbox, that is, whether there can be [`NetworkAccess::Hosts`].
    ///
    /// # Errors
    /// Why they can't, as a sentence without a full stop that follows "`network: { allow: [...] }` can't be kept to here: ".
    pub fn supports_hosts(self) -> Result<(), &'static str> {
        match self {
            Self::Unused | Self::Bubblewrap | Self::Landlock => Ok(()),
            Self::Seatbelt => Err("on macOS, commands can't be kept to a list of hosts yet"),
            // Programs are told of a proxy, and a warning says that nothing enforces it.
            Self::Off if cfg!(target_os = "linux") => Ok(()),
            Self::Off => Err("on macOS, commands can't be kept to a list of hosts yet"),
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unused => "unused",
            Self::Off => "off",
            Self::Landlock => "landlock",
            Self::Seatbelt => "seatbelt",
            Self::Bubblewrap => "bubblewrap",
        })
    }
}

/// The sandbox that the user asked for on the command line. The comments are the help about the option.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SandboxMode {
    /// With bubblewrap, or with landlock if bubblewrap doesn't work; on macOS, with seatbelt
    #[default]
    Auto,
    /// With bubblewrap only; on macOS, with seatbelt
    Required,
    /// Not at all: commands can do whatever you can do
    Off,
}

impl SandboxMode {
    /// The name on the command line and in the journal.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Required => "required",
            Self::Off => "off",
        }
    }
}

/// No acceptable tier works on this machine.
#[derive(Debug, thiserror::Error)]
#[error("commands can't be confined here: {}", reasons.join("; "))]
pub struct SandboxUnavailable {
    /// For each tier that was tried, its name and what went wrong.
    pub reasons: Vec<String>,
    /// What would make the best tier work, as the beginning of a sentence, if known.
    pub remedy: Option<&'static str>,
}

/// Decides whether a folder is a run's record that legwork made there, rather than one that a command planted, and whether this
/// process still owns the record of its own run. The last part decides whether the run of a record has ended as its seal says.
#[derive(Clone)]
pub struct RecordVerifier(pub Arc<VerifyRecord>, pub Arc<OwnsRecord>, pub Arc<VerifyRecord>);

/// False after another process has taken the record over.
pub type OwnsRecord = dyn Fn() -> bool + Send + Sync;

/// Gets the open folder and its path.
pub type VerifyRecord = dyn Fn(&OwnedFd, &Path) -> bool + Send + Sync;

impl fmt::Debug for RecordVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordVerifier")
    }
}

/// A confined command that is ready to be started.
#[derive(Debug)]
pub struct PreparedCommand {
    /// The caller adds arguments, standard streams and its own pre-exec steps. It must not set `arg0` or `env`: the program
    /// may be a launcher that starts the actual command.
    pub command: Command,
    /// Whether the started process is a [supervisor](super::supervisor) of the actual command.
    pub is_supervised: bool,
    /// Where bubblewrap reports that the command has started and ended. If it never reports an end, the command was never
    /// started.
    pub status_pipe: Option<PipeReader>,
    /// What bubblewrap hides, without which it can't start the command.
    pub hidden: HiddenPaths,
    /// What must serve the command as soon as the process has been started.
    #[cfg(target_os = "linux")]
    pub hosts: Option<super::host_access::HostAccess>,
}

impl PreparedCommand {
    /// A command that starts without a launcher.
    pub(super) fn direct(command: Command) -> Self {
        Self {
            command,
            is_supervised: false,
            status_pipe: None,
            hidden: HiddenPaths::default(),
            #[cfg(target_os = "linux")]
            hosts: None,
        }
    }
}

/// How often a command is started again because what was to be hidden has changed. Each time the change must fall within the
/// milliseconds that bubblewrap takes.
pub const MAX_RESTARTS: usize = 20;

/// Files and folders of other programs that a sandbox hides, as they were when it was set up.
#[derive(Debug, Default)]
pub struct HiddenPaths(Vec<(PathBuf, Option<FoundPath>)>);

/// What was found at a path: the device, the inode, and if it isn't a folder, when it was last changed. Inodes are used again.
type FoundPath = (u64, u64, Option<(i64, i64)>);

impl HiddenPaths {
    /// Looks at paths.
    #[cfg(target_os = "linux")]
    pub(super) fn of(paths: impl Iterator<Item = PathBuf>) -> Self {
        Self(paths.map(|path| (path.clone(), find(&path))).collect())
    }

    /// Whether another program has removed or replaced one of them since. A sandbox without that one can be set up.
    pub fn have_changed(&self) -> bool {
        // What was gone at once was there when it was listed.
        self.0.iter().any(|(path, found)| found.is_none() || find(path) != *found)
    }
}

fn find(path: &Path) -> Option<FoundPath> {
    let found = path.symlink_metadata().ok()?;
    let changed = (!found.is_dir()).then(|| (found.ctime(), found.ctime_nsec()));
    Some((found.dev(), found.ino(), changed))
}
