//! Which files git changes when it checks them out, such as those in Git LFS, see gitattributes(5).

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::Repository;
use super::config::read_text;

/// The name of the files with attributes.
pub(crate) const ATTRIBUTES_FILE: &str = ".gitattributes";

/// The files whose content in the working tree differs from that of their object by more than line ends.
#[derive(Debug, Default)]
pub(crate) struct FilteredFiles {
    /// Patterns for absolute paths.
    patterns: Vec<Gitignore>,
}

impl FilteredFiles {
    /// Reads the attributes of a repository for the files below `root`, a folder of its working tree. `nested` are the paths of
    /// attributes files below it.
    pub(crate) fn read(repository: &Repository, root: &Path, nested: impl Iterator<Item = PathBuf>) -> Self {
        let worktree = &repository.worktree;
        let above = root.ancestors().take_while(|folder| folder.starts_with(worktree));
        let files = [(repository.common_dir.join("info/attributes"), worktree.clone())]
            .into_iter()
            .chain(above.map(|folder| (folder.join(ATTRIBUTES_FILE), folder.to_owned())))
            .chain(nested.filter_map(|file| Some((root.join(&file), root.join(file.parent()?)))));
        let patterns = files.filter_map(|(file, folder)| filter_patterns(&folder, &read_text(&file)?)).collect();
        Self { patterns }
    }

    /// Whether git leaves the content of all files as it is.
    pub(crate) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether git may change the content of a file, given by its absolute path.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.patterns.iter().any(|patterns| patterns.matched(path, false).is_ignore())
    }
}

/// The patterns of the lines that set a filter; `None` without any. Lines that unset one aren't considered.
fn filter_patterns(folder: &Path, text: &str) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(folder);
    let mut macros = HashSet::new();
    for line in text.trim_start_matches('\u{feff}').lines().map(str::trim_start) {
        let (pattern, attributes) = match line.strip_prefix('"') {
            // Such a pattern has escapes. It may as well match everything.
            Some(quoted) => ("*", quoted.rsplit_once('"').map_or("", |(_, attributes)| attributes)),
            None => line.split_once([' ', '\t']).unwrap_or((line, "")),
        };
        let is_filter = |attribute: &str| {
            attribute.starts_with("filter=")
                || attribute.starts_with("working-tree-encoding=")
                || attribute == "ident"
                || macros.contains(attribute)
        };
        if pattern.starts_with(['#', '!']) || !attributes.split_ascii_whitespace().any(is_filter) {
            continue;
        }
        match pattern.strip_prefix("[attr]") {
            Some(name) => drop(macros.insert(name)),
            // Git skips malformed patterns, too.
            None => drop(builder.add_line(None, pattern)),
        }
    }
    builder.build().ok().filter(|patterns| !patterns.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_filters_are_found() {
        let text = "# *.a filter=x\n*.psd filter=lfs diff=lfs -text\n*.txt text\n\t/top.bin\tident\n[attr]big filter=lfs\n\
                    sub/**/x.dat big\n*.c -filter\nu.txt working-tree-encoding=UTF-16\n";
        let filtered = FilteredFiles { patterns: filter_patterns(Path::new("/r"), text).into_iter().collect() };
        let contains = |path: &str| filtered.contains(&Path::new("/r").join(path));
        for path in ["a.psd", "deep/er/a.psd", "top.bin", "sub/x.dat", "sub/y/z/x.dat", "u.txt"] {
            assert!(contains(path), "{path}");
        }
        for path in ["a.txt", "sub/top.bin", "x.dat", "a.c", "a.a"] {
            assert!(!contains(path), "{path}");
        }
        assert!(filter_patterns(Path::new("/r"), "* text=auto\n").is_none());
        let quoted = filter_patterns(Path::new("/r"), "\"a \\\"b\" filter=x\n").unwrap();
        assert!(quoted.matched("/r/a \"b", false).is_ignore());
    }
}
