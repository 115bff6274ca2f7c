//! Claude, and whatever speaks the Messages API: `POST /v1/messages`.
//!
//! We send `anthropic-version: 2023-06-01` with the key in `x-api-key`. The newest version, 2026-10-21, takes away
//! `temperature`, `top_p`, `top_k`, documents in assistant messages and citations in user messages
//! (<https://platform.claude.com/docs/en/api/migration-2026-10-21>): we send none of these, so both versions are the same to us,
//! and the older one is also spoken by the gateways and compatible servers that `ANTHROPIC_BASE_URL` may name (Bedrock has
//! the newer one only for Claude 4.7 and later, <https://platform.claude.com/docs/en/api/versioning>). The API takes a key in
//! `x-api-key` or as `Authorization: Bearer`, as its official clients send it from version 2.0 on. Some compatible servers
//! take only the latter (such as MiniMax's), so an endpoint other than Anthropic's own gets both.

mod block;
mod fault;
mod reply;
mod request;
#[cfg(test)]
mod tests;
mod thinking;

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use self::reply::{Broken, Growth, LARGEST_EVENT};
use self::request::Body;
use super::http::{self, Answer, Endpoint};
use super::retry::{Failure, Patience};
use super::sse::Decoder;
use super::{Ask, Connect, Conversation, Entry, Fault, FaultKind, Provider, Setup, Watch};
use crate::message::{Message, Reply};

/// The variable with the key.
const KEY: &str = "ANTHROPIC_API_KEY";
/// The variable with the address, where it isn't Anthropic's own.
const BASE: &str = "ANTHROPIC_BASE_URL";
const HOST: &str = "api.anthropic.com";

/// How a job names this provider.
pub const ENTRY: Entry = Entry { name: "anthropic", keys: &[KEY], takes_thinking: true, connect };

fn connect(connect: &Connect<'_>) -> Result<Arc<dyn Provider>, Fault> {
    let key = http::key(connect.variable, KEY)?;
    let mut endpoint = Endpoint::new(connect, BASE, &format!("https://{HOST}"), "/v1/messages")?;
    endpoint.header("anthropic-version", "2023-06-01");
    endpoint.secret_header("x-api-key", "", &key);
    if !endpoint.is_at(HOST) && !endpoint.has_credentials() {
        endpoint.secret_header("authorization", "Bearer ", &key);
    }
    let patience = Patience::new(connect.variable)?;
    Ok(Arc::new(Anthropic { shared: Arc::new(Shared { endpoint, patience }) }))
}

struct Anthropic {
    shared: Arc<Shared>,
}

struct Shared {
    endpoint: Endpoint,
    patience: Patience,
}

impl Provider for Anthropic {
    fn open(&self, setup: Setup) -> Result<Box<dyn Conversation>, Fault> {
        let model = setup.model.name.clone();
        if let Err(why) = thinking::check(&model, setup.model.thinking) {
            return Err(Fault::new(FaultKind::Rejected, why).hint("leave `thinking` out, or choose another model"));
        }
        let body = Body::new(setup).map_err(|error| unwritable(&error))?;
        Ok(Box::new(Dialogue { shared: self.shared.clone(), model, body, call_ids: HashSet::new(), unwritten: None }))
    }

    fn warning(&self) -> Option<String> {
        self.shared.endpoint.warning()
    }
}

fn unwritable(error: &serde_json::Error) -> Fault {
    Fault::new(FaultKind::Rejected, format!("the conversation can't be written as JSON: {error}"))
}

struct Dialogue {
    shared: Arc<Shared>,
    model: String,
    body: Body,
    /// The ids of all calls so far.
    call_ids: HashSet<String>,
    unwritten: Option<Fault>,
}

impl Conversation for Dialogue {
    fn push(&mut self, message: &Message) {
        if let Err(error) = self.body.push(message) {
            self.unwritten = Some(unwritable(&error));
        }
        if let Message::Assistant(reply) = message {
            self.call_ids.extend(reply.calls().map(|call| call.id.clone()));
        }
    }

    fn ask<'a>(&'a mut self, ask: Ask, watch: &'a dyn Watch) -> BoxFuture<'a, Result<Reply, Fault>> {
        Box::pin(async move {
            if let Some(fault) = &self.unwritten {
                return Err(fault.clone());
            }
            let pieces = self.body.pieces(&ask);
            let mut tries = self.shared.patience.begin(ask.deadline);
            loop {
                let mut growth = Growth::default();
                let endpoint = &self.shared.endpoint;
                let exchange = exchange(endpoint, pieces.clone(), &self.model, &mut growth, watch);
                let outcome = match tokio::time::timeout(endpoint.total(), exchange).await {
                    Ok(outcome) => outcome,
                    Err(_) => Err(Failure::passing(format!(
                        "{} didn't finish its answer within {:?}",
                        endpoint.shown(),
                        endpoint.total()
                    ))),
                };
                let spent = growth.usage();
                let outcome = match outcome {
                    Ok(request_id) => growth.finish(request_id).map_err(|why| broken(why, &self.model, endpoint)),
                    Err(failure) => Err(failure),
                };
                match outcome {
                    Ok(mut reply) => {
                        request::make_unique(&mut reply, &self.call_ids).map_err(|error| unwritable(&error))?;
                        return Ok(reply);
                    }
                    Err(mut failure) => {
                        failure.fault.spent = spent;
                        let retry = tries.after(failure)?;
                        watch.retrying(&retry);
                        tokio::time::sleep(retry.wait()).await;
                    }
                }
            }
        })
    }

    fn size(&self) -> usize {
        self.body.size()
    }
}

/// One try: sends the request and reads the answer into `growth`. Returns the request's id.
async fn exchange(
    endpoint: &Endpoint,
    pieces: Vec<bytes::Bytes>,
    model: &str,
    growth: &mut Growth,
    watch: &dyn Watch,
) -> Result<Option<String>, Failure> {
    let mut answer = endpoint.post(pieces).await?;
    if answer.status() != reqwest::StatusCode::OK {
        return Err(fault::by_status(answer, model, endpoint).await);
    }
    let request_id = answer.header("request-id").map(|id| endpoint.quote(id));
    if answer.media_type() == "text/event-stream" {
        stream(answer, model, growth, watch, endpoint).await?;
        return Ok(request_id);
    }
    let media_type = answer.media_type();
    let body = answer.body(LARGEST_EVENT).await?;
    let text = |piece: &str| watch.text(piece);
    if body.starts_with(b"event:") || body.starts_with(b"data:") {
        // A stream by another name.
        Decoder::new(LARGEST_EVENT)
            .feed(&body, |name, data| growth.event(name, data, &text))
            .map_err(|why| broken(why, model, endpoint))?;
        return if growth.ended() { Ok(request_id) } else { Err(ended_early(endpoint)) };
    }
    growth.whole(&body, &text).map_err(|why| match why {
        Broken::Nonsense(why) => fault::foreign(&media_type, &why, &body, endpoint),
        why @ Broken::Error(_) => broken(why, model, endpoint),
    })?;
    Ok(request_id)
}

async fn stream(
    mut answer: Answer<'_>,
    model: &str,
    growth: &mut Growth,
    watch: &dyn Watch,
    endpoint: &Endpoint,
) -> Result<(), Failure> {
    let mut decoder = Decoder::new(LARGEST_EVENT);
    let text = |piece: &str| watch.text(piece);
    while let Some(chunk) = answer.chunk().await? {
        decoder
            .feed(&chunk, |name, data| growth.event(name, data, &text))
            .map_err(|why| broken(why, model, endpoint))?;
        if growth.ended() {
            answer.drain().await;
            return Ok(());
        }
    }
    Err(ended_early(endpoint))
}

fn ended_early(endpoint: &Endpoint) -> Failure {
    Failure::passing(format!("the stream of {} ended before the reply did", endpoint.shown()))
}

fn broken(why: Broken, model: &str, endpoint: &Endpoint) -> Failure {
    match why {
        Broken::Error(json) => fault::by_event(&json, model, endpoint),
        Broken::Nonsense(why) => {
            Failure::passing(format!("{} sent what can't be read: {}", endpoint.shown(), endpoint.quote(&why)))
        }
    }
}
