//! Assembly of streamed replies: one assembler for all APIs, and the trait by which each API decodes its events.

use super::inline_thinking;
use super::surrogates::join_halves;
use super::transport::sse::{MAX_EVENT_BYTES, TooLong};
use crate::message::{Block, BlockContent, Reply, StopReason, Usage};
use crate::models::token_estimate::{TokenEstimator, reply_tokens};
use crate::providers::json::{FieldLookup, FieldRefs, Fields, non_empty_field, str_field};

/// Why a stream yields no reply.
#[derive(Debug)]
pub(crate) enum StreamError {
    /// The API reported an error: its JSON.
    Api(String),
    /// The stream isn't what the API sends.
    Malformed(String),
}

impl StreamError {
    /// The stream isn't what the API sends.
    pub(crate) fn malformed(why: impl Into<String>) -> Self {
        Self::Malformed(why.into())
    }
}

impl From<TooLong> for StreamError {
    fn from(_: TooLong) -> Self {
        Self::malformed(format!("an event is longer than {MAX_EVENT_BYTES} bytes"))
    }
}

/// Decodes the events of one API, and assembles its blocks.
pub(crate) trait EventDecoder: Send {
    /// Takes one event.
    ///
    /// # Errors
    /// The API reports an error, or an event of the API is malformed.
    fn decode_event(&mut self, reply: &mut PartialReply, name: &str, data: &str) -> Result<(), StreamError>;

    /// Takes a whole response that isn't streamed.
    ///
    /// # Errors
    /// It isn't a reply.
    fn decode_body(&mut self, reply: &mut PartialReply, json: &str) -> Result<(), StreamError>;

    /// The finished blocks, after what only the end of the stream shows is set in `reply`.
    ///
    /// # Errors
    /// Some of the reply is lost, as only its end shows.
    fn finish(self, reply: &mut PartialReply) -> Result<Vec<Block>, StreamError>;
}

/// What is known of a reply that is being received, whatever the API.
#[derive(Debug, Default)]
pub(crate) struct PartialReply {
    /// The server's id of the reply.
    pub(crate) id: Option<String>,
    /// The model that the server names.
    pub(crate) model: Option<String>,
    /// Why the reply ends. A decoder needn't distinguish calls from the end of a turn.
    pub(crate) stop: Option<StopReason>,
    /// The reason for a refusal, if the content doesn't contain it.
    pub(crate) refusal: Option<String>,
    /// The server's counts so far, zero for those that are missing.
    pub(crate) counted: Usage,
    /// Whether the reply is complete, though its usage may still follow.
    pub(crate) is_complete: bool,
    /// Whether the reply is complete and nothing follows.
    pub(crate) is_finished: bool,
    prompt_bytes: usize,
    output_bytes: usize,
}

impl PartialReply {
    /// Counts received bytes of the reply, for the estimate of its tokens.
    pub(crate) fn add_output(&mut self, bytes: usize) {
        self.output_bytes += bytes;
    }

    /// Adopts the id and the model, if these fields name them.
    pub(crate) fn identify(&mut self, fields: &impl FieldLookup, id: &str, model: &str) {
        self.id = non_empty_field(fields, id).or(self.id.take());
        self.model = non_empty_field(fields, model).or(self.model.take());
    }

    /// The server's counts, or estimates for what it doesn't count; zero until there is a sign that the prompt was
    /// processed. Some servers count only at the start of a reply, so the count of an unfinished one is a minimum.
    fn usage(&self) -> Usage {
        let has_ended = self.is_complete || self.is_finished;
        let mut usage = self.counted;
        if has_ended || self.output_bytes > 0 {
            if !has_ended || usage.output_tokens == 0 {
                usage.output_tokens = usage.output_tokens.max(reply_tokens(self.output_bytes));
            }
            if usage.prompt() == 0 {
                usage.input_tokens = TokenEstimator::default().likely(self.prompt_bytes);
                usage.output_tokens = usage.output_tokens.max(1);
            }
        }
        usage
    }
}

/// A reply that is being received.
pub(crate) struct ReplyAssembler<D> {
    decoder: D,
    reply: PartialReply,
}

impl<D: EventDecoder> ReplyAssembler<D> {
    /// A reply to a prompt of this size, of which nothing has arrived yet.
    pub(crate) fn new(prompt_bytes: usize, decoder: D) -> Self {
        Self { decoder, reply: PartialReply { prompt_bytes, ..PartialReply::default() } }
    }

    /// Takes one event, unless the reply has ended.
    ///
    /// # Errors
    /// The API reports an error, or an event of the API is malformed.
    pub(crate) fn push_event(&mut self, name: &str, data: &str) -> Result<(), StreamError> {
        if self.reply.is_finished {
            return Ok(());
        }
        if name == "error" {
            return Err(StreamError::Api(data.to_owned()));
        }
        self.decoder.decode_event(&mut self.reply, name, data)
    }

    /// Takes a whole response that isn't streamed.
    ///
    /// # Errors
    /// It isn't a reply.
    pub(crate) fn push_body(&mut self, body: &[u8]) -> Result<(), StreamError> {
        self.decoder.decode_body(&mut self.reply, &String::from_utf8_lossy(body))
    }

    /// Whether the reply is complete and nothing follows.
    pub(crate) fn is_finished(&self) -> bool {
        self.reply.is_finished
    }

    /// Whether the reply is complete, though its usage may still follow.
    pub(crate) fn is_complete(&self) -> bool {
        self.reply.is_complete || self.reply.is_finished
    }

    /// The tokens used so far, as counted by the server or estimated.
    pub(crate) fn usage(&self) -> Usage {
        self.reply.usage()
    }

    /// Returns the finished reply. `request_id` is from the response's headers, if they have one.
    ///
    /// # Errors
    /// The reply is incomplete.
    pub(crate) fn finish(self, request_id: Option<String>) -> Result<Reply, StreamError> {
        let Self { decoder, mut reply } = self;
        let usage = reply.usage();
        let mut blocks = decoder.finish(&mut reply)?;
        join_halves(&mut blocks);
        let has_calls = blocks.iter().any(|block| matches!(block.content, BlockContent::Call(_)));
        let stop = match reply.stop {
            None => return Err(StreamError::malformed("the reply has no stop reason, so its end is missing")),
            Some(StopReason::ToolUse) if !has_calls => {
                return Err(StreamError::malformed("the reply stops for tool calls, but has none"));
            }
            Some(StopReason::EndTurn) if has_calls => StopReason::ToolUse,
            Some(stop) => stop,
        };
        inline_thinking::separate(&mut blocks, &stop);
        if stop == StopReason::Refusal {
            blocks.extend(reply.refusal.map(|reason| Block::from(BlockContent::Other(reason))));
        }
        Ok(Reply { blocks, stop, usage, model: reply.model, request_id: request_id.or(reply.id) })
    }
}

/// Parses a whole body, or an object in it. `what` is the API's word for a reply.
///
/// # Errors
/// It isn't a JSON object, or reports an error.
pub(crate) fn parse_body(json: &str, what: &str) -> Result<Fields, StreamError> {
    let fields: Fields = serde_json::from_str(json).map_err(|error| match error.is_data() {
        false => StreamError::malformed("it isn't JSON"),
        true => not_a_reply(what),
    })?;
    if is_error(&fields) { Err(StreamError::Api(json.to_owned())) } else { Ok(fields) }
}

/// The error for JSON that isn't a reply.
pub(crate) fn not_a_reply(what: &str) -> StreamError {
    StreamError::malformed(format!("it is JSON, but not a {what}"))
}

/// Parses an event, unless it isn't one, like the `[DONE]` of some gateways, or is of an unknown kind.
///
/// # Errors
/// It reports an error, or can't be parsed though its name is known.
pub(crate) fn parse_event(data: &str, is_known: bool) -> Result<Option<FieldRefs<'_>>, StreamError> {
    match serde_json::from_str::<FieldRefs<'_>>(data) {
        Ok(event) if is_error(&event) => Err(StreamError::Api(data.to_owned())),
        Ok(event) => Ok(Some(event)),
        Err(error) if is_known && data.trim_start().starts_with('{') => {
            Err(StreamError::malformed(format!("an event can't be read: {error}")))
        }
        Err(_) => Ok(None),
    }
}

/// The value of a field, empty if it is missing or null.
///
/// # Errors
/// It has another form.
pub(crate) fn read_field<'f, T: serde::Deserialize<'f> + Default>(
    fields: &'f impl FieldLookup,
    name: &str,
) -> Result<T, StreamError> {
    let value = fields.raw_field(name).map_or(Ok(None), |value| serde_json::from_str::<Option<T>>(value.get()));
    let value = value.map_err(|error| StreamError::malformed(format!("`{name}` can't be read: {error}")))?;
    Ok(value.unwrap_or_default())
}

/// Whether a response or an event reports an error.
fn is_error(fields: &impl FieldLookup) -> bool {
    let says = |name| str_field(fields, name).is_some_and(|word| word == "error");
    let has_error = |error: &str| !matches!(error, "null" | "false" | "\"\"" | "{}");
    says("type") || says("object") || fields.raw_field("error").is_some_and(|error| has_error(error.get()))
}

/// The usage, given the tokens of the whole prompt and those of it that were read from and written to a cache.
pub(crate) fn usage_of_whole_prompt(prompt: u64, read: u64, written: u64, output_tokens: u64) -> Usage {
    let read = read.min(prompt);
    let written = written.min(prompt - read);
    Usage {
        input_tokens: prompt - read - written,
        output_tokens,
        cache_read_tokens: read,
        cache_write_tokens: written,
        ..Usage::default()
    }
}
