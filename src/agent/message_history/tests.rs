use std::sync::Arc;

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;
use crate::message::{Reply, StopReason, ToolCall, Usage};

/// The shape of a conversation, turn by turn: the lengths of its calls' results, whether the reply was paused before,
/// and whether a note follows the results.
type Turn = (Vec<usize>, bool, bool);

fn reply(blocks: Vec<BlockContent>) -> Message {
    let blocks = blocks.into_iter().map(Into::into).collect();
    Message::Assistant(Reply {
        blocks,
        stop: StopReason::EndTurn,
        usage: Usage::default(),
        model: None,
        request_id: None,
    })
}

fn conversation(turns: &[Turn]) -> MessageHistory {
    let mut messages = MessageHistory { prompt: "Go.".to_owned(), ..MessageHistory::default() };
    messages.messages.push(Message::User(UserMessage::text("Go.")));
    let mut number = 0;
    for (lengths, paused, remark) in turns {
        if *paused {
            messages.messages.push(reply(vec![BlockContent::Text("I begin.".to_owned())]));
        }
        let mut calls = vec![BlockContent::Text("I go on.".to_owned())];
        let mut results = Vec::new();
        for length in lengths {
            number += 1;
            let (id, input) = (format!("call-{number}"), RawValue::from_string("{}".to_owned()).unwrap());
            results.push(ToolResult {
                call_id: id.clone(),
                text: "ä".repeat(*length),
                is_error: length % 2 == 0,
                ..ToolResult::default()
            });
            let input = Arc::from(input);
            calls.push(BlockContent::Call(ToolCall { id, tool: "bash".to_owned(), input, input_error: None }));
        }
        messages.messages.push(reply(calls));
        let text = (*remark || lengths.is_empty()).then(|| "Go on.".to_owned());
        messages.messages.push(Message::User(UserMessage { results, text, ..UserMessage::default() }));
        if *remark {
            messages.messages.push(Message::User(UserMessage::text("It ends here.")));
        }
    }
    messages
}

/// Checks what providers require of a conversation.
fn holds(messages: &[Message]) {
    assert!(matches!(messages.first(), Some(Message::User(first)) if first.results.is_empty()));
    let mut open: Vec<String> = Vec::new();
    for message in messages {
        match message {
            Message::User(message) => {
                let answered: Vec<String> = message.results.iter().map(|result| result.call_id.clone()).collect();
                assert_eq!(answered, open, "every call has its answer right behind it");
                open.clear();
                assert!(!message.results.is_empty() || message.text.is_some());
            }
            Message::Assistant(reply) => {
                assert!(open.is_empty());
                open = reply.tool_calls().map(|call| call.id.clone()).collect();
            }
        }
    }
    assert!(open.is_empty());
}

fn shown(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|message| format!("{message:?}")).collect()
}

fn size(messages: &MessageHistory) -> usize {
    messages.messages.iter().map(|message| messages.message_bytes(message)).sum()
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let lengths = prop::collection::vec(0..3_000_usize, 0..4);
    prop::collection::vec((lengths, any::<bool>(), any::<bool>()), 0..12)
}

proptest! {
    #[test]
    fn compaction_leaves_a_valid_conversation(turns in turns(), enough in 0..20_000_usize, kept in 0..14_u32, most in 0..9_000_usize) {
        let whole = conversation(&turns);
        holds(&whole.messages);
        prop_assert_eq!(whole.turn_starts().len(), turns.len());

        let mut short = conversation(&turns);
        let (ids, saved) = short.old_results_to_truncate(enough);
        let last = whole.turn_starts().last().copied().unwrap_or_default();
        prop_assert_eq!(&short.truncate_results(&ids, TRUNCATED_RESULT_CHARS as u64, false), &ids);
        holds(&short.messages);
        prop_assert_eq!(size(&whole) - size(&short), saved);
        prop_assert_eq!(shown(&whole.messages[last..]), shown(&short.messages[last..]), "the last turn stays whole");
        prop_assert!(short.truncate_results(&ids, TRUNCATED_RESULT_CHARS as u64, false).is_empty(), "a second time changes nothing");
        prop_assert!(saved >= enough || short.old_results_to_truncate(usize::MAX).0.is_empty(), "all that can be saved is");

        if let Some((kept, bytes_kept)) = whole.turns_to_keep(most) {
            prop_assert!(kept == 1 || bytes_kept <= most);
            prop_assert!(whole.messages_before(kept).is_some());
        } else {
            prop_assert!(turns.len() < 2);
        }
        if let Some(before) = whole.messages_before(kept) {
            holds(before);
            prop_assert!(matches!(before.last(), Some(Message::User(_))), "a remark goes behind it");
            let kept = kept.max(1);
            let mut summed = conversation(&turns);
            summed.replace_with_summary("So far.", kept);
            holds(&summed.messages);
            prop_assert_eq!(summed.turn_starts().len(), kept as usize);
            let rest = summed.messages.len() - 1;
            prop_assert_eq!(shown(&summed.messages[1..]), shown(&whole.messages[whole.messages.len() - rest..]));
            // Summarize again, including the first summary.
            if kept > 1 {
                summed.replace_with_summary("And so on.", 1);
                holds(&summed.messages);
                let Message::User(first) = &summed.messages[0] else { unreachable!() };
                let text = first.text.clone().unwrap();
                prop_assert!(text.starts_with("Go.\n\n[") && text.ends_with("\n\nAnd so on.") && !text.contains("So far."));
            }
        } else {
            prop_assert!(turns.len() <= kept.max(1) as usize);
        }
        let mut squeezed = conversation(&turns);
        if let Some((ids, chars)) = whole.results_to_truncate(enough, u64::MAX) {
            squeezed.truncate_results(&ids, chars, false);
            holds(&squeezed.messages);
            prop_assert!(size(&whole) - size(&squeezed) >= enough);
            // Truncate again, to a smaller length.
            if let Some((ids, less)) = squeezed.results_to_truncate(1, chars) {
                prop_assert!(less < chars);
                squeezed.truncate_results(&ids, less, false);
                holds(&squeezed.messages);
            }
        }
    }
}

#[test]
fn a_truncated_result_has_a_note_and_keeps_both_ends() {
    let text = format!("begin {} end", "x".repeat(2_000));
    let once = truncated_result(&text, 1_000).unwrap();
    assert!(
        once.starts_with(&format!("{TRUNCATION_NOTE}\nbegin x")) && once.ends_with("x end") && once.len() < 1_200,
        "{once}"
    );
    let twice = truncated_result(&once, TRUNCATED_RESULT_CHARS).unwrap();
    assert_eq!(twice.matches(TRUNCATION_NOTE).count(), 1);
    assert!(twice.len() < 600 && twice.ends_with(" end"), "{twice}");
    assert_eq!(
        truncated_result(&"x".repeat(TRUNCATED_RESULT_CHARS + MIN_TRUNCATED_CHARS), TRUNCATED_RESULT_CHARS),
        None
    );
}
