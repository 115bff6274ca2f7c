//! `legwork mcp`: writes the lock file of a job's tool servers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use indexmap::IndexSet;

use super::arguments::{require_utf8, resolve_workspace};
use super::env::CliEnv;
use super::output::printable;
use super::output_target::OutputTarget;
use super::read_files::read_job;
use super::sandbox_options::SandboxOptions;
use crate::diagnostic::Severity;
use crate::egress::{Egress, EgressRules, UploadMeter};
use crate::error::Error;
use crate::job::DEFAULT_SERVER_SECONDS;
use crate::lints::{self, JobTrust, UserConfig, ValidJob, provider_keys};
use crate::mcp::{ScriptedServers, ServerSpec, ServerStart, StartError, ToolLock};
use crate::record::RUNS;
use crate::redaction::Redactor;
use crate::run::start_runtime;
use crate::run::tool_servers::{self, StartContext, WantedServer};
use crate::run::{RecordAccess, SandboxScope, Signals, server_secrets};
use crate::template::MAX_FILE_BYTES;
use crate::text::pluralize;

/// The commands for tool servers.
#[derive(Debug, clap::Subcommand)]
pub(super) enum McpCommand {
    /// Start a job's tool servers, and write what they say about the listed tools to a lock file
    ///
    /// The file is JOB.mcp.lock.json, next to the job. With it, `validate` knows the tools without starting a process, and a run
    /// refuses a server that has changed one of them since. No model is asked, and no tool is called.
    Lock(LockArgs),
}

/// Options of `legwork mcp lock`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0; 1 with --check, if the lock file is old; 2 for a usage error; 3 if the job is invalid; 5 if a server doesn't start \
or lacks a listed tool.")]
pub(super) struct LockArgs {
    /// The job file
    job: PathBuf,
    /// Write nothing, and say whether the lock file is up to date
    #[arg(long)]
    check: bool,
    /// The folder that the servers start in
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
    #[command(flatten)]
    sandbox_options: SandboxOptions,
}

pub(super) fn mcp(command: &McpCommand, env: &CliEnv) -> Result<u8, Error> {
    match command {
        McpCommand::Lock(options) => lock(options, env),
    }
}

fn lock(options: &LockArgs, env: &CliEnv) -> Result<u8, Error> {
    let job = read(&options.job, env)?;
    let wanted = wanted_servers(&job);
    if wanted.is_empty() {
        let message = format!("no agent of {} uses a tool server", options.job.display());
        return Err(Error::usage(message, "Declare servers under `mcp`, and list their tools in an agent's `tools`."));
    }
    let file_name = ToolLock::file_name(&options.job.to_string_lossy()).unwrap_or_default();
    let path = options.job.with_file_name(file_name);
    let lock = list_tools(options, &job, wanted, env)?;
    let text = lock.to_text();
    if text.len() as u64 > MAX_FILE_BYTES {
        let message = format!("the lock file would have {} bytes, and at most {MAX_FILE_BYTES} are read", text.len());
        return Err(Error::usage(message, "List fewer tools in `allow`, or divide the job."));
    }
    let (servers, tools) = lock.counts();
    let counts = format!("{} of {}", pluralize(tools as u64, "tool"), pluralize(servers as u64, "server"));
    let shown = printable(&path.to_string_lossy());
    let is_current = std::fs::read_to_string(&path).is_ok_and(|old| old == text);
    if options.check && !is_current {
        let what = if path.exists() { "is old" } else { "doesn't exist" };
        env.console.eprint_problem(&format!("{shown} {what}: run `legwork mcp lock {}`", options.job.display()));
        return Ok(1);
    }
    if is_current {
        env.console.eprint(&format!("{shown} is up to date: {counts}"));
        return Ok(0);
    }
    let target = OutputTarget::open(&path).map_err(Error::environment(format!("can't write {}", path.display())))?;
    target.write(&text)?;
    env.console.eprint(&format!("Wrote {shown}: {counts}"));
    Ok(0)
}

/// Reads the job, whatever its lock file says.
fn read(path: &Path, env: &CliEnv) -> Result<ValidJob, Error> {
    let (source, folder) = read_job(path, JobTrust::Trusted).map_err(|finding| Error::Invalid(vec![finding]))?;
    let user_config = UserConfig { skips_tool_lock: true, ..env.user_config()? };
    let mut checked = lints::check_with(&source, folder.as_ref(), JobTrust::Trusted, &user_config);
    // Warnings are left to `legwork validate`.
    checked.findings.retain(|finding| finding.severity == Severity::Error);
    checked.job.ok_or(Error::Invalid(checked.findings))
}

/// The servers that agents use, with the names of the tools that they list.
fn wanted_servers(valid: &ValidJob) -> Vec<WantedServer> {
    let job = valid.job();
    let wanted = job.mcp.iter().map(|(name, declared)| {
        let entries = job.server_entries().filter(|entry| entry.server.value == name.value);
        let allow: IndexSet<&String> = entries.flat_map(|entry| &entry.allow.value).map(|tool| &tool.value).collect();
        let allow = allow.into_iter().cloned().collect();
        // A lock has all servers, required or not.
        let spec = ServerSpec {
            required: true,
            ..ServerSpec::new(declared, valid.hosts().of_server(&name.value, declared.network.as_ref()))
        };
        WantedServer { name: name.value.clone(), spec, allow }
    });
    wanted.filter(|server| !server.allow.is_empty()).collect()
}

/// Starts the servers as a run would.
fn list_tools(options: &LockArgs, job: &ValidJob, wanted: Vec<WantedServer>, env: &CliEnv) -> Result<ToolLock, Error> {
    let declared = job.job();
    let workspace = resolve_workspace(&options.workspace)?;
    let job_file = std::path::absolute(&options.job)
        .map_err(Error::environment(format!("can't find {}", options.job.display())))?;
    require_utf8(&job_file)?;
    let texts = |paths: &[crate::yaml::Spanned<String>]| paths.iter().map(|path| path.value.clone()).collect();
    let scope = SandboxScope {
        job: job.name().to_owned(),
        workspace: workspace.clone(),
        has_commands: wanted.iter().any(|server| server.spec.is_program()),
        changes_files: false,
        network: job.hosts().network(declared),
        has_hosts: false,
        is_narrowed: false,
        git: declared.git,
        protect: texts(&declared.protect),
        allow_changes: texts(&declared.allow_changes),
        time: Some(Duration::from_secs(DEFAULT_SERVER_SECONDS)),
        files: None,
    };
    let host = env.host()?;
    let value_of = |name: &str| Some((name.to_owned(), env.variable(name)?.to_owned()));
    let mut secrets = server_secrets(&env.variables, wanted.iter().map(|server| &server.spec));
    secrets.extend(provider_keys().filter_map(value_of));
    secrets.extend(host.servers.key_envs().filter_map(value_of));
    let (redactor, _) = Redactor::new(&secrets);
    let runs_folder = env.current_folder.join(RUNS);
    let confinement = options.sandbox_options.confine(env, scope, vec![job_file], &runs_folder)?;
    // There is no record; what protects one needs a folder.
    let folder = tempfile::tempdir().map_err(Error::environment("a temporary folder can't be created"))?;
    let specs = wanted.iter().map(|server| &server.spec);
    let confined = confinement.for_record(&RecordAccess::read_only(folder.path()), specs)?;
    let signals = Signals::catch()?;
    // As in a run, each server has its own list.
    let egress = Some(Egress::new(EgressRules::default(), UploadMeter::default()));
    let context = StartContext {
        confined: &confined,
        workspace: &workspace.to_string_lossy(),
        redactor: &redactor,
        stop: &signals.stop,
        deadline: None,
        is_offline: false,
        egress: egress.as_ref(),
    };
    let stopped = |error| signals.first().map_or(error, |signal| Error::StoppedAtStart { signal });
    start_runtime()?.block_on(async {
        let started = tool_servers::start(wanted, ScriptedServers::default(), context, &host).await.map_err(stopped)?;
        let ServerStart { servers, tools, .. } = started;
        if let Err(error) = servers.stop(signals.stop.is_cancelled()).await {
            let server = tools.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join("`, `");
            return Err(Error::ToolServer(StartError {
                server,
                why: format!("changed a protected file: {error}"),
                is_time_up: false,
            }));
        }
        Ok(ToolLock::new(tools))
    })
}
