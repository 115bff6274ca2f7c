//! The environment of the command line: variables, current folder, terminal, clock and user configuration.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use super::output::Console;
use crate::context_files::WorkspaceFiles;
use crate::diagnostic::Diagnostic;
use crate::error::Error;
use crate::git::{GitProgram, Repository, is_worktree_root};
use crate::lints::{RECORD_KEY, provider_keys};
use crate::pricing::Prices;
use crate::providers::user_servers::ParsedServers;
use crate::record::Record;
use crate::run::{Host, RunPlaces};
use crate::sandbox::programs::{self, Folders};
use crate::sandbox::protected_paths::canonical_as_far_as_possible;
use crate::sandbox::restrict_git;
use crate::sync::IgnorePoison;

/// What the commands know about their environment, read once at the start.
pub(super) struct CliEnv {
    /// The environment variables that are valid Unicode.
    pub(super) variables: BTreeMap<String, String>,
    pub(super) current_folder: PathBuf,
    /// The current folder of the command that runs a test case, whose own current folder is the workspace.
    pub(super) checkout: Option<PathBuf>,
    /// The arguments of the command line, without the program. `None` for one that isn't valid Unicode.
    pub(super) arguments: Vec<Option<String>>,
    pub(super) console: Console,
    pub(super) clock: fn() -> jiff::Timestamp,
    /// The prices that apply to this user, or the mistakes in `prices.toml`. Read on first use.
    pub(super) prices: OnceLock<Result<Prices, Vec<Diagnostic>>>,
    /// The servers in the user's `providers.toml`. Read on first use.
    pub(super) servers: OnceLock<ParsedServers>,
    /// The warnings that apply to the whole process and were printed.
    pub(super) warned: Mutex<HashSet<String>>,
}

impl CliEnv {
    /// Prints a warning, unless it was printed before: the rows of a map share their circumstances.
    pub(super) fn warn_once(&self, text: &str) {
        if self.warned.lock().ignore_poison().insert(text.to_owned()) {
            self.console.warning(text);
        }
    }

    /// The workspace in which context files and skills are read.
    pub(super) fn workspace_files(&self, root: &Path) -> WorkspaceFiles {
        let git = self.git_program(&self.changeable_folders(root, &[]));
        WorkspaceFiles { root: root.to_owned(), git, ..WorkspaceFiles::default() }
    }

    /// Where commands can write, or could in an earlier run, or where the checkout's files are: in the workspace and the current
    /// folder with the repositories around them, and in `more` folders. Nothing there is started outside of the sandbox, or
    /// obeyed as the user's own.
    pub(super) fn changeable_folders(&self, workspace: &Path, more: &[PathBuf]) -> Folders {
        let workspace = self.current_folder.join(workspace);
        let home = self.folder_variable("HOME").and_then(|home| home.canonicalize().ok());
        let mut folders = vec![workspace, self.current_folder.clone()];
        folders.extend(more.iter().map(|folder| self.current_folder.join(folder)).chain(self.checkout.clone()));
        for folder in folders.clone() {
            let folder = canonical_as_far_as_possible(&folder);
            // The repository of a worktree, such as that of a row, is elsewhere.
            let main = Repository::discover(&folder).filter(|found| found.common_dir.ends_with(".git"));
            let main = main.and_then(|found| found.common_dir.parent().map(Path::to_owned));
            let around = folder.ancestors().filter(|above| is_worktree_root(above));
            // Some people keep the settings in their home folder in a repository.
            folders.extend(around.map(Path::to_owned).chain(main).filter(|found| Some(found) != home.as_ref()));
        }
        Folders::new(&folders)
    }

    /// A program outside of these folders.
    pub(super) fn program(&self, name: &str, changeable: &Folders) -> Option<PathBuf> {
        let path = std::env::split_paths(self.variable("PATH").unwrap_or_default());
        programs::find_outside(name, path, changeable)
    }

    /// Git from outside of these folders.
    pub(super) fn git_program(&self, changeable: &Folders) -> Option<GitProgram> {
        let temporary = changeable.temporary_folders().into_iter().next()?;
        let git = GitProgram::new(self.program("git", changeable)?, temporary, restrict_git);
        // The workspace of a test case is the same for all users.
        Some(if self.checkout.is_some() { git } else { git.with_user(&self.variables) })
    }

    /// The environment of a program that is started outside of the sandbox: ours, without keys, without our own variables, and
    /// without what names something in these folders.
    pub(super) fn program_variables(&self, changeable: &Folders) -> BTreeMap<String, String> {
        let mut variables = self.variables.clone();
        variables.retain(|name, _| !provider_keys().any(|key| key == name) && !name.starts_with("LEGWORK_"));
        changeable.clean_variables(&mut variables);
        variables
    }

    /// The machine and the user, as runs see them.
    ///
    /// # Errors
    /// The user's configuration has mistakes.
    pub(super) fn host(&self) -> Result<Host<'_>, Error> {
        Ok(Host {
            variables: &self.variables,
            servers: self.user_servers()?,
            prices: self.prices()?,
            clock: self.clock,
            outputs: self.console.output_files(),
            changeable: Arc::new(|workspace| self.changeable_folders(workspace, &[])),
            record_key: Arc::new(|workspace| self.record_key(&[workspace])),
            warn: Arc::new(|text| self.warn_once(text)),
        })
    }

    /// Whether there may be a sandbox that can hide a file in a folder that commands can write to.
    pub(super) fn has_bubblewrap(&self) -> bool {
        self.program("bwrap", &Folders::new(&[])).is_some()
    }

    /// The files and folders around a run. `job_files` are absolute paths.
    pub(super) fn run_places(&self, job_files: Vec<PathBuf>, runs_folder: &Path) -> RunPlaces {
        let path = std::env::split_paths(self.variable("PATH").unwrap_or_default());
        RunPlaces {
            job_files,
            runs_folder: canonical_as_far_as_possible(runs_folder),
            home: self.folder_variable("HOME"),
            path_dirs: path.filter(|entry| entry.is_absolute()).collect(),
            hidden_key: Some(self)
                .filter(|env| env.variable(RECORD_KEY).is_none() && env.has_bubblewrap())
                .and_then(Self::record_key_path),
            probe_cache: self.xdg_file("XDG_CACHE_HOME", ".cache", "sandbox-probes"),
        }
    }

    /// Opens a record, and warns if its `result.json` can't be used.
    ///
    /// # Errors
    /// As [`Record::open`].
    pub(super) fn open_record(&self, folder: &Path) -> Result<Record, Error> {
        let record = Record::open(folder)?;
        self.warn_of_defect(&record);
        Ok(record)
    }

    /// Warns if the `result.json` of a record can't be used.
    pub(super) fn warn_of_defect(&self, record: &Record) {
        record.defect.iter().for_each(|why| self.console.warning(why));
    }

    /// The value of an environment variable, if it is set and not empty.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The value of a variable that holds a folder. Relative paths are ignored, as the XDG base directory specification
    /// demands (<https://specifications.freedesktop.org/basedir/latest>).
    pub(super) fn folder_variable(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(PathBuf::from).filter(|folder| folder.is_absolute())
    }

    /// A file of legwork below the folder in an XDG variable, or if that isn't set, below a folder in the home folder.
    pub(super) fn xdg_file(&self, variable: &str, below_home: &str, name: &str) -> Option<PathBuf> {
        let from_home = || Some(self.folder_variable("HOME")?.join(below_home));
        Some(self.folder_variable(variable).or_else(from_home)?.join("legwork").join(name))
    }
}
