//! What a provider gets from outside the job: keys, addresses, how long to wait; and what these are called in faults.

use std::time::Duration;

use super::{ConnectContext, ProviderError, ProviderErrorKind};

/// How long we wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// For a connection, name lookup and TLS included.
    pub(super) connect: Duration,
    /// For the next bytes of an answer. Its head may take three times as long: a gateway that doesn't stream has
    /// nothing to send until the model is done.
    pub(super) idle: Duration,
    /// For one whole request, so that a server which only shows that it lives is left in the end.
    pub(super) total: Duration,
}

impl Timeouts {
    /// 10 s, 90 s and 15 min, or what `LEGWORK_CONNECT_TIMEOUT_MS`, `LEGWORK_IDLE_TIMEOUT_MS` and
    /// `LEGWORK_REQUEST_TIMEOUT_MS` say (not for users: they let tests of the whole program fail quickly).
    ///
    /// # Errors
    /// A variable holds something else than a number.
    pub(super) fn new(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, ProviderError> {
        Ok(Self {
            connect: env_millis(variable, "LEGWORK_CONNECT_TIMEOUT_MS", 10_000)?,
            idle: env_millis(variable, "LEGWORK_IDLE_TIMEOUT_MS", 90_000)?,
            total: env_millis(variable, "LEGWORK_REQUEST_TIMEOUT_MS", 15 * 60_000)?,
        })
    }
}

/// A duration from the environment.
///
/// # Errors
/// The variable holds something else than a number from 1 to a day's.
pub(super) fn env_millis(
    variable: &dyn Fn(&str) -> Option<String>,
    name: &str,
    default: u64,
) -> Result<Duration, ProviderError> {
    let Some(text) = variable(name).filter(|text| !text.is_empty()) else { return Ok(Duration::from_millis(default)) };
    match text.trim().parse() {
        Ok(number @ 1..=86_400_000) => Ok(Duration::from_millis(number)),
        _ => Err(ProviderError::new(
            ProviderErrorKind::Rejected,
            format!("{name} isn't a number of milliseconds from 1 to 86400000"),
        )),
    }
}

/// A key from the environment.
///
/// # Errors
/// It is missing, empty, or can't stand in a header. The message never holds any of it.
pub(super) fn env_key(variable: &dyn Fn(&str) -> Option<String>, name: &str) -> Result<String, ProviderError> {
    let rejected = |message| Err(ProviderError::new(ProviderErrorKind::Rejected, message));
    match variable(name) {
        None => rejected(format!("{name} is not set")),
        Some(key) if key.is_empty() => rejected(format!("{name} is set, but empty")),
        Some(key) if key.ends_with(['\n', '\r']) => rejected(format!("{name} ends with a line break")),
        Some(key) if !key.bytes().all(|byte| byte.is_ascii_graphic()) => {
            rejected(format!("{name} holds a space, a control character or a letter outside ASCII"))
        }
        Some(key) => Ok(key),
    }
    .map_err(|fault| fault.with_hint(format!("put the key, and nothing else, into {name}")))
}

/// The proxy that the environment names for https addresses. Hosts that NO_PROXY names are asked past it.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    /// The variable that names it.
    pub(super) variable: &'static str,
    /// Whether the HTTP library can use it; it passes over what it can't.
    pub(super) is_usable: bool,
}

impl Proxy {
    /// The one that is named on the way to a host, by the variables that the HTTP library reads.
    pub(super) fn for_host(variable: &dyn Fn(&str) -> Option<String>, host: &str) -> Option<Self> {
        let without = ["NO_PROXY", "no_proxy"].into_iter().find_map(variable).unwrap_or_default();
        let is_without = |name: &str| {
            let name = name.trim().trim_start_matches('.');
            name == "*" || host.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if without.split(',').filter(|name| !name.trim().is_empty()).any(is_without) {
            return None;
        }
        let names = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
        let (name, text) =
            names.into_iter().find_map(|name| Some((name, variable(name).filter(|it| !it.is_empty())?)))?;
        let whole = if text.contains("://") { text } else { format!("http://{text}") };
        let is_known = |url: reqwest::Url| {
            ["http", "https", "socks4", "socks4a", "socks5", "socks5h"].contains(&url.scheme()) && url.has_host()
        };
        Some(Self { variable: name, is_usable: reqwest::Url::parse(&whole).is_ok_and(is_known) })
    }
}

/// What a provider's parts are called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndpointNames {
    /// The variable with the key.
    pub(super) key_env: &'static str,
    /// The variable with the address, where it isn't the provider's own.
    pub(super) base_url_env: &'static str,
    /// The API: `the MessageHistory API`.
    pub(super) api: &'static str,
}

/// What an endpoint's parts are called, for whoever reads a fault.
#[derive(Debug, Clone)]
pub(crate) struct EndpointLabels {
    /// Where the key comes from, or would: a variable.
    pub(super) key_source: String,
    /// Where the address comes from.
    pub(super) base_url_source: String,
    /// The API: `the MessageHistory API`.
    pub(super) api: &'static str,
    /// What to do where a key is needed and none was sent.
    pub(super) missing_key_hint: String,
    /// The name and the file of the user's own server.
    pub(super) server: Option<(String, String)>,
}

impl EndpointLabels {
    pub(super) fn new(connect: &ConnectContext<'_>, names: EndpointNames) -> Self {
        let Some(server) = connect.server else {
            return Self {
                key_source: names.key_env.to_owned(),
                base_url_source: names.base_url_env.to_owned(),
                api: names.api,
                missing_key_hint: format!("put one into {}", names.key_env),
                server: None,
            };
        };
        let (name, file) = (server.name(), server.file());
        let keyless = match server.key_env() {
            Some(variable) => format!("put one into {variable}"),
            None => format!("put one into a variable, and name that as `key_env` of `{name}` in {file}"),
        };
        Self {
            key_source: server.key_env().unwrap_or("nowhere").to_owned(),
            base_url_source: format!("`base_url` of `{name}` in {file}"),
            api: names.api,
            missing_key_hint: keyless,
            server: Some((name.to_owned(), file.to_owned())),
        }
    }
}

impl ConnectContext<'_> {
    /// The key to send. Of a server of the user's own it is the one that its `key_env` names, and none where it names
    /// none; else the one in `names.key`, which may be missing where it isn't `needed`.
    ///
    /// # Errors
    /// It is missing where it is needed, or can't stand in a header. The message never holds any of it.
    pub(super) fn resolve_key(&self, names: EndpointNames, needed: bool) -> Result<Option<String>, ProviderError> {
        match self.server {
            Some(server) => server.key_env().map(|name| env_key(self.env, name)).transpose(),
            None if needed || (self.env)(names.key_env).is_some_and(|key| !key.is_empty()) => {
                env_key(self.env, names.key_env).map(Some)
            }
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_in_between_is_known() {
        let of = |variables: &[(&str, &str)]| {
            let variable =
                |name: &str| variables.iter().find(|(is, _)| *is == name).map(|(_, text)| (*text).to_owned());
            Proxy::for_host(&variable, "api.example.test").map(|proxy| (proxy.variable, proxy.is_usable))
        };
        let named = ("HTTPS_PROXY", "http://me:pw@10.0.0.1:3128");
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("HTTPS_PROXY", ""), ("all_proxy", "10.0.0.1:3128")]), Some(("all_proxy", true)));
        assert_eq!(of(&[named, ("ALL_PROXY", "ftp://x")]), Some(("HTTPS_PROXY", true)));
        assert_eq!(of(&[("ALL_PROXY", "socks5h://x:1080")]), Some(("ALL_PROXY", true)));
        for odd in ["ftp://x", "://x", "http://:80", "http://x:99999"] {
            assert_eq!(of(&[("HTTPS_PROXY", odd)]), Some(("HTTPS_PROXY", false)), "{odd}");
        }
        for (without, is) in
            [("*", false), ("a, .example.test", false), ("example.test", false), ("ample.test", true), ("", true)]
        {
            assert_eq!(of(&[named, ("NO_PROXY", without)]).is_some(), is, "{without}");
        }
    }
}
