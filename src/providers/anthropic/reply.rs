//! Assembles a reply from the events of a stream, or from one JSON object.
//!
//! The events are those of <https://platform.claude.com/docs/en/build-with-claude/streaming>: `message_start`, then for
//! each block `content_block_start`, deltas and `content_block_stop`, then `message_delta` and `message_stop`; `ping`,
//! `error` and unknown ones anywhere between.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::block::BlockAssembler;
use crate::message::{Block, BlockContent, Reply, StopReason, Usage};
use crate::providers::assembler::{ReplyAssembler, StreamError, UsageEstimate};
use crate::providers::json::{Fields, LossyString, non_empty};

/// A reply that is being received.
#[derive(Debug)]
pub(super) struct AnthropicAssembler {
    estimate: UsageEstimate,
    id: Option<String>,
    model: Option<String>,
    /// The blocks, in the order in which they started.
    blocks: Vec<IndexedBlock>,
    usage: UsageCounts,
    /// Whether the reply's tokens were counted at its end.
    is_counted: bool,
    stop: Option<StopReason>,
    /// Whether the stop reason came after the blocks, so that only `message_stop` is missing.
    is_stop_after_blocks: bool,
    /// The reason of a refusal.
    refusal: Option<String>,
    ended: bool,
}

/// A block and the index of its events. Some servers reuse the index of a finished block.
#[derive(Debug)]
struct IndexedBlock {
    index: u64,
    has_ended: bool,
    block: BlockAssembler,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", default, borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(default)]
    index: Option<u64>,
    #[serde(default, borrow)]
    message: Option<&'a RawValue>,
    #[serde(default, borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(default, borrow)]
    delta: Option<&'a RawValue>,
    #[serde(default, borrow)]
    usage: Option<&'a RawValue>,
}

/// A message, whole or at its start.
#[derive(Deserialize)]
struct MessageStart {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    content: Option<Vec<Fields>>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    stop_details: Option<RefusalDetails>,
    #[serde(default)]
    usage: Option<UsageCounts>,
}

#[derive(Deserialize)]
struct MessageTail {
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    stop_details: Option<RefusalDetails>,
}

/// The details of a refusal.
#[derive(Deserialize)]
struct RefusalDetails {
    #[serde(default)]
    category: Option<LossyString>,
    #[serde(default)]
    explanation: Option<LossyString>,
}

impl RefusalDetails {
    fn reason(self) -> Option<String> {
        let parts: Vec<String> = [self.category, self.explanation].into_iter().filter_map(non_empty).collect();
        (!parts.is_empty()).then(|| parts.join(": "))
    }
}

/// Token counts. All are running totals, so the latest value of each is used. Null is ignored, and so is a prompt of
/// zero tokens, which some servers send at the start and others at the end.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
struct UsageCounts {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
}

impl UsageCounts {
    fn update(&mut self, later: Self) {
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        if later.usage().prompt() > 0 {
            self.input_tokens = later.input_tokens.or(self.input_tokens);
            self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
            self.cache_creation_input_tokens = later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        }
    }

    fn usage(self) -> Usage {
        Usage {
            input_tokens: self.input_tokens.unwrap_or_default(),
            output_tokens: self.output_tokens.unwrap_or_default(),
            cache_read_tokens: self.cache_read_input_tokens.unwrap_or_default(),
            cache_write_tokens: self.cache_creation_input_tokens.unwrap_or_default(),
        }
    }
}

impl AnthropicAssembler {
    /// A reply to a prompt of this size.
    pub(super) fn new(prompt_bytes: usize) -> Self {
        Self {
            estimate: UsageEstimate::new(prompt_bytes),
            id: None,
            model: None,
            blocks: Vec::new(),
            usage: UsageCounts::default(),
            is_counted: false,
            stop: None,
            is_stop_after_blocks: false,
            refusal: None,
            ended: false,
        }
    }

    fn start_message(&mut self, head: MessageStart, on_text: &dyn Fn(&str)) {
        self.id = head.id;
        self.model = head.model;
        self.stop = head.stop_reason.and_then(parse_stop_reason);
        self.refusal = head.stop_details.and_then(RefusalDetails::reason);
        self.usage.update(head.usage.unwrap_or_default());
        for (index, fields) in (0..).zip(head.content.unwrap_or_default()) {
            self.start_block(index, fields, on_text);
        }
    }

    fn start_block(&mut self, index: u64, fields: Fields, on_text: &dyn Fn(&str)) {
        let block = BlockAssembler::new(fields);
        let (size, said) = block.initial_text();
        self.estimate.add_output(size);
        if let Some(said) = said.filter(|said| !said.is_empty()) {
            on_text(&said);
        }
        self.blocks.push(IndexedBlock { index, has_ended: false, block });
    }

    /// The newest block with this index.
    fn block(&mut self, index: Option<u64>) -> Option<&mut IndexedBlock> {
        let index = index.unwrap_or_default();
        self.blocks.iter_mut().rev().find(|block| block.index == index)
    }
}

impl ReplyAssembler for AnthropicAssembler {
    fn push_event(&mut self, name: &str, data: &str, on_text: &dyn Fn(&str)) -> Result<(), StreamError> {
        let wrong = |error: serde_json::Error| StreamError::Malformed(format!("a {name} event can't be read: {error}"));
        if name == "error" {
            return Err(StreamError::Api(data.to_owned()));
        }
        let event: Event<'_> = match serde_json::from_str(data) {
            Ok(event) => event,
            // For example, the `[DONE]` of some gateways.
            Err(_) if !name.starts_with("message_") && !name.starts_with("content_block_") => return Ok(()),
            Err(error) => return Err(wrong(error)),
        };
        match &*event.kind {
            "message_start" => {
                let head = event.message.map_or("{}", RawValue::get);
                self.start_message(serde_json::from_str(head).map_err(wrong)?, on_text);
            }
            "content_block_start" => {
                let fields = event.content_block.map_or("{}", RawValue::get);
                let fields = serde_json::from_str(fields).map_err(wrong)?;
                if self.block(event.index).is_some_and(|block| !block.has_ended) {
                    return Err(StreamError::Malformed("a block starts twice".to_owned()));
                }
                self.start_block(event.index.unwrap_or_default(), fields, on_text);
            }
            "content_block_delta" => {
                self.estimate.add_output(event.delta.map_or(0, delta_len));
                let Some(IndexedBlock { block, .. }) = self.block(event.index) else {
                    return Err(StreamError::Malformed("there is a delta for a block that never started".to_owned()));
                };
                if let Some(delta) = event.delta
                    && let Some(piece) = block.push_delta(delta).map_err(wrong)?
                {
                    on_text(&piece);
                }
            }
            "content_block_stop" => self.block(event.index).into_iter().for_each(|block| block.has_ended = true),
            "message_delta" => {
                if let Some(delta) = event.delta {
                    let tail: MessageTail = serde_json::from_str(delta.get()).map_err(wrong)?;
                    let stop = tail.stop_reason.and_then(parse_stop_reason);
                    self.is_stop_after_blocks |= stop.is_some();
                    self.stop = stop.or(self.stop.take());
                    self.refusal = tail.stop_details.and_then(RefusalDetails::reason).or(self.refusal.take());
                }
                let usage = event.usage.map(|usage| serde_json::from_str::<Option<UsageCounts>>(usage.get()));
                if let Some(usage) = usage.transpose().map_err(wrong)?.flatten() {
                    self.is_counted |= usage.output_tokens.is_some();
                    self.usage.update(usage);
                }
            }
            "message_stop" => self.ended = true,
            "error" => return Err(StreamError::Api(data.to_owned())),
            _ => {}
        }
        Ok(())
    }

    fn push_body(&mut self, body: &[u8], on_text: &dyn Fn(&str)) -> Result<(), StreamError> {
        let event: Event<'_> =
            serde_json::from_slice(body).map_err(|error| StreamError::not_a_reply("message", &error))?;
        if event.kind == "error" {
            return Err(StreamError::Api(String::from_utf8_lossy(body).into_owned()));
        }
        let head: MessageStart =
            serde_json::from_slice(body).map_err(|error| StreamError::not_a_reply("message", &error))?;
        if head.content.is_none() {
            return Err(StreamError::Malformed("it is JSON, but not a message".to_owned()));
        }
        self.is_counted = head.usage.is_some_and(|usage| usage.output_tokens.is_some());
        self.start_message(head, on_text);
        self.ended = true;
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.ended
    }

    /// `message_stop` isn't required: some servers omit it, a connection may break before it, and it contains no part
    /// of the reply.
    fn is_complete(&self) -> bool {
        self.ended || self.is_stop_after_blocks && self.blocks.iter().all(|block| block.has_ended)
    }

    /// The API counts a reply's tokens at its end. For a reply that was cut off or isn't counted, they are estimated.
    fn usage(&self) -> Usage {
        let counted = self.usage.usage();
        let (is_counted, knows_prompt) = (self.is_counted && counted.output_tokens > 0, counted.prompt() > 0);
        let has_ended = if knows_prompt { is_counted } else { self.stop.is_some() };
        let usage = self.estimate.usage(knows_prompt.then_some(counted), has_ended);
        let output_tokens = usage.output_tokens.max(counted.output_tokens);
        Usage { output_tokens: if is_counted { counted.output_tokens } else { output_tokens }, ..usage }
    }

    fn finish(self, request_id: Option<String>) -> Result<Reply, StreamError> {
        let usage = self.usage();
        let Some(stop) = self.stop else {
            return Err(StreamError::Malformed("the reply has no stop reason, so its end is missing".to_owned()));
        };
        let blocks: Result<Vec<Block>, _> = self.blocks.into_iter().map(|numbered| numbered.block.finish()).collect();
        let mut blocks = blocks.map_err(|error| StreamError::unreadable("a block", &error))?;
        if stop == StopReason::Refusal {
            blocks.extend(self.refusal.map(|why| Block::from(BlockContent::Other(why))));
        }
        if stop == StopReason::ToolUse && !blocks.iter().any(|block| matches!(block.content, BlockContent::Call(_))) {
            return Err(StreamError::Malformed("the reply stops for tool calls, but has none".to_owned()));
        }
        Ok(Reply { blocks, stop, usage, model: self.model, request_id: request_id.or(self.id) })
    }
}

/// The size of a delta's text in bytes, without its syntax.
fn delta_len(delta: &RawValue) -> usize {
    const SYNTAX: usize = r#"{"type":"text_delta","text":""}"#.len();
    delta.get().len().saturating_sub(SYNTAX)
}

/// Converts a stop reason (<https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons>).
fn parse_stop_reason(reason: String) -> Option<StopReason> {
    Some(match reason.as_str() {
        "" => return None,
        "end_turn" | "stop_sequence" => StopReason::EndTurn,
        "tool_use" => StopReason::ToolUse,
        "max_tokens" => StopReason::MaxTokens,
        "refusal" => StopReason::Refusal,
        "pause_turn" => StopReason::Pause,
        "model_context_window_exceeded" => StopReason::ContextFull,
        _ => StopReason::Other(reason),
    })
}
