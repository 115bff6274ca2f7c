//! The table row that describes a provider, and what it needs to connect.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::api::{Provider, ProviderError};
use super::replay::Script;
use super::unsupported_options::{RequestOptions, UnsupportedOption};
use super::user_servers::{ServerSettings, UserServer};
use crate::redaction::Redactor;
use crate::sandbox::programs::Folders;

/// A provider that a job can name.
pub struct ProviderSpec {
    /// The part before the `/` of a model's name.
    pub name: &'static str,
    /// Other names that people write for it.
    pub aliases: &'static [&'static str],
    /// What to write instead of one of the aliases.
    pub alias_help: &'static str,
    /// The environment variables that hold its keys; when several are set, the last one wins. They are never passed to
    /// a tool and never shown.
    pub key_envs: &'static [&'static str],
    /// Its own base address; `None` for a provider that needs no server, key or payment because it replies from a file.
    pub default_endpoint: Option<DefaultEndpoint>,
    /// How replies of its API are recognized when they come from the wrong address.
    pub api: Option<ApiSignature>,
    /// Whether most other servers and gateways speak this API, too, so that a model may have any name.
    pub is_common_api: bool,
    /// Returns all requested options that the model, or the API, is known not to support.
    pub unsupported_options: fn(&RequestOptions<'_>) -> Vec<UnsupportedOption>,
    /// Whether its API takes GIF images, if a model takes images.
    pub takes_gifs: bool,
    /// Whether its API takes PDFs wherever it is served, if a model takes them.
    pub takes_pdfs: bool,
    /// Whether its API can keep the start of a prompt in a cache for an hour, for models of its vendor.
    pub has_hour_cache: bool,
    /// The vendor of its models in the price table; empty for none.
    pub vendor: &'static str,
    /// Connects without sending anything; a missing or malformed key is reported here.
    pub connect: fn(&ConnectContext<'_>) -> Result<Arc<dyn Provider>, ProviderError>,
}

/// The default address of a provider.
#[derive(Debug, Clone, Copy)]
pub struct DefaultEndpoint {
    /// The base address: `https://api.anthropic.com`.
    pub base_url: &'static str,
    /// The environment variable that overrides it, which may hold credentials.
    pub base_url_env: &'static str,
}

/// How an API's replies are recognized.
#[derive(Clone, Copy)]
pub struct ApiSignature {
    /// The API's name in messages, such as `the Messages API`.
    pub name: &'static str,
    /// Whether a JSON body, or the first event of a stream, is a reply of this API.
    pub matches: fn(&Value) -> bool,
}

/// The environment that a provider connects in.
pub struct ConnectContext<'a> {
    /// Reads an environment variable.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The server in `providers.toml` to use instead of the default address.
    pub server: Option<&'a UserServer>,
    /// The settings in `providers.toml` for this provider or server.
    pub settings: Option<SettingsContext<'a>>,
    /// The script, for the provider that replies from one.
    pub script: Option<Arc<Script>>,
    /// The `User-Agent` header: `legwork/1.2.3`.
    pub user_agent: &'a str,
    /// The run's secrets, which are removed from all server messages.
    pub redactor: &'a Redactor,
    /// The table of providers, for recognizing replies of another API.
    pub providers: &'static [ProviderSpec],
}

/// The settings of a provider or server, and what they need.
#[derive(Clone, Copy)]
pub struct SettingsContext<'a> {
    /// The settings.
    pub settings: &'a ServerSettings,
    /// The environment variables for a command that prints a key.
    pub variables: &'a BTreeMap<String, String>,
    /// The folders that tools of jobs can change. No command that prints a key may be in one.
    pub changeable: &'a Folders,
}
