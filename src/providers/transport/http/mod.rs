//! One endpoint of one provider: where it is, how it is asked, how long we wait, and what may be said about it.

mod coalesce;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response, Url};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use self::coalesce::coalesce;
use crate::providers::env_config::{EndpointLabels, EndpointNames, Proxy, Timeouts};
use crate::providers::transport::retry::FailedAttempt;
use crate::providers::transport::stale_connection::is_connection_closed;
use crate::providers::transport::transport_error::{classify_transport_error, root_cause};
use crate::providers::{ConnectContext, ProviderError, ProviderErrorKind, base_url};
use crate::redaction::Redactor;

/// The greatest size in bytes of a whole answer.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// The greatest length in characters of a foreign text within a message.
const MAX_QUOTE_CHARS: usize = 600;

/// Where a provider is. A clone shares its connections.
#[derive(Clone)]
pub(crate) struct Endpoint {
    url: Url,
    /// The URL without credentials and query.
    display_url: String,
    /// The API's own part of the path.
    path: String,
    labels: EndpointLabels,
    headers: HeaderMap,
    user_agent: String,
    timeouts: Timeouts,
    /// The variable that names the proxy in between, where there is one.
    proxy: Option<Proxy>,
    /// What is struck out of foreign texts, beside what is masked.
    secrets: Vec<String>,
    redactor: Redactor,
    /// What is masked of the address in other forms, such as base64.
    address_redactor: Redactor,
    /// Whether a connection may be in use again; see [`crate::providers::stale`].
    may_reuse_connection: Arc<AtomicBool>,
    /// Whether the last request was cut off in clear text.
    was_closed_in_plaintext: Arc<AtomicBool>,
    client: Arc<OnceCell<Client>>,
}

impl Endpoint {
    /// The endpoint `path` below the base URL of the user's own server, or that the environment names, or below `default`.
    /// A base may end with a slash, with `path` itself, or with the version (`/v1`, `/v1beta`) that `path` begins with; its
    /// credentials and query are kept for the request and never shown.
    ///
    /// # Errors
    /// The base isn't an http or https URL.
    pub(crate) fn new(
        connect: &ConnectContext<'_>,
        names: EndpointNames,
        default: &str,
        path: &str,
    ) -> Result<Self, ProviderError> {
        let called = EndpointLabels::new(connect, names);
        let own = match connect.server {
            Some(server) => Some(server.base_url().to_owned()),
            None => (connect.env)(names.base_url_env).filter(|base| !base.trim().is_empty()),
        };
        let base = own.as_deref().unwrap_or(default).trim();
        let Some(mut url) = base_url::parse(base) else {
            let what = format!("{} {}", called.base_url_source, base_url::invalid_reason(base));
            let hint = format!("write it like {default}, or leave it out");
            return Err(ProviderError::new(ProviderErrorKind::Rejected, what).with_hint(hint));
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
        let shown = base_url::without_credentials(&url);
        let timeouts = Timeouts::new(connect.env)?;
        let proxy =
            if bypasses_proxy(&url) { None } else { Proxy::for_host(connect.env, url.host_str().unwrap_or_default()) };
        Ok(Self {
            proxy,
            url,
            display_url: shown,
            path: path.to_owned(),
            labels: called,
            headers: HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]),
            user_agent: connect.user_agent.to_owned(),
            timeouts,
            secrets,
            redactor: connect.redactor.clone(),
            address_redactor: Redactor::new(&named).0,
            may_reuse_connection: Arc::default(),
            was_closed_in_plaintext: Arc::default(),
            client: Arc::default(),
        })
    }

    /// The endpoint one segment further down, over the same connections, with one more pair in its query.
    pub(crate) fn child(&self, segment: &str, (name, value): (&str, &str)) -> Self {
        let mut below = self.clone();
        if let Ok(mut segments) = below.url.path_segments_mut() {
            segments.pop_if_empty().push(segment);
        }
        below.url.query_pairs_mut().append_pair(name, value);
        below.path.push_str(below.url.path().strip_prefix(self.url.path()).unwrap_or_default());
        below.display_url = base_url::without_credentials(&below.url);
        below
    }

    /// Sends a header with every request.
    pub(crate) fn header(&mut self, name: &'static str, value: &'static str) {
        self.headers.insert(name, HeaderValue::from_static(value));
    }

    /// Sends a key with every request, `before` standing before it, and never shows it.
    pub(crate) fn secret_header(&mut self, name: &'static str, before: &str, key: &str) {
        if let Ok(mut value) = HeaderValue::from_str(&format!("{before}{key}")) {
            value.set_sensitive(true);
            self.headers.insert(name, value);
        }
        self.add_secret(key);
    }

    /// Never shows this.
    pub(crate) fn add_secret(&mut self, secret: &str) {
        self.secrets.push(secret.to_owned());
    }

    /// What stands for its base address, with its credentials, and the key: whatever has the same shares a rate limit.
    pub(crate) fn identity(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let url = [self.base_url(), self.url.username(), self.url.password().unwrap_or_default()];
        let query = self.url.query().unwrap_or_default();
        let keys = self.headers.values().filter(|value| value.is_sensitive()).map(HeaderValue::as_bytes);
        for part in url.into_iter().chain([query]).map(str::as_bytes).chain(keys) {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    /// What its parts are called.
    pub(crate) fn labels(&self) -> &EndpointLabels {
        &self.labels
    }

    /// Whether a key goes with every request.
    pub(crate) fn has_key(&self) -> bool {
        self.headers.values().any(HeaderValue::is_sensitive)
    }

    /// The URL without credentials and query.
    pub(crate) fn display_url(&self) -> &str {
        &self.display_url
    }

    /// Whether the base URL is the given one, and not a gateway's.
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

    /// Whether it is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        is_loopback(&self.url)
    }

    /// The proxy in between, where one is named.
    pub(crate) fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// That the key goes over a network in clear text, or past a proxy that was asked for, where it does.
    pub(crate) fn warning(&self) -> Option<String> {
        if let Some(Proxy { variable, is_usable: false }) = self.proxy {
            return Some(format!("{variable} isn't the address of a proxy, such as http://HOST:PORT, so none is used"));
        }
        (self.is_plaintext() && !self.is_loopback()).then(|| {
            let Self { labels: EndpointLabels { base_url_source: base, .. }, display_url: shown, .. } = self;
            let what = if self.has_key() { "the key goes" } else { "everything goes" };
            format!("{base} is no https:// address: {what} to {shown} in clear text")
        })
    }

    /// The bound on a connection's beginning, TLS included.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.timeouts.connect
    }

    /// How long a stream that said why the reply ended may still say what it cost.
    pub(crate) fn trailing_timeout(&self) -> Duration {
        self.timeouts.idle.min(Duration::from_secs(5))
    }

    /// The bound on one whole request.
    pub(crate) fn request_timeout(&self) -> Duration {
        self.timeouts.total
    }

    /// A foreign text without secrets. Before it is cut, for nothing knows a part of a secret.
    pub(crate) fn redact(&self, text: &str) -> String {
        let mut text = self.redactor.redact(text).into_owned();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), "[secret]");
        }
        self.address_redactor.redact(&text).into_owned()
    }

    /// A foreign text as it may be shown: one line without secrets and control characters, bounded.
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

    /// Sends one request whose body is the pieces one after the other, and waits for the answer's head.
    pub(crate) async fn post(&self, pieces: Vec<Bytes>) -> Result<HttpResponse<'_>, FailedAttempt> {
        let client =
            self.client.get_or_try_init(|| async { self.build_client() }).await.map_err(FailedAttempt::permanent)?;
        let may_be_stale = self.may_reuse_connection.load(Ordering::Relaxed);
        let begun = Instant::now();
        let mut sent = self.send(client, pieces.clone()).await;
        // One that had been closed before shows it at once: what breaks later may have been worked on, and is a failed try.
        let is_at_once = begun.elapsed() <= self.timeouts.connect / 5;
        if may_be_stale && is_at_once && matches!(&sent, Ok(Err(error)) if is_connection_closed(error)) {
            sent = self.send(client, pieces).await;
        }
        self.may_reuse_connection.store(matches!(sent, Ok(Ok(_))), Ordering::Relaxed);
        let is_cut = self.is_plaintext() && matches!(&sent, Ok(Err(error)) if is_connection_closed(error));
        self.was_closed_in_plaintext.store(is_cut, Ordering::Relaxed);
        match sent {
            Ok(Ok(response)) => Ok(HttpResponse { endpoint: self, response, received_bytes: 0 }),
            Ok(Err(error)) => Err(classify_transport_error(error, self)),
            Err(_) => Err(FailedAttempt::transient(format!(
                "{} didn't answer for {:?}",
                self.display_url,
                self.timeouts.idle * 3
            ))),
        }
    }

    /// What to ask again with and where, if the last request was cut off in clear text.
    pub(crate) fn closed_plaintext_client(&self) -> Option<(&Client, &Url)> {
        Some((self.client.get()?, &self.url)).filter(|_| self.was_closed_in_plaintext.load(Ordering::Relaxed))
    }

    async fn send(&self, client: &Client, pieces: Vec<Bytes>) -> Result<reqwest::Result<Response>, Elapsed> {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let body = reqwest::Body::wrap_stream(stream::iter(coalesce(pieces).into_iter().map(Ok::<_, Infallible>)));
        let request =
            client.post(self.url.clone()).headers(self.headers.clone()).header(CONTENT_LENGTH, length).body(body);
        timeout(self.timeouts.idle * 3, request.send()).await
    }

    fn build_client(&self) -> Result<Client, ProviderError> {
        let mut builder = Client::builder()
            .user_agent(&self.user_agent)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(self.timeouts.connect);
        let is_plain = self.is_plaintext();
        if bypasses_proxy(&self.url) {
            builder = builder.no_proxy();
        }
        if is_plain {
            // Loading the system's certificates is most of what a client costs.
            builder = builder.tls_certs_only(std::iter::empty());
        }
        builder.build().map_err(|error| {
            ProviderError::new(
                ProviderErrorKind::Rejected,
                format!("the HTTP client can't be set up: {}", self.quote(&root_cause(&error))),
            )
            .with_hint("check the system's certificates, SSL_CERT_FILE and the proxy variables")
        })
    }

    /// Its host and port.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host(), self.url.port_or_known_default().unwrap_or_default())
    }

    /// Where a redirect leads, without credentials and query; and the base address of that, where it is the same API's.
    pub(crate) fn redirect_target(&self, location: &str) -> (String, Option<String>) {
        let Ok(to) = self.url.join(location) else {
            return (self.quote(location.split('?').next().unwrap_or_default()), None);
        };
        if !matches!(to.scheme(), "http" | "https") {
            return (self.quote(location.split('?').next().unwrap_or_default()), None);
        }
        let shown = base_url::without_credentials(&to);
        let base = shown.strip_suffix(&self.path).map(str::to_owned);
        (self.quote(&shown), base.map(|base| self.quote(&base)))
    }

    /// The base address that its path stands below, without credentials and query.
    pub(crate) fn base_url(&self) -> &str {
        self.display_url.strip_suffix(&self.path).unwrap_or(&self.display_url)
    }

    /// Whether the API's own part of the path, which names no version, is all of it.
    pub(crate) fn is_at_root(&self) -> bool {
        self.url.path() == self.path && !self.path.starts_with("/v1")
    }

    /// Whether everything goes in clear text.
    pub(crate) fn is_plaintext(&self) -> bool {
        self.url.scheme() == "http"
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether it is asked past any proxy, which tunnels https and sees nothing, but of http would see the key.
fn bypasses_proxy(url: &Url) -> bool {
    url.scheme() == "http" || is_loopback(url)
}

/// An answer whose head has come.
pub(crate) struct HttpResponse<'a> {
    endpoint: &'a Endpoint,
    response: Response,
    received_bytes: usize,
}

impl HttpResponse<'_> {
    /// Its status code.
    pub(crate) fn status(&self) -> reqwest::StatusCode {
        self.response.status()
    }

    /// Its headers.
    pub(crate) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name)?.to_str().ok()
    }

    /// Its media type in lower case, without parameters; empty where there is none.
    pub(crate) fn media_type(&self) -> String {
        let whole = self.header("content-type").unwrap_or_default();
        whole.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// How its body is packed, where it is: `gzip`.
    pub(crate) fn content_encoding(&self) -> Option<String> {
        let packing = self.header("content-encoding")?.trim();
        (!packing.is_empty() && !packing.eq_ignore_ascii_case("identity")).then(|| self.endpoint.quote(packing))
    }

    /// The next bytes of its body, `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, FailedAttempt> {
        let idle = self.endpoint.timeouts.idle;
        match timeout(idle, self.response.chunk()).await {
            Ok(Ok(chunk)) => {
                self.received_bytes += chunk.as_ref().map_or(0, Bytes::len);
                if self.received_bytes > MAX_RESPONSE_BYTES {
                    let message =
                        format!("{} answered with more than {MAX_RESPONSE_BYTES} bytes", self.endpoint.display_url);
                    // No reply is a tenth of that: the next one would be no other.
                    return Err(FailedAttempt::permanent(ProviderError::new(ProviderErrorKind::Failed, message)));
                }
                Ok(chunk)
            }
            Ok(Err(error)) => Err(FailedAttempt::transient(format!(
                "the answer of {} broke off: {}",
                self.endpoint.display_url,
                self.endpoint.quote(&root_cause(&error.without_url()))
            ))),
            Err(_) => Err(FailedAttempt::transient(format!("{} sent nothing for {idle:?}", self.endpoint.display_url))),
        }
    }

    /// The whole body. Of one that is longer than `most` bytes only the start comes.
    pub(crate) async fn body(&mut self, most: usize) -> Result<Vec<u8>, FailedAttempt> {
        let mut body = Vec::new();
        while body.len() <= most {
            match self.chunk().await? {
                Some(chunk) => body.extend_from_slice(&chunk),
                None => break,
            }
        }
        Ok(body)
    }

    /// Reads what a server sends after the end of what it had to say, so that the connection can be used again; one
    /// that doesn't end at once isn't waited for.
    pub(crate) async fn drain(mut self) {
        let end = async { while let Ok(Some(_)) = self.response.chunk().await {} };
        let _ = timeout(Duration::from_millis(100), end).await;
    }
}
