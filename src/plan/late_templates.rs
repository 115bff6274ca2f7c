//! The texts of a plan that are rendered when the run has started: they use the output of steps before the agent, or the state.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::redaction::Redactor;
use crate::template::{Template, Templates};

/// The names of texts of the job file. No name of a file is confused with one, since these have parentheses.
pub(super) const PROMPT: &str = "(prompt)";
pub(super) const SKIP_IF: &str = "(skip_if)";

/// The texts that are rendered when the run has started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LateTemplates {
    /// The value of `{{ run.date }}`.
    pub date: String,
    /// The templates by name: `(prompt)`, `(skip_if)`, `(when CHECK)`, and the files that they include by their paths.
    pub texts: BTreeMap<String, String>,
}

impl LateTemplates {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    fn add(&mut self, name: &str, templates: &Templates, template: &Template) {
        for (path, text) in templates.with_includes(template) {
            let name = if path == template.name() { name } else { &path };
            self.texts.insert(name.to_owned(), text);
        }
    }

    /// Adds the prompt.
    pub(super) fn add_prompt(&mut self, templates: &Templates, template: &Template) {
        self.add(PROMPT, templates, template);
    }

    /// Adds the condition `skip_if`.
    pub(super) fn add_skip_if(&mut self, templates: &Templates, template: &Template) {
        self.add(SKIP_IF, templates, template);
    }

    /// Adds the condition of a check.
    pub(super) fn add_condition(&mut self, check: &str, templates: &Templates, template: &Template) {
        self.add(&condition_name(check), templates, template);
    }

    /// Redacts secrets in all texts.
    pub(super) fn redact(&mut self, mask: &Redactor) {
        self.texts.values_mut().for_each(|text| *text = mask.redact(text).into_owned());
    }
}

/// The name of the condition of a check.
pub(super) fn condition_name(check: &str) -> String {
    format!("(when {check})")
}
