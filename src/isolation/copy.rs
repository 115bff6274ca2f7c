//! Copies of a folder. Where the file system can share blocks, no data is copied.

use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::error::IsolationError;

/// The unit of [`MetadataExt::blocks`].
const BLOCK_BYTES: u64 = 512;

/// Copies files, folders and symbolic links with their permissions. Sockets, pipes and devices are left out.
pub(super) fn copy_tree(from: &Path, to: &Path, excluded: &[PathBuf]) -> Result<(), IsolationError> {
    fs::create_dir_all(to).map_err(IsolationError::io(to))?;
    let mut folders = vec![PathBuf::new()];
    let mut modes = Vec::new();
    while let Some(folder) = folders.pop() {
        let source = from.join(&folder);
        let listing = match fs::read_dir(&source) {
            // It was deleted meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound && source != from => continue,
            listing => listing.map_err(IsolationError::io(&source))?,
        };
        for entry in listing {
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
        copy_data(&mut source, &mut target)?;
    }
    // Without the set-user-ID bit: the copy may have another owner.
    target.set_permissions(Permissions::from_mode(mode.mode() & 0o777))
}

/// Copies the content of a file. What isn't stored on the disk, such as the free space of a disk image, isn't stored in the copy.
fn copy_data(source: &mut File, target: &mut File) -> io::Result<()> {
    let data = source.metadata()?;
    if data.blocks() * BLOCK_BYTES >= data.len() {
        return io::copy(source, target).map(drop);
    }
    let mut end = 0;
    loop {
        let start = match seek(&*source, SeekFrom::Data(end)) {
            Err(Errno::NXIO) => return target.set_len(data.len().max(end)),
            start => start?,
        };
        end = seek(&*source, SeekFrom::Hole(start))?;
        seek(&*source, SeekFrom::Start(start))?;
        seek(&*target, SeekFrom::Start(start))?;
        io::copy(&mut source.take(end - start), target)?;
    }
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
