//! Makes a workspace a git repository. Names and times are fixed, and so are the ids of the commits.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};

use super::expect::Commit;
use super::fixture;

/// The time of the first commit, in seconds since 1970: the start of 2026. Each further commit is a minute later.
const FIRST_COMMIT_TIME: u64 = 1_767_225_600;

/// Makes the workspace a repository with these commits. If none of them uses the folder `workspace`, its files are added
/// uncommitted. `path` is the `PATH` for git.
///
/// # Errors
/// Git is missing or fails.
pub(super) fn create_repository(case: &Path, workspace: &Path, commits: &[Commit], path: &str) -> Result<(), String> {
    let git = |arguments: &[&str], at: u64| -> Result<(), String> {
        let time = format!("{} +0000", FIRST_COMMIT_TIME + at * 60);
        let mut command = Command::new("git");
        command
            .args(["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "gc.auto=0"])
            .args(arguments)
            .current_dir(workspace)
            .env_clear()
            .env("PATH", path)
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_AUTHOR_DATE", &time)
            .env("GIT_COMMITTER_DATE", &time)
            .stdin(Stdio::null());
        for role in ["AUTHOR", "COMMITTER"] {
            command
                .env(format!("GIT_{role}_NAME"), "legwork test")
                .env(format!("GIT_{role}_EMAIL"), "test@example.org");
        }
        let output = command.output().map_err(|error| format!("git can't be started: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(format!("`git {}` failed: {stderr}", arguments.join(" ")))
    };
    let copy = |folder: &str| {
        let from = case.join(folder);
        let copied = fixture::copy_fixture(&from, workspace);
        copied.map_err(|error| format!("can't copy {folder}: {error}"))
    };
    git(&["-c", "init.defaultBranch=main", "init", "--quiet", "--template="], 0)?;
    for (number, commit) in (0..).zip(commits) {
        if case.join(commit.folder()).exists() {
            copy(commit.folder())?;
        }
        for name in &commit.remove {
            delete(&workspace.join(&name.value)).map_err(|error| format!("can't remove {}: {error}", name.value))?;
        }
        git(&["add", "--all"], number)?;
        git(&["commit", "--quiet", "--allow-empty", "--message", &commit.message.value], number)?;
        if let Some(tag) = &commit.tag {
            git(&["tag", "--no-sign", &tag.value], number)?;
        }
    }
    let is_committed = commits.iter().any(|commit| commit.folder() == super::WORKSPACE_FOLDER);
    if !is_committed && case.join(super::WORKSPACE_FOLDER).exists() {
        copy(super::WORKSPACE_FOLDER)?;
    }
    Ok(())
}

fn delete(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}
