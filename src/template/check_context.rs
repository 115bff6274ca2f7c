//! The state of a check of templates: the job's declarations, and the findings so far.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use minijinja::Environment;

use super::engine::environment;
use super::variables::{TemplateVariables, UsedInputs};
use crate::diagnostic::Diagnostic;
use crate::yaml::Findings;

/// The greatest number of type errors that are kept: more than are shown.
const MAX_TYPE_ERRORS: usize = 110;

/// What the job declares about an input.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeclaredInput {
    pub(super) is_secret: bool,
    pub(super) is_untrusted: bool,
}

/// The job's variables, and the findings.
#[derive(Debug)]
pub(super) struct CheckContext<'a> {
    pub(super) names: &'a TemplateVariables,
    pub(super) environment: Environment<'static>,
    pub(super) used_inputs: UsedInputs,
    pub(super) findings: Findings,
    /// The number of findings that make a text invalid, those included that were found before.
    pub(super) found: usize,
    /// Whether the text that is being checked uses a value that is known only when a run has started.
    pub(super) uses_late: bool,
    /// The steps before the agent that texts use; `None` if they use `before` as a whole.
    pub(super) used_steps: Option<BTreeSet<String>>,
    /// Whether the state is used.
    pub(super) uses_state: bool,
    /// An input that untrusted users can write and that templates can use.
    pub(super) untrusted: Option<&'a str>,
    declared: HashMap<&'a str, DeclaredInput>,
}

impl<'a> CheckContext<'a> {
    pub(super) fn new(names: &'a TemplateVariables) -> Self {
        let mut declared: HashMap<&str, DeclaredInput> = HashMap::new();
        declared.extend(names.inputs.iter().map(|name| (name.as_str(), DeclaredInput::default())));
        for name in &names.secret {
            declared.entry(name).or_default().is_secret = true;
        }
        for name in &names.untrusted {
            declared.entry(name).or_default().is_untrusted = true;
        }
        let mut untrusted = names.untrusted.iter().map(String::as_str);
        let untrusted = untrusted.find(|name| declared.get(name).is_some_and(|declared| !declared.is_secret));
        Self {
            names,
            environment: environment(),
            used_inputs: UsedInputs::default(),
            findings: Findings::default(),
            found: 0,
            uses_late: false,
            used_steps: Some(BTreeSet::new()),
            uses_state: false,
            untrusted,
            declared,
        }
    }

    /// What the job declares about an input; `None` for an unknown name.
    pub(super) fn declared(&self, input: &str) -> Option<DeclaredInput> {
        self.declared.get(input).copied()
    }

    /// Adds a warning; the text stays valid.
    pub(super) fn report_warning(&mut self, finding: Diagnostic) {
        self.findings.push(finding);
    }

    /// Whether there are so many findings that the rest isn't checked.
    pub(super) fn is_full(&mut self) -> bool {
        let is_full = self.findings.is_full();
        if is_full {
            self.findings.mark_truncated();
        }
        is_full
    }

    pub(super) fn report(&mut self, finding: Diagnostic) {
        self.found += 1;
        // After a misspelled name, the rest of the text is still checked.
        let is_of_a_name = finding.code.starts_with("un") && finding.code != "unreadable-file";
        self.used_inputs.is_incomplete |= self.is_full() || !(is_of_a_name || finding.code == "secret-in-template");
        self.findings.push(finding);
    }

    /// Whether the engine has a filter or test of this name.
    pub(super) fn has(&self, kind: &str, name: &str) -> bool {
        self.environment
            .compile_expression_owned(format!("name is {kind}"))
            .and_then(|expression| expression.eval(minijinja::context! { name }))
            .is_ok_and(|found| found.is_true())
    }
}

/// Adds a finding to a list that isn't full, unless the list has one with the same code and place.
pub(super) fn push_new(findings: &mut Vec<Diagnostic>, finding: Diagnostic) {
    let same = |other: &Diagnostic| {
        other.code == finding.code
            && other.span.range == finding.span.range
            && Arc::ptr_eq(&other.span.source, &finding.span.source)
    };
    if findings.len() < MAX_TYPE_ERRORS && !findings.iter().any(same) {
        findings.push(finding);
    }
}
