//! Servers with an address: streamable HTTP.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, Identity, Response, StatusCode, Url};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, ServerJsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::{BoxedSseResponse, ExponentialBackoff};
use rmcp::transport::streamable_http_client::{
    HttpStatusError, SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};

use super::messages::MessageReader;
use super::sse;
use super::stream_bounds::{MAX_MESSAGE_BYTES, StreamBounds};
use crate::providers::{client_builder, root_cause};
use crate::sync::IgnorePoison;

/// The header with the id of a session.
const SESSION_HEADER: &str = "mcp-session-id";
/// The content types of answers.
const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";
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
        self.0.lock().ignore_poison().take()
    }

    fn set(&self, why: String) {
        *self.0.lock().ignore_poison() = Some(why);
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
    settings: &HttpSettings<'_>,
    bounds: &Arc<StreamBounds>,
    failure: &LastFailure,
) -> Result<StreamableHttpClientTransport<BoundedClient>, String> {
    let &HttpSettings { url, headers, ref identity, bypasses_proxy } = settings;
    let parsed = Url::parse(url).map_err(|error| format!("its address isn't valid: {error}"))?;
    let mut builder = client_builder(&parsed, concat!("legwork/", env!("CARGO_PKG_VERSION")));
    builder = builder.connect_timeout(CONNECT_TIMEOUT);
    if bypasses_proxy {
        builder = builder.no_proxy();
    }
    if let Some(identity) = identity {
        builder = builder.identity(identity.clone());
    }
    let client =
        builder.build().map_err(|error| format!("the HTTP client can't be created: {}", root_cause(&error)))?;
    let mut retry = ExponentialBackoff::default();
    retry.max_times = Some(MAX_RECONNECTS);
    retry.max_delay = Some(MAX_RECONNECT_DELAY);
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    config.custom_headers = parse_headers(headers)?;
    config.retry_config = Arc::new(retry);
    let client = BoundedClient {
        client,
        bounds: Arc::clone(bounds),
        failure: failure.clone(),
        messages: MessageReader::default(),
    };
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

/// Sends the SDK's messages, with a bound on what a server sends without an answer. It remembers why a request failed: the SDK
/// reports only that the connection is closed.
#[derive(Debug, Clone)]
pub(super) struct BoundedClient {
    client: Client,
    bounds: Arc<StreamBounds>,
    failure: LastFailure,
    messages: MessageReader,
}

type HttpError = StreamableHttpError<reqwest::Error>;

impl BoundedClient {
    fn check<T>(&self, result: Result<T, HttpError>) -> Result<T, HttpError> {
        result.inspect_err(|error| self.failure.set(describe(error)))
    }

    /// The events of a response, with each message as the SDK can read it.
    fn events(&self, response: Response) -> BoxedSseResponse {
        let (bounds, messages) = (Arc::clone(&self.bounds), self.messages.clone());
        let events = sse::events(response).map(move |event| {
            let mut event = event?;
            let size = event.data.as_ref().map_or(0, String::len);
            bounds.count(size.max(1)).map_err(|why| SseError::Body(why.into()))?;
            if let Some(data) = event.data.as_deref().filter(|data| !data.is_empty()) {
                let mut read = messages.read(data.as_bytes());
                // The SDK expects one message in an event.
                if !read.is_empty()
                    && let Ok(data) = serde_json::to_string(&read.swap_remove(0))
                {
                    event.data = Some(data);
                }
            }
            Ok(event)
        });
        events.boxed()
    }

    /// The body of a response.
    async fn body(&self, mut response: Response) -> Result<Vec<u8>, HttpError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > MAX_MESSAGE_BYTES {
                return Err(StreamableHttpError::ResponseBodyTooLarge { max_size: MAX_MESSAGE_BYTES });
            }
            self.bounds.count(chunk.len()).map_err(|why| StreamableHttpError::UnexpectedServerResponse(why.into()))?;
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    async fn post(
        &self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        session_id: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        self.messages.sending(message);
        let has_session = session_id.is_some();
        let mut request = self.client.post(uri).header(ACCEPT, "text/event-stream, application/json");
        request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        if let Some(session) = session_id {
            request = request.header(SESSION_HEADER, session);
        }
        let response = request.json(message).send().await?;
        let status = response.status();
        match status {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => return Ok(StreamableHttpPostResponse::Accepted),
            StatusCode::NOT_FOUND if has_session => return Err(StreamableHttpError::SessionExpired),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(StreamableHttpError::HttpStatus(HttpStatusError::new(status.as_u16(), None)));
            }
            _ => {}
        }
        let session = response.headers().get(SESSION_HEADER).and_then(|session| session.to_str().ok());
        let session = session.map(str::to_owned);
        let kind = media_type(&response);
        let awaits_response = matches!(message, ClientJsonRpcMessage::Request(_));
        if status.is_success() {
            return match kind.as_deref() {
                Some(EVENT_STREAM) => Ok(StreamableHttpPostResponse::Sse(self.events(response), session)),
                Some(JSON) => {
                    let body = self.body(response).await?;
                    let mut read = self.messages.read(&body);
                    match read.is_empty() {
                        false => Ok(StreamableHttpPostResponse::Json(read.swap_remove(0), session)),
                        true if awaits_response => {
                            Err(StreamableHttpError::UnexpectedServerResponse("its answer isn't a message".into()))
                        }
                        true => Ok(StreamableHttpPostResponse::Accepted),
                    }
                }
                _ if !awaits_response => Ok(StreamableHttpPostResponse::Accepted),
                _ => Err(StreamableHttpError::UnexpectedContentType(kind)),
            };
        }
        // Errors of the protocol come with the status of a failure, too.
        let body = if kind.as_deref() == Some(JSON) { self.body(response).await? } else { Vec::new() };
        let error = self.messages.read(&body).into_iter().find_map(|message| match message {
            ServerJsonRpcMessage::Error(error) => Some(error),
            _ => None,
        });
        if let ClientJsonRpcMessage::Request(request) = message
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
            && status.is_client_error()
            && !has_session
        {
            // A server of an older protocol refuses the request in one way or another, and often without its id.
            let refused = || ErrorData::invalid_request(format!("HTTP {}", status.as_u16()), None);
            let error = error.map_or_else(refused, |error| error.error);
            let message = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
            return Ok(StreamableHttpPostResponse::Json(message, None));
        }
        match error {
            Some(error) => Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), session)),
            None => Err(StreamableHttpError::HttpStatus(HttpStatusError::new(status.as_u16(), None))),
        }
    }
}

/// The content type without parameters, in lowercase.
fn media_type(response: &Response) -> Option<String> {
    let value = String::from_utf8_lossy(response.headers().get(CONTENT_TYPE)?.as_bytes()).into_owned();
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

impl StreamableHttpClient for BoundedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        self.check(self.post(&uri, &message, session_id.as_deref(), custom_headers).await)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        let request = self.client.delete(uri.as_ref()).header(SESSION_HEADER, session_id.as_ref());
        let request = custom_headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        let response = request.send().await?;
        if response.status() != StatusCode::METHOD_NOT_ALLOWED {
            response.error_for_status()?;
        }
        Ok(())
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxedSseResponse, HttpError> {
        let mut request = self.client.get(uri.as_ref()).header(ACCEPT, EVENT_STREAM);
        if let Some(session) = &session_id {
            request = request.header(SESSION_HEADER, session.as_ref());
        }
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        request = custom_headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        let response = request.send().await?;
        // Servers needn't have such a stream.
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        let response = response.error_for_status()?;
        match media_type(&response) {
            Some(kind) if kind == EVENT_STREAM => Ok(self.events(response)),
            other => Err(StreamableHttpError::UnexpectedContentType(other)),
        }
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
        StreamableHttpError::UnexpectedServerResponse(why) => why.clone().into_owned(),
        StreamableHttpError::ResponseBodyTooLarge { .. } => "it sent a message of more than 16 MiB".to_owned(),
        StreamableHttpError::HttpStatus(error) => {
            let status = error.status;
            let help = match status {
                300..=399 => ": redirects aren't followed, so write the final address into `url`",
                401 => ": it wants credentials in `headers`, or other ones",
                403 => ": the credentials in `headers` aren't enough",
                _ => "",
            };
            format!("it answered with HTTP {status}{help}")
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
