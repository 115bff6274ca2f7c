//! The conversation in the report: agents with their steps, each subagent inside the call that started it.

use std::io;

use minijinja::{Environment, Value, context};

use super::bounded_writer::BoundedWriter;
use super::escape::escape;
use super::outline::{AgentOutline, Outline, call_anchor, checks_failed};
use super::text_blocks::TextLimit;
use crate::conversation::{Call, CheckAttempt, Conversation, ReplyBlock, Step, StepKind, Text, Turn, TurnKind};
use crate::event::{CallEnd, MergedChanges, Outcome};
use crate::journal::journal_file;
use crate::message::Usage;
use crate::reports::call_input::{InputPart, input_parts};
use crate::reports::run_stats;
use crate::reports::step_view::{Severity, StepView, checks_title, notes_after_reply, notes_before_reply, turn_title};
use crate::text::{pluralize, truncate};

/// The place of a subagent in its call.
const CHILD_MARK: &str = "<!-- subagent -->";
/// The most characters of a call's subject in its title.
const MAX_SUBJECT_CHARS: usize = 160;
/// The most fields of a call's input that are shown on their own.
const MAX_FIELDS: usize = 40;
/// A failed call shows at least this much of its texts.
const MIN_FAILED_CHARS: usize = 2_000;
/// The most blocks of a reply, notes about a request, and checks of an attempt that are shown. Only planted journals have
/// more.
const MAX_BLOCKS: usize = 500;
const MAX_NOTES: usize = 100;
const MAX_CHECKS: usize = 500;

/// Writes the conversation, agent by agent.
pub(super) struct ConversationWriter<'c, 'a> {
    pub(super) templates: &'c Environment<'static>,
    pub(super) conversation: &'c Conversation,
    pub(super) outline: &'c Outline<'a>,
    /// The most characters of a text.
    pub(super) max_chars: usize,
    /// The index of the next agent of the outline.
    next_agent: usize,
}

impl<'c, 'a> ConversationWriter<'c, 'a> {
    pub(super) fn new(
        templates: &'c Environment<'static>,
        conversation: &'c Conversation,
        outline: &'c Outline<'a>,
        max_chars: usize,
    ) -> Self {
        Self { templates, conversation, outline, max_chars, next_agent: 0 }
    }

    /// Writes all agents.
    pub(super) fn write(mut self, out: &mut BoundedWriter<'_>) -> io::Result<()> {
        while self.next_agent < self.outline.agents.len() {
            self.write_agent(out)?;
        }
        Ok(())
    }

    /// Writes the next agent with its subagents.
    fn write_agent(&mut self, out: &mut BoundedWriter<'_>) -> io::Result<()> {
        let outline = self.outline;
        let Some(outlined) = outline.agents.get(self.next_agent) else { return Ok(()) };
        self.next_agent += 1;
        let agent = outlined.agent;
        let file = journal_file(&agent.id);
        if out.is_full() && outlined.depth > 0 {
            let why = format!("This page has no room for {}: see {file}.", agent.id);
            return out.write(&format!("<p class=\"cut\" id=\"{}\">{}</p>", escape(&outlined.anchor), escape(&why)));
        }
        let limit = TextLimit { chars: self.max_chars, file: &file };
        let level = (3 + 2 * outlined.depth).min(5);
        let plan = &self.conversation.plan;
        let system = plan.agent(&agent.id).map(|planned| plan.system_prompt(planned));
        let begin = self.render("agent.html", context! {
            level, anchor => outlined.anchor.as_str(), agent => agent.id.as_str(),
            about => agent_about(outlined), description => agent.description.as_deref(), model => run_stats::agent_models(agent),
            system => system.filter(|text| !text.is_empty()).map(|text| safe(limit.plain(&text))),
            prompt => (!agent.prompt.is_empty()).then(|| safe(limit.block(&agent.prompt))),
            has_no_journal => agent.has_no_journal, is_parent => outlined.depth == 0,
        })?;
        out.write(&begin)?;
        let mut hidden = 0_usize;
        for (step, anchor) in agent.steps.iter().zip(&outlined.steps) {
            if out.is_full() {
                hidden += 1;
                self.next_agent += children(step);
                continue;
            }
            let html = self.step(outlined, step, anchor, level + 1, &limit)?;
            let mut pieces = html.split(CHILD_MARK);
            let next_agent = self.next_agent + children(step);
            out.write(pieces.next().unwrap_or_default())?;
            for piece in pieces {
                self.write_agent(out)?;
                out.write(piece)?;
            }
            // Those of calls that aren't shown.
            self.next_agent = next_agent;
        }
        let dropped = agent.dropped.iter().map(dropped_step).collect::<Vec<_>>();
        let end = self.render(
            "agent_end.html",
            context! { dropped, hidden, file => file.as_str(), agent => agent.id.as_str() },
        )?;
        out.write(&end)
    }

    fn render(&self, template: &str, values: Value) -> io::Result<String> {
        self.templates.get_template(template).and_then(|template| template.render(values)).map_err(io::Error::other)
    }

    fn step(
        &self,
        outlined: &AgentOutline<'_>,
        step: &Step,
        anchor: &str,
        level: usize,
        limit: &TextLimit<'_>,
    ) -> io::Result<String> {
        let agent = outlined.agent.id.as_str();
        match &step.kind {
            StepKind::Turn(turn) => return self.turn(agent, turn, anchor, level, limit),
            StepKind::Checks(attempt) => {
                return self.render("checks.html", checks_context(self.conversation, attempt, anchor, agent, limit));
            }
            _ => {}
        }
        let Some(view) = StepView::of_step(step) else { return Ok(String::new()) };
        let body = view.block.map(|(heading, text)| match heading {
            "" => limit.block(text),
            _ => format!("<details><summary>{}</summary>{}</details>", escape(heading), limit.block(text)),
        });
        let (kind, title, failed) = (view.kind, view.line(), view.severity == Severity::Failure);
        self.render("note.html", context! { anchor, agent, kind, title, body => body.map(safe), failed })
    }

    fn turn(&self, agent: &str, turn: &Turn, anchor: &str, level: usize, limit: &TextLimit<'_>) -> io::Result<String> {
        let mut blocks: Vec<Value> = Vec::new();
        let mut shown = vec![false; turn.calls.len()];
        for block in turn.blocks.iter().take(MAX_BLOCKS) {
            blocks.push(match block {
                ReplyBlock::Text(text) if text.shown.trim().is_empty() => continue,
                ReplyBlock::Text(text) => {
                    context! { kind => "text", html => safe(limit.markdown(&text.shown, text.omitted_chars)) }
                }
                ReplyBlock::Thinking(text) => {
                    let size = pluralize(text.shown.chars().count() as u64 + text.omitted_chars, "character");
                    context! { kind => "thinking", size, html => safe(limit.block(text)) }
                }
                ReplyBlock::Refusal(text) => context! { kind => "refusal", html => safe(limit.block(text)) },
                ReplyBlock::Other(name) => context! { kind => "other", name => name.as_str() },
                ReplyBlock::Call(at) => match turn.calls.get(*at) {
                    Some(call) if !std::mem::replace(&mut shown[*at], true) => {
                        self.call(call, &call_anchor(anchor, *at), limit)
                    }
                    _ => continue,
                },
            });
        }
        let more_blocks = (turn.blocks.len().max(turn.calls.len())).saturating_sub(MAX_BLOCKS);
        if more_blocks == 0 {
            let unnamed = turn.calls.iter().enumerate().filter(|(at, _)| !shown[*at]);
            blocks.extend(unnamed.map(|(at, call)| self.call(call, &call_anchor(anchor, at), limit)));
        }
        let has_ended = self.conversation.result.is_some();
        let note = |view: &StepView<'_>| {
            context! { text => view.line(), failed => view.severity == Severity::Failure, is_retry => view.kind == "retry" }
        };
        let before = notes_before_reply(turn, has_ended);
        let after = notes_after_reply(turn);
        let explanation = match turn.kind {
            TurnKind::Turn => None,
            TurnKind::FinalReply => Some("a request without tools after a limit; not a turn"),
            TurnKind::Summary => Some("compaction; not a turn"),
        };
        let has_failed = before.iter().chain(&after).any(|view| view.severity == Severity::Failure)
            || turn.blocks.iter().any(|block| matches!(block, ReplyBlock::Refusal(_)));
        self.render(
            "turn.html",
            context! {
                anchor, agent, level, title => turn_title(turn), explanation, blocks, more_blocks, has_failed,
                before => before.iter().take(MAX_NOTES).map(note).collect::<Vec<_>>(),
                more_notes => before.len().saturating_sub(MAX_NOTES),
                after => after.iter().map(note).collect::<Vec<_>>(),
                file => limit.file, meta => turn_meta(turn), request_id => turn.request_id.as_deref().filter(|_| turn.failed.is_some()),
            },
        )
    }

    fn call(&self, call: &Call, anchor: &str, limit: &TextLimit<'_>) -> Value {
        let view = StepView::of_call(call);
        let failed = view.severity == Severity::Failure;
        let limit = TextLimit { chars: if failed { limit.chars.max(MIN_FAILED_CHARS) } else { limit.chars }, ..*limit };
        let outlined = call
            .child
            .as_ref()
            .and_then(|child| self.outline.agents.iter().find(|outlined| std::ptr::eq(outlined.agent, &**child)));
        let result = match &call.result {
            Some(result) => limit.block(result),
            None => format!("<p class=\"cut\">{}</p>", escape(&view.note)),
        };
        context! {
            kind => "call", anchor, tool => call.tool.as_str(),
            subject => match (&call.child, call.subject.is_empty()) {
                (Some(child), true) => child.id.clone(),
                (Some(child), false) => format!("{}: {}", child.id, truncate::ellipsize(&call.subject, MAX_SUBJECT_CHARS)),
                (None, _) => truncate::ellipsize(&call.subject, MAX_SUBJECT_CHARS),
            },
            failed, status => view.note, time => view.duration_ms.map(run_stats::duration),
            about => outlined.map(agent_about),
            inner_failures => outlined.map_or(0, |outlined| outlined.counts.failed_calls),
            ended_badly => call.child.as_ref().is_some_and(|child| {
                child.finished.as_ref().is_none_or(|end| end.outcome != Outcome::Completed)
            }),
            input => call.child.is_none().then(|| safe(input(call, &limit))),
            truncated => call.truncated_to.map(|chars| pluralize(chars, "character")),
            merged => call.merged.as_ref().map(merged), child => call.child.is_some(),
            result => safe(result),
        }
    }
}

/// One attempt of the checks.
pub(super) fn checks_context(
    conversation: &Conversation,
    attempt: &CheckAttempt,
    anchor: &str,
    agent: &str,
    limit: &TextLimit<'_>,
) -> Value {
    let checks: Vec<Value> = attempt
        .checks
        .iter()
        .take(MAX_CHECKS)
        .enumerate()
        .map(|(at, (name, _, end))| {
            let command =
                conversation.plan.checks.iter().find(|check| check.name == *name).map(|check| check.run.trim());
            let view = StepView::of_check_at(attempt, at);
            context! {
                name => name.as_str(), verdict => view.note, passed => view.severity == Severity::Normal, command,
                time => view.duration_ms.map(run_stats::duration),
                output => end.as_ref().map(|(_, end)| safe(limit.plain(&end.output))),
            }
        })
        .collect();
    let more = attempt.checks.len() - checks.len();
    context! { anchor, agent, title => checks_title(attempt), checks, more, failed => checks_failed(attempt) }
}

/// The number of agents that a step started.
fn children(step: &Step) -> usize {
    match &step.kind {
        StepKind::Turn(turn) => turn.calls.iter().filter(|call| call.child.is_some()).count(),
        _ => 0,
    }
}

/// An agent's figures in one line.
fn agent_about(outlined: &AgentOutline<'_>) -> String {
    let agent = outlined.agent;
    let mut parts = Vec::new();
    match &agent.finished {
        Some(end) => {
            parts.push(end.outcome.to_string());
            parts.push(run_stats::agent_summary(end.turns, end.tool_calls, &end.usage, end.duration_ms));
            parts.extend(end.cost_usd.map(|cost| run_stats::cost(Some(cost))));
        }
        None => {
            parts.push(CallEnd::NotFinished.to_string());
            parts.push(pluralize(outlined.counts.turns, "turn"));
            parts.push(pluralize(outlined.counts.calls, "tool call"));
        }
    }
    parts.join(", ")
}

/// Tokens, cost and time of a turn.
fn turn_meta(turn: &Turn) -> String {
    let mut parts = Vec::new();
    if turn.usage.total() > 0 {
        parts.push(usage(&turn.usage));
    }
    parts.extend(turn.cost_usd.map(|cost| run_stats::cost(Some(cost))));
    if turn.duration_ms > 0 {
        parts.push(run_stats::duration(turn.duration_ms));
    }
    parts.join(" · ")
}

/// `12.3k in (80 % cached), 850 out`.
pub(super) fn usage(usage: &Usage) -> String {
    let prompt = usage.prompt();
    let cached = match usage.cache_read_tokens {
        0 => String::new(),
        read => format!(" ({} % cached)", u128::from(read) * 100 / u128::from(prompt.max(1))),
    };
    format!("{} in{cached}, {} out", run_stats::tokens(prompt), run_stats::tokens(usage.output_tokens))
}

fn merged(merged: &MergedChanges) -> Vec<String> {
    let mut lines: Vec<String> = merged.conflicts.iter().map(|conflict| format!("not applied: {conflict}")).collect();
    if !merged.files.is_empty() {
        lines.push(format!("applied: {}", merged.files.join(", ")));
    }
    if merged.may_be_partial {
        lines.push("some changes may be in the workspace".to_owned());
    }
    lines.extend(merged.note.clone());
    lines.into_iter().take(MAX_FIELDS).map(|line| truncate::ellipsize(&line, 500)).collect()
}

fn dropped_step(step: &Step) -> String {
    let what = match &step.kind {
        StepKind::Turn(turn) if turn.replied_at.is_none() => format!("{}, sent again later", turn_title(turn)),
        StepKind::Turn(turn) => format!("{}, {}", turn_title(turn), turn_meta(turn)),
        StepKind::Checks(attempt) => checks_title(attempt),
        _ => StepView::of_step(step).map(|view| view.title).unwrap_or_default(),
    };
    format!("{}: {what}", step.at.strftime("%H:%M:%S"))
}

/// The input of a call.
fn input(call: &Call, limit: &TextLimit<'_>) -> String {
    let part = |part| match part {
        InputPart::Json(text) if text.is_empty() => String::new(),
        InputPart::Json(text) => limit.block(&text),
        InputPart::Items(items) => {
            let item = |(is_done, text): &(bool, String)| {
                format!("<li>{} {}</li>", if *is_done { "☑" } else { "☐" }, escape(text))
            };
            format!("<ul>{}</ul>", items.iter().map(item).collect::<String>())
        }
        InputPart::Fields(fields) => {
            let field = |(name, value): &(String, String)| {
                format!("<p class=\"field\">{} <code>{}</code></p>", escape(name), escape(value))
            };
            fields.iter().map(field).collect()
        }
        InputPart::Field(name, value) => {
            format!("<p class=\"field\">{}</p>{}", escape(&name), limit.block(&Text::whole(value)))
        }
        InputPart::Edit(old, new) => limit.edit(&old, &new),
    };
    input_parts(call).into_iter().map(part).collect()
}

/// HTML that our own code has escaped.
pub(super) fn safe(html: String) -> Value {
    Value::from_safe_string(html)
}
