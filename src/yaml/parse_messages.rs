//! What the parser refuses, in words for the author of a file.

use std::sync::Arc;

use granit_parser::ErrorKind;

use super::MAX_DEPTH;
use super::parse::{FLATTEN, clamp_range};
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
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => (
            ours("this is neither a key nor part of the value before it"),
            Some("write `key: value`, or indent the line"),
        ),
        ErrorKind::ExpectedBlockMappingKey => (
            ours("expected a key of the mapping"),
            Some("check the indentation and the quotes; a value that starts with `{` or `[` needs quotes"),
        ),
        ErrorKind::UnclosedQuotedScalar => {
            (ours("this quote is never closed"), Some("close it; within single quotes, write `'` twice"))
        }
        ErrorKind::InvalidQuotedScalarIndent => (
            ours("this line stands in a quoted string but isn't indented"),
            Some("close the quote before it, or indent the line"),
        ),
        ErrorKind::UnclosedFlowCollection { open } => {
            (Some(format!("this `{open}` is never closed")), Some("close it, or put a text that holds it in quotes"))
        }
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => {
            (Some(format!("this `{open}` is closed by `{close}`")), Some("close each bracket by one of its own kind"))
        }
        ErrorKind::UnexpectedCharacter { character: '`' } => {
            (ours("no value starts with a backtick"), Some("put the value in quotes"))
        }
        ErrorKind::UnexpectedCharacter { character } => {
            (Some(format!("no value starts with `{character}`")), Some("put the value in quotes"))
        }
        ErrorKind::UnknownQuotedScalarEscape => (
            ours("unknown escape in a double-quoted string"),
            Some("double the backslash, or use single quotes, which know no escapes"),
        ),
        ErrorKind::InvalidQuotedScalarHexEscape
        | ErrorKind::InvalidUnicodeEscape
        | ErrorKind::InvalidLowSurrogateHexEscape
        | ErrorKind::InvalidLowSurrogate
        | ErrorKind::MissingLowSurrogate
        | ErrorKind::UnpairedLowSurrogate => (
            ours("this escape in a double-quoted string stands for no character"),
            Some("double the backslash, or use single quotes, which know no escapes"),
        ),
        ErrorKind::MissingAnchorOrAliasName => {
            (ours("a name must follow this character"), Some("put a string that starts with `&` or `*` in quotes"))
        }
        ErrorKind::InvalidBlockScalarHeader => (
            ours("the text of a block begins on the next line"),
            Some("break the line behind `|` or `>`, or put a string that starts with them in quotes"),
        ),
        ErrorKind::BlockSequenceEntryNotAllowed | ErrorKind::BlockEntryInFlowCollection => (
            ours("no list can begin here"),
            Some("begin it on a line of its own, or put a string that starts with `- ` in quotes"),
        ),
        ErrorKind::MappingKeyNotAllowed => {
            (ours("no key can begin here"), Some("put a string that starts with `? ` in quotes"))
        }
        ErrorKind::MissingTagUri | ErrorKind::UnclosedVerbatimTag | ErrorKind::InvalidTagTerminator => {
            (ours("this isn't a tag"), Some("put a string that starts with `!` in quotes"))
        }
        _ => (None, Some("check the indentation, quotes and brackets here and in the line before")),
    }
}
