//! The files of a workspace that patches are applied to.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{FileKind, FileSource, FileState};

/// The largest file that is merged, in bytes. Patches have no larger ones.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The files below a folder.
#[derive(Debug)]
pub struct TargetFiles {
    root: PathBuf,
}

impl TargetFiles {
    /// The files below a folder, which exists.
    ///
    /// # Errors
    /// If the folder can't be resolved.
    pub fn new(root: &Path) -> io::Result<Self> {
        Ok(Self { root: root.canonicalize()? })
    }

    /// The files among `paths` with changes that aren't committed; none outside of git.
    pub fn uncommitted<'a>(&self, paths: impl Iterator<Item = &'a Path>) -> BTreeSet<PathBuf> {
        let specs: Vec<OsString> = paths
            .map(|path| {
                Path::new(":(literal)")
                    .as_os_str()
                    .to_owned()
                    .into_vec()
                    .into_iter()
                    .chain(path.as_os_str().as_bytes().iter().copied())
                    .collect::<Vec<u8>>()
            })
            .map(OsString::from_vec)
            .collect();
        if specs.is_empty() {
            return BTreeSet::new();
        }
        let mut command = self.git();
        command.args(["status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--"]).args(&specs);
        let output = command.output().map(|output| output.stdout).unwrap_or_default();
        // Paths are relative to the root of the working tree.
        let prefix = self.git().args(["rev-parse", "--show-prefix"]).output();
        let prefix = prefix.map(|output| output.stdout.trim_ascii_end().to_owned()).unwrap_or_default();
        let entries = output.split(|byte| *byte == 0).filter_map(|entry| entry.get(3..));
        entries
            .filter_map(|path| path.strip_prefix(prefix.as_slice()))
            .map(|path| PathBuf::from(OsString::from_vec(path.to_vec())))
            .collect()
    }

    /// Writes the new state of a file: a new file that replaces the old one.
    ///
    /// # Errors
    /// If it can't be written, or the path leads through a symbolic link.
    pub fn write(&self, path: &Path, state: Option<&FileState>) -> io::Result<()> {
        let target = self.resolve(path)?;
        let folder = target.parent().unwrap_or(&self.root);
        let Some(state) = state else {
            fs::remove_file(&target)?;
            // Git has no empty folders either.
            for folder in folder.ancestors().take_while(|folder| *folder != self.root) {
                if fs::remove_dir(folder).is_err() {
                    break;
                }
            }
            return Ok(());
        };
        fs::create_dir_all(folder)?;
        if state.kind == FileKind::Link {
            let temporary = tempfile::Builder::new().prefix(".legwork-").tempdir_in(folder)?;
            let link = temporary.path().join("link");
            symlink(Path::new(std::ffi::OsStr::from_bytes(&state.content)), &link)?;
            return fs::rename(link, &target);
        }
        let mode = match (fs::symlink_metadata(&target), state.kind) {
            (Ok(found), FileKind::Executable) if found.is_file() => found.permissions().mode() | 0o111,
            (Ok(found), _) if found.is_file() => found.permissions().mode() & !0o111,
            (_, FileKind::Executable) => 0o755,
            _ => 0o644,
        };
        let mut file = tempfile::Builder::new().prefix(".legwork-").tempfile_in(folder)?;
        file.write_all(&state.content)?;
        file.as_file().set_permissions(fs::Permissions::from_mode(mode & 0o7777))?;
        file.as_file().sync_data()?;
        file.persist(&target).map_err(|error| error.error)?;
        Ok(())
    }

    /// The absolute path of a file. None of the folders above it may be a link, which could lead elsewhere.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let mut absolute = self.root.clone();
        for part in path.parent().into_iter().flat_map(Path::components) {
            absolute.push(part);
            match fs::symlink_metadata(&absolute) {
                Ok(data) if !data.is_dir() => {
                    let why =
                        format!("`{}` isn't a folder", absolute.strip_prefix(&self.root).unwrap_or(path).display());
                    return Err(io::Error::new(io::ErrorKind::NotADirectory, why));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.root.join(path))
    }

    fn git(&self) -> Command {
        let mut command = Command::new("git");
        command
            .args(["--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false"])
            .current_dir(&self.root)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

impl FileSource for TargetFiles {
    fn current(&self, path: &Path) -> Result<Option<FileState>, String> {
        let target = self.resolve(path).map_err(|error| error.to_string())?;
        let data = match fs::symlink_metadata(&target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            data => data.map_err(|error| error.to_string())?,
        };
        if data.is_symlink() {
            let link = fs::read_link(&target).map_err(|error| error.to_string())?;
            return Ok(Some(FileState { content: link.into_os_string().into_vec(), kind: FileKind::Link }));
        }
        if !data.is_file() {
            return Err("it isn't a regular file".to_owned());
        }
        if data.len() > MAX_FILE_BYTES {
            return Err("it is larger than 16 MiB".to_owned());
        }
        let kind = if data.permissions().mode() & 0o100 != 0 { FileKind::Executable } else { FileKind::Regular };
        let content = fs::read(&target).map_err(|error| error.to_string())?;
        Ok(Some(FileState { content, kind }))
    }

    fn content_of(&self, object: &str) -> Option<Vec<u8>> {
        let is_name = object.len() == 40 && object.bytes().all(|byte| byte.is_ascii_hexdigit());
        let output = is_name.then(|| self.git().args(["cat-file", "blob", object]).output().ok()).flatten()?;
        output.status.success().then_some(output.stdout)
    }
}
