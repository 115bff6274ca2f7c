//! Reads YAML 1.2 (and so JSON) into serde types, with a place for every value, and reports all errors in one pass.
//!
//! Parser events become an arena of nodes with byte spans (`parse`, `node`), which a serde `Deserializer` of our own walks
//! (`decode`). What can't be decoded gets a placeholder, and decoding starts again (`decode_recovery`), so that one call
//! reports all errors and still returns a partial value. What can't be parsed is blanked out (`syntax_recovery`), and
//! nothing is reported as missing if it may have been there (`recovery_gaps`).
//!
//! For types that are read:
//! - The core schema applies: `no` and `on` are strings, `012` is 12, `1_000` is a string.
//! - Unknown keys of a struct are errors, with or without `deny_unknown_fields`.
//! - Below `flatten`, `untagged` and internally tagged enums, serde works on a copy: errors there get the place of the
//!   whole, and [`Spanned`] and [`Node`] can't be used.
//! - [`Spanned`] keeps a value's place, also as the key of a map; [`Node`] keeps a whole subtree undecoded.
//! - A hand-written `Deserialize` may take a [`Node`], call [`report`] for each error, and fail with [`coded_error`].

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
pub use findings::Findings;
pub use limits::MAX_BYTES;
pub use node::{FormatHints, KeyAliases, NO_HINTS, Node, NodeKind};
pub use scalar_spans::ScalarSpanMap;
pub use spanned::{Spanned, value_or};
pub use utf8::read_bytes;
pub use writer::to_yaml;

use crate::diagnostic::{Rule, Source, rule};

/// The rules for any YAML file. The rule `out-of-range` belongs to a lint, too.
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
    rule!(Warning "unused-anchor"),
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
