//! Puts a new text in the place of a file's old one: whole or not at all.

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Gid, Uid, fchown};

use super::read_files;

/// Gives a file a new text, by way of a new file that takes its name, its mode and, where that is allowed, its owner.
/// A symbolic link stays one: what it leads to is replaced. Of several hard links the others keep the old text.
///
/// # Errors
/// Where it no longer holds `before`, is write-protected, or the new file can't be made; it is then as it was.
pub(super) fn replace_file(path: &Path, before: &str, after: &str) -> io::Result<()> {
    let target = path.canonicalize()?;
    let metadata = target.metadata()?;
    if metadata.permissions().readonly() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is write-protected"));
    }
    let folder = target.parent().unwrap_or(Path::new("/"));
    let mut fresh = tempfile::Builder::new().prefix(".legwork-").tempfile_in(folder)?;
    fresh.write_all(after.as_bytes())?;
    let made = fresh.as_file().metadata()?;
    if (made.uid(), made.gid()) != (metadata.uid(), metadata.gid()) {
        // Only root can give files away; anyone else's becomes their own, as with any editor.
        let (owner, group) = (Uid::from_raw(metadata.uid()), Gid::from_raw(metadata.gid()));
        let _ = fchown(fresh.as_file(), Some(owner), Some(group));
    }
    fresh.as_file().set_permissions(metadata.permissions())?;
    fresh.as_file().sync_all()?;
    let now = read_files::read_bounded(&target, before.len()).map_err(io::Error::other)?;
    if now != before.as_bytes() {
        return Err(io::Error::other("it was changed meanwhile"));
    }
    fresh.persist(&target).map_err(|failed| failed.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn mode_and_links_stay() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("far")).unwrap();
        fs::write(at("far/job"), "old").unwrap();
        fs::set_permissions(at("far/job"), fs::Permissions::from_mode(0o751)).unwrap();
        symlink("far/job", at("link")).unwrap();
        fs::hard_link(at("far/job"), at("hard")).unwrap();
        replace_file(&at("link"), "old", "new").unwrap();
        assert!(at("link").is_symlink());
        assert_eq!(fs::read_to_string(at("far/job")).unwrap(), "new");
        assert_eq!(fs::read_to_string(at("hard")).unwrap(), "old");
        assert_eq!(fs::metadata(at("far/job")).unwrap().mode() & 0o7777, 0o751);
        assert_eq!(fs::read_dir(at("far")).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn a_file_that_changed_or_is_protected_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        for (there, mode, why) in
            [("other", 0o644, "changed"), ("old and more", 0o644, "changed"), ("old", 0o444, "protected")]
        {
            let _ = fs::remove_file(&path);
            fs::write(&path, there).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = replace_file(&path, "old", "new").unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), there);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
        }
        assert!(replace_file(&folder.path().join("gone"), "old", "new").is_err());
    }
}
