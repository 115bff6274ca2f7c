//! The arena: every node of a document, with its span. It never holds a cycle.

use std::ops::Range;
use std::sync::Arc;

use super::scalar::Scalar;
use crate::diagnostic::{Source, SourceSpan, suggest};

/// How a scalar is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Single,
    Double,
    Literal,
    Folded,
}

#[derive(Debug)]
pub(super) enum Content {
    /// The decoded text and what the core schema makes of it.
    Scalar {
        text: Box<str>,
        style: Style,
        value: Scalar,
    },
    List(Box<[u32]>),
    /// Keys and values; no two keys are equal, all are scalars.
    Mapping(Box<[(u32, u32)]>),
    /// Stands for an earlier node that was complete by then.
    Alias(u32),
    /// A mistake that is already reported.
    Invalid,
}

#[derive(Debug)]
pub(super) struct NodeData {
    pub(super) span: Range<usize>,
    pub(super) content: Content,
    /// The key that this node is the value of.
    pub(super) key: Option<u32>,
    /// A list or mapping that may lack what a syntax error took from it.
    pub(super) is_incomplete: bool,
}

#[derive(Debug)]
pub(super) struct Tree {
    pub(super) source: Arc<Source>,
    pub(super) nodes: Vec<NodeData>,
    pub(super) root: u32,
    /// Nodes and 32-byte pieces of text, aliases followed.
    pub(super) weight: u64,
    pub(super) key_aliases: KeyAliases,
}

/// Keys that people bring along from elsewhere, each with the key that it stands for. The first whose key is known and
/// free where it is met counts, so that one word may stand for several.
pub type KeyAliases = &'static [(&'static str, &'static str)];

/// What an unknown key was probably meant to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyGuess {
    pub(super) key: &'static str,
    /// Whether nothing else can be meant.
    pub(super) is_certain: bool,
}

/// A key without its case, dashes and underscores.
fn fold_key(key: &str) -> impl Iterator<Item = char> + '_ {
    key.chars().filter(|letter| !matches!(letter, '-' | '_')).flat_map(char::to_lowercase)
}

impl Tree {
    /// What an unknown key of a mapping with these fields was probably meant to be: one of them that is written the same
    /// but for case, dashes and underscores; one that its synonym stands for, preferably one of the `absent`; or the nearest.
    pub(super) fn guess_key(&self, word: &str, fields: &[&'static str], absent: &[&'static str]) -> Option<KeyGuess> {
        let same = |other: &str| fold_key(word).eq(fold_key(other));
        if let Some(key) = fields.iter().copied().find(|key| same(key)) {
            return Some(KeyGuess { key, is_certain: true });
        }
        let meanings = || self.key_aliases.iter().filter(|(elsewhere, _)| same(elsewhere)).map(|(_, here)| *here);
        let fitting = || meanings().filter(|here| fields.contains(here));
        if let Some(key) = fitting().find(|here| absent.contains(here)).or_else(|| fitting().next()) {
            // A word with two meanings, and one that is a key of its own elsewhere, may be meant otherwise.
            let is_key = self.key_aliases.iter().any(|(_, here)| same(here));
            return Some(KeyGuess { key, is_certain: !is_key && meanings().count() == 1 });
        }
        let near = suggest(word, fields.iter().copied())?;
        let key = fields.iter().copied().find(|field| *field == near.name)?;
        Some(KeyGuess { key, is_certain: near.is_certain })
    }

    pub(super) fn node_data(&self, index: u32) -> &NodeData {
        &self.nodes[index as usize]
    }

    /// The node that an alias stands for, or the node itself.
    pub(super) fn resolve_alias(&self, index: u32) -> u32 {
        let mut index = index;
        while let Content::Alias(target) = self.node_data(index).content {
            index = target;
        }
        index
    }

    /// The content, aliases followed.
    pub(super) fn content(&self, index: u32) -> &Content {
        &self.node_data(self.resolve_alias(index)).content
    }

    /// Whether a list or mapping may lack what a syntax error took from it.
    pub(super) fn is_incomplete(&self, index: u32) -> bool {
        self.node_data(self.resolve_alias(index)).is_incomplete
    }

    pub(super) fn place(&self, index: u32) -> SourceSpan {
        SourceSpan { source: Arc::clone(&self.source), range: self.node_data(index).span.clone() }
    }

    /// Where to point for what is missing in a node: its own key, else its first key, else its start.
    pub(super) fn place_for_missing(&self, index: u32) -> SourceSpan {
        let span = match (&self.node_data(index).key, &self.node_data(index).content) {
            (Some(key), _) => self.node_data(*key).span.clone(),
            (None, Content::Mapping(pairs))
                if !self.source.text[self.node_data(index).span.clone()].starts_with('{') =>
            {
                match pairs.first() {
                    Some((key, _)) => self.node_data(*key).span.clone(),
                    None => self.node_data(index).span.clone(),
                }
            }
            _ => self.node_data(index).span.clone(),
        };
        SourceSpan { source: Arc::clone(&self.source), range: span }
    }

    /// The text of a scalar as decoded, whatever its type; `None` for anything else.
    pub(super) fn text(&self, index: u32) -> Option<&str> {
        match self.content(index) {
            Content::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The pair of a mapping whose key reads `name`.
    pub(super) fn pair(&self, index: u32, name: &str) -> Option<(u32, u32)> {
        match self.content(index) {
            Content::Mapping(pairs) => pairs.iter().copied().find(|(key, _)| self.text(*key) == Some(name)),
            _ => None,
        }
    }
}
