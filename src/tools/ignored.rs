//! What ignore files say, read beneath the workspace's descriptor and only where they are regular files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use serde::{Deserialize, Serialize};

use super::beneath;

/// The longest ignore file that is read, in bytes; of a longer one the beginning counts.
const LONGEST: u64 = 1 << 20;

/// What the ignore files of one folder hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Texts {
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

impl Texts {
    /// Reads those of an open folder.
    pub(crate) fn of(folder: BorrowedFd<'_>) -> Self {
        let read = |folder: BorrowedFd<'_>, name: &str| text(beneath::regular(folder, OsStr::new(name)).ok()??);
        let dot_git = rustix::fs::statat(folder, ".git", rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let info = dot_git.then(|| beneath::folder(folder, Path::new(".git/info")).ok()).flatten();
        Self {
            ignore: read(folder, ".ignore"),
            git: read(folder, ".gitignore"),
            exclude: info.and_then(|info| read(info.as_fd(), "exclude")),
            repository: dot_git,
        }
    }

    /// Those of the repository that the workspace is a part of, the outermost folder first. A workspace that is a
    /// repository, or in none, is not subject to what lies above it.
    pub(crate) fn above(root: &Path) -> Vec<(PathBuf, Self)> {
        let is_repository = |folder: &Path| folder.join(".git").symlink_metadata().is_ok();
        if is_repository(root) {
            return Vec::new();
        }
        let mut above: Vec<PathBuf> = Vec::new();
        for folder in root.ancestors().skip(1) {
            above.push(folder.to_owned());
            if is_repository(folder) {
                let open = |path: PathBuf| Some((Self::of(File::open(&path).ok()?.as_fd()), path));
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
pub(crate) struct Rules {
    ignore: Option<Gitignore>,
    git: Option<Gitignore>,
    exclude: Option<Gitignore>,
    repository: bool,
}

impl Rules {
    /// Understands texts. `path` is where the folder lies, as the paths to be asked about name it.
    pub(crate) fn new(path: &Path, texts: &Texts) -> Self {
        let read = |text: &Option<String>| rules(path, text.as_deref()?);
        Self {
            ignore: read(&texts.ignore),
            git: read(&texts.git),
            exclude: read(&texts.exclude),
            repository: texts.repository,
        }
    }

    /// Reads those of an open folder.
    pub(super) fn of(folder: BorrowedFd<'_>, path: &Path) -> Self {
        Self::new(path, &Texts::of(folder))
    }

    /// Those above the workspace, as [`Texts::above`] finds them.
    pub(super) fn above(root: &Path) -> Vec<Self> {
        Texts::above(root).iter().map(|(path, texts)| Self::new(path, texts)).collect()
    }
}

/// The beginning of an ignore file.
fn text(file: File) -> Option<String> {
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// A file's patterns; those that can't be understood are passed over.
fn rules(folder: &Path, text: &str) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(folder);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}

/// What the rules of all folders on the way, the outermost first, say of something; `absolute` says what it is called
/// by those above the workspace, of which there are `above`.
pub(crate) fn verdict(rules: &[Rules], above: usize, path: &Path, absolute: &Path, is_folder: bool) -> Match<()> {
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
