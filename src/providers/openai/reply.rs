//! Decodes the events of a stream, or one JSON object.
//!
//! The events are those of <https://developers.openai.com/api/reference/resources/responses/streaming-events>:
//! `response.created`, then for each item `response.output_item.added`, deltas and `response.output_item.done`, then
//! one of `response.completed`, `response.incomplete` and `response.failed`; `error` and unknown ones may be anywhere
//! between. An item's content is that of its `done` event or of the final response; if it was cut off, that of its
//! deltas. Other servers give every item the same `output_index`, start with another number or omit it, so an item is
//! identified by its id first. Not every server numbers events, and nothing is lost within a connection, so sequence
//! numbers are ignored.

use std::borrow::Cow;

use serde_json::Value;

use super::output_items::{ItemRef, OutputItems, PendingItem};
use crate::message::{Block, StopReason};
use crate::providers::assembler::{
    EventDecoder, PartialReply, StreamError, not_a_reply, parse_body, parse_event, read_field, usage_of_whole_prompt,
};
use crate::providers::json::{FieldLookup, Fields, field, non_empty_field, str_field, string_field, token_count};
use crate::providers::tool_calls::MAX_INPUT_BYTES;

/// The events of a reply.
#[derive(Debug, Default)]
pub(super) struct OpenaiDecoder {
    /// The limit on its tokens, if the server may report a truncated reply as complete, as llama.cpp does.
    max_output_tokens: Option<u32>,
    items: OutputItems,
}

/// What an item's text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Text,
    Refusal,
    /// A call's input.
    Input,
}

impl OpenaiDecoder {
    /// With the limit on its tokens, for servers that may report a truncated reply as complete.
    pub(super) fn new(max_output_tokens: Option<u32>) -> Self {
        Self { max_output_tokens, ..Self::default() }
    }

    /// Counts the text of an item that no delta contained.
    fn count_new_text(&mut self, reply: &mut PartialReply, position: usize) {
        reply.add_output(self.items.get(position).map_or(0, PendingItem::count_new_text));
    }

    /// Takes a response object. `kind` is how the response ended, if it did. Returns whether it failed.
    ///
    /// # Errors
    /// Its output is malformed.
    fn push_response(&mut self, reply: &mut PartialReply, response: &Fields, kind: &str) -> Result<bool, StreamError> {
        reply.identify(response, "id", "model");
        let counts: Value = field(response, "usage").unwrap_or_default();
        let prompt = token_count(&counts, "/input_tokens");
        if prompt > 0 {
            let [read, written] = ["/input_tokens_details/cached_tokens", "/input_tokens_details/cache_write_tokens"]
                .map(|path| token_count(&counts, path));
            reply.counted = usage_of_whole_prompt(prompt, read, written, token_count(&counts, "/output_tokens"));
        }
        let status = non_empty_field(response, "status");
        let has_failed = response.get("error").is_some_and(|error| error.get().starts_with('{'));
        // Some servers have one event for all endings.
        let kind = match (kind, status.as_deref()) {
            ("completed" | "done", Some(status @ ("incomplete" | "failed" | "cancelled"))) => status,
            ("completed" | "done", _) if has_failed => "failed",
            ("done", None | Some("completed")) => "completed",
            (kind, _) => kind,
        };
        let details: Fields = field(response, "incomplete_details").unwrap_or_default();
        let reason = non_empty_field(&details, "reason");
        reply.stop = match (kind, reason.as_deref()) {
            ("completed", _) => Some(StopReason::EndTurn),
            ("incomplete", None | Some("max_output_tokens" | "max_tokens" | "length")) => Some(StopReason::MaxTokens),
            ("incomplete", Some("content_filter")) => Some(StopReason::Refusal),
            ("incomplete", Some(reason)) => Some(StopReason::Other(reason.to_owned())),
            _ => return Ok(matches!(kind, "failed" | "cancelled")),
        };
        reply.is_finished = true;
        let output: Vec<Option<Fields>> = read_field(response, "output")?;
        for position in self.items.merge_output(output.into_iter().flatten().collect()) {
            self.count_new_text(reply, position);
        }
        Ok(false)
    }
}

impl EventDecoder for OpenaiDecoder {
    fn decode_event(&mut self, reply: &mut PartialReply, name: &str, data: &str) -> Result<(), StreamError> {
        let is_known = name.is_empty() || name.starts_with("response.");
        let Some(event) = parse_event(data, is_known)? else { return Ok(()) };
        let kind = str_field(&event, "type").filter(|kind| !kind.is_empty()).unwrap_or(Cow::Borrowed(name));
        let kind = kind.strip_prefix("response.").unwrap_or_default();
        let (subject, phase) = kind.rsplit_once('.').unwrap_or((kind, ""));
        let id = str_field(&event, "item_id").unwrap_or_default();
        let item_ref = ItemRef { id: &id, index: field(&event, "output_index") };
        let delta_or = |whole| str_field(&event, "delta").or_else(|| str_field(&event, whole));
        let part: Fields = field(&event, "part").unwrap_or_default();
        let part_kind = str_field(&part, "type").unwrap_or_default();
        let part_text = |name| Some(str_field(&part, name).unwrap_or_default());
        let update = match (subject, phase, &*part_kind) {
            ("output_item", "added" | "done", _) => {
                let item: Fields = read_field(&event, "item")?;
                let id = string_field(&item, "id").unwrap_or_default();
                let position = self.items.record_item(ItemRef { id: &id, ..item_ref }, item, phase == "done");
                self.count_new_text(reply, position);
                None
            }
            ("output_text", ..) => delta_or("text").map(|text| (TextKind::Text, text)),
            ("refusal", ..) => delta_or("refusal").map(|text| (TextKind::Refusal, text)),
            ("function_call_arguments", ..) => delta_or("arguments").map(|text| (TextKind::Input, text)),
            ("content_part", "done", "output_text") => part_text("text").map(|text| (TextKind::Text, text)),
            ("content_part", "done", "refusal") => part_text("refusal").map(|text| (TextKind::Refusal, text)),
            _ if subject.starts_with("reasoning") => {
                reply.add_output(str_field(&event, "delta").map_or(0, |piece| piece.len()));
                None
            }
            _ => None,
        };
        if let Some((kind, text)) = update
            && let Some(position) = self.items.open_or_start(item_ref)
            && let Some(item) = self.items.get(position)
        {
            item.is_refusal |= kind == TextKind::Refusal;
            let most = if kind == TextKind::Input { MAX_INPUT_BYTES } else { usize::MAX };
            let part = field(&event, "content_index");
            let parts = &mut item.text_parts;
            let new = if phase == "done" { parts.end_part(part, &text) } else { parts.push_delta(part, &text, most) };
            reply.add_output(new.len());
        }
        if event.raw_field("response").is_some()
            && self.push_response(reply, &read_field::<Fields>(&event, "response")?, kind)?
        {
            return Err(StreamError::Api(data.to_owned()));
        }
        Ok(())
    }

    fn decode_body(&mut self, reply: &mut PartialReply, json: &str) -> Result<(), StreamError> {
        let response = parse_body(json, "response")?;
        let is_response = string_field(&response, "object").is_none_or(|object| object == "response");
        if !is_response || field::<Vec<Option<Fields>>>(&response, "output").is_none() {
            return Err(not_a_reply("response"));
        }
        let status = string_field(&response, "status").unwrap_or_else(|| "completed".to_owned());
        self.push_response(reply, &response, &status).map(drop)
    }

    fn finish(self, reply: &mut PartialReply) -> Result<Vec<Block>, StreamError> {
        let is_cut = self.max_output_tokens.is_some_and(|most| reply.counted.output_tokens >= u64::from(most));
        let (blocks, is_refused) = self.items.finish();
        match reply.stop {
            Some(StopReason::EndTurn) if is_cut => reply.stop = Some(StopReason::MaxTokens),
            Some(StopReason::EndTurn) if is_refused => reply.stop = Some(StopReason::Refusal),
            Some(StopReason::Refusal) if !is_refused => reply.refusal = Some("content_filter".to_owned()),
            _ => {}
        }
        Ok(blocks)
    }
}
