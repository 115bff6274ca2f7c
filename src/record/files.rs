//! The files of a record: their names, and how they are created and opened. Only their owner can read them, and links aren't
//! followed. A record can come from anywhere, so sizes are limited as well.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, flock, fstat, linkat, openat, renameat_with, statat,
    unlinkat,
};
use rustix::io::Errno;

use crate::event::PARENT;
use crate::journal::journal_file;
use crate::text::bounded::read_expected;
use crate::workspace::new_file::{NewFile, create_named};
use crate::workspace::open_beneath;
use crate::workspace::open_root::OpenRoot;

/// The default folder of all runs.
pub const RUNS: &str = "runs";

/// The folder of a map with the records of its rows.
pub const ROWS: &str = "rows";

/// The newest run, as a name on the command line and as a link in a job's folder.
pub const LATEST: &str = "latest";

/// The state of the workspace at the start of the run. It exists as long as the run can be resumed.
pub const BASELINE_FILE: &str = "workspace.start";

/// What the run has changed in the workspace, if anything.
pub const PATCH_FILE: &str = "changes.patch";

/// The folder with the files that steps before the agent have left.
pub const FILES_FOLDER: &str = "files";

pub(super) const JOB_FILE: &str = "job.yaml";
pub(super) const PLAN_FILE: &str = "plan.json";
/// How the run ended. It is written last.
pub const RESULT_FILE: &str = "result.json";
/// The conversation of the parent, for people.
pub const TRANSCRIPT_FILE: &str = "transcript.md";
/// The whole run, for a browser.
pub const REPORT_FILE: &str = "report.html";

/// The prefix of the names of temporary files, which are renamed when they are complete. A killed process leaves them behind;
/// the next process with the folder's lock removes them.
pub(super) const TEMP_PREFIX: &str = ".tmp-legwork-";
/// The folders that temporary files can be in, relative to the record.
const TEMP_DIRS: [&str; 3] = ["", "subagents", "attachments"];

/// How files are opened to add to their end. Also for reading, to find out whether another program wrote to it.
const APPEND_FLAGS: OFlags = OFlags::RDWR
    .union(OFlags::APPEND)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Creates a file of a record for appending, and its folder. The record's own folder is never created again: if it was deleted,
/// half a record must not appear in its place.
pub(super) fn create_file(record: &OpenRoot, name: &str) -> io::Result<File> {
    let path = Path::new(name);
    let folder = record.create_dir(path.parent().unwrap_or(Path::new("")), 0o700)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let flags = APPEND_FLAGS | OFlags::CREATE | OFlags::EXCL;
    Ok(openat(&folder, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Opens a regular file to add to its end.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if it is something else, such as a link.
pub(crate) fn open_for_appending(folder: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    open_existing(folder, name, APPEND_FLAGS)
}

/// Opens a regular file to change it in place.
pub(super) fn open_for_update(folder: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    open_existing(folder, name, APPEND_FLAGS.difference(OFlags::APPEND))
}

fn open_existing(folder: BorrowedFd<'_>, name: &str, flags: OFlags) -> io::Result<File> {
    let path = Path::new(name);
    let (folder, name) = open_beneath::open_parent(folder, path)?;
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "it isn't a regular file");
    let file = match openat(&folder, name, flags, Mode::empty()) {
        // A link, a socket, or a folder.
        Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => return Err(invalid()),
        opened => File::from(opened?),
    };
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(invalid());
    }
    Ok(file)
}

/// Opens a folder. Anything else in its place is an error; a pipe isn't waited for.
///
/// # Errors
/// If it can't be opened or isn't a folder.
pub(crate) fn open_folder(path: &Path) -> io::Result<File> {
    let directory = rustix::fs::OFlags::DIRECTORY.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(directory).open(path)
}

/// Whether a folder has a file that a run writes before its first event.
pub(super) fn has_run_files(folder: &Path) -> bool {
    [PLAN_FILE, &journal_file(PARENT)].iter().any(|name| folder.join(name).is_file())
}

/// How often other machines may replace or remove a file while this one uses it.
const MAX_RETRIES: usize = 8;

/// Uses a file, and opens it again where another machine has replaced it meanwhile: on NFS, nothing of the old one can be read or
/// written then.
///
/// # Errors
/// Those of `file`.
pub(crate) fn retry_stale<T>(file: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    retry_if(|kind| kind == io::ErrorKind::StaleNetworkFileHandle, file)
}

fn retry_if<T>(
    is_temporary: impl Fn(io::ErrorKind) -> bool,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    for _ in 0..MAX_RETRIES {
        match attempt() {
            Err(error) if is_temporary(error.kind()) => {}
            done => return done,
        }
    }
    attempt()
}

/// Reads a regular file of at most `max_bytes` in a folder.
pub(crate) fn read_file(folder: &Path, name: &str, max_bytes: u64) -> io::Result<Vec<u8>> {
    retry_stale(|| {
        let file = open_file(folder, name, max_bytes)?;
        let size = file.metadata().map_or(0, |found| found.len());
        read_expected(file, size, max_bytes)
    })
}

/// Opens a file for reading, by its path in the record's folder.
///
/// # Errors
/// If it doesn't exist, isn't a regular file, is reached through a link, or is larger than `max_bytes`.
pub(crate) fn open_file(folder: &Path, name: &str, max_bytes: u64) -> io::Result<File> {
    open_file_in(open_folder(folder)?.as_fd(), name, max_bytes)
}

/// The same in an open folder.
pub(crate) fn open_file_in(folder: BorrowedFd<'_>, name: &str, max_bytes: u64) -> io::Result<File> {
    let (parent, file_name) = open_beneath::open_parent(folder, Path::new(name))?;
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let file = open_beneath::open_regular_file(parent.as_fd(), file_name)?
        .ok_or_else(|| invalid("it isn't a regular file".into()))?;
    refresh_size(&file);
    if file.metadata()?.len() > max_bytes {
        return Err(invalid(format!("it is larger than {} MiB", max_bytes >> 20)));
    }
    Ok(file)
}

/// Lets the system ask for the size of a file that another machine or mount may just have written: FUSE reads no further than
/// the size that it has remembered, for a second.
#[cfg(target_os = "linux")]
fn refresh_size(file: &File) {
    use rustix::fs::{AtFlags, StatxFlags, statx};

    // Where this isn't possible, nothing is remembered or nothing can be done.
    let _ = statx(file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE);
}

#[cfg(not(target_os = "linux"))]
fn refresh_size(_: &File) {}

/// Creates a temporary file in a folder of the record that only its owner can read.
///
/// # Errors
/// If it can't be created.
pub(crate) fn temporary_in(folder: BorrowedFd<'_>) -> io::Result<NewFile> {
    NewFile::create(folder, TEMP_PREFIX, Mode::RUSR | Mode::WUSR)
}

/// Replaces a file in an open folder by one that only its owner can read. `is_durable` writes it to the disk before its name.
///
/// # Errors
/// If it can't be written. The old file is still there then.
pub(crate) fn replace_private_file(
    folder: BorrowedFd<'_>,
    name: &str,
    content: &[u8],
    is_durable: bool,
) -> io::Result<()> {
    let file = temporary_in(folder)?;
    file.file().write_all(content)?;
    if is_durable {
        file.file().sync_data()?;
    }
    file.persist(name.as_ref()).map(drop)
}

/// Removes the temporary files that a killed process has left in a record, if possible.
pub(super) fn remove_temporary_files(record: &OpenRoot) {
    for folder in TEMP_DIRS {
        if let Ok(folder) = record.open_dir(Path::new(folder)) {
            remove_temporary_files_in(folder.as_fd());
        }
    }
}

fn remove_temporary_files_in(folder: BorrowedFd<'_>) {
    let Ok(folder) = folder.try_clone_to_owned() else { return };
    for (name, kind) in open_beneath::entries(&folder).into_iter().flatten().flatten() {
        if kind == FileType::RegularFile && name.to_string_lossy().starts_with(TEMP_PREFIX) {
            let _ = unlinkat(&folder, &name, AtFlags::empty());
        }
    }
}

/// Opens an open folder once more, for a lock of its own.
fn reopen(folder: BorrowedFd<'_>) -> io::Result<File> {
    Ok(open_beneath::open_dir(folder, Path::new("."))?.into())
}

/// Whether a lock can't be taken because the file system has none.
pub(crate) fn is_without_locks(errno: Errno) -> bool {
    matches!(errno, Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK)
}

/// Whether a name in a folder of records is of a file system or a file manager, which may add it at any time: NFS, FUSE, SMB
/// and AFS keep a file under such a name that a process has open and another one removes.
pub(crate) fn is_of_file_system(name: &OsStr) -> bool {
    const PREFIXES: [&[u8]; 5] = [b".nfs", b".fuse_hidden", b".smb", b".__afs", b"._"];
    const NAMES: [&[u8]; 6] = [b".snapshot", b".snapshots", b".zfs", b"lost+found", b".DS_Store", b"@eaDir"];
    let name = name.as_bytes();
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Creates a file in a folder that many processes write to, complete or not at all. `is_durable` writes it to the disk before
/// its name. Returns false if there is one already.
///
/// # Errors
/// If it can't be written.
pub fn create_shared_file(folder: BorrowedFd<'_>, name: &str, content: &[u8], is_durable: bool) -> io::Result<bool> {
    let attempt = || {
        let (mut file, temporary) = TemporaryName::create(folder)?;
        file.write_all(content)?;
        if is_durable {
            file.sync_data()?;
        }
        let is_local = open_beneath::is_local_filesystem(file.as_fd());
        // Closed: where an open file loses a name, a network file system gives it another one.
        drop(file);
        let from = temporary.name.as_str();
        // Some other file systems ignore the flag.
        if is_local {
            match renameat_with(folder, from, folder, name, RenameFlags::NOREPLACE) {
                Err(Errno::NOSYS | Errno::INVAL | Errno::NOTSUP) => {}
                Err(Errno::EXIST) => return Ok(false),
                renamed => {
                    renamed?;
                    temporary.keep();
                    return Ok(true);
                }
            }
        }
        match linkat(folder, from, folder, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            // The answer of a server may get lost, and the system asks again.
            Err(Errno::EXIST) => Ok(statat(folder, from, AtFlags::SYMLINK_NOFOLLOW)?.st_nlink > 1),
            Err(Errno::PERM | Errno::NOSYS | Errno::NOTSUP | Errno::MLINK) => {
                create_without_links(folder, name, content, is_durable)
            }
            Err(error) => Err(error.into()),
        }
    };
    match attempt() {
        // Another process has removed the temporary file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => attempt(),
        created => created,
    }
}

/// The name of a temporary file in an open folder. It is removed with this.
struct TemporaryName<'a> {
    folder: BorrowedFd<'a>,
    name: String,
}

impl<'a> TemporaryName<'a> {
    /// Creates a file that only its owner can read.
    fn create(folder: BorrowedFd<'a>) -> io::Result<(File, Self)> {
        let (file, name) = create_named(folder, TEMP_PREFIX, Mode::RUSR | Mode::WUSR)?;
        Ok((file, Self { folder, name }))
    }

    /// Leaves the file, which may have another name now.
    fn keep(mut self) {
        self.name.clear();
    }
}

impl Drop for TemporaryName<'_> {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            let _ = unlinkat(self.folder, self.name.as_str(), AtFlags::empty());
        }
    }
}

/// Creates a file where there are no hard links. Others may see a part of it.
fn create_without_links(folder: BorrowedFd<'_>, name: &str, content: &[u8], is_durable: bool) -> io::Result<bool> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = match openat(folder, name, flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::EXIST) => return Ok(false),
        opened => File::from(opened?),
    };
    file.write_all(content)?;
    if is_durable {
        file.sync_data()?;
    }
    Ok(true)
}

/// Replaces a file in a folder that many processes write to, so that others see the old file or the new one. `is_durable`
/// writes it to the disk before its name.
///
/// # Errors
/// If it can't be written. The old file is still there then.
pub(crate) fn replace_shared_file(
    folder: BorrowedFd<'_>,
    name: &str,
    is_durable: bool,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    // While one process has it, none removes temporary files.
    let lock = reopen(folder)?;
    let _ = flock(&lock, FlockOperation::LockShared);
    // Where locks don't reach other machines, one of them may have removed the temporary file.
    let is_removed = |kind| matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::StaleNetworkFileHandle);
    retry_if(is_removed, || {
        let file = temporary_in(folder)?;
        let mut out = BufWriter::with_capacity(256 << 10, file.file());
        write(&mut out)?;
        out.flush()?;
        drop(out);
        if is_durable {
            file.file().sync_data()?;
        }
        let named = |error: io::Error| io::Error::new(error.kind(), format!("`{name}`: {error}"));
        file.persist(name.as_ref()).map(drop).map_err(named)
    })
}

/// Removes the temporary files that killed processes have left in a folder that many processes write to, unless one of them
/// writes just now.
pub(crate) fn remove_abandoned_files(folder: BorrowedFd<'_>) {
    if let Ok(lock) = reopen(folder)
        && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
    {
        remove_temporary_files_in(folder);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Leaves a temporary file as a killed process does.
    fn leave_temporary(folder: &Path) {
        TemporaryName::create(File::open(folder).unwrap().as_fd()).unwrap().1.keep();
    }

    #[test]
    fn a_file_that_another_machine_replaces_is_opened_again() {
        let stale = || io::Error::from_raw_os_error(Errno::STALE.raw_os_error());
        let mut left = MAX_RETRIES;
        let mut read = || match left.checked_sub(1) {
            Some(less) => {
                left = less;
                Err(stale())
            }
            None => Ok("new"),
        };
        assert_eq!(retry_stale(&mut read).unwrap(), "new");
        assert!(retry_stale(|| Err::<(), _>(stale())).is_err(), "not without end");
    }

    #[test]
    fn only_temporary_files_are_removed() {
        let record = tempfile::tempdir().unwrap();
        TEMP_DIRS[1..].iter().for_each(|name| fs::create_dir(record.path().join(name)).unwrap());
        for folder in TEMP_DIRS {
            let folder = record.path().join(folder);
            leave_temporary(&folder);
            fs::write(folder.join(".tmpAAAAAA"), "mine").unwrap();
        }
        remove_temporary_files(&OpenRoot::open(record.path()).unwrap());
        for folder in TEMP_DIRS {
            let names = fs::read_dir(record.path().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.filter(|name| !TEMP_DIRS.iter().any(|folder| name == folder)).collect();
            names.sort();
            assert_eq!(names, [".tmpAAAAAA"]);
        }
    }

    #[test]
    fn a_shared_file_is_created_once_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let opened = File::open(folder.path()).unwrap();
        let create = |content: &[u8]| create_shared_file(opened.as_fd(), "file", content, true).unwrap();
        assert!(create(b"one") && !create(b"two"));
        assert!(!create_without_links(opened.as_fd(), "file", b"three", true).unwrap());
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"one");
        assert!(create_without_links(opened.as_fd(), "other", b"four", true).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn only_a_process_that_is_dead_loses_its_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let opened = File::open(folder.path()).unwrap();
        leave_temporary(folder.path());
        let names = || {
            let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
            names.collect::<Vec<_>>()
        };
        replace_shared_file(opened.as_fd(), "table", false, &mut |out| {
            remove_abandoned_files(opened.as_fd());
            out.write_all(b"all")
        })
        .unwrap();
        assert_eq!(names().len(), 2, "nothing is removed while a file is written");
        remove_abandoned_files(opened.as_fd());
        assert_eq!(names(), ["table"]);
        assert_eq!(fs::read(folder.path().join("table")).unwrap(), b"all");
    }
}
