//! The limits of a whole map.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ledger::MapLimits;
use crate::diagnostic::suggest_name;
use crate::error::Error;
use crate::job;

const NAMES: [&str; 3] = ["cost_usd", "tokens", "wall_clock"];

/// What a map may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct WholeMapLimits {
    /// For all processes and starts.
    pub of_all: MapLimits,
    /// For this process.
    pub wall_clock: Option<Duration>,
}

impl WholeMapLimits {
    /// Reads the values of `--limit`, by name.
    ///
    /// # Errors
    /// Names the limit that doesn't exist or has an invalid value.
    pub fn parse(arguments: BTreeMap<String, String>) -> Result<Self, Error> {
        let mut limits = Self::default();
        for (name, value) in arguments {
            let bad = |expected: &str| {
                Error::usage(
                    format!("--limit {name}={value}: `{value}` isn't valid for `{name}`"),
                    format!("Write {expected}."),
                )
            };
            match name.as_str() {
                // As in a job, it is no limit.
                known if NAMES.contains(&known) && value == "none" => {}
                "cost_usd" => {
                    let usd = value.parse::<f64>().ok().filter(|usd| usd.is_finite() && *usd > 0.0);
                    limits.of_all.cost_usd =
                        Some(usd.ok_or_else(|| bad("US dollars, a number greater than 0, or none"))?);
                }
                "tokens" => {
                    let tokens = value.parse::<u64>().ok().filter(|tokens| *tokens > 0);
                    limits.of_all.tokens = Some(tokens.ok_or_else(|| bad("a whole number from 1 up, or none"))?);
                }
                "wall_clock" => {
                    let time = job::Duration::parse(&value).map_err(|why| {
                        Error::usage(
                            format!("--limit {name}={value}: {why}"),
                            "Write it like 90s, 20m or 1h30m, or none.",
                        )
                    })?;
                    limits.wall_clock = Some(Duration::from_millis(time.milliseconds()));
                }
                _ => {
                    let hint = match suggest_name(&name, NAMES) {
                        Some(meant) => format!("Did you mean `{meant}`?"),
                        None => format!(
                            "The limits of a map are: {}. The limits of each row are in the job file.",
                            NAMES.join(", ")
                        ),
                    };
                    return Err(Error::usage(format!("--limit {name}: a map has no such limit"), hint));
                }
            }
        }
        Ok(limits)
    }
}
