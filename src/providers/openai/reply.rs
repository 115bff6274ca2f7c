//! Assembles a reply from the events of a stream, or from one JSON object.
//!
//! The events are those of <https://developers.openai.com/api/reference/resources/responses/streaming-events>:
//! `response.created`, then for each item `response.output_item.added`, deltas and `response.output_item.done`, then
//! one of `response.completed`, `response.incomplete` and `response.failed`; `error` and unknown ones may be anywhere
//! between. An item's content is that of its `done` event or of the final response; if it was cut off, that of its
//! deltas. Other servers give every item the same `output_index`, start with another number or omit it, so an item is
//! identified by its id first. Not every server numbers events, and nothing is lost within a connection, so sequence
//! numbers are ignored.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::output_items::{ItemRef, MESSAGE_SEPARATOR, OutputItems, PendingItem};
use crate::message::{BlockContent, Reply, StopReason, Usage};
use crate::providers::assembler::{ReplyAssembler, StreamError, UsageEstimate};
use crate::providers::json::{Fields, LossyString, deserialize_count, non_empty, string_field, string_value};
use crate::providers::tool_calls::MAX_INPUT_BYTES;

/// A reply that is being received.
#[derive(Debug)]
pub(super) struct OpenaiAssembler {
    estimate: UsageEstimate,
    /// The limit on its tokens, if the server may report a truncated reply as complete.
    max_output_tokens: Option<u32>,
    id: Option<String>,
    model: Option<String>,
    items: OutputItems,
    /// The item whose text was reported last.
    last_text_item: Option<usize>,
    usage: Option<UsageCounts>,
    stop: Option<StopReason>,
}

/// The required fields of events. All other fields may have any form.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", default)]
    kind: LossyString,
    #[serde(default, borrow)]
    output_index: Option<&'a RawValue>,
    #[serde(default, borrow)]
    content_index: Option<&'a RawValue>,
    #[serde(default, borrow)]
    item_id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    item: Option<&'a RawValue>,
    #[serde(default, borrow)]
    part: Option<&'a RawValue>,
    #[serde(default, borrow)]
    delta: Option<&'a RawValue>,
    #[serde(default, borrow)]
    text: Option<&'a RawValue>,
    #[serde(default, borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(default, borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(default, borrow)]
    response: Option<&'a RawValue>,
}

/// A response at its start and end.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Response {
    object: Option<LossyString>,
    id: Option<LossyString>,
    model: Option<LossyString>,
    status: Option<LossyString>,
    output: Option<Vec<Option<Fields>>>,
    incomplete_details: Option<Box<RawValue>>,
    usage: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Incomplete {
    reason: Option<LossyString>,
}

/// Token counts. `input_tokens` is the whole prompt; `output_tokens` includes reasoning.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct UsageCounts {
    #[serde(deserialize_with = "deserialize_count")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "deserialize_count")]
    output_tokens: Option<u64>,
    input_tokens_details: Option<InputTokenDetails>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct InputTokenDetails {
    #[serde(deserialize_with = "deserialize_count")]
    cached_tokens: Option<u64>,
    #[serde(deserialize_with = "deserialize_count")]
    cache_write_tokens: Option<u64>,
}

impl UsageCounts {
    /// The usage, or `None` if nothing was counted.
    fn usage(&self) -> Option<Usage> {
        let prompt = self.input_tokens.filter(|tokens| *tokens > 0)?;
        let details = self.input_tokens_details.unwrap_or_default();
        let read = details.cached_tokens.unwrap_or_default().min(prompt);
        let written = details.cache_write_tokens.unwrap_or_default().min(prompt - read);
        Some(Usage {
            input_tokens: prompt - read - written,
            output_tokens: self.output_tokens.unwrap_or_default(),
            cache_read_tokens: read,
            cache_write_tokens: written,
        })
    }
}

impl OpenaiAssembler {
    /// A reply to a prompt of this size.
    pub(super) fn new(prompt_bytes: usize) -> Self {
        Self {
            estimate: UsageEstimate::new(prompt_bytes),
            max_output_tokens: None,
            id: None,
            model: None,
            items: OutputItems::default(),
            last_text_item: None,
            usage: None,
            stop: None,
        }
    }

    /// Sets the token limit for servers other than OpenAI's: llama.cpp reports a reply that was truncated there as
    /// completed.
    pub(super) fn with_token_limit(self, most: u32) -> Self {
        Self { max_output_tokens: Some(most), ..self }
    }

    /// Takes a delta of an item's text, or the whole text at its end.
    fn push_text(&mut self, item_ref: ItemRef<'_>, update: TextUpdate<'_>, on_text: &dyn Fn(&str)) {
        let TextUpdate { piece, part, is_complete: is_all, is_refusal, is_input } = update;
        let Some(position) = self.items.open_or_start(item_ref) else { return };
        let Some(item) = self.items.get(position) else { return };
        item.is_refusal |= is_refusal;
        let most = if is_input { MAX_INPUT_BYTES } else { usize::MAX };
        let new =
            if is_all { item.text_parts.end_part(part, piece) } else { item.text_parts.push_delta(part, piece, most) };
        self.estimate.add_output(new.len());
        if !is_input {
            self.emit_text(position, new, on_text);
        }
    }

    fn emit_text(&mut self, position: usize, piece: &str, on_text: &dyn Fn(&str)) {
        if !piece.is_empty() {
            if self.last_text_item.replace(position).is_some_and(|before| before != position) {
                on_text(MESSAGE_SEPARATOR);
            }
            on_text(piece);
        }
    }

    /// Reports the new text of an item.
    fn emit_new_text(&mut self, position: usize, on_text: &dyn Fn(&str)) {
        if let Some(update) = self.items.get(position).and_then(PendingItem::take_unreported_text) {
            self.estimate.add_output(update.len());
            self.emit_text(position, &update, on_text);
        }
    }

    /// Takes a response object. `kind` is how the response ended, if it did. Returns whether it failed.
    fn push_response(&mut self, response: Response, kind: &str, on_text: &dyn Fn(&str)) -> bool {
        self.id = non_empty(response.id).or(self.id.take());
        self.model = non_empty(response.model).or(self.model.take());
        let usage =
            response.usage.and_then(|usage| serde_json::from_str::<Option<UsageCounts>>(usage.get()).ok().flatten());
        self.usage = usage.or(self.usage);
        let status = non_empty(response.status);
        let has_failed = response.error.is_some_and(|error| error.get().starts_with('{'));
        // Some servers have one event for all endings.
        let kind = match (kind, status.as_deref()) {
            ("completed" | "done", Some(status @ ("incomplete" | "failed" | "cancelled"))) => status,
            ("completed" | "done", _) if has_failed => "failed",
            ("done", None | Some("completed")) => "completed",
            (kind, _) => kind,
        };
        let details = response.incomplete_details;
        let details = details.and_then(|details| serde_json::from_str::<Incomplete>(details.get()).ok());
        let reason = details.and_then(|details| non_empty(details.reason));
        self.stop = match (kind, reason.as_deref()) {
            ("completed", _) => Some(StopReason::EndTurn),
            ("incomplete", None | Some("max_output_tokens" | "max_tokens" | "length")) => Some(StopReason::MaxTokens),
            ("incomplete", Some("content_filter")) => Some(StopReason::Refusal),
            ("incomplete", Some(reason)) => Some(StopReason::Other(reason.to_owned())),
            _ => return matches!(kind, "failed" | "cancelled"),
        };
        for position in self.items.merge_output(response.output.into_iter().flatten().flatten().collect()) {
            self.emit_new_text(position, on_text);
        }
        false
    }
}

/// An update of an item's text.
#[derive(Clone, Copy)]
struct TextUpdate<'a> {
    piece: &'a str,
    /// The index of the item's part.
    part: Option<u64>,
    /// Whether it is the whole part, at its end.
    is_complete: bool,
    is_refusal: bool,
    /// Whether it is a call's input.
    is_input: bool,
}

fn text(value: Option<&RawValue>) -> Option<String> {
    string_value(value?)
}

fn malformed_event(error: &serde_json::Error) -> StreamError {
    StreamError::unreadable("an event", error)
}

impl ReplyAssembler for OpenaiAssembler {
    fn push_event(&mut self, name: &str, data: &str, on_text: &dyn Fn(&str)) -> Result<(), StreamError> {
        if name == "error" {
            return Err(StreamError::Api(data.to_owned()));
        }
        if !data.trim_start().starts_with('{') {
            // For example, the `[DONE]` of some gateways.
            return Ok(());
        }
        let event: Event<'_> = match serde_json::from_str(data) {
            Ok(event) => event,
            Err(error) if name.is_empty() || name.starts_with("response.") => return Err(malformed_event(&error)),
            Err(_) => return Ok(()),
        };
        let kind = if event.kind.0.is_empty() { name } else { event.kind.0.as_str() };
        let id = text(event.item_id).unwrap_or_default();
        let item_ref = ItemRef { id: &id, index: event.output_index.and_then(|index| index.get().parse().ok()) };
        let part = event.content_index.and_then(|index| index.get().parse().ok());
        let update =
            |piece, is_all| TextUpdate { piece, part, is_complete: is_all, is_refusal: false, is_input: false };
        match kind {
            "error" => return Err(StreamError::Api(data.to_owned())),
            "response.output_item.added" | "response.output_item.done" => {
                let item: Option<Fields> = event
                    .item
                    .map_or(Ok(None), |item| serde_json::from_str(item.get()))
                    .map_err(|error| malformed_event(&error))?;
                let item = item.unwrap_or_default();
                let id = string_field(&item, "id").unwrap_or_default();
                let position = self.items.record_item(ItemRef { id: &id, ..item_ref }, item, kind.ends_with("done"));
                self.emit_new_text(position, on_text);
            }
            "response.output_text.delta" | "response.output_text.done" => {
                if let Some(piece) = text(event.delta.or(event.text)) {
                    self.push_text(item_ref, update(&piece, kind.ends_with("done")), on_text);
                }
            }
            "response.refusal.delta" | "response.refusal.done" => {
                if let Some(piece) = text(event.delta.or(event.refusal)) {
                    self.push_text(
                        item_ref,
                        TextUpdate { is_refusal: true, ..update(&piece, kind.ends_with("done")) },
                        on_text,
                    );
                }
            }
            "response.function_call_arguments.delta" | "response.function_call_arguments.done" => {
                if let Some(piece) = text(event.delta.or(event.arguments)) {
                    self.push_text(
                        item_ref,
                        TextUpdate { is_input: true, ..update(&piece, kind.ends_with("done")) },
                        on_text,
                    );
                }
            }
            "response.content_part.done" => {
                let fields: Fields =
                    event.part.and_then(|part| serde_json::from_str(part.get()).ok()).unwrap_or_default();
                let word = |name| string_field(&fields, name);
                match word("type").as_deref() {
                    Some("output_text") => {
                        self.push_text(item_ref, update(&word("text").unwrap_or_default(), true), on_text);
                    }
                    Some("refusal") => {
                        let piece = word("refusal").unwrap_or_default();
                        self.push_text(item_ref, TextUpdate { is_refusal: true, ..update(&piece, true) }, on_text);
                    }
                    _ => {}
                }
            }
            _ if kind.starts_with("response.reasoning") => {
                self.estimate.add_output(text(event.delta).map_or(0, |piece| piece.len()));
            }
            _ => {}
        }
        if let Some(response) = event.response {
            let response = serde_json::from_str(response.get()).map_err(|error| malformed_event(&error))?;
            let kind = kind.strip_prefix("response.").unwrap_or_default();
            if self.push_response(response, kind, on_text) {
                return Err(StreamError::Api(data.to_owned()));
            }
        }
        Ok(())
    }

    fn push_body(&mut self, body: &[u8], on_text: &dyn Fn(&str)) -> Result<(), StreamError> {
        let json = String::from_utf8_lossy(body);
        let error: serde_json::Value =
            serde_json::from_str(&json).map_err(|error| StreamError::not_a_reply("response", &error))?;
        let response: Response =
            serde_json::from_str(&json).map_err(|error| StreamError::not_a_reply("response", &error))?;
        if error.get("error").is_some_and(|error| !error.is_null()) {
            return Err(StreamError::Api(json.into_owned()));
        }
        let is_response = response.object.as_ref().is_none_or(|LossyString(object)| object == "response");
        if !is_response || response.output.is_none() {
            return Err(StreamError::Malformed("it is JSON, but not a response".to_owned()));
        }
        let status =
            response.status.as_ref().map_or_else(|| "completed".to_owned(), |LossyString(status)| status.clone());
        self.push_response(response, &status, on_text);
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.stop.is_some()
    }

    fn usage(&self) -> Usage {
        self.estimate.usage(self.usage.and_then(|counts| counts.usage()), self.stop.is_some())
    }

    fn finish(self, request_id: Option<String>) -> Result<Reply, StreamError> {
        let usage = self.usage();
        let Some(mut stop) = self.stop else {
            return Err(StreamError::Malformed("the response has no final status, so its end is missing".to_owned()));
        };
        let used = self.usage.and_then(|counts| counts.output_tokens).unwrap_or_default();
        if stop == StopReason::EndTurn && self.max_output_tokens.is_some_and(|most| used >= u64::from(most)) {
            stop = StopReason::MaxTokens;
        }
        let finished = self.items.finish();
        let (mut blocks, is_refused) = finished.map_err(|error| StreamError::unreadable("an item", &error))?;
        if stop == StopReason::Refusal && !is_refused {
            // Without this, the reply wouldn't contain the reason.
            blocks.push(BlockContent::Other("content_filter".to_owned()).into());
        }
        if stop == StopReason::EndTurn {
            if is_refused {
                stop = StopReason::Refusal;
            } else if blocks.iter().any(|block| matches!(block.content, BlockContent::Call(_))) {
                stop = StopReason::ToolUse;
            }
        }
        Ok(Reply { blocks, stop, usage, model: self.model, request_id: request_id.or(self.id) })
    }
}
