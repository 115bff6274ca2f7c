//! Decoding that goes on after a mistake.
//!
//! serde stops at the first error. So the node that failed is remembered by its path, and decoding starts again:
//! next time the node is a *hole*, which answers any request with something neutral; where even that fails, and in a
//! list, it is *dropped*, and what is around it does without it; a missing key gets a made-up value. Every round
//! adds one of these, so it comes to an end.

use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed};

use super::fault::{Fault, Said};
use super::findings::Findings;
use super::tree::{Content, Tree};
use super::{Decoded, Node};
use crate::diagnostic::{Diagnostic, Fix, Place};

/// Rounds that one decoding may take.
const MAX_ROUNDS: u64 = 1000;
/// Nodes (and 32-byte pieces of text) that all rounds together may look at.
const MAX_WORK: u64 = 20_000_000;
/// How many made-up values may lie in one another (a type may hold itself).
const MAX_MADE_UP: u8 = 8;

thread_local! {
    /// What hand-written `Deserialize`s report, for each decoding under way.
    static REPORTS: RefCell<Vec<Vec<Diagnostic>>> = const { RefCell::new(Vec::new()) };
}

/// Adds a finding to the decoding that is under way on this thread. For `Deserialize` written by hand that finds
/// several mistakes in one node: it reports each and goes on with what it has. The same finding counts once,
/// however often decoding starts again. Where no decoding is under way, nothing happens.
pub fn report(finding: Diagnostic) {
    REPORTS.with_borrow_mut(|stack| {
        if let Some(reports) = stack.last_mut() {
            reports.push(finding);
        }
    });
}

/// Takes reports as long as it lives.
struct Listening;

impl Listening {
    fn start() -> Self {
        REPORTS.with_borrow_mut(|stack| stack.push(Vec::new()));
        Self
    }

    fn heard(&self) -> Vec<Diagnostic> {
        REPORTS.with_borrow_mut(|stack| stack.last_mut().map(std::mem::take).unwrap_or_default())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        REPORTS.with_borrow_mut(Vec::pop);
    }
}

/// Decodes a node, starting again as often as needed. `found` is what is known to be wrong already.
pub(super) fn decode<T: DeserializeOwned>(node: &Node, found: Findings) -> Decoded<T> {
    let run = Run { node, state: RefCell::new(State { found, ..State::default() }) };
    let root = Walker { run: &run, index: node.index, path: 0, made_up: u8::from(node.made_up) };
    let rounds = (MAX_WORK / node.tree.weight.max(1)).clamp(10, MAX_ROUNDS);
    let listening = Listening::start();
    let mut value = None;
    for round in 1..=rounds {
        let outcome = root.decode(PhantomData::<T>);
        listening.heard().into_iter().for_each(|finding| run.report(finding));
        match outcome {
            Ok(decoded) => {
                value = Some(decoded);
                break;
            }
            Err(_) if run.is_dropped(root.path) => break,
            Err(_) if round == rounds => run.state.borrow_mut().found.cut_short(),
            Err(_) => {}
        }
    }
    drop(listening);
    let state = run.state.into_inner();
    Decoded { value, findings: state.found.finish(), holes: state.holes }
}

/// One decoding, over all its rounds.
pub(super) struct Run<'a> {
    node: &'a Node,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    found: Findings,
    standing: HashMap<u64, Standing>,
    /// Keys to make up, by the mapping's path.
    wanted: HashMap<u64, Vec<&'static str>>,
    /// Paths of values whose misspelt key was taken for a known one, by the mapping's path and that key.
    adopted: HashMap<(u64, &'static str), u64>,
    /// What the unknown keys that were looked up count as, if anything, by their path and where the known ones lie.
    looked_up: HashMap<(u64, usize), Option<&'static str>>,
    holes: Vec<Place>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Hole,
    Dropped,
}

impl Run<'_> {
    pub(super) fn tree(&self) -> &Tree {
        &self.node.tree
    }

    pub(super) fn report(&self, finding: Diagnostic) {
        self.state.borrow_mut().found.push(finding);
    }

    pub(super) fn is_dropped(&self, path: u64) -> bool {
        self.standing(path) == Some(Standing::Dropped)
    }

    fn standing(&self, path: u64) -> Option<Standing> {
        let state = self.state.borrow();
        if state.standing.is_empty() { None } else { state.standing.get(&path).copied() }
    }

    /// Whether further findings are only counted.
    pub(super) fn is_full(&self) -> bool {
        self.state.borrow().found.is_full()
    }

    /// The known key that a value counts as that of, from an earlier round.
    pub(super) fn adopted(&self, mapping: u64, keys: &[&'static str], value: u64) -> Option<&'static str> {
        let state = self.state.borrow();
        keys.iter().copied().find(|key| state.adopted.get(&(mapping, *key)) == Some(&value))
    }

    /// What an unknown key counts as, if anything; `None` where it wasn't looked up among these.
    pub(super) fn known_as(&self, key: u64, fields: &'static [&'static str]) -> Option<Option<&'static str>> {
        self.state.borrow().looked_up.get(&(key, fields.as_ptr().addr())).copied()
    }

    /// Remembers what an unknown key counts as, if anything.
    pub(super) fn know(&self, key: u64, fields: &'static [&'static str], meant: Option<&'static str>) {
        self.state.borrow_mut().looked_up.insert((key, fields.as_ptr().addr()), meant);
    }

    /// Remembers that a value counts as that of another key.
    pub(super) fn adopt(&self, mapping: u64, key: &'static str, value: u64) {
        self.state.borrow_mut().adopted.insert((mapping, key), value);
    }

    /// The keys that a mapping's entries lack and that are made up.
    pub(super) fn wanted(&self, path: u64) -> Vec<&'static str> {
        self.state.borrow().wanted.get(&path).cloned().unwrap_or_default()
    }
}

/// A node on the way through the tree. The path tells its ways apart where aliases lead to it more than once.
#[derive(Clone, Copy)]
pub(super) struct Walker<'a> {
    pub(super) run: &'a Run<'a>,
    /// The node; of a made-up value, the mapping that lacks it.
    pub(super) index: u32,
    pub(super) path: u64,
    /// How many made-up values this one lies in, itself included; 0 is real.
    pub(super) made_up: u8,
}

impl<'a> Walker<'a> {
    pub(super) fn child(self, index: u32) -> Self {
        Self { index, path: mix(self.path, u64::from(index)), ..self }
    }

    /// The made-up value of a key that isn't there.
    pub(super) fn stand_in(self, key: &str) -> Self {
        let step = key.bytes().fold(1 << 40, |hash, byte| mix(hash, u64::from(byte)));
        Self { path: mix(self.path, step), made_up: self.made_up.saturating_add(1), ..self }
    }

    pub(super) fn content(self) -> &'a Content {
        self.run.tree().content(self.index)
    }

    pub(super) fn node(self) -> Node {
        Node { tree: self.run.node.tree.clone(), index: self.index, made_up: self.is_hole() }
    }

    /// See [`Node::describe`].
    pub(super) fn describe(self) -> String {
        self.node().describe()
    }

    pub(super) fn is_hole(self) -> bool {
        self.made_up > 0 || self.run.standing(self.path).is_some() || matches!(self.content(), Content::Broken)
    }

    /// Decodes the node and records what is wrong with it.
    pub(super) fn decode<'de, S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Fault> {
        if self.made_up > MAX_MADE_UP {
            return Err(self.record(Fault::PartDropped));
        }
        seed.deserialize(self).map_err(|fault| self.record(fault))
    }

    /// Takes note of a fault of this node, for the next round.
    pub(super) fn record(self, fault: Fault) -> Fault {
        let hole = self.is_hole();
        match fault {
            Fault::Recorded => return Fault::Recorded,
            Fault::PartDropped => self.drop_silently(),
            Fault::Missing(key) if self.lost(key) => self.drop_silently(),
            Fault::Missing(key) => {
                if !hole && !self.run.tree().is_torn(self.index) {
                    let message = format!("required key `{key}` is missing");
                    let finding = Diagnostic::error("missing-key", self.run.tree().head(self.index), message);
                    self.run.report(finding.help(format!("add `{key}: ...` here")));
                }
                let mut state = self.run.state.borrow_mut();
                state.wanted.entry(self.path).or_default().push(key);
            }
            _ if hole => self.drop_silently(),
            Fault::WrongType { expected, mut help, mut fix } => {
                if let Some((meant, number)) = self.number_meant(&expected) {
                    (help, fix) = (Some(meant), Some(number));
                }
                let message = format!("expected {expected}, found {}", self.describe());
                let help = Some(help.unwrap_or_else(|| self.instead(&expected)));
                self.fails(Said { code: "wrong-type", message, help, fix });
            }
            Fault::Said(said) => self.fails(*said),
        }
        Fault::Recorded
    }

    /// Whether it is the node itself that is wrong, not a part of it.
    pub(super) fn fails_itself(self) -> bool {
        self.run.standing(self.path).is_some()
    }

    /// Leaves the node out from now on.
    pub(super) fn drop_silently(self) {
        let mut state = self.run.state.borrow_mut();
        if self.made_up == 0 && !state.standing.contains_key(&self.path) {
            state.holes.push(self.run.tree().place(self.index));
        }
        state.standing.insert(self.path, Standing::Dropped);
    }

    fn fails(self, said: Said) {
        self.run.report(self.finding(said));
        self.leave_open();
    }

    /// Takes anything for the node from now on.
    pub(super) fn leave_open(self) {
        let mut state = self.run.state.borrow_mut();
        state.holes.push(self.run.tree().place(self.index));
        state.standing.insert(self.path, Standing::Hole);
    }

    /// A finding at this node; where it is an alias, with what the alias stands for.
    pub(super) fn finding(self, said: Said) -> Diagnostic {
        let tree = self.run.tree();
        let mut finding = Diagnostic::error(said.code, tree.place(self.index), said.message);
        finding.help = said.help;
        let target = tree.resolve(self.index);
        if target == self.index {
            finding.fix = said.fix.map(|with| {
                // A name stays in the quotes that it has.
                let is_name = matches!(said.code, "unknown-key" | "unknown-value");
                let place = if is_name { self.node().inside() } else { finding.place.clone() };
                Fix { place, with }
            });
            finding
        } else {
            finding.label(tree.place(target), "the value comes from here")
        }
    }

    /// Whether the value of a key is there, real or made up, but had to be dropped.
    fn lost(self, key: &'static str) -> bool {
        let adopted = self.run.state.borrow().adopted.get(&(self.path, key)).copied();
        let real = self.run.tree().pair(self.index, key).map(|(_, value)| self.child(value));
        let made_up = self.stand_in(key);
        real.is_some_and(|value| self.run.is_dropped(value.path))
            || adopted.is_some_and(|path| self.run.is_dropped(path))
            || self.run.is_dropped(made_up.path)
            || self.run.wanted(self.path).contains(&key)
    }
}

/// A path one step longer (the finalizer of SplitMix64, which spreads every bit over all).
fn mix(path: u64, step: u64) -> u64 {
    let mut hash = (path ^ step.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
