//! Reads files below the job's folder, for `{file:}` and `{% include %}`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};

use crate::diagnostic::{Diagnostic, Source, SourceSpan};
use crate::sync::IgnorePoison;
use crate::text::bounded::read_at_most;
use crate::workspace::open_beneath::{self, DIR_FLAGS};
use crate::workspace::path_resolver::resolve;

/// The greatest size of a prompt file, in bytes.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Reads files below one folder. Symbolic links can't lead out of it.
#[derive(Debug)]
pub struct JobDir {
    dir: OwnedFd,
    display_path: PathBuf,
    overlay: Option<FileOverlay>,
}

/// Identifies a file, whatever its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Takes the identity from a file's metadata.
    pub fn of(metadata: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// A text to read instead of a file's own.
#[derive(Debug)]
struct FileOverlay {
    file: FileId,
    text: String,
    /// The sources that were read in its place.
    sources_read: Mutex<Vec<Arc<Source>>>,
}

/// Normalizes a prompt file's text: LF line ends, and no byte order mark, however it was checked out.
pub fn normalize_text(text: &str) -> String {
    text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n").replace('\r', "\n")
}

/// Why a prompt file can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptFileError {
    /// The path, or a symbolic link on it, leads out of the folder.
    OutsideJobDir,
    /// There is no such file.
    Missing,
    /// Another reason, as words that follow the file's name: `is a folder`.
    Unreadable(String),
}

impl PromptFileError {
    /// The finding about a file with this path. `below` says which files can be used.
    pub(crate) fn to_diagnostic(&self, path: &str, place: SourceSpan, below: &str) -> Diagnostic {
        let (code, message, help) = match self {
            Self::OutsideJobDir => ("outside-folder", format!("`{path}` is outside of the job's folder"), below),
            Self::Missing => ("unreadable-file", format!("there is no file `{path}`"), below),
            Self::Unreadable(why) => {
                let help = "name a regular file of at most 1 MiB, saved as UTF-8 text";
                ("unreadable-file", format!("`{path}` {why}"), help)
            }
        };
        Diagnostic::error(code, place, message).help(help)
    }
}

impl JobDir {
    /// Opens a folder.
    ///
    /// # Errors
    /// The folder doesn't exist or can't be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let opened = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let dir = rustix::fs::open(opened, DIR_FLAGS.difference(OFlags::NOFOLLOW), Mode::empty())?;
        Ok(Self { dir, display_path: path.to_path_buf(), overlay: None })
    }

    /// Reads `text` instead of a file from now on, to check a change before it is written.
    pub fn set_overlay(&mut self, file: FileId, text: &str) {
        self.overlay = Some(FileOverlay { file, text: normalize_text(text), sources_read: Mutex::default() });
    }

    /// The sources that were read instead of the file's own.
    pub fn overlay_sources(&self) -> Vec<Arc<Source>> {
        let given = self.overlay.as_ref().map(|instead| instead.sources_read.lock());
        given.map(|given| given.ignore_poison().clone()).unwrap_or_default()
    }

    /// Reads a text file of at most [`MAX_FILE_BYTES`], as [`normalize_text`] returns it.
    ///
    /// # Errors
    /// The path leads outside, or the file is missing, unreadable, too large, not a regular file or not UTF-8.
    pub fn read(&self, path: &str) -> Result<Arc<Source>, PromptFileError> {
        if leaves_dir(path) {
            return Err(PromptFileError::OutsideJobDir);
        }
        let unreadable = |why: &str| PromptFileError::Unreadable(why.to_owned());
        if path.is_empty() || path.contains('\0') {
            return Err(unreadable("isn't a path"));
        }
        let resolved = resolve(self.dir.as_fd(), Path::new(path)).map_err(|error| file_error(&error))?;
        if resolved.stat.is_none() {
            return Err(PromptFileError::Missing);
        }
        let Some(name) = resolved.name() else { return Err(unreadable("is a folder")) };
        let opened = open_beneath::open_regular_file(resolved.folder(), name).map_err(|error| file_error(&error))?;
        let file: File = opened.ok_or_else(|| unreadable("isn't a regular file"))?;
        let plain = Path::new(path).components().filter(|part| *part != Component::CurDir);
        // The prompts of a job that is given without a folder are shown without one, too.
        let folder = if self.display_path == Path::new(".") { Path::new("") } else { &self.display_path };
        let shown = plain.fold(folder.to_owned(), |shown, part| shown.join(part));
        let shown = shown.to_string_lossy();
        let id = FileId::of(&file.metadata().map_err(|error| file_error(&error))?);
        if let Some(instead) = self.overlay.as_ref().filter(|instead| instead.file == id) {
            let source = Source::new(shown, instead.text.as_str());
            instead.sources_read.lock().ignore_poison().push(source.clone());
            return Ok(source);
        }
        let bytes = read_at_most(file, MAX_FILE_BYTES).map_err(|error| file_error(&error))?;
        let bytes = bytes.ok_or_else(|| unreadable("is larger than 1 MiB"))?;
        let text = String::from_utf8(bytes).map_err(|_| unreadable("isn't UTF-8 text"))?;
        if text.contains('\0') {
            return Err(unreadable("isn't text: it has a NUL character"));
        }
        Ok(Source::new(shown, normalize_text(&text)))
    }
}

fn file_error(error: &io::Error) -> PromptFileError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => PromptFileError::Missing,
        // Only the error for a path that leads outside has no number.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => PromptFileError::OutsideJobDir,
        _ => PromptFileError::Unreadable(format!("can't be read: {error}")),
    }
}

/// Whether a path leads out of the folder that it starts from, without regard to symbolic links.
pub fn leaves_dir(path: &str) -> bool {
    let mut depth = 0_usize;
    for component in Path::new(path).components() {
        match component {
            Component::Prefix(_) | Component::RootDir => return true,
            Component::CurDir => {}
            Component::Normal(_) => depth += 1,
            Component::ParentDir if depth == 0 => return true,
            Component::ParentDir => depth -= 1,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, JobDir) {
        let outer = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(outer.path().join("jobs/prompts")).unwrap();
        std::fs::write(outer.path().join("outside.md"), "outside").unwrap();
        let folder = JobDir::open(&outer.path().join("jobs")).unwrap();
        (outer, folder)
    }

    #[test]
    fn line_ends_are_normalized_and_byte_order_marks_removed() {
        let (outer, folder) = folder();
        std::fs::write(outer.path().join("jobs/prompts/a.md"), "\u{feff}one\r\ntwo\rthree\n").unwrap();
        assert_eq!(folder.read("prompts/../prompts/a.md").unwrap().text, "one\ntwo\nthree\n");
    }

    #[test]
    fn nothing_outside_is_read() {
        let (outer, folder) = folder();
        for path in ["../outside.md", "prompts/../../outside.md", "/etc/hostname"] {
            assert_eq!(folder.read(path).unwrap_err(), PromptFileError::OutsideJobDir, "{path}");
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(outer.path().join("outside.md"), outer.path().join("jobs/absolute.md")).unwrap();
            std::os::unix::fs::symlink("../outside.md", outer.path().join("jobs/relative.md")).unwrap();
            std::os::unix::fs::symlink("..", outer.path().join("jobs/up")).unwrap();
            for path in ["absolute.md", "relative.md", "up/outside.md"] {
                assert_eq!(folder.read(path).unwrap_err(), PromptFileError::OutsideJobDir, "{path}");
            }
        }
        drop(outer);
    }

    #[test]
    fn only_text_files_are_accepted() {
        let (outer, folder) = folder();
        let at = |name: &str| outer.path().join("jobs").join(name);
        std::fs::write(at("binary"), b"\xff\xfe").unwrap();
        std::fs::write(at("nul"), b"a\0b").unwrap();
        std::fs::write(at("huge"), vec![b'a'; MAX_FILE_BYTES as usize + 1]).unwrap();
        for (path, why) in [("prompts", "folder"), ("binary", "UTF-8"), ("nul", "NUL"), ("huge", "MiB"), ("", "a path")]
        {
            match folder.read(path) {
                Err(PromptFileError::Unreadable(text)) => assert!(text.contains(why), "{path}: {text}"),
                other => panic!("{path}: {other:?}"),
            }
        }
        assert_eq!(folder.read("prompts/none.md").unwrap_err(), PromptFileError::Missing);
    }

    #[cfg(unix)]
    #[test]
    fn a_fifo_does_not_block() {
        let (outer, folder) = folder();
        let made = std::process::Command::new("mkfifo").arg(outer.path().join("jobs/pipe")).status().unwrap();
        assert!(made.success());
        assert!(matches!(folder.read("pipe"), Err(PromptFileError::Unreadable(_))));
    }
}
