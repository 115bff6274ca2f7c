//! A loopback forge: keeps what is published in memory, checks every request, and fails in the ways that forges do.

pub(crate) mod git;
pub(crate) mod github;
pub(crate) mod gitlab;

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::server::http::{self, Incoming};

/// The only token that a forge accepts.
pub(crate) const TOKEN: &str = "ghs_0a1b2c3d4e5f6789token";
/// The login of its user.
pub(crate) const LOGIN: &str = "legwork-bot";

/// A request, parsed.
#[derive(Debug, Clone)]
pub(crate) struct ForgeRequest {
    pub(crate) method: String,
    /// Without the query, as it came.
    pub(crate) path: String,
    /// Decoded.
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Value,
    pub(crate) has_token: bool,
}

impl ForgeRequest {
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The parts of the path, decoded.
    pub(crate) fn parts(&self) -> Vec<String> {
        self.path.trim_start_matches('/').split('/').map(legwork::text::percent_decode).collect()
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct ForgeAnswer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl ForgeAnswer {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self { status, headers: Vec::new(), body: body.to_string() }
    }

    pub(crate) fn error(status: u16, message: &str) -> Self {
        Self::json(status, &json!({ "message": message }))
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// The API of a forge.
pub(crate) trait Api: Send + 'static {
    /// Answers a request.
    fn answer(&mut self, request: &ForgeRequest) -> ForgeAnswer;
}

/// How a request fails.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// It has its effect, and this answer.
    After(ForgeAnswer),
    /// It has its effect, and the connection is closed.
    Drop,
    /// It has no effect, and this answer.
    Instead(ForgeAnswer),
    /// It has no effect, and the connection is closed.
    Refuse,
}

/// When a fault happens.
#[derive(Debug, Clone)]
pub(crate) struct FaultRule {
    /// What the method and the path contain.
    pub(crate) matches: &'static str,
    /// How often.
    pub(crate) times: usize,
    pub(crate) fault: Fault,
}

/// The moment at which the client is killed, or can't be reached any more.
pub(crate) struct Death {
    /// The number of the request, from 0.
    pub(crate) request: usize,
    /// Whether the request has its effect before.
    pub(crate) after: bool,
    /// Gets a message then. Without it, all connections are closed from then on.
    pub(crate) signal: Option<Sender<()>>,
}

struct Shared<A> {
    api: Mutex<A>,
    state: Mutex<State>,
    stopping: AtomicBool,
}

#[derive(Default)]
struct State {
    faults: Vec<FaultRule>,
    log: Vec<ForgeRequest>,
    death: Option<Death>,
    is_dead: bool,
    sockets: Vec<TcpStream>,
}

/// The forge. It runs until it is dropped.
pub(crate) struct ForgeServer<A: Api> {
    address: SocketAddr,
    shared: Arc<Shared<A>>,
}

impl<A: Api> ForgeServer<A> {
    /// Starts it on a free loopback port.
    pub(crate) fn start(api: A) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let address = listener.local_addr().expect("the port's number");
        let shared =
            Arc::new(Shared { api: Mutex::new(api), state: Mutex::default(), stopping: AtomicBool::new(false) });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.stopping.load(Ordering::SeqCst) {
                    break;
                }
                let shared = Arc::clone(&accepting);
                thread::spawn(move || serve(&shared, stream));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it has.
    pub(crate) fn api(&self) -> MutexGuard<'_, A> {
        lock(&self.shared.api)
    }

    /// All requests so far.
    pub(crate) fn log(&self) -> Vec<ForgeRequest> {
        lock(&self.shared.state).log.clone()
    }

    /// The methods and paths of the requests so far that change something.
    pub(crate) fn writes(&self) -> Vec<String> {
        let writes = self.log().into_iter().filter(|request| request.method != "GET");
        writes.map(|request| format!("{} {}", request.method, request.path)).collect()
    }

    /// Lets requests fail.
    pub(crate) fn fail(&self, matches: &'static str, times: usize, fault: Fault) -> &Self {
        lock(&self.shared.state).faults.push(FaultRule { matches, times, fault });
        self
    }

    /// Ends the client, or the connection to it, at a request.
    pub(crate) fn die(&self, death: Death) {
        let mut state = lock(&self.shared.state);
        state.log.clear();
        state.is_dead = false;
        state.death = Some(death);
    }

    /// Answers again.
    pub(crate) fn revive(&self) {
        let mut state = lock(&self.shared.state);
        (state.is_dead, state.death) = (false, None);
        for socket in state.sockets.drain(..) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl<A: Api> Drop for ForgeServer<A> {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.revive();
        let _ = TcpStream::connect(self.address);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What happens to a request.
enum Course {
    Answer(ForgeAnswer),
    Close,
    /// The client is to be killed: it gets no answer.
    Hang(Sender<()>),
}

fn serve<A: Api>(shared: &Shared<A>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(120)));
    let (Ok(mut writer), Ok(kept)) = (stream.try_clone(), stream.try_clone()) else { return };
    lock(&shared.state).sockets.push(kept);
    let mut reader = BufReader::new(stream);
    while let Incoming::Request(head, body) = http::read(&mut reader, Vec::new()) {
        let token = head.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let token = token.or_else(|| head.header("private-token"));
        let (path, query) = head.path.split_once('?').unwrap_or((&head.path, ""));
        let decode = |text: &str| legwork::text::percent_decode(&text.replace('+', " "));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let request = ForgeRequest {
            method: head.method.clone(),
            path: path.to_owned(),
            query: pairs.map(|(name, value)| (decode(name), decode(value))).collect(),
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
            has_token: token == Some(TOKEN),
        };
        match decide(shared, &request) {
            Course::Answer(answer) => {
                if writer.write_all(&wire(&answer)).is_err() {
                    break;
                }
            }
            Course::Close => break,
            Course::Hang(signal) => {
                let _ = signal.send(());
                // Until the client is dead.
                let _ = reader.fill_buf();
                break;
            }
        }
    }
    let _ = writer.shutdown(std::net::Shutdown::Both);
}

fn decide<A: Api>(shared: &Shared<A>, request: &ForgeRequest) -> Course {
    let mut state = lock(&shared.state);
    if state.is_dead {
        return Course::Close;
    }
    let number = state.log.len();
    state.log.push(request.clone());
    if state.death.as_ref().is_some_and(|death| death.request == number) {
        let death = state.death.take().expect("a death");
        state.is_dead = true;
        drop(state);
        if death.after {
            let _ = lock(&shared.api).answer(request);
        }
        return death.signal.map_or(Course::Close, Course::Hang);
    }
    let line = format!("{} {}", request.method, request.path);
    let rule = state.faults.iter_mut().find(|rule| rule.times > 0 && line.contains(rule.matches));
    let fault = rule.map(|rule| {
        rule.times -= 1;
        rule.fault.clone()
    });
    drop(state);
    if !request.has_token && !matches!(fault, Some(Fault::Instead(_))) {
        return Course::Answer(ForgeAnswer::error(401, "Bad credentials"));
    }
    match fault {
        None => Course::Answer(lock(&shared.api).answer(request)),
        Some(Fault::Instead(answer)) => Course::Answer(answer),
        Some(Fault::Refuse) => Course::Close,
        Some(Fault::After(answer)) => {
            let _ = lock(&shared.api).answer(request);
            Course::Answer(answer)
        }
        Some(Fault::Drop) => {
            let _ = lock(&shared.api).answer(request);
            Course::Close
        }
    }
}

fn wire(answer: &ForgeAnswer) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {} X\r\n", answer.status);
    if answer.status != 204 {
        head += &format!("content-length: {}\r\n", answer.body.len());
    }
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let body = if answer.status == 204 { "" } else { &answer.body };
    format!("{head}\r\n{body}").into_bytes()
}

/// What is wrong with a request, by the description of the forge's API: its operations, each with the JSON Schemas of its body and its
/// query.
pub(crate) fn violations(operations: &Value, request: &ForgeRequest, path: &[&str]) -> Vec<String> {
    let found = operations["operations"].as_object().expect("operations").iter().find(|(_, operation)| {
        let pattern: Vec<&str> = operation["path"].as_str().unwrap_or_default()[1..].split('/').collect();
        let is_same = |(at, part): (usize, &&str)| part.starts_with('{') || path.get(at) == Some(part);
        let has_rest = pattern.last() == Some(&"{ref}") && path.len() > pattern.len();
        operation["method"] == *request.method
            && (pattern.len() == path.len() || has_rest)
            && pattern.iter().enumerate().all(is_same)
    });
    let Some((name, operation)) = found else {
        return vec![format!("{} {} is no operation", request.method, request.path)];
    };
    let query = request.query.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let parts = [("body", &request.body), ("query", &Value::Object(query))];
    let mut found = Vec::new();
    for (part, value) in parts {
        let schema = &operation[part];
        if schema.is_null() {
            if part == "body" && !value.is_null() {
                found.push(format!("{name} has a body"));
            }
            continue;
        }
        let validator = jsonschema::validator_for(schema).expect("a schema");
        found.extend(validator.iter_errors(value).map(|error| format!("{name}: {part}: {error}")));
        if let (Some(known), Some(given)) = (schema["properties"].as_object(), value.as_object()) {
            let unknown = given.keys().filter(|key| !known.contains_key(*key));
            found.extend(unknown.map(|key| format!("{name}: {part}: `{key}` is unknown")));
        }
    }
    found
}

/// A page of a list, with GitHub's header.
pub(crate) fn page(items: &[Value], request: &ForgeRequest) -> ForgeAnswer {
    let number = |name: &str, default: usize| request.query(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (size, page) = (number("per_page", 30).min(100), number("page", 1).max(1));
    let start = ((page - 1) * size).min(items.len());
    let end = (start + size).min(items.len());
    let answer = ForgeAnswer::json(200, &json!(items[start..end]));
    match end < items.len() {
        true => answer.header("link", &format!("<http://elsewhere.example/?page={}>; rel=\"next\"", page + 1)),
        false => answer,
    }
}
