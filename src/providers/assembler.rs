//! Assembly of streamed replies: the trait that each API implements, and the code that the implementations share.

use super::transport::sse::{MAX_EVENT_BYTES, TooLong};
use crate::message::{Reply, Usage};

/// Why a stream yields no reply.
#[derive(Debug)]
pub(crate) enum StreamError {
    /// The API reported an error: its JSON.
    Api(String),
    /// The stream isn't what the API sends.
    Malformed(String),
}

impl StreamError {
    /// The error for a whole body that isn't a reply. `what` is the API's word for a reply.
    pub(crate) fn not_a_reply(what: &str, error: &serde_json::Error) -> Self {
        let why = error.to_string();
        Self::Malformed(match error.is_data() {
            false => "it isn't JSON".to_owned(),
            true if why.contains("expected struct") => format!("it is JSON, but not a {what}"),
            true => format!("it is JSON, but not a {what}: {why}"),
        })
    }

    /// The error for a part of a stream that can't be parsed.
    pub(crate) fn unreadable(part: &str, error: &serde_json::Error) -> Self {
        Self::Malformed(format!("{part} can't be read: {error}"))
    }
}

impl From<TooLong> for StreamError {
    fn from(_: TooLong) -> Self {
        Self::Malformed(format!("an event is longer than {MAX_EVENT_BYTES} bytes"))
    }
}

/// A reply that is being received.
pub(crate) trait ReplyAssembler: Send {
    /// Takes one event. `on_text` is called with each new piece of text.
    ///
    /// # Errors
    /// The API reports an error, or an event of the API is malformed.
    fn push_event(&mut self, name: &str, data: &str, on_text: &dyn Fn(&str)) -> Result<(), StreamError>;

    /// Takes a whole response that isn't streamed.
    ///
    /// # Errors
    /// It isn't a reply.
    fn push_body(&mut self, body: &[u8], on_text: &dyn Fn(&str)) -> Result<(), StreamError>;

    /// Whether the reply is complete and nothing follows.
    fn is_finished(&self) -> bool;

    /// Whether the reply is complete, though its usage may still follow.
    fn is_complete(&self) -> bool {
        self.is_finished()
    }

    /// The tokens used so far, as counted by the server or estimated.
    fn usage(&self) -> Usage;

    /// Returns the finished reply. `request_id` is from the response's headers, if they have one.
    ///
    /// # Errors
    /// A block can't be assembled, or the reply is incomplete because the stop reason is missing.
    fn finish(self, request_id: Option<String>) -> Result<Reply, StreamError>;
}

/// Estimates the tokens of a request that the server doesn't count. It assumes three bytes a token in the prompt, like
/// the agent loop's own estimate, and four in the reply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsageEstimate {
    prompt_bytes: usize,
    output_bytes: usize,
}

impl UsageEstimate {
    /// An estimate for a prompt of this size, without output yet.
    pub(crate) fn new(prompt_bytes: usize) -> Self {
        Self { prompt_bytes, output_bytes: 0 }
    }

    /// Adds bytes of the reply.
    pub(crate) fn add_output(&mut self, bytes: usize) {
        self.output_bytes += bytes;
    }

    /// The server's counts, or the estimate; zero until there is a sign that the prompt was processed. The output of an
    /// unfinished reply, or of one with a count of zero, is at least the estimate.
    pub(crate) fn usage(self, counted: Option<Usage>, has_ended: bool) -> Usage {
        let estimated = (self.output_bytes / 4) as u64;
        match counted {
            // Some servers count only at the start of a reply.
            Some(counted) if has_ended && counted.output_tokens > 0 => counted,
            Some(counted) => Usage { output_tokens: counted.output_tokens.max(estimated), ..counted },
            None if has_ended || self.output_bytes > 0 => Usage {
                input_tokens: (self.prompt_bytes / 3) as u64,
                output_tokens: estimated.max(1),
                ..Usage::default()
            },
            None => Usage::default(),
        }
    }
}
