//! Reads the user's TOML files, with a place for every value, and reports all errors in one pass. No message contains a
//! value, which could be a secret.
//!
//! [`TomlReader::parse`] continues after syntax errors; [`TableReader`] reads a table's values by key, and reports unknown
//! keys. Decoding with serde would stop at the first error.

mod table_reader;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

pub use table_reader::{TableReader, quotable};
pub use toml::Spanned;
pub use toml::de::{DeString, DeTable, DeValue};

use crate::diagnostic::{Diagnostic, Rule, Source, SourceSpan, rule};
use crate::yaml;

/// The rules for TOML files, in addition to those for YAML files.
pub const RULES: &[Rule] = &[rule!(Error "toml-syntax")];

/// Converts a file's bytes to text.
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

/// A file that is being read, and its findings.
#[derive(Debug)]
pub struct TomlReader<'s> {
    source: &'s Arc<Source>,
    syntax: Vec<Diagnostic>,
    found: RefCell<Vec<Diagnostic>>,
}

impl<'s> TomlReader<'s> {
    /// Parses a text. Lines with a syntax error are left out.
    pub fn parse(source: &'s Arc<Source>) -> (Self, Spanned<DeTable<'s>>) {
        let (root, errors) = DeTable::parse_recoverable(&source.text);
        let finding = |error: toml::de::Error| {
            let place = SourceSpan { source: Arc::clone(source), range: within(&source.text, error.span()) };
            match error.message().trim() {
                "duplicate key" => {
                    Diagnostic::error("duplicate-key", place, "this key is set twice").help("keep one of the two")
                }
                message => Diagnostic::error("toml-syntax", place, message).help(syntax_help(message)),
            }
        };
        let mut syntax: Vec<Diagnostic> = errors.into_iter().map(finding).collect();
        syntax.sort_by_key(|finding| finding.span.range.start);
        // Further errors in the same line follow from the first.
        syntax.dedup_by_key(|finding| finding.span.start().0);
        (Self { source, syntax, found: RefCell::default() }, root)
    }

    /// The place of a span.
    pub fn place(&self, span: Range<usize>) -> SourceSpan {
        SourceSpan { source: Arc::clone(self.source), range: within(&self.source.text, Some(span)) }
    }

    /// Whether lines were left out, so that nothing can be reported as missing.
    pub fn is_incomplete(&self) -> bool {
        !self.syntax.is_empty()
    }

    /// Adds a finding.
    pub fn report(&self, finding: Diagnostic) {
        self.found.borrow_mut().push(finding);
    }

    /// All findings, sorted by place. A line with a syntax error has no others.
    pub fn finish(self) -> Vec<Diagnostic> {
        let lines = |finding: &Diagnostic| (finding.span.start().0, finding.span.end().0);
        let broken: Vec<(usize, usize)> = self.syntax.iter().map(lines).collect();
        let is_incomplete = self.is_incomplete();
        let mut all = self.syntax;
        all.extend(self.found.into_inner().into_iter().filter(|finding| {
            let (first, last) = lines(finding);
            // After a broken heading, it isn't known which table the keys belong to.
            let is_lost = is_incomplete && finding.code == "unknown-key";
            !is_lost && !broken.iter().any(|(from, to)| first <= *to && *from <= last)
        }));
        all.sort_by_key(|finding| (finding.span.range.start, finding.span.range.end));
        all
    }
}

/// The help for a syntax error, by the parser's message.
fn syntax_help(message: &str) -> &'static str {
    let has = |words: &str| message.contains(words);
    match () {
        () if has("must be quoted") => "put it in straight quotes: `KEY = \"VALUE\"`",
        () if has("unclosed table") => {
            "close the heading with `]`; quote a name with characters other than letters, digits, `-` and `_`"
        }
        () if has("basic string") || has("literal string") => "close the quotes on the same line",
        () if has("escape") => "write `\\\\` for a backslash, or use single quotes",
        () if has("carriage return") => "save the file with LF or CRLF line ends",
        () if has("expected newline") => "write each key on a line of its own",
        () => "write one `KEY = \"VALUE\"` per line below a heading in brackets; see https://toml.io",
    }
}

/// A span moved into the text and to character boundaries.
fn within(text: &str, span: Option<Range<usize>>) -> Range<usize> {
    let span = span.unwrap_or_default();
    let start = text.floor_char_boundary(span.start);
    start..text.floor_char_boundary(span.end).max(start)
}

#[cfg(test)]
mod tests;
