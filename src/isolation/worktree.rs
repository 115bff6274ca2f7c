//! Worktrees, made by the user's own git. Hooks are off, and only the worktrees' own folders below `.git/worktrees` and new
//! objects are written.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::copy::remove_tree;
use super::error::IsolationError;
use crate::git::Repository;

/// A git command with the settings that all commands here have.
fn git(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .args(["--no-pager", "--no-optional-locks"])
        .args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0"])
        .args(["-c", "advice.detachedHead=false"])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null());
    // A variable of the caller's could name another repository.
    for variable in
        ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX"]
    {
        command.env_remove(variable);
    }
    command
}

/// Runs a git command and returns what it prints.
fn run(mut command: Command, name: &'static str) -> Result<String, IsolationError> {
    let failed = |message: String| IsolationError::Git { command: name, message };
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        let last = printed.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
        return Err(failed(last.trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
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
    folder: &Path,
    excluded: &[PathBuf],
) -> Result<WorktreeSnapshot, IsolationError> {
    let workspace = workspace.canonicalize().map_err(IsolationError::io(workspace))?;
    let repository = Repository::discover(&workspace).ok_or(IsolationError::NotARepository)?;
    let root = repository.worktree;
    let subfolder = workspace.strip_prefix(&root).unwrap_or(Path::new("")).to_owned();
    let commit = run(git(&root, &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]), "rev-parse")
        .map_err(|_| IsolationError::NoCommit)?;
    std::fs::create_dir_all(folder).map_err(IsolationError::io(folder))?;
    let temporary =
        tempfile::Builder::new().prefix(".index-").tempdir_in(folder).map_err(IsolationError::io(folder))?;
    let index = temporary.path().join("index");
    // The user's index knows which files haven't changed, which saves reading them all.
    let _ = std::fs::copy(repository.git_dir.join("index"), &index);
    let with_index = |arguments: &[&str]| {
        let mut command = git(&root, arguments);
        command.env("GIT_INDEX_FILE", &index);
        command
    };
    let pathspecs: Vec<String> = excluded
        .iter()
        .filter_map(|path| path.strip_prefix(&root).ok())
        .filter(|path| !path.as_os_str().is_empty())
        // `git add` fails if it is given an ignored path, even one to leave out.
        .filter(|path| {
            let path = format!("./{}", path.to_string_lossy());
            run(git(&root, &["check-ignore", "--quiet", "--", &path]), "check-ignore").is_err()
        })
        .map(|path| format!(":(exclude,literal,top){}", path.to_string_lossy()))
        .collect();
    let mut add = vec!["add", "--all", "--", ":/"];
    add.extend(pathspecs.iter().map(String::as_str));
    run(with_index(&add), "add")?;
    let tree = run(with_index(&["write-tree"]), "write-tree")?;
    Ok(WorktreeSnapshot { repository: root, subfolder, commit, tree })
}

pub(super) fn has_tree(repository: &Path, tree: &str) -> bool {
    run(git(repository, &["cat-file", "-e", &format!("{tree}^{{tree}}")]), "cat-file").is_ok()
}

/// Adds a worktree at a commit, with the files of a tree. What differs from the commit is uncommitted there, too.
pub(super) fn add(repository: &Path, target: &Path, commit: &str, tree: &str) -> Result<(), IsolationError> {
    let path = target.to_string_lossy();
    run(git(repository, &["worktree", "add", "--quiet", "--detach", "--no-checkout", &path, commit]), "worktree add")?;
    run(git(target, &["read-tree", "--reset", "-u", tree]), "read-tree")?;
    run(git(target, &["read-tree", commit]), "read-tree")?;
    // Without this, every file would look changed until git compares its content.
    run(git(target, &["update-index", "--quiet", "--refresh", "--unmerged"]), "update-index").map(drop).or(Ok(()))
}

/// Removes git's note of a worktree whose folder is gone.
pub(super) fn forget(repository: &Path, target: &Path) -> Result<(), IsolationError> {
    let Some(found) = Repository::discover(repository) else { return Ok(()) };
    let dot_git = target.join(".git");
    for entry in std::fs::read_dir(found.common_dir.join("worktrees")).into_iter().flatten().flatten() {
        let names_target = std::fs::read_to_string(entry.path().join("gitdir"))
            .is_ok_and(|text| Path::new(text.trim_end_matches('\n')) == dot_git);
        if names_target {
            remove_tree(&entry.path())?;
        }
    }
    Ok(())
}
