//! An endpoint of a provider: its address, headers and credentials, and how they are shown without secrets.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::future::BoxFuture;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Identity, Url};
use sha2::{Digest, Sha256};

use crate::providers::api::ProviderError;
use crate::providers::api_key::ApiKey;
use crate::providers::base_url;
use crate::providers::env_config::{EndpointLabels, EndpointNames, Proxy, Timeouts, is_in_no_proxy};
use crate::providers::model::Model;
use crate::providers::spec::{ConnectContext, ProviderSpec};
use crate::providers::transport::key_command::{IssuedKey, KeyCommand};
use crate::providers::transport::retry::FailedAttempt;
use crate::providers::transport::thread_clients::ThreadClients;
use crate::redaction::Redactor;

/// The maximum length in characters of a server's text within a message.
const MAX_QUOTE_CHARS: usize = 600;

/// An endpoint of a provider. A clone shares its connections.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(super) url: Url,
    /// The URL without credentials and query.
    pub(crate) display_url: String,
    /// The API's own part of the path.
    path: String,
    /// The names of its parts in messages.
    pub(crate) labels: EndpointLabels,
    headers: HeaderMap,
    /// The command that prints the key.
    key_command: Option<Arc<KeyCommand>>,
    /// The headers with the key of the command, and what is before the key.
    key_headers: Vec<(HeaderName, &'static str)>,
    pub(super) user_agent: String,
    pub(super) timeouts: Timeouts,
    flex_timeouts: Timeouts,
    /// Whether requests are for flex processing.
    pub(crate) is_flex: bool,
    /// The proxy between legwork and the server, if any.
    pub(super) proxy: Option<Proxy>,
    /// Whether no proxy is used, whatever the HTTP library would do.
    pub(super) bypasses_proxy: bool,
    /// The certificate that is shown to the server, with its key.
    pub(super) certificate: Option<Identity>,
    /// What the operator should know before the first request.
    notice: Option<String>,
    /// Secrets to remove from the server's texts, in addition to the run's secrets.
    secrets: Vec<String>,
    redactor: Redactor,
    /// Finds the address's secrets in encoded forms, such as base64.
    address_redactor: Redactor,
    /// Whether the next request may reuse a connection, which may be stale; see [`super::http`].
    pub(super) may_reuse_connection: Arc<AtomicBool>,
    /// Whether the server closed the connection of the last plaintext request.
    pub(super) was_closed_in_plaintext: Arc<AtomicBool>,
    pub(super) clients: Arc<ThreadClients>,
    /// All providers, for recognizing replies of another API.
    pub(crate) providers: &'static [ProviderSpec],
}

impl Endpoint {
    /// The endpoint `path` below the base URL of the server in `providers.toml`, or of the environment, or `default`. A
    /// base may end with a slash, with `path` itself, or with the version (`/v1`, `/v1beta`) that `path` begins with.
    /// Its credentials and query are sent with requests and never shown.
    ///
    /// # Errors
    /// The base isn't an http or https URL.
    pub(crate) fn new(
        connect: &ConnectContext<'_>,
        names: EndpointNames,
        default: &str,
        path: &str,
    ) -> Result<Self, ProviderError> {
        let labels = EndpointLabels::new(connect, names);
        let configured = match connect.server {
            Some(server) => Some(server.base_url.clone()),
            None => (connect.env)(names.base_url_env).filter(|base| !base.trim().is_empty()),
        };
        let base = configured.as_deref().unwrap_or(default).trim();
        let Some(mut url) = base_url::parse(base) else {
            let what = format!("{} {}", labels.base_url_source, base_url::invalid_reason(base));
            let hint = format!("write it like {default}, or leave it out");
            return Err(ProviderError::rejected(what).with_hint(hint));
        };
        let below = url.path().trim_end_matches('/');
        let below = below.strip_suffix(path).unwrap_or(below);
        let version = path.match_indices('/').nth(1).map_or("", |(end, _)| &path[..end]);
        let version = if version.starts_with("/v1") { version } else { "" };
        let below = below.strip_suffix(version).unwrap_or(below).trim_end_matches('/');
        let whole = format!("{below}{path}");
        url.set_path(&whole);
        url.set_fragment(None);
        let secrets = base_url::secret_parts(&url);
        let named: Vec<(String, String)> =
            secrets.iter().map(|secret| ("address".to_owned(), secret.clone())).collect();
        let display_url = connect.redactor.redact(&base_url::without_credentials(&url)).into_owned();
        let timeouts = Timeouts::new(connect)?;
        let bypasses_proxy = bypasses_proxy(connect.env, &url);
        let proxy = if bypasses_proxy { None } else { Proxy::for_url(connect.env, &url) };
        let certificate = connect.client_identity(labels.key_name(), url.scheme())?;
        let mut endpoint = Self {
            proxy,
            bypasses_proxy,
            certificate,
            notice: None,
            url,
            display_url,
            path: path.to_owned(),
            labels,
            headers: HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]),
            key_command: None,
            key_headers: Vec::new(),
            user_agent: connect.user_agent.to_owned(),
            timeouts,
            flex_timeouts: Timeouts::for_flex(connect)?,
            is_flex: false,
            secrets,
            redactor: connect.redactor.clone(),
            address_redactor: Redactor::new(&named).0,
            may_reuse_connection: Arc::default(),
            was_closed_in_plaintext: Arc::default(),
            clients: Arc::default(),
            providers: connect.providers,
        };
        endpoint.add_configured_values(connect)?;
        Ok(endpoint)
    }

    /// Adds the headers and query parameters of `providers.toml`.
    fn add_configured_values(&mut self, connect: &ConnectContext<'_>) -> Result<(), ProviderError> {
        let Some(settings) = connect.settings.map(|it| it.settings) else { return Ok(()) };
        for (name, value) in &settings.query {
            let (value, is_secret) = connect.resolve_value(value)?;
            self.url.query_pairs_mut().append_pair(name, &value);
            if is_secret {
                self.add_secret(&value);
            }
        }
        for (name, value) in &settings.headers {
            let (value, is_secret) = connect.resolve_value(value)?;
            let Ok(mut header) = HeaderValue::from_str(&value) else { continue };
            header.set_sensitive(is_secret);
            self.headers.insert(name.clone(), header);
            if is_secret {
                self.add_secret(&value);
                value.split_once(' ').into_iter().for_each(|(_, token)| self.add_secret(token));
            }
        }
        Ok(())
    }

    /// The endpoint for the requests of a model, which may wait longer. It shares the connections.
    pub(crate) fn for_model(&self, model: &Model) -> Self {
        if !model.is_flex() {
            return self.clone();
        }
        Self { timeouts: self.flex_timeouts, is_flex: true, ..self.clone() }
    }

    /// The endpoint with a further path segment and query pair. It shares the connections.
    pub(crate) fn child(&self, segment: &str, query: Option<(&str, &str)>) -> Self {
        let mut below = self.clone();
        if let Ok(mut segments) = below.url.path_segments_mut() {
            segments.pop_if_empty().push(segment);
        }
        if let Some((name, value)) = query {
            below.url.query_pairs_mut().append_pair(name, value);
        }
        below.path.push_str(below.url.path().strip_prefix(self.url.path()).unwrap_or_default());
        below.display_url = self.redactor.redact(&base_url::without_credentials(&below.url)).into_owned();
        below
    }

    /// The address of the list of models: `/v1/models` for `/v1/messages`.
    pub(super) fn models_url(&self) -> Url {
        let mut url = self.url.clone();
        let below = url.path().strip_suffix(&self.path).unwrap_or_default();
        let version = self.path.match_indices('/').nth(1).map_or("", |(end, _)| &self.path[..end]);
        let path = format!("{below}{version}/models");
        url.set_path(&path);
        url
    }

    /// Sends a header with every request, unless `providers.toml` sets it.
    pub(crate) fn header(&mut self, name: &'static str, value: &'static str) {
        self.headers.entry(name).or_insert(HeaderValue::from_static(value));
    }

    /// Sends a header whose value isn't a secret with every request, unless `providers.toml` sets it.
    pub(crate) fn value_header(&mut self, name: &'static str, value: HeaderValue) {
        self.headers.entry(name).or_insert(value);
    }

    /// Sends a key with every request, after `prefix`, and never shows it. A header in `providers.toml` takes precedence.
    pub(crate) fn key_header(&mut self, name: &'static str, prefix: &'static str, key: &ApiKey) {
        let has_own = self.headers.contains_key(name);
        match key {
            ApiKey::Fixed(key) => {
                if let Some(value) = key_value(prefix, key).filter(|_| !has_own) {
                    self.headers.insert(name, value);
                }
                self.add_secret(key);
            }
            ApiKey::Command(command) => {
                self.key_command = Some(Arc::clone(command));
                if !has_own {
                    self.key_headers.push((HeaderName::from_static(name), prefix));
                }
            }
        }
    }

    /// Takes a key that isn't sent, because the address has credentials.
    pub(crate) fn unsent_key(&mut self, key: &ApiKey) {
        if let ApiKey::Fixed(key) = key {
            self.add_secret(key);
        }
    }

    /// The key of the command; `None` without a command.
    ///
    /// # Errors
    /// The command fails.
    pub(super) async fn issued_key(&self) -> Result<Option<IssuedKey>, FailedAttempt> {
        match &self.key_command {
            Some(command) => command.current().await.map(Some),
            None => Ok(None),
        }
    }

    /// Replaces a key of the command that the server has refused.
    ///
    /// # Errors
    /// The command fails.
    pub(super) async fn renew_key(&self, refused: u64) -> Result<(), FailedAttempt> {
        match &self.key_command {
            Some(command) => command.renew(refused).await,
            None => Ok(()),
        }
    }

    /// Checks the client certificate, and gets the first key, if a command prints it.
    pub(crate) fn prepare(&self) -> Option<BoxFuture<'_, Result<(), ProviderError>>> {
        if self.key_command.is_none() && self.certificate.is_none() {
            return None;
        }
        Some(Box::pin(async {
            self.client()?;
            self.issued_key().await.map(drop).map_err(|failure| failure.error)
        }))
    }

    /// Tells the operator something before the first request.
    pub(crate) fn set_notice(&mut self, notice: String) {
        self.notice = Some(notice);
    }

    /// The headers of a request with this key of the command.
    pub(super) fn request_headers(&self, issued: Option<&IssuedKey>) -> HeaderMap {
        let mut headers = self.headers.clone();
        for (name, prefix) in &self.key_headers {
            if let Some(value) = issued.and_then(|issued| key_value(prefix, &issued.key)) {
                headers.insert(name, value);
            }
        }
        headers
    }

    /// Adds a text that is never shown.
    pub(crate) fn add_secret(&mut self, secret: &str) {
        self.secrets.push(secret.to_owned());
    }

    /// A hash of base address, credentials and key: endpoints with the same identity share a rate limit.
    pub(crate) fn identity(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let url = [self.base_url(), self.url.username(), self.url.password().unwrap_or_default()];
        let query = self.url.query().unwrap_or_default();
        let keys = self.headers.values().filter(|value| value.is_sensitive()).map(HeaderValue::as_bytes);
        let command = self.key_command.iter().flat_map(|command| command.identity());
        for part in url.into_iter().chain([query]).map(str::as_bytes).chain(keys).chain(command) {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    /// Whether requests carry a key.
    pub(crate) fn has_key(&self) -> bool {
        self.key_command.is_some() || self.headers.values().any(HeaderValue::is_sensitive)
    }

    /// Whether the endpoint is on this host, rather than a gateway's.
    pub(crate) fn has_host(&self, host: &str) -> bool {
        self.host() == host
    }

    /// The host in lower case.
    pub(crate) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Whether the URL itself holds credentials, which reqwest sends as `Authorization: Basic`.
    pub(crate) fn has_credentials(&self) -> bool {
        !self.url.username().is_empty() || self.url.password().is_some()
    }

    /// The warning if the key is sent over a network in plaintext, or the configured proxy can't be used.
    pub(crate) fn warning(&self) -> Option<String> {
        if let Some(Proxy { variable, is_usable: false }) = self.proxy {
            return Some(format!(
                "{variable} isn't the address of a proxy, such as http://HOST:PORT, so no proxy is used"
            ));
        }
        let is_exposed = self.is_plaintext() && !base_url::is_loopback_url(&self.url);
        let plaintext = is_exposed.then(|| {
            let (base, url) = (&self.labels.base_url_source, &self.display_url);
            let what = if self.has_key() { "the key is sent" } else { "everything is sent" };
            format!("{base} isn't an https:// address: {what} to {url} in plaintext")
        });
        plaintext.or_else(|| self.notice.clone())
    }

    /// How long to wait for the usage after a stream has reported the stop reason.
    pub(crate) fn trailing_timeout(&self) -> Duration {
        self.timeouts.idle.min(Duration::from_secs(5))
    }

    /// A server's text without secrets. Redact before truncating: a part of a secret isn't recognized.
    pub(crate) fn redact(&self, text: &str) -> String {
        let mut text = self.redactor.redact(text).into_owned();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), "[secret]");
        }
        self.address_redactor.redact(&text).into_owned()
    }

    /// A server's text for a message: one line of bounded length, without secrets and control characters.
    pub(crate) fn quote(&self, text: &str) -> String {
        let text = self.redact(text);
        let words: Vec<&str> =
            text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
        let text = words.join(" ");
        match text.char_indices().nth(MAX_QUOTE_CHARS) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }

    /// Host and port.
    pub(crate) fn authority(&self) -> String {
        let authority = format!("{}:{}", self.host(), self.url.port_or_known_default().unwrap_or_default());
        self.redactor.redact(&authority).into_owned()
    }

    /// The target of a redirect without credentials and query, and its base address if the path is that of the API.
    pub(crate) fn redirect_target(&self, location: &str) -> (String, Option<String>) {
        let target = self.url.join(location).ok().filter(|to| matches!(to.scheme(), "http" | "https"));
        let Some(to) = target else {
            return (self.quote(location.split('?').next().unwrap_or_default()), None);
        };
        let shown = base_url::without_credentials(&to);
        let base = shown.strip_suffix(&self.path).map(str::to_owned);
        (self.quote(&shown), base.map(|base| self.quote(&base)))
    }

    /// The base address, without credentials and query.
    pub(crate) fn base_url(&self) -> &str {
        self.display_url.strip_suffix(&self.path).unwrap_or(&self.display_url)
    }

    /// Whether the base address has no path, and the API's own path has no version.
    pub(crate) fn is_at_root(&self) -> bool {
        self.url.path() == self.path && !self.path.starts_with("/v1")
    }

    /// Whether the connection is unencrypted.
    pub(crate) fn is_plaintext(&self) -> bool {
        self.url.scheme() == "http"
    }
}

/// A header with a key. Its debug output doesn't show it.
fn key_value(prefix: &str, key: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("{prefix}{key}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Whether requests bypass any proxy: by `NO_PROXY`, or because it would see what is sent. It can't read tunneled https.
pub(crate) fn bypasses_proxy(variable: &dyn Fn(&str) -> Option<String>, url: &Url) -> bool {
    url.scheme() == "http" || base_url::is_loopback_url(url) || is_in_no_proxy(variable, url)
}
