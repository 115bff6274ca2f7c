//! Paths that a repository must not lead elsewhere by a link: `runs`, `jobs`, and the cases of a job.

use std::io;
use std::path::{Component, Path};

use crate::error::Error;

/// Refuses a path that is meant to be beneath a folder, and that a link on its way leads out of it. An absolute path, or
/// one with `..`, is somebody's own choice.
///
/// # Errors
/// Names the place that the link leads to, and the option that chooses another one.
pub(super) fn reject_escaping_symlinks(folder: &Path, path: &Path, hint: &str) -> Result<(), Error> {
    if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Ok(());
    }
    let failed = |source| Error::Environment { message: format!("{} can't be read", folder.display()), source };
    let real = folder.canonicalize().map_err(failed)?;
    let mut reached = real.clone();
    for part in path.components() {
        reached.push(part);
        let shown = || path.display();
        match reached.canonicalize() {
            Ok(there) if there.starts_with(&real) => reached = there,
            Ok(there) => {
                let message = format!("`{}` leads out of this folder by a link, to {}", shown(), there.display());
                return Err(Error::Usage { message, hint: Some(hint.to_owned()) });
            }
            // No link leads anywhere, for no folder can be made behind one to nothing. What is wrong there, whoever makes the
            // folder says.
            Err(error) if error.kind() == io::ErrorKind::NotFound || !reached.is_symlink() => return Ok(()),
            Err(error) => {
                let message = format!("`{}` can't be used: {error}", shown());
                return Err(Error::Usage { message, hint: Some(hint.to_owned()) });
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
    fn only_a_link_that_leads_out_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        fs::create_dir_all(inside.join("real")).unwrap();
        symlink("real", inside.join("within")).unwrap();
        symlink("..", inside.join("out")).unwrap();
        symlink("../absent", inside.join("dangling")).unwrap();
        fs::write(inside.join("file"), "").unwrap();
        let check = |path: &str| reject_escaping_symlinks(&inside, Path::new(path), "").is_ok();
        for (path, fine) in [
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
            assert_eq!(check(path), fine, "{path}");
        }
    }
}
