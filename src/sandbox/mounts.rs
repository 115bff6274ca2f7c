//! The file system as commands see it: which path leads to what.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::scratch_dirs::ScratchDirs;
use super::{SandboxPolicy, hidden_paths, home};
use crate::job::Network;

/// How many things are made read-only one by one beside one that isn't. The look after each call finds changes of others.
const MOST_BESIDE: usize = 500;

/// What a path leads to, with all below it that has no entry of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mount {
    /// What is there anyway.
    Host { writable: bool },
    /// Something of the run's own, writable.
    Scratch(PathBuf),
    /// An empty folder; nothing can be put into one that is sealed.
    Tmpfs { sealed: bool },
    /// A file that can't be opened.
    Denied,
    /// The processes of the sandbox, and the machine's settings, all read-only: root owns those also without any
    /// capability, and could set by `/proc/sys/kernel/core_pattern` what the kernel itself starts as root.
    Proc,
    /// A few harmless devices.
    Dev,
}

/// What of a layout doesn't change in a run.
#[derive(Debug)]
pub(super) struct HostPaths {
    folders: Vec<PathBuf>,
    denied: Vec<PathBuf>,
    resolv_conf: Option<PathBuf>,
    /// The home folder, without links; `None` where there is none that something can be put in the place of.
    home: Option<PathBuf>,
}

impl HostPaths {
    /// Looks around.
    pub(super) fn detect(boundary: &SandboxPolicy) -> Self {
        let home = boundary.home.as_ref().and_then(|home| home.canonicalize().ok());
        let resolver = if boundary.network == Network::Open { hidden_paths::resolv_conf() } else { None };
        Self {
            folders: hidden_paths::hidden_dirs().into_iter().collect(),
            denied: hidden_paths::root_only_paths().into_iter().chain(hidden_paths::listening_sockets()).collect(),
            resolv_conf: resolver,
            home: home.filter(|home| home.is_dir() && home.parent().is_some()),
        }
    }
}

/// Where everything is. Nearer to the root comes first, as mounts must.
#[derive(Debug)]
pub(super) struct MountLayout {
    mounts: BTreeMap<PathBuf, Mount>,
    workspace: PathBuf,
    /// Where commands find their home folder.
    pub(super) home: PathBuf,
}

impl MountLayout {
    /// Puts it together. With `fresh_processes` there is a `/proc` of the sandbox's own.
    pub(super) fn new(
        boundary: &SandboxPolicy,
        fixed: &HostPaths,
        private: &ScratchDirs,
        read_only: bool,
        fresh_processes: bool,
    ) -> Self {
        let mut layout = Self { mounts: BTreeMap::new(), workspace: boundary.workspace.clone(), home: private.home() };
        let same = |writable| Mount::Host { writable };
        layout.put("/", same(false));
        layout.put("/dev", Mount::Dev);
        if fresh_processes {
            layout.put("/proc", Mount::Proc);
        }
        for folder in &fixed.folders {
            layout.put(folder, Mount::Tmpfs { sealed: true });
        }
        for folder in ["/tmp", "/var/tmp"] {
            if let Ok(folder) = Path::new(folder).canonicalize() {
                layout.put(folder, Mount::Scratch(private.tmp()));
            }
        }
        // The home folder of the run: in the place of the real one, else where it really lies.
        layout.put(fixed.home.clone().unwrap_or_else(|| private.home()), Mount::Scratch(private.home()));
        for path in &boundary.readable {
            layout.put(path, same(false));
        }
        for path in &boundary.writable {
            layout.put(path, same(!read_only));
        }
        layout.put(&boundary.workspace, same(!read_only));
        match (&fixed.home, &boundary.home) {
            (Some(home), Some(given)) if layout.mounts.get(home) == Some(&Mount::Scratch(private.home())) => {
                layout.home.clone_from(given);
            }
            // The workspace is the home folder, or it was opened.
            _ => layout.put(private.home(), Mount::Scratch(private.home())),
        }
        layout.add_toolchains(boundary, fixed);
        for path in fixed.resolv_conf.iter().filter(|path| path.exists()) {
            if !layout.shows_host(path) {
                layout.put(path, same(false));
            }
        }
        for path in &fixed.denied {
            if let Ok(metadata) = path.symlink_metadata()
                && layout.shows_host(path)
                && !layout.mounts.contains_key(path)
            {
                layout.put(path, if metadata.is_dir() { Mount::Tmpfs { sealed: false } } else { Mount::Denied });
            }
        }
        for path in &boundary.protected {
            layout.protect(path, boundary);
        }
        layout.pin_parents();
        layout
    }

    fn put(&mut self, path: impl Into<PathBuf>, mount: Mount) {
        self.mounts.insert(path.into(), mount);
    }

    /// Makes a path read-only, but for what the job opens in it: then each other thing in it is read-only.
    fn protect(&mut self, path: &Path, boundary: &SandboxPolicy) {
        // Something put there in the meantime is for whoever looks after each call.
        let Ok(metadata) = path.symlink_metadata() else { return };
        if metadata.is_symlink() || self.mount_at(path) != Some(&Mount::Host { writable: true }) {
            return;
        }
        if !boundary.allowed_changes.allows_below(path) {
            self.put(path, Mount::Host { writable: false });
            return;
        }
        // A folder on the way to what is open.
        let is_open = |path: &Path| boundary.allowed_changes.unprotected.iter().any(|open| path.starts_with(open));
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten().take(MOST_BESIDE) {
            if !is_open(&entry.path()) {
                self.protect(&entry.path(), boundary);
            }
        }
    }

    /// Toolchains and programs stay where they are, read-only.
    fn add_toolchains(&mut self, boundary: &SandboxPolicy, fixed: &HostPaths) {
        for (path, without) in fixed.home.iter().flat_map(|home| home::toolchains(home)) {
            // An entry of its own is somebody's wish.
            if !self.mounts.contains_key(&path) {
                self.put(path, Mount::Host { writable: false });
            }
            // What a link leads to is hidden, or shown, where it is.
            for secret in without.into_iter().filter(|path| !path.is_symlink()) {
                let mount = if secret.is_dir() { Mount::Tmpfs { sealed: true } } else { Mount::Denied };
                self.put(secret, mount);
            }
        }
        for entry in &boundary.path_dirs {
            if entry.is_dir()
                && home::is_safe_path_dir(entry, fixed.home.as_deref())
                && home::is_safe_path_dir(entry, boundary.home.as_deref())
                && !fixed.folders.iter().any(|folder| folder.starts_with(entry))
                && !self.shows_host(entry)
            {
                self.put(entry, Mount::Host { writable: false });
            }
        }
    }

    fn mount_at(&self, path: &Path) -> Option<&Mount> {
        path.ancestors().find_map(|above| self.mounts.get(above))
    }

    /// Whether what really lies at a path can be seen.
    fn shows_host(&self, path: &Path) -> bool {
        matches!(self.mount_at(path), Some(Mount::Host { .. }))
    }

    /// Makes every folder between a writable one and an entry below it a mount of its own: it can't be renamed then, which
    /// would put the entry elsewhere and leave its place to whoever comes.
    fn pin_parents(&mut self) {
        let mut pins = Vec::new();
        for path in self.mounts.keys() {
            let between = path.ancestors().skip(1).take_while(|above| !self.mounts.contains_key(*above));
            if path.parent().and_then(|above| self.mount_at(above)) == Some(&Mount::Host { writable: true }) {
                pins.extend(between.map(Path::to_owned));
            }
        }
        for path in pins {
            self.put(path, Mount::Host { writable: true });
        }
    }

    /// The same as bubblewrap is told it.
    pub(super) fn bwrap_arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut say =
            |words: &[&dyn AsRef<std::ffi::OsStr>]| arguments.extend(words.iter().map(|word| word.as_ref().to_owned()));
        for (path, mount) in &self.mounts {
            match mount {
                // Without the workspace a command would work in a folder that is gone with it.
                Mount::Host { writable: true } if *path == self.workspace => say(&[&"--bind", path, path]),
                Mount::Host { writable: false } if *path == self.workspace => say(&[&"--ro-bind", path, path]),
                // What has vanished since is none of the command's business.
                Mount::Host { writable: true } => say(&[&"--bind-try", path, path]),
                Mount::Host { writable: false } => say(&[&"--ro-bind-try", path, path]),
                Mount::Scratch(source) => say(&[&"--bind", source, path]),
                Mount::Tmpfs { .. } => say(&[&"--tmpfs", path]),
                Mount::Denied => say(&[&"--ro-bind", &"/dev/null", path]),
                Mount::Proc => say(&[&"--proc", path]),
                Mount::Dev => say(&[&"--dev", path]),
            }
        }
        // Only now, when everything below has its place.
        let sealed = |mount: &Mount| matches!(mount, Mount::Tmpfs { sealed: true } | Mount::Proc);
        for (path, _) in self.mounts.iter().filter(|(_, mount)| sealed(mount)) {
            say(&[&"--remount-ro", path]);
        }
        arguments
    }
}
