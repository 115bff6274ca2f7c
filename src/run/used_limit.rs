//! The limit that ended a run, which must be raised to continue the run, and how much of it was used.

use crate::event::{Outcome, RunResult};
use crate::formats::run_stats;
use crate::job::Duration;
use crate::plan::PlannedLimits;

/// The limit that ended a run.
#[derive(Debug, Clone, PartialEq)]
pub struct UsedLimit {
    /// Its name for `--limit`.
    pub name: &'static str,
    used: f64,
    limit: Option<f64>,
}

/// What the journals know about the use of limits, in addition to the result.
pub(super) struct RecordedUse<'a> {
    /// How long the run has run.
    pub(super) elapsed: std::time::Duration,
    /// How many calls were started, and how many of them for a subagent.
    pub(super) calls_started: (u64, u64),
    /// The last limit of the run that an agent reached, as its journal names it.
    pub(super) last_limit: Option<&'a str>,
}

impl UsedLimit {
    /// Finds the limit that ended a run.
    pub(super) fn from_result(
        result: &RunResult,
        recorded: &RecordedUse<'_>,
        limits: &PlannedLimits,
        max_turns: u32,
    ) -> Self {
        let tokens = result.usage.total() as f64;
        let cost = result.cost_usd.unwrap_or_default();
        let found = |name, used, limit| Self { name, used, limit };
        let count = |limit: Option<u64>| limit.map(|limit| limit as f64);
        match result.outcome {
            Outcome::TimedOut => {
                let used = recorded.elapsed.as_secs_f64();
                return found("wall_clock", used, limits.wall_clock_ms.map(|ms| ms as f64 / 1000.0));
            }
            Outcome::TurnLimit => {
                return found("max_turns", f64::from(result.turns), Some(f64::from(max_turns)));
            }
            _ => {}
        }
        let (calls, subagents) = recorded.calls_started;
        match recorded.last_limit {
            // The journal also has the calls that were refused.
            Some("limits.tool_calls") => {
                let limit = limits.tool_calls.unwrap_or(u64::MAX);
                found("tool_calls", calls.min(limit) as f64, count(limits.tool_calls))
            }
            Some("limits.subagents") => found("subagents", subagents as f64, count(limits.subagents)),
            Some("limits.cost_usd") => found("cost_usd", cost, limits.cost_usd),
            Some("limits.tokens") => found("tokens", tokens, count(limits.tokens)),
            // A reply was cut short, by the limit that has less left.
            _ => {
                let used = |used: f64, limit: Option<f64>| limit.map_or(0.0, |limit| used / limit);
                if used(cost, limits.cost_usd) > used(tokens, count(limits.tokens)) {
                    found("cost_usd", cost, limits.cost_usd)
                } else {
                    found("tokens", tokens, count(limits.tokens))
                }
            }
        }
    }

    /// Whether the limits of a plan leave more than was used.
    pub fn leaves_more(&self, limits: &PlannedLimits, max_turns: u32) -> bool {
        let limit = match self.name {
            "cost_usd" => limits.cost_usd,
            "wall_clock" => limits.wall_clock_ms.map(|ms| ms as f64 / 1000.0),
            "tool_calls" => limits.tool_calls.map(|count| count as f64),
            "subagents" => limits.subagents.map(|count| count as f64),
            "tokens" => limits.tokens.map(|count| count as f64),
            _ => Some(f64::from(max_turns)),
        };
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
            name => format!("{} of {limit} {name} are used", self.used),
        }
    }

    /// An argument for `--limit` that allows twice as much.
    pub fn argument(&self) -> String {
        let twice = 2.0 * self.limit.unwrap_or_default().max(self.used);
        match self.name {
            "cost_usd" => format!("cost_usd={}", (twice * 100.0).ceil() / 100.0),
            "wall_clock" => format!("wall_clock={}", seconds(twice)),
            name => format!("{name}={}", twice.ceil()),
        }
    }
}

/// A duration in whole seconds, as a job writes it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn seconds(seconds: f64) -> String {
    let whole = seconds.ceil().max(1.0) as u64;
    Duration::from_seconds(whole).map_or_else(|| format!("{whole}s"), |time| time.to_string())
}
