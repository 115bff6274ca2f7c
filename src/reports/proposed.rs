//! What a run proposes to do outside, and what was refused, in words. The transcript, `show`, the report and the step summary say
//! the same about it, and so does `legwork publish` about each text.

use super::display::code_fence;
use crate::event::{PARENT, ProposedOutputs, RefusedOutput};
use crate::outputs::{OUTPUTS_FILE, Preview, PreviewPart};
use crate::text::sanitize::{self, escape_markdown};
use crate::text::{pluralize, truncate};

/// The most outputs, and the most refused calls, that are shown. `outputs.json` has the rest.
pub(super) const MAX_SHOWN: usize = 100;
/// The most characters of a line in Markdown.
const MAX_LINE_CHARS: usize = 1_000;

/// An output that a run proposes.
pub(super) struct ProposedView<'a> {
    /// Its id in the run.
    pub(super) id: &'a str,
    /// What it does.
    pub(super) preview: Preview,
}

/// The title of the section.
pub(super) fn title(proposed: &ProposedOutputs) -> &'static str {
    if proposed.is_final { "Proposed" } else { "Proposed so far" }
}

/// The outputs that are shown, and how many more there are.
pub(super) fn views(proposed: &ProposedOutputs) -> (Vec<ProposedView<'_>>, u64) {
    let number = proposed.allowed.trigger.as_ref().and_then(|trigger| trigger.number);
    let entries = &proposed.calls.accepted.entries;
    let view =
        |entry: &'_ _| Preview::of(entry, proposed.allowed.allowed.get(&entry.name), number, proposed.changed_files);
    let views = entries.iter().take(MAX_SHOWN).map(|entry| ProposedView { id: &entry.id, preview: view(entry) });
    (views.collect(), entries.len().saturating_sub(MAX_SHOWN) as u64)
}

/// The title of a refused call: the output, and the agent if it isn't the parent.
pub(super) fn refused_title(refused: &RefusedOutput) -> String {
    match refused.agent.as_str() {
        PARENT => format!("refused: {}", refused.name),
        agent => format!("refused: {} of {agent}", refused.name),
    }
}

/// A line for each output and each refused call, for machines that show lines.
pub(super) fn lines(proposed: &ProposedOutputs) -> String {
    let (views, more) = views(proposed);
    let nothing = proposed.calls.accepted.nothing_to_do.iter().map(|reason| format!("nothing to do: {reason}"));
    let outputs = views.iter().map(|view| format!("proposed: {}: {}", view.id, view.preview.title));
    let more_outputs = (more > 0).then(|| format!("and {} in {OUTPUTS_FILE}", pluralize(more, "more output")));
    let refused = proposed.calls.refused.iter().map(|refused| format!("{}: {}", refused_title(refused), refused.why));
    let more_refused =
        (more_refused(proposed) > 0).then(|| format!("and {}", pluralize(more_refused(proposed), "more refused call")));
    let lines = nothing.chain(outputs).chain(more_outputs).chain(refused).chain(more_refused);
    lines.map(|line| sanitize::line(&truncate::ellipsize(&line, MAX_LINE_CHARS)) + "\n").collect()
}

/// How many refused calls aren't listed.
pub(super) fn more_refused(proposed: &ProposedOutputs) -> u64 {
    proposed.calls.refused_calls.saturating_sub(proposed.calls.refused.len() as u64)
}

/// Appends the section to a page of Markdown, at most `max_chars` characters of texts in all.
pub(super) fn append(page: &mut String, proposed: &ProposedOutputs, max_chars: usize) {
    let calls = &proposed.calls;
    if calls.is_empty() && !proposed.is_final {
        return;
    }
    *page += &format!("\n{}:\n\n", title(proposed));
    let mut left = max_chars;
    if let Some(reason) = &calls.accepted.nothing_to_do {
        *page += &format!("- nothing to do: {}\n", escape_markdown(reason, MAX_LINE_CHARS));
    } else if calls.accepted.entries.is_empty() {
        *page += "- nothing\n";
    }
    let (views, mut more) = views(proposed);
    for view in views {
        if left == 0 {
            more += 1;
            continue;
        }
        let title = escape_markdown(&view.preview.title, MAX_LINE_CHARS);
        *page += &format!("- {}: {title}\n", escape_markdown(view.id, MAX_LINE_CHARS));
        append_parts(page, &view.preview.parts, &mut left);
    }
    if more > 0 {
        *page += &format!("- and {} in outputs\\.json\n", pluralize(more, "more output"));
    }
    for refused in &calls.refused {
        if left == 0 {
            *page += "- and more refused calls\n";
            return;
        }
        let why = escape_markdown(truncate::first(&refused.why, left), MAX_LINE_CHARS);
        left = left.saturating_sub(why.chars().count());
        *page += &format!("- **{}**: {why}\n", escape_markdown(&refused_title(refused), MAX_LINE_CHARS));
    }
    if more_refused(proposed) > 0 {
        *page += &format!("- and {}\n", pluralize(more_refused(proposed), "more refused call"));
    }
}

/// Appends the texts of an output to a page of Markdown, each in a fence that it can't end. `left` is how many characters of
/// texts the page still takes.
pub(crate) fn append_parts(page: &mut String, parts: &[PreviewPart], left: &mut usize) {
    for part in parts {
        match part {
            PreviewPart::Line(line) => *page += &format!("\n{}\n", escape_markdown(line, MAX_LINE_CHARS)),
            PreviewPart::Markdown(text) | PreviewPart::Plain(text) => {
                let text = sanitize::text(text);
                let shown = truncate::first(&text, *left);
                *left -= shown.chars().count();
                *page += &format!("\n{}\n", fenced(shown));
                let more = text[shown.len()..].chars().count();
                if more > 0 {
                    *page += &format!("\n{} in outputs\\.json\n", pluralize(more as u64, "more character"));
                }
            }
        }
    }
    if !parts.is_empty() {
        page.push('\n');
    }
}

/// A text in a fence that is longer than any in it.
pub(crate) fn fenced(text: &str) -> String {
    let fence = code_fence(text);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::OutputCalls;
    use crate::outputs::{Accepted, Entry, Kind, KindName, Output, Outputs};

    fn proposed(bodies: &[String]) -> ProposedOutputs {
        let output = Output {
            target: None,
            max: 200,
            on_checks_failed: false,
            kind: Kind::Comment { update: false, closes: false },
        };
        let entry = |(number, body): (usize, &String)| Entry {
            id: format!("comment-{}", number + 1),
            name: "comment".to_owned(),
            kind: KindName::Comment,
            key: None,
            target: Some(3),
            data: json!({ "body": body }),
            agent: PARENT.to_owned(),
            call_id: "c".to_owned(),
        };
        let entries = bodies.iter().enumerate().map(entry).collect();
        let refused = RefusedOutput { agent: "a-1".into(), name: "comment".into(), why: "`body`: <b> @x".into() };
        ProposedOutputs {
            allowed: Outputs { allowed: [("comment".to_owned(), output)].into_iter().collect(), ..Outputs::default() },
            calls: OutputCalls {
                accepted: Accepted { entries, nothing_to_do: None },
                refused: vec![refused; 2],
                refused_calls: 5,
            },
            changed_files: 0,
            is_final: true,
        }
    }

    #[test]
    fn a_fence_is_longer_than_any_in_the_text() {
        assert_eq!(fenced("a"), "```\na\n```");
        assert_eq!(fenced("````\nx\n````\n"), "`````\n````\nx\n````\n`````");
    }

    #[test]
    fn the_section_is_inert_and_bounded() {
        let mut page = String::new();
        append(&mut page, &proposed(&["```\n![x](http://x)\n```\n\u{1b}[2J".to_owned()]), 1_000);
        let fence = "````\n```\n![x](http://x)\n```\n␛[2J\n````\n";
        assert!(page.contains(&format!("- comment\\-1: comment on \\#3\n\n{fence}")), "{page}");
        let refused = "- **refused\\: comment of a\\-1**: \\`body\\`\\: \\<b\\> \\@x\n";
        assert!(page.contains(refused) && page.contains("and 3 more refused calls"), "{page}");
        let mut page = String::new();
        append(&mut page, &proposed(&vec!["a".repeat(600); 150]), 1_000);
        assert!(page.len() < 3_000 && page.contains("200 more characters in outputs\\.json"), "{page}");
        assert!(page.contains("and 148 more outputs in outputs\\.json"), "{page}");
    }

    #[test]
    fn nothing_to_do_is_said_with_its_reason() {
        let mut page = String::new();
        let mut nothing = proposed(&[]);
        append(&mut page, &nothing, 100);
        assert!(page.contains("Proposed:\n\n- nothing\n"), "{page}");
        nothing.calls.accepted.nothing_to_do = Some("All\n# is *well*.".to_owned());
        let mut page = String::new();
        append(&mut page, &nothing, 100);
        assert!(page.contains("- nothing to do: All \\# is \\*well\\*\\.\n"), "{page}");
        nothing.calls = OutputCalls::default();
        nothing.is_final = false;
        let mut page = String::new();
        append(&mut page, &nothing, 100);
        assert_eq!(page, "");
    }
}
