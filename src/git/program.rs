//! The git program, and the only places where commands of it are made.
//!
//! A repository says which programs git runs: filters, drivers, hooks, monitors, helpers, aliases, and the same again in each
//! submodule. A run could have written any of that, or a program that it names. So no command here obeys the configuration of a
//! repository or of the user: either it reads objects and references only, or it gets a git folder of legwork's own, with a few
//! settings that name no program. Files whose content a filter changes are taken as they are.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::Repository;
use super::config::open_regular_file;
use super::process::GitProcess;

/// How long a command may take that reads or writes all files of a working tree.
const TIMEOUT: Duration = Duration::from_secs(10 * 60);
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
const KEPT_SETTINGS: [&str; 17] = [
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
    "core.excludesfile",
    "core.attributesfile",
    "core.checkroundtripencoding",
    "core.bigfilethreshold",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "index.sparse",
];

/// A git program that no command of a run can have changed.
#[derive(Debug, Clone)]
pub struct GitProgram {
    program: PathBuf,
    temporary: PathBuf,
}

impl GitProgram {
    /// `program` is an absolute path, and `temporary` a folder for temporary files; commands can change neither.
    pub fn new(program: PathBuf, temporary: PathBuf) -> Self {
        Self { program, temporary }
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
        let git = Self { program: git.to_owned(), temporary: PathBuf::new() };
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
        command.envs(user_variables());
        let output = run(command)?;
        let printed = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Ok(Some(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())),
            false if printed.trim().is_empty() => Ok(None),
            false => Err(io::Error::other(printed.trim().to_owned())),
        }
    }

    /// Commands for a working tree of a repository: its own, or one that is filled from it.
    ///
    /// # Errors
    /// The private git folder can't be made, or git fails.
    pub(crate) fn working_tree(&self, repository: &Repository, root: &Path) -> io::Result<GitWorkingTree> {
        let private = tempfile::Builder::new().prefix("legwork-git-").tempdir_in(&self.temporary)?;
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
            if let Some(file) = open_regular_file(&from.join(name)) {
                let mut text = Vec::new();
                file.take(MAX_INFO_BYTES).read_to_end(&mut text)?;
                fs::write(folder.join(name), text)?;
            }
        }
        let settings = self.kept_settings(repository)?;
        let index = folder.join("index");
        let (root, objects) = (root.to_owned(), common.join("objects"));
        Ok(GitWorkingTree { program: self.clone(), private, root, objects, index, settings })
    }

    /// The settings that are kept, with their values. Reading them runs nothing.
    fn kept_settings(&self, repository: &Repository) -> io::Result<Vec<(String, String)>> {
        let mut command = self.command();
        command.arg("--git-dir").arg(&repository.git_dir).args(["config", "--list", "--includes", "-z"]);
        command.envs(user_variables());
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

#[allow(clippy::disallowed_methods, reason = "git reads these itself; legwork doesn't decide anything by them")]
fn user_variables() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
    USER_VARIABLES.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

/// Makes commands for a working tree, with a git folder of legwork's own that is removed with this.
#[derive(Debug)]
pub(crate) struct GitWorkingTree {
    program: GitProgram,
    private: TempDir,
    root: PathBuf,
    /// The repository's objects, to which commands add.
    objects: PathBuf,
    index: PathBuf,
    settings: Vec<(String, String)>,
}

impl GitWorkingTree {
    /// Uses this index.
    #[must_use]
    pub(crate) fn with_index(self, index: PathBuf) -> Self {
        Self { index, ..self }
    }

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
        // Of these, only the places of lists of ignored files and attributes are used.
        command.envs(user_variables());
        command
            .envs(NO_CONFIGURATION)
            .env("GIT_DIR", self.private.path())
            .env("GIT_WORK_TREE", &self.root)
            .env("GIT_OBJECT_DIRECTORY", &self.objects)
            .env("GIT_INDEX_FILE", &self.index);
        command
    }
}

/// Runs a command to its end, or kills it when it takes too long: git waits for ever on a pipe in place of a file.
pub(crate) fn run(command: Command) -> io::Result<Output> {
    let mut process = GitProcess::start(command, Instant::now() + TIMEOUT)?;
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
    GitProgram::new(program.unwrap_or_default(), std::env::temp_dir())
}
