//! How a command is confined: what it may read, change and reach. Two tiers, the better one where it works.

pub mod protected;

mod git;

use std::fmt;
use std::path::PathBuf;

use crate::job::Network;

/// What the commands of a run may reach; the same for all of them.
#[derive(Debug, Clone)]
pub struct Boundary {
    /// The workspace, canonical: what commands may change, protected paths aside.
    pub workspace: PathBuf,
    /// Absolute paths beneath the workspace that stay read-only; some don't exist yet.
    pub protected: Vec<PathBuf>,
    /// Whether commands reach the network.
    pub network: Network,
    /// Folders beside the system's that commands may read, absolute.
    pub read: Vec<PathBuf>,
    /// Folders beside the workspace that commands may change, absolute.
    pub write: Vec<PathBuf>,
    /// The home folder of whoever started the run; commands get an empty one in its place.
    pub home: Option<PathBuf>,
    /// The absolute entries of `PATH`.
    pub path: Vec<PathBuf>,
}

/// How commands are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
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
            Self::Off => "off",
            Self::Landlock => "landlock",
            Self::Bubblewrap => "bubblewrap",
        })
    }
}

/// What the person at the command line asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The best tier that works, but one of them.
    #[default]
    Auto,
    /// Bubblewrap.
    Required,
    /// None.
    Off,
}
