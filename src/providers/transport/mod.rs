//! HTTP: connections, streams, retries and rate limits.

pub mod http;
pub mod http_conversation;
pub mod json_body;
pub mod rate_governor;
pub mod rate_headers;
pub mod retry;
pub mod sse;
pub mod stale_connection;
pub mod tls_probe;
pub mod transport_error;
