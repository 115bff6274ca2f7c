//! A reply out of the events of a stream, or out of one JSON object. Knows no network.
//!
//! The events are those of <https://developers.openai.com/api/reference/resources/responses/streaming-events>:
//! `response.created`, then for each item `response.output_item.added`, deltas and `response.output_item.done`, then one of
//! `response.completed`, `response.incomplete` and `response.failed`; `error` and unknown ones anywhere between. An item is
//! what its `done` says, or what the response at the end says; of one that was cut off, what its deltas said. Events are
//! numbered, but not by every server, and nothing is lost within a connection: the numbers aren't looked at.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Estimate;
use super::item::{self, Fields, text};
use crate::message::{Block, Reply, Stop, Usage, View};
use crate::providers::dialogue::{self, Broken};
use crate::providers::input::LONGEST_INPUT;
use crate::providers::lossy::Lossy;

/// A reply that is being received.
#[derive(Debug)]
pub(super) struct Growth {
    estimate: Estimate,
    /// How many tokens it may have, where a server may call one complete that was cut there.
    most: Option<u32>,
    id: Option<String>,
    model: Option<String>,
    items: BTreeMap<u64, Growing>,
    usage: Option<Counts>,
    stop: Option<Stop>,
}

/// An item that is being received.
#[derive(Debug, Default)]
struct Growing {
    fields: Fields,
    is_whole: bool,
    /// What its deltas said: text, or a call's input as far as its bound and one piece beyond it.
    heard: String,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", default)]
    kind: Lossy,
    #[serde(default)]
    output_index: Option<u64>,
    #[serde(default)]
    item: Option<Fields>,
    #[serde(default)]
    delta: Option<Lossy>,
    #[serde(default, borrow)]
    response: Option<&'a RawValue>,
}

/// A response as it begins and ends.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Response {
    object: Option<Lossy>,
    id: Option<Lossy>,
    model: Option<Lossy>,
    status: Option<Lossy>,
    output: Option<Vec<Fields>>,
    incomplete_details: Option<Incomplete>,
    usage: Option<Counts>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Incomplete {
    reason: Option<Lossy>,
}

/// Token counts as the API names them. `input_tokens` is the whole prompt; `output_tokens` has the reasoning in it.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<Details>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

impl Counts {
    /// `None` where nothing was counted.
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

impl Growth {
    /// A reply to a prompt of so many bytes.
    pub(super) fn new(prompt_bytes: usize) -> Self {
        let estimate = Estimate::new(prompt_bytes);
        Self { estimate, most: None, id: None, model: None, items: BTreeMap::new(), usage: None, stop: None }
    }

    /// The same where the server isn't OpenAI's: llama.cpp calls a reply that was cut at so many tokens completed.
    pub(super) fn cut_at(self, most: u32) -> Self {
        Self { most: Some(most), ..self }
    }

    fn grow(&mut self, index: Option<u64>, piece: &str, bound: usize) {
        let index = index.or_else(|| self.items.keys().next_back().copied()).unwrap_or_default();
        let item = self.items.entry(index).or_default();
        if item.heard.len() <= bound {
            item.heard.push_str(piece);
        }
        self.estimate.hear(piece.len());
    }

    fn settle(&mut self, index: Option<u64>, fields: Fields, is_whole: bool, say: &dyn Fn(&str)) {
        let last = self.items.iter().next_back();
        let open = last.filter(|(_, item)| !item.is_whole && is_whole).map(|(index, _)| *index);
        let next = open.unwrap_or(last.map_or(0, |(index, _)| index + 1));
        let item = self.items.entry(index.unwrap_or(next)).or_default();
        if is_whole && item.heard.is_empty() && text(&fields, "type").as_deref() == Some("message") {
            let said = item::said(&fields);
            self.estimate.hear(said.len());
            say(&said);
        }
        (item.fields, item.is_whole) = (fields, is_whole);
    }

    /// Takes what a response says of itself, `kind` being how it ended, if it did.
    fn respond(&mut self, response: Response, kind: &str, say: &dyn Fn(&str)) {
        let word = |word: Option<Lossy>| word.map(|Lossy(word)| word).filter(|word| !word.is_empty());
        self.id = word(response.id).or(self.id.take());
        self.model = word(response.model).or(self.model.take());
        self.usage = response.usage.or(self.usage);
        let reason = response.incomplete_details.and_then(|details| word(details.reason));
        self.stop = match (kind, reason.as_deref()) {
            ("completed", _) => Some(Stop::EndTurn),
            ("incomplete", Some("max_output_tokens")) => Some(Stop::MaxTokens),
            ("incomplete", Some("content_filter")) => Some(Stop::Refusal),
            ("incomplete", _) => Some(Stop::Other(reason.unwrap_or_else(|| kind.to_owned()))),
            _ => return,
        };
        for (index, fields) in (0..).zip(response.output.into_iter().flatten()) {
            if !self.items.get(&index).is_some_and(|item| item.is_whole) {
                self.settle(Some(index), fields, true, say);
            }
        }
    }
}

fn unreadable(error: &serde_json::Error) -> Broken {
    Broken::Nonsense(format!("an event can't be read: {error}"))
}

impl dialogue::Growth for Growth {
    fn event(&mut self, name: &str, data: &str, say: &dyn Fn(&str)) -> Result<(), Broken> {
        if name == "error" {
            return Err(Broken::Error(data.to_owned()));
        }
        if !data.trim_start().starts_with('{') {
            // Such as the `[DONE]` that some gateways send.
            return Ok(());
        }
        let event: Event<'_> = match serde_json::from_str(data) {
            Ok(event) => event,
            Err(error) if name.is_empty() || name.starts_with("response.") => return Err(unreadable(&error)),
            Err(_) => return Ok(()),
        };
        let kind = if event.kind.0.is_empty() { name } else { event.kind.0.as_str() };
        match (kind, event.delta) {
            ("error", _) => return Err(Broken::Error(data.to_owned())),
            ("response.output_item.added" | "response.output_item.done", _) => {
                let is_whole = kind.ends_with("done");
                self.settle(event.output_index, event.item.unwrap_or_default(), is_whole, say);
            }
            ("response.output_text.delta" | "response.refusal.delta", Some(Lossy(piece))) => {
                say(&piece);
                self.grow(event.output_index, &piece, usize::MAX);
            }
            ("response.function_call_arguments.delta", Some(Lossy(piece))) => {
                self.grow(event.output_index, &piece, LONGEST_INPUT);
            }
            (_, Some(Lossy(piece))) if kind.starts_with("response.reasoning") => self.estimate.hear(piece.len()),
            _ => {}
        }
        if let Some(response) = event.response {
            let response = serde_json::from_str(response.get()).map_err(|error| unreadable(&error))?;
            let kind = kind.strip_prefix("response.").unwrap_or_default();
            self.respond(response, kind, say);
            if matches!(kind, "failed" | "cancelled") {
                return Err(Broken::Error(data.to_owned()));
            }
        }
        Ok(())
    }

    fn whole(&mut self, body: &[u8], say: &dyn Fn(&str)) -> Result<(), Broken> {
        let json = String::from_utf8_lossy(body);
        let error: serde_json::Value =
            serde_json::from_str(&json).map_err(|error| Broken::Nonsense(format!("it isn't JSON: {error}")))?;
        let response: Response = serde_json::from_str(&json)
            .map_err(|error| Broken::Nonsense(format!("it is JSON, but no response: {error}")))?;
        if error.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Broken::Error(json.into_owned()));
        }
        let is_response = response.object.as_ref().is_some_and(|Lossy(object)| object == "response");
        if !is_response || response.output.is_none() {
            return Err(Broken::Nonsense("it is JSON, but no response".to_owned()));
        }
        let status = response.status.as_ref().map_or_else(String::new, |Lossy(status)| status.clone());
        self.respond(response, &status, say);
        Ok(())
    }

    fn ended(&self) -> bool {
        self.stop.is_some()
    }

    fn usage(&self) -> Usage {
        self.estimate.usage(self.usage.and_then(|counts| counts.usage()), self.stop.is_some())
    }

    fn finish(self, request_id: Option<String>) -> Result<Reply, Broken> {
        let usage = self.usage();
        let Some(mut stop) = self.stop else {
            return Err(Broken::Nonsense("a response whose status says nothing of its end".to_owned()));
        };
        let mut blocks = Vec::with_capacity(self.items.len());
        let used = self.usage.and_then(|counts| counts.output_tokens).unwrap_or_default();
        if stop == Stop::EndTurn && self.most.is_some_and(|most| used >= u64::from(most)) {
            stop = Stop::MaxTokens;
        }
        let mut is_refused = false;
        for Growing { fields, is_whole, heard } in self.items.into_values() {
            is_refused |= !item::refusal(&fields).is_empty();
            if is_whole {
                let block = item::block(&fields);
                blocks.push(block.map_err(|error| Broken::Nonsense(format!("an item can't be read: {error}")))?);
            } else {
                blocks.extend(cut_off(&fields, heard));
            }
        }
        if stop == Stop::EndTurn {
            if is_refused {
                stop = Stop::Refusal;
            } else if blocks.iter().any(|block| matches!(block.view, View::Call(_))) {
                stop = Stop::ToolUse;
            }
        }
        Ok(Reply { blocks, stop, usage, model: self.model, request_id: request_id.or(self.id) })
    }
}

/// What is left of an item that never ended.
fn cut_off(fields: &Fields, heard: String) -> Option<Block> {
    let view = match text(fields, "type").as_deref() {
        Some("function_call") => {
            let [id, name] = ["call_id", "name"].map(|name| text(fields, name).unwrap_or_default());
            View::Call(item::call(id, name, Some(&heard)))
        }
        _ if heard.is_empty() => return None,
        _ => View::Text(heard),
    };
    Some(view.into())
}
