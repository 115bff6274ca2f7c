//! Refuses symbolic links in a repository that redirect legwork's output: `runs`, `jobs` and the cases of a job.

use std::io;
use std::path::{Component, Path};

use crate::error::Error;

/// Refuses a relative path if a symbolic link in it leads out of `folder`. Absolute paths and paths with `..` are allowed, as
/// the user chose them on purpose.
///
/// # Errors
/// Names the target of the link, with `hint` as the hint.
pub(super) fn reject_escaping_symlinks(folder: &Path, path: &Path, hint: &str) -> Result<(), Error> {
    if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Ok(());
    }
    let real = folder.canonicalize().map_err(Error::environment(format!("can't read {}", folder.display())))?;
    let mut reached = real.clone();
    for part in path.components() {
        reached.push(part);
        let shown = || path.display();
        match reached.canonicalize() {
            Ok(target) if target.starts_with(&real) => reached = target,
            Ok(target) => {
                let message = format!("`{}` is a symbolic link to {}, outside this folder", shown(), target.display());
                return Err(Error::usage(message, hint));
            }
            // A missing path can't lead anywhere, and nothing can be created behind a dangling link. Other errors are
            // reported when the folder is created.
            Err(error) if error.kind() == io::ErrorKind::NotFound || !reached.is_symlink() => return Ok(()),
            Err(error) => {
                let message = format!("`{}` can't be used: {error}", shown());
                return Err(Error::usage(message, hint));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_links_out_of_the_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        fs::create_dir_all(inside.join("real")).unwrap();
        symlink("real", inside.join("within")).unwrap();
        symlink("..", inside.join("out")).unwrap();
        symlink("../absent", inside.join("dangling")).unwrap();
        fs::write(inside.join("file"), "").unwrap();
        let check = |path: &str| reject_escaping_symlinks(&inside, Path::new(path), "").is_ok();
        for (path, is_allowed) in [
            ("real", true),
            ("absent/below", true),
            ("file/below", true),
            ("within/below", true),
            ("../elsewhere", true),
            ("out", false),
            ("out/below", false),
            ("within/../out", true),
            ("dangling", true),
            ("dangling/below", true),
        ] {
            assert_eq!(check(path), is_allowed, "{path}");
        }
    }
}
