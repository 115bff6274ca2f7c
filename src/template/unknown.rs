//! What to say about a variable, filter, test or function that isn't there.

use minijinja::machinery::Span;
use std::ops::Range;

use super::Names;
use super::check::Walk;
use super::loader::{Loader, Role};
use crate::diagnostic::{Diagnostic, Place, nearest};

/// Filters to suggest. Whether one exists is asked of the engine.
const FILTERS: &[&str] = &[
    "abs",
    "attr",
    "batch",
    "bool",
    "capitalize",
    "count",
    "default",
    "dictsort",
    "first",
    "float",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "lines",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "replace",
    "reverse",
    "round",
    "select",
    "slice",
    "sort",
    "split",
    "string",
    "sum",
    "title",
    "trim",
    "unique",
    "upper",
    "zip",
];

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

/// What Python calls otherwise: its name, and how it is written here.
const OTHERWISE: &[(&str, &str)] = &[
    ("len", "VALUE | length"),
    ("str", "VALUE | string"),
    ("strip", "VALUE | trim"),
    ("splitlines", "VALUE | lines"),
    ("startswith", "VALUE is startingwith(PREFIX)"),
    ("endswith", "VALUE is endingwith(SUFFIX)"),
    ("now", "run.date"),
    ("keys", "VALUE | list"),
];

impl Walk {
    pub(super) fn variable(&mut self, loader: &mut Loader<'_>, name: &str, span: Span) {
        let is_global = loader.environment.globals().any(|(global, _)| global == name);
        if self.is_set(name) || name == "inputs" || Names::parts(name).is_some() || is_global {
            return;
        }
        if loader.names.secret.iter().any(|secret| secret == name) {
            return self.part(loader, "inputs", name, span.start_offset as usize..span.end_offset as usize);
        }
        let place = self.place(span);
        let finding = Diagnostic::error("undefined-variable", place, format!("the template has no variable `{name}`"));
        let visible = self.visible();
        let finding = if loader.names.inputs.iter().any(|input| input == name) {
            let whole = format!("inputs.{name}");
            finding.help(format!("inputs are written `{whole}`")).replace_with(whole)
        } else if let Some(meant) = nearest(name, visible.iter().map(String::as_str).chain(Names::roots())) {
            finding.help(format!("did you mean `{meant}`?"))
        } else if let Some(meant) = nearest(name, loader.names.inputs.iter().map(String::as_str)) {
            finding.help(format!("did you mean `inputs.{meant}`?"))
        } else {
            finding.help(format!("there are {}", loader.names.listed()))
        };
        loader.report(finding);
    }

    /// A part of `inputs`, `job` or `run`.
    pub(super) fn part(&mut self, loader: &mut Loader<'_>, root: &str, name: &str, range: Range<usize>) {
        // Looked up only for what is wrong: each look goes through the whole text.
        let place = || self.at(range.clone());
        let names = loader.names;
        let finding = match Names::parts(root) {
            Some(parts) if parts.contains(&name) => return,
            Some([]) => {
                Diagnostic::error("undefined-variable", place(), format!("`{root}` is a text and has no parts"))
            }
            Some(parts) => {
                let listed = parts.iter().map(|part| format!("`{root}.{part}`")).collect::<Vec<_>>().join(" and ");
                Diagnostic::error("undefined-variable", place(), format!("there is no `{root}.{name}`"))
                    .help(format!("there is {listed}"))
            }
            None if names.secret.iter().any(|secret| secret == name) => {
                Diagnostic::error("secret-in-template", place(), format!("the input `{name}` is secret"))
                    .help(format!("no prompt may hold a secret; a command sees it as `$INPUT_{}`", name.to_uppercase()))
            }
            None if self.role == Role::System && names.untrusted.iter().any(|untrusted| untrusted == name) => {
                Diagnostic::error(
                    "untrusted-in-system",
                    place(),
                    format!("strangers can write the input `{name}`, and a system prompt carries the most weight"),
                )
                .help("use it in the prompt instead, and say there where it comes from")
            }
            None if names.inputs.iter().any(|input| input == name) || names.inputs_incomplete => return,
            None => {
                let finding =
                    Diagnostic::error("undefined-variable", place(), format!("the job declares no input `{name}`"));
                match nearest(name, names.inputs.iter().map(String::as_str)) {
                    Some(meant) => finding.help(format!("did you mean `{meant}`?")).replace_with(meant),
                    None => finding.help(format!("declare it under `inputs`, or use one of {}", names.listed())),
                }
            }
        };
        loader.report(finding);
    }

    pub(super) fn filter(&mut self, loader: &mut Loader<'_>, name: &str, span: Span) {
        if !loader.has("filter", name) {
            let place = self.start_of(span, name);
            let finding = Diagnostic::error("unknown-filter", place, format!("there is no filter `{name}`"));
            loader.report(match nearest(name, FILTERS.iter().copied()) {
                Some(meant) => finding.help(format!("did you mean `{meant}`?")).replace_with(meant),
                None => match otherwise(name) {
                    Some(form) => finding.help(format!("that is written `{form}`")),
                    None => finding.help(format!("there are {}", FILTERS.join(", "))),
                },
            });
        }
    }

    pub(super) fn test(&mut self, loader: &mut Loader<'_>, name: &str, span: Span) {
        if !loader.has("test", name) {
            let place = self.start_of(span, name);
            let finding = Diagnostic::error("unknown-test", place, format!("there is no test `is {name}`"));
            loader.report(match nearest(name, TESTS.iter().copied()) {
                Some(meant) => finding.help(format!("did you mean `{meant}`?")).replace_with(meant),
                None => finding.help(format!("there are {}", TESTS.join(", "))),
            });
        }
    }

    pub(super) fn function(&mut self, loader: &mut Loader<'_>, name: &str, span: Span) {
        let is_global = loader.environment.globals().any(|(global, _)| global == name);
        if !self.is_set(name) && !is_global {
            let place = self.start_of(span, name);
            self.report_function(loader, name, place, "function");
        }
    }

    pub(super) fn report_function(&self, loader: &mut Loader<'_>, name: &str, place: Place, kind: &str) {
        let finding = Diagnostic::error("unknown-function", place, format!("there is no {kind} `{name}`"));
        let visible = self.visible();
        let known = visible.iter().map(String::as_str).chain(["range", "dict", "namespace"]);
        loader.report(if let Some(form) = otherwise(name) {
            finding.help(format!("that is written `{form}`"))
        } else if loader.has("filter", name) {
            finding.help(format!("`{name}` is a filter: `VALUE | {name}`"))
        } else if let Some(meant) = nearest(name, known).filter(|_| kind == "function") {
            finding.help(format!("did you mean `{meant}`?"))
        } else {
            finding.help("values are changed with filters: `VALUE | FILTER`")
        });
    }
}

impl Loader<'_> {
    /// Whether the engine has such a filter or test.
    fn has(&self, kind: &str, name: &str) -> bool {
        self.environment
            .compile_expression_owned(format!("name is {kind}"))
            .and_then(|expression| expression.eval(minijinja::context! { name }))
            .is_ok_and(|found| found.is_true())
    }
}

fn otherwise(name: &str) -> Option<&'static str> {
    OTHERWISE.iter().find(|(python, _)| *python == name).map(|(_, form)| *form)
}

#[cfg(test)]
mod tests {
    use super::super::environment;
    use super::*;

    #[test]
    fn what_is_suggested_exists() {
        let names = Names::default();
        let loader = Loader::new(None, &names);
        for name in FILTERS {
            assert!(loader.has("filter", name), "{name}");
        }
        for name in TESTS {
            assert!(loader.has("test", name), "{name}");
        }
        assert!(!loader.has("filter", "uper"));
        for name in ["range", "dict", "namespace"] {
            assert!(environment().globals().any(|(global, _)| global == name), "{name}");
        }
    }
}
