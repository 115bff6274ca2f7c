//! Limits from the command line, which replace the job's.

use std::collections::BTreeMap;

use super::Plan;
use crate::diagnostic::suggest_name;
use crate::job::{Duration, MAX_PARALLEL_SUBAGENTS, MAX_TURNS, Size};

/// The limits of the whole run, as the job file names them.
const NAMES: [&str; 7] =
    ["cost_usd", "tokens", "wall_clock", "tool_calls", "subagents", "upload", "parallel_subagents"];
const TURNS: &str = "max_turns";

/// An error in a limit from the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitOverrideError {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub hint: String,
}

impl Plan {
    /// Replaces limits: `cost_usd` and the others below `limits`, the parent's `max_turns`, and a subagent's as
    /// `explorer.max_turns`.
    ///
    /// # Errors
    /// There is no such limit, or the value is invalid. Some of the other limits may already be replaced.
    pub fn set_limits(&mut self, limits: &BTreeMap<String, String>) -> Result<(), LimitOverrideError> {
        limits.iter().try_for_each(|(name, value)| self.set_limit(name, value))
    }

    /// Takes the limits that `--limit` can set from another plan of the same job.
    pub fn take_limits(&mut self, other: &Self) {
        self.limits = other.limits.clone();
        self.parent.max_turns = other.parent.max_turns;
        for (name, subagent) in &mut self.subagents {
            subagent.max_turns = other.subagents.get(name).map_or(subagent.max_turns, |other| other.max_turns);
        }
    }

    fn set_limit(&mut self, name: &str, value: &str) -> Result<(), LimitOverrideError> {
        let bad = |expected: &str| LimitOverrideError {
            message: format!("--limit {name}={value}: `{value}` isn't valid for `{name}`"),
            hint: format!("Write {expected}."),
        };
        let count = || {
            or_none(value, || value.parse::<u64>().ok().filter(|count| *count > 0))
                .ok_or_else(|| bad("a whole number from 1 up, or none"))
        };
        let within = |most: u32| {
            let number = value.parse::<u32>().ok().filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| bad(&format!("a whole number from 1 to {most}")))
        };
        let limits = &mut self.limits;
        match name {
            "cost_usd" => {
                let usd = || value.parse::<f64>().ok().filter(|usd| usd.is_finite() && *usd > 0.0);
                let bad = || bad("US dollars, a number greater than 0, or none");
                limits.cost_usd = or_none(value, usd).ok_or_else(bad)?;
            }
            "tokens" => limits.tokens = count()?,
            "wall_clock" if value == "none" => limits.wall_clock_ms = None,
            "wall_clock" => {
                let time = Duration::parse(value).map_err(|why| LimitOverrideError {
                    message: format!("--limit {name}={value}: {why}"),
                    hint: "Write it like 90s, 20m or 1h30m, or none.".to_owned(),
                })?;
                limits.wall_clock_ms = Some(time.milliseconds());
            }
            "tool_calls" => limits.tool_calls = count()?,
            "subagents" => limits.subagents = count()?,
            "upload" => {
                let size = or_none(value, || Size::parse(value).map(Size::bytes));
                limits.upload_bytes = size.ok_or_else(|| bad("a size such as 500kB or 50MB, or none"))?;
            }
            "parallel_subagents" => limits.parallel_subagents = within(MAX_PARALLEL_SUBAGENTS)?,
            TURNS => self.parent.max_turns = within(MAX_TURNS)?,
            _ => {
                let turns = within(MAX_TURNS);
                let of = name.strip_suffix(TURNS).and_then(|name| name.strip_suffix('.'));
                match of.and_then(|subagent| self.subagents.get_mut(subagent)) {
                    Some(subagent) => subagent.max_turns = turns?,
                    None => return Err(self.unknown_limit(name)),
                }
            }
        }
        Ok(())
    }

    fn unknown_limit(&self, name: &str) -> LimitOverrideError {
        let of_subagents = self.subagents.keys().map(|name| format!("{name}.{TURNS}"));
        let all: Vec<String> =
            NAMES.iter().chain(&[TURNS]).map(|name| (*name).to_owned()).chain(of_subagents).collect();
        let hint = match suggest_name(name, all.iter().map(String::as_str)) {
            Some(meant) => format!("Did you mean `{meant}`?"),
            None => format!("The limits are: {}.", all.join(", ")),
        };
        LimitOverrideError { message: format!("--limit {name}: there is no such limit"), hint }
    }
}

/// Parses a limit that can be `none`.
fn or_none<T>(value: &str, parse: impl FnOnce() -> Option<T>) -> Option<Option<T>> {
    if value == "none" { Some(None) } else { parse().map(Some) }
}
