//! One endpoint of one provider: where it is, how it is asked, how long we wait, and what may be said about it.

mod joined;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response, Url};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use self::joined::joined;
use super::retry::{Again, Failure};
use super::{Fault, FaultKind};
use crate::mask::Mask;

/// The greatest size in bytes of a whole answer.
const LARGEST_ANSWER: usize = 64 << 20;
/// The greatest length in characters of a foreign text within a message.
const LONGEST_QUOTE: usize = 600;

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
    pub(super) fn new(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, Fault> {
        Ok(Self {
            connect: milliseconds(variable, "LEGWORK_CONNECT_TIMEOUT_MS", 10_000)?,
            idle: milliseconds(variable, "LEGWORK_IDLE_TIMEOUT_MS", 90_000)?,
            total: milliseconds(variable, "LEGWORK_REQUEST_TIMEOUT_MS", 15 * 60_000)?,
        })
    }
}

/// A duration from the environment.
///
/// # Errors
/// The variable holds something else than a number from 1 to a day's.
pub(super) fn milliseconds(
    variable: &dyn Fn(&str) -> Option<String>,
    name: &str,
    default: u64,
) -> Result<Duration, Fault> {
    let Some(text) = variable(name) else { return Ok(Duration::from_millis(default)) };
    match text.trim().parse() {
        Ok(number @ 1..=86_400_000) => Ok(Duration::from_millis(number)),
        _ => Err(Fault::new(FaultKind::Rejected, format!("{name} isn't a number of milliseconds from 1 to 86400000"))),
    }
}

/// A key from the environment.
///
/// # Errors
/// It is missing, empty, or can't stand in a header. The message never holds any of it.
pub(super) fn key(variable: &dyn Fn(&str) -> Option<String>, name: &str) -> Result<String, Fault> {
    let rejected = |message| Err(Fault::new(FaultKind::Rejected, message));
    match variable(name) {
        None => rejected(format!("{name} is not set")),
        Some(key) if key.is_empty() => rejected(format!("{name} is empty")),
        Some(key) if key.ends_with(['\n', '\r']) => rejected(format!("{name} ends with a line break")),
        Some(key) if !key.bytes().all(|byte| byte.is_ascii_graphic()) => {
            rejected(format!("{name} holds a space, a control character or a letter outside ASCII"))
        }
        Some(key) => Ok(key),
    }
    .map_err(|fault| fault.hint(format!("put the key, and nothing else, into {name}")))
}

/// What a provider's parts are called, for whoever reads a fault.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    /// The variable with the key.
    pub(super) key: &'static str,
    /// The variable with the address, where it isn't the provider's own.
    pub(super) base: &'static str,
    /// The API: `the Messages API`.
    pub(super) api: &'static str,
}

/// Where a provider is. A clone shares its connections.
#[derive(Clone)]
pub(super) struct Endpoint {
    url: Url,
    /// The URL without credentials and query.
    shown: String,
    names: Names,
    headers: HeaderMap,
    user_agent: String,
    timeouts: Timeouts,
    /// What is struck out of foreign texts, beside what is masked.
    secrets: Vec<String>,
    mask: Mask,
    client: Arc<OnceCell<Client>>,
}

impl Endpoint {
    /// The endpoint `path` below the base URL that the environment names, or below `default`. A base may end with a
    /// slash, with `path` itself, or with the version (`/v1`, `/v1beta`) that `path` begins with; its credentials and
    /// query are kept for the request and never shown.
    ///
    /// # Errors
    /// The base isn't an http or https URL.
    pub(super) fn new(connect: &super::Connect<'_>, names: Names, default: &str, path: &str) -> Result<Self, Fault> {
        let base_variable = names.base;
        let base = (connect.variable)(base_variable).filter(|base| !base.trim().is_empty());
        let base = base.as_deref().unwrap_or(default).trim();
        let url = Url::parse(base).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let Some(mut url) = url else {
            return Err(Fault::new(
                FaultKind::Rejected,
                format!("{base_variable} isn't an http:// or https:// address"),
            )
            .hint(format!("write it like {default}, or leave it out")));
        };
        let below = url.path().trim_end_matches('/');
        let below = below.strip_suffix(path).unwrap_or(below);
        let version = path.match_indices('/').nth(1).map_or("", |(end, _)| &path[..end]);
        let version = if version.starts_with("/v1") { version } else { "" };
        let below = below.strip_suffix(version).unwrap_or(below).trim_end_matches('/');
        let whole = format!("{below}{path}");
        url.set_path(&whole);
        url.set_fragment(None);
        let mut secrets = Vec::new();
        secrets.extend(url.password().map(str::to_owned));
        secrets.extend(url.query().map(str::to_owned));
        let shown = format!("{}{}", url.origin().ascii_serialization(), url.path());
        let timeouts = Timeouts::new(connect.variable)?;
        Ok(Self {
            url,
            shown,
            names,
            headers: HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]),
            user_agent: connect.user_agent.to_owned(),
            timeouts,
            secrets: secrets.into_iter().filter(|secret| secret.len() >= 4).collect(),
            mask: connect.mask.clone(),
            client: Arc::default(),
        })
    }

    /// The endpoint one segment further down, over the same connections, with one more pair in its query.
    pub(super) fn below(&self, segment: &str, (name, value): (&str, &str)) -> Self {
        let mut below = self.clone();
        if let Ok(mut segments) = below.url.path_segments_mut() {
            segments.pop_if_empty().push(segment);
        }
        below.url.query_pairs_mut().append_pair(name, value);
        below.shown = format!("{}{}", below.url.origin().ascii_serialization(), below.url.path());
        below
    }

    /// Sends a header with every request.
    pub(super) fn header(&mut self, name: &'static str, value: &'static str) {
        self.headers.insert(name, HeaderValue::from_static(value));
    }

    /// Sends a key with every request, `before` standing before it, and never shows it.
    pub(super) fn secret_header(&mut self, name: &'static str, before: &str, key: &str) {
        if let Ok(mut value) = HeaderValue::from_str(&format!("{before}{key}")) {
            value.set_sensitive(true);
            self.headers.insert(name, value);
        }
        self.secret(key);
    }

    /// Never shows this.
    pub(super) fn secret(&mut self, secret: &str) {
        self.secrets.push(secret.to_owned());
    }

    /// What its parts are called.
    pub(super) fn names(&self) -> Names {
        self.names
    }

    /// Whether a key goes with every request.
    pub(super) fn has_key(&self) -> bool {
        self.headers.values().any(HeaderValue::is_sensitive)
    }

    /// The URL without credentials and query.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// Whether the base URL is the given one, and not a gateway's.
    pub(super) fn is_at(&self, host: &str) -> bool {
        self.host() == host
    }

    /// The host in lower case.
    pub(super) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Whether the URL itself holds credentials, which reqwest sends as `Authorization: Basic`.
    pub(super) fn has_credentials(&self) -> bool {
        !self.url.username().is_empty() || self.url.password().is_some()
    }

    fn is_loopback(&self) -> bool {
        let host = self.url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// That the key goes over a network in clear text, where it does.
    pub(super) fn warning(&self) -> Option<String> {
        (self.url.scheme() == "http" && !self.is_loopback()).then(|| {
            let Self { names: Names { base, .. }, shown, .. } = self;
            let what = if self.has_key() { "the key goes" } else { "everything goes" };
            format!("{base} is no https:// address: {what} to {shown} in clear text")
        })
    }

    /// The bound on one whole request.
    pub(super) fn total(&self) -> Duration {
        self.timeouts.total
    }

    /// A foreign text without secrets. Before it is cut, for nothing knows a part of a secret.
    pub(super) fn masked(&self, text: &str) -> String {
        let mut text = self.mask.text(text).into_owned();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), "[secret]");
        }
        text
    }

    /// A foreign text as it may be shown: one line without secrets and control characters, bounded.
    pub(super) fn quote(&self, text: &str) -> String {
        let text = self.masked(text);
        let words: Vec<&str> =
            text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
        let text = words.join(" ");
        match text.char_indices().nth(LONGEST_QUOTE) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }

    /// Sends one request whose body is the pieces one after the other, and waits for the answer's head.
    pub(super) async fn post(&self, pieces: Vec<Bytes>) -> Result<Answer<'_>, Failure> {
        let client = self.client.get_or_try_init(|| async { self.build() }).await.map_err(Failure::last)?;
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let body = reqwest::Body::wrap_stream(stream::iter(joined(pieces).into_iter().map(Ok::<_, Infallible>)));
        let request =
            client.post(self.url.clone()).headers(self.headers.clone()).header(CONTENT_LENGTH, length).body(body);
        match timeout(self.timeouts.idle * 3, request.send()).await {
            Ok(Ok(response)) => Ok(Answer { endpoint: self, response, taken: 0 }),
            Ok(Err(error)) => Err(self.unsent(error)),
            Err(_) => Err(Failure::passing(format!("{} didn't answer for {:?}", self.shown, self.timeouts.idle * 3))),
        }
    }

    fn build(&self) -> Result<Client, Fault> {
        let mut builder = Client::builder()
            .user_agent(&self.user_agent)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(self.timeouts.connect);
        let is_plain = self.url.scheme() == "http";
        if is_plain || self.is_loopback() {
            // A proxy tunnels https and sees nothing; of http it would see the key.
            builder = builder.no_proxy();
        }
        if is_plain {
            // Loading the system's certificates is most of what a client costs.
            builder = builder.tls_certs_only(std::iter::empty());
        }
        builder.build().map_err(|error| {
            Fault::new(FaultKind::Rejected, format!("the HTTP client can't be set up: {}", self.quote(&cause(&error))))
                .hint("check the system's certificates, SSL_CERT_FILE and the proxy variables")
        })
    }

    fn unsent(&self, error: reqwest::Error) -> Failure {
        let error = error.without_url();
        let cause = self.quote(&cause(&error));
        if error.is_builder() {
            return Failure::last(Fault::new(FaultKind::Rejected, format!("the request can't be made: {cause}")));
        }
        let at = format!(
            "{}:{}",
            self.url.host_str().unwrap_or_default(),
            self.url.port_or_known_default().unwrap_or_default()
        );
        let mut failure = Failure::passing(if error.is_connect() {
            format!("no connection to {at}: {cause}")
        } else {
            format!("the request to {at} broke off: {cause}")
        });
        failure.fault.hint = Some(format!("check {} and the network, proxy variables included", self.names.base));
        if cause.contains("certificate") {
            failure.again = Again::Never;
            failure.fault.kind = FaultKind::Rejected;
            failure.fault.hint = Some("a private certificate authority goes into SSL_CERT_FILE".to_owned());
        }
        failure
    }
}

/// The innermost reason of an error, which is the one that says something.
fn cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// An answer whose head has come.
pub(super) struct Answer<'a> {
    endpoint: &'a Endpoint,
    response: Response,
    taken: usize,
}

impl Answer<'_> {
    /// Its status code.
    pub(super) fn status(&self) -> reqwest::StatusCode {
        self.response.status()
    }

    /// Its headers.
    pub(super) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// A header as text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name)?.to_str().ok()
    }

    /// Its media type in lower case, without parameters; empty where there is none.
    pub(super) fn media_type(&self) -> String {
        let whole = self.header("content-type").unwrap_or_default();
        whole.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// The next bytes of its body, `None` at its end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        let idle = self.endpoint.timeouts.idle;
        match timeout(idle, self.response.chunk()).await {
            Ok(Ok(chunk)) => {
                self.taken += chunk.as_ref().map_or(0, Bytes::len);
                if self.taken > LARGEST_ANSWER {
                    let message = format!("{} answered with more than {LARGEST_ANSWER} bytes", self.endpoint.shown);
                    return Err(Failure::passing(message));
                }
                Ok(chunk)
            }
            Ok(Err(error)) => Err(Failure::passing(format!(
                "the answer of {} broke off: {}",
                self.endpoint.shown,
                self.endpoint.quote(&cause(&error.without_url()))
            ))),
            Err(_) => Err(Failure::passing(format!("{} sent nothing for {idle:?}", self.endpoint.shown))),
        }
    }

    /// The whole body. Of one that is longer than `most` bytes only the start comes.
    pub(super) async fn body(&mut self, most: usize) -> Result<Vec<u8>, Failure> {
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
    pub(super) async fn drain(mut self) {
        let end = async { while let Ok(Some(_)) = self.response.chunk().await {} };
        let _ = timeout(Duration::from_millis(100), end).await;
    }
}
