//! What the command line says about the sandbox, and the search for one.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;

use super::CliEnv;
use crate::error::Error;
use crate::event::RunOptions;
use crate::job::GitAccess;
use crate::plan::Plan;
use crate::sandbox::protected_paths::{ProtectedPaths, ProtectionConfig as Search, canonical_as_far_as_possible};
use crate::sandbox::{RecordVerifier, Sandbox, SandboxMode, SandboxPolicy, SandboxUnavailable, Tier};

/// What `run`, `resume`, `replay --tools` and `test` have in common.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SandboxOptions {
    /// How commands are confined; default: auto, or what a run that goes on was given
    #[arg(long, value_enum)]
    sandbox: Option<SandboxArgument>,
    /// Let commands read this file or folder, too: what lies in HOME, say; may be repeated
    #[arg(long, value_name = "DIR")]
    allow_read: Vec<PathBuf>,
    /// Let commands change this file or folder, too; may be repeated
    #[arg(long, value_name = "DIR")]
    allow_write: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SandboxArgument {
    /// By bubblewrap, or by landlock where that doesn't work
    Auto,
    /// By bubblewrap
    Required,
    /// Not at all: they can do whatever you can do
    Off,
}

impl SandboxArgument {
    /// As the command line names it.
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Required => "required",
            Self::Off => "off",
        }
    }
}

/// What no sandbox means.
const UNCONFINED_RISK: &str = "they can do whatever you can do";

impl SandboxOptions {
    /// Whether commands are not to be confined.
    pub(super) fn is_off(&self) -> bool {
        self.choice() == SandboxArgument::Off
    }

    fn choice(&self) -> SandboxArgument {
        self.sandbox.unwrap_or(SandboxArgument::Auto)
    }

    /// What a run keeps of it for when it goes on; `folder` is the current one.
    pub(super) fn to_run_options(&self, folder: &Path) -> RunOptions {
        let absolute = |paths: &[PathBuf]| -> Vec<String> {
            paths.iter().map(|path| folder.join(path).to_string_lossy().into_owned()).collect()
        };
        RunOptions {
            sandbox: self.sandbox.map(|choice| choice.name().to_owned()),
            allow_read: absolute(&self.allow_read),
            allow_write: absolute(&self.allow_write),
            ..RunOptions::default()
        }
    }

    /// The same, with what a run was given earlier where it isn't given anew.
    pub(super) fn or_recorded(&self, earlier: &RunOptions) -> Self {
        let paths = |now: &[PathBuf], then: &[String]| match now {
            [] => then.iter().map(PathBuf::from).collect(),
            now => now.to_vec(),
        };
        let then = earlier.sandbox.as_deref().and_then(|name| SandboxArgument::from_str(name, false).ok());
        Self {
            sandbox: self.sandbox.or(then),
            allow_read: paths(&self.allow_read, &earlier.allow_read),
            allow_write: paths(&self.allow_write, &earlier.allow_write),
        }
    }

    /// Whether the command line says anything about it.
    pub(super) fn is_default(&self) -> bool {
        self.choice() == SandboxArgument::Auto && self.allow_read.is_empty() && self.allow_write.is_empty()
    }

    /// The same as arguments of a command that is started elsewhere.
    pub(super) fn to_arguments(&self, folder: &Path) -> Vec<OsString> {
        let mut arguments = vec![OsString::from("--sandbox"), self.choice().name().into()];
        for (option, paths) in [("--allow-read", &self.allow_read), ("--allow-write", &self.allow_write)] {
            for path in paths {
                arguments.extend([option.into(), folder.join(path).into_os_string()]);
            }
        }
        arguments
    }

    /// What is asked for, in a few words for whoever reads a plan.
    pub(super) fn describe(&self, plan: &Plan) -> String {
        if !plan.runs_commands() {
            return "unused: nothing can start a command".to_owned();
        }
        let tier = match self.choice() {
            SandboxArgument::Auto => "auto: bubblewrap, or landlock where that doesn't work".to_owned(),
            SandboxArgument::Required => "required: bubblewrap".to_owned(),
            SandboxArgument::Off => format!("off: commands are not confined, {UNCONFINED_RISK}"),
        };
        let more = [("read", &self.allow_read), ("change", &self.allow_write)].into_iter();
        let more = more.flat_map(|(what, paths)| paths.iter().map(move |path| format!("{what} {}", path.display())));
        match more.collect::<Vec<_>>().join(", ") {
            more if more.is_empty() || self.is_off() => tier,
            more => format!("{tier}; commands may also {more}"),
        }
    }

    /// Finds what the commands of a run are confined by, and says on stderr where it isn't the best. `job_files` are
    /// absolute.
    pub(super) fn prepare_sandbox(
        &self,
        around: &CliEnv,
        plan: &Plan,
        job_files: &[PathBuf],
        out: &Path,
    ) -> Result<PreparedSandbox, Error> {
        let existing = |option, paths: &[PathBuf]| -> Result<Vec<PathBuf>, Error> {
            paths.iter().map(|path| canonical_path(option, &around.current_folder.join(path))).collect()
        };
        let mut read = existing("--allow-read", &self.allow_read)?;
        let mut write = existing("--allow-write", &self.allow_write)?;
        if !plan.runs_commands() {
            return Ok(PreparedSandbox { sandbox: Sandbox::unused(), protection: None });
        }
        let home = around.variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let workspace = PathBuf::from(&plan.workspace);
        // The whole workspace can't be read-only; of runs that lie right in it, those of this job are.
        let out = canonical_as_far_as_possible(out);
        let records = if workspace.starts_with(&out) { out.join(&plan.job) } else { out };
        let protected = ProtectedPaths::find(&Search {
            workspace: &workspace,
            job_files,
            out: &records,
            home: home.as_deref(),
            git: plan.git,
            protect: &plan.protect,
            allow_changes: &plan.allow_changes,
            write: &write,
            has_commands: true,
            time: plan.limits.wall_clock_ms.map(Duration::from_millis),
        });
        if !protected.repositories.is_complete && !self.is_off() {
            let why = "the workspace has too many files, or too much git configuration, to be searched in time for git \
                 repositories, which commands must not change";
            return Err(Error::SandboxUnavailable(SandboxUnavailable { reasons: vec![why.to_owned()], remedy: None }));
        }
        read.extend(protected.git_reads.iter().cloned());
        if plan.git == GitAccess::Commit {
            write.extend(protected.git_writes.iter().cloned());
        }
        let path = std::env::split_paths(around.variable("PATH").unwrap_or_default());
        let boundary = SandboxPolicy {
            workspace,
            protected: protected.paths.clone(),
            protected_links: protected.links.clone(),
            allowed_changes: protected.allowed_changes.clone(),
            network: plan.network,
            readable: read,
            writable: write,
            home,
            path_dirs: path.filter(|entry| entry.is_absolute()).collect(),
        };
        let wanted = match self.choice() {
            SandboxArgument::Auto => SandboxMode::Auto,
            SandboxArgument::Required => SandboxMode::Required,
            SandboxArgument::Off => SandboxMode::Off,
        };
        let sandbox = Sandbox::detect(wanted, boundary.clone()).map_err(Error::SandboxUnavailable)?;
        match (sandbox.tier(), sandbox.degradation()) {
            (Tier::Off, _) => {
                around.console.warning(&format!("commands are not confined (sandbox: off): {UNCONFINED_RISK}"));
            }
            (tier, Some(shortfall)) => around.console.warning(&format!("sandbox: {tier}: {shortfall}")),
            (_, None) => {}
        }
        Ok(PreparedSandbox { sandbox, protection: Some((boundary, protected, records)) })
    }
}

/// What was found, before there is a record of the run.
pub(super) struct PreparedSandbox {
    sandbox: Sandbox,
    protection: Option<(SandboxPolicy, ProtectedPaths, PathBuf)>,
}

impl PreparedSandbox {
    /// Folders beside the workspace that commands may change.
    pub(super) fn writable_paths(&self) -> Vec<PathBuf> {
        self.protection.as_ref().map(|(boundary, ..)| boundary.writable.clone()).unwrap_or_default()
    }

    /// The same for a run that is recorded in a folder, and what is protected, where it was looked for. The record's `lock`
    /// is held until the last process of the last command has ended. `judge` tells records of other runs from planted ones.
    pub(super) fn for_record(
        self,
        record: &Path,
        lock: Option<OwnedFd>,
        judge: Option<RecordVerifier>,
    ) -> (Arc<Sandbox>, Option<ProtectedPaths>) {
        let sandbox = match lock {
            Some(lock) => self.sandbox.keeping_open(lock),
            None => self.sandbox,
        };
        match self.protection {
            Some((boundary, protected, records)) => {
                let sandbox = sandbox.with_tamper_watch(&boundary, &records, record, judge).with_restorer();
                (Arc::new(sandbox), Some(protected))
            }
            None => (Arc::new(sandbox), None),
        }
    }
}

/// The path without links, for what isn't there can't be opened.
fn canonical_path(option: &str, path: &Path) -> Result<PathBuf, Error> {
    path.canonicalize().map_err(|error| Error::Usage {
        message: format!("{option} {}: {error}", path.display()),
        hint: Some("Name a folder that exists.".into()),
    })
}
