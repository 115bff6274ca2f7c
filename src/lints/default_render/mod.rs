//! Renders a job's texts with the defaults of its inputs, to find what fails or is empty before a run.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::diagnostic::{Diagnostic, rule};
use crate::job::value::check_value;
use crate::job::{Input, InputType, PromptText};
use crate::template::{PartialRenderer, Template};
use crate::yaml::{Node, Spanned};

use super::checks::{ambiguous_condition, parse_condition};
use super::valid_job::name_of;
use super::{Lint, LintContext, MAX_FINDINGS};

/// The greatest size of a job's texts and inputs together, in bytes. Larger ones aren't rendered before the run.
const MAX_BYTES: usize = 256 * 1024;

/// Rendering stops after this many failures, because each of them can take nearly all the steps that are allowed.
const MAX_FAILED: usize = MAX_FINDINGS + 10;

/// Texts rendered with the inputs' defaults.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Warning "empty-by-default")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let inputs = subject.root.get("inputs").map_or(0, |inputs| inputs.place().range.len());
    let is_small = inputs + subject.prompts.templates.size() <= MAX_BYTES;
    if is_small && !subject.prompts.variables.inputs_incomplete {
        render_texts(subject, findings);
    }
    for finding in &subject.prompts.templates.type_errors {
        let same = |other: &Diagnostic| other.code == finding.code && other.span.overlaps(&finding.span);
        if !findings.iter().any(same) {
            findings.push(finding.clone());
        }
    }
}

/// A text to render, and what to look for.
enum Text<'a> {
    Prompt(&'a Spanned<PromptText>, &'static str),
    /// With its key.
    Condition(&'a Spanned<String>, &'static str),
}

fn render_texts(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let (job, prompts) = (subject.job, subject.prompts);
    let templates = &prompts.templates;
    let prompt = prompts.prompt.iter().map(|template| (Text::Prompt(&job.parent.prompt, "prompt"), template));
    let systems = job.agents().filter_map(|agent| {
        let template = match agent.name {
            Some(name) => prompts.subagents.get(&name.value),
            None => prompts.system.as_ref(),
        };
        Some((Text::Prompt(agent.system?, "system prompt"), template?))
    });
    let conditions = job.checks.iter().zip(&prompts.conditions).filter_map(|(check, template)| {
        let when = check.when.as_ref().filter(|when| !when.value.trim().is_empty() && !when.node.is_placeholder())?;
        Some((Text::Condition(when, "when"), template.as_ref()?))
    });
    let needs_rendering = |template: &Template| {
        templates.has_tags(template) && templates.is_valid(template) && !templates.is_late(template)
    };
    let mut renderer = None;
    let mut failed = 0;
    let mut seen = HashSet::new();
    let skip_if = job.skip_if.as_ref().filter(|when| !when.value.trim().is_empty() && !when.node.is_placeholder());
    let skip_if =
        skip_if.zip(prompts.skip_if.as_ref()).map(|(when, template)| (Text::Condition(when, "skip_if"), template));
    for (text, template) in prompt.chain(systems).chain(conditions).chain(skip_if) {
        let rendered = match &text {
            Text::Condition(when, _) if !templates.has_tags(template) => Some(Ok(when.value.clone())),
            _ if !needs_rendering(template) => None,
            _ => {
                let renderer: &mut PartialRenderer<'_> = renderer.get_or_insert_with(|| {
                    let (values, unknown) = template_values(subject);
                    templates.partial_renderer(&values, unknown)
                });
                if failed > MAX_FAILED || renderer.is_exhausted() {
                    return;
                }
                let result = renderer.render(template);
                failed += usize::from(result.rendered.is_err());
                result.is_final.then_some(result.rendered)
            }
        };
        let finding = match (rendered, text) {
            (None, _) => None,
            (Some(Err(finding)), _) => Some(*finding),
            (Some(Ok(rendered)), Text::Prompt(prompt, kind)) => {
                rendered.trim().is_empty().then(|| empty_prompt(prompt, kind))
            }
            (Some(Ok(rendered)), Text::Condition(when, key)) => {
                parse_condition(&rendered).is_none().then(|| ambiguous_condition(when, key, &rendered))
            }
        };
        // Agents that share a file share its failure.
        findings.extend(finding.filter(|it| seen.insert((it.span.source.name.clone(), it.span.range.start, it.code))));
    }
}

fn empty_prompt(text: &Spanned<PromptText>, kind: &str) -> Diagnostic {
    let place = match &text.value {
        PromptText::Text(_) => text.place(),
        PromptText::File(file) => file.file.place(),
    };
    let help = match kind {
        "prompt" => "add text that doesn't depend on inputs, or remove the default of the inputs that it needs",
        _ => "add text that doesn't depend on inputs, or remove the key to get the built-in system prompt",
    };
    Diagnostic::warning("empty-by-default", place, format!("with the inputs' defaults, this {kind} is empty"))
        .help(help)
}

/// The variables of the templates, with a sample value for each input without a default; and the names of those inputs.
fn template_values(subject: &LintContext<'_>) -> (Value, HashSet<String>) {
    let names = &subject.prompts.variables;
    let mut inputs: Map<String, Value> = names.inputs.iter().map(|name| (name.clone(), Value::from("text"))).collect();
    let mut unknown: HashSet<String> = names.inputs.iter().cloned().collect();
    for (name, input) in subject.job.inputs().filter(|(_, input)| !input.is_secret()) {
        let default =
            input.default.as_ref().filter(|default| !default.is_placeholder() && !input.kind.node.is_placeholder());
        let default = default.map(Node::to_json).filter(|default| check_value(input, default.clone(), None).is_ok());
        if default.is_some() {
            unknown.remove(&name.value);
        }
        inputs.insert(name.value.clone(), default.unwrap_or_else(|| sample_value(input)));
    }
    let values = json!({
        "inputs": inputs,
        "workspace": "/workspace",
        "job": { "name": name_of(subject.job, subject.source).unwrap_or_default() },
        "run": { "id": "<run.id>", "date": "<run.date>" },
    });
    (values, unknown)
}

/// A value of an input's type.
fn sample_value(input: &Input) -> Value {
    match input.kind.value {
        InputType::String => {
            let first = input.choices.as_ref().and_then(|choices| choices.value.first());
            first.map_or("text", |choice| choice.value.as_str()).into()
        }
        InputType::Integer => 1.into(),
        InputType::Number => 1.5.into(),
        InputType::Boolean => true.into(),
        InputType::Path | InputType::Image => "path".into(),
        InputType::List => json!(["item"]),
    }
}

#[cfg(test)]
mod tests;
