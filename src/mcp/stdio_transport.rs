//! The messages of a server that is a program: one a line, over its stdin and stdout.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::{Buf, BytesMut};
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, ErrorData, InitializeResult, JsonRpcResponse,
    ProtocolVersion, RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

use super::messages::MessageReader;
use crate::sync::IgnorePoison;
use crate::text::sanitize;
use crate::text::truncate::ellipsize;

/// The longest line that is quoted, in characters.
const MAX_QUOTED_CHARS: usize = 200;

/// What a server wrote to stdout that is no message.
#[derive(Debug, Clone, Default)]
pub(super) struct StrayOutput(Arc<Mutex<Option<String>>>);

impl StrayOutput {
    /// The first line that was no message.
    pub(super) fn first_line(&self) -> Option<String> {
        self.0.lock().ignore_poison().clone()
    }

    fn add(&self, line: &[u8]) {
        let mut first = self.0.lock().ignore_poison();
        if first.is_none() {
            let start = &line[..line.len().min(4 * MAX_QUOTED_CHARS)];
            *first = Some(ellipsize(&sanitize::line(&String::from_utf8_lossy(start)), MAX_QUOTED_CHARS));
        }
    }
}

/// The transport for a program.
pub(super) struct StdioTransport<R, W> {
    reader: BufReader<R>,
    /// The start of a line. Reading can be cancelled at any byte.
    line: Vec<u8>,
    /// Messages that have been read.
    received: VecDeque<ServerJsonRpcMessage>,
    writer: Arc<tokio::sync::Mutex<Option<LineWriter<W>>>>,
    messages: MessageReader,
    handshake: Handshake,
    stray: StrayOutput,
}

/// Writes lines. What a cancelled write has left is written before the next line.
struct LineWriter<W> {
    stdin: W,
    unsent: BytesMut,
}

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    async fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.unsent.extend_from_slice(line);
        while !self.unsent.is_empty() {
            match self.stdin.write(&self.unsent).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => self.unsent.advance(count),
            }
        }
        self.stdin.flush().await
    }
}

impl<R: AsyncRead + Unpin, W> StdioTransport<R, W> {
    pub(super) fn new(stdout: R, stdin: W, stray: StrayOutput) -> Self {
        Self {
            reader: BufReader::new(stdout),
            line: Vec::new(),
            received: VecDeque::new(),
            writer: Arc::new(tokio::sync::Mutex::new(Some(LineWriter { stdin, unsent: BytesMut::new() }))),
            messages: MessageReader::default(),
            handshake: Handshake::default(),
            stray,
        }
    }
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send + 'static> Transport<RoleClient>
    for StdioTransport<R, W>
{
    type Error = io::Error;

    fn send(&mut self, message: ClientJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.messages.sending(&message);
        let line = self.handshake.sends(&message).then(|| {
            let line = serde_json::to_vec(&message).map(|line| [line, b"\n".to_vec()].concat());
            line.map_err(io::Error::from)
        });
        let writer = Arc::clone(&self.writer);
        async move {
            let Some(line) = line.transpose()? else { return Ok(()) };
            match writer.lock().await.as_mut() {
                Some(writer) => writer.write(&line).await,
                None => Err(io::ErrorKind::NotConnected.into()),
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            while let Some(message) = self.received.pop_front() {
                if let Some(message) = self.handshake.receives(message) {
                    return Some(message);
                }
            }
            // The server may have been stopped for what it sent.
            self.reader.read_until(b'\n', &mut self.line).await.ok()?;
            if self.line.last() != Some(&b'\n') {
                return None;
            }
            self.received.extend(self.messages.read(&self.line));
            if self.received.is_empty() && !self.line.trim_ascii().is_empty() {
                self.stray.add(&self.line);
            }
            self.line.clear();
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.writer.lock().await.take());
        Ok(())
    }
}

/// The start of a connection. A server that is asked in the newest protocol whether it speaks it may not answer: older ones
/// ignore what they don't know, and any server may take long to start. The SDK then asks in the older protocol, too, and waits
/// for that answer only; here, the first answer that is none of an error counts.
#[derive(Debug, Default)]
struct Handshake {
    /// The request of the newest protocol, until it is answered.
    discover: Option<RequestId>,
    /// The request of the older protocol.
    initialize: Option<RequestId>,
    /// The error that answered the request of the older protocol while the other one is open.
    refusal: Option<ServerJsonRpcMessage>,
    /// Whether the server speaks the newest protocol, which it said after it was asked in the older one, too.
    is_modern: bool,
}

impl Handshake {
    /// Whether a message is sent.
    fn sends(&mut self, message: &ClientJsonRpcMessage) -> bool {
        match message {
            ClientJsonRpcMessage::Request(request) => match &request.request {
                ClientRequest::DiscoverRequest(_) => self.discover = Some(request.id.clone()),
                ClientRequest::InitializeRequest(_) => self.initialize = Some(request.id.clone()),
                _ => {}
            },
            ClientJsonRpcMessage::Notification(notification) => {
                let is_initialized =
                    matches!(notification.notification, ClientNotification::InitializedNotification(_));
                return !(self.is_modern && is_initialized);
            }
            _ => {}
        }
        true
    }

    /// What the SDK gets for a message; nothing for one that it doesn't expect.
    fn receives(&mut self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        let id = match &message {
            ServerJsonRpcMessage::Response(response) => Some(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        let answers = |request: &Option<RequestId>| {
            // Some servers make a text of the number.
            request.as_ref().zip(id).is_some_and(|(request, id)| request.to_string() == id.to_string())
        };
        // What answers the first request without its id can only be an error.
        let is_unidentified = id.is_none() && self.initialize.is_some() && self.discover.is_some();
        if answers(&self.discover) || (is_unidentified && matches!(message, ServerJsonRpcMessage::Error(_))) {
            self.discover = None;
            return match &self.initialize {
                None => Some(message),
                Some(initialize) => match modern_start(message) {
                    Some(start) => {
                        self.is_modern = start.is_ok();
                        Some(match start {
                            Ok(result) => ServerJsonRpcMessage::response(result, initialize.clone()),
                            Err(error) => ServerJsonRpcMessage::error(error, Some(initialize.clone())),
                        })
                    }
                    None => self.refusal.take(),
                },
            };
        }
        if answers(&self.initialize) {
            let is_error = matches!(message, ServerJsonRpcMessage::Error(_));
            if self.is_modern {
                self.initialize = None;
                return None;
            }
            if is_error && self.discover.is_some() {
                self.refusal = Some(message);
                return None;
            }
            (self.initialize, self.discover) = (None, None);
        }
        Some(message)
    }
}

/// The late answer to a request of the newest protocol as one to that of the older protocol. Nothing if the server doesn't know
/// the newest protocol.
fn modern_start(message: ServerJsonRpcMessage) -> Option<Result<ServerResult, ErrorData>> {
    let ServerJsonRpcMessage::Response(JsonRpcResponse { result: ServerResult::DiscoverResult(found), .. }) = message
    else {
        return None;
    };
    if !found.supported_versions.contains(&ProtocolVersion::LATEST) {
        let versions: Vec<&str> = found.supported_versions.iter().map(ProtocolVersion::as_str).collect();
        let message = format!("it speaks only other versions of the protocol: {}", versions.join(", "));
        return Some(Err(ErrorData::new(ErrorCode::INVALID_REQUEST, message, None)));
    }
    let result = InitializeResult::new(found.capabilities).with_protocol_version(ProtocolVersion::LATEST);
    Some(Ok(ServerResult::InitializeResult(result)))
}

#[cfg(test)]
mod tests {
    use rmcp::model::{
        ClientCapabilities, ClientConfig, DiscoverRequest, DiscoverRequestParams, Implementation, InitializeRequest,
        InitializedNotification,
    };
    use serde_json::{Value, json};

    use super::*;

    /// A handshake in which both requests were sent, and neither is answered.
    fn both_sent() -> Handshake {
        let mut handshake = Handshake::default();
        let discover = ClientRequest::DiscoverRequest(DiscoverRequest::new(DiscoverRequestParams {}));
        assert!(handshake.sends(&ClientJsonRpcMessage::request(discover, RequestId::Number(0))));
        let config = ClientConfig::new(ClientCapabilities::default(), Implementation::new("legwork", "1"));
        let initialize = ClientRequest::InitializeRequest(InitializeRequest::new(config));
        assert!(handshake.sends(&ClientJsonRpcMessage::request(initialize, RequestId::Number(1))));
        handshake
    }

    #[allow(clippy::needless_pass_by_value, reason = "a test reads better without references")]
    fn message(id: Value, key: &str, value: Value) -> ServerJsonRpcMessage {
        serde_json::from_value(json!({ "jsonrpc": "2.0", "id": id, (key): value })).unwrap()
    }

    fn found(versions: &[&str]) -> Value {
        json!({
            "resultType": "complete", "supportedVersions": versions, "capabilities": { "tools": {} }, "ttlMs": 0,
            "cacheScope": "private",
        })
    }

    fn error() -> Value {
        json!({ "code": -32601, "message": "no" })
    }

    fn initialized() -> ClientJsonRpcMessage {
        ClientJsonRpcMessage::notification(ClientNotification::InitializedNotification(
            InitializedNotification::default(),
        ))
    }

    #[test]
    fn a_late_answer_in_the_newest_protocol_counts() {
        let mut handshake = both_sent();
        let start = handshake.receives(message(json!(0), "result", found(&["2026-07-28"]))).unwrap();
        let start = serde_json::to_value(start).unwrap();
        assert_eq!((&start["id"], &start["result"]["protocolVersion"]), (&json!(1), &json!("2026-07-28")));
        assert!(!handshake.sends(&initialized()));
        assert!(handshake.receives(message(json!("1"), "error", error())).is_none());
        assert!(handshake.receives(message(json!(2), "result", json!({}))).is_some());
        // One that the SDK doesn't speak.
        let refused = both_sent().receives(message(json!(0), "result", found(&["2031-01-01"]))).unwrap();
        assert!(serde_json::to_string(&refused).unwrap().contains("other versions of the protocol: 2031-01-01"));
        // One that answers the other request first, as it handles both at once.
        let mut handshake = both_sent();
        assert!(handshake.receives(message(json!(1), "error", error())).is_none());
        assert!(handshake.receives(message(json!(0), "result", found(&["2026-07-28"]))).is_some());
    }

    #[test]
    fn a_late_refusal_of_the_newest_protocol_does_not_count() {
        for id in [json!(0), json!("0"), Value::Null] {
            let mut handshake = both_sent();
            assert!(handshake.receives(message(id, "error", error())).is_none());
            let info = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": { "name": "t", "version": "1" } });
            assert!(handshake.receives(message(json!(1), "result", info)).is_some());
            assert!(handshake.sends(&initialized()));
        }
        let mut handshake = both_sent();
        assert!(handshake.receives(message(json!(1), "error", json!({ "code": 5, "message": "refused" }))).is_none());
        let both = handshake.receives(message(json!(0), "error", error())).unwrap();
        assert!(serde_json::to_string(&both).unwrap().contains("refused"));
    }

    #[tokio::test]
    async fn messages_are_read_however_they_arrive_and_other_lines_are_noted() {
        use tokio::io::AsyncWriteExt;

        let (mut server, stdout) = tokio::io::duplex(16);
        let stray = StrayOutput::default();
        let mut transport = StdioTransport::new(stdout, tokio::io::sink(), stray.clone());
        let text = b"listening on \x1b[1mstdio\n\n\r\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\r\nhalf";
        let writing = async move {
            for byte in text {
                server.write_all(&[*byte]).await.unwrap();
            }
        };
        let reading = async {
            assert!(matches!(transport.receive().await, Some(ServerJsonRpcMessage::Notification(_))));
            assert!(transport.receive().await.is_none());
        };
        tokio::join!(writing, reading);
        assert!(stray.first_line().unwrap().starts_with("listening on "));
    }
}
