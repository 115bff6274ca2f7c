//! What no tool may change: the job and its record, what other tools take orders from, and git folders.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use super::allowed_changes::AllowedChanges;
use crate::git;
use crate::git::{GitConfig, is_dot_git};
use crate::job::GitAccess;
pub use crate::workspace::path_resolver::canonical_as_far_as_possible;

/// The most repositories within the workspace.
const MOST_REPOSITORIES: usize = 10_000;
/// The most worktrees and submodules of one repository.
const MOST_OF_ONE: usize = 2_000;
/// How long the workspace is searched for repositories where commands run.
const SEARCH_TIME: Duration = Duration::from_secs(30);
/// The same where there are only file tools, which can't make one.
const SHORT_SEARCH_TIME: Duration = Duration::from_secs(2);
/// The most configuration files of git that are read, those that others include among them.
const MOST_CONFIGURATIONS: usize = 50_000;
/// How much of them is read, in bytes.
const CONFIGURATION_BYTES: u64 = 128 << 20;
/// The most files and folders that they may name.
const MOST_NAMED: usize = 5_000;
/// The least time for a search, however little the run itself may take: enough for most workspaces.
const LEAST_TIME: Duration = Duration::from_secs(5);

/// What of a git folder decides which code git runs, as gitrepository-layout(5) and githooks(7) name it. `commondir`
/// and `gitdir` lead to another git folder, and so to another configuration; attributes in `info` name filters without
/// showing among the changes.
const GIT_EXECUTION_PATHS: [&str; 6] = ["hooks", "config", "config.worktree", "commondir", "gitdir", "info/attributes"];

/// What other programs take orders from, from the workspace: CI services, editors, direnv, and the folder of jobs.
const DEFAULT_PROTECTED: [&str; 7] =
    [".github", ".gitlab-ci.yml", ".envrc", ".vscode", ".devcontainer", ".devcontainer.json", JOBS];
/// The folder of jobs, where it holds any or isn't there yet.
const JOBS: &str = "jobs";
/// The most files beside the job's that are looked at for being jobs.
const MOST_JOBS: usize = 1_000;
/// How much of such a file is read, in bytes.
const JOB_BYTES: u64 = 256 << 10;

/// Kernel file systems, which hold no repositories and no end of entries: proc, sysfs, cgroup2, debugfs, tracefs, devpts.
const KERNEL_FILESYSTEMS: [i64; 6] = [0x9fa0, 0x6265_6572, 0x6367_7270, 0x6462_6720, 0x7472_6163, 0x1cd1];

/// Paths of a workspace that stay as they are.
#[derive(Debug, Clone, Default)]
pub struct ProtectedPaths {
    /// Files and folders (with all that is in them) that stay as they are, whether they exist or not. Absolute, without
    /// links as far as they exist, sorted, each once. Those of a git folder outside the workspace are among them, and with
    /// [`GitAccess::Read`] the git folders themselves.
    pub paths: Vec<PathBuf>,
    /// Symbolic links that lead to one of them and must stay what they are: they can't be bound, only compared.
    pub links: Vec<PathBuf>,
    /// Folders outside the workspace that `git commit` in it writes to: it is a worktree or a submodule, and its
    /// repository says so, too. What must stay as it is in them is among `paths`.
    pub git_writes: Vec<PathBuf>,
    /// The git folders outside the workspace that git reads there, for the same reason.
    pub git_reads: Vec<PathBuf>,
    /// What may change within the paths.
    pub allowed_changes: AllowedChanges,
    /// The repositories within the workspace.
    pub repositories: Repositories,
}

/// What a search for protected paths starts from.
#[derive(Debug, Clone, Copy)]
pub struct ProtectionConfig<'a> {
    /// The folder that tools work in.
    pub workspace: &'a Path,
    /// The job file and all that it is made of.
    pub job_files: &'a [PathBuf],
    /// The folder of all runs, which adds nothing where it is the workspace or holds it.
    pub out: &'a Path,
    /// Where the configuration of whoever runs git lies.
    pub home: Option<&'a Path>,
    /// What the job lets commands change in git folders.
    pub git: GitAccess,
    /// What the job protects, from the workspace.
    pub protect: &'a [String],
    /// What the job takes the protection off, from the workspace.
    pub allow_changes: &'a [String],
    /// Folders beside the workspace that commands may change.
    pub write: &'a [PathBuf],
    /// Whether commands run, so that the search has to be complete.
    pub has_commands: bool,
    /// How long the run itself may take, so that the search doesn't take longer, but for some seconds.
    pub time: Option<Duration>,
}

impl ProtectedPaths {
    /// Looks for it. Nothing is run, and what can't be read is passed over.
    pub fn find(wanted: &ProtectionConfig<'_>) -> Self {
        let time = if wanted.has_commands { SEARCH_TIME } else { SHORT_SEARCH_TIME };
        Self::find_within(wanted, time.min(wanted.time.unwrap_or(time).max(LEAST_TIME)))
    }

    fn find_within(wanted: &ProtectionConfig<'_>, time: Duration) -> Self {
        let root = wanted.workspace.canonicalize().unwrap_or_else(|_| wanted.workspace.to_owned());
        let mut search = ProtectedPathSearch {
            root,
            home: wanted.home,
            paths: BTreeSet::new(),
            links: BTreeSet::new(),
            git_writes: BTreeSet::new(),
            git_reads: BTreeSet::new(),
            git_folders: BTreeSet::new(),
            trees: BTreeSet::new(),
            configurations: BTreeSet::new(),
            bytes: CONFIGURATION_BYTES,
            named: MOST_NAMED,
            end: Instant::now() + time,
            is_complete: true,
        };
        wanted.job_files.iter().for_each(|path| search.protect(path));
        if !search.root.starts_with(canonical_as_far_as_possible(wanted.out)) {
            search.protect(wanted.out);
        }
        let open = search.add_default_and_configured(wanted);
        // A repository of its own would take the place of the one around it, so none may appear.
        let dot_git = search.root.join(".git");
        search.repository(&dot_git);
        if wanted.git == GitAccess::Commit && !dot_git.exists() {
            search.paths.remove(&dot_git);
            let tree = search.root.clone();
            search.git_folder(&dot_git, &[tree]);
        }
        search.add_external_repository(&dot_git);
        let root = search.root.clone();
        let repositories = Repositories::find(&root, wanted.out, search.time_left());
        for repository in &repositories.folders {
            search.repository(repository);
        }
        search.is_complete &= repositories.is_complete;
        for folder in wanted.write.iter().filter(|folder| !folder.starts_with(&root)) {
            let found = Repositories::find(folder, wanted.out, search.time_left());
            search.is_complete &= found.is_complete;
            found.folders.iter().for_each(|repository| search.repository(repository));
        }
        search.users_configuration();
        if wanted.git == GitAccess::Read {
            search.paths.extend(search.git_folders.iter().cloned());
        }
        Self {
            paths: search.paths.into_iter().collect(),
            links: search.links.into_iter().collect(),
            git_writes: search.git_writes.into_iter().collect(),
            git_reads: search.git_reads.into_iter().collect(),
            allowed_changes: AllowedChanges { git: wanted.git, git_folders: search.git_folders, unprotected: open },
            repositories: Repositories { is_complete: search.is_complete, ..repositories },
        }
    }
}

/// Whether a path from the workspace may be one that is protected by default, or lies in one.
pub fn may_be_protected(path: &Path) -> bool {
    let path: PathBuf = path.components().filter(|part| !matches!(part, Component::CurDir)).collect();
    DEFAULT_PROTECTED.iter().any(|known| path.starts_with(known))
}

/// Whether a file may be a job by its name.
pub fn is_job_name(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "yaml" || end == "yml")
}

/// Whether a file is a job, as far as its first lines of YAML say.
fn is_job(path: &Path) -> bool {
    let mut text = String::new();
    is_job_name(path)
        && git::open_regular_file(path)
            .is_some_and(|file| file.take(JOB_BYTES).read_to_string(&mut text).is_ok() || !text.is_empty())
        && text.lines().any(|line| line.starts_with("parent:"))
}

struct ProtectedPathSearch<'a> {
    root: PathBuf,
    home: Option<&'a Path>,
    paths: BTreeSet<PathBuf>,
    links: BTreeSet<PathBuf>,
    git_writes: BTreeSet<PathBuf>,
    git_reads: BTreeSet<PathBuf>,
    git_folders: BTreeSet<PathBuf>,
    /// The roots of working trees.
    trees: BTreeSet<PathBuf>,
    /// The configuration files that were read, each with the working tree that it is for.
    configurations: BTreeSet<(PathBuf, PathBuf)>,
    /// How much more of them may be read.
    bytes: u64,
    /// How many more names may be in them.
    named: usize,
    end: Instant,
    /// Whether nothing was passed over for want of time, or for being too much.
    is_complete: bool,
}

impl ProtectedPathSearch<'_> {
    /// The time that is left.
    fn time_left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// What is protected by default and what the job wants, but for what it takes off: that is given.
    fn add_default_and_configured(&mut self, wanted: &ProtectionConfig<'_>) -> Vec<PathBuf> {
        let beneath = |path: &String| {
            let path: PathBuf =
                Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))).collect();
            canonical_as_far_as_possible(&self.root.join(path))
        };
        let open: Vec<PathBuf> = wanted.allow_changes.iter().map(beneath).collect();
        // The job and its record never change, whatever the job says.
        let fixed = self.paths.clone();
        let may_open = |path: &PathBuf| {
            path.starts_with(&self.root) && *path != self.root && !fixed.iter().any(|fixed| path.starts_with(fixed))
        };
        let open: Vec<PathBuf> = open.into_iter().filter(may_open).collect();
        let mut paths: Vec<PathBuf> = DEFAULT_PROTECTED.iter().map(|name| self.root.join(name)).collect();
        let jobs = |folder: &Path| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_JOBS);
            entries.map(|entry| entry.path()).filter(|path| is_job(path)).collect::<Vec<_>>()
        };
        // Many projects have another use for a folder of that name.
        let folder = self.root.join(JOBS);
        if folder.is_dir() && jobs(&folder).is_empty() {
            paths.retain(|path| *path != folder);
        }
        paths.extend(wanted.protect.iter().map(|path| self.root.join(path)));
        // Other jobs beside this one.
        paths.extend(wanted.job_files.first().and_then(|job| job.parent()).map(jobs).unwrap_or_default());
        for path in paths {
            let canonical = canonical_as_far_as_possible(&path);
            // A link to a folder around the workspace would make all of it read-only.
            if !self.root.starts_with(&canonical) && !open.iter().any(|open| canonical.starts_with(open)) {
                self.protect(&path);
            }
        }
        open
    }

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
        if self.time_left().is_zero() {
            self.is_complete = false;
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
        let worktrees = folders_in(&common.join("worktrees"));
        let mut folders = vec![folder, common.clone()];
        folders.extend_from_slice(&worktrees);
        folders.dedup();
        // They share the configuration, and a relative folder of hooks is in the tree of each.
        let trees: Vec<PathBuf> = folders.iter().filter_map(|folder| self.worktree_of(folder)).collect();
        for folder in &folders {
            self.git_folder(folder, &trees);
        }
        for module in git::submodule_git_dirs(&common.join("modules"), MOST_OF_ONE) {
            let trees: Vec<PathBuf> = self.worktree_of(&module).into_iter().collect();
            self.git_folder(&module, &trees);
        }
    }

    /// The root of a git folder's working tree, as far as the folder says.
    fn worktree_of(&self, folder: &Path) -> Option<PathBuf> {
        let tree = git::worktree_root(folder).unwrap_or_else(|| self.root.clone());
        let tree = canonical_as_far_as_possible(&tree);
        tree.starts_with(&self.root).then_some(tree)
    }

    /// Hooks of a relative folder are in the root of a working tree, where git runs them.
    fn git_folder(&mut self, folder: &Path, trees: &[PathBuf]) {
        self.git_folders.insert(canonical_as_far_as_possible(folder));
        self.trees.extend(trees.iter().cloned());
        let of_worktree = folder.join("commondir").is_file();
        for name in GIT_EXECUTION_PATHS {
            // In any other folder it means nothing.
            if name != "gitdir" || of_worktree {
                self.protect(&folder.join(name));
            }
        }
        for name in ["config", "config.worktree"] {
            for tree in trees {
                self.configuration(&folder.join(name), tree);
            }
        }
    }

    /// What a configuration file names: further such files, and folders of hooks. Conditions are taken to hold. Each file is
    /// read once, for they can include each other.
    fn configuration(&mut self, file: &Path, tree: &Path) {
        let mut open = vec![file.to_owned()];
        while let Some(file) = open.pop() {
            let Ok(metadata) = fs::metadata(&file) else { continue };
            let Ok(canonical) = file.canonicalize() else { continue };
            if self.configurations.contains(&(canonical.clone(), tree.to_owned())) {
                continue;
            }
            let bytes = self.bytes.checked_sub(metadata.len().min(git::MAX_FILE_BYTES));
            let Some(bytes) =
                bytes.filter(|_| self.configurations.len() < MOST_CONFIGURATIONS && !self.time_left().is_zero())
            else {
                self.is_complete = false;
                return;
            };
            self.bytes = bytes;
            self.configurations.insert((canonical, tree.to_owned()));
            let config = GitConfig::read(&file);
            let folder = file.parent().unwrap_or(tree).to_owned();
            let includes = config.values("include", "path").chain(config.values("includeif", "path"));
            let includes = includes.filter_map(|path| Some((self.expand_home(path, &folder)?, true)));
            let hooks =
                config.values("core", "hookspath").filter_map(|path| Some((self.expand_home(path, tree)?, false)));
            let named: Vec<(PathBuf, bool)> = includes.chain(hooks).take(self.named + 1).collect();
            if named.len() > self.named {
                self.is_complete = false;
                return;
            }
            self.named -= named.len();
            for (path, is_configuration) in named {
                self.protect_in_workspace(&path);
                if is_configuration {
                    open.push(path);
                }
            }
        }
    }

    /// The configuration that holds for every repository can name folders of the working tree, too.
    fn users_configuration(&mut self) {
        self.trees.insert(self.root.clone());
        let trees: Vec<PathBuf> = self.trees.iter().cloned().collect();
        let of_user = self.home.map(|home| [home.join(".gitconfig"), home.join(".config/git/config")]);
        for file in of_user.into_iter().flatten().chain([PathBuf::from("/etc/gitconfig")]) {
            for tree in &trees {
                self.configuration(&file, tree);
            }
        }
    }

    /// Whatever lies elsewhere can't be written by tools in any case.
    fn protect_in_workspace(&mut self, path: &Path) {
        let canonical = canonical_as_far_as_possible(path);
        // The whole workspace can't be read-only.
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

    /// Where the workspace's own repository lies outside and says that this is its working tree.
    fn add_external_repository(&mut self, dot_git: &Path) {
        if !dot_git.is_file() {
            return;
        }
        let Some(folder) = git::gitfile_target(dot_git).and_then(|folder| folder.canonicalize().ok()) else { return };
        if !git::is_linked_back(&folder, dot_git) {
            return;
        }
        let common = git::common_dir(&folder);
        let is_outside = |path: &PathBuf| !path.starts_with(&self.root) && path.is_dir();
        let canonical = |path: PathBuf| path.canonicalize().ok().filter(is_outside);
        let of_common = ["objects", "refs", "logs"].map(|name| common.join(name));
        self.git_writes.extend(of_common.into_iter().chain([folder.clone()]).filter_map(canonical));
        self.git_reads.extend([common, folder].into_iter().filter_map(canonical));
    }
}

/// The repositories within a folder.
#[derive(Debug, Clone, Default)]
pub struct Repositories {
    /// Each `.git`, in any spelling, and folders that are one themselves; the nearest first.
    pub folders: Vec<PathBuf>,
    /// Whether there are no others.
    pub is_complete: bool,
}

impl Repositories {
    /// Looks for those within a folder, but not in `out`, for as long as `time`.
    ///
    /// A repository is data that git takes orders from: its configuration names programs, and `git status` in the one
    /// around it looks into it where the index says so.
    pub fn find(root: &Path, out: &Path, time: Duration) -> Self {
        let (out, end) = (canonical_as_far_as_possible(out), Instant::now() + time);
        let mut found = Vec::new();
        let mut open = std::collections::VecDeque::from([(root.to_owned(), device(root))]);
        while let Some((folder, around)) = open.pop_front() {
            let own = device(&folder);
            if own != around && is_kernel_filesystem(&folder) {
                continue;
            }
            let Ok(listed) = fs::read_dir(&folder) else { continue };
            let [mut head, mut common, mut objects, mut refs] = [false; 4];
            for (number, entry) in listed.flatten().enumerate() {
                // A look at the clock for each would be most of the work.
                if number % 64 == 0 && Instant::now() > end || found.len() >= MOST_REPOSITORIES {
                    return Self { folders: found, is_complete: false };
                }
                let name = entry.file_name();
                head |= name == "HEAD";
                common |= name == "commondir";
                objects |= name == "objects";
                refs |= name == "refs";
                if is_dot_git(&name) {
                    found.push(folder.join(name));
                } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let path = folder.join(name);
                    if path != out {
                        open.push_back((path, own));
                    }
                }
            }
            if head && (common || objects && refs) {
                found.push(folder);
            }
        }
        Self { folders: found, is_complete: true }
    }

    /// The search after a run: what is there now and wasn't before. `left` is what is left of the run's own time.
    pub fn added_since(&self, root: &Path, out: &Path, left: Option<Duration>) -> Self {
        let time = left.map_or(SEARCH_TIME, |left| left.clamp(LEAST_TIME, SEARCH_TIME));
        let mut now = Self::find(root, out, time);
        let before: BTreeSet<&PathBuf> = self.folders.iter().collect();
        now.folders.retain(|path| !before.contains(path));
        now
    }
}

fn device(folder: &Path) -> u64 {
    fs::symlink_metadata(folder).map_or(0, |metadata| metadata.dev())
}

#[cfg(target_os = "linux")]
#[allow(clippy::unnecessary_cast, reason = "the field differs from one architecture to the next")]
fn is_kernel_filesystem(folder: &Path) -> bool {
    rustix::fs::statfs(folder).is_ok_and(|stat| KERNEL_FILESYSTEMS.contains(&(stat.f_type as i64)))
}

#[cfg(not(target_os = "linux"))]
fn is_of_the_kernel(_: &Path) -> bool {
    false
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_OF_ONE);
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

#[cfg(test)]
mod tests;
