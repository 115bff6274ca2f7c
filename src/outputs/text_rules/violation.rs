//! Why a text is refused, and where.

use std::fmt;

use crate::text::sanitize::replacement_char;

/// The longest excerpt, in characters.
const MAX_EXCERPT: usize = 40;

/// Why a text is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule's short name, such as `raw-html`. Names are stable.
    pub rule: &'static str,
    /// What is wrong, and what to write instead.
    pub why: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The text at that place, without characters that nobody sees.
    pub excerpt: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, why, line, column, excerpt } = self;
        let shown = if excerpt.is_empty() { String::new() } else { format!(" ({excerpt})") };
        write!(f, "{rule} at line {line}, column {column}{shown}: {why}")
    }
}

/// A place of the source where a rule is broken.
#[derive(Debug)]
pub(super) struct Finding {
    /// The rule.
    pub(super) rule: &'static str,
    /// The byte where it begins.
    pub(super) at: usize,
    /// The byte behind it, at least of what is worth showing.
    pub(super) end: usize,
    /// What is wrong, and what to write instead.
    pub(super) why: String,
}

impl Finding {
    /// The violation. The checked text is `source`, of which the first `hidden` bytes aren't the model's.
    pub(super) fn into_violation(self, source: &str, hidden: usize) -> Violation {
        let at = floor(source, self.at).max(hidden.min(source.len()));
        let before = &source[hidden.min(at)..at];
        let line_begins = before.rfind('\n').map_or(0, |end| end + 1);
        let end = floor(source, self.end).max(at);
        Violation {
            rule: self.rule,
            why: self.why,
            line: before.matches('\n').count() + 1,
            column: before[line_begins..].chars().count() + 1,
            excerpt: excerpt(&source[at..end]),
        }
    }
}

/// The last boundary of a character up to a byte.
fn floor(source: &str, at: usize) -> usize {
    let mut at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The beginning of a text on one line, in backticks unless it has some.
fn excerpt(text: &str) -> String {
    let mut shown = String::new();
    for (index, char) in text.chars().enumerate() {
        match char {
            _ if index == MAX_EXCERPT => {
                shown.push('…');
                break;
            }
            '\n' | '\r' | '\t' => shown.push(' '),
            char if replacement_char(char).is_some()
                || matches!(char, '\u{ad}' | '\u{34f}' | '\u{fe00}'..='\u{fe0f}') =>
            {
                shown.push_str(&format!("U+{:04X}", u32::from(char)));
            }
            char => shown.push(char),
        }
    }
    // Of an empty line, there is nothing to show.
    if shown.contains('`') || shown.trim().is_empty() { shown.trim().to_owned() } else { format!("`{shown}`") }
}
