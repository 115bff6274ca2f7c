//! A reply out of the events of a stream, or out of one JSON object. Knows no network.
//!
//! The events are those of <https://platform.claude.com/docs/en/build-with-claude/streaming>: `message_start`, then for
//! each block `content_block_start`, deltas and `content_block_stop`, then `message_delta` and `message_stop`; `ping`,
//! `error` and unknown ones anywhere between.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::block::{Fields, Growing};
use crate::message::{Block, Reply, Stop, Usage, View};
use crate::providers::dialogue::{self, Broken};
use crate::providers::lossy::Lossy;

/// A reply that is being received.
#[derive(Debug, Default)]
pub(super) struct Growth {
    id: Option<String>,
    model: Option<String>,
    blocks: BTreeMap<u64, Growing>,
    usage: Counts,
    /// Bytes of what came in deltas.
    heard: u64,
    stop: Option<Stop>,
    ended: bool,
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

/// A message, whole or as it begins.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    content: Option<Vec<Fields>>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    usage: Option<Counts>,
}

#[derive(Deserialize)]
struct Tail {
    #[serde(default)]
    stop_reason: Option<String>,
}

/// Token counts as the API names them. All are totals so far: of each, the latest holds, and null says nothing.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
struct Counts {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
}

impl Counts {
    fn update(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens = later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
    }
}

impl Growth {
    fn begin(&mut self, head: Head) {
        self.id = head.id;
        self.model = head.model;
        self.stop = head.stop_reason.map(read_stop);
        self.usage.update(head.usage.unwrap_or_default());
        for (index, fields) in (0..).zip(head.content.unwrap_or_default()) {
            self.blocks.insert(index, Growing::new(fields));
        }
    }
}

impl dialogue::Growth for Growth {
    fn event(&mut self, name: &str, data: &str, text: &dyn Fn(&str)) -> Result<(), Broken> {
        let wrong = |error: serde_json::Error| Broken::Nonsense(format!("a {name} event can't be read: {error}"));
        if name == "error" {
            return Err(Broken::Error(data.to_owned()));
        }
        let event: Event<'_> = match serde_json::from_str(data) {
            Ok(event) => event,
            // Such as the `[DONE]` that some gateways send.
            Err(_) if !name.starts_with("message_") && !name.starts_with("content_block_") => return Ok(()),
            Err(error) => return Err(wrong(error)),
        };
        match &*event.kind {
            "message_start" => {
                let head = event.message.map_or("{}", RawValue::get);
                self.begin(serde_json::from_str(head).map_err(wrong)?);
            }
            "content_block_start" => {
                let fields = event.content_block.map_or("{}", RawValue::get);
                let block = Growing::new(serde_json::from_str(fields).map_err(wrong)?);
                if self.blocks.insert(event.index.unwrap_or_default(), block).is_some() {
                    return Err(Broken::Nonsense("a block begins twice".to_owned()));
                }
            }
            "content_block_delta" => {
                let Some(block) = self.blocks.get_mut(&event.index.unwrap_or_default()) else {
                    return Err(Broken::Nonsense("a block goes on that never began".to_owned()));
                };
                self.heard += event.delta.map_or(0, said);
                if let Some(delta) = event.delta
                    && let Some(piece) = block.grow(delta).map_err(wrong)?
                {
                    text(&piece);
                }
            }
            "message_delta" => {
                if let Some(delta) = event.delta {
                    let tail: Tail = serde_json::from_str(delta.get()).map_err(wrong)?;
                    self.stop = tail.stop_reason.map(read_stop).or(self.stop.take());
                }
                if let Some(usage) = event.usage {
                    self.usage.update(serde_json::from_str(usage.get()).map_err(wrong)?);
                }
            }
            "message_stop" => self.ended = true,
            "error" => return Err(Broken::Error(data.to_owned())),
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: &[u8], text: &dyn Fn(&str)) -> Result<(), Broken> {
        let event: Event<'_> = serde_json::from_slice(body).map_err(|error| Broken::no("message", &error))?;
        if event.kind == "error" {
            return Err(Broken::Error(String::from_utf8_lossy(body).into_owned()));
        }
        let head: Head = serde_json::from_slice(body).map_err(|error| Broken::no("message", &error))?;
        if head.content.is_none() {
            return Err(Broken::Nonsense("it is JSON, but no message".to_owned()));
        }
        for fields in head.content.iter().flatten() {
            let is_text = fields.get("type").is_some_and(|kind| kind.get() == "\"text\"");
            if let Some(value) = fields.get("text").filter(|_| is_text)
                && let Ok(Lossy(piece)) = serde_json::from_str(value.get())
            {
                text(&piece);
            }
        }
        self.begin(head);
        self.ended = true;
        Ok(())
    }

    fn ended(&self) -> bool {
        self.ended
    }

    /// What has been used so far. The API counts a reply's tokens at its end: of one that is cut off, what was heard is
    /// counted here, four bytes to a token.
    fn usage(&self) -> Usage {
        let counted = self.usage.output_tokens.unwrap_or_default();
        Usage {
            input_tokens: self.usage.input_tokens.unwrap_or_default(),
            output_tokens: if self.stop.is_some() { counted } else { counted.max(self.heard / 4) },
            cache_read_tokens: self.usage.cache_read_input_tokens.unwrap_or_default(),
            cache_write_tokens: self.usage.cache_creation_input_tokens.unwrap_or_default(),
        }
    }

    fn finish(self, request_id: Option<String>) -> Result<Reply, Broken> {
        let usage = self.usage();
        let Some(stop) = self.stop else {
            return Err(Broken::Nonsense("a reply without a stop reason, so without its end".to_owned()));
        };
        let blocks: Result<Vec<Block>, _> = self.blocks.into_values().map(Growing::finish).collect();
        let blocks = blocks.map_err(|error| Broken::Nonsense(format!("a block can't be read: {error}")))?;
        if stop == Stop::ToolUse && !blocks.iter().any(|block| matches!(block.view, View::Call(_))) {
            return Err(Broken::Nonsense("a reply that waits for the answers to calls and makes none".to_owned()));
        }
        Ok(Reply { blocks, stop, usage, model: self.model, request_id: request_id.or(self.id) })
    }
}

/// How many bytes a delta says, its own syntax aside.
fn said(delta: &RawValue) -> u64 {
    const SYNTAX: usize = r#"{"type":"text_delta","text":""}"#.len();
    delta.get().len().saturating_sub(SYNTAX) as u64
}

/// The reasons of <https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons>.
fn read_stop(reason: String) -> Stop {
    match reason.as_str() {
        "end_turn" | "stop_sequence" => Stop::EndTurn,
        "tool_use" => Stop::ToolUse,
        "max_tokens" => Stop::MaxTokens,
        "refusal" => Stop::Refusal,
        "pause_turn" => Stop::Pause,
        "model_context_window_exceeded" => Stop::ContextFull,
        _ => Stop::Other(reason),
    }
}
