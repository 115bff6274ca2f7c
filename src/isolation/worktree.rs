//! Worktrees. Only their own folders below `.git/worktrees` and new objects are written, and nothing that the repository
//! configures runs, see [`crate::git::program`].

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, flock, mkdirat, renameat};
use rustix::io::Errno;

use super::commands::{git_error, parse_entries, run};
use super::error::IsolationError;
use super::filtered_files::FilteredList;
use super::folders::{at, create_dir};
use crate::git::program::{GitWorkingTree, SPARSE_FILE};
use crate::git::{GitProgram, Repository, is_linked_back, open_regular_file};
use crate::workspace::new_file::{NewFile, PREFIX};
use crate::workspace::open_root::OpenRoot;

/// The folder of all workspaces of their own, in the folder of all runs.
pub const WORKSPACES_FOLDER: &str = ".workspaces";

/// Whether a folder is the workspace of its own that a row or a subagent has, or is in one.
pub fn is_own_workspace(folder: &Path) -> bool {
    folder.components().any(|part| part.as_os_str() == WORKSPACES_FOLDER)
}
/// How long to wait for the lock at most. The command of an agent could hold it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Whether the git folder of a repository is where it seems to be. A link could lead to any other repository.
pub(super) fn has_own_git_dir(repository: &Repository) -> bool {
    let dot_git = repository.worktree.canonicalize().map(|root| root.join(".git"));
    dot_git.is_ok_and(|dot_git| repository.git_dir == dot_git || is_linked_back(&repository.git_dir, &dot_git))
}

/// Whether git ignores a workspace below the root of a repository.
pub(super) fn ignores_workspace(git: &GitProgram, repository: &Repository, workspace: &Path) -> bool {
    let below = workspace.strip_prefix(&repository.worktree).ok().filter(|path| !path.as_os_str().is_empty());
    below.is_some_and(|path| is_ignored(git, repository, path))
}

/// Whether git ignores a file or folder of a repository, given relative to its root.
pub fn is_ignored(git: &GitProgram, repository: &Repository, path: &Path) -> bool {
    let tree = git.working_tree(repository);
    tree.and_then(|tree| tree.with_index_of(repository)).is_ok_and(|tree| is_ignored_in(&tree, path))
}

fn is_ignored_in(tree: &GitWorkingTree, path: &Path) -> bool {
    let path = format!("./{}", path.to_string_lossy());
    run(tree.command(&["check-ignore", "--quiet", "--", &path]), "check-ignore").is_ok()
}

/// The objects of a snapshot.
pub(super) struct WorktreeSnapshot {
    /// The root of the working tree.
    pub(super) repository: PathBuf,
    /// The path of the workspace in it.
    pub(super) subfolder: PathBuf,
    pub(super) commit: String,
    pub(super) tree: String,
}

pub(super) fn take_snapshot(
    git: &GitProgram,
    workspace: &Path,
    excluded: &[PathBuf],
) -> Result<WorktreeSnapshot, IsolationError> {
    let workspace = workspace.canonicalize().map_err(IsolationError::io(workspace))?;
    let repository = Repository::discover(&workspace).filter(has_own_git_dir);
    let repository = repository.ok_or(IsolationError::NotARepository)?;
    let root = repository.worktree.clone();
    let subfolder = workspace.strip_prefix(&root).unwrap_or(Path::new("")).to_owned();
    let commit = git.head(&repository).map_err(git_error("rev-parse"))?.ok_or(IsolationError::NoCommit)?;
    let tree = git.working_tree(&repository).and_then(|tree| tree.with_index_of(&repository));
    let tree = tree.map_err(git_error("ls-files"))?;
    if !subfolder.as_os_str().is_empty() && is_ignored_in(&tree, &subfolder) {
        return Err(IsolationError::Ignored);
    }
    let is_sparse = repository.git_dir.join(SPARSE_FILE).exists();
    let listing = run(tree.command(&["ls-files", "-v", "-s", "-z"]), "ls-files")?;
    for (option, paths) in unwatched_files(&root, &listing, is_sparse) {
        // Otherwise `add` leaves out what has changed in these files.
        update_index(&tree, option, &paths)?;
    }
    // `add` would run git in it, with its configuration. The commit of a nested repository isn't part of a snapshot.
    update_index(&tree, "--assume-unchanged", &nested_repositories(&listing))?;
    let filtered = FilteredList::read(&tree)?.split(&repository);
    update_index(&tree, "--assume-unchanged", &filtered.unchanged)?;
    update_index(&tree, "--index-info", &filtered.taken)?;
    let pathspecs: Vec<String> = excluded
        .iter()
        .filter_map(|path| path.strip_prefix(&root).ok())
        .filter(|path| !path.as_os_str().is_empty())
        // `git add` fails if it is given an ignored path, even one to leave out.
        .filter(|path| !is_ignored_in(&tree, path))
        .map(|path| format!(":(exclude,literal,top){}", path.to_string_lossy()))
        .collect();
    let mut add = vec!["add", "--all"];
    // In a sparse checkout, git refuses files outside of it without this. Older gits don't know it, and need it nowhere else.
    if is_sparse {
        add.push("--sparse");
    }
    add.extend(["--", ":/"]);
    add.extend(pathspecs.iter().map(String::as_str));
    run(tree.command(&add), "add")?;
    let written = run(tree.command(&["write-tree"]), "write-tree")?;
    let written = String::from_utf8_lossy(&written).trim_end().to_owned();
    Ok(WorktreeSnapshot { repository: root, subfolder, commit, tree: written })
}

/// Changes entries of the index. `input` is what this option of `update-index` reads, with NUL characters.
fn update_index(tree: &GitWorkingTree, option: &str, input: &[u8]) -> Result<(), IsolationError> {
    if input.is_empty() {
        return Ok(());
    }
    let mut file = tempfile::tempfile_in(tree.temporary()).map_err(IsolationError::io(tree.temporary()))?;
    let written = file.write_all(input).and_then(|()| file.seek(SeekFrom::Start(0)));
    written.map_err(IsolationError::io(tree.temporary()))?;
    let arguments: &[&str] = if option == "--index-info" {
        &["update-index", "-z", option]
    } else {
        &["update-index", "-z", option, "--stdin"]
    };
    let mut command = tree.command(arguments);
    command.stdin(file);
    run(command, "update-index").map(drop)
}

/// The files in which git was told not to look for changes, each list with the option of `update-index` that makes it look.
/// What a sparse checkout leaves out isn't among them.
fn unwatched_files(root: &Path, listing: &[u8], is_sparse: bool) -> Vec<(&'static str, Vec<u8>)> {
    let (mut unchanged, mut skipped) = (Vec::new(), Vec::new());
    for (tag, _, _, path) in parse_entries(listing) {
        if tag.is_ascii_lowercase() {
            unchanged.extend([path, b"\0"].concat());
        }
        let exists = || fs::symlink_metadata(root.join(OsStr::from_bytes(path))).is_ok();
        if tag.eq_ignore_ascii_case(&b's') && (!is_sparse || exists()) {
            skipped.extend([path, b"\0"].concat());
        }
    }
    let lists = [("--no-assume-unchanged", unchanged), ("--no-skip-worktree", skipped)];
    lists.into_iter().filter(|(_, paths)| !paths.is_empty()).collect()
}

/// The paths of the submodules and nested repositories in an index.
fn nested_repositories(listing: &[u8]) -> Vec<u8> {
    let nested = parse_entries(listing).filter(|(_, mode, ..)| *mode == b"160000");
    nested.flat_map(|(.., path)| [path, b"\0"].concat()).collect()
}

pub(super) fn has_tree(git: &GitProgram, repository: &Path, tree: &str) -> bool {
    let Some(repository) = Repository::discover(repository) else { return false };
    let mut command = git.on_objects(&repository.common_dir);
    command.args(["cat-file", "-e", &format!("{tree}^{{tree}}")]);
    run(command, "cat-file").is_ok()
}

/// The paths of the repositories in a tree that have files in the working tree.
pub(super) fn missing_repositories(git: &GitProgram, repository: &Path, tree: &str) -> Vec<String> {
    let Some(found) = Repository::discover(repository) else { return Vec::new() };
    let mut command = git.on_objects(&found.common_dir);
    command.args(["ls-tree", "-r", "-z", tree]);
    let listing = run(command, "ls-tree").unwrap_or_default();
    let entries = listing.split(|byte| *byte == 0).filter(|entry| entry.starts_with(b"160000 "));
    let paths = entries.filter_map(|entry| entry.splitn(2, |byte| *byte == b'\t').nth(1)).map(OsStr::from_bytes);
    let has_files = |path: &&OsStr| fs::read_dir(repository.join(path)).is_ok_and(|mut files| files.next().is_some());
    paths.filter(has_files).map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Adds a worktree at a commit, with the files of a tree. What differs from the commit is uncommitted there, too.
pub(super) fn add(
    git: &GitProgram,
    repository: &Path,
    out: &OpenRoot,
    target: &Path,
    commit: &str,
    tree: &str,
) -> Result<(), IsolationError> {
    let repository = Repository::discover(repository).filter(has_own_git_dir);
    let repository = repository.ok_or(IsolationError::NotARepository)?;
    let folder = create_dir(out, target)?;
    let files = git.filled_tree(&repository, target, folder.folder()).map_err(git_error("read-tree"))?;
    let note = WorktreeList::lock(&repository)?.add(&repository, &folder, commit, &files)?;
    run(files.command(&["read-tree", "--reset", "-u", tree]), "read-tree")?;
    // With `--reset`, the files that a sparse checkout leaves out don't count as deleted.
    run(files.command(&["read-tree", "--reset", commit]), "read-tree")?;
    // Without this, every file would look changed until git compares its content.
    let _ = run(files.command(&["update-index", "--quiet", "--refresh", "--unmerged"]), "update-index");
    FilteredList::read(&files)?.fill(&repository, &folder, &files)?;
    let bytes = fs::read(files.index()).map_err(IsolationError::io(files.index()))?;
    note.create_file("index".as_ref(), &bytes, 0o666).map_err(at(&note, "index"))
}

/// Removes git's notes of the worktrees for which `is_gone` is true. The worktrees are below `out`.
pub(super) fn forget(repository: &Path, out: &OpenRoot, is_gone: impl Fn(&Path) -> bool) -> Result<(), IsolationError> {
    let Some(repository) = Repository::discover(repository) else { return Ok(()) };
    let list = WorktreeList::lock(&repository)?;
    let gone: Vec<_> = list.entries().into_iter().filter(|(_, worktree)| is_gone(worktree)).collect();
    gone.iter().try_for_each(|(entry, worktree)| list.remove(entry, Some((out, worktree))))
}

/// Git's notes of the worktrees of a repository, locked. Git reads all of them when it adds one, and fails if it finds one that
/// another process is about to write or to remove.
struct WorktreeList {
    /// The repository's folder, which is locked through it.
    git_dir: OpenRoot,
}

/// The folder of the notes, in the repository's.
const NOTES: &str = "worktrees";
/// The file of a note that names the `.git` file of its worktree.
const GITDIR: &str = "gitdir";
/// How long that path can be at most, in bytes.
const MAX_PATH_BYTES: u64 = 64 << 10;

impl WorktreeList {
    /// Waits for the lock. On a file system without locks, or after [`LOCK_TIMEOUT`], this succeeds without protecting anything.
    fn lock(repository: &Repository) -> Result<Self, IsolationError> {
        // A command may replace folders by links.
        let git_dir = OpenRoot::open_canonical(&repository.common_dir);
        let git_dir = git_dir.map_err(IsolationError::io(&repository.common_dir))?;
        let start = Instant::now();
        while flock(git_dir.folder(), FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
            && start.elapsed() < LOCK_TIMEOUT
        {
            std::thread::sleep(LOCK_POLL_INTERVAL);
        }
        Ok(Self { git_dir })
    }

    /// Adds a note of a worktree, as `git worktree add --detach --no-checkout` does, and its `.git` file. Git would obey the
    /// hooks of the repository. Returns the note's folder.
    fn add(
        &self,
        repository: &Repository,
        folder: &OpenRoot,
        commit: &str,
        files: &GitWorkingTree,
    ) -> Result<OpenRoot, IsolationError> {
        self.remove_incomplete();
        let target = &folder.path().canonicalize().map_err(IsolationError::io(folder.path()))?;
        let note = self.create_note(target)?;
        let mut texts = vec![
            // Whose it is comes first, and `commondir` last, so that what a killed process leaves is recognized.
            (GITDIR, format!("{}\n", target.join(".git").display())),
            ("HEAD", format!("{commit}\n")),
        ];
        if let Some(mut patterns) = open_regular_file(&repository.git_dir.join(SPARSE_FILE)) {
            let mut text = String::new();
            patterns.read_to_string(&mut text).map_err(at(&note, SPARSE_FILE))?;
            note.create_dir("info".as_ref(), 0o777).map_err(at(&note, "info"))?;
            texts.push((SPARSE_FILE, text));
            if repository.has_worktree_config() {
                let setting =
                    |key: &str| files.setting(&key.to_lowercase()).map(|value| value == "true").unwrap_or_default();
                let [sparse, cone, index] =
                    ["core.sparseCheckout", "core.sparseCheckoutCone", "index.sparse"].map(setting);
                texts.push((
                    "config.worktree",
                    format!("[core]\n\tsparseCheckout = {sparse}\n\tsparseCheckoutCone = {cone}\n[index]\n\tsparse = {index}\n"),
                ));
            }
        }
        texts.push(("commondir", "../..\n".to_owned()));
        for (name, text) in texts {
            note.create_file(name.as_ref(), text.as_bytes(), 0o666).map_err(at(&note, name))?;
        }
        let write = || {
            let file = NewFile::create(folder.folder(), PREFIX, Mode::from_raw_mode(0o666))?;
            file.file().write_all(format!("gitdir: {}\n", note.path().display()).as_bytes())?;
            file.persist(".git".as_ref()).map(drop)
        };
        write().map_err(IsolationError::io(&target.join(".git")))?;
        Ok(note)
    }

    /// Creates the folder of a note, with the name of the worktree or that and a number.
    fn create_note(&self, target: &Path) -> Result<OpenRoot, IsolationError> {
        let notes = self.git_dir.create_dir(NOTES.as_ref(), 0o777).map_err(at(&self.git_dir, NOTES))?;
        let notes = OpenRoot::of(notes, &self.git_dir.path().join(NOTES));
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        let name: String = name.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).collect();
        let mut note = PathBuf::from(&name);
        let mut number = 0;
        while let Err(error) = mkdirat(notes.folder(), &note, Mode::from_raw_mode(0o777)) {
            if error != Errno::EXIST {
                return Err(at(&notes, &note)(error.into()));
            }
            number += 1;
            note = format!("{name}{number}").into();
        }
        notes.subfolder(&note).map_err(at(&notes, &note))
    }

    /// The names of the notes, and the folder that each belongs to.
    fn entries(&self) -> Vec<(OsString, PathBuf)> {
        let names = self.git_dir.names(NOTES.as_ref()).unwrap_or_default();
        let belongs_to = |name: &OsString| {
            let bytes = self.git_dir.read(&Path::new(NOTES).join(name).join(GITDIR), MAX_PATH_BYTES).ok()?;
            let path = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            Path::new(OsStr::from_bytes(path)).parent().map(Path::to_owned)
        };
        names.into_iter().filter_map(|name| belongs_to(&name).map(|worktree| (name, worktree))).collect()
    }

    /// Removes a note. If its worktree will be removed next, it is first moved there, so that nothing of it stays here if this
    /// process is killed.
    fn remove(&self, name: &OsStr, worktree: Option<(&OpenRoot, &Path)>) -> Result<(), IsolationError> {
        const MOVED: &str = ".legwork-note";
        let note = Path::new(NOTES).join(name);
        let failed = || at(&self.git_dir, &note);
        let moved = worktree.and_then(|(out, worktree)| {
            let (notes, worktree) = (self.git_dir.open_dir(NOTES.as_ref()).ok()?, out.subfolder(worktree).ok()?);
            renameat(&notes, name, worktree.folder(), MOVED).ok()?;
            Some(worktree)
        });
        if let Some(worktree) = moved {
            worktree.remove_tree(MOVED.as_ref()).map_err(failed())?;
        } else {
            // By `gitdir` it is found again.
            let files = self.git_dir.names(&note).unwrap_or_default();
            let others = files.iter().filter(|file| *file != GITDIR);
            others.into_iter().try_for_each(|file| self.git_dir.remove_tree(&note.join(file))).map_err(failed())?;
            self.git_dir.remove_tree(&note).map_err(failed())?;
        }
        // As git does. This fails if there are others.
        let _ = self.git_dir.remove_dir(NOTES.as_ref());
        Ok(())
    }

    /// Removes the notes that a killed git hasn't finished. Every later git would fail because of them. Only our own are removed.
    fn remove_incomplete(&self) {
        for (name, worktree) in self.entries() {
            let commondir = self.git_dir.stat(&Path::new(NOTES).join(&name).join("commondir"));
            if commondir.map_or(true, |file| file.st_size == 0) && is_own_workspace(&worktree) {
                // If it can't be removed, git says what is wrong with it.
                let _ = self.remove(&name, None);
            }
        }
    }
}
