//! The outputs of a job with the values of its inputs.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde_json::Value;

use super::Plan;
use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::job::{
    COMMAND_SECONDS, Job, JobOutput, OutputTarget, PATCH_BYTES, PATCH_FILES, PublishedOutcome, REVIEW_COMMENTS,
    RULES_KEY, ReviewEvent, TextList, value_or,
};
use crate::json_schema::{named_input, named_step, with_enum_values};
use crate::lints::ValidJob;
use crate::outputs::{
    Kind, KindName, Output, Outputs, PatchRules, Rules, Subject, Target, Trigger, check_list_entry, normal_list_entry,
    unknown_list,
};
use crate::yaml::Spanned;

/// What a job allows its agents to propose, with the values of its inputs; `None` if it has no outputs. `publish` does the
/// same with the job file in its own checkout.
///
/// # Errors
/// An input has a value with which nothing can be proposed.
pub fn resolve(
    job: &ValidJob,
    inputs: &IndexMap<String, Value>,
    trigger: Option<Trigger>,
) -> Result<Option<Outputs>, Vec<Diagnostic>> {
    let Some(declared) = &job.job().outputs else { return Ok(None) };
    let mut resolver = Resolver { valid: job, inputs, from_steps: BTreeMap::new(), findings: Vec::new() };
    let mut allowed = IndexMap::new();
    for (name, output) in &declared.value.entries {
        if let Some(resolved) = resolver.output(name, &output.value) {
            allowed.insert(name.value.clone(), resolved);
        }
    }
    let rules = &declared.value.rules;
    let rules = Rules {
        mentions: resolver.list(RULES_KEY, "mentions", rules.mentions.as_ref()),
        links: resolver.list(RULES_KEY, "links", rules.links.as_ref()),
        required: value_or(rules.required.as_ref(), false),
    };
    match resolver.findings.is_empty() {
        true => Ok(Some(Outputs { trigger, allowed, rules, from_steps: resolver.from_steps })),
        false => Err(resolver.findings),
    }
}

/// Checks that what started the run is known, if an agent can propose something for it.
///
/// # Errors
/// Names an output that is for the trigger.
pub fn check_trigger(job: &ValidJob, plan: &Plan) -> Result<(), Box<Diagnostic>> {
    let Some(outputs) = &plan.outputs else { return Ok(()) };
    for (name, _) in job.job().outputs() {
        let is_used = plan.agents().any(|agent| agent.outputs.contains(&name.value));
        let Some(output) = outputs.allowed.get(&name.value).filter(|_| is_used) else { continue };
        let Some(lacks) = missing_trigger(output, outputs.trigger.as_ref()) else { continue };
        let message = format!("the output `{}` is for {lacks}, and none is known", name.value);
        let help = "give the event with `--event FILE` (on GitHub Actions it is known) or, if it has no number, `--number N`; or write \
                    `optional: true`, `target: any`, or a number";
        return Err(Box::new(Diagnostic::error("missing-trigger", name.place(), message).help(help)));
    }
    Ok(())
}

/// The names of the outputs that a run does without, because nothing tells what they are for.
pub(super) fn left_out<'j>(job: &'j ValidJob, outputs: &Outputs) -> Vec<&'j str> {
    let is_left_out = |name: &str| {
        let output = outputs.allowed.get(name);
        output.is_some_and(|output| missing_trigger(output, outputs.trigger.as_ref()).is_some())
    };
    let optional = job.job().outputs().filter(|(_, output)| value_or(output.optional.as_ref(), false));
    optional.map(|(name, _)| name.value.as_str()).filter(|name| is_left_out(name)).collect()
}

/// What an output is for, if that isn't known.
fn missing_trigger(output: &Output, trigger: Option<&Trigger>) -> Option<&'static str> {
    let has_number = trigger.is_some_and(|trigger| trigger.number.is_some());
    let is_issue = trigger.is_some_and(|trigger| trigger.subject == Subject::Issue);
    match (&output.kind, output.target) {
        (Kind::Review { .. }, Some(Target::Trigger)) if !has_number || is_issue => {
            Some("the pull request that started the run")
        }
        (_, Some(Target::Trigger)) if !has_number => Some("the issue or pull request that started the run"),
        (Kind::Push { .. }, _) if trigger.is_none_or(|trigger| trigger.head.is_none()) => {
            Some("the branch that started the run")
        }
        _ => None,
    }
}

struct Resolver<'a> {
    valid: &'a ValidJob,
    inputs: &'a IndexMap<String, Value>,
    /// The lists that steps decide.
    from_steps: BTreeMap<String, String>,
    findings: Vec<Diagnostic>,
}

impl Resolver<'_> {
    fn job(&self) -> &Job {
        self.valid.job()
    }

    fn output(&mut self, name: &Spanned<String>, declared: &JobOutput) -> Option<Output> {
        let kind = declared.kind(&name.value)?;
        let target = if kind.has_target() { Some(self.target(declared.target.as_ref())?) } else { None };
        Some(Output {
            target,
            max: value_or(declared.max.as_ref(), 1),
            on_checks_failed: declared.on.iter().any(|outcome| outcome.value == PublishedOutcome::ChecksFailed),
            kind: self.kind(kind, name, declared),
        })
    }

    fn kind(&mut self, kind: KindName, name: &Spanned<String>, declared: &JobOutput) -> Kind {
        let is = |flag: &Option<Spanned<bool>>| value_or(flag.as_ref(), false);
        let text = |text: &Option<Spanned<String>>| text.as_ref().map(|text| text.value.clone());
        match kind {
            KindName::Comment => Kind::Comment { update: is(&declared.update), closes: is(&declared.closes) },
            KindName::Review => Kind::Review {
                max_comments: value_or(declared.max_comments.as_ref(), REVIEW_COMMENTS),
                request_changes: declared.event.as_ref().is_some_and(|it| it.value == ReviewEvent::RequestChanges),
            },
            KindName::PullRequest => Kind::PullRequest {
                title_prefix: text(&declared.title_prefix).unwrap_or_default(),
                labels: self.list(&name.value, "labels", declared.labels.as_ref()),
                draft: is(&declared.draft),
                update: is(&declared.update),
                closes: is(&declared.closes),
                patch: self.patch_rules(&name.value, declared),
            },
            KindName::Push => Kind::Push { patch: self.patch_rules(&name.value, declared) },
            KindName::Issue => Kind::Issue {
                title_prefix: text(&declared.title_prefix).unwrap_or_default(),
                labels: self.list(&name.value, "labels", declared.labels.as_ref()),
                choose: self.list(&name.value, "choose", declared.choose.as_ref()),
            },
            KindName::Labels => Kind::Labels {
                add: self.list(&name.value, "add", declared.add.as_ref()),
                remove: self.list(&name.value, "remove", declared.remove.as_ref()),
            },
            KindName::Close => Kind::Close {},
            KindName::Check => Kind::Check { check_name: text(&declared.name).unwrap_or_else(|| name.value.clone()) },
            KindName::Command => Kind::Command {
                run: text(&declared.run).unwrap_or_default(),
                schema: self.schema(&name.value),
                env: declared.env.iter().map(|variable| variable.value.clone()).collect(),
                repeatable: is(&declared.repeatable),
                timeout_ms: declared
                    .timeout
                    .as_ref()
                    .map_or(COMMAND_SECONDS * 1000, |timeout| timeout.value.milliseconds()),
            },
        }
    }

    fn schema(&self, name: &str) -> Value {
        let list = |name: &str| self.inputs.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let schema = self.valid.schemas().outputs.get(name);
        schema.map(|schema| with_enum_values(schema, list).into_owned()).unwrap_or_default()
    }

    fn patch_rules(&mut self, name: &str, declared: &JobOutput) -> PatchRules {
        PatchRules {
            paths: self.list(name, "paths", declared.paths.as_ref()),
            max_files: value_or(declared.max_files.as_ref(), PATCH_FILES),
            max_bytes: declared.max_bytes.as_ref().map_or(PATCH_BYTES, |size| size.value.bytes().min(PATCH_BYTES)),
            binary: value_or(declared.binary.as_ref(), false),
            allow_changes: self.job().allow_changes.iter().map(|path| path.value.clone()).collect(),
        }
    }

    fn target(&mut self, declared: Option<&Spanned<OutputTarget>>) -> Option<Target> {
        match declared.map(|target| (&target.value, target)) {
            None => Some(Target::Trigger),
            Some((OutputTarget::Number(number), _)) => Some(Target::Number(*number)),
            Some((OutputTarget::Text(text), target)) => match text.as_str() {
                "trigger" => Some(Target::Trigger),
                "any" => Some(Target::Any),
                template => {
                    let name = named_input(template)?;
                    let number = self.inputs.get(name).and_then(Value::as_u64).filter(|number| *number > 0);
                    if number.is_none() {
                        let message = format!("the input `{name}` isn't the number of an issue or a pull request");
                        self.report(target.place(), message, &format!("give a number from 1 up: `--set {name}=12`"));
                    }
                    number.map(Target::Number)
                }
            },
        }
    }

    fn list(&mut self, output: &str, field: &str, declared: Option<&Spanned<TextList>>) -> Vec<String> {
        let Some(declared) = declared else { return Vec::new() };
        let mut texts: Vec<String> = match &declared.value {
            TextList::Items(items) => items.iter().map(|item| item.value.clone()).collect(),
            TextList::Template(template) => {
                if let Some(step) = named_step(template) {
                    self.from_steps.insert(format!("{output}.{field}"), step.to_owned());
                    return unknown_list(step);
                }
                let Some(name) = named_input(template) else { return Vec::new() };
                let items = self.inputs.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
                items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
        };
        if declared.value.template().is_some()
            && let Some((text, why)) = texts.iter().find_map(|text| Some((text, check_list_entry(field, text).err()?)))
        {
            let message = format!("the list has the entry {text:?}, which can't be published");
            self.report(declared.place(), message, &why);
        }
        texts.iter_mut().for_each(|text| *text = normal_list_entry(field, text));
        let mut seen = std::collections::HashSet::new();
        texts.retain(|text| seen.insert(text.clone()));
        texts
    }

    fn report(&mut self, place: SourceSpan, message: String, help: &str) {
        self.findings.push(Diagnostic::error("bad-input", place, message).help(help));
    }
}
