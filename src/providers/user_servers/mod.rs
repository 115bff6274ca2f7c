//! Servers that the user defines in `providers.toml` in the configuration folder:
//!
//! ```toml
//! [providers.local]
//! api = "openai-chat"                      # the built-in provider with its API
//! base_url = "http://127.0.0.1:8080/v1"    # may contain credentials
//! key_env = "LOCAL_API_KEY"                # the variable with the key; default: no key
//! context = 32768                          # the context window, or a table by model: { qwen3 = 40960 }
//! images = ["qwen3-vl"]                    # the models that take images, or true; also pdfs
//! headers = { X-Team = "build" }           # plain values, or "env:NAME"
//! query = { api-version = "2024-10-21" }
//!
//! [providers.anthropic]                    # a built-in provider: the same, without `api`, `base_url` and `key_env`
//! key_command = ["get-key", "--short"]     # prints the key; runs again when the key is refused
//! key_ttl = "50m"                          # or when it is older than this
//! timeouts = { first_byte = "10m" }
//! tries = 3
//! client_cert = "~/certs/client.pem"       # PEM files
//! client_key = "~/certs/client.key"
//! ```
//!
//! A job then names `local/MODEL`. It can't set an address or a key itself: the file belongs to the machine, not the
//! job.

mod parse;
mod parse_settings;
mod redact;
mod settings;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use super::model::{Model, ServerInfo};
use crate::attachment::MediaSupport;
use crate::diagnostic::{Rule, rule};

pub use self::parse::{ParsedServers, unreadable};
pub(crate) use self::parse_settings::looks_like_key;
pub use self::settings::ServerSettings;
pub(crate) use self::settings::{ConfigValue, KeyCommandSettings};

/// The rules for the file, in addition to those for any file.
pub const RULES: &[Rule] = &[rule!(Error "api-key-in-file"), rule!(Error "reserved-name")];

/// The file's name in legwork's configuration folder.
pub const FILE_NAME: &str = "providers.toml";

/// A server in `providers.toml`.
#[derive(Clone)]
pub struct UserServer {
    /// Its name, the part before the `/` of a model's name.
    pub name: String,
    /// The file that defines it.
    pub file: Arc<str>,
    /// The built-in provider whose API it speaks.
    pub api: &'static str,
    /// Its base address, which may contain credentials.
    pub base_url: String,
    /// The variable with its key. `None` if no key is sent.
    pub key_env: Option<String>,
    /// Its other settings.
    pub settings: ServerSettings,
    /// Whether the address is the provider's own.
    is_official: bool,
}

impl fmt::Debug for UserServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may contain a password.
        f.debug_struct("Server").field("name", &self.name).field("api", &self.api).finish_non_exhaustive()
    }
}

impl UserServer {
    /// The part of the definition that models and records store.
    pub fn info(&self) -> ServerInfo {
        ServerInfo { api: self.api.to_owned(), is_official: self.is_official }
    }
}

/// The servers in the user's configuration, in its order.
#[derive(Debug, Clone, Default)]
pub struct UserServers {
    servers: Arc<[UserServer]>,
    /// The settings of built-in providers, by name.
    built_in: Arc<[(String, ServerSettings)]>,
    /// The path of the file for display, even if the file is missing.
    file: Option<Arc<str>>,
    /// Names of invalid servers; jobs that use them get no further error.
    invalid_names: Arc<[String]>,
    /// Whether the file can't be parsed, so that it may define any name.
    is_unparsable: bool,
    /// The models at servers from a record.
    recorded: Arc<[Model]>,
}

impl UserServers {
    /// The servers of these models from a record. They lack the address and key to connect.
    pub fn recorded<'a>(models: impl Iterator<Item = &'a Model>) -> Self {
        Self { recorded: models.filter(|model| model.server.is_some()).cloned().collect(), ..Self::default() }
    }

    /// No servers, for a missing file.
    pub fn empty_in(file: &str) -> Self {
        Self { file: Some(file.into()), ..Self::default() }
    }

    /// Unknown servers, for an unreadable file.
    pub fn unreadable_in(file: &str) -> Self {
        Self { is_unparsable: true, ..Self::empty_in(file) }
    }

    /// The server with that name.
    pub fn get(&self, name: &str) -> Option<&UserServer> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// The API of the server with that name.
    pub fn server_info(&self, name: &str) -> Option<ServerInfo> {
        let recorded = || self.recorded.iter().find(|model| model.provider == name)?.server.clone();
        self.get(name).map(UserServer::info).or_else(recorded)
    }

    /// The context window of a model at a server, if the file sets it.
    pub fn context_window(&self, name: &str, model: &str) -> Option<u64> {
        if let Some(ServerSettings { context_windows, .. }) = self.settings(name) {
            let found = context_windows.models.iter().find(|(known, _)| known == model);
            return found.map(|(_, window)| *window).or(context_windows.all);
        }
        self.recorded.iter().find(|known| known.provider == name && known.name == model)?.context
    }

    /// Which files a model takes, if the file says so.
    pub fn media(&self, model: &Model) -> Option<MediaSupport> {
        let Some(ServerSettings { images, pdfs, .. }) = self.settings(&model.provider) else {
            return self.recorded.iter().find(|known| known.is_same(model))?.accepts;
        };
        if images.is_none() && pdfs.is_none() {
            return None;
        }
        let known = model.media();
        let images = images.as_ref().map_or(known.images, |models| models.contains(&model.name));
        let pdfs = pdfs.as_ref().map_or(known.pdfs, |models| models.contains(&model.name));
        Some(MediaSupport { images, gifs: images && model.takes_gifs(), pdfs })
    }

    /// Whether the file defines, or may define, an invalid server with that name.
    pub fn is_invalid(&self, name: &str) -> bool {
        self.is_unparsable || self.invalid_names.iter().any(|broken| broken == name)
    }

    /// All servers.
    pub fn iter(&self) -> impl Iterator<Item = &UserServer> {
        self.servers.iter()
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|server| &*server.name)
    }

    /// The settings of the server, or of the built-in provider, with that name.
    pub fn settings(&self, name: &str) -> Option<&ServerSettings> {
        let built_in = || self.built_in.iter().find(|(known, _)| known == name).map(|(_, settings)| settings);
        self.get(name).map(|server| &server.settings).or_else(built_in)
    }

    /// The variables with keys, and with values of headers and query parameters, which may be keys.
    pub fn key_envs(&self) -> impl Iterator<Item = &str> {
        let settings = self.iter().map(|server| &server.settings).chain(self.built_in.iter().map(|(_, it)| it));
        let keys = self.iter().filter_map(|server| server.key_env.as_deref());
        keys.chain(settings.flat_map(ServerSettings::value_envs))
    }

    /// The path of the file, even if the file is missing.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }
}
