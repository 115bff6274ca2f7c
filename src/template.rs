//! Templates: minijinja, set up once. They are read and checked before a run, and rendered from memory.
//!
//! A [`Loader`] takes every text of a job that may hold template tags, follows its includes and finds everything wrong
//! without rendering; what is left is [`Templates`], which renders and touches no disk. A value can't change a
//! template's structure, and rendered text is never rendered again.

mod ahead;
mod bounds;
mod check;
mod folder;
mod growth;
mod loader;
mod names;
mod placed;
mod quoted;
mod scopes;
mod shell;
mod unknown;
mod uses;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};

use crate::diagnostic::{Diagnostic, Place, Rule, Source, rule};
use crate::yaml::{Node, Places};

use growth::Growth;
use quoted::Unfit;
use shell::Misplaced;

pub use ahead::{Ahead, Foreseen};
pub use folder::{FileFault, FileId, Folder, MAX_FILE_BYTES, as_read, leaves};
pub use loader::{Loader, MAX_FILES, Role};
pub use names::Names;
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
];

/// How many steps the renderings of a job's texts may take together; a long prompt needs a few hundred.
const FUEL: u64 = 1_000_000;

/// How deep texts may nest while they are rendered: the engine counts 10 for an include and 4 for a macro.
const MAX_DEPTH: usize = 50;

/// The greatest size of a rendered text, in bytes.
pub const MAX_RENDERED_BYTES: usize = 4 * 1024 * 1024;

/// How many times as large as a job's texts and values something may get in a text that is rendered ahead of a run.
const MAX_GROWTH: u64 = 64;

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
    growth: BTreeMap<String, Growth>,
    uses: Uses,
    /// Files that an include names and that are not there.
    missing: BTreeSet<String>,
}

impl Templates {
    /// Which inputs the texts use.
    pub fn uses(&self) -> &Uses {
        &self.uses
    }

    /// Whether the text holds anything but itself: a tag or a comment.
    pub fn has_tags(&self, template: &Template) -> bool {
        self.texts.get(&template.name).is_some_and(|text| has_tags(&text.text))
    }

    /// Whether the text can be rendered ahead of a run: nothing is wrong with it, and nothing in it grows
    /// out of proportion.
    pub fn is_tame(&self, template: &Template) -> bool {
        self.is_tame_name(&template.name)
    }

    fn is_tame_name(&self, name: &str) -> bool {
        !self.broken.contains(name) && self.growth.get(name).is_some_and(|growth| growth.times() <= MAX_GROWTH)
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
        let mut environment = environment();
        for (name, text) in &self.texts {
            // Every text was parsed when it was loaded; one that couldn't be is not found when it is rendered.
            let _ = environment.add_template(name, &text.text);
        }
        Engine::new(environment, value(values), self)
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
}

impl<'a> Engine<'a> {
    fn new(environment: Environment<'a>, values: minijinja::Value, templates: &'a Templates) -> Self {
        Self { environment, values, templates, fuel: FUEL }
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
        self.environment.set_formatter(quoted::print);
        let rendered = self.render_text(template);
        self.environment.set_formatter(minijinja::escape_formatter);
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
                let place = cause.name().zip(cause.range());
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
                Err(Box::new(fault(place, message).help(help)))
            }
        }
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

/// The error within an included text, rather than the one that says that including failed.
fn innermost(error: &minijinja::Error) -> &minijinja::Error {
    let mut found = error;
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        if let Some(cause) = cause.downcast_ref::<minijinja::Error>() {
            found = cause;
        }
        next = cause.source();
    }
    found
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
