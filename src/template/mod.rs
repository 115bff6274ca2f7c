//! Templates: minijinja, set up once. They are read and checked before a run, and rendered from memory.
//!
//! A [`Loader`] takes every text of a job that may hold template tags, follows its includes and finds everything wrong
//! without rendering; what is left is [`Templates`], which renders and touches no disk. A value can't change a
//! template's structure, and rendered text is never rendered again.

mod check;
mod exports;
mod instrument;
mod job_dir;
mod loader;
mod partial_render;
mod render_limits;
mod scopes;
mod suggestions;
mod syntax_errors;
mod syntax_tree;
mod tag_limits;
mod tags;
mod type_check;
mod used_inputs;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};

use crate::diagnostic::{Diagnostic, Rule, Source, SourceSpan, rule};
use crate::yaml::{Node, ScalarSpanMap};

use instrument::InstrumentedTemplate;
use render_limits::RenderLimits;

pub use job_dir::{FileId, JobDir, MAX_FILE_BYTES, PromptFileError, leaves_dir, normalize_text};
pub use loader::{Loader, MAX_FILES, TextRole};
pub use partial_render::{PartialRender, PartialRenderer};
pub use tags::{StrayTag, TagPurpose, stray_tags};
pub use type_check::ValueType;
pub use used_inputs::UsedInputs;
pub use variables::TemplateVariables;

/// What checking templates can find.
pub const RULES: &[Rule] = &[
    rule!(Error "template-syntax"),
    rule!(Error "undefined-variable"),
    rule!(Error "unknown-filter"),
    rule!(Error "unknown-test"),
    rule!(Error "unknown-function"),
    rule!(Error "secret-in-template"),
    rule!(Error "untrusted-in-system"),
    rule!(Error "dynamic-include"),
    rule!(Error "include-cycle"),
    rule!(Error "too-many-includes"),
    rule!(Error "outside-folder"),
    rule!(Error "unreadable-file"),
    rule!(Error "render-failed"),
    rule!(Error "macro-arguments"),
    rule!(Warning "single-brace"),
];

/// How many steps the renderings of a job's texts may take together; a long prompt needs a few hundred.
const FUEL: u64 = 1_000_000;

/// How deep texts may nest while they are rendered: the engine counts 10 for an include and 4 for a macro.
const MAX_DEPTH: usize = 50;

/// The greatest size of a rendered text, in bytes.
pub const MAX_RENDERED_BYTES: usize = 4 * 1024 * 1024;

/// What to do where a value and its use differ.
const TYPE_MISMATCH_HELP: &str = "give a value that suits this tag, or change what the tag does with it";

/// A text that was loaded: what to render, as [`Templates`] know it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Template {
    name: String,
}

/// Where a template's text stands.
#[derive(Debug, Clone)]
pub(crate) enum TextOrigin {
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
    fn of_node(node: &Node) -> Self {
        Self::Node { node: node.clone(), places: Arc::default() }
    }

    /// The place of a range of the template's text. The engine counts in bytes, and may begin or end within a letter.
    pub(crate) fn place(&self, range: Range<usize>) -> SourceSpan {
        let letters = |text: &str| text.floor_char_boundary(range.start)..text.ceil_char_boundary(range.end);
        match self {
            Self::Node { node, places } => {
                places.get_or_init(|| node.span_map()).place_of(letters(node.text().unwrap_or_default()))
            }
            Self::File(source) => SourceSpan { source: source.clone(), range: letters(&source.text) },
        }
    }
}

#[derive(Debug, Clone)]
struct TemplateText {
    text: Arc<str>,
    origin: TextOrigin,
}

/// The texts of a job, includes and all, in memory.
#[derive(Debug, Default)]
pub struct Templates {
    texts: BTreeMap<String, TemplateText>,
    /// Those in which something is wrong, or in what they include.
    invalid: BTreeSet<String>,
    /// What fails for every value of its type, wherever it stands.
    type_errors: Vec<Diagnostic>,
    /// What is rendered in the place of each text.
    instrumented: BTreeMap<String, InstrumentedTemplate>,
    used_inputs: UsedInputs,
    /// Files that an include names and that are not there.
    missing: BTreeSet<String>,
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

    /// An engine that knows all the texts and the values of the variables, an object.
    pub fn engine(&self, values: &serde_json::Value) -> Engine<'_> {
        Engine::new(value(values), self, |_| true)
    }
}

fn has_tags(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|tag| text.contains(tag))
}

/// Renders the texts of [`Templates`].
#[derive(Debug)]
pub struct Engine<'a> {
    environment: Environment<'a>,
    values: minijinja::Value,
    templates: &'a Templates,
    /// The steps that are left.
    fuel: u64,
    /// The sizes that are left.
    limits: Arc<RenderLimits>,
}

impl<'a> Engine<'a> {
    fn new(values: minijinja::Value, templates: &'a Templates, is_needed: impl Fn(&str) -> bool) -> Self {
        let mut environment = environment();
        let limits = Arc::new(RenderLimits::default());
        limits.install(&mut environment);
        for (name, guarded) in templates.instrumented.iter().filter(|(name, _)| is_needed(name)) {
            // Every text was parsed when it was loaded; one that couldn't be is not found when it is rendered.
            let _ = environment.add_template(name, &guarded.text);
        }
        let printing = limits.clone();
        environment.set_formatter(move |out, state, value| printing.print(out, state, value));
        Self { environment, values, templates, fuel: FUEL, limits }
    }

    /// Renders a text. Everything that one engine renders draws on the same number of steps.
    ///
    /// # Errors
    /// A value doesn't suit what the template does with it, or rendering takes too long or too much: a finding with the
    /// code `render-failed` at that place.
    pub fn render(&mut self, template: &Template) -> Result<String, Box<Diagnostic>> {
        self.environment.set_fuel(Some(self.fuel));
        let mut out = BoundedWriter::default();
        let text = self.environment.get_template(&template.name);
        let rendered = text.and_then(|text| {
            let captured = text.render_captured_to(self.values.clone(), &mut out)?;
            Ok(captured.state().fuel_levels().map_or(0, |(spent, _)| spent))
        });
        let fault = |range: Option<(&str, Range<usize>)>, message: String| {
            let (name, range) = range.unwrap_or((&template.name, 0..0));
            let text = self.templates.texts.get(name).or_else(|| self.templates.texts.get(&template.name));
            let place = match text {
                Some(text) => text.origin.place(range),
                None => unknown_place(),
            };
            Diagnostic::error("render-failed", place, message)
        };
        let exceeded = self.limits.take_exceeded();
        match rendered {
            _ if out.is_full => {
                let mib = MAX_RENDERED_BYTES / 1024 / 1024;
                let finding = fault(None, format!("the rendered text is greater than {mib} MiB"));
                Err(Box::new(finding.help("give shorter inputs, or paths for an agent to read")))
            }
            Ok(spent) => {
                self.fuel = self.fuel.saturating_sub(spent);
                Ok(String::from_utf8_lossy(&out.bytes).into_owned())
            }
            Err(error) => {
                let cause = innermost(&error);
                if cause.kind() == ErrorKind::OutOfFuel {
                    self.fuel = 0;
                }
                let part = self.part(cause);
                let place = cause.name().zip(part.map(|part| part.original.clone()));
                if let Some(exceeded) = exceeded {
                    let (message, help) = exceeded.message_and_help();
                    return Err(Box::new(fault(place, message).help(help)));
                }
                let (message, help) = match (cause.kind(), cause.detail()) {
                    (ErrorKind::OutOfFuel, _) => {
                        (format!("rendering takes more than {FUEL} steps"), "loop over less, or in fewer nested loops")
                    }
                    (_, Some(detail)) if detail.contains("recursion limit") => (
                        "macros and includes nest too deep".to_owned(),
                        "let no macro call itself without end, and no more than four files include each other in turn",
                    ),
                    (ErrorKind::UndefinedError, detail) => (
                        format!("the template can't be rendered: {}", detail.unwrap_or("a value is undefined")),
                        "give it a value, or ask `is defined` before using it",
                    ),
                    (_, Some(detail)) => (format!("the template can't be rendered: {detail}"), TYPE_MISMATCH_HELP),
                    (kind, None) => (format!("the template can't be rendered: {kind}"), TYPE_MISMATCH_HELP),
                };
                Err(Box::new(fault(place, message).help(help)))
            }
        }
    }

    /// The part of a template in which something failed.
    fn part(&self, error: &minijinja::Error) -> Option<&'a instrument::InstrumentedPart> {
        self.templates.instrumented.get(error.name()?)?.part(&error.range()?)
    }
}

fn unknown_place() -> SourceSpan {
    SourceSpan { source: Source::new("template", ""), range: 0..0 }
}

/// Takes in a text of at most [`MAX_RENDERED_BYTES`].
#[derive(Default)]
struct BoundedWriter {
    bytes: Vec<u8>,
    is_full: bool,
}

impl std::io::Write for BoundedWriter {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        if piece.len() > MAX_RENDERED_BYTES - self.bytes.len() {
            self.is_full = true;
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A JSON value as templates see it.
fn value(json: &serde_json::Value) -> minijinja::Value {
    use serde_json::Value;
    match json {
        Value::Null => ().into(),
        Value::Bool(boolean) => (*boolean).into(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => whole.into(),
            (_, Some(whole)) => whole.into(),
            _ => number.as_f64().unwrap_or_default().into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(value).collect(),
        Value::Object(parts) => {
            minijinja::Value::from_pairs(parts.iter().map(|(name, part)| (name.as_str(), value(part))))
        }
    }
}

/// An error and what caused it, the outermost first.
fn causes(error: &minijinja::Error) -> impl Iterator<Item = &minijinja::Error> {
    std::iter::successors(Some(error), |error| {
        let sources = std::iter::successors(std::error::Error::source(*error), |error| error.source());
        sources.into_iter().find_map(|source| source.downcast_ref())
    })
}

/// The error within an included text, rather than the one that says that including failed; of what a filter met, what
/// the filter says of it.
fn innermost(error: &minijinja::Error) -> &minijinja::Error {
    causes(error).filter(|cause| cause.range().is_some()).last().unwrap_or(error)
}

/// The engine's settings: everything undefined is an error, nothing is escaped, nothing runs without end, and no
/// function shows what the template wasn't given.
pub(crate) fn environment<'a>() -> Environment<'a> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MAX_DEPTH);
    environment.set_debug(true);
    environment.remove_global("debug");
    environment
}

#[cfg(test)]
mod tests;
