//! The files of a workspace that patches are applied to.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Blocker, FileKind, FileSource, FileState, is_object};
use crate::git::CALLER_VARIABLES;
use crate::isolation::Snapshot;
use crate::record::open_file;

/// The largest file that is merged, in bytes. Patches have no larger ones.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// How many files are looked for in a folder that a file replaces.
const MAX_REPLACED: usize = 10_000;

/// The files below a folder.
#[derive(Debug, Clone)]
pub struct TargetFiles {
    root: PathBuf,
    /// Copies of the folder that were made earlier.
    copies: Vec<PathBuf>,
    /// The names of commits and trees that may have the content that a patch was made from.
    trees: Vec<String>,
}

/// What git knows about the files of a folder.
#[derive(Debug)]
pub struct CommittedFiles {
    root: PathBuf,
    tracked: HashSet<PathBuf>,
    changed: HashSet<PathBuf>,
    /// Those in which git was told not to look for changes.
    unwatched: HashSet<PathBuf>,
}

impl CommittedFiles {
    /// Why git can't restore a file that exists, and what to do: it has changes that aren't committed, or git doesn't track it.
    pub fn obstacle(&self, path: &Path) -> Option<&'static str> {
        let folders = || path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        let is_nested = || folders().any(|folder| fs::symlink_metadata(self.root.join(folder).join(".git")).is_ok());
        match () {
            () if self.changed.contains(path) => {
                Some("it has changes that aren't committed; commit or stash it, or use --allow-dirty")
            }
            () if !self.tracked.contains(path) && is_nested() => {
                Some("it is in a nested repository, whose changes aren't looked for; use --allow-dirty")
            }
            () if !self.tracked.contains(path) => {
                Some("it isn't tracked by git; commit or stash it, or use --allow-dirty")
            }
            () if self.unwatched.contains(path) => Some(
                "git doesn't look for changes in it (assume-unchanged or skip-worktree); commit or stash it, or use \
                 --allow-dirty",
            ),
            () => None,
        }
    }
}

impl TargetFiles {
    /// The files below a folder, which exists.
    ///
    /// # Errors
    /// If the folder can't be resolved.
    pub fn new(root: &Path) -> io::Result<Self> {
        Ok(Self { root: root.canonicalize()?, copies: Vec::new(), trees: vec!["HEAD".to_owned()] })
    }

    /// Adds a snapshot that may have the content that a patch was made from. It needn't exist.
    pub fn add_snapshot(&mut self, snapshot: Snapshot) {
        match snapshot {
            Snapshot::Copy { folder } => self.copies.push(folder),
            Snapshot::Git { tree, .. } if tree.bytes().all(|byte| byte.is_ascii_hexdigit()) => self.trees.push(tree),
            Snapshot::Git { .. } => {}
        }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What git knows about the files; `None` outside of git.
    ///
    /// # Errors
    /// If git fails.
    pub fn committed_files(&self) -> io::Result<Option<CommittedFiles>> {
        if !self.root.ancestors().any(|folder| fs::symlink_metadata(folder.join(".git")).is_ok()) {
            return Ok(None);
        }
        let listed = |output: &[u8], skipped: usize, prefix: &[u8]| -> HashSet<PathBuf> {
            let entries = output.split(|byte| *byte == 0).filter_map(|entry| entry.get(skipped..));
            let entries = entries.filter_map(|path| path.strip_prefix(prefix)).filter(|path| !path.is_empty());
            entries.map(|path| PathBuf::from(OsString::from_vec(path.to_vec()))).collect()
        };
        // The paths of `status` are relative to the root of the working tree, those of `ls-files` to the folder.
        let mut prefix = self.run_git(&["rev-parse", "--show-prefix"])?;
        prefix.pop_if(|last| *last == b'\n');
        let status = ["status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=no", "--", "."];
        let changed = listed(&self.run_git(&status)?, "XY ".len(), &prefix);
        let files = self.run_git(&["ls-files", "-v", "-z", "--", "."])?;
        let tracked = listed(&files, "H ".len(), b"");
        // In lower case: assume-unchanged. S: skip-worktree.
        let is_unwatched = |entry: &&[u8]| entry.first().is_some_and(|tag| tag.is_ascii_lowercase() || *tag == b'S');
        let unwatched: Vec<&[u8]> = files.split(|byte| *byte == 0).filter(is_unwatched).collect();
        let unwatched = listed(&unwatched.join(&0), "S ".len(), b"");
        Ok(Some(CommittedFiles { root: self.root.clone(), tracked, changed, unwatched }))
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
        let executable = state.kind == FileKind::Executable;
        let kept = fs::symlink_metadata(&target).ok().filter(fs::Metadata::is_file).map(|found| {
            let mode = found.permissions().mode() & 0o7777;
            if executable { mode | 0o111 } else { mode & !0o111 }
        });
        // The umask applies to a new file.
        let new = fs::Permissions::from_mode(if executable { 0o777 } else { 0o666 });
        let mut file = tempfile::Builder::new().prefix(".legwork-").permissions(new).tempfile_in(folder)?;
        file.write_all(&state.content)?;
        if let Some(mode) = kept {
            file.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
        }
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

    /// The files and empty folders in a folder, and the folder itself if there are too many.
    fn list(&self, folder: &Path) -> Vec<PathBuf> {
        let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
        while let Some(next) = folders.pop() {
            let entries: Vec<_> = fs::read_dir(self.root.join(&next)).into_iter().flatten().flatten().collect();
            if entries.is_empty() {
                found.push(next.clone());
            }
            for entry in entries {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                (if is_folder { &mut folders } else { &mut found }).push(next.join(entry.file_name()));
            }
            if found.len() + folders.len() > MAX_REPLACED {
                return vec![folder.to_owned()];
            }
        }
        found
    }

    fn git(&self) -> Command {
        let mut command = Command::new("git");
        command
            .args(["--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false"])
            .current_dir(&self.root)
            // A missing object of a partial clone isn't worth a network connection.
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .stdin(Stdio::null());
        for variable in CALLER_VARIABLES {
            command.env_remove(variable);
        }
        command
    }

    /// What a git command prints.
    fn run_git(&self, arguments: &[&str]) -> io::Result<Vec<u8>> {
        let output = self.git().args(arguments).output()?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let printed = String::from_utf8_lossy(&output.stderr);
        let first = printed.lines().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
        Err(io::Error::other(format!("`git {}`: {first}", arguments.first().unwrap_or(&""))))
    }

    /// The content of an object of git, by any name.
    fn git_content(&self, name: &str) -> Option<Vec<u8>> {
        let size = self.run_git(&["cat-file", "-s", name]).ok()?;
        let size: u64 = str::from_utf8(&size).ok()?.trim().parse().ok()?;
        if size > MAX_FILE_BYTES { None } else { self.run_git(&["cat-file", "blob", name]).ok() }
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
        if data.is_dir() {
            return Err("it is a folder".to_owned());
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

    fn blocker(&self, path: &Path) -> Option<Blocker> {
        let found = |path: &Path| fs::symlink_metadata(self.root.join(path)).ok();
        // A link could lead elsewhere, so it isn't known what it means for the file.
        let above = path.ancestors().skip(1).find_map(found);
        match above {
            Some(data) if data.is_file() => Some(Blocker::FileAbove),
            Some(data) if data.is_dir() && found(path).is_some_and(|data| data.is_dir()) => {
                Some(Blocker::Folder(self.list(path)))
            }
            _ => None,
        }
    }

    fn content_of(&self, path: &Path, object: &str) -> Option<Vec<u8>> {
        let is_name = object.len() == 40 && object.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_name {
            return None;
        }
        let with_crlf = |content: &[u8]| Some(str::from_utf8(content).ok()?.replace('\n', "\r\n").into_bytes());
        let is_wanted = |content: &Vec<u8>| is_object(Some(object), content);
        let copied = |copy: &PathBuf| {
            let mut content = Vec::new();
            open_file(copy, path.to_str()?, MAX_FILE_BYTES)
                .ok()?
                .take(MAX_FILE_BYTES)
                .read_to_end(&mut content)
                .ok()?;
            Some(content).filter(is_wanted)
        };
        let by_name = || self.git_content(object);
        let in_copy = self.copies.iter().find_map(copied);
        // In repositories with SHA-256, no object has this name. Neither has the content of a file that git changes when it
        // checks it out: by its line ends, its encoding, or a filter such as that of Git LFS.
        let in_tree = |tree: &String| {
            let name = format!("{tree}:./{}", path.to_str()?);
            let stored = self.git_content(&name)?;
            let crlf = with_crlf(&stored).filter(is_wanted);
            let checked_out = || self.run_git(&["cat-file", "--filters", &name]).ok();
            Some(stored).filter(is_wanted).or(crlf).or_else(checked_out).filter(is_wanted)
        };
        in_copy.or_else(by_name).or_else(|| self.trees.iter().find_map(in_tree))
    }
}
