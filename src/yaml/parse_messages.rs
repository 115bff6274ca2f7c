//! The YAML parser's errors in words for the author of a file.

use std::borrow::Cow;
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
    Diagnostic::error("yaml-syntax", place, message).help(help)
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
    matches!(
        kind,
        ErrorKind::UnknownQuotedScalarEscape
            | ErrorKind::InvalidQuotedScalarHexEscape
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

/// The message, our own where it is better, and what to do.
fn message_and_help(kind: &ErrorKind) -> (Cow<'static, str>, &'static str) {
    const NO_ESCAPES: &str = "double the backslash, or use single quotes, which have no escapes";
    let (message, help) = match kind {
        kind if is_tab_error(kind) => ("a tab in the indentation", "indent with spaces"),
        ErrorKind::MappingValueNotAllowed => ("a `: ` isn't allowed here", "put a value that holds `: ` in quotes"),
        ErrorKind::InvalidColonPlacement => {
            ("a `:` isn't allowed here", "close the bracket or quote before it, or quote the text around it")
        }
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => NO_KEY,
        ErrorKind::ExpectedBlockMappingKey => (
            "expected a key of the mapping",
            "check the indentation and the quotes; a value that starts with `{` or `[` needs quotes",
        ),
        ErrorKind::InvalidQuotedScalarIndent => {
            ("this line is part of a quoted string but isn't indented", "close the quote before it, or indent the line")
        }
        ErrorKind::UnclosedFlowCollection { open } => {
            let help = "close it, or put a text that holds it in quotes";
            return (format!("this `{open}` is never closed").into(), help);
        }
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => {
            let help = "close each bracket by one of its own kind";
            return (format!("this `{open}` is closed by `{close}`").into(), help);
        }
        ErrorKind::UnexpectedCharacter { character } => {
            let message = match character {
                '`' => "a value can't start with a backtick".into(),
                _ => format!("a value can't start with `{character}`").into(),
            };
            return (message, "put the value in quotes");
        }
        ErrorKind::UnknownQuotedScalarEscape => ("unknown escape in a double-quoted string", NO_ESCAPES),
        kind if is_escape_error(kind) => ("invalid escape in a double-quoted string", NO_ESCAPES),
        ErrorKind::MissingAnchorOrAliasName => {
            ("a name must follow this `&` or `*`", "put a string that starts with `&` or `*` in quotes")
        }
        ErrorKind::InvalidBlockScalarHeader => (
            "a block text must start on the next line",
            "break the line after `|` or `>`, or put a string that starts with them in quotes",
        ),
        ErrorKind::BlockSequenceEntryNotAllowed | ErrorKind::BlockEntryInFlowCollection => (
            "a list can't start here",
            "start it on a line of its own, or put a string that starts with `- ` in quotes",
        ),
        ErrorKind::MappingKeyNotAllowed => ("a key can't start here", "put a string that starts with `? ` in quotes"),
        ErrorKind::MissingTagUri | ErrorKind::UnclosedVerbatimTag | ErrorKind::InvalidTagTerminator => {
            ("this isn't a tag", "put a string that starts with `!` in quotes")
        }
        _ => {
            let help = "check the indentation, quotes and brackets here and in the line above";
            return (kind.to_string().into(), help);
        }
    };
    (message.into(), help)
}
