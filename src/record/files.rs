//! The files of a record: their names, and how they are created and opened. Only their owner can read them, and links aren't
//! followed. A record can come from anywhere, so sizes are limited as well.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use crate::workspace::open_beneath;

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

pub(super) const JOB_FILE: &str = "job.yaml";
pub(super) const PLAN_FILE: &str = "plan.json";
/// How the run ended. It is written last.
pub const RESULT_FILE: &str = "result.json";
pub(super) const TRANSCRIPT_FILE: &str = "transcript.md";
pub(super) const REPORT_FILE: &str = "report.html";

/// The prefix of the names of temporary files, which are renamed when they are complete. A killed process leaves them behind;
/// the next process with the folder's lock removes them.
pub(super) const TEMP_PREFIX: &str = ".tmp-legwork-";
/// The folders that temporary files can be in, relative to the record.
const TEMP_DIRS: [&str; 3] = ["", "subagents", "attachments"];

/// Options for files that only their owner may read.
pub(super) fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Creates the folder of a file in a run's folder. The run's folder itself is never created again: if it was deleted, half a
/// record must not appear in its place.
pub(super) fn create_parent_dir<'a>(path: &'a Path, run: &'a Path) -> io::Result<&'a Path> {
    let folder = path.parent().unwrap_or(run);
    if folder != run {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            // A link would lead out of the record.
            _ if !fs::symlink_metadata(folder)?.is_dir() => {
                let reason = format!("`{}` is not a folder", folder.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, reason));
            }
            _ => {}
        }
    }
    Ok(folder)
}

/// Opens a folder. Anything else in its place is an error; a pipe isn't waited for.
///
/// # Errors
/// If it can't be opened or isn't a folder.
pub(crate) fn open_folder(path: &Path) -> io::Result<File> {
    let directory = rustix::fs::OFlags::DIRECTORY.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(directory).open(path)
}

/// Opens a file for reading, by its path in the record's folder.
///
/// # Errors
/// If it doesn't exist, isn't a regular file, is reached through a link, or is larger than `max_bytes`.
pub(crate) fn open_file(folder: &Path, name: &str, max_bytes: u64) -> io::Result<File> {
    let root = open_folder(folder)?;
    let path = Path::new(name);
    let file_name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = open_beneath::open_dir(root.as_fd(), path.parent().unwrap_or(Path::new("")))?;
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let file = open_beneath::open_regular_file(parent.as_fd(), file_name)?
        .ok_or_else(|| invalid("it isn't a regular file".into()))?;
    if file.metadata()?.len() > max_bytes {
        return Err(invalid(format!("it is larger than {} MiB", max_bytes >> 20)));
    }
    Ok(file)
}

/// Creates a temporary file in a folder of the record that only its owner can read.
///
/// # Errors
/// If it can't be created.
pub fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(TEMP_PREFIX).tempfile_in(folder)
}

/// Removes the temporary files that a killed process has left in a record, as far as possible.
pub(super) fn remove_temporary_files(record: &Path) {
    TEMP_DIRS.iter().for_each(|folder| remove_temporary_files_in(&record.join(folder)));
}

fn remove_temporary_files_in(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX);
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a lock can't be taken because the file system has none.
pub(crate) fn is_without_locks(errno: Errno) -> bool {
    matches!(errno, Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK)
}

/// Replaces a file in a folder that many processes write to, so that others see the old file or the new one. `is_durable`
/// writes it to the disk before its name.
///
/// # Errors
/// If it can't be written. The old file is still there then.
pub fn replace_shared_file(
    folder: &Path,
    name: &str,
    is_durable: bool,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    // While one process has it, none removes temporary files.
    let lock = open_folder(folder)?;
    let _ = flock(&lock, FlockOperation::LockShared);
    let mut attempt = || {
        let mut file = temporary(folder)?;
        let mut out = BufWriter::with_capacity(256 << 10, file.as_file_mut());
        write(&mut out)?;
        out.flush()?;
        drop(out);
        if is_durable {
            file.as_file().sync_data()?;
        }
        let named = |error: io::Error| io::Error::new(error.kind(), format!("`{name}`: {error}"));
        file.persist(folder.join(name)).map(drop).map_err(|error| named(error.error))
    };
    match attempt() {
        // Where locks don't reach other machines, one of them may have removed the temporary file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => attempt(),
        replaced => replaced,
    }
}

/// Removes the temporary files that killed processes have left in a folder that many processes write to, unless one of them
/// writes just now.
pub fn remove_abandoned_files(folder: &Path) {
    if let Ok(lock) = open_folder(folder)
        && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
    {
        remove_temporary_files_in(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_temporary_files_are_removed() {
        let record = tempfile::tempdir().unwrap();
        TEMP_DIRS[1..].iter().for_each(|name| fs::create_dir(record.path().join(name)).unwrap());
        for folder in TEMP_DIRS {
            let folder = record.path().join(folder);
            temporary(&folder).unwrap().keep().unwrap();
            fs::write(folder.join(".tmpAAAAAA"), "mine").unwrap();
        }
        remove_temporary_files(record.path());
        for folder in TEMP_DIRS {
            let names = fs::read_dir(record.path().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.filter(|name| !TEMP_DIRS.iter().any(|folder| name == folder)).collect();
            names.sort();
            assert_eq!(names, [".tmpAAAAAA"]);
        }
    }

    #[test]
    fn only_a_process_that_is_dead_loses_its_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        temporary(folder.path()).unwrap().keep().unwrap();
        let names = || {
            let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
            names.collect::<Vec<_>>()
        };
        replace_shared_file(folder.path(), "table", false, &mut |out| {
            remove_abandoned_files(folder.path());
            out.write_all(b"all")
        })
        .unwrap();
        assert_eq!(names().len(), 2, "nothing is removed while a file is written");
        remove_abandoned_files(folder.path());
        assert_eq!(names(), ["table"]);
        assert_eq!(fs::read(folder.path().join("table")).unwrap(), b"all");
    }
}
