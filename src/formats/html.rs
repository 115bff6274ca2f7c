//! The HTML report: one self-contained page without scripts or external resources.

use std::io::{self, Write};

use minijinja::{Environment, Value, context};

use super::run_stats;
use super::transcript::{Part, Transcript, truncate_part};
use crate::event::summary_file;
use crate::text::sanitize;

const PAGE_TEMPLATE: &str = include_str!("html/page.html");
const ENTRY_TEMPLATE: &str = include_str!("html/entry.html");
/// The place of the entries in the page template.
const ENTRIES_MARK: &str = "<!-- entries -->";

/// Writes a recorded run, from its first event to its last.
///
/// # Errors
/// Writing to `out` failed.
pub fn transcript(transcript: &mut Transcript<'_>, out: &mut dyn Write) -> io::Result<()> {
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
        job => transcript.plan.job.as_str(), description => transcript.plan.description.as_deref(), system => transcript.plan.system_prompt(&transcript.plan.parent),
        outcome => transcript.result.map_or("not finished".to_owned(), |result| result.outcome.to_string()),
        good => transcript.result.is_some_and(|result| result.exit_code == 0),
        error => transcript.result.and_then(|result| result.error.as_ref()).map(|error| {
            context! { code => error.code.as_str(), message => error.message.as_str(), hint => error.hint.as_deref() }
        }),
        text => transcript.result.map(|result| result.text.as_str()),
        data => transcript.result.and_then(|result| result.result.as_ref()).map(|data| truncate_part(&format!("{data:#}"))),
        stats, subagents,
    });
    let page = page.map_err(io::Error::other)?;
    let (head, foot) = page.split_once(ENTRIES_MARK).unwrap_or((&page, ""));
    out.write_all(show_control_chars(head).as_bytes())?;
    let entry_template = templates.get_template("entry.html").map_err(io::Error::other)?;
    for piece in transcript.parts().flat_map(pieces) {
        out.write_all(show_control_chars(&entry_template.render(piece).map_err(io::Error::other)?).as_bytes())?;
    }
    out.write_all(show_control_chars(foot).as_bytes())
}

/// The pieces of the page that show a part: each has a class, a title and a text.
fn pieces(part: Part) -> Vec<Value> {
    let piece = |class: &str, title: String, text: &str| context! { class, title, text => truncate_part(text) };
    let untitled = |class, text: &str| vec![piece(class, String::new(), text)];
    match part {
        Part::Heading(title) => vec![piece("turn", title, "")],
        Part::Note(text) => untitled("note", &text),
        Part::Prompt(title, text) => vec![piece("prompt", title.to_owned(), &text)],
        Part::Text(text) => untitled("text", &text),
        Part::Thinking(text) => vec![piece("thinking", "Thinking".to_owned(), &text)],
        Part::Call(part) => {
            let title = part.child.iter().fold(part.tool.clone(), |tool, child| format!("{tool}: {child}"));
            let titled = format!("{title} ({})", part.status());
            let (is_error, text) = part.finished.map(|it| (it.result.is_error, it.result.text)).unwrap_or_default();
            let call = part.call.map(|call| piece("call", title, call.input.get()));
            let result = piece(if is_error { "result failed" } else { "result" }, titled, &text);
            call.into_iter().chain([result]).collect()
        }
        Part::Check(name, None) => vec![piece("failed", format!("Check {name} (not finished)"), "")],
        Part::Check(name, Some(finished)) => {
            let class = if finished.passed { "call" } else { "failed" };
            let attempt = if finished.attempt > 1 { format!(", attempt {}", finished.attempt) } else { String::new() };
            let time = run_stats::duration(finished.duration_ms);
            let title = format!(
                "Check {name}{attempt}: {} ({time})",
                run_stats::check_verdict(finished.passed, finished.exit_code)
            );
            vec![piece(class, title, &finished.output)]
        }
        Part::Changes(changed) => {
            let mut pieces = untitled("text", &run_stats::changed_file_lines(&changed, run_stats::MAX_LISTED_FILES));
            if !changed.patch.is_empty() {
                pieces.push(piece("result", "changes.patch".to_owned(), &changed.patch));
            }
            pieces
        }
    }
}

/// Makes control characters visible, which aren't allowed in HTML.
pub(super) fn show_control_chars(text: &str) -> String {
    let visible =
        |letter: char| if letter == '\n' { letter } else { sanitize::replacement_char(letter).unwrap_or(letter) };
    text.chars().map(visible).collect()
}
