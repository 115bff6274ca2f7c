//! What is known when a run has started, and the texts of a plan that are rendered with it.

use serde_json::{Map, Value, json};

use super::Plan;
use super::late_templates::{PROMPT, SKIP_IF, condition_name};
use crate::lints::{condition_mistake, parse_condition};
use crate::template::{Template, Templates};

/// The values that are known when a run has started.
#[derive(Debug, Clone, Default)]
pub struct LateValues {
    /// The values of `before`, by name.
    pub before: Map<String, Value>,
    /// The state at the start.
    pub state: Value,
}

impl Plan {
    /// The condition `skip_if`, as the job has it.
    pub fn skip_if(&self) -> Option<&str> {
        self.late.texts.get(SKIP_IF).map(|text| text.trim())
    }

    /// Whether the run must have started before all of its prompt and conditions are known.
    pub fn has_late_values(&self) -> bool {
        !self.before.is_empty() || !self.late.is_empty() || self.state.is_some()
    }

    /// Whether the run may end before its agent starts, because a step fails or there is nothing to do.
    pub fn may_not_start(&self) -> bool {
        !self.before.is_empty() || self.skip_if().is_some()
    }

    /// The prompt of a run with these values.
    ///
    /// # Errors
    /// It can't be rendered, or is empty: a sentence.
    pub fn late_prompt(&self, run_id: &str, values: &LateValues) -> Result<String, String> {
        let Some(prompt) = self.render_late(PROMPT, run_id, values) else {
            return Ok(self.parent.prompt.clone().unwrap_or_default());
        };
        let prompt = prompt?;
        if prompt.trim().is_empty() {
            return Err("the prompt is empty".to_owned());
        }
        let notes: String = self.attachments.iter().map(|input| format!("\n\n{}", input.note())).collect();
        Ok(prompt + &notes)
    }

    /// Whether `skip_if` is true.
    ///
    /// # Errors
    /// It can't be rendered, or is neither `true` nor `false`: a sentence.
    pub fn is_skipped(&self, run_id: &str, values: &LateValues) -> Result<bool, String> {
        self.late_condition(SKIP_IF, "skip_if", run_id, values).map(|is_true| is_true.unwrap_or(false))
    }

    /// Whether the condition of a check is true. It is without a condition, too.
    ///
    /// # Errors
    /// It can't be rendered, or is neither `true` nor `false`: a sentence.
    pub fn late_check_runs(&self, check: &str, run_id: &str, values: &LateValues) -> Result<bool, String> {
        let is_true = self.late_condition(&condition_name(check), "when", run_id, values);
        is_true.map(|is_true| is_true.unwrap_or(true)).map_err(|why| format!("the check `{check}`: {why}"))
    }

    fn late_condition(&self, name: &str, key: &str, run_id: &str, values: &LateValues) -> Result<Option<bool>, String> {
        let Some(rendered) = self.render_late(name, run_id, values).transpose()? else { return Ok(None) };
        parse_condition(&rendered).map(Some).ok_or_else(|| condition_mistake(key, &rendered))
    }

    /// Renders a text; `None` if the plan has no such text.
    fn render_late(&self, name: &str, run_id: &str, values: &LateValues) -> Option<Result<String, String>> {
        self.late.texts.get(name)?;
        let LateValues { before, state } = values;
        let variables = json!({
            "inputs": self.inputs,
            "workspace": self.workspace,
            "job": { "name": self.job },
            "run": { "id": run_id, "date": self.late.date },
            "before": before,
            "state": state,
        });
        let templates = Templates::of_plan(&self.late.texts);
        let rendered = templates.late_engine(&variables).render(&Template::named(name));
        Some(rendered.map_err(|finding| {
            let place = &finding.span;
            let before = &place.source.text[..place.source.text.floor_char_boundary(place.range.start)];
            let line = before.matches('\n').count() + 1;
            format!("{} line {line}: {}", place.source.name.trim_matches(['(', ')']), finding.message)
        }))
    }
}
