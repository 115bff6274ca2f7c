//! The YAML parser's errors in words for the author of a file.

use std::sync::Arc;

use granit_parser::ErrorKind;

use super::limits::{FLATTEN, MAX_DEPTH, clamp_range};
use crate::diagnostic::{Diagnostic, Source, SourceSpan};

/// The parser's error as a finding at the character where it occurred.
pub(super) fn finding(source: &Arc<Source>, kind: &ErrorKind, at: usize) -> Diagnostic {
    let start = clamp_range(&source.text, at..at).start;
    let letter = source.text[start..].chars().next().filter(|letter| !matches!(letter, '\n' | '\r'));
    let place = SourceSpan { source: Arc::clone(source), range: start..start + letter.map_or(0, char::len_utf8) };
    if matches!(kind, ErrorKind::RecursionLimitExceeded) {
        return Diagnostic::error("too-deep", place, format!("nested more than {MAX_DEPTH} levels deep")).help(FLATTEN);
    }
    let (message, help) = message_and_help(kind);
    let finding = Diagnostic::error("yaml-syntax", place, message.unwrap_or_else(|| kind.to_string()));
    match help {
        Some(help) => finding.help(help),
        None => finding,
    }
}

/// Whether the parser met a tab where only spaces can be.
pub(super) fn is_tab_error(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::TabInIndentation
            | ErrorKind::TabInBlockIndentation
            | ErrorKind::TabNotAllowed
            | ErrorKind::TabAtBlockScalarStart
            | ErrorKind::TabInPlainScalar
    )
}

/// Whether an escape in a double-quoted string is wrong.
pub(super) fn is_escape_error(kind: &ErrorKind) -> bool {
    kind == &ErrorKind::UnknownQuotedScalarEscape
        || matches!(
            kind,
            ErrorKind::InvalidQuotedScalarHexEscape
                | ErrorKind::InvalidUnicodeEscape
                | ErrorKind::InvalidLowSurrogateHexEscape
                | ErrorKind::InvalidLowSurrogate
                | ErrorKind::MissingLowSurrogate
                | ErrorKind::UnpairedLowSurrogate
        )
}

/// A line that isn't an entry.
pub(super) fn missing_key(place: SourceSpan) -> Diagnostic {
    Diagnostic::error("yaml-syntax", place, NO_KEY.0).help(NO_KEY.1)
}

const NO_KEY: (&str, &str) =
    ("this is neither a key nor part of the value before it", "write `key: value`, or indent the line");

/// Our own message, where we have a better one, and what to do.
fn message_and_help(kind: &ErrorKind) -> (Option<String>, Option<&'static str>) {
    const QUOTE_COLON: &str = "put a value that holds `: ` in quotes";
    let ours = |message: &str| Some(message.to_owned());
    match kind {
        kind if is_tab_error(kind) => (ours("a tab in the indentation"), Some("indent with spaces")),
        ErrorKind::MappingValueNotAllowed => (ours("a `: ` isn't allowed here"), Some(QUOTE_COLON)),
        ErrorKind::InvalidColonPlacement => (
            ours("a `:` isn't allowed here"),
            Some("close the bracket or quote before it, or quote the text around it"),
        ),
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => (ours(NO_KEY.0), Some(NO_KEY.1)),
        ErrorKind::ExpectedBlockMappingKey => (
            ours("expected a key of the mapping"),
            Some("check the indentation and the quotes; a value that starts with `{` or `[` needs quotes"),
        ),
        ErrorKind::InvalidQuotedScalarIndent => (
            ours("this line is part of a quoted string but isn't indented"),
            Some("close the quote before it, or indent the line"),
        ),
        ErrorKind::UnclosedFlowCollection { open } => {
            (Some(format!("this `{open}` is never closed")), Some("close it, or put a text that holds it in quotes"))
        }
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => {
            (Some(format!("this `{open}` is closed by `{close}`")), Some("close each bracket by one of its own kind"))
        }
        ErrorKind::UnexpectedCharacter { character: '`' } => {
            (ours("a value can't start with a backtick"), Some("put the value in quotes"))
        }
        ErrorKind::UnexpectedCharacter { character } => {
            (Some(format!("a value can't start with `{character}`")), Some("put the value in quotes"))
        }
        ErrorKind::UnknownQuotedScalarEscape => (
            ours("unknown escape in a double-quoted string"),
            Some("double the backslash, or use single quotes, which have no escapes"),
        ),
        kind if is_escape_error(kind) => (
            ours("invalid escape in a double-quoted string"),
            Some("double the backslash, or use single quotes, which have no escapes"),
        ),
        ErrorKind::MissingAnchorOrAliasName => {
            (ours("a name must follow this `&` or `*`"), Some("put a string that starts with `&` or `*` in quotes"))
        }
        ErrorKind::InvalidBlockScalarHeader => (
            ours("a block text must start on the next line"),
            Some("break the line after `|` or `>`, or put a string that starts with them in quotes"),
        ),
        ErrorKind::BlockSequenceEntryNotAllowed | ErrorKind::BlockEntryInFlowCollection => (
            ours("a list can't start here"),
            Some("start it on a line of its own, or put a string that starts with `- ` in quotes"),
        ),
        ErrorKind::MappingKeyNotAllowed => {
            (ours("a key can't start here"), Some("put a string that starts with `? ` in quotes"))
        }
        ErrorKind::MissingTagUri | ErrorKind::UnclosedVerbatimTag | ErrorKind::InvalidTagTerminator => {
            (ours("this isn't a tag"), Some("put a string that starts with `!` in quotes"))
        }
        _ => (None, Some("check the indentation, quotes and brackets here and in the line above")),
    }
}
