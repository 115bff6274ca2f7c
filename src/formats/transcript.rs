//! A recorded run as a conversation: its parts in reading order, as the transcript and the report show them.

use std::collections::HashMap;

use super::run_stats;
use crate::event::{
    CallFinished, CallStarted, CheckFinished, Event, JournalEntry, RunResult, WorkspaceChanged, in_call_order,
};
use crate::message::{BlockContent, Reply, ToolCall};
use crate::plan::Plan;
use crate::text::truncate;

/// The most characters of one part. The journal has the full text.
const MAX_PART_CHARS: usize = 10_000;

/// A recorded run.
pub struct Transcript<'a> {
    /// The plan of the run.
    pub plan: &'a Plan,
    /// The result; `None` if the run hasn't ended.
    pub result: Option<&'a RunResult>,
    /// The parent's events, sorted for reading.
    entries: Box<dyn Iterator<Item = JournalEntry> + 'a>,
}

/// A part of a transcript.
pub(super) enum Part {
    /// The heading of what follows, such as `Turn 3`.
    Heading(String),
    /// What happened in between, in one line.
    Note(String),
    /// What the model got as text, with its title.
    Prompt(&'static str, String),
    /// Text of the model.
    Text(String),
    /// Thinking of the model.
    Thinking(String),
    /// A tool call.
    Call(Box<CallPart>),
    /// A check by its name. It didn't finish if the run ended or was interrupted.
    Check(String, Option<CheckFinished>),
    /// The files that the run changed.
    Changes(WorkspaceChanged),
}

/// A tool call with its result, if it has one.
pub(super) struct CallPart {
    pub(super) tool: String,
    /// The subagent that answers the call.
    pub(super) child: Option<String>,
    pub(super) call: Option<ToolCall>,
    pub(super) finished: Option<CallFinished>,
}

impl CallPart {
    /// How long the call took, and whether it failed.
    pub(super) fn status(&self) -> String {
        match &self.finished {
            None => "not finished".to_owned(),
            Some(finished) => {
                let failed = if finished.result.is_error { ", failed" } else { "" };
                format!("{}{failed}", run_stats::duration(finished.duration_ms))
            }
        }
    }
}

impl<'a> Transcript<'a> {
    /// Takes the parent's events in the order of the journal.
    pub fn new(
        plan: &'a Plan,
        result: Option<&'a RunResult>,
        journal: impl Iterator<Item = JournalEntry> + 'a,
    ) -> Self {
        Self { plan, result, entries: Box::new(in_call_order(journal)) }
    }

    /// The parts of the conversation.
    pub(super) fn parts(&mut self) -> impl Iterator<Item = Part> {
        let mut conversation = Conversation::default();
        self.entries.by_ref().map(Some).chain([None]).flat_map(move |entry| {
            match entry {
                Some(entry) => conversation.add(entry),
                None => conversation.end_open(),
            }
            std::mem::take(&mut conversation.parts)
        })
    }
}

/// What is known of a conversation while its events are read.
#[derive(Default)]
struct Conversation {
    /// The parts that are complete.
    parts: Vec<Part>,
    next_reply: NextReply,
    /// The calls of the last reply, by their ids.
    calls: HashMap<String, ToolCall>,
    /// Calls that have started and not finished, in order.
    open: Vec<CallStarted>,
    /// The attempt of the last check.
    attempt: u32,
    /// The name of the check that is running.
    running_check: Option<String>,
}

/// The purpose of the next reply.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum NextReply {
    #[default]
    Turn,
    /// The final reply after the turn limit, which isn't a turn.
    FinalReply,
    /// A summary of the conversation, which isn't a turn either.
    Summary,
}

impl Conversation {
    fn add(&mut self, entry: JournalEntry) {
        match entry.event {
            Event::AgentStarted(started) => self.parts.push(Part::Prompt("Prompt", started.prompt)),
            Event::NoteSent(note) => self.parts.push(Part::Prompt("legwork", note.text)),
            Event::RequestStarted(asked) => {
                self.next_reply = match (asked.kept_turns, asked.tools_allowed) {
                    (Some(_), _) => NextReply::Summary,
                    (None, true) => NextReply::Turn,
                    (None, false) => NextReply::FinalReply,
                };
            }
            // The next event, `ContextCompacted`, has the summary.
            Event::ReplyReceived(replied) if self.next_reply == NextReply::Summary => {
                if let Some(why) = replied.reply.unusable_summary_reason() {
                    self.note(format!("Compaction failed: the summary {why}"));
                }
            }
            Event::ReplyReceived(replied) => {
                self.end_open();
                self.heading(match self.next_reply {
                    NextReply::FinalReply => "Final reply".to_owned(),
                    _ => format!("Turn {}", replied.turn),
                });
                self.add_reply(replied.reply);
            }
            Event::CallStarted(started) => self.open.push(started),
            Event::CallFinished(finished) => {
                let at = self.open.iter().position(|started| started.call_id == finished.result.call_id);
                // Calls before this one got no result.
                let mut started: Vec<CallStarted> = self.open.drain(..at.map_or(0, |at| at + 1)).collect();
                let child = started.pop().and_then(|started| started.child);
                started.into_iter().for_each(|started| self.add_unanswered(started));
                self.parts.push(Part::Call(Box::new(CallPart {
                    tool: finished.tool.clone(),
                    child,
                    call: self.calls.get(&finished.result.call_id).cloned(),
                    finished: Some(finished),
                })));
            }
            Event::AgentFinished(_) => {}
            Event::ContextCompacted(compacted) => {
                self.note(format!("Compaction: {}", run_stats::compaction_summary(&compacted)));
                self.parts.push(Part::Prompt("Conversation summary", compacted.summary));
            }
            Event::Resumed(_) => {
                self.end_open();
                self.heading(format!("Resumed at {}", entry.at.strftime("%Y-%m-%d %H:%M:%S UTC")));
            }
            Event::CheckStarted(started) => {
                self.end_open();
                if self.attempt != started.attempt {
                    self.attempt = started.attempt;
                    let title = format!("Checks, attempt {}", started.attempt);
                    self.heading(if started.attempt > 1 { title } else { "Checks".to_owned() });
                }
                self.running_check = Some(started.name);
            }
            Event::CheckFinished(finished) => {
                self.running_check = None;
                self.parts.push(Part::Check(finished.name.clone(), Some(finished)));
            }
            Event::WorkspaceChanged(changed) if !changed.changes.is_empty() || changed.incomplete.is_some() => {
                self.end_open();
                self.heading("Files changed".to_owned());
                self.parts.push(Part::Changes(changed));
            }
            Event::Retrying(event) => {
                self.note(format!("Attempt {} failed: {}", event.retry.attempt, event.retry.reason));
            }
            Event::ReplyDiscarded(event) => self.note(format!("Reply discarded: {}", event.reason)),
            Event::RequestFailed(event) => self.note(format!("No reply: {}", event.reason)),
            Event::LimitReached(event) => self.note(format!("Limit `{}`: {}", event.limit, event.message)),
            Event::LimitRaised(event) => {
                self.note(format!("Limit `{}` raised: {}", event.limit, run_stats::LIMIT_RAISED_NOTE));
            }
            Event::ResultsTruncated(event) => {
                self.note(format!("Compaction: {}", run_stats::truncation_summary(&event)));
            }
            Event::RunStarted(_) | Event::WorkspaceChanged(_) | Event::RunFinished(_) => {}
        }
    }

    /// Adds the blocks of a reply. Its calls are added when they have their results.
    fn add_reply(&mut self, reply: Reply) {
        self.calls.clear();
        if reply.is_empty_reply() {
            self.note("Empty reply.".to_owned());
        }
        for block in reply.blocks {
            if let Some(why) = block.refusal_reason(&reply.stop) {
                self.note(format!("The model refused: {why}"));
                continue;
            }
            match block.content {
                BlockContent::Text(text) => self.parts.push(Part::Text(text)),
                BlockContent::Thinking(text) if text.is_empty() => {}
                BlockContent::Thinking(text) => self.parts.push(Part::Thinking(text)),
                BlockContent::Call(call) => drop(self.calls.insert(call.id.clone(), call)),
                BlockContent::Other(kind) => self.note(format!("(a block of type `{kind}`)")),
            }
        }
    }

    fn heading(&mut self, title: String) {
        self.parts.push(Part::Heading(title));
    }

    fn note(&mut self, text: String) {
        self.parts.push(Part::Note(text));
    }

    /// Adds the calls and the check that never finished.
    fn end_open(&mut self) {
        std::mem::take(&mut self.open).into_iter().for_each(|started| self.add_unanswered(started));
        self.parts.extend(self.running_check.take().map(|name| Part::Check(name, None)));
    }

    fn add_unanswered(&mut self, started: CallStarted) {
        let call = self.calls.get(&started.call_id).cloned();
        let CallStarted { tool, child, .. } = started;
        self.parts.push(Part::Call(Box::new(CallPart { tool, child, call, finished: None })));
    }
}

/// The text of a part, truncated if it is very long.
pub(super) fn truncate_part(text: &str) -> String {
    let shown = truncate::first(text, MAX_PART_CHARS);
    match text[shown.len()..].chars().count() {
        0 => text.to_owned(),
        more => format!("{shown}\n[{more} more characters in events.jsonl]"),
    }
}
