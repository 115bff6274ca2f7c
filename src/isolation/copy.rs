//! Copies of a folder. Where the file system can share blocks, no data is copied.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, SeekFrom, fchmod, fstat, openat, readlinkat, seek, symlinkat};
use rustix::io::Errno;

use super::error::IsolationError;
use crate::workspace::open_beneath::{self, entries, file_id, open_dir, open_regular_file};
use crate::workspace::open_root::OpenRoot;

/// The unit of [`MetadataExt::blocks`].
const BLOCK_BYTES: u64 = 512;

/// Copies files, folders and symbolic links with their permissions, from one open folder to another one. Sockets, pipes, devices
/// and what is in pseudo file systems are left out, and what is at the `excluded` paths from the root.
pub(super) fn copy_tree(from: &OpenRoot, to: &OpenRoot, excluded: &[PathBuf]) -> Result<(), IsolationError> {
    let target_id = fstat(to.folder()).map(|stat| file_id(&stat)).map_err(|error| at(to, "")(error.into()))?;
    let mut folders = vec![PathBuf::new()];
    let mut modes = Vec::new();
    while let Some(folder) = folders.pop() {
        let source = match open_dir(from.folder(), &folder) {
            // It was deleted or replaced by a link meanwhile.
            Err(error) if is_gone(&error) && !folder.as_os_str().is_empty() => continue,
            source => source.map_err(at(from, &folder))?,
        };
        let stat = fstat(&source).map_err(|error| at(from, &folder)(error.into()))?;
        // The copy may be below the folder that is copied.
        if file_id(&stat) == target_id {
            continue;
        }
        let target = open_beneath::create_dir(to.folder(), &folder, Mode::RWXU).map_err(at(to, &folder))?;
        if !folder.as_os_str().is_empty() {
            modes.push((folder.clone(), stat.st_mode));
        }
        for entry in entries(&source).map_err(|error| at(from, &folder)(error.into()))? {
            let (name, kind) = entry.map_err(|error| at(from, &folder)(error.into()))?;
            let relative = folder.join(&name);
            if excluded.contains(&relative) {
                continue;
            }
            let copied = match kind {
                FileType::Directory => {
                    folders.push(relative);
                    continue;
                }
                FileType::Symlink => copy_link(&source, &target, &name),
                FileType::RegularFile => copy_file(&source, &target, &name),
                _ => continue,
            };
            match copied {
                Err(error) if is_gone(&error) => {}
                copied => copied.map_err(at(from, &relative))?,
            }
        }
    }
    // Last and from the inside out, because a folder may be read-only.
    for (folder, mode) in modes.into_iter().rev() {
        let opened = open_dir(to.folder(), &folder).map_err(at(to, &folder))?;
        fchmod(&opened, Mode::from_raw_mode(mode & 0o7777)).map_err(|error| at(to, &folder)(error.into()))?;
    }
    Ok(())
}

/// An error at a path from a root.
pub(super) fn at<P: AsRef<Path>>(root: &OpenRoot, path: P) -> impl FnOnce(io::Error) -> IsolationError + use<P> {
    let path = root.path().join(path);
    move |source| IsolationError::Io { path, source }
}

/// Whether something was deleted meanwhile, or is another kind of file now.
fn is_gone(error: &io::Error) -> bool {
    let numbers = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::INVAL];
    numbers.iter().any(|number| error.raw_os_error() == Some(number.raw_os_error()))
}

fn copy_link(source: &OwnedFd, target: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let link = readlinkat(source, name, Vec::new())?;
    Ok(symlinkat(link, target, name)?)
}

fn copy_file(source: &OwnedFd, target: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let Some(mut source) = open_regular_file(source.as_fd(), name)? else { return Ok(()) };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut target = File::from(openat(target, name, flags, Mode::RUSR | Mode::WUSR)?);
    if !clone_blocks(&source, &target) {
        copy_data(&mut source, &mut target)?;
    }
    // Without the set-user-ID bit: the copy may have another owner.
    Ok(fchmod(&target, Mode::from_raw_mode(fstat(&source)?.st_mode & 0o777))?)
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

/// Opens a folder below `out`, and creates it if it is missing.
pub(super) fn create_dir(out: &OpenRoot, folder: &Path) -> Result<OpenRoot, IsolationError> {
    let created = out.create_dir(folder, 0o777).map_err(IsolationError::io(folder))?;
    Ok(OpenRoot::of(created, folder))
}

/// Removes whatever is at a path below `out`.
pub(super) fn remove_tree(out: &OpenRoot, path: &Path) -> Result<(), IsolationError> {
    out.remove_tree(path).map_err(IsolationError::io(path))
}
