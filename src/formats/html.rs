//! The HTML report: one self-contained page without scripts or external resources.

use std::io::{self, Write};

use minijinja::{Environment, Value, context};

use super::{Format, Subject, Transcript, run_stats};
use crate::event::{Event, JournalEntry, summary_file};
use crate::message::BlockContent;
use crate::text::sanitize;

const PAGE_TEMPLATE: &str = include_str!("html/page.html");
const ENTRY_TEMPLATE: &str = include_str!("html/entry.html");
/// The place of the entries in the page template.
const ENTRIES_MARK: &str = "<!-- entries -->";
/// The most characters in one part of the page. The journal has the full text.
const MAX_PART_CHARS: usize = 10_000;

pub(super) struct Html;

impl Format for Html {
    fn name(&self) -> &'static str {
        "html"
    }

    fn subjects(&self) -> &'static [Subject] {
        &[Subject::Transcript]
    }

    fn transcript(&self, transcript: &mut Transcript<'_>, out: &mut dyn Write) -> Option<io::Result<()>> {
        Some(page(transcript, out))
    }
}

fn page(transcript: &mut Transcript<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut templates = Environment::new();
    // The names end in .html, which switches escaping on.
    templates.add_template("page.html", PAGE_TEMPLATE).map_err(io::Error::other)?;
    templates.add_template("entry.html", ENTRY_TEMPLATE).map_err(io::Error::other)?;
    let stats: Vec<(&str, String)> = transcript.result.map(run_stats::run_stats).unwrap_or_default();
    let subagents: Vec<Value> = transcript.result.iter().flat_map(|result| &result.subagents).map(|subagent| {
        context! {
            id => subagent.id.as_str(), file => summary_file(&subagent.id), description => subagent.description.as_deref(),
            outcome => subagent.outcome.to_string(), turns => subagent.turns, tool_calls => subagent.tool_calls,
            tokens => run_stats::usage(&subagent.usage), cost => run_stats::cost(subagent.cost_usd),
            time => run_stats::duration(subagent.duration_ms),
        }
    }).collect();
    let page = templates.get_template("page.html").map_err(io::Error::other)?;
    let page = page.render(context! {
        job => transcript.plan.job.as_str(), description => transcript.plan.description.as_deref(), system => transcript.plan.parent.system.as_str(),
        outcome => transcript.result.map_or("not finished".to_owned(), |result| result.outcome.to_string()),
        good => transcript.result.is_some_and(|result| result.exit_code == 0),
        error => transcript.result.and_then(|result| result.error.as_ref()).map(|error| {
            context! { code => error.code.as_str(), message => error.message.as_str(), hint => error.hint.as_deref() }
        }),
        text => transcript.result.map(|result| result.text.as_str()),
        data => transcript.result.and_then(|result| result.result.as_ref()).map(|data| truncate_text(&format!("{data:#}"))),
        stats, subagents,
    });
    let page = page.map_err(io::Error::other)?;
    let (head, foot) = page.split_once(ENTRIES_MARK).unwrap_or((&page, ""));
    out.write_all(show_control_chars(head).as_bytes())?;
    let entry_template = templates.get_template("entry.html").map_err(io::Error::other)?;
    let mut next_reply = NextReply::default();
    for entry in &mut *transcript.entries {
        for part in event_parts(entry, &mut next_reply) {
            out.write_all(show_control_chars(&entry_template.render(part).map_err(io::Error::other)?).as_bytes())?;
        }
    }
    out.write_all(show_control_chars(foot).as_bytes())?;
    Ok(())
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

/// The parts of the page that show an event.
fn event_parts(entry: JournalEntry, next_reply: &mut NextReply) -> Vec<Value> {
    let part = |class: &str, title: String, text: &str| context! { class, title, text => truncate_text(text) };
    match entry.event {
        Event::AgentStarted(started) => vec![part("prompt", "Prompt".into(), &started.prompt)],
        // The next event, `ContextCompacted`, has the summary.
        Event::ReplyReceived(replied) if *next_reply == NextReply::Summary => {
            let note = |why| part("note", String::new(), &format!("compaction failed: the summary {why}"));
            replied.reply.unusable_summary_reason().map(note).into_iter().collect()
        }
        Event::ReplyReceived(replied) => {
            let is_last = *next_reply == NextReply::FinalReply;
            let title = if is_last { "Final reply".to_owned() } else { format!("Turn {}", replied.turn) };
            let mut parts = vec![part("turn", title, "")];
            if replied.reply.is_empty_reply() {
                parts.push(part("note", String::new(), "empty reply"));
            }
            let stop = replied.reply.stop;
            parts.extend(replied.reply.blocks.into_iter().filter_map(|block| {
                match block.content {
                    BlockContent::Other(_) if block.refusal_reason(&stop).is_some() => block
                        .refusal_reason(&stop)
                        .map(|why| part("note", String::new(), &format!("the model refused: {why}"))),
                    BlockContent::Text(text) => Some(part("text", String::new(), &text)),
                    BlockContent::Thinking(text) if text.is_empty() => None,
                    BlockContent::Thinking(text) => Some(part("thinking", "Thinking".into(), &text)),
                    BlockContent::Call(call) => Some(part("call", call.tool.clone(), call.input.get())),
                    BlockContent::Other(kind) => Some(part("note", String::new(), &format!("a block of type {kind}"))),
                }
            }));
            parts
        }
        Event::CallFinished(finished) => {
            let class = if finished.result.is_error { "result failed" } else { "result" };
            let title = format!("{} ({})", finished.tool, run_stats::duration(finished.duration_ms));
            vec![part(class, title, &finished.result.text)]
        }
        Event::NoteSent(note) => vec![part("prompt", "legwork".into(), &note.text)],
        Event::Retrying(retrying) => vec![part("note", "Retry".into(), &retrying.retry.reason)],
        Event::ReplyDiscarded(dropped) => vec![part("note", "Reply discarded".into(), &dropped.reason)],
        Event::LimitReached(limit) => vec![part("note", format!("Limit {}", limit.limit), &limit.message)],
        Event::LimitRaised(raised) => {
            vec![part("note", format!("Limit {} raised", raised.limit), run_stats::LIMIT_RAISED_NOTE)]
        }
        Event::RequestFailed(failed) => vec![part("note", "No reply".into(), &failed.reason)],
        Event::Resumed(_) => {
            vec![part("turn", format!("Resumed at {}", entry.at.strftime("%Y-%m-%d %H:%M:%S UTC")), "")]
        }
        Event::RequestStarted(asked) => {
            *next_reply = match (asked.kept_turns, asked.tools_allowed) {
                (Some(_), _) => NextReply::Summary,
                (None, true) => NextReply::Turn,
                (None, false) => NextReply::FinalReply,
            };
            Vec::new()
        }
        Event::ResultsTruncated(truncated) => {
            vec![part("note", "Compaction".into(), &run_stats::truncation_summary(&truncated))]
        }
        Event::ContextCompacted(compacted) => vec![
            part("note", "Compaction".into(), &run_stats::compaction_summary(&compacted)),
            part("prompt", "Conversation summary".into(), &compacted.summary),
        ],
        Event::CheckFinished(finished) => {
            let class = if finished.passed { "call" } else { "failed" };
            let attempt = match finished.attempt {
                1 => String::new(),
                attempt => format!(", attempt {attempt}"),
            };
            let time = run_stats::duration(finished.duration_ms);
            let title = format!("Check {}{attempt}: {} ({time})", finished.name, run_stats::check_verdict(&finished));
            vec![part(class, title, &finished.output)]
        }
        Event::WorkspaceChanged(changed) if !changed.changes.is_empty() || changed.incomplete.is_some() => {
            let mut parts = vec![part("turn", "Files changed".into(), "")];
            parts.push(part(
                "text",
                String::new(),
                &run_stats::changed_file_lines(&changed, run_stats::MAX_LISTED_FILES),
            ));
            if !changed.patch.is_empty() {
                parts.push(part("result", "changes.patch".into(), &changed.patch));
            }
            parts
        }
        Event::CheckStarted(_) | Event::WorkspaceChanged(_) => Vec::new(),
        Event::RunStarted(_) | Event::CallStarted(_) | Event::AgentFinished(_) | Event::RunFinished(_) => Vec::new(),
    }
}

/// Makes control characters visible, which aren't allowed in HTML.
fn show_control_chars(text: &str) -> String {
    let visible =
        |letter: char| if letter == '\n' { letter } else { sanitize::replacement_char(letter).unwrap_or(letter) };
    text.chars().map(visible).collect()
}

fn truncate_text(text: &str) -> String {
    match text.char_indices().nth(MAX_PART_CHARS) {
        None => text.to_owned(),
        Some((cut, _)) => {
            format!("{}\n[{} more characters in events.jsonl]", &text[..cut], text[cut..].chars().count())
        }
    }
}
