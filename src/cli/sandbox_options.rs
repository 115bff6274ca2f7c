//! The sandbox options of the command line, and the sandbox that follows from them.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;

use super::env::CliEnv;
use crate::egress::{ConnectTo, HostPort, NetworkAccess};
use crate::error::Error;
use crate::event::RunOptions;
use crate::plan::Plan;
use crate::run::{Confinement, SandboxRequest, SandboxScope, UNCONFINED_RISK};
use crate::sandbox::allowed_changes::AllowedChanges;
use crate::sandbox::{GuardedFiles, ObjectStages, Sandbox, SandboxMode, SandboxPolicy, Tier};

/// The sandbox options of `run`, `resume`, `replay --tools` and `test`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SandboxOptions {
    /// How to confine commands; default: auto, or for a resumed run, as before
    #[arg(long, value_enum)]
    sandbox: Option<SandboxMode>,
    /// Let commands also read this file or folder, for example one in HOME; may be repeated
    #[arg(long, value_name = "PATH")]
    allow_read: Vec<PathBuf>,
    /// Let commands also read and change this file or folder; may be repeated
    #[arg(long, value_name = "PATH")]
    allow_write: Vec<PathBuf>,
    /// Let an allowed host have a private address, as a database of the company has; may be repeated
    #[arg(long, value_name = "HOST:PORT")]
    allow_private: Vec<HostPort>,
    /// Send connections to an allowed host to another address, as curl does; may be repeated
    ///
    /// An empty HOST or PORT matches all that the job allows.
    #[arg(long, value_name = "HOST:PORT:ADDRESS:PORT")]
    connect_to: Vec<ConnectTo>,
}

impl SandboxOptions {
    /// Refuses to run an untrusted job without a sandbox.
    pub(super) fn require_for_untrusted(&self, is_untrusted: bool) -> Result<(), Error> {
        if is_untrusted && self.is_off() {
            return Err(Error::usage("an untrusted job can't run without a sandbox", "Remove --sandbox off."));
        }
        Ok(())
    }

    /// Whether the sandbox is off.
    fn is_off(&self) -> bool {
        self.mode() == SandboxMode::Off
    }

    fn mode(&self) -> SandboxMode {
        self.sandbox.unwrap_or_default()
    }

    /// The options and the path of `--result` as the journal records them, for a later resume. Paths are relative to
    /// `folder`.
    pub(super) fn to_run_options(&self, folder: &Path, result: Option<&Path>) -> RunOptions {
        let absolute = |path: &Path| folder.join(path).to_string_lossy().into_owned();
        RunOptions {
            result: result.map(absolute),
            sandbox: self.sandbox.map(|mode| mode.name().to_owned()),
            allow_read: self.allow_read.iter().map(|path| absolute(path)).collect(),
            allow_write: self.allow_write.iter().map(|path| absolute(path)).collect(),
            allow_private: texts(&self.allow_private),
            connect_to: texts(&self.connect_to),
            ..RunOptions::default()
        }
    }

    /// These options, completed with those that the run recorded.
    pub(super) fn or_recorded(&self, recorded: &RunOptions) -> Self {
        let paths = |given: &[PathBuf], recorded: &[String]| match given {
            [] => recorded.iter().map(PathBuf::from).collect(),
            given => given.to_vec(),
        };
        let mode = recorded.sandbox.as_deref().and_then(|name| <SandboxMode as ValueEnum>::from_str(name, false).ok());
        Self {
            sandbox: self.sandbox.or(mode),
            allow_read: paths(&self.allow_read, &recorded.allow_read),
            allow_write: paths(&self.allow_write, &recorded.allow_write),
            allow_private: or_recorded(&self.allow_private, &recorded.allow_private),
            connect_to: or_recorded(&self.connect_to, &recorded.connect_to),
        }
    }

    /// The paths of `--allow-write`.
    pub(super) fn writable(&self) -> &[PathBuf] {
        &self.allow_write
    }

    /// Whether all options have their defaults.
    pub(super) fn is_default(&self) -> bool {
        let has_paths = !self.allow_read.is_empty() || !self.allow_write.is_empty();
        self.mode() == SandboxMode::Auto && !has_paths && self.allow_private.is_empty() && self.connect_to.is_empty()
    }

    /// These options with absolute paths, for a run with another current folder.
    pub(super) fn in_folder(&self, folder: &Path) -> Self {
        let absolute = |paths: &[PathBuf]| paths.iter().map(|path| folder.join(path)).collect();
        Self { allow_read: absolute(&self.allow_read), allow_write: absolute(&self.allow_write), ..self.clone() }
    }

    /// A short description for a plan.
    pub(super) fn describe(&self, plan: &Plan) -> String {
        if !plan.runs_commands() {
            return "unused: no agent or check can run commands".to_owned();
        }
        let tier = match self.mode() {
            SandboxMode::Auto => {
                "auto: bubblewrap, or landlock if bubblewrap doesn't work; on macOS, seatbelt".to_owned()
            }
            SandboxMode::Required => "required: bubblewrap; on macOS, seatbelt".to_owned(),
            SandboxMode::Off => format!("off: commands are not confined, {UNCONFINED_RISK}"),
        };
        let places = self.connect_to.iter().map(|place| format!("connect to {place}"));
        let private = self.allow_private.iter().map(|host| format!("connect to {host} at a private address"));
        let network = private.chain(places).collect::<Vec<_>>();
        let more = [("read", &self.allow_read), ("change", &self.allow_write)].into_iter();
        let more = more.flat_map(|(what, paths)| paths.iter().map(move |path| format!("{what} {}", path.display())));
        match more.chain(network).collect::<Vec<_>>().join(", ") {
            more if more.is_empty() || self.is_off() => tier,
            more => format!("{tier}; commands may also {more}"),
        }
    }

    /// What these options permit to commands.
    ///
    /// # Errors
    /// A path of an option doesn't exist.
    pub(super) fn request(&self, env: &CliEnv) -> Result<SandboxRequest, Error> {
        let existing = |option: &str, paths: &[PathBuf]| -> Result<Vec<PathBuf>, Error> {
            let canonical = |path: PathBuf| {
                let hint = "Name an existing file or folder.";
                path.canonicalize().map_err(|error| Error::usage(format!("{option} {}: {error}", path.display()), hint))
            };
            paths.iter().map(|path| canonical(env.current_folder.join(path))).collect()
        };
        Ok(SandboxRequest {
            mode: self.mode(),
            readable: existing("--allow-read", &self.allow_read)?,
            writable: existing("--allow-write", &self.allow_write)?,
        })
    }

    /// Finds the sandbox for the commands and tool servers of a run, and warns on stderr if it isn't the strongest. `job_files` are
    /// absolute paths. This searches the workspace, so it may take some time.
    ///
    /// # Errors
    /// The sandbox doesn't work here, or a path of an option doesn't exist.
    pub(super) fn confine(
        &self,
        env: &CliEnv,
        scope: SandboxScope,
        job_files: Vec<PathBuf>,
        runs_folder: &Path,
    ) -> Result<Confinement, Error> {
        let confinement = Confinement::prepare(self.request(env)?, scope, env.run_places(job_files, runs_folder))?;
        confinement.warning().iter().for_each(|warning| env.warn_once(warning));
        Ok(confinement)
    }
}

fn texts(values: &[impl ToString]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

/// The values of an option, or those that were recorded.
fn or_recorded<T: Clone + FromStr>(given: &[T], recorded: &[String]) -> Vec<T> {
    if given.is_empty() { recorded.iter().filter_map(|value| value.parse().ok()).collect() } else { given.to_vec() }
}

/// Finds out how commands are confined here: the tier, and why it isn't the best one.
///
/// # Errors
/// Why they can't be confined.
pub(super) fn detect_sandbox(env: &CliEnv) -> Result<(Tier, Option<String>), String> {
    let path = std::env::split_paths(env.variable("PATH").unwrap_or_default());
    detect_with_programs(env, path.filter(|entry| entry.is_absolute()).collect())
}

/// Whether landlock would confine commands here if there were no bubblewrap.
///
/// # Errors
/// Why it can't.
#[cfg(target_os = "linux")]
pub(super) fn detect_landlock(env: &CliEnv) -> Result<(), String> {
    detect_with_programs(env, Vec::new()).map(drop)
}

/// Finds out how commands are confined with the programs in these folders.
fn detect_with_programs(env: &CliEnv, path_dirs: Vec<PathBuf>) -> Result<(Tier, Option<String>), String> {
    let policy = SandboxPolicy {
        workspace: env.current_folder.canonicalize().map_err(|error| format!("the current folder: {error}"))?,
        protected: Vec::new(),
        protected_links: Vec::new(),
        allowed_changes: AllowedChanges::default(),
        network: NetworkAccess::None,
        readable: Vec::new(),
        writable: Vec::new(),
        hidden_files: Vec::new(),
        home: env.folder_variable("HOME"),
        path_dirs,
        object_stages: ObjectStages::default(),
        guarded_files: GuardedFiles::default(),
    };
    match Sandbox::detect(SandboxMode::Auto, policy) {
        Ok(sandbox) => Ok((sandbox.tier(), sandbox.degradation.clone())),
        Err(error) => {
            let remedy = error.remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
            Err(error.reasons.join("; ") + &remedy)
        }
    }
}
