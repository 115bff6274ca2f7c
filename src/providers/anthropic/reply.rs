//! Decodes the events of a stream, or one JSON object.
//!
//! The events are those of <https://platform.claude.com/docs/en/build-with-claude/streaming>: `message_start`, then for
//! each block `content_block_start`, deltas and `content_block_stop`, then `message_delta` and `message_stop`; `ping`,
//! `error` and unknown ones anywhere between.

use serde_json::Value;

use super::block::{PendingBlock, PlainDelta, content_bytes};
use crate::message::{Block, StopReason, Usage};
use crate::providers::assembler::{
    EventDecoder, PartialReply, StreamError, not_a_reply, parse_body, parse_event, read_field,
};
use crate::providers::json::{FieldLookup, FieldRefs, Fields, field, non_empty_field, str_field, token_count};

/// The events of a reply.
#[derive(Debug, Default)]
pub(super) struct AnthropicDecoder {
    /// The blocks, in the order in which they started.
    blocks: Vec<PendingBlock>,
    /// The latest value of each count. All are running totals.
    counts: Value,
    /// Whether the stop reason came after the blocks, so that only `message_stop` is missing.
    is_stop_after_blocks: bool,
}

impl AnthropicDecoder {
    /// Takes a message, whole or at its start.
    fn start_message(&mut self, reply: &mut PartialReply, message: &Fields, is_whole: bool) -> Result<(), StreamError> {
        reply.identify(message, "id", "model");
        read_stop(reply, message);
        self.count(reply, message, is_whole);
        for (index, fields) in (0..).zip(read_field::<Vec<Fields>>(message, "content")?) {
            self.start_block(reply, index, fields);
        }
        Ok(())
    }

    fn start_block(&mut self, reply: &mut PartialReply, index: u64, fields: Fields) {
        reply.add_output(fields.iter().map(|(name, value)| content_bytes(name, value)).sum());
        self.blocks.push(PendingBlock::new(index, fields));
    }

    /// Takes the `usage` of a message or an event. Null is ignored, and so is a prompt of zero tokens, which some servers
    /// send at the start and others at the end. The API counts a reply's tokens at its end.
    fn count(&mut self, reply: &mut PartialReply, fields: &impl FieldLookup, is_end: bool) {
        let later: Value = field(fields, "usage").unwrap_or_default();
        let has_prompt = to_usage(&later).prompt() > 0;
        for (name, count) in later.as_object().into_iter().flatten() {
            let is_valid = if name == "output_tokens" { is_end } else { has_prompt };
            if is_valid && !count.is_null() {
                self.counts[name] = count.clone();
            }
        }
        reply.counted = to_usage(&self.counts);
    }

    /// Whether nothing of the reply is missing. `message_stop` isn't required: some servers omit it, a connection may break
    /// before it, and it contains no part of the reply.
    fn is_complete(&self) -> bool {
        self.is_stop_after_blocks && self.blocks.iter().all(|block| block.has_ended)
    }

    /// The newest block with this index. Some servers reuse the index of a finished block.
    fn block(&mut self, index: u64) -> Option<&mut PendingBlock> {
        self.blocks.iter_mut().rev().find(|block| block.index == index)
    }
}

impl EventDecoder for AnthropicDecoder {
    fn decode_event(&mut self, reply: &mut PartialReply, name: &str, data: &str) -> Result<(), StreamError> {
        // Most events are such deltas.
        if name == "content_block_delta"
            && let Some(delta) = PlainDelta::parse(data)
            && let Some(block) = self.block(delta.index)
        {
            block.push_plain(reply, &delta)?;
            reply.is_complete = self.is_complete();
            return Ok(());
        }
        let is_known = name.starts_with("message_") || name.starts_with("content_block_");
        let Some(event) = parse_event(data, is_known)? else { return Ok(()) };
        let index = || read_field::<u64>(&event, "index");
        match &*str_field(&event, "type").unwrap_or_default() {
            "message_start" => self.start_message(reply, &read_field::<Fields>(&event, "message")?, false)?,
            "content_block_start" => {
                let index = index()?;
                if self.block(index).is_some_and(|block| !block.has_ended) {
                    return Err(StreamError::malformed("a block starts twice"));
                }
                self.start_block(reply, index, read_field(&event, "content_block")?);
            }
            "content_block_delta" => {
                let Some(block) = self.block(index()?) else {
                    return Err(StreamError::malformed("there is a delta for a block that never started"));
                };
                block.push_delta(reply, &read_field::<FieldRefs<'_>>(&event, "delta")?)?;
            }
            "content_block_stop" => self.block(index()?).into_iter().for_each(|block| block.has_ended = true),
            "message_delta" => {
                self.is_stop_after_blocks |= read_stop(reply, &read_field::<Fields>(&event, "delta")?);
                self.count(reply, &event, true);
            }
            "message_stop" => reply.is_finished = true,
            _ => {}
        }
        reply.is_complete = self.is_complete();
        Ok(())
    }

    fn decode_body(&mut self, reply: &mut PartialReply, json: &str) -> Result<(), StreamError> {
        let message = parse_body(json, "message")?;
        if field::<Vec<Fields>>(&message, "content").is_none() {
            return Err(not_a_reply("message"));
        }
        reply.is_finished = true;
        self.start_message(reply, &message, true)
    }

    fn finish(self, _: &mut PartialReply) -> Result<Vec<Block>, StreamError> {
        Ok(self.blocks.into_iter().map(PendingBlock::finish).collect())
    }
}

/// Takes the stop reason and the details of a refusal. Returns whether there is a reason.
fn read_stop(reply: &mut PartialReply, fields: &Fields) -> bool {
    let details: Fields = field(fields, "stop_details").unwrap_or_default();
    let parts = ["category", "explanation"].into_iter().filter_map(|name| non_empty_field(&details, name));
    let refusal = parts.collect::<Vec<_>>().join(": ");
    if !refusal.is_empty() {
        reply.refusal = Some(refusal);
    }
    let stop = non_empty_field(fields, "stop_reason").map(parse_stop_reason);
    let has_stop = stop.is_some();
    reply.stop = stop.or(reply.stop.take());
    has_stop
}

fn to_usage(counts: &Value) -> Usage {
    let cache_write_tokens = token_count(counts, "/cache_creation_input_tokens");
    Usage {
        input_tokens: token_count(counts, "/input_tokens"),
        output_tokens: token_count(counts, "/output_tokens"),
        cache_read_tokens: token_count(counts, "/cache_read_input_tokens"),
        cache_write_tokens,
        cache_write_1h_tokens: token_count(counts, "/cache_creation/ephemeral_1h_input_tokens").min(cache_write_tokens),
    }
}

/// Converts a stop reason (<https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons>).
fn parse_stop_reason(reason: String) -> StopReason {
    match reason.as_str() {
        "end_turn" | "stop_sequence" => StopReason::EndTurn,
        "tool_use" => StopReason::ToolUse,
        "max_tokens" => StopReason::MaxTokens,
        "refusal" => StopReason::Refusal,
        "pause_turn" => StopReason::Pause,
        "model_context_window_exceeded" => StopReason::ContextFull,
        _ => StopReason::Other(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_deltas_are_read_like_all_others() {
        let plain = [
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"one \"two\" \ud83d\ude00 \ud800"}}"#,
            r#"{"delta":{"text":"three","type":"text_delta"},"index":0,"type":"content_block_delta"}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}"#,
        ];
        let other = [
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x","text":"y"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x","more":1}}"#,
            r#"{"type":"content_block_delta","index":0,"more":1,"delta":{"type":"text_delta","text":"x"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","thinking":"x"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":null}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"novel_delta","text":"x"}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"s"}}"#,
            r#"{"type":"content_block_stop","index":0,"delta":{"type":"text_delta","text":"x"}}"#,
            r#"{"type":"content_block_delta","index":"0","delta":{"type":"text_delta","text":"x"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}"#,
            r#"{"type":"error","error":{}}"#,
        ];
        let decode = |event: &str, name: &str| {
            let (mut decoder, mut reply) = (AnthropicDecoder::default(), PartialReply::default());
            for (index, kind) in ["text", "thinking", "tool_use"].into_iter().enumerate() {
                let start = format!(
                    r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"{kind}","text":"a"}}}}"#
                );
                decoder.decode_event(&mut reply, "content_block_start", &start).unwrap();
            }
            let outcome = decoder.decode_event(&mut reply, name, event).map_err(|error| format!("{error:?}"));
            (outcome, format!("{reply:?}"), serde_json::to_string(&decoder.finish(&mut reply).unwrap()).unwrap())
        };
        for event in plain.iter().chain(&other) {
            assert_eq!(PlainDelta::parse(event).is_some(), plain.contains(event), "{event}");
            // Without the name, an event isn't read in one pass, and one that isn't JSON is skipped.
            if event.ends_with("}}") || event.starts_with(r#"{"delta"#) {
                assert_eq!(decode(event, "content_block_delta"), decode(event, ""), "{event}");
            }
        }
        assert!(decode(other[9], "content_block_delta").0.is_err());
    }
}
