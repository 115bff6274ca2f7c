//! Reads YAML 1.2 (and so JSON) into serde types, with a place for every value and every mistake in one pass.
//!
//! Parser events become an arena of nodes with byte spans (`build`, `tree`); our own serde `Deserializer` walks
//! it (`decode`); what can't be decoded becomes a *hole* and decoding starts again (`recover`), so that one call
//! reports all mistakes and still yields a partial value.
//!
//! What a type must know:
//! - The core schema holds: `no` and `on` are strings, `012` is 12, `1_000` is a string.
//! - Unknown keys of a struct are errors, with or without `deny_unknown_fields`.
//! - Below `flatten`, `untagged` and internally tagged enums serde keeps a copy of its own: mistakes there get the
//!   place of the whole, and [`Spanned`] and [`Node`] can't be used.
//! - [`Spanned`] keeps a value's place, also as the key of a map; [`Node`] keeps a whole subtree undecoded.
//! - A syntax error costs as little as possible: what can't be read is blanked out (`mend`), and the rest is parsed.
//!   Nothing is said to be missing where something may have stood in such a hole (`torn`).
//! - `Deserialize` written by hand may take a [`Node`], call [`report`] as often as it likes, and fail with
//!   [`invalid`].

mod comments;
mod decode;
mod decode_error;
mod decode_recovery;
mod findings;
mod limits;
mod node;
mod parse;
mod parse_messages;
mod recovery_gaps;
mod scalar;
mod scalar_spans;
mod serde_access;
mod spanned;
mod syntax_recovery;
#[cfg(test)]
mod tests;
mod unicode_spaces;
mod utf8;
mod writer;

use std::sync::Arc;

use serde::de::DeserializeOwned;

use self::parse::ParseOutcome;

pub use comments::directive_comments;
pub use decode::{EXPECTED_AMOUNT, EXPECTED_COUNT};
pub use decode_error::{ErrorDetail, coded_error};
pub use decode_recovery::{Decoded, report};
pub use limits::MAX_BYTES;
pub use node::{FormatHints, KeyAliases, NO_HINTS, Node, NodeKind};
pub use scalar_spans::ScalarSpanMap;
pub use spanned::Spanned;
pub use utf8::read_bytes;
pub use writer::to_yaml;

use crate::diagnostic::{Rule, Source, rule};

/// What can be wrong with a file that is read, before anybody asks what it means. Numbers out of their range are a
/// lint's, too.
pub const RULES: &[Rule] = &[
    rule!(Error "yaml-syntax"),
    rule!(Error "too-deep"),
    rule!(Error "too-large"),
    rule!(Error "too-many-findings"),
    rule!(Error "empty-file"),
    rule!(Error "not-utf8"),
    rule!(Error "unreadable"),
    rule!(Error "multiple-documents"),
    rule!(Error "unknown-anchor"),
    rule!(Error "cyclic-alias"),
    rule!(Error "unknown-tag"),
    rule!(Error "merge-key"),
    rule!(Error "duplicate-key"),
    rule!(Error "wrong-type"),
    rule!(Error "missing-key"),
    rule!(Error "unknown-key"),
    rule!(Error "unknown-value"),
    rule!(Error "invalid-value"),
];

/// Reads a source's one document, and finds everything that is wrong with its syntax and structure.
pub fn read<T: DeserializeOwned>(source: &Arc<Source>) -> Decoded<T> {
    read_with(source, &NO_HINTS)
}

/// Like [`read`], with hints about the file's format. An unknown key with an alias counts as the key that it stands for,
/// as a misspelled one does.
pub fn read_with<T: DeserializeOwned>(source: &Arc<Source>, hints: &'static FormatHints) -> Decoded<T> {
    let ParseOutcome { tree, found, gaps } = parse::parse_document(source, hints);
    let Some(tree) = tree else { return Decoded { value: None, findings: found.finish(), gaps } };
    let mut decoded = decode_recovery::decode(&Node::root(tree), found);
    decoded.gaps.extend(gaps);
    decoded
}
