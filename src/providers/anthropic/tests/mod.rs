mod dialect;
mod failures;
mod replies;
mod requests;
mod servers;
mod turns;

pub(crate) use self::dialect::{AnthropicDialect, new_assembler};

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::job::Thinking;
use crate::message::{Message, UserMessage};
use crate::providers::test_server::ScriptedServer;
use crate::providers::{
    ConnectContext, Conversation, ConversationConfig, Model, ProviderError, ReplyRequest, Retry, StreamObserver,
};
use crate::redaction::Redactor;
use crate::tools::ToolSpec;

pub(super) const SECRET: &str = "sk-ant-test-0123456789";

#[derive(Default)]
pub(super) struct RecordingObserver {
    pub(super) retries: Mutex<Vec<Retry>>,
}

impl StreamObserver for RecordingObserver {
    fn on_retry(&self, retry: &Retry) {
        self.retries.lock().unwrap().push(retry.clone());
    }
}

pub(super) fn try_connect(variables: &[(&str, &str)]) -> Result<Arc<dyn crate::providers::Provider>, ProviderError> {
    let variable =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let mask = Redactor::default();
    (super::SPEC.connect)(&ConnectContext {
        providers: crate::providers::PROVIDERS,
        env: &variable,
        server: None,
        settings: None,
        script: None,
        user_agent: "legwork/test",
        redactor: &mask,
    })
}

pub(super) fn setup(thinking: Option<Thinking>) -> ConversationConfig {
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: "does \"it\"".to_owned(),
        input_schema: json!({ "type": "object" }),
    };
    ConversationConfig {
        agent: "parent".to_owned(),
        model: Model { thinking, ..Model::new("anthropic", "claude-sonnet-4-5") },
        system: "Be brief.".to_owned(),
        tools: vec![tool("glob"), tool("grep")],
        caches_for_hour: false,
    }
}

pub(super) fn open_conversation(url: &str, setup: ConversationConfig) -> Box<dyn Conversation> {
    with_idle_timeout(url, setup, "20000")
}

/// A conversation with this idle timeout in milliseconds.
pub(super) fn with_idle_timeout(url: &str, setup: ConversationConfig, idle: &str) -> Box<dyn Conversation> {
    let provider = try_connect(&[
        ("ANTHROPIC_API_KEY", SECRET),
        ("ANTHROPIC_BASE_URL", url),
        ("LEGWORK_RETRY_BASE_MS", "2"),
        ("LEGWORK_IDLE_TIMEOUT_MS", idle),
        ("LEGWORK_REQUEST_TIMEOUT_MS", "60000"),
    ]);
    provider.unwrap().open(setup).unwrap()
}

/// A conversation with one prompt.
pub(super) fn prompted(url: &str) -> Box<dyn Conversation> {
    let mut conversation = open_conversation(url, setup(None));
    conversation.push(&Message::User(UserMessage::text("Hello")));
    conversation
}

pub(super) fn request() -> ReplyRequest {
    ReplyRequest {
        max_tokens: 8000,
        tools_allowed: true,
        requires_content: true,
        deadline: crate::running_clock::RunningInstant::now() + Duration::from_secs(60),
        has_fallback: false,
    }
}

/// The bytes of these events in a stream.
pub(super) fn events(events: &[Value]) -> String {
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

pub(super) fn start() -> Value {
    json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message", "role": "assistant",
        "model": "claude-sonnet-4-5-20250929", "content": [], "stop_reason": null, "usage": { "input_tokens": 10,
        "cache_creation_input_tokens": 5, "cache_read_input_tokens": null, "output_tokens": 1 } } })
}

/// A stream of blocks, each given as its start and its deltas, with the events that every reply has.
pub(super) fn reply(blocks: &[(Value, Vec<Value>)], stop: &str) -> String {
    let mut all = vec![start(), json!({ "type": "ping" })];
    for (index, (block, deltas)) in blocks.iter().enumerate() {
        all.push(json!({ "type": "content_block_start", "index": index, "content_block": block }));
        for delta in deltas {
            all.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        all.push(json!({ "type": "content_block_stop", "index": index }));
    }
    all.push(json!({ "type": "message_delta", "delta": { "stop_reason": stop, "stop_sequence": null },
        "usage": { "output_tokens": 42, "cache_read_input_tokens": 7 } }));
    all.push(json!({ "type": "message_stop" }));
    events(&all)
}

pub(super) fn text_block(text: &str) -> (Value, Vec<Value>) {
    (json!({ "type": "text", "text": "" }), vec![json!({ "type": "text_delta", "text": text })])
}

pub(super) fn call_block(id: &str, pieces: &[&str]) -> (Value, Vec<Value>) {
    let delta = |piece: &&str| json!({ "type": "input_json_delta", "partial_json": piece });
    (json!({ "type": "tool_use", "id": id, "name": "glob", "input": {} }), pieces.iter().map(delta).collect())
}

/// Sends one request and returns the reply that the response body becomes.
pub(super) async fn ask_once(body: &str) -> crate::message::Reply {
    let answer = crate::providers::test_server::ScriptedResponse::stream([body.as_bytes()]);
    let server = ScriptedServer::start([answer]).await;
    prompted(&server.url).ask(request(), &RecordingObserver::default()).await.unwrap()
}
