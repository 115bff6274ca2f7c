//! What ignore files say, read beneath the workspace's descriptor and only where they are regular files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::beneath;

/// The longest ignore file that is read, in bytes; of a longer one the beginning counts.
const LONGEST: u64 = 1 << 20;

/// The rules of one folder.
#[derive(Default)]
pub(super) struct Rules {
    ignore: Option<Gitignore>,
    git: Option<Gitignore>,
    exclude: Option<Gitignore>,
    /// Whether a repository begins here: what git's rules above say doesn't hold in it.
    repository: bool,
}

impl Rules {
    /// Reads those of an open folder. `path` is where it lies, as the paths to be asked about name it.
    pub(super) fn of(folder: BorrowedFd<'_>, path: &Path) -> Self {
        let read = |folder: BorrowedFd<'_>, name: &str| rules(path, beneath::regular(folder, OsStr::new(name)).ok()??);
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
    pub(super) fn above(root: &Path) -> Vec<Self> {
        let is_repository = |folder: &Path| folder.join(".git").symlink_metadata().is_ok();
        if is_repository(root) {
            return Vec::new();
        }
        let mut above: Vec<PathBuf> = Vec::new();
        for folder in root.ancestors().skip(1) {
            above.push(folder.to_owned());
            if is_repository(folder) {
                let open = |path: &PathBuf| Some(Self::of(File::open(path).ok()?.as_fd(), path));
                return above.iter().rev().filter_map(open).collect();
            }
        }
        Vec::new()
    }
}

/// A file's patterns; those that can't be understood are passed over.
fn rules(folder: &Path, file: File) -> Option<Gitignore> {
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut builder = GitignoreBuilder::new(folder);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}

/// What the rules of all folders on the way, the outermost first, say of something; `absolute` says what it is called
/// by those above the workspace, of which there are `above`.
pub(super) fn verdict(rules: &[Rules], above: usize, path: &Path, absolute: &Path, is_folder: bool) -> Match<()> {
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
