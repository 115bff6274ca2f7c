//! Thoughts that a server leaves in the text of a reply, because it doesn't separate the reasoning of its model.

use crate::message::{Block, BlockContent, StopReason};

/// What models write before and after their thoughts.
const TAGS: &[(&str, &str)] = &[
    // DeepSeek, Qwen and most others.
    ("<think>", "</think>"),
    // Amazon Nova.
    ("<thinking>", "</thinking>"),
    // Gemini in the Chat Completions format.
    ("<thought>", "</thought>"),
    ("<thoughts>", "</thoughts>"),
    // Models that are told to reason, or were trained on such texts.
    ("<reasoning>", "</reasoning>"),
    ("<reason>", "</reason>"),
    ("<reflection>", "</reflection>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    // Command.
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    // LongCat and MiniMax.
    ("<longcat_think>", "</longcat_think>"),
    ("<mm:think>", "</mm:think>"),
    // gpt-oss, where the server doesn't parse channels.
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    // Magistral.
    ("[THINK]", "[/THINK]"),
    // Seed-OSS.
    ("<seed:think>", "</seed:think>"),
    // Kimi-VL.
    ("◁think▷", "◁/think▷"),
];

/// How many thoughts one after the other are separated.
const MAX_THOUGHTS: usize = 16;

/// Makes thoughts at the start of a reply's text a block of their own, which isn't sent back.
pub(crate) fn separate(blocks: &mut Vec<Block>, stop: &StopReason) {
    let text = |block: &Block| match &block.content {
        BlockContent::Text(text) if !text.trim().is_empty() => Some(text.clone()),
        _ => None,
    };
    let Some((at, text)) = blocks.iter().enumerate().find_map(|(at, block)| Some((at, text(block)?))) else { return };
    let is_cut = matches!(stop, StopReason::MaxTokens | StopReason::ContextFull);
    let Some((thoughts, answer)) = split(&text, is_cut) else { return };
    let answer = (!answer.is_empty()).then(|| Block::from(BlockContent::Text(answer.to_owned())));
    let thoughts = (!thoughts.is_empty()).then(|| Block::from(BlockContent::Thinking(thoughts)));
    blocks.splice(at..=at, thoughts.into_iter().chain(answer));
}

/// The thoughts at the start of a text, and the rest. `is_cut`: whether the reply was cut, perhaps while the model thought.
fn split(text: &str, is_cut: bool) -> Option<(String, &str)> {
    let mut thoughts = Vec::new();
    let mut rest = text;
    // Some models think again before they answer.
    while thoughts.len() < MAX_THOUGHTS
        && let Some((thought, answer)) = split_tagged(rest, is_cut)
    {
        thoughts.push(thought);
        rest = answer;
    }
    if thoughts.is_empty() {
        let (thought, answer) = split_unopened(text)?;
        return Some((thought.to_owned(), answer));
    }
    thoughts.retain(|thought| !thought.is_empty());
    Some((thoughts.join("\n\n"), rest))
}

/// The thoughts between the tags at the start of a text, and the rest.
fn split_tagged(text: &str, is_cut: bool) -> Option<(&str, &str)> {
    let start = text.trim_start();
    TAGS.iter().find_map(|(open, close)| {
        let rest = strip_tag(start, open)?;
        Some(match find_tag(rest, close) {
            Some(at) => (rest[..at].trim(), rest[at + close.len()..].trim_start()),
            None if is_cut => (rest.trim(), ""),
            // Where the thoughts end isn't known, and the answer may be in what follows.
            None => ("", rest.trim_start()),
        })
    })
}

/// The templates of some models write the first tag into the prompt, so that only the second one is in the reply.
fn split_unopened(text: &str) -> Option<(&str, &str)> {
    TAGS.iter().find_map(|(open, close)| {
        let at = find_tag(text, close)?;
        let (thoughts, answer) = (&text[..at], &text[at + close.len()..]);
        // A text that mentions the tag has it in a sentence.
        let ends_line = answer.is_empty() || answer.starts_with(['\n', '\r']);
        let is_own_line = thoughts.ends_with('\n') || thoughts.is_empty();
        let ends_paragraph = thoughts.ends_with(['.', '!', '?', ')', ':']) && answer.starts_with("\n\n");
        let is_in_code = thoughts.lines().filter(|line| line.trim_start().starts_with("```")).count() % 2 == 1;
        let is_tag = ends_line && (is_own_line || ends_paragraph) && !is_in_code;
        let is_alone = find_tag(text, open).is_none() && find_tag(answer, close).is_none();
        (is_tag && is_alone).then(|| (thoughts.trim(), answer.trim_start()))
    })
}

/// The text after a tag, which models write in any case.
fn strip_tag<'t>(text: &'t str, tag: &str) -> Option<&'t str> {
    let start = text.get(..tag.len())?;
    start.eq_ignore_ascii_case(tag).then(|| &text[tag.len()..])
}

/// Where a tag is, in any case.
fn find_tag(text: &str, tag: &str) -> Option<usize> {
    let first = tag.chars().next()?;
    text.match_indices(first).map(|(at, _)| at).find(|at| strip_tag(&text[*at..], tag).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_thoughts_at_the_start_are_separated() {
        for (text, expected) in [
            ("<think>\nI say 42.\n</think>\n\nThe answer is 42.", Some(("I say 42.", "The answer is 42."))),
            ("\n <think>a</think>b", Some(("a", "b"))),
            ("<think>\n\n</think>\n\nb </think> c", Some(("", "b </think> c"))),
            ("<thinking>a</thinking>\n", Some(("a", ""))),
            ("[THINK]a[/THINK]b", Some(("a", "b"))),
            ("Okay, so I look.\n</think>\n\nb", Some(("Okay, so I look.", "b"))),
            ("A model writes <think>a</think> first.", None),
            ("<think> has no end", Some(("", "has no end"))),
            ("<think>a</think>\n<think>b</think>\nc", Some(("a\n\nb", "c"))),
            ("<Think>a</THINK>b", Some(("a", "b"))),
            ("<reasoning>a</reasoning>b", Some(("a", "b"))),
            ("\u{25c1}think\u{25b7}a\u{25c1}/think\u{25b7}b", Some(("a", "b"))),
            ("I look.</think>\n\nb", Some(("I look.", "b"))),
            ("I look.\n</thinking>\n\nb", Some(("I look.", "b"))),
            ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", Some(("a", "b"))),
            ("Such a template has:\n```\na\n</think>\nb\n```", None),
            ("Text\n</think>\nmore\n</think>", None),
            ("It ends with </think>\nhere", None),
            ("", None),
        ] {
            let found = split(text, false);
            assert_eq!(found.as_ref().map(|(thoughts, answer)| (thoughts.as_str(), *answer)), expected, "{text:?}");
        }
        assert_eq!(split("<think>\nI was", true), Some(("I was".to_owned(), "")));
        assert_eq!(split("An answer that was", true), None);
    }
}
