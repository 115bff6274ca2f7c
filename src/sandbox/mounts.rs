//! The mounts of a bubblewrap sandbox: what commands see at each path.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::object_stage::{EXISTING, ObjectStage};
use super::policy::{HiddenPaths, SandboxPolicy};
use super::scratch_dirs::ScratchDirs;
use super::{hidden_paths, home};
use crate::egress::NetworkAccess;
use crate::isolation::WORKSPACES_FOLDER;

/// How many files next to a writable one are made read-only one by one. The check after each command finds changes of the
/// others.
const MAX_READ_ONLY_SIBLINGS: usize = 500;

/// What is at a path, and at all paths below it that have no mount of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mount {
    /// The same as outside of the sandbox.
    Host { writable: bool },
    /// A scratch folder of the run, writable.
    Scratch(PathBuf),
    /// A folder or file that is at another path outside of the sandbox, read-only.
    ReadOnly(PathBuf),
    /// An empty folder, read-only if it is sealed.
    Tmpfs { sealed: bool },
    /// A file that can't be opened.
    Denied,
    /// The processes of the sandbox and the kernel's settings, all read-only: root could otherwise change settings even
    /// without capabilities, such as `/proc/sys/kernel/core_pattern`, which names a program that the kernel starts as root.
    Proc,
    /// A few harmless devices.
    Dev,
}

/// The parts of the layout that are the same for all commands of a run.
#[derive(Debug)]
pub(super) struct HostPaths {
    folders: Vec<PathBuf>,
    /// Files and folders that only root may read.
    root_only: Vec<PathBuf>,
    resolv_conf: Option<PathBuf>,
    /// Files of the system's resolver, and what commands see in place of them.
    resolver: Vec<(PathBuf, PathBuf)>,
    /// The home folder, canonical; `None` if it can't be replaced.
    home: Option<PathBuf>,
}

impl HostPaths {
    /// Finds them on this machine.
    pub(super) fn detect(policy: &SandboxPolicy, scratch: &ScratchDirs) -> Self {
        let home = policy.home.as_ref().and_then(|home| home.canonicalize().ok());
        let resolv_conf = Path::new("/etc/resolv.conf").canonicalize().ok();
        let resolver = match policy.network {
            NetworkAccess::Hosts => {
                let hosts = Path::new("/etc/hosts").canonicalize().ok();
                let files = [(resolv_conf.clone(), scratch.resolv_conf()), (hosts, scratch.hosts())];
                files.into_iter().filter_map(|(path, own)| Some((path?, own))).collect()
            }
            _ => Vec::new(),
        };
        Self {
            folders: hidden_paths::hidden_dirs().into_iter().collect(),
            root_only: hidden_paths::root_only_paths().into_iter().collect(),
            resolver,
            resolv_conf: resolv_conf.filter(|_| policy.network == NetworkAccess::Open),
            home: home.filter(|home| home.is_dir() && home.parent().is_some()),
        }
    }
}

/// All mounts. Parents come before their children, as mounting requires.
#[derive(Debug)]
pub(super) struct MountLayout {
    mounts: BTreeMap<PathBuf, Mount>,
    workspace: PathBuf,
    /// The path of the home folder that commands get.
    pub(super) home: PathBuf,
}

impl MountLayout {
    /// Builds the layout. With `new_proc`, the sandbox gets its own `/proc`.
    pub(super) fn new(
        policy: &SandboxPolicy,
        host_paths: &HostPaths,
        scratch: &ScratchDirs,
        read_only: bool,
        new_proc: bool,
    ) -> Self {
        let mut layout = Self { mounts: BTreeMap::new(), workspace: policy.workspace.clone(), home: scratch.home() };
        layout.put("/", Mount::Host { writable: false });
        layout.put("/dev", Mount::Dev);
        if new_proc {
            layout.put("/proc", Mount::Proc);
        }
        for folder in &host_paths.folders {
            layout.put(folder, Mount::Tmpfs { sealed: true });
        }
        for folder in ["/tmp", "/var/tmp"] {
            if let Ok(folder) = Path::new(folder).canonicalize() {
                layout.put(folder, Mount::Scratch(scratch.tmp()));
            }
        }
        // The run's home folder replaces the real one, or is mounted at its own path if there is none.
        layout.put(host_paths.home.clone().unwrap_or_else(|| scratch.home()), Mount::Scratch(scratch.home()));
        for path in &policy.readable {
            layout.put(path, Mount::Host { writable: false });
        }
        for path in &policy.writable {
            layout.put(path, Mount::Host { writable: !read_only });
        }
        // The workspaces of other rows and subagents, if this is one.
        let workspaces = policy.workspace.ancestors().find(|folder| folder.ends_with(WORKSPACES_FOLDER));
        if let Some(workspaces) = workspaces.filter(|folder| layout.shows_host(folder)) {
            layout.put(workspaces, Mount::Host { writable: false });
        }
        layout.put(&policy.workspace, Mount::Host { writable: !read_only });
        match (&host_paths.home, &policy.home) {
            (Some(home), Some(as_given)) if layout.mounts.get(home) == Some(&Mount::Scratch(scratch.home())) => {
                layout.home.clone_from(as_given);
            }
            // The workspace is the home folder, or the home folder was opened on the command line.
            _ => layout.put(scratch.home(), Mount::Scratch(scratch.home())),
        }
        layout.add_toolchains(policy, host_paths);
        if let Some(path) = host_paths.resolv_conf.as_ref().filter(|path| path.exists() && !layout.shows_host(path)) {
            layout.put(path, Mount::Host { writable: false });
        }
        for (path, own) in &host_paths.resolver {
            layout.put(path, Mount::ReadOnly(own.clone()));
        }
        // Programs start and end while a run lasts.
        let sockets = hidden_paths::listening_sockets(|path| layout.shows_host(path));
        for path in host_paths.root_only.iter().chain(&sockets) {
            if let Ok(metadata) = path.symlink_metadata()
                && layout.shows_host(path)
                && !layout.mounts.contains_key(path)
            {
                layout.put(path, if metadata.is_dir() { Mount::Tmpfs { sealed: false } } else { Mount::Denied });
            }
        }
        for file in policy.hidden_files.iter().filter_map(|file| file.canonicalize().ok()) {
            if layout.shows_host(&file) {
                layout.put(file, Mount::Denied);
            }
        }
        for path in &policy.protected {
            layout.protect(path, policy);
        }
        for stage in policy.object_stages.all() {
            layout.add_stage(&stage);
        }
        layout.pin_parents();
        layout
    }

    fn put(&mut self, path: impl Into<PathBuf>, mount: Mount) {
        self.mounts.insert(path.into(), mount);
    }

    /// Makes a path read-only. If the job allows changes of something in it, everything else in it is made read-only.
    fn protect(&mut self, path: &Path, policy: &SandboxPolicy) {
        // A file that appears here later is left to the check after each command.
        let Ok(metadata) = path.symlink_metadata() else { return };
        if metadata.is_symlink() || self.mount_at(path) != Some(&Mount::Host { writable: true }) {
            return;
        }
        if !policy.allowed_changes.allows_below(path) {
            self.put(path, Mount::Host { writable: false });
            return;
        }
        let may_change =
            |path: &Path| policy.allowed_changes.unprotected.iter().any(|allowed| path.starts_with(allowed));
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten().take(MAX_READ_ONLY_SIBLINGS) {
            if !may_change(&entry.path()) {
                self.protect(&entry.path(), policy);
            }
        }
    }

    /// Shows a stage in place of an object folder, and that folder in the stage.
    fn add_stage(&mut self, stage: &ObjectStage) {
        if self.mount_at(&stage.objects) != Some(&Mount::Host { writable: true }) {
            return;
        }
        self.put(&stage.objects, Mount::Scratch(stage.folder.clone()));
        let existing = stage.objects.join(EXISTING);
        self.put(&existing, Mount::ReadOnly(stage.objects.clone()));
        let alternates = Path::new("info/alternates");
        if stage.objects.join(alternates).exists() {
            // Relative paths in it would lead elsewhere. The stage's own has all of them.
            self.put(existing.join(alternates), Mount::Denied);
        }
    }

    /// Shows toolchains and the folders of `PATH` at their own paths, read-only.
    fn add_toolchains(&mut self, policy: &SandboxPolicy, host_paths: &HostPaths) {
        for (path, hidden) in host_paths.home.iter().flat_map(|home| home::toolchains(home)) {
            // An existing mount was asked for by the user.
            if !self.mounts.contains_key(&path) {
                self.put(path, Mount::Host { writable: false });
            }
            // The target of a link is hidden or shown at its own path.
            for secret in hidden.into_iter().filter(|path| !path.is_symlink()) {
                let mount = if secret.is_dir() { Mount::Tmpfs { sealed: true } } else { Mount::Denied };
                self.put(secret, mount);
            }
        }
        for entry in &policy.path_dirs {
            if entry.is_dir()
                && home::is_safe_path_dir(entry, host_paths.home.as_deref())
                && home::is_safe_path_dir(entry, policy.home.as_deref())
                && !host_paths.folders.iter().any(|folder| folder.starts_with(entry))
                && !self.shows_host(entry)
            {
                self.put(entry, Mount::Host { writable: false });
            }
        }
    }

    fn mount_at(&self, path: &Path) -> Option<&Mount> {
        path.ancestors().find_map(|above| self.mounts.get(above))
    }

    /// Whether commands see the real file at a path.
    fn shows_host(&self, path: &Path) -> bool {
        matches!(self.mount_at(path), Some(Mount::Host { .. }))
    }

    /// Makes every folder between a writable folder and a mount below it a mount of its own, so that commands can't rename it:
    /// that would move the mount away and leave its path to them.
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

    /// What is hidden although it is there, as mounting requires.
    pub(super) fn hidden_paths(&self) -> HiddenPaths {
        let is_hidden = |mount: &Mount| matches!(mount, Mount::Denied | Mount::Tmpfs { .. });
        HiddenPaths::of(self.mounts.iter().filter(|(_, mount)| is_hidden(mount)).map(|(path, _)| path.clone()))
    }

    /// The layout as arguments of bubblewrap.
    pub(super) fn bwrap_arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut push =
            |words: &[&dyn AsRef<OsStr>]| arguments.extend(words.iter().map(|word| word.as_ref().to_owned()));
        for (path, mount) in &self.mounts {
            match mount {
                // A command must not run without the workspace.
                Mount::Host { writable: true } if *path == self.workspace => push(&[&"--bind", path, path]),
                Mount::Host { writable: false } if *path == self.workspace => push(&[&"--ro-bind", path, path]),
                // Other files may have been removed since.
                Mount::Host { writable: true } => push(&[&"--bind-try", path, path]),
                Mount::Host { writable: false } => push(&[&"--ro-bind-try", path, path]),
                Mount::Scratch(source) => push(&[&"--bind", source, path]),
                Mount::ReadOnly(source) => push(&[&"--ro-bind", source, path]),
                Mount::Tmpfs { .. } => push(&[&"--tmpfs", path]),
                Mount::Denied => push(&[&"--ro-bind", &"/dev/null", path]),
                Mount::Proc => push(&[&"--proc", path]),
                Mount::Dev => push(&[&"--dev", path]),
            }
        }
        // Last, because mount points have to be created in them first.
        let is_sealed = |mount: &Mount| matches!(mount, Mount::Tmpfs { sealed: true } | Mount::Proc);
        for (path, _) in self.mounts.iter().filter(|(_, mount)| is_sealed(mount)) {
            push(&[&"--remount-ro", path]);
        }
        arguments
    }
}
