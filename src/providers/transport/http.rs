//! Sends requests to an [`Endpoint`] and reads responses.
//!
//! Some servers close a connection after a response without announcing it (llama.cpp does, after each stream), so that
//! the next request is never read. That request is sent again at once over a new connection, which doesn't count as a
//! retry. If it fails again, or fails only after a while, it counts as a failed attempt: the server may have worked on
//! it, and it may be billed twice.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use reqwest::header::{CONTENT_LENGTH, HeaderMap};
use reqwest::{Client, ClientBuilder, Response, Url};
use tokio::time::Sleep;

use crate::providers::api::{ProviderError, ProviderErrorKind};
use crate::providers::transport::endpoint::Endpoint;
use crate::providers::transport::key_command::IssuedKey;
use crate::providers::transport::retry::FailedAttempt;
use crate::providers::transport::transport_error::{classify_transport_error, root_cause};
use crate::running_clock::{Elapsed, MIN_SLEEP, RunningInstant, timeout};

/// The maximum size in bytes of a whole response.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

impl Endpoint {
    /// Sends one request whose body is the concatenated chunks, with this key of a command, and waits for the response's
    /// headers.
    pub(crate) async fn post(
        &self,
        chunks: Vec<Bytes>,
        key: Option<&IssuedKey>,
    ) -> Result<HttpResponse<'_>, FailedAttempt> {
        let client = self.client().map_err(FailedAttempt::permanent)?;
        let may_be_stale = self.may_reuse_connection.load(Ordering::Relaxed);
        let begun = std::time::Instant::now();
        let mut sent = self.send(&client, chunks.clone(), key).await;
        // A connection that was already closed fails at once. After a longer time, the server may have worked on the
        // request, so it counts as a failed attempt.
        let is_at_once = begun.elapsed() <= self.timeouts.connect / 5;
        if may_be_stale && is_at_once && matches!(&sent, Ok(Err(error)) if is_connection_closed(error)) {
            sent = self.send(&client, chunks, key).await;
        }
        self.may_reuse_connection.store(matches!(sent, Ok(Ok(_))), Ordering::Relaxed);
        let is_cut = self.is_plaintext() && matches!(&sent, Ok(Err(error)) if is_connection_closed(error));
        self.was_closed_in_plaintext.store(is_cut, Ordering::Relaxed);
        match sent {
            Ok(Ok(response)) => Ok(HttpResponse::new(self, response)),
            Ok(Err(error)) => Err(classify_transport_error(error, self)),
            Err(_) => Err(self.no_answer()),
        }
    }

    /// Requests the list of models with this key of a command, and waits for the response's headers.
    pub(super) async fn get_models(&self, key: Option<&IssuedKey>) -> Result<HttpResponse<'_>, FailedAttempt> {
        let client = self.client().map_err(FailedAttempt::permanent)?;
        let request = client.get(self.models_url()).headers(self.request_headers(key));
        match timeout(self.timeouts.first_byte, request.send()).await {
            Ok(Ok(response)) => Ok(HttpResponse::new(self, response)),
            Ok(Err(error)) => Err(classify_transport_error(error, self)),
            Err(_) => Err(self.no_answer()),
        }
    }

    fn no_answer(&self) -> FailedAttempt {
        FailedAttempt::transient(format!("{} didn't answer within {:?}", self.display_url, self.timeouts.first_byte))
    }

    /// This thread's HTTP client, which is created once.
    ///
    /// # Errors
    /// It can't be created: the client certificate or the system's certificates can't be used.
    pub(super) fn client(&self) -> Result<Client, ProviderError> {
        if let Some(client) = self.clients.get() {
            return Ok(client);
        }
        let client = self.build_client()?;
        self.clients.set(client.clone());
        Ok(client)
    }

    /// The client and address for a TLS probe, if the server closed the connection of the last plaintext request.
    pub(crate) fn closed_plaintext_client(&self) -> Option<(Client, &Url)> {
        Some((self.clients.get()?, &self.url)).filter(|_| self.was_closed_in_plaintext.load(Ordering::Relaxed))
    }

    async fn send(
        &self,
        client: &Client,
        chunks: Vec<Bytes>,
        key: Option<&IssuedKey>,
    ) -> Result<reqwest::Result<Response>, Elapsed> {
        let length: usize = chunks.iter().map(Bytes::len).sum();
        let body = reqwest::Body::wrap_stream(stream::iter(coalesce(chunks).into_iter().map(Ok::<_, Infallible>)));
        let request =
            client.post(self.url.clone()).headers(self.request_headers(key)).header(CONTENT_LENGTH, length).body(body);
        timeout(self.timeouts.first_byte, request.send()).await
    }

    fn build_client(&self) -> Result<Client, ProviderError> {
        let mut builder = client_builder(&self.url, &self.user_agent).connect_timeout(self.timeouts.connect);
        if self.bypasses_proxy {
            builder = builder.no_proxy();
        }
        if let Some(certificate) = &self.certificate {
            builder = builder.identity(certificate.clone());
        }
        builder.build().map_err(|error| {
            if self.certificate.is_some() {
                let hint = "is `client_key` the key of the certificate in `client_cert`?";
                let cause = self.quote(&root_cause(&error));
                return ProviderError::rejected(format!("the client certificate can't be used: {cause}"))
                    .with_hint(hint);
            }
            ProviderError::rejected(format!("the HTTP client can't be created: {}", self.quote(&root_cause(&error))))
                .with_hint("check the system's certificates, SSL_CERT_FILE and the proxy variables")
        })
    }
}

/// Starts to build a client for requests to this address, which doesn't follow redirects.
pub(crate) fn client_builder(url: &Url, user_agent: &str) -> ClientBuilder {
    // Fails if it was done before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder().user_agent(user_agent).redirect(reqwest::redirect::Policy::none());
    if url.scheme() == "http" {
        // Loading the system's certificates takes most of the time of creating a client.
        return builder.tls_certs_only(std::iter::empty());
    }
    builder
}

/// A response whose headers have arrived.
pub(crate) struct HttpResponse<'a> {
    endpoint: &'a Endpoint,
    response: Response,
    received_bytes: usize,
    idle: IdleTimer,
}

/// Limits the time between two chunks. The timer is only set again when it expires, as a chunk can arrive every few
/// microseconds.
struct IdleTimer {
    limit: Duration,
    /// When the last chunk arrived.
    since: RunningInstant,
    timer: Pin<Box<Sleep>>,
}

impl IdleTimer {
    fn new(limit: Duration) -> Self {
        Self { limit, since: RunningInstant::now(), timer: Box::pin(tokio::time::sleep(limit)) }
    }

    /// Waits for a chunk, or until the limit is reached.
    async fn wait<T>(&mut self, chunk: impl Future<Output = T>) -> Option<T> {
        let mut chunk = pin!(chunk);
        loop {
            tokio::select! {
                biased;
                chunk = &mut chunk => {
                    self.since = RunningInstant::now();
                    return Some(chunk);
                }
                () = &mut self.timer => {}
            }
            let left = (self.since + self.limit).left();
            if left.is_zero() {
                return None;
            }
            self.timer.as_mut().reset(tokio::time::Instant::now() + left.max(MIN_SLEEP));
        }
    }
}

impl<'e> HttpResponse<'e> {
    fn new(endpoint: &'e Endpoint, response: Response) -> Self {
        Self { endpoint, response, received_bytes: 0, idle: IdleTimer::new(endpoint.timeouts.idle) }
    }

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

    /// Its media type in lower case, without parameters. Empty if the header is missing.
    pub(crate) fn media_type(&self) -> String {
        let whole = self.header("content-type").unwrap_or_default();
        whole.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// The content encoding of its body, such as `gzip`.
    pub(crate) fn content_encoding(&self) -> Option<String> {
        let encoding = self.header("content-encoding")?.trim();
        (!encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity")).then(|| self.endpoint.quote(encoding))
    }

    /// The next bytes of its body, `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, FailedAttempt> {
        let idle = self.endpoint.timeouts.idle;
        match self.idle.wait(self.response.chunk()).await {
            Some(Ok(chunk)) => {
                self.received_bytes += chunk.as_ref().map_or(0, Bytes::len);
                if self.received_bytes > MAX_RESPONSE_BYTES {
                    let message =
                        format!("{} answered with more than {MAX_RESPONSE_BYTES} bytes", self.endpoint.display_url);
                    // Replies are less than a tenth of that size, so a retry would fail, too.
                    return Err(FailedAttempt::permanent(ProviderError::new(ProviderErrorKind::Failed, message)));
                }
                Ok(chunk)
            }
            Some(Err(error)) => Err(FailedAttempt::transient(format!(
                "the response of {} was cut off: {}",
                self.endpoint.display_url,
                self.endpoint.quote(&root_cause(&error.without_url()))
            ))),
            None => Err(FailedAttempt::transient(format!("{} sent nothing for {idle:?}", self.endpoint.display_url))),
        }
    }

    /// The whole body, or a prefix of it with at least `max_bytes` bytes.
    pub(crate) async fn body(&mut self, max_bytes: usize) -> Result<Vec<u8>, FailedAttempt> {
        let mut body = Vec::new();
        while body.len() <= max_bytes {
            match self.chunk().await? {
                Some(chunk) => body.extend_from_slice(&chunk),
                None => break,
            }
        }
        Ok(body)
    }

    /// The start of its body: something other than white space, unless nothing else is within `max_bytes`.
    pub(crate) async fn start(&mut self, max_bytes: usize) -> Result<Vec<u8>, FailedAttempt> {
        let mut start = Vec::new();
        while start.trim_ascii().is_empty() && start.len() <= max_bytes {
            match self.chunk().await? {
                Some(chunk) => start.extend_from_slice(&chunk),
                None => break,
            }
        }
        Ok(start)
    }

    /// Reads the rest of the body after the end of a reply, so that the connection can be reused, but waits only
    /// briefly.
    pub(crate) async fn drain(mut self) {
        let end = async { while let Ok(Some(_)) = self.response.chunk().await {} };
        let _ = timeout(Duration::from_millis(100), end).await;
    }
}

/// Whether the connection was closed during a request, before the response.
fn is_connection_closed(error: &reqwest::Error) -> bool {
    if error.is_connect() || error.is_timeout() || error.is_builder() {
        return false;
    }
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        let text = error.to_string().to_ascii_lowercase();
        if ["connection closed", "connection reset", "broken pipe"].iter().any(|words| text.contains(words)) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Merges small chunks: the HTTP library makes a few allocations for each, which costs more than copying a small one.
fn coalesce(chunks: Vec<Bytes>) -> Vec<Bytes> {
    const SMALL: usize = 4 << 10;
    let mut fewer = Vec::new();
    let mut run = BytesMut::new();
    for chunk in chunks {
        if chunk.len() <= SMALL {
            run.extend_from_slice(&chunk);
            continue;
        }
        if !run.is_empty() {
            fewer.push(run.split().freeze());
        }
        fewer.push(chunk);
    }
    if !run.is_empty() {
        fewer.push(run.freeze());
    }
    fewer
}
