//! Tool servers, which speak the Model Context Protocol. legwork is their client, through the official SDK.

mod call_result;
mod client_handler;
mod http;
mod listed_tools;
mod server_spec;
mod servers;
mod stdio;
pub mod tool_lock;

pub use server_spec::{PlannedHeader, ServerGrant, ServerSpec};
pub use servers::{ServerConfig, ServerStart, Servers, StartError};
pub use tool_lock::{ToolDefinitions, ToolLock};
