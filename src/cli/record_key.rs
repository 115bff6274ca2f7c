//! The key that signs records: from the environment, or from a file in the user's state folder that the first run creates.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::env::CliEnv;
use super::output::printable;
use super::read_files::read_bounded;
use crate::error::Error;
use crate::git::Repository;
use crate::journal::RecordKey;
use crate::lints::RECORD_KEY;
use crate::record::create_shared_file;
use crate::sandbox::programs::Folders;
use crate::sandbox::protected_paths::canonical_as_far_as_possible;
use crate::workspace::open_root::OpenRoot;

/// The least length of a key in the environment, in bytes.
const MIN_KEY_BYTES: usize = 16;
/// The length of the key in the file: random bytes, in hexadecimal.
const KEY_BYTES: usize = 32;

impl CliEnv {
    /// The key for signing a record, created if there is none yet. Warns and returns `None` if there is no folder for it, or if
    /// it would be in one of `folders` or in a repository that contains one: commands could read it there, or it may have
    /// come with the repository.
    ///
    /// # Errors
    /// The key in the environment is too short.
    pub(super) fn record_key(&self, folders: &[&Path]) -> Result<Option<RecordKey>, Error> {
        if let Some(key) = self.variable(RECORD_KEY) {
            if key.len() < MIN_KEY_BYTES {
                return Err(Error::usage(
                    format!("the key in {RECORD_KEY} is too short"),
                    format!("Use at least {MIN_KEY_BYTES} random characters."),
                ));
            }
            return Ok(Some(RecordKey::new(key)));
        }
        let unsigned = |why: &str| {
            self.warn_once(&format!("the record isn't signed, so resuming it needs --trust-record: {why}"));
            None
        };
        let path = match self.record_key_file(folders) {
            Ok(path) => path,
            Err(why) => return Ok(unsigned(&why)),
        };
        let shown = printable(&path.to_string_lossy());
        Ok(read_or_create(&path).map_or_else(|error| unsigned(&format!("{shown}: {error}")), Some))
    }

    /// The key as for [`Self::record_key`], if there is one already.
    pub(super) fn existing_record_key(&self, folders: &[&Path]) -> Option<RecordKey> {
        if self.variable(RECORD_KEY).is_some() {
            return self.record_key(folders).ok().flatten();
        }
        let path = self.record_key_file(folders).ok().filter(|path| !is_missing(path))?;
        read(&path).ok()
    }

    /// The file with the key, if there is a folder for it and the environment has none.
    pub(super) fn record_key_path(&self) -> Option<PathBuf> {
        self.xdg_file("XDG_STATE_HOME", ".local/state", "record.key")
    }

    /// The key as for [`Self::record_key`], of a run whose commands can write to `writable`, too. Bubblewrap hides the file there.
    ///
    /// # Errors
    /// The key in the environment is too short.
    pub(super) fn record_key_beside(
        &self,
        folders: &[&Path],
        writable: &[PathBuf],
    ) -> Result<Option<RecordKey>, Error> {
        let writable = if self.has_bubblewrap() { &[] } else { writable };
        self.record_key(&folders.iter().copied().chain(writable.iter().map(PathBuf::as_path)).collect::<Vec<_>>())
    }

    /// The file with the key, or why there is none.
    pub(super) fn record_key_file(&self, folders: &[&Path]) -> Result<PathBuf, String> {
        let Some(path) = self.record_key_path() else {
            return Err(format!("there is no folder for the key; set HOME or {RECORD_KEY}"));
        };
        let folders: Vec<PathBuf> = folders.iter().map(|folder| folder.to_path_buf()).collect();
        // A link on the way could lead to another key tomorrow.
        if Folders::new(&folders).lead_through(&path) || folders.iter().any(|folder| is_within(&path, folder)) {
            let shown = printable(&path.to_string_lossy());
            return Err(format!(
                "the key file {shown} would be in the workspace or its repository; set XDG_STATE_HOME or {RECORD_KEY}"
            ));
        }
        Ok(path)
    }
}

/// Whether the file has a usable key. Otherwise the next run creates it.
///
/// # Errors
/// The key can't be used, or the file can't be created.
pub(super) fn check_key_file(path: &Path) -> io::Result<bool> {
    if !is_missing(path) {
        return read(path).map(|_| true);
    }
    let existing = path.ancestors().skip(1).find(|folder| !is_missing(folder)).unwrap_or(path);
    if !existing.is_dir() {
        return Err(io::Error::new(ErrorKind::NotADirectory, format!("{} isn't a folder", existing.display())));
    }
    match access(existing, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Ok(false),
        Err(error) => Err(io::Error::new(error.kind(), format!("{} isn't writable", existing.display()))),
    }
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn read_or_create(path: &Path) -> io::Result<RecordKey> {
    if is_missing(path) {
        create_key_file(path)?;
    }
    // Another run may have created it in the meantime.
    read(path)
}

fn read(path: &Path) -> io::Result<RecordKey> {
    let found = fs::symlink_metadata(path)?;
    let why = match () {
        () if !found.is_file() => Some("it isn't a regular file"),
        () if found.uid() != rustix::process::geteuid().as_raw() => Some("it belongs to another user"),
        () if found.mode() & 0o077 != 0 => {
            Some("other users can read or change it; remove it, or run `chmod 600` on it")
        }
        () => None,
    };
    if let Some(why) = why {
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    let bytes = read_bounded(path, 4 * KEY_BYTES).map_err(io::Error::other)?;
    let digits = bytes.trim_ascii();
    if digits.len() != 2 * KEY_BYTES || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            "it doesn't contain a key; remove it, and the next run creates another",
        ));
    }
    Ok(RecordKey::new(digits))
}

/// Whether a path is in a folder or in the repository that contains it. The path needn't exist.
fn is_within(path: &Path, folder: &Path) -> bool {
    let (path, folder) = (canonical_as_far_as_possible(path), canonical_as_far_as_possible(folder));
    path.starts_with(&folder)
        || Repository::discover(&folder).is_some_and(|repository| path.starts_with(repository.worktree))
}

/// Creates the key file atomically, readable only by its owner, unless it exists.
fn create_key_file(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut random = [0; KEY_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = OpenRoot::open(folder)?;
    create_shared_file(folder.folder(), &name, format!("{digits}\n").as_bytes(), true).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_key_file_is_created_once_and_private() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join("a/legwork/record.key");
        let first = read_or_create(&path).unwrap();
        assert!(read_or_create(&path).unwrap() == first);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file is left");
        fs::remove_file(&path).unwrap();
        assert!(read_or_create(&path).unwrap() != first, "each key is new");
        for bad in ["", "short", &"x".repeat(64), &"a".repeat(1_000)] {
            fs::write(&path, bad).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(read_or_create(&path).is_err(), "{bad}");
        }
        fs::write(&path, "a".repeat(64)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read_or_create(&path).unwrap_err().to_string().contains("other users"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read_or_create(&path).is_ok());
        let link = path.with_file_name("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read_or_create(&link).unwrap_err().to_string().contains("regular file"));
    }
}
