//! What is this API's own; the rest is in the suite that all providers pass.

mod dialect;
mod replies;
mod requests;

pub(crate) use self::dialect::Spoken;

use serde_json::Value;

use self::dialect::{response, sent};
use super::request::Body;
use crate::message::{Message, Reply, UserMessage};
use crate::providers::Setup;
use crate::providers::conformance::{Seen, asked_for, last_request, request, setup};
use crate::providers::dialogue::Body as _;
use crate::providers::scripted::Answer;

/// What comes of a stream of these responses, and how it was heard.
async fn streamed(responses: &[String]) -> (Reply, Seen) {
    let answer = Answer::stream([sent(responses).concat().as_bytes()]);
    let (reply, seen, requests) = asked_for(&Spoken, last_request(), vec![answer]).await;
    assert_eq!(requests, 1);
    (reply.unwrap(), seen)
}

/// A reply of these parts, one a response.
async fn reply_of(parts: &[&str]) -> Reply {
    let mut responses: Vec<String> = parts.iter().map(|part| response(&[(*part).to_owned()], None)).collect();
    responses.push(response(&[], Some("STOP")));
    streamed(&responses).await.0
}

fn of_model(name: &str) -> Setup {
    let mut setup = setup(&Spoken);
    name.clone_into(&mut setup.model.name);
    setup
}

/// The messages of a conversation, as a request has them.
fn sent_back(setup: &Setup, messages: impl IntoIterator<Item = Message>) -> Value {
    let mut body = Body::new(setup).unwrap();
    messages.into_iter().for_each(|message| body.push(&message).unwrap());
    let body: Value = serde_json::from_slice(&body.pieces(&request()).concat()).unwrap();
    body["contents"].clone()
}

/// A message that answers the calls of these ids.
fn answers(ids: &[&str]) -> Message {
    let results = ids.iter().map(|id| crate::providers::conformance::result(id, "found", false)).collect();
    Message::User(UserMessage { results, text: None })
}
