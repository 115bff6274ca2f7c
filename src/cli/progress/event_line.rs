//! The line for an event in logs and above the live lines.

use crate::event::{Event, JournalEntry, PARENT};
use crate::formats::run_stats;
use crate::text::truncate;

/// The most characters of an error or of a check's output in a line.
pub(super) const MAX_LINE_CHARS: usize = 120;

/// The line for an event; `None` if it isn't notable.
pub(super) fn event_line(entry: &JournalEntry) -> Option<String> {
    Some(match &entry.event {
        Event::AgentStarted(started) => match &started.description {
            Some(description) => format!("started: {description} ({})", started.model),
            None => format!("started ({})", started.model),
        },
        Event::CallStarted(started) => match &started.child {
            Some(child) => format!("task -> {child}"),
            None => format!("{} {}", started.tool, started.subject),
        },
        Event::CallFinished(finished) if finished.result.is_error => {
            let line = finished.result.text.lines().next().unwrap_or_default();
            format!("{} failed: {}", finished.tool, truncate::first(line, MAX_LINE_CHARS))
        }
        Event::Retrying(retrying) => {
            let wait = run_stats::duration(retrying.retry.wait_ms);
            format!("attempt {} failed, retrying in {wait}: {}", retrying.retry.attempt, retrying.retry.reason)
        }
        Event::ModelChanged(event) => run_stats::model_change(event),
        Event::ReplyDiscarded(event) => format!("reply discarded, asking again: {}", event.reason),
        Event::ResultsTruncated(event) => run_stats::truncation_summary(event),
        Event::ContextCompacted(event) => run_stats::compaction_summary(event),
        Event::ResultTaken(_) => run_stats::RESULT_TAKEN_NOTE.to_owned(),
        Event::LimitReached(limit) => format!("{}: {}", limit.limit, limit.message),
        Event::LimitRaised(raised) => format!("{} raised: {}", raised.limit, run_stats::LIMIT_RAISED_NOTE),
        Event::CheckStarted(started) if started.attempt == 1 => format!("check {}", started.name),
        Event::CheckStarted(started) => format!("check {} (attempt {})", started.name, started.attempt),
        Event::CheckFinished(finished) if finished.passed => {
            format!("check {} passed in {}", finished.name, run_stats::duration(finished.duration_ms))
        }
        Event::CheckFinished(finished) => {
            let line = finished.output.trim_end().lines().next_back().unwrap_or_default();
            let shown = truncate::first(line, MAX_LINE_CHARS);
            format!(
                "check {} {}: {shown}",
                finished.name,
                run_stats::check_verdict(finished.passed, finished.exit_code)
            )
        }
        // The end of the parent is the end of the run, which has a summary line of its own.
        Event::AgentFinished(finished) if finished.id == entry.agent && entry.agent != PARENT => {
            let stats =
                run_stats::agent_summary(finished.turns, finished.tool_calls, &finished.usage, finished.duration_ms);
            format!("{} after {stats}", finished.outcome)
        }
        _ => return None,
    })
}
