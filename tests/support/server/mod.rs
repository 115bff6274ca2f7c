//! A loopback server that acts as a provider: it speaks the wire formats of the Messages API, of Chat Completions,
//! of the Responses API and of the Gemini API, each at its own path, and checks every request.
//!
//! A request that the real API would reject, or that breaks one of our own promises (the history only grows, a
//! complete answer isn't requested again), is answered with status 400 and recorded. [`Server::finish`], or else
//! dropping the server, then fails the test.

mod answer;
mod api;
mod chat;
mod conversations;
mod gemini;
mod history_rewrite;
pub(crate) mod http;
mod request;
mod request_checks;
mod responses;
mod script;
mod wire;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use answer::{Answer, EventTransform};
pub(crate) use api::Api;
pub(crate) use request::Request;
pub(crate) use script::ScriptedAgents;

use super::body_dump::{self, What};
use conversations::Conversations;
use http::Incoming;

/// The only key that the server accepts.
pub(crate) const KEY: &str = "sk-ant-test-0a1b2c3d4e5f6789";

/// How long a connection can be silent, and how long an answer can hang, before the server closes it.
const IO_TIMEOUT: Duration = Duration::from_secs(120);

/// Decides the answer to a request.
pub(crate) trait Responder: Send + Sync + 'static {
    /// The answer to one request. Called in the connection's own thread, so it can wait; a panic fails the test.
    fn answer(&self, request: &Request) -> Answer;

    /// The expected requests that didn't come, one sentence each, when the server is done.
    fn unused_answers(&self) -> Vec<String> {
        Vec::new()
    }
}

impl<F: Fn(&Request) -> Answer + Send + Sync + 'static> Responder for F {
    fn answer(&self, request: &Request) -> Answer {
        self(request)
    }
}

/// How strict the server is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checks {
    /// Everything is checked, and every request is kept.
    All,
    /// As `All`, but a request whose answer was sent completely can be repeated: for runs that are killed and
    /// resumed.
    AllowRepeats,
    /// As `All`, but a conversation can begin with the messages of another one: for runs in which a fallback takes it over.
    AllowHandover,
    /// Nothing is parsed, checked or kept: for benchmarks.
    None,
}

/// The server. It runs until it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// The name of the test that started it.
    test: String,
    /// The types of all blocks so far that the real API doesn't define.
    unknown_blocks: Mutex<Vec<String>>,
    responder: Box<dyn Responder>,
    checks: Checks,
    stopping: AtomicBool,
    connections: AtomicUsize,
    request_count: AtomicUsize,
    sockets: Mutex<Vec<TcpStream>>,
    state: Mutex<ServerState>,
    state_changed: Condvar,
}

#[derive(Default)]
struct ServerState {
    history: Conversations,
    requests: Vec<Arc<Request>>,
    violations: Vec<String>,
}

impl Server {
    /// Starts it on a free loopback port with all checks.
    pub(crate) fn start(answers: impl Responder) -> Self {
        Self::with(Checks::All, answers)
    }

    /// Starts it on a free loopback port.
    pub(crate) fn with(checks: Checks, answers: impl Responder) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let address = listener.local_addr().expect("the port's number");
        let shared = Arc::new(Shared {
            test: body_dump::test(),
            unknown_blocks: Mutex::default(),
            responder: Box::new(answers),
            checks,
            stopping: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            request_count: AtomicUsize::new(0),
            sockets: Mutex::default(),
            state: Mutex::default(),
            state_changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.stopping.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                let shared = Arc::clone(&accepting);
                thread::spawn(move || serve(&shared, stream));
            }
        });
        Self { address, shared }
    }

    /// The base address, as `ANTHROPIC_BASE_URL` takes it: no path, no slash at the end. `OPENAI_BASE_URL` takes it
    /// with `/v1` after it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address that it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// All requests so far, in order of arrival.
    pub(crate) fn requests(&self) -> Vec<Arc<Request>> {
        self.shared.lock_state().requests.clone()
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// The number of requests so far, kept or not.
    pub(crate) fn count(&self) -> usize {
        self.shared.request_count.load(Ordering::SeqCst)
    }

    /// Waits until `count` requests have come; fails the test after a timeout.
    pub(crate) fn wait_for(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(180);
        let mut seen = self.shared.lock_state();
        while seen.requests.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} of {count} requests came in time", seen.requests.len());
            seen = self.shared.state_changed.wait_timeout(seen, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns and clears the errors so far: for tests of the checks themselves.
    pub(crate) fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock_state().violations)
    }

    /// Returns all requests. Fails the test if a request was wrong or an answer was left over.
    pub(crate) fn finish(self) -> Vec<Arc<Request>> {
        self.fail_on_violations();
        let mut seen = self.shared.lock_state();
        seen.violations.clear();
        std::mem::take(&mut seen.requests)
    }

    fn fail_on_violations(&self) {
        let mut wrong = self.shared.lock_state().violations.clone();
        wrong.extend(self.shared.responder.unused_answers());
        assert!(wrong.is_empty() || thread::panicking(), "the provider saw:\n- {}", wrong.join("\n- "));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for socket in self.shared.sockets().drain(..) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        let _ = TcpStream::connect(self.address);
        self.fail_on_violations();
    }
}

impl Shared {
    fn lock_state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a body for the comparison with the official clients' types.
    fn dump_body(&self, what: What, request: &Request, body: &[u8]) {
        let novel = self.unknown_blocks.lock().unwrap_or_else(PoisonError::into_inner);
        body_dump::keep(what, &body_dump::Origin { path: request.path(), test: &self.test, novel: &novel }, body);
    }

    fn violation(&self, number: usize, what: &str) {
        self.lock_state().violations.push(format!("request {number}: {what}"));
    }

    fn next_answer(&self, request: &Request) -> Answer {
        match catch_unwind(AssertUnwindSafe(|| self.responder.answer(request))) {
            Ok(answer) => answer,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
                self.violation(request.number, &format!("no answer: {text}"));
                Answer::status(400).error("invalid_request_error", text)
            }
        }
    }
}

/// Serves one connection, from its first request to its end.
fn serve(shared: &Shared, stream: TcpStream) {
    let connection = shared.connections.fetch_add(1, Ordering::SeqCst);
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(IO_TIMEOUT));
    let _ = stream.set_write_timeout(Some(IO_TIMEOUT));
    let (Ok(mut writer), Ok(kept)) = (stream.try_clone(), stream.try_clone()) else { return };
    shared.sockets().push(kept);
    if shared.stopping.load(Ordering::SeqCst) {
        return;
    }
    let mut reader = BufReader::with_capacity(64 * 1024, stream);
    // A client whose connection was closed probes for TLS at the end; TLS handshakes start with this byte.
    if reader.fill_buf().is_ok_and(|start| start.first() == Some(&22)) {
        return;
    }
    let mut buffer = Vec::new();
    loop {
        let (head, body) = match http::read(&mut reader, std::mem::take(&mut buffer)) {
            Incoming::Closed => break,
            Incoming::Request(head, body) => (head, body),
            Incoming::Bad(why) => {
                shared.violation(shared.request_count.fetch_add(1, Ordering::SeqCst), &why);
                break;
            }
        };
        let number = shared.request_count.fetch_add(1, Ordering::SeqCst);
        let request = Request::new(number, connection, head, body);
        if body_dump::is_ours(request.header("user-agent")) {
            shared.dump_body(What::Request, &request, request.bytes());
        }
        let open = if shared.checks == Checks::None {
            let answer = shared.next_answer(&request);
            let open = send(shared, &mut writer, &mut reader, &answer, &request).is_ok_and(|open| open);
            buffer = request.into_body();
            open
        } else {
            exchange(shared, &mut writer, &mut reader, &Arc::new(request))
        };
        if !open {
            break;
        }
    }
    let _ = writer.shutdown(std::net::Shutdown::Both);
}

/// Checks, keeps and answers a request. Returns whether the connection stays open.
fn exchange(
    shared: &Shared,
    writer: &mut TcpStream,
    reader: &mut BufReader<TcpStream>,
    request: &Arc<Request>,
) -> bool {
    let mut wrong = request_checks::check_head(request, KEY);
    wrong.extend(request.api().check(request.raw_body()));
    wrong.extend(request_checks::check_body(request.body()));
    let mut conversation = None;
    {
        let mut seen = shared.lock_state();
        if wrong.is_empty() {
            match seen.history.match_request(request.body(), shared.checks) {
                Ok(index) => conversation = Some(index),
                Err(why) => wrong.push(why),
            }
        }
        seen.violations.extend(wrong.iter().map(|what| format!("request {}: {what}", request.number)));
        seen.requests.push(Arc::clone(request));
        shared.state_changed.notify_all();
    }
    let answer = if wrong.is_empty() {
        shared.next_answer(request)
    } else {
        Answer::status(400).error("invalid_request_error", &wrong.join("; "))
    };
    let answer = answer.number_calls(request.number);
    if let Some(index) = conversation {
        // Before it is sent, because the next request can arrive before this thread runs again.
        shared.lock_state().history.record_answer(index, &answer, request.api());
    }
    send(shared, writer, reader, &answer, request).is_ok_and(|open| open)
}

/// Sends an answer. Returns whether the connection stays open.
fn send(
    shared: &Shared,
    writer: &mut TcpStream,
    reader: &mut BufReader<TcpStream>,
    answer: &Answer,
    request: &Request,
) -> std::io::Result<bool> {
    shared.unknown_blocks.lock().unwrap_or_else(PoisonError::into_inner).extend(answer.unknown_blocks.iter().cloned());
    let wire = answer.to_wire(request);
    if let Some((what, body)) = &wire.standard_body {
        shared.dump_body(*what, request, body);
    }
    if !answer.delay.is_zero() {
        thread::sleep(answer.delay);
    }
    for piece in &wire.pieces {
        writer.write_all(piece)?;
    }
    if let Some(every) = answer.pings {
        let ping = request.api().ping();
        let chunk = [format!("{:x}\r\n", ping.len()).as_bytes(), ping, b"\r\n"].concat();
        // Ends when the client closes the connection or the server is dropped.
        loop {
            writer.write_all(&chunk)?;
            thread::sleep(every);
        }
    }
    if wire.hang {
        // Ends when the client closes the connection, when the server is dropped, or at the timeout.
        let _ = reader.read(&mut [0]);
        return Ok(false);
    }
    Ok(wire.stays_open)
}
