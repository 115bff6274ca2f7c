//! Renders the texts of a job from memory, within bounds on time and size.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};

use super::render_limits::RenderLimits;
use super::texts::{Template, Templates};
use crate::diagnostic::{Diagnostic, Source, SourceSpan};

/// The greatest number of steps that rendering all texts of a job may take. A long prompt needs a few hundred.
const FUEL: u64 = 1_000_000;

/// The greatest nesting depth while rendering. The engine counts 10 for an include and 4 for a macro.
const MAX_DEPTH: usize = 50;

/// The greatest size of a rendered text, in bytes.
pub const MAX_RENDERED_BYTES: usize = 4 * 1024 * 1024;

/// The help for a value whose type doesn't fit its use.
const TYPE_MISMATCH_HELP: &str = "give a value that fits this tag, or change the tag";

impl Templates {
    /// An engine that renders these texts. `values` is an object with the variables.
    pub fn engine(&self, values: &serde_json::Value) -> Engine<'_> {
        Engine::new(value(values), self, |_| true)
    }
}

/// Renders the texts of [`Templates`].
#[derive(Debug)]
pub struct Engine<'a> {
    limited: LimitedEnvironment,
    values: minijinja::Value,
    templates: &'a Templates,
    /// The steps that are left.
    fuel: u64,
}

thread_local! {
    /// Making an environment takes longer than rendering a prompt, and a map needs one for each row.
    static IDLE: RefCell<Option<(Environment<'static>, Arc<RenderLimits>)>> = const { RefCell::new(None) };
}

/// An environment whose filters, tests and functions keep the limits. The thread's next engine uses it again.
#[derive(Debug)]
struct LimitedEnvironment {
    environment: Environment<'static>,
    limits: Arc<RenderLimits>,
}

impl LimitedEnvironment {
    /// One without texts, of whose limits nothing is used.
    fn new() -> Self {
        let (environment, limits) = IDLE.take().unwrap_or_else(|| {
            let mut environment = environment();
            let limits = Arc::new(RenderLimits::default());
            limits.install(&mut environment);
            let printing = limits.clone();
            environment.set_formatter(move |out, state, value| printing.print(out, state, value));
            (environment, limits)
        });
        Self { environment, limits }
    }
}

impl Drop for LimitedEnvironment {
    fn drop(&mut self) {
        let mut environment = std::mem::replace(&mut self.environment, Environment::empty());
        environment.clear_templates();
        self.limits.reset();
        // Fails at the end of the thread.
        let _ = IDLE.try_with(|idle| idle.replace(Some((environment, self.limits.clone()))));
    }
}

impl<'a> Engine<'a> {
    pub(super) fn new(values: minijinja::Value, templates: &'a Templates, is_needed: impl Fn(&str) -> bool) -> Self {
        let mut limited = LimitedEnvironment::new();
        for (name, guarded) in templates.instrumented.iter().filter(|(name, _)| is_needed(name)) {
            // A text that couldn't be parsed when it was loaded is missing here, so that rendering it fails.
            let _ = limited.environment.add_template_owned(name.clone(), guarded.text.clone());
        }
        Self { limited, values, templates, fuel: FUEL }
    }

    /// Prints lists and mappings as JSON.
    pub(super) fn printing_json(self) -> Self {
        self.limited.limits.prints_json.store(true, std::sync::atomic::Ordering::Relaxed);
        self
    }

    /// Whether the limits leave nothing for further texts.
    pub(super) fn is_exhausted(&self) -> bool {
        self.fuel == 0 || self.limited.limits.is_exhausted()
    }

    /// Renders a text. Everything that one engine renders draws on the same number of steps.
    ///
    /// # Errors
    /// A value doesn't suit what the template does with it, or rendering takes too long or too much: a finding with the
    /// code `render-failed` at that place.
    pub fn render(&mut self, template: &Template) -> Result<String, Box<Diagnostic>> {
        self.limited.environment.set_fuel(Some(self.fuel));
        let mut out = BoundedWriter::default();
        let text = self.limited.environment.get_template(&template.name);
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
        let exceeded = self.limited.limits.take_exceeded();
        match rendered {
            _ if out.is_full => {
                let mib = MAX_RENDERED_BYTES / 1024 / 1024;
                let finding = fault(None, format!("the rendered text is larger than {mib} MiB"));
                Err(Box::new(finding.help("give shorter inputs, or paths of files that an agent can read")))
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
                let place = self.place(cause);
                if let Some(exceeded) = exceeded {
                    let (message, help) = exceeded.message_and_help();
                    return Err(Box::new(fault(place, message).help(help)));
                }
                let (message, help) = match (cause.kind(), cause.detail()) {
                    (ErrorKind::OutOfFuel, _) => (
                        format!("rendering takes more than {FUEL} steps"),
                        "loop over fewer items, or nest fewer loops",
                    ),
                    (_, Some(detail)) if detail.contains("recursion limit") => (
                        "macros and includes nest too deeply".to_owned(),
                        "stop the recursion of macros, and nest at most four includes",
                    ),
                    (ErrorKind::UndefinedError, detail) => (
                        format!("the template can't be rendered: {}", detail.unwrap_or("a value is undefined")),
                        "give it a value, or test it with `is defined` first",
                    ),
                    (_, Some(detail)) => (format!("the template can't be rendered: {detail}"), TYPE_MISMATCH_HELP),
                    (kind, None) => (format!("the template can't be rendered: {kind}"), TYPE_MISMATCH_HELP),
                };
                Err(Box::new(fault(place, message).help(help)))
            }
        }
    }

    /// The text in which an error occurred, and the range to report.
    fn place<'e>(&self, error: &'e minijinja::Error) -> Option<(&'e str, Range<usize>)> {
        let name = error.name()?;
        Some((name, self.templates.instrumented.get(name)?.reported_range(&error.range()?)?))
    }
}

fn unknown_place() -> SourceSpan {
    SourceSpan { source: Source::new("template", ""), range: 0..0 }
}

/// Collects a text of at most [`MAX_RENDERED_BYTES`].
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
pub(super) fn value(json: &serde_json::Value) -> minijinja::Value {
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

/// An error and its causes, the outermost first.
fn causes(error: &minijinja::Error) -> impl Iterator<Item = &minijinja::Error> {
    std::iter::successors(Some(error), |error| {
        let sources = std::iter::successors(std::error::Error::source(*error), |error| error.source());
        sources.into_iter().find_map(|source| source.downcast_ref())
    })
}

/// The innermost error that has a place: the one within an included text, not the one that reports the failed include.
fn innermost(error: &minijinja::Error) -> &minijinja::Error {
    causes(error).filter(|cause| cause.range().is_some()).last().unwrap_or(error)
}

/// The engine with its settings: undefined values are errors, nothing is escaped, the number of steps is limited, and
/// `debug`, which prints all variables, is removed.
pub(super) fn environment<'a>() -> Environment<'a> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MAX_DEPTH);
    environment.set_debug(true);
    environment.remove_global("debug");
    environment
}
