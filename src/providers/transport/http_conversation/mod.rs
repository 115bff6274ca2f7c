//! A conversation with a server: one request a turn, tried again where that helps, its answer read as it streams in.
//! What differs from API to API stands behind two traits: how a conversation is written, and how a reply grows.

mod empty_reply;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout, timeout_at};

use self::empty_reply::{EmptyReplyAction, MAX_BYTES_WITHOUT_PROGRESS};
use crate::message::{Message, Reply, Usage};
use crate::providers::errors::api_detection::detect_other_api;
use crate::providers::errors::classification::ErrorDialect;
use crate::providers::errors::{classification, limit_hints};
use crate::providers::transport::http::{Endpoint, HttpResponse};
use crate::providers::transport::rate_governor::Permit;
use crate::providers::transport::retry::{FailedAttempt, RetryDecision, RetryPolicy};
use crate::providers::transport::sse::{Decoder, TooLong, is_document};
use crate::providers::{Conversation, ProviderError, ProviderErrorKind, ReplyRequest, StreamObserver};

/// The greatest size in bytes of one event and of one of its lines, and of an answer that isn't streamed.
pub(crate) const MAX_EVENT_BYTES: usize = 8 << 20;
/// The most characters of an odd event that are looked at.
const MAX_INSPECTED_CHARS: usize = 64 << 10;

/// A conversation as one API takes it, each part written once.
pub(crate) trait RequestEncoder: Send + 'static {
    /// What reads its replies.
    type Assembler: ReplyAssembler;

    /// Writes a message down.
    ///
    /// # Errors
    /// It can't be written as JSON, which no message's content leads to.
    fn push(&mut self, message: &Message) -> Result<(), serde_json::Error>;

    /// Drops all messages.
    fn clear(&mut self);

    /// The next request's body in pieces. What was written before is shared.
    fn body_chunks(&self, ask: &ReplyRequest) -> Vec<Bytes>;

    /// Size in bytes of the prompt.
    fn prompt_bytes(&self) -> usize;

    /// A reply of which nothing has come.
    fn new_assembler(&self) -> Self::Assembler;

    /// Gives the calls of a new reply ids that no other call of the conversation has and that the API takes back.
    /// `taken` holds those that are in use.
    ///
    /// # Errors
    /// A block can't be rewritten as JSON.
    fn assign_call_ids(&self, reply: &mut Reply, taken: &HashSet<String>) -> Result<(), serde_json::Error>;

    /// Whether the API at times says nothing where there is more to say, so that asking again helps even where saying nothing
    /// may be meant: behind the answers to calls.
    fn may_reply_empty(&self) -> bool {
        false
    }

    /// The option of the next request that the server refuses, in these words, where it can do without.
    fn refused_option(&self, refusal: &str) -> Option<&'static str> {
        let _ = refusal;
        None
    }

    /// Drops the conversation's thinking where the server says, in these words, that it was produced in another conversation.
    /// Returns whether there was any.
    fn drop_prefix_bound_thinking(&mut self, refusal: &str) -> bool {
        let _ = refusal;
        false
    }

    /// Leaves an option out of all further requests, or asks for it by its other name. Returns whether that changes them.
    fn drop_option(&mut self, option: &'static str) -> bool {
        let _ = option;
        false
    }
}

/// Why a stream yields no reply.
#[derive(Debug)]
pub(crate) enum StreamError {
    /// The API said so: its JSON.
    Api(String),
    /// It isn't what the API speaks.
    Malformed(String),
}

impl StreamError {
    /// That a whole answer is none of the API's, as its reader says; `reply` is what the API calls one.
    pub(crate) fn not_a_reply(reply: &str, error: &serde_json::Error) -> Self {
        let why = error.to_string();
        Self::Malformed(match error.is_data() {
            false => "it isn't JSON".to_owned(),
            true if why.contains("expected struct") => format!("it is JSON, but no {reply}"),
            true => format!("it is JSON, but no {reply}: {why}"),
        })
    }
}

impl From<TooLong> for StreamError {
    fn from(_: TooLong) -> Self {
        Self::Malformed(format!("an event is longer than {MAX_EVENT_BYTES} bytes"))
    }
}

/// A reply that is being received. Knows no network.
pub(crate) trait ReplyAssembler: Send {
    /// Takes one event. `text` is told each piece of text.
    ///
    /// # Errors
    /// The API reports an error, or an event that we know isn't as it should be.
    fn push_event(&mut self, name: &str, data: &str, text: &dyn Fn(&str)) -> Result<(), StreamError>;

    /// Takes an answer that isn't streamed, whole.
    ///
    /// # Errors
    /// It is something else than a reply.
    fn push_body(&mut self, body: &[u8], text: &dyn Fn(&str)) -> Result<(), StreamError>;

    /// Whether the reply is complete, and nothing follows.
    fn is_finished(&self) -> bool;

    /// Whether the reply is complete, though more about it may follow.
    fn is_complete(&self) -> bool {
        self.is_finished()
    }

    /// What has been used so far, as far as it is known or can be estimated.
    fn usage(&self) -> Usage;

    /// The reply. `request_id` is used where the server names the request.
    ///
    /// # Errors
    /// A block can't be put together, or nothing says why the reply ended: then something of it is missing.
    fn finish(self, request_id: Option<String>) -> Result<Reply, StreamError>;
}

/// Where one provider's conversations go, and how its errors are read.
pub(crate) struct ProviderState {
    pub(crate) endpoint: Endpoint,
    pub(crate) retry_policy: RetryPolicy,
    pub(crate) error_dialect: &'static ErrorDialect,
    pub(crate) learned: Arc<LearnedLimits>,
}

/// What refusals have said about a provider's models, by their names: one conversation's refusal spares all others theirs.
#[derive(Default)]
pub(crate) struct LearnedLimits {
    /// What the server refused of what a request can do without.
    refused_options: Mutex<HashMap<String, Vec<&'static str>>>,
    /// The greatest `max_tokens` that the server takes, where it said so.
    reply_limits: Mutex<HashMap<String, u32>>,
}

impl ProviderState {
    pub(crate) fn new(endpoint: Endpoint, patience: RetryPolicy, manners: &'static ErrorDialect) -> Self {
        Self { endpoint, retry_policy: patience, error_dialect: manners, learned: Arc::default() }
    }
}

/// One agent's conversation.
pub(crate) struct HttpConversation<B> {
    shared: Arc<ProviderState>,
    model: String,
    encoder: B,
    /// The ids of all calls so far.
    call_ids: HashSet<String>,
    /// Whether the model has said anything yet.
    has_replied: bool,
    encode_error: Option<ProviderError>,
}

impl<B: RequestEncoder> HttpConversation<B> {
    /// An empty conversation, or the fault that its beginning can't be written.
    pub(crate) fn open(
        shared: &Arc<ProviderState>,
        model: String,
        body: Result<B, serde_json::Error>,
    ) -> Result<Box<dyn Conversation>, ProviderError>
    where
        B: Sync,
    {
        let body = body.map_err(|error| encode_error(&error))?;
        Ok(Box::new(Self {
            shared: shared.clone(),
            model,
            encoder: body,
            call_ids: HashSet::new(),
            has_replied: false,
            encode_error: None,
        }))
    }

    /// One try: sends the request and reads the answer into `growth`. Returns the request's id.
    async fn attempt(
        &self,
        pieces: Vec<Bytes>,
        growth: &mut B::Assembler,
        watch: &dyn StreamObserver,
        permit: &mut Permit,
    ) -> Result<Option<String>, FailedAttempt> {
        let ProviderState { endpoint, error_dialect: manners, .. } = &*self.shared;
        let mut answer = endpoint.post(pieces).await?;
        permit.on_response_head(answer.status() == reqwest::StatusCode::OK, answer.headers());
        if answer.status() != reqwest::StatusCode::OK {
            return Err(classification::classify_response(manners, answer, &self.model, endpoint).await);
        }
        if let Some(packing) = answer.content_encoding() {
            return Err(classification::unexpected_encoding(&packing, endpoint));
        }
        let request_id = classification::request_id(&answer).map(|id| endpoint.quote(id));
        if answer.media_type() == "text/event-stream" {
            self.read_stream(answer, growth, watch).await?;
            return Ok(request_id);
        }
        let media_type = answer.media_type();
        let body = answer.body(MAX_EVENT_BYTES).await?;
        let text = |piece: &str| watch.on_text(piece);
        if [&b"event:"[..], b"data:", b":"].iter().any(|start| body.trim_ascii_start().starts_with(start)) {
            // A stream by another name.
            let mut decoder = Decoder::new(MAX_EVENT_BYTES);
            let mut each = |name: &str, data: &str| feed_event(growth, name, data, &text);
            decoder.feed(&body, &mut each).map_err(|why| self.classify_stream_error(why))?;
            decoder.finish(&mut each).map_err(|why| self.classify_stream_error(why))?;
            let first = || String::from_utf8_lossy(&body).lines().find_map(data_field).map(str::to_owned);
            return if growth.is_complete() { Ok(request_id) } else { Err(self.ended_early(first().as_deref())) };
        }
        self.read_document(&body, &media_type, growth, &text)?;
        Ok(request_id)
    }

    fn read_document(
        &self,
        body: &[u8],
        media_type: &str,
        growth: &mut B::Assembler,
        text: &dyn Fn(&str),
    ) -> Result<(), FailedAttempt> {
        let ProviderState { endpoint, error_dialect: manners, .. } = &*self.shared;
        if body.len() > MAX_EVENT_BYTES {
            let why = format!("it is longer than {MAX_EVENT_BYTES} bytes");
            return Err(classification::not_a_reply(manners, media_type, &why, body, &self.model, endpoint));
        }
        let is_cut = body.trim_ascii_start().first() == Some(&b'{') && !is_document(body);
        growth.push_body(body, text).map_err(|why| match why {
            StreamError::Malformed(_) if is_cut => {
                FailedAttempt::transient(format!("{} sent JSON that breaks off before its end", endpoint.display_url()))
            }
            StreamError::Malformed(why) => {
                classification::not_a_reply(manners, media_type, &why, body, &self.model, endpoint)
            }
            StreamError::Api(json) => {
                classification::classify_event(manners, &json, "200 with an error", &self.model, endpoint)
            }
        })
    }

    async fn read_stream(
        &self,
        mut answer: HttpResponse<'_>,
        growth: &mut B::Assembler,
        watch: &dyn StreamObserver,
    ) -> Result<(), FailedAttempt> {
        let mut decoder = Decoder::new(MAX_EVENT_BYTES);
        let text = |piece: &str| watch.on_text(piece);
        // Of another API nothing but the first event is needed, or an error that isn't in this one's form.
        let mut odd: Option<String> = None;
        // Before the first event: no stream at all, perhaps.
        let mut start = Vec::new();
        let mut until = None;
        // What came since the reply last grew.
        let (mut heard, mut idle) = (growth.usage().output_tokens, 0);
        loop {
            let chunk = if growth.is_complete() {
                // What breaks off now has said all that is needed; what only shows that it lives isn't waited for.
                let until = *until.get_or_insert_with(|| Instant::now() + self.shared.endpoint.trailing_timeout());
                timeout_at(until, answer.chunk()).await.ok().and_then(Result::ok).flatten()
            } else {
                answer.chunk().await?
            };
            let mut each = |name: &str, data: &str| {
                if odd.is_none() || data.starts_with("{\"error\"") {
                    odd = Some(data.chars().take(MAX_INSPECTED_CHARS).collect());
                }
                feed_event(growth, name, data, &text)
            };
            let is_over = chunk.is_none();
            idle += chunk.as_ref().map_or(0, Bytes::len);
            let fed = match &chunk {
                Some(chunk) => decoder.feed(chunk, each),
                None => decoder.finish(&mut each),
            };
            if let Some(chunk) = chunk.filter(|_| odd.is_none() && start.len() < MAX_EVENT_BYTES) {
                start.extend_from_slice(&chunk);
            }
            fed.map_err(|why| match why {
                StreamError::Malformed(_) => {
                    self.classify_unexpected_event(odd.as_deref()).unwrap_or_else(|| self.classify_stream_error(why))
                }
                why @ StreamError::Api(_) => self.classify_stream_error(why),
            })?;
            if heard != growth.usage().output_tokens {
                (heard, idle) = (growth.usage().output_tokens, 0);
            }
            if idle > MAX_BYTES_WITHOUT_PROGRESS {
                return Err(self.no_progress());
            }
            if growth.is_finished() {
                answer.drain().await;
                return Ok(());
            }
            if is_over {
                break;
            }
        }
        if odd.is_none() && is_document(&start) {
            return self.read_document(&start, &answer.media_type(), growth, &text);
        }
        if growth.is_complete() { Ok(()) } else { Err(self.ended_early(odd.as_deref())) }
    }

    /// What an event means that isn't of this API: an error, or another API.
    fn classify_unexpected_event(&self, event: Option<&str>) -> Option<FailedAttempt> {
        let ProviderState { endpoint, error_dialect: manners, .. } = &*self.shared;
        let event = event?;
        detect_other_api(event, &self.model, endpoint).or_else(|| {
            classification::error_in_body(manners, event, "with an error in the stream", &self.model, endpoint)
        })
    }

    /// A reply as it is kept.
    fn finalize_reply(&self, mut reply: Reply) -> Result<Reply, ProviderError> {
        reply.flatten();
        self.encoder.assign_call_ids(&mut reply, &self.call_ids).map_err(|error| encode_error(&error))?;
        Ok(reply)
    }

    /// Leaves out what the server has refused of others' requests. Returns whether that changes the next one.
    fn drop_refused_options(&mut self) -> bool {
        let refused = self.shared.learned.refused_options.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = refused.get(&self.model).cloned().unwrap_or_default();
        refused.into_iter().filter(|option| self.encoder.drop_option(option)).count() > 0
    }

    /// Takes note of what the server refuses and can do without. Returns whether the next request is another one than the last.
    fn learn_refusal(&mut self, refusal: &str) -> bool {
        if self.encoder.drop_prefix_bound_thinking(refusal) {
            return true;
        }
        let Some(option) = self.encoder.refused_option(refusal) else { return false };
        let mut refused = self.shared.learned.refused_options.lock().unwrap_or_else(PoisonError::into_inner);
        let of_model = refused.entry(self.model.clone()).or_default();
        if !of_model.contains(&option) {
            of_model.push(option);
        }
        self.encoder.drop_option(option)
    }

    /// Lowers `max_tokens` to what the server has said that it takes. Returns whether that changes it.
    fn apply_reply_limit(&self, ask: &mut ReplyRequest) -> bool {
        let limits = self.shared.learned.reply_limits.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = limits.get(&self.model).copied().filter(|limit| *limit < ask.max_tokens);
        ask.max_tokens = limit.unwrap_or(ask.max_tokens);
        limit.is_some()
    }

    /// Takes note of a limit for `max_tokens` that a refusal names. Returns whether it is below what was asked for.
    fn learn_reply_limit(&self, ask: &ReplyRequest, fault: &ProviderError) -> bool {
        let named =
            (fault.kind == ProviderErrorKind::Rejected).then(|| limit_hints::reply_limit(&fault.message)).flatten();
        let Some(limit) = named.filter(|limit| *limit < ask.max_tokens) else { return false };
        let mut limits = self.shared.learned.reply_limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.insert(self.model.clone(), limit);
        true
    }

    fn ended_early(&self, event: Option<&str>) -> FailedAttempt {
        if let Some(failure) = self.classify_unexpected_event(event) {
            return failure;
        }
        FailedAttempt::transient(format!(
            "the stream of {} ended before the reply did",
            self.shared.endpoint.display_url()
        ))
    }

    fn classify_stream_error(&self, why: StreamError) -> FailedAttempt {
        let ProviderState { endpoint, error_dialect: manners, .. } = &*self.shared;
        match why {
            StreamError::Api(json) => {
                classification::classify_event(manners, &json, "with an error in the stream", &self.model, endpoint)
            }
            StreamError::Malformed(why) => FailedAttempt::transient(format!(
                "{} sent what can't be read: {}",
                endpoint.display_url(),
                endpoint.quote(&why)
            )),
        }
    }
}

impl<B: RequestEncoder + Sync> Conversation for HttpConversation<B> {
    fn push(&mut self, message: &Message) {
        if let Err(error) = self.encoder.push(message) {
            self.encode_error = Some(encode_error(&error));
        }
        if let Message::Assistant(reply) = message {
            self.has_replied = true;
            self.call_ids.extend(reply.tool_calls().map(|call| call.id.clone()));
        }
    }

    fn ask<'a>(
        &'a mut self,
        mut ask: ReplyRequest,
        watch: &'a dyn StreamObserver,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            if let Some(fault) = &self.encode_error {
                return Err(fault.clone());
            }
            let governor = self.shared.retry_policy.governor().clone();
            let mut pieces = self.encoder.body_chunks(&ask);
            let mut tries = self.shared.retry_policy.start(ask.deadline);
            let mut silent = 0;
            loop {
                let mut permit = governor.admit().await;
                tries.start_attempt();
                // Both may have been learned by another conversation since.
                if self.drop_refused_options() | self.apply_reply_limit(&mut ask) {
                    pieces = self.encoder.body_chunks(&ask);
                }
                let mut growth = self.encoder.new_assembler();
                let endpoint = &self.shared.endpoint;
                let exchange = self.attempt(pieces.clone(), &mut growth, watch, &mut permit);
                let outcome = match timeout(endpoint.request_timeout(), exchange).await {
                    Ok(outcome) => outcome,
                    Err(_) => Err(FailedAttempt::transient(format!(
                        "{} didn't finish its answer within {:?}",
                        endpoint.display_url(),
                        endpoint.request_timeout()
                    ))),
                };
                let spent = growth.usage();
                let outcome = match outcome {
                    Ok(request_id) => growth.finish(request_id).map_err(|why| self.classify_stream_error(why)),
                    Err(failure) => Err(failure),
                };
                let mut failure = match outcome {
                    Ok(reply) => {
                        permit.on_reply(&reply.usage);
                        drop(permit);
                        if !self.is_unexpectedly_empty(&ask, &reply) {
                            return self.finalize_reply(reply);
                        }
                        match self.handle_empty_reply(&ask, reply, silent, &mut tries)? {
                            EmptyReplyAction::Accept(reply) => return self.finalize_reply(reply),
                            EmptyReplyAction::Retry(retry) => {
                                silent += 1;
                                watch.on_retry(&retry);
                                tokio::time::sleep(retry.wait()).await;
                                continue;
                            }
                        }
                    }
                    Err(failure) => failure,
                };
                if self.learn_refusal(&failure.error.message) {
                    pieces = self.encoder.body_chunks(&ask);
                    continue;
                }
                if self.learn_reply_limit(&ask, &failure.error) {
                    continue;
                }
                failure.error.usage = spent;
                let failure = failure.resolve(self.has_replied || governor.has_replied());
                let wait = match failure.retry {
                    RetryDecision::Throttled(throttle) => Some(permit.on_throttle(throttle)),
                    _ => None,
                };
                // In the middle of a reply it may have cost something, so there are as many tries as for any other failure.
                let wait = wait.filter(|_| !permit.is_accepted());
                drop(permit);
                let tried = match wait {
                    Some(wait) => tries.after_throttle(failure.error, wait, governor.last_accepted()),
                    None => tries.after_failure(failure),
                };
                let retry =
                    crate::providers::transport::tls_probe::diagnose_closed_connection(&self.shared.endpoint, tried)
                        .await?;
                watch.on_retry(&retry);
                // Else the governor's gate is closed.
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

    fn prompt_bytes(&self) -> usize {
        self.encoder.prompt_bytes()
    }
}

/// Takes one event; what follows the end of the reply is no part of it.
fn feed_event<G: ReplyAssembler>(
    growth: &mut G,
    name: &str,
    data: &str,
    text: &dyn Fn(&str),
) -> Result<(), StreamError> {
    if growth.is_finished() { Ok(()) } else { growth.push_event(name, data, text) }
}

/// The data of an event's line.
fn data_field(line: &str) -> Option<&str> {
    line.strip_prefix("data:").map(str::trim)
}

fn encode_error(error: &serde_json::Error) -> ProviderError {
    ProviderError::new(ProviderErrorKind::Rejected, format!("the conversation can't be written as JSON: {error}"))
}
