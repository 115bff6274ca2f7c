//! The sandbox options of the command line, and the sandbox that follows from them.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;

use super::env::CliEnv;
use crate::agent::{ConfineCopy, ConfinedCopy};
use crate::error::Error;
use crate::event::RunOptions;
use crate::job::{GitAccess, Network};
use crate::plan::Plan;
use crate::sandbox::allowed_changes::AllowedChanges;
use crate::sandbox::protected_paths::{ProtectedPaths, ProtectionConfig, canonical_as_far_as_possible};
use crate::sandbox::{
    GuardedFiles, ObjectStages, RecordVerifier, Sandbox, SandboxMode, SandboxPolicy, SandboxUnavailable, Tier,
};

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
}

/// What a sandbox is for.
pub(super) struct SandboxScope<'a> {
    /// The job's name.
    pub(super) job: &'a str,
    pub(super) workspace: PathBuf,
    /// Whether any commands or tool servers are started.
    pub(super) has_commands: bool,
    pub(super) network: Network,
    pub(super) git: GitAccess,
    pub(super) protect: Vec<String>,
    pub(super) allow_changes: Vec<String>,
    pub(super) wall_clock_ms: Option<u64>,
}

impl<'a> From<&'a Plan> for SandboxScope<'a> {
    fn from(plan: &'a Plan) -> Self {
        Self {
            job: &plan.job,
            workspace: PathBuf::from(&plan.workspace),
            has_commands: plan.runs_commands(),
            network: plan.network,
            git: plan.git,
            protect: plan.protect.clone(),
            allow_changes: plan.allow_changes.clone(),
            wall_clock_ms: plan.limits.wall_clock_ms,
        }
    }
}

/// What it means to have no sandbox.
const UNCONFINED_RISK: &str = "they can do whatever you can do";

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
            ..RunOptions::default()
        }
    }

    /// These options, completed with those that the run recorded.
    pub(super) fn or_recorded(&self, recorded: &RunOptions) -> Self {
        let paths = |given: &[PathBuf], recorded: &[String]| match given {
            [] => recorded.iter().map(PathBuf::from).collect(),
            given => given.to_vec(),
        };
        let mode = recorded.sandbox.as_deref().and_then(|name| SandboxMode::from_str(name, false).ok());
        Self {
            sandbox: self.sandbox.or(mode),
            allow_read: paths(&self.allow_read, &recorded.allow_read),
            allow_write: paths(&self.allow_write, &recorded.allow_write),
        }
    }

    /// The paths of `--allow-write`.
    pub(super) fn writable(&self) -> &[PathBuf] {
        &self.allow_write
    }

    /// Whether all options have their defaults.
    pub(super) fn is_default(&self) -> bool {
        self.mode() == SandboxMode::Auto && self.allow_read.is_empty() && self.allow_write.is_empty()
    }

    /// These options as arguments of a command that runs in another folder.
    pub(super) fn to_arguments(&self, folder: &Path) -> Vec<OsString> {
        let mut arguments = vec![OsString::from("--sandbox"), self.mode().name().into()];
        for (option, paths) in [("--allow-read", &self.allow_read), ("--allow-write", &self.allow_write)] {
            for path in paths {
                arguments.extend([option.into(), folder.join(path).into_os_string()]);
            }
        }
        arguments
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
        let more = [("read", &self.allow_read), ("change", &self.allow_write)].into_iter();
        let more = more.flat_map(|(what, paths)| paths.iter().map(move |path| format!("{what} {}", path.display())));
        match more.collect::<Vec<_>>().join(", ") {
            more if more.is_empty() || self.is_off() => tier,
            more => format!("{tier}; commands may also {more}"),
        }
    }

    /// Sets up a sandbox for commands and tool servers, and warns on stderr if it isn't the strongest. `job_files` are absolute
    /// paths.
    pub(super) fn prepare_sandbox(
        &self,
        env: &CliEnv,
        scope: &SandboxScope<'_>,
        job_files: &[PathBuf],
        runs_folder: &Path,
    ) -> Result<PreparedSandbox, Error> {
        let existing = |option: &str, paths: &[PathBuf]| -> Result<Vec<PathBuf>, Error> {
            let canonical = |path: PathBuf| {
                let hint = "Name an existing file or folder.";
                path.canonicalize().map_err(|error| Error::usage(format!("{option} {}: {error}", path.display()), hint))
            };
            paths.iter().map(|path| canonical(env.current_folder.join(path))).collect()
        };
        let mode = self.mode();
        let mut read = existing("--allow-read", &self.allow_read)?;
        let mut write = existing("--allow-write", &self.allow_write)?;
        if !scope.has_commands {
            return Ok(PreparedSandbox { sandbox: Sandbox::unused(), protection: None, mode, opened: (read, write) });
        }
        let home = env.folder_variable("HOME");
        let workspace = scope.workspace.clone();
        // If the workspace is in the folder of runs, protecting that folder would make the whole workspace read-only.
        let runs_folder = canonical_as_far_as_possible(runs_folder);
        let is_copy = workspace.starts_with(&runs_folder);
        let records = if is_copy { runs_folder.join(scope.job) } else { runs_folder };
        let protected = ProtectedPaths::find(&ProtectionConfig {
            workspace: &workspace,
            job_files,
            out: &records,
            home: home.as_deref(),
            git: scope.git,
            protect: &scope.protect,
            allow_changes: &scope.allow_changes,
            write: &write,
            has_commands: true,
            time: scope.wall_clock_ms.map(Duration::from_millis),
        });
        if !protected.repositories.is_complete && !self.is_off() {
            let why = "searching the workspace for git repositories, which commands must not change, took too long: it has \
                 too many files or too much git configuration";
            return Err(Error::SandboxUnavailable(SandboxUnavailable { reasons: vec![why.to_owned()], remedy: None }));
        }
        let opened = (read.clone(), write.clone());
        read.extend(protected.git_reads.iter().cloned());
        if scope.git == GitAccess::Commit {
            write.extend(protected.git_writes.iter().cloned());
        }
        let path = std::env::split_paths(env.variable("PATH").unwrap_or_default());
        let policy = SandboxPolicy {
            workspace,
            protected: protected.paths.clone(),
            protected_links: protected.links.clone(),
            allowed_changes: protected.allowed_changes.clone(),
            network: scope.network,
            readable: read,
            writable: write,
            home,
            path_dirs: path.filter(|entry| entry.is_absolute()).collect(),
            object_stages: ObjectStages::default(),
            guarded_files: GuardedFiles::default(),
        };
        // Each copy of a workspace is another place, and would displace what is worth remembering.
        let cache = env.xdg_file("XDG_CACHE_HOME", ".cache", "sandbox-probes").filter(|_| !is_copy);
        let sandbox = Sandbox::detect_with_cache(self.mode(), policy.clone(), cache);
        let sandbox = sandbox.map_err(Error::SandboxUnavailable)?;
        match (sandbox.tier(), &sandbox.degradation) {
            (Tier::Off, _) => {
                env.warn_once(&format!("commands are not confined (sandbox: off): {UNCONFINED_RISK}"));
            }
            (tier, Some(reason)) => env.warn_once(&format!("sandbox: {tier}: {reason}")),
            (_, None) => {}
        }
        Ok(PreparedSandbox { sandbox, protection: Some((policy, protected, records)), mode, opened })
    }
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
        network: Network::None,
        readable: Vec::new(),
        writable: Vec::new(),
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

/// What the confinement of copies of a workspace needs to know about the run.
pub(super) struct CopiesOf<'a> {
    /// The absolute paths of the job's files.
    pub(super) job_files: &'a [PathBuf],
    pub(super) runs_folder: &'a Path,
    pub(super) home: Option<PathBuf>,
    pub(super) record: &'a Path,
    pub(super) lock: Option<OwnedFd>,
    pub(super) verifier: Option<RecordVerifier>,
}

/// A sandbox that is ready except for the record of the run, which is made later.
pub(super) struct PreparedSandbox {
    sandbox: Sandbox,
    protection: Option<(SandboxPolicy, ProtectedPaths, PathBuf)>,
    mode: SandboxMode,
    /// The paths of `--allow-read` and `--allow-write`.
    opened: (Vec<PathBuf>, Vec<PathBuf>),
}

impl PreparedSandbox {
    /// A sandbox with another network access, for tool servers.
    ///
    /// # Errors
    /// It doesn't work here.
    pub(super) fn with_network(&self, network: Network, lock: Option<OwnedFd>) -> Result<Sandbox, Error> {
        let Some((policy, ..)) = &self.protection else { return Ok(Sandbox::unused()) };
        let policy = SandboxPolicy { network, ..policy.clone() };
        let sandbox = Sandbox::detect(self.mode, policy).map_err(Error::SandboxUnavailable)?;
        Ok(match lock {
            Some(lock) => sandbox.keeping_open(lock),
            None => sandbox,
        })
    }

    /// Confines the tools of subagents that work in a copy of the workspace as the run's own are confined, with the copy as the
    /// only folder of the workspace's that they can change.
    pub(super) fn for_copies(&self, plan: &Plan, run: CopiesOf<'_>) -> Arc<ConfineCopy> {
        let CopiesOf { job_files, runs_folder, home, record, lock, verifier } = run;
        let workspace = PathBuf::from(&plan.workspace);
        let job_files: Vec<PathBuf> =
            job_files.iter().filter_map(|path| path.strip_prefix(&workspace).ok().map(Path::to_owned)).collect();
        // The copies are in the folder of all runs, which can't be protected as a whole.
        let records = canonical_as_far_as_possible(runs_folder).join(&plan.job);
        let (git, protect, allow_changes) = (plan.git, plan.protect.clone(), plan.allow_changes.clone());
        let time = plan.limits.wall_clock_ms.map(Duration::from_millis);
        let policy = self.protection.as_ref().map(|(policy, ..)| policy.clone());
        let ((read, write), mode, record) = (self.opened.clone(), self.mode, record.to_owned());
        Arc::new(move |copy| {
            let job_files: Vec<PathBuf> = job_files.iter().map(|path| copy.join(path)).collect();
            let protected = ProtectedPaths::find(&ProtectionConfig {
                workspace: copy,
                job_files: &job_files,
                out: &records,
                home: home.as_deref(),
                git,
                protect: &protect,
                allow_changes: &allow_changes,
                write: &write,
                has_commands: policy.is_some(),
                time,
            });
            let Some(policy) = &policy else {
                return Ok(ConfinedCopy { sandbox: Arc::new(Sandbox::unused()), protected });
            };
            if !protected.repositories.is_complete && mode != SandboxMode::Off {
                return Err(
                    "searching a subagent's copy of the workspace for git repositories took too long".to_owned()
                );
            }
            let (mut readable, mut writable) = (read.clone(), write.clone());
            readable.extend(protected.git_reads.iter().cloned());
            if git == GitAccess::Commit {
                writable.extend(protected.git_writes.iter().cloned());
            }
            let policy = SandboxPolicy {
                workspace: copy.to_owned(),
                protected: protected.paths.clone(),
                protected_links: protected.links.clone(),
                allowed_changes: protected.allowed_changes.clone(),
                readable,
                writable,
                object_stages: ObjectStages::default(),
                guarded_files: GuardedFiles::default(),
                ..policy.clone()
            };
            let mut sandbox = Sandbox::detect(mode, policy.clone()).map_err(|error| error.to_string())?;
            if let Some(lock) = &lock {
                let lock = lock.try_clone().map_err(|error| format!("a subagent can't be confined: {error}"))?;
                sandbox = sandbox.keeping_open(lock);
            }
            let sandbox = sandbox.with_tamper_watch(&policy, &records, &record, verifier.clone());
            let sandbox = sandbox.map_err(|error| format!("git's objects can't be kept: {error}"))?;
            Ok(ConfinedCopy { sandbox: Arc::new(sandbox), protected })
        })
    }

    /// The sandbox of a run that is recorded in a folder, and the protected paths if commands can run. The last process of
    /// the last command holds `lock` until it ends. `verifier` recognizes planted records of other runs.
    ///
    /// # Errors
    /// The existing objects of git can't be kept.
    pub(super) fn for_record(
        self,
        record: &Path,
        lock: Option<OwnedFd>,
        verifier: Option<RecordVerifier>,
    ) -> Result<(Arc<Sandbox>, Option<ProtectedPaths>), Error> {
        let sandbox = match lock {
            Some(lock) => self.sandbox.keeping_open(lock),
            None => self.sandbox,
        };
        match self.protection {
            Some((policy, protected, records)) => {
                let sandbox = sandbox.with_tamper_watch(&policy, &records, record, verifier);
                let sandbox = sandbox.map_err(Error::environment("git's objects can't be kept"))?;
                Ok((Arc::new(sandbox), Some(protected)))
            }
            None => Ok((Arc::new(sandbox), None)),
        }
    }
}
