//! What no tool may change: the job and its record, files that control other programs, and git folders.

mod repositories;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

pub use self::repositories::Repositories;
use self::repositories::{MIN_SEARCH_TIME, SEARCH_TIME};
use super::allowed_changes::AllowedChanges;
use crate::git::{self, GitConfig};
use crate::isolation::is_own_workspace;
use crate::job::GitAccess;
pub use crate::workspace::path_resolver::canonical_as_far_as_possible;

/// The most worktrees and submodules of one repository.
const MAX_WORKTREES: usize = 2_000;
/// How long the workspace is searched for repositories if there are only file tools, which can't create one.
const SHORT_SEARCH_TIME: Duration = Duration::from_secs(2);
/// The most git configuration files that are read, including included ones.
const MAX_GIT_CONFIGS: usize = 50_000;
/// How much of them is read, in bytes.
const MAX_GIT_CONFIG_BYTES: u64 = 128 << 20;
/// The most files and folders that they may refer to.
const MAX_CONFIG_PATHS: usize = 5_000;
/// The parts of a git folder that determine which code git runs, see gitrepository-layout(5) and githooks(7). `commondir` and
/// `gitdir` refer to another git folder with another configuration; attributes in `info` select filters without showing up as
/// a change.
const GIT_EXECUTION_PATHS: [&str; 6] = ["hooks", "config", "config.worktree", "commondir", "gitdir", "info/attributes"];

/// Files in the workspace that control other programs: CI services, editors, direnv and legwork itself.
const DEFAULT_PROTECTED: [&str; 7] =
    [".github", ".gitlab-ci.yml", ".envrc", ".vscode", ".devcontainer", ".devcontainer.json", JOBS_DIR];
/// The folder of jobs. Protected if it contains jobs or doesn't exist yet.
const JOBS_DIR: &str = "jobs";
/// The most files next to the job file that are checked for being jobs.
const MAX_JOB_FILES: usize = 1_000;
/// How much of such a file is read, in bytes.
const MAX_JOB_BYTES: u64 = 256 << 10;

/// The protected paths of a workspace.
#[derive(Debug, Clone, Default)]
pub struct ProtectedPaths {
    /// Files and folders, with everything in them, that must not change, whether they exist or not. Absolute, canonical except
    /// for parts that don't exist, sorted and without duplicates. Includes those of a git folder outside the workspace, and
    /// with [`GitAccess::Read`] the git folders themselves.
    pub paths: Vec<PathBuf>,
    /// Symbolic links to protected paths. They can't be mounted read-only, only compared.
    pub links: Vec<PathBuf>,
    /// Folders outside the workspace that `git commit` writes to, if the workspace is a worktree or a submodule and the
    /// repository confirms that. What must not change in them is in `paths`.
    pub git_writes: Vec<PathBuf>,
    /// Git folders outside the workspace that git reads for the same reason.
    pub git_reads: Vec<PathBuf>,
    /// What may change inside the paths.
    pub allowed_changes: AllowedChanges,
    /// The repositories in the workspace.
    pub repositories: Repositories,
}

/// The input of a search for protected paths.
#[derive(Debug, Clone, Copy)]
pub struct ProtectionConfig<'a> {
    /// The folder that tools work in.
    pub workspace: &'a Path,
    /// The job file and the files that it includes.
    pub job_files: &'a [PathBuf],
    /// The folder of all runs. It isn't protected if it contains the workspace.
    pub out: &'a Path,
    /// The home folder with the user's git configuration.
    pub home: Option<&'a Path>,
    /// What the job lets commands change in git folders.
    pub git: GitAccess,
    /// Paths that the job protects, relative to the workspace.
    pub protect: &'a [String],
    /// Paths that the job excludes from the protection, relative to the workspace.
    pub allow_changes: &'a [String],
    /// Folders that commands may change in addition to the workspace.
    pub write: &'a [PathBuf],
    /// Whether commands run, so that the search has to be complete.
    pub has_commands: bool,
    /// The run's own time limit, which the search shouldn't exceed by more than some seconds.
    pub time: Option<Duration>,
}

impl ProtectedPaths {
    /// Searches for the protected paths. Runs no program, and skips what can't be read.
    pub fn find(config: &ProtectionConfig<'_>) -> Self {
        let time = if config.has_commands { SEARCH_TIME } else { SHORT_SEARCH_TIME };
        Self::find_within(config, time.min(config.time.unwrap_or(time).max(MIN_SEARCH_TIME)))
    }

    fn find_within(config: &ProtectionConfig<'_>, time: Duration) -> Self {
        let root = config.workspace.canonicalize().unwrap_or_else(|_| config.workspace.to_owned());
        let end = Some(Instant::now() + time);
        let mut search = ProtectedPathSearch { root, home: config.home, end, ..Default::default() };
        config.job_files.iter().for_each(|path| search.protect(path));
        if !search.root.starts_with(canonical_as_far_as_possible(config.out)) {
            search.protect(config.out);
        }
        let excluded = search.add_default_and_configured(config);
        // No repository may appear here: it would shadow the one around the workspace.
        let dot_git = search.root.join(".git");
        search.add_repository(&dot_git);
        if config.git == GitAccess::Commit && !dot_git.exists() {
            search.paths.remove(&dot_git);
            let tree = search.root.clone();
            search.add_git_dir(&dot_git, &[tree]);
        }
        let (git_writes, mut git_reads) = search.external_git_folders(&dot_git).unwrap_or_default();
        let own_git_folders = search.git_folders.clone();
        let root = search.root.clone();
        let repositories = Repositories::find(&root, config.out, search.time_left());
        for repository in &repositories.folders {
            search.add_repository(repository);
        }
        search.is_incomplete |= !repositories.is_complete;
        for folder in config.write.iter().filter(|folder| !folder.starts_with(&root)) {
            let found = Repositories::find(folder, config.out, search.time_left());
            search.is_incomplete |= !found.is_complete;
            found.folders.iter().for_each(|repository| search.add_repository(repository));
        }
        git_reads.extend(search.add_alternates(&own_git_folders));
        search.add_user_config();
        if config.git == GitAccess::Read {
            search.paths.extend(search.git_folders.iter().cloned());
        }
        Self {
            paths: search.paths.into_iter().collect(),
            links: search.links.into_iter().collect(),
            git_writes: git_writes.into_iter().collect(),
            git_reads: git_reads.into_iter().collect(),
            allowed_changes: AllowedChanges {
                git: config.git,
                git_folders: search.git_folders,
                unprotected: excluded,
                guarded_objects: BTreeSet::new(),
            },
            repositories: Repositories { is_complete: !search.is_incomplete, ..repositories },
        }
    }
}

/// The paths relative to the workspace that are protected by default.
pub fn default_protected() -> impl Iterator<Item = &'static str> {
    DEFAULT_PROTECTED.iter().copied()
}

/// Whether a path relative to the workspace may be protected by default.
pub fn may_be_protected(path: &Path) -> bool {
    let path: PathBuf = path.components().filter(|part| !matches!(part, Component::CurDir)).collect();
    DEFAULT_PROTECTED.iter().any(|known| path.starts_with(known))
}

/// Whether a file's name is that of a YAML file, as jobs have.
pub fn is_job_name(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "yaml" || end == "yml")
}

/// Whether a YAML file looks like a job: it has a `parent` key.
fn is_job(path: &Path) -> bool {
    let mut text = String::new();
    is_job_name(path)
        && git::open_regular_file(path)
            .is_some_and(|file| file.take(MAX_JOB_BYTES).read_to_string(&mut text).is_ok() || !text.is_empty())
        && text.lines().any(|line| line.starts_with("parent:"))
}

#[derive(Default)]
struct ProtectedPathSearch<'a> {
    root: PathBuf,
    home: Option<&'a Path>,
    paths: BTreeSet<PathBuf>,
    links: BTreeSet<PathBuf>,
    git_folders: BTreeSet<PathBuf>,
    /// The roots of working trees.
    trees: BTreeSet<PathBuf>,
    /// The configuration files that were read, each with the working tree that it is for.
    configurations: BTreeSet<(PathBuf, PathBuf)>,
    /// How many bytes of them were read.
    bytes: u64,
    /// How many paths they name.
    named: usize,
    end: Option<Instant>,
    /// Whether something was skipped for lack of time or because of a limit.
    is_incomplete: bool,
}

impl ProtectedPathSearch<'_> {
    /// The remaining time.
    fn time_left(&self) -> Duration {
        self.end.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()))
    }

    /// Adds what is protected by default and by the job. Returns the paths that the job excludes.
    fn add_default_and_configured(&mut self, config: &ProtectionConfig<'_>) -> Vec<PathBuf> {
        let beneath = |path: &String| {
            let path: PathBuf =
                Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))).collect();
            canonical_as_far_as_possible(&self.root.join(path))
        };
        // The job and its record are always protected.
        let may_exclude = |path: &PathBuf| {
            path.starts_with(&self.root)
                && *path != self.root
                && !self.paths.iter().any(|always| path.starts_with(always))
        };
        let excluded: Vec<PathBuf> = config.allow_changes.iter().map(beneath).filter(may_exclude).collect();
        let mut paths: Vec<PathBuf> = DEFAULT_PROTECTED.iter().map(|name| self.root.join(name)).collect();
        let jobs = |folder: &Path| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_JOB_FILES);
            entries.map(|entry| entry.path()).filter(|path| is_job(path)).collect::<Vec<_>>()
        };
        // Many projects have a folder of that name without jobs.
        let folder = self.root.join(JOBS_DIR);
        if folder.is_dir() && jobs(&folder).is_empty() {
            paths.retain(|path| *path != folder);
        }
        paths.extend(config.protect.iter().map(|path| self.root.join(path)));
        // Other jobs in the same folder.
        paths.extend(config.job_files.first().and_then(|job| job.parent()).map(jobs).unwrap_or_default());
        for path in paths {
            let canonical = self.canonical(&path);
            // A link to a folder that contains the workspace would make all of it read-only.
            if !self.root.starts_with(&canonical) && !excluded.iter().any(|path| canonical.starts_with(path)) {
                self.protect(&path);
            }
        }
        excluded
    }

    fn protect(&mut self, path: &Path) {
        let mut linked = path.to_owned();
        // Linux follows no more links than this.
        for _ in 0..40 {
            let Ok(target) = fs::read_link(&linked) else { break };
            let folder = linked.parent().map(canonical_as_far_as_possible).unwrap_or_default();
            let link = linked.file_name().map(|name| folder.join(name));
            self.links.extend(link.filter(|link| link.starts_with(&self.root)));
            linked = folder.join(target);
        }
        self.paths.insert(self.canonical(path));
    }

    /// The canonical path of the part that exists, followed by the rest.
    fn canonical(&self, path: &Path) -> PathBuf {
        // Most paths are in the root itself, which is canonical.
        let is_plain = path.parent() == Some(&self.root)
            && path.file_name().is_some()
            && !fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        if is_plain { path.to_owned() } else { canonical_as_far_as_possible(path) }
    }

    /// Adds a `.git`, which may be a folder, a file that refers to one, or missing.
    fn add_repository(&mut self, dot_git: &Path) {
        if self.time_left().is_zero() {
            self.is_incomplete = true;
            return;
        }
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
            let Some(folder) = git::gitfile_target(dot_git) else { return };
            folder
        };
        let common = git::common_dir(&folder);
        let mut worktrees = folders_in(&common.join("worktrees"));
        // Those of other rows and subagents come and go. What the guard accepts there can't make git run anything.
        worktrees.retain(|note| !git::worktree_root(note).is_some_and(|tree| is_own_workspace(&tree)));
        let mut folders = vec![folder, common.clone()];
        folders.extend_from_slice(&worktrees);
        folders.dedup();
        // They share a configuration, in which a relative folder of hooks is relative to each working tree.
        let trees: Vec<PathBuf> = folders.iter().filter_map(|folder| self.worktree_of(folder)).collect();
        for folder in &folders {
            self.add_git_dir(folder, &trees);
        }
        for module in git::submodule_git_dirs(&common.join("modules"), MAX_WORKTREES) {
            let trees: Vec<PathBuf> = self.worktree_of(&module).into_iter().collect();
            self.add_git_dir(&module, &trees);
        }
    }

    /// The root of a git folder's working tree, if it is in the workspace.
    fn worktree_of(&self, folder: &Path) -> Option<PathBuf> {
        let tree = git::worktree_root(folder).unwrap_or_else(|| self.root.clone());
        let tree = canonical_as_far_as_possible(&tree);
        tree.starts_with(&self.root).then_some(tree)
    }

    /// Adds a git folder with these working trees, to which relative paths in its configuration refer.
    fn add_git_dir(&mut self, folder: &Path, trees: &[PathBuf]) {
        self.git_folders.insert(canonical_as_far_as_possible(folder));
        self.trees.extend(trees.iter().cloned());
        let is_worktree = folder.join("commondir").is_file();
        for name in GIT_EXECUTION_PATHS {
            // `gitdir` has no meaning in other git folders.
            if name != "gitdir" || is_worktree {
                self.protect(&folder.join(name));
            }
        }
        for name in ["config", "config.worktree"] {
            for tree in trees {
                self.add_config(&folder.join(name), tree);
            }
        }
    }

    /// Adds the files that a configuration file includes and the folders of hooks that it names. Conditions are assumed to
    /// hold. Each file is read once, because files can include each other.
    fn add_config(&mut self, file: &Path, tree: &Path) {
        let mut queue = vec![file.to_owned()];
        while let Some(file) = queue.pop() {
            let Ok(metadata) = fs::metadata(&file) else { continue };
            let Ok(canonical) = file.canonicalize() else { continue };
            if self.configurations.contains(&(canonical.clone(), tree.to_owned())) {
                continue;
            }
            let bytes = self.bytes + metadata.len().min(git::MAX_FILE_BYTES);
            let is_too_many = bytes > MAX_GIT_CONFIG_BYTES || self.configurations.len() >= MAX_GIT_CONFIGS;
            if is_too_many || self.time_left().is_zero() {
                self.is_incomplete = true;
                return;
            }
            self.bytes = bytes;
            self.configurations.insert((canonical, tree.to_owned()));
            let config = GitConfig::read(&file);
            let folder = file.parent().unwrap_or(tree).to_owned();
            let includes = config.values("include", "path").chain(config.values("includeif", "path"));
            let includes = includes.filter_map(|path| Some((self.expand_home(path, &folder)?, true)));
            let hooks =
                config.values("core", "hookspath").filter_map(|path| Some((self.expand_home(path, tree)?, false)));
            let left = MAX_CONFIG_PATHS - self.named;
            let named: Vec<(PathBuf, bool)> = includes.chain(hooks).take(left + 1).collect();
            if named.len() > left {
                self.is_incomplete = true;
                return;
            }
            self.named += named.len();
            for (path, is_configuration) in named {
                self.protect_in_workspace(&path);
                if is_configuration {
                    queue.push(path);
                }
            }
        }
    }

    /// Protects the object folders in the workspace that those of the workspace's own git folders borrow from, and returns the
    /// others.
    fn add_alternates(&mut self, git_folders: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
        let borrowing = git_folders.iter().map(|folder| folder.join("objects"));
        let alternates: BTreeSet<PathBuf> =
            borrowing.flat_map(|objects| git::alternate_object_dirs(&objects)).collect();
        let (inside, outside): (Vec<_>, Vec<_>) = alternates.into_iter().partition(|path| path.starts_with(&self.root));
        for path in inside {
            if !self.git_folders.iter().any(|folder| path.starts_with(folder)) {
                self.protect(&path);
            }
        }
        outside
    }

    /// Adds what the user's and the system's configuration name in working trees.
    fn add_user_config(&mut self) {
        self.trees.insert(self.root.clone());
        let trees: Vec<PathBuf> = self.trees.iter().cloned().collect();
        let of_user = self.home.map(|home| [home.join(".gitconfig"), home.join(".config/git/config")]);
        for file in of_user.into_iter().flatten().chain([PathBuf::from("/etc/gitconfig")]) {
            for tree in &trees {
                self.add_config(&file, tree);
            }
        }
    }

    /// Protects a path in the workspace; tools can't write elsewhere.
    fn protect_in_workspace(&mut self, path: &Path) {
        let canonical = canonical_as_far_as_possible(path);
        // The whole workspace must stay writable.
        if canonical.starts_with(&self.root) && canonical != self.root {
            self.protect(path);
        }
    }

    fn expand_home(&self, path: &str, folder: &Path) -> Option<PathBuf> {
        match path.strip_prefix("~/") {
            Some(rest) => self.home.map(|home| home.join(rest)),
            None if path.is_empty() => None,
            None => Some(folder.join(path)),
        }
    }

    /// The folders outside of the workspace that git writes to and reads, if the workspace's own repository is there and confirms
    /// that this is its working tree.
    fn external_git_folders(&self, dot_git: &Path) -> Option<(BTreeSet<PathBuf>, BTreeSet<PathBuf>)> {
        let folder = git::gitfile_target(dot_git)?.canonicalize().ok()?;
        if !git::is_linked_back(&folder, dot_git) {
            return None;
        }
        let common = git::common_dir(&folder);
        let is_outside = |path: &PathBuf| !path.starts_with(&self.root) && path.is_dir();
        let canonical = |path: PathBuf| path.canonicalize().ok().filter(is_outside);
        // In a workspace of its own, an agent can commit, and the user's branches and tags stay as they are.
        let of_common: &[&str] = if is_own_workspace(&self.root) { &["objects"] } else { &["objects", "refs", "logs"] };
        let of_common = of_common.iter().map(|name| common.join(name));
        let writes = of_common.chain([folder.clone()]).filter_map(canonical).collect();
        Some((writes, [common, folder].into_iter().filter_map(canonical).collect()))
    }
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_WORKTREES);
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}
