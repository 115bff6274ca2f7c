//! What no tool may change: the job and its record, and what makes a later git command run code.
//!
//! `git commit` goes on working: objects, references, the index and the logs are not among it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::git::{self, Config};

/// How many entries of folders are looked at for repositories within the workspace, the nearest first.
const MOST_ENTRIES: usize = 50_000;
/// The most repositories that are looked at.
const MOST_REPOSITORIES: usize = 200;
/// How deep configuration files may include each other.
const INCLUDES: usize = 5;

/// What of a git folder decides which code git runs, as gitrepository-layout(5) and githooks(7) name it. `commondir`
/// and `gitdir` lead to another git folder, and so to another configuration; attributes in `info` name filters without
/// showing among the changes.
const DECIDING: [&str; 6] = ["hooks", "config", "config.worktree", "commondir", "gitdir", "info/attributes"];

/// Paths of a workspace that stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protected {
    /// Files and folders (with all that is in them) that stay as they are, whether they exist or not. Absolute, without
    /// links as far as they exist, sorted, each once. Those of a git folder outside the workspace are among them.
    pub paths: Vec<PathBuf>,
    /// Symbolic links that lead to one of them and must stay what they are: they can't be bound, only compared.
    pub links: Vec<PathBuf>,
    /// Folders outside the workspace that `git commit` in it writes to: it is a worktree or a submodule, and its
    /// repository says so, too. What must stay as it is in them is among `paths`.
    pub git_writes: Vec<PathBuf>,
}

impl Protected {
    /// Looks for it. `job_files` are the job file and all that it is made of; `out` is the folder of all runs, which adds
    /// nothing where it is the workspace or holds it; `home` is where the configuration of whoever runs git lies. Nothing
    /// is run. What can't be read is passed over, and so are repositories beyond the first 50,000 entries of folders, those
    /// near the root first.
    pub fn find(workspace: &Path, job_files: &[PathBuf], out: &Path, home: Option<&Path>) -> Self {
        let mut search = Search {
            root: workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned()),
            home,
            paths: BTreeSet::new(),
            links: BTreeSet::new(),
            git_writes: BTreeSet::new(),
        };
        job_files.iter().for_each(|path| search.protect(path));
        if !search.root.starts_with(canonical_as_far_as_possible(out)) {
            search.protect(out);
        }
        // A repository of its own would take the place of the one around it, so none may appear.
        let dot_git = search.root.join(".git");
        search.repository(&dot_git);
        search.own_writes(&dot_git);
        search.users_configuration();
        for repository in repositories(&search.root, out) {
            search.repository(&repository);
        }
        Self {
            paths: search.paths.into_iter().collect(),
            links: search.links.into_iter().collect(),
            git_writes: search.git_writes.into_iter().collect(),
        }
    }
}

struct Search<'a> {
    root: PathBuf,
    home: Option<&'a Path>,
    paths: BTreeSet<PathBuf>,
    links: BTreeSet<PathBuf>,
    git_writes: BTreeSet<PathBuf>,
}

impl Search<'_> {
    fn protect(&mut self, path: &Path) {
        let mut linked = path.to_owned();
        // As many as Linux follows.
        for _ in 0..40 {
            let Ok(target) = fs::read_link(&linked) else { break };
            let folder = linked.parent().map(canonical_as_far_as_possible).unwrap_or_default();
            let link = linked.file_name().map(|name| folder.join(name));
            self.links.extend(link.filter(|link| link.starts_with(&self.root)));
            linked = folder.join(target);
        }
        self.paths.insert(canonical_as_far_as_possible(path));
    }

    /// A git folder, or a file that leads to one; both may be missing yet.
    fn repository(&mut self, dot_git: &Path) {
        let Ok(metadata) = fs::metadata(dot_git) else {
            self.protect(dot_git);
            return;
        };
        if fs::read_link(dot_git).is_ok() {
            self.protect(dot_git);
        }
        let folder = if metadata.is_dir() {
            dot_git.to_owned()
        } else {
            self.protect(dot_git);
            let Some(folder) = git::linked(dot_git) else { return };
            folder
        };
        self.git_folder(&folder);
        let common = git::common(&folder);
        if common != folder {
            self.git_folder(&common);
        }
        for worktree in folders_in(&common.join("worktrees")) {
            self.git_folder(&worktree);
        }
        for module in git::modules(&common.join("modules"), MOST_REPOSITORIES) {
            self.git_folder(&module);
        }
    }

    fn git_folder(&mut self, folder: &Path) {
        let of_worktree = folder.join("commondir").is_file();
        for name in DECIDING {
            // In any other folder it means nothing.
            if name != "gitdir" || of_worktree {
                self.protect(&folder.join(name));
            }
        }
        // Relative hooks lie where git runs them: in the root of the working tree.
        let tree = folder.parent().filter(|_| folder.ends_with(".git")).unwrap_or(&self.root).to_owned();
        for name in ["config", "config.worktree"] {
            self.configuration(&folder.join(name), &tree, INCLUDES);
        }
    }

    /// What a configuration file names: further such files, and folders of hooks. Conditions are taken to hold.
    fn configuration(&mut self, file: &Path, tree: &Path, depth: usize) {
        let config = Config::read(file);
        let folder = file.parent().unwrap_or(tree).to_owned();
        for path in config.values("include", "path").chain(config.values("includeif", "path")) {
            let Some(path) = self.at_home(path, &folder) else { continue };
            self.beneath_the_root(&path);
            if depth > 0 {
                self.configuration(&path, tree, depth - 1);
            }
        }
        for path in config.values("core", "hookspath") {
            if let Some(path) = self.at_home(path, tree) {
                self.beneath_the_root(&path);
            }
        }
    }

    /// The configuration that holds for every repository can name folders of the working tree, too.
    fn users_configuration(&mut self) {
        let root = self.root.clone();
        let of_user = self.home.map(|home| [home.join(".gitconfig"), home.join(".config/git/config")]);
        for file in of_user.into_iter().flatten().chain([PathBuf::from("/etc/gitconfig")]) {
            self.configuration(&file, &root, INCLUDES);
        }
    }

    /// Whatever lies elsewhere can't be written by tools in any case.
    fn beneath_the_root(&mut self, path: &Path) {
        let canonical = canonical_as_far_as_possible(path);
        // The whole workspace can't be read-only.
        if canonical.starts_with(&self.root) && canonical != self.root {
            self.protect(path);
        }
    }

    fn at_home(&self, path: &str, folder: &Path) -> Option<PathBuf> {
        match path.strip_prefix("~/") {
            Some(rest) => self.home.map(|home| home.join(rest)),
            None if path.is_empty() => None,
            None => Some(folder.join(path)),
        }
    }

    /// Where the workspace's own repository lies outside and says that this is its working tree.
    fn own_writes(&mut self, dot_git: &Path) {
        if !dot_git.is_file() {
            return;
        }
        let Some(folder) = git::linked(dot_git).and_then(|folder| folder.canonicalize().ok()) else { return };
        if !git::leads_back(&folder, dot_git) {
            return;
        }
        let common = git::common(&folder);
        let of_common = ["objects", "refs", "logs"].map(|name| common.join(name));
        for path in of_common.into_iter().chain([folder]) {
            if let Ok(path) = path.canonicalize()
                && !path.starts_with(&self.root)
                && path.is_dir()
            {
                self.git_writes.insert(path);
            }
        }
    }
}

/// The repositories within a folder, the nearest first: `.git` in any spelling, and folders that are one themselves. Looks
/// at no more than [`Protected::find`] does, and not into `out`.
///
/// A repository is data that git takes orders from: its configuration names programs, and `git status` in the one
/// around it looks into it where the index says so.
pub fn repositories(root: &Path, out: &Path) -> Vec<PathBuf> {
    let out = canonical_as_far_as_possible(out);
    let mut found = Vec::new();
    let mut open = std::collections::VecDeque::from([root.to_owned()]);
    let mut entries = 0;
    while let Some(folder) = open.pop_front() {
        let Ok(listed) = fs::read_dir(&folder) else { continue };
        if git::is_folder(&folder) {
            found.push(folder.clone());
        }
        for entry in listed.flatten() {
            entries += 1;
            if entries > MOST_ENTRIES || found.len() >= MOST_REPOSITORIES {
                return found;
            }
            if is_dot_git(&entry.file_name()) {
                found.push(entry.path());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) && entry.path() != out {
                open.push_back(entry.path());
            }
        }
    }
    found
}

/// Whether some file system takes a name for `.git`: in other letter case, with characters between that HFS+ doesn't see,
/// with an end that NTFS drops, or by its short name there. It is what git itself refuses in a path.
pub fn is_dot_git(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    // Most names are ruled out by this.
    if !name.contains(['g', 'G']) {
        return false;
    }
    let unseen = |letter: &char| matches!(*letter, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let seen: String = name.chars().filter(|letter| !unseen(letter)).collect();
    let seen = seen.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']).to_lowercase();
    seen == ".git" || seen == "git~1"
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_REPOSITORIES);
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Links resolved in the part that exists, the rest as it is: some things are yet to come.
pub fn canonical_as_far_as_possible(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let (Ok(canonical), Ok(rest)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            return if rest.as_os_str().is_empty() { canonical } else { canonical.join(rest) };
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests;
