//! The tool servers of a run: started before it, asked during it, and ended with it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest, PaginatedRequestParams,
    ProtocolVersion, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, PeerRequestOptions, RunningService,
    ServiceError,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::client_handler::RefusingHandler;
use super::listed_tools::{ListedTool, MAX_LISTED, changes, select};
use super::server_spec::ServerSpec;
use super::stdio::{MAX_MESSAGE_BYTES, ProgramConfig, ServerProgram};
use super::tool_lock::ToolDefinitions;
use super::{call_result, http};
use crate::message::ToolError;
use crate::process::Environment;
use crate::process::spawn::EnvironmentError;
use crate::redaction::Redactor;
use crate::sandbox::{Sandbox, TamperError};
use crate::text::sanitize;
use crate::text::truncate::ellipsize;
use crate::tools::{CallFuture, ToolContext, ToolServers};

/// How long a server may take to start and to list its tools.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The most pages of tools.
const MAX_PAGES: usize = 1_000;
/// How much longer than its timeout a call may take if the server reports progress.
const PROGRESS_FACTOR: u32 = 10;
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
    /// Confines its program.
    pub sandbox: Arc<Sandbox>,
    /// Watches what is protected while its program runs.
    pub watching: Arc<Sandbox>,
    /// The folder that its program starts in.
    pub workspace: PathBuf,
}

/// Why a run can't start: a required server doesn't start, or its tools aren't as expected.
#[derive(Debug, thiserror::Error)]
#[error("the tool server `{server}` {why}")]
pub struct StartError {
    /// The server's name.
    pub server: String,
    /// Why, as words that follow the name.
    pub why: String,
}

/// The servers that have started.
#[derive(Debug)]
pub struct ServerStart {
    /// The servers.
    pub servers: Arc<Servers>,
    /// Their tools, as far as agents list them.
    pub tools: Vec<(String, ToolDefinitions)>,
    /// The servers that aren't required and did not start.
    pub missing: Vec<StartError>,
}

/// The running servers of a run.
pub struct Servers {
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
    service: RunningService<RoleClient, RefusingHandler>,
    handler: RefusingHandler,
    program: Option<ServerProgram>,
    timeout: Duration,
}

impl Servers {
    /// Starts servers, all at once, and lists their tools.
    ///
    /// # Errors
    /// A required server doesn't start, lacks a listed tool, or has changed a tool.
    pub async fn start(
        configs: Vec<ServerConfig>,
        redactor: Arc<Redactor>,
        stop: &CancellationToken,
    ) -> Result<ServerStart, StartError> {
        let starts = configs.iter().map(|config| start_server(config, &redactor, stop));
        let started = join_all(starts).await;
        let (mut connections, mut tools, mut missing) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut failure = None;
        for (config, started) in configs.iter().zip(started) {
            match started {
                Ok((connection, definitions)) => {
                    connections.insert(config.name.clone(), Arc::new(connection));
                    tools.push((config.name.clone(), definitions));
                }
                Err(why) => {
                    let error = StartError { server: config.name.clone(), why };
                    if config.spec.required { failure = failure.or(Some(error)) } else { missing.push(error) }
                }
            }
        }
        let servers = Arc::new(Self { connections: Mutex::new(connections), redactor });
        match failure {
            Some(error) => Err(error),
            None => Ok(ServerStart { servers, tools, missing }),
        }
    }

    /// Ends all servers.
    ///
    /// # Errors
    /// One of them has changed something that is protected.
    pub async fn stop(&self) -> Result<(), TamperError> {
        let connections = std::mem::take(&mut *self.lock());
        // No call is under way any more.
        let ended = connections.into_values().filter_map(Arc::into_inner);
        join_all(ended.map(Connection::stop)).await.into_iter().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    async fn stop(self) -> Result<(), TamperError> {
        // Closes the program's stdin.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.service.cancel()).await;
        match self.program {
            Some(program) => program.stop().await,
            None => Ok(()),
        }
    }
}

fn quote(text: &str, redactor: &Redactor) -> String {
    ellipsize(&sanitize::line(&redactor.redact(text)), MAX_QUOTE_CHARS)
}

async fn start_server(
    config: &ServerConfig,
    redactor: &Redactor,
    stop: &CancellationToken,
) -> Result<(Connection, ToolDefinitions), String> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Err("was stopped while it started".to_owned()),
        started = tokio::time::timeout(START_TIMEOUT, connect(config, redactor)) => {
            started.unwrap_or_else(|_| Err(format!("didn't start within {} s", START_TIMEOUT.as_secs())))
        }
    }
}

async fn connect(config: &ServerConfig, redactor: &Redactor) -> Result<(Connection, ToolDefinitions), String> {
    let handler = RefusingHandler::default();
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::LATEST],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    };
    let (service, program) = match &config.spec.url {
        Some(url) => {
            let transport = http::transport(url, &config.headers)?;
            (handler.clone().serve_with_lifecycle(transport, lifecycle).await, None)
        }
        None => {
            let (program, reader, writer) = ServerProgram::start(&ProgramConfig {
                command: &config.spec.command,
                environment: &config.environment,
                workspace: &config.workspace,
                sandbox: &config.sandbox,
                watching: &config.watching,
                redactor,
            })
            .map_err(|why| format!("can't be started: {}", quote(&why, redactor)))?;
            let transport = AsyncRwTransport::new_client(reader, writer).with_max_line_length(2 * MAX_MESSAGE_BYTES);
            (handler.clone().serve_with_lifecycle(transport, lifecycle).await, Some(program))
        }
    };
    let service = match (service, &program) {
        (Ok(service), _) => service,
        (Err(error @ ClientInitializeError::ConnectionClosed(_)), Some(program)) => {
            let _ = error;
            return Err(format!("didn't start: {}", quote(&program.describe_end().await, redactor)));
        }
        (Err(error), _) => return Err(format!("can't be used: {}", quote(&error.to_string(), redactor))),
    };
    let listed = match list_tools(&service).await {
        Ok(listed) => listed,
        Err(why) => return Err(format!("doesn't list its tools: {}", quote(&why, redactor))),
    };
    let tools = select(&config.name, &config.allow, listed, redactor)?;
    if let Some(changed) = config.spec.tools.as_ref().and_then(|expected| changes(expected, &tools)) {
        return Err(format!("has other tools than expected: {changed}"));
    }
    if let Some(program) = &program {
        program.bounds.reset();
    }
    let timeout = Duration::from_millis(config.spec.timeout_ms);
    Ok((Connection { service, handler, program, timeout }, tools))
}

async fn list_tools(peer: &Peer<RoleClient>) -> Result<Vec<ListedTool>, String> {
    let mut listed = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let params = cursor.take().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let page = peer.list_tools(params).await.map_err(|error| error.to_string())?;
        listed.extend(page.tools.into_iter().map(|tool| ListedTool {
            name: tool.name.into_owned(),
            description: tool.description.map(|text| text.into_owned()).unwrap_or_default(),
            input_schema: Value::Object((*tool.input_schema).clone()),
        }));
        if listed.len() > MAX_LISTED {
            return Err(format!("it lists more than {MAX_LISTED} tools"));
        }
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(listed),
        }
    }
    Err(format!("its list has more than {MAX_PAGES} pages"))
}

impl ToolServers for Servers {
    fn call<'a>(
        &'a self,
        server: &'a str,
        tool: &'a str,
        input: &'a RawValue,
        context: &'a ToolContext<'a>,
    ) -> CallFuture<'a> {
        Box::pin(async move {
            let connection = self.lock().get(server).cloned();
            let Some(connection) = connection else {
                return Err(ToolError(format!("the server `{server}` isn't running")));
            };
            let result = connection.call(server, tool, input, context, &self.redactor).await;
            if let Some(program) = &connection.program {
                program.bounds.reset();
                if let Err(error) = program.check_protected() {
                    let _ = context.failure.set(EnvironmentError::Tampered(error));
                }
            }
            result
        })
    }
}

impl Connection {
    async fn call(
        &self,
        server: &str,
        tool: &str,
        input: &RawValue,
        context: &ToolContext<'_>,
        redactor: &Redactor,
    ) -> Result<String, ToolError> {
        let arguments = serde_json::from_str(input.get())
            .map_err(|error| ToolError(format!("invalid input: {error}; expected an object")))?;
        let refused_before = self.handler.refused_count();
        let request = CallToolRequest::new(CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments));
        let options = PeerRequestOptions::with_timeout(self.timeout)
            .reset_timeout_on_progress()
            .with_max_total_timeout(self.timeout * PROGRESS_FACTOR);
        let sent = self.service.send_cancellable_request(ClientRequest::CallToolRequest(request), options).await;
        let answer = match sent {
            Err(error) => Err(error),
            Ok(handle) => {
                let (peer, id) = (handle.peer.clone(), handle.id.clone());
                let deadline = tokio::time::sleep_until(context.limits.deadline.into());
                let stopped = tokio::select! {
                    answer = handle.await_response() => Ok(answer),
                    () = context.limits.cancel.cancelled() => Err("the run was cancelled"),
                    () = deadline => Err("the run's time is up"),
                };
                match stopped {
                    Ok(answer) => answer,
                    Err(why) => {
                        let cancelled = CancelledNotificationParam::new(Some(id), Some(why.to_owned()));
                        let told = peer.notify_cancelled(cancelled);
                        let _ = tokio::time::timeout(Duration::from_millis(200), told).await;
                        return Err(ToolError(format!("cancelled: {why}; the effect of the call is unknown")));
                    }
                }
            }
        };
        let result = match answer {
            Ok(ServerResult::CallToolResult(result)) => call_result::to_text(result),
            Ok(ServerResult::InputRequiredResult(_)) => {
                Err(ToolError(format!("the server `{server}` asks for input during the call, which legwork refuses")))
            }
            Ok(_) => Err(ToolError(format!("the server `{server}` answered with something else than a result"))),
            Err(error) => Err(ToolError(self.describe(server, &error, redactor).await)),
        };
        match self.handler.refused_since(refused_before) {
            None => result,
            Some(what) => {
                let text = result.unwrap_or_else(|ToolError(text)| text);
                Err(ToolError(format!("[the server `{server}` asked for {what}, which legwork refuses]\n\n{text}")))
            }
        }
    }

    /// What an error means, for the model.
    async fn describe(&self, server: &str, error: &ServiceError, redactor: &Redactor) -> String {
        match error {
            ServiceError::Timeout { timeout } => {
                format!(
                    "timed out: the server `{server}` didn't answer within {timeout:?}; the effect of the call is unknown"
                )
            }
            ServiceError::McpError(error) => error.message.clone().into_owned(),
            error if self.service.is_transport_closed() || matches!(error, ServiceError::TransportClosed) => {
                let end = match &self.program {
                    Some(program) => quote(&program.describe_end().await, redactor),
                    None => "the connection is closed".to_owned(),
                };
                format!(
                    "the server `{server}` has ended, so the effect of the call is unknown and its tools don't work any more: {end}"
                )
            }
            error => format!("the call failed: {}", quote(&error.to_string(), redactor)),
        }
    }
}
