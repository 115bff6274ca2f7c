//! The calls of a reply, put together from pieces.
//!
//! OpenAI's own streams begin each call with an index, an id and a name, and go on with pieces of its arguments under the
//! same index. Others leave out the index or the id, give every call the index 0, repeat id and name in every piece, send
//! ids that are numbers, or arguments as an object.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::value::to_raw_value;

use super::thoughts::{Fields, text};
use crate::message::{Block, ToolCall, View};
use crate::providers::input::{LONGEST_INPUT, read_input};
use crate::providers::openai::tool_name;

/// The greatest number of calls in a reply; no model makes a tenth of it.
const MOST_CALLS: usize = 1_000;

/// Calls that are being received.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Growing>,
    by_index: HashMap<u64, usize>,
}

#[derive(Debug, Default)]
struct Growing {
    id: String,
    name: String,
    /// As far as its bound and one piece beyond it.
    input: String,
    /// What else a server says of it, such as a signature of Gemini's.
    more: Fields,
}

impl Calls {
    /// Takes a piece of a call; returns how many bytes it says.
    ///
    /// # Errors
    /// There are too many calls, in a sentence.
    pub(super) fn grow(&mut self, mut piece: Fields) -> Result<usize, String> {
        let index = piece.shift_remove("index").and_then(|index| index.get().parse::<u64>().ok());
        let id = piece.shift_remove("id").map(|id| text(&id).unwrap_or_else(|| number(id.get())));
        let id = id.unwrap_or_default();
        let function = piece.shift_remove("function");
        let function: Fields =
            function.and_then(|function| serde_json::from_str(function.get()).ok()).unwrap_or_default();
        let name = function.get("name").and_then(|name| text(name)).unwrap_or_default();
        let input = function.get("arguments").map(|input| text(input).unwrap_or_else(|| input.get().to_owned()));
        let input = input.filter(|input| input != "null").unwrap_or_default();
        piece.shift_remove("type");

        let at = match self.find(index, &id, &name, &input) {
            Some(at) => at,
            None if self.calls.len() >= MOST_CALLS => return Err(format!("it makes more than {MOST_CALLS} calls")),
            None => {
                self.calls.push(Growing::default());
                self.calls.len() - 1
            }
        };
        if let Some(index) = index {
            self.by_index.insert(index, at);
        }
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id = id;
        }
        if call.name != name {
            call.name.push_str(&name);
        }
        if call.input.len() <= LONGEST_INPUT {
            call.input.push_str(&input);
        }
        call.more.extend(piece.into_iter().filter(|(_, value)| value.get() != "null"));
        Ok(name.len() + input.len())
    }

    /// The call that a piece belongs to; `None` where it begins one.
    fn find(&self, index: Option<u64>, id: &str, name: &str, input: &str) -> Option<usize> {
        let at = match index {
            Some(index) => *self.by_index.get(&index)?,
            None if !id.is_empty() => return self.calls.iter().rposition(|call| call.id == id),
            None => self.calls.len().checked_sub(1)?,
        };
        let known = &self.calls[at];
        let is_another = if !id.is_empty() && !known.id.is_empty() {
            id != known.id
        } else {
            // A name opens a call, unless it is repeated beside each piece.
            !name.is_empty() && !known.name.is_empty() && !input.is_empty() && is_whole(&known.input)
        };
        (!is_another).then_some(at)
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The blocks that they have become.
    ///
    /// # Errors
    /// One can't be written as JSON, which no input leads to.
    pub(super) fn finish(self) -> Result<Vec<Block>, serde_json::Error> {
        let block = |call: Growing| {
            let raw = if call.more.is_empty() { None } else { Some(Arc::from(to_raw_value(&call.more)?)) };
            let (input, broken) = read_input(Some(&call.input).filter(|input| !input.trim().is_empty()).map(|x| &**x));
            let call = ToolCall { id: call.id, tool: call.name, input: Arc::from(input), broken };
            Ok(Block { view: View::Call(call), raw })
        };
        self.calls.into_iter().map(block).collect()
    }
}

/// A number as an id; nothing of anything else.
fn number(json: &str) -> String {
    if json.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') { json.to_owned() } else { String::new() }
}

fn is_whole(input: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(input).is_ok()
}

#[derive(Serialize)]
struct Written<'a> {
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
pub(super) fn write(block: &Block) -> Option<Result<String, serde_json::Error>> {
    let View::Call(call) = &block.view else { return None };
    let function = Function { name: tool_name(&call.tool), arguments: call.input.get() };
    let mut json = match serde_json::to_string(&Written { id: &call.id, r#type: "function", function }) {
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
