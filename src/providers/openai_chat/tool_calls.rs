//! The calls of a reply, put together from pieces.
//!
//! OpenAI's own streams begin each call with an index, an id and a name, and go on with pieces of its arguments under the
//! same index. Others leave out the index or the id, give every call the index 0, repeat id and name in every piece, make up
//! a new id for every piece, send ids that are numbers, or arguments as an object. What tells calls apart where all else
//! fails: a name opens a call, nothing follows a whole input, the pieces of one list are of different calls, and what says
//! nothing of where it belongs comes in the order in which the calls began.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::value::to_raw_value;

use super::reasoning::{Fields, string_value};
use crate::message::{Block, BlockContent, ToolCall};
use crate::providers::openai::tool_name;
use crate::providers::tool_input::{MAX_INPUT_BYTES, parse_input};

/// The greatest number of calls in a reply; no model makes a tenth of it.
const MAX_CALLS: usize = 1_000;

/// Calls that are being received.
#[derive(Debug, Default)]
pub(super) struct ToolCallAssembler {
    calls: Vec<PendingCall>,
    by_index: HashMap<u64, usize>,
    /// How many lists of pieces have come.
    delta_lists: usize,
    /// The names that a call can have.
    tools: Arc<[String]>,
}

#[derive(Debug, Default)]
struct PendingCall {
    id: String,
    name: String,
    /// As far as its bound and one piece beyond it.
    input: String,
    /// The first list with a piece of it, and the last.
    lists: (usize, usize),
    /// Whether the name of the call before, said once more behind its input, is all that there is to it.
    may_be_spurious: bool,
    /// What else a server says of it, such as a signature of Gemini's.
    extra_fields: Fields,
}

/// A piece of a call.
struct CallDelta {
    index: Option<u64>,
    id: String,
    name: String,
    input: String,
    extra_fields: Fields,
}

impl CallDelta {
    /// Whether it says nothing of which call it is of.
    fn is_unaddressed(&self) -> bool {
        self.index.is_none() && self.id.is_empty() && self.name.is_empty()
    }

    fn parse(mut fields: Fields) -> Self {
        let index = fields.shift_remove("index").and_then(|index| index.get().trim_matches('"').parse::<u64>().ok());
        let id = fields.shift_remove("id").map(|id| string_value(&id).unwrap_or_else(|| numeric_id(id.get())));
        let function = fields.shift_remove("function");
        let function: Fields =
            function.and_then(|function| serde_json::from_str(function.get()).ok()).unwrap_or_default();
        let name = function.get("name").and_then(|name| string_value(name));
        let input =
            function.get("arguments").map(|input| string_value(input).unwrap_or_else(|| input.get().to_owned()));
        fields.shift_remove("type");
        Self {
            index,
            id: id.unwrap_or_default(),
            name: name.unwrap_or_default(),
            input: input.filter(|input| input != "null").unwrap_or_default(),
            extra_fields: fields,
        }
    }
}

impl ToolCallAssembler {
    /// None yet, of tools with these names.
    pub(super) fn with_tools(tools: Arc<[String]>) -> Self {
        Self { tools, ..Self::default() }
    }

    /// Takes a list of pieces; returns how many bytes they say.
    ///
    /// # Errors
    /// There are too many calls, in a sentence.
    pub(super) fn push_deltas(&mut self, pieces: Vec<Fields>) -> Result<usize, String> {
        self.delta_lists += 1;
        let pieces: Vec<CallDelta> = pieces.into_iter().map(CallDelta::parse).collect();
        // Several that say nothing but inputs are of the newest calls, each at its place.
        let is_in_order = pieces.len() > 1 && pieces.iter().all(CallDelta::is_unaddressed);
        let first = self.calls.len().checked_sub(pieces.len()).filter(|_| is_in_order);
        let places = (0..pieces.len()).map(|number| first.map(|first| first + number));
        pieces.into_iter().zip(places).map(|(piece, place)| self.push_delta(piece, place)).sum()
    }

    fn push_delta(&mut self, piece: CallDelta, place: Option<usize>) -> Result<usize, String> {
        let heard = piece.name.len() + piece.input.len();
        let at = match place.or_else(|| self.find_target(&piece)) {
            Some(at) => at,
            None if self.calls.len() >= MAX_CALLS => return Err(format!("it makes more than {MAX_CALLS} calls")),
            None => {
                let is_known = piece.index.is_none_or(|index| self.by_index.contains_key(&index));
                let is_name_alone = is_known && piece.id.is_empty() && piece.input.trim().is_empty();
                let may_be_none = self.calls.last().filter(|_| is_name_alone).is_some_and(|before| {
                    before.name == piece.name && before.lists.1 < self.delta_lists && is_complete_json(&before.input)
                });
                self.calls.push(PendingCall {
                    lists: (self.delta_lists, self.delta_lists),
                    may_be_spurious: may_be_none,
                    ..PendingCall::default()
                });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at];
        call.lists.1 = self.delta_lists;
        let is_repeated = is_repeated(call, &piece);
        let CallDelta { index, id, name, input, extra_fields: more } = piece;
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
            // It stood for an input that is only coming now.
            call.input = input;
        } else if call.input.len() <= MAX_INPUT_BYTES && !is_repeated {
            call.input.push_str(&input);
        }
        call.may_be_spurious &= call.input.trim().is_empty();
        call.extra_fields.extend(more.into_iter().filter(|(_, value)| value.get() != "null"));
        Ok(heard)
    }

    /// The call that a piece belongs to; `None` where it begins one.
    fn find_target(&self, piece: &CallDelta) -> Option<usize> {
        let (has_id, has_name) = (!piece.id.is_empty(), !piece.name.is_empty());
        let last = self.calls.len().checked_sub(1);
        let by_id = || self.calls.iter().rposition(|call| has_id && call.id == piece.id);
        // Without a name it goes on with a call, whatever its id or index.
        let goes_on = |at: Option<usize>| at.filter(|_| !has_name && !piece.input.is_empty());
        let at = match piece.index.map(|index| self.by_index.get(&index).copied()) {
            Some(Some(at)) => at,
            Some(None) if has_id => goes_on(by_id())?,
            Some(None) => goes_on(last)?,
            None if has_id => by_id().or_else(|| goes_on(last))?,
            None if has_name => last?,
            None => self.awaiting_input()?,
        };
        let known = &self.calls[at];
        let is_another = if !has_name || known.name.is_empty() {
            false
        } else if known.lists.1 == self.delta_lists {
            true
        } else if has_id && !known.id.is_empty() && piece.id != known.id {
            // Where each piece has a new id, it goes on within an input.
            piece.name != known.name || is_complete_json(&known.input) || is_complete_json(&piece.input)
        } else if piece.name == known.name {
            // A name opens a call, unless it is repeated beside each piece. What is repeated behind the last one shows only
            // by what follows.
            let says_more = match piece.input.is_empty() {
                true => !has_id && !is_empty_object(&known.input),
                false => !is_repeated(known, piece),
            };
            is_complete_json(&known.input) && says_more
        } else {
            // The rest of a name comes before any input.
            let is_tool = |name: &str| self.tools.iter().any(|tool| tool == name);
            let is_rest = !is_tool(&known.name) || is_tool(&format!("{}{}", known.name, piece.name));
            !known.input.is_empty() || !is_rest
        };
        (!is_another).then_some(at)
    }

    /// The call that waits for an input that says nothing of where it belongs: the newest one, or where several began at once
    /// the first of them whose input isn't whole.
    fn awaiting_input(&self) -> Option<usize> {
        let last = self.calls.len().checked_sub(1)?;
        let newest = &self.calls[last];
        if !newest.input.is_empty() {
            return Some(last);
        }
        self.calls.iter().position(|call| call.lists.0 == newest.lists.0 && !is_complete_json(&call.input))
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether there are some, each with a whole input.
    pub(super) fn are_complete(&self) -> bool {
        !self.calls.is_empty() && self.calls.iter().all(|call| call.may_be_spurious || is_complete_json(&call.input))
    }

    /// The blocks that they have become.
    ///
    /// # Errors
    /// One can't be written as JSON, which no input leads to.
    pub(super) fn finish(self) -> Result<Vec<Block>, serde_json::Error> {
        let block = |call: PendingCall| {
            let raw =
                if call.extra_fields.is_empty() { None } else { Some(Arc::from(to_raw_value(&call.extra_fields)?)) };
            let (input, broken) = parse_input(Some(&call.input).filter(|input| !input.trim().is_empty()).map(|x| &**x));
            let call = ToolCall { id: call.id, tool: call.name, input: Arc::from(input), input_error: broken };
            Ok(Block { content: BlockContent::Call(call), raw })
        };
        self.calls.into_iter().filter(|call| !call.may_be_spurious).map(block).collect()
    }
}

/// A number as an id; nothing of anything else.
fn numeric_id(json: &str) -> String {
    if json.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') { json.to_owned() } else { String::new() }
}

fn is_complete_json(input: &str) -> bool {
    input.trim_end().ends_with('}') && serde_json::from_str::<IgnoredAny>(input).is_ok()
}

/// Whether an input is said again as a whole, after its pieces.
fn is_repeated(call: &PendingCall, piece: &CallDelta) -> bool {
    let is_same = if piece.id.is_empty() { piece.name.is_empty() } else { piece.id == call.id };
    is_same && call.input == piece.input && is_complete_json(&piece.input)
}

fn is_empty_object(input: &str) -> bool {
    input
        .trim()
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .is_some_and(|within| within.trim().is_empty())
}

#[derive(Serialize)]
struct EncodedCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: String,
    arguments: &'a str,
}

/// A call as it is sent back; `None` for any other block.
pub(super) fn encode_call(block: &Block) -> Option<Result<String, serde_json::Error>> {
    let BlockContent::Call(call) = &block.content else { return None };
    let function = Function { name: tool_name(&call.tool), arguments: call.input.get() };
    let mut json = match serde_json::to_string(&EncodedCall { id: &call.id, r#type: "function", function }) {
        Ok(json) => json,
        Err(error) => return Some(Err(error)),
    };
    let more: Fields = block.raw.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    json.pop();
    for (name, value) in more.iter().filter(|(name, _)| !["id", "type", "function", "index"].contains(&name.as_str())) {
        json.push_str(&format!(",{}:{value}", serde_json::Value::from(name.as_str())));
    }
    Some(Ok(json + "}"))
}
