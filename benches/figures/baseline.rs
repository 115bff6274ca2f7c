//! A program that only exchanges messages with the server: one kept-alive connection per agent, and `sh -c` for each
//! call. It has no checks, no record and no limits, so it shows what the work itself costs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;

use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    content_block: BlockStart,
    #[serde(default)]
    delta: Delta,
}

#[derive(Default, Deserialize)]
struct BlockStart {
    id: Option<String>,
    #[serde(default)]
    name: String,
}

#[derive(Default, Deserialize)]
struct Delta {
    text: Option<String>,
    partial_json: Option<String>,
}

pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) tool: String,
    pub(crate) input: String,
}

/// Runs one agent. With an empty prompt, it does nothing.
pub(crate) fn run(address: &str, prompt: &str) {
    if !prompt.is_empty() {
        agent(address, prompt);
    }
}

pub(crate) fn connect(address: &str) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).expect("the server");
    stream.set_nodelay(true).expect("no delay");
    BufReader::with_capacity(64 * 1024, stream)
}

/// Runs an agent until it makes no more calls, and returns its last text.
fn agent(address: &str, prompt: &str) -> String {
    let mut stream = connect(address);
    let mut body = String::from(r#"{"model":"claude-sonnet-4-6","max_tokens":8000,"stream":true,"messages":["#);
    body.push_str(&json!({"role": "user", "content": prompt}).to_string());
    loop {
        let (text, calls) = request_reply(&mut stream, &body);
        if calls.is_empty() {
            return text;
        }
        body.push_str(r#",{"role":"assistant","content":["#);
        for (place, Call { id, tool, input }) in calls.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            body.push_str(&format!(r#"{comma}{{"type":"tool_use","id":"{id}","name":"{tool}","input":{input}}}"#));
        }
        body.push_str(r#"]},{"role":"user","content":["#);
        let results = thread::scope(|scope| {
            let answers: Vec<_> = calls.iter().map(|call| scope.spawn(|| run_call(address, call))).collect();
            answers.into_iter().map(|answer| answer.join().expect("an answer")).collect::<Vec<_>>()
        });
        for (place, (result, call)) in results.iter().zip(&calls).enumerate() {
            let comma = if place > 0 { "," } else { "" };
            let (id, result) = (&call.id, Value::from(result.as_str()));
            body.push_str(&format!(r#"{comma}{{"type":"tool_result","tool_use_id":"{id}","content":{result}}}"#));
        }
        body.push_str("]}");
    }
}

fn run_call(address: &str, call: &Call) -> String {
    let input: Value = serde_json::from_str(&call.input).expect("an input");
    if call.tool == "task" {
        return agent(address, input["prompt"].as_str().expect("a prompt"));
    }
    let output = Command::new("bash").arg("-c").arg(input["command"].as_str().expect("a command")).output();
    String::from_utf8(output.expect("a shell").stdout).expect("text")
}

/// Sends one request and returns the text and the calls of the reply.
pub(crate) fn request_reply(stream: &mut BufReader<TcpStream>, messages: &str) -> (String, Vec<Call>) {
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        messages.len() + 2
    );
    let out = stream.get_mut();
    out.write_all(head.as_bytes()).and_then(|()| out.write_all(messages.as_bytes())).expect("a request");
    out.write_all(b"]}").expect("a request");
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).expect("a head");
    }
    let (mut text, mut calls, mut chunk) = (String::new(), Vec::<Call>::new(), Vec::new());
    loop {
        line.clear();
        stream.read_line(&mut line).expect("a chunk's length");
        let length = usize::from_str_radix(line.trim_end(), 16).expect("a length");
        chunk.resize(length + 2, 0);
        stream.read_exact(&mut chunk).expect("a chunk");
        if length == 0 {
            return (text, calls);
        }
        // The server sends each event in one chunk.
        let data = chunk.windows(6).position(|window| window == b"data: ").expect("data") + 6;
        let event: Event = serde_json::from_slice(&chunk[data..length]).expect("an event");
        if let Some(id) = event.content_block.id {
            calls.push(Call { id, tool: event.content_block.name, input: String::new() });
        }
        text.extend(event.delta.text);
        if let (Some(call), Some(piece)) = (calls.last_mut(), event.delta.partial_json) {
            call.input.push_str(&piece);
        }
    }
}
