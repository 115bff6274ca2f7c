//! Markdown: transcripts for people, and the summaries of subagents.

use std::io::{self, Write};

use serde_json::json;

use super::display::code_fence;
use super::transcript::{CallPart, Part, Transcript, truncate_part};
use super::{DisplayOptions, run_stats};
use crate::diagnostic::Rule;
use crate::event::AgentFinished;
use crate::message::ToolCall;
use crate::plan::Plan;
use crate::text::sanitize::{inline_code, neutralize_markdown_line, replace_control_chars};
use crate::tools::submit_result::SubmitResult;

pub(super) fn rule_pages(rules: &[&Rule], _: DisplayOptions) -> String {
    let page = |rule: &&Rule| format!("# {}[{}]\n\n{}", rule.severity.as_str(), rule.code, rule.page);
    rules.iter().map(page).collect::<Vec<_>>().join("\n")
}

pub(super) fn rule_list(rules: &[&Rule], _: DisplayOptions) -> String {
    let item = |rule: &&Rule| format!("- `{}` ({}): {}\n", rule.code, rule.severity.as_str(), rule.summary());
    rules.iter().map(item).collect()
}

/// Writes a recorded run, from its first event to its last.
///
/// # Errors
/// Writing to `out` failed.
pub fn transcript(transcript: &mut Transcript<'_>, out: &mut dyn Write) -> io::Result<()> {
    match transcript.result {
        Some(result) => {
            writeln!(out, "# {}: {}\n", neutralize_markdown_line(&result.job), result.outcome)?;
            for (name, value) in run_stats::run_stats(result) {
                writeln!(out, "- {name}: {}", neutralize_markdown_line(&value))?;
            }
            if let Some(error) = &result.error {
                writeln!(out, "\n> **{}**: {}", neutralize_markdown_line(&error.code), single_line(&error.message))?;
                if let Some(hint) = &error.hint {
                    writeln!(out, "> {}", single_line(hint))?;
                }
            }
            if let Some(data) = &result.result {
                writeln!(out, "\n## Result\n")?;
                write_truncated_block(out, "json", &format!("{data:#}"))?;
            }
        }
        None => writeln!(out, "# {}: not finished\n", neutralize_markdown_line(&transcript.plan.job))?,
    }
    let plan = transcript.plan;
    let system = plan.system_prompt(&plan.parent);
    if !system.is_empty() {
        writeln!(out, "\n## System\n")?;
        write_truncated_block(out, "", &system)?;
    }
    transcript.parts().try_for_each(|part| write_part(out, plan, part))
}

fn write_part(out: &mut dyn Write, plan: &Plan, part: Part) -> io::Result<()> {
    match part {
        Part::Heading(title) => writeln!(out, "\n## {title}\n"),
        Part::Note(text) => writeln!(out, "_{}_\n", single_line(&text)),
        Part::Prompt(title, text) => {
            writeln!(out, "\n## {title}\n")?;
            write_truncated_block(out, "", &text)?;
            writeln!(out)
        }
        Part::Text(text) => write_model_text(out, &text),
        Part::Thinking(text) => {
            writeln!(out, "<details><summary>Thinking</summary>\n")?;
            write_truncated_block(out, "", &text)?;
            writeln!(out, "\n</details>\n")
        }
        Part::Call(call) => write_call(out, &call),
        Part::Check(name, finished) => {
            let status = finished.as_ref().map_or(" (not finished)".to_owned(), |finished| {
                let time = run_stats::duration(finished.duration_ms);
                format!(": {} ({time})", run_stats::check_verdict(finished.passed, finished.exit_code))
            });
            writeln!(out, "### {}{status}\n", single_line(&name))?;
            write_check_command(out, plan, &name)?;
            if let Some(finished) = finished.filter(|finished| !finished.output.trim().is_empty()) {
                write_truncated_block(out, "", &finished.output)?;
                writeln!(out)?;
            }
            Ok(())
        }
        Part::Changes(changed) => {
            write_truncated_block(out, "", &run_stats::changed_file_lines(&changed, run_stats::MAX_LISTED_FILES))?;
            let link = if changed.patch.is_empty() { "" } else { "\nFull diff: [changes.patch](changes.patch)\n" };
            write!(out, "{link}")
        }
    }
}

/// Writes a call with its input and result.
fn write_call(out: &mut dyn Write, part: &CallPart) -> io::Result<()> {
    let tool = single_line(&part.tool);
    let status = part.status();
    match &part.child {
        Some(id) if part.finished.is_some() => writeln!(out, "### {tool}: [{id}](subagents/{id}.md) ({status})\n")?,
        Some(id) => writeln!(out, "### {tool}: {id} ({status})\n")?,
        None => writeln!(out, "### {tool} ({status})\n")?,
    }
    if part.compactions > 0 {
        writeln!(out, "_Its conversation was compacted {}_\n", run_stats::times(part.compactions))?;
    }
    if let Some(call) = &part.call {
        write_call_input(out, call)?;
    }
    if let Some(finished) = &part.finished {
        write_truncated_block(out, "", &finished.result.text)?;
        writeln!(out)?;
    }
    Ok(())
}

fn write_check_command(out: &mut dyn Write, plan: &Plan, name: &str) -> io::Result<()> {
    match plan.checks.iter().find(|check| check.name == name) {
        None => Ok(()),
        Some(check) if needs_block(&check.run) => {
            write_truncated_block(out, "sh", check.run.trim_end())?;
            writeln!(out)
        }
        Some(check) => writeln!(out, "- run: {}\n", inline_code(&check.run)),
    }
}

/// Whether a text is shown as a block rather than within a line.
fn needs_block(text: &str) -> bool {
    text.contains(['\n', '\r', '`']) || text.len() > 100
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

/// Writes the input of a call: text as text, todo items as a list, everything else as JSON.
fn write_call_input(out: &mut dyn Write, call: &ToolCall) -> io::Result<()> {
    let value: serde_json::Value = serde_json::from_str(call.input.get()).unwrap_or_default();
    let fields = value.as_object().filter(|fields| !fields.is_empty());
    match fields {
        None => write_truncated_block(out, "json", call.input.get())?,
        Some(_) if call.tool == SubmitResult::NAME => write_truncated_block(out, "json", &format!("{value:#}"))?,
        Some(fields) => {
            if let Some(items) = fields.get("items").and_then(|items| items.as_array()).filter(|_| call.tool == "todo")
            {
                for item in items {
                    let text = |key: &str| item.get(key).and_then(|text| text.as_str()).unwrap_or_default();
                    let mark = if text("status") == "done" { "x" } else { " " };
                    let active = if text("status") == "in_progress" { " _(in progress)_" } else { "" };
                    writeln!(out, "- [{mark}] {}{active}", single_line(text("text")))?;
                }
            } else {
                let mut after_block = None;
                for (name, value) in fields {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    let (name, is_block) = (single_line(name), needs_block(&text));
                    // Directly after a list item, it would be part of that item.
                    if after_block.is_some_and(|after_block| after_block || is_block) {
                        writeln!(out)?;
                    }
                    if is_block {
                        writeln!(out, "{name}:\n")?;
                        write_truncated_block(out, "", &text)?;
                    } else {
                        writeln!(out, "- {name}: {}", inline_code(&text))?;
                    }
                    after_block = Some(is_block);
                }
            }
        }
    }
    writeln!(out)
}

/// Writes a code block, truncated if it is very long.
fn write_truncated_block(out: &mut dyn Write, language: &str, text: &str) -> io::Result<()> {
    write_code_block(out, language, &truncate_part(text))
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
    let front = serde_yaml::to_string(&front).unwrap_or_default();
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
