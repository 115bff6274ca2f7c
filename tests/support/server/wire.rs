//! The bytes of an answer: server-sent events as the Messages API streams them, or one JSON body.

use serde_json::{Value, json};

use super::answer::{Answer, Block, Ending};
use super::api::{Api, event, split_in_half};
use super::request::Request;
use super::{What, chat, gemini, responses};

/// The longest piece of a call's input in one event.
const MAX_INPUT_DELTA: usize = 512 << 10;

/// An answer's bytes.
pub(super) struct WireResponse {
    /// Each is written separately.
    pub(super) pieces: Vec<Vec<u8>>,
    pub(super) hang: bool,
    pub(super) stays_open: bool,
    /// Its kind and its body, unless the API would never send it.
    pub(super) standard_body: Option<(What, Vec<u8>)>,
}

impl Answer {
    /// The bytes that are sent for this request.
    pub(super) fn to_wire(&self, request: &Request) -> WireResponse {
        if let Some(raw) = &self.raw {
            return WireResponse { pieces: vec![raw.clone()], hang: self.hang, stays_open: false, standard_body: None };
        }
        if self.hang && matches!(self.ending, Ending::Whole) {
            return WireResponse { pieces: Vec::new(), hang: true, stays_open: false, standard_body: None };
        }
        let streamed = self.streamed && request.wants_stream() && self.status == 200 && self.error.is_none();
        let parts = if streamed { self.events(request) } else { vec![self.whole(request).into_bytes()] };
        let (parts, stays_open) = self.truncate_parts(parts, request.api());
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        let kind = if streamed { "text/event-stream; charset=utf-8" } else { "application/json" };
        head.push_str(&format!("content-type: {kind}\r\nrequest-id: req_{:06}\r\n", request.number));
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if streamed {
            head.push_str("cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n");
        } else {
            let length = self.whole(request).len();
            head.push_str(&format!("content-length: {length}\r\n\r\n"));
        }
        let what = match (streamed, self.status == 200 && self.error.is_none()) {
            (true, _) => What::Stream,
            (false, true) => What::Whole,
            (false, false) => What::Error,
        };
        // Bytes that are cut anywhere can't be parsed.
        let is_readable =
            !self.is_nonstandard && !matches!(self.ending, Ending::CutAfterBytes(_)) && !parts.concat().is_empty();
        let ordinary = is_readable.then(|| (what, parts.concat()));
        let pieces = self.frame(head, &parts, streamed, stays_open);
        WireResponse { pieces, hang: self.hang, stays_open, standard_body: ordinary }
    }

    /// The same answer with its bytes built once, to be sent repeatedly. The connection is closed after it.
    pub(crate) fn rendered(&self, request: &Request) -> Self {
        Self::raw(self.to_wire(request).pieces.concat())
    }

    /// The parts of the body that are left if it is cut or fails, and whether the response ends normally.
    fn truncate_parts(&self, mut parts: Vec<Vec<u8>>, api: Api) -> (Vec<Vec<u8>>, bool) {
        match &self.ending {
            Ending::Whole => (parts, true),
            Ending::CutAfterEvents(events) => {
                parts.truncate(*events);
                (parts, false)
            }
            Ending::FailAfterEvents(events, kind, message) => {
                parts.truncate(*events);
                parts.push(api.error_event(kind, message, parts.len()));
                (parts, true)
            }
            Ending::CutAfterBytes(bytes) => {
                let mut all = parts.concat();
                all.truncate(*bytes);
                (vec![all], false)
            }
        }
    }

    fn frame(&self, head: String, parts: &[Vec<u8>], chunked: bool, ends: bool) -> Vec<Vec<u8>> {
        let frame = |bytes: &[u8], out: &mut Vec<u8>| {
            if chunked && !bytes.is_empty() {
                out.extend(format!("{:x}\r\n", bytes.len()).bytes());
                out.extend(bytes);
                out.extend(b"\r\n");
            } else {
                out.extend(bytes);
            }
        };
        let mut pieces = vec![head.into_bytes()];
        if let Some(size) = self.chunk {
            for bytes in parts.concat().chunks(size) {
                let mut piece = Vec::new();
                frame(bytes, &mut piece);
                pieces.push(piece);
            }
        } else {
            for part in parts {
                frame(part, &mut pieces[0]);
            }
        }
        if let (true, true, Some(last)) = (chunked, ends, pieces.last_mut()) {
            last.extend(b"0\r\n\r\n");
        }
        pieces
    }

    fn message(&self, request: &Request, content: &[Value], stop: &Value, usage: &Value) -> Value {
        json!({
            "id": format!("msg_{:06}", request.number), "type": "message", "role": "assistant",
            "model": request.model_unparsed(), "content": content, "stop_reason": stop, "stop_sequence": null,
            "usage": usage,
        })
    }

    fn usage_json(&self, output: u64) -> Value {
        let [input, _, read, written] = self.usage;
        json!({
            "input_tokens": input, "cache_creation_input_tokens": written, "cache_read_input_tokens": read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": written - self.hour_cache, "ephemeral_1h_input_tokens": self.hour_cache,
            },
            "output_tokens": output, "service_tier": "standard",
        })
    }

    /// The body without streaming.
    fn whole(&self, request: &Request) -> String {
        if self.status == 200 && self.error.is_none() {
            let usage = self.usage_json(self.usage[1]);
            return match request.api() {
                Api::Messages => self.message(request, &self.expected_content(), &json!(self.stop_reason()), &usage),
                Api::Chat => chat::json_body(self, request),
                Api::Responses => responses::json_body(self, request),
                Api::Gemini => gemini::json_body(self, request),
            }
            .to_string();
        }
        match &self.error {
            Some((kind, message)) => request.api().error(kind, message, request).to_string(),
            None => String::new(),
        }
    }

    /// The end of each event in the stream, in bytes of the body.
    pub(crate) fn event_ends(&self, request: &Request) -> Vec<usize> {
        let lengths = self.clone().number_calls(request.number).events(request).into_iter().map(|event| event.len());
        lengths
            .scan(0, |end, length| {
                *end += length;
                Some(*end)
            })
            .collect()
    }

    /// The stream, event by event.
    fn events(&self, request: &Request) -> Vec<Vec<u8>> {
        let events = match request.api() {
            Api::Messages => self.messages(request),
            Api::Chat => chat::events(self, request),
            Api::Responses => responses::events(self, request),
            Api::Gemini => gemini::events(self, request),
        };
        match self.transform {
            Some(form) => events.iter().map(|event| form(event)).collect(),
            None => events,
        }
    }

    fn messages(&self, request: &Request) -> Vec<Vec<u8>> {
        let start = self.message(request, &[], &Value::Null, &self.usage_json(1));
        let mut events = vec![event("message_start", &json!({"type": "message_start", "message": start}))];
        for (index, block) in self.blocks.iter().enumerate() {
            let start = json!({"type": "content_block_start", "index": index, "content_block": block.start()});
            events.push(event("content_block_start", &start));
            if index == 0 {
                events.push(event("ping", &json!({"type": "ping"})));
            }
            block.deltas(index, &mut events);
            events.push(event("content_block_stop", &json!({"type": "content_block_stop", "index": index})));
        }
        let delta = json!({"stop_reason": self.stop_reason(), "stop_sequence": null});
        // Cumulative: the final usage.
        let mut usage = self.usage_json(self.usage[1]);
        let counts = usage.as_object_mut().expect("an object");
        for key in ["service_tier", "cache_creation"] {
            counts.shift_remove(key);
        }
        events.push(event("message_delta", &json!({"type": "message_delta", "delta": delta, "usage": usage})));
        events.push(event("message_stop", &json!({"type": "message_stop"})));
        events
    }
}

impl Block {
    pub(super) fn whole(&self) -> Value {
        match self {
            Self::Text(pieces) => json!({"type": "text", "text": pieces.concat()}),
            Self::Thinking { text, signature } => {
                json!({"type": "thinking", "thinking": text, "signature": signature})
            }
            Self::Call { id, tool, input } => {
                let input = serde_json::from_str(input).unwrap_or_else(|_| json!({}));
                json!({"type": "tool_use", "id": id, "name": tool, "input": input})
            }
            Self::Other(block) => block.clone(),
        }
    }

    fn start(&self) -> Value {
        match self {
            Self::Text(_) => json!({"type": "text", "text": ""}),
            Self::Thinking { .. } => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Self::Call { id, tool, .. } => json!({"type": "tool_use", "id": id, "name": tool, "input": {}}),
            Self::Other(block) => block.clone(),
        }
    }

    fn deltas(&self, index: usize, events: &mut Vec<Vec<u8>>) {
        let mut push = |kind: &str, field: &str, text: &str| {
            // Formatted by hand, because a long stream has thousands of these.
            // Long ones aren't searched character by character either.
            let plain =
                text.len() > MAX_INPUT_DELTA / 2 && !['"', '\\', '\n'].iter().any(|special| text.contains(*special));
            let text = if plain { format!("\"{text}\"") } else { Value::from(text).to_string() };
            let event = format!(
                "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{index},\
                 \"delta\":{{\"type\":\"{kind}\",\"{field}\":{text}}}}}\n\n"
            );
            events.push(event.into_bytes());
        };
        match self {
            Self::Text(pieces) => pieces.iter().for_each(|piece| push("text_delta", "text", piece)),
            Self::Thinking { text, signature } => {
                let [head, tail] = split_in_half(text);
                push("thinking_delta", "thinking", head);
                push("thinking_delta", "thinking", tail);
                push("signature_delta", "signature", signature);
            }
            Self::Call { input, .. } => {
                push("input_json_delta", "partial_json", "");
                // The API sends only this for a call without input.
                if input != "{}" {
                    let mut rest = input.as_str();
                    while rest.len() > 2 * MAX_INPUT_DELTA {
                        let (piece, later) = rest.split_at(rest.floor_char_boundary(MAX_INPUT_DELTA));
                        push("input_json_delta", "partial_json", piece);
                        rest = later;
                    }
                    let [head, tail] = split_in_half(rest);
                    push("input_json_delta", "partial_json", head);
                    push("input_json_delta", "partial_json", tail);
                }
            }
            Self::Other(_) => {}
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        413 => "Payload Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        529 => "Overloaded",
        _ => "Unnamed",
    }
}
