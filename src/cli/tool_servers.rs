//! Starts the tool servers of a run, before anything is spent.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use reqwest::Url;
use tokio_util::sync::CancellationToken;

use super::env::CliEnv;
use super::sandbox_options::PreparedSandbox;
use crate::error::Error;
use crate::job::Network;
use crate::lints::provider_keys;
use crate::mcp::{PlannedHeader, ScriptedServers, ServerConfig, ServerSpec, ServerStart, Servers, StartError};
use crate::process::Environment;
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
    let configs = wanted.into_iter().map(|server| config(server, &context, env));
    let configs = configs.collect::<Result<Vec<_>, Error>>()?;
    Servers::start(configs, scripted, Arc::new(context.redactor.clone()), context.stop).await.map_err(Error::ToolServer)
}

fn config(server: WantedServer, context: &StartContext<'_>, env: &CliEnv) -> Result<ServerConfig, Error> {
    let WantedServer { name, spec, allow } = server;
    let fail = |why: String| Error::ToolServer(StartError { server: name.clone(), why });
    if context.is_offline && (!spec.is_program() || spec.network == Network::Open) {
        return Err(fail("needs the network, which --offline doesn't allow".to_owned()));
    }
    let servers = env.user_servers()?;
    // A record could name any variable.
    let is_key = |name: &str| provider_keys().any(|key| key == name) || servers.key_envs().any(|key| key == name);
    let granted: Vec<String> = spec.env.iter().filter(|name| !is_key(name)).cloned().collect();
    let mut headers = Vec::new();
    for (header, value) in &spec.headers {
        let value = match value {
            PlannedHeader::Text(text) => text.clone(),
            PlannedHeader::Variable { env: variable, prefix } => {
                match env.variable(variable).filter(|_| !is_key(variable)) {
                    Some(value) => format!("{prefix}{value}"),
                    None => return Err(fail(format!("needs the variable {variable}, which isn't set"))),
                }
            }
        };
        headers.push((header.clone(), value));
    }
    let identity = match &spec.client_cert {
        None => None,
        Some(variable) => {
            let Some(path) = env.variable(variable) else {
                return Err(fail(format!("needs the variable {variable}, which isn't set")));
            };
            let workspace = Path::new(context.workspace);
            let read = read_identity(path, env.variable("HOME"), workspace, variable, context.redactor);
            Some(read.map_err(|why| fail(format!("can't be used: the file in {variable} {why}")))?)
        }
    };
    let own = context.sandboxes.iter().find(|(network, _)| spec.is_program() && *network == spec.network);
    let url = spec.url.as_deref().and_then(|url| Url::parse(url).ok());
    let variable = |name: &str| env.variable(name).map(str::to_owned);
    Ok(ServerConfig {
        allow,
        environment: Environment::new(&env.variables, &granted, &[]),
        headers,
        identity,
        sandbox: own.map_or_else(|| Arc::clone(context.sandbox), |(_, sandbox)| Arc::clone(sandbox)),
        watching: Arc::clone(context.sandbox),
        workspace: context.workspace.into(),
        bypasses_proxy: url.is_none_or(|url| bypasses_proxy(&variable, &url)),
        name,
        spec,
    })
}
