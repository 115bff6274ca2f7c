//! The answers of the server: blocks, an error, or something broken.

use std::time::Duration;

use serde_json::Value;

/// The answer to a request. Blocks are appended in the order of the calls, except that [`Answer::thinking`] comes
/// first.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(super) delay: Duration,
    /// Whether the client may send the blocks back changed, because it can't or mustn't send them unchanged.
    pub(super) may_change: bool,
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) blocks: Vec<Block>,
    stop: Option<String>,
    /// Input, output, read from a cache, written to one.
    pub(super) usage: [u64; 4],
    /// The tokens written to a cache that keeps them for an hour.
    pub(super) hour_cache: u64,
    pub(super) error: Option<(String, String)>,
    pub(super) ending: Ending,
    pub(super) hang: bool,
    pub(super) chunk: Option<usize>,
    /// Changes the bytes of each event.
    pub(super) transform: Option<EventTransform>,
    /// The interval of endless pings.
    pub(super) pings: Option<Duration>,
    pub(super) streamed: bool,
    pub(super) raw: Option<Vec<u8>>,
    /// Whether the real API would never send this.
    pub(super) is_nonstandard: bool,
    /// The types of blocks that the API doesn't define.
    pub(super) unknown_blocks: Vec<String>,
}

/// Changes the bytes of an event.
pub(crate) type EventTransform = fn(&[u8]) -> Vec<u8>;

#[derive(Clone)]
pub(super) enum Block {
    /// Pieces that each arrive as one delta.
    Text(Vec<String>),
    Thinking {
        text: String,
        signature: String,
    },
    /// The input's text need not be JSON.
    Call {
        id: Option<String>,
        tool: String,
        input: String,
    },
    /// Sent completely with its start, as the API does with kinds that have no deltas.
    Other(Value),
}

#[derive(Clone)]
pub(super) enum Ending {
    Whole,
    CutAfterEvents(usize),
    CutAfterBytes(usize),
    FailAfterEvents(usize, String, String),
}

impl Answer {
    /// A reply without any block, with status 200.
    pub(crate) fn empty() -> Self {
        Self {
            delay: Duration::ZERO,
            may_change: false,
            status: 200,
            headers: Vec::new(),
            blocks: Vec::new(),
            stop: None,
            usage: [12, 7, 0, 0],
            hour_cache: 0,
            error: None,
            ending: Ending::Whole,
            hang: false,
            chunk: None,
            transform: None,
            pings: None,
            streamed: true,
            raw: None,
            is_nonstandard: false,
            unknown_blocks: Vec::new(),
        }
    }

    /// A reply of text.
    pub(crate) fn text(text: &str) -> Self {
        Self::empty().then_text(text)
    }

    /// A reply of text in exactly these deltas.
    pub(crate) fn deltas<S: Into<String>>(pieces: impl IntoIterator<Item = S>) -> Self {
        let mut answer = Self::empty();
        answer.blocks.push(Block::Text(pieces.into_iter().map(Into::into).collect()));
        answer
    }

    /// A reply of tool calls, in this order.
    pub(crate) fn calls(calls: &[(&str, Value)]) -> Self {
        calls.iter().fold(Self::empty(), |answer, (tool, input)| answer.then_call(tool, input))
    }

    /// An error's status; [`Answer::error`] adds the body.
    pub(crate) fn status(status: u16) -> Self {
        Self { status, ..Self::empty() }
    }

    /// These bytes instead of a response. The connection is closed after them.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { raw: Some(bytes.into()), is_nonstandard: true, ..Self::empty() }
    }

    pub(crate) fn then_text(mut self, text: &str) -> Self {
        // Cut as the API might: between characters, a few of them per delta.
        let letters: Vec<char> = text.chars().collect();
        self.blocks.push(Block::Text(letters.chunks(16).map(|piece| piece.iter().collect()).collect()));
        self
    }

    pub(crate) fn then_call(mut self, tool: &str, input: &Value) -> Self {
        self.blocks.push(Block::Call { id: None, tool: tool.to_owned(), input: input.to_string() });
        self
    }

    /// A call with a given id; otherwise the id is `toolu_<request>_<place>`.
    pub(crate) fn then_call_as(mut self, id: &str, tool: &str, input: &Value) -> Self {
        self.blocks.push(Block::Call { id: Some(id.to_owned()), tool: tool.to_owned(), input: input.to_string() });
        self
    }

    /// A call whose input is this text, JSON or not. What the client sends back for it isn't compared.
    pub(crate) fn then_broken_call(mut self, tool: &str, input: &str) -> Self {
        self.blocks.push(Block::Call { id: None, tool: tool.to_owned(), input: input.to_owned() });
        self.allow_changed_echo()
    }

    /// Signed reasoning in front of everything.
    pub(crate) fn thinking(mut self, text: &str, signature: &str) -> Self {
        self.blocks.insert(0, Block::Thinking { text: text.to_owned(), signature: signature.to_owned() });
        self
    }

    /// Signed reasoning after the present blocks.
    pub(crate) fn then_thinking(mut self, text: &str, signature: &str) -> Self {
        self.blocks.push(Block::Thinking { text: text.to_owned(), signature: signature.to_owned() });
        self
    }

    /// A block of any kind, sent completely.
    pub(crate) fn then_block(mut self, block: Value) -> Self {
        self.blocks.push(Block::Other(block));
        self
    }

    /// A block of a kind that the real API doesn't define.
    pub(crate) fn then_unknown_block(mut self, block: Value) -> Self {
        self.unknown_blocks.push(block["type"].as_str().unwrap_or_default().to_owned());
        self.then_block(block).nonstandard()
    }

    /// The stop reason; by default `tool_use` after calls and `end_turn` after anything else.
    pub(crate) fn stop(mut self, reason: &str) -> Self {
        self.stop = Some(reason.to_owned());
        self
    }

    /// Uncached tokens of the prompt, and tokens of the reply. By default 12 and 7.
    pub(crate) fn usage(mut self, input: u64, output: u64) -> Self {
        self.usage[..2].copy_from_slice(&[input, output]);
        self
    }

    /// Tokens of the prompt that were read from a cache, and written to one. By default 0.
    pub(crate) fn cache(mut self, read: u64, written: u64) -> Self {
        self.usage[2..].copy_from_slice(&[read, written]);
        self
    }

    /// How many of the tokens that were written to a cache are kept for an hour. By default 0.
    pub(crate) fn hour_cache(mut self, tokens: u64) -> Self {
        self.hour_cache = tokens;
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The API's error body, such as `rate_limit_error`.
    pub(crate) fn error(mut self, kind: &str, message: &str) -> Self {
        self.error = Some((kind.to_owned(), message.to_owned()));
        self
    }

    /// Sends this many events and closes the connection.
    pub(crate) fn cut_after_events(mut self, events: usize) -> Self {
        self.ending = Ending::CutAfterEvents(events);
        self
    }

    /// Sends this many bytes of the body and closes the connection.
    pub(crate) fn cut_after_bytes(mut self, bytes: usize) -> Self {
        self.ending = Ending::CutAfterBytes(bytes);
        self
    }

    /// Sends this many events, then an `error` event, then ends the response normally.
    pub(crate) fn fail_after_events(mut self, events: usize, kind: &str, message: &str) -> Self {
        self.ending = Ending::FailAfterEvents(events, kind.to_owned(), message.to_owned());
        self
    }

    /// Waits before it sends anything.
    pub(crate) fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sends nothing, or only what comes before the cut, and then keeps the connection open until the client closes
    /// it.
    pub(crate) fn hang(mut self) -> Self {
        self.hang = true;
        self
    }

    /// Sends the body in pieces of this many bytes, one write each.
    pub(crate) fn chunk(mut self, bytes: usize) -> Self {
        self.chunk = Some(bytes.max(1));
        self
    }

    /// Sends each event in another form.
    pub(crate) fn transform_events(mut self, form: EventTransform) -> Self {
        self.transform = Some(form);
        self.nonstandard()
    }

    /// After what comes before the cut, sends pings until the client closes the connection.
    pub(crate) fn pings(mut self, every: Duration) -> Self {
        self.pings = Some(every);
        self
    }

    /// Answers with one JSON body, even to a request for a stream.
    pub(crate) fn non_streaming(mut self) -> Self {
        self.streamed = false;
        self
    }

    /// The real API would never send this: the official clients' types need not accept it.
    pub(crate) fn nonstandard(mut self) -> Self {
        self.is_nonstandard = true;
        self
    }

    /// The client need not send these blocks back unchanged.
    pub(crate) fn allow_changed_echo(mut self) -> Self {
        self.may_change = true;
        self
    }

    /// Gives every call without an id one that no other request has.
    pub(crate) fn number_calls(mut self, request: usize) -> Self {
        for (place, block) in self.blocks.iter_mut().enumerate() {
            if let Block::Call { id: id @ None, .. } = block {
                *id = Some(format!("toolu_{request}_{place}"));
            }
        }
        self
    }

    /// Whether a client that received all of it has a reply.
    pub(super) fn is_complete(&self) -> bool {
        self.status == 200
            && self.raw.is_none()
            && !self.hang
            && self.pings.is_none()
            && matches!(self.ending, Ending::Whole)
    }

    pub(super) fn stop_reason(&self) -> &str {
        let calls = self.blocks.iter().any(|block| matches!(block, Block::Call { .. }));
        self.stop.as_deref().unwrap_or(if calls { "tool_use" } else { "end_turn" })
    }

    /// The blocks as a reader of the whole stream sees them.
    pub(super) fn expected_content(&self) -> Vec<Value> {
        self.blocks.iter().map(Block::whole).collect()
    }
}
