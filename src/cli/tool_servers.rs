//! Starts the tool servers of a run, before anything is spent.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use reqwest::Url;
use tokio_util::sync::CancellationToken;

use super::env::CliEnv;
use super::sandbox_options::PreparedSandbox;
use crate::error::Error;
use crate::job::Network;
use crate::lints::provider_keys;
use crate::mcp::{
    PlannedHeader, ScriptedServers, ServerConfig, ServerSpec, ServerStart, Servers, StartError, StartLimits,
};
use crate::process::{Environment, WITHHELD};
use crate::providers::{bypasses_proxy, read_identity};
use crate::redaction::Redactor;
use crate::sandbox::Sandbox;

/// The sandboxes of servers, by network access, where it differs from that of the run.
pub(super) type ServerSandboxes = Vec<(Network, Arc<Sandbox>)>;

/// A server that is wanted, and the names of its tools in allowlists.
#[derive(Debug, Clone)]
pub(super) struct WantedServer {
    pub(super) name: String,
    pub(super) spec: ServerSpec,
    pub(super) allow: Vec<String>,
}

/// What servers are started with.
pub(super) struct StartContext<'a> {
    /// The run's own sandbox.
    pub(super) sandbox: &'a Arc<Sandbox>,
    pub(super) sandboxes: ServerSandboxes,
    /// The folder that programs start in.
    pub(super) workspace: &'a str,
    pub(super) redactor: &'a Redactor,
    pub(super) stop: &'a CancellationToken,
    /// When the run's time is up.
    pub(super) deadline: Option<Instant>,
    pub(super) is_offline: bool,
}

/// The sandboxes that servers need in addition to that of the run, whose network access is `network`. The last process in one of
/// them holds `lock` until it ends.
pub(super) fn sandboxes<'a>(
    servers: impl Iterator<Item = &'a ServerSpec>,
    network: Network,
    prepared: &PreparedSandbox,
    lock: impl Fn() -> Option<OwnedFd>,
) -> Result<ServerSandboxes, Error> {
    let mut sandboxes = ServerSandboxes::new();
    for server in servers.filter(|server| server.is_program() && server.network != network) {
        if !sandboxes.iter().any(|(network, _)| *network == server.network) {
            sandboxes.push((server.network, Arc::new(prepared.with_network(server.network, lock())?)));
        }
    }
    Ok(sandboxes)
}

/// Starts servers.
///
/// # Errors
/// A required one doesn't start, or its tools aren't as expected.
pub(super) async fn start(
    wanted: Vec<WantedServer>,
    scripted: ScriptedServers,
    context: StartContext<'_>,
    env: &CliEnv,
) -> Result<ServerStart, Error> {
    let (mut configs, mut failed, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for server in wanted {
        let (name, is_required) = (server.name.clone(), server.spec.required);
        match config(server, &context, env)? {
            Ok(config) => configs.push(config),
            Err(why) if is_required => failed.push(StartError { server: name, why, is_time_up: false }),
            Err(why) => missing.push(StartError { server: name, why, is_time_up: false }),
        }
    }
    let limits = StartLimits { stop: context.stop, deadline: context.deadline };
    let started = Servers::start(configs, failed, scripted, Arc::new(context.redactor.clone()), limits).await;
    let mut started = started.map_err(Error::ToolServer)?;
    started.missing.extend(missing);
    Ok(started)
}

/// What a server is started with. The inner error says why it can't be started.
fn config(
    server: WantedServer,
    context: &StartContext<'_>,
    env: &CliEnv,
) -> Result<Result<ServerConfig, String>, Error> {
    let WantedServer { name, spec, allow } = server;
    if context.is_offline && (!spec.is_program() || spec.network == Network::Open) {
        return Ok(Err("needs the network, which --offline doesn't allow".to_owned()));
    }
    let servers = env.user_servers()?;
    // A record could name any variable.
    let is_key = |name: &str| provider_keys().any(|key| key == name) || servers.key_envs().any(|key| key == name);
    let granted: Vec<String> = spec.env.iter().filter(|name| !is_key(name)).cloned().collect();
    let values: Vec<(String, String)> = spec
        .env_values
        .iter()
        .filter(|(name, _)| !is_key(name) && !WITHHELD.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let mut headers = Vec::new();
    for (header, value) in &spec.headers {
        let value = match value {
            PlannedHeader::Text(text) => text.clone(),
            PlannedHeader::Variable { env: variable, prefix } => {
                match env.variable(variable).filter(|_| !is_key(variable)) {
                    Some(value) => format!("{prefix}{value}"),
                    None => return Ok(Err(format!("needs the variable {variable}, which isn't set"))),
                }
            }
        };
        headers.push((header.clone(), value));
    }
    let identity = match &spec.client_cert {
        None => None,
        Some(variable) => {
            let Some(path) = env.variable(variable) else {
                return Ok(Err(format!("needs the variable {variable}, which isn't set")));
            };
            let changeable = env.changeable_folders(Path::new(context.workspace), &[]);
            match read_identity(path, env.variable("HOME"), &changeable, variable, context.redactor) {
                Ok(identity) => Some(identity),
                Err(why) => return Ok(Err(format!("can't be used: the file in {variable} {why}"))),
            }
        }
    };
    let own = context.sandboxes.iter().find(|(network, _)| spec.is_program() && *network == spec.network);
    let url = spec.url.as_deref().and_then(|url| Url::parse(url).ok());
    let variable = |name: &str| env.variable(name).map(str::to_owned);
    Ok(Ok(ServerConfig {
        allow,
        environment: Environment::new(&env.variables, &granted, &[]).with_variables(values),
        headers,
        identity,
        sandbox: own.map_or_else(|| Arc::clone(context.sandbox), |(_, sandbox)| Arc::clone(sandbox)),
        watching: Arc::clone(context.sandbox),
        workspace: context.workspace.into(),
        bypasses_proxy: url.is_none_or(|url| bypasses_proxy(&variable, &url)),
        name,
        spec,
    }))
}
