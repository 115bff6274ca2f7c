//! The messages of a conversation while compaction shortens them. The result is always a conversation that
//! providers accept: it starts with a user message, no turn is split, and every call has its result.

use std::collections::{HashMap, HashSet};

use crate::attachment::Attachment;
use crate::message::{BlockContent, Message, ToolResult, UserMessage};
use crate::models::token_estimate::text_bytes;
use crate::providers::Model;
use crate::tools::toolbox::truncate_middle;

/// How many characters are left of an old result that is truncated.
pub(super) const TRUNCATED_RESULT_CHARS: usize = 400;
/// The most turns that are kept after a summary. The last turn always is.
const MAX_KEPT_TURNS: usize = 4;
/// A result is truncated only if that saves this many characters, which includes the note.
const MIN_TRUNCATED_CHARS: usize = 200;
/// The length of a call id of letters and digits that all APIs accept; Mistral's accepts no other.
const UNIVERSAL_ID_CHARS: usize = 9;
/// The note above a truncated result.
const TRUNCATION_NOTE: &str = "[shortened to make room in the conversation; if you need the rest, read it again, but don't repeat a \
                               call that changes something]";
/// The note between the prompt and the summary.
const SUMMARY_NOTE: &str = "[The conversation had to be shortened. This summary, which you wrote, replaces everything after the \
                            prompt above. It reports what was done and found and contains no new requests. Continue from \
                            here.]";

/// The note after a summary that `max_tokens` cut.
pub(super) const SUMMARY_CUT_NOTE: &str = "[The summary was cut here.]";

/// The note between a summary and the agent's plan.
pub(super) const PLAN_NOTE: &str = "[Your plan, as you last set it with `todo`:]";

/// Asks the model for a summary.
pub(super) const SUMMARY_INSTRUCTION: &str = "The conversation fills the model's window. Write a summary now, as text without tool \
    calls; it will replace everything above. You will continue from the prompt, the summary and your last steps. Keep what \
    you need for that: what was asked for, what was done and with which result, what was found (exact names, paths, numbers, \
    error messages), what was decided and why, and what is still open. Leave out what no longer matters.";

/// The messages of a conversation, oldest first.
#[derive(Debug, Default)]
pub(super) struct MessageHistory {
    /// The text of the first message.
    pub(super) prompt: String,
    pub(super) messages: Vec<Message>,
    /// Whether the model accepts its thinking only after the exact messages that it followed.
    pub(super) binds_thinking: bool,
    /// The model, which determines the size of images.
    pub(super) model: Model,
}

impl MessageHistory {
    /// The positions of the replies that start a turn. A reply that continues a paused one doesn't.
    fn turn_starts(&self) -> Vec<usize> {
        let is_user = |message: &Message| matches!(message, Message::User(_));
        let pairs = self.messages.windows(2).enumerate();
        pairs.filter(|(_, pair)| is_user(&pair[0]) && !is_user(&pair[1])).map(|(at, _)| at + 1).collect()
    }

    /// The messages before the kept turns; `None` if that leaves no turn to summarize.
    pub(super) fn messages_before(&self, kept_turns: u32) -> Option<&[Message]> {
        let turns = self.turn_starts();
        let at = turns.len().checked_sub(kept_turns.max(1) as usize).filter(|at| *at > 0)?;
        self.messages.get(..turns[at])
    }

    /// How many of the last turns can be kept after a summary, and their size in bytes: at least one turn, and more if they
    /// take no more than `most` together. `None` if no turn would be left to summarize.
    pub(super) fn turns_to_keep(&self, most: usize) -> Option<(u32, usize)> {
        let turns = self.turn_starts();
        let mut best = None;
        for kept in 1..turns.len().min(MAX_KEPT_TURNS + 1) {
            let size =
                self.messages[turns[turns.len() - kept]..].iter().map(|it| self.message_bytes(it)).sum::<usize>();
            if best.is_some() && size > most {
                break;
            }
            best = Some((u32::try_from(kept).unwrap_or(u32::MAX), size));
        }
        best
    }

    /// The old results to truncate, oldest first, until `enough` bytes are saved, and how many bytes that saves. Those of
    /// the last turn are new.
    pub(super) fn old_results_to_truncate(&self, enough: usize) -> (Vec<String>, usize) {
        let end = self.turn_starts().last().copied().unwrap_or_default();
        self.truncatable(&self.messages[..end], TRUNCATED_RESULT_CHARS, enough)
    }

    /// How short all results, new ones included, must be to save `enough` bytes: the calls, and the greatest length in
    /// characters that is less than `below`. `None` if that can't save enough.
    pub(super) fn results_to_truncate(&self, enough: usize, below: u64) -> Option<(Vec<String>, u64)> {
        let lengths = [20_000, 10_000, 5_000, 2_500, 1_200, 600, TRUNCATED_RESULT_CHARS];
        lengths.into_iter().filter(|chars| (*chars as u64) < below).find_map(|chars| {
            let (ids, saved) = self.truncatable(&self.messages, chars, usize::MAX);
            (saved >= enough && !ids.is_empty()).then_some((ids, chars as u64))
        })
    }

    /// Truncates the results of these calls, and removes their images and documents: to make room, or because they were
    /// `refused`. Returns the calls that were found.
    pub(super) fn truncate_results(&mut self, call_ids: &[String], chars: u64, refused: bool) -> Vec<String> {
        let chars = usize::try_from(chars).unwrap_or(usize::MAX);
        let call_ids: HashSet<&str> = call_ids.iter().map(String::as_str).collect();
        let mut found = Vec::new();
        let mut first_changed = None;
        for (at, message) in self.messages.iter_mut().enumerate() {
            let Message::User(message) = message else { continue };
            for result in message.results.iter_mut().filter(|result| call_ids.contains(result.call_id.as_str())) {
                let short = truncated_result(&result.text, chars);
                if short.is_some() || !result.attachments.is_empty() {
                    result.text = short.unwrap_or_else(|| std::mem::take(&mut result.text));
                    for attachment in result.attachments.drain(..) {
                        let noun = attachment.media_type.noun();
                        let why = match refused {
                            true => "because the request with it was refused: it may be damaged",
                            false => "to make room in the conversation",
                        };
                        result.text.push_str(&format!("\n[The {noun} was removed {why}.]"));
                    }
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

    /// Replaces everything before the kept turns by a summary.
    pub(super) fn replace_with_summary(&mut self, summary: &str, kept_turns: u32) {
        let cut = self.messages_before(kept_turns).map_or(0, <[Message]>::len);
        let mut first = UserMessage::text(format!("{}\n\n{SUMMARY_NOTE}\n\n{summary}", self.prompt));
        if let Some(Message::User(prompt)) = self.messages.first_mut() {
            first.attachments = std::mem::take(&mut prompt.attachments);
        }
        self.messages.splice(..cut, [Message::User(first)]);
        self.drop_thinking_after(0);
    }

    /// All images and documents.
    pub(super) fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.messages.iter().flat_map(|message| match message {
            Message::User(message) => message.attachments().collect(),
            Message::Assistant(_) => Vec::new(),
        })
    }

    /// The results that truncation makes shorter, oldest first, until `enough` bytes are saved: their calls, and how many bytes
    /// that saves. Results with images or documents come first.
    fn truncatable(&self, messages: &[Message], chars: usize, enough: usize) -> (Vec<String>, usize) {
        let results = messages.iter().flat_map(|message| match message {
            Message::User(message) => message.results.as_slice(),
            Message::Assistant(_) => &[],
        });
        let (with, without): (Vec<&ToolResult>, Vec<_>) = results.partition(|result| !result.attachments.is_empty());
        let (mut ids, mut saved) = (Vec::new(), 0);
        for ToolResult { call_id, text, attachments, .. } in with.into_iter().chain(without) {
            if saved >= enough {
                break;
            }
            let short = truncated_result(text, chars);
            if short.is_some() || !attachments.is_empty() {
                saved += short.map_or(0, |short| text.len().saturating_sub(short.len()));
                saved += attachments.iter().map(|attachment| self.attachment_bytes(attachment)).sum::<usize>();
                ids.push(call_id.clone());
            }
        }
        (ids, saved)
    }

    /// The size of an image or a document, in bytes of a text with as many tokens.
    fn attachment_bytes(&self, attachment: &Attachment) -> usize {
        text_bytes(self.model.attachment_tokens(attachment))
    }

    /// The approximate size of a message as JSON, in bytes.
    fn message_bytes(&self, message: &Message) -> usize {
        match message {
            Message::User(message) => {
                let results: usize =
                    message.results.iter().map(|result| result.text.len() + result.call_id.len()).sum();
                let attachments: usize = message.attachments().map(|it| self.attachment_bytes(it)).sum();
                results + attachments + message.text.as_ref().map_or(0, String::len)
            }
            Message::Assistant(reply) => serde_json::to_string(&reply.blocks).map_or(0, |json| json.len()),
        }
    }

    /// Changes the messages to a form that any model of any API accepts: without thinking and signatures, which only the
    /// model that wrote them accepts, and with call ids that fit all APIs. `aliases` has these by the original ids.
    pub(super) fn adapt_to_other_model(&mut self, aliases: &mut HashMap<String, String>) {
        let is_universal = |id: &str| id.len() == UNIVERSAL_ID_CHARS && id.chars().all(|c| c.is_ascii_alphanumeric());
        let replies = |messages: &[Message]| {
            let replies = messages.iter().filter_map(|message| match message {
                Message::Assistant(reply) => Some(reply.tool_calls().map(|call| call.id.clone()).collect::<Vec<_>>()),
                Message::User(_) => None,
            });
            replies.flatten().collect::<HashSet<_>>()
        };
        let taken = replies(&self.messages);
        for message in &mut self.messages {
            match message {
                Message::Assistant(reply) => {
                    reply.blocks.retain(|block| matches!(block.content, BlockContent::Text(_) | BlockContent::Call(_)));
                    for block in &mut reply.blocks {
                        block.raw = None;
                        let BlockContent::Call(call) = &mut block.content else { continue };
                        if !is_universal(&call.id) {
                            let fresh = (aliases.len() + 1..).map(|number| format!("call{number:05}"));
                            let mut fresh = fresh.filter(|id| !taken.contains(id));
                            let original = std::mem::replace(&mut call.id, fresh.next().unwrap_or_default());
                            aliases.insert(original, call.id.clone());
                        }
                    }
                }
                Message::User(message) => {
                    for result in &mut message.results {
                        if let Some(alias) = aliases.get(&result.call_id) {
                            result.call_id.clone_from(alias);
                        }
                    }
                }
            }
        }
    }

    /// Drops the thinking of all replies after a message that has changed, if the model would reject it. All of it must go,
    /// because a missing block also invalidates the blocks after it. Thinking before the change stays valid.
    fn drop_thinking_after(&mut self, changed: usize) {
        if !self.binds_thinking {
            return;
        }
        for message in self.messages.iter_mut().skip(changed) {
            if let Message::Assistant(reply) = message {
                reply.blocks.retain(|block| !matches!(block.content, BlockContent::Thinking(_)));
            }
        }
    }
}

/// A truncated result; `None` if truncation wouldn't save enough.
fn truncated_result(text: &str, chars: usize) -> Option<String> {
    text.char_indices().nth(chars.saturating_add(MIN_TRUNCATED_CHARS))?;
    let text = text.strip_prefix(TRUNCATION_NOTE).map_or(text, str::trim_start);
    Some(format!("{TRUNCATION_NOTE}\n{}", truncate_middle(text.to_owned(), chars)))
}

#[cfg(test)]
mod tests;
