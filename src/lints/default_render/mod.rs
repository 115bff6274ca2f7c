//! What becomes of the texts where nobody gives anything for the inputs.

mod checks;

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::diagnostic::{Diagnostic, Rule, rule};
use crate::job::value::check_value;
use crate::job::{Input, InputType, PromptText};
use crate::template::{PartialRender, PartialRenderer, Template};
use crate::yaml::{Node, Spanned};

use super::valid_job::name_of;
use super::{Lint, LintContext, MAX_FINDINGS};

/// Texts rendered with the defaults.
pub(super) struct DefaultRender;

const RULES: &[Rule] = &[rule!(Warning "empty-by-default")];

/// The greatest size of all of a job's texts and inputs together that are rendered ahead of a run, in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// How many texts may fail before the rest is left: each may have taken nearly all the steps that there are.
const MAX_FAILED: usize = MAX_FINDINGS + 10;

impl Lint for DefaultRender {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
        render(subject, findings);
        for finding in subject.prompts.templates.type_errors() {
            let same = |other: &Diagnostic| other.code == finding.code && super::overlap(&other.span, &finding.span);
            if !findings.iter().any(same) {
                findings.push(finding.clone());
            }
        }
    }
}

/// Renders every text with the inputs' defaults, or with something that stands in for them.
fn render(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let prompts = subject.prompts;
    let templates = &prompts.templates;
    let agents = subject.job.agents().filter_map(|agent| {
        let template = match agent.name {
            Some(name) => prompts.subagents.get(&name.value),
            None => prompts.system.as_ref(),
        };
        Some((agent.system?, template?, "system prompt"))
    });
    let prompt = prompts.prompt.as_ref().map(|template| (&subject.job.parent.prompt, template, "prompt"));
    let is_shown = |template: &Template| templates.has_tags(template) && templates.is_valid(template);
    let mut texts = prompt.into_iter().chain(agents).filter(|(_, template, _)| is_shown(template)).peekable();
    let inputs = subject.root.get("inputs").map_or(0, |inputs| inputs.place().range.len());
    let size = inputs + templates.size();
    let is_nothing = texts.peek().is_none() && subject.job.checks.is_empty();
    if is_nothing || prompts.variables.inputs_incomplete || size > MAX_BYTES {
        return;
    }
    let (known, unknown) = template_values(subject, None);
    let ahead = templates.partial_renderer(&known, unknown);
    let mut ahead = DefaultRenderer { subject, defaults: ahead, trials: Vec::new() };
    let mut failed = 0;
    let mut seen = HashSet::new();
    for (text, template, kind) in texts {
        let (is_failed, finding) = check_text(&mut ahead, text, template, kind);
        // A file that several agents share fails for each of them in the same way.
        findings.extend(finding.filter(|it| seen.insert((it.span.source.name.clone(), it.span.range.start, it.code))));
        failed += usize::from(is_failed);
        if failed > MAX_FAILED || ahead.is_exhausted() {
            return;
        }
    }
    checks::check_commands(subject, &mut ahead, MAX_FAILED - failed, findings);
}

/// How many values of each type are tried.
const TRIALS: usize = 7;

/// Renders texts with what is known of their values; where one fails, with many others to see whether it always does.
struct DefaultRenderer<'a> {
    subject: &'a LintContext<'a>,
    defaults: PartialRenderer<'a>,
    trials: Vec<PartialRenderer<'a>>,
}

impl DefaultRenderer<'_> {
    fn render(&mut self, template: &Template) -> PartialRender {
        let mut foreseen = self.defaults.render(template);
        if let Err(finding) = &foreseen.rendered
            && !foreseen.is_final
            && foreseen.failed_by_type
        {
            foreseen.is_final = self.always_fails(template, finding);
        }
        foreseen
    }

    /// Whether a text fails in the same way whatever is given for the inputs.
    fn always_fails(&mut self, template: &Template, finding: &Diagnostic) -> bool {
        if self.trials.is_empty() {
            let subject = self.subject;
            let trial = |number| {
                let (values, unknown) = template_values(subject, Some(number));
                subject.prompts.templates.partial_renderer(&values, unknown)
            };
            self.trials = (0..TRIALS).map(trial).collect();
        }
        self.trials.iter_mut().all(|trial| {
            let foreseen = trial.render(template);
            foreseen.failed_by_type && foreseen.rendered.is_err_and(|other| other.span.range == finding.span.range)
        })
    }

    fn is_exhausted(&self) -> bool {
        self.defaults.is_exhausted()
    }
}

/// Whether the text can't be rendered, and what there is to say about it.
fn check_text(
    ahead: &mut DefaultRenderer<'_>,
    text: &Spanned<PromptText>,
    template: &Template,
    kind: &str,
) -> (bool, Option<Diagnostic>) {
    let foreseen = ahead.render(template);
    match foreseen.rendered {
        Err(finding) => (true, foreseen.is_final.then_some(*finding)),
        Ok(rendered) if rendered.trim().is_empty() && foreseen.is_final => {
            let place = match &text.value {
                PromptText::Text(_) => text.place(),
                PromptText::File(file) => file.file.place(),
            };
            let message = format!("with the inputs' defaults, this {kind} is empty");
            let help = match kind {
                "prompt" => "say what the job is to do in every case, or give the inputs that it needs no default",
                _ => "say something in every case, or remove the key for the built-in one",
            };
            (false, Some(Diagnostic::warning("empty-by-default", place, message).help(help)))
        }
        Ok(_) => (false, None),
    }
}

/// What templates see where nothing is given, and the names of the inputs that something stands in for; in a trial that
/// is all of them.
fn template_values(subject: &LintContext<'_>, trial: Option<usize>) -> (Value, HashSet<String>) {
    let names = &subject.prompts.variables;
    let mut inputs: Map<String, Value> = names.inputs.iter().map(|name| (name.clone(), Value::from("text"))).collect();
    let mut unknown: HashSet<String> = names.inputs.iter().cloned().collect();
    for (name, input) in subject.job.inputs().filter(|(_, input)| !input.is_secret()) {
        let default =
            input.default.as_ref().filter(|default| !default.is_placeholder() && !input.kind.node.is_placeholder());
        let default = default.map(Node::to_json).filter(|default| check_value(input, default.clone(), None).is_ok());
        let default = default.filter(|_| trial.is_none());
        if default.is_some() {
            unknown.remove(&name.value);
        }
        inputs.insert(name.value.clone(), default.unwrap_or_else(|| sample_value(input, trial)));
    }
    let values = json!({
        "inputs": inputs,
        "workspace": "/workspace",
        "job": { "name": name_of(subject.job, subject.source).unwrap_or_default() },
        "run": { "id": "<run.id>", "date": "<run.date>" },
    });
    (values, unknown)
}

/// A value of an input's type. The trials are as unlike each other as they can be.
fn sample_value(input: &Input, trial: Option<usize>) -> Value {
    let number = trial.unwrap_or_default();
    match input.kind.value {
        InputType::String => {
            let choices = input.choices.iter().flat_map(|choices| &choices.value);
            let choices: Vec<&str> = choices.map(|choice| choice.value.as_str()).collect();
            match (choices.len(), trial) {
                (0, None) => "text".into(),
                (0, Some(_)) => ["a b\nc", "", "1", "-2.5", "true", "k=v:w,x/y.z-0", "[1]"][number % TRIALS].into(),
                (count, _) => choices[number % count].into(),
            }
        }
        InputType::Integer => [1, 0, 2, -7, 1_000_003, 16, 100][number % TRIALS].into(),
        InputType::Number => [1.5, 0.0, 2.0, -0.25, 1e6, 3.0, 100.0][number % TRIALS].into(),
        InputType::Boolean => number.is_multiple_of(2).into(),
        InputType::Path => ["path", "src/main.rs", "a", "a-b/c.d", "1", "", "x/y/z"][number % TRIALS].into(),
        InputType::List => match trial {
            None => json!(["item"]),
            Some(_) => {
                let items: [&[&str]; TRIALS] =
                    [&["a", "b"], &[], &["1"], &["1", "2", "3"], &["", "x=y", "z"], &["a"; 300], &["-1.5"]];
                json!(items[number % TRIALS])
            }
        },
    }
}

#[cfg(test)]
mod tests;
