//! The texts of a job and the files that they include, loaded and checked.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::instrument::InstrumentedTemplate;
use super::tags::has_tags;
use super::variables::UsedInputs;
use crate::diagnostic::{Diagnostic, Source, SourceSpan};
use crate::yaml::{Node, ScalarSpanMap};

/// A text that was loaded: what to render, as [`Templates`] know it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Template {
    pub(super) name: String,
}

/// Where a template's text stands.
#[derive(Debug, Clone)]
pub(super) enum TextOrigin {
    /// A string in a YAML file.
    Node {
        /// The string.
        node: Node,
        /// Where its letters stand; worked out when something is first found.
        places: Arc<OnceLock<ScalarSpanMap>>,
    },
    /// A file of its own; the source's text is the template's.
    File(Arc<Source>),
}

impl TextOrigin {
    pub(super) fn of_node(node: &Node) -> Self {
        Self::Node { node: node.clone(), places: Arc::default() }
    }

    /// The place of a range of the template's text. The engine counts in bytes, and may begin or end within a letter.
    pub(super) fn place(&self, range: Range<usize>) -> SourceSpan {
        let letters = |text: &str| text.floor_char_boundary(range.start)..text.ceil_char_boundary(range.end);
        match self {
            Self::Node { node, places } => {
                places.get_or_init(|| node.span_map()).place_of(letters(node.text().unwrap_or_default()))
            }
            Self::File(source) => SourceSpan { source: source.clone(), range: letters(&source.text) },
        }
    }
}

/// One text.
#[derive(Debug, Clone)]
pub(super) struct TemplateText {
    pub(super) text: Arc<str>,
    pub(super) origin: TextOrigin,
}

/// The texts of a job, includes and all, in memory.
#[derive(Debug, Default)]
pub struct Templates {
    pub(super) texts: BTreeMap<String, TemplateText>,
    /// Those in which something is wrong, or in what they include.
    pub(super) invalid: BTreeSet<String>,
    /// What fails for every value of its type, wherever it stands.
    pub(super) type_errors: Vec<Diagnostic>,
    /// What is rendered in the place of each text.
    pub(super) instrumented: BTreeMap<String, InstrumentedTemplate>,
    pub(super) used_inputs: UsedInputs,
    /// Files that an include names and that are not there.
    pub(super) missing: BTreeSet<String>,
}

impl Templates {
    /// Which inputs the texts use.
    pub fn used_inputs(&self) -> &UsedInputs {
        &self.used_inputs
    }

    /// Whether a text of the job file is one of these, to be rendered.
    pub fn contains_place(&self, place: &SourceSpan) -> bool {
        self.texts.values().any(|text| match &text.origin {
            TextOrigin::Node { node, .. } => {
                let own = node.place();
                Arc::ptr_eq(&own.source, &place.source) && own.range == place.range
            }
            TextOrigin::File(_) => false,
        })
    }

    /// Whether the text holds anything but itself: a tag or a comment.
    pub fn has_tags(&self, template: &Template) -> bool {
        self.texts.get(&template.name).is_some_and(|text| has_tags(&text.text))
    }

    /// Whether nothing is wrong with the text and what it includes.
    pub fn is_valid(&self, template: &Template) -> bool {
        !self.invalid.contains(&template.name)
    }

    /// What fails in every run that comes by it, for no value of its type can do that.
    pub fn type_errors(&self) -> &[Diagnostic] {
        &self.type_errors
    }

    /// Whether nothing but white space stands in the text. A tag counts as something.
    pub fn is_blank(&self, template: &Template) -> bool {
        self.texts.get(&template.name).is_none_or(|text| text.text.trim().is_empty())
    }

    /// The size of all texts together, in bytes.
    pub fn size(&self) -> usize {
        self.texts.values().map(|text| text.text.len()).sum()
    }

    /// Where the template's text begins and ends.
    pub fn place(&self, template: &Template) -> Option<SourceSpan> {
        self.texts.get(&template.name).map(|text| text.origin.place(0..text.text.len()))
    }

    /// The prompt files that were read.
    pub fn sources(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.texts.values().filter_map(|text| match &text.origin {
            TextOrigin::File(source) => Some(source),
            TextOrigin::Node { .. } => None,
        })
    }

    /// The prompt files that were read, by their path below the job's folder as the job wrote it.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().filter(|(_, text)| matches!(text.origin, TextOrigin::File(_))).map(|(name, _)| name.as_str())
    }

    /// The files that an include would take if they were there, likewise.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        self.missing.iter().map(String::as_str)
    }
}
