//! The arena: every node of a document, with its span. It never holds a cycle.

use std::ops::Range;
use std::sync::Arc;

use super::scalar::Scalar;
use crate::diagnostic::{Place, Source};

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
}

#[derive(Debug)]
pub(super) struct Tree {
    pub(super) source: Arc<Source>,
    pub(super) entries: Vec<Entry>,
    pub(super) root: u32,
    /// Nodes and 32-byte pieces of text, aliases followed.
    pub(super) weight: u64,
}

impl Tree {
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
