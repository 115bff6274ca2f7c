//! The folder in which steps before the agent leave files. They write to a temporary one, and what is there after a step becomes a
//! part of the record, which no command can change.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, statat, unlinkat};

use crate::sandbox::ScratchDirs;
use crate::workspace::open_beneath::{entries, open_dir};
use crate::workspace::open_root::OpenRoot;
use crate::workspace::tree_copy::{CopyRules, copy_tree};

/// The file with the event that started the run.
const EVENT_FILE: &str = "event.json";
/// The most bytes that steps can leave together.
const MAX_BYTES: u64 = 100 << 20;
/// The most files and folders that they can leave.
const MAX_FILES: usize = 10_000;
/// How deep the folders may be nested.
const MAX_DEPTH: usize = 64;

/// The folder that steps write to, and the one in the record.
#[derive(Debug)]
pub(super) struct StepFiles {
    /// Removed even if this process is killed.
    _scratch: ScratchDirs,
    path: PathBuf,
    kept: PathBuf,
}

impl StepFiles {
    /// Creates the temporary folder, with the files that earlier steps have left in the record.
    ///
    /// # Errors
    /// A folder can't be created or read.
    pub(super) fn open(kept: &Path) -> io::Result<Self> {
        let scratch = ScratchDirs::create_in(&tempfile::env::temp_dir())?;
        scratch.settle();
        let path = scratch.tmp().canonicalize()?;
        copy_step_files(kept, &path)?;
        Ok(Self { _scratch: scratch, path, kept: kept.to_owned() })
    }

    /// The folder that steps write to.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the record's folder the same as the one that steps write to.
    ///
    /// # Errors
    /// There is too much in it, or it can't be copied: a sentence.
    pub(super) fn keep(&self) -> Result<(), String> {
        let failed = |error: io::Error| format!("its files in $LEGWORK_FILES can't be kept: {error}");
        let root = OpenRoot::open(&self.path).map_err(failed)?;
        let (mut left, mut bytes) = (MAX_FILES, MAX_BYTES);
        measure(&open_dir(root.folder(), Path::new("")).map_err(failed)?, MAX_DEPTH, &mut left, &mut bytes)?;
        copy_step_files(&self.path, &self.kept).map_err(failed)?;
        let kept = OpenRoot::open(&self.kept).map_err(failed)?;
        remove_missing(&open_dir(kept.folder(), Path::new("")).map_err(failed)?, &self.path).map_err(failed)
    }
}

/// Copies the files of steps from one folder to another one.
///
/// # Errors
/// A file can't be copied, or there are too many.
pub fn copy_step_files(from: &Path, to: &Path) -> io::Result<()> {
    let rules =
        CopyRules { replaces: true, added_modes: (0o600, 0o700), most: (MAX_FILES, MAX_BYTES), ..CopyRules::EXACT };
    copy_tree(&OpenRoot::open(from)?, &OpenRoot::open(to)?, &rules).map_err(|(_, error)| error)
}

/// Puts the event that started the run among the files of steps. One that is there already stays.
///
/// # Errors
/// The file can't be written.
pub fn write_event(files: &Path, event: &[u8]) -> io::Result<()> {
    match OpenRoot::open(files)?.create_file(Path::new(EVENT_FILE), event, 0o600) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        written => written,
    }
}

/// Adds up the files and their sizes before anything is copied.
fn measure(folder: &OwnedFd, depth: usize, left: &mut usize, bytes: &mut u64) -> Result<(), String> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(format!("the folders in $LEGWORK_FILES are nested more than {MAX_DEPTH} deep"));
    };
    for (name, kind) in entries(folder).into_iter().flatten().flatten() {
        *left = left.checked_sub(1).ok_or_else(|| format!("it left more than {MAX_FILES} files in $LEGWORK_FILES"))?;
        match kind {
            FileType::Directory => {
                let Ok(inner) = open_dir(std::os::fd::AsFd::as_fd(folder), Path::new(&name)) else { continue };
                measure(&inner, depth, left, bytes)?;
            }
            FileType::RegularFile => {
                let size = statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW).map_or(0, |stat| stat.st_size);
                let size = u64::try_from(size).unwrap_or_default();
                let too_much = || format!("it left more than {} MB in $LEGWORK_FILES", MAX_BYTES >> 20);
                *bytes = bytes.checked_sub(size).ok_or_else(too_much)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes what a step has removed.
fn remove_missing(kept: &OwnedFd, scratch: &Path) -> io::Result<()> {
    let listed: Vec<(OsString, FileType)> = entries(kept)?.collect::<Result<_, _>>()?;
    for (name, kind) in listed {
        let counterpart = scratch.join(&name);
        let is_folder = kind == FileType::Directory;
        let found = counterpart.symlink_metadata();
        if is_folder {
            let inner = open_dir(std::os::fd::AsFd::as_fd(kept), Path::new(&name))?;
            remove_missing(&inner, &counterpart)?;
        }
        if found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            let flags = if is_folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            unlinkat(kept, &name, flags)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn the_record_has_what_steps_leave_and_not_what_they_remove() {
        let record = TempDir::new().unwrap();
        fs::write(record.path().join("old"), "1").unwrap();
        let files = StepFiles::open(record.path()).unwrap();
        assert_eq!(fs::read_to_string(files.path().join("old")).unwrap(), "1");
        fs::create_dir(files.path().join("d")).unwrap();
        fs::write(files.path().join("d/new"), "2").unwrap();
        fs::remove_file(files.path().join("old")).unwrap();
        files.keep().unwrap();
        assert!(!record.path().join("old").exists());
        assert_eq!(fs::read_to_string(record.path().join("d/new")).unwrap(), "2");
        fs::write(files.path().join("d/new"), "3").unwrap();
        files.keep().unwrap();
        assert_eq!(fs::read_to_string(record.path().join("d/new")).unwrap(), "3");
    }

    #[test]
    fn too_much_is_refused_before_anything_is_copied() {
        let record = TempDir::new().unwrap();
        let files = StepFiles::open(record.path()).unwrap();
        fs::File::create(files.path().join("large")).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert_eq!(files.keep(), Err("it left more than 100 MB in $LEGWORK_FILES".to_owned()));
        assert_eq!(fs::read_dir(record.path()).unwrap().count(), 0);
        fs::remove_file(files.path().join("large")).unwrap();
        let deep = vec!["d"; MAX_DEPTH].join("/");
        fs::create_dir_all(files.path().join(deep)).unwrap();
        assert!(files.keep().unwrap_err().contains("nested more than 64"));
    }
}
