//! Markdown: transcripts for people, and the pages about subagents.

use std::io::{self, Write};

use serde_json::json;

use super::DisplayOptions;
use super::conversation::{Page, Span, write_run, write_subagent};
use super::display::code_fence;
use crate::conversation::{AgentConversation, Conversation};
use crate::diagnostic::Rule;
use crate::event::AgentFinished;
use crate::text::sanitize::{escape_markdown, inline_code, neutralize_markdown_line, replace_control_chars};

pub(super) fn rule_pages(rules: &[&Rule], _: DisplayOptions) -> String {
    let page = |rule: &&Rule| format!("# {}[{}]\n\n{}", rule.severity.as_str(), rule.code, rule.page);
    rules.iter().map(page).collect::<Vec<_>>().join("\n")
}

pub(super) fn rule_list(rules: &[&Rule], _: DisplayOptions) -> String {
    let item = |rule: &&Rule| format!("- `{}` ({}): {}\n", rule.code, rule.severity.as_str(), rule.summary());
    rules.iter().map(item).collect()
}

/// Writes the parent's conversation, with links to the files about the subagents.
///
/// # Errors
/// Writing to `out` failed.
pub fn transcript(conversation: &Conversation, out: &mut dyn Write) -> io::Result<()> {
    write_run(&mut MarkdownPage { out }, conversation, false)
}

/// Writes the page about a subagent: its summary, and then the whole conversation. The links of a page are relative to the
/// record.
///
/// # Errors
/// Writing to `out` failed.
pub fn subagent_page(conversation: &Conversation, agent: &AgentConversation, out: &mut dyn Write) -> io::Result<()> {
    if let Some(finished) = &agent.finished {
        writeln!(out, "{}", subagent_summary(finished))?;
    }
    write_subagent(&mut MarkdownPage { out }, conversation, agent)
}

/// A conversation in Markdown. Nothing in it can hide what follows: untrusted text is either in a code block that it can't
/// end, or escaped so that no link, image, HTML, reference or open code block is left.
pub(super) struct MarkdownPage<'w> {
    pub(super) out: &'w mut dyn Write,
}

impl Page for MarkdownPage<'_> {
    fn heading(&mut self, level: usize, spans: &[Span], _: bool) -> io::Result<()> {
        writeln!(self.out, "{} {}\n", "#".repeat(level), line_of(spans))
    }

    fn note(&mut self, text: &str) -> io::Result<()> {
        // An underscore at its end would pair with another one.
        writeln!(self.out, "_{}_\n", single_line(text).trim_end_matches('\\'))
    }

    fn list(&mut self, items: &[Vec<Span>]) -> io::Result<()> {
        items.iter().try_for_each(|item| writeln!(self.out, "- {}", line_of(item)))?;
        writeln!(self.out)
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        write_model_text(self.out, text)
    }

    fn thinking(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "<details><summary>Thinking</summary>\n")?;
        self.block("", text)?;
        writeln!(self.out, "</details>\n")
    }

    fn block(&mut self, language: &str, text: &str) -> io::Result<()> {
        write_code_block(self.out, language, text)?;
        writeln!(self.out)
    }

    fn error(&mut self, code: &str, message: &str, hint: Option<&str>) -> io::Result<()> {
        writeln!(self.out, "> **{}**: {}", single_line(code), single_line(message))?;
        if let Some(hint) = hint {
            writeln!(self.out, "> {}", single_line(hint))?;
        }
        writeln!(self.out)
    }
}

/// The pieces of a line in Markdown.
fn line_of(spans: &[Span]) -> String {
    let piece = |span: &Span| match span {
        Span::Text(text) => {
            // Spaces between the pieces stay.
            let (before, after) = (text.starts_with(' '), text.ends_with(' ') && text.len() > 1);
            let space = |is: bool| if is { " " } else { "" };
            format!("{}{}{}", space(before), single_line(text), space(after))
        }
        Span::Plain(text) => escape_markdown(text, usize::MAX),
        Span::Code(code) => inline_code(code),
        Span::Checkbox(is_done) => if *is_done { "[x] " } else { "[ ] " }.to_owned(),
        Span::Link(id, Some(file)) => format!("[{id}]({file})"),
        Span::Link(id, None) => single_line(id),
    };
    spans.iter().map(piece).collect()
}

/// Writes text of a model, with Markdown outside of code blocks neutralized. Code blocks get new fences, so that none stays
/// open, or ends elsewhere in another Markdown reader.
fn write_model_text(out: &mut dyn Write, text: &str) -> io::Result<()> {
    let mut open: Option<(&str, &str, Vec<&str>)> = None;
    for line in text.trim_end().split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let bare = line.trim_start_matches([' ', '\t']);
        let marks = ['`', '~'].into_iter().map(|mark| bare.len() - bare.trim_start_matches(mark).len()).max();
        let (fence, rest) = bare.split_at(marks.unwrap_or_default());
        match &mut open {
            None if fence.len() >= 3 && !(fence.starts_with('`') && rest.contains('`')) => {
                open = Some((fence, rest, Vec::new()));
            }
            None => writeln!(out, "{}", neutralize_markdown_line(line))?,
            Some((begun, language, lines)) if fence.starts_with(*begun) && rest.trim().is_empty() => {
                write_code_block(out, language_of(language), &lines.join("\n"))?;
                open = None;
            }
            Some((_, _, lines)) => lines.push(line),
        }
    }
    if let Some((_, language, lines)) = open {
        write_code_block(out, language_of(language), &lines.join("\n"))?;
    }
    writeln!(out)
}

/// The language of a code block; empty for those that Markdown readers render, such as diagrams with links and images.
fn language_of(info: &str) -> &str {
    const RENDERED_LANGUAGES: [&str; 5] = ["mermaid", "math", "geojson", "topojson", "stl"];
    let word = info.split_whitespace().next().unwrap_or_default();
    let is_name = word.len() <= 20 && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-_#".contains(&byte));
    if is_name && !RENDERED_LANGUAGES.contains(&word.to_ascii_lowercase().as_str()) { word } else { "" }
}

/// Writes a code block that its content can't end.
fn write_code_block(out: &mut dyn Write, language: &str, text: &str) -> io::Result<()> {
    let fence = code_fence(text);
    writeln!(out, "{fence}{language}\n{}\n{fence}", replace_control_chars(text).trim_end_matches('\n'))
}

/// Puts untrusted text on one line and neutralizes Markdown in it.
fn single_line(text: &str) -> String {
    neutralize_markdown_line(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Renders the summary of a subagent with its statistics as YAML front matter. A result comes before the text, as JSON.
pub fn subagent_summary(finished: &AgentFinished) -> String {
    let mut front = json!({
        "id": finished.id,
        "agent": finished.subagent.as_deref().unwrap_or_default(),
        "description": finished.description,
        "outcome": finished.outcome,
        "turns": finished.turns,
        "tool_calls": finished.tool_calls,
        "compactions": Some(finished.compactions).filter(|times| *times > 0),
        "usage": finished.usage,
        "cost_usd": finished.cost_usd,
        "duration_ms": finished.duration_ms,
    });
    if let Some(front) = front.as_object_mut() {
        front.retain(|name, value| name == "cost_usd" || !value.is_null());
    }
    let description = finished.description.as_deref().map(replace_control_chars).filter(|text| has_markup(text));
    if let (Some(front), Some(_)) = (front.as_object_mut(), &description) {
        front["description"] = "".into();
    }
    let mut front = serde_yaml::to_string(&front).unwrap_or_default();
    if let Some(description) = description {
        front = front.replacen("description: ''", &format!("description: {}", inert_yaml_string(&description)), 1);
    }
    let is_cost = |line: &&str| line.starts_with("cost_usd: ") && finished.cost_usd.is_some_and(|usd| usd > 0.0);
    let marked = |line: &str| match Some(line).filter(is_cost) {
        Some(line) => format!("{line}  # an estimate\n"),
        None => format!("{line}\n"),
    };
    let front: String = front.lines().map(marked).collect();
    let mut body = Vec::new();
    // Writing to memory can't fail.
    if let Some(data) = &finished.result {
        let _ = write_code_block(&mut body, "json", &format!("{data:#}")).and_then(|()| writeln!(body));
    } else if finished.text.trim().is_empty() {
        body.extend(b"(no summary)");
    }
    let _ = write_model_text(&mut body, &finished.text);
    format!("---\n{}---\n\n{}\n", replace_control_chars(&front), String::from_utf8_lossy(&body).trim_end())
}

/// Whether a viewer that doesn't know front matter could take part of a text for an image, a link, HTML or a block.
fn has_markup(text: &str) -> bool {
    text.contains(['[', ']', '<', '>', '&', '`', '\\', '\n', '\r', '\u{85}'])
}

/// A text as a string of YAML on one line that is no Markdown: what could be markup is escaped.
fn inert_yaml_string(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    let is_markup = |char: char| matches!(char, '[' | ']' | '<' | '>' | '&' | '`');
    let escaped = |char: char| if is_markup(char) { format!("\\u{:04x}", char as u32) } else { char.to_string() };
    quoted.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_a_subagent_is_no_live_markdown_and_keeps_its_value() {
        for description in ["plain", "a: b", "![x](http://x/y) <img src=x> `c` &lt;\n# d\n---\n\\[e]", "\"<b>\""] {
            let finished = AgentFinished { description: Some(description.to_owned()), ..AgentFinished::default() };
            let page = subagent_summary(&finished);
            let front = page.strip_prefix("---\n").unwrap().split("---\n\n").next().unwrap();
            let line = front.lines().find(|line| line.starts_with("description: ")).unwrap();
            assert!(!line.contains(['[', ']', '<', '>', '&', '`']), "{page}");
            assert!(!front.contains("\n# d"), "{page}");
            let value: serde_json::Value = serde_yaml::from_str(front).unwrap();
            assert_eq!(value["description"], description, "{page}");
        }
    }
}
