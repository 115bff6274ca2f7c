//! Private folders for the commands of a run, or its steps: a home folder and one for temporary files. They are kept from command to command
//! and removed when the run ends, even if it is killed.

use std::fs::{self, File};
use std::io::{self, PipeWriter};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use rustix::fs::{FlockOperation, OFlags, flock};

use super::policy::SandboxPolicy;
use super::programs::Folders;
use crate::sync::IgnorePoison;
use crate::temporary_folder::leftover;
use crate::workspace::remove_folder::remove_folder;

/// The prefix of a folder in use.
const PREFIX: &str = "legwork-run-";
/// The prefix of a folder that isn't locked yet.
const UNLOCKED_PREFIX: &str = "legwork-new-";
/// The file that a run keeps locked.
const LOCK: &str = "lock";
/// One name server, which always answers at once. Without `search`, a name is looked up as it is.
#[cfg(target_os = "linux")]
const RESOLV_CONF: &str = "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n";
/// How many entries of the parent folder are searched for folders of earlier runs.
const MAX_ENTRIES: usize = 10_000;

/// Waits for the end of its standard input, which comes with the end of this process, and removes the folder. It tries several
/// times because commands may still be writing. It runs in the background so that it isn't a child of this process, whose
/// children are searched for orphans.
const CLEANUP_SCRIPT: &str = "exec 3<&0; { trap '' HUP INT TERM; read -r _; for _ in 1 2 3 4 5; do [ -e \"$1\" ] || exit 0; \
                     chmod -R u+rwX \"$1\" 2>/dev/null; rm -rf \"$1\" 2>/dev/null; sleep 1; done; } <&3 3<&- &";

/// The folder of one run. It is removed when this is dropped; if this process is killed, by a small process that outlives it;
/// and if that one is killed, by the next run.
#[derive(Debug)]
pub(crate) struct ScratchDirs {
    folder: PathBuf,
    _lock: File,
    cleanup: Option<CleanupProcess>,
}

#[derive(Debug)]
struct CleanupProcess {
    /// The shell that starts the process in the background, until it is reaped.
    shell: Mutex<Option<Child>>,
    /// The pipe whose end the process waits for.
    _pipe: PipeWriter,
}

impl ScratchDirs {
    /// Creates the folder in a folder for temporary files, preferably outside of what commands may change.
    pub(super) fn create(policy: &SandboxPolicy) -> io::Result<Self> {
        let mut last_error = io::Error::from(io::ErrorKind::NotFound);
        let writable: Vec<PathBuf> = policy.writable_roots().cloned().collect();
        for parent in Folders::new(&writable).temporary_folders() {
            remove_leftovers(&parent);
            match Self::create_in(&parent) {
                Ok(scratch) => return Ok(scratch),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    /// Creates the folder in another one.
    pub(crate) fn create_in(parent: &Path) -> io::Result<Self> {
        let new = tempfile::Builder::new().prefix(UNLOCKED_PREFIX).tempdir_in(parent)?;
        let lock = open_lock(new.path(), true)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        for name in ["home", "tmp"] {
            fs::DirBuilder::new().mode(0o700).create(new.path().join(name))?;
        }
        let unique =
            new.path().file_name().and_then(|name| name.to_str()?.strip_prefix(UNLOCKED_PREFIX)).unwrap_or_default();
        let folder = parent.join(format!("{PREFIX}{unique}"));
        // `keep`: from here on, the cleanup process removes it.
        fs::rename(new.keep(), &folder)?;
        let cleanup = spawn_cleanup(&folder).ok();
        Ok(Self { folder, _lock: lock, cleanup })
    }

    /// Waits until the cleanup process has started and is no child of this process any more. Must be called before a command is
    /// started.
    pub(crate) fn settle(&self) {
        let Some(cleanup) = &self.cleanup else { return };
        if let Some(mut shell) = cleanup.shell.lock().ignore_poison().take() {
            let _ = shell.wait();
        }
    }

    /// The folder that replaces the home folder.
    pub(super) fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    /// The folder that replaces `/tmp`.
    pub(crate) fn tmp(&self) -> PathBuf {
        self.folder.join("tmp")
    }

    /// What replaces the file that says where names are looked up, in a sandbox whose connections are served.
    #[cfg(target_os = "linux")]
    pub(super) fn resolv_conf(&self) -> PathBuf {
        self.written("resolv.conf", RESOLV_CONF)
    }

    /// What replaces the file with known names, which are only those of the machine itself.
    #[cfg(target_os = "linux")]
    pub(super) fn hosts(&self) -> PathBuf {
        let system = rustix::system::uname();
        let name = system.nodename().to_string_lossy();
        self.written("hosts", &format!("127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {name}\n"))
    }

    /// A file that commands can't change. If it can't be written, bubblewrap reports that it is missing.
    #[cfg(target_os = "linux")]
    fn written(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        let _ = fs::write(&path, text);
        path
    }

    /// A folder that commands have no access to.
    #[cfg(target_os = "macos")]
    pub(super) fn closed(&self) -> PathBuf {
        self.folder.join("closed")
    }
}

impl Drop for ScratchDirs {
    fn drop(&mut self) {
        self.settle();
        remove_folder(&self.folder);
    }
}

fn open_lock(folder: &Path, create: bool) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create_new(create).mode(0o600);
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options.open(folder.join(LOCK))
}

fn spawn_cleanup(folder: &Path) -> io::Result<CleanupProcess> {
    let (reader, writer) = io::pipe()?;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", CLEANUP_SCRIPT, "legwork-cleanup"]).arg(folder).current_dir("/");
    shell.env_clear().env("PATH", "/usr/bin:/bin");
    // A process group of its own, so that a signal to ours doesn't reach it.
    shell.process_group(0).stdin(OwnedFd::from(reader)).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(CleanupProcess { shell: Mutex::new(Some(shell.spawn()?)), _pipe: writer })
}

/// Removes the folders of runs that were killed together with their cleanup processes, and the other temporary folders of killed
/// processes.
fn remove_leftovers(parent: &Path) {
    let user = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(parent).into_iter().flatten().take(MAX_ENTRIES).flatten();
    for entry in entries {
        if let Some(_lock) = leftover(&entry.path()) {
            remove_folder(&entry.path());
        }
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let is_own = entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == user);
        if !is_own {
            continue;
        }
        let unlocked = |lock: &File| flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        match open_lock(&entry.path(), false) {
            Ok(lock) if !unlocked(&lock) => {}
            Ok(_) => remove_folder(&entry.path()),
            // An earlier removal was interrupted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => remove_folder(&entry.path()),
            Err(_) => {}
        }
    }
}
