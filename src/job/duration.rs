//! Durations as a job writes them: `90s`, `20m`, `1h30m`.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::yaml;

/// The longest duration in a job.
pub const MAX_DURATION: std::time::Duration = std::time::Duration::from_secs(30 * 24 * 60 * 60);

pub(super) const HELP: &str = "write it like `90s`, `20m` or `1h30m`";

/// The units, the longest first, with their seconds.
const UNITS: [(char, u64); 3] = [('h', 3600), ('m', 60), ('s', 1)];

/// A duration in whole seconds, greater than zero and at most [`MAX_DURATION`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(std::time::Duration);

impl Duration {
    /// From whole seconds; `None` outside of the bounds.
    pub const fn from_seconds(seconds: u64) -> Option<Self> {
        let fits = seconds > 0 && seconds <= MAX_DURATION.as_secs();
        if fits { Some(Self(std::time::Duration::from_secs(seconds))) } else { None }
    }

    /// Parses `90s`, `20m`, `1h30m`.
    ///
    /// # Errors
    /// The text isn't a duration; the message says why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let malformed = || format!("`{text}` isn't a duration");
        let mut seconds = 0_u64;
        let mut rest = text;
        let mut units = UNITS.as_slice();
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits > 0).ok_or_else(malformed)?;
            let (number, tail) = rest.split_at(digits);
            let unit = tail.chars().next().ok_or_else(malformed)?;
            let at = units.iter().position(|(name, _)| *name == unit).ok_or_else(malformed)?;
            // A number that doesn't fit is too long in any unit.
            let number = number.parse::<u64>().unwrap_or(u64::MAX);
            seconds = seconds.saturating_add(number.saturating_mul(units[at].1));
            units = &units[at + 1..];
            rest = &tail[1..];
        }
        match (text.is_empty(), seconds) {
            (true, _) => Err(malformed()),
            (_, 0) => Err(format!("`{text}` is zero")),
            _ => Self::from_seconds(seconds).ok_or_else(|| format!("`{text}` is longer than 30 days")),
        }
    }

    /// A regular expression for durations up to `most`. It accepts some longer ones (`1h1s` for a maximum of `1h`), because
    /// it can't add.
    pub fn pattern(most: std::time::Duration) -> String {
        let unit = |(name, seconds)| format!("(0*{}{name})?", up_to_pattern(most.as_secs() / seconds));
        format!("^(?=.*[1-9]){}$", UNITS.map(unit).concat())
    }

    /// The time itself.
    pub const fn get(self) -> std::time::Duration {
        self.0
    }

    /// In milliseconds.
    pub const fn milliseconds(self) -> u64 {
        self.0.as_secs() * 1000
    }
}

/// A regular expression for the whole numbers from 0 to `most`.
fn up_to_pattern(most: u64) -> String {
    let digits = most.to_string();
    let mut choices = vec![digits.clone()];
    for (at, digit) in digits.bytes().enumerate() {
        // After a smaller digit in this position, all further digits are free.
        let free = match digits.len() - at - 1 {
            0 => String::new(),
            free => format!("[0-9]{{{free}}}"),
        };
        if digit > b'0' {
            choices.push(format!("{}[0-{}]{free}", &digits[..at], char::from(digit - 1)));
        }
    }
    choices.extend((digits.len() > 1).then(|| format!("[0-9]{{1,{}}}", digits.len() - 1)));
    format!("({})", choices.join("|"))
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        for (number, unit) in [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')] {
            if number > 0 {
                write!(f, "{number}{unit}")?;
            }
        }
        Ok(())
    }
}

/// What to write instead of a text that isn't a duration.
pub(super) fn help(text: &str) -> String {
    meant(text).map_or_else(|| HELP.to_owned(), |meant| format!("write it like this: `{meant}`"))
}

/// The duration that a text in words means, such as `20 minutes`.
fn meant(text: &str) -> Option<Duration> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, word) = text.split_at(digits);
    let unit = match word.trim().to_ascii_lowercase().as_str() {
        "s" | "sec" | "secs" | "second" | "seconds" => 's',
        "m" | "min" | "mins" | "minute" | "minutes" => 'm',
        "h" | "hr" | "hrs" | "hour" | "hours" => 'h',
        _ => return None,
    };
    Duration::parse(&format!("{number}{unit}")).ok()
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Duration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as `20m`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
                Duration::parse(text).map_err(|why| yaml::coded_error("bad-duration", why, Some(&help(text))))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A duration: `90s`, `20m`, `1h30m`; at most 30 days.",
            "pattern": Self::pattern(MAX_DURATION),
            "patternErrorMessage": format!("{HELP}, at most 30 days"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_durations_can_be_parsed() {
        for (text, seconds) in [("90s", 90), ("20m", 1200), ("1h30m", 5400), ("1h1s", 3601), ("720h", 2_592_000)] {
            let duration = Duration::parse(text).unwrap();
            assert_eq!(duration.get().as_secs(), seconds, "{text}");
            assert_eq!(Duration::parse(&duration.to_string()), Ok(duration));
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        for text in ["", "0s", "0h0m", "-5m", "5", "m", "1.5h", "1h 30m", "30m1h", "5m5m", "1d", "20 m", "٣m", "none"]
        {
            assert!(Duration::parse(text).is_err(), "{text}");
        }
        for text in ["721h", "99999999999999999999999h"] {
            assert!(Duration::parse(text).unwrap_err().contains("30 days"), "{text}");
        }
    }
}
