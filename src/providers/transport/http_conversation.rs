//! A conversation over HTTP: one request a turn, with retries, and a reply that is assembled from a stream. The APIs
//! differ in two traits: [`RequestEncoder`] writes requests, [`EventDecoder`] reads replies.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use reqwest::StatusCode;

use crate::message::{Message, Reply};
use crate::providers::api::{
    Contact, Conversation, ConversationConfig, Provider, ProviderError, ProviderErrorKind, ReplyRequest, Retry,
    ServerCheck, StreamObserver,
};
use crate::providers::assembler::{EventDecoder, ReplyAssembler, StreamError};
use crate::providers::errors::api_error::{ErrorDialect, is_prefix_mismatch};
use crate::providers::errors::classification::{ErrorClassifier, request_id};
use crate::providers::errors::limit_hints;
use crate::providers::model::Model;
use crate::providers::surrogates::without_halves;
use crate::providers::tool_calls::assign_call_ids;
use crate::providers::transport::endpoint::Endpoint;
use crate::providers::transport::http::HttpResponse;
use crate::providers::transport::rate_governor::Permit;
use crate::providers::transport::retry::{FailedAttempt, RetryDecision, RetryPolicy, RetryState};
use crate::providers::transport::sse::{Decoder, MAX_EVENT_BYTES, is_document};
use crate::providers::transport::tls_probe::diagnose_closed_connection;
use crate::running_clock::{RunningInstant, timeout, timeout_at};
use crate::sync::IgnorePoison;

/// How many times an empty reply is requested again.
const MAX_EMPTY_RETRIES: u32 = 2;
/// The maximum number of bytes that a stream may send without any progress of the reply: two events of the maximum
/// size.
const MAX_BYTES_WITHOUT_PROGRESS: usize = 2 * MAX_EVENT_BYTES;
/// The maximum number of characters of an unexpected event that are inspected.
const MAX_INSPECTED_CHARS: usize = 64 << 10;
/// The maximum number of bytes of a list of models that are inspected.
const MAX_LIST_START_BYTES: usize = 64 << 10;

/// Encodes a conversation for one API, each message once.
pub(crate) trait RequestEncoder: Send + 'static {
    /// Decodes the events of its replies.
    type Decoder: EventDecoder;

    /// Encodes a message.
    fn push(&mut self, message: &Message);

    /// Drops all messages.
    fn clear(&mut self);

    /// The next request's body in chunks, which share the encoded messages.
    fn body_chunks(&self, request: &ReplyRequest) -> Vec<Bytes>;

    /// Size in bytes of the prompt.
    fn prompt_bytes(&self) -> usize;

    /// A decoder for a new reply.
    fn new_decoder(&self) -> Self::Decoder;

    /// Gives the calls of a new reply ids that are unique in the conversation and that the API accepts. `taken`
    /// contains the ids in use.
    fn assign_call_ids(&self, reply: &mut Reply, taken: &HashSet<String>) {
        assign_call_ids(reply, taken);
    }

    /// Whether the API is known to send empty replies by mistake. They are then retried even after tool results.
    fn may_reply_empty(&self) -> bool {
        false
    }

    /// The option that the server refuses in this error message, if the request can omit it.
    fn refused_option(&self, message: &str) -> Option<&'static str> {
        let _ = message;
        None
    }

    /// Drops the thinking of all replies, if the server refuses it. Returns whether there was any.
    fn drop_thinking(&mut self) -> bool {
        false
    }

    /// Omits an option from all further requests, or uses its other name. Returns whether that changes them.
    fn drop_option(&mut self, option: &'static str) -> bool {
        let _ = option;
        false
    }
}

/// The state that all conversations with one provider share.
pub(crate) struct ProviderState {
    pub(crate) endpoint: Endpoint,
    pub(crate) retry_policy: RetryPolicy,
    pub(crate) error_dialect: &'static ErrorDialect,
    pub(crate) learned: Arc<LearnedLimits>,
    contact: Arc<BestContact>,
}

/// The best [`Contact`] so far.
#[derive(Default)]
struct BestContact(AtomicU8);

impl BestContact {
    fn note(&self, contact: Contact) {
        self.0.fetch_max(contact as u8, Ordering::SeqCst);
    }

    fn get(&self) -> Contact {
        let best = self.0.load(Ordering::SeqCst);
        [Contact::Answered, Contact::Refused]
            .into_iter()
            .find(|contact| *contact as u8 == best)
            .unwrap_or(Contact::None)
    }
}

/// Limits learned from errors, by model name, so that each error occurs only once in a run.
#[derive(Default)]
pub(crate) struct LearnedLimits(Mutex<HashMap<String, ModelLimits>>);

#[derive(Default, Clone)]
struct ModelLimits {
    /// Optional parameters that the server refused.
    refused_options: Vec<&'static str>,
    /// The maximum `max_tokens` that the server accepts.
    max_tokens: Option<u32>,
}

impl ProviderState {
    pub(crate) fn new(endpoint: Endpoint, retry_policy: RetryPolicy, dialect: &'static ErrorDialect) -> Self {
        Self { endpoint, retry_policy, error_dialect: dialect, learned: Arc::default(), contact: Arc::default() }
    }

    /// The state for conversations with a model. It shares what was learned.
    fn for_model(&self, model: &Model, address: Option<ModelAddress>) -> Self {
        let Self { endpoint, retry_policy, error_dialect, learned, contact } = self;
        let endpoint = endpoint.for_model(model);
        Self {
            endpoint: match address.map(|address| address(model)) {
                Some((segment, query)) => endpoint.child(&segment, query),
                None => endpoint,
            },
            retry_policy: retry_policy.clone(),
            error_dialect,
            learned: Arc::clone(learned),
            contact: Arc::clone(contact),
        }
    }
}

/// Asks a server for the list of its models, once.
async fn check_server(endpoint: &Endpoint, dialect: &'static ErrorDialect) -> Result<ServerCheck, ProviderError> {
    let ask = async {
        let key = endpoint.issued_key().await?;
        let mut response = endpoint.get_models(key.as_ref()).await?;
        let errors = ErrorClassifier { dialect, model: "", endpoint };
        match response.status().as_u16() {
            // A login page answers every address with 200. A list may be long, so only its start is read.
            200 => match response.start(MAX_LIST_START_BYTES).await? {
                start if matches!(start.trim_ascii_start().first(), Some(b'{' | b'[')) => Ok(ServerCheck::Accepted),
                start => Err(errors.not_a_reply(&response.media_type(), "it isn't JSON", &start)),
            },
            // Servers with few parts of an API don't have this one.
            404 | 405 | 501 => Ok(ServerCheck::NoModelList),
            _ => Err(errors.error_response(response).await),
        }
    };
    ask.await.map_err(|failure: FailedAttempt| failure.error)
}

/// A provider whose conversations share an endpoint.
pub(crate) struct HttpProvider<B> {
    shared: Arc<ProviderState>,
    new_encoder: NewEncoder<B>,
    /// Set if each model has its own address.
    model_address: Option<ModelAddress>,
}

/// What follows the endpoint in the address of a model: a segment of the path, and a parameter of the query.
pub(crate) type ModelAddress = fn(&Model) -> (String, Option<(&'static str, &'static str)>);

/// Encodes a conversation without messages, unless the model doesn't support its options.
type NewEncoder<B> = fn(&Endpoint, &ConversationConfig) -> Result<B, ProviderError>;

impl<B: RequestEncoder + Sync> HttpProvider<B> {
    pub(crate) fn new(state: ProviderState, new_encoder: NewEncoder<B>) -> Self {
        Self { shared: Arc::new(state), new_encoder, model_address: None }
    }

    /// A provider whose models have their own addresses.
    pub(crate) fn with_model_addresses(self, address: ModelAddress) -> Self {
        Self { model_address: Some(address), ..self }
    }
}

impl<B: RequestEncoder + Sync> Provider for HttpProvider<B> {
    fn open(&self, config: ConversationConfig) -> Result<Box<dyn Conversation>, ProviderError> {
        let encoder = (self.new_encoder)(&self.shared.endpoint, &config)?;
        let has_own_state = self.model_address.is_some() || config.model.is_flex();
        let separate = has_own_state.then(|| Arc::new(self.shared.for_model(&config.model, self.model_address)));
        Ok(HttpConversation::open(separate.as_ref().unwrap_or(&self.shared), config.model.name, encoder))
    }

    fn warning(&self) -> Option<String> {
        self.shared.endpoint.warning()
    }

    fn prepare(&self) -> Option<BoxFuture<'_, Result<(), ProviderError>>> {
        self.shared.endpoint.prepare()
    }

    fn contact(&self) -> Contact {
        self.shared.contact.get()
    }

    fn check_server(&self) -> Option<BoxFuture<'_, Result<ServerCheck, ProviderError>>> {
        Some(Box::pin(check_server(&self.shared.endpoint, self.shared.error_dialect)))
    }
}

/// One agent's conversation.
pub(crate) struct HttpConversation<B> {
    shared: Arc<ProviderState>,
    model: String,
    encoder: B,
    /// The ids of all calls so far.
    call_ids: HashSet<String>,
    /// Whether the model has replied yet.
    has_replied: bool,
}

impl<B: RequestEncoder> HttpConversation<B> {
    /// An empty conversation.
    pub(crate) fn open(shared: &Arc<ProviderState>, model: String, encoder: B) -> Box<dyn Conversation>
    where
        B: Sync,
    {
        Box::new(Self { shared: shared.clone(), model, encoder, call_ids: HashSet::new(), has_replied: false })
    }

    fn errors(&self) -> ErrorClassifier<'_> {
        let ProviderState { endpoint, error_dialect: dialect, .. } = &*self.shared;
        ErrorClassifier { dialect, model: &self.model, endpoint }
    }

    /// One attempt: sends the request and reads the response into `assembler`. Returns the request's id.
    async fn attempt(
        &self,
        chunks: Vec<Bytes>,
        assembler: &mut ReplyAssembler<B::Decoder>,
        permit: &mut Permit,
        key_number: &mut Option<u64>,
        observer: &dyn StreamObserver,
    ) -> Result<Option<String>, FailedAttempt> {
        let key = self.shared.endpoint.issued_key().await?;
        *key_number = key.as_ref().map(|key| key.number);
        let response = self.shared.endpoint.post(chunks, key.as_ref()).await?;
        let status = response.status();
        permit.on_response_head(status == StatusCode::OK, response.headers());
        let read = self.read_response(response, assembler, observer).await;
        self.shared.contact.note(match &read {
            Err(failure) if failure.retry == RetryDecision::IfServerProven || refuses_all(status) => Contact::Refused,
            _ => Contact::Answered,
        });
        read
    }

    /// Reads a response into `assembler`. Returns the request's id.
    async fn read_response(
        &self,
        mut response: HttpResponse<'_>,
        assembler: &mut ReplyAssembler<B::Decoder>,
        observer: &dyn StreamObserver,
    ) -> Result<Option<String>, FailedAttempt> {
        if response.status() != StatusCode::OK {
            return Err(self.errors().error_response(response).await);
        }
        if let Some(encoding) = response.content_encoding() {
            return Err(self.errors().unexpected_encoding(&encoding));
        }
        let request_id = request_id(&response).map(|id| self.shared.endpoint.quote(id));
        if response.media_type() == "text/event-stream" {
            self.read_stream(response, assembler, observer).await?;
            return Ok(request_id);
        }
        let media_type = response.media_type();
        let body = response.body(MAX_EVENT_BYTES).await?;
        if [&b"event:"[..], b"data:", b":"].iter().any(|start| body.trim_ascii_start().starts_with(start)) {
            // A stream with the wrong content type.
            let mut decoder = Decoder::new(MAX_EVENT_BYTES);
            let mut each = |name: &str, data: &str| assembler.push_event(name, data);
            decoder.feed(&body, &mut each).map_err(|why| self.classify_stream_error(why))?;
            decoder.finish(&mut each).map_err(|why| self.classify_stream_error(why))?;
            let first = || String::from_utf8_lossy(&body).lines().find_map(data_field).map(str::to_owned);
            return if assembler.is_complete() { Ok(request_id) } else { Err(self.ended_early(first().as_deref())) };
        }
        self.read_document(&body, &media_type, assembler)?;
        Ok(request_id)
    }

    fn read_document(
        &self,
        body: &[u8],
        media_type: &str,
        assembler: &mut ReplyAssembler<B::Decoder>,
    ) -> Result<(), FailedAttempt> {
        if body.len() > MAX_EVENT_BYTES {
            let why = format!("it is longer than {MAX_EVENT_BYTES} bytes");
            return Err(self.errors().not_a_reply(media_type, &why, body));
        }
        let is_cut = body.trim_ascii_start().first() == Some(&b'{') && !is_document(body);
        assembler.push_body(body).map_err(|why| match why {
            StreamError::Malformed(_) if is_cut => {
                FailedAttempt::transient(format!("{} sent incomplete JSON", self.shared.endpoint.display_url))
            }
            StreamError::Malformed(why) => self.errors().not_a_reply(media_type, &why, body),
            StreamError::Api(json) => self.errors().error_event(&json, "200 with an error"),
        })
    }

    async fn read_stream(
        &self,
        mut response: HttpResponse<'_>,
        assembler: &mut ReplyAssembler<B::Decoder>,
        observer: &dyn StreamObserver,
    ) -> Result<(), FailedAttempt> {
        let mut decoder = Decoder::new(MAX_EVENT_BYTES);
        // The first event, or the latest error, to recognize another API.
        let mut first_event: Option<String> = None;
        // The bytes before the first event, as the body may not be a stream at all.
        let mut start = Vec::new();
        let mut until = None;
        // The bytes received since the reply last grew.
        let (mut output_tokens, mut idle) = (assembler.usage().output_tokens, 0);
        loop {
            let chunk = if assembler.is_complete() {
                // The reply is complete: ignore a broken connection, and don't wait long.
                let until =
                    *until.get_or_insert_with(|| RunningInstant::now() + self.shared.endpoint.trailing_timeout());
                timeout_at(until, response.chunk()).await.ok().and_then(Result::ok).flatten()
            } else {
                response.chunk().await?
            };
            let mut each = |name: &str, data: &str| {
                if first_event.is_none() || data.starts_with("{\"error\"") {
                    first_event = Some(data.chars().take(MAX_INSPECTED_CHARS).collect());
                }
                assembler.push_event(name, data)
            };
            let is_over = chunk.is_none();
            idle += chunk.as_ref().map_or(0, Bytes::len);
            let fed = match &chunk {
                Some(chunk) => decoder.feed(chunk, each),
                None => decoder.finish(&mut each),
            };
            if let Some(chunk) = chunk.filter(|_| first_event.is_none() && start.len() < MAX_EVENT_BYTES) {
                start.extend_from_slice(&chunk);
            }
            fed.map_err(|why| match why {
                StreamError::Malformed(_) => self
                    .classify_unexpected_event(first_event.as_deref())
                    .unwrap_or_else(|| self.classify_stream_error(why)),
                why @ StreamError::Api(_) => self.classify_stream_error(why),
            })?;
            if output_tokens != assembler.usage().output_tokens {
                (output_tokens, idle) = (assembler.usage().output_tokens, 0);
                observer.on_progress(assembler.usage());
            }
            if idle > MAX_BYTES_WITHOUT_PROGRESS {
                return Err(self.no_progress());
            }
            if assembler.is_finished() {
                response.drain().await;
                return Ok(());
            }
            if is_over {
                break;
            }
        }
        if first_event.is_none() && is_document(&start) {
            return self.read_document(&start, &response.media_type(), assembler);
        }
        if assembler.is_complete() { Ok(()) } else { Err(self.ended_early(first_event.as_deref())) }
    }

    /// The failure for an event that isn't from this API: an error object, or a reply of another API.
    fn classify_unexpected_event(&self, event: Option<&str>) -> Option<FailedAttempt> {
        let (event, errors) = (event?, self.errors());
        errors.other_api(event).or_else(|| errors.error_in_body(event, "with an error in the stream"))
    }

    /// Prepares a reply for the conversation.
    fn finalize_reply(&self, mut reply: Reply) -> Reply {
        reply.flatten();
        self.encoder.assign_call_ids(&mut reply, &self.call_ids);
        reply
    }

    /// Omits options that the server has refused, and lowers `max_tokens` to its maximum, if any conversation has learned
    /// about them. Returns whether that changes the next request.
    fn apply_learned_limits(&mut self, request: &mut ReplyRequest) -> bool {
        let learned = self.shared.learned.0.lock().ignore_poison();
        let ModelLimits { refused_options, max_tokens } = learned.get(&self.model).cloned().unwrap_or_default();
        drop(learned);
        let dropped = refused_options.into_iter().filter(|option| self.encoder.drop_option(option)).count();
        let limit = max_tokens.filter(|limit| *limit < request.max_tokens);
        request.max_tokens = limit.unwrap_or(request.max_tokens);
        dropped > 0 || limit.is_some()
    }

    /// Learns from an error which option the server refuses, or its maximum for `max_tokens`. Returns whether the next
    /// request changes.
    fn learn_limits(&mut self, request: &mut ReplyRequest, failure: &FailedAttempt) -> bool {
        let message = failure.server_message.as_deref().unwrap_or_default();
        if is_prefix_mismatch(message) && self.encoder.drop_thinking() {
            return true;
        }
        let option = self.encoder.refused_option(message);
        let is_rejected = failure.error.kind == ProviderErrorKind::Rejected;
        let limit = limit_hints::reply_limit(message).filter(|limit| is_rejected && *limit < request.max_tokens);
        let mut learned = self.shared.learned.0.lock().ignore_poison();
        let of_model = learned.entry(self.model.clone()).or_default();
        of_model.refused_options.extend(option.filter(|option| !of_model.refused_options.contains(option)));
        of_model.max_tokens = limit.or(of_model.max_tokens);
        drop(learned);
        self.apply_learned_limits(request)
    }

    /// The retry of a reply, after `empty_replies` empty ones, if it is empty by mistake: the first one if content is
    /// required, or any reply from an API with that bug. `None` if the reply is accepted.
    ///
    /// # Errors
    /// Content is required, and there are no retries left.
    fn retry_empty_reply(
        &self,
        request: &ReplyRequest,
        reply: &Reply,
        empty_replies: u32,
        retry_state: &mut RetryState,
    ) -> Result<Option<Retry>, ProviderError> {
        let is_needed = request.requires_content && !self.has_replied;
        let is_mistake = request.tools_allowed && (is_needed || self.encoder.may_reply_empty());
        if !is_mistake || !reply.is_empty_reply() {
            return Ok(None);
        }
        let mut failure = FailedAttempt::transient(format!("{} sent an empty reply", self.shared.endpoint.display_url));
        failure.error.usage = reply.usage;
        let hint = "try again later, or use another model; is there something in the prompt to reply to?";
        failure.error.hint = Some(hint.to_owned());
        let retry = if empty_replies < MAX_EMPTY_RETRIES {
            retry_state.after_failure(failure)
        } else {
            failure.error.message.push_str(&format!(" (tried {} times)", empty_replies + 1));
            Err(failure.error)
        };
        if is_needed { retry.map(Some) } else { Ok(retry.ok()) }
    }

    /// The failure for a stream that keeps sending without any progress. A retry would cause the same traffic and fail,
    /// too.
    fn no_progress(&self) -> FailedAttempt {
        let endpoint = &self.shared.endpoint;
        let what =
            format!("{} sent {MAX_BYTES_WITHOUT_PROGRESS} bytes without any part of a reply", endpoint.display_url);
        let hint = format!("is {} the address of {}?", endpoint.labels.base_url_source, endpoint.labels.names.api);
        FailedAttempt::permanent(ProviderError::new(ProviderErrorKind::Failed, what).with_hint(hint))
    }

    fn ended_early(&self, event: Option<&str>) -> FailedAttempt {
        let url = &self.shared.endpoint.display_url;
        self.classify_unexpected_event(event)
            .unwrap_or_else(|| FailedAttempt::transient(format!("the stream of {url} ended before the reply did")))
    }

    fn classify_stream_error(&self, why: StreamError) -> FailedAttempt {
        let endpoint = &self.shared.endpoint;
        match why {
            StreamError::Api(json) => self.errors().error_event(&json, "with an error in the stream"),
            StreamError::Malformed(why) => {
                let why = endpoint.quote(&why);
                FailedAttempt::transient(format!("{} sent an invalid stream: {why}", endpoint.display_url))
            }
        }
    }
}

impl<B: RequestEncoder + Sync> Conversation for HttpConversation<B> {
    fn push(&mut self, message: &Message) {
        let Message::Assistant(reply) = message else { return self.encoder.push(message) };
        match without_halves(reply) {
            Some(reply) => self.encoder.push(&Message::Assistant(reply)),
            None => self.encoder.push(message),
        }
        self.has_replied = true;
        self.call_ids.extend(reply.tool_calls().map(|call| call.id.clone()));
    }

    fn ask<'a>(
        &'a mut self,
        mut request: ReplyRequest,
        observer: &'a dyn StreamObserver,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let governor = self.shared.retry_policy.governor.clone();
            let mut chunks = self.encoder.body_chunks(&request);
            let mut retry_state = self.shared.retry_policy.start(&request);
            let mut empty_replies = 0;
            // Whether the last response refused a key, which was replaced.
            let mut is_key_renewed = false;
            loop {
                let mut permit = governor.admit().await;
                retry_state.start_attempt();
                // Another conversation may have learned about either in the meantime.
                if self.apply_learned_limits(&mut request) {
                    chunks = self.encoder.body_chunks(&request);
                }
                let mut assembler = ReplyAssembler::new(self.encoder.prompt_bytes(), self.encoder.new_decoder());
                let endpoint = &self.shared.endpoint;
                let mut key_number = None;
                let exchange = self.attempt(chunks.clone(), &mut assembler, &mut permit, &mut key_number, observer);
                let total = endpoint.timeouts.total;
                let outcome = timeout(total, exchange).await.unwrap_or_else(|_| {
                    let url = &endpoint.display_url;
                    Err(FailedAttempt::transient(format!("{url} didn't finish its response within {total:?}")))
                });
                let usage = assembler.usage();
                let outcome = outcome
                    .and_then(|request_id| assembler.finish(request_id).map_err(|why| self.classify_stream_error(why)));
                let mut failure = match outcome {
                    Ok(reply) => {
                        permit.on_reply(&reply.usage);
                        drop(permit);
                        let retry = self.retry_empty_reply(&request, &reply, empty_replies, &mut retry_state)?;
                        let Some(retry) = retry else { return Ok(self.finalize_reply(reply)) };
                        empty_replies += 1;
                        observer.on_retry(&retry);
                        tokio::time::sleep(retry.wait()).await;
                        continue;
                    }
                    Err(failure) => failure,
                };
                if self.learn_limits(&mut request, &failure) {
                    chunks = self.encoder.body_chunks(&request);
                    continue;
                }
                is_key_renewed = match key_number.filter(|_| failure.is_key_refused && !is_key_renewed) {
                    Some(number) => match self.shared.endpoint.renew_key(number).await {
                        Ok(()) => true,
                        Err(why) => {
                            failure = why;
                            false
                        }
                    },
                    None => false,
                };
                if is_key_renewed {
                    continue;
                }
                failure.error.usage = usage;
                let failure = failure.resolve(self.has_replied || governor.has_replied());
                let wait = match failure.retry {
                    RetryDecision::Throttled(throttle) => Some(permit.on_throttle(throttle)),
                    _ => None,
                };
                // Throttling in the middle of a reply may have incurred costs, so it counts as an ordinary failure.
                let wait = wait.filter(|_| !permit.is_accepted());
                drop(permit);
                let tried = match wait {
                    Some(wait) => retry_state.after_throttle(failure.error, wait, governor.last_accepted()),
                    None => retry_state.after_failure(failure),
                };
                let retry = diagnose_closed_connection(&self.shared.endpoint, tried).await?;
                observer.on_retry(&retry);
                // After throttling, the rate governor waits.
                if wait.is_none() {
                    tokio::time::sleep(retry.wait()).await;
                }
            }
        })
    }

    fn clear(&mut self) {
        self.has_replied = false;
        self.encoder.clear();
    }

    fn request_body(&self, request: &ReplyRequest) -> Option<Vec<u8>> {
        Some(self.encoder.body_chunks(request).concat())
    }

    fn prompt_bytes(&self) -> usize {
        self.encoder.prompt_bytes()
    }
}

/// Whether a server that answers with this status would refuse any other request of the same job: it knows no such key, account,
/// model or address. 403 isn't among them, because some servers use it for what a prompt says.
fn refuses_all(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 402 | 404 | 405 | 407 | 511)
}

/// The value of a `data` line.
fn data_field(line: &str) -> Option<&str> {
    line.strip_prefix("data:").map(str::trim)
}
