//! Tool servers, which speak the Model Context Protocol. legwork is their client, through the official SDK.

mod call_result;
mod client_handler;
mod containers;
mod http;
mod listed_tools;
mod messages;
mod server_spec;
mod servers;
mod sse;
mod stdio;
mod stdio_transport;
mod stream_bounds;
pub mod tool_lock;

pub use containers::container_program;
pub use listed_tools::MAX_TOOLS;
pub use server_spec::{PlannedHeader, ServerGrant, ServerSpec};
pub use servers::{ScriptedServers, ServerConfig, ServerStart, Servers, StartError, StartLimits};
pub use tool_lock::{ToolDefinitions, ToolLock};
