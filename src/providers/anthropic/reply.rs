//! A reply out of the events of a stream, or out of one JSON object. Knows no network.
//!
//! The events are those of <https://platform.claude.com/docs/en/build-with-claude/streaming>: `message_start`, then for
//! each block `content_block_start`, deltas and `content_block_stop`, then `message_delta` and `message_stop`; `ping`,
//! `error` and unknown ones anywhere between.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::block::{Fields, Growing};
use crate::message::{Block, Reply, Stop, Usage, View};
use crate::providers::dialogue::{self, Broken};
use crate::providers::lossy::Lossy;
use crate::providers::openai::Estimate;

/// A reply that is being received.
#[derive(Debug)]
pub(super) struct Growth {
    estimate: Estimate,
    id: Option<String>,
    model: Option<String>,
    /// In the order in which they began.
    blocks: Vec<Numbered>,
    usage: Counts,
    /// Whether the reply's tokens were counted when it ended.
    is_counted: bool,
    stop: Option<Stop>,
    /// Whether that came behind the blocks, which ends the reply but for a formality.
    stopped: bool,
    /// Why it was refused.
    refusal: Option<String>,
    ended: bool,
}

/// A block, and the number that its events have. Some servers give one that has ended to the next block, too.
#[derive(Debug)]
struct Numbered {
    index: u64,
    has_ended: bool,
    block: Growing,
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
    stop_details: Option<Details>,
    #[serde(default)]
    usage: Option<Counts>,
}

#[derive(Deserialize)]
struct Tail {
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    stop_details: Option<Details>,
}

/// What the API says of a refusal.
#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    category: Option<Lossy>,
    #[serde(default)]
    explanation: Option<Lossy>,
}

impl Details {
    fn why(self) -> Option<String> {
        let words = [self.category, self.explanation].into_iter().flatten().map(|Lossy(words)| words);
        let words: Vec<String> = words.filter(|words| !words.is_empty()).collect();
        (!words.is_empty()).then(|| words.join(": "))
    }
}

/// Token counts as the API names them. All are totals so far: of each, the latest holds, and null says nothing. Nor does a
/// prompt of nothing, as some servers count it at the beginning and others at the end.
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

impl Growth {
    /// A reply to a prompt of so many bytes.
    pub(super) fn new(prompt_bytes: usize) -> Self {
        Self {
            estimate: Estimate::new(prompt_bytes),
            id: None,
            model: None,
            blocks: Vec::new(),
            usage: Counts::default(),
            is_counted: false,
            stop: None,
            stopped: false,
            refusal: None,
            ended: false,
        }
    }

    fn begin(&mut self, head: Head, text: &dyn Fn(&str)) {
        self.id = head.id;
        self.model = head.model;
        self.stop = head.stop_reason.and_then(read_stop);
        self.refusal = head.stop_details.and_then(Details::why);
        self.usage.update(head.usage.unwrap_or_default());
        for (index, fields) in (0..).zip(head.content.unwrap_or_default()) {
            self.begin_block(index, fields, text);
        }
    }

    fn begin_block(&mut self, index: u64, fields: Fields, text: &dyn Fn(&str)) {
        let block = Growing::new(fields);
        let (size, said) = block.said();
        self.estimate.hear(size);
        if let Some(said) = said.filter(|said| !said.is_empty()) {
            text(&said);
        }
        self.blocks.push(Numbered { index, has_ended: false, block });
    }

    /// The newest block of that number.
    fn block(&mut self, index: Option<u64>) -> Option<&mut Numbered> {
        let index = index.unwrap_or_default();
        self.blocks.iter_mut().rev().find(|block| block.index == index)
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
                self.begin(serde_json::from_str(head).map_err(wrong)?, text);
            }
            "content_block_start" => {
                let fields = event.content_block.map_or("{}", RawValue::get);
                let fields = serde_json::from_str(fields).map_err(wrong)?;
                if self.block(event.index).is_some_and(|block| !block.has_ended) {
                    return Err(Broken::Nonsense("a block begins twice".to_owned()));
                }
                self.begin_block(event.index.unwrap_or_default(), fields, text);
            }
            "content_block_delta" => {
                self.estimate.hear(event.delta.map_or(0, said));
                let Some(Numbered { block, .. }) = self.block(event.index) else {
                    return Err(Broken::Nonsense("a block goes on that never began".to_owned()));
                };
                if let Some(delta) = event.delta
                    && let Some(piece) = block.grow(delta).map_err(wrong)?
                {
                    text(&piece);
                }
            }
            "content_block_stop" => self.block(event.index).into_iter().for_each(|block| block.has_ended = true),
            "message_delta" => {
                if let Some(delta) = event.delta {
                    let tail: Tail = serde_json::from_str(delta.get()).map_err(wrong)?;
                    let stop = tail.stop_reason.and_then(read_stop);
                    self.stopped |= stop.is_some();
                    self.stop = stop.or(self.stop.take());
                    self.refusal = tail.stop_details.and_then(Details::why).or(self.refusal.take());
                }
                let usage = event.usage.map(|usage| serde_json::from_str::<Option<Counts>>(usage.get()));
                if let Some(usage) = usage.transpose().map_err(wrong)?.flatten() {
                    self.is_counted |= usage.output_tokens.is_some();
                    self.usage.update(usage);
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
        self.is_counted = head.usage.is_some_and(|usage| usage.output_tokens.is_some());
        self.begin(head, text);
        self.ended = true;
        Ok(())
    }

    fn ended(&self) -> bool {
        self.ended
    }

    /// Some servers leave out `message_stop`, and a connection may break before it: nothing of the reply is in it.
    fn may_end(&self) -> bool {
        self.ended || self.stopped && self.blocks.iter().all(|block| block.has_ended)
    }

    /// What has been used so far. The API counts a reply's tokens at its end: of one that is cut off, or that nobody counts,
    /// what was heard is counted here.
    fn usage(&self) -> Usage {
        let counted = self.usage.usage();
        let (is_counted, knows_prompt) = (self.is_counted && counted.output_tokens > 0, counted.prompt() > 0);
        let has_ended = if knows_prompt { is_counted } else { self.stop.is_some() };
        let usage = self.estimate.usage(knows_prompt.then_some(counted), has_ended);
        let heard = usage.output_tokens.max(counted.output_tokens);
        Usage { output_tokens: if is_counted { counted.output_tokens } else { heard }, ..usage }
    }

    fn finish(self, request_id: Option<String>) -> Result<Reply, Broken> {
        let usage = self.usage();
        let Some(stop) = self.stop else {
            return Err(Broken::Nonsense("a reply without a stop reason, so without its end".to_owned()));
        };
        let blocks: Result<Vec<Block>, _> = self.blocks.into_iter().map(|numbered| numbered.block.finish()).collect();
        let mut blocks = blocks.map_err(|error| Broken::Nonsense(format!("a block can't be read: {error}")))?;
        if stop == Stop::Refusal {
            blocks.extend(self.refusal.map(|why| Block::from(View::Other(why))));
        }
        if stop == Stop::ToolUse && !blocks.iter().any(|block| matches!(block.view, View::Call(_))) {
            return Err(Broken::Nonsense("a reply that waits for the answers to calls and makes none".to_owned()));
        }
        Ok(Reply { blocks, stop, usage, model: self.model, request_id: request_id.or(self.id) })
    }
}

/// How many bytes a delta says, its own syntax aside.
fn said(delta: &RawValue) -> usize {
    const SYNTAX: usize = r#"{"type":"text_delta","text":""}"#.len();
    delta.get().len().saturating_sub(SYNTAX)
}

/// The reasons of <https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons>.
fn read_stop(reason: String) -> Option<Stop> {
    Some(match reason.as_str() {
        "" => return None,
        "end_turn" | "stop_sequence" => Stop::EndTurn,
        "tool_use" => Stop::ToolUse,
        "max_tokens" => Stop::MaxTokens,
        "refusal" => Stop::Refusal,
        "pause_turn" => Stop::Pause,
        "model_context_window_exceeded" => Stop::ContextFull,
        _ => Stop::Other(reason),
    })
}
