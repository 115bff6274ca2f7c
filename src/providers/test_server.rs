//! A server for tests. It answers each request with the bytes that the test provides, can close the connection at any
//! point, and records every request.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[path = "../../tests/support/body_dump.rs"]
#[allow(clippy::disallowed_methods, reason = "where tests leave what they saw is a matter of their environment")]
pub(super) mod body_dump;

/// What happens to the connection after a response.
#[derive(Clone, Copy)]
pub(super) enum ConnectionEnd {
    /// The connection waits for the next request.
    KeepAlive,
    /// The connection is closed.
    Close,
    /// The connection is closed when the next request arrives, without reading it.
    CloseOnNext,
    /// The connection is closed after this time.
    CloseAfter(Duration),
    /// The connection stays open, and nothing more is sent or read.
    Hang,
}

/// One response: parts that are sent one by one, and what happens afterwards.
#[derive(Clone)]
pub(super) struct ScriptedResponse(pub(super) Vec<Vec<u8>>, pub(super) ConnectionEnd);

impl ScriptedResponse {
    /// A response with a `content-length` header.
    pub(super) fn new(status: &str, headers: &str, body: &str) -> Self {
        let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
        Self(vec![head.into_bytes()], ConnectionEnd::KeepAlive)
    }

    /// A stream with each part in a separate chunk.
    pub(super) fn stream<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut all = vec![
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nrequest-id: req_head\r\n\
              transfer-encoding: chunked\r\n\r\n"
                .to_vec(),
        ];
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            all.push([format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat());
        }
        all.push(b"0\r\n\r\n".to_vec());
        Self(all, ConnectionEnd::KeepAlive)
    }

    /// The same response without its last part, followed by `end`.
    pub(super) fn cut(mut self, end: ConnectionEnd) -> Self {
        self.0.pop();
        Self(self.0, end)
    }
}

/// A received request.
#[derive(Debug, Clone)]
pub(super) struct ReceivedRequest {
    /// Its first line.
    pub(super) line: String,
    /// Its headers, names in lower case.
    pub(super) headers: HashMap<String, String>,
    /// Its body.
    pub(super) body: Vec<u8>,
    /// The number of the connection that it arrived on.
    pub(super) connection: usize,
}

impl ReceivedRequest {
    /// The body as JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A running server.
pub(super) struct ScriptedServer {
    /// Its base URL.
    pub(super) url: String,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    extra_part_types: Arc<Mutex<Vec<String>>>,
}

impl ScriptedServer {
    /// Starts a server that sends these responses in turn, and then repeats the last one.
    pub(super) async fn start(answers: impl IntoIterator<Item = ScriptedResponse>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let answers = Arc::new(Mutex::new(answers.into_iter().collect::<VecDeque<_>>()));
        let kept = received.clone();
        let test = body_dump::test();
        let novel = Arc::new(Mutex::new(Vec::new()));
        let known = novel.clone();
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, connection, answers.clone(), kept.clone(), (test.clone(), known.clone())));
            }
        });
        Self { url, received, extra_part_types: novel }
    }

    /// Allows parts of these types, unknown to the real API, in requests: this server sent them, so they are sent back.
    pub(super) fn allow_part_types(self, types: &[&str]) -> Self {
        self.extra_part_types.lock().unwrap().extend(types.iter().map(|name| (*name).to_owned()));
        self
    }

    /// Every request so far.
    pub(super) fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    connection: usize,
    answers: Arc<Mutex<VecDeque<ScriptedResponse>>>,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    (test, novel): (String, Arc<Mutex<Vec<String>>>),
) {
    stream.set_nodelay(true).unwrap();
    while let Some(request) = read(&mut stream, connection).await {
        if body_dump::is_ours(request.headers.get("user-agent").map(String::as_str)) {
            let path = request.line.split(' ').nth(1).unwrap_or_default();
            let novel = novel.lock().unwrap().clone();
            body_dump::keep(
                body_dump::What::Request,
                &body_dump::Origin { path, test: &test, novel: &novel },
                &request.body,
            );
        }
        received.lock().unwrap().push(request);
        let ScriptedResponse(parts, end) = {
            let mut answers = answers.lock().unwrap();
            if answers.len() > 1 { answers.pop_front().unwrap() } else { answers.front().unwrap().clone() }
        };
        for part in parts {
            if stream.write_all(&part).await.is_err() {
                return;
            }
            // Lets the client read this part before the next one is sent.
            tokio::task::yield_now().await;
        }
        match end {
            ConnectionEnd::KeepAlive => {}
            ConnectionEnd::Close => return,
            ConnectionEnd::CloseOnNext => {
                let _ = stream.peek(&mut [0]).await;
                return;
            }
            ConnectionEnd::CloseAfter(after) => {
                tokio::time::sleep(after).await;
                return;
            }
            ConnectionEnd::Hang => std::future::pending().await,
        }
    }
}

async fn read(stream: &mut TcpStream, connection: usize) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let mut body = bytes.split_off(head + 4);
    let head = String::from_utf8(bytes).unwrap();
    let mut lines = head.lines();
    let line = lines.next().unwrap().to_owned();
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers.get("content-length").expect("every request says its length").parse().unwrap();
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    assert_eq!(body.len(), length);
    Some(ReceivedRequest { line, headers, body, connection })
}
