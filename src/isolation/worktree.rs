//! Worktrees, made by the user's own git. Hooks are off, and only the worktrees' own folders below `.git/worktrees` and new
//! objects are written.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::copy::{create_dir, remove_tree};
use super::error::IsolationError;
use crate::git::{CALLER_VARIABLES, Repository};
use crate::workspace::open_root::OpenRoot;
use crate::workspace::remove_folder::remove_path;

/// The folder of all workspaces of their own, in the folder of all runs.
pub const WORKSPACES_FOLDER: &str = ".workspaces";

/// Whether a folder is the workspace of its own that a row or a subagent has, or is in one.
pub fn is_own_workspace(folder: &Path) -> bool {
    folder.components().any(|part| part.as_os_str() == WORKSPACES_FOLDER)
}
/// How often git may find the list of worktrees changing, because the user's own git doesn't take our lock.
const MAX_ATTEMPTS: u32 = 5;
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// How long to wait for the lock at most. The command of an agent could hold it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How many of the last lines of what a failed git command prints are reported. The reason is often not in the last one.
const REPORTED_LINES: usize = 4;

/// A git command with the settings that all commands here have.
fn git(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .args(["--no-pager", "--no-optional-locks"])
        .args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0"])
        .args(["-c", "advice.detachedHead=false", "-c", "worktree.useRelativePaths=false", "-c", "core.safecrlf=false"])
        // It would leave an index of its own in the user's git folder.
        .args(["-c", "core.splitIndex=false"])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null());
    for variable in CALLER_VARIABLES {
        command.env_remove(variable);
    }
    command
}

/// Runs a git command and returns what it prints.
fn run(command: Command, name: &'static str) -> Result<String, IsolationError> {
    let output = try_run(command, name)?;
    if !output.status.success() {
        return Err(failure(&output, name));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
}

/// Runs a git command that may fail.
fn try_run(mut command: Command, name: &'static str) -> Result<Output, IsolationError> {
    command.output().map_err(|error| IsolationError::Git { command: name, message: error.to_string() })
}

/// Why a git command has failed.
fn failure(output: &Output, name: &'static str) -> IsolationError {
    let printed = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(REPORTED_LINES)..].join("; ").replace(":; ", ": ");
    let message = if last.is_empty() { "it printed nothing".to_owned() } else { last };
    IsolationError::Git { command: name, message }
}

/// Whether git ignores a workspace below the root of a repository.
pub(super) fn ignores_workspace(root: &Path, workspace: &Path) -> bool {
    workspace.strip_prefix(root).is_ok_and(|path| !path.as_os_str().is_empty() && is_ignored(root, path))
}

/// Whether git ignores a file or folder of a repository, given relative to its root.
pub fn is_ignored(root: &Path, path: &Path) -> bool {
    let path = format!("./{}", path.to_string_lossy());
    run(git(root, &["check-ignore", "--quiet", "--", &path]), "check-ignore").is_ok()
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
    workspace: &Path,
    out: &OpenRoot,
    folder: &Path,
    excluded: &[PathBuf],
) -> Result<WorktreeSnapshot, IsolationError> {
    let workspace = workspace.canonicalize().map_err(IsolationError::io(workspace))?;
    let repository = Repository::discover(&workspace).ok_or(IsolationError::NotARepository)?;
    let root = repository.worktree;
    let subfolder = workspace.strip_prefix(&root).unwrap_or(Path::new("")).to_owned();
    let head = try_run(git(&root, &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]), "rev-parse")?;
    if !head.status.success() {
        // Without a commit, git prints nothing. It says so if it refuses the repository, for example because of its owner.
        return Err(if head.stderr.is_empty() { IsolationError::NoCommit } else { failure(&head, "rev-parse") });
    }
    let commit = String::from_utf8_lossy(&head.stdout).trim_end().to_owned();
    if ignores_workspace(&root, &workspace) {
        return Err(IsolationError::Ignored);
    }
    create_dir(out, folder)?;
    let temporary =
        tempfile::Builder::new().prefix(".index-").tempdir_in(folder).map_err(IsolationError::io(folder))?;
    let index = temporary.path().join("index");
    // The user's index knows which files haven't changed, which saves reading them all.
    let _ = copy_with_time(&repository.git_dir.join("index"), &index);
    let with_index = |arguments: &[&str]| {
        let mut command = git(&root, arguments);
        command.env("GIT_INDEX_FILE", &index);
        command
    };
    let is_sparse = repository.git_dir.join("info/sparse-checkout").exists();
    let listing = try_run(with_index(&["ls-files", "-v", "-z"]), "ls-files")?.stdout;
    for (option, paths) in unwatched_files(&root, &listing, is_sparse) {
        // Otherwise `add` leaves out what has changed in these files.
        let list = temporary.path().join("paths");
        fs::write(&list, paths).map_err(IsolationError::io(&list))?;
        let mut command = with_index(&["update-index", "-z", option, "--stdin"]);
        command.stdin(File::open(&list).map_err(IsolationError::io(&list))?);
        run(command, "update-index")?;
    }
    let pathspecs: Vec<String> = excluded
        .iter()
        .filter_map(|path| path.strip_prefix(&root).ok())
        .filter(|path| !path.as_os_str().is_empty())
        // `git add` fails if it is given an ignored path, even one to leave out.
        .filter(|path| !is_ignored(&root, path))
        .map(|path| format!(":(exclude,literal,top){}", path.to_string_lossy()))
        .collect();
    let mut add = vec!["add", "--all"];
    // In a sparse checkout, git refuses files outside of it without this. Older gits don't know it, and need it nowhere else.
    if is_sparse {
        add.push("--sparse");
    }
    add.extend(["--", ":/"]);
    add.extend(pathspecs.iter().map(String::as_str));
    run(with_index(&add), "add")?;
    let tree = run(with_index(&["write-tree"]), "write-tree")?;
    Ok(WorktreeSnapshot { repository: root, subfolder, commit, tree })
}

/// Copies an index with its time: git reads again what was written in the same second as the index or later.
fn copy_with_time(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = File::create_new(to)?;
    io::copy(&mut source, &mut target)?;
    target.set_modified(source.metadata()?.modified()?)
}

/// The files in which git was told not to look for changes, each list with the option of `update-index` that makes it look.
/// `listing` is from `ls-files -v -z`. What a sparse checkout leaves out isn't among them.
fn unwatched_files(root: &Path, listing: &[u8], is_sparse: bool) -> Vec<(&'static str, Vec<u8>)> {
    let (mut unchanged, mut skipped) = (Vec::new(), Vec::new());
    for entry in listing.split_inclusive(|byte| *byte == 0) {
        let [tag, b' ', path @ .., 0] = entry else { continue };
        if tag.is_ascii_lowercase() {
            unchanged.extend_from_slice(&entry[2..]);
        }
        let exists = || fs::symlink_metadata(root.join(OsStr::from_bytes(path))).is_ok();
        if tag.eq_ignore_ascii_case(&b's') && (!is_sparse || exists()) {
            skipped.extend_from_slice(&entry[2..]);
        }
    }
    let lists = [("--no-assume-unchanged", unchanged), ("--no-skip-worktree", skipped)];
    lists.into_iter().filter(|(_, paths)| !paths.is_empty()).collect()
}

pub(super) fn has_tree(repository: &Path, tree: &str) -> bool {
    run(git(repository, &["cat-file", "-e", &format!("{tree}^{{tree}}")]), "cat-file").is_ok()
}

/// The paths of the repositories in a tree that have files in the working tree.
pub(super) fn missing_repositories(repository: &Path, tree: &str) -> Vec<String> {
    let listing = try_run(git(repository, &["ls-tree", "-r", "-z", tree]), "ls-tree").map(|output| output.stdout);
    let listing = listing.unwrap_or_default();
    let entries = listing.split(|byte| *byte == 0).filter(|entry| entry.starts_with(b"160000 "));
    let paths = entries.filter_map(|entry| entry.splitn(2, |byte| *byte == b'\t').nth(1)).map(OsStr::from_bytes);
    let has_files = |path: &&OsStr| fs::read_dir(repository.join(path)).is_ok_and(|mut files| files.next().is_some());
    paths.filter(has_files).map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Adds a worktree at a commit, with the files of a tree. What differs from the commit is uncommitted there, too.
pub(super) fn add(
    repository: &Path,
    out: &OpenRoot,
    target: &Path,
    commit: &str,
    tree: &str,
) -> Result<(), IsolationError> {
    let path = target.to_string_lossy();
    let mut attempt = 1;
    loop {
        let lock = WorktreeList::lock(repository);
        let mut command = git(repository, &["worktree", "add", "--quiet", "--detach", "--no-checkout", &path, commit]);
        if let Some(list) = &lock {
            list.remove_incomplete();
            // If this process is killed, git still holds the lock until it has ended.
            command.stdin(list.lock.try_clone().map_err(IsolationError::io(repository))?);
        }
        match run(command, "worktree add") {
            Ok(_) => break,
            Err(error) if attempt == MAX_ATTEMPTS => return Err(error),
            Err(_) => attempt += 1,
        }
        drop(lock);
        // What the failed command has left is in the way of the next one.
        forget(repository, |worktree| worktree == target)?;
        remove_tree(out, target)?;
        std::thread::sleep(RETRY_DELAY);
    }
    run(git(target, &["read-tree", "--reset", "-u", tree]), "read-tree")?;
    // With `--reset`, the files that a sparse checkout leaves out don't count as deleted.
    run(git(target, &["read-tree", "--reset", commit]), "read-tree")?;
    // Without this, every file would look changed until git compares its content.
    run(git(target, &["update-index", "--quiet", "--refresh", "--unmerged"]), "update-index").map(drop).or(Ok(()))
}

/// Removes git's notes of the worktrees for which `is_gone` is true.
pub(super) fn forget(repository: &Path, is_gone: impl Fn(&Path) -> bool) -> Result<(), IsolationError> {
    let Some(list) = WorktreeList::lock(repository) else { return Ok(()) };
    let gone: Vec<_> = list.entries().filter(|(_, worktree)| is_gone(worktree)).collect();
    gone.iter().try_for_each(|(entry, worktree)| list.remove(entry, worktree))
}

/// Git's notes of the worktrees of a repository, locked. Git reads all of them when it adds one, and fails if it finds one that
/// another process is about to write or to remove.
struct WorktreeList {
    folder: PathBuf,
    /// The repository's folder.
    lock: File,
}

impl WorktreeList {
    /// Waits for the lock. On a file system without locks, or after [`LOCK_TIMEOUT`], this succeeds without protecting anything.
    fn lock(repository: &Path) -> Option<Self> {
        let git_dir = Repository::discover(repository)?.common_dir;
        let lock = File::open(&git_dir).ok()?;
        let start = Instant::now();
        while flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK)
            && start.elapsed() < LOCK_TIMEOUT
        {
            std::thread::sleep(LOCK_POLL_INTERVAL);
        }
        Some(Self { folder: git_dir.join("worktrees"), lock })
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
