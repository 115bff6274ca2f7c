//! Checks that variables, filters, tests and functions exist, and suggests names for those that don't.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use minijinja::machinery::Span;

use super::check_context::CheckContext;
use super::render_limits::bounded_filters;
use super::scopes::{NameBinding, Scopes, VisibleNames};
use super::texts::TextOrigin;
use super::variables::{BEFORE, TemplateVariables};
use crate::diagnostic::{Diagnostic, SourceSpan, suggest_certain_name, suggest_name};

/// What a text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TextRole {
    /// A system prompt. Models give it more weight than any other text.
    System,
    /// A prompt.
    Prompt,
    /// The condition of a check.
    Condition,
}

/// Filters to suggest. Whether a filter exists is decided by the engine.
static FILTERS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let bounded = bounded_filters().into_iter().map(|(name, ..)| name).filter(|name| name.len() > 1);
    let mut names: Vec<&str> = ["abs", "attr", "bool", "default", "first"].into_iter().chain(bounded).collect();
    names.sort_unstable();
    names
});

/// Tests to suggest.
const TESTS: &[&str] = &[
    "boolean",
    "defined",
    "divisibleby",
    "endingwith",
    "eq",
    "even",
    "false",
    "float",
    "ge",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sequence",
    "startingwith",
    "string",
    "true",
    "undefined",
    "upper",
];

/// Functions and methods of Python, and their equivalents in a template.
const PYTHON_ALIASES: &[(&str, &str)] = &[
    ("len", "VALUE | length"),
    ("str", "VALUE | string"),
    ("strip", "VALUE | trim"),
    ("splitlines", "VALUE | lines"),
    ("startswith", "VALUE is startingwith(PREFIX)"),
    ("endswith", "VALUE is endingwith(SUFFIX)"),
    ("now", "run.date"),
    ("keys", "VALUE | list"),
];

/// Checks the names in one text.
#[derive(Debug)]
pub(super) struct NameChecker {
    pub(super) role: TextRole,
    origin: TextOrigin,
    pub(super) scopes: Scopes,
}

impl NameChecker {
    pub(super) fn new(origin: TextOrigin, role: TextRole, visible: &VisibleNames) -> Self {
        Self { role, origin, scopes: Scopes::new(visible) }
    }

    pub(super) fn place(&self, span: Span) -> SourceSpan {
        self.at(span.start_offset as usize..span.end_offset as usize)
    }

    /// The place of a range of bytes of the text.
    pub(super) fn at(&self, range: Range<usize>) -> SourceSpan {
        self.origin.place(range)
    }

    /// The place of a name that begins its span, as in `upper(x)`.
    pub(super) fn start_of(&self, span: Span, name: &str) -> SourceSpan {
        let start = span.start_offset as usize;
        self.origin.place(start..start + name.len())
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.scopes.get(name).is_some()
    }

    /// The names that are set at this point, in addition to the job's variables.
    pub(super) fn visible(&mut self) -> Arc<VisibleNames> {
        self.scopes.all_visible()
    }

    pub(super) fn variable(&mut self, cx: &mut CheckContext<'_>, name: &str, span: Span) {
        let is_global = cx.environment.globals().any(|(global, _)| global == name);
        match self.scopes.get(name) {
            Some(NameBinding::Inputs) => return self.whole_inputs(cx, span),
            Some(NameBinding::Other) => return,
            None if name == "inputs" => return self.whole_inputs(cx, span),
            None if TemplateVariables::is_late(name) => {
                return self.late(cx, name, None, span.start_offset as usize..span.end_offset as usize);
            }
            None if TemplateVariables::parts(name).is_some() || is_global => return,
            None => {}
        }
        let declared = cx.declared(name);
        if declared.is_some_and(|declared| declared.is_secret) {
            return self.attribute(cx, "inputs", name, span.start_offset as usize..span.end_offset as usize);
        }
        let place = self.place(span);
        let finding = Diagnostic::error("undefined-variable", place, format!("the template has no variable `{name}`"));
        let visible = self.visible();
        let finding = if declared.is_some() {
            cx.used_inputs.add(name);
            let whole = format!("inputs.{name}");
            finding.help(format!("inputs are written `{whole}`")).replace_with(whole)
        } else if let Some(meant) =
            suggest_name(name, visible.keys().map(String::as_str).chain(TemplateVariables::roots()))
        {
            finding.help(format!("did you mean `{meant}`?"))
        } else if let Some(meant) = suggest_name(name, cx.names.suggestable_inputs()) {
            cx.used_inputs.add(meant);
            finding.help(format!("did you mean `inputs.{meant}`?"))
        } else {
            finding.help(format!("the variables are {}", cx.names.listed()))
        };
        cx.report(finding);
    }

    /// Checks a use of `inputs` as a whole. Secrets aren't part of it.
    fn whole_inputs(&mut self, cx: &mut CheckContext<'_>, span: Span) {
        cx.used_inputs.all = true;
        if self.role == TextRole::System
            && let Some(untrusted) = cx.untrusted
        {
            let message = format!(
                "`inputs` as a whole includes `{untrusted}`, which untrusted users can write, and models trust a system \
                 prompt most"
            );
            let finding = Diagnostic::error("untrusted-in-system", self.place(span), message);
            cx.report(finding.help("name each input that this text needs: `inputs.NAME`"));
        }
    }

    /// Checks a use of `before` or `state`, whose values are known only when a run has started. `part` is the one that is used, if
    /// it isn't the whole.
    fn late(&mut self, cx: &mut CheckContext<'_>, root: &str, part: Option<&str>, range: Range<usize>) {
        cx.uses_late = true;
        match part {
            _ if root != BEFORE => cx.uses_state = true,
            Some(part) => {
                if let Some(steps) = &mut cx.used_steps {
                    steps.insert(part.to_owned());
                }
            }
            None => cx.used_steps = None,
        }
        let names = cx.names;
        let undefined = |message: String| Diagnostic::error("undefined-variable", self.at(range.clone()), message);
        let finding = match part {
            _ if !names.has_late(root) && root == BEFORE => {
                undefined("the job has no steps before the agent".to_owned())
                    .help("declare them: `before: [{ name: NAME, run: COMMAND }]`")
            }
            _ if !names.has_late(root) => undefined("the job keeps no state".to_owned())
                .help("declare it: `state: { schema: ..., initial: ... }`"),
            _ if self.role == TextRole::System => undefined(format!("a system prompt can't use `{root}`"))
                .help("use it in the prompt, and write there where it comes from"),
            Some(part) if root == BEFORE && !names.before_incomplete && !names.before.iter().any(|it| it == part) => {
                let known = || names.before.iter().map(String::as_str);
                let listed = || known().map(|name| format!("`{BEFORE}.{name}`")).collect::<Vec<_>>().join(", ");
                let finding = undefined(format!("there is no step `{part}` before the agent"));
                suggest(finding, part, known, || format!("there is {}", listed()))
            }
            _ => return,
        };
        cx.report(finding);
    }

    /// Checks a part of `inputs`, `before`, `state`, `job` or `run`.
    pub(super) fn attribute(&mut self, cx: &mut CheckContext<'_>, root: &str, name: &str, range: Range<usize>) {
        if TemplateVariables::is_late(root) {
            return self.late(cx, root, Some(name), range);
        }
        // Computed only for errors, because it goes through the whole text.
        let place = || self.at(range.clone());
        let names = cx.names;
        let declared = if root == "inputs" { cx.declared(name) } else { None };
        if declared.is_some() {
            cx.used_inputs.add(name);
        }
        let finding = match TemplateVariables::parts(root) {
            Some(parts) if parts.contains(&name) => return,
            Some([]) => {
                Diagnostic::error("undefined-variable", place(), format!("`{root}` is a text, without attributes"))
            }
            Some(parts) => {
                let listed = parts.iter().map(|part| format!("`{root}.{part}`")).collect::<Vec<_>>().join(" and ");
                Diagnostic::error("undefined-variable", place(), format!("there is no `{root}.{name}`"))
                    .help(format!("there is {listed}"))
            }
            None if declared.is_some_and(|declared| declared.is_secret) => {
                Diagnostic::error("secret-in-template", place(), format!("the input `{name}` is secret")).help(format!(
                    "secrets can't be used in templates; commands get it as `$INPUT_{}`",
                    name.to_uppercase()
                ))
            }
            None if self.role == TextRole::System && declared.is_some_and(|declared| declared.is_untrusted) => {
                Diagnostic::error(
                    "untrusted-in-system",
                    place(),
                    format!("untrusted users can write the input `{name}`, and models trust a system prompt most"),
                )
                .help("use it in the prompt instead, and write there where it comes from")
            }
            None if declared.is_some() || names.inputs_incomplete => return,
            None => {
                let finding =
                    Diagnostic::error("undefined-variable", place(), format!("the job declares no input `{name}`"));
                let inputs = || names.suggestable_inputs();
                if let Some(meant) = suggest_name(name, inputs()) {
                    cx.used_inputs.add(meant);
                }
                let otherwise = || format!("declare it under `inputs`, or use one of {}", names.listed());
                suggest(finding, name, inputs, otherwise)
            }
        };
        cx.report(finding);
    }

    pub(super) fn filter(&mut self, cx: &mut CheckContext<'_>, name: &str, place: SourceSpan) {
        if !FILTERS.contains(&name) && !cx.has("filter", name) {
            let finding = Diagnostic::error("unknown-filter", place, format!("there is no filter `{name}`"));
            let otherwise = || match python_alias(name) {
                Some(form) => format!("write `{form}`"),
                None => format!("the filters are {}", FILTERS.join(", ")),
            };
            cx.report(suggest(finding, name, || FILTERS.iter().copied(), otherwise));
        }
    }

    pub(super) fn test(&mut self, cx: &mut CheckContext<'_>, name: &str, place: SourceSpan) {
        if !TESTS.contains(&name) && !cx.has("test", name) {
            let finding = Diagnostic::error("unknown-test", place, format!("there is no test `is {name}`"));
            let otherwise = || format!("the tests are {}", TESTS.join(", "));
            cx.report(suggest(finding, name, || TESTS.iter().copied(), otherwise));
        }
    }

    pub(super) fn function(&mut self, cx: &mut CheckContext<'_>, name: &str, span: Span) {
        let is_global = cx.environment.globals().any(|(global, _)| global == name);
        if !self.is_set(name) && !is_global {
            let place = self.start_of(span, name);
            self.report_function(cx, name, place, "function");
        }
    }

    pub(super) fn report_function(&mut self, cx: &mut CheckContext<'_>, name: &str, place: SourceSpan, kind: &str) {
        let finding = Diagnostic::error("unknown-function", place, format!("there is no {kind} `{name}`"));
        let visible = self.visible();
        let known = visible.keys().map(String::as_str).chain(["range", "dict", "namespace"]);
        cx.report(if let Some(form) = python_alias(name) {
            finding.help(format!("write `{form}`"))
        } else if cx.has("filter", name) {
            finding.help(format!("`{name}` is a filter: `VALUE | {name}`"))
        } else if let Some(meant) = suggest_name(name, known).filter(|_| kind == "function") {
            finding.help(format!("did you mean `{meant}`?"))
        } else {
            finding.help("use a filter to change a value: `VALUE | FILTER`")
        });
    }
}

/// Suggests the name that was probably meant, with a fix if only one name is possible.
fn suggest<'a, K: Iterator<Item = &'a str>>(
    finding: Diagnostic,
    name: &str,
    known: impl Fn() -> K,
    otherwise: impl FnOnce() -> String,
) -> Diagnostic {
    let Some(meant) = suggest_name(name, known()) else { return finding.help(otherwise()) };
    let finding = finding.help(format!("did you mean `{meant}`?"));
    match suggest_certain_name(name, known()) {
        Some(meant) => finding.replace_with(meant),
        None => finding,
    }
}

fn python_alias(name: &str) -> Option<&'static str> {
    PYTHON_ALIASES.iter().find(|(python, _)| *python == name).map(|(_, form)| *form)
}

#[cfg(test)]
mod tests {
    use super::super::engine::environment;
    use super::*;

    #[test]
    fn suggestions_exist() {
        let names = TemplateVariables::default();
        let context = CheckContext::new(&names);
        for name in FILTERS.iter() {
            assert!(context.has("filter", name), "{name}");
        }
        for name in TESTS {
            assert!(context.has("test", name), "{name}");
        }
        assert!(!context.has("filter", "uper"));
        for name in ["range", "dict", "namespace"] {
            assert!(environment().globals().any(|(global, _)| global == name), "{name}");
        }
    }
}
