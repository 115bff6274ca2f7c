//! What is asked of models beyond the defaults.

use crate::diagnostic::{Diagnostic, Rule, SourceSpan, rule};
use crate::job::{
    self, Job, MAX_STOP_CHARS, MAX_STOPS, MAX_TEMPERATURE, MAX_TOKENS, ModelOptions, PARENT_TOKENS, SUBAGENT_TOKENS,
};
use crate::providers::user_servers::UserServers;
use crate::providers::{Model, RequestOptions, UnsupportedOption};
use crate::yaml::Spanned;

use super::{Lint, LintContext, join_names, models};

/// Options of models: within their bounds, and taken.
pub(super) struct ModelOptionsLint;

const RULES: &[Rule] = &[rule!(Error "unsupported-option"), rule!(Error "bad-stop-sequence")];

impl Lint for ModelOptionsLint {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
        let job = subject.job;
        for options in models::specs(job).filter_map(|spec| spec.value.options()) {
            check_bounds(options, findings);
        }
        let mut untaken: Vec<Diagnostic> = Vec::new();
        for agent in job.agents() {
            let spec = agent.model.unwrap_or(&job.model);
            let Ok(model) = models::resolve(spec, &subject.user_config.servers) else { continue };
            let Some(entry) = model.spec() else { continue };
            let default = if agent.name.is_none() { PARENT_TOKENS } else { SUBAGENT_TOKENS };
            let wish = RequestOptions {
                model: &model,
                has_tools: !agent.tools.is_empty() || agent.returns.is_some(),
                max_tokens: job::value_or(agent.max_tokens, default),
            };
            // Of a number that nobody takes, that is said.
            let is_bounded = |one: &UnsupportedOption| match one.option {
                "max_tokens" => wish.max_tokens <= MAX_TOKENS,
                "temperature" => model.temperature.is_none_or(|number| (0.0..=MAX_TEMPERATURE).contains(&number)),
                _ => true,
            };
            for one in (entry.unsupported_options)(&wish).into_iter().filter(is_bounded) {
                let at = agent.max_tokens.filter(|_| one.option == "max_tokens").map(Spanned::place);
                let at = at.unwrap_or_else(|| option_place(spec, one.option));
                let finding = Diagnostic::error("unsupported-option", at, one.why).help(one.help);
                // Several agents may have one model.
                let is_same =
                    |other: &Diagnostic| (&other.span.range, &other.message) == (&finding.span.range, &finding.message);
                if !untaken.iter().any(is_same) {
                    untaken.push(finding);
                }
            }
        }
        findings.extend(untaken);
    }
}

/// What to say where another model takes the place of a job's own: their options are left behind, for what they mean
/// depends on the model. `max_tokens` means the same to all and stays, and so does `context` where the model is the same. A
/// sentence for each model that has some.
pub fn dropped_options(job: &Job, model: &Model, servers: &UserServers) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for spec in models::specs(job) {
        let Ok(own) = models::resolve(spec, servers) else { continue };
        let declares_window = spec.value.options().is_some_and(|options| options.context.is_some());
        let stays = |key: &str| key == "context" && (!declares_window || own.is_same(model));
        let options: Vec<&str> = own.explicit_options().iter().map(|(key, _)| *key).filter(|key| !stays(key)).collect();
        let verb = if options.len() == 1 { "isn't" } else { "aren't" };
        let sentence = format!("the {} of {own} {verb} asked of {model}", join_names(options.iter().copied()));
        if !options.is_empty() && !said.contains(&sentence) {
            said.push(sentence);
        }
    }
    said
}

/// Where an option stands; of what is no option, the model's name.
fn option_place(spec: &Spanned<job::ModelSpec>, option: &str) -> SourceSpan {
    let options = spec.value.options();
    let place = match option {
        "thinking" => options.and_then(|options| options.thinking.as_ref()).map(Spanned::place),
        "temperature" => options.and_then(|options| options.temperature.as_ref()).map(Spanned::place),
        "stop" => options.and_then(|options| options.stop.as_ref()).map(Spanned::place),
        "context" => options.and_then(|options| options.context.as_ref()).map(Spanned::place),
        _ => None,
    };
    place.unwrap_or_else(|| models::name_node(spec).place())
}

/// What makes no sense whoever is asked.
fn check_bounds(options: &ModelOptions, findings: &mut Vec<Diagnostic>) {
    let range = 0.0..=MAX_TEMPERATURE;
    if let Some(temperature) = options.temperature.as_ref().filter(|temperature| !range.contains(&temperature.value)) {
        let message = format!("`temperature` must be from 0 to {MAX_TEMPERATURE}");
        let help = format!("write a number from 0 to {MAX_TEMPERATURE}, or leave it out for the model's own");
        findings.push(Diagnostic::error("out-of-range", temperature.place(), message).help(help));
    }
    if let Some(context) = options.context.as_ref().filter(|context| context.value == 0) {
        let message = "`context` must be at least 1";
        let help = "leave it out for what the table of prices says";
        findings.push(Diagnostic::error("out-of-range", context.place(), message).help(help));
    }
    let Some(stop) = &options.stop else { return };
    if stop.value.len() > MAX_STOPS {
        let message = format!("`stop` holds {} texts", stop.value.len());
        findings.push(
            Diagnostic::error("bad-stop-sequence", stop.place(), message).help(format!("keep at most {MAX_STOPS}")),
        );
    }
    for (at, text) in stop.value.iter().enumerate() {
        let finding =
            |message: &str, help: String| Diagnostic::error("bad-stop-sequence", text.place(), message).help(help);
        if text.value.is_empty() {
            findings.push(finding("this text is empty", "write what a reply is to end at, or remove it".to_owned()));
        } else if text.value.chars().count() > MAX_STOP_CHARS {
            let help = format!("write at most {MAX_STOP_CHARS} characters: the first ones do");
            findings.push(finding("this text is too long to end a reply at", help));
        } else if let Some(first) = stop.value[..at].iter().find(|first| first.value == text.value) {
            let finding = finding("this text stands here twice", "remove one of them".to_owned());
            findings.push(finding.label(first.place(), "the first"));
        }
    }
}
