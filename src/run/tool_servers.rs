//! Starts the tool servers of a run, before anything is spent.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use reqwest::Url;
use tokio_util::sync::CancellationToken;

use super::confinement::Confined;
use super::host::Host;
use crate::egress::Egress;
use crate::error::Error;
use crate::job::{allows_model_name, allows_tool};
use crate::lints::provider_keys;
use crate::mcp::{
    PlannedHeader, ScriptedServers, ServerConfig, ServerSpec, ServerStart, Servers, StartError, StartLimits,
    ToolDefinitions,
};
use crate::plan::Plan;
use crate::process::{Environment, WITHHELD};
use crate::providers::replay::Script;
use crate::providers::{bypasses_proxy, read_identity};
use crate::redaction::Redactor;
use crate::running_clock::RunningInstant;
use crate::tools::ToolDefinition;

/// A server that is wanted, and the names of its tools in allowlists.
#[derive(Debug, Clone)]
pub struct WantedServer {
    /// Its name in the job.
    pub name: String,
    /// What is declared.
    pub spec: ServerSpec,
    /// Its tools that agents may use.
    pub allow: Vec<String>,
}

/// What servers are started with.
pub struct StartContext<'a> {
    /// The sandboxes of the run.
    pub confined: &'a Confined,
    /// The folder that programs start in.
    pub workspace: &'a str,
    /// Masks what they print.
    pub redactor: &'a Redactor,
    /// Cancelled by a signal.
    pub stop: &'a CancellationToken,
    /// When the run's time is up.
    pub deadline: Option<RunningInstant>,
    /// Whether they get no network.
    pub is_offline: bool,
    /// The way out that all lists of hosts share; `None` if there is no list.
    pub egress: Option<&'a Egress>,
}

/// Starts servers.
///
/// # Errors
/// A required one doesn't start, or its tools aren't as expected.
pub async fn start(
    wanted: Vec<WantedServer>,
    scripted: ScriptedServers,
    context: StartContext<'_>,
    host: &Host<'_>,
) -> Result<ServerStart, Error> {
    let (mut configs, mut failed, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for server in wanted {
        let (name, is_required) = (server.name.clone(), server.spec.required);
        match config(server, &context, host) {
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

/// Starts the tool servers of a plan, and adds their tools to it. `None` if it has none. `scripts` are those of its models, by
/// name.
pub(super) async fn start_planned(
    plan: &mut Plan,
    scripts: BTreeMap<String, Script>,
    context: StartContext<'_>,
    is_resumed: bool,
    host: &Host<'_>,
) -> Result<Option<Arc<Servers>>, Error> {
    if plan.mcp.is_empty() {
        return Ok(None);
    }
    let scripted = scripted_servers(plan, scripts);
    let wanted = |(name, spec): (&String, &ServerSpec)| WantedServer {
        name: name.clone(),
        spec: spec.clone(),
        allow: plan.allowed_server_tools(name),
    };
    let wanted = plan.mcp.iter().filter(|(name, _)| !scripted.names.contains(*name)).map(wanted);
    let wanted: Vec<WantedServer> = wanted.collect();
    let ServerStart { servers, tools, missing } = start(wanted, scripted, context, host).await?;
    for (name, tools) in tools {
        // Those of the lock file or the record were compared with these.
        if plan.mcp.get(&name).is_some_and(|server| server.tools.is_none()) {
            plan.set_server_tools(&name, tools);
        }
    }
    for error in missing {
        (host.warn)(&format!("{error}; the run continues without it"));
        // A resumed agent has seen the tools: its calls fail.
        if !is_resumed {
            plan.set_server_tools(&error.server, ToolDefinitions::new());
            if let Some(server) = plan.mcp.get_mut(&error.server) {
                server.missing = Some(error.why);
            }
        }
    }
    if let Some(why) = plan.too_many_tools() {
        let _ = servers.stop(false).await;
        return Err(Error::ToolServer(why));
    }
    Ok(Some(servers))
}

/// The servers whose answers are in the scripts of a plan's models. Adds their tools to the plan, unless a lock file has them.
fn scripted_servers(plan: &mut Plan, scripts: BTreeMap<String, Script>) -> ScriptedServers {
    let mut scripted = ScriptedServers::default();
    for (model, script) in scripts {
        for (name, tools) in script.servers {
            let Some(server) = plan.mcp.get(&name) else { continue };
            if server.tools.is_none() {
                let allowed = plan.allowed_server_tools(&name);
                let renamed =
                    |(tool, definition): (String, ToolDefinition)| (own_tool_name(&tool, &allowed), definition);
                let mut tools: ToolDefinitions = tools.into_iter().map(renamed).collect();
                for tool in allowed.into_iter().filter(|tool| !tool.ends_with('*')) {
                    tools.entry(tool).or_insert_with(ToolDefinition::unknown);
                }
                plan.set_server_tools(&name, tools);
            }
            scripted.names.insert(name);
        }
        let is_of_model =
            |agent: &str| plan.agent(agent).is_some_and(|agent| agent.model.is_scripted() && agent.model.name == model);
        scripted.answers.extend(script.answers.into_iter().filter(|((agent, _), _)| is_of_model(agent)));
    }
    scripted
}

/// The name on its server of a tool that a script names as the model knows it, if the allowlists tell it.
fn own_tool_name(tool: &str, allowed: &[String]) -> String {
    if allowed.iter().any(|pattern| allows_tool(pattern, tool)) {
        return tool.to_owned();
    }
    let start = allowed.iter().filter(|pattern| allows_model_name(pattern, tool)).find_map(|it| it.strip_suffix('*'));
    match start {
        Some(start) => start.chars().chain(tool.chars().skip(start.chars().count())).collect(),
        None => tool.to_owned(),
    }
}

/// What a server is started with. The error says why it can't be started.
fn config(server: WantedServer, context: &StartContext<'_>, host: &Host<'_>) -> Result<ServerConfig, String> {
    let WantedServer { name, spec, allow } = server;
    if context.is_offline && (!spec.is_program() || !spec.network.is_none()) {
        return Err("needs the network, which --offline doesn't allow".to_owned());
    }
    // A record could name any variable.
    let is_key = |name: &str| provider_keys().any(|key| key == name) || host.servers.key_envs().any(|key| key == name);
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
                match host.variable(variable).filter(|_| !is_key(variable)) {
                    Some(value) => format!("{prefix}{value}"),
                    None => return Err(format!("needs the variable {variable}, which isn't set")),
                }
            }
        };
        headers.push((header.clone(), value));
    }
    let identity = match &spec.client_cert {
        None => None,
        Some(variable) => {
            let Some(path) = host.variable(variable) else {
                return Err(format!("needs the variable {variable}, which isn't set"));
            };
            let changeable = (host.changeable)(Path::new(context.workspace));
            let identity = read_identity(path, host.variable("HOME"), &changeable, variable, context.redactor);
            Some(identity.map_err(|why| format!("can't be used: the file in {variable} {why}"))?)
        }
    };
    let (sandbox, watching) = context.confined.for_server(&spec);
    let hosts = spec.network.hosts().filter(|_| spec.is_program());
    if hosts.is_some() {
        sandbox.tier().supports_hosts().map_err(|why| format!("can't be kept to its list of hosts here: {why}"))?;
    }
    let egress = hosts.zip(context.egress).map(|(hosts, egress)| egress.scope(hosts).call());
    let url = spec.url.as_deref().and_then(|url| Url::parse(url).ok());
    let variable = |name: &str| host.variable(name).map(str::to_owned);
    Ok(ServerConfig {
        allow,
        environment: Environment::new(host.variables, &granted, &[]).with_variables(values),
        headers,
        identity,
        sandbox,
        watching,
        workspace: context.workspace.into(),
        egress,
        bypasses_proxy: url.is_none_or(|url| bypasses_proxy(&variable, &url)),
        name,
        spec,
    })
}
