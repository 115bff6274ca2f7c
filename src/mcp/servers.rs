//! The tool servers of a run: started before it, asked during it, and ended with it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use indexmap::IndexSet;
use reqwest::Identity;
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest, ErrorCode,
    PaginatedRequestParams, ProtocolVersion, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, PeerRequestOptions, RunningService,
    ServiceError,
};
use serde_json::{Map, Value};
use tokio::process::{ChildStdin, ChildStdout};
use tokio_util::sync::CancellationToken;

use super::call_result;
use super::client_handler::RefusingHandler;
use super::containers::{CONTAINER_HINT, container_program};
use super::http::{self, HttpSettings, LastFailure};
use super::listed_tools::{ListedTool, MAX_LISTED, OriginalNames, changes, original_names, restore_names, select};
use super::server_spec::ServerSpec;
use super::stdio::{BoundedReader, ProgramConfig, ServerProgram};
use super::stdio_transport::{StdioTransport, StrayOutput};
use super::stream_bounds::{MAX_UNANSWERED_BYTES, StreamBounds};
use super::tool_lock::ToolDefinitions;
use crate::egress::{CallEgress, CallTraffic};
use crate::message::ToolError;
use crate::process::Environment;
use crate::process::bounded_output::as_shown;
use crate::process::spawn::EnvironmentError;
use crate::providers::replay::ScriptedAnswers;
use crate::redaction::Redactor;
use crate::running_clock::{RunningInstant, sleep, timeout};
use crate::sandbox::{MAX_RESTARTS, Sandbox, TamperError, Tier};
use crate::sync::IgnorePoison;
use crate::text::sanitize;
use crate::text::truncate::ellipsize;
use crate::tools::{CallFuture, ServerCall, ToolContext, ToolOutput, ToolServers};

/// How long a server may take to start and to list its tools.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a server with an address has to answer in the newest protocol before it is asked in an older one, too.
const DISCOVER_TIMEOUT: Duration = Duration::from_secs(10);
/// The most pages of tools.
const MAX_PAGES: usize = 1_000;
/// How much longer than its timeout a call may take if the server reports progress.
const PROGRESS_FACTOR: u32 = 10;
/// How long a transport may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the server may take to read that a call is cancelled.
const CANCEL_TIMEOUT: Duration = Duration::from_millis(200);
/// The longest reason why a server can't be used, in characters.
const MAX_WHY_CHARS: usize = 3_000;
/// How many hosts that a server wasn't allowed to reach are named.
const MAX_NAMED_HOSTS: usize = 5;
/// The longest text of a server in a message, in characters.
const MAX_QUOTE_CHARS: usize = 600;

/// A server and what it is started with.
pub struct ServerConfig {
    /// Its name.
    pub name: String,
    /// Its declaration.
    pub spec: ServerSpec,
    /// The names of the tools that agents list.
    pub allow: Vec<String>,
    /// The variables of its program.
    pub environment: Environment,
    /// The headers of its requests.
    pub headers: Vec<(String, String)>,
    /// The client certificate for its address.
    pub identity: Option<Identity>,
    /// Confines its program.
    pub sandbox: Arc<Sandbox>,
    /// Watches what is protected while its program runs.
    pub watching: Arc<Sandbox>,
    /// The folder that its program starts in.
    pub workspace: PathBuf,
    /// Whether requests to its address bypass the proxy.
    pub bypasses_proxy: bool,
    /// The hosts that its program may reach; `None` if that is nothing or everything.
    pub egress: Option<CallEgress>,
}

/// Why a run can't start: a required server doesn't start, or its tools aren't as expected.
#[derive(Debug, thiserror::Error)]
#[error("the tool server `{server}` {why}")]
pub struct StartError {
    /// The server's name.
    pub server: String,
    /// Why, as words that follow the name.
    pub why: String,
    /// Whether it only had no more time.
    pub is_time_up: bool,
}

impl StartError {
    /// One error for all servers that can't be used.
    pub fn of_all(errors: Vec<Self>) -> Option<Self> {
        let most = MAX_WHY_CHARS / errors.len().max(1);
        let mut errors = errors.into_iter().map(|error| Self { why: ellipsize(&error.why, most), ..error });
        let first = errors.next()?;
        Some(errors.fold(first, |all, error| Self {
            why: format!("{}; {error}", all.why),
            is_time_up: all.is_time_up && error.is_time_up,
            ..all
        }))
    }
}

/// What ends the start of servers before they are ready.
#[derive(Debug, Clone, Copy)]
pub struct StartLimits<'a> {
    /// A signal.
    pub stop: &'a CancellationToken,
    /// When the run's time is up.
    pub deadline: Option<RunningInstant>,
}

/// The servers that have started.
#[derive(Debug)]
pub struct ServerStart {
    /// The servers.
    pub servers: Arc<Servers>,
    /// Those of their tools that agents list.
    pub tools: Vec<(String, ToolDefinitions)>,
    /// The servers that aren't required and did not start.
    pub missing: Vec<StartError>,
}

/// The answers that a script or a record has for the calls of servers' tools. These servers aren't started.
#[derive(Debug, Default)]
pub struct ScriptedServers {
    /// The servers' names.
    pub names: BTreeSet<String>,
    /// The answers, by the ids of agents and calls.
    pub answers: ScriptedAnswers,
}

impl ScriptedServers {
    fn answer(&self, call: &ServerCall<'_>, call_id: &str) -> Result<String, ToolError> {
        match self.answers.get(&(call.agent.to_owned(), call_id.to_owned())) {
            Some(Ok(text)) => Ok(text.clone()),
            Some(Err(text)) => Err(ToolError(text.clone())),
            None => Err(ToolError("the script has no answer for this call".to_owned())),
        }
    }
}

/// The running servers of a run.
pub struct Servers {
    scripted: ScriptedServers,
    /// Empty after the end.
    connections: Mutex<BTreeMap<String, Arc<Connection>>>,
    redactor: Arc<Redactor>,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

struct Connection {
    service: Service,
    egress: Option<CallEgress>,
    link: Link,
    timeout: Duration,
}

/// The transport of a connection, and what is known about its end.
struct Link {
    handler: RefusingHandler,
    /// `None` for a server with an address.
    program: Option<ServerProgram>,
    bounds: Arc<StreamBounds>,
    failure: LastFailure,
    stray: StrayOutput,
    /// By tool, the names in its schema that models read in a cleaned form.
    names: OnceLock<BTreeMap<String, OriginalNames>>,
}

impl Servers {
    /// Starts servers, all at once, and lists their tools.
    ///
    /// `failed` are required servers that can't be started at all.
    ///
    /// # Errors
    /// A required server doesn't start, lacks a listed tool, or has changed a tool. All of them are named.
    pub async fn start(
        configs: Vec<ServerConfig>,
        mut failed: Vec<StartError>,
        scripted: ScriptedServers,
        redactor: Arc<Redactor>,
        until: StartLimits<'_>,
    ) -> Result<ServerStart, StartError> {
        let starts = configs.iter().map(|config| start_server(config, &redactor, &until));
        let started = join_all(starts).await;
        let (mut connections, mut tools, mut missing) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (config, started) in configs.iter().zip(started) {
            match started {
                Ok((connection, definitions)) => {
                    connections.insert(config.name.clone(), Arc::new(connection));
                    tools.push((config.name.clone(), definitions));
                }
                Err(StartFailure { why, is_time_up, .. }) => {
                    let causes = [container_cause(config), refused_cause(config)].into_iter().flatten();
                    let why = causes.fold(why, |why, cause| format!("{why}; {cause}"));
                    let why = ellipsize(&redactor.redact(&why), MAX_WHY_CHARS);
                    let error = StartError { server: config.name.clone(), why, is_time_up };
                    if config.spec.required { failed.push(error) } else { missing.push(error) }
                }
            }
        }
        let servers = Arc::new(Self { scripted, connections: Mutex::new(connections), redactor });
        if let Some(error) = StartError::of_all(failed) {
            let _ = servers.stop(until.stop.is_cancelled()).await;
            return Err(error);
        }
        Ok(ServerStart { servers, tools, missing })
    }

    /// Ends all servers, faster after a signal.
    ///
    /// # Errors
    /// One of them has changed something that is protected.
    pub async fn stop(&self, is_hurried: bool) -> Result<(), TamperError> {
        let connections = std::mem::take(&mut *self.lock());
        // No call is under way any more.
        let ended = connections.into_values().filter_map(Arc::into_inner);
        join_all(ended.map(|connection| connection.stop(is_hurried))).await.into_iter().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Connection>>> {
        self.connections.lock().ignore_poison()
    }
}

impl Connection {
    async fn stop(self, is_hurried: bool) -> Result<(), TamperError> {
        // Closes the program's stdin.
        let most = if is_hurried { CANCEL_TIMEOUT } else { CLOSE_TIMEOUT };
        let _ = timeout(most, self.service.cancel()).await;
        self.link.stop(is_hurried).await
    }
}

impl Link {
    async fn stop(self, is_hurried: bool) -> Result<(), TamperError> {
        match self.program {
            Some(program) => program.stop(is_hurried).await,
            None => Ok(()),
        }
    }

    /// What a server that didn't start in time has done, in words that follow its name.
    fn describe_silence(&self, most: Duration, redactor: &Redactor) -> String {
        let time = match most.as_secs() {
            0 => format!("{} ms", most.as_millis()),
            seconds => format!("{seconds} s"),
        };
        match self.stray.first_line() {
            None => format!("didn't start within {time}"),
            Some(line) => format!(
                "didn't start within {time}: it wrote lines to stdout that are no messages (JSON-RPC, one a line), the first of \
                 them: {}",
                quote(&line, redactor)
            ),
        }
    }

    /// Why a request got no answer.
    async fn describe_end(&self, error: &ServiceError, is_closed: bool) -> String {
        if let ServiceError::McpError(error) = error {
            return error.message.clone().into_owned();
        }
        let is_lost = is_closed || matches!(error, ServiceError::TransportSend(_));
        match &self.program {
            Some(program) if is_lost || self.bounds.violation().is_some() => program.describe_end().await,
            _ => match (self.bounds.violation(), self.failure.take()) {
                (Some(why), _) => format!("legwork stopped it: {why}"),
                (None, Some(why)) => why,
                (None, None) if matches!(error, ServiceError::TransportClosed) => {
                    "the connection was closed".to_owned()
                }
                (None, None) => match error {
                    ServiceError::TransportSend(lost) => lost.error.to_string(),
                    error => error.to_string(),
                },
            },
        }
    }
}

/// The hosts that a server which doesn't start wasn't allowed to reach.
fn refused_cause(config: &ServerConfig) -> Option<String> {
    let traffic = config.egress.as_ref()?.take_traffic();
    let refused = traffic.refused.iter().take(MAX_NAMED_HOSTS);
    let refused: Vec<String> = refused.map(|host| format!("{} ({})", host.target(), host.reason)).collect();
    (!refused.is_empty()).then(|| format!("it has no access to {}", sanitize::line(&refused.join(", "))))
}

/// Why a server in a container doesn't start.
fn container_cause(config: &ServerConfig) -> Option<String> {
    let words: Vec<&str> = config.spec.command.iter().map(String::as_str).collect();
    let (program, _) = container_program(&words).filter(|_| config.sandbox.tier() != Tier::Off)?;
    Some(format!(
        "`{program}` can't start a container from the sandbox, where it has neither the socket of Docker nor the rights to make one: \
         {CONTAINER_HINT}"
    ))
}

fn quote(text: &str, redactor: &Redactor) -> String {
    ellipsize(&sanitize::line(&redactor.redact(text)), MAX_QUOTE_CHARS)
}

async fn start_server(
    config: &ServerConfig,
    redactor: &Redactor,
    until: &StartLimits<'_>,
) -> Result<(Connection, ToolDefinitions), StartFailure> {
    for _ in 0..MAX_RESTARTS {
        match try_to_start(config, redactor, until).await {
            Err(failure) if failure.has_outdated_sandbox => {}
            started => return started,
        }
    }
    try_to_start(config, redactor, until).await
}

struct StartFailure {
    why: String,
    /// Whether the sandbox couldn't be set up, and the next try may succeed.
    has_outdated_sandbox: bool,
    /// Whether the run's time was up.
    is_time_up: bool,
}

impl From<String> for StartFailure {
    fn from(why: String) -> Self {
        Self { why, has_outdated_sandbox: false, is_time_up: false }
    }
}

async fn try_to_start(
    config: &ServerConfig,
    redactor: &Redactor,
    until: &StartLimits<'_>,
) -> Result<(Connection, ToolDefinitions), StartFailure> {
    let bounds = Arc::new(StreamBounds::default());
    let (program, streams) = match &config.spec.url {
        Some(_) => (None, None),
        None => {
            let (program, reader, writer) = ServerProgram::start(&ProgramConfig {
                command: &config.spec.command,
                environment: &config.environment,
                workspace: &config.workspace,
                sandbox: &config.sandbox,
                watching: &config.watching,
                egress: config.egress.as_ref(),
                redactor,
                bounds: &bounds,
            })
            .map_err(|why| format!("can't be started: {}", quote(&why, redactor)))?;
            (Some(program), Some((reader, writer)))
        }
    };
    let (handler, failure, stray) = (RefusingHandler::new(&bounds), LastFailure::default(), StrayOutput::default());
    let link = Link { handler, program, bounds, failure, stray, names: OnceLock::new() };
    let left = until.deadline.map(RunningInstant::left);
    let (most, why) = match left.filter(|left| *left < START_TIMEOUT) {
        Some(left) => (left, ", and the run's time is up (`wall_clock`)"),
        None => (START_TIMEOUT, ""),
    };
    let mut is_time_up = false;
    let connected = tokio::select! {
        biased;
        () = until.stop.cancelled() => Err("was stopped while it started".to_owned()),
        connected = timeout(most, connect(config, streams, &link, redactor)) => {
            connected.unwrap_or_else(|_| {
                is_time_up = !why.is_empty();
                Err(link.describe_silence(most, redactor) + why)
            })
        }
    };
    match connected {
        Ok((service, tools)) => {
            let timeout = Duration::from_millis(config.spec.timeout_ms);
            Ok((Connection { service, egress: config.egress.clone(), link, timeout }, tools))
        }
        Err(why) => {
            let has_outdated_sandbox = match &link.program {
                Some(program) => program.has_outdated_sandbox().await,
                None => false,
            };
            // The run doesn't start, so it doesn't matter what the server has changed: that is restored.
            let _ = link.stop(until.stop.is_cancelled()).await;
            Err(StartFailure { why, has_outdated_sandbox, is_time_up })
        }
    }
}

type Service = RunningService<RoleClient, RefusingHandler>;

async fn connect(
    config: &ServerConfig,
    streams: Option<(BoundedReader<ChildStdout>, ChildStdin)>,
    link: &Link,
    redactor: &Redactor,
) -> Result<(Service, ToolDefinitions), String> {
    let service = match streams {
        None => {
            let url = config.spec.url.as_deref().unwrap_or_default();
            let settings = HttpSettings {
                url,
                headers: &config.headers,
                identity: config.identity.clone(),
                bypasses_proxy: config.bypasses_proxy,
            };
            connect_address(&settings, link).await?
        }
        Some((stdout, stdin)) => {
            let lifecycle = ClientLifecycleMode::Auto { preferred_versions: modern(), legacy_version: Some(LEGACY) };
            let transport = StdioTransport::new(stdout, stdin, link.stray.clone());
            link.handler.clone().serve_with_lifecycle(transport, lifecycle).await
        }
    };
    let service = match (service, &link.program) {
        (Ok(service), _) => service,
        (Err(error), Some(program)) if is_connection_lost(&error) => {
            return Err(format!("didn't start: {}", quote(&program.describe_end().await, redactor)));
        }
        (Err(error), _) => {
            let why = link.failure.take().unwrap_or_else(|| describe_start_error(&error));
            return Err(format!("can't be used: {}", quote(&why, redactor)));
        }
    };
    let listed = match list_tools(&service).await {
        Ok(listed) => listed,
        Err(ListError::Failed(error)) => {
            let why = link.describe_end(&error, service.is_transport_closed()).await;
            return Err(format!("doesn't list its tools: {}", quote(&why, redactor)));
        }
        Err(ListError::TooLong(why)) => return Err(why),
    };
    let names = listed.iter().map(|tool| (tool.name.clone(), original_names(tool, redactor)));
    let _ = link.names.set(names.filter(|(_, names)| !names.is_empty()).collect());
    let tools = select(&config.name, &config.allow, listed, redactor)?;
    if let Some(changed) = config.spec.tools.as_ref().and_then(|expected| changes(expected, &tools)) {
        return Err(format!("has changed since its tools were recorded: {changed}"));
    }
    link.bounds.reset();
    Ok((service, tools))
}

/// The newest version that starts with `initialize`.
const LEGACY: ProtocolVersion = ProtocolVersion::LATEST_WITH_INITIALIZE;

fn modern() -> Vec<ProtocolVersion> {
    vec![ProtocolVersion::LATEST]
}

/// Connects to an address. The SDK would wait only 10 s for an answer in the newest protocol, and then refuse it.
///
/// # Errors
/// The transport can't be made. The inner error is that of the start.
async fn connect_address(
    settings: &HttpSettings<'_>,
    link: &Link,
) -> Result<Result<Service, ClientInitializeError>, String> {
    let connect = |transport, lifecycle| link.handler.clone().serve_with_lifecycle(transport, lifecycle);
    let transport = || http::transport(settings, &link.bounds, &link.failure);
    let lifecycle = ClientLifecycleMode::Discover { preferred_versions: modern() };
    let mut newest = pin!(connect(transport()?, lifecycle));
    let refused = match timeout(DISCOVER_TIMEOUT, &mut newest).await {
        Ok(Err(error)) if is_legacy(&error) => Some(error),
        Ok(result) => return Ok(result),
        Err(_) => None,
    };
    // Connections over HTTP don't depend on each other, so a server that doesn't answer is asked in both.
    let mut older = pin!(connect(transport()?, ClientLifecycleMode::Initialize));
    let discover = match refused {
        Some(error) => error,
        None => tokio::select! {
            result = &mut newest => match result {
                Err(error) if is_legacy(&error) => error,
                result => return Ok(result),
            },
            result = &mut older => return Ok(match result {
                Ok(service) => Ok(service),
                Err(_) => newest.await,
            }),
        },
    };
    Ok(older.await.map_err(|fallback| ClientInitializeError::LegacyFallbackFailed {
        discover: Box::new(discover),
        fallback: Box::new(fallback),
    }))
}

/// Whether an error says that the server doesn't know the newest protocol.
fn is_legacy(error: &ClientInitializeError) -> bool {
    let codes = [ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY, ErrorCode::HEADER_MISMATCH];
    matches!(error, ClientInitializeError::JsonRpcError(error) if !codes.contains(&error.code))
}

/// Whether a server ended, or stopped reading or writing, before it had started.
fn is_connection_lost(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => is_connection_lost(fallback),
        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. } => true,
        _ => false,
    }
}

/// Why a server of whatever transport didn't start.
fn describe_start_error(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => describe_start_error(fallback),
        ClientInitializeError::JsonRpcError(error) => format!("it refuses to start: {}", error.message),
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            let versions: Vec<&str> = server_supported.iter().map(ProtocolVersion::as_str).collect();
            format!("it speaks only other versions of the protocol: {}", versions.join(", "))
        }
        ClientInitializeError::TransportError { error, .. } => error.error.to_string(),
        ClientInitializeError::ExpectedInitResponse(_) | ClientInitializeError::ExpectedInitResult(_) => {
            "its first response is not that of a tool server".to_owned()
        }
        ClientInitializeError::ConflictInitResponseId(expected, sent) => {
            format!("its first response has the id {sent}, not that of the request, {expected}")
        }
        other => other.to_string(),
    }
}

/// Why the tools of a server aren't known.
enum ListError {
    Failed(ServiceError),
    /// In words that follow the server's name.
    TooLong(String),
}

fn timed_out(server: &str, after: Duration) -> String {
    format!("timed out: the server `{server}` didn't answer within {after:?}")
}

async fn list_tools(peer: &Peer<RoleClient>) -> Result<Vec<ListedTool>, ListError> {
    let (mut listed, mut bytes) = (Vec::new(), 0);
    let mut cursors: IndexSet<String> = IndexSet::new();
    for number in 0..MAX_PAGES {
        let params = cursors.last().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor.clone())));
        let page = peer.list_tools(params).await.map_err(ListError::Failed)?;
        let next = page.next_cursor.filter(|next| !next.is_empty());
        // Some servers ignore the cursor and send the same page for ever.
        let is_last = next.is_none_or(|next| !cursors.insert(next));
        let is_repeated = is_last && number > 0;
        for tool in page.tools {
            let tool = ListedTool {
                name: tool.name.into_owned(),
                description: tool.description.map(Cow::into_owned).unwrap_or_default(),
                input_schema: Value::Object((*tool.input_schema).clone()),
            };
            bytes += tool.name.len() + tool.description.len() + tool.input_schema.to_string().len();
            if !(is_repeated && listed.contains(&tool)) {
                listed.push(tool);
            }
        }
        if bytes > MAX_UNANSWERED_BYTES {
            return Err(ListError::TooLong("describes its tools with more than 64 MiB".to_owned()));
        }
        if listed.len() > MAX_LISTED {
            return Err(ListError::TooLong(format!("lists more than {MAX_LISTED} tools")));
        }
        if is_last {
            return Ok(listed);
        }
    }
    Err(ListError::TooLong(format!("lists its tools on more than {MAX_PAGES} pages")))
}

impl ToolServers for Servers {
    fn take_traffic(&self, server: &str) -> CallTraffic {
        let connection = self.lock().get(server).cloned();
        connection.and_then(|connection| Some(connection.egress.as_ref()?.take_traffic())).unwrap_or_default()
    }

    fn call<'a>(&'a self, call: ServerCall<'a>, context: &'a ToolContext<'a>) -> CallFuture<'a> {
        Box::pin(async move {
            let server = call.server;
            if self.scripted.names.contains(server) {
                return self.scripted.answer(&call, context.call_id).map(ToolOutput::from);
            }
            let connection = self.lock().get(server).cloned();
            let Some(connection) = connection else {
                return Err(ToolError(format!("the server `{server}` isn't running")));
            };
            let result = connection.call(&call, context, &self.redactor).await;
            // Servers pass on the output of programs.
            let result = match result {
                Ok(output) => Ok(ToolOutput { text: as_shown(output.text), ..output }),
                Err(ToolError(text)) => Err(ToolError(as_shown(text))),
            };
            connection.link.bounds.reset();
            match connection.link.program.as_ref().map(ServerProgram::check_protected) {
                Some(Err(error)) => {
                    let _ = context.failure.set(EnvironmentError::Tampered(error));
                    result
                }
                Some(Ok(Some(undone))) => Err(ToolError(undone.to_string())),
                _ => result,
            }
        })
    }
}

impl Servers {
    /// What the programs of all servers have reached and were refused since the last time, by their names.
    pub fn take_all_traffic(&self) -> Vec<(String, CallTraffic)> {
        let connections = self.lock();
        let ways = connections.iter().filter_map(|(name, connection)| Some((name, connection.egress.as_ref()?)));
        let taken = ways.map(|(name, egress)| (name.clone(), egress.take_traffic()));
        taken.filter(|(_, traffic)| !traffic.is_empty()).collect()
    }
}

impl Connection {
    async fn call(
        &self,
        call: &ServerCall<'_>,
        context: &ToolContext<'_>,
        redactor: &Redactor,
    ) -> Result<ToolOutput, ToolError> {
        let server = call.server;
        if self.is_over() {
            let end = quote(&self.link.describe_end(&ServiceError::TransportClosed, true).await, redactor);
            return Err(ToolError(format!("not called: the server `{server}` has ended before ({end})")));
        }
        let mut arguments: Map<String, Value> = serde_json::from_str(call.input.get())
            .map_err(|error| ToolError(format!("invalid input: {error}; expected an object")))?;
        if let Some(names) = self.link.names.get().and_then(|names| names.get(call.tool)) {
            restore_names(&mut arguments, names);
        }
        let refused_before = self.link.handler.refused_count();
        let request = CallToolRequest::new(CallToolRequestParams::new(call.tool.to_owned()).with_arguments(arguments));
        let mut reports = self.link.handler.progress();
        // The SDK's own timeouts wait until the server has read the cancellation, which it may never do.
        let options = PeerRequestOptions::no_options();
        let sent = self.service.send_cancellable_request(ClientRequest::CallToolRequest(request), options).await;
        let answer = match sent {
            Err(error) => Err(error),
            Ok(handle) => {
                let (peer, id, token) = (handle.peer.clone(), handle.id.clone(), handle.progress_token.clone());
                let (limits, total) = (context.limits, self.timeout * PROGRESS_FACTOR);
                let mut idle = pin!(sleep(self.timeout));
                let (mut total_timeout, mut deadline) = (pin!(sleep(total)), pin!(limits.deadline.expired()));
                let mut answer = pin!(handle.await_response());
                let stopped = loop {
                    tokio::select! {
                        answer = &mut answer => break Ok(answer),
                        () = limits.cancel.cancelled() => break Err("cancelled: the run was cancelled".to_owned()),
                        () = &mut deadline => break Err("cancelled: the run's time is up".to_owned()),
                        () = self.link.bounds.violated() => break Ok(Err(ServiceError::TransportClosed)),
                        () = &mut idle => break Err(timed_out(server, self.timeout)),
                        () = &mut total_timeout => break Err(timed_out(server, total)),
                        report = reports.recv() => if report.is_ok_and(|reported| reported == token) {
                            idle.set(sleep(self.timeout));
                        },
                    }
                };
                match stopped {
                    Ok(answer) => answer,
                    Err(why) => {
                        let cancelled = CancelledNotificationParam::new(Some(id), Some(why.clone()));
                        let _ = timeout(CANCEL_TIMEOUT, peer.notify_cancelled(cancelled)).await;
                        return Err(ToolError(format!("{why}; the effect of the call is unknown")));
                    }
                }
            }
        };
        let result = match answer {
            Ok(ServerResult::CallToolResult(result)) => call_result::to_output(result, context.media),
            Ok(ServerResult::InputRequiredResult(_)) => {
                Err(ToolError(format!("the server `{server}` asks for input during the call, which legwork refuses")))
            }
            Ok(_) => Err(ToolError(format!("the server `{server}` answered with something else than a result"))),
            Err(error) => Err(ToolError(self.describe(server, &error, redactor).await)),
        };
        match self.link.handler.refused_since(refused_before) {
            None => result,
            Some(what) => {
                let text = result.map_or_else(|ToolError(text)| text, |output| output.text);
                Err(ToolError(format!("[the server `{server}` asked for {what}, which legwork refuses]\n\n{text}")))
            }
        }
    }

    /// Whether the server can't answer any more.
    fn is_over(&self) -> bool {
        self.service.is_transport_closed() || self.link.bounds.violation().is_some()
    }

    /// What an error means, for the model.
    async fn describe(&self, server: &str, error: &ServiceError, redactor: &Redactor) -> String {
        match error {
            ServiceError::McpError(error) => error.message.clone().into_owned(),
            error => {
                let is_lost = matches!(error, ServiceError::TransportClosed | ServiceError::TransportSend(_));
                let is_over = self.is_over() || (self.link.program.is_some() && is_lost);
                let end = quote(&self.link.describe_end(error, is_over).await, redactor);
                let tools = if is_over { ", and its tools don't work any more" } else { "" };
                format!("the server `{server}` gave no answer, so the effect of the call is unknown{tools}: {end}")
            }
        }
    }
}
