//! Assembles a reply from the chunks of a stream, or from one JSON object.
//!
//! Chunks are those of
//! <https://developers.openai.com/api/reference/resources/chat/subresources/completions/streaming-events>: deltas of
//! the one message, then a chunk with `finish_reason`, then one with `usage` and no choices, then `[DONE]`. Deviations
//! of servers are accepted: no `[DONE]` after a `finish_reason`; no `finish_reason`, if `[DONE]` arrived and something
//! else shows that nothing is missing; usage in every chunk, in the choice or nowhere (then it is estimated); an error
//! instead of a chunk.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::reasoning::ReasoningAssembler;
use super::tool_calls::ToolCallAssembler;
use crate::message::{Block, BlockContent, Reply, StopReason, Usage};
use crate::providers::assembler::{ReplyAssembler, StreamError, UsageEstimate};
use crate::providers::json::{Fields, LossyString, deserialize_count, string_field, string_value};

/// A reply that is being received.
#[derive(Debug)]
pub(super) struct OpenaiChatAssembler {
    estimate: UsageEstimate,
    id: Option<String>,
    model: Option<String>,
    reasoning: ReasoningAssembler,
    text: String,
    refusal: String,
    calls: ToolCallAssembler,
    usage: UsageCounts,
    stop: Option<StopReason>,
    /// The reason of a refusal by a content filter.
    filter_reason: Option<String>,
    is_done: bool,
    /// Whether it is certainly complete, even without a `finish_reason`: it wasn't streamed, or the usage after the
    /// last choice has arrived.
    is_certainly_complete: bool,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    model: Option<&'a RawValue>,
    #[serde(default, borrow)]
    object: Option<&'a RawValue>,
    #[serde(default, borrow)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default, borrow)]
    usage: Option<&'a RawValue>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default, borrow)]
    index: Option<&'a RawValue>,
    /// Within a stream.
    #[serde(default)]
    delta: Option<Fields>,
    /// In a response that isn't streamed.
    #[serde(default)]
    message: Option<Fields>,
    #[serde(default)]
    finish_reason: Option<LossyString>,
    #[serde(default, borrow)]
    usage: Option<&'a RawValue>,
}

/// Token counts under the names of all servers. `prompt_tokens` is the whole prompt.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct UsageCounts {
    #[serde(deserialize_with = "deserialize_count")]
    prompt_tokens: Option<u64>,
    #[serde(deserialize_with = "deserialize_count")]
    completion_tokens: Option<u64>,
    #[serde(deserialize_with = "deserialize_count")]
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptTokenDetails>,
    /// DeepSeek's name.
    #[serde(deserialize_with = "deserialize_count")]
    prompt_cache_hit_tokens: Option<u64>,
    /// Moonshot's name.
    #[serde(deserialize_with = "deserialize_count")]
    cached_tokens: Option<u64>,
    /// Anthropic's names, as gateways pass them on.
    #[serde(deserialize_with = "deserialize_count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "deserialize_count")]
    cache_creation_input_tokens: Option<u64>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct PromptTokenDetails {
    #[serde(deserialize_with = "deserialize_count")]
    cached_tokens: Option<u64>,
    #[serde(deserialize_with = "deserialize_count")]
    cache_write_tokens: Option<u64>,
}

impl UsageCounts {
    /// The usage, or `None` if nothing was counted. Some servers count reasoning only in the total. Some (Portkey, for
    /// Claude) don't count cached tokens in the prompt.
    fn usage(&self) -> Option<Usage> {
        let mut prompt = self.prompt_tokens.filter(|tokens| *tokens > 0)?;
        let details = self.prompt_tokens_details.unwrap_or_default();
        let read = details.cached_tokens.or(self.prompt_cache_hit_tokens).or(self.cached_tokens);
        let read = read.or(self.cache_read_input_tokens).unwrap_or_default();
        let written = details.cache_write_tokens.or(self.cache_creation_input_tokens).unwrap_or_default();
        let cached = read.saturating_add(written);
        let apart =
            [prompt, cached, self.completion_tokens.unwrap_or_default()].into_iter().fold(0, u64::saturating_add);
        if cached > 0 && self.total_tokens == Some(apart) {
            prompt = prompt.saturating_add(cached);
        }
        let read = read.min(prompt);
        let written = written.min(prompt - read);
        let beyond_prompt = self.total_tokens.unwrap_or_default().saturating_sub(prompt);
        Some(Usage {
            input_tokens: prompt - read - written,
            output_tokens: self.completion_tokens.unwrap_or_default().max(beyond_prompt),
            cache_read_tokens: read,
            cache_write_tokens: written,
        })
    }
}

impl OpenaiChatAssembler {
    /// A reply to a prompt of this size.
    pub(super) fn new(prompt_bytes: usize) -> Self {
        Self {
            estimate: UsageEstimate::new(prompt_bytes),
            id: None,
            model: None,
            reasoning: ReasoningAssembler::default(),
            text: String::new(),
            refusal: String::new(),
            calls: ToolCallAssembler::default(),
            usage: UsageCounts::default(),
            stop: None,
            filter_reason: None,
            is_done: false,
            is_certainly_complete: false,
        }
    }

    /// Sets the names of the tools that it may call.
    pub(super) fn with_tools(self, tools: Arc<[String]>) -> Self {
        Self { calls: ToolCallAssembler::with_tools(tools), ..self }
    }

    fn push_chunk(&mut self, chunk: Chunk<'_>, on_text: &dyn Fn(&str)) -> Result<(), StreamError> {
        let word = |value: Option<&RawValue>| value.and_then(string_value).filter(|text| !text.is_empty());
        self.id = self.id.take().or_else(|| word(chunk.id));
        self.model = self.model.take().or_else(|| word(chunk.model));
        let has_choices = chunk.choices.as_ref().is_some_and(|choices| !choices.is_empty());
        self.is_certainly_complete |= self.record_usage(chunk.usage) && !has_choices;
        for choice in chunk.choices.into_iter().flatten() {
            if choice.index.is_some_and(|index| !matches!(index.get(), "0" | "null" | "\"0\"")) {
                continue;
            }
            self.record_usage(choice.usage);
            if let Some(delta) = choice.delta.or(choice.message) {
                self.push_message_delta(delta, on_text)?;
            }
            match choice.finish_reason {
                Some(LossyString(reason)) if !reason.is_empty() => {
                    let stop = parse_stop_reason(reason.clone())?;
                    self.filter_reason = (stop == StopReason::Refusal).then_some(reason);
                    self.stop = Some(stop);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Keeps the latest counts, except zero. Returns whether anything was counted.
    fn record_usage(&mut self, usage: Option<&RawValue>) -> bool {
        let counts = usage.and_then(|usage| serde_json::from_str::<Option<UsageCounts>>(usage.get()).ok().flatten());
        let counts = counts.filter(|counts| counts.prompt_tokens.is_some_and(|tokens| tokens > 0));
        self.usage = counts.unwrap_or(self.usage);
        counts.is_some()
    }

    fn push_message_delta(&mut self, mut delta: Fields, on_text: &dyn Fn(&str)) -> Result<(), StreamError> {
        let mut size = self.reasoning.push_delta(&delta);
        if let Some(content) = delta.get("content") {
            size += self.push_content(content, on_text);
        }
        if let Some(piece) = string_field(&delta, "refusal") {
            on_text(&piece);
            size += piece.len();
            self.refusal.push_str(&piece);
        }
        let calls = delta.get("tool_calls").map_or(Ok(None), |calls| serde_json::from_str(calls.get()));
        let calls: Option<Vec<Option<Fields>>> =
            calls.map_err(|error| StreamError::unreadable("`tool_calls`", &error))?;
        let mut calls: Vec<Fields> = calls.into_iter().flatten().flatten().collect();
        // The older form, with at most one call; some servers send both.
        let function = delta.shift_remove("function_call").filter(|function| function.get() != "null");
        if let Some(function) = function.filter(|_| calls.is_empty()) {
            let index = RawValue::from_string("0".to_owned()).map(|index| ("index".to_owned(), index));
            calls.push(Fields::from_iter(index.into_iter().chain([("function".to_owned(), function)])));
        }
        size += self.calls.push_deltas(calls).map_err(StreamError::Malformed)?;
        self.estimate.add_output(size);
        Ok(())
    }

    /// Takes content: a string, or a list of parts with text or thoughts (Mistral's
    /// `{"type": "thinking", "thinking": [{"text": ...}]}`).
    fn push_content(&mut self, content: &RawValue, on_text: &dyn Fn(&str)) -> usize {
        if let Some(piece) = string_value(content) {
            if !piece.is_empty() {
                on_text(&piece);
            }
            self.text.push_str(&piece);
            return piece.len();
        }
        let mut size = 0;
        for part in serde_json::from_str::<Vec<Fields>>(content.get()).unwrap_or_default() {
            if let Some(piece) = string_field(&part, "text") {
                on_text(&piece);
                size += piece.len();
                self.text.push_str(&piece);
            }
            let thoughts = part.get("thinking").and_then(|list| serde_json::from_str::<Vec<Fields>>(list.get()).ok());
            for piece in thoughts.iter().flatten().filter_map(|part| string_value(part.get("text")?)) {
                size += piece.len();
                self.reasoning.push_inline(&piece);
            }
        }
        size
    }
}

impl ReplyAssembler for OpenaiChatAssembler {
    fn push_event(&mut self, name: &str, data: &str, on_text: &dyn Fn(&str)) -> Result<(), StreamError> {
        if data.starts_with("[DONE]") {
            // Whether something is missing is checked in `finish`.
            self.is_done = true;
            return Ok(());
        }
        if name == "error" {
            return Err(StreamError::Api(data.to_owned()));
        }
        if !data.trim_start().starts_with('{') {
            // For example, a ping.
            return Ok(());
        }
        let chunk: Chunk<'_> =
            serde_json::from_str(data).map_err(|error| StreamError::unreadable("a chunk", &error))?;
        if is_error(&chunk) {
            return Err(StreamError::Api(data.to_owned()));
        }
        self.push_chunk(chunk, on_text)
    }

    fn push_body(&mut self, body: &[u8], on_text: &dyn Fn(&str)) -> Result<(), StreamError> {
        let malformed = |why: &str| StreamError::Malformed(why.to_owned());
        let json = std::str::from_utf8(body).map_err(|_| malformed("it isn't UTF-8"))?;
        let value: serde_json::Value =
            serde_json::from_str(json).map_err(|error| StreamError::not_a_reply("completion", &error))?;
        let chunk: Chunk<'_> =
            serde_json::from_str(json).map_err(|error| StreamError::not_a_reply("completion", &error))?;
        if is_error(&chunk) {
            return Err(StreamError::Api(json.to_owned()));
        }
        if value.get("choices").and_then(|choices| choices.get(0)).is_none() {
            return Err(malformed("it is JSON, but not a completion"));
        }
        self.push_chunk(chunk, on_text)?;
        (self.is_done, self.is_certainly_complete) = (true, true);
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.is_done
    }

    fn is_complete(&self) -> bool {
        self.is_done || self.stop.is_some()
    }

    fn usage(&self) -> Usage {
        self.estimate.usage(self.usage.usage(), self.stop.is_some())
    }

    fn finish(self, request_id: Option<String>) -> Result<Reply, StreamError> {
        let usage = self.usage();
        let is_whole = self.is_done && (self.is_certainly_complete || self.calls.are_complete());
        let Some(mut stop) = self.stop.or(is_whole.then_some(StopReason::EndTurn)) else {
            return Err(StreamError::Malformed("the reply has no finish_reason, so its end is missing".to_owned()));
        };
        let has_calls = !self.calls.is_empty();
        match stop {
            StopReason::ToolUse if !has_calls => {
                let why = "the reply stops for tool calls, but has none";
                return Err(StreamError::Malformed(why.to_owned()));
            }
            StopReason::EndTurn if has_calls => stop = StopReason::ToolUse,
            _ => {}
        }
        let unreadable = |error| StreamError::unreadable("a block", &error);
        let mut blocks: Vec<Block> = self.reasoning.finish(has_calls).map_err(unreadable)?.into_iter().collect();
        if !self.text.is_empty() {
            blocks.push(BlockContent::Text(self.text).into());
        }
        if !self.refusal.is_empty() {
            stop = StopReason::Refusal;
            blocks.push(BlockContent::Text(self.refusal).into());
        } else if let Some(word) = self.filter_reason.filter(|_| stop == StopReason::Refusal) {
            // Without this, the reply wouldn't contain the reason.
            blocks.push(BlockContent::Other(word).into());
        }
        blocks.extend(self.calls.finish().map_err(unreadable)?);
        Ok(Reply { blocks, stop, usage, model: self.model, request_id: request_id.or(self.id) })
    }
}

fn is_error(chunk: &Chunk<'_>) -> bool {
    let named = chunk.object.and_then(string_value).is_some_and(|object| object == "error");
    named || chunk.error.is_some_and(|error| !matches!(error.get(), "null" | "false" | "\"\"" | "{}"))
}

/// Converts a finish reason of OpenAI's or another server's, in upper or lower case.
fn parse_stop_reason(reason: String) -> Result<StopReason, StreamError> {
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
        _ => StopReason::Other(reason),
    })
}
