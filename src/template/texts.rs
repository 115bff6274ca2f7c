//! The texts of a job and the files that they include, loaded and checked.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::instrument::InstrumentedTemplate;
use super::tags::has_tags;
use super::variables::UsedInputs;
use crate::diagnostic::{Diagnostic, Source, SourceSpan};
use crate::yaml::{Node, ScalarSpanMap};

/// Identifies a loaded text of [`Templates`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Template {
    pub(super) name: String,
}

/// Where the text of a template comes from.
#[derive(Debug, Clone)]
pub(super) enum TextOrigin {
    /// A string in a YAML file.
    Node {
        /// The string.
        node: Node,
        /// The places of its characters, computed when the first finding needs them.
        places: Arc<OnceLock<ScalarSpanMap>>,
    },
    /// A file with the template as its text.
    File(Arc<Source>),
}

impl TextOrigin {
    pub(super) fn of_node(node: &Node) -> Self {
        Self::Node { node: node.clone(), places: Arc::default() }
    }

    /// The place of a range of bytes of the template. The engine's ranges may begin or end within a character.
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

/// The texts of a job and the files that they include, in memory.
#[derive(Debug, Default)]
pub struct Templates {
    pub(super) texts: BTreeMap<String, TemplateText>,
    /// The names of texts that use a value which is known only when a run has started, or include a file that does.
    pub(super) late: BTreeSet<String>,
    /// The steps before the agent that the texts use; `None` if they use `before` as a whole.
    pub(super) used_steps: Option<BTreeSet<String>>,
    /// Whether the texts use the state.
    pub(super) uses_state: bool,
    /// The files that each text includes itself.
    pub(super) includes: BTreeMap<String, BTreeSet<String>>,
    /// The names of texts with an error in them or in a file that they include.
    pub(super) invalid: BTreeSet<String>,
    /// Operations that fail for every value of their operands' types, in branches and loops too.
    pub type_errors: Vec<Diagnostic>,
    /// The form of each text that is rendered.
    pub(super) instrumented: BTreeMap<String, InstrumentedTemplate>,
    /// The inputs that the texts use.
    pub used_inputs: UsedInputs,
    /// The paths of the files that includes name and that don't exist, as the job writes them.
    pub missing: BTreeSet<String>,
}

impl Templates {
    /// Whether the text at a place of the job file is a template.
    pub fn contains_place(&self, place: &SourceSpan) -> bool {
        self.texts.values().any(|text| match &text.origin {
            TextOrigin::Node { node, .. } => {
                let node_place = node.place();
                Arc::ptr_eq(&node_place.source, &place.source) && node_place.range == place.range
            }
            TextOrigin::File(_) => false,
        })
    }

    /// Whether the text has tags or comments.
    pub fn has_tags(&self, template: &Template) -> bool {
        self.texts.get(&template.name).is_some_and(|text| has_tags(&text.text))
    }

    /// Whether the text can be rendered only when a run has started: it uses the values of steps, or the state.
    pub fn is_late(&self, template: &Template) -> bool {
        self.late.contains(&template.name)
    }

    /// Whether any text uses the output of a step before the agent.
    pub fn uses_step(&self, name: &str) -> bool {
        self.used_steps.as_ref().is_none_or(|steps| steps.contains(name))
    }

    /// Whether any text uses the state.
    pub fn uses_state(&self) -> bool {
        self.uses_state
    }

    /// Whether the text and the files that it includes have no errors.
    pub fn is_valid(&self, template: &Template) -> bool {
        !self.invalid.contains(&template.name)
    }

    /// Whether the text is only white space. A text with a tag isn't blank.
    pub fn is_blank(&self, template: &Template) -> bool {
        self.texts.get(&template.name).is_none_or(|text| text.text.trim().is_empty())
    }

    /// The size of all texts together, in bytes.
    pub fn size(&self) -> usize {
        self.texts.values().map(|text| text.text.len()).sum()
    }

    /// The prompt files that were read.
    pub fn sources(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.texts.values().filter_map(|text| match &text.origin {
            TextOrigin::File(source) => Some(source),
            TextOrigin::Node { .. } => None,
        })
    }

    /// The paths of the prompt files that were read, as the job writes them.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().filter(|(_, text)| matches!(text.origin, TextOrigin::File(_))).map(|(name, _)| name.as_str())
    }
}
