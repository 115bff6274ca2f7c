//! How the commands, tools and tool servers of a run are confined. Each step is a type of its own, so none can be left out or taken
//! too early: a [`Confinement`] knows what is protected and which tier works, [`Confined`] also the record of the run, and
//! [`ConfinedTools`], with which tools work, exists only after the record's files were written.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::secrets::RunSecrets;
use crate::agent::{ConfineCopy, ConfineSteps, ConfinedCopy, ToolDeps};
use crate::egress::NetworkAccess;
use crate::error::Error;
use crate::job::{GitAccess, Network};
use crate::mcp::ServerSpec;
use crate::plan::Plan;
use crate::record::{FILES_FOLDER, Recorder, WrittenFile};
use crate::sandbox::protected_paths::{ProtectedPaths, ProtectionConfig};
use crate::sandbox::{
    GuardedFiles, ObjectStages, RecordGuard, RecordVerifier, Sandbox, SandboxMode, SandboxPolicy, SandboxUnavailable,
    Tier,
};
use crate::tools::ToolServers;
use crate::workspace::Workspace;

/// What the user permits to commands.
#[derive(Debug, Clone, Default)]
pub struct SandboxRequest {
    /// Which tiers are acceptable.
    pub mode: SandboxMode,
    /// What commands may also read. Existing absolute paths.
    pub readable: Vec<PathBuf>,
    /// What commands may also read and change. Existing absolute paths.
    pub writable: Vec<PathBuf>,
}

/// What a run does that must be confined.
#[derive(Debug, Clone)]
pub struct SandboxScope {
    /// The job's name.
    pub job: String,
    /// The folder that tools work in, absolute.
    pub workspace: PathBuf,
    /// Whether any commands or tool servers are started.
    pub has_commands: bool,
    /// Whether any tool or command can change files.
    pub changes_files: bool,
    /// What commands reach.
    pub network: Network,
    /// Whether any of them are kept to a list of hosts.
    pub has_hosts: bool,
    /// Whether a subagent reaches less than the open network of the run.
    pub is_narrowed: bool,
    /// What commands may do in git folders.
    pub git: GitAccess,
    /// The job's own protected paths.
    pub protect: Vec<String>,
    /// Its exceptions.
    pub allow_changes: Vec<String>,
    /// The most time that a search for protected paths may take.
    pub time: Option<Duration>,
    /// The folder with the files that steps before the agent leave, which commands may read.
    pub files: Option<PathBuf>,
}

impl SandboxScope {
    /// What a run of a plan does. Its record is or will be this folder.
    pub fn new(plan: &Plan, record: &Path) -> Self {
        Self {
            job: plan.job.clone(),
            workspace: PathBuf::from(&plan.workspace),
            has_commands: plan.runs_commands(),
            changes_files: plan.changes_files(),
            network: plan.network.clone(),
            has_hosts: plan.commands_have_hosts(),
            is_narrowed: plan.is_narrowed(),
            git: plan.git,
            protect: plan.protect.clone(),
            allow_changes: plan.allow_changes.clone(),
            time: plan.limits.wall_clock_ms.map(Duration::from_millis),
            files: (!plan.before.is_empty()).then(|| record.join(FILES_FOLDER)),
        }
    }
}

/// The files and folders around a run.
#[derive(Debug, Clone, Default)]
pub struct RunPlaces {
    /// The absolute paths of the job file and its prompts, which tools may not change.
    pub job_files: Vec<PathBuf>,
    /// The folder of all runs, absolute and without links. Tools can neither find nor change its contents.
    pub runs_folder: PathBuf,
    /// The user's home folder. The git configuration there can name files of the workspace.
    pub home: Option<PathBuf>,
    /// The absolute entries of `PATH`.
    pub path_dirs: Vec<PathBuf>,
    /// The file with the key that signs records, if bubblewrap is there to hide it from commands.
    pub hidden_key: Option<PathBuf>,
    /// The file that remembers which tiers have worked.
    pub probe_cache: Option<PathBuf>,
}

/// A sandbox that works here, and what is protected; the record of the run isn't known yet.
#[derive(Debug)]
pub struct Confinement {
    scope: SandboxScope,
    request: SandboxRequest,
    places: RunPlaces,
    /// The part of the folder of all runs that is protected.
    records: PathBuf,
    protected: ProtectedPaths,
    /// `None` if nothing is started.
    commands: Option<(Sandbox, SandboxPolicy)>,
}

impl Confinement {
    /// Searches for what must be protected, and finds the best tier of the sandbox that works.
    ///
    /// # Errors
    /// None works, or the search takes too long.
    pub fn prepare(request: SandboxRequest, scope: SandboxScope, places: RunPlaces) -> Result<Self, Error> {
        // If the workspace is in the folder of runs, protecting that folder would make the whole workspace read-only.
        let is_copy = scope.workspace.starts_with(&places.runs_folder);
        let records = places.runs_folder.join(if is_copy { scope.job.as_str() } else { "" });
        let mut confinement =
            Self { scope, request, places, records, protected: ProtectedPaths::default(), commands: None };
        if confinement.scope.changes_files || confinement.scope.has_commands {
            let (workspace, job_files) = (&confinement.scope.workspace, &confinement.places.job_files);
            confinement.protected = confinement.protected_in(workspace, job_files);
        }
        if !confinement.scope.has_commands {
            return Ok(confinement);
        }
        if confinement.is_unsearched(&confinement.protected) {
            let why = "searching the workspace for git repositories, which commands must not change, took too long: it has \
                 too many files or too much git configuration";
            return Err(Error::SandboxUnavailable(SandboxUnavailable { reasons: vec![why.to_owned()], remedy: None }));
        }
        if let Some(files) = &confinement.scope.files {
            // Landlock allows what is there. Where there is no record yet, it will be in the workspace or created in time.
            let _ = DirBuilder::new().mode(0o700).create(files);
        }
        let policy = confinement.policy(&confinement.scope.workspace, &confinement.protected);
        // Each copy of a workspace is another place, and would displace what is worth remembering.
        let cache = confinement.places.probe_cache.clone().filter(|_| !is_copy);
        let sandbox = Sandbox::detect_with_cache(confinement.request.mode, policy.clone(), cache);
        let sandbox = sandbox.map_err(Error::SandboxUnavailable)?;
        if confinement.scope.has_hosts {
            sandbox.tier().supports_hosts().map_err(hosts_unsupported)?;
        }
        confinement.commands = Some((sandbox, policy));
        Ok(confinement)
    }

    /// The files and folders around the run.
    pub fn places(&self) -> &RunPlaces {
        &self.places
    }

    /// What the user should know about how commands are confined; `None` if it is as good as it gets.
    pub fn warning(&self) -> Option<String> {
        let (sandbox, _) = self.commands.as_ref()?;
        match (sandbox.tier(), &sandbox.degradation) {
            (Tier::Off, _) => {
                let hosts = if self.scope.has_hosts { "; nothing enforces the list of hosts" } else { "" };
                Some(format!("commands are not confined (sandbox: off): {UNCONFINED_RISK}{hosts}"))
            }
            (tier, Some(reason)) => Some(format!("sandbox: {tier}: {reason}")),
            (_, None) => None,
        }
    }

    /// Confines what a run with this record starts. `servers` are its tool servers.
    ///
    /// # Errors
    /// The existing objects of git can't be kept, or a server needs a sandbox that doesn't work here.
    pub fn for_record<'a>(
        mut self,
        record: &RecordAccess<'_>,
        servers: impl Iterator<Item = &'a ServerSpec>,
    ) -> Result<Confined, Error> {
        let servers = self.server_sandboxes(servers, record)?;
        let (protected, records) = (std::mem::take(&mut self.protected), self.records.clone());
        let commands = self.commands.take();
        let narrowed = self.narrowed(commands.as_ref().map(|(_, policy)| policy), record)?;
        let confine_steps = self.for_steps(commands.as_ref().map(|(_, policy)| policy.clone()), record);
        let confine_copy = self.for_copies(commands.as_ref().map(|(_, policy)| policy.clone()), record);
        let sandbox = match commands {
            Some((sandbox, policy)) => sandbox
                .for_record(&policy, record.guard(&records))
                .map_err(Error::environment("git's objects can't be kept"))?,
            None => Sandbox::unused().keeping_open((record.lock)()),
        };
        Ok(Confined { sandbox: Arc::new(sandbox), servers, narrowed, protected, records, confine_copy, confine_steps })
    }

    /// Sandboxes for the servers whose network access isn't that of the run.
    fn server_sandboxes<'a>(
        &self,
        servers: impl Iterator<Item = &'a ServerSpec>,
        record: &RecordAccess<'_>,
    ) -> Result<Vec<(NetworkAccess, Arc<Sandbox>)>, Error> {
        let mut sandboxes: Vec<(NetworkAccess, Arc<Sandbox>)> = Vec::new();
        for network in servers.filter(|server| server.is_program()).map(|server| NetworkAccess::from(&server.network)) {
            if network == NetworkAccess::from(&self.scope.network)
                || sandboxes.iter().any(|(other, _)| *other == network)
            {
                continue;
            }
            let sandbox = match &self.commands {
                Some((_, policy)) => Sandbox::detect(self.request.mode, SandboxPolicy { network, ..policy.clone() })
                    .map_err(Error::SandboxUnavailable)?
                    .keeping_open((record.lock)()),
                None => Sandbox::unused(),
            };
            sandboxes.push((network, Arc::new(sandbox)));
        }
        Ok(sandboxes)
    }

    /// Confines the commands of subagents that reach less than the open network of the run.
    fn narrowed(
        &self,
        policy: Option<&SandboxPolicy>,
        record: &RecordAccess<'_>,
    ) -> Result<Option<Arc<Sandbox>>, Error> {
        let Some(policy) = policy.filter(|_| self.scope.is_narrowed) else { return Ok(None) };
        let policy = SandboxPolicy { network: NetworkAccess::Hosts, ..policy.clone() };
        let sandbox = Sandbox::detect(self.request.mode, policy.clone()).map_err(Error::SandboxUnavailable)?;
        let sandbox = sandbox.for_record(&policy, record.guard(&self.records));
        Ok(Some(Arc::new(sandbox.map_err(Error::environment("git's objects can't be kept"))?)))
    }

    /// Confines the steps before the agent as commands are confined, with one more folder that they can change.
    fn for_steps(&self, policy: Option<SandboxPolicy>, record: &RecordAccess<'_>) -> Arc<ConfineSteps> {
        let (mode, records, folder) = (self.request.mode, self.records.clone(), record.folder.to_owned());
        let (lock, verifier) = ((record.lock)(), record.verifier.clone());
        Arc::new(move |writable| {
            let Some(mut policy) = policy.clone() else { return Ok(Arc::new(Sandbox::unused())) };
            policy.writable.push(writable.to_owned());
            let sandbox = Sandbox::detect(mode, policy.clone()).map_err(|error| error.to_string())?;
            let lock = lock.as_ref().map(OwnedFd::try_clone).transpose().map_err(|error| error.to_string())?;
            let record = RecordGuard { runs: &records, folder: &folder, lock, verifier: verifier.clone() };
            let sandbox = sandbox.for_record(&policy, record);
            sandbox.map(Arc::new).map_err(|error| format!("git's objects can't be kept: {error}"))
        })
    }

    /// Confines the tools of subagents that work in a copy of the workspace as the run's own are confined, with the copy as the
    /// only folder of the workspace's that they can change.
    fn for_copies(mut self, policy: Option<SandboxPolicy>, record: &RecordAccess<'_>) -> Arc<ConfineCopy> {
        let workspace = &self.scope.workspace;
        let job_files = self.places.job_files.iter();
        let job_files: Vec<PathBuf> =
            job_files.filter_map(|path| path.strip_prefix(workspace).ok().map(Path::to_owned)).collect();
        // The copies are in the folder of all runs, which can't be protected as a whole.
        self.records = self.places.runs_folder.join(&self.scope.job);
        let (folder, lock, verifier) = (record.folder.to_owned(), (record.lock)(), record.verifier.clone());
        Arc::new(move |copy, network| {
            let job_files: Vec<PathBuf> = job_files.iter().map(|path| copy.join(path)).collect();
            let protected = self.protected_in(copy, &job_files);
            if policy.is_none() {
                return Ok(ConfinedCopy { sandbox: Arc::new(Sandbox::unused()), protected });
            }
            if self.is_unsearched(&protected) {
                return Err(
                    "searching a subagent's copy of the workspace for git repositories took too long".to_owned()
                );
            }
            let policy = SandboxPolicy { network, ..self.policy(copy, &protected) };
            let sandbox = Sandbox::detect(self.request.mode, policy.clone()).map_err(|error| error.to_string())?;
            let lock = lock.as_ref().map(OwnedFd::try_clone).transpose();
            let lock = lock.map_err(|error| format!("a subagent can't be confined: {error}"))?;
            let record = RecordGuard { runs: &self.records, folder: &folder, lock, verifier: verifier.clone() };
            let sandbox = sandbox.for_record(&policy, record);
            let sandbox = sandbox.map_err(|error| format!("git's objects can't be kept: {error}"))?;
            Ok(ConfinedCopy { sandbox: Arc::new(sandbox), protected })
        })
    }

    /// What no tool may change in a workspace.
    fn protected_in(&self, workspace: &Path, job_files: &[PathBuf]) -> ProtectedPaths {
        let Self { scope, request, places, records, .. } = self;
        ProtectedPaths::find(&ProtectionConfig {
            workspace,
            job_files,
            out: records,
            home: places.home.as_deref(),
            git: scope.git,
            protect: &scope.protect,
            allow_changes: &scope.allow_changes,
            write: if scope.has_commands { &request.writable } else { &[] },
            has_commands: scope.has_commands,
            time: scope.time,
        })
    }

    /// Whether repositories may have been missed that commands could change.
    fn is_unsearched(&self, protected: &ProtectedPaths) -> bool {
        !protected.repositories.is_complete && self.request.mode != SandboxMode::Off
    }

    /// What commands may do in a workspace with these protected paths.
    fn policy(&self, workspace: &Path, protected: &ProtectedPaths) -> SandboxPolicy {
        let (mut readable, mut writable) = (self.request.readable.clone(), self.request.writable.clone());
        readable.extend(protected.git_reads.iter().chain(&self.scope.files).cloned());
        if self.scope.git == GitAccess::Commit {
            writable.extend(protected.git_writes.iter().cloned());
        }
        SandboxPolicy {
            workspace: workspace.to_owned(),
            protected: protected.paths.clone(),
            protected_links: protected.links.clone(),
            allowed_changes: protected.allowed_changes.clone(),
            network: (&self.scope.network).into(),
            readable,
            writable,
            hidden_files: self.places.hidden_key.iter().cloned().collect(),
            home: self.places.home.clone(),
            path_dirs: self.places.path_dirs.clone(),
            object_stages: ObjectStages::default(),
            guarded_files: GuardedFiles::default(),
        }
    }
}

/// The error of a run whose commands can't be kept to a list of hosts here.
fn hosts_unsupported(why: &str) -> Error {
    let reason = format!("`network: {{ allow: [...] }}` can't be kept to here: {why}");
    Error::SandboxUnavailable(SandboxUnavailable { reasons: vec![reason], remedy: None })
}

/// What it means to have no sandbox.
pub const UNCONFINED_RISK: &str = "they can do whatever you can do";

/// The record of the run that is confined.
pub struct RecordAccess<'a> {
    folder: &'a Path,
    lock: Box<dyn Fn() -> Option<OwnedFd> + 'a>,
    verifier: Option<RecordVerifier>,
}

impl<'a> RecordAccess<'a> {
    /// A record that is being written. The last process of the last command holds its lock.
    pub fn of(recorder: &'a Recorder) -> Self {
        let lock = Box::new(|| recorder.lock());
        Self { folder: &recorder.folder, lock, verifier: recorder.origin_check() }
    }

    /// A folder that is only read.
    pub fn read_only(folder: &'a Path) -> Self {
        Self { folder, lock: Box::new(|| None), verifier: None }
    }

    fn guard(&self, runs: &'a Path) -> RecordGuard<'a> {
        RecordGuard { runs, folder: self.folder, lock: (self.lock)(), verifier: self.verifier.clone() }
    }
}

/// The sandboxes of one run. Tool servers can be started in them.
pub struct Confined {
    sandbox: Arc<Sandbox>,
    servers: Vec<(NetworkAccess, Arc<Sandbox>)>,
    narrowed: Option<Arc<Sandbox>>,
    protected: ProtectedPaths,
    records: PathBuf,
    confine_copy: Arc<ConfineCopy>,
    confine_steps: Arc<ConfineSteps>,
}

impl Confined {
    /// The sandbox of a tool server, and the one that watches what it changes.
    pub fn for_server(&self, spec: &ServerSpec) -> (Arc<Sandbox>, Arc<Sandbox>) {
        let access = NetworkAccess::from(&spec.network);
        let sandbox = self.servers.iter().find(|(network, _)| spec.is_program() && *network == access);
        let sandbox = sandbox.map_or(&self.sandbox, |(_, sandbox)| sandbox);
        (Arc::clone(sandbox), Arc::clone(&self.sandbox))
    }

    /// What the tools of a run work with, after these files of its record were written, which tool servers may not change.
    ///
    /// # Errors
    /// Nothing could be restored if this program is killed.
    pub fn record_written(self, _files: &[WrittenFile; 2]) -> io::Result<ConfinedTools> {
        self.sandbox.record_written()?;
        Ok(self.without_record())
    }

    /// What the tools of a replay work with, which writes no record.
    pub fn without_record(self) -> ConfinedTools {
        let Self { sandbox, narrowed, protected, records, confine_copy, confine_steps, .. } = self;
        ConfinedTools { sandbox, narrowed, protected, records, confine_copy, confine_steps }
    }
}

/// What tools and commands are confined with.
pub struct ConfinedTools {
    /// For commands.
    pub sandbox: Arc<Sandbox>,
    /// For commands of subagents that reach less than the open network of the run.
    pub narrowed: Option<Arc<Sandbox>>,
    /// What no tool may change.
    pub protected: ProtectedPaths,
    /// The folder of records that tools can't find.
    pub records: PathBuf,
    /// For the tools of subagents that work in a copy of the workspace.
    pub confine_copy: Arc<ConfineCopy>,
    /// For the steps before the agent.
    pub confine_steps: Arc<ConfineSteps>,
}

impl ConfinedTools {
    /// Opens the workspace for the tools of a run. They can't change what is protected, and neither change nor find `kept`.
    ///
    /// # Errors
    /// The workspace can't be opened.
    pub fn open(
        &self,
        workspace: &Path,
        kept: Vec<PathBuf>,
        secrets: RunSecrets,
        servers: Option<Arc<dyn ToolServers>>,
    ) -> Result<ToolDeps, Error> {
        let paths = self.protected.paths.iter().chain(&kept).cloned().collect();
        let excluded = kept.into_iter().chain([self.records.clone()]).collect();
        let opened = Workspace::open(workspace, paths, excluded);
        let opened = opened.map_err(|source| Error::Workspace { path: workspace.to_owned(), source })?;
        Ok(ToolDeps {
            workspace: Arc::new(opened.with_unprotected(&self.protected.allowed_changes.unprotected)),
            redactor: Arc::new(secrets.redactor),
            environment: Arc::new(secrets.environment),
            sandbox: Arc::clone(&self.sandbox),
            egress: None,
            servers,
            files: None,
        })
    }
}
