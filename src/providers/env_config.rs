//! Keys, addresses, proxies and timeouts from the environment, and their names in messages.

use std::time::Duration;

use reqwest::Url;

use super::api::ProviderError;
use super::spec::ConnectContext;

/// The timeouts of requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// For connecting, including name lookup and TLS handshake.
    pub(super) connect: Duration,
    /// For the headers of a response: by default three times `idle`, because a gateway that doesn't stream sends nothing
    /// until the model has finished.
    pub(super) first_byte: Duration,
    /// For the next bytes of a response.
    pub(super) idle: Duration,
    /// For one whole request, which bounds servers that send only keep-alives.
    pub(super) total: Duration,
}

impl Timeouts {
    /// The values in `providers.toml`, or 10 s, 90 s and 15 min. `LEGWORK_CONNECT_TIMEOUT_MS`, `LEGWORK_IDLE_TIMEOUT_MS` and
    /// `LEGWORK_REQUEST_TIMEOUT_MS` take precedence (not for users: they make tests of the whole program fail quickly).
    ///
    /// # Errors
    /// A variable isn't a number.
    pub(super) fn new(connect: &ConnectContext<'_>) -> Result<Self, ProviderError> {
        Self::with_defaults(connect, 90_000, 15 * 60_000)
    }

    /// The same for flex processing, which begins late: 5 min and 30 min. OpenAI advises at least 15 min, and Google aims at 1
    /// to 15 min.
    pub(super) fn for_flex(connect: &ConnectContext<'_>) -> Result<Self, ProviderError> {
        Self::with_defaults(connect, 5 * 60_000, 30 * 60_000)
    }

    fn with_defaults(connect: &ConnectContext<'_>, idle: u64, total: u64) -> Result<Self, ProviderError> {
        let configured = connect.settings.map(|it| it.settings.timeouts.clone()).unwrap_or_default();
        let millis = |name, configured: Option<Duration>, default: u64| {
            let default = configured.map_or(default, |it| u64::try_from(it.as_millis()).unwrap_or(default));
            env_millis(connect.env, name, default)
        };
        let idle = millis("LEGWORK_IDLE_TIMEOUT_MS", configured.idle, idle)?;
        Ok(Self {
            connect: millis("LEGWORK_CONNECT_TIMEOUT_MS", configured.connect, 10_000)?,
            first_byte: configured.first_byte.unwrap_or(idle * 3),
            idle,
            total: millis("LEGWORK_REQUEST_TIMEOUT_MS", configured.total, total)?,
        })
    }
}

/// A duration from the environment.
///
/// # Errors
/// The variable isn't a number of milliseconds up to a day.
pub(super) fn env_millis(
    variable: &dyn Fn(&str) -> Option<String>,
    name: &str,
    default: u64,
) -> Result<Duration, ProviderError> {
    let Some(text) = variable(name).filter(|text| !text.is_empty()) else { return Ok(Duration::from_millis(default)) };
    match text.trim().parse() {
        Ok(number @ 1..=86_400_000) => Ok(Duration::from_millis(number)),
        _ => Err(ProviderError::rejected(format!("{name} isn't a number of milliseconds from 1 to 86400000"))),
    }
}

/// A key from the environment.
///
/// # Errors
/// It is missing, empty, or not valid in a header. The message never contains any part of the key.
pub(super) fn env_key(variable: &dyn Fn(&str) -> Option<String>, name: &str) -> Result<String, ProviderError> {
    let rejected = |message| Err(ProviderError::rejected(message));
    match variable(name) {
        None => {
            let hint = format!(
                "set {name} to the key; without one, `legwork run JOB --dry-run` shows the plan, and `--model replay/FILE` takes the replies \
                 from a script or a recorded run"
            );
            return Err(ProviderError::rejected(format!("{name} is not set")).with_hint(hint));
        }
        Some(key) if key.is_empty() => rejected(format!("{name} is set, but empty")),
        Some(key) if key.ends_with(['\n', '\r']) => rejected(format!("{name} ends with a line break")),
        Some(key) if !key.bytes().all(|byte| byte.is_ascii_graphic()) => {
            rejected(format!("{name} contains a space, a control character or a non-ASCII character"))
        }
        Some(key) => Ok(key),
    }
    .map_err(|error| error.with_hint(format!("set {name} to the key and nothing else")))
}

/// The proxy for https addresses from the environment, except for hosts in NO_PROXY.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    /// The variable that names it.
    pub(super) variable: &'static str,
    /// Whether the HTTP library can use it; it silently ignores others.
    pub(super) is_usable: bool,
}

impl Proxy {
    /// The proxy for an address, according to the variables that the HTTP library reads.
    pub(super) fn for_url(variable: &dyn Fn(&str) -> Option<String>, url: &Url) -> Option<Self> {
        if is_in_no_proxy(variable, url) {
            return None;
        }
        let names = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
        let (name, text) =
            names.into_iter().find_map(|name| Some((name, variable(name).filter(|it| !it.is_empty())?)))?;
        let whole = if text.contains("://") { text } else { format!("http://{text}") };
        let is_known = |url: Url| {
            ["http", "https", "socks4", "socks4a", "socks5", "socks5h"].contains(&url.scheme()) && url.has_host()
        };
        Some(Self { variable: name, is_usable: Url::parse(&whole).is_ok_and(is_known) })
    }
}

/// Whether `NO_PROXY` excludes an address from the proxy: `*`, a host with its subdomains, only its subdomains (`*.x`), or one
/// port of a host (`host:port`). The HTTP library knows neither of the last two; IP networks only the library knows.
pub(super) fn is_in_no_proxy(variable: &dyn Fn(&str) -> Option<String>, url: &Url) -> bool {
    let list = ["NO_PROXY", "no_proxy"].into_iter().find_map(variable).unwrap_or_default();
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    let is_match = |entry: &str| {
        let entry = entry.trim().to_ascii_lowercase();
        if entry == "*" {
            return true;
        }
        // An IPv6 address has more colons, and is in brackets before a port.
        let with_port = entry.rsplit_once(':').filter(|(name, _)| !name.contains(':') || name.ends_with(']'));
        let with_port = with_port.and_then(|(name, port)| Some((name, port.parse::<u16>().ok()?)));
        let (name, port) = with_port.map_or((&*entry, None), |(name, port)| (name, Some(port)));
        if port.is_some() && port != url.port_or_known_default() {
            return false;
        }
        let (name, takes_host) = match name.strip_prefix("*.") {
            Some(name) => (name, false),
            None => (name.trim_start_matches('.').trim_matches(['[', ']']), true),
        };
        let rest = host.strip_suffix(name).filter(|_| !name.is_empty());
        rest.is_some_and(|rest| (takes_host && rest.is_empty()) || rest.ends_with('.'))
    };
    list.split(',').any(is_match)
}

/// The names of an API and of its environment variables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndpointNames {
    /// The variable with the key.
    pub(super) key_env: &'static str,
    /// The variable that overrides the default address.
    pub(super) base_url_env: &'static str,
    /// The API: `the Messages API`.
    pub(super) api: &'static str,
}

/// The names of an endpoint's parts in messages.
#[derive(Debug, Clone)]
pub(crate) struct EndpointLabels {
    pub(super) names: EndpointNames,
    /// The variable with the key, even if it isn't set.
    pub(super) key_source: String,
    /// Where the address comes from.
    pub(super) base_url_source: String,
    /// What to do if a key is needed and none was sent.
    pub(super) missing_key_hint: String,
    /// The name of the server in `providers.toml`, and that file.
    pub(super) server: Option<(String, String)>,
}

impl EndpointLabels {
    /// The name of the server, or the variable of its key: how masks name its secrets.
    pub(super) fn key_name(&self) -> &str {
        self.server.as_ref().map_or(self.names.key_env, |(name, _)| name)
    }

    pub(super) fn new(connect: &ConnectContext<'_>, names: EndpointNames) -> Self {
        let command = connect.settings.map(|it| it.settings).filter(|settings| settings.has_key_command());
        let command = command.map(|settings| format!("`key_command` of {}", settings.label));
        let values = connect.settings.map(|it| it.settings).filter(|settings| settings.has_secret_values());
        let values = values.map(|settings| format!("`headers` or `query` of {}", settings.label));
        let Some(server) = connect.server else {
            return Self {
                key_source: command.or(values).unwrap_or_else(|| names.key_env.to_owned()),
                base_url_source: names.base_url_env.to_owned(),
                names,
                missing_key_hint: format!("put one into {}", names.key_env),
                server: None,
            };
        };
        let (name, file) = (&server.name, &server.file);
        let missing_key_hint = match server.key_env.as_deref() {
            Some(variable) => format!("put one into {variable}"),
            None => format!("put one into a variable, and name that as `key_env` of `{name}` in {file}"),
        };
        Self {
            key_source: command.or(server.key_env.clone()).or(values).unwrap_or_else(|| "nowhere".to_owned()),
            base_url_source: format!("`base_url` of `{name}` in {file}"),
            names,
            missing_key_hint,
            server: Some((name.clone(), file.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redaction::Redactor;

    #[test]
    fn flex_processing_has_longer_timeouts_unless_the_environment_sets_them() {
        let of = |idle: Option<&str>| {
            let env = |name: &str| idle.filter(|_| name == "LEGWORK_IDLE_TIMEOUT_MS").map(str::to_owned);
            let connect = ConnectContext {
                env: &env,
                server: None,
                settings: None,
                script: None,
                user_agent: "",
                redactor: &Redactor::default(),
                providers: &[],
            };
            [Timeouts::new(&connect).unwrap(), Timeouts::for_flex(&connect).unwrap()]
                .map(|it| [it.connect, it.first_byte, it.idle, it.total].map(|timeout| timeout.as_secs()))
        };
        assert_eq!(of(None), [[10, 270, 90, 900], [10, 900, 300, 1_800]]);
        assert_eq!(of(Some("2000")), [[10, 6, 2, 900], [10, 6, 2, 1_800]]);
    }

    #[test]
    fn the_proxy_comes_from_the_environment() {
        let at = |url: &str, variables: &[(&str, &str)]| {
            let variable =
                |name: &str| variables.iter().find(|(is, _)| *is == name).map(|(_, text)| (*text).to_owned());
            let url = Url::parse(url).unwrap();
            Proxy::for_url(&variable, &url).map(|proxy| (proxy.variable, proxy.is_usable))
        };
        let of = |variables: &[(&str, &str)]| at("https://api.example.test/v1", variables);
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
        for (url, without, is) in [
            ("https://api.example.test", "*.example.test", false),
            ("https://API.example.test", "a, *.EXAMPLE.test", false),
            ("https://example.test", "*.example.test", true),
            ("https://notexample.test", "*.example.test", true),
            ("https://api.example.test", "*.", true),
            ("https://api.example.test", "api.example.test:443", false),
            ("https://api.example.test", "example.test:443", false),
            ("https://api.example.test", "*.example.test:443", false),
            ("https://api.example.test", "api.example.test:8443", true),
            ("https://api.example.test:8443", "api.example.test:8443", false),
            ("https://10.0.0.1:8443", "10.0.0.1:8443", false),
            ("https://10.0.0.1:8443", "10.0.0.1:443", true),
            ("https://[2001:db8::1]:8443", "[2001:db8::1]:8443", false),
            ("https://[2001:db8::1]:8443", "2001:db8::1", false),
            ("https://[2001:db8::1]:8443", "[2001:db8::1]:443", true),
            ("https://api.example.test", "api.example.test:port", true),
        ] {
            assert_eq!(at(url, &[named, ("NO_PROXY", without)]).is_some(), is, "{url} {without}");
        }
    }
}
