//! Copies of a folder. Where the file system can share blocks, no data is copied.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::error::IsolationError;

/// Copies files, folders and symbolic links with their permissions. Sockets, pipes and devices are left out.
pub(super) fn copy_tree(from: &Path, to: &Path, excluded: &[PathBuf]) -> Result<(), IsolationError> {
    fs::create_dir_all(to).map_err(IsolationError::io(to))?;
    let mut folders = vec![PathBuf::new()];
    let mut modes = Vec::new();
    while let Some(folder) = folders.pop() {
        let source = from.join(&folder);
        for entry in fs::read_dir(&source).map_err(IsolationError::io(&source))? {
            let entry = entry.map_err(IsolationError::io(&source))?;
            let path = entry.path();
            // The copy may be below the folder that is copied.
            if path == to || excluded.contains(&path) {
                continue;
            }
            let relative = folder.join(entry.file_name());
            let target = to.join(&relative);
            let Some(data) = existing(fs::symlink_metadata(&path)).map_err(IsolationError::io(&path))? else {
                continue;
            };
            let kind = data.file_type();
            if kind.is_dir() {
                fs::create_dir(&target).map_err(IsolationError::io(&target))?;
                modes.push((target, data.permissions()));
                folders.push(relative);
            } else if kind.is_symlink() {
                let link = fs::read_link(&path).map_err(IsolationError::io(&path))?;
                symlink(link, &target).map_err(IsolationError::io(&target))?;
            } else if !(kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device()) {
                copy_file(&path, &target, &data.permissions()).map_err(IsolationError::io(&path))?;
            }
        }
    }
    // Last and from the inside out, because a folder may be read-only.
    for (folder, mode) in modes.into_iter().rev() {
        fs::set_permissions(&folder, mode).map_err(IsolationError::io(&folder))?;
    }
    Ok(())
}

/// `None` if the file was deleted meanwhile.
fn existing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

fn copy_file(from: &Path, to: &Path, mode: &Permissions) -> io::Result<()> {
    let Some(mut source) = existing(File::open(from))? else { return Ok(()) };
    let mut target = fs::OpenOptions::new().write(true).create_new(true).open(to)?;
    if !clone_blocks(&source, &target) {
        io::copy(&mut source, &mut target)?;
    }
    target.set_permissions(mode.clone())
}

#[cfg(target_os = "linux")]
fn clone_blocks(source: &File, target: &File) -> bool {
    rustix::fs::ioctl_ficlone(target, source).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn clone_blocks(_: &File, _: &File) -> bool {
    false
}

/// Lets the owner change all folders below a folder, so that it can be removed.
fn make_writable(folder: &Path) {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let is_folder = fs::symlink_metadata(&folder).is_ok_and(|data| data.is_dir());
        if !is_folder {
            continue;
        }
        let _ = fs::set_permissions(&folder, Permissions::from_mode(0o700));
        folders.extend(fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
}

/// Removes a folder and everything in it, also below folders that were made read-only.
pub(super) fn remove_tree(folder: &Path) -> Result<(), IsolationError> {
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match fs::remove_dir_all(folder) {
        Ok(()) => Ok(()),
        Err(error) if is_gone(&error) => Ok(()),
        Err(_) => {
            make_writable(folder);
            fs::remove_dir_all(folder).or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })
        }
        .map_err(IsolationError::io(folder)),
    }
}
