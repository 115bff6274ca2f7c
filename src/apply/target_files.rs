//! The files of a workspace that patches are applied to.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, FileType, RawMode, Stat, readlinkat, statat, unlinkat};
use rustix::io::Errno;

use super::{Blocker, FileKind, FileSource, FileState, is_object};
use crate::git::program::{self, GitWorkingTree};
use crate::git::{GitProgram, Repository, worktree_around};
use crate::isolation::{Snapshot, unchanged_filtered_files};
use crate::record::read_file;
use crate::text::bounded::read_at_most;
use crate::workspace::atomic_write::CompleteFile;
use crate::workspace::new_file::create_link;
use crate::workspace::open_beneath::{entries, open_regular_file};
use crate::workspace::open_root::OpenRoot;

/// The largest file that is merged, in bytes. Patches have no larger ones.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// How many files are looked for in a folder that a file replaces.
const MAX_REPLACED: usize = 10_000;

/// The files below a folder, which is opened once. Nothing is reached through a link, also if one is swapped in meanwhile.
#[derive(Debug, Clone)]
pub struct TargetFiles {
    root: OpenRoot,
    /// Copies of the folder that were made earlier.
    copies: Vec<PathBuf>,
    /// The names of commits and trees that may have the content that a patch was made from.
    trees: Vec<String>,
    /// The repository around the folder.
    git: Option<TargetRepository>,
}

/// A repository, and the git that reads it.
#[derive(Debug, Clone)]
struct TargetRepository {
    git: GitProgram,
    repository: Repository,
    /// The path of the folder in it.
    prefix: PathBuf,
    /// Made on first use.
    tree: Arc<OnceLock<Option<GitWorkingTree>>>,
}

/// What git knows about the files of a folder.
#[derive(Debug)]
pub struct GitStatus {
    root: OpenRoot,
    tracked: HashSet<PathBuf>,
    changed: HashSet<PathBuf>,
    /// Those in which git was told not to look for changes.
    unwatched: HashSet<PathBuf>,
}

impl GitStatus {
    /// Why git can't restore a file that exists, and what to do: it has changes that aren't committed, or git doesn't track it.
    pub fn obstacle(&self, path: &Path) -> Option<&'static str> {
        let folders = || path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        let is_nested = || folders().any(|folder| self.root.stat(&folder.join(".git")).is_ok());
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
    /// The files below a folder, which exists. Without `git`, what is committed isn't known.
    ///
    /// # Errors
    /// If the folder can't be resolved.
    pub fn new(root: &Path, git: Option<GitProgram>) -> io::Result<Self> {
        Ok(Self::in_folder(OpenRoot::open(root)?, git))
    }

    /// The files below an open folder.
    pub(crate) fn in_folder(root: OpenRoot, git: Option<GitProgram>) -> Self {
        let git = git.zip(Repository::discover(root.path())).map(|(git, repository)| {
            let prefix = root.path().strip_prefix(&repository.worktree).unwrap_or(Path::new("")).to_owned();
            TargetRepository { git, repository, prefix, tree: Arc::default() }
        });
        Self { root, copies: Vec::new(), trees: vec!["HEAD".to_owned()], git }
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
        self.root.path()
    }

    /// Whether something other than a folder is at a path.
    pub fn has_file(&self, path: &Path) -> bool {
        self.root.stat(path).is_ok_and(|found| kind_of(&found) != FileType::Directory)
    }

    /// What git knows about the files; `None` outside of git.
    ///
    /// # Errors
    /// If git fails.
    pub fn git_status(&self) -> io::Result<Option<GitStatus>> {
        if worktree_around(self.root()).is_none() {
            return Ok(None);
        }
        let listed = |output: &[u8], skipped: usize, prefix: &[u8]| -> HashSet<PathBuf> {
            let entries = output.split(|byte| *byte == 0).filter_map(|entry| entry.get(skipped..));
            let entries = entries.filter_map(|path| path.strip_prefix(prefix)).filter(|path| !path.is_empty());
            entries.map(|path| PathBuf::from(OsString::from_vec(path.to_vec()))).collect()
        };
        let Some(target) = &self.git else {
            let found = Repository::discover(self.root()).is_some();
            let why = if found {
                "there is no git in PATH outside of the workspace"
            } else {
                "it isn't a repository that git can use"
            };
            return Err(io::Error::other(why));
        };
        let tree = target.git.working_tree(&target.repository)?;
        let tree = tree.with_index_of(&target.repository)?;
        // The paths are relative to the root of the working tree.
        let mut prefix = target.prefix.as_os_str().as_bytes().to_vec();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        let below = format!(":(top,literal){}", target.prefix.to_string_lossy());
        let status = [
            "status",
            "--porcelain=v1",
            "-z",
            "--no-renames",
            "--untracked-files=no",
            "--ignore-submodules=all",
            "--",
            &below,
        ];
        let status = succeeding(tree.command(&status))?;
        let unchanged = unchanged_filtered_files(&tree, &target.repository).map_err(io::Error::other)?;
        // What is staged counts, whatever the file has.
        let is_changed = |entry: &&[u8]| {
            let path = entry.get("XY ".len()..).map(|path| Path::new(OsStr::from_bytes(path)));
            !entry.starts_with(b" M") || path.is_none_or(|path| !unchanged.contains(path))
        };
        let status: Vec<&[u8]> = status.split(|byte| *byte == 0).filter(is_changed).collect();
        let changed = listed(&status.join(&0), "XY ".len(), &prefix);
        let files = succeeding(tree.command(&["ls-files", "-v", "-z", "--", &below]))?;
        let tracked = listed(&files, "H ".len(), &prefix);
        // In lower case: assume-unchanged. S: skip-worktree.
        let is_unwatched = |entry: &&[u8]| entry.first().is_some_and(|tag| tag.is_ascii_lowercase() || *tag == b'S');
        let unwatched: Vec<&[u8]> = files.split(|byte| *byte == 0).filter(is_unwatched).collect();
        let unwatched = listed(&unwatched.join(&0), "S ".len(), &prefix);
        Ok(Some(GitStatus { root: self.root.clone(), tracked, changed, unwatched }))
    }

    /// Writes the new state of a file: a new file that replaces the old one.
    ///
    /// # Errors
    /// If it can't be written, or the path leads through a symbolic link.
    pub fn write(&self, path: &Path, state: Option<&FileState>) -> io::Result<()> {
        match self.begin_write(path, state)? {
            None => Ok(()),
            Some(write) => {
                write.file().sync_data()?;
                write.finish(false)
            }
        }
    }

    /// Writes the content of a file that isn't there until the write is finished, and must be on the disk by then. Deletes a
    /// file, or creates a link, at once.
    pub(super) fn begin_write(&self, path: &Path, state: Option<&FileState>) -> io::Result<Option<FileWrite>> {
        let Some(state) = state else {
            let (folder, name) = self.open_parent(path)?.ok_or(io::ErrorKind::NotFound)?;
            unlinkat(folder, name, AtFlags::empty())?;
            // Git has no empty folders either.
            for folder in path.ancestors().skip(1).take_while(|folder| !folder.as_os_str().is_empty()) {
                let Ok(Some((above, name))) = self.open_parent(folder) else { break };
                if unlinkat(above, name, AtFlags::REMOVEDIR).is_err() {
                    break;
                }
            }
            return Ok(None);
        };
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        let folder = self.root.create_dir(parent, 0o777).map_err(|error| self.explain(path, error))?;
        if state.kind == FileKind::Link {
            create_link(folder.as_fd(), name, Path::new(OsStr::from_bytes(&state.content)))?;
            return Ok(None);
        }
        let bits: RawMode = if state.kind == FileKind::Executable { 0o111 } else { 0 };
        let before = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let replaced = before.as_ref().filter(|before| kind_of(before) == FileType::RegularFile);
        let mode = replaced.map_or(0o666, |before| before.st_mode & 0o666) | bits;
        let file = CompleteFile::write(folder.as_fd(), &state.content, replaced, mode)?;
        Ok(Some(FileWrite { folder, name: name.to_owned(), before, file }))
    }

    /// Opens the folder above a file; `None` if it doesn't exist. None of the folders may be a link, which could lead elsewhere.
    fn open_parent<'a>(&self, path: &'a Path) -> io::Result<Option<(OwnedFd, &'a OsStr)>> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        match self.root.open_dir(path.parent().unwrap_or(Path::new(""))) {
            Ok(folder) => Ok(Some((folder, name))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.explain(path, error)),
        }
    }

    /// Says which part of a path isn't a folder, if that is why it can't be opened.
    fn explain(&self, path: &Path, error: io::Error) -> io::Error {
        let mut above: Vec<&Path> = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
        above.reverse();
        let is_other = |above: &&Path| self.root.stat(above).is_ok_and(|found| kind_of(&found) != FileType::Directory);
        match above.into_iter().find(is_other) {
            Some(other) => {
                io::Error::new(io::ErrorKind::NotADirectory, format!("`{}` isn't a folder", other.display()))
            }
            None => error,
        }
    }

    /// The files and empty folders in a folder, and the folder itself if there are too many.
    fn list(&self, folder: &Path) -> Vec<PathBuf> {
        let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
        while let Some(next) = folders.pop() {
            let opened = self.root.open_dir(&next).ok();
            let listed = opened.as_ref().and_then(|opened| entries(opened).ok());
            let listed: Vec<_> = listed.into_iter().flatten().flatten().take(MAX_REPLACED + 1).collect();
            if listed.is_empty() {
                found.push(next.clone());
            }
            for (name, kind) in listed {
                (if kind == FileType::Directory { &mut folders } else { &mut found }).push(next.join(name));
            }
            if found.len() + folders.len() > MAX_REPLACED {
                return vec![folder.to_owned()];
            }
        }
        found
    }

    /// The content of an object of git, by any name.
    fn git_content(&self, name: &str) -> Option<Vec<u8>> {
        let TargetRepository { git, repository, .. } = self.git.as_ref()?;
        let read = |arguments: [&str; 3]| {
            let mut command = git.on_objects(&repository.git_dir);
            command.args(arguments);
            succeeding(command).ok()
        };
        let size = read(["cat-file", "-s", name])?;
        let size: u64 = str::from_utf8(&size).ok()?.trim().parse().ok()?;
        if size > MAX_FILE_BYTES { None } else { read(["cat-file", "blob", name]) }
    }

    /// The content of a file in a tree as git would check it out, except for filters.
    fn checked_out(&self, name: &str) -> Option<Vec<u8>> {
        let TargetRepository { git, repository, tree, .. } = self.git.as_ref()?;
        let tree = tree.get_or_init(|| git.working_tree(repository).ok());
        succeeding(tree.as_ref()?.command(&["cat-file", "--filters", name])).ok()
    }
}

/// What a git command prints.
fn succeeding(command: Command) -> io::Result<Vec<u8>> {
    let output = program::run(command)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(printed.lines().find(|line| !line.trim().is_empty()).unwrap_or("git failed").to_owned()))
}

/// A file that is complete except for its name.
pub(super) struct FileWrite {
    folder: OwnedFd,
    name: OsString,
    /// What had the name when the write began.
    before: Option<Stat>,
    file: CompleteFile,
}

impl FileWrite {
    /// The new file.
    pub(super) fn file(&self) -> &File {
        self.file.file()
    }

    /// Gives the file its name. If that is checked, not if another program has changed the old one since the write began.
    pub(super) fn finish(self, is_checked: bool) -> io::Result<()> {
        #[allow(clippy::unnecessary_cast, reason = "the field types differ between systems")]
        let state = |stat: &Stat| {
            (
                stat.st_ino as u64,
                stat.st_size,
                stat.st_mtime,
                stat.st_mtime_nsec as i64,
                stat.st_ctime,
                stat.st_ctime_nsec as i64,
            )
        };
        let now = statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW).ok();
        if is_checked && now.as_ref().map(state) != self.before.as_ref().map(state) {
            return Err(io::Error::other("it changed in the meantime"));
        }
        self.file.persist(&self.name).map(drop)
    }
}

fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

impl FileSource for TargetFiles {
    fn current(&self, path: &Path) -> Result<Option<FileState>, String> {
        let text = |error: io::Error| error.to_string();
        let Some((folder, name)) = self.open_parent(path).map_err(text)? else { return Ok(None) };
        let found = match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            found => found.map_err(|error| text(error.into()))?,
        };
        match kind_of(&found) {
            FileType::Symlink => {
                let link = readlinkat(&folder, name, Vec::new()).map_err(|error| text(error.into()))?;
                return Ok(Some(FileState { content: link.into_bytes(), kind: FileKind::Link }));
            }
            FileType::Directory => return Err("it is a folder".to_owned()),
            _ => {}
        }
        let not_regular = || "it isn't a regular file".to_owned();
        let file = open_regular_file(folder.as_fd(), name).map_err(text)?.ok_or_else(not_regular)?;
        let content = read_at_most(&file, MAX_FILE_BYTES).map_err(text)?.ok_or("it is larger than 16 MiB")?;
        let mode = rustix::fs::fstat(&file).map_err(|error| text(error.into()))?.st_mode;
        let kind = if mode & 0o100 != 0 { FileKind::Executable } else { FileKind::Regular };
        Ok(Some(FileState { content, kind }))
    }

    fn blocker(&self, path: &Path) -> Option<Blocker> {
        let found = |path: &Path| self.root.stat(path).ok().map(|found| kind_of(&found));
        // A link could lead elsewhere, so it isn't known what it means for the file.
        match path.ancestors().skip(1).find_map(found) {
            Some(FileType::RegularFile) => Some(Blocker::FileAbove),
            Some(FileType::Directory) if found(path) == Some(FileType::Directory) => {
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
        let copied = |copy: &PathBuf| read_file(copy, path.to_str()?, MAX_FILE_BYTES).ok().filter(is_wanted);
        let by_name = || self.git_content(object);
        let in_copy = self.copies.iter().find_map(copied);
        // In repositories with SHA-256, no object has this name. Neither has the content of a file that git changes when it
        // checks it out, by its line ends or its encoding.
        let in_tree = |tree: &String| {
            let name = format!("{tree}:{}", self.git.as_ref()?.prefix.join(path).to_str()?);
            let stored = self.git_content(&name)?;
            let crlf = with_crlf(&stored).filter(is_wanted);
            Some(stored).filter(is_wanted).or(crlf).or_else(|| self.checked_out(&name)).filter(is_wanted)
        };
        in_copy.or_else(by_name).or_else(|| self.trees.iter().find_map(in_tree))
    }
}
