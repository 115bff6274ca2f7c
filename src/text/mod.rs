//! Text helpers: plurals, truncation, diffs, and sanitizing for terminals, CI logs and Markdown.

pub mod diff;
pub mod merge;
pub mod sanitize;
pub mod truncate;

/// A count with its noun: `1 turn`, `2 turns`. The plural of `noun` must be formed with an `s`.
pub fn pluralize(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Bytes as lowercase hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
