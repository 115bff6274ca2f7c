//! Conversations that start again with less: results truncated in place, a summary requested, a summary in place of
//! earlier messages. Nothing else may change what was sent.

use serde_json::Value;

use super::request_checks::is_thinking;

/// The note in a truncated result.
const TRUNCATION_NOTE: &str = "[shortened to make room";
/// The note in a result without its image.
const REMOVED_IMAGE_NOTE: &str = " was removed ";
/// The end of a request for a summary.
const SUMMARY_REQUEST_TEXT: &str = "fills the model's window";
/// The text between a prompt and a summary.
const SUMMARY_NOTE: &str = "This summary, which you wrote";

/// How a request continues a conversation, other than by appending to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HistoryRewrite {
    /// It requests a summary: the conversation itself continues from where it was.
    SummaryRequest,
    /// It continues with less.
    Compacted,
}

/// How messages continue those of a request and the reply to it with less, if they do. All are normalized.
pub(super) fn detect_rewrite(asked: &[Value], reply: Option<&Value>, messages: &[Value]) -> Option<HistoryRewrite> {
    let [.., last] = messages else { return None };
    if let Some((remark, before)) = blocks(last).split_last()
        && text(remark).contains(SUMMARY_REQUEST_TEXT)
        && asked.len() >= messages.len()
    {
        let place = messages.len() - 1;
        let fits = asked.iter().zip(&messages[..place]).all(|(then, now)| is_same_or_truncated(then, now));
        let same = before.len() == blocks(&asked[place]).len() && are_same_or_truncated(blocks(&asked[place]), before);
        return (fits && same).then_some(HistoryRewrite::SummaryRequest);
    }
    // Rejected, or answered and continued with one more message.
    let whole: Vec<&Value> = asked.iter().chain(reply).collect();
    let more = &messages[..messages.len() - usize::from(reply.is_some())];
    let (first, rest) = more.split_first()?;
    let tail = whole.get(whole.len().checked_sub(rest.len())?..)?;
    let begun = is_same_or_truncated(whole.first()?, first) && whole.len() == more.len();
    let summed_up = {
        let (prompt, now) = (all_text(whole.first()?), all_text(first));
        let prompt = prompt.split_once("\n\n[The conversation had to be").map_or(prompt.as_str(), |(prompt, _)| prompt);
        now.starts_with(prompt) && now.contains(SUMMARY_NOTE) && !rest.is_empty() && rest[0]["role"] == "assistant"
    };
    let pairs = || rest.iter().zip(tail.iter().copied()).chain(begun.then_some((first, whole[0])));
    let fits = pairs().all(|(now, then)| is_same_or_truncated(then, now));
    // Thinking is left out if what precedes it has changed, or if the server has rejected it.
    let may_lack_thinking =
        summed_up || reply.is_none() || pairs().any(|(now, then)| without_thinking(then) != without_thinking(now));
    let keeps_thinking = || pairs().all(|(now, then)| blocks(then).len() == blocks(now).len());
    ((begun || summed_up) && fits && (may_lack_thinking || keeps_thinking())).then_some(HistoryRewrite::Compacted)
}

fn blocks(message: &Value) -> &[Value] {
    message["content"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(block: &Value) -> &str {
    block["text"].as_str().unwrap_or_default()
}

fn all_text(value: &Value) -> String {
    match &value["content"] {
        Value::String(text) => text.clone(),
        _ => blocks(value).iter().map(text).collect(),
    }
}

/// The content of a message without thinking.
fn without_thinking(message: &Value) -> Vec<Value> {
    blocks(message).iter().filter(|block| !is_thinking(block)).cloned().collect()
}

/// Whether a message is the same, except for truncated results and thinking, which can be left out. Thinking that was
/// left out because a server rejected it returns when the conversation starts again.
fn is_same_or_truncated(then: &Value, now: &Value) -> bool {
    let (then_spoken, now_spoken) = (without_thinking(then), without_thinking(now));
    let are_same = then_spoken.len() == now_spoken.len() && are_same_or_truncated(&then_spoken, &now_spoken);
    then["role"] == now["role"] && are_same
}

fn are_same_or_truncated(then: &[Value], now: &[Value]) -> bool {
    then.iter().zip(now).all(|(then, now)| {
        let is_result = then["type"] == "tool_result" && then["tool_use_id"] == now["tool_use_id"];
        let (before, after) = (all_text(then), all_text(now));
        let has_lost_images = after.contains(REMOVED_IMAGE_NOTE) && blocks(then).len() > blocks(now).len();
        let is_shorter = after.contains(TRUNCATION_NOTE) && after.len() < before.len();
        then == now || (is_result && (has_lost_images || is_shorter))
    })
}
