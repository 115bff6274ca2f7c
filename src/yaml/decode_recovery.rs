//! Continues decoding after an error.
//!
//! serde stops at the first error. The node that failed is remembered by its path, and decoding starts again: now the
//! node is a *placeholder*, which answers any request with a neutral value. If even that fails, and in a list, it is
//! *dropped*: the list or mapping around it does without it. A missing key gets a placeholder, too. Every round adds one
//! of these, so decoding ends.

use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed};

use super::decode_error::{DecodeError, ErrorDetail};
use super::findings::Findings;
use super::node::{Content, Node, Tree};
use crate::diagnostic::{Diagnostic, Fix, Severity, SourceSpan};

/// How many rounds one decoding may take.
const MAX_ROUNDS: u64 = 1000;
/// How many nodes (and 32-byte pieces of text) all rounds together may visit.
const MAX_WORK: u64 = 20_000_000;
/// How deep placeholders may be nested (a type may contain itself).
const MAX_PLACEHOLDER_DEPTH: u8 = 8;

/// A decoded value with its findings.
#[derive(Debug)]
pub struct Decoded<T> {
    /// The value; partial if [`Self::gaps`] isn't empty, absent if nothing could be read.
    pub value: Option<T>,
    /// The findings, sorted by place; at most 100, then one that counts the rest.
    pub findings: Vec<Diagnostic>,
    /// Where the value has placeholders, or lacks parts of the text. Findings about these places are noise.
    pub gaps: Vec<SourceSpan>,
}

impl<T> Decoded<T> {
    /// The value, if it has no errors. Take the findings first if warnings matter.
    ///
    /// # Errors
    /// All findings, if one of them is an error.
    pub fn into_result(self) -> Result<T, Vec<Diagnostic>> {
        match self.value {
            Some(value) if !self.findings.iter().any(|finding| finding.severity == Severity::Error) => Ok(value),
            _ => Err(self.findings),
        }
    }
}

impl Node {
    /// Decodes this part alone. Within a `Deserialize`, use [`Self::decode_nested`].
    pub fn decode<T: DeserializeOwned>(&self) -> Decoded<T> {
        decode(self, Findings::default())
    }

    /// Decodes this part and adds the findings to those of the decoding under way (see [`report`]). The value may be
    /// partial.
    pub fn decode_nested<T: DeserializeOwned>(&self) -> Option<T> {
        let decoded = self.decode();
        decoded.findings.into_iter().for_each(report);
        decoded.value
    }
}

thread_local! {
    /// The reports of hand-written `Deserialize`s, for each decoding under way.
    static REPORTS: RefCell<Vec<Vec<Diagnostic>>> = const { RefCell::new(Vec::new()) };
}

/// Adds a finding to the decoding that is under way on this thread, for a hand-written `Deserialize` that finds several
/// errors in one node. The same finding counts once, however often decoding starts again. If no decoding is under way,
/// nothing happens.
pub fn report(finding: Diagnostic) {
    REPORTS.with_borrow_mut(|stack| {
        if let Some(reports) = stack.last_mut() {
            reports.push(finding);
        }
    });
}

/// Does some work, and returns the reports that were made meanwhile.
fn with_reports<T>(work: impl FnOnce() -> T) -> (T, Vec<Diagnostic>) {
    REPORTS.with_borrow_mut(|stack| stack.push(Vec::new()));
    let result = work();
    (result, REPORTS.with_borrow_mut(Vec::pop).unwrap_or_default())
}

/// Decodes a node in as many rounds as needed. `found` holds the findings so far.
pub(super) fn decode<T: DeserializeOwned>(node: &Node, found: Findings) -> Decoded<T> {
    let session = DecodeSession { node, state: RefCell::new(RecoveryState { found, ..RecoveryState::default() }) };
    let root = NodeDeserializer {
        session: &session,
        index: node.index,
        path: 0,
        placeholder_depth: u8::from(node.is_placeholder),
    };
    let rounds = (MAX_WORK / node.tree.weight.max(1)).clamp(10, MAX_ROUNDS);
    let mut value = None;
    for round in 1..=rounds {
        let (outcome, reports) = with_reports(|| root.decode(PhantomData::<T>));
        reports.into_iter().for_each(|finding| session.report(finding));
        match outcome {
            Ok(decoded) => {
                value = Some(decoded);
                break;
            }
            Err(_) if session.is_dropped(root.path) => break,
            Err(_) if round == rounds => session.state.borrow_mut().found.mark_truncated(),
            Err(_) => {}
        }
    }
    let state = session.state.into_inner();
    Decoded { value, findings: state.found.finish(), gaps: state.gaps }
}

/// One decoding, over all its rounds.
pub(super) struct DecodeSession<'a> {
    node: &'a Node,
    state: RefCell<RecoveryState>,
}

#[derive(Default)]
struct RecoveryState {
    found: Findings,
    node_recoveries: HashMap<u64, NodeRecovery>,
    /// Keys that get placeholders, by the mapping's path.
    missing_keys: HashMap<u64, Vec<&'static str>>,
    /// The known keys that unknown ones were taken for, if any, by their paths.
    key_guesses: HashMap<u64, Option<&'static str>>,
    gaps: Vec<SourceSpan>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeRecovery {
    Placeholder,
    Dropped,
}

impl DecodeSession<'_> {
    pub(super) fn tree(&self) -> &Tree {
        &self.node.tree
    }

    pub(super) fn report(&self, finding: Diagnostic) {
        self.state.borrow_mut().found.push(finding);
    }

    pub(super) fn is_dropped(&self, path: u64) -> bool {
        self.node_recovery(path) == Some(NodeRecovery::Dropped)
    }

    fn node_recovery(&self, path: u64) -> Option<NodeRecovery> {
        let state = self.state.borrow();
        if state.node_recoveries.is_empty() { None } else { state.node_recoveries.get(&path).copied() }
    }

    /// Whether further findings are only counted.
    pub(super) fn is_full(&self) -> bool {
        self.state.borrow().found.is_full()
    }

    /// The known key that an unknown key was taken for, if any; `None` if it wasn't looked up.
    pub(super) fn key_guess(&self, key: u64) -> Option<Option<&'static str>> {
        self.state.borrow().key_guesses.get(&key).copied()
    }

    pub(super) fn set_key_guess(&self, key: u64, meant: Option<&'static str>) {
        self.state.borrow_mut().key_guesses.insert(key, meant);
    }

    /// The missing keys of a mapping, which get placeholders.
    pub(super) fn missing_keys(&self, path: u64) -> Vec<&'static str> {
        self.state.borrow().missing_keys.get(&path).cloned().unwrap_or_default()
    }
}

/// A node on the way through the tree. Its path is unique even if several aliases refer to the node.
#[derive(Clone, Copy)]
pub(super) struct NodeDeserializer<'a> {
    pub(super) session: &'a DecodeSession<'a>,
    /// The node; for a placeholder of a missing key, the mapping that lacks it.
    pub(super) index: u32,
    pub(super) path: u64,
    /// How deep this is in placeholders; 0 for a real node.
    pub(super) placeholder_depth: u8,
}

impl<'a> NodeDeserializer<'a> {
    pub(super) fn child(self, index: u32) -> Self {
        Self { index, path: hash_path_step(self.path, u64::from(index)), ..self }
    }

    /// The placeholder for a missing key.
    pub(super) fn placeholder_for(self, key: &str) -> Self {
        let step = key.bytes().fold(1 << 40, |hash, byte| hash_path_step(hash, u64::from(byte)));
        Self {
            path: hash_path_step(self.path, step),
            placeholder_depth: self.placeholder_depth.saturating_add(1),
            ..self
        }
    }

    pub(super) fn content(self) -> &'a Content {
        self.session.tree().content(self.index)
    }

    pub(super) fn node(self) -> Node {
        Node { tree: self.session.node.tree.clone(), index: self.index, is_placeholder: self.is_placeholder() }
    }

    pub(super) fn is_placeholder(self) -> bool {
        self.placeholder_depth > 0
            || self.session.node_recovery(self.path).is_some()
            || matches!(self.content(), Content::Invalid)
    }

    /// Decodes the node and records its error.
    pub(super) fn decode<'de, S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, DecodeError> {
        if self.placeholder_depth > MAX_PLACEHOLDER_DEPTH {
            return Err(self.record_error(DecodeError::PartDropped));
        }
        seed.deserialize(self).map_err(|error| self.record_error(error))
    }

    /// Records an error of this node for the next round.
    pub(super) fn record_error(self, error: DecodeError) -> DecodeError {
        let is_placeholder = self.is_placeholder();
        match error {
            DecodeError::Reported => return DecodeError::Reported,
            DecodeError::PartDropped => self.drop_node(),
            DecodeError::Missing(key) if self.is_value_dropped(key) => self.drop_node(),
            DecodeError::Missing(key) => {
                let is_misplaced = || (self.session.tree().hints.is_misplaced)(&self.node(), key);
                if !is_placeholder && !self.node().is_incomplete() && !is_misplaced() {
                    let message = format!("required key `{key}` is missing");
                    let finding = Diagnostic::error("missing-key", self.node().place_for_missing(), message);
                    self.session.report(finding.help(format!("add `{key}: ...` here")));
                }
                let mut state = self.session.state.borrow_mut();
                state.missing_keys.entry(self.path).or_default().push(key);
            }
            _ if is_placeholder => self.drop_node(),
            DecodeError::WrongType(expected) => {
                let (help, fix) = self.correction(&expected);
                let message = format!("expected {expected}, found {}", self.node().describe());
                self.report_and_replace(ErrorDetail { code: "wrong-type", message, help: Some(help), fix });
            }
            DecodeError::Detailed(detail) => self.report_and_replace(*detail),
        }
        DecodeError::Reported
    }

    /// Whether it is the node itself that is wrong, not a part of it.
    pub(super) fn is_invalid_itself(self) -> bool {
        self.session.node_recovery(self.path).is_some()
    }

    /// Leaves the node out from the next round on.
    pub(super) fn drop_node(self) {
        let mut state = self.session.state.borrow_mut();
        if self.placeholder_depth == 0 && !state.node_recoveries.contains_key(&self.path) {
            state.gaps.push(self.session.tree().place(self.index));
        }
        state.node_recoveries.insert(self.path, NodeRecovery::Dropped);
    }

    fn report_and_replace(self, detail: ErrorDetail) {
        self.session.report(self.finding(detail));
        self.replace_with_placeholder();
    }

    /// Replaces the node by a placeholder from the next round on.
    pub(super) fn replace_with_placeholder(self) {
        let mut state = self.session.state.borrow_mut();
        state.gaps.push(self.session.tree().place(self.index));
        state.node_recoveries.insert(self.path, NodeRecovery::Placeholder);
    }

    /// A finding at this node; for an alias, with the place of its value.
    pub(super) fn finding(self, mut detail: ErrorDetail) -> Diagnostic {
        let tree = self.session.tree();
        if !self.session.is_full() {
            (tree.hints.complete_error)(&self.node(), &mut detail);
        }
        let mut finding = Diagnostic::error(detail.code, tree.place(self.index), detail.message);
        finding.help = detail.help;
        let target = tree.resolve_alias(self.index);
        if target == self.index {
            finding.fix = detail.fix.map(|replacement| {
                // A name keeps its quotes.
                let is_name = matches!(detail.code, "unknown-key" | "unknown-value");
                let place = if is_name { self.node().content_place() } else { finding.span.clone() };
                Fix { span: place, replacement }
            });
            finding
        } else {
            finding.label(tree.place(target), "the value comes from here")
        }
    }

    /// Whether the value of a key, real or a placeholder, was dropped.
    fn is_value_dropped(self, key: &'static str) -> bool {
        let tree = self.session.tree();
        let is_named = |(name, _): &&(u32, u32)| {
            tree.text(*name) == Some(key) || self.session.key_guess(self.child(*name).path).flatten() == Some(key)
        };
        let pairs: &[(u32, u32)] = if let Content::Mapping(pairs) = self.content() { pairs } else { &[] };
        let mut values = pairs.iter().filter(is_named).map(|(_, value)| self.child(*value).path);
        values.any(|path| self.session.is_dropped(path))
            || self.session.is_dropped(self.placeholder_for(key).path)
            || self.session.missing_keys(self.path).contains(&key)
    }
}

/// Adds a step to a path's hash (with the finalizer of SplitMix64).
fn hash_path_step(path: u64, step: u64) -> u64 {
    let mut hash = (path ^ step.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
