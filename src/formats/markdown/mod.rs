//! Markdown: the transcript that a person reads, and a subagent's summary.

mod check_attempt;

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

use super::{DisplayOptions, Format, Subject, Transcript, run_stats};
use crate::diagnostic::Rule;
use crate::event::{AgentFinished, CallStarted, Event, Outcome, Usage};
use crate::message::{BlockContent, ToolCall};
use crate::text::sanitize::{inline_code, neutralize_markdown_line, replace_control_chars};
use crate::tools::submit_result::SubmitResult;

/// Longest text of a call's input or result in the transcript, in characters; the journal has it whole.
const MAX_BLOCK_CHARS: usize = 10_000;

/// See the module.
pub struct Markdown;

impl Format for Markdown {
    fn name(&self) -> &'static str {
        "markdown"
    }

    fn subjects(&self) -> &'static [Subject] {
        &[Subject::Transcript, Subject::Rules]
    }

    fn rule_pages(&self, rules: &[&Rule], _: DisplayOptions) -> Option<String> {
        let page = |rule: &&Rule| format!("# {}[{}]\n\n{}", rule.severity.as_str(), rule.code, rule.page);
        Some(rules.iter().map(page).collect::<Vec<_>>().join("\n"))
    }

    fn rule_list(&self, rules: &[&Rule], _: DisplayOptions) -> Option<String> {
        let item = |rule: &&Rule| format!("- `{}` ({}): {}\n", rule.code, rule.severity.as_str(), rule.summary());
        Some(rules.iter().map(item).collect())
    }

    fn transcript(&self, story: &mut Transcript<'_>, out: &mut dyn Write) -> Option<io::Result<()>> {
        Some(transcript(story, out))
    }
}

fn transcript(story: &mut Transcript<'_>, out: &mut dyn Write) -> io::Result<()> {
    match story.result {
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
        None => writeln!(out, "# {}: not finished\n", neutralize_markdown_line(&story.plan.job))?,
    }
    if !story.plan.parent.system.is_empty() {
        writeln!(out, "\n## System\n")?;
        write_truncated_block(out, "", &story.plan.parent.system)?;
    }
    let mut calls: HashMap<String, ToolCall> = HashMap::new();
    let mut children: HashMap<String, String> = HashMap::new();
    // How often those that have ended made room in their conversations.
    let mut compactions: HashMap<String, u32> = HashMap::new();
    // Calls that were begun and have no answer yet, in their order.
    let mut open: Vec<CallStarted> = Vec::new();
    // Whether the reply to come is the one that sums up, which is no turn.
    let mut closing = false;
    // Whether it is a summary of what went before, which is none either.
    let mut summing_up = false;
    let mut attempt = check_attempt::CheckAttempt::default();
    for entry in &mut *story.entries {
        match entry.event {
            Event::AgentStarted(started) => {
                writeln!(out, "\n## Prompt\n")?;
                write_truncated_block(out, "", &started.prompt)?;
            }
            // What it came to follows, in an event of its own.
            Event::ReplyReceived(replied) if summing_up => {
                if let Some(why) = replied.reply.unusable_summary_reason() {
                    writeln!(out, "_The summary that was asked for {why}_\n")?;
                }
            }
            Event::ReplyReceived(replied) => {
                write_unanswered_calls(out, &mut open, &calls)?;
                calls.clear();
                children.clear();
                match closing {
                    true => writeln!(out, "\n## Last word\n")?,
                    false => writeln!(out, "\n## Turn {}\n", replied.turn)?,
                }
                if replied.reply.is_empty_reply() {
                    writeln!(out, "_The model said nothing._\n")?;
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
                        BlockContent::Other(kind) => writeln!(out, "_(a block of kind {})_\n", inline_code(&kind))?,
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
                    // Those before it were asked for earlier, and have no result.
                    let mut before: Vec<CallStarted> = open.drain(..=at).collect();
                    before.truncate(at);
                    write_unanswered_calls(out, &mut before, &calls)?;
                }
                let failed = if finished.result.is_error { ", failed" } else { "" };
                let time = run_stats::duration(finished.duration_ms);
                let child = children.get(&finished.result.call_id);
                match child {
                    Some(id) => writeln!(out, "### task: [{id}](subagents/{id}.md) ({time}{failed})\n")?,
                    None => writeln!(out, "### {} ({time}{failed})\n", single_line(&finished.tool))?,
                }
                if let Some(times) = child.and_then(|id| compactions.get(id)) {
                    writeln!(out, "_To make room, its conversation was made shorter {}_\n", run_stats::times(*times))?;
                }
                if let Some(call) = calls.get(&finished.result.call_id) {
                    write_call_input(out, call)?;
                }
                write_truncated_block(out, "", &finished.result.text)?;
                writeln!(out)?;
            }
            Event::NoteSent(told) => {
                writeln!(out, "## legwork\n")?;
                write_truncated_block(out, "", &told.text)?;
            }
            Event::Retrying(retrying) => {
                writeln!(out, "_Try {} failed: {}_\n", retrying.retry.attempt, single_line(&retrying.retry.reason))?;
            }
            Event::ReplyDiscarded(dropped) => writeln!(out, "_Asked again: {}_\n", single_line(&dropped.reason))?,
            Event::LimitReached(limit) => {
                writeln!(out, "_Limit {}: {}_\n", inline_code(&limit.limit), single_line(&limit.message))?;
            }
            Event::LimitRaised(raised) => {
                writeln!(out, "_Limit {} raised: {}_\n", inline_code(&raised.limit), run_stats::LIMIT_RAISED_NOTE)?;
            }
            Event::RequestFailed(failed) => writeln!(out, "_No reply: {}_\n", single_line(&failed.reason))?,
            Event::Resumed(_) => {
                write_unanswered_calls(out, &mut open, &calls)?;
                attempt.write_unfinished(out, story.plan)?;
                writeln!(out, "\n## Resumed at {}\n", entry.at.strftime("%Y-%m-%d %H:%M:%S UTC"))?;
            }
            Event::RequestStarted(asked) => {
                summing_up = asked.kept_turns.is_some();
                closing = !asked.tools_allowed && !summing_up;
            }
            Event::ResultsTruncated(shortened) => {
                writeln!(out, "_To make room, {}_\n", run_stats::truncation_summary(&shortened))?
            }
            Event::ContextCompacted(summed_up) => {
                writeln!(out, "## Summary of what went before\n")?;
                writeln!(out, "_To make room, {}_\n", run_stats::compaction_summary(&summed_up))?;
                write_truncated_block(out, "", &summed_up.summary)?;
                writeln!(out)?;
            }
            Event::CheckStarted(started) => {
                write_unanswered_calls(out, &mut open, &calls)?;
                attempt.write_start(out, started)?;
            }
            Event::CheckFinished(finished) => attempt.write_end(out, story.plan, &finished)?,
            Event::WorkspaceChanged(changed) if !changed.changes.is_empty() || changed.incomplete.is_some() => {
                write_unanswered_calls(out, &mut open, &calls)?;
                writeln!(out, "\n## Files changed\n")?;
                write_truncated_block(out, "", &run_stats::changed_file_lines(&changed, run_stats::MAX_LISTED_FILES))?;
                if !changed.patch.is_empty() {
                    writeln!(out, "\nLine by line: [changes.patch](changes.patch)")?;
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
    attempt.write_unfinished(out, story.plan)
}

/// What was begun and never answered: the run ended before.
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

/// What the model said, as Markdown in which nothing is live. Its code blocks are written anew, so that none of them stays
/// open and swallows what follows, and no reader sees another end of one.
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

/// The language of a code block, where readers only colour it. From others they draw figures with links and images.
fn language_of(info: &str) -> &str {
    const RENDERED_LANGUAGES: [&str; 5] = ["mermaid", "math", "geojson", "topojson", "stl"];
    let word = info.split_whitespace().next().unwrap_or_default();
    let is_name = word.len() <= 20 && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-_#".contains(&byte));
    if is_name && !RENDERED_LANGUAGES.contains(&word.to_ascii_lowercase().as_str()) { word } else { "" }
}

/// A call's input: a command or a prompt as text, a plan as a list, anything else as JSON.
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
                    // Right below a list item it would be read as a part of that.
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

/// A code block, its content cut where it is very long.
fn write_truncated_block(out: &mut dyn Write, language: &str, text: &str) -> io::Result<()> {
    match text.char_indices().nth(MAX_BLOCK_CHARS) {
        None => write_code_block(out, language, text),
        Some((cut, _)) => {
            let more = text[cut..].chars().count();
            let cut = &text[..cut];
            write_code_block(out, language, &format!("{cut}\n[{more} more characters are in events.jsonl]"))
        }
    }
}

/// A code block that its content can't leave.
fn write_code_block(out: &mut dyn Write, language: &str, text: &str) -> io::Result<()> {
    let fence = fence(text);
    writeln!(out, "{fence}{language}\n{}\n{fence}", replace_control_chars(text).trim_end_matches('\n'))
}

/// What a text in between can't pass for.
fn fence(text: &str) -> String {
    let longest_run = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    "`".repeat(longest_run.max(2) + 1)
}

/// A foreign text on one line, in which nothing is live.
fn single_line(text: &str) -> String {
    neutralize_markdown_line(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A subagent's summary with its figures as YAML front matter; data comes as a block of JSON, before what was said.
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
    // Nothing fails in memory.
    if let Some(data) = &finished.result {
        let _ = write_code_block(&mut body, "json", &format!("{data:#}")).and_then(|()| writeln!(body));
    } else if finished.text.trim().is_empty() {
        body.extend(b"(no summary)");
    }
    let _ = write_model_text(&mut body, &finished.text);
    format!("---\n{}---\n\n{}\n", replace_control_chars(&front), String::from_utf8_lossy(&body).trim_end())
}
