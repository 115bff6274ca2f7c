//! When agents waited for their model, for tools or for the next try, in running time.

use jiff::Timestamp;

use super::outline::{AgentOutline, Outline, call_anchor};
use crate::conversation::{Conversation, StepKind};
use crate::reports::step_view::{Severity, StepView, turn_title};

/// What an agent waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Activity {
    /// A reply of its model.
    Model,
    /// A tool or a check.
    Tool,
    /// The next try of a request.
    Wait,
    /// A subagent.
    Subagent,
}

/// A time in which an agent waits for one thing, in milliseconds of running time.
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) activity: Activity,
    pub(super) has_failed: bool,
    /// What it is: `turn 3`, `bash cargo test`.
    pub(super) label: String,
    /// The anchor of the turn, the call or the checks.
    pub(super) anchor: String,
}

/// A moment that stands out.
pub(super) struct Mark {
    pub(super) at: u64,
    pub(super) kind: MarkKind,
    pub(super) label: String,
    pub(super) anchor: String,
}

/// Why a moment stands out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MarkKind {
    Retry,
    Limit,
    Resumed,
}

/// Converts times of day to running time: the time between an interruption and its resume doesn't count.
pub(super) struct RunClock {
    start: i64,
    end: i64,
    /// The times in which the run wasn't running.
    gaps: Vec<(i64, i64)>,
}

impl RunClock {
    pub(super) fn of(conversation: &Conversation, outline: &Outline<'_>) -> Self {
        let mut times: Vec<i64> = Vec::new();
        let mut resumes: Vec<(i64, Option<i64>)> = Vec::new();
        times.extend(conversation.started.iter().map(|(at, _)| at.as_millisecond()));
        times.extend(
            conversation.result.iter().flat_map(|it| [it.started_at, it.finished_at]).map(Timestamp::as_millisecond),
        );
        for AgentOutline { agent, .. } in &outline.agents {
            times.extend(agent.started_at.iter().chain(&agent.last_at).map(|at| at.as_millisecond()));
            for step in &agent.steps {
                match &step.kind {
                    StepKind::Resumed(resumed) => {
                        resumes.push((step.at.as_millisecond(), resumed.last_seen.map(Timestamp::as_millisecond)));
                    }
                    StepKind::Turn(turn) => {
                        times.extend(turn.replied_at.map(Timestamp::as_millisecond));
                        times.extend(turn.calls.iter().filter_map(|call| Some(call.finished_at?.as_millisecond())));
                    }
                    _ => {}
                }
                times.push(step.at.as_millisecond());
            }
        }
        times.sort_unstable();
        let mut gaps: Vec<(i64, i64)> = Vec::new();
        for (resumed, last_seen) in resumes {
            let before = times.partition_point(|at| *at < resumed);
            let last =
                before.checked_sub(1).map_or(resumed, |at| times[at]).max(last_seen.unwrap_or(i64::MIN)).min(resumed);
            gaps.push((last, resumed));
        }
        gaps.sort_unstable();
        let start = times.first().copied().unwrap_or_default();
        Self { start, end: times.last().copied().unwrap_or(start), gaps }
    }

    /// The running time at a moment, in milliseconds.
    pub(super) fn at(&self, moment: Timestamp) -> u64 {
        self.running(moment.as_millisecond())
    }

    /// The running time in all.
    pub(super) fn total(&self) -> u64 {
        self.running(self.end)
    }

    fn running(&self, at: i64) -> u64 {
        let at = at.clamp(self.start, self.end);
        let paused: i64 = self.gaps.iter().map(|(from, to)| (at.min(*to) - from).max(0)).sum();
        u64::try_from(at - self.start - paused).unwrap_or_default()
    }
}

/// What an agent did over time, by start, and the moments that stand out.
pub(super) fn timeline_of(outlined: &AgentOutline<'_>, clock: &RunClock) -> (Vec<Span>, Vec<Mark>) {
    let (mut spans, mut marks) = (Vec::new(), Vec::new());
    for (step, anchor) in outlined.agent.steps.iter().zip(&outlined.steps) {
        let mark = |kind| {
            let label = StepView::of_step(step)?.line();
            Some(Mark { at: clock.at(step.at), kind, label, anchor: anchor.clone() })
        };
        match &step.kind {
            StepKind::Turn(turn) => {
                let span = |from, to, activity, has_failed, label| Span {
                    from,
                    to: u64::max(from, to),
                    activity,
                    has_failed,
                    label,
                    anchor: anchor.clone(),
                };
                let mut from = clock.at(step.at);
                let end = turn.replied_at.map_or(from, |at| clock.at(at));
                let label = turn_title(turn);
                for (at, retry) in &turn.retries {
                    let failed = clock.at(*at);
                    let next = failed.saturating_add(retry.wait_ms).min(end.max(failed));
                    spans.push(span(from, failed, Activity::Model, false, label.clone()));
                    spans.push(span(failed, next, Activity::Wait, false, format!("{label}: waiting to retry")));
                    let label = format!("{label}: {}", StepView::of_retry(retry).line());
                    marks.push(Mark { at: failed, kind: MarkKind::Retry, label, anchor: anchor.clone() });
                    from = next;
                }
                spans.push(span(from, end, Activity::Model, turn.failed.is_some(), label));
                for (at, call) in turn.calls.iter().enumerate() {
                    let Some(from) = call.started_at.map(|at| clock.at(at)) else { continue };
                    let to = call.finished_at.map_or(from, |at| clock.at(at));
                    let activity = if call.child.is_some() { Activity::Subagent } else { Activity::Tool };
                    let label = format!("{} {}", call.tool, call.subject);
                    let anchor = call_anchor(anchor, at);
                    spans.push(Span { anchor, ..span(from, to, activity, call.end().is_failure(), label) });
                }
            }
            StepKind::Checks(attempt) => {
                for (at, (_, started, end)) in attempt.checks.iter().enumerate() {
                    let view = StepView::of_check_at(attempt, at);
                    let from = clock.at(*started);
                    spans.push(Span {
                        from,
                        to: end.as_ref().map_or(from, |(ended, _)| clock.at(*ended)).max(from),
                        activity: Activity::Tool,
                        has_failed: view.severity == Severity::Failure,
                        label: view.title,
                        anchor: call_anchor(anchor, at),
                    });
                }
            }
            StepKind::LimitReached(_) => marks.extend(mark(MarkKind::Limit)),
            StepKind::Resumed(_) => marks.extend(mark(MarkKind::Resumed)),
            _ => {}
        }
    }
    spans.sort_by_key(|span| span.from);
    (spans, marks)
}

/// The wall time by what the run waited for, in milliseconds. A moment in which several agents wait counts once: as model
/// time if any of them waits for a model, else as tool time if any waits for a tool.
#[derive(Default, Debug, PartialEq, Eq)]
pub(super) struct TimeSplit {
    pub(super) model: u64,
    pub(super) tools: u64,
    pub(super) waits: u64,
    pub(super) other: u64,
    /// The times of all agents added up.
    pub(super) summed_model: u64,
    pub(super) summed_tools: u64,
    pub(super) summed_waits: u64,
}

impl TimeSplit {
    /// Splits the time from 0 to `total`.
    pub(super) fn of<'s>(spans: impl Iterator<Item = &'s Span>, total: u64) -> Self {
        let mut split = Self::default();
        let mut edges: Vec<(u64, usize, i64)> = Vec::new();
        for span in spans {
            let kind = match span.activity {
                Activity::Model => 0,
                Activity::Tool => 1,
                Activity::Wait => 2,
                Activity::Subagent => continue,
            };
            let length = span.to.min(total).saturating_sub(span.from);
            match kind {
                0 => split.summed_model += length,
                1 => split.summed_tools += length,
                _ => split.summed_waits += length,
            }
            edges.push((span.from.min(total), kind, 1));
            edges.push((span.to.min(total), kind, -1));
        }
        edges.push((total, 0, 0));
        edges.sort_unstable_by_key(|(at, ..)| *at);
        let (mut active, mut last) = ([0_i64; 3], 0);
        for (at, kind, change) in edges {
            let length = at - last;
            match active.map(|count| count > 0) {
                [true, ..] => split.model += length,
                [_, true, _] => split.tools += length,
                [_, _, true] => split.waits += length,
                _ => split.other += length,
            }
            active[kind] += change;
            last = at;
        }
        split
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_moment_counts_once() {
        let span = |from, to, activity| Span {
            from,
            to,
            activity,
            has_failed: false,
            label: String::new(),
            anchor: String::new(),
        };
        let spans = [
            span(0, 10, Activity::Model),
            span(5, 20, Activity::Tool),
            span(8, 12, Activity::Model),
            span(0, 90, Activity::Subagent),
            span(30, 40, Activity::Wait),
            span(35, 38, Activity::Tool),
            span(95, 200, Activity::Model),
        ];
        let split = TimeSplit::of(spans.iter(), 100);
        let expected = TimeSplit {
            model: 17,
            tools: 11,
            waits: 7,
            other: 65,
            summed_model: 19,
            summed_tools: 18,
            summed_waits: 10,
        };
        assert_eq!(split, expected);
        assert_eq!(split.model + split.tools + split.waits + split.other, 100);
    }
}
