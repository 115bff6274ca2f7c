//! Ignore files such as `.gitignore`, opened beneath the workspace's descriptor.

use std::borrow::Borrow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::open_beneath;
use crate::git::{has_git_layout, is_worktree_root};
use crate::text::bounded::read_up_to;

/// How much of an ignore file is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// The most text of ignore files that is compiled at once for a folder and its ancestors, in bytes. Compiled patterns take
/// up to 600 times as much memory as their text.
const MAX_COMPILED_BYTES: usize = 128 << 10;

/// A name that is only ignored with all others.
const ANY_NAME: &str = "any-name-of-a-file";

/// The texts of the ignore files in one folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IgnoreFiles {
    /// `.ignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ignore: Option<String>,
    /// `.gitignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    git: Option<String>,
    /// `.git/info/exclude`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exclude: Option<String>,
    /// Whether the folder is the root of a repository, to which git's rules from further up don't apply.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    repository: bool,
}

impl IgnoreFiles {
    /// Reads the ignore files in an open folder.
    pub(crate) fn read_in(folder: BorrowedFd<'_>) -> Self {
        let read = |folder: BorrowedFd<'_>, name: &str| {
            read_text(open_beneath::open_regular_file(folder, OsStr::new(name)).ok()??)
        };
        let dot_git = open_beneath::open_dir(folder, Path::new(".git"));
        let has = |folder: BorrowedFd<'_>, name: &str| open_beneath::stat(folder, Path::new(name)).is_ok();
        let repository = match &dot_git {
            Ok(dot_git) => has_git_layout(|name| has(dot_git.as_fd(), name)),
            Err(_) => has(folder, ".git"),
        };
        let info = dot_git.and_then(|dot_git| open_beneath::open_dir(dot_git.as_fd(), Path::new("info"))).ok();
        let info = info.filter(|_| repository);
        Self {
            ignore: read(folder, ".ignore"),
            git: read(folder, ".gitignore"),
            exclude: info.and_then(|info| read(info.as_fd(), "exclude")),
            repository,
        }
    }

    /// Reads the ignore files in an open folder with these entries.
    pub(crate) fn read_listed(folder: BorrowedFd<'_>, entries: &[(OsString, FileType)]) -> Self {
        let is_relevant = |name: &OsString| name == ".gitignore" || name == ".ignore" || name == ".git";
        if entries.iter().any(|(name, _)| is_relevant(name)) { Self::read_in(folder) } else { Self::default() }
    }

    /// The ignore files above the workspace, up to the root of its repository, outermost folder first. Empty if the
    /// workspace is itself the root of a repository, or in none. Rules that ignore the workspace with everything in it don't
    /// count: the folder of runs has such a rule, and copies of workspaces are below it.
    pub(crate) fn read_above(root: &Path) -> Vec<(PathBuf, Self)> {
        if is_worktree_root(root) {
            return Vec::new();
        }
        let mut above: Vec<PathBuf> = Vec::new();
        for folder in root.ancestors().skip(1) {
            above.push(folder.to_owned());
            if is_worktree_root(folder) {
                let open = |path: PathBuf| {
                    let files = Self::read_in(File::open(&path).ok()?.as_fd());
                    Some((path, files))
                };
                let found = above.into_iter().rev().filter_map(open);
                return found.filter(|(path, files)| !files.ignore_all_of(path, root)).collect();
            }
        }
        Vec::new()
    }

    /// Whether these files of the folder `path` ignore another folder and every file in it, whatever its name.
    fn ignore_all_of(&self, path: &Path, folder: &Path) -> bool {
        let rules = [IgnoreRules::new(path, self, &[] as &[IgnoreRules])];
        let is_ignored = |path: &Path, is_folder| match_path(&rules, 1, path, path, is_folder).is_ignore();
        is_ignored(folder, true) && is_ignored(&folder.join(ANY_NAME), false)
    }

    /// The rules of a list that is like a `.gitignore` and may be anywhere.
    pub(super) fn of_list(list: File) -> Self {
        Self { git: read_text(list), ..Self::default() }
    }

    /// These files without `.ignore` or `.git/info/exclude`, if they don't count.
    pub(super) fn only(self, ignore: bool, exclude: bool) -> Self {
        Self { ignore: self.ignore.filter(|_| ignore), exclude: self.exclude.filter(|_| exclude), ..self }
    }

    /// Whether there are no ignore files.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The compiled rules of one folder.
#[derive(Default)]
pub(crate) struct IgnoreRules {
    ignore: Option<Gitignore>,
    git: Option<Gitignore>,
    exclude: Option<Gitignore>,
    repository: bool,
    /// The length of their text in bytes.
    size: usize,
}

impl IgnoreRules {
    /// Compiles the ignore files of the folder `path`; `outer` are the rules of its ancestors.
    pub(crate) fn new(path: &Path, files: &IgnoreFiles, outer: &[impl Borrow<Self>]) -> Self {
        let max_bytes = MAX_COMPILED_BYTES.saturating_sub(outer.iter().map(|rules| rules.borrow().size).sum());
        let mut size = 0;
        let mut compile = |text: &Option<String>| {
            let text = whole_lines(text.as_deref()?, max_bytes - size);
            size += text.len();
            compile_patterns(path, text)
        };
        let (ignore, git, exclude) = (compile(&files.ignore), compile(&files.git), compile(&files.exclude));
        Self { ignore, git, exclude, repository: files.repository, size }
    }

    /// Reads and compiles the ignore files in an open folder.
    pub(crate) fn read_in(folder: BorrowedFd<'_>, path: &Path, outer: &[Self]) -> Self {
        Self::new(path, &IgnoreFiles::read_in(folder), outer)
    }

    /// The rules of the ignore files that [`IgnoreFiles::read_above`] finds.
    pub(crate) fn read_above(root: &Path) -> Vec<Self> {
        Self::from_nested(&IgnoreFiles::read_above(root))
    }

    /// The rules of nested folders, outermost first.
    pub(crate) fn from_nested(folders: &[(PathBuf, IgnoreFiles)]) -> Vec<Self> {
        let mut all = Vec::with_capacity(folders.len());
        for (path, files) in folders {
            all.push(Self::new(path, files, &all));
        }
        all
    }
}

/// As many whole lines as fit into `max_bytes`.
fn whole_lines(text: &str, max_bytes: usize) -> &str {
    if text.len() <= max_bytes {
        return text;
    }
    let end = text.as_bytes()[..max_bytes].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    &text[..end]
}

/// The text of an ignore file, up to [`MAX_FILE_BYTES`].
fn read_text(file: File) -> Option<String> {
    let bytes = read_up_to(file, MAX_FILE_BYTES + 1).ok()?;
    Some(whole_lines(&String::from_utf8_lossy(&bytes), MAX_FILE_BYTES as usize).to_owned())
}

/// Compiles the patterns of a file. Malformed ones are skipped.
fn compile_patterns(folder: &Path, text: &str) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(folder);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}

/// Matches a path against the rules of its ancestor folders, outermost first. The first `above` rules are from above the
/// workspace and match the `absolute` path.
pub(crate) fn match_path(
    rules: &[impl Borrow<IgnoreRules>],
    above: usize,
    path: &Path,
    absolute: &Path,
    is_folder: bool,
) -> Match<()> {
    let (mut ignore, mut git, mut exclude) = (Match::None, Match::None, Match::None);
    let mut is_outside_repository = false;
    for (index, rules) in rules.iter().map(Borrow::borrow).enumerate().rev() {
        let path = if index < above { absolute } else { path };
        let apply = |matched: &mut Match<()>, rules: &Option<Gitignore>| {
            if let (true, Some(rules)) = (matched.is_none(), rules) {
                *matched = rules.matched(path, is_folder).map(|_| ());
            }
        };
        apply(&mut ignore, &rules.ignore);
        if !is_outside_repository {
            apply(&mut git, &rules.git);
            apply(&mut exclude, &rules.exclude);
        }
        is_outside_repository |= rules.repository;
    }
    ignore.or(git).or(exclude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patterns_that_are_compiled_at_once_are_bounded() {
        let line = "*a*b?c[0-9]*x\n";
        let texts = IgnoreFiles { git: Some(line.repeat(100_000)), ..IgnoreFiles::default() };
        let held = IgnoreRules::from_nested(
            &(0..20).map(|_| (PathBuf::from("x"), IgnoreFiles { ..texts.clone() })).collect::<Vec<_>>(),
        );
        let size: usize = held.iter().map(|rules| rules.size).sum();
        assert!(size <= MAX_COMPILED_BYTES && size > MAX_COMPILED_BYTES - line.len(), "{size}");
        assert!(held[0].git.is_some() && held[1].git.is_none());
    }

    #[test]
    fn a_long_ignore_file_counts_up_to_its_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let many: String = (0..20_000).map(|number| format!("file-{number}\n")).collect();
        std::fs::write(folder.path().join(".gitignore"), &many).unwrap();
        let texts = IgnoreFiles::read_in(File::open(folder.path()).unwrap().as_fd());
        let text = texts.git.clone().unwrap();
        assert!(
            text.len() <= MAX_FILE_BYTES as usize && text.ends_with('\n') && many.starts_with(&text),
            "{}",
            text.len()
        );
        let rules = IgnoreRules::new(Path::new(""), &texts, &[] as &[IgnoreRules]);
        let ignored = |name: &str| {
            matches!(
                match_path(std::slice::from_ref(&rules), 0, Path::new(name), Path::new(""), false),
                Match::Ignore(())
            )
        };
        assert!(ignored("file-0") && ignored("file-5000") && !ignored("file-19999"));
    }

    #[test]
    fn a_multibyte_character_at_the_limit_is_handled() {
        assert_eq!(whole_lines("a\nää\n", 4), "a\n");
        assert_eq!(whole_lines("ää", 1), "");
        assert_eq!(whole_lines("ä\n", 3), "ä\n");
    }
}
