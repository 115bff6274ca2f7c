//! A conversation with a server: one request a turn, tried again where that helps, its answer read as it streams in.
//! What differs from API to API stands behind two traits: how a conversation is written, and how a reply grows.

mod silence;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout, timeout_at};

use self::silence::{LARGEST_SILENCE, Silence};
use super::fault::{self, Manners};
use super::foreign::other_api;
use super::http::{Answer, Endpoint};
use super::rate_governor::Permit;
use super::retry::{Again, Failure, Patience};
use super::sse::{Decoder, TooLong, is_document};
use super::{Ask, Conversation, Fault, FaultKind, Watch, window};
use crate::message::{Message, Reply, Usage};

/// The greatest size in bytes of one event and of one of its lines, and of an answer that isn't streamed.
pub(super) const LARGEST_EVENT: usize = 8 << 20;
/// The most characters of an odd event that are looked at.
const LONGEST_ODD: usize = 64 << 10;

/// A conversation as one API takes it, each part written once.
pub(super) trait Body: Send + 'static {
    /// What reads its replies.
    type Growth: Growth;

    /// Writes a message down.
    ///
    /// # Errors
    /// It can't be written as JSON, which no message's content leads to.
    fn push(&mut self, message: &Message) -> Result<(), serde_json::Error>;

    /// Drops all messages.
    fn clear(&mut self);

    /// The next request's body in pieces. What was written before is shared.
    fn pieces(&self, ask: &Ask) -> Vec<Bytes>;

    /// Size in bytes of the prompt.
    fn size(&self) -> usize;

    /// A reply of which nothing has come.
    fn growth(&self) -> Self::Growth;

    /// Gives the calls of a new reply ids that no other call of the conversation has and that the API takes back.
    /// `taken` holds those that are in use.
    ///
    /// # Errors
    /// A block can't be rewritten as JSON.
    fn name_calls(&self, reply: &mut Reply, taken: &HashSet<String>) -> Result<(), serde_json::Error>;

    /// Whether the API at times says nothing where there is more to say, so that asking again helps even where saying nothing
    /// may be meant: behind the answers to calls.
    fn falls_silent(&self) -> bool {
        false
    }

    /// The option of the next request that the server refuses, in these words, where it can do without.
    fn refused_option(&self, refusal: &str) -> Option<&'static str> {
        let _ = refusal;
        None
    }

    /// Drops the conversation's thinking where the server says, in these words, that it was produced in another conversation.
    /// Returns whether there was any.
    fn drop_bound_thinking(&mut self, refusal: &str) -> bool {
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
pub(super) enum Broken {
    /// The API said so: its JSON.
    Error(String),
    /// It isn't what the API speaks.
    Nonsense(String),
}

impl Broken {
    /// That a whole answer is none of the API's, as its reader says; `reply` is what the API calls one.
    pub(super) fn no(reply: &str, error: &serde_json::Error) -> Self {
        let why = error.to_string();
        Self::Nonsense(match error.is_data() {
            false => "it isn't JSON".to_owned(),
            true if why.contains("expected struct") => format!("it is JSON, but no {reply}"),
            true => format!("it is JSON, but no {reply}: {why}"),
        })
    }
}

impl From<TooLong> for Broken {
    fn from(_: TooLong) -> Self {
        Self::Nonsense(format!("an event is longer than {LARGEST_EVENT} bytes"))
    }
}

/// A reply that is being received. Knows no network.
pub(super) trait Growth: Send {
    /// Takes one event. `text` is told each piece of text.
    ///
    /// # Errors
    /// The API reports an error, or an event that we know isn't as it should be.
    fn event(&mut self, name: &str, data: &str, text: &dyn Fn(&str)) -> Result<(), Broken>;

    /// Takes an answer that isn't streamed, whole.
    ///
    /// # Errors
    /// It is something else than a reply.
    fn whole(&mut self, body: &[u8], text: &dyn Fn(&str)) -> Result<(), Broken>;

    /// Whether the reply is complete, and nothing follows.
    fn ended(&self) -> bool;

    /// Whether the reply is complete, though more about it may follow.
    fn may_end(&self) -> bool {
        self.ended()
    }

    /// What has been used so far, as far as it is known or can be estimated.
    fn usage(&self) -> Usage;

    /// The reply. `request_id` is used where the server names the request.
    ///
    /// # Errors
    /// A block can't be put together, or nothing says why the reply ended: then something of it is missing.
    fn finish(self, request_id: Option<String>) -> Result<Reply, Broken>;
}

/// Where one provider's conversations go, and how its errors are read.
pub(super) struct Shared {
    pub(super) endpoint: Endpoint,
    pub(super) patience: Patience,
    pub(super) manners: &'static Manners,
    pub(super) learned: Arc<Learned>,
}

/// What refusals have said about a provider's models, by their names: one conversation's refusal spares all others theirs.
#[derive(Default)]
pub(super) struct Learned {
    /// What the server refused of what a request can do without.
    refused_options: Mutex<HashMap<String, Vec<&'static str>>>,
    /// The greatest `max_tokens` that the server takes, where it said so.
    reply_limits: Mutex<HashMap<String, u32>>,
}

impl Shared {
    pub(super) fn new(endpoint: Endpoint, patience: Patience, manners: &'static Manners) -> Self {
        Self { endpoint, patience, manners, learned: Arc::default() }
    }
}

/// One agent's conversation.
pub(super) struct Dialogue<B> {
    shared: Arc<Shared>,
    model: String,
    body: B,
    /// The ids of all calls so far.
    call_ids: HashSet<String>,
    /// Whether the model has said anything yet.
    has_replied: bool,
    unwritten: Option<Fault>,
}

impl<B: Body> Dialogue<B> {
    /// An empty conversation, or the fault that its beginning can't be written.
    pub(super) fn open(
        shared: &Arc<Shared>,
        model: String,
        body: Result<B, serde_json::Error>,
    ) -> Result<Box<dyn Conversation>, Fault>
    where
        B: Sync,
    {
        let body = body.map_err(|error| unwritable(&error))?;
        Ok(Box::new(Self {
            shared: shared.clone(),
            model,
            body,
            call_ids: HashSet::new(),
            has_replied: false,
            unwritten: None,
        }))
    }

    /// One try: sends the request and reads the answer into `growth`. Returns the request's id.
    async fn exchange(
        &self,
        pieces: Vec<Bytes>,
        growth: &mut B::Growth,
        watch: &dyn Watch,
        permit: &mut Permit,
    ) -> Result<Option<String>, Failure> {
        let Shared { endpoint, manners, .. } = &*self.shared;
        let mut answer = endpoint.post(pieces).await?;
        permit.answered(answer.status() == reqwest::StatusCode::OK, answer.headers());
        if answer.status() != reqwest::StatusCode::OK {
            return Err(fault::by_status(manners, answer, &self.model, endpoint).await);
        }
        if let Some(packing) = answer.packing() {
            return Err(fault::packed(&packing, endpoint));
        }
        let request_id = fault::request_id(&answer).map(|id| endpoint.quote(id));
        if answer.media_type() == "text/event-stream" {
            self.stream(answer, growth, watch).await?;
            return Ok(request_id);
        }
        let media_type = answer.media_type();
        let body = answer.body(LARGEST_EVENT).await?;
        let text = |piece: &str| watch.text(piece);
        if [&b"event:"[..], b"data:", b":"].iter().any(|start| body.trim_ascii_start().starts_with(start)) {
            // A stream by another name.
            let mut decoder = Decoder::new(LARGEST_EVENT);
            let mut each = |name: &str, data: &str| growing(growth, name, data, &text);
            decoder.feed(&body, &mut each).map_err(|why| self.broken(why))?;
            decoder.end(&mut each).map_err(|why| self.broken(why))?;
            let first = || String::from_utf8_lossy(&body).lines().find_map(data_of).map(str::to_owned);
            return if growth.may_end() { Ok(request_id) } else { Err(self.ended_early(first().as_deref())) };
        }
        self.whole(&body, &media_type, growth, &text)?;
        Ok(request_id)
    }

    fn whole(&self, body: &[u8], media_type: &str, growth: &mut B::Growth, text: &dyn Fn(&str)) -> Result<(), Failure> {
        let Shared { endpoint, manners, .. } = &*self.shared;
        if body.len() > LARGEST_EVENT {
            let why = format!("it is longer than {LARGEST_EVENT} bytes");
            return Err(fault::foreign(manners, media_type, &why, body, &self.model, endpoint));
        }
        let is_cut = body.trim_ascii_start().first() == Some(&b'{') && !is_document(body);
        growth.whole(body, text).map_err(|why| match why {
            Broken::Nonsense(_) if is_cut => {
                Failure::passing(format!("{} sent JSON that breaks off before its end", endpoint.shown()))
            }
            Broken::Nonsense(why) => fault::foreign(manners, media_type, &why, body, &self.model, endpoint),
            Broken::Error(json) => fault::by_event(manners, &json, "200 with an error", &self.model, endpoint),
        })
    }

    async fn stream(&self, mut answer: Answer<'_>, growth: &mut B::Growth, watch: &dyn Watch) -> Result<(), Failure> {
        let mut decoder = Decoder::new(LARGEST_EVENT);
        let text = |piece: &str| watch.text(piece);
        // Of another API nothing but the first event is needed, or an error that isn't in this one's form.
        let mut odd: Option<String> = None;
        // Before the first event: no stream at all, perhaps.
        let mut start = Vec::new();
        let mut until = None;
        // What came since the reply last grew.
        let (mut heard, mut idle) = (growth.usage().output_tokens, 0);
        loop {
            let chunk = if growth.may_end() {
                // What breaks off now has said all that is needed; what only shows that it lives isn't waited for.
                let until = *until.get_or_insert_with(|| Instant::now() + self.shared.endpoint.linger());
                timeout_at(until, answer.chunk()).await.ok().and_then(Result::ok).flatten()
            } else {
                answer.chunk().await?
            };
            let mut each = |name: &str, data: &str| {
                if odd.is_none() || data.starts_with("{\"error\"") {
                    odd = Some(data.chars().take(LONGEST_ODD).collect());
                }
                growing(growth, name, data, &text)
            };
            let is_over = chunk.is_none();
            idle += chunk.as_ref().map_or(0, Bytes::len);
            let fed = match &chunk {
                Some(chunk) => decoder.feed(chunk, each),
                None => decoder.end(&mut each),
            };
            if let Some(chunk) = chunk.filter(|_| odd.is_none() && start.len() < LARGEST_EVENT) {
                start.extend_from_slice(&chunk);
            }
            fed.map_err(|why| match why {
                Broken::Nonsense(_) => self.foreign(odd.as_deref()).unwrap_or_else(|| self.broken(why)),
                why @ Broken::Error(_) => self.broken(why),
            })?;
            if heard != growth.usage().output_tokens {
                (heard, idle) = (growth.usage().output_tokens, 0);
            }
            if idle > LARGEST_SILENCE {
                return Err(self.endless());
            }
            if growth.ended() {
                answer.drain().await;
                return Ok(());
            }
            if is_over {
                break;
            }
        }
        if odd.is_none() && is_document(&start) {
            return self.whole(&start, &answer.media_type(), growth, &text);
        }
        if growth.may_end() { Ok(()) } else { Err(self.ended_early(odd.as_deref())) }
    }

    /// What an event means that isn't of this API: an error, or another API.
    fn foreign(&self, event: Option<&str>) -> Option<Failure> {
        let Shared { endpoint, manners, .. } = &*self.shared;
        let event = event?;
        other_api(event, &self.model, endpoint)
            .or_else(|| fault::error_in_place(manners, event, "with an error in the stream", &self.model, endpoint))
    }

    /// A reply as it is kept.
    fn taken(&self, mut reply: Reply) -> Result<Reply, Fault> {
        reply.flatten();
        self.body.name_calls(&mut reply, &self.call_ids).map_err(|error| unwritable(&error))?;
        Ok(reply)
    }

    /// Leaves out what the server has refused of others' requests. Returns whether that changes the next one.
    fn drop_refused_options(&mut self) -> bool {
        let refused = self.shared.learned.refused_options.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = refused.get(&self.model).cloned().unwrap_or_default();
        refused.into_iter().filter(|option| self.body.drop_option(option)).count() > 0
    }

    /// Takes note of what the server refuses and can do without. Returns whether the next request is another one than the last.
    fn learn_refusal(&mut self, refusal: &str) -> bool {
        if self.body.drop_bound_thinking(refusal) {
            return true;
        }
        let Some(option) = self.body.refused_option(refusal) else { return false };
        let mut refused = self.shared.learned.refused_options.lock().unwrap_or_else(PoisonError::into_inner);
        let of_model = refused.entry(self.model.clone()).or_default();
        if !of_model.contains(&option) {
            of_model.push(option);
        }
        self.body.drop_option(option)
    }

    /// Lowers `max_tokens` to what the server has said that it takes. Returns whether that changes it.
    fn limit_reply(&self, ask: &mut Ask) -> bool {
        let limits = self.shared.learned.reply_limits.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = limits.get(&self.model).copied().filter(|limit| *limit < ask.max_tokens);
        ask.max_tokens = limit.unwrap_or(ask.max_tokens);
        limit.is_some()
    }

    /// Takes note of a limit for `max_tokens` that a refusal names. Returns whether it is below what was asked for.
    fn learn_reply_limit(&self, ask: &Ask, fault: &Fault) -> bool {
        let named = (fault.kind == FaultKind::Rejected).then(|| window::reply_limit(&fault.message)).flatten();
        let Some(limit) = named.filter(|limit| *limit < ask.max_tokens) else { return false };
        let mut limits = self.shared.learned.reply_limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.insert(self.model.clone(), limit);
        true
    }

    fn ended_early(&self, event: Option<&str>) -> Failure {
        if let Some(failure) = self.foreign(event) {
            return failure;
        }
        Failure::passing(format!("the stream of {} ended before the reply did", self.shared.endpoint.shown()))
    }

    fn broken(&self, why: Broken) -> Failure {
        let Shared { endpoint, manners, .. } = &*self.shared;
        match why {
            Broken::Error(json) => {
                fault::by_event(manners, &json, "with an error in the stream", &self.model, endpoint)
            }
            Broken::Nonsense(why) => {
                Failure::passing(format!("{} sent what can't be read: {}", endpoint.shown(), endpoint.quote(&why)))
            }
        }
    }
}

impl<B: Body + Sync> Conversation for Dialogue<B> {
    fn push(&mut self, message: &Message) {
        if let Err(error) = self.body.push(message) {
            self.unwritten = Some(unwritable(&error));
        }
        if let Message::Assistant(reply) = message {
            self.has_replied = true;
            self.call_ids.extend(reply.calls().map(|call| call.id.clone()));
        }
    }

    fn ask<'a>(&'a mut self, mut ask: Ask, watch: &'a dyn Watch) -> BoxFuture<'a, Result<Reply, Fault>> {
        Box::pin(async move {
            if let Some(fault) = &self.unwritten {
                return Err(fault.clone());
            }
            let governor = self.shared.patience.governor().clone();
            let mut pieces = self.body.pieces(&ask);
            let mut tries = self.shared.patience.begin(ask.deadline);
            let mut silent = 0;
            loop {
                let mut permit = governor.admit().await;
                tries.next();
                // Both may have been learned by another conversation since.
                if self.drop_refused_options() | self.limit_reply(&mut ask) {
                    pieces = self.body.pieces(&ask);
                }
                let mut growth = self.body.growth();
                let endpoint = &self.shared.endpoint;
                let exchange = self.exchange(pieces.clone(), &mut growth, watch, &mut permit);
                let outcome = match timeout(endpoint.total(), exchange).await {
                    Ok(outcome) => outcome,
                    Err(_) => Err(Failure::passing(format!(
                        "{} didn't finish its answer within {:?}",
                        endpoint.shown(),
                        endpoint.total()
                    ))),
                };
                let spent = growth.usage();
                let outcome = match outcome {
                    Ok(request_id) => growth.finish(request_id).map_err(|why| self.broken(why)),
                    Err(failure) => Err(failure),
                };
                let mut failure = match outcome {
                    Ok(reply) => {
                        permit.replied(&reply.usage);
                        drop(permit);
                        if !self.is_silence_odd(&ask, &reply) {
                            return self.taken(reply);
                        }
                        match self.silence(&ask, reply, silent, &mut tries)? {
                            Silence::Taken(reply) => return self.taken(reply),
                            Silence::Again(retry) => {
                                silent += 1;
                                watch.retrying(&retry);
                                tokio::time::sleep(retry.wait()).await;
                                continue;
                            }
                        }
                    }
                    Err(failure) => failure,
                };
                if self.learn_refusal(&failure.fault.message) {
                    pieces = self.body.pieces(&ask);
                    continue;
                }
                if self.learn_reply_limit(&ask, &failure.fault) {
                    continue;
                }
                failure.fault.spent = spent;
                let failure = failure.judged(self.has_replied || governor.has_replied());
                let wait = match failure.again {
                    Again::Throttled(throttle) => Some(permit.throttled(throttle)),
                    _ => None,
                };
                // In the middle of a reply it may have cost something, so there are as many tries as for any other failure.
                let wait = wait.filter(|_| !permit.is_taken());
                drop(permit);
                let tried = match wait {
                    Some(wait) => tries.throttled(failure.fault, wait, governor.last_taken()),
                    None => tries.after(failure),
                };
                let retry = super::secured::or_named(&self.shared.endpoint, tried).await?;
                watch.retrying(&retry);
                // Else the governor's gate is closed.
                if wait.is_none() {
                    tokio::time::sleep(retry.wait()).await;
                }
            }
        })
    }

    fn clear(&mut self) {
        self.has_replied = false;
        self.body.clear();
    }

    fn size(&self) -> usize {
        self.body.size()
    }
}

/// Takes one event; what follows the end of the reply is no part of it.
fn growing<G: Growth>(growth: &mut G, name: &str, data: &str, text: &dyn Fn(&str)) -> Result<(), Broken> {
    if growth.ended() { Ok(()) } else { growth.event(name, data, text) }
}

/// The data of an event's line.
fn data_of(line: &str) -> Option<&str> {
    line.strip_prefix("data:").map(str::trim)
}

fn unwritable(error: &serde_json::Error) -> Fault {
    Fault::new(FaultKind::Rejected, format!("the conversation can't be written as JSON: {error}"))
}
