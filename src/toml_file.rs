//! Reads TOML files of the user's own, with a place for every value and every mistake in one pass.
//!
//! [`Reading::parse`] goes on behind mistakes of syntax; [`Fields`] hands out a table's values by their keys, and says
//! which keys nobody asked for.

mod fields;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

pub use fields::Fields;
pub use toml::Spanned;
pub use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Diagnostic, Place, Rule, Source, rule};
use crate::yaml;

/// What can be wrong with such a file beside what can be wrong with a YAML file.
pub const RULES: &[Rule] = &[rule!(Error "toml-syntax")];

/// Takes a file's bytes as text.
///
/// # Errors
/// `too-large` (4 MiB), `not-utf8`, or `toml-syntax` for a NUL.
pub fn source(name: &str, bytes: &[u8]) -> Result<Arc<Source>, Diagnostic> {
    yaml::read_bytes(name, bytes).map_err(|finding| match finding.code {
        "yaml-syntax" => Diagnostic { code: "toml-syntax", ..finding },
        _ => finding,
    })
}

/// A file that is being read, and what was found wrong with it so far.
#[derive(Debug)]
pub struct Reading<'s> {
    source: &'s Arc<Source>,
    syntax: Vec<Diagnostic>,
    found: RefCell<Vec<Diagnostic>>,
}

impl<'s> Reading<'s> {
    /// Parses a text. Of a line with a mistake of syntax nothing is taken; the rest is there all the same.
    pub fn parse(source: &'s Arc<Source>) -> (Self, Spanned<DeTable<'s>>) {
        let (root, errors) = DeTable::parse_recoverable(&source.text);
        let finding = |error: toml::de::Error| {
            let place = Place { source: Arc::clone(source), span: within(&source.text, error.span()) };
            match error.message().trim() {
                "duplicate key" => {
                    let name = source.text[place.span.clone()].to_owned();
                    Diagnostic::error("duplicate-key", place, format!("key `{name}` is set twice in this table"))
                        .help("keep one of the two")
                }
                message => Diagnostic::error("toml-syntax", place, message),
            }
        };
        let mut syntax: Vec<Diagnostic> = errors.into_iter().map(finding).collect();
        syntax.sort_by_key(|finding| finding.place.span.start);
        // What follows from a first mistake of a line isn't worth a word.
        syntax.dedup_by_key(|finding| finding.place.start().0);
        (Self { source, syntax, found: RefCell::default() }, root)
    }

    /// Where something stands.
    pub fn place(&self, span: Range<usize>) -> Place {
        Place { source: Arc::clone(self.source), span: within(&self.source.text, Some(span)) }
    }

    /// Whether nothing can be said to be missing, for it may have stood where the syntax is broken.
    pub fn is_torn(&self) -> bool {
        !self.syntax.is_empty()
    }

    /// Notes what is wrong.
    pub fn report(&self, finding: Diagnostic) {
        self.found.borrow_mut().push(finding);
    }

    /// Everything that is wrong, sorted by place. Where the syntax of a line is broken, that is all that is said of it.
    pub fn finish(self) -> Vec<Diagnostic> {
        let lines = |finding: &Diagnostic| (finding.place.start().0, finding.place.end().0);
        let broken: Vec<(usize, usize)> = self.syntax.iter().map(lines).collect();
        // Below a broken heading nobody knows which table the keys belong to.
        let is_heading = |line: &usize| self.source.text[self.source.line_span(*line)].trim_start().starts_with('[');
        let lost = broken.iter().map(|(line, _)| *line).find(is_heading).unwrap_or(usize::MAX);
        let mut all = self.syntax;
        all.extend(self.found.into_inner().into_iter().filter(|finding| {
            let (first, last) = lines(finding);
            let is_lost = finding.code == "unknown-key" && first > lost;
            !is_lost && !broken.iter().any(|(from, to)| first <= *to && *from <= last)
        }));
        all.sort_by_key(|finding| (finding.place.span.start, finding.place.span.end));
        all
    }
}

/// A span that lies in the text, on boundaries of letters.
fn within(text: &str, span: Option<Range<usize>>) -> Range<usize> {
    let boundary = |mut at: usize| {
        at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let span = span.unwrap_or_default();
    let start = boundary(span.start);
    start..boundary(span.end).max(start)
}

#[cfg(test)]
mod tests;
