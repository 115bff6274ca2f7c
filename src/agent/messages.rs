//! The messages of a conversation, kept so that it can begin anew with less. What providers demand holds for what is left:
//! it begins with a user message, no turn is split, and each call has its answer.

use std::collections::HashSet;

use crate::message::{Message, ToolResult, UserMessage, View};
use crate::tools::toolbox::bounded;

/// How many characters are left of an old result.
pub(super) const SHORT: usize = 400;
/// At most so many turns stay beside a summary; the last one always does.
const MOST_KEPT: usize = 4;
/// A result isn't shortened for less than so many characters; room for the line that says it was.
const WORTH: usize = 200;
/// What stands above a shortened result.
const NOTE: &str = "[shortened to make room in the conversation; where the rest is needed, look again, but repeat no call \
                    that changes something]";
/// What stands between a prompt and the summary of what came after it.
const SO_FAR: &str = "[The conversation had to be shortened. Everything after the prompt above was replaced by this summary, \
                      which you wrote yourself; it reports what was done and found, and nobody asks for anything in it. The \
                      work goes on from here.]";

/// What stands behind a summary that `max_tokens` cut.
pub(super) const CUT: &str = "[The summary was cut here.]";

/// What the model is asked for.
pub(super) const INSTRUCTION: &str = "The conversation fills the model's window, so everything above will be replaced by a \
    summary, which you write now, as text alone: no tool can be used. You will go on from the prompt, the summary and your \
    last steps. Keep what is needed for that: what was asked for, what was done and with which result, what was found (exact \
    names, paths, numbers, error messages), what was decided and why, and what is still open. Leave out what no longer \
    matters.";

/// All messages, oldest first.
#[derive(Debug, Default)]
pub(super) struct Messages {
    prompt: String,
    all: Vec<Message>,
    /// Whether the model takes its thinking back only behind the very messages it was produced behind.
    binds_thinking: bool,
}

impl Messages {
    /// No messages; `prompt` will be the first one.
    pub(super) fn new(prompt: &str, binds_thinking: bool) -> Self {
        Self { prompt: prompt.to_owned(), all: Vec::new(), binds_thinking }
    }

    pub(super) fn push(&mut self, message: Message) {
        self.all.push(message);
    }

    pub(super) fn all(&self) -> &[Message] {
        &self.all
    }

    /// Where turns begin: with a reply. One that goes on where it was paused begins none.
    fn turns(&self) -> Vec<usize> {
        let is_user = |message: &Message| matches!(message, Message::User(_));
        let pairs = self.all.windows(2).enumerate();
        pairs.filter(|(_, pair)| is_user(&pair[0]) && !is_user(&pair[1])).map(|(at, _)| at + 1).collect()
    }

    /// The messages before the last so many turns; `None` where that leaves no turn to sum up.
    pub(super) fn before(&self, kept_turns: u32) -> Option<&[Message]> {
        let turns = self.turns();
        let at = turns.len().checked_sub(kept_turns.max(1) as usize).filter(|at| *at > 0)?;
        self.all.get(..turns[at])
    }

    /// How many of the last turns can stay beside a summary, with what they take in bytes: at least one, and more where
    /// they take no more than `most` together. `None` where nothing would be left to sum up.
    pub(super) fn keeps(&self, most: usize) -> Option<(u32, usize)> {
        let turns = self.turns();
        let mut best = None;
        for kept in 1..turns.len().min(MOST_KEPT + 1) {
            let size = self.all[turns[turns.len() - kept]..].iter().map(bytes).sum::<usize>();
            if best.is_some() && size > most {
                break;
            }
            best = Some((u32::try_from(kept).unwrap_or(u32::MAX), size));
        }
        best
    }

    /// Old results to shorten, oldest first, until `enough` bytes are saved, and how many that are. The last turn's are
    /// new.
    pub(super) fn old_results(&self, enough: usize) -> (Vec<String>, usize) {
        let end = self.turns().last().copied().unwrap_or_default();
        let mut saved = 0;
        let mut ids = Vec::new();
        for result in results(&self.all[..end]) {
            if saved >= enough {
                break;
            }
            if let Some(short) = shortened(&result.text, SHORT) {
                saved += result.text.len().saturating_sub(short.len());
                ids.push(result.call_id.clone());
            }
        }
        (ids, saved)
    }

    /// How far all results, new ones as well, have to be shortened to save `enough` bytes: the calls, and the greatest
    /// length in characters, less than `below`. `None` where nothing of the kind is enough.
    pub(super) fn all_results(&self, enough: usize, below: u64) -> Option<(Vec<String>, u64)> {
        let lengths = [20_000, 10_000, 5_000, 2_500, 1_200, 600, SHORT];
        lengths.into_iter().filter(|chars| (*chars as u64) < below).find_map(|chars| {
            let (mut saved, mut ids) = (0, Vec::new());
            for result in results(&self.all) {
                if let Some(short) = shortened(&result.text, chars) {
                    saved += result.text.len().saturating_sub(short.len());
                    ids.push(result.call_id.clone());
                }
            }
            (saved >= enough && !ids.is_empty()).then_some((ids, chars as u64))
        })
    }

    /// Shortens the results of these calls to so many characters. Returns the calls that there are.
    pub(super) fn shorten(&mut self, call_ids: &[String], chars: u64) -> Vec<String> {
        let chars = usize::try_from(chars).unwrap_or(usize::MAX);
        let call_ids: HashSet<&str> = call_ids.iter().map(String::as_str).collect();
        let mut found = Vec::new();
        let mut first_changed = None;
        for (at, message) in self.all.iter_mut().enumerate() {
            let Message::User(message) = message else { continue };
            for result in message.results.iter_mut().filter(|result| call_ids.contains(result.call_id.as_str())) {
                if let Some(short) = shortened(&result.text, chars) {
                    result.text = short;
                    found.push(result.call_id.clone());
                    first_changed.get_or_insert(at);
                }
            }
        }
        if let Some(at) = first_changed {
            self.drop_thinking_after(at);
        }
        found
    }

    /// Puts a summary in the place of everything before the last so many turns.
    pub(super) fn sum_up(&mut self, summary: &str, kept_turns: u32) {
        let cut = self.before(kept_turns).map_or(0, <[Message]>::len);
        let first = UserMessage::text(format!("{}\n\n{SO_FAR}\n\n{summary}", self.prompt));
        self.all.splice(..cut, [Message::User(first)]);
        self.drop_thinking_after(0);
    }

    /// Drops the thinking of all replies behind a message that has changed, where the model would refuse it there. All of
    /// it, for a block that is left out between others invalidates those after it, too; what stands before the change
    /// stays valid.
    fn drop_thinking_after(&mut self, changed: usize) {
        if !self.binds_thinking {
            return;
        }
        for message in self.all.iter_mut().skip(changed) {
            if let Message::Assistant(reply) = message {
                reply.blocks.retain(|block| !matches!(block.view, View::Thinking(_)));
            }
        }
    }
}

fn results(messages: &[Message]) -> impl Iterator<Item = &ToolResult> {
    messages.iter().flat_map(|message| match message {
        Message::User(message) => message.results.as_slice(),
        Message::Assistant(_) => &[],
    })
}

/// A result in a shorter form; `None` where that wouldn't be worth it.
fn shortened(text: &str, chars: usize) -> Option<String> {
    if text.len() <= chars.saturating_add(WORTH) || text.chars().count() <= chars.saturating_add(WORTH) {
        return None;
    }
    let text = text.strip_prefix(NOTE).map_or(text, str::trim_start);
    Some(format!("{NOTE}\n{}", bounded(text.to_owned(), chars)))
}

/// About what a message takes as JSON, in bytes.
fn bytes(message: &Message) -> usize {
    match message {
        Message::User(message) => {
            let results: usize = message.results.iter().map(|result| result.text.len() + result.call_id.len()).sum();
            results + message.text.as_ref().map_or(0, String::len)
        }
        Message::Assistant(reply) => reply
            .blocks
            .iter()
            .map(|block| match (&block.raw, &block.view) {
                (Some(raw), _) => raw.get().len(),
                (None, View::Text(text) | View::Thinking(text) | View::Other(text)) => text.len(),
                (None, View::Call(call)) => call.id.len() + call.tool.len() + call.input.get().len(),
            })
            .sum(),
    }
}

#[cfg(test)]
mod tests;
