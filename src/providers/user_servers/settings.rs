//! What `providers.toml` can set for any server, also for that of a built-in provider.

use std::fmt;
use std::time::Duration;

use reqwest::header::HeaderName;

/// The context windows of a server's models, in tokens.
#[derive(Debug, Clone, Default)]
pub(super) struct ContextWindows {
    /// The default.
    pub(super) all: Option<u64>,
    /// The windows of individual models.
    pub(super) models: Vec<(String, u64)>,
}

/// The settings of a server, in addition to its API and address.
#[derive(Clone, Default)]
pub struct ServerSettings {
    /// Where they come from, for messages: "`gateway` in /home/me/.config/legwork/providers.toml".
    pub(crate) label: String,
    /// Headers that are sent with every request.
    pub(crate) headers: Vec<(HeaderName, ConfigValue)>,
    /// Query parameters that are sent with every request.
    pub(crate) query: Vec<(String, ConfigValue)>,
    /// The command that prints the key.
    pub(crate) key_command: Option<KeyCommandSettings>,
    /// How long a request may take.
    pub(crate) timeouts: TimeoutSettings,
    /// How many times a request is tried.
    pub(crate) tries: Option<u32>,
    /// The certificate that is shown to the server.
    pub(crate) client_certificate: Option<ClientCertificate>,
    pub(super) context_windows: ContextWindows,
    /// Which models take images.
    pub(super) images: Option<ModelNames>,
    /// Which models take PDFs.
    pub(super) pdfs: Option<ModelNames>,
}

/// Some models of a server.
#[derive(Debug, Clone)]
pub(super) enum ModelNames {
    /// All, or none.
    All(bool),
    /// Those with these names.
    Named(Vec<String>),
}

impl ModelNames {
    /// Whether a model is one of them.
    pub(super) fn contains(&self, model: &str) -> bool {
        match self {
            Self::All(all) => *all,
            Self::Named(names) => names.iter().any(|name| name == model),
        }
    }
}

/// The timeouts that the file sets.
#[derive(Clone, Default)]
pub(crate) struct TimeoutSettings {
    /// For connecting.
    pub(crate) connect: Option<Duration>,
    /// For the start of a response.
    pub(crate) first_byte: Option<Duration>,
    /// For the next bytes of a response.
    pub(crate) idle: Option<Duration>,
    /// For one whole request.
    pub(crate) total: Option<Duration>,
}

/// The PEM files of a client certificate. Their paths are never shown.
#[derive(Clone)]
pub(crate) struct ClientCertificate {
    /// The certificate, with those of its authorities.
    pub(crate) certificate: String,
    /// Its private key; `None` if it is in the same file.
    pub(crate) key: Option<String>,
}

/// A value in the file.
#[derive(Clone)]
pub(crate) enum ConfigValue {
    /// The value itself, which isn't a secret.
    Plain(String),
    /// The environment variable with the value, which may be a secret.
    Env(String),
}

/// A command that prints a key.
#[derive(Clone)]
pub(crate) struct KeyCommandSettings {
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    /// How long a key is used; `None` until the server refuses it.
    pub(crate) ttl: Option<Duration>,
}

impl fmt::Debug for ServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSettings").finish_non_exhaustive()
    }
}

impl ServerSettings {
    /// The variables with values of headers and query parameters.
    pub fn value_envs(&self) -> impl Iterator<Item = &str> {
        let headers = self.headers.iter().map(|(_, value)| value);
        headers.chain(self.query.iter().map(|(_, value)| value)).filter_map(|value| match value {
            ConfigValue::Env(name) => Some(name.as_str()),
            ConfigValue::Plain(_) => None,
        })
    }

    /// Whether a command prints the key.
    pub fn has_key_command(&self) -> bool {
        self.key_command.is_some()
    }

    /// Whether a header or query parameter comes from a variable, so that it may be the key.
    pub(crate) fn has_secret_values(&self) -> bool {
        self.value_envs().next().is_some()
    }
}
