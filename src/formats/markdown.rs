//! Markdown: the transcript that a person reads, and a subagent's summary.

mod check;

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

use super::harmless::{code, inert, visible};
use super::{Format, Look, Story, Subject, figures};
use crate::diagnostic::Rule;
use crate::event::{AgentFinished, CallStarted, Event, Outcome, Usage};
use crate::message::{ToolCall, View};
use crate::tools::submit_result::SubmitResult;

/// Longest text of a call's input or result in the transcript, in characters; the journal has it whole.
const LONGEST: usize = 10_000;

/// See the module.
pub struct Markdown;

impl Format for Markdown {
    fn name(&self) -> &'static str {
        "markdown"
    }

    fn shows(&self) -> &'static [Subject] {
        &[Subject::Story, Subject::Rules]
    }

    fn pages(&self, rules: &[&Rule], _: Look) -> Option<String> {
        let page = |rule: &&Rule| format!("# {}[{}]\n\n{}", rule.severity.as_str(), rule.code, rule.page);
        Some(rules.iter().map(page).collect::<Vec<_>>().join("\n"))
    }

    fn list(&self, rules: &[&Rule], _: Look) -> Option<String> {
        let item = |rule: &&Rule| format!("- `{}` ({}): {}\n", rule.code, rule.severity.as_str(), rule.summary());
        Some(rules.iter().map(item).collect())
    }

    fn story(&self, story: &mut Story<'_>, out: &mut dyn Write) -> Option<io::Result<()>> {
        Some(transcript(story, out))
    }
}

fn transcript(story: &mut Story<'_>, out: &mut dyn Write) -> io::Result<()> {
    match story.result {
        Some(result) => {
            writeln!(out, "# {}: {}\n", inert(&result.job), result.outcome)?;
            for (name, value) in figures::of_run(result) {
                writeln!(out, "- {name}: {}", inert(&value))?;
            }
            if let Some(error) = &result.error {
                writeln!(out, "\n> **{}**: {}", inert(&error.code), one_line(&error.message))?;
                if let Some(hint) = &error.hint {
                    writeln!(out, "> {}", one_line(hint))?;
                }
            }
            if let Some(data) = &result.result {
                writeln!(out, "\n## Result\n")?;
                fenced(out, "json", &format!("{data:#}"))?;
            }
        }
        None => writeln!(out, "# {}: not finished\n", inert(&story.plan.job))?,
    }
    if !story.plan.parent.system.is_empty() {
        writeln!(out, "\n## System\n")?;
        fenced(out, "", &story.plan.parent.system)?;
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
    let mut attempt = check::Attempt::default();
    for entry in &mut *story.entries {
        match entry.event {
            Event::AgentStarted(started) => {
                writeln!(out, "\n## Prompt\n")?;
                fenced(out, "", &started.prompt)?;
            }
            // What it came to follows, in an event of its own.
            Event::Replied(replied) if summing_up => {
                if let Some(why) = replied.reply.why_no_summary() {
                    writeln!(out, "_The summary that was asked for {why}_\n")?;
                }
            }
            Event::Replied(replied) => {
                unanswered(out, &mut open, &calls)?;
                calls.clear();
                children.clear();
                match closing {
                    true => writeln!(out, "\n## Last word\n")?,
                    false => writeln!(out, "\n## Turn {}\n", replied.turn)?,
                }
                if replied.reply.is_silent() {
                    writeln!(out, "_The model said nothing._\n")?;
                }
                for block in replied.reply.blocks {
                    if let Some(why) = block.why_refused(&replied.reply.stop) {
                        writeln!(out, "_The model refused: {}_\n", one_line(why))?;
                        continue;
                    }
                    match block.view {
                        View::Text(text) => said(out, &text)?,
                        View::Thinking(text) if text.is_empty() => {}
                        View::Thinking(text) => {
                            writeln!(out, "<details><summary>Thinking</summary>\n")?;
                            fenced(out, "", &text)?;
                            writeln!(out, "\n</details>\n")?;
                        }
                        View::Call(call) => {
                            calls.insert(call.id.clone(), call);
                        }
                        View::Other(kind) => writeln!(out, "_(a block of kind {})_\n", code(&kind))?,
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
                    unanswered(out, &mut before, &calls)?;
                }
                let failed = if finished.result.is_error { ", failed" } else { "" };
                let time = figures::duration(finished.duration_ms);
                let child = children.get(&finished.result.call_id);
                match child {
                    Some(id) => writeln!(out, "### task: [{id}](subagents/{id}.md) ({time}{failed})\n")?,
                    None => writeln!(out, "### {} ({time}{failed})\n", one_line(&finished.tool))?,
                }
                if let Some(times) = child.and_then(|id| compactions.get(id)) {
                    writeln!(out, "_To make room, its conversation was made shorter {}_\n", figures::times(*times))?;
                }
                if let Some(call) = calls.get(&finished.result.call_id) {
                    input(out, call)?;
                }
                fenced(out, "", &finished.result.text)?;
                writeln!(out)?;
            }
            Event::Told(told) => {
                writeln!(out, "## legwork\n")?;
                fenced(out, "", &told.text)?;
            }
            Event::Retrying(retrying) => {
                writeln!(out, "_Try {} failed: {}_\n", retrying.retry.attempt, one_line(&retrying.retry.why))?;
            }
            Event::Dropped(dropped) => writeln!(out, "_Asked again: {}_\n", one_line(&dropped.why))?,
            Event::LimitReached(limit) => {
                writeln!(out, "_Limit {}: {}_\n", code(&limit.limit), one_line(&limit.message))?;
            }
            Event::LimitRaised(raised) => {
                writeln!(out, "_Limit {} raised: {}_\n", code(&raised.limit), figures::RAISED)?;
            }
            Event::AskFailed(failed) => writeln!(out, "_No reply: {}_\n", one_line(&failed.why))?,
            Event::Resumed(_) => {
                unanswered(out, &mut open, &calls)?;
                attempt.unfinished(out, story.plan)?;
                writeln!(out, "\n## Resumed at {}\n", entry.at.strftime("%Y-%m-%d %H:%M:%S UTC"))?;
            }
            Event::Asked(asked) => {
                summing_up = asked.keeps_turns.is_some();
                closing = !asked.tools_allowed && !summing_up;
            }
            Event::Shortened(shortened) => writeln!(out, "_To make room, {}_\n", figures::shortened(&shortened))?,
            Event::SummedUp(summed_up) => {
                writeln!(out, "## Summary of what went before\n")?;
                writeln!(out, "_To make room, {}_\n", figures::summed_up(&summed_up))?;
                fenced(out, "", &summed_up.summary)?;
                writeln!(out)?;
            }
            Event::CheckStarted(started) => {
                unanswered(out, &mut open, &calls)?;
                attempt.begin(out, started)?;
            }
            Event::CheckFinished(finished) => attempt.end(out, story.plan, &finished)?,
            Event::Changed(changed) if !changed.changes.is_empty() || changed.incomplete.is_some() => {
                unanswered(out, &mut open, &calls)?;
                writeln!(out, "\n## Files changed\n")?;
                fenced(out, "", &figures::files(&changed, figures::MOST_FILES))?;
                if !changed.patch.is_empty() {
                    writeln!(out, "\nLine by line: [changes.patch](changes.patch)")?;
                }
            }
            Event::Changed(_) => {}
            Event::AgentFinished(finished) if finished.compactions > 0 => {
                compactions.insert(finished.id, finished.compactions);
            }
            Event::RunStarted(_) | Event::AgentFinished(_) | Event::RunFinished(_) => {}
        }
    }
    unanswered(out, &mut open, &calls)?;
    attempt.unfinished(out, story.plan)
}

/// What was begun and never answered: the run ended before.
fn unanswered(out: &mut dyn Write, open: &mut Vec<CallStarted>, calls: &HashMap<String, ToolCall>) -> io::Result<()> {
    for started in open.drain(..) {
        let child = started.child.map(|id| format!(": {id}")).unwrap_or_default();
        writeln!(out, "### {}{child} (not finished)\n", one_line(&started.tool))?;
        if let Some(call) = calls.get(&started.call_id) {
            input(out, call)?;
        }
    }
    Ok(())
}

/// What the model said, as Markdown in which nothing is live. Its code blocks are written anew, so that none of them stays
/// open and swallows what follows, and no reader sees another end of one.
fn said(out: &mut dyn Write, text: &str) -> io::Result<()> {
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
            None => writeln!(out, "{}", inert(line))?,
            Some((begun, language, lines)) if fence.starts_with(*begun) && rest.trim().is_empty() => {
                block(out, language_of(language), &lines.join("\n"))?;
                open = None;
            }
            Some((_, _, lines)) => lines.push(line),
        }
    }
    if let Some((_, language, lines)) = open {
        block(out, language_of(language), &lines.join("\n"))?;
    }
    writeln!(out)
}

/// The language of a code block, where readers only colour it. From others they draw figures with links and images.
fn language_of(info: &str) -> &str {
    const DRAWN: [&str; 5] = ["mermaid", "math", "geojson", "topojson", "stl"];
    let word = info.split_whitespace().next().unwrap_or_default();
    let is_name = word.len() <= 20 && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-_#".contains(&byte));
    if is_name && !DRAWN.contains(&word.to_ascii_lowercase().as_str()) { word } else { "" }
}

/// A call's input: a command or a prompt as text, a plan as a list, anything else as JSON.
fn input(out: &mut dyn Write, call: &ToolCall) -> io::Result<()> {
    let value: serde_json::Value = serde_json::from_str(call.input.get()).unwrap_or_default();
    let fields = value.as_object().filter(|fields| !fields.is_empty());
    match fields {
        None => fenced(out, "json", call.input.get())?,
        Some(_) if call.tool == SubmitResult::NAME => fenced(out, "json", &format!("{value:#}"))?,
        Some(fields) => {
            if let Some(items) = fields.get("items").and_then(|items| items.as_array()).filter(|_| call.tool == "todo")
            {
                for item in items {
                    let text = |key: &str| item.get(key).and_then(|text| text.as_str()).unwrap_or_default();
                    let mark = if text("status") == "done" { "x" } else { " " };
                    let active = if text("status") == "in_progress" { " _(in progress)_" } else { "" };
                    writeln!(out, "- [{mark}] {}{active}", one_line(text("text")))?;
                }
            } else {
                let mut after_block = None;
                for (name, value) in fields {
                    let name = one_line(name);
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    let is_block = text.contains(['\n', '\r', '`']) || text.len() > 100;
                    // Right below a list item it would be read as a part of that.
                    if after_block.is_some_and(|after_block| after_block || is_block) {
                        writeln!(out)?;
                    }
                    if is_block {
                        writeln!(out, "{name}:\n")?;
                        fenced(out, "", &text)?;
                    } else {
                        writeln!(out, "- {name}: {}", code(&text))?;
                    }
                    after_block = Some(is_block);
                }
            }
        }
    }
    writeln!(out)
}

/// A code block, its content cut where it is very long.
fn fenced(out: &mut dyn Write, language: &str, text: &str) -> io::Result<()> {
    match text.char_indices().nth(LONGEST) {
        None => block(out, language, text),
        Some((cut, _)) => {
            let more = text[cut..].chars().count();
            let cut = &text[..cut];
            block(out, language, &format!("{cut}\n[{more} more characters are in events.jsonl]"))
        }
    }
}

/// A code block that its content can't leave.
fn block(out: &mut dyn Write, language: &str, text: &str) -> io::Result<()> {
    let fence = fence(text);
    writeln!(out, "{fence}{language}\n{}\n{fence}", visible(text).trim_end_matches('\n'))
}

/// What a text in between can't pass for.
fn fence(text: &str) -> String {
    let longest_run = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    "`".repeat(longest_run.max(2) + 1)
}

/// A foreign text on one line, in which nothing is live.
fn one_line(text: &str) -> String {
    inert(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A subagent's summary with its figures as YAML front matter; data comes as a block of JSON, before what was said.
pub fn summary(finished: &AgentFinished) -> String {
    #[derive(Serialize)]
    struct Front<'a> {
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
    let front = serde_yaml::to_string(&Front {
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
        let _ = block(&mut body, "json", &format!("{data:#}")).and_then(|()| writeln!(body));
    } else if finished.text.trim().is_empty() {
        body.extend(b"(no summary)");
    }
    let _ = said(&mut body, &finished.text);
    format!("---\n{}---\n\n{}\n", visible(&front), String::from_utf8_lossy(&body).trim_end())
}
