//! The conversations of a server, each of which must only grow.

use serde_json::Value;

use super::Checks;
use super::answer::Answer;
use super::api::Api;
use super::history_rewrite::{HistoryRewrite, detect_rewrite};
use super::request_checks::is_thinking;

/// All conversations so far.
#[derive(Default)]
pub(super) struct Conversations {
    conversations: Vec<Conversation>,
}

struct Conversation {
    /// Model, system prompt and tools, without cache marks: a change of these loses the prompt cache.
    setup: [Value; 3],
    /// The messages of its last request, normalized and without cache marks.
    last_request: Vec<Value>,
    reply: Option<Reply>,
    /// Whether the request that is being answered isn't part of the conversation.
    is_summary_request: bool,
}

struct Reply {
    /// The part of it that can be sent back: the API accepts no blank text.
    blocks: Vec<Value>,
    may_change: bool,
    /// Whether the client must send it back as the last message.
    paused: bool,
    /// Whether the client must have received all of it.
    is_complete: bool,
    /// Whether it can be discarded because it was cut, and requested again.
    is_truncated: bool,
}

impl Conversations {
    /// Finds the conversation that a request continues, or starts one, and records the request.
    ///
    /// # Errors
    /// The reason in one sentence, if the request neither continues a conversation nor starts one.
    pub(super) fn match_request(&mut self, body: &Value, checks: Checks) -> Result<usize, String> {
        let repeats_allowed = checks == Checks::AllowRepeats;
        let setup = [&body["model"], &body["system"], &body["tools"]].map(normalized);
        let messages: Vec<Value> = body["messages"].as_array().into_iter().flatten().map(normalized).collect();
        let mut why = None;
        for (index, known) in self.conversations.iter_mut().enumerate().rev() {
            match known.continued_by(&messages, repeats_allowed) {
                Continuation::Unrelated => continue,
                Continuation::Invalid(what) => {
                    why.get_or_insert(what);
                    continue;
                }
                Continuation::Valid => {}
            }
            let [model, system, tools] = [0, 1, 2].map(|part| known.setup[part] == setup[part]);
            if !model && checks == Checks::AllowHandover {
                continue;
            }
            if messages.len() > 1 && !(model && system && tools) {
                return Err(String::from("model, system or tools changed in the middle of a conversation"));
            }
            if model && system && tools {
                known.last_request = messages;
                known.reply = None;
                return Ok(index);
            }
        }
        for (index, known) in self.conversations.iter_mut().enumerate().rev() {
            let reply = known.reply.as_ref().filter(|reply| reply.is_complete && !reply.blocks.is_empty());
            let reply = reply.map(|reply| serde_json::json!({"role": "assistant", "content": reply.blocks}));
            let goes_on = detect_rewrite(&known.last_request, reply.as_ref(), &messages).or_else(|| {
                detect_rewrite(&known.last_request, None, &messages)
                    .filter(|_| reply.is_none() || known.may_be_discarded())
            });
            match goes_on.filter(|_| known.setup == setup) {
                None => continue,
                Some(HistoryRewrite::SummaryRequest) => known.is_summary_request = true,
                Some(HistoryRewrite::Compacted) => {
                    known.last_request = messages;
                    known.reply = None;
                }
            }
            return Ok(index);
        }
        // A limit was raised: the run continues from before the final request.
        let rewound = |known: &Conversation| known.setup == setup && is_prefix(&messages, &known.last_request);
        if repeats_allowed && let Some(index) = self.conversations.iter().rposition(rewound) {
            let known = &mut self.conversations[index];
            known.last_request = messages;
            known.reply = None;
            return Ok(index);
        }
        if messages.len() > 1 && checks != Checks::AllowHandover {
            return Err(why.unwrap_or_else(|| String::from("its messages go on from no request that was seen")));
        }
        self.conversations.push(Conversation { setup, last_request: messages, reply: None, is_summary_request: false });
        Ok(self.conversations.len() - 1)
    }

    /// Records the answer of a conversation.
    pub(super) fn record_answer(&mut self, index: usize, answer: &Answer, api: Api) {
        let paused = answer.stop_reason() == "pause_turn";
        let content = api.expected_echo(answer);
        let blocks: Vec<Value> = content.iter().filter(|block| !is_blank_text(block)).map(normalized_block).collect();
        let whole = answer.is_complete();
        let short = ["max_tokens", "model_context_window_exceeded"].contains(&answer.stop_reason());
        let free = answer.may_change || (whole && blocks.is_empty());
        if let Some(conversation) = self.conversations.get_mut(index)
            && !std::mem::take(&mut conversation.is_summary_request)
        {
            conversation.reply =
                Some(Reply { blocks, may_change: free, paused, is_complete: whole, is_truncated: short });
        }
    }
}

/// Whether messages are the first of others. Of the last message, only the first blocks have to be equal.
fn is_prefix(messages: &[Value], of: &[Value]) -> bool {
    let Some((last, before)) = messages.split_last() else { return false };
    let Some(whole) = of.get(before.len()).filter(|_| of.starts_with(before)) else { return false };
    let blocks = |message: &Value| message["content"].as_array().cloned().unwrap_or_default();
    last["role"] == whole["role"] && blocks(whole).starts_with(&blocks(last))
}

enum Continuation {
    /// It is another conversation.
    Unrelated,
    Valid,
    /// It is this conversation, but not continued correctly.
    Invalid(String),
}

impl Conversation {
    fn continued_by(&self, messages: &[Value], repeats_allowed: bool) -> Continuation {
        // A paused reply continues in the same message.
        let (base, begun) = match self.last_request.split_last() {
            Some((last, base)) if last["role"] == "assistant" => (base, Some(last)),
            _ => (self.last_request.as_slice(), None),
        };
        let Some(more) = messages.strip_prefix(base) else {
            return if self.may_be_discarded() && self.has_appended_message(messages) {
                Continuation::Valid
            } else if self.shares_calls_with(messages) {
                Continuation::Invalid(String::from("it changed what it had sent before"))
            } else {
                Continuation::Unrelated
            };
        };
        let Some(said) = more.first().filter(|_| messages != self.last_request) else {
            return self.repeated_by(messages, repeats_allowed);
        };
        let Some(reply) = &self.reply else { return Continuation::Unrelated };
        let begun = begun.and_then(|message| message["content"].as_array()).into_iter().flatten();
        let expected: Vec<&Value> = begun.chain(&reply.blocks).collect();
        let came: Vec<&Value> = said["content"].as_array().into_iter().flatten().collect();
        let same_calls = ids(&reply.blocks).all(|id| ids_of(said).any(|own| own == id));
        match reply {
            _ if !same_calls && self.last_request.len() == 1 => Continuation::Unrelated,
            Reply { is_complete: false, .. } => {
                Continuation::Invalid(String::from("it goes on from an answer that it never got whole"))
            }
            Reply { paused: false, .. } if more.len() == 1 => {
                Continuation::Invalid(String::from("the last message is a reply that had ended"))
            }
            Reply { may_change: free, .. } if *free || came == expected => Continuation::Valid,
            // The API accepts no message that ends with thinking; something must follow it.
            _ if expected.last().is_some_and(|last| is_thinking(last))
                && came.split_last().is_some_and(|(last, rest)| last["type"] == "text" && rest == expected) =>
            {
                Continuation::Valid
            }
            _ if self.last_request.len() == 1 && ids(&reply.blocks).next().is_none() => Continuation::Unrelated,
            _ => Continuation::Invalid(format!("a reply came back changed: {came:?} instead of {expected:?}")),
        }
    }

    /// The same messages again: after a failure, or from another agent with the same prompt.
    fn repeated_by(&self, messages: &[Value], repeats_allowed: bool) -> Continuation {
        let twin = messages.len() == 1;
        match &self.reply {
            Some(reply) if reply.is_complete && !reply.is_truncated && !repeats_allowed => {
                if twin {
                    Continuation::Unrelated
                } else {
                    Continuation::Invalid(String::from("it asks again for what was answered whole"))
                }
            }
            None if twin => Continuation::Unrelated,
            _ => Continuation::Valid,
        }
    }

    /// Whether the client can ignore the reply.
    fn may_be_discarded(&self) -> bool {
        self.reply.as_ref().is_some_and(|reply| reply.is_truncated || !reply.is_complete)
    }

    /// Whether the messages are those of the last request with something after the last one.
    fn has_appended_message(&self, messages: &[Value]) -> bool {
        let Some(((last, base), (now, before))) = self.last_request.split_last().zip(messages.split_last()) else {
            return false;
        };
        let blocks = |message: &Value| message["content"].as_array().cloned().unwrap_or_default();
        base == before && last["role"] == "user" && now["role"] == "user" && blocks(now).starts_with(&blocks(last))
    }

    /// Whether the messages contain a call that was made in this conversation.
    fn shares_calls_with(&self, messages: &[Value]) -> bool {
        let replied = self.reply.iter().flat_map(|reply| ids(&reply.blocks));
        let call_ids = self.last_request.iter().flat_map(ids_of);
        let known: Vec<&str> = call_ids.chain(replied).collect();
        messages.iter().flat_map(ids_of).any(|id| known.contains(&id))
    }
}

fn ids_of(message: &Value) -> impl Iterator<Item = &str> {
    ids(message["content"].as_array().map(Vec::as_slice).unwrap_or_default())
}

fn ids(blocks: &[Value]) -> impl Iterator<Item = &str> {
    blocks.iter().filter(|block| block["type"] == "tool_use").filter_map(|block| block["id"].as_str())
}

/// A message, a system prompt or a list of tools without cache marks, with its text as a list of blocks.
fn normalized(value: &Value) -> Value {
    match value {
        Value::String(text) => serde_json::json!([{"type": "text", "text": text}]),
        Value::Array(blocks) => blocks.iter().map(normalized_block).collect(),
        Value::Object(message) if message.contains_key("role") => {
            serde_json::json!({"role": message["role"], "content": normalized(&value["content"])})
        }
        other => other.clone(),
    }
}

fn normalized_block(block: &Value) -> Value {
    let mut block = block.clone();
    if let Some(fields) = block.as_object_mut() {
        fields.remove("cache_control");
        if let Some(Value::Array(inner)) = fields.get("content") {
            let inner = inner.iter().map(normalized_block).collect();
            fields.insert(String::from("content"), inner);
        }
    }
    block
}

fn is_blank_text(block: &Value) -> bool {
    block["type"] == "text" && block["text"].as_str().unwrap_or_default().trim().is_empty()
}
