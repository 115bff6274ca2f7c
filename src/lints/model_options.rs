//! Options of models.

use std::time::SystemTime;

use crate::diagnostic::{Diagnostic, SourceSpan, rule};
use crate::job::{self, AgentModel, Job, MAX_STOP_CHARS, MAX_STOPS, MAX_TEMPERATURE, MAX_TOKENS, ModelOptions};
use crate::providers::user_servers::UserServers;
use crate::providers::{Model, RequestOptions, UnsupportedOption};
use crate::yaml::Spanned;

use super::{Lint, LintContext, join_names, models};

/// Checks that options of models are in range and supported.
pub(super) const LINT: Lint =
    Lint { rules: &[rule!(Error "unsupported-option"), rule!(Error "bad-stop-sequence")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    for options in models::specs(job).filter_map(|spec| spec.value.options()) {
        check_bounds(options, findings);
    }
    let mut unsupported: Vec<Diagnostic> = Vec::new();
    let agents = job.agents().collect::<Vec<_>>();
    let models = agents.iter().flat_map(|agent| job.models_of(agent).map(move |model| (agent, model)));
    for (agent, AgentModel { spec, max_tokens }) in models {
        let Ok(model) = models::resolve(spec, &subject.user_config.servers) else { continue };
        let Some(entry) = model.spec() else { continue };
        let options = RequestOptions {
            model: &model,
            has_tools: !agent.tools.is_empty() || agent.returns.is_some(),
            max_tokens: job::value_or(max_tokens, model.default_max_tokens(agent.default_tokens())),
        };
        // A number that is out of range for every model is reported as such.
        let is_bounded = |one: &UnsupportedOption| match one.option {
            "max_tokens" => options.max_tokens <= MAX_TOKENS,
            "temperature" => model.temperature.is_none_or(|number| (0.0..=MAX_TEMPERATURE).contains(&number)),
            _ => true,
        };
        let mut all = (entry.unsupported_options)(&options);
        let prices = &subject.user_config.prices;
        let is_reported = all.iter().any(|one| one.option == "tier");
        if model.is_flex()
            && !is_reported
            && !model.allows_unknown_names()
            && prices.lacks_flex(model.price_key(), SystemTime::now())
        {
            let why = format!("{} has no flex processing", model.name);
            all.push(UnsupportedOption::new("tier", why, "remove `tier`, or use a newer model"));
        }
        for one in all.into_iter().filter(is_bounded) {
            let at = max_tokens.filter(|_| one.option == "max_tokens").map(Spanned::place);
            let at = at.unwrap_or_else(|| option_place(spec, one.option));
            let finding = Diagnostic::error("unsupported-option", at, one.why).help(one.help);
            // Several agents may have one model.
            let is_same =
                |other: &Diagnostic| (&other.span.range, &other.message) == (&finding.span.range, &finding.message);
            if !unsupported.iter().any(is_same) {
                unsupported.push(finding);
            }
        }
    }
    findings.extend(unsupported);
}

/// Notes about the options that are dropped when another model replaces a job's own, because their meaning depends on the
/// model. `max_tokens` stays, and `context` if the model is the same.
pub fn dropped_options(job: &Job, model: &Model, servers: &UserServers) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for spec in models::own_specs(job) {
        let Ok(resolved) = models::resolve(spec, servers) else { continue };
        let declares_window = spec.value.options().is_some_and(|options| options.context.is_some());
        let stays = |key: &str| key == "context" && (!declares_window || resolved.is_same(model));
        let explicit = resolved.explicit_options();
        let fallback = (!spec.value.fallback().is_empty()).then_some("fallback");
        let options: Vec<&str> =
            explicit.iter().map(|(key, _)| *key).filter(|key| !stays(key)).chain(fallback).collect();
        let verb = if options.len() == 1 { "isn't" } else { "aren't" };
        let sentence = format!("the {} of {resolved} {verb} used for {model}", join_names(options.iter().copied()));
        if !options.is_empty() && !notes.contains(&sentence) {
            notes.push(sentence);
        }
    }
    notes
}

/// The place of an option; of the model's name, if there is no such option.
fn option_place(spec: &Spanned<job::ModelSpec>, option: &str) -> SourceSpan {
    let options = spec.value.options();
    let place = options.and_then(|options| match option {
        "thinking" => options.thinking.as_ref().map(Spanned::place),
        "temperature" => options.temperature.as_ref().map(Spanned::place),
        "stop" => options.stop.as_ref().map(Spanned::place),
        "tier" => options.tier.as_ref().map(Spanned::place),
        "context" => options.context.as_ref().map(Spanned::place),
        _ => None,
    });
    place.unwrap_or_else(|| models::name_node(spec).place())
}

/// Reports values that no model accepts.
fn check_bounds(options: &ModelOptions, findings: &mut Vec<Diagnostic>) {
    let range = 0.0..=MAX_TEMPERATURE;
    if let Some(temperature) = options.temperature.as_ref().filter(|temperature| !range.contains(&temperature.value)) {
        let message = format!("`temperature` must be from 0 to {MAX_TEMPERATURE}");
        let help = format!("write a number from 0 to {MAX_TEMPERATURE}, or leave it out for the model's default");
        findings.push(Diagnostic::error("out-of-range", temperature.place(), message).help(help));
    }
    if let Some(context) = options.context.as_ref().filter(|context| context.value == 0) {
        let message = "`context` must be at least 1";
        let help = "leave it out to use the price table's value";
        findings.push(Diagnostic::error("out-of-range", context.place(), message).help(help));
    }
    let Some(stop) = &options.stop else { return };
    let error = |place, message: &str| Diagnostic::error("bad-stop-sequence", place, message);
    if stop.value.len() > MAX_STOPS {
        let finding = error(stop.place(), &format!("`stop` has {} texts", stop.value.len()));
        findings.push(finding.help(format!("keep at most {MAX_STOPS}")));
    }
    for (at, text) in stop.value.iter().enumerate() {
        if text.value.is_empty() {
            let finding = error(text.place(), "this text is empty");
            findings.push(finding.help("write the text that ends a reply, or remove it"));
        } else if text.value.chars().count() > MAX_STOP_CHARS {
            let finding = error(text.place(), "this text is too long for a stop sequence");
            findings.push(finding.help(format!("write at most {MAX_STOP_CHARS} characters")));
        } else if let Some(first) = stop.value[..at].iter().find(|first| first.value == text.value) {
            let finding = error(text.place(), "this text is listed twice").help("remove one of them");
            findings.push(finding.label(first.place(), "the first"));
        }
    }
}
