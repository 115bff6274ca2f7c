//! The git program, and the only places where commands of it are made.
//!
//! A repository says which programs git runs: filters, drivers, hooks, monitors, helpers, aliases, and the same again in each
//! submodule. A run could have written any of that, or a program that it names. So no command here obeys the configuration of a
//! repository or of the user: either it reads objects and references only, or it gets a git folder of legwork's own, with a few
//! settings that name no program. Files whose content a filter changes are taken as they are.
//!
//! Git follows the links in the path of a file, and a process of a run could replace a folder by one while git works. So a
//! command for a working tree can open only the files that it needs, where the kernel can restrict it: see [`GitFiles`].

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::config::open_regular_file;
use super::process::GitProcess;
use super::repository::{Repository, alternate_object_dirs, is_object_dir};
use crate::temporary_folder::TemporaryFolder;
use crate::text::bounded::read_up_to;

/// How long a command may take that reads or writes all files of a working tree.
const TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// How long such a command may sleep: it waits for a pipe in place of a file.
const MAX_IDLE: Duration = Duration::from_secs(10);
/// How much of a file with attributes or patterns is read, in bytes.
const MAX_INFO_BYTES: u64 = 16 << 20;

/// Switches off what could start a program, write where nobody looks, or reach a network.
const OPTIONS: [&str; 5] =
    ["core.fsmonitor=false", "core.hooksPath=/dev/null", "protocol.allow=never", "gc.auto=0", "maintenance.auto=false"];
const VARIABLES: [(&str, &str); 12] = [
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "false"),
    ("GIT_SSH_COMMAND", "false"),
    ("GIT_EDITOR", "false"),
    ("GIT_PAGER", "cat"),
    ("GIT_ADVICE", "0"),
    ("GIT_TRACE2", "0"),
    ("GIT_TRACE2_EVENT", "0"),
    ("GIT_TRACE2_PERF", "0"),
    ("LC_ALL", "C"),
];
/// Without any configuration but that of the git folder.
const NO_CONFIGURATION: [(&str, &str); 2] = [("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")];
/// Where the user's own settings and lists of ignored files are.
const USER_VARIABLES: [&str; 6] = [
    "HOME",
    "XDG_CONFIG_HOME",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    // Not for users: git's own tests and ours.
    "GIT_TEST_ASSUME_DIFFERENT_OWNER",
];

/// The settings of a repository and its user that are kept: how files and their content are compared, and which are ignored.
/// None of them names a program.
const KEPT_SETTINGS: [&str; 15] = [
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.protecthfs",
    "core.protectntfs",
    "core.trustctime",
    "core.checkstat",
    "core.checkroundtripencoding",
    "core.bigfilethreshold",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "index.sparse",
];

/// The user's own lists of ignored files and of attributes: the setting that names one, and its usual path below the user's
/// configuration.
const USER_LISTS: [(&str, &str); 2] = [("core.excludesfile", "git/ignore"), ("core.attributesfile", "git/attributes")];

/// The only files that a command for a working tree may open, beside those of git itself. What they are was decided when they
/// were opened, wherever their paths lead by now.
#[derive(Debug)]
pub struct GitFiles {
    /// The absolute path of git.
    pub program: PathBuf,
    /// Files, and folders with everything in them.
    pub readable: Vec<OwnedFd>,
    /// Folders in which everything may be read and changed.
    pub writable: Vec<OwnedFd>,
}

/// Keeps commands from opening other files.
pub trait Restriction: std::fmt::Debug + Send + Sync {
    /// Restricts a command that will be started.
    fn restrict(&self, command: &mut Command);
}

/// Makes a [`Restriction`]; `None` where the kernel has nothing for it. A layer above knows how.
pub type Restrict = fn(&GitFiles) -> io::Result<Option<Arc<dyn Restriction>>>;

/// A git program that no command of a run can have changed.
#[derive(Debug, Clone)]
pub struct GitProgram {
    program: PathBuf,
    temporary: PathBuf,
    user: Vec<(String, String)>,
    restrict: Restrict,
}

impl GitProgram {
    /// `program` is an absolute path, and `temporary` a folder for temporary files; commands can change neither.
    pub fn new(program: PathBuf, temporary: PathBuf, restrict: Restrict) -> Self {
        let user = NO_CONFIGURATION.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Self { program, temporary, user, restrict }
    }

    /// The same with the user's own settings and ignore lists, which these variables name. Without this, git uses neither.
    #[must_use]
    pub fn with_user(self, variables: &BTreeMap<String, String>) -> Self {
        let named = USER_VARIABLES.into_iter().filter_map(|name| Some((name.to_owned(), variables.get(name)?.clone())));
        Self { user: named.collect(), ..self }
    }

    fn user_variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.user.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The absolute path of the program.
    pub fn path(&self) -> &Path {
        &self.program
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--no-pager", "--no-replace-objects", "--no-optional-locks"]);
        command.args(OPTIONS.iter().flat_map(|option| ["-c", option]));
        command.env_clear().envs(VARIABLES).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A command that only reads objects and references of a git folder. It searches for nothing and knows no working tree;
    /// missing objects aren't fetched.
    pub(crate) fn on_objects(&self, git_dir: &Path) -> Command {
        let mut command = self.command();
        command.arg("--git-dir").arg(git_dir).envs(NO_CONFIGURATION).env("HOME", "/nonexistent");
        command
    }

    /// A command of `git`, an absolute path, that reads or writes objects of a git folder that is open, wherever its path leads
    /// by now.
    pub(crate) fn on_open_folder(git: &Path, git_dir: &OwnedFd) -> Command {
        let git = Self::new(git.to_owned(), PathBuf::new(), |_| Ok(None));
        let mut command = git.on_objects(Path::new("."));
        command.current_dir(format!("/proc/self/fd/{}", git_dir.as_raw_fd())).stderr(Stdio::null());
        command
    }

    /// A command in a repository that legwork itself makes in a folder, or has made.
    pub(crate) fn in_own_repository(&self, folder: &Path) -> Command {
        let mut command = self.command();
        command.envs(NO_CONFIGURATION).env("HOME", "/nonexistent").current_dir(folder);
        command
    }

    /// The full name of the commit that is checked out; `None` before the first one.
    ///
    /// # Errors
    /// Git can't be started, can't read the repository, or refuses it because of its owner; the message is what it printed.
    pub(crate) fn head(&self, repository: &Repository) -> io::Result<Option<String>> {
        // Found by git itself, with the user's configuration, so that it refuses what belongs to someone whom the user doesn't trust.
        let mut command = self.command();
        command.args(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).current_dir(&repository.worktree);
        command.envs(self.user_variables());
        let output = run(command)?;
        let printed = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Ok(Some(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())),
            false if printed.trim().is_empty() => Ok(None),
            false => Err(io::Error::other(printed.trim().to_owned())),
        }
    }

    /// Commands that read the working tree of a repository, and add objects.
    ///
    /// # Errors
    /// The private git folder can't be made, the objects aren't in the repository, or git fails.
    pub(crate) fn working_tree(&self, repository: &Repository) -> io::Result<GitWorkingTree> {
        let root = &repository.worktree;
        let mut readable = vec![open_folder(&root.canonicalize()?)?, open_folder(&repository.git_dir)?];
        readable.push(open_folder(&repository.common_dir)?);
        let objects = repository.common_dir.join("objects");
        // Elsewhere, git may read objects, but not write any.
        let writable = if objects.is_symlink() { Vec::new() } else { vec![open_folder(&objects)?] };
        self.private_tree(repository, root, readable, writable)
    }

    /// Commands that fill `folder`, which was opened by the path `root`, with files from a repository, and change nothing in
    /// the repository.
    ///
    /// # Errors
    /// The private git folder can't be made, the objects aren't in the repository, or git fails.
    pub(crate) fn filled_tree(
        &self,
        repository: &Repository,
        root: &Path,
        folder: BorrowedFd<'_>,
    ) -> io::Result<GitWorkingTree> {
        self.private_tree(repository, root, Vec::new(), vec![folder.try_clone_to_owned()?])
    }

    fn private_tree(
        &self,
        repository: &Repository,
        root: &Path,
        mut readable: Vec<OwnedFd>,
        mut writable: Vec<OwnedFd>,
    ) -> io::Result<GitWorkingTree> {
        let private = TemporaryFolder::create_in(&self.temporary)?;
        let folder = private.path();
        for name in ["refs", "info"] {
            fs::create_dir(folder.join(name))?;
        }
        let head = match self.head(repository)? {
            Some(commit) => commit + "\n",
            None => "ref: refs/heads/none\n".to_owned(),
        };
        fs::write(folder.join("HEAD"), head)?;
        let format = if repository.sha256 { "sha256" } else { "sha1" };
        let config = format!("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = {format}\n");
        fs::write(folder.join("config"), config)?;
        let common = &repository.common_dir;
        for (from, name) in [(common, "info/exclude"), (common, "info/attributes"), (&repository.git_dir, SPARSE_FILE)]
        {
            copy_list(&from.join(name), &folder.join(name))?;
        }
        let mut settings = self.kept_settings(repository)?;
        for (key, usual) in USER_LISTS {
            let copy = folder.join(key);
            if let Some(list) = self.user_list(repository, key, usual) {
                copy_list(&list, &copy)?;
            }
            settings.push((key.to_owned(), copy.to_string_lossy().into_owned()));
        }
        let objects = common.join("objects");
        let object_dirs = objects.canonicalize().into_iter().filter(|folder| is_object_dir(folder));
        let object_dirs = object_dirs.chain(alternate_object_dirs(&objects));
        readable.extend(object_dirs.filter_map(|folder| open_folder(&folder).ok()));
        writable.push(open_folder(&folder.canonicalize()?)?);
        let restriction = (self.restrict)(&GitFiles { program: self.program.clone(), readable, writable })?;
        let index = folder.join("index");
        Ok(GitWorkingTree {
            program: self.clone(),
            private,
            root: root.to_owned(),
            objects,
            index,
            settings,
            restriction,
        })
    }

    /// The path of one of the user's own lists.
    fn user_list(&self, repository: &Repository, key: &str, usual: &str) -> Option<PathBuf> {
        let mut command = self.command();
        command.arg("--git-dir").arg(&repository.git_dir).args(["config", "--includes", "--type=path", "--get", key]);
        command.envs(self.user_variables());
        let output = run(command).ok()?;
        let named = String::from_utf8_lossy(&output.stdout);
        if output.status.success() {
            return Some(repository.worktree.join(named.trim_end_matches('\n')));
        }
        let value = |wanted: &str| {
            let found = self.user_variables().find(|(name, value)| *name == wanted && !value.is_empty());
            found.map(|(_, value)| PathBuf::from(value))
        };
        let configuration = value("XDG_CONFIG_HOME").or_else(|| Some(value("HOME")?.join(".config")));
        Some(configuration?.join(usual))
    }

    /// The settings that are kept, with their values. Reading them runs nothing.
    fn kept_settings(&self, repository: &Repository) -> io::Result<Vec<(String, String)>> {
        let mut command = self.command();
        command.arg("--git-dir").arg(&repository.git_dir).args(["config", "--list", "--includes", "-z"]);
        command.envs(self.user_variables());
        let output = run(command)?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let entries = text.split('\0').map(|entry| entry.split_once('\n').unwrap_or((entry, "true")));
        let mut kept: Vec<(String, String)> = Vec::new();
        for (key, value) in entries.filter(|(key, _)| KEPT_SETTINGS.contains(key)) {
            kept.retain(|(earlier, _)| earlier != key);
            kept.push((key.to_owned(), value.to_owned()));
        }
        Ok(kept)
    }
}

/// The patterns of a sparse checkout, in the git folder of each working tree.
pub(crate) const SPARSE_FILE: &str = "info/sparse-checkout";

/// Opens a folder that is really at this path: a link in place of the folder, or of one above it, could lead anywhere.
fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty())?;
    let opened = fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    match opened.is_ok_and(|opened| opened != path) {
        true => Err(io::Error::other(format!("`{}` is, or is behind, a symbolic link", path.display()))),
        false => Ok(folder),
    }
}

/// Copies a list of patterns, if it is there.
fn copy_list(from: &Path, to: &Path) -> io::Result<()> {
    let Some(file) = open_regular_file(from) else { return Ok(()) };
    fs::write(to, read_up_to(file, MAX_INFO_BYTES)?)
}

/// Makes commands for a working tree, with a git folder of legwork's own that is removed with this.
#[derive(Debug)]
pub(crate) struct GitWorkingTree {
    program: GitProgram,
    private: TemporaryFolder,
    root: PathBuf,
    /// The repository's objects, to which commands add.
    objects: PathBuf,
    index: PathBuf,
    settings: Vec<(String, String)>,
    restriction: Option<Arc<dyn Restriction>>,
}

impl GitWorkingTree {
    /// Uses a copy of the repository's index, which knows the files that haven't changed.
    ///
    /// # Errors
    /// If it can't be copied. A missing one counts as empty.
    pub(crate) fn with_index_of(self, repository: &Repository) -> io::Result<Self> {
        let from = &repository.git_dir;
        let path = from.join("index");
        if path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(self);
        }
        let mut index = open_regular_file(&path).ok_or_else(|| io::Error::other("the index can't be read"))?;
        let mut copy = fs::File::create_new(&self.index)?;
        io::copy(&mut index, &mut copy)?;
        // Git reads again what was written in the same second as the index or later.
        copy.set_modified(index.metadata()?.modified()?)?;
        // A split index has most of its entries in another file.
        for entry in fs::read_dir(from)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with("sharedindex.") {
                symlink(entry.path(), self.private.path().join(entry.file_name()))?;
            }
        }
        Ok(self)
    }

    /// The value of a setting that is kept.
    pub(crate) fn setting(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The index in use.
    pub(crate) fn index(&self) -> &Path {
        &self.index
    }

    /// A folder for temporary files, in which commands can't change anything.
    pub(crate) fn temporary(&self) -> &Path {
        self.private.path()
    }

    /// A command for the working tree.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program.command();
        let fixed = [
            "core.safecrlf=false",
            "core.splitIndex=false",
            "core.untrackedCache=false",
            "sparse.expectFilesOutsideOfPatterns=true",
        ];
        command.args(fixed.iter().flat_map(|option| ["-c", option]));
        for (key, value) in &self.settings {
            command.arg("-c").arg(format!("{key}={value}"));
        }
        command.args(arguments).current_dir(&self.root);
        command
            .envs(NO_CONFIGURATION)
            .env("HOME", "/nonexistent")
            .env("GIT_DIR", self.private.path())
            .env("GIT_WORK_TREE", &self.root)
            .env("GIT_OBJECT_DIRECTORY", &self.objects)
            .env("GIT_INDEX_FILE", &self.index);
        if let Some(restriction) = &self.restriction {
            restriction.restrict(&mut command);
        }
        command
    }
}

/// Runs a command to its end, or kills it when it takes too long or waits for something that doesn't come.
pub(crate) fn run(command: Command) -> io::Result<Output> {
    run_watched(command, MAX_IDLE)
}

fn run_watched(command: Command, max_idle: Duration) -> io::Result<Output> {
    let mut process = GitProcess::start_watched(command, Instant::now() + TIMEOUT, max_idle)?;
    let (stdout, stderr) = process.take_output();
    let read = |pipe: Option<&mut dyn Read>| {
        let mut bytes = Vec::new();
        pipe.map_or(Ok(0), |pipe| pipe.read_to_end(&mut bytes)).map(|_| bytes)
    };
    let (mut stdout, mut stderr) = (stdout, stderr);
    let (stdout, stderr) = std::thread::scope(|scope| {
        let errors = scope.spawn(|| read(stderr.as_mut().map(|pipe| pipe as &mut dyn Read)));
        let output = read(stdout.as_mut().map(|pipe| pipe as &mut dyn Read));
        (output, errors.join().unwrap_or_else(|_| Ok(Vec::new())))
    });
    let status = process.wait()?;
    Ok(Output { status, stdout: stdout?, stderr: stderr? })
}

/// The git of this machine.
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests find git on their own PATH")]
pub(crate) fn git_program() -> GitProgram {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = std::env::split_paths(&path).map(|folder| folder.join("git")).find(|file| file.is_file());
    let git = GitProgram::new(program.unwrap_or_default(), std::env::temp_dir(), |_| Ok(None));
    git.with_user(&std::env::vars().collect())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn a_pipe_in_place_of_a_file_does_not_hold_git() {
        let folder = tempfile::tempdir().unwrap();
        let git = git_program();
        let mut init = git.in_own_repository(folder.path());
        init.args(["init", "-q"]);
        assert!(run(init).unwrap().status.success());
        let repository = Repository::discover(folder.path()).unwrap();
        let tree = git.working_tree(&repository).unwrap();
        fs::write(folder.path().join("file"), "text\n").unwrap();
        assert!(run(tree.command(&["add", "--all"])).unwrap().status.success());
        mknodat(CWD, folder.path().join(".gitignore"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let start = Instant::now();
        let error = run_watched(tree.command(&["add", "--all"]), Duration::from_millis(500)).unwrap_err();
        assert!(error.to_string().starts_with("it waits for a pipe") && start.elapsed() < TIMEOUT, "{error}");
        // Where the kernel tells what a process waits for, that is found at once.
        let mut sleeper = Command::new("/bin/sleep").arg("100").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let place = fs::read_to_string(format!("/proc/{}/wchan", sleeper.id())).unwrap_or_default();
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        if !["", "0"].contains(&place.trim()) {
            // The killed git has left it.
            fs::remove_file(tree.index().with_extension("lock")).unwrap();
            let start = Instant::now();
            let error = run(tree.command(&["add", "--all"])).unwrap_err();
            assert!(error.to_string().starts_with("it waits for a pipe"), "{error}");
            assert!(start.elapsed() < MAX_IDLE, "{:?}", start.elapsed());
        }
    }

    #[test]
    fn a_file_that_is_too_large_does_not_hold_git() {
        let folder = tempfile::tempdir().unwrap();
        let git = git_program();
        let mut init = git.in_own_repository(folder.path());
        init.args(["init", "-q"]);
        assert!(run(init).unwrap().status.success());
        let repository = Repository::discover(folder.path()).unwrap();
        let tree = git.working_tree(&repository).unwrap();
        fs::File::create(folder.path().join("disk.img")).unwrap().set_len(3 << 40).unwrap();
        let start = Instant::now();
        let error = run(tree.command(&["add", "--all"])).unwrap_err().to_string();
        assert!(error.contains("disk.img` is too large, with 3072 GiB"), "{error}");
        assert!(start.elapsed() < TIMEOUT);
    }
}
