//! The files that a workspace begins with.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The most files and folders of a fixture.
const MAX_ENTRIES: usize = 50_000;
/// The most bytes of a fixture.
const MAX_BYTES: u64 = 1 << 30;

/// What stands before the names that git would take for its own, were they written as they are: `dot-gitignore` becomes
/// `.gitignore` in the workspace, `dot-git` becomes `.git`.
const ESCAPED_GIT_PREFIX: &str = "dot-git";

/// A name in the workspace, by its name in the fixture.
pub fn unescape_name(name: &str) -> String {
    match name.strip_prefix(ESCAPED_GIT_PREFIX) {
        Some(rest) => format!(".git{rest}"),
        None => name.to_owned(),
    }
}

/// A name in the fixture, by its name in the workspace; `None` where none leads there.
pub fn escape_name(name: &str) -> Option<String> {
    match name.strip_prefix(".git") {
        Some(rest) => Some(format!("{ESCAPED_GIT_PREFIX}{rest}")),
        None => (!name.starts_with(ESCAPED_GIT_PREFIX)).then(|| name.to_owned()),
    }
}

/// A path in the fixture, by its path in the workspace.
pub fn escape_path(path: &Path) -> Option<PathBuf> {
    path.iter().map(|part| part.to_str().and_then(escape_name)).collect()
}

/// Lays a fixture's files over what is in a folder, names [`unescaped`]. Links stay links, files stay executable.
///
/// # Errors
/// Where something can't be copied, is no file, folder or link, or there is too much of it, or `from` itself is a link out
/// of the repository.
pub fn copy_fixture(from: &Path, to: &Path) -> io::Result<()> {
    require_inside_repository(from.parent().unwrap_or(from), from)?;
    copy(from, to, unescape_name)
}

/// As [`lay`], names left as they are.
///
/// # Errors
/// As [`lay`].
pub fn copy_verbatim(from: &Path, to: &Path) -> io::Result<()> {
    copy(from, to, str::to_owned)
}

/// Whether what a case has at a path, or would have, is in the repository, or without one, in the folder of its jobs: a link
/// can't show somebody's files, or have them written.
///
/// # Errors
/// It isn't.
pub(super) fn require_inside_repository(case: &Path, path: &Path) -> io::Result<()> {
    // The job's folder of cases, `tests`, and the folder of the jobs.
    let jobs = case.ancestors().nth(3).unwrap_or(case).canonicalize()?;
    let root = jobs.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&jobs);
    let there = path.ancestors().find(|part| fs::symlink_metadata(part).is_ok()).unwrap_or(path);
    if there.canonicalize()?.starts_with(root) {
        return Ok(());
    }
    Err(io::Error::other("it is reached by a symbolic link that leads out of the repository"))
}

fn copy(from: &Path, to: &Path, named: fn(&str) -> String) -> io::Result<()> {
    let (mut entries, mut bytes) = (0, 0);
    let mut open = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = open.pop() {
        fs::create_dir_all(&to)?;
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            let name = entry.file_name();
            let target = to.join(name.to_str().map_or_else(|| name.clone(), |name| named(name).into()));
            let kind = entry.file_type()?;
            entries += 1;
            if kind.is_dir() {
                open.push((entry.path(), target));
            } else if kind.is_symlink() {
                let _ = fs::remove_file(&target);
                std::os::unix::fs::symlink(fs::read_link(entry.path())?, target)?;
            } else if kind.is_file() {
                bytes += entry.metadata()?.len();
                // A new file, so that one laid there before isn't written through a link.
                let _ = fs::remove_file(&target);
                fs::copy(entry.path(), &target)?;
                make_writable(&target)?;
            } else {
                return Err(io::Error::other(format!("{} is no file, folder or link", entry.path().display())));
            }
            if entries > MAX_ENTRIES || bytes > MAX_BYTES {
                return Err(io::Error::other(format!("it has more than {MAX_ENTRIES} files or {MAX_BYTES} bytes")));
            }
        }
    }
    Ok(())
}

/// Lets its owner write a file, which may come from a checkout that is read-only.
fn make_writable(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode();
    fs::set_permissions(path, fs::Permissions::from_mode(mode | 0o600))
}

/// Removes a folder, also where a run has left folders in it that nobody may write to.
pub fn remove(folder: &Path) -> io::Result<()> {
    if fs::remove_dir_all(folder).is_ok() {
        return Ok(());
    }
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o700));
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_takes_for_its_own_are_kept_under_others() {
        for name in [".git", ".gitignore", ".gitattributes", "a.git", "x", "dot", "dot-x"] {
            assert_eq!(unescape_name(&escape_name(name).unwrap()), name);
        }
        assert_eq!(escape_name(".gitignore").as_deref(), Some("dot-gitignore"));
        assert_eq!(escape_name("dot-gitignore"), None, "it would become another");
        assert_eq!(escape_path(Path::new("a/.gitignore")).as_deref(), Some(Path::new("a/dot-gitignore")));
    }

    #[test]
    fn a_fixture_is_laid_over_what_is_there() {
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
        remove(&at("to")).unwrap();
        assert!(!at("to").exists());
    }
}
