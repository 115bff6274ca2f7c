//! Tests that every provider must pass, whatever its wire format. Each provider has a handwritten [`WireDialect`] among
//! its own tests; the cases here are independent of the format.

mod caching;
mod empty_reply;
mod failures;
mod gateways;
mod limits;
mod replies;
mod requests;
mod reset;
mod stale_connection;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::test_server::body_dump::{self, What};
use super::test_server::{ScriptedResponse, ScriptedServer};
use super::{
    ConnectContext, Conversation, ConversationConfig, Model, Provider, ProviderError, ProviderSpec, ReplyRequest,
    Retry, StreamObserver,
};
use crate::message::{Message, Reply, ToolResult, Usage, UserMessage};
use crate::providers::assembler::{EventDecoder, ReplyAssembler};
use crate::providers::transport::sse::Decoder;
use crate::redaction::Redactor;
use crate::running_clock::RunningInstant;
use crate::tools::ToolSpec;

/// The providers that talk to a server.
pub(super) fn dialects() -> Vec<Box<dyn WireDialect>> {
    vec![
        Box::new(super::anthropic::tests::AnthropicDialect),
        Box::new(super::openai::tests::OpenaiDialect),
        Box::new(super::openai_chat::tests::OpenaiChatDialect),
        Box::new(super::gemini::tests::GeminiDialect),
    ]
}

/// The key that is sent with every request and must not appear in any message.
pub(super) const TEST_KEY: &str = "sk-ant-test-0123456789";

/// The usage of every reply, for servers that count all of it.
pub(super) const USAGE: Usage = Usage {
    input_tokens: 10,
    output_tokens: 42,
    cache_read_tokens: 7,
    cache_write_tokens: 5,
    cache_write_1h_tokens: 0,
};

/// A part of a reply.
#[derive(Debug, Clone)]
pub(super) enum ReplyPart {
    /// Pieces of text.
    Text(Vec<&'static str>),
    /// Reasoning that must be sent back.
    Thought(&'static str),
    /// A call: its id, its tool, and the pieces of its input.
    Call(&'static str, &'static str, Vec<&'static str>),
}

/// Why a reply ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyEnding {
    /// The model is done.
    EndTurn,
    /// The model waits for the results of its calls.
    ToolUse,
    /// `max_tokens`.
    MaxTokens,
    /// The reply was refused.
    Refusal,
}

/// A reply.
#[derive(Debug, Clone)]
pub(super) struct ReplySpec(pub(super) Vec<ReplyPart>, pub(super) ReplyEnding);

/// The parts of a request that all APIs have.
#[derive(Debug, PartialEq)]
pub(super) struct ParsedRequest {
    pub(super) model: String,
    pub(super) system: String,
    pub(super) tools: Vec<String>,
    pub(super) may_call: bool,
    pub(super) max_tokens: u64,
    pub(super) streams: bool,
    pub(super) turns: Vec<RequestTurn>,
}

/// A part of a conversation.
#[derive(Debug, PartialEq)]
pub(super) enum RequestTurn {
    User(String),
    /// The id of a call, its result, and whether it is marked as failed.
    ToolResult(String, String, bool),
    Text(String),
    Thought(String),
    Call(String, String, Value),
}

/// The wire format of one provider's server.
pub(super) trait WireDialect {
    fn spec(&self) -> &'static ProviderSpec;
    /// The environment variables for a conversation with the server at this URL.
    fn variables(&self, url: &str) -> Vec<(&'static str, String)>;
    /// The first line of every request.
    fn request_line(&self) -> &'static str;
    /// A model's name, and the name that the server reports.
    fn model(&self) -> [&'static str; 2];
    /// The usage of every reply, as this server counts it.
    fn usage(&self) -> Usage {
        USAGE
    }
    /// The events of a streamed reply with this usage.
    fn events(&self, said: &ReplySpec) -> Vec<String>;
    /// The number of events after which the reply is complete.
    fn events_until_complete(&self, events: &[String]) -> usize {
        events.len()
    }
    /// Reads these chunks of a stream. Returns the number of bytes after which the reply was complete, and the reply in
    /// the journal's format.
    fn read(&self, chunks: &[&[u8]]) -> Option<(usize, String)>;
    /// An event of an unknown type.
    fn unknown_event(&self) -> &'static str;
    /// A reply that isn't streamed.
    fn whole(&self, said: &ReplySpec) -> Value;
    /// The body of an error with this status.
    fn error(&self, status: u16, message: &str) -> Value;
    /// An error in a stream that corresponds to this status.
    fn error_event(&self, status: u16, message: &str) -> String {
        format!("data: {}\n\n", self.error(status, message))
    }
    /// The errors for a full context window.
    fn context_full_errors(&self) -> Vec<(u16, Value)>;
    /// Parses a request.
    fn parse_request(&self, body: &Value) -> ParsedRequest;
    /// The part of a request with the conversation, up to the end of its last message and without cache marks.
    fn conversation_json(&self, body: &str) -> String;
}

/// Feeds chunks of a stream to an assembler, for [`WireDialect::read`].
pub(super) fn read(mut growth: ReplyAssembler<impl EventDecoder>, chunks: &[&[u8]]) -> Option<(usize, String)> {
    let mut decoder = Decoder::new(1 << 20);
    let (mut taken, mut complete) = (0, None);
    for chunk in chunks {
        decoder.feed(chunk, |name, data| growth.push_event(name, data)).unwrap();
        taken += chunk.len();
        complete = complete.or(growth.is_complete().then_some(taken));
    }
    Some((complete?, serde_json::to_string(&growth.finish(None).unwrap()).unwrap()))
}

#[derive(Default)]
pub(super) struct RecordingObserver {
    pub(super) retries: Mutex<Vec<Retry>>,
    pub(super) progress: Mutex<Usage>,
}

impl StreamObserver for RecordingObserver {
    fn on_retry(&self, retry: &Retry) {
        self.retries.lock().unwrap().push(retry.clone());
    }

    fn on_progress(&self, usage: Usage) {
        *self.progress.lock().unwrap() = usage;
    }
}

pub(super) fn connect(entry: &ProviderSpec, variables: &[(&str, String)]) -> Result<Arc<dyn Provider>, ProviderError> {
    let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    let mask = Redactor::default();
    (entry.connect)(&ConnectContext {
        providers: crate::providers::PROVIDERS,
        env: &variable,
        server: None,
        settings: None,
        script: None,
        user_agent: "legwork/test",
        redactor: &mask,
    })
}

pub(super) fn setup(dialect: &dyn WireDialect) -> ConversationConfig {
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: "does \"it\"".to_owned(),
        input_schema: json!({ "type": "object" }),
    };
    let [name, _] = dialect.model().map(str::to_owned);
    ConversationConfig {
        agent: "parent".to_owned(),
        model: Model::new(dialect.spec().name, name),
        system: "Be brief.".to_owned(),
        tools: vec![tool("glob"), tool("grep")],
        caches_for_hour: false,
    }
}

pub(super) fn open(dialect: &dyn WireDialect, url: &str) -> Box<dyn Conversation> {
    let mut variables = dialect.variables(url);
    let number = |name, number: &str| (name, number.to_owned());
    variables.push(number("LEGWORK_RETRY_BASE_MS", "2"));
    variables.push(number("LEGWORK_IDLE_TIMEOUT_MS", "20000"));
    // This also sets how long a request on a stale connection can take to fail.
    variables.push(number("LEGWORK_CONNECT_TIMEOUT_MS", "600000"));
    connect(dialect.spec(), &variables).unwrap().open(setup(dialect)).unwrap()
}

/// A conversation with one prompt.
pub(super) fn prompted(dialect: &dyn WireDialect, url: &str) -> Box<dyn Conversation> {
    let mut conversation = open(dialect, url);
    conversation.push(&Message::User(UserMessage::text("Hello")));
    conversation
}

pub(super) fn request() -> ReplyRequest {
    ReplyRequest {
        max_tokens: 8000,
        tools_allowed: true,
        requires_content: true,
        deadline: RunningInstant::now() + Duration::from_secs(60),
        has_fallback: false,
    }
}

/// A request without tool calls, whose reply can be empty.
pub(super) fn last_request() -> ReplyRequest {
    ReplyRequest { tools_allowed: false, ..request() }
}

pub(super) fn streamed(dialect: &dyn WireDialect, said: &ReplySpec) -> ScriptedResponse {
    keep(dialect, What::Stream, &dialect.events(said).concat());
    streamed_oddly(dialect, said)
}

/// A reply that the real API would never send, so it isn't validated against the official SDKs' types.
pub(super) fn streamed_oddly(dialect: &dyn WireDialect, said: &ReplySpec) -> ScriptedResponse {
    ScriptedResponse::stream([dialect.events(said).concat().as_bytes()])
}

/// The reply without streaming.
pub(super) fn in_one_piece(dialect: &dyn WireDialect, said: &ReplySpec) -> ScriptedResponse {
    let body = dialect.whole(said).to_string();
    keep(dialect, What::Whole, &body);
    ScriptedResponse::new("200 OK", "content-type: application/json\r\n", &body)
}

fn keep(dialect: &dyn WireDialect, what: What, body: &str) {
    let path = dialect.request_line().split(' ').nth(1).unwrap_or_default();
    body_dump::keep(what, &body_dump::Origin { path, test: &body_dump::test(), novel: &[] }, body.as_bytes());
}

/// Sends one request to a server with these responses.
pub(super) async fn ask_once(
    dialect: &dyn WireDialect,
    answers: Vec<ScriptedResponse>,
) -> (Result<Reply, ProviderError>, RecordingObserver, usize) {
    ask_once_with(dialect, request(), answers).await
}

/// Sends this request to a server with these responses.
pub(super) async fn ask_once_with(
    dialect: &dyn WireDialect,
    ask: ReplyRequest,
    answers: Vec<ScriptedResponse>,
) -> (Result<Reply, ProviderError>, RecordingObserver, usize) {
    let server = ScriptedServer::start(answers).await;
    let seen = RecordingObserver::default();
    let reply = prompted(dialect, &server.url).ask(ask, &seen).await;
    (reply, seen, server.received().len())
}

pub(super) fn text_reply() -> ReplySpec {
    ReplySpec(vec![ReplyPart::Text(vec!["Hel", "lo ", "ä€😀"])], ReplyEnding::EndTurn)
}

pub(super) fn tool_call_reply() -> ReplySpec {
    let glob = ReplyPart::Call("toolu_1", "glob", vec!["{\"pat", "tern\": ", "\"**/*.toml\"}"]);
    let grep = ReplyPart::Call("toolu_2", "grep", vec!["{\"pattern\":\"", "é\\n\"}"]);
    let thought = ReplyPart::Thought("Let me see — é😀");
    ReplySpec(vec![thought, ReplyPart::Text(vec!["I ", "look."]), glob, grep], ReplyEnding::ToolUse)
}

pub(super) fn result(call_id: &str, text: &str, is_error: bool) -> ToolResult {
    ToolResult { call_id: call_id.to_owned(), text: text.to_owned(), is_error, ..ToolResult::default() }
}
