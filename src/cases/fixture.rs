//! Fixtures: the initial files of a workspace, and its commits.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::expect::{Commit, WORKSPACE_FOLDER};
use crate::git::{GitProgram, is_dot_git, program, worktree_around};
use crate::workspace::open_root::OpenRoot;
use crate::workspace::tree_copy::{CopyRules, copy_tree};

/// The most files and folders of a fixture.
const MAX_ENTRIES: usize = 50_000;
/// The most bytes of a fixture.
const MAX_BYTES: u64 = 1 << 30;

/// The prefix that replaces `.git` in the names of fixture files, as git would obey a `.gitignore` in a fixture:
/// `dot-gitignore` becomes `.gitignore` in the workspace, and `dot-git` becomes `.git`.
const ESCAPED_GIT_PREFIX: &str = "dot-git";

/// Converts a name in a fixture to the name in the workspace.
pub fn unescape_name(name: &str) -> String {
    match name.strip_prefix(ESCAPED_GIT_PREFIX) {
        Some(rest) => format!(".git{rest}"),
        None => name.to_owned(),
    }
}

/// Converts a name in the workspace to the name in a fixture; `None` if there is no such name.
pub fn escape_name(name: &str) -> Option<String> {
    match name.strip_prefix(".git") {
        Some(rest) => Some(format!("{ESCAPED_GIT_PREFIX}{rest}")),
        None => (!name.starts_with(ESCAPED_GIT_PREFIX)).then(|| name.to_owned()),
    }
}

/// Converts a path in the workspace to the path in a fixture.
pub fn escape_path(path: &Path) -> Option<PathBuf> {
    path.iter().map(|part| part.to_str().and_then(escape_name)).collect()
}

/// Copies a fixture over the files in a folder, and unescapes names. Keeps symbolic links and executable bits.
///
/// # Errors
/// A file can't be copied or isn't a regular file, folder or link, the fixture is too large, or `from` is a symbolic link
/// out of the repository.
pub fn copy_fixture(from: &Path, to: &Path) -> io::Result<()> {
    require_inside_repository(from.parent().unwrap_or(from), from)?;
    copy(from, to, |name| name.to_str().map_or_else(|| name.to_owned(), |name| unescape_name(name).into()))
}

/// Copies a folder like [`copy_fixture`], but keeps the names.
///
/// # Errors
/// As for [`copy_fixture`].
pub fn copy_verbatim(from: &Path, to: &Path) -> io::Result<()> {
    copy(from, to, OsStr::to_owned)
}

/// Checks that a path of a case is in the repository, or without one, in the folder of its jobs, so that a symbolic link
/// can't reveal or overwrite other files. The path needn't exist.
///
/// # Errors
/// The path leads elsewhere.
pub(super) fn require_inside_repository(case: &Path, path: &Path) -> io::Result<()> {
    // The case is in JOBS/tests/JOB/CASE.
    let jobs = case.ancestors().nth(3).unwrap_or(case).canonicalize()?;
    let root = worktree_around(&jobs).unwrap_or(&jobs);
    let existing = path.ancestors().find(|part| fs::symlink_metadata(part).is_ok()).unwrap_or(path);
    if existing.canonicalize()?.starts_with(root) {
        return Ok(());
    }
    Err(io::Error::other("it is behind a symbolic link out of the repository"))
}

fn copy(from: &Path, to: &Path, rename: fn(&OsStr) -> OsString) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let (from, to) = (OpenRoot::open(&from.canonicalize()?)?, OpenRoot::open(&to.canonicalize()?)?);
    let rules = CopyRules {
        rename,
        replaces: true,
        needs_regular: true,
        // It may come from a read-only checkout.
        added_modes: (0o600, 0o700),
        most: (MAX_ENTRIES, MAX_BYTES),
        ..CopyRules::EXACT
    };
    copy_tree(&from, &to, &rules)
        .map_err(|(path, error)| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// The time of the first commit, in seconds since 1970: the start of 2026. Each further commit is a minute later.
const FIRST_COMMIT_TIME: u64 = 1_767_225_600;

/// Makes the workspace a repository with these commits. If none of them uses the folder `workspace`, its files are added
/// uncommitted.
///
/// # Errors
/// Git is missing or fails, or a repository is in the files.
pub(super) fn create_repository(
    case: &Path,
    workspace: &Path,
    commits: &[Commit],
    git: Option<&GitProgram>,
) -> Result<(), String> {
    let program = git.ok_or("git is missing: it isn't in PATH, or only where commands can change it")?;
    let git = |arguments: &[&str], at: u64| -> Result<(), String> {
        let time = format!("{} +0000", FIRST_COMMIT_TIME + at * 60);
        let mut command = program.in_own_repository(workspace);
        command
            .args(["-c", "commit.gpgSign=false"])
            .args(arguments)
            .env("GIT_AUTHOR_DATE", &time)
            .env("GIT_COMMITTER_DATE", &time);
        for role in ["AUTHOR", "COMMITTER"] {
            command
                .env(format!("GIT_{role}_NAME"), "legwork test")
                .env(format!("GIT_{role}_EMAIL"), "test@example.org");
        }
        let output = program::run(command).map_err(|error| format!("git can't be started: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(format!("`git {}` failed: {stderr}", arguments.join(" ")))
    };
    let copy = |folder: &str| {
        let from = case.join(folder);
        // Git would run what its configuration names.
        if let Some(found) = repository_in(&from) {
            return Err(format!("the files of a commit can't have a git folder: {}", found.display()));
        }
        let copied = copy_fixture(&from, workspace);
        copied.map_err(|error| format!("can't copy {folder}: {error}"))
    };
    git(&["-c", "init.defaultBranch=main", "init", "--quiet", "--template="], 0)?;
    for (number, commit) in (0..).zip(commits) {
        if case.join(commit.folder()).exists() {
            copy(commit.folder())?;
        }
        for name in &commit.remove {
            delete(workspace, name.value.as_ref()).map_err(|error| format!("can't remove {}: {error}", name.value))?;
        }
        git(&["add", "--all"], number)?;
        git(&["commit", "--quiet", "--allow-empty", "--message", &commit.message.value], number)?;
        if let Some(tag) = &commit.tag {
            git(&["tag", "--no-sign", &tag.value], number)?;
        }
    }
    let is_committed = commits.iter().any(|commit| commit.folder() == WORKSPACE_FOLDER);
    if !is_committed && case.join(WORKSPACE_FOLDER).exists() {
        copy(WORKSPACE_FOLDER)?;
    }
    Ok(())
}

/// A git folder, or a file that refers to one, in the files of a fixture.
fn repository_in(fixture: &Path) -> Option<PathBuf> {
    let mut folders = vec![fixture.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if is_dot_git(unescape_name(&name.to_string_lossy()).as_ref()) {
                return Some(entry.path());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    None
}

/// Removes a file or folder of a workspace. Behind a link, it could be anywhere.
fn delete(workspace: &Path, path: &Path) -> io::Result<()> {
    let root = OpenRoot::open(workspace)?;
    root.stat(path)?;
    root.remove_tree(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn names_that_git_obeys_are_escaped() {
        for name in [".git", ".gitignore", ".gitattributes", "a.git", "x", "dot", "dot-x"] {
            assert_eq!(unescape_name(&escape_name(name).unwrap()), name);
        }
        assert_eq!(escape_name(".gitignore").as_deref(), Some("dot-gitignore"));
        assert_eq!(escape_name("dot-gitignore"), None, "unescaping would change it");
        assert_eq!(escape_path(Path::new("a/.gitignore")).as_deref(), Some(Path::new("a/dot-gitignore")));
    }

    #[test]
    fn nothing_is_copied_through_a_link_of_an_earlier_fixture() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["one", "two/a", "outside"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        std::os::unix::fs::symlink(at("outside"), at("one/a")).unwrap();
        fs::write(at("two/a/x"), "2").unwrap();
        copy_fixture(&at("one"), &at("to")).unwrap();
        copy_fixture(&at("two"), &at("to")).unwrap_err();
        assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 0);
    }

    #[test]
    fn nothing_is_removed_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["outside/in", "work/folder"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["outside/file", "work/folder/file"] {
            fs::write(at(name), "x").unwrap();
        }
        std::os::unix::fs::symlink(at("outside"), at("work/link")).unwrap();
        for name in ["link/file", "link/in", "../outside/file", "missing"] {
            delete(&at("work"), name.as_ref()).unwrap_err();
        }
        assert!(at("outside/file").exists() && at("outside/in").exists());
        delete(&at("work"), "folder".as_ref()).unwrap();
        delete(&at("work"), "link".as_ref()).unwrap();
        assert_eq!(fs::read_dir(at("work")).unwrap().count(), 0);
        assert!(at("outside/file").exists());
    }

    #[test]
    fn a_fixture_is_copied_over_existing_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("one/a")).unwrap();
        fs::create_dir_all(at("two/a")).unwrap();
        fs::write(at("one/a/x"), "1").unwrap();
        fs::write(at("one/dot-gitignore"), "/b\n").unwrap();
        fs::write(at("two/a/x"), "2").unwrap();
        fs::set_permissions(at("two/a/x"), fs::Permissions::from_mode(0o555)).unwrap();
        std::os::unix::fs::symlink("a/x", at("two/link")).unwrap();
        copy_fixture(&at("one"), &at("to")).unwrap();
        copy_fixture(&at("two"), &at("to")).unwrap();
        assert_eq!(fs::read_to_string(at("to/a/x")).unwrap(), "2");
        assert_eq!(fs::metadata(at("to/a/x")).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_link(at("to/link")).unwrap(), Path::new("a/x"));
        assert_eq!(fs::read_to_string(at("to/.gitignore")).unwrap(), "/b\n");
        fs::set_permissions(at("to/a"), fs::Permissions::from_mode(0o500)).unwrap();
        crate::workspace::remove_folder::remove_folder(&at("to"));
        assert!(!at("to").exists());
    }
}
