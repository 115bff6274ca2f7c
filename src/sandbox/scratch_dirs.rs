//! What commands of one run have to themselves: a home folder and one for temporary files. Both last from call to call
//! and are gone when the run ends, however it ends.

use std::fs::{self, File};
use std::io::{self, PipeWriter};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::SandboxPolicy;

/// How a folder is called that a run uses.
const PREFIX: &str = "legwork-run-";
/// The same before it is locked.
const UNLOCKED_PREFIX: &str = "legwork-new-";
/// Held for as long as the run lives.
const LOCK: &str = "lock";
/// How many entries of the folder above are looked at for what earlier runs left.
const LOOKED_AT: usize = 10_000;

/// Waits for the end of its standard input, which is our end, then removes the folder. What dies with us can still be
/// writing, hence several times. It is in the background, so that it isn't our child, among which orphans are looked for.
const CLEANUP_SCRIPT: &str = "exec 3<&0; { trap '' HUP INT TERM; read -r _; for _ in 1 2 3 4 5; do [ -e \"$1\" ] || exit 0; \
                     chmod -R u+rwX \"$1\" 2>/dev/null; rm -rf \"$1\" 2>/dev/null; sleep 1; done; } <&3 3<&- &";

/// The folder of one run; removed when it is dropped, or by a small process that outlives us where we are killed, or by
/// the next run where that one is killed as well.
#[derive(Debug)]
pub(super) struct ScratchDirs {
    folder: PathBuf,
    _lock: File,
    _sweeper: Option<PipeWriter>,
}

impl ScratchDirs {
    /// Makes it where temporary files go, outside of whatever commands may change.
    pub(super) fn create(boundary: &SandboxPolicy) -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for place in places(boundary) {
            sweep(&place);
            match Self::create_in(&place) {
                Ok(private) => return Ok(private),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn create_in(place: &Path) -> io::Result<Self> {
        let new = tempfile::Builder::new().prefix(UNLOCKED_PREFIX).tempdir_in(place)?;
        let lock = open_lock(new.path(), true)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        for name in ["home", "tmp"] {
            fs::DirBuilder::new().mode(0o700).create(new.path().join(name))?;
        }
        let unique =
            new.path().file_name().and_then(|name| name.to_str()?.strip_prefix(UNLOCKED_PREFIX)).unwrap_or_default();
        let folder = place.join(format!("{PREFIX}{unique}"));
        // From here on it is removed by its own name.
        fs::rename(new.keep(), &folder)?;
        let sweeper = spawn_cleanup(&folder).ok();
        Ok(Self { folder, _lock: lock, _sweeper: sweeper })
    }

    /// What takes the place of the home folder.
    pub(super) fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    /// What takes the place of `/tmp`.
    pub(super) fn tmp(&self) -> PathBuf {
        self.folder.join("tmp")
    }
}

impl Drop for ScratchDirs {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

/// Where it can lie, the best first.
fn places(boundary: &SandboxPolicy) -> Vec<PathBuf> {
    let known = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
    let candidates = std::iter::once(std::env::temp_dir()).chain(known);
    let open: Vec<&PathBuf> = std::iter::once(&boundary.workspace).chain(&boundary.writable).collect();
    let canonical = candidates.filter_map(|place| place.canonicalize().ok()).filter(|place| place.is_dir());
    let (mut outside, inside): (Vec<_>, Vec<_>) =
        canonical.partition(|place| !open.iter().any(|open| place.starts_with(open)));
    // Where the workspace is `/`, there is nothing outside.
    outside.extend(inside);
    outside
}

fn open_lock(folder: &Path, create: bool) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create_new(create).mode(0o600);
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options.open(folder.join(LOCK))
}

fn spawn_cleanup(folder: &Path) -> io::Result<PipeWriter> {
    let (reader, writer) = io::pipe()?;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", CLEANUP_SCRIPT, "legwork-sweep"]).arg(folder).current_dir("/");
    shell.env_clear().env("PATH", "/usr/bin:/bin");
    // A group of its own, so that what ends ours by its group doesn't reach it.
    shell.process_group(0).stdin(OwnedFd::from(reader)).stdout(Stdio::null()).stderr(Stdio::null());
    shell.status()?;
    Ok(writer)
}

/// Removes what runs left that were killed together with their sweeper.
fn sweep(place: &Path) {
    let own = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(place).into_iter().flatten().take(LOOKED_AT).flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let is_own = entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == own);
        if !is_own {
            continue;
        }
        let unlocked = |lock: &File| flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        match open_lock(&entry.path(), false) {
            Ok(lock) if !unlocked(&lock) => {}
            Ok(_) => remove(&entry.path()),
            // A removal that began and didn't end.
            Err(error) if error.kind() == io::ErrorKind::NotFound => remove(&entry.path()),
            Err(_) => {}
        }
    }
}

/// Removes a folder with all that is in it, folders that were made unreadable and read-only ones included.
fn remove(folder: &Path) {
    if fs::remove_dir_all(folder).is_err() && folder.exists() {
        make_removable(folder);
        // What can't be removed now is tried again by the next run.
        let _ = fs::remove_dir_all(folder);
    }
}

fn make_removable(folder: &Path) {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o700));
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        open.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
    }
}
