//! Reads text files of the workspace, as they are or as they are in a commit.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FileType;

use super::texts::{AgentFiles, WorkspaceFiles, shown};
use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::git::{CommitError, CommittedFiles, REFERENCE_FORM, is_dot_git, is_reference_name};
use crate::message::ToolError;
use crate::template::{leaves_dir, normalize_text};
use crate::text::bounded::read_up_to;
use crate::tools::glob;
use crate::workspace::Workspace;
use crate::workspace::walk::{FileWalk, StopWalk};

/// The largest file that is read, in bytes. It is also the most that `context_bytes` allows.
const MAX_FILE_BYTES: u64 = crate::job::MAX_CONTEXT_BYTES as u64;
/// The most files that a glob may match.
const MAX_MATCHES: usize = 200;
/// How long the search for the files of a glob may take.
const SEARCH_TIME: Duration = Duration::from_secs(30);

const OUTSIDE_HELP: &str = "name a file of the workspace, relative to it";
const REFERENCE_HELP: &str = "fetch it first, such as `git fetch origin main:refs/remotes/origin/main`; in GitHub Actions, \
                              actions/checkout has `fetch-depth: 0` for that";

/// A file that was read.
pub(super) struct ReadFile {
    /// Its path from the workspace.
    pub(super) path: String,
    /// The commit that it is from.
    pub(super) commit: Option<String>,
    /// Its text with LF line ends, without a byte order mark.
    pub(super) text: String,
}

/// Why a file can't be used.
#[derive(Debug)]
pub(super) struct FileError {
    pub(super) message: String,
    help: String,
}

impl FileError {
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }

    pub(super) fn finding(self, code: &'static str, place: SourceSpan) -> Diagnostic {
        Diagnostic::error(code, place, self.message).help(self.help)
    }
}

/// Reads files.
pub(super) struct FileReader<'a> {
    files: &'a WorkspaceFiles,
    /// Opened on first use.
    workspace: Option<Result<Workspace, String>>,
    /// The commits that were opened, by the name that the job uses.
    commits: HashMap<String, Result<CommittedFiles, CommitError>>,
}

impl<'a> FileReader<'a> {
    pub(super) fn new(files: &'a WorkspaceFiles) -> Self {
        Self { files, workspace: None, commits: HashMap::new() }
    }

    /// What a record has.
    pub(super) fn recorded(&self) -> &'a AgentFiles {
        &self.files.recorded
    }

    /// Reads a file, from the workspace or from a commit.
    pub(super) fn read(&mut self, path: &str, reference: Option<&str>) -> Result<ReadFile, FileError> {
        let path = plain_path(path)?;
        let (bytes, commit) = match reference.filter(|_| !self.files.ignores_references) {
            None => (self.read_current(&path)?, None),
            Some(reference) => {
                let (bytes, commit) = self.read_committed(&path, reference)?;
                (bytes, Some(commit))
            }
        };
        if bytes.len() as u64 > MAX_FILE_BYTES {
            let message = format!("`{path}` is larger than {} MiB", MAX_FILE_BYTES >> 20);
            return Err(FileError::new(message, "shorten it, or name another file"));
        }
        let not_text = |why: &str| FileError::new(format!("`{path}` {why}"), "name a text file in UTF-8");
        let text = String::from_utf8(bytes).map_err(|_| not_text("isn't UTF-8 text"))?;
        if text.contains('\0') {
            return Err(not_text("is a binary file: it has a NUL character"));
        }
        Ok(ReadFile { text: normalize_text(&text), path, commit })
    }

    fn workspace(&mut self) -> Result<&Workspace, FileError> {
        let root = &self.files.root;
        let open = || Workspace::open(root, Vec::new(), Vec::new()).map_err(|error| error.to_string());
        self.workspace.get_or_insert_with(open).as_ref().map_err(|why| {
            FileError::new(
                format!("the workspace {} can't be opened: {why}", root.display()),
                "name another: --workspace DIR",
            )
        })
    }

    fn read_current(&mut self, path: &str) -> Result<Vec<u8>, FileError> {
        let refused = |ToolError(message)| FileError::new(message, OUTSIDE_HELP);
        let workspace = self.workspace()?;
        let resolved = workspace.resolve_existing(path).map_err(refused)?;
        if resolved.kind() == Some(FileType::Directory) {
            let help = format!("name its files, such as `{}/*.md`", path.trim_end_matches('/'));
            return Err(FileError::new(format!("`{path}` is a folder"), help));
        }
        let file = workspace.open_resolved(&resolved).map_err(refused)?;
        read_up_to(file, MAX_FILE_BYTES + 1)
            .map_err(|error| FileError::new(format!("`{path}` can't be read: {error}"), OUTSIDE_HELP))
    }

    fn read_committed(&mut self, path: &str, reference: &str) -> Result<(Vec<u8>, String), FileError> {
        let WorkspaceFiles { root, git, .. } = self.files;
        let open = || {
            let missing = || CommitError::from("can't be read without git, which isn't in PATH");
            CommittedFiles::open(git.as_ref().ok_or_else(missing)?, root, reference)
        };
        let commit = self.commits.entry(reference.to_owned()).or_insert_with(open);
        let commit = commit.as_mut().map_err(|CommitError { why, is_missing }| {
            let help = if *is_missing { REFERENCE_HELP } else { "name another commit, or leave out `ref`" };
            FileError::new(format!("`{reference}` {why}"), help)
        })?;
        let short = commit.commit.get(..12).unwrap_or_default().to_owned();
        let in_commit = |why: &str| format!("`{path}` in `{reference}` ({short}) {why}");
        match commit.read(path) {
            Ok(Some(bytes)) => Ok((bytes, commit.commit.clone())),
            Ok(None) => {
                Err(FileError::new(in_commit("doesn't exist"), "name a file of that commit, or another commit"))
            }
            Err(why) => Err(FileError::new(in_commit(&why), "name a file of that commit, or another commit")),
        }
    }

    /// Whether there is a file of exactly this name.
    pub(super) fn exists(&mut self, path: &str) -> bool {
        self.workspace().is_ok_and(|workspace| workspace.resolve_existing(path).is_ok())
    }

    /// The paths of the files that match a glob, sorted. Ignored files and links don't count, hidden files only if the
    /// pattern names them.
    pub(super) fn find(&mut self, pattern: &str) -> Result<Vec<String>, FileError> {
        let refused = |ToolError(message)| FileError::new(format!("`{pattern}`: {message}"), OUTSIDE_HELP);
        let workspace = self.workspace()?;
        let (base, rest) = glob::split_literal_prefix(".", pattern, workspace).map_err(refused)?;
        let matcher = glob::PathMatcher::new(&rest).map_err(refused)?;
        let nothing = || {
            let help = "files that ignore files exclude don't count, and hidden ones only if the pattern names them";
            FileError::new(format!("no file matches `{pattern}`"), help)
        };
        let Ok(base) = workspace.resolve_existing(&base) else { return Err(nothing()) };
        if base.kind() != Some(FileType::Directory) {
            return Err(nothing());
        }
        let deadline = Instant::now() + SEARCH_TIME;
        let stop_reason = || (Instant::now() > deadline).then_some("the search takes too long");
        let include_hidden = glob::matches_hidden(&rest);
        let walk = FileWalk { workspace, stop_reason: &stop_reason, base, include_hidden, filter: None };
        let mut found: Vec<PathBuf> = Vec::new();
        let stopped = walk.walk(|entry| {
            let base = &walk.base.path;
            let from_base =
                if base == Path::new(".") { &entry.path } else { entry.path.strip_prefix(base).unwrap_or(&entry.path) };
            if entry.is_file && matcher.is_match(from_base) {
                found.push(entry.path.clone());
            }
            if found.len() > MAX_MATCHES { Err(StopWalk) } else { Ok(()) }
        });
        if let Some(why) = stopped.map_err(refused)? {
            return Err(FileError::new(format!("`{pattern}`: {why}"), "name a folder in the pattern: `docs/*.md`"));
        }
        if found.len() > MAX_MATCHES {
            let message = format!("more than {MAX_MATCHES} files match `{pattern}`");
            return Err(FileError::new(message, "use a narrower pattern"));
        }
        if found.is_empty() {
            return Err(nothing());
        }
        found.sort();
        Ok(found.iter().map(|path| shown(path)).collect())
    }
}

/// Whether an entry is a glob.
pub(super) fn is_glob(entry: &str) -> bool {
    entry.contains(['*', '?', '[', '{'])
}

/// Checks how an entry of `context` is written.
pub(super) fn check_entry(path: &str, reference: Option<&str>) -> Result<(), FileError> {
    plain_path(path)?;
    check_reference(reference)?;
    if reference.is_some() && is_glob(path) {
        let message = format!("`{path}` has a wildcard, which can't be used with `ref`");
        return Err(FileError::new(message, "name each file in an entry of its own"));
    }
    Ok(())
}

/// Checks the name of a commit.
pub(super) fn check_reference(reference: Option<&str>) -> Result<(), FileError> {
    match reference {
        Some(name) if !is_reference_name(name) => {
            Err(FileError::new(format!("`{name}` isn't the name of a commit"), REFERENCE_FORM))
        }
        _ => Ok(()),
    }
}

/// A path below the workspace, without `./`.
pub(super) fn plain_path(path: &str) -> Result<String, FileError> {
    let plain: PathBuf = Path::new(path).components().filter(|part| *part != Component::CurDir).collect();
    if plain.as_os_str().is_empty() {
        return Err(FileError::new("this isn't a path", OUTSIDE_HELP));
    }
    if path.chars().any(char::is_control) {
        return Err(FileError::new("this path has a control character", "rename the file"));
    }
    if leaves_dir(path) {
        return Err(FileError::new(format!("`{path}` leads out of the workspace"), OUTSIDE_HELP));
    }
    if plain.iter().any(is_dot_git) {
        return Err(FileError::new(format!("`{path}` is in a git folder"), OUTSIDE_HELP));
    }
    Ok(shown(&plain))
}
