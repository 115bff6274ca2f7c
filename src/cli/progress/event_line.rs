//! The line for an event in logs and above the live lines.

use crate::event::{Event, PARENT};
use crate::reports::run_stats;
use crate::reports::step_view::StepView;
use crate::text::truncate;

/// The most characters of an error or of a check's output in a line.
pub(super) const MAX_LINE_CHARS: usize = 120;

/// The line for an event of an agent; `None` if it isn't notable.
pub(super) fn event_line(agent: &str, event: &Event) -> Option<String> {
    Some(match event {
        Event::AgentStarted(started) => match &started.description {
            Some(description) => format!("started: {description} ({})", started.model),
            None => format!("started ({})", started.model),
        },
        Event::CallStarted(started) => match &started.child {
            Some(child) => format!("task -> {child}"),
            None => format!("{} {}", started.tool, started.subject),
        },
        Event::CallFinished(finished) if finished.end().is_failure() => {
            let line = finished.result.text.lines().next().unwrap_or_default();
            part_line(event, line)?
        }
        // These files are gone with the copy of the workspace that the subagent had.
        Event::CallFinished(finished) => {
            let note = finished.merged.as_ref()?.note.as_ref()?;
            format!("warning: files of a subagent: {note}")
        }
        Event::BeforeStarted(_) | Event::RunSkipped(_) => StepView::of_event(event)?.line(),
        Event::BeforeFinished(finished) if finished.error.is_none() && finished.warning.is_none() => {
            part_line(event, "")?
        }
        Event::CheckFinished(finished) if !finished.passed => {
            part_line(event, finished.output.trim_end().lines().next_back().unwrap_or_default())?
        }
        Event::CheckFinished(_) => part_line(event, "")?,
        // The end of the parent is the end of the run, which has a summary line of its own.
        Event::AgentFinished(finished) if finished.id == agent && agent != PARENT => {
            let stats =
                run_stats::agent_summary(finished.turns, finished.tool_calls, &finished.usage, finished.duration_ms);
            format!("{} after {stats}", finished.outcome)
        }
        event => StepView::of_event(event)?.line(),
    })
}

/// The line for a call or a check that has ended, with a line of its output, or else with its time.
fn part_line(event: &Event, output: &str) -> Option<String> {
    let view = StepView::of_event(event)?;
    Some(match truncate::first(output, MAX_LINE_CHARS) {
        "" => format!("{} {}", view.title, view.outcome()),
        output => format!("{} {}: {output}", view.title, view.note),
    })
}
