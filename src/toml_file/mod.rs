//! Reads TOML files of the user's own, with a place for every value and every mistake in one pass.
//!
//! [`Reading::parse`] goes on behind mistakes of syntax; [`Fields`] hands out a table's values by their keys, and says
//! which keys nobody asked for.

mod table_reader;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

pub use table_reader::TableReader;
pub use toml::Spanned;
pub use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Diagnostic, Rule, Source, SourceSpan, rule};
use crate::yaml;

/// What can be wrong with such a file beside what can be wrong with a YAML file.
pub const RULES: &[Rule] = &[rule!(Error "toml-syntax")];

/// Takes a file's bytes as text.
///
/// # Errors
/// `too-large` (4 MiB), `not-utf8`, or `toml-syntax` for a NUL.
pub fn read_source(name: &str, bytes: &[u8]) -> Result<Arc<Source>, Diagnostic> {
    yaml::read_bytes(name, bytes).map_err(|finding| match finding.code {
        "yaml-syntax" => Diagnostic { code: "toml-syntax", ..finding },
        "too-large" => Diagnostic { help: Some("is it the right file?".to_owned()), ..finding },
        _ => finding,
    })
}

/// A file that is being read, and what was found wrong with it so far.
#[derive(Debug)]
pub struct TomlReader<'s> {
    source: &'s Arc<Source>,
    syntax: Vec<Diagnostic>,
    found: RefCell<Vec<Diagnostic>>,
}

impl<'s> TomlReader<'s> {
    /// Parses a text. Of a line with a mistake of syntax nothing is taken; the rest is there all the same.
    pub fn parse(source: &'s Arc<Source>) -> (Self, Spanned<DeTable<'s>>) {
        let (root, errors) = DeTable::parse_recoverable(&source.text);
        let finding = |error: toml::de::Error| {
            let place = SourceSpan { source: Arc::clone(source), range: within(&source.text, error.span()) };
            match error.message().trim() {
                "duplicate key" => {
                    let name = source.text[place.range.clone()].to_owned();
                    let message = match is_table_header(source, place.start().0) {
                        true => format!("the table `{name}` is there twice"),
                        false => format!("key `{name}` is set twice in this table"),
                    };
                    Diagnostic::error("duplicate-key", place, message).help("keep one of the two")
                }
                message => Diagnostic::error("toml-syntax", place, message).help(syntax_help(message)),
            }
        };
        let mut syntax: Vec<Diagnostic> = errors.into_iter().map(finding).collect();
        syntax.sort_by_key(|finding| finding.span.range.start);
        // What follows from a first mistake of a line isn't worth a word.
        syntax.dedup_by_key(|finding| finding.span.start().0);
        // Nor what stands twice only since its whole table does.
        let mut heading = None;
        syntax.retain(|finding| {
            let line = finding.span.start().0;
            let is_double = finding.code == "duplicate-key";
            if is_double && is_table_header(source, line) {
                heading = Some(line);
                return true;
            }
            let is_below = |heading| !(heading + 1..line).any(|between| is_table_header(source, between));
            !(is_double && heading.is_some_and(is_below))
        });
        (Self { source, syntax, found: RefCell::default() }, root)
    }

    /// Where something stands.
    pub fn place(&self, span: Range<usize>) -> SourceSpan {
        SourceSpan { source: Arc::clone(self.source), range: within(&self.source.text, Some(span)) }
    }

    /// Whether nothing can be said to be missing, for it may have stood where the syntax is broken.
    pub fn is_incomplete(&self) -> bool {
        !self.syntax.is_empty()
    }

    /// Notes what is wrong.
    pub fn report(&self, finding: Diagnostic) {
        self.found.borrow_mut().push(finding);
    }

    /// Everything that is wrong, sorted by place. Where the syntax of a line is broken, that is all that is said of it.
    pub fn finish(self) -> Vec<Diagnostic> {
        let lines = |finding: &Diagnostic| (finding.span.start().0, finding.span.end().0);
        let broken: Vec<(usize, usize)> = self.syntax.iter().map(lines).collect();
        // Below a broken heading nobody knows which table the keys belong to.
        let lost =
            broken.iter().map(|(line, _)| *line).find(|line| is_table_header(self.source, *line)).unwrap_or(usize::MAX);
        let mut all = self.syntax;
        all.extend(self.found.into_inner().into_iter().filter(|finding| {
            let (first, last) = lines(finding);
            let is_lost = finding.code == "unknown-key" && first > lost;
            !is_lost && !broken.iter().any(|(from, to)| first <= *to && *from <= last)
        }));
        all.sort_by_key(|finding| (finding.span.range.start, finding.span.range.end));
        all
    }
}

/// Whether a line begins with a bracket, as those do that name a table.
fn is_table_header(source: &Source, line: usize) -> bool {
    source.text[source.line_span(line)].trim_start().starts_with('[')
}

/// What to do about a mistake of syntax, told by the parser's words.
fn syntax_help(message: &str) -> &'static str {
    let has = |words: &str| message.contains(words);
    match () {
        () if has("must be quoted") => "put it in straight quotes: `KEY = \"VALUE\"`",
        () if has("unclosed table") => {
            "close the heading with `]`; a name with other than letters, digits, `-` and `_` is quoted"
        }
        () if has("basic string") || has("literal string") => "close the quotes on the same line",
        () if has("escape") => "write `\\\\` for a backslash, or use single quotes",
        () if has("carriage return") => "save the file with LF or CRLF line ends",
        () if has("expected newline") => "write each key on a line of its own",
        () => "write `KEY = \"VALUE\"`, each on a line of its own below a heading in brackets; see https://toml.io",
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
