//! Markdown: transcripts for people, and the summaries of subagents.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

use super::display::code_fence;
use super::{DisplayOptions, Transcript, run_stats};
use crate::diagnostic::Rule;
use crate::event::{AgentFinished, CallStarted, CheckFinished, CheckStarted, Event, Outcome, Usage};
use crate::message::{BlockContent, ToolCall};
use crate::plan::Plan;
use crate::text::sanitize::{inline_code, neutralize_markdown_line, replace_control_chars};
use crate::tools::submit_result::SubmitResult;

/// The most characters of a call's input or result in the transcript. The journal has the full text.
const MAX_BLOCK_CHARS: usize = 10_000;

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
    if !transcript.plan.parent.system.is_empty() {
        writeln!(out, "\n## System\n")?;
        write_truncated_block(out, "", &transcript.plan.parent.system)?;
    }
    let mut calls: HashMap<String, ToolCall> = HashMap::new();
    let mut children: HashMap<String, String> = HashMap::new();
    // The number of compactions of each subagent that has ended.
    let mut compactions: HashMap<String, u32> = HashMap::new();
    // Calls that have started and not finished, in order.
    let mut open: Vec<CallStarted> = Vec::new();
    // Whether the next reply is the final one after the turn limit, which isn't a turn.
    let mut is_final = false;
    // Whether the next reply is a summary of the conversation, which isn't a turn either.
    let mut is_summary = false;
    let mut attempt = CheckAttempt::default();
    for entry in &mut *transcript.entries {
        match entry.event {
            Event::AgentStarted(started) => {
                writeln!(out, "\n## Prompt\n")?;
                write_truncated_block(out, "", &started.prompt)?;
            }
            // The next event, `ContextCompacted`, has the summary.
            Event::ReplyReceived(replied) if is_summary => {
                if let Some(why) = replied.reply.unusable_summary_reason() {
                    writeln!(out, "_Compaction failed: the summary {why}_\n")?;
                }
            }
            Event::ReplyReceived(replied) => {
                write_unanswered_calls(out, &mut open, &calls)?;
                calls.clear();
                children.clear();
                match is_final {
                    true => writeln!(out, "\n## Final reply\n")?,
                    false => writeln!(out, "\n## Turn {}\n", replied.turn)?,
                }
                if replied.reply.is_empty_reply() {
                    writeln!(out, "_Empty reply._\n")?;
                }
                for block in replied.reply.blocks {
                    if let Some(why) = block.refusal_reason(&replied.reply.stop) {
                        writeln!(out, "_The model refused: {}_\n", single_line(why))?;
                        continue;
                    }
                    match block.content {
                        BlockContent::Text(text) => write_model_text(out, &text)?,
                        BlockContent::Thinking(text) if text.is_empty() => {}
                        BlockContent::Thinking(text) => {
                            writeln!(out, "<details><summary>Thinking</summary>\n")?;
                            write_truncated_block(out, "", &text)?;
                            writeln!(out, "\n</details>\n")?;
                        }
                        BlockContent::Call(call) => {
                            calls.insert(call.id.clone(), call);
                        }
                        BlockContent::Other(kind) => writeln!(out, "_(a block of type {})_\n", inline_code(&kind))?,
                    }
                }
            }
            Event::CallStarted(started) => {
                if let Some(child) = &started.child {
                    children.insert(started.call_id.clone(), child.clone());
                }
                open.push(started);
            }
            Event::CallFinished(finished) => {
                if let Some(at) = open.iter().position(|started| started.call_id == finished.result.call_id) {
                    // Calls before this one got no result.
                    let mut earlier: Vec<CallStarted> = open.drain(..=at).collect();
                    earlier.truncate(at);
                    write_unanswered_calls(out, &mut earlier, &calls)?;
                }
                let failed = if finished.result.is_error { ", failed" } else { "" };
                let time = run_stats::duration(finished.duration_ms);
                let child = children.get(&finished.result.call_id);
                match child {
                    Some(id) => writeln!(out, "### task: [{id}](subagents/{id}.md) ({time}{failed})\n")?,
                    None => writeln!(out, "### {} ({time}{failed})\n", single_line(&finished.tool))?,
                }
                if let Some(times) = child.and_then(|id| compactions.get(id)) {
                    writeln!(out, "_Its conversation was compacted {}_\n", run_stats::times(*times))?;
                }
                if let Some(call) = calls.get(&finished.result.call_id) {
                    write_call_input(out, call)?;
                }
                write_truncated_block(out, "", &finished.result.text)?;
                writeln!(out)?;
            }
            Event::NoteSent(note) => {
                writeln!(out, "## legwork\n")?;
                write_truncated_block(out, "", &note.text)?;
            }
            Event::Retrying(retrying) => {
                writeln!(
                    out,
                    "_Attempt {} failed: {}_\n",
                    retrying.retry.attempt,
                    single_line(&retrying.retry.reason)
                )?;
            }
            Event::ReplyDiscarded(dropped) => writeln!(out, "_Reply discarded: {}_\n", single_line(&dropped.reason))?,
            Event::LimitReached(limit) => {
                writeln!(out, "_Limit {}: {}_\n", inline_code(&limit.limit), single_line(&limit.message))?;
            }
            Event::LimitRaised(raised) => {
                writeln!(out, "_Limit {} raised: {}_\n", inline_code(&raised.limit), run_stats::LIMIT_RAISED_NOTE)?;
            }
            Event::RequestFailed(failed) => writeln!(out, "_No reply: {}_\n", single_line(&failed.reason))?,
            Event::Resumed(_) => {
                write_unanswered_calls(out, &mut open, &calls)?;
                attempt.write_unfinished(out, transcript.plan)?;
                writeln!(out, "\n## Resumed at {}\n", entry.at.strftime("%Y-%m-%d %H:%M:%S UTC"))?;
            }
            Event::RequestStarted(asked) => {
                is_summary = asked.kept_turns.is_some();
                is_final = !asked.tools_allowed && !is_summary;
            }
            Event::ResultsTruncated(truncated) => {
                writeln!(out, "_Compaction: {}_\n", run_stats::truncation_summary(&truncated))?;
            }
            Event::ContextCompacted(compacted) => {
                writeln!(out, "## Conversation summary\n")?;
                writeln!(out, "_Compaction: {}_\n", run_stats::compaction_summary(&compacted))?;
                write_truncated_block(out, "", &compacted.summary)?;
                writeln!(out)?;
            }
            Event::CheckStarted(started) => {
                write_unanswered_calls(out, &mut open, &calls)?;
                attempt.write_start(out, started)?;
            }
            Event::CheckFinished(finished) => attempt.write_end(out, transcript.plan, &finished)?,
            Event::WorkspaceChanged(changed) if !changed.changes.is_empty() || changed.incomplete.is_some() => {
                write_unanswered_calls(out, &mut open, &calls)?;
                writeln!(out, "\n## Files changed\n")?;
                write_truncated_block(out, "", &run_stats::changed_file_lines(&changed, run_stats::MAX_LISTED_FILES))?;
                if !changed.patch.is_empty() {
                    writeln!(out, "\nFull diff: [changes.patch](changes.patch)")?;
                }
            }
            Event::WorkspaceChanged(_) => {}
            Event::AgentFinished(finished) if finished.compactions > 0 => {
                compactions.insert(finished.id, finished.compactions);
            }
            Event::RunStarted(_) | Event::AgentFinished(_) | Event::RunFinished(_) => {}
        }
    }
    write_unanswered_calls(out, &mut open, &calls)?;
    attempt.write_unfinished(out, transcript.plan)
}

/// The checks in a transcript: the current attempt, and the check that is running.
#[derive(Default)]
struct CheckAttempt {
    number: u32,
    running: Option<CheckStarted>,
}

impl CheckAttempt {
    /// Starts a check. The first of an attempt gets a heading.
    fn write_start(&mut self, out: &mut dyn Write, started: CheckStarted) -> io::Result<()> {
        if self.number != started.attempt {
            self.number = started.attempt;
            match started.attempt {
                1 => writeln!(out, "\n## Checks\n")?,
                attempt => writeln!(out, "\n## Checks, attempt {attempt}\n")?,
            }
        }
        self.running = Some(started);
        Ok(())
    }

    /// Writes a check that has finished.
    fn write_end(&mut self, out: &mut dyn Write, plan: &Plan, finished: &CheckFinished) -> io::Result<()> {
        self.running = None;
        let time = run_stats::duration(finished.duration_ms);
        writeln!(out, "### {}: {} ({time})\n", single_line(&finished.name), run_stats::check_verdict(finished))?;
        write_check_command(out, plan, &finished.name)?;
        if !finished.output.trim().is_empty() {
            write_truncated_block(out, "", &finished.output)?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// Writes a check that started and never finished, since the run ended or was interrupted.
    fn write_unfinished(&mut self, out: &mut dyn Write, plan: &Plan) -> io::Result<()> {
        let Some(started) = self.running.take() else { return Ok(()) };
        writeln!(out, "### {} (not finished)\n", single_line(&started.name))?;
        write_check_command(out, plan, &started.name)
    }
}

fn write_check_command(out: &mut dyn Write, plan: &Plan, name: &str) -> io::Result<()> {
    match plan.checks.iter().find(|check| check.name == name) {
        None => Ok(()),
        Some(check) if check.run.contains(['\n', '\r', '`']) || check.run.len() > 100 => {
            write_truncated_block(out, "sh", check.run.trim_end())?;
            writeln!(out)
        }
        Some(check) => writeln!(out, "- run: {}\n", inline_code(&check.run)),
    }
}

/// Writes the calls that never finished.
fn write_unanswered_calls(
    out: &mut dyn Write,
    open: &mut Vec<CallStarted>,
    calls: &HashMap<String, ToolCall>,
) -> io::Result<()> {
    for started in open.drain(..) {
        let child = started.child.map(|id| format!(": {id}")).unwrap_or_default();
        writeln!(out, "### {}{child} (not finished)\n", single_line(&started.tool))?;
        if let Some(call) = calls.get(&started.call_id) {
            write_call_input(out, call)?;
        }
    }
    Ok(())
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
                    let name = single_line(name);
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    let is_block = text.contains(['\n', '\r', '`']) || text.len() > 100;
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
    match text.char_indices().nth(MAX_BLOCK_CHARS) {
        None => write_code_block(out, language, text),
        Some((cut, _)) => {
            let more = text[cut..].chars().count();
            let cut = &text[..cut];
            write_code_block(out, language, &format!("{cut}\n[{more} more characters in events.jsonl]"))
        }
    }
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
    #[derive(Serialize)]
    struct FrontMatter<'a> {
        id: &'a str,
        agent: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        outcome: Outcome,
        turns: u32,
        tool_calls: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        compactions: Option<u32>,
        usage: Usage,
        cost_usd: Option<f64>,
        duration_ms: u64,
    }
    let front = serde_yaml::to_string(&FrontMatter {
        id: &finished.id,
        agent: finished.subagent.as_deref().unwrap_or_default(),
        description: finished.description.as_deref(),
        outcome: finished.outcome,
        turns: finished.turns,
        tool_calls: finished.tool_calls,
        compactions: Some(finished.compactions).filter(|times| *times > 0),
        usage: finished.usage,
        cost_usd: finished.cost_usd,
        duration_ms: finished.duration_ms,
    })
    .unwrap_or_default();
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
