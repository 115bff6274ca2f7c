//! The git objects of a loopback forge, with git's own names.

use std::collections::BTreeMap;

use sha1::{Digest, Sha1};

use crate::support::test_folder::TestFolder;

/// A file or a folder in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) mode: String,
    pub(crate) sha: String,
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) tree: String,
    pub(crate) parents: Vec<String>,
    pub(crate) message: String,
}

/// Objects and branches.
#[derive(Debug, Default)]
pub(crate) struct Git {
    pub(crate) blobs: BTreeMap<String, Vec<u8>>,
    pub(crate) trees: BTreeMap<String, BTreeMap<String, Entry>>,
    pub(crate) commits: BTreeMap<String, Commit>,
    /// Commits by branch.
    pub(crate) branches: BTreeMap<String, String>,
}

fn name(kind: &str, content: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(format!("{kind} {}\0", content.len()));
    hash.update(content);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Git {
    /// The commit that is checked out in a folder, as the head of a branch.
    pub(crate) fn of(folder: &TestFolder, branch: &str) -> Self {
        Self::with_contents(folder, branch, |path, _| std::fs::read(folder.at(path)).expect("the file"))
    }

    /// The same, also if the files have changed since.
    pub(crate) fn of_commit(folder: &TestFolder, branch: &str) -> Self {
        Self::with_contents(folder, branch, |_, object| folder.git_bytes(&["cat-file", "blob", object]))
    }

    fn with_contents(folder: &TestFolder, branch: &str, content_of: impl Fn(&str, &str) -> Vec<u8>) -> Self {
        let mut git = Self::default();
        let head = folder.git(&["rev-parse", "HEAD"]).trim().to_owned();
        let mut files = BTreeMap::new();
        for line in folder.git(&["ls-tree", "-r", "-z", "HEAD"]).split('\0').filter(|line| !line.is_empty()) {
            let (info, path) = line.split_once('\t').expect("a path");
            let words: Vec<&str> = info.split(' ').collect();
            let content = content_of(path, words[2]);
            let sha = git.add_blob(content);
            assert_eq!(sha, words[2], "{path} is as it was committed");
            files.insert(path.to_owned(), Entry { mode: words[0].to_owned(), sha });
        }
        let tree = git.add_tree(&files);
        assert_eq!(tree, folder.git(&["rev-parse", "HEAD^{tree}"]).trim());
        git.commits.insert(head.clone(), Commit { tree, parents: Vec::new(), message: "start".to_owned() });
        git.branches.insert(branch.to_owned(), head);
        git
    }

    pub(crate) fn add_blob(&mut self, content: Vec<u8>) -> String {
        let sha = name("blob", &content);
        self.blobs.insert(sha.clone(), content);
        sha
    }

    /// Adds the trees of files.
    pub(crate) fn add_tree(&mut self, files: &BTreeMap<String, Entry>) -> String {
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        let mut folders: BTreeMap<&str, BTreeMap<String, Entry>> = BTreeMap::new();
        for (path, entry) in files {
            match path.split_once('/') {
                None => drop(entries.insert(path.clone(), entry.clone())),
                Some((folder, rest)) => {
                    folders.entry(folder).or_default().insert(rest.to_owned(), entry.clone());
                }
            }
        }
        for (folder, files) in folders {
            let sha = self.add_tree(&files);
            entries.insert(folder.to_owned(), Entry { mode: "40000".to_owned(), sha });
        }
        // Git sorts folders as if their names ended with a slash.
        let mut sorted: Vec<_> = entries.iter().collect();
        sorted.sort_by_key(|(name, entry)| if entry.mode == "40000" { format!("{name}/") } else { (*name).clone() });
        let mut content = Vec::new();
        for (name, entry) in sorted {
            content.extend(format!("{} {name}\0", entry.mode).bytes());
            let digits = |at: usize| u8::from_str_radix(&entry.sha[2 * at..2 * at + 2], 16).expect("digits");
            content.extend((0..20).map(digits));
        }
        let sha = self::name("tree", &content);
        self.trees.insert(sha.clone(), entries);
        sha
    }

    pub(crate) fn add_commit(&mut self, commit: Commit) -> String {
        let text = format!("{commit:?}");
        let sha = name("commit", text.as_bytes());
        self.commits.insert(sha.clone(), commit);
        sha
    }

    /// All files of a tree, by path.
    pub(crate) fn files(&self, tree: &str) -> BTreeMap<String, Entry> {
        let mut files = BTreeMap::new();
        for (name, entry) in self.trees.get(tree).into_iter().flatten() {
            if entry.mode == "40000" {
                let below = self.files(&entry.sha).into_iter().map(|(path, entry)| (format!("{name}/{path}"), entry));
                files.extend(below);
            } else {
                files.insert(name.clone(), entry.clone());
            }
        }
        files
    }

    /// The text of a file at the head of a branch; `None` if it isn't there.
    pub(crate) fn text(&self, branch: &str, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.content(branch, path)?).into_owned())
    }

    /// The bytes of a file at the head of a branch; `None` if it isn't there.
    pub(crate) fn content(&self, branch: &str, path: &str) -> Option<Vec<u8>> {
        let commit = self.commits.get(self.branches.get(branch)?)?;
        let entry = self.files(&commit.tree).remove(path)?;
        self.blobs.get(&entry.sha).cloned()
    }
}
