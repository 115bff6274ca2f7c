//! Replaces the text of a file atomically.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::stat;

use super::read_files;
use crate::workspace::atomic_write::CompleteFile;

/// Replaces a file by a new one with the same name, mode and, if permitted, owner. If the path is a symbolic link, its target
/// is replaced. Other hard links keep the old text.
///
/// # Errors
/// The file's text isn't `before`, the file is read-only, or the new file can't be created. The file is unchanged then.
pub(super) fn replace_file(path: &Path, before: &str, after: &str) -> io::Result<()> {
    let target = path.canonicalize()?;
    let metadata = target.metadata()?;
    if metadata.permissions().readonly() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file is read-only"));
    }
    let folder = File::open(target.parent().unwrap_or(Path::new("/")))?;
    let stat = stat(&target)?;
    let file = CompleteFile::write(folder.as_fd(), after.as_bytes(), Some(&stat), stat.st_mode & 0o7777)?;
    file.file().sync_all()?;
    let current = read_files::read_bounded(&target, before.len()).map_err(io::Error::other)?;
    if current != before.as_bytes() {
        return Err(io::Error::other("the file was changed in the meantime"));
    }
    file.persist(target.file_name().unwrap_or_default()).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn modes_and_links_are_kept() {
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
        assert_eq!(fs::read_dir(at("far")).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn changed_and_read_only_files_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        for (there, mode, why) in
            [("other", 0o644, "changed"), ("old and more", 0o644, "changed"), ("old", 0o444, "read-only")]
        {
            let _ = fs::remove_file(&path);
            fs::write(&path, there).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = replace_file(&path, "old", "new").unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), there);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
        }
        assert!(replace_file(&folder.path().join("gone"), "old", "new").is_err());
    }
}
