//! Models and their servers.

pub(crate) mod endpoints;
pub(crate) mod fallback;
pub(crate) mod interop;
pub(crate) mod misconfigured_servers;
pub(crate) mod mock_server;
pub(crate) mod model_options;
pub(crate) mod prompt_caching;
pub(crate) mod provider_failures;
pub(crate) mod providers;
pub(crate) mod rate_limits;
pub(crate) mod server_settings;
pub(crate) mod user_servers;
