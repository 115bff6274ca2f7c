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

mod access;
mod build;
mod bytes;
mod comments;
mod decode;
mod fault;
mod findings;
mod mend;
mod node;
mod offsets;
mod recover;
mod scalar;
mod spaces;
mod spanned;
mod syntax;
#[cfg(test)]
mod tests;
mod torn;
mod tree;
mod write;

use std::sync::Arc;

use serde::de::DeserializeOwned;

use self::build::Built;

pub use bytes::{MAX_BYTES, read_bytes};
pub use comments::comments;
pub use decode::{AMOUNT, COUNT};
pub use fault::invalid;
pub use node::{Kind, Node};
pub use offsets::Places;
pub use recover::report;
pub use spanned::Spanned;
pub use tree::Synonyms;
pub use write::written;

use crate::diagnostic::{Diagnostic, Place, Rule, Severity, Source, rule};

/// What can be wrong with a file that is read, before anybody asks what it means. Numbers out of their range are a
/// lint's, too.
pub const RULES: &[Rule] = &[
    rule!(Error "yaml-syntax"),
    rule!(Error "too-deep"),
    rule!(Error "too-large"),
    rule!(Error "too-many"),
    rule!(Error "empty-file"),
    rule!(Error "not-utf8"),
    rule!(Error "unreadable"),
    rule!(Error "second-document"),
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

/// How deep lists and mappings may lie in one another, aliases followed.
const MAX_DEPTH: usize = 64;
/// How many nodes a file may have.
const MAX_NODES: usize = 250_000;
/// How many nodes (and 32-byte pieces of text) a file may have once aliases are followed.
const MAX_EXPANDED: u64 = 1_000_000;
/// How many findings are shown; one more says how many there are beyond.
const MAX_FINDINGS: usize = 100;

/// What came of reading: a value, findings, or a partial value with findings.
#[derive(Debug)]
pub struct Decoded<T> {
    /// The value; partial where [`Self::holes`] isn't empty, absent where nothing could be made of the text.
    pub value: Option<T>,
    /// What is wrong, sorted by place; at most 100, then one that counts the rest.
    pub findings: Vec<Diagnostic>,
    /// Where the value holds made-up parts, or lacks parts that the text has. What a check says about these places
    /// is noise.
    pub holes: Vec<Place>,
}

impl<T> Decoded<T> {
    /// The value, if nothing at all is wrong with it. Take the findings first if warnings matter.
    ///
    /// # Errors
    /// All findings, where one of them is an error.
    pub fn whole(self) -> Result<T, Vec<Diagnostic>> {
        match self.value {
            Some(value) if !self.findings.iter().any(|finding| finding.severity == Severity::Error) => Ok(value),
            _ => Err(self.findings),
        }
    }
}

/// Reads a source's one document, and finds everything that is wrong with its syntax and structure.
pub fn read<T: DeserializeOwned>(source: &Arc<Source>) -> Decoded<T> {
    read_with(source, &[])
}

/// As [`read`]. An unknown key that has a synonym among those that its mapping can have, and lacks, counts as that one,
/// as a misspelt one does.
pub fn read_with<T: DeserializeOwned>(source: &Arc<Source>, synonyms: Synonyms) -> Decoded<T> {
    let Built { tree, found, holes } = build::tree(source, synonyms);
    let Some(tree) = tree else { return Decoded { value: None, findings: found.finish(), holes } };
    let mut decoded = recover::decode(&Node::root(tree), found);
    decoded.holes.extend(holes);
    decoded
}
