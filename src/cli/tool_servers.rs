//! Starts the tool servers of a run, before anything is spent.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::env::CliEnv;
use super::output::printable;
use super::sandbox_options::PreparedSandbox;
use crate::error::Error;
use crate::job::Network;
use crate::lints::provider_keys;
use crate::mcp::{PlannedHeader, ServerConfig, ServerSpec, ServerStart, Servers, StartError, ToolDefinitions};
use crate::plan::Plan;
use crate::process::Environment;
use crate::record::Recorder;
use crate::redaction::Redactor;
use crate::sandbox::Sandbox;

/// The sandboxes of servers, by network access, where it differs from that of the run.
pub(super) type ServerSandboxes = Vec<(Network, Arc<Sandbox>)>;

/// What servers are started with.
pub(super) struct StartContext<'a> {
    /// The run's own sandbox.
    pub(super) sandbox: &'a Arc<Sandbox>,
    pub(super) sandboxes: ServerSandboxes,
    pub(super) redactor: &'a Redactor,
    pub(super) stop: &'a CancellationToken,
    pub(super) is_resumed: bool,
}

/// The sandboxes that servers need in addition to that of the run.
pub(super) fn sandboxes(
    plan: &Plan,
    prepared: &PreparedSandbox,
    recorder: &Recorder,
) -> Result<ServerSandboxes, Error> {
    let mut sandboxes = ServerSandboxes::new();
    for server in plan.mcp.values().filter(|server| server.is_program() && server.network != plan.network) {
        if !sandboxes.iter().any(|(network, _)| *network == server.network) {
            sandboxes.push((server.network, Arc::new(prepared.with_network(server.network, recorder.lock())?)));
        }
    }
    Ok(sandboxes)
}

/// Starts the servers of a plan, and adds their tools to the plan.
pub(super) async fn start(
    plan: &mut Plan,
    is_offline: bool,
    context: StartContext<'_>,
    env: &CliEnv,
) -> Result<Option<Arc<Servers>>, Error> {
    if plan.mcp.is_empty() {
        return Ok(None);
    }
    let configs = plan.mcp.iter().map(|(name, spec)| config(plan, name, spec, is_offline, &context, env));
    let configs = configs.collect::<Result<Vec<_>, Error>>()?;
    let started = Servers::start(configs, Arc::new(context.redactor.clone()), context.stop).await;
    let ServerStart { servers, tools, missing } = started.map_err(Error::ToolServer)?;
    for (name, tools) in tools {
        // Those of the lock file or the record were compared with these.
        if plan.mcp.get(&name).is_some_and(|server| server.tools.is_none()) {
            plan.set_server_tools(&name, tools);
        }
    }
    for error in missing {
        env.console.warning(&printable(&format!("{error}; the run goes on without it")));
        // A resumed agent has seen the tools: its calls fail.
        if !context.is_resumed {
            plan.set_server_tools(&error.server, ToolDefinitions::new());
        }
    }
    Ok(Some(servers))
}

fn config(
    plan: &Plan,
    name: &str,
    spec: &ServerSpec,
    is_offline: bool,
    context: &StartContext<'_>,
    env: &CliEnv,
) -> Result<ServerConfig, Error> {
    let fail = |why: String| Error::ToolServer(StartError { server: name.to_owned(), why });
    let needs_network = !spec.is_program() || spec.network == Network::Open;
    if is_offline && needs_network {
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
    let mut allow: Vec<String> = Vec::new();
    for pattern in
        plan.agents().flat_map(|agent| &agent.mcp).filter(|grant| grant.server == name).flat_map(|grant| &grant.allow)
    {
        if !allow.contains(pattern) {
            allow.push(pattern.clone());
        }
    }
    let own = context.sandboxes.iter().find(|(network, _)| spec.is_program() && *network == spec.network);
    Ok(ServerConfig {
        name: name.to_owned(),
        spec: spec.clone(),
        allow,
        environment: Environment::new(&env.variables, &granted, &[]),
        headers,
        sandbox: own.map_or_else(|| Arc::clone(context.sandbox), |(_, sandbox)| Arc::clone(sandbox)),
        watching: Arc::clone(context.sandbox),
        workspace: plan.workspace.clone().into(),
    })
}
