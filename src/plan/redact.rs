//! Removes secrets of the environment from a plan.

use serde_json::Value;

use super::Plan;
use crate::redaction::Redactor;

impl Plan {
    /// Redacts secrets in all texts that models get and the record keeps. An input or a prompt file can contain one.
    #[must_use]
    pub fn redacted(mut self, mask: &Redactor) -> Self {
        if mask.is_empty() {
            return self;
        }
        let hide = |text: &mut String| *text = mask.redact(text).into_owned();
        self.description.iter_mut().for_each(hide);
        self.inputs.values_mut().for_each(|value| redact_value(mask, value));
        for agent in std::iter::once(&mut self.parent).chain(self.subagents.values_mut()) {
            agent.description.iter_mut().chain(&mut agent.prompt).for_each(hide);
            hide(&mut agent.system);
            agent.returns.iter_mut().for_each(|schema| redact_value(mask, schema));
        }
        self.checks.iter_mut().flat_map(|check| [&mut check.name, &mut check.run]).for_each(hide);
        self
    }
}

fn redact_value(mask: &Redactor, value: &mut Value) {
    match value {
        Value::String(text) => *text = mask.redact(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| redact_value(mask, item)),
        Value::Object(fields) => {
            let shown = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                redact_value(mask, &mut value);
                (mask.redact(&name).into_owned(), value)
            });
            *fields = shown.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
