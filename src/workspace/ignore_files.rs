//! What ignore files say, read beneath the workspace's descriptor and only where they are regular files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use serde::{Deserialize, Serialize};

use crate::workspace::open_beneath;

/// The longest ignore file that is read, in bytes; of a longer one the beginning counts.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// The most text, in bytes, whose patterns are held at once: those of a folder and of the folders above it. Further text is
/// not followed. Patterns take up to 600 times as much memory as their text.
const MAX_HELD: usize = 128 << 10;

/// What the ignore files of one folder hold.
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
    /// Whether a repository begins here: what git's rules above say doesn't hold in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    repository: bool,
}

impl IgnoreFiles {
    /// Reads those of an open folder.
    pub(crate) fn read_in(folder: BorrowedFd<'_>) -> Self {
        let read =
            |folder: BorrowedFd<'_>, name: &str| text(open_beneath::open_regular_file(folder, OsStr::new(name)).ok()??);
        let dot_git = rustix::fs::statat(folder, ".git", rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let info = dot_git.then(|| open_beneath::open_dir(folder, Path::new(".git/info")).ok()).flatten();
        Self {
            ignore: read(folder, ".ignore"),
            git: read(folder, ".gitignore"),
            exclude: info.and_then(|info| read(info.as_fd(), "exclude")),
            repository: dot_git,
        }
    }

    /// Those of the repository that the workspace is a part of, the outermost folder first. A workspace that is a
    /// repository, or in none, is not subject to what lies above it.
    pub(crate) fn read_above(root: &Path) -> Vec<(PathBuf, Self)> {
        let is_repository = |folder: &Path| folder.join(".git").symlink_metadata().is_ok();
        if is_repository(root) {
            return Vec::new();
        }
        let mut above: Vec<PathBuf> = Vec::new();
        for folder in root.ancestors().skip(1) {
            above.push(folder.to_owned());
            if is_repository(folder) {
                let open = |path: PathBuf| Some((Self::read_in(File::open(&path).ok()?.as_fd()), path));
                return above.into_iter().rev().filter_map(open).map(|(texts, path)| (path, texts)).collect();
            }
        }
        Vec::new()
    }

    /// Whether they say nothing.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The rules of one folder.
#[derive(Default)]
pub(crate) struct IgnoreRules {
    ignore: Option<Gitignore>,
    git: Option<Gitignore>,
    exclude: Option<Gitignore>,
    repository: bool,
    /// The length of the texts, in bytes.
    size: usize,
}

impl IgnoreRules {
    /// Understands texts. `path` is where the folder lies, as the paths to be asked about name it; `held` are the rules of
    /// the folders above it.
    pub(crate) fn new(path: &Path, texts: &IgnoreFiles, held: &[Self]) -> Self {
        let room = MAX_HELD.saturating_sub(held.iter().map(|rules| rules.size).sum());
        let mut size = 0;
        let mut read = |text: &Option<String>| {
            let text = whole_lines(text.as_deref()?, room - size);
            size += text.len();
            compile(path, text)
        };
        let (ignore, git, exclude) = (read(&texts.ignore), read(&texts.git), read(&texts.exclude));
        Self { ignore, git, exclude, repository: texts.repository, size }
    }

    /// Reads those of an open folder.
    pub(crate) fn read_in(folder: BorrowedFd<'_>, path: &Path, held: &[Self]) -> Self {
        Self::new(path, &IgnoreFiles::read_in(folder), held)
    }

    /// Those above the workspace, as [`IgnoreFiles::above`] finds them.
    pub(crate) fn read_above(root: &Path) -> Vec<Self> {
        Self::from_nested(&IgnoreFiles::read_above(root))
    }

    /// Those of folders that lie in each other, the outermost first.
    pub(crate) fn from_nested(texts: &[(PathBuf, IgnoreFiles)]) -> Vec<Self> {
        let mut all = Vec::with_capacity(texts.len());
        for (path, texts) in texts {
            all.push(Self::new(path, texts, &all));
        }
        all
    }
}

/// As many whole lines as fit into a number of bytes.
fn whole_lines(text: &str, room: usize) -> &str {
    if text.len() <= room {
        return text;
    }
    let end = text.as_bytes()[..room].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    &text[..end]
}

/// The beginning of an ignore file.
fn text(file: File) -> Option<String> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).ok()?;
    Some(whole_lines(&String::from_utf8_lossy(&bytes), MAX_FILE_BYTES as usize).to_owned())
}

/// A file's patterns; those that can't be understood are passed over.
fn compile(folder: &Path, text: &str) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(folder);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}

/// What the rules of all folders on the way, the outermost first, say of something; `absolute` says what it is called
/// by those above the workspace, of which there are `above`.
pub(crate) fn match_path(
    rules: &[IgnoreRules],
    above: usize,
    path: &Path,
    absolute: &Path,
    is_folder: bool,
) -> Match<()> {
    let (mut ignore, mut git, mut exclude) = (Match::None, Match::None, Match::None);
    let mut of_other_repository = false;
    for (index, rules) in rules.iter().enumerate().rev() {
        let path = if index < above { absolute } else { path };
        let ask = |found: &mut Match<()>, rules: &Option<Gitignore>| {
            if let (true, Some(rules)) = (found.is_none(), rules) {
                *found = rules.matched(path, is_folder).map(|_| ());
            }
        };
        ask(&mut ignore, &rules.ignore);
        if !of_other_repository {
            ask(&mut git, &rules.git);
            ask(&mut exclude, &rules.exclude);
        }
        of_other_repository |= rules.repository;
    }
    ignore.or(git).or(exclude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patterns_that_are_held_at_once_are_bounded() {
        let line = "*a*b?c[0-9]*x\n";
        let texts = IgnoreFiles { git: Some(line.repeat(100_000)), ..IgnoreFiles::default() };
        let held = IgnoreRules::from_nested(
            &(0..20).map(|_| (PathBuf::from("x"), IgnoreFiles { ..texts.clone() })).collect::<Vec<_>>(),
        );
        let size: usize = held.iter().map(|rules| rules.size).sum();
        assert!(size <= MAX_HELD && size > MAX_HELD - line.len(), "{size}");
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
        let rules = IgnoreRules::new(Path::new(""), &texts, &[]);
        let ignored = |name: &str| {
            matches!(
                match_path(std::slice::from_ref(&rules), 0, Path::new(name), Path::new(""), false),
                Match::Ignore(())
            )
        };
        assert!(ignored("file-0") && ignored("file-5000") && !ignored("file-19999"));
    }

    #[test]
    fn a_character_of_several_bytes_at_the_limit_is_no_problem() {
        assert_eq!(whole_lines("a\nää\n", 4), "a\n");
        assert_eq!(whole_lines("ää", 1), "");
        assert_eq!(whole_lines("ä\n", 3), "ä\n");
    }
}
