//! Worktrees. Only their own folders below `.git/worktrees` and new objects are written, and nothing that the repository
//! configures runs, see [`crate::git::program`].

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::Errno;

use super::commands::{git_error, parse_entries, run};
use super::copy::create_dir;
use super::error::IsolationError;
use super::filtered_files::FilteredList;
use crate::git::program::{GitWorkingTree, SPARSE_FILE};
use crate::git::{GitProgram, Repository, open_regular_file};
use crate::workspace::new_file::{NewFile, PREFIX};
use crate::workspace::open_root::OpenRoot;
use crate::workspace::remove_folder::remove_path;

/// The folder of all workspaces of their own, in the folder of all runs.
pub const WORKSPACES_FOLDER: &str = ".workspaces";

/// Whether a folder is the workspace of its own that a row or a subagent has, or is in one.
pub fn is_own_workspace(folder: &Path) -> bool {
    folder.components().any(|part| part.as_os_str() == WORKSPACES_FOLDER)
}
/// How long to wait for the lock at most. The command of an agent could hold it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Whether the git folder of a repository is where it seems to be. A link could lead to any other repository.
pub(super) fn has_own_git_dir(repository: &Repository) -> bool {
    fs::symlink_metadata(repository.worktree.join(".git")).is_ok_and(|found| !found.is_symlink())
}

/// Whether git ignores a workspace below the root of a repository.
pub(super) fn ignores_workspace(git: &GitProgram, repository: &Repository, workspace: &Path) -> bool {
    let below = workspace.strip_prefix(&repository.worktree).ok().filter(|path| !path.as_os_str().is_empty());
    below.is_some_and(|path| is_ignored(git, repository, path))
}

/// Whether git ignores a file or folder of a repository, given relative to its root.
pub fn is_ignored(git: &GitProgram, repository: &Repository, path: &Path) -> bool {
    let tree = git.working_tree(repository);
    tree.and_then(|tree| tree.with_index_of(repository)).is_ok_and(|tree| is_ignored_in(&tree, path))
}

fn is_ignored_in(tree: &GitWorkingTree, path: &Path) -> bool {
    let path = format!("./{}", path.to_string_lossy());
    run(tree.command(&["check-ignore", "--quiet", "--", &path]), "check-ignore").is_ok()
}

/// The objects of a snapshot.
pub(super) struct WorktreeSnapshot {
    /// The root of the working tree.
    pub(super) repository: PathBuf,
    /// The path of the workspace in it.
    pub(super) subfolder: PathBuf,
    pub(super) commit: String,
    pub(super) tree: String,
}

pub(super) fn take_snapshot(
    git: &GitProgram,
    workspace: &Path,
    excluded: &[PathBuf],
) -> Result<WorktreeSnapshot, IsolationError> {
    let workspace = workspace.canonicalize().map_err(IsolationError::io(workspace))?;
    let repository = Repository::discover(&workspace).filter(has_own_git_dir);
    let repository = repository.ok_or(IsolationError::NotARepository)?;
    let root = repository.worktree.clone();
    let subfolder = workspace.strip_prefix(&root).unwrap_or(Path::new("")).to_owned();
    let commit = git.head(&repository).map_err(git_error("rev-parse"))?.ok_or(IsolationError::NoCommit)?;
    let tree = git.working_tree(&repository).and_then(|tree| tree.with_index_of(&repository));
    let tree = tree.map_err(git_error("ls-files"))?;
    if !subfolder.as_os_str().is_empty() && is_ignored_in(&tree, &subfolder) {
        return Err(IsolationError::Ignored);
    }
    let is_sparse = repository.git_dir.join(SPARSE_FILE).exists();
    let listing = run(tree.command(&["ls-files", "-v", "-s", "-z"]), "ls-files")?;
    for (option, paths) in unwatched_files(&root, &listing, is_sparse) {
        // Otherwise `add` leaves out what has changed in these files.
        update_index(&tree, option, &paths)?;
    }
    // `add` would run git in it, with its configuration. The commit of a nested repository isn't part of a snapshot.
    update_index(&tree, "--assume-unchanged", &nested_repositories(&listing))?;
    let filtered = FilteredList::read(&tree)?.split(&repository);
    update_index(&tree, "--assume-unchanged", &filtered.unchanged)?;
    update_index(&tree, "--index-info", &filtered.taken)?;
    let pathspecs: Vec<String> = excluded
        .iter()
        .filter_map(|path| path.strip_prefix(&root).ok())
        .filter(|path| !path.as_os_str().is_empty())
        // `git add` fails if it is given an ignored path, even one to leave out.
        .filter(|path| !is_ignored_in(&tree, path))
        .map(|path| format!(":(exclude,literal,top){}", path.to_string_lossy()))
        .collect();
    let mut add = vec!["add", "--all"];
    // In a sparse checkout, git refuses files outside of it without this. Older gits don't know it, and need it nowhere else.
    if is_sparse {
        add.push("--sparse");
    }
    add.extend(["--", ":/"]);
    add.extend(pathspecs.iter().map(String::as_str));
    run(tree.command(&add), "add")?;
    let written = run(tree.command(&["write-tree"]), "write-tree")?;
    let written = String::from_utf8_lossy(&written).trim_end().to_owned();
    Ok(WorktreeSnapshot { repository: root, subfolder, commit, tree: written })
}

/// Changes entries of the index. `input` is what this option of `update-index` reads, with NUL characters.
fn update_index(tree: &GitWorkingTree, option: &str, input: &[u8]) -> Result<(), IsolationError> {
    if input.is_empty() {
        return Ok(());
    }
    let mut file = tempfile::tempfile_in(tree.temporary()).map_err(IsolationError::io(tree.temporary()))?;
    let written = file.write_all(input).and_then(|()| file.seek(SeekFrom::Start(0)));
    written.map_err(IsolationError::io(tree.temporary()))?;
    let arguments: &[&str] = if option == "--index-info" {
        &["update-index", "-z", option]
    } else {
        &["update-index", "-z", option, "--stdin"]
    };
    let mut command = tree.command(arguments);
    command.stdin(file);
    run(command, "update-index").map(drop)
}

/// The files in which git was told not to look for changes, each list with the option of `update-index` that makes it look.
/// What a sparse checkout leaves out isn't among them.
fn unwatched_files(root: &Path, listing: &[u8], is_sparse: bool) -> Vec<(&'static str, Vec<u8>)> {
    let (mut unchanged, mut skipped) = (Vec::new(), Vec::new());
    for (tag, _, _, path) in parse_entries(listing) {
        if tag.is_ascii_lowercase() {
            unchanged.extend([path, b"\0"].concat());
        }
        let exists = || fs::symlink_metadata(root.join(OsStr::from_bytes(path))).is_ok();
        if tag.eq_ignore_ascii_case(&b's') && (!is_sparse || exists()) {
            skipped.extend([path, b"\0"].concat());
        }
    }
    let lists = [("--no-assume-unchanged", unchanged), ("--no-skip-worktree", skipped)];
    lists.into_iter().filter(|(_, paths)| !paths.is_empty()).collect()
}

/// The paths of the submodules and nested repositories in an index.
fn nested_repositories(listing: &[u8]) -> Vec<u8> {
    let nested = parse_entries(listing).filter(|(_, mode, ..)| *mode == b"160000");
    nested.flat_map(|(.., path)| [path, b"\0"].concat()).collect()
}

pub(super) fn has_tree(git: &GitProgram, repository: &Path, tree: &str) -> bool {
    let Some(repository) = Repository::discover(repository) else { return false };
    let mut command = git.on_objects(&repository.common_dir);
    command.args(["cat-file", "-e", &format!("{tree}^{{tree}}")]);
    run(command, "cat-file").is_ok()
}

/// The paths of the repositories in a tree that have files in the working tree.
pub(super) fn missing_repositories(git: &GitProgram, repository: &Path, tree: &str) -> Vec<String> {
    let Some(found) = Repository::discover(repository) else { return Vec::new() };
    let mut command = git.on_objects(&found.common_dir);
    command.args(["ls-tree", "-r", "-z", tree]);
    let listing = run(command, "ls-tree").unwrap_or_default();
    let entries = listing.split(|byte| *byte == 0).filter(|entry| entry.starts_with(b"160000 "));
    let paths = entries.filter_map(|entry| entry.splitn(2, |byte| *byte == b'\t').nth(1)).map(OsStr::from_bytes);
    let has_files = |path: &&OsStr| fs::read_dir(repository.join(path)).is_ok_and(|mut files| files.next().is_some());
    paths.filter(has_files).map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Adds a worktree at a commit, with the files of a tree. What differs from the commit is uncommitted there, too.
pub(super) fn add(
    git: &GitProgram,
    repository: &Path,
    out: &OpenRoot,
    target: &Path,
    commit: &str,
    tree: &str,
) -> Result<(), IsolationError> {
    let repository = Repository::discover(repository).ok_or(IsolationError::NotARepository)?;
    let folder = create_dir(out, target)?;
    let files = git.filled_tree(&repository, target, folder.folder()).map_err(git_error("read-tree"))?;
    let note = WorktreeList::lock(&repository).add(&repository, &folder, commit, &files)?;
    run(files.command(&["read-tree", "--reset", "-u", tree]), "read-tree")?;
    // With `--reset`, the files that a sparse checkout leaves out don't count as deleted.
    run(files.command(&["read-tree", "--reset", commit]), "read-tree")?;
    // Without this, every file would look changed until git compares its content.
    let _ = run(files.command(&["update-index", "--quiet", "--refresh", "--unmerged"]), "update-index");
    FilteredList::read(&files)?.fill(&repository, &folder, &files)?;
    let index = note.join("index");
    let bytes = fs::read(files.index()).map_err(IsolationError::io(files.index()))?;
    File::create_new(&index).and_then(|mut file| file.write_all(&bytes)).map_err(IsolationError::io(&index))
}

/// Removes git's notes of the worktrees for which `is_gone` is true.
pub(super) fn forget(repository: &Path, is_gone: impl Fn(&Path) -> bool) -> Result<(), IsolationError> {
    let Some(repository) = Repository::discover(repository) else { return Ok(()) };
    let list = WorktreeList::lock(&repository);
    let gone: Vec<_> = list.entries().filter(|(_, worktree)| is_gone(worktree)).collect();
    gone.iter().try_for_each(|(entry, worktree)| list.remove(entry, worktree))
}

/// Writes a file that must not exist yet.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    File::create_new(path)?.write_all(text.as_bytes())
}

/// Git's notes of the worktrees of a repository, locked. Git reads all of them when it adds one, and fails if it finds one that
/// another process is about to write or to remove.
struct WorktreeList {
    folder: PathBuf,
    /// The repository's folder.
    _lock: Option<File>,
}

impl WorktreeList {
    /// Waits for the lock. On a file system without locks, or after [`LOCK_TIMEOUT`], this succeeds without protecting anything.
    fn lock(repository: &Repository) -> Self {
        let lock = File::open(&repository.common_dir).ok();
        let start = Instant::now();
        while lock
            .as_ref()
            .is_some_and(|lock| flock(lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK))
            && start.elapsed() < LOCK_TIMEOUT
        {
            std::thread::sleep(LOCK_POLL_INTERVAL);
        }
        Self { folder: repository.common_dir.join("worktrees"), _lock: lock }
    }

    /// Adds a note of a worktree, as `git worktree add --detach --no-checkout` does, and its `.git` file. Git would obey the
    /// hooks of the repository. Returns the note's folder.
    fn add(
        &self,
        repository: &Repository,
        folder: &OpenRoot,
        commit: &str,
        files: &GitWorkingTree,
    ) -> Result<PathBuf, IsolationError> {
        self.remove_incomplete();
        let target = &folder.path().canonicalize().map_err(IsolationError::io(folder.path()))?;
        fs::create_dir_all(&self.folder).map_err(IsolationError::io(&self.folder))?;
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        let name: String = name.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).collect();
        let mut note = self.folder.join(&name);
        let mut number = 0;
        while let Err(error) = fs::create_dir(&note) {
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(IsolationError::io(&note)(error));
            }
            number += 1;
            note = self.folder.join(format!("{name}{number}"));
        }
        let mut texts = vec![
            // Whose it is comes first, and `commondir` last, so that what a killed process leaves is recognized.
            ("gitdir", format!("{}\n", target.join(".git").display())),
            ("HEAD", format!("{commit}\n")),
        ];
        if let Some(patterns) = open_regular_file(&repository.git_dir.join(SPARSE_FILE)) {
            let mut text = String::new();
            let mut patterns = patterns;
            patterns.read_to_string(&mut text).map_err(IsolationError::io(&note))?;
            fs::create_dir(note.join("info")).map_err(IsolationError::io(&note))?;
            texts.push((SPARSE_FILE, text));
            if repository.has_worktree_config() {
                let setting =
                    |key: &str| files.setting(&key.to_lowercase()).map(|value| value == "true").unwrap_or_default();
                let [sparse, cone, index] =
                    ["core.sparseCheckout", "core.sparseCheckoutCone", "index.sparse"].map(setting);
                texts.push((
                    "config.worktree",
                    format!("[core]\n\tsparseCheckout = {sparse}\n\tsparseCheckoutCone = {cone}\n[index]\n\tsparse = {index}\n"),
                ));
            }
        }
        texts.push(("commondir", "../..\n".to_owned()));
        for (name, text) in texts {
            let path = note.join(name);
            write_new(&path, &text).map_err(IsolationError::io(&path))?;
        }
        let dot_git = target.join(".git");
        let write = || {
            let file = NewFile::create(folder.folder(), PREFIX, Mode::from_raw_mode(0o666))?;
            file.file().write_all(format!("gitdir: {}\n", note.display()).as_bytes())?;
            file.persist(".git".as_ref()).map(drop)
        };
        write().map_err(IsolationError::io(&dot_git))?;
        Ok(note)
    }

    /// The notes, and the folder that each belongs to.
    fn entries(&self) -> impl Iterator<Item = (PathBuf, PathBuf)> {
        fs::read_dir(&self.folder).into_iter().flatten().flatten().filter_map(|entry| {
            let text = fs::read_to_string(entry.path().join("gitdir")).ok()?;
            Some((entry.path(), Path::new(text.trim_end_matches('\n')).parent()?.to_owned()))
        })
    }

    /// Removes the note of a worktree.
    fn remove(&self, entry: &Path, worktree: &Path) -> Result<(), IsolationError> {
        let remove = |path: &Path| remove_path(path).map_err(IsolationError::io(path));
        // Moved at once, so that nothing of it stays here if this process is killed. The worktree is removed next.
        let moved = worktree.join(".legwork-note");
        if fs::rename(entry, &moved).is_ok() {
            remove(&moved)?;
        } else {
            // By `gitdir` it is found again.
            for file in fs::read_dir(entry).into_iter().flatten().flatten().filter(|file| file.file_name() != "gitdir")
            {
                let path = file.path();
                match fs::remove_file(&path) {
                    Ok(()) => {}
                    Err(_) => remove(&path)?,
                }
            }
            remove(entry)?;
        }
        // As git does. This fails if there are others.
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }

    /// Removes the notes that a killed git hasn't finished. Every later git would fail because of them. Only our own are removed.
    fn remove_incomplete(&self) {
        for (entry, worktree) in self.entries() {
            let is_incomplete = fs::metadata(entry.join("commondir")).map_or(true, |file| file.len() == 0);
            if is_incomplete && is_own_workspace(&worktree) {
                // If it can't be removed, git says what is wrong with it.
                let _ = self.remove(&entry, &worktree);
            }
        }
    }
}
