//! The server that stands in for a provider: what it says, and that it sees what is wrong.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::server::{Answer, Checks, KEY, Request, Script, Server};

/// A client that knows nothing and checks nothing.
struct Client {
    stream: BufReader<TcpStream>,
}

struct Response {
    status: u16,
    headers: Vec<String>,
    body: String,
    /// Whether the body ended as its head had said.
    whole: bool,
}

impl Client {
    fn of(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
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

    /// As a client of OpenAI's APIs.
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

fn two_calls() -> Answer {
    let input = json!({"command": "true"});
    Answer::empty().then_call_as("toolu_a", "bash", &input).then_call_as("toolu_b", "bash", &input)
}

#[test]
fn a_whole_conversation_over_one_connection_is_in_order() {
    let thinking = json!({"type": "thinking", "thinking": "Hm: äöü", "signature": "c2lnbmVk"});
    let script = Script::of([
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
    // Marks may move from request to request.
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
    let server = Server::start(Script::of([Answer::empty()
        .then_text("Grüße aus dem Süden")
        .then_call("bash", &json!({"command": "ls"}))
        .then_call("bash", &json!({}))
        .then_novel_block(json!({"type": "new_kind", "data": [1, 2]}))
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
fn an_answer_can_come_whole_in_pieces_or_not_to_its_end() {
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
    let server = Server::start(Script::of(answers));
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
fn an_answer_that_hangs_ends_with_the_server_or_the_client() {
    let script = Script::new()
        .agent("never", [Answer::text("never").hang()])
        .agent("half", [Answer::text("half").cut_after_events(3).hang()]);
    let server = Server::start(script);
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
fn connections_are_answered_side_by_side() {
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

/// What the server says of requests that each open a conversation.
fn violations(change: impl FnOnce(&mut Value)) -> Vec<String> {
    let server = Server::start(|_: &Request| Answer::text("good"));
    let mut body = ask(&[user("go")]);
    change(&mut body);
    let response = Client::of(&server).post(&body);
    let wrong = server.take_violations();
    assert_eq!(response.status, if wrong.is_empty() { 200 } else { 400 });
    wrong
}

#[test]
fn a_body_that_the_api_would_refuse_is_refused() {
    type Change = fn(&mut Value);
    let history = |body: &mut Value, more: Value| {
        body["messages"] = more;
    };
    assert!(violations(|_| {}).is_empty());
    let cases: [(&str, Change); 27] = [
        ("temperature", |body| body["temperature"] = json!(1.5)),
        ("top_k", |body| body["top_k"] = json!(1)),
        ("unknown field", |body| body["prompt"] = json!("x")),
        ("model is", |body| body["model"] = json!("")),
        ("max_tokens is 0", |body| body["max_tokens"] = json!(0)),
        ("stream is", |body| body["stream"] = json!("yes")),
        ("system is", |body| body["system"] = json!("")),
        ("a block of system", |body| body["system"] = json!([{"type": "text", "text": " \n"}])),
        ("tools is []", |body| body["tools"] = json!([])),
        ("not unique", |body| body["tools"] = json!([bash(), bash()])),
        ("ill-formed", |body| body["tools"][0]["name"] = json!("read file")),
        ("no description", |body| body["tools"][0]["description"] = json!("")),
        ("input_schema", |body| body["tools"][0]["input_schema"] = json!({"type": "array"})),
        ("tool_choice is", |body| body["tool_choice"] = json!("none")),
        ("tool_choice without tools", |body| {
            body["tool_choice"] = json!({"type": "none"});
            body.as_object_mut().unwrap().remove("tools");
        }),
        ("budget_tokens", |body| body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024})),
        ("forces a tool", |body| {
            body["thinking"] = json!({"type": "adaptive"});
            body["tool_choice"] = json!({"type": "any"});
        }),
        ("no messages", |body| body["messages"] = json!([])),
        ("instead of \"user\"", |body| body["messages"] = json!([assistant("hello")])),
        ("instead of \"assistant\"", |body| body["messages"] = json!([user("a"), user("b")])),
        ("the content of message 0", |body| body["messages"] = json!([user("  ")])),
        ("the content of message 0", |body| body["messages"] = json!([user(json!([]))])),
        ("can't be", |body| body["messages"] = json!([user(json!([{"type": "text", "text": ""}]))])),
        ("can't be", |body| body["messages"] = json!([user(json!([call("toolu_a")]))])),
        ("instead of []", |body| body["messages"] = json!([user(json!([result("toolu_x", "y")]))])),
        ("5 cache_control marks", |body| {
            let marked = json!({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}});
            body["messages"] = json!([user(Value::from(vec![marked; 5]))]);
        }),
        ("cache_control is", |body| body["tools"][0]["cache_control"] = json!({"type": "forever"})),
    ];
    for (expected, change) in cases {
        let wrong = violations(change);
        assert!(wrong.iter().any(|what| what.contains(expected)), "{expected:?} isn't in {wrong:?}");
    }
    let said = |blocks: Value, answers: Value| json!([user("go"), assistant(blocks), user(answers)]);
    let calls = || json!([call("toolu_a"), call("toolu_b")]);
    let empty_error = json!({"type": "tool_result", "tool_use_id": "toolu_a", "content": "", "is_error": true});
    let text = json!({"type": "text", "text": "and"});
    let unsigned = json!([{"type": "thinking", "thinking": "x", "signature": ""}]);
    let cases = [
        ("answers the calls", said(calls(), json!([result("toolu_a", "1")]))),
        ("answers the calls", said(calls(), json!([result("toolu_b", "2"), result("toolu_a", "1")]))),
        ("answers the calls", said(calls(), json!("never mind"))),
        (
            "answers the calls",
            said(calls(), json!([result("toolu_a", "1"), result("toolu_a", "1"), result("toolu_b", "2")])),
        ),
        ("in front of a tool_result", said(json!([call("toolu_a")]), json!([text, result("toolu_a", "1")]))),
        ("two calls have the id", said(json!([call("toolu_a"), call("toolu_a")]), json!([result("toolu_a", "1")]))),
        ("can't be", said(json!([call("toolu_a")]), json!([empty_error]))),
        ("can't be", said(unsigned, json!("go on"))),
        ("ends with a thought", said(json!([{"type": "redacted_thinking", "data": "eA=="}]), json!("go on"))),
        ("nothing answers the calls", json!([user("go"), assistant(json!([call("toolu_a")]))])),
    ];
    for (expected, messages) in cases {
        let wrong = violations(|body| history(body, messages));
        assert!(wrong.iter().any(|what| what.contains(expected)), "{expected:?} isn't in {wrong:?}");
    }
}

#[test]
fn a_head_that_the_api_would_refuse_is_refused() {
    let good = [
        "POST /v1/messages HTTP/1.1",
        "host: x",
        "anthropic-version: 2023-06-01",
        &format!("x-api-key: {KEY}"),
        "content-type: application/json",
    ];
    let cases = [
        (0, "GET /v1/messages HTTP/1.1", "instead of POST"),
        (0, "POST /v1/complete HTTP/1.1", "instead of POST"),
        (1, "accept: */*", "no host"),
        (2, "anthropic-version: 2024-01-01", "anthropic-version is"),
        (2, "accept: */*", "anthropic-version is None"),
        (3, "x-api-key: sk-ant-other", "a key that isn't"),
        (3, "authorization: Basic abc", "a key that isn't"),
        (3, "accept: */*", "no key"),
        (4, "content-type: text/plain", "content-type is"),
    ];
    let body = ask(&[user("go")]).to_string();
    for (place, line, expected) in cases {
        let server = Server::start(|_: &Request| Answer::text("good"));
        let mut lines = good;
        lines[place] = line;
        let mut client = Client::of(&server);
        client.write(format!("{}\r\ncontent-length: {}\r\n\r\n{body}", lines.join("\r\n"), body.len()));
        assert_eq!(client.response().status, 400);
        let wrong = server.take_violations();
        assert!(wrong.iter().any(|what| what.contains(expected)), "{expected:?} isn't in {wrong:?}");
    }
    let server = Server::start(|_: &Request| Answer::text("good"));
    let mut client = Client::of(&server);
    client.write("POST /v1/messages\r\n\r\n");
    assert_eq!(client.line(), "");
    assert!(server.take_violations()[0].contains("not a request line"));
}

/// What the server says of a second request, after a first one that asks `go` was answered.
fn second(answer: Answer, messages: &[Value]) -> Vec<String> {
    let server = Server::start(move |request: &Request| match request.number {
        0 => answer.clone(),
        _ => Answer::text("good"),
    });
    let _ = Client::of(&server).post(&ask(&[user("go")]));
    let _ = Client::of(&server).post(&ask(messages));
    server.take_violations()
}

#[test]
fn a_conversation_that_does_more_than_grow_is_refused() {
    let calls = json!([call("toolu_a"), call("toolu_b")]);
    let results = json!([result("toolu_a", "1"), result("toolu_b", "2")]);
    let good = [user("go"), assistant(calls.clone()), user(results.clone())];
    assert_eq!(second(two_calls(), &good), [""; 0]);
    let mut changed = good.clone();
    changed[1]["content"][0]["input"]["command"] = json!("false");
    assert!(second(two_calls(), &changed)[0].contains("a reply came back changed"));
    assert_eq!(second(two_calls().may_come_back_changed(), &changed), [""; 0]);
    let mut rewritten = good.clone();
    rewritten[0] = user("something else");
    assert!(second(two_calls(), &rewritten)[0].contains("changed what it had sent"));
    assert!(second(two_calls().cut_after_events(3), &good)[0].contains("never got whole"));
    assert!(second(Answer::text("bye"), &good)[0].contains("go on from no request"));
    let dropped = [user("go"), assistant(calls), user(results)];
    let signed = two_calls().thinking("hm", "c2ln");
    assert!(second(signed, &dropped)[0].contains("a reply came back changed"));
    // A thought can't be the last block.
    let thought = json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"});
    let silent = [user("go"), assistant(json!([thought, {"type": "text", "text": "-"}])), user("well?")];
    assert_eq!(second(Answer::empty().thinking("hm", "c2ln"), &silent), [""; 0]);
    // Blank text can't be sent back; a second agent may have the same prompt.
    assert_eq!(second(two_calls().then_text(""), &dropped), [""; 0]);
    assert_eq!(second(two_calls(), &dropped[..1]), [""; 0]);
}

#[test]
fn a_whole_answer_is_asked_for_once_and_a_setup_stays() {
    let turns = [user("go"), assistant(json!([call("toolu_a")])), user(json!([result("toolu_a", "1")]))];
    let answers = |request: &Request| match request.turn() {
        0 => Answer::empty().then_call_as("toolu_a", "bash", &json!({"command": "true"})),
        _ => Answer::text("done"),
    };
    for (checks, count) in [(Checks::All, 1), (Checks::AllButRepeats, 0)] {
        let server = Server::with(checks, answers);
        for messages in [&turns[..1], &turns, &turns] {
            let _ = Client::of(&server).post(&ask(messages));
        }
        let wrong = server.take_violations();
        assert_eq!(wrong.iter().filter(|what| what.contains("asks again")).count(), count, "{wrong:?}");
    }
    let server = Server::start(answers);
    let _ = Client::of(&server).post(&ask(&turns[..1]));
    let mut other = ask(&turns);
    other["system"] = json!("another system prompt");
    let _ = Client::of(&server).post(&other);
    assert!(server.take_violations()[0].contains("changed in the middle"));
}

#[test]
fn a_paused_reply_goes_on_in_the_same_message() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let script = Script::of([
        Answer::text("one").stop("pause_turn"),
        Answer::text("two").then_call_as("toolu_a", "bash", &json!({"command": "true"})),
        Answer::text("three"),
    ]);
    let server = Server::start(script);
    let mut client = Client::of(&server);
    let _ = client.post(&ask(&[user("go")]));
    let _ = client.post(&ask(&[user("go"), assistant(json!([text("one")]))]));
    let both = assistant(json!([text("one"), text("two"), call("toolu_a")]));
    let _ = client.post(&ask(&[user("go"), both, user(json!([result("toolu_a", "1")]))]));
    assert_eq!(server.finish().len(), 3);
    let wrong = second(Answer::text("one"), &[user("go"), assistant(json!([text("one")]))]);
    assert!(wrong[0].contains("a reply that had ended"));
}

#[test]
fn a_script_knows_its_agents_and_wants_all_of_its_answers_asked_for() {
    let script = Script::new()
        .agent("list the files", [Answer::text("child")])
        .agent("go", [Answer::text("parent"), Answer::text("never")]);
    let server = Server::start(script);
    let mut client = Client::of(&server);
    assert!(client.post(&ask(&[user("go")])).body.contains("parent"));
    assert!(client.post(&ask(&[user("list the files")])).body.contains("child"));
    assert_eq!(client.post(&ask(&[user("list the files")])).status, 400);
    assert_eq!(client.post(&ask(&[user("who?")])).status, 400);
    let wrong = server.take_violations();
    assert!(wrong[0].contains("no further answer") && wrong[1].contains("no agent in the script"), "{wrong:?}");
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.finish()));
    let text = *panic.err().unwrap().downcast::<String>().unwrap();
    assert!(text.contains("1 answers for \"go\" were never asked for"), "{text}");
}

/// What is wrong with one request after another to one of OpenAI's APIs.
fn wrong_at(path: &str, answer: Answer, requests: &[Value]) -> Vec<String> {
    let server = Server::start(move |_: &Request| answer.clone());
    let mut client = Client::of(&server);
    for request in requests {
        client.post_at(path, request);
    }
    server.take_violations()
}

#[test]
fn chat_completions_are_checked_as_their_api_does() {
    let path = "/v1/chat/completions";
    let function = json!({"name": "bash", "description": "Runs.", "parameters": {"type": "object"}});
    let good = json!({"model": "m", "max_tokens": 9, "stream": true, "stream_options": {"include_usage": true},
        "tools": [{"type": "function", "function": function}], "messages": [{"role": "user", "content": "Go."}]});
    assert_eq!(wrong_at(path, Answer::text("x"), std::slice::from_ref(&good)), [""; 0]);
    let with = |field: &str, value: Value| {
        let mut request = good.clone();
        request[field] = value;
        request
    };
    let call = json!({"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{}"}});
    let said = |content: Value| json!({"role": "assistant", "content": content, "tool_calls": [call]});
    let answered = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "ok"});
    let go = &good["messages"][0];
    for (request, words) in [
        (with("system", json!("x")), "unknown field \"system\""),
        (with("max_tokens", json!(0)), "max_tokens is 0"),
        (with("stream_options", json!({})), "doesn't ask for the usage"),
        (with("tool_choice", json!({"type": "none"})), "tool_choice is"),
        (with("messages", json!([go, said(json!(7)), answered("a")])), "the content of message 1"),
        (with("messages", json!([go, said(json!(null)), answered("b")])), "instead of [\"a\"]"),
        (with("messages", json!([go, said(json!(null)), answered("a")])), "go on from no request"),
        (with("messages", json!([{"role": "user", "content": "Go.", "name": "x"}])), "message 0 has a name"),
    ] {
        let wrong = wrong_at(path, Answer::text("x"), &[request]);
        assert!(wrong.iter().any(|wrong| wrong.contains(words)), "{words}: {wrong:?}");
    }
    let answer = Answer::empty().then_call_as("a", "bash", &json!({}));
    let next = |content| with("messages", json!([go, said(content), answered("a")]));
    assert_eq!(wrong_at(path, answer.clone(), &[good.clone(), next(json!(null))]), [""; 0]);
    let wrong = wrong_at(path, answer, &[good.clone(), next(json!("Never said."))]);
    assert!(wrong[0].contains("a reply came back changed"), "{wrong:?}");
}

#[test]
fn responses_are_checked_as_their_api_does() {
    let path = "/v1/responses";
    let tool = json!({"type": "function", "name": "bash", "description": "Runs.", "parameters": {"type": "object"},
        "strict": false});
    let go = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]});
    let good = json!({"model": "m", "max_output_tokens": 99, "stream": true, "store": false,
        "include": ["reasoning.encrypted_content"], "tools": [tool], "input": [go]});
    assert_eq!(wrong_at(path, Answer::text("x"), std::slice::from_ref(&good)), [""; 0]);
    let with = |field: &str, value: Value| {
        let mut request = good.clone();
        request[field] = value;
        request
    };
    let thought = json!({"id": "rs_0_0", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "c2ln"});
    let call = json!({"type": "function_call", "call_id": "a", "name": "bash", "arguments": "{}"});
    let answered = json!({"type": "function_call_output", "call_id": "a", "output": "ok"});
    let mut bare = thought.clone();
    bare.as_object_mut().unwrap().shift_remove("encrypted_content");
    for (request, words) in [
        (with("store", json!(true)), "store is true"),
        (with("include", json!([])), "include is []"),
        (with("stop", json!(["x"])), "unknown field \"stop\""),
        (with("input", json!([go, bare, call, answered])), "item 1 is"),
        (with("input", json!([go, thought, answered])), "item 1 is"),
        (with("input", json!([go, call])), "nothing answers the calls"),
    ] {
        let wrong = wrong_at(path, Answer::text("x"), &[request]);
        assert!(wrong.iter().any(|wrong| wrong.contains(words)), "{words}: {wrong:?}");
    }
    let answer = Answer::empty().thinking("Hm.", "c2ln").then_call_as("a", "bash", &json!({}));
    let whole = with("input", json!([go, thought, call, answered]));
    assert_eq!(wrong_at(path, answer.clone(), &[good.clone(), whole]), [""; 0]);
    let wrong = wrong_at(path, answer, &[good.clone(), with("input", json!([go, call, answered]))]);
    assert!(wrong[0].contains("a reply came back changed"), "{wrong:?}");
}
