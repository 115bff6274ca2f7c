//! Tool servers.

pub(crate) mod mcp;
