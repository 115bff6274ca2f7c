//! The timeline of the report: an inline SVG with a lane for each agent.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::activity::{Activity, Mark, MarkKind, Span};
use super::escape::escape;
use crate::reports::run_stats::duration;
use crate::text::truncate;

/// The height of a lane, and of the axis above the lanes.
const LANE: usize = 18;
const AXIS: usize = 22;
/// The most lanes. A run with more agents shows the first ones.
pub(super) const MAX_LANES: usize = 200;
/// About how many bars the whole timeline may have.
const MAX_BARS: u64 = 12_000;
const MAX_MARKS_PER_LANE: usize = 200;
/// The most failed calls of a lane that get a bar of their own.
const MAX_FAILURES_PER_LANE: usize = 100;
const MAX_LABEL_CHARS: usize = 120;

/// An agent on the timeline.
pub(super) struct Lane {
    pub(super) id: String,
    /// From start to end.
    pub(super) life: (u64, u64),
    pub(super) anchor: String,
    pub(super) spans: Vec<Span>,
    pub(super) marks: Vec<Mark>,
}

/// Draws the lanes over `total` milliseconds.
pub(super) fn draw(lanes: &[Lane], total: u64) -> String {
    let lanes = &lanes[..lanes.len().min(MAX_LANES)];
    let total = total.max(1);
    let height = AXIS + LANE * lanes.len() + 4;
    let mut svg = format!(
        "<svg width=\"100%\" height=\"{height}\" role=\"img\" aria-label=\"Timeline. The table of agents has the same times as numbers.\">"
    );
    for (at, label) in ticks(total) {
        let x = percent(at, total);
        let _ = write!(svg, "<line class=\"grid\" x1=\"{x}\" x2=\"{x}\" y1=\"{AXIS}\" y2=\"{height}\"/>");
        let anchor = if at == 0 { "start" } else { "middle" };
        let _ = write!(svg, "<text x=\"{x}\" y=\"14\" text-anchor=\"{anchor}\">{label}</text>");
    }
    // Each bucket of short spans can have two bars.
    let buckets = (MAX_BARS / 2 / lanes.len().max(1) as u64).clamp(60, 2_000);
    for (row, lane) in lanes.iter().enumerate() {
        draw_lane(&mut svg, lane, AXIS + LANE * row, total, total / buckets);
    }
    svg + "</svg>"
}

fn draw_lane(svg: &mut String, lane: &Lane, top: usize, total: u64, shortest: u64) {
    let (x, width) = (percent(lane.life.0, total), percent(lane.life.1.saturating_sub(lane.life.0), total));
    let _ = write!(
        svg,
        "<a href=\"#{}\" tabindex=\"-1\"><rect class=\"life\" x=\"{x}\" y=\"{}\" width=\"{width}\" height=\"{}\"><title>{}</title></rect></a>",
        lane.anchor,
        top + 2,
        LANE - 4,
        escape(&format!("{}, {}", lane.id, duration(lane.life.1.saturating_sub(lane.life.0)))),
    );
    // The time of a subagent is in its own lane, so its call lies behind the others.
    let behind = lane.spans.iter().filter(|span| span.activity == Activity::Subagent);
    let before = lane.spans.iter().filter(|span| span.activity != Activity::Subagent);
    for layer in [behind.collect::<Vec<_>>(), before.collect()] {
        draw_bars(svg, lane, &layer, top, total, shortest);
    }
    for mark in lane.marks.iter().take(MAX_MARKS_PER_LANE) {
        let x = percent(mark.at, total);
        let title = title(&lane.id, &mark.label, None);
        let middle = top + LANE / 2;
        let shape = match mark.kind {
            MarkKind::Retry => format!("<circle class=\"retry\" cx=\"{x}\" cy=\"{middle}\" r=\"3.5\">{title}</circle>"),
            MarkKind::Limit => {
                format!("<line class=\"limit\" x1=\"{x}\" x2=\"{x}\" y1=\"{top}\" y2=\"{}\">{title}</line>", top + LANE)
            }
            MarkKind::Resumed => format!(
                "<line class=\"resumed\" x1=\"{x}\" x2=\"{x}\" y1=\"{top}\" y2=\"{}\">{title}</line>",
                top + LANE
            ),
        };
        let _ = write!(svg, "<a href=\"#{}\" tabindex=\"-1\">{shape}</a>", mark.anchor);
    }
}

/// Draws spans of a lane. Those that are shorter than `shortest` share a bar with the ones of their kind that start within
/// the same time.
fn draw_bars(svg: &mut String, lane: &Lane, spans: &[&Span], top: usize, total: u64, shortest: u64) {
    let mut buckets: BTreeMap<u64, [Vec<&Span>; 4]> = BTreeMap::new();
    let (mut long, mut failed): (Vec<&Span>, Vec<&Span>) = (Vec::new(), Vec::new());
    for span in spans {
        match span.to.saturating_sub(span.from) {
            _ if span.has_failed && failed.len() < MAX_FAILURES_PER_LANE => failed.push(span),
            length if length < shortest => {
                let bucket = buckets.entry(span.from / shortest).or_default();
                bucket[span.activity as usize].push(span);
            }
            _ => long.push(span),
        }
    }
    for span in long {
        bar(svg, lane, &Bar::of(span), top, total);
    }
    for kinds in buckets.values() {
        let sum: u64 =
            kinds.iter().flatten().map(|span| span.to.saturating_sub(span.from)).fold(0, u64::saturating_add);
        let Some(mut from) = kinds.iter().flatten().map(|span| span.from).min() else { continue };
        for spans in kinds {
            match spans.as_slice() {
                [] => {}
                [span] => bar(svg, lane, &Bar::of(span), top, total),
                [first, ..] => {
                    let length: u64 =
                        spans.iter().map(|span| span.to.saturating_sub(span.from)).fold(0, u64::saturating_add);
                    // A record can have any times.
                    let share = u128::from(length) * u128::from(shortest) / u128::from(sum.max(1));
                    let part = if sum > shortest { u64::try_from(share).unwrap_or(length) } else { length };
                    bar(svg, lane, &Bar { from, to: from + part, length, count: spans.len(), first }, top, total);
                    from += part;
                }
            }
        }
    }
    // A failed call is never behind another one.
    for span in failed {
        bar(svg, lane, &Bar::of(span), top, total);
    }
}

/// One span, or several short ones.
struct Bar<'s> {
    from: u64,
    to: u64,
    /// The time of all of them.
    length: u64,
    count: usize,
    first: &'s Span,
}

impl<'s> Bar<'s> {
    fn of(span: &'s Span) -> Self {
        Self { from: span.from, to: span.to, length: span.to.saturating_sub(span.from), count: 1, first: span }
    }
}

fn bar(svg: &mut String, lane: &Lane, bar: &Bar<'_>, top: usize, total: u64) {
    let span = bar.first;
    let class = match span.activity {
        _ if span.has_failed => "bad",
        Activity::Model => "model",
        Activity::Tool => "tool",
        Activity::Wait => "wait",
        Activity::Subagent => "sub",
    };
    // Too short to see is too short to click, but many such bars would look like much time.
    let least = (30.0 / lane.spans.len().max(1) as f64).clamp(0.01, 0.12);
    let width = (bar.to.saturating_sub(bar.from) as f64 * 100.0 / total as f64).max(least);
    let x = (bar.from as f64 * 100.0 / total as f64).min(100.0 - width);
    let label = match bar.count {
        1 => span.label.clone(),
        count => format!("{} and {} more", span.label, count - 1),
    };
    let title = title(&lane.id, &label, Some((bar.length, span.has_failed)));
    let _ = write!(
        svg,
        "<a href=\"#{}\" tabindex=\"-1\"><rect class=\"{class}\" x=\"{x:.3}%\" y=\"{}\" width=\"{width:.3}%\" height=\"{}\">{title}</rect></a>",
        span.anchor,
        top + 3,
        LANE - 6,
    );
}

fn title(agent: &str, label: &str, span: Option<(u64, bool)>) -> String {
    let label = truncate::ellipsize(&label.split_whitespace().collect::<Vec<_>>().join(" "), MAX_LABEL_CHARS);
    let rest = span.map(|(length, failed)| format!(", {}{}", duration(length), if failed { ", failed" } else { "" }));
    format!("<title>{}</title>", escape(&format!("{agent}: {label}{}", rest.unwrap_or_default())))
}

fn percent(part: u64, total: u64) -> String {
    format!("{:.3}%", (part as f64 * 100.0 / total as f64).min(100.0))
}

/// Round times on the axis, at most eight.
fn ticks(total: u64) -> Vec<(u64, String)> {
    const STEPS: [u64; 24] = [
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000,
        600_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 86_400_000,
    ];
    let step = STEPS.into_iter().find(|step| total / step < 8).unwrap_or(total / 8);
    // The last label would be cut off at the right edge.
    let is_inside = |at: &u64| *at == 0 || at.saturating_mul(100) < total.saturating_mul(96);
    let times = (0..=8).map(|number| number * step).filter(|at| *at <= total).filter(is_inside);
    times.map(|at| (at, if at == 0 { "0".to_owned() } else { tick_label(at) })).collect()
}

/// A time without `.0`.
fn tick_label(ms: u64) -> String {
    duration(ms).replace(".0 s", " s")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(count: u64) -> Lane {
        let spans = (0..count).map(|number| Span {
            from: number * 10,
            to: number * 10 + 8,
            activity: if number % 2 == 0 { Activity::Model } else { Activity::Tool },
            has_failed: number % 500 == 7,
            label: format!("<turn> {number}"),
            anchor: format!("parent.t{number}"),
        });
        let life = (0, count * 10);
        Lane { id: "parent".into(), life, anchor: "parent".into(), spans: spans.collect(), marks: Vec::new() }
    }

    #[test]
    fn many_bars_are_joined_but_not_the_failed_ones() {
        let small = draw(&[lane(20)], 200);
        assert_eq!(small.matches("<rect").count(), 21, "{small}");
        let lanes: Vec<Lane> = (0..40).map(|_| lane(4_000)).collect();
        let svg = draw(&lanes, 40_000);
        assert!(svg.matches("<rect").count() < 2 * MAX_BARS as usize && svg.len() < 5_000_000, "{}", svg.len());
        assert_eq!(svg.matches("class=\"bad\"").count(), 40 * 8);
        assert!(!svg.contains("<turn>") && svg.contains("&lt;turn&gt;") && !svg.contains("style="));
        let many: Vec<Lane> = (0..500).map(|_| lane(100)).collect();
        assert_eq!(draw(&many, 1_000).matches("class=\"life\"").count(), MAX_LANES);
    }

    #[test]
    fn the_axis_has_round_times() {
        let labels = |total| ticks(total).into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(labels(42), ["0", "10 ms", "20 ms", "30 ms", "40 ms"]);
        assert_eq!(labels(0), ["0"]);
        assert_eq!(labels(200_000), ["0", "30 s", "1 min", "1 min 30 s", "2 min", "2 min 30 s", "3 min"]);
        assert!(labels(u64::MAX / 1_000).len() <= 9);
    }
}
