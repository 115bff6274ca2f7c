//! Decodes the chunks of a stream, or one JSON object.
//!
//! Chunks are those of
//! <https://developers.openai.com/api/reference/resources/chat/subresources/completions/streaming-events>: deltas of
//! the one message, then a chunk with `finish_reason`, then one with `usage` and no choices, then `[DONE]`. Deviations
//! of servers are accepted: no `[DONE]` after a `finish_reason`; no `finish_reason`, if `[DONE]` arrived and something
//! else shows that nothing is missing; usage in every chunk, in the choice or nowhere (then it is estimated); an error
//! instead of a chunk.

use std::sync::Arc;

use serde_json::{Value, json};

use super::reasoning::PendingReasoning;
use super::tool_calls::PendingCalls;
use crate::message::{Block, BlockContent, StopReason};
use crate::providers::assembler::{
    EventDecoder, PartialReply, StreamError, not_a_reply, parse_body, parse_event, read_field, usage_of_whole_prompt,
};
use crate::providers::json::{
    FieldLookup, FieldRefs, Fields, field, non_empty_field, str_field, string_field, to_raw, token_count,
};

/// The chunks of a reply.
#[derive(Debug, Default)]
pub(super) struct OpenaiChatDecoder {
    reasoning: PendingReasoning,
    text: String,
    refusal: String,
    calls: PendingCalls,
    /// Whether it is certainly complete, even without a `finish_reason`: it wasn't streamed, or the usage after the
    /// last choice has arrived.
    is_certainly_complete: bool,
}

impl OpenaiChatDecoder {
    /// With the names of the tools that it may call.
    pub(super) fn new(tools: Arc<[String]>) -> Self {
        Self { calls: PendingCalls::with_tools(tools), ..Self::default() }
    }

    fn push_chunk(&mut self, reply: &mut PartialReply, chunk: &impl FieldLookup) -> Result<(), StreamError> {
        reply.identify(chunk, "id", "model");
        let choices: Vec<FieldRefs<'_>> = read_field(chunk, "choices")?;
        self.is_certainly_complete |= count(reply, chunk) && choices.is_empty();
        for choice in choices {
            if choice.raw_field("index").is_some_and(|index| !matches!(index.get(), "0" | "null" | "\"0\"")) {
                continue;
            }
            count(reply, &choice);
            // In a response that isn't streamed, it is `message`.
            let delta = match read_field(&choice, "delta")? {
                Some(delta) => delta,
                None => read_field(&choice, "message")?,
            };
            self.push_delta(reply, &delta)?;
            if let Some(reason) = non_empty_field(&choice, "finish_reason") {
                let stop = parse_stop_reason(&reason)?;
                // Without the reason of a content filter, the reply wouldn't say why it was refused.
                reply.refusal = (stop == StopReason::Refusal).then_some(reason);
                reply.stop = Some(stop);
                reply.is_complete = true;
            }
        }
        Ok(())
    }

    fn push_delta(&mut self, reply: &mut PartialReply, delta: &FieldRefs<'_>) -> Result<(), StreamError> {
        reply.add_output(self.reasoning.push_delta(delta));
        self.push_content(reply, delta);
        if let Some(piece) = str_field(delta, "refusal") {
            reply.add_output(piece.len());
            self.refusal.push_str(&piece);
        }
        let calls: Vec<Option<Fields>> = read_field(delta, "tool_calls")?;
        let mut calls: Vec<Fields> = calls.into_iter().flatten().collect();
        // The older form, with at most one call; some servers send both.
        let function = delta.raw_field("function_call").filter(|function| function.get() != "null");
        if let Some(function) = function.filter(|_| calls.is_empty()) {
            calls.push(Fields::from_iter([
                ("index".to_owned(), to_raw(&0)),
                ("function".to_owned(), function.to_owned()),
            ]));
        }
        reply.add_output(self.calls.push_deltas(calls).map_err(StreamError::Malformed)?);
        Ok(())
    }

    /// Takes the content: a string, or a list of parts with text or thoughts (Mistral's
    /// `{"type": "thinking", "thinking": [{"text": ...}]}`).
    fn push_content(&mut self, reply: &mut PartialReply, delta: &FieldRefs<'_>) {
        if let Some(piece) = str_field(delta, "content") {
            reply.add_output(piece.len());
            return self.text.push_str(&piece);
        }
        let parts: Vec<Fields> = field(delta, "content").unwrap_or_default();
        for piece in parts.iter().filter_map(|part| str_field(part, "text")) {
            reply.add_output(piece.len());
            self.text.push_str(&piece);
        }
        let thoughts = parts.iter().filter_map(|part| field::<Vec<Fields>>(part, "thinking")).flatten();
        for piece in thoughts.filter_map(|part| string_field(&part, "text")) {
            reply.add_output(piece.len());
            self.reasoning.push_inline(&piece);
        }
    }
}

impl EventDecoder for OpenaiChatDecoder {
    fn decode_event(&mut self, reply: &mut PartialReply, _: &str, data: &str) -> Result<(), StreamError> {
        // Whether something is missing is checked in `finish`.
        reply.is_finished = data.starts_with("[DONE]");
        match parse_event(data, true)? {
            Some(chunk) => self.push_chunk(reply, &chunk),
            None => Ok(()),
        }
    }

    fn decode_body(&mut self, reply: &mut PartialReply, json: &str) -> Result<(), StreamError> {
        let completion = parse_body(json, "completion")?;
        if field::<Vec<Fields>>(&completion, "choices").is_none_or(|choices| choices.is_empty()) {
            return Err(not_a_reply("completion"));
        }
        (reply.is_finished, self.is_certainly_complete) = (true, true);
        self.push_chunk(reply, &completion)
    }

    fn finish(self, reply: &mut PartialReply) -> Result<Vec<Block>, StreamError> {
        if reply.stop.is_none() && reply.is_finished && (self.is_certainly_complete || self.calls.are_complete()) {
            reply.stop = Some(StopReason::EndTurn);
        }
        if !self.refusal.is_empty() {
            (reply.stop, reply.refusal) = (Some(StopReason::Refusal), None);
        }
        let calls = self.calls.finish();
        let texts = [self.text, self.refusal].into_iter().filter(|text| !text.is_empty());
        let texts = texts.map(|text| Block::from(BlockContent::Text(text)));
        Ok(self.reasoning.finish(!calls.is_empty()).into_iter().chain(texts).chain(calls).collect())
    }
}

/// Keeps the latest counts, under the names of all servers, except zero. Returns whether anything was counted. Some
/// servers count reasoning only in the total. Some (Portkey, for Claude) don't count cached tokens in the prompt.
fn count(reply: &mut PartialReply, fields: &impl FieldLookup) -> bool {
    let Some(counts) = field::<Value>(fields, "usage").filter(|counts| !counts.is_null()) else { return false };
    // For cached tokens, the other names are those of DeepSeek, Moonshot, and Anthropic behind a gateway.
    const READ: [&str; 4] = [
        "/prompt_tokens_details/cached_tokens",
        "/prompt_cache_hit_tokens",
        "/cached_tokens",
        "/cache_read_input_tokens",
    ];
    const WRITTEN: [&str; 2] = ["/prompt_tokens_details/cache_write_tokens", "/cache_creation_input_tokens"];
    let first = |names: &[&str]| names.iter().map(|name| token_count(&counts, name)).find(|tokens| *tokens > 0);
    let [mut prompt, output, total] =
        ["/prompt_tokens", "/completion_tokens", "/total_tokens"].map(|name| token_count(&counts, name));
    let (read, written) = (first(&READ).unwrap_or_default(), first(&WRITTEN).unwrap_or_default());
    if prompt == 0 {
        return false;
    }
    let cached = read.saturating_add(written);
    if total == prompt.saturating_add(cached).saturating_add(output) {
        prompt = prompt.saturating_add(cached);
    }
    reply.counted = usage_of_whole_prompt(prompt, read, written, output.max(total.saturating_sub(prompt)));
    true
}

/// Converts a finish reason of OpenAI's or another server's, in upper or lower case.
fn parse_stop_reason(reason: &str) -> Result<StopReason, StreamError> {
    Ok(match reason.to_ascii_lowercase().as_str() {
        "stop" => StopReason::EndTurn,
        "tool_calls" | "function_call" => StopReason::ToolUse,
        "length" | "max_tokens" | "max_output_tokens" => StopReason::MaxTokens,
        // `SAFETY` is from Gemini, `sensitive` from Zhipu.
        "content_filter" | "refusal" | "safety" | "sensitive" => StopReason::Refusal,
        // From Mistral and Zhipu.
        "model_length" | "model_context_window_exceeded" => StopReason::ContextFull,
        // In this order from Mistral and OpenRouter, DeepSeek, vLLM
        // (<https://github.com/vllm-project/vllm/issues/57082>), Zhipu.
        "error" | "insufficient_system_resource" | "abort" | "network_error" => {
            let message = format!("the reply ended with finish_reason {reason:?}");
            return Err(StreamError::Api(json!({ "error": { "message": message } }).to_string()));
        }
        _ => StopReason::Other(reason.to_owned()),
    })
}
