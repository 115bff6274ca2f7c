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
    // Magistral.
    ("[THINK]", "[/THINK]"),
    // Seed-OSS.
    ("<seed:think>", "</seed:think>"),
    // Kimi-VL.
    ("◁think▷", "◁/think▷"),
];

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
    let thoughts = (!thoughts.is_empty()).then(|| Block::from(BlockContent::Thinking(thoughts.to_owned())));
    blocks.splice(at..=at, thoughts.into_iter().chain(answer));
}

/// The thoughts at the start of a text, and the rest. `is_cut`: whether the reply was cut, perhaps while the model thought.
fn split(text: &str, is_cut: bool) -> Option<(&str, &str)> {
    let start = text.trim_start();
    for (open, close) in TAGS {
        if let Some(rest) = start.strip_prefix(open) {
            let (thoughts, answer) = rest.split_once(close).or(is_cut.then_some((rest, "")))?;
            return Some((thoughts.trim(), answer.trim_start()));
        }
    }
    // The templates of some models write the first tag into the prompt, so that only the second one is in the reply.
    let (open, close) = TAGS[0];
    let (thoughts, answer) = text.split_once(&format!("\n{close}\n"))?;
    let is_in_code = thoughts.lines().filter(|line| line.trim_start().starts_with("```")).count() % 2 == 1;
    (!is_in_code && !text.contains(open) && !answer.contains(close)).then(|| (thoughts.trim(), answer.trim_start()))
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
            ("<think> has no end", None),
            ("Such a template has:\n```\na\n</think>\nb\n```", None),
            ("Text\n</think>\nmore\n</think>", None),
            ("It ends with </think>\nhere", None),
            ("", None),
        ] {
            assert_eq!(split(text, false), expected, "{text:?}");
        }
        assert_eq!(split("<think>\nI was", true), Some(("I was", "")));
        assert_eq!(split("An answer that was", true), None);
    }
}
