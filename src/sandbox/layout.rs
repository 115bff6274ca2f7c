//! The file system as commands see it: which path leads to what.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::private::Private;
use super::{Boundary, hidden, home};
use crate::job::Network;

/// How many things are made read-only one by one beside one that isn't. The look after each call finds changes of others.
const MOST_BESIDE: usize = 500;

/// What a path leads to, with all below it that has no entry of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mount {
    /// What is there anyway.
    Same { writable: bool },
    /// Something of the run's own, writable.
    Private(PathBuf),
    /// An empty folder; nothing can be put into one that is sealed.
    Empty { sealed: bool },
    /// A file that can't be opened.
    Denied,
    /// The processes of the sandbox, and the machine's settings, all read-only: root owns those also without any
    /// capability, and could set by `/proc/sys/kernel/core_pattern` what the kernel itself starts as root.
    Processes,
    /// A few harmless devices.
    Devices,
}

/// What of a layout doesn't change in a run.
#[derive(Debug)]
pub(super) struct Fixed {
    folders: Vec<PathBuf>,
    denied: Vec<PathBuf>,
    resolver: Option<PathBuf>,
    /// The home folder, without links; `None` where there is none that something can be put in the place of.
    home: Option<PathBuf>,
}

impl Fixed {
    /// Looks around.
    pub(super) fn find(boundary: &Boundary) -> Self {
        let home = boundary.home.as_ref().and_then(|home| home.canonicalize().ok());
        let resolver = if boundary.network == Network::Open { hidden::resolver() } else { None };
        Self {
            folders: hidden::folders().into_iter().collect(),
            denied: hidden::roots_own().into_iter().chain(hidden::sockets()).collect(),
            resolver,
            home: home.filter(|home| home.is_dir() && home.parent().is_some()),
        }
    }
}

/// Where everything is. Nearer to the root comes first, as mounts must.
#[derive(Debug)]
pub(super) struct Layout {
    mounts: BTreeMap<PathBuf, Mount>,
    workspace: PathBuf,
    /// Where commands find their home folder.
    pub(super) home: PathBuf,
}

impl Layout {
    /// Puts it together. With `fresh_processes` there is a `/proc` of the sandbox's own.
    pub(super) fn new(
        boundary: &Boundary,
        fixed: &Fixed,
        private: &Private,
        read_only: bool,
        fresh_processes: bool,
    ) -> Self {
        let mut layout = Self { mounts: BTreeMap::new(), workspace: boundary.workspace.clone(), home: private.home() };
        let same = |writable| Mount::Same { writable };
        layout.put("/", same(false));
        layout.put("/dev", Mount::Devices);
        if fresh_processes {
            layout.put("/proc", Mount::Processes);
        }
        for folder in &fixed.folders {
            layout.put(folder, Mount::Empty { sealed: true });
        }
        for folder in ["/tmp", "/var/tmp"] {
            if let Ok(folder) = Path::new(folder).canonicalize() {
                layout.put(folder, Mount::Private(private.tmp()));
            }
        }
        // The home folder of the run: in the place of the real one, else where it really lies.
        layout.put(fixed.home.clone().unwrap_or_else(|| private.home()), Mount::Private(private.home()));
        for path in &boundary.read {
            layout.put(path, same(false));
        }
        for path in &boundary.write {
            layout.put(path, same(!read_only));
        }
        layout.put(&boundary.workspace, same(!read_only));
        match (&fixed.home, &boundary.home) {
            (Some(home), Some(given)) if layout.mounts.get(home) == Some(&Mount::Private(private.home())) => {
                layout.home.clone_from(given);
            }
            // The workspace is the home folder, or it was opened.
            _ => layout.put(private.home(), Mount::Private(private.home())),
        }
        layout.put_toolchains(boundary, fixed);
        for path in fixed.resolver.iter().filter(|path| path.exists()) {
            if !layout.shows(path) {
                layout.put(path, same(false));
            }
        }
        for path in &fixed.denied {
            if let Ok(metadata) = path.symlink_metadata()
                && layout.shows(path)
                && !layout.mounts.contains_key(path)
            {
                layout.put(path, if metadata.is_dir() { Mount::Empty { sealed: false } } else { Mount::Denied });
            }
        }
        for path in &boundary.protected {
            layout.put_protected(path, boundary);
        }
        layout.pin();
        layout
    }

    fn put(&mut self, path: impl Into<PathBuf>, mount: Mount) {
        self.mounts.insert(path.into(), mount);
    }

    /// Makes a path read-only, but for what the job opens in it: then each other thing in it is read-only.
    fn put_protected(&mut self, path: &Path, boundary: &Boundary) {
        // Something put there in the meantime is for whoever looks after each call.
        let Ok(metadata) = path.symlink_metadata() else { return };
        if metadata.is_symlink() || self.nearest(path) != Some(&Mount::Same { writable: true }) {
            return;
        }
        if !boundary.allowed.opens_below(path) {
            self.put(path, Mount::Same { writable: false });
            return;
        }
        // A folder on the way to what is open.
        let is_open = |path: &Path| boundary.allowed.open.iter().any(|open| path.starts_with(open));
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten().take(MOST_BESIDE) {
            if !is_open(&entry.path()) {
                self.put_protected(&entry.path(), boundary);
            }
        }
    }

    /// Toolchains and programs stay where they are, read-only.
    fn put_toolchains(&mut self, boundary: &Boundary, fixed: &Fixed) {
        for (path, without) in fixed.home.iter().flat_map(|home| home::toolchains(home)) {
            // An entry of its own is somebody's wish.
            if !self.mounts.contains_key(&path) {
                self.put(path, Mount::Same { writable: false });
            }
            // What a link leads to is hidden, or shown, where it is.
            for secret in without.into_iter().filter(|path| !path.is_symlink()) {
                let mount = if secret.is_dir() { Mount::Empty { sealed: true } } else { Mount::Denied };
                self.put(secret, mount);
            }
        }
        for entry in &boundary.path {
            if entry.is_dir()
                && home::is_harmless_entry(entry, fixed.home.as_deref())
                && home::is_harmless_entry(entry, boundary.home.as_deref())
                && !fixed.folders.iter().any(|folder| folder.starts_with(entry))
                && !self.shows(entry)
            {
                self.put(entry, Mount::Same { writable: false });
            }
        }
    }

    fn nearest(&self, path: &Path) -> Option<&Mount> {
        path.ancestors().find_map(|above| self.mounts.get(above))
    }

    /// Whether what really lies at a path can be seen.
    fn shows(&self, path: &Path) -> bool {
        matches!(self.nearest(path), Some(Mount::Same { .. }))
    }

    /// Makes every folder between a writable one and an entry below it a mount of its own: it can't be renamed then, which
    /// would put the entry elsewhere and leave its place to whoever comes.
    fn pin(&mut self) {
        let mut pins = Vec::new();
        for path in self.mounts.keys() {
            let between = path.ancestors().skip(1).take_while(|above| !self.mounts.contains_key(*above));
            if path.parent().and_then(|above| self.nearest(above)) == Some(&Mount::Same { writable: true }) {
                pins.extend(between.map(Path::to_owned));
            }
        }
        for path in pins {
            self.put(path, Mount::Same { writable: true });
        }
    }

    /// The same as bubblewrap is told it.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut say =
            |words: &[&dyn AsRef<std::ffi::OsStr>]| arguments.extend(words.iter().map(|word| word.as_ref().to_owned()));
        for (path, mount) in &self.mounts {
            match mount {
                // Without the workspace a command would work in a folder that is gone with it.
                Mount::Same { writable: true } if *path == self.workspace => say(&[&"--bind", path, path]),
                Mount::Same { writable: false } if *path == self.workspace => say(&[&"--ro-bind", path, path]),
                // What has vanished since is none of the command's business.
                Mount::Same { writable: true } => say(&[&"--bind-try", path, path]),
                Mount::Same { writable: false } => say(&[&"--ro-bind-try", path, path]),
                Mount::Private(source) => say(&[&"--bind", source, path]),
                Mount::Empty { .. } => say(&[&"--tmpfs", path]),
                Mount::Denied => say(&[&"--ro-bind", &"/dev/null", path]),
                Mount::Processes => say(&[&"--proc", path]),
                Mount::Devices => say(&[&"--dev", path]),
            }
        }
        // Only now, when everything below has its place.
        let sealed = |mount: &Mount| matches!(mount, Mount::Empty { sealed: true } | Mount::Processes);
        for (path, _) in self.mounts.iter().filter(|(_, mount)| sealed(mount)) {
            say(&[&"--remount-ro", path]);
        }
        arguments
    }
}
