//! Removes folders that a command may have made unreadable or read-only.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Removes a folder with everything in it, including unreadable and read-only folders. A failure is ignored.
pub fn remove_folder(folder: &Path) {
    if fs::remove_dir_all(folder).is_err() && folder.exists() {
        make_removable(folder);
        let _ = fs::remove_dir_all(folder);
    }
}

fn make_removable(folder: &Path) {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o700));
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        open.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
    }
}
