//! The arena: every node of a document, with its span. It never holds a cycle.

use std::ops::Range;
use std::sync::Arc;

use super::scalar::Scalar;
use crate::diagnostic::{Near, Place, Source};

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
    Broken,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) span: Range<usize>,
    pub(super) content: Content,
    /// The key that this node is the value of.
    pub(super) key: Option<u32>,
    /// A list or mapping that may lack what a syntax error took from it.
    pub(super) torn: bool,
}

#[derive(Debug)]
pub(super) struct Tree {
    pub(super) source: Arc<Source>,
    pub(super) entries: Vec<Entry>,
    pub(super) root: u32,
    /// Nodes and 32-byte pieces of text, aliases followed.
    pub(super) weight: u64,
    pub(super) synonyms: Synonyms,
}

/// Keys that people bring along from elsewhere, each with the key that it stands for. The first whose key is known and
/// free where it is met counts, so that one word may stand for several.
pub type Synonyms = &'static [(&'static str, &'static str)];

/// A key without its case, dashes and underscores.
fn fold(key: &str) -> impl Iterator<Item = char> + '_ {
    key.chars().filter(|letter| !matches!(letter, '-' | '_')).flat_map(char::to_lowercase)
}

impl Tree {
    /// The free key that a word from elsewhere stands for.
    pub(super) fn meant(&self, word: &str, free: &[&'static str]) -> Option<Near<'static>> {
        let same = |other: &str| fold(word).eq(fold(other));
        let known = free.iter().find(|key| same(key)).copied();
        let meant = known.or_else(|| {
            let stands_for = self.synonyms.iter().filter(|(elsewhere, _)| same(elsewhere)).map(|(_, here)| *here);
            stands_for.into_iter().find(|here| free.contains(here))
        });
        meant.map(|name| Near { name, is_only: true })
    }

    pub(super) fn entry(&self, index: u32) -> &Entry {
        &self.entries[index as usize]
    }

    /// The node that an alias stands for, or the node itself.
    pub(super) fn resolve(&self, index: u32) -> u32 {
        let mut index = index;
        while let Content::Alias(target) = self.entry(index).content {
            index = target;
        }
        index
    }

    /// The content, aliases followed.
    pub(super) fn content(&self, index: u32) -> &Content {
        &self.entry(self.resolve(index)).content
    }

    /// Whether a list or mapping may lack what a syntax error took from it.
    pub(super) fn is_torn(&self, index: u32) -> bool {
        self.entry(self.resolve(index)).torn
    }

    pub(super) fn place(&self, index: u32) -> Place {
        Place { source: Arc::clone(&self.source), span: self.entry(index).span.clone() }
    }

    /// Where to point for what is missing in a node: its own key, else its first key, else its start.
    pub(super) fn head(&self, index: u32) -> Place {
        let span = match (&self.entry(index).key, &self.entry(index).content) {
            (Some(key), _) => self.entry(*key).span.clone(),
            (None, Content::Mapping(pairs)) if !self.source.text[self.entry(index).span.clone()].starts_with('{') => {
                match pairs.first() {
                    Some((key, _)) => self.entry(*key).span.clone(),
                    None => self.entry(index).span.clone(),
                }
            }
            _ => self.entry(index).span.clone(),
        };
        Place { source: Arc::clone(&self.source), span }
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
