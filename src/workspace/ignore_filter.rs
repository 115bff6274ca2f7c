//! The ignore rules for walks of the `ignore` crate. By itself, it would follow a link in place of an ignore file, wait for a pipe, and
//! read a file of any size; a command may have made any of these.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ignore::WalkBuilder;

use super::ignore_files::{IgnoreFiles, IgnoreRules, match_path};
use super::open_beneath;
use crate::git::open_regular_file;
use crate::sync::IgnorePoison;

/// Rules of a folder and of those above it, outermost first.
type Rules = Arc<Vec<Arc<IgnoreRules>>>;

/// Says which paths below a folder are ignored.
#[derive(Default)]
pub(crate) struct IgnoreFilter {
    /// The folder as the walk names it.
    root: PathBuf,
    /// Its canonical path.
    real: PathBuf,
    /// Whether `.ignore` counts.
    dot_ignore: bool,
    /// Whether `.git/info/exclude` counts.
    exclude: bool,
    /// The user's own list for all repositories.
    of_user: Option<IgnoreRules>,
    above: Rules,
    folders: Mutex<HashMap<PathBuf, Rules>>,
}

impl IgnoreFilter {
    /// The rules that every clone has: those of `.gitignore` and `.ignore`.
    pub(crate) fn shared(root: &Path) -> Self {
        Self { dot_ignore: true, ..Self::default() }.of(root)
    }

    /// The rules that git follows: those of `.gitignore`, of the repository, and of the user's own list.
    pub(crate) fn of_git(root: &Path, list_of_user: Option<&Path>) -> Self {
        let filter = Self { exclude: true, ..Self::default() }.of(root);
        let list = list_of_user.and_then(open_regular_file).map(IgnoreFiles::of_list);
        let of_user = list.map(|files| IgnoreRules::new(&filter.real, &files, &[] as &[IgnoreRules]));
        Self { of_user, ..filter }
    }

    fn of(self, root: &Path) -> Self {
        let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let mut above: Vec<Arc<IgnoreRules>> = Vec::new();
        for (folder, files) in IgnoreFiles::read_above(&real) {
            let rules = IgnoreRules::new(&folder, &self.select(files), &above);
            above.push(Arc::new(rules));
        }
        Self { root: root.to_owned(), real, above: Arc::new(above), ..self }
    }

    /// A walk that obeys no ignore file by itself. Hidden files are left out, unless that is changed.
    pub(crate) fn walk(&self) -> WalkBuilder {
        let mut walk = WalkBuilder::new(&self.root);
        walk.standard_filters(false).hidden(true);
        walk
    }

    /// Whether a path of the walk is ignored.
    pub(crate) fn is_ignored(&self, path: &Path, is_folder: bool) -> bool {
        let Some(relative) = path.strip_prefix(&self.root).ok().filter(|path| !path.as_os_str().is_empty()) else {
            return false;
        };
        let path = self.real.join(relative);
        let rules = self.rules_in(path.parent().unwrap_or(&self.real));
        let matched = match_path(&rules, rules.len(), &path, &path, is_folder);
        let of_user = self.of_user.as_slice();
        matched.or(match_path(of_user, of_user.len(), &path, &path, is_folder)).is_ignore()
    }

    fn rules_in(&self, folder: &Path) -> Rules {
        if let Some(known) = self.folders.lock().ignore_poison().get(folder) {
            return Arc::clone(known);
        }
        let above = folder.parent().filter(|_| folder != self.real);
        let outer = above.map_or_else(|| Arc::clone(&self.above), |above| self.rules_in(above));
        let opened = open_beneath::open_root(folder).map(|opened| IgnoreFiles::read_in(opened.as_fd()));
        let files = self.select(opened.unwrap_or_default());
        let rules = if files.is_empty() {
            outer
        } else {
            let rules = Arc::new(IgnoreRules::new(folder, &files, &outer));
            Arc::new(outer.iter().cloned().chain([rules]).collect())
        };
        self.folders.lock().ignore_poison().insert(folder.to_owned(), Arc::clone(&rules));
        rules
    }

    fn select(&self, files: IgnoreFiles) -> IgnoreFiles {
        files.only(self.dot_ignore, self.exclude)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn names(filter: IgnoreFilter) -> Vec<String> {
        let filter = Arc::new(filter);
        let (root, rules) = (filter.root.clone(), Arc::clone(&filter));
        let is_wanted = move |entry: &ignore::DirEntry| {
            !rules.is_ignored(entry.path(), entry.file_type().is_some_and(|kind| kind.is_dir()))
        };
        let walk = filter.walk().filter_entry(is_wanted).sort_by_file_name(Ord::cmp).build();
        let paths = walk.filter_map(Result::ok).map(ignore::DirEntry::into_path);
        let names = paths.filter_map(|path| Some(path.strip_prefix(&root).ok()?.display().to_string()));
        names.filter(|name| !name.is_empty()).collect()
    }

    #[test]
    fn ignore_files_are_read_and_links_pipes_and_huge_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in
            ["one/a", "one/b", "one/keep/b", "two/a", "three/a", "four/a", ".git/info", ".git/objects", ".git/refs"]
        {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(at(".git/info/exclude"), "/two\n").unwrap();
        fs::write(at("one/.gitignore"), "b\n").unwrap();
        fs::write(at("one/keep/.gitignore"), "!b\n").unwrap();
        fs::write(at(".ignore"), "/four\n").unwrap();
        fs::write(at("own"), "own\nthree\n").unwrap();
        mknodat(CWD, at("two/.gitignore"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink("/dev/zero", at("three/.gitignore")).unwrap();
        fs::File::create(at("four/.gitignore")).unwrap().set_len(1 << 40).unwrap();
        let shared = ["one", "one/a", "one/keep", "one/keep/b", "own", "three", "three/a", "two", "two/a"];
        assert_eq!(names(IgnoreFilter::shared(folder.path())), shared);
        let of_git = ["four", "four/a", "one", "one/a", "one/keep", "one/keep/b"];
        assert_eq!(names(IgnoreFilter::of_git(folder.path(), Some(&at("own")))), of_git);
        assert_eq!(names(IgnoreFilter::shared(&at("one"))), ["a", "keep", "keep/b"]);
        assert_eq!(names(IgnoreFilter::of_git(&at("three"), Some(&at("two/.gitignore")))), ["a"]);
    }
}
