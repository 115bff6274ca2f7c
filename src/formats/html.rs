//! HTML: one self-contained page, without scripts or anything from elsewhere.

use std::io::{self, Write};

use minijinja::{Environment, Value, context};

use super::{Format, Story, Subject, figures, harmless};
use crate::event::{Entry, Event, summary_file};
use crate::message::View;

const PAGE: &str = include_str!("html/page.html");
const ENTRY: &str = include_str!("html/entry.html");
/// Where the page is cut to let the entries in between.
const ENTRIES: &str = "<!-- entries -->";
/// Longest text of one part of the page, in characters; the journal has it whole.
const LONGEST: usize = 10_000;

/// See the module.
pub(super) struct Html;

impl Format for Html {
    fn name(&self) -> &'static str {
        "html"
    }

    fn shows(&self) -> &'static [Subject] {
        &[Subject::Story]
    }

    fn story(&self, story: &mut Story<'_>, out: &mut dyn Write) -> Option<io::Result<()>> {
        Some(page(story, out).map_err(|error| match error {
            Failure::Io(error) => error,
            Failure::Template(error) => io::Error::other(error),
        }))
    }
}

enum Failure {
    Io(io::Error),
    Template(minijinja::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<minijinja::Error> for Failure {
    fn from(error: minijinja::Error) -> Self {
        Self::Template(error)
    }
}

fn page(story: &mut Story<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let mut templates = Environment::new();
    // The names end in .html, which switches escaping on.
    templates.add_template("page.html", PAGE)?;
    templates.add_template("entry.html", ENTRY)?;
    let figures: Vec<(&str, String)> = story.result.map(figures::of_run).unwrap_or_default();
    let subagents: Vec<Value> = story.result.iter().flat_map(|result| &result.subagents).map(|subagent| {
        context! {
            id => subagent.id.as_str(), file => summary_file(&subagent.id), description => subagent.description.as_deref(),
            outcome => subagent.outcome.as_str(), turns => subagent.turns, tool_calls => subagent.tool_calls,
            tokens => figures::usage(&subagent.usage), cost => figures::cost(subagent.cost_usd),
            time => figures::duration(subagent.duration_ms),
        }
    }).collect();
    let page = templates.get_template("page.html")?.render(context! {
        job => story.plan.job.as_str(), description => story.plan.description.as_deref(), system => story.plan.parent.system.as_str(),
        outcome => story.result.map_or("not finished", |result| result.outcome.as_str()),
        good => story.result.is_some_and(|result| result.exit_code == 0),
        error => story.result.and_then(|result| result.error.as_ref()).map(|error| {
            context! { code => error.code.as_str(), message => error.message.as_str(), hint => error.hint.as_deref() }
        }),
        text => story.result.map(|result| result.text.as_str()),
        data => story.result.and_then(|result| result.result.as_ref()).map(|data| short(&format!("{data:#}"))),
        figures, subagents,
    })?;
    let (head, foot) = page.split_once(ENTRIES).unwrap_or((&page, ""));
    out.write_all(visible(head).as_bytes())?;
    let entry_template = templates.get_template("entry.html")?;
    let mut coming = Coming::default();
    for entry in &mut *story.entries {
        for part in parts(entry, &mut coming) {
            out.write_all(visible(&entry_template.render(part)?).as_bytes())?;
        }
    }
    out.write_all(visible(foot).as_bytes())?;
    Ok(())
}

/// What the reply to come is for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Coming {
    #[default]
    Turn,
    /// The last word, which is no turn.
    Closing,
    /// A summary of what went before, which is none either.
    Summary,
}

/// What the page shows of an event: nothing, or one part after the other.
fn parts(entry: Entry, coming: &mut Coming) -> Vec<Value> {
    let part = |class: &str, title: String, text: &str| context! { class, title, text => short(text) };
    match entry.event {
        Event::AgentStarted(started) => vec![part("prompt", "Prompt".into(), &started.prompt)],
        // What it came to follows, in an event of its own.
        Event::Replied(replied) if *coming == Coming::Summary => {
            let note = |why| part("note", String::new(), &format!("the summary that was asked for {why}"));
            replied.reply.why_no_summary().map(note).into_iter().collect()
        }
        Event::Replied(replied) => {
            let is_last = *coming == Coming::Closing;
            let title = if is_last { "Last word".to_owned() } else { format!("Turn {}", replied.turn) };
            let mut shown = vec![part("turn", title, "")];
            if replied.reply.is_silent() {
                shown.push(part("note", String::new(), "the model said nothing"));
            }
            let stop = replied.reply.stop;
            shown.extend(replied.reply.blocks.into_iter().filter_map(|block| {
                match block.view {
                    View::Other(_) if block.why_refused(&stop).is_some() => block
                        .why_refused(&stop)
                        .map(|why| part("note", String::new(), &format!("the model refused: {why}"))),
                    View::Text(text) => Some(part("text", String::new(), &text)),
                    View::Thinking(text) if text.is_empty() => None,
                    View::Thinking(text) => Some(part("thinking", "Thinking".into(), &text)),
                    View::Call(call) => Some(part("call", call.tool.clone(), call.input.get())),
                    View::Other(kind) => Some(part("note", String::new(), &format!("a block of kind {kind}"))),
                }
            }));
            shown
        }
        Event::CallFinished(finished) => {
            let class = if finished.result.is_error { "result failed" } else { "result" };
            let title = format!("{} ({})", finished.tool, figures::duration(finished.duration_ms));
            vec![part(class, title, &finished.result.text)]
        }
        Event::Told(told) => vec![part("prompt", "legwork".into(), &told.text)],
        Event::Retrying(retrying) => vec![part("note", "Tried again".into(), &retrying.retry.why)],
        Event::Dropped(dropped) => vec![part("note", "Asked again".into(), &dropped.why)],
        Event::LimitReached(limit) => vec![part("note", format!("Limit {}", limit.limit), &limit.message)],
        Event::LimitRaised(raised) => vec![part("note", format!("Limit {} raised", raised.limit), figures::RAISED)],
        Event::AskFailed(failed) => vec![part("note", "No reply".into(), &failed.why)],
        Event::Resumed(_) => {
            vec![part("turn", format!("Resumed at {}", entry.at.strftime("%Y-%m-%d %H:%M:%S UTC")), "")]
        }
        Event::Asked(asked) => {
            *coming = match (asked.keeps_turns, asked.tools_allowed) {
                (Some(_), _) => Coming::Summary,
                (None, true) => Coming::Turn,
                (None, false) => Coming::Closing,
            };
            Vec::new()
        }
        Event::Shortened(shortened) => vec![part("note", "To make room".into(), &figures::shortened(&shortened))],
        Event::SummedUp(summed_up) => vec![
            part("note", "To make room".into(), &figures::summed_up(&summed_up)),
            part("prompt", "Summary of what went before".into(), &summed_up.summary),
        ],
        Event::CheckFinished(finished) => {
            let class = if finished.passed { "call" } else { "failed" };
            let attempt = match finished.attempt {
                1 => String::new(),
                attempt => format!(", attempt {attempt}"),
            };
            let time = figures::duration(finished.duration_ms);
            let title = format!("Check {}{attempt}: {} ({time})", finished.name, figures::check(&finished));
            vec![part(class, title, &finished.output)]
        }
        Event::Changed(changed) if !changed.changes.is_empty() || changed.incomplete.is_some() => {
            let mut shown = vec![part("turn", "Files changed".into(), "")];
            shown.push(part("text", String::new(), &figures::files(&changed, figures::MOST_FILES)));
            if !changed.patch.is_empty() {
                shown.push(part("result", "changes.patch".into(), &changed.patch));
            }
            shown
        }
        Event::CheckStarted(_) | Event::Changed(_) => Vec::new(),
        Event::RunStarted(_) | Event::CallStarted(_) | Event::AgentFinished(_) | Event::RunFinished(_) => Vec::new(),
    }
}

/// Control characters, which no page may hold, made visible.
fn visible(text: &str) -> String {
    let seen = |letter: char| if letter == '\n' { letter } else { harmless::stand_in(letter).unwrap_or(letter) };
    text.chars().map(seen).collect()
}

fn short(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((cut, _)) => {
            format!("{}\n[{} more characters are in events.jsonl]", &text[..cut], text[cut..].chars().count())
        }
    }
}
