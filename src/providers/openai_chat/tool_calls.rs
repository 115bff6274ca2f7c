//! Assembles the calls of a reply from deltas.
//!
//! OpenAI's own streams start each call with an index, an id and a name, and continue with deltas of its arguments
//! under the same index. Other servers omit the index or the id, give every call the index 0, repeat id and name in
//! every delta, invent a new id for every delta, send numeric ids, or send arguments as an object. If nothing else
//! distinguishes calls, these rules apply: a name starts a call, nothing follows a complete input, the deltas of one
//! list belong to different calls, and deltas without any reference come in the order in which the calls started.

use std::collections::HashMap;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::json;

use crate::message::{Block, BlockContent};
use crate::providers::json::{Fields, field, parse_fields, string_field, string_value, to_raw};
use crate::providers::openai_platform::MAX_TOOL_NAME_CHARS;
use crate::providers::tool_calls::{MAX_INPUT_BYTES, to_tool_call, tool_name};

/// The maximum number of calls in a reply, more than ten times what models make.
const MAX_CALLS: usize = 1_000;

/// Calls that are being received.
#[derive(Debug, Default)]
pub(super) struct PendingCalls {
    calls: Vec<PendingCall>,
    by_index: HashMap<u64, usize>,
    /// The number of lists of deltas so far.
    delta_lists: usize,
    /// The names of the available tools.
    tools: Arc<[String]>,
}

#[derive(Debug, Default)]
struct PendingCall {
    id: String,
    name: String,
    /// The input, up to the size limit and one delta beyond it.
    input: String,
    /// The numbers of the first and the last list with a delta of this call.
    lists: (usize, usize),
    /// Whether it consists only of the previous call's name, repeated after its input.
    may_be_spurious: bool,
    /// Other fields, such as a signature of Gemini's.
    extra_fields: Fields,
}

/// A delta of a call.
struct CallDelta {
    index: Option<u64>,
    id: String,
    name: String,
    input: String,
    extra_fields: Fields,
}

impl CallDelta {
    /// Whether it doesn't say which call it belongs to.
    fn is_unaddressed(&self) -> bool {
        self.index.is_none() && self.id.is_empty() && self.name.is_empty()
    }

    fn parse(mut fields: Fields) -> Self {
        let index = fields.shift_remove("index").and_then(|index| index.get().trim_matches('"').parse::<u64>().ok());
        let id = fields.shift_remove("id").map(|id| string_value(&id).unwrap_or_else(|| numeric_id(id.get())));
        let function: Fields = field(&fields, "function").unwrap_or_default();
        let name = string_field(&function, "name");
        let input =
            function.get("arguments").map(|input| string_value(input).unwrap_or_else(|| input.get().to_owned()));
        fields.retain(|name, _| !["type", "function"].contains(&name.as_str()));
        Self {
            index,
            id: id.unwrap_or_default(),
            name: name.unwrap_or_default(),
            input: input.filter(|input| input != "null").unwrap_or_default(),
            extra_fields: fields,
        }
    }
}

impl PendingCalls {
    /// No calls yet, with the names of the available tools.
    pub(super) fn with_tools(tools: Arc<[String]>) -> Self {
        Self { tools, ..Self::default() }
    }

    /// Takes a list of deltas; returns their size in bytes.
    ///
    /// # Errors
    /// There are too many calls.
    pub(super) fn push_deltas(&mut self, deltas: Vec<Fields>) -> Result<usize, String> {
        self.delta_lists += 1;
        let deltas: Vec<CallDelta> = deltas.into_iter().map(CallDelta::parse).collect();
        // Several deltas without references belong to the newest calls, in order.
        let is_in_order = deltas.len() > 1 && deltas.iter().all(CallDelta::is_unaddressed);
        let first = self.calls.len().checked_sub(deltas.len()).filter(|_| is_in_order);
        let positions = (0..deltas.len()).map(|number| first.map(|first| first + number));
        deltas.into_iter().zip(positions).map(|(delta, position)| self.push_delta(delta, position)).sum()
    }

    fn push_delta(&mut self, delta: CallDelta, position: Option<usize>) -> Result<usize, String> {
        let size = delta.name.len() + delta.input.len();
        let at = match position.or_else(|| self.find_target(&delta)) {
            Some(at) => at,
            None if self.calls.len() >= MAX_CALLS => return Err(format!("it makes more than {MAX_CALLS} calls")),
            None => {
                let is_known = delta.index.is_none_or(|index| self.by_index.contains_key(&index));
                let is_name_alone = is_known && delta.id.is_empty() && delta.input.trim().is_empty();
                let may_be_spurious = self.calls.last().filter(|_| is_name_alone).is_some_and(|before| {
                    before.name == delta.name && before.lists.1 < self.delta_lists && is_complete_json(&before.input)
                });
                self.calls.push(PendingCall {
                    lists: (self.delta_lists, self.delta_lists),
                    may_be_spurious,
                    ..PendingCall::default()
                });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at];
        call.lists.1 = self.delta_lists;
        let is_repeated = is_repeated(call, &delta);
        let CallDelta { index, id, name, input, extra_fields: more } = delta;
        if let Some(index) = index {
            self.by_index.insert(index, at);
        }
        if call.id.is_empty() {
            call.id = id;
        }
        if call.name != name {
            call.name.push_str(&name);
        }
        if is_empty_object(&call.input) && !input.trim().is_empty() {
            // The earlier input was a placeholder for the one that starts now.
            call.input = input;
        } else if call.input.len() <= MAX_INPUT_BYTES && !is_repeated {
            call.input.push_str(&input);
        }
        call.may_be_spurious &= call.input.trim().is_empty();
        call.extra_fields.extend(more.into_iter().filter(|(_, value)| value.get() != "null"));
        Ok(size)
    }

    /// The call that a delta belongs to. `None` if it starts a new one.
    fn find_target(&self, delta: &CallDelta) -> Option<usize> {
        let (has_id, has_name) = (!delta.id.is_empty(), !delta.name.is_empty());
        let last = self.calls.len().checked_sub(1);
        let by_id = || self.calls.iter().rposition(|call| has_id && call.id == delta.id);
        // A delta without a name continues a call, whatever its id or index.
        let continues = |at: Option<usize>| at.filter(|_| !has_name && !delta.input.is_empty());
        let at = match delta.index.map(|index| self.by_index.get(&index).copied()) {
            Some(Some(at)) => at,
            Some(None) if has_id => continues(by_id())?,
            Some(None) => continues(last)?,
            None if has_id => by_id().or_else(|| continues(last))?,
            None if has_name => last?,
            None => self.awaiting_input()?,
        };
        let known = &self.calls[at];
        let is_another = if !has_name || known.name.is_empty() {
            false
        } else if known.lists.1 == self.delta_lists {
            true
        } else if has_id && !known.id.is_empty() && delta.id != known.id {
            // If each delta has a new id, it continues an incomplete input.
            delta.name != known.name || is_complete_json(&known.input) || is_complete_json(&delta.input)
        } else if delta.name == known.name {
            // A name starts a call, unless it is repeated in each delta. Whether a name after the last delta is
            // repeated depends on what follows.
            let says_more = match delta.input.is_empty() {
                true => !has_id && !is_empty_object(&known.input),
                false => !is_repeated(known, delta),
            };
            is_complete_json(&known.input) && says_more
        } else {
            // The rest of a name comes before any input.
            let is_tool = |name: &str| self.tools.iter().any(|tool| tool == name);
            let is_rest = !is_tool(&known.name) || is_tool(&format!("{}{}", known.name, delta.name));
            !known.input.is_empty() || !is_rest
        };
        (!is_another).then_some(at)
    }

    /// The call that an input without reference belongs to: the newest one, or the first of several that started at
    /// once with an incomplete input.
    fn awaiting_input(&self) -> Option<usize> {
        let last = self.calls.len().checked_sub(1)?;
        let newest = &self.calls[last];
        if !newest.input.is_empty() {
            return Some(last);
        }
        self.calls.iter().position(|call| call.lists.0 == newest.lists.0 && !is_complete_json(&call.input))
    }

    /// Whether there are calls, each with a complete input.
    pub(super) fn are_complete(&self) -> bool {
        !self.calls.is_empty() && self.calls.iter().all(|call| call.may_be_spurious || is_complete_json(&call.input))
    }

    /// The finished blocks.
    pub(super) fn finish(self) -> Vec<Block> {
        let block = |call: PendingCall| Block {
            raw: (!call.extra_fields.is_empty()).then(|| Arc::from(to_raw(&call.extra_fields))),
            content: BlockContent::Call(to_tool_call(call.id, call.name, Some(&call.input))),
        };
        self.calls.into_iter().filter(|call| !call.may_be_spurious).map(block).collect()
    }
}

/// A number as an id; empty for anything else.
fn numeric_id(json: &str) -> String {
    if json.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') { json.to_owned() } else { String::new() }
}

fn is_complete_json(input: &str) -> bool {
    input.trim_end().ends_with('}') && serde_json::from_str::<IgnoredAny>(input).is_ok()
}

/// Whether a delta repeats the whole input.
fn is_repeated(call: &PendingCall, delta: &CallDelta) -> bool {
    let is_same = if delta.id.is_empty() { delta.name.is_empty() } else { delta.id == call.id };
    is_same && call.input == delta.input && is_complete_json(&delta.input)
}

fn is_empty_object(input: &str) -> bool {
    input
        .trim()
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .is_some_and(|within| within.trim().is_empty())
}

/// Encodes a call for the next request; `None` for any other block.
pub(super) fn encode_call(block: &Block) -> Option<String> {
    let BlockContent::Call(call) = &block.content else { return None };
    let function = json!({ "name": tool_name(&call.tool, MAX_TOOL_NAME_CHARS), "arguments": call.input.get() });
    let mut json = json!({ "id": call.id, "type": "function", "function": function }).to_string();
    let more = block.raw.as_deref().map(parse_fields).unwrap_or_default();
    json.pop();
    for (name, value) in more.iter().filter(|(name, _)| !["id", "type", "function", "index"].contains(&name.as_str())) {
        json.push_str(&format!(",{}:{value}", json!(name)));
    }
    Some(json + "}")
}
