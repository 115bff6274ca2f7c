//! The limit that ended a run, which must be raised to continue the run, and how much of it was used.

use crate::job::Duration;
use crate::plan::PlannedLimits;
use crate::reports::run_stats;

/// The limit that ended a run.
#[derive(Debug, Clone, PartialEq)]
pub struct UsedLimit {
    /// Its name for `--limit`.
    pub name: &'static str,
    pub(super) used: f64,
    pub(super) limit: Option<f64>,
}

impl UsedLimit {
    /// Whether the limits of a plan leave more than was used.
    pub fn leaves_more(&self, limits: &PlannedLimits, max_turns: u32) -> bool {
        let limit = limit_value(self.name, limits, max_turns);
        limit.is_none_or(|limit| limit > self.used && self.limit.is_none_or(|before| limit > before))
    }

    /// Says in a few words what was used.
    pub fn used(&self) -> String {
        let limit = self.limit.unwrap_or(self.used);
        match self.name {
            "cost_usd" => format!("{} of {} are spent", run_stats::cost(Some(self.used)), run_stats::cost(Some(limit))),
            "wall_clock" => format!("it ran for {} of {}", seconds(self.used), seconds(limit)),
            "max_turns" => format!("{} of {limit} turns are used", self.used),
            "tool_calls" => format!("{} of {limit} tool calls are used", self.used),
            "upload" => format!("{} of {} are sent", size(self.used), size(limit)),
            name => format!("{} of {limit} {name} are used", self.used),
        }
    }

    /// An argument for `--limit` that allows twice as much.
    pub fn argument(&self) -> String {
        let twice = 2.0 * self.limit.unwrap_or_default().max(self.used);
        match self.name {
            "cost_usd" => format!("cost_usd={}", (twice * 100.0).ceil() / 100.0),
            "wall_clock" => format!("wall_clock={}", seconds(twice)),
            "upload" => format!("upload={}", size(twice)),
            name => format!("{name}={}", twice.ceil()),
        }
    }
}

/// A plan's limit as a number, in seconds if it is a time; `None` if there is none.
pub(super) fn limit_value(name: &str, limits: &PlannedLimits, max_turns: u32) -> Option<f64> {
    let count = |limit: Option<u64>| limit.map(|limit| limit as f64);
    match name {
        "cost_usd" => limits.cost_usd,
        "wall_clock" => limits.wall_clock_ms.map(|ms| ms as f64 / 1000.0),
        "tool_calls" => count(limits.tool_calls),
        "subagents" => count(limits.subagents),
        "tokens" => count(limits.tokens),
        "upload" => count(limits.upload_bytes),
        _ => Some(f64::from(max_turns)),
    }
}

/// A duration in whole seconds, as a job writes it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn seconds(seconds: f64) -> String {
    let whole = seconds.ceil().max(1.0) as u64;
    Duration::from_seconds(whole).map_or_else(|| format!("{whole}s"), |time| time.to_string())
}

/// A size as a job writes it, rounded up.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn size(bytes: f64) -> String {
    let bytes = bytes.ceil().max(0.0) as u64;
    if bytes < 10_000 {
        format!("{bytes}B")
    } else if bytes < 10_000_000 {
        format!("{}kB", bytes.div_ceil(1_000))
    } else {
        format!("{}MB", bytes.div_ceil(1_000_000))
    }
}
