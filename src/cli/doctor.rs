//! `legwork doctor`: checks whether this machine is ready for runs, without spending anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;

use super::env::CliEnv;
use super::execute::key_program_variables;
use super::output::printable;
use super::record_key::check_key_file;
use super::sandbox_options::detect_sandbox;
use super::version::{VERSION, commit};
use crate::error::Error;
use crate::event::FORMAT;
use crate::exit_code::EXIT_ENVIRONMENT;
use crate::git::Repository;
use crate::lints::RECORD_KEY;
use crate::outputs::TriggerQuery;
use crate::process::program::{ProgramCall, ProgramOutcome};
use crate::providers::user_servers::{ServerSettings, UserServer, UserServers};
use crate::providers::{
    ConnectContext, PROVIDERS, Provider, ProviderError, ProviderSpec, ServerCheck, SettingsContext, find,
};
use crate::publish::connect;
use crate::redaction::Redactor;
use crate::run::Signals;
use crate::run::start_runtime;
use crate::sandbox::Tier;
use crate::sandbox::programs::Folders;

/// How long a server may take to answer.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long git may take to print its version.
const GIT_TIMEOUT: Duration = Duration::from_secs(3);
/// Less free space than this is a problem, in bytes.
const MIN_FREE_BYTES: u64 = 100 << 20;
/// Less free space than this is worth a warning, in bytes.
const LOW_FREE_BYTES: u64 = 1 << 30;

/// Options of `legwork doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Checks the sandbox, git, the keys, whether the servers answer and accept them, the disk and the key of records. Asks servers \
only for the list of their models, which costs nothing. Keys are never shown.

Exit codes: 0 if runs are possible, 5 if there is a problem.")]
pub(super) struct DoctorArgs {
    /// Ask no server, and run no key_command
    #[arg(long)]
    offline: bool,
    /// The folder in which the records of runs will be
    #[arg(long, value_name = "DIR", default_value = "runs")]
    out: PathBuf,
    /// The output format
    #[arg(long, default_value = "text", value_parser = ["text", "json"])]
    format: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    /// Runs are possible, but not everything.
    Warning,
    /// Runs aren't possible.
    Problem,
    /// It wasn't checked, or isn't used.
    Skipped,
}

/// What one check found.
#[derive(Debug, Serialize)]
struct Finding {
    name: String,
    status: Status,
    /// What was found.
    found: String,
    /// What to do about it.
    help: Option<String>,
}

impl Finding {
    fn new(name: &str, status: Status, found: impl Into<String>) -> Self {
        Self { name: name.to_owned(), status, found: found.into(), help: None }
    }

    fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }
}

pub(super) fn doctor(options: &DoctorArgs, env: &CliEnv) -> Result<u8, Error> {
    let mut findings = vec![check_version(), check_sandbox(env), check_git(env)?];
    findings.extend(check_servers(env, options.offline)?);
    findings.push(check_disk(&env.current_folder.join(&options.out)));
    findings.push(check_record_key(env));
    findings.extend(check_forge_token(env));
    if options.format == "json" {
        let all = serde_json::json!({ "format": 1, "version": VERSION, "commit": commit(), "checks": findings });
        env.console.print(&crate::text::sanitize::escape_json(&format!("{all:#}")));
    } else {
        env.console.print_sanitized(&text(&findings));
    }
    let has_problem = findings.iter().any(|finding| finding.status == Status::Problem);
    Ok(if has_problem { EXIT_ENVIRONMENT } else { 0 })
}

fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.name.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for Finding { name, status, found, help } in findings {
        let status = match status {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Problem => "problem",
            Status::Skipped => "-",
        };
        text += &format!("{status:<9}{name:<width$}  {}\n", printable(found));
        if let Some(help) = help {
            text += &format!("{:9}{:width$}  {}\n", "", "", printable(help));
        }
    }
    text
}

fn check_version() -> Finding {
    let commit = commit().map(|commit| format!(", commit {}", commit.get(..12).unwrap_or(commit))).unwrap_or_default();
    Finding::new("legwork", Status::Ok, format!("{VERSION}{commit}; writes and reads records of format {FORMAT}"))
}

fn check_sandbox(env: &CliEnv) -> Finding {
    let finding = |status, found: String| Finding::new("sandbox", status, found);
    match detect_sandbox(env) {
        Ok((tier, None)) => finding(Status::Ok, format!("{tier}; {}", network_support(tier))),
        Ok((tier, Some(reason))) => finding(Status::Warning, format!("{tier}: {reason}; {}", network_support(tier)))
            .help(match tier {
                Tier::Landlock => "see \"Sandbox and threat model\" in the book; --sandbox required refuses this tier",
                _ => "see \"Sandbox and threat model\" in the book",
            }),
        Err(reason) => finding(Status::Problem, reason).help(match cfg!(target_os = "linux") {
            true => "install bubblewrap; jobs whose agents and checks run no commands need no sandbox",
            false => "jobs whose agents and checks run no commands need no sandbox",
        }),
    }
}

/// Whether commands can be kept to a list of hosts in a tier.
fn network_support(tier: Tier) -> String {
    match tier.supports_hosts() {
        Ok(()) if tier == Tier::Landlock => {
            "lists of hosts (`network: { allow: [...] }`) are kept to by a proxy; programs that ignore `https_proxy` reach \
             nothing, such as ssh, fetch of Node.js before version 24 and aiohttp"
                .to_owned()
        }
        Ok(()) => "lists of hosts (`network: { allow: [...] }`) are kept to".to_owned(),
        Err(why) => {
            format!("lists of hosts (`network: {{ allow: [...] }}`) aren't kept to, so their jobs don't start: {why}")
        }
    }
}

fn check_git(env: &CliEnv) -> Result<Finding, Error> {
    let finding = |status, found: String| Finding::new("git", status, found);
    let changeable = env.changeable_folders(&env.current_folder, &[]);
    let Some(git) = env.program("git", &changeable) else {
        return Ok(finding(Status::Warning, "there is no git on the PATH outside of the current folder".to_owned())
            .help("it is needed for rows in worktrees, `apply`, and context files of a commit"));
    };
    // It doesn't run in the current folder, whose configuration could name programs.
    let call = ProgramCall {
        program: &git,
        arguments: &["--version".to_owned()],
        folder: Path::new("/"),
        input: &[],
        environment: &BTreeMap::new(),
        timeout: GIT_TIMEOUT,
        max_bytes: 1_000,
    };
    let version = match start_runtime()?.block_on(Signals::exit_unless_done(call.run()))? {
        Ok(ProgramOutcome::Exited(status, output)) if status.success() => {
            String::from_utf8_lossy(&output).trim().to_owned()
        }
        _ => {
            let shown = git.to_string_lossy();
            return Ok(finding(Status::Warning, format!("{shown} doesn't run")).help("reinstall it"));
        }
    };
    let first = env.program("git", &Folders::default()).filter(|first| *first != git);
    if let Some(first) = first {
        let (first, git) = (first.to_string_lossy(), git.to_string_lossy());
        return Ok(finding(
            Status::Warning,
            format!("{git} is used, and not {first}, which jobs or a checkout can change"),
        )
        .help("remove its folder from PATH"));
    }
    let place = if Repository::discover(&env.current_folder).is_some() { "in" } else { "not in" };
    Ok(finding(Status::Ok, format!("{version}; the current folder is {place} a repository")))
}

/// A provider or server, and whether it is ready to be asked.
struct Server<'a> {
    name: &'a str,
    provider: Result<std::sync::Arc<dyn Provider>, ProviderError>,
}

/// Checks each provider that has a key or an address, and each server in `providers.toml`.
fn check_servers(env: &CliEnv, offline: bool) -> Result<Vec<Finding>, Error> {
    let (user_config, mistakes) = env.user_config_with_findings();
    let mut findings = Vec::new();
    for mistake in mistakes {
        let place = &mistake.span.source.name;
        findings.push(
            Finding::new("configuration", Status::Problem, format!("{place}: {}", mistake.message))
                .help("`legwork providers` and `legwork prices` show where"),
        );
    }
    let servers = &user_config.servers;
    let changeable = env.changeable_folders(&env.current_folder, &[]);
    if let Err(error) = env.check_user_config(&changeable) {
        let finding = Finding::new("configuration", Status::Problem, error.to_string());
        findings.push(finding.help(error.hint().unwrap_or_default()));
        return Ok(findings);
    }
    let variables = key_program_variables(env, servers, &changeable);
    let redactor = Redactor::default();
    let variable = |name: &str| env.variables.get(name).cloned();
    let connect = |spec: &'static ProviderSpec, name: &str, server: Option<&UserServer>| {
        (spec.connect)(&ConnectContext {
            env: &variable,
            server,
            settings: servers.settings(name).map(|settings| SettingsContext {
                settings,
                variables: &variables,
                changeable: &changeable,
            }),
            script: None,
            user_agent: concat!("legwork/", env!("CARGO_PKG_VERSION")),
            redactor: &redactor,
            providers: PROVIDERS,
        })
    };
    let mut ready = Vec::new();
    for spec in PROVIDERS {
        let Some(home) = spec.default_endpoint else { continue };
        let is_set = |name: &&str| env.variables.contains_key(*name);
        let is_used =
            spec.key_envs.iter().chain([&home.base_url_env]).any(is_set) || servers.settings(spec.name).is_some();
        if is_used {
            ready.push(Server { name: spec.name, provider: connect(spec, spec.name, None) });
        } else {
            let keys = spec.key_envs.join(" or ");
            findings.push(Finding::new(spec.name, Status::Skipped, format!("{keys} isn't set")));
        }
    }
    for server in servers.iter() {
        if let Some(spec) = find(server.api) {
            ready.push(Server { name: &server.name, provider: connect(spec, &server.name, Some(server)) });
        }
    }
    if ready.is_empty() {
        let none =
            Finding::new("keys", Status::Warning, "no key of a provider is set, and providers.toml has no servers");
        findings.push(
            none.help("set a key such as ANTHROPIC_API_KEY, or add a server: only scripts and records can reply"),
        );
    }
    let checks = join_all(ready.iter().map(|server| check_server(server, servers, offline)));
    findings.extend(start_runtime()?.block_on(Signals::exit_unless_done(checks))?);
    Ok(findings)
}

async fn check_server(server: &Server<'_>, servers: &UserServers, offline: bool) -> Finding {
    let finding = |status, found: String| Finding::new(server.name, status, found);
    let failed = |error: &ProviderError| {
        let finding = finding(Status::Problem, error.message.clone());
        match &error.hint {
            Some(hint) => finding.help(hint.clone()),
            None => finding,
        }
    };
    let provider = match &server.provider {
        Ok(provider) => provider,
        Err(error) => return failed(error),
    };
    if offline {
        return finding(Status::Skipped, "configured; not asked, because of --offline".to_owned());
    }
    let warning = provider.warning();
    let Some(check) = provider.check_server() else {
        return finding(Status::Skipped, "it has no server".to_owned());
    };
    let has_command = servers.settings(server.name).is_some_and(ServerSettings::has_key_command);
    let key = if has_command { "the key of key_command" } else { "the key" };
    match tokio::time::timeout(SERVER_TIMEOUT, check).await {
        Ok(Ok(ServerCheck::Accepted)) => match warning {
            Some(warning) => finding(Status::Warning, format!("answers and accepts {key}; {warning}")),
            None => finding(Status::Ok, format!("answers and accepts {key}")),
        },
        Ok(Ok(ServerCheck::NoModelList)) => {
            finding(Status::Ok, format!("answers, but has no list of models, so {key} wasn't checked"))
        }
        Ok(Err(error)) => failed(&error),
        Err(_) => finding(Status::Problem, format!("no answer within {} seconds", SERVER_TIMEOUT.as_secs()))
            .help("check the network, the proxy variables and the address"),
    }
}

/// Checks the disk of the folder of runs, or of its nearest folder that exists.
fn check_disk(out: &Path) -> Finding {
    // A link that leads nowhere exists, too.
    let existing = out.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(out);
    let finding = |status, found: String| Finding::new("disk", status, found);
    let shown = existing.to_string_lossy();
    if !existing.is_dir() {
        return finding(Status::Problem, format!("{shown} isn't a folder"))
            .help("name another folder for records with --out");
    }
    if let Err(error) = tempfile::tempfile_in(existing) {
        return finding(Status::Problem, format!("{shown} isn't writable: {error}"))
            .help("name another folder for records with --out");
    }
    let Ok(disk) = rustix::fs::statvfs(existing) else {
        return finding(Status::Ok, format!("{shown} is writable"));
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let found = format!("{shown} is writable, {:.1} GB are free", free as f64 / 1e9);
    match free {
        ..MIN_FREE_BYTES => {
            finding(Status::Problem, found).help("free some space; `legwork runs prune` removes old records")
        }
        MIN_FREE_BYTES..LOW_FREE_BYTES => {
            finding(Status::Warning, found).help("`legwork runs prune` removes old records")
        }
        _ => finding(Status::Ok, found),
    }
}

/// Checks whether `publish` has a token, in a workflow or a pipeline. Jobs without outputs need none.
fn check_forge_token(env: &CliEnv) -> Option<Finding> {
    let finding = |status, found: String| Some(Finding::new("publish", status, found));
    let query = TriggerQuery { event: None, forge: None, number: None, variables: &env.variables };
    let trigger = match query.trigger() {
        Ok(trigger) => trigger?,
        Err(error) => return Some(finding(Status::Warning, error.to_string())?.help(error.hint())),
    };
    match connect(&trigger, &env.variables, Box::new(|_| ()), true) {
        Ok(_) => finding(Status::Ok, format!("there is a token for {}", trigger.repository)),
        Err(error) => {
            let found = finding(Status::Skipped, error.to_string())?;
            let hint = error.hint().unwrap_or_default();
            Some(found.help(format!(
                "{hint} The book's chapter \"Acting outside\" has workflows in which a second job publishes."
            )))
        }
    }
}

/// Checks whether records can be signed.
fn check_record_key(env: &CliEnv) -> Finding {
    let finding = |status, found: String| Finding::new("record key", status, found);
    if env.variable(RECORD_KEY).is_some() {
        return match env.record_key(&[]) {
            Ok(_) => finding(Status::Ok, format!("in {RECORD_KEY}")),
            Err(_) => finding(Status::Problem, format!("the one in {RECORD_KEY} is too short"))
                .help("use at least 16 random characters, for example from `openssl rand -hex 32`"),
        };
    }
    let unsigned = |why: &str| {
        finding(Status::Warning, format!("records aren't signed: {why}"))
            .help(format!("resuming them needs --trust-record; correct it, or set {RECORD_KEY}"))
    };
    let path = match env.record_key_file(&[&env.current_folder]) {
        Ok(path) => path,
        Err(why) => return unsigned(&why),
    };
    let shown = path.to_string_lossy();
    match check_key_file(&path) {
        Ok(true) => finding(Status::Ok, shown.into_owned()),
        Ok(false) => finding(Status::Ok, format!("the first run makes {shown}")),
        Err(error) => unsigned(&format!("{shown}: {error}")),
    }
}
