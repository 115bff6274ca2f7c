//! Copies of a folder, from one open folder to another one: no link is followed. Where the file system can share blocks, no data
//! is copied.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawMode, SeekFrom, fchmod, fstat, openat, readlinkat, seek, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::open_beneath::{self, entries, file_id, open_dir, open_regular_file};
use super::open_root::OpenRoot;

/// The unit of [`MetadataExt::blocks`].
const BLOCK_BYTES: u64 = 512;

/// How a copy differs from the folder that is copied.
#[derive(Clone, Copy)]
pub(crate) struct CopyRules<'a> {
    /// The paths from the root of what is left out.
    pub(crate) excluded: &'a [PathBuf],
    /// The name in the copy.
    pub(crate) rename: fn(&OsStr) -> OsString,
    /// Whether files and links replace what has their names in the copy, which isn't empty.
    pub(crate) replaces: bool,
    /// Whether sockets, pipes and devices are an error. Otherwise they are left out.
    pub(crate) needs_regular: bool,
    /// What the owner may do in the copy in any case, for files and for folders.
    pub(crate) added_modes: (RawMode, RawMode),
    /// The most files and folders, and the most bytes in files.
    pub(crate) most: (usize, u64),
}

impl CopyRules<'_> {
    /// A copy of everything that can be copied, into an empty folder.
    pub(crate) const EXACT: Self = Self {
        excluded: &[],
        rename: OsStr::to_owned,
        replaces: false,
        needs_regular: false,
        added_modes: (0, 0),
        most: (usize::MAX, u64::MAX),
    };
}

/// Copies files, folders and symbolic links with their permissions. What is in pseudo file systems is left out.
///
/// # Errors
/// With the path of what can't be copied.
pub(crate) fn copy_tree(from: &OpenRoot, to: &OpenRoot, rules: &CopyRules<'_>) -> Result<(), (PathBuf, io::Error)> {
    let target_id = fstat(to.folder()).map(|stat| file_id(&stat)).map_err(|error| at(to, "")(error.into()))?;
    let mut folders = vec![(PathBuf::new(), PathBuf::new())];
    let mut modes = Vec::new();
    let (mut count, mut bytes) = (0, 0);
    while let Some((folder, renamed)) = folders.pop() {
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
        let target = open_beneath::create_dir(to.folder(), &renamed, Mode::RWXU).map_err(at(to, &renamed))?;
        if !folder.as_os_str().is_empty() {
            modes.push((renamed.clone(), stat.st_mode | rules.added_modes.1));
        }
        for entry in entries(&source).map_err(|error| at(from, &folder)(error.into()))? {
            let (name, kind) = entry.map_err(|error| at(from, &folder)(error.into()))?;
            let relative = folder.join(&name);
            if rules.excluded.contains(&relative) {
                continue;
            }
            let new_name = (rules.rename)(&name);
            if rules.replaces && kind != FileType::Directory {
                let _ = unlinkat(&target, &new_name, AtFlags::empty());
            }
            let copied = match kind {
                FileType::Directory => {
                    folders.push((relative.clone(), renamed.join(new_name)));
                    Ok(0)
                }
                FileType::Symlink => copy_link(&source, &target, &name, &new_name),
                FileType::RegularFile => copy_file(&source, &target, &name, &new_name, rules.added_modes.0),
                _ if rules.needs_regular => Err(io::Error::other("it isn't a file, folder or link")),
                _ => continue,
            };
            count += 1;
            bytes += match copied {
                Err(error) if is_gone(&error) => 0,
                copied => copied.map_err(at(from, &relative))?,
            };
            let (most, most_bytes) = rules.most;
            if count > most || bytes > most_bytes {
                let too_much = format!("more than {most} files or {most_bytes} bytes");
                return Err(at(from, "")(io::Error::other(too_much)));
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
fn at<P: AsRef<Path>>(root: &OpenRoot, path: P) -> impl FnOnce(io::Error) -> (PathBuf, io::Error) + use<P> {
    let path = root.path().join(path);
    move |error| (path, error)
}

/// Whether something was deleted meanwhile, or is another kind of file now.
fn is_gone(error: &io::Error) -> bool {
    let numbers = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::INVAL];
    numbers.iter().any(|number| error.raw_os_error() == Some(number.raw_os_error()))
}

fn copy_link(source: &OwnedFd, target: &OwnedFd, name: &OsStr, new_name: &OsStr) -> io::Result<u64> {
    let link = readlinkat(source, name, Vec::new())?;
    Ok(symlinkat(link, target, new_name).map(|()| 0)?)
}

/// Copies a file. Returns its length.
fn copy_file(
    source: &OwnedFd,
    target: &OwnedFd,
    name: &OsStr,
    new_name: &OsStr,
    added_mode: RawMode,
) -> io::Result<u64> {
    let Some(mut source) = open_regular_file(source.as_fd(), name)? else { return Ok(0) };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut target = File::from(openat(target, new_name, flags, Mode::RUSR | Mode::WUSR)?);
    if !clone_blocks(&source, &target) {
        copy_data(&mut source, &mut target)?;
    }
    let stat = fstat(&source)?;
    // Without the set-user-ID bit: the copy may have another owner.
    fchmod(&target, Mode::from_raw_mode(stat.st_mode & 0o777 | added_mode))?;
    Ok(u64::try_from(stat.st_size).unwrap_or_default())
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
