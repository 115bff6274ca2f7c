//! The test server: what it sends, and that it detects wrong requests.

mod rejected_requests;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::server::{Answer, Checks, KEY, Request, ScriptedAgents, Server};

/// A client without any checks.
struct Client {
    stream: BufReader<TcpStream>,
}

struct Response {
    status: u16,
    headers: Vec<String>,
    body: String,
    /// Whether the body was as long as its headers said.
    whole: bool,
}

impl Client {
    fn of(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    fn post(&mut self, body: &Value) -> Response {
        let text = body.to_string();
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nanthropic-version: 2023-06-01\r\nx-api-key: {KEY}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        );
        self.write(head);
        self.response()
    }

    /// Sends requests as a client of OpenAI's APIs.
    fn post_at(&mut self, path: &str, body: &Value) -> Response {
        let text = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {KEY}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        );
        self.write(head);
        self.response()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn response(&mut self) -> Response {
        let first = self.line();
        let status = first.split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<String> = std::iter::repeat_with(|| self.line()).take_while(|line| !line.is_empty()).collect();
        let length = headers.iter().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = Vec::new();
        let whole = match length {
            Some(length) => {
                let length: u64 = length.parse().unwrap();
                (&mut self.stream).take(length).read_to_end(&mut body).unwrap() as u64 == length
            }
            None => loop {
                let Ok(length) = u64::from_str_radix(&self.line(), 16) else { break false };
                (&mut self.stream).take(length).read_to_end(&mut body).unwrap();
                self.line();
                if length == 0 {
                    break true;
                }
            },
        };
        Response { status, headers, body: String::from_utf8_lossy(&body).into_owned(), whole }
    }
}

impl Response {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn events(&self) -> Vec<(String, Value)> {
        let event = |text: &str| {
            let (name, data) = text.split_once('\n').unwrap();
            let data = data.strip_prefix("data: ").unwrap();
            (name.strip_prefix("event: ").unwrap().to_owned(), serde_json::from_str(data).unwrap())
        };
        self.body.split("\n\n").filter(|text| !text.is_empty()).map(event).collect()
    }
}

fn user(content: impl Into<Value>) -> Value {
    json!({"role": "user", "content": content.into()})
}

fn assistant(content: impl Into<Value>) -> Value {
    json!({"role": "assistant", "content": content.into()})
}

fn result(id: &str, content: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": content})
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "bash", "input": {"command": "true"}})
}

fn bash() -> Value {
    json!({"name": "bash", "description": "Runs a command.", "input_schema": {"type": "object"}})
}

fn ask(messages: &[Value]) -> Value {
    json!({"model": "claude-sonnet-4-5", "max_tokens": 100, "stream": true, "tools": [bash()], "messages": messages})
}

fn answer_with_two_calls() -> Answer {
    let input = json!({"command": "true"});
    Answer::empty().then_call_as("toolu_a", "bash", &input).then_call_as("toolu_b", "bash", &input)
}

#[test]
fn a_conversation_uses_one_connection_in_order() {
    let thinking = json!({"type": "thinking", "thinking": "Hm: äöü", "signature": "c2lnbmVk"});
    let script = ScriptedAgents::of([
        Answer::calls(&[("bash", json!({"command": "ls"}))]).thinking("Hm: äöü", "c2lnbmVk"),
        Answer::status(529).error("overloaded_error", "Overloaded"),
        Answer::text("Done."),
    ]);
    let server = Server::start(script);
    let mut client = Client::of(&server);
    let mut messages = vec![user("go")];
    assert_eq!(client.post(&ask(&messages)).status, 200);
    let call = json!({"type": "tool_use", "id": "toolu_0_1", "name": "bash", "input": {"command": "ls"}});
    messages.push(assistant(json!([thinking, call])));
    messages.push(user(json!([result("toolu_0_1", "a.txt"), {"type": "text", "text": "and now?"}])));
    let refused = client.post(&ask(&messages));
    assert_eq!((refused.status, &refused.json()["error"]["type"]), (529, &json!("overloaded_error")));
    // Cache marks can move from request to request.
    messages[2]["content"][1]["cache_control"] = json!({"type": "ephemeral"});
    assert!(client.post(&ask(&messages)).whole);
    assert_eq!(server.connections(), 1);
    let requests = server.finish();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[2].turn(), 1);
    assert_eq!(requests[2].prompt(), "go");
    assert_eq!(requests[2].last_text(), "and now?");
    assert_eq!(requests[2].tools(), ["bash"]);
    assert_eq!(requests[2].results()[0].text, "a.txt");
    assert_eq!(requests[2].last_answered(), Some("toolu_0_1"));
}

#[test]
fn a_stream_has_the_events_of_the_real_one() {
    let server = Server::start(ScriptedAgents::of([Answer::empty()
        .then_text("Grüße aus dem Süden")
        .then_call("bash", &json!({"command": "ls"}))
        .then_call("bash", &json!({}))
        .then_unknown_block(json!({"type": "new_kind", "data": [1, 2]}))
        .thinking("first", "sig")
        .usage(20, 9)
        .cache(3, 4)]));
    let response = Client::of(&server).post(&ask(&[user("go")]));
    assert!(response.headers.contains(&String::from("content-type: text/event-stream; charset=utf-8")));
    let events = response.events();
    assert!(events.iter().all(|(name, data)| data["type"] == name.as_str()));
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..3], ["message_start", "content_block_start", "ping"]);
    assert_eq!(names[names.len() - 2..], ["message_delta", "message_stop"]);
    let message = &events[0].1["message"];
    assert_eq!(message["content"], json!([]));
    assert_eq!(message["usage"]["input_tokens"], 20);
    assert_eq!(message["usage"]["cache_read_input_tokens"], 3);
    assert_eq!(message["usage"]["cache_creation_input_tokens"], 4);
    let end = &events[events.len() - 2].1;
    assert_eq!((&end["delta"]["stop_reason"], &end["usage"]["output_tokens"]), (&json!("tool_use"), &json!(9)));
    let joined = |index: usize, kind: &str, field: &str| -> String {
        let deltas = events.iter().filter(|(_, data)| data["index"] == index && data["delta"]["type"] == kind);
        deltas.map(|(_, data)| data["delta"][field].as_str().unwrap()).collect()
    };
    assert_eq!(joined(0, "thinking_delta", "thinking"), "first");
    assert_eq!(joined(0, "signature_delta", "signature"), "sig");
    assert_eq!(joined(1, "text_delta", "text"), "Grüße aus dem Süden");
    assert_eq!(joined(2, "input_json_delta", "partial_json"), r#"{"command":"ls"}"#);
    assert_eq!(joined(3, "input_json_delta", "partial_json"), "");
    let starts: Vec<&Value> = events.iter().filter_map(|(_, data)| data.get("content_block")).collect();
    assert_eq!(starts.len(), 5);
    assert_eq!(starts[2]["input"], json!({}));
    assert_eq!(starts[4], &json!({"type": "new_kind", "data": [1, 2]}));
}

#[test]
fn a_reply_can_be_sent_whole_in_pieces_or_cut() {
    let text = "ä".repeat(40);
    let answers = [
        Answer::text(&text).non_streaming().stop("max_tokens"),
        Answer::text(&text).chunk(7),
        Answer::deltas(["a", "b", "c"]).cut_after_events(4),
        Answer::text(&text).cut_after_bytes(30),
        Answer::text(&text).fail_after_events(3, "overloaded_error", "Overloaded"),
        Answer::raw("HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n"),
        Answer::status(429).header("retry-after", "0").error("rate_limit_error", "slow down"),
        Answer::text("short"),
    ];
    let server = Server::start(ScriptedAgents::of(answers));
    let ask = || Client::of(&server).post(&ask(&[user("go")]));
    let whole = ask().json();
    assert_eq!((&whole["content"][0]["text"], &whole["stop_reason"]), (&json!(text), &json!("max_tokens")));
    let pieces = ask();
    assert!(pieces.whole);
    assert_eq!(pieces.events().last().unwrap().0, "message_stop");
    let cut = ask();
    assert!(!cut.whole);
    assert_eq!(cut.events().len(), 4);
    let bytes = ask();
    assert_eq!((bytes.whole, bytes.body.len()), (false, 30));
    let failed = ask();
    assert!(failed.whole);
    assert_eq!(failed.events().last().unwrap().1["error"]["type"], "overloaded_error");
    assert_eq!(ask().status, 204);
    let throttled = ask();
    assert_eq!(throttled.status, 429);
    assert!(throttled.headers.contains(&String::from("retry-after: 0")));
    assert!(throttled.headers.iter().any(|line| line.starts_with("request-id: req_")));
    let mut plain = self::ask(&[user("go")]);
    plain["stream"] = json!(false);
    let plain = Client::of(&server).post(&plain).json();
    assert_eq!((&plain["content"][0]["text"], &plain["model"]), (&json!("short"), &json!("claude-sonnet-4-5")));
}

#[test]
fn a_hanging_reply_ends_with_the_server_or_the_client() {
    let server = Server::start(|request: &Request| match request.prompt().as_str() {
        "never" => Answer::text("never").hang(),
        _ => Answer::text("half").cut_after_events(3).hang(),
    });
    let mut silent = Client::of(&server);
    let body = ask(&[user("never")]).to_string();
    silent.write(format!(
        "POST /v1/messages HTTP/1.1\r\nHost: x\r\nAnthropic-Version: 2026-10-21\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    ));
    server.wait_for(1);
    let mut half = Client::of(&server);
    let body = ask(&[user("half")]).to_string();
    half.write(format!(
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nanthropic-version: 2023-06-01\r\nx-api-key: {KEY}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(half.line(), "HTTP/1.1 200 OK");
    drop(server);
    assert_eq!(silent.line(), "");
    assert!(!half.response_rest().contains("content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\""));
}

impl Client {
    fn response_rest(&mut self) -> String {
        let mut rest = String::new();
        self.stream.read_to_string(&mut rest).unwrap();
        rest
    }
}

#[test]
fn connections_are_served_in_parallel() {
    let all = Arc::new(Barrier::new(8));
    let meeting = Arc::clone(&all);
    let server = Server::with(Checks::None, move |request: &Request| {
        meeting.wait();
        Answer::text(&request.prompt())
    });
    std::thread::scope(|scope| {
        for number in 0..8 {
            let server = &server;
            scope.spawn(move || {
                let response = Client::of(server).post(&ask(&[user(format!("agent {number}"))]));
                assert!(response.whole && response.body.contains(&number.to_string()));
            });
        }
    });
}
