//! Models: their names, providers, and retirement dates.

use crate::diagnostic::{
    Diagnostic, Source, SourceSpan, Suggestion, rule, strip_typographic_quotes, suggest, suggest_name,
};
use crate::job::{Job, MAX_FALLBACKS, ModelSpec};
use crate::models::{Capabilities, find_retirement, identify_vendor};
use crate::pricing::{PricedProvider, Prices};
use crate::providers::user_servers::{FILE_NAME, UserServers};
use crate::providers::{self, Model, PROVIDERS, ProviderSpec};
use crate::yaml::{Node, Spanned};

use super::{Lint, LintContext, join_names};

/// Checks the names of models.
pub(super) const LINT: Lint = Lint {
    rules: &[
        rule!(Error "bad-model"),
        rule!(Error "unknown-provider"),
        rule!(Warning "unknown-model"),
        rule!(Warning "retired-model"),
        rule!(Error "bad-fallback"),
    ],
    check,
};

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    for spec in specs(job) {
        let name = name_node(spec);
        if name.is_placeholder() {
            continue;
        }
        match resolve(spec, &subject.user_config.servers) {
            Err(finding) => findings.push(*finding),
            Ok(model) => {
                // If there is a limit on cost, `unknown-price` is reported instead.
                if job.limits.cost_usd.is_none() && model.spec().is_some() {
                    findings.extend(unknown_model(&model, name, &subject.user_config.prices));
                }
                if let Some((message, help)) = retirement(&model) {
                    let place = model_place(&model, name);
                    findings.push(Diagnostic::warning("retired-model", place, message).help(help));
                }
            }
        }
    }
    for spec in own_specs(job) {
        check_fallback(spec, &subject.user_config.servers, findings);
    }
}

/// Reports fallbacks that can't replace a model.
fn check_fallback(declared: &Spanned<ModelSpec>, servers: &UserServers, findings: &mut Vec<Diagnostic>) {
    let Some(list) = declared.value.options().and_then(|options| options.fallback.as_ref()) else { return };
    let error = |place, message: String| Diagnostic::error("bad-fallback", place, message);
    if list.value.len() > MAX_FALLBACKS {
        let finding = error(list.place(), format!("`fallback` has {} models", list.value.len()));
        findings.push(finding.help(format!("keep at most {MAX_FALLBACKS}")));
    }
    let Ok(first) = resolve(declared, servers) else { return };
    if first.is_scripted() && !list.value.is_empty() {
        let finding = error(list.place(), "replies from a file never fail, so the fallback is never used".to_owned());
        findings.push(finding.help("remove `fallback`, or name the model of a provider"));
        return;
    }
    let mut earlier = vec![(first, name_node(declared).place())];
    for spec in list.value.iter().take(MAX_FALLBACKS) {
        if let Some(nested) = spec.value.options().and_then(|options| options.fallback.as_ref()) {
            let finding = error(nested.place(), "a fallback can't have fallbacks of its own".to_owned());
            findings.push(finding.help("write all of them in one list: they are used in its order"));
        }
        let Ok(model) = resolve(spec, servers) else { continue };
        let place = name_node(spec).place();
        if model.is_scripted() {
            let finding = error(place, "replies from a file can't replace a model".to_owned());
            findings.push(finding.help("name the model of a provider"));
            continue;
        }
        if let Some(at) = earlier.iter().position(|(other, _)| other.is_same(&model)) {
            let message = if at == 0 { "can't replace itself" } else { "is listed twice" };
            let finding = error(place, format!("`{model}` {message}")).label(earlier[at].1.clone(), "the first");
            findings.push(finding.help("name another model, or the same one at another provider"));
            continue;
        }
        earlier.push((model, place));
    }
}

/// The job's model, and those of subagents that have their own.
pub(super) fn own_specs(job: &Job) -> impl Iterator<Item = &Spanned<ModelSpec>> {
    std::iter::once(&job.model).chain(job.agents().filter_map(|agent| agent.model))
}

/// All models of a job, fallbacks included.
pub fn specs(job: &Job) -> impl Iterator<Item = &Spanned<ModelSpec>> {
    own_specs(job).flat_map(|spec| std::iter::once(spec).chain(spec.value.fallback()))
}

/// The node that holds the model's name.
pub(super) fn name_node(spec: &Spanned<ModelSpec>) -> &Node {
    match &spec.value {
        ModelSpec::Name(_) => &spec.node,
        ModelSpec::Options(options) => &options.name.node,
    }
}

/// The finding for a model that isn't in the price table: it may be misspelled, or newer than the table.
fn unknown_model(model: &Model, name: &Node, prices: &Prices) -> Option<Diagnostic> {
    let is_own_server = model.server.is_some() && model.allows_unknown_names();
    if is_own_server || model.is_scripted() || prices.has_price(model.price_key()) || model.retirement().is_some() {
        return None;
    }
    let place = model_place(model, name);
    let message = format!("unknown model `{}` of {}", model.name, model.provider);
    let finding = Diagnostic::warning("unknown-model", place, message);
    let near = near_model(model, prices);
    if model.allows_unknown_names() && !near.is_some_and(|near| near.is_certain) {
        // Most servers with this API have their own models.
        return None;
    }
    Some(match near {
        Some(near) if near.is_certain => finding.help(format!("did you mean `{}`?", near.name)).replace_with(near.name),
        Some(near) => finding.help(format!(
            "did you mean `{}`? If it is newer than the table, it runs, but its cost is unknown",
            near.name
        )),
        None => finding.help("if it is newer than the table, it runs, but its cost is unknown"),
    })
}

/// The model with a price that is probably meant by the name of one without. It is certain if only its spelling differs.
pub(super) fn near_model<'a>(model: &Model, prices: &'a Prices) -> Option<Suggestion<'a>> {
    let mut known: Vec<&str> = prices.models(model.price_provider()).collect();
    // Of several that are equally near, the newest.
    known.sort_by_cached_key(|name| std::cmp::Reverse(version_of(name)));
    let near = suggest(&model.name, known.iter().copied());
    // Other digits mean another version, which may be newer than the table.
    let version = |name: &str| name.chars().filter(char::is_ascii_digit).collect::<String>();
    let near = near
        .map(|near| Suggestion { is_certain: near.is_certain && version(near.name) == version(&model.name), ..near });
    let newest = newest_of_family(&model.name, &known, |name| find_retirement(name).is_none());
    match newest.filter(|_| !near.is_some_and(|near| near.is_certain)) {
        Some(name) => Some(Suggestion { name, is_certain: false }),
        None => near,
    }
}

/// Of the versions of a model, the newest that is still there. `known` has the newest first. Where all are older than the one that
/// is asked for, a shorter family may have that one: `gpt-5-turbo` is `gpt-5.5` rather than `gpt-4-turbo`.
fn newest_of_family<'a>(name: &str, known: &[&'a str], is_there: impl Fn(&str) -> bool) -> Option<&'a str> {
    let family = family_of(name);
    let newest = |family: &str| known.iter().copied().find(|known| family_of(known) == family && is_there(known));
    let is_new = |known: &&str| version_of(known).first() >= version_of(name).first();
    let of_family = newest(&family);
    let shorter = || family.rsplit_once('-').and_then(|(shorter, _)| newest(shorter));
    of_family.filter(is_new).or_else(|| shorter().filter(is_new)).or(of_family)
}

/// The numbers in a model's name, without dates.
fn version_of(name: &str) -> Vec<u64> {
    let numbers = name.split(|letter: char| !letter.is_ascii_digit()).filter(|digits| digits.len() < 4);
    numbers.filter_map(|digits| digits.parse().ok()).collect()
}

/// A model's name without its version and date.
fn family_of(name: &str) -> String {
    let parts = name.split(['-', ' ', '_']);
    let is_version =
        |part: &&str| part.starts_with(|letter: char| letter.is_ascii_digit()) || ["latest", "preview"].contains(part);
    let words = parts.filter(|part| !is_version(part));
    words.map(str::to_lowercase).collect::<Vec<_>>().join("-")
}

/// The place of the model's name after its provider.
fn model_place(model: &Model, name: &Node) -> SourceSpan {
    let start = model.provider.len() + 1;
    name.place_of_range(start..start + model.name.len())
}

/// The message and the help for a model that its vendor turns off.
pub fn retirement(model: &Model) -> Option<(String, String)> {
    let retired = model.retirement()?;
    let message = format!("`{}` is retired by its vendor on {}", model.name, retired.date);
    let help = format!("use a newer one, such as `{}/{}`; see {}", model.provider, retired.replacement, retired.source);
    Some((message, help))
}

/// The model of a job, with its options. `servers` are the user's own.
///
/// # Errors
/// The name is malformed, or its provider unknown.
pub fn resolve(spec: &Spanned<ModelSpec>, servers: &UserServers) -> Result<Model, Box<Diagnostic>> {
    let node = name_node(spec);
    let mut model = parse_model(spec.value.name(), servers, |range| node.place_of_range(range))?;
    let Some(options) = spec.value.options() else { return Ok(model) };
    model.thinking = options.thinking.as_ref().map(|thinking| thinking.value);
    model.temperature = options.temperature.as_ref().map(|temperature| temperature.value);
    model.stop = options.stop.iter().flat_map(|stop| &stop.value).map(|text| text.value.clone()).collect();
    model.tier = options.tier.as_ref().map(|tier| tier.value);
    model.context = options.context.as_ref().map(|context| context.value).or(model.context);
    Ok(model)
}

/// The model of `--model`. It has no options: those of a job belong to the job's model. The user's own configuration may
/// set its context window.
///
/// # Errors
/// The name is malformed, or its provider unknown.
pub fn model_argument(text: &str, servers: &UserServers) -> Result<Model, Box<Diagnostic>> {
    let source = Source::new("--model", text);
    parse_model(text, servers, |span| SourceSpan { source: source.clone(), range: span })
}

/// What is known about the provider of a model in `prices.toml`.
pub fn priced_provider(provider: &str, servers: &UserServers) -> PricedProvider {
    match providers::find(provider) {
        Some(spec) if spec.is_scripted() => PricedProvider::Free,
        Some(_) => PricedProvider::Known,
        None if servers.server_info(provider).is_some() || servers.is_invalid(provider) => PricedProvider::Known,
        None => PricedProvider::Unknown(suggest_provider(provider, servers)),
    }
}

fn provider_names(servers: &UserServers) -> impl Iterator<Item = &str> {
    PROVIDERS.iter().map(|provider| provider.name).chain(servers.names())
}

fn suggest_provider(provider: &str, servers: &UserServers) -> String {
    match suggest_name(provider, provider_names(servers)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "expected one of {}; name your own server with `[providers.NAME]` in {}",
            join_names(provider_names(servers)),
            servers.file().unwrap_or(FILE_NAME)
        ),
    }
}

fn parse_model(
    text: &str,
    servers: &UserServers,
    place: impl Fn(std::ops::Range<usize>) -> SourceSpan,
) -> Result<Model, Box<Diagnostic>> {
    let bad = |message: &str| Diagnostic::error("bad-model", place(0..text.len()), message);
    let form = "write `PROVIDER/MODEL`, such as `anthropic/claude-sonnet-5-5`";
    if let Some(inner) = strip_typographic_quotes(text) {
        let finding = bad("the model is in typographic quotes, which are part of its name in YAML");
        return Err(Box::new(finding.help(format!("write `{inner}`")).replace_with(inner)));
    }
    // A script, or the folder of a run.
    let is_file =
        text.ends_with(".yaml") || text.ends_with(".yml") || text.starts_with("runs/") || text.starts_with("./");
    let replay = || format!("write `replay/{text}` to take the replies from a script or a recorded run");
    let Some((provider, name)) = text.split_once('/') else {
        let finding = bad("the model's provider is missing");
        if is_file {
            return Err(Box::new(finding.help(replay())));
        }
        // Characters that need no escape in any quotes.
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_');
        let vendor = identify_vendor(text).map(|(vendor, _)| vendor).filter(|_| text.chars().all(is_plain));
        let vendor = vendor.filter(|vendor| Capabilities::of(vendor, text).is_known);
        let provider = PROVIDERS.iter().find(|spec| Some(spec.vendor) == vendor && !spec.is_common_api);
        let Some(provider) = provider else { return Err(Box::new(finding.help(form))) };
        let whole = format!("{}/{text}", provider.name);
        return Err(Box::new(finding.help(format!("write `{whole}`")).replace_with(whole)));
    };
    let server = servers.server_info(provider);
    if server.is_none() && !servers.is_invalid(provider) && providers::find(provider).is_none() {
        if provider.is_empty() {
            return Err(Box::new(bad("the model's provider is missing").help(form)));
        }
        let message = format!("there is no provider `{provider}`");
        let finding = Diagnostic::error("unknown-provider", place(0..provider.len()), message);
        return Err(Box::new(match provider_alias(provider) {
            None if is_file => finding.help(replay()),
            Some(help) => finding.help(help),
            None => finding.suggest(provider, provider_names(servers), suggest_provider(provider, servers)),
        }));
    }
    let malformed = name.is_empty()
        || name.contains(char::is_control)
        || (!providers::find(provider).is_some_and(ProviderSpec::is_scripted) && name.contains(char::is_whitespace));
    if malformed {
        return Err(Box::new(bad("this isn't the name of a model").help(form)));
    }
    let model = Model { server, context: servers.context_window(provider, name), ..Model::new(provider, name) };
    Ok(Model { accepts: servers.media(&model), ..model })
}

/// The help for names of providers in other programs.
fn provider_alias(provider: &str) -> Option<&'static str> {
    const CLOUDS: [&str; 7] = ["vertex", "vertex-ai", "vertex_ai", "bedrock", "aws", "azure", "azure-openai"];
    let name = provider.to_ascii_lowercase();
    if CLOUDS.contains(&&*name) {
        return Some("set up a cloud as your own server: see \"Clouds and gateways\" in the book");
    }
    PROVIDERS.iter().find(|spec| spec.aliases.contains(&&*name)).map(|spec| spec.alias_help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_model_of_a_family_that_is_still_there_is_suggested() {
        let prices = Prices::default();
        for (name, meant) in [
            ("gemini/gemini-4-flash", "gemini-3"),
            ("gemini/gemini-2.5-prooo", "gemini-2.5-pro"),
            ("anthropic/claude-opus-9", "claude-opus-5"),
            ("anthropic/claude-sonet-5-5", "claude-sonnet-5-5"),
            ("anthropic/claude-sonnet-latest", "claude-sonnet-5"),
            ("openai/gpt-5-turbo", "gpt-5."),
            ("openai/gpt-7", "gpt-5."),
            ("anthropic/claude-sonnet", "claude-sonnet-5"),
        ] {
            let model = model_argument(name, &UserServers::default()).unwrap();
            let source = Source::new("job.yaml", format!("\"{name}\""));
            let node = crate::yaml::read::<Node>(&source).into_result().unwrap();
            let help = unknown_model(&model, &node, &prices).unwrap().help.unwrap();
            assert!(help.contains(&format!("`{meant}")), "{name}: {help}");
            // A job with a limit on its cost has another finding instead.
            let text = format!("model: {name}\nlimits: {{ cost_usd: 1 }}\nparent: {{ prompt: p, tools: [] }}\n");
            let checked = crate::lints::check(&Source::new("job.yaml", text), None);
            let help =
                checked.findings.iter().find(|finding| finding.code == "unknown-price").unwrap().help.clone().unwrap();
            assert!(help.contains(&format!("`{meant}")), "{name}: {help}");
        }
    }

    #[test]
    fn an_argument_names_provider_and_model() {
        let model = model_argument("replay/jobs/a b.yaml", &UserServers::default()).unwrap();
        assert_eq!((model.provider.as_str(), model.name.as_str()), ("replay", "jobs/a b.yaml"));
        for (text, code) in [
            ("claude-sonnet-5-5", "bad-model"),
            ("", "bad-model"),
            ("anthropic/", "bad-model"),
            ("anthropic/claude sonnet", "bad-model"),
            ("antropic/claude-sonnet-5-5", "unknown-provider"),
            ("/x", "bad-model"),
        ] {
            assert_eq!(model_argument(text, &UserServers::default()).unwrap_err().code, code, "{text}");
        }
    }
}
