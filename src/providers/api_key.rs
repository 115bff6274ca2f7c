//! Keys, headers and query parameters: from the environment, or from a command.

use std::borrow::Cow;
use std::sync::Arc;

use super::api::ProviderError;
use super::env_config::{EndpointNames, env_key, env_millis};
use super::spec::ConnectContext;
use super::transport::key_command::{self, KeyCommand};
use super::user_servers::{ConfigValue, ServerSettings};

/// The key of a provider.
pub(crate) enum ApiKey {
    /// A key from the environment.
    Fixed(String),
    /// A command that prints it.
    Command(Arc<KeyCommand>),
}

impl ConnectContext<'_> {
    /// The key to send. It comes from `key_command`, if set. For a server in `providers.toml`, it comes from the variable
    /// `key_env`, if set; otherwise from the provider's variable, which may be missing unless `required`.
    ///
    /// # Errors
    /// It is required and missing, or not valid in a header. The message never contains any part of the key.
    pub(super) fn resolve_key(&self, names: EndpointNames, required: bool) -> Result<Option<ApiKey>, ProviderError> {
        let settings = self.settings.map(|it| it.settings);
        if let (Some(context), Some(command)) = (self.settings, settings.and_then(|it| it.key_command.as_ref())) {
            let timeout = env_millis(self.env, "LEGWORK_KEY_COMMAND_TIMEOUT_MS", key_command::TIMEOUT_MS)?;
            let secret_name = format!("{}.key_command", self.server.map_or(names.key_env, |server| &server.name));
            let command = KeyCommand::new(context, command, &secret_name, timeout, self.redactor)?;
            return Ok(Some(ApiKey::Command(Arc::new(command))));
        }
        // A header or a query parameter may be the key.
        let required = required && !settings.is_some_and(ServerSettings::has_secret_values);
        let key = match self.server {
            Some(server) => server.key_env.as_deref().map(|name| env_key(self.env, name)).transpose()?,
            None if required || (self.env)(names.key_env).is_some_and(|key| !key.is_empty()) => {
                Some(env_key(self.env, names.key_env)?)
            }
            None => None,
        };
        Ok(key.map(ApiKey::Fixed))
    }

    /// Whether the key comes from the provider's own variables.
    pub(super) fn takes_key_from_env(&self) -> bool {
        self.server.is_none() && !self.settings.is_some_and(|it| it.settings.has_key_command())
    }

    /// The value of a header or query parameter, and whether it may be a secret.
    ///
    /// # Errors
    /// Its variable is missing, empty, or not valid in a header. The message never contains any part of the value.
    pub(super) fn resolve_value<'v>(&self, value: &'v ConfigValue) -> Result<(Cow<'v, str>, bool), ProviderError> {
        let name = match value {
            ConfigValue::Plain(text) => return Ok((Cow::Borrowed(text), false)),
            ConfigValue::Env(name) => name,
        };
        let label = self.settings.map_or("", |it| &it.settings.label);
        let wrong = match (self.env)(name) {
            None => "is not set",
            Some(text) if text.is_empty() => "is set, but empty",
            Some(text) if text.trim() != text => "begins or ends with a blank or a line break",
            Some(text) if !text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') => {
                "contains a control character or a non-ASCII character"
            }
            Some(text) => return Ok((Cow::Owned(text), true)),
        };
        let hint = format!("set it to the value of the header or query parameter of {label}");
        Err(ProviderError::rejected(format!("{name} {wrong}")).with_hint(hint))
    }
}
