//! What every provider must do alike, whatever its wire form. Each has a [`Dialect`] that writes this form down by hand,
//! beside its own tests; the cases know nothing of it.

mod anew;
mod caching;
mod failures;
mod gateways;
mod limits;
mod replies;
mod requests;
mod silence;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::dialogue::Growth;
use super::scripted::bodies::{self, What};
use super::scripted::{Answer, Server};
use super::sse::Decoder;
use super::{Ask, Connect, Conversation, Entry, Fault, Model, Provider, Retry, Setup, Watch};
use crate::mask::Mask;
use crate::message::{Message, Reply, ToolResult, Usage, UserMessage};
use crate::tools::ToolSpec;

/// The providers that talk to a server.
pub(super) fn dialects() -> Vec<Box<dyn Dialect>> {
    vec![
        Box::new(super::anthropic::tests::Spoken),
        Box::new(super::openai::tests::Spoken),
        Box::new(super::openai_chat::tests::Spoken),
        Box::new(super::gemini::tests::Spoken),
    ]
}

/// The key that goes with every request and into no message.
pub(super) const SECRET: &str = "sk-ant-test-0123456789";

/// What every reply here has used, where the server counts all of it.
pub(super) const USAGE: Usage =
    Usage { input_tokens: 10, output_tokens: 42, cache_read_tokens: 7, cache_write_tokens: 5 };

/// A part of a reply.
#[derive(Debug, Clone)]
pub(super) enum Part {
    /// Pieces of text.
    Text(Vec<&'static str>),
    /// Reasoning that must be sent back.
    Thought(&'static str),
    /// A call: its id, its tool, and its input in pieces.
    Call(&'static str, &'static str, Vec<&'static str>),
}

/// Why a reply ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// There is no more to say.
    Said,
    /// Calls wait for answers.
    Called,
    /// `max_tokens`.
    Cut,
    /// It is refused.
    Refused,
}

/// A reply.
#[derive(Debug, Clone)]
pub(super) struct Said(pub(super) Vec<Part>, pub(super) Ending);

/// What of a request is common to all.
#[derive(Debug, PartialEq)]
pub(super) struct Heard {
    pub(super) model: String,
    pub(super) system: String,
    pub(super) tools: Vec<String>,
    pub(super) may_call: bool,
    pub(super) max_tokens: u64,
    pub(super) streams: bool,
    pub(super) turns: Vec<Turn>,
}

/// A part of a conversation, in its order.
#[derive(Debug, PartialEq)]
pub(super) enum Turn {
    User(String),
    /// The answer to the call of that id, and whether it is marked as failed.
    Answered(String, String, bool),
    Text(String),
    Thought(String),
    Call(String, String, Value),
}

/// How one provider's server speaks.
pub(super) trait Dialect {
    fn entry(&self) -> &'static Entry;
    /// The variables that a conversation with the server at that URL needs.
    fn variables(&self, url: &str) -> Vec<(&'static str, String)>;
    /// The first line of every request.
    fn line(&self) -> &'static str;
    /// A model, and how the server names it.
    fn model(&self) -> [&'static str; 2];
    /// What every reply has used, as this server counts it.
    fn usage(&self) -> Usage {
        USAGE
    }
    /// A reply as a stream, event by event, with that usage.
    fn events(&self, said: &Said) -> Vec<String>;
    /// How many of these events make the reply complete.
    fn enough(&self, events: &[String]) -> usize {
        events.len()
    }
    /// What these chunks of a stream become: after how many bytes the reply was complete, and the reply in the journal's
    /// form.
    fn read(&self, chunks: &[&[u8]]) -> Option<(usize, String)>;
    /// An event that nobody knows.
    fn noise(&self) -> &'static str;
    /// A reply that isn't streamed.
    fn whole(&self, said: &Said) -> Value;
    /// An error's body, for that status.
    fn error(&self, status: u16, message: &str) -> Value;
    /// An error within a stream, whose status would be that.
    fn error_event(&self, status: u16, message: &str) -> String {
        format!("data: {}\n\n", self.error(status, message))
    }
    /// What a server says whose model's window is full.
    fn full(&self) -> Vec<(u16, Value)>;
    /// What a request says.
    fn hear(&self, body: &Value) -> Heard;
    /// The part of a request that holds the conversation, up to the end of its last message and without marks.
    fn conversation(&self, body: &str) -> String;
}

/// What chunks of a stream make of a reply.
pub(super) fn read(mut growth: impl Growth, chunks: &[&[u8]]) -> Option<(usize, String)> {
    let mut decoder = Decoder::new(1 << 20);
    let (mut taken, mut complete) = (0, None);
    for chunk in chunks {
        decoder.feed(chunk, |name, data| growth.event(name, data, &|_| {})).unwrap();
        taken += chunk.len();
        complete = complete.or(growth.may_end().then_some(taken));
    }
    Some((complete?, serde_json::to_string(&growth.finish(None).unwrap()).unwrap()))
}

#[derive(Default)]
pub(super) struct Seen {
    /// The text so far, without that of failed tries.
    pub(super) text: Mutex<String>,
    pub(super) retries: Mutex<Vec<Retry>>,
}

impl Watch for Seen {
    fn text(&self, piece: &str) {
        self.text.lock().unwrap().push_str(piece);
    }
    fn retrying(&self, retry: &Retry) {
        self.text.lock().unwrap().clear();
        self.retries.lock().unwrap().push(retry.clone());
    }
}

pub(super) fn connect(entry: &Entry, variables: &[(&str, String)]) -> Result<Arc<dyn Provider>, Fault> {
    let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    let mask = Mask::default();
    (entry.connect)(&Connect {
        variable: &variable,
        server: None,
        script: None,
        user_agent: "legwork/test",
        mask: &mask,
    })
}

pub(super) fn setup(dialect: &dyn Dialect) -> Setup {
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: "does \"it\"".to_owned(),
        input_schema: json!({ "type": "object" }),
    };
    let [name, _] = dialect.model().map(str::to_owned);
    Setup {
        agent: "parent".to_owned(),
        model: Model::new(dialect.entry().name, name),
        system: "Be brief.".to_owned(),
        tools: vec![tool("glob"), tool("grep")],
    }
}

pub(super) fn open(dialect: &dyn Dialect, url: &str) -> Box<dyn Conversation> {
    let mut variables = dialect.variables(url);
    let number = |name, number: &str| (name, number.to_owned());
    variables.push(number("LEGWORK_RETRY_BASE_MS", "2"));
    variables.push(number("LEGWORK_IDLE_TIMEOUT_MS", "20000"));
    // By it goes, too, how soon a closed connection has to show.
    variables.push(number("LEGWORK_CONNECT_TIMEOUT_MS", "600000"));
    connect(dialect.entry(), &variables).unwrap().open(setup(dialect)).unwrap()
}

/// A conversation with one prompt.
pub(super) fn prompted(dialect: &dyn Dialect, url: &str) -> Box<dyn Conversation> {
    let mut conversation = open(dialect, url);
    conversation.push(&Message::User(UserMessage::text("Hello")));
    conversation
}

pub(super) fn request() -> Ask {
    Ask { max_tokens: 8000, tools_allowed: true, needs_words: true, deadline: Instant::now() + Duration::from_secs(60) }
}

/// What is answered without a call, or not at all.
pub(super) fn last_request() -> Ask {
    Ask { tools_allowed: false, ..request() }
}

pub(super) fn streamed(dialect: &dyn Dialect, said: &Said) -> Answer {
    keep(dialect, What::Stream, &dialect.events(said).concat());
    streamed_oddly(dialect, said)
}

/// What the real API would never say: the official clients' types need not know it.
pub(super) fn streamed_oddly(dialect: &dyn Dialect, said: &Said) -> Answer {
    Answer::stream([dialect.events(said).concat().as_bytes()])
}

/// The same in one piece.
pub(super) fn in_one_piece(dialect: &dyn Dialect, said: &Said) -> Answer {
    let body = dialect.whole(said).to_string();
    keep(dialect, What::Whole, &body);
    Answer::new("200 OK", "content-type: application/json\r\n", &body)
}

fn keep(dialect: &dyn Dialect, what: What, body: &str) {
    let path = dialect.line().split(' ').nth(1).unwrap_or_default();
    bodies::keep(what, &bodies::Origin { path, test: &bodies::test(), novel: &[] }, body.as_bytes());
}

/// Asks once, of a server that answers with this and then with that.
pub(super) async fn asked(dialect: &dyn Dialect, answers: Vec<Answer>) -> (Result<Reply, Fault>, Seen, usize) {
    asked_for(dialect, request(), answers).await
}

/// Asks once for that.
pub(super) async fn asked_for(
    dialect: &dyn Dialect,
    ask: Ask,
    answers: Vec<Answer>,
) -> (Result<Reply, Fault>, Seen, usize) {
    let server = Server::start(answers).await;
    let seen = Seen::default();
    let reply = prompted(dialect, &server.url).ask(ask, &seen).await;
    (reply, seen, server.received().len())
}

pub(super) fn hello() -> Said {
    Said(vec![Part::Text(vec!["Hel", "lo ", "ä€😀"])], Ending::Said)
}

pub(super) fn calling() -> Said {
    let glob = Part::Call("toolu_1", "glob", vec!["{\"pat", "tern\": ", "\"**/*.toml\"}"]);
    let grep = Part::Call("toolu_2", "grep", vec!["{\"pattern\":\"", "é\\n\"}"]);
    let thought = Part::Thought("Let me see — é😀");
    Said(vec![thought, Part::Text(vec!["I ", "look."]), glob, grep], Ending::Called)
}

pub(super) fn result(call_id: &str, text: &str, is_error: bool) -> ToolResult {
    ToolResult { call_id: call_id.to_owned(), text: text.to_owned(), is_error }
}
