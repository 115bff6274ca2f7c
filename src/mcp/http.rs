//! Servers with an address: streamable HTTP.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, Identity, Url};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::{BoxedSseResponse, ExponentialBackoff};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse, StreamableHttpResponseLimits,
};

use super::stream_bounds::{MAX_MESSAGE_BYTES, StreamBounds};
use crate::providers::{client_builder, root_cause};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a stream is opened again that ended before the answer.
const MAX_RECONNECTS: usize = 5;
/// The longest pause before a stream is opened again.
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(5);

/// Why the last request failed, for messages.
#[derive(Debug, Clone, Default)]
pub(super) struct LastFailure(Arc<Mutex<Option<String>>>);

impl LastFailure {
    /// Takes it.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, why: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }
}

/// How an address is reached.
pub(super) struct HttpSettings<'a> {
    pub(super) url: &'a str,
    pub(super) headers: &'a [(String, String)],
    /// The client certificate.
    pub(super) identity: Option<Identity>,
    pub(super) bypasses_proxy: bool,
}

/// A transport to an address. Proxies and certificates are those of the environment, as for providers.
///
/// # Errors
/// Why it can't be used.
pub(super) fn transport(
    settings: HttpSettings<'_>,
    bounds: &Arc<StreamBounds>,
    failure: &LastFailure,
) -> Result<StreamableHttpClientTransport<BoundedClient>, String> {
    let HttpSettings { url, headers, identity, bypasses_proxy } = settings;
    let parsed = Url::parse(url).map_err(|error| format!("its address isn't valid: {error}"))?;
    let mut builder = client_builder(&parsed, concat!("legwork/", env!("CARGO_PKG_VERSION")));
    builder = builder.connect_timeout(CONNECT_TIMEOUT);
    if bypasses_proxy {
        builder = builder.no_proxy();
    }
    if let Some(identity) = identity {
        builder = builder.identity(identity);
    }
    let client =
        builder.build().map_err(|error| format!("the HTTP client can't be created: {}", root_cause(&error)))?;
    let mut retry = ExponentialBackoff::default();
    retry.max_times = Some(MAX_RECONNECTS);
    retry.max_delay = Some(MAX_RECONNECT_DELAY);
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .max_sse_event_size(MAX_MESSAGE_BYTES)
        .max_json_response_size(MAX_MESSAGE_BYTES);
    config.custom_headers = parse_headers(headers)?;
    config.retry_config = Arc::new(retry);
    let client = BoundedClient { client, bounds: Arc::clone(bounds), failure: failure.clone() };
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

fn parse_headers(headers: &[(String, String)]) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let parse = |(name, value): &(String, String)| {
        let invalid = || format!("the value of its header `{name}` isn't valid");
        let parsed = HeaderName::try_from(name.as_str()).map_err(|_| invalid())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
        value.set_sensitive(true);
        Ok((parsed, value))
    };
    headers.iter().map(parse).collect()
}

/// The SDK's client with a bound on what a server sends without an answer. It remembers why a request failed: the SDK reports
/// only that the connection is closed.
#[derive(Debug, Clone)]
pub(super) struct BoundedClient {
    client: Client,
    bounds: Arc<StreamBounds>,
    failure: LastFailure,
}

impl BoundedClient {
    fn check<T>(
        &self,
        result: Result<T, StreamableHttpError<reqwest::Error>>,
    ) -> Result<T, StreamableHttpError<reqwest::Error>> {
        result.inspect_err(|error| self.failure.set(describe(error)))
    }

    fn bounded(&self, events: BoxedSseResponse) -> BoxedSseResponse {
        let bounds = Arc::clone(&self.bounds);
        let bounded = events.map(move |event| {
            let event = event?;
            let size = event.data.as_ref().map_or(0, String::len);
            bounds.count(size.max(1)).map_err(|why| SseError::Body(why.into()))?;
            Ok(event)
        });
        bounded.boxed()
    }
}

impl StreamableHttpClient for BoundedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<Self::Error>> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session_id, auth_header, custom_headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<Self::Error>> {
        let posted = self
            .client
            .post_message_with_response_limits(uri, message, session_id, auth_header, custom_headers, limits)
            .await;
        Ok(match self.check(posted)? {
            StreamableHttpPostResponse::Sse(events, session) => {
                StreamableHttpPostResponse::Sse(self.bounded(events), session)
            }
            other => other,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamableHttpError<Self::Error>> {
        self.client.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxedSseResponse, StreamableHttpError<Self::Error>> {
        let most = MAX_MESSAGE_BYTES;
        self.get_stream_with_max_sse_event_size(uri, session_id, last_event_id, auth_header, custom_headers, most).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        most: usize,
    ) -> Result<BoxedSseResponse, StreamableHttpError<Self::Error>> {
        let opened = self
            .client
            .get_stream_with_max_sse_event_size(uri, session_id, last_event_id, auth_header, custom_headers, most)
            .await;
        // Servers needn't have such a stream.
        Ok(self.bounded(opened?))
    }
}

/// Why a request failed. The SDK's own messages name no cause.
fn describe(error: &StreamableHttpError<reqwest::Error>) -> String {
    match error {
        StreamableHttpError::Client(error) => match error.status() {
            Some(status) => format!("it answered with HTTP {}", status.as_u16()),
            None if error.is_connect() && error.is_timeout() => {
                format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())
            }
            None if error.is_connect() => format!("can't connect: {}", root_cause(error)),
            None => format!("the request failed: {}", root_cause(error)),
        },
        StreamableHttpError::UnexpectedServerResponse(text) if text.starts_with("HTTP 3") => {
            let status = text.split(':').next().unwrap_or(text);
            format!("it answered with {status}: redirects aren't followed, so write the final address into `url`")
        }
        StreamableHttpError::HttpStatus(error) => format!("it answered with HTTP {}", error.status),
        StreamableHttpError::AuthRequired(_) => {
            "it answered with HTTP 401: it wants credentials in `headers`, or other \
                                                 ones"
                .to_owned()
        }
        StreamableHttpError::InsufficientScope(_) => {
            "it answered with HTTP 403: the credentials in `headers` aren't enough".to_owned()
        }
        StreamableHttpError::UnexpectedContentType(kind) => {
            let kind = kind.as_deref().unwrap_or("no content type");
            format!("it answered with {kind}, so it isn't an MCP server, or a login page intercepts the request")
        }
        other => {
            let mut text = other.to_string();
            let mut cause: Option<&dyn Error> = other.source();
            while let Some(error) = cause {
                text = error.to_string();
                cause = error.source();
            }
            text
        }
    }
}
