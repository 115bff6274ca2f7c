//! HTTP: connections, streams, retries and rate limits.

pub(crate) mod endpoint;
pub(crate) mod http;
pub(crate) mod http_conversation;
pub(crate) mod key_command;
pub(crate) mod rate_governor;
pub(crate) mod rate_headers;
pub(crate) mod retry;
pub(crate) mod sse;
mod thread_clients;
mod tls_probe;
pub(crate) mod transport_error;
