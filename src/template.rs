//! Templates: minijinja, set up once. They are read and checked before a run, and rendered from memory.
//!
//! A [`Loader`] takes every text of a job that may hold template tags, follows its includes and finds everything wrong
//! without rendering; what is left is [`Templates`], which renders and touches no disk. A value can't change a
//! template's structure, and rendered text is never rendered again.

mod ahead;
mod bounds;
mod check;
mod exports;
mod folder;
mod guarded;
mod limits;
mod loader;
mod names;
mod placed;
mod quoted;
mod scopes;
mod shell;
mod syntax;
mod types;
mod unknown;
mod uses;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};

use crate::diagnostic::{Diagnostic, Place, Rule, Source, rule};
use crate::yaml::{Node, Places};

use guarded::{Guarded, Operation};
use limits::Limits;
use quoted::Unfit;
use shell::Misplaced;

pub use ahead::{Ahead, Foreseen};
pub use folder::{FileFault, FileId, Folder, MAX_FILE_BYTES, as_read, leaves};
pub use loader::{Loader, MAX_FILES, Role};
pub use names::Names;
pub use syntax::{first_tag, without_tags};
pub use types::Kind;
pub use uses::Uses;

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
    rule!(Error "value-in-quotes"),
    rule!(Error "not-in-command"),
    rule!(Error "macro-arguments"),
    rule!(Warning "one-brace"),
];

/// How many steps the renderings of a job's texts may take together; a long prompt needs a few hundred.
const FUEL: u64 = 1_000_000;

/// How deep texts may nest while they are rendered: the engine counts 10 for an include and 4 for a macro.
const MAX_DEPTH: usize = 50;

/// The greatest size of a rendered text, in bytes.
pub const MAX_RENDERED_BYTES: usize = 4 * 1024 * 1024;

/// What to do where a value and its use differ.
const SUIT: &str = "give a value that suits this tag, or change what the tag does with it";

/// A text that was loaded: what to render, as [`Templates`] know it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Template {
    name: String,
    /// Whether its values are quoted for bash.
    is_command: bool,
}

/// Where a template's text stands.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// A string in a YAML file.
    Node {
        /// The string.
        node: Node,
        /// Where its letters stand; worked out when something is first found.
        places: Arc<OnceLock<Places>>,
    },
    /// A file of its own; the source's text is the template's.
    File(Arc<Source>),
}

impl Origin {
    fn of_node(node: &Node) -> Self {
        Self::Node { node: node.clone(), places: Arc::default() }
    }

    /// The place of a range of the template's text. The engine counts in bytes, and may begin or end within a letter.
    pub(crate) fn place(&self, range: Range<usize>) -> Place {
        let letters = |text: &str| text.floor_char_boundary(range.start)..text.ceil_char_boundary(range.end);
        match self {
            Self::Node { node, places } => {
                places.get_or_init(|| node.places()).of(letters(node.text().unwrap_or_default()))
            }
            Self::File(source) => Place { source: source.clone(), span: letters(&source.text) },
        }
    }
}

#[derive(Debug, Clone)]
struct Text {
    text: Arc<str>,
    origin: Origin,
}

/// The texts of a job, includes and all, in memory.
#[derive(Debug, Default)]
pub struct Templates {
    texts: BTreeMap<String, Text>,
    /// Those in which something is wrong, or in what they include.
    broken: BTreeSet<String>,
    /// What fails for every value of its type, wherever it stands.
    ill_typed: Vec<Diagnostic>,
    /// What is rendered in the place of each text.
    guarded: BTreeMap<String, Guarded>,
    uses: Uses,
    /// Files that an include names and that are not there.
    missing: BTreeSet<String>,
}

impl Templates {
    /// Which inputs the texts use.
    pub fn uses(&self) -> &Uses {
        &self.uses
    }

    /// Whether a text of the job file is one of these, to be rendered.
    pub fn holds(&self, place: &Place) -> bool {
        self.texts.values().any(|text| match &text.origin {
            Origin::Node { node, .. } => {
                let own = node.place();
                Arc::ptr_eq(&own.source, &place.source) && own.span == place.span
            }
            Origin::File(_) => false,
        })
    }

    /// Whether the text holds anything but itself: a tag or a comment.
    pub fn has_tags(&self, template: &Template) -> bool {
        self.texts.get(&template.name).is_some_and(|text| has_tags(&text.text))
    }

    /// Whether nothing is wrong with the text and what it includes.
    pub fn is_sound(&self, template: &Template) -> bool {
        !self.broken.contains(&template.name)
    }

    /// What fails in every run that comes by it, for no value of its type can do that.
    pub fn ill_typed(&self) -> &[Diagnostic] {
        &self.ill_typed
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
    pub fn place(&self, template: &Template) -> Option<Place> {
        self.texts.get(&template.name).map(|text| text.origin.place(0..text.text.len()))
    }

    /// The prompt files that were read.
    pub fn sources(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.texts.values().filter_map(|text| match &text.origin {
            Origin::File(source) => Some(source),
            Origin::Node { .. } => None,
        })
    }

    /// The prompt files that were read, by their path below the job's folder as the job wrote it.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().filter(|(_, text)| matches!(text.origin, Origin::File(_))).map(|(name, _)| name.as_str())
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
    limits: Arc<Limits>,
    /// Whether the last text failed for a reason that holds for all values of the same types.
    failed_by_type: bool,
}

impl<'a> Engine<'a> {
    fn new(values: minijinja::Value, templates: &'a Templates, is_needed: impl Fn(&str) -> bool) -> Self {
        let mut environment = environment();
        let limits = Arc::new(Limits::default());
        limits.install(&mut environment);
        for (name, guarded) in templates.guarded.iter().filter(|(name, _)| is_needed(name)) {
            // Every text was parsed when it was loaded; one that couldn't be is not found when it is rendered.
            let _ = environment.add_template(name, &guarded.text);
        }
        let mut engine = Self { environment, values, templates, fuel: FUEL, limits, failed_by_type: false };
        engine.print_text();
        engine
    }

    fn print_text(&mut self) {
        let limits = self.limits.clone();
        self.environment.set_formatter(move |out, state, value| limits.print(out, state, value));
    }

    fn print_words(&mut self) {
        let limits = self.limits.clone();
        self.environment.set_formatter(move |out, state, value| match limits.is_printed(value)? {
            true => quoted::print(out, state, value),
            false => Ok(()),
        });
    }

    /// Renders a text; in a command, every value becomes words of bash. All that one engine renders draws on the same
    /// number of steps.
    ///
    /// # Errors
    /// Where a value doesn't suit what the template does with it, or rendering takes too long or too much: a finding at
    /// that place, with the code `render-failed`. Where a value stands in a command and not as a word: a finding with the
    /// code `value-in-quotes`.
    pub fn render(&mut self, template: &Template) -> Result<String, Box<Diagnostic>> {
        if !template.is_command {
            return self.render_text(template);
        }
        self.print_words();
        let rendered = self.render_text(template);
        self.print_text();
        let place = || self.templates.place(template).unwrap_or_else(nowhere);
        quoted::command(&rendered?).map_err(|unfit| {
            Box::new(match unfit {
                Unfit::Misplaced(why) => misplaced(why, place()),
                Unfit::PartOfWord => {
                    let finding = Diagnostic::error("value-in-quotes", place(), "a list stands within a word");
                    finding.help("a list is as many words as it has items: put blanks around it")
                }
            })
        })
    }

    fn render_text(&mut self, template: &Template) -> Result<String, Box<Diagnostic>> {
        self.environment.set_fuel(Some(self.fuel));
        self.failed_by_type = false;
        let mut out = Bounded::default();
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
                None => nowhere(),
            };
            Diagnostic::error("render-failed", place, message)
        };
        let exceeded = self.limits.exceeded();
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
                    let (message, help) = exceeded.words();
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
                    (_, Some(detail)) => (format!("the template can't be rendered: {detail}"), SUIT),
                    (kind, None) => (format!("the template can't be rendered: {kind}"), SUIT),
                };
                self.failed_by_type = cause.kind() != ErrorKind::OutOfFuel
                    && part.is_some_and(|part| part.operation == Operation::Typed)
                    && causes(&error)
                        .filter(|error| error.range().is_some())
                        .all(|error| self.part(error).is_some_and(|part| !part.is_conditional));
                Err(Box::new(fault(place, message).help(help)))
            }
        }
    }

    /// The part of a template in which something failed.
    fn part(&self, error: &minijinja::Error) -> Option<&'a guarded::Part> {
        self.templates.guarded.get(error.name()?)?.part(&error.range()?)
    }
}

fn nowhere() -> Place {
    Place { source: Source::new("template", ""), span: 0..0 }
}

fn misplaced(why: Misplaced, place: Place) -> Diagnostic {
    let (message, help) = why.words();
    Diagnostic::error("value-in-quotes", place, message).help(help)
}

/// Takes in a text of at most [`MAX_RENDERED_BYTES`].
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    is_full: bool,
}

impl std::io::Write for Bounded {
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
