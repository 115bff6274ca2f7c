//! One server in `providers.toml`.

use std::fmt;
use std::sync::Arc;

use crate::providers::model::ServerInfo;

/// The context windows of a server's models, in tokens.
#[derive(Debug, Clone, Default)]
pub(super) struct ContextWindows {
    /// The default.
    pub(super) all: Option<u64>,
    /// The windows of individual models.
    pub(super) models: Vec<(String, u64)>,
}

/// A server in `providers.toml`.
#[derive(Clone)]
pub struct UserServer {
    pub(super) name: String,
    pub(super) file: Arc<str>,
    pub(super) api: &'static str,
    pub(super) base_url: String,
    pub(super) key_env: Option<String>,
    pub(super) context_windows: ContextWindows,
    /// Whether the address is the provider's own.
    pub(super) is_official: bool,
}

impl fmt::Debug for UserServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may contain a password.
        f.debug_struct("Server").field("name", &self.name).field("api", &self.api).finish_non_exhaustive()
    }
}

impl UserServer {
    /// Its name, the part before the `/` of a model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that defines it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The built-in provider whose API it speaks.
    pub fn api(&self) -> &'static str {
        self.api
    }

    /// Its base address, which may contain credentials.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The variable with its key. `None` if no key is sent.
    pub fn key_env(&self) -> Option<&str> {
        self.key_env.as_deref()
    }

    /// The part of the definition that models and records store.
    pub fn info(&self) -> ServerInfo {
        ServerInfo { api: self.api.to_owned(), is_official: self.is_official }
    }
}
