//! Tests specific to this API. The conformance suite has those that all providers pass.

mod dialect;
mod replies;
mod requests;

pub(crate) use self::dialect::GeminiDialect;

use serde_json::Value;

use self::dialect::{response, sent};
use super::request::GeminiEncoder;
use crate::message::{Message, Reply, UserMessage};
use crate::providers::ConversationConfig;
use crate::providers::conformance_tests::{RecordingObserver, ask_once_with, last_request, request, setup};
use crate::providers::test_server::ScriptedResponse;
use crate::providers::transport::http_conversation::RequestEncoder as _;

/// The reply that a stream of these responses becomes, and what the observer recorded.
async fn streamed(responses: &[String]) -> (Reply, RecordingObserver) {
    let answer = ScriptedResponse::stream([sent(responses).concat().as_bytes()]);
    let (reply, seen, requests) = ask_once_with(&GeminiDialect, last_request(), vec![answer]).await;
    assert_eq!(requests, 1);
    (reply.unwrap(), seen)
}

/// The reply to a stream of these parts, one per response.
async fn reply_of(parts: &[&str]) -> Reply {
    let mut responses: Vec<String> = parts.iter().map(|part| response(&[(*part).to_owned()], None)).collect();
    responses.push(response(&[], Some("STOP")));
    streamed(&responses).await.0
}

fn of_model(name: &str) -> ConversationConfig {
    let mut setup = setup(&GeminiDialect);
    name.clone_into(&mut setup.model.name);
    setup
}

/// The messages of a conversation as they appear in a request.
fn sent_back(setup: &ConversationConfig, messages: impl IntoIterator<Item = Message>) -> Value {
    let mut body = GeminiEncoder::new(setup);
    messages.into_iter().for_each(|message| body.push(&message));
    let body: Value = serde_json::from_slice(&body.body_chunks(&request()).concat()).unwrap();
    body["contents"].clone()
}

/// A message with results for the calls with these ids.
fn answers(ids: &[&str]) -> Message {
    let results = ids.iter().map(|id| crate::providers::conformance_tests::result(id, "found", false)).collect();
    Message::User(UserMessage::results(results))
}
