//! Models that some provider could answer for.

use crate::diagnostic::{Diagnostic, Place, Rule, Source, nearest, rule};
use crate::job::ModelSpec;
use crate::providers::{self, Model, PROVIDERS};
use crate::yaml::Spanned;

use super::{Lint, Subject, listed};

/// Model names, and what is asked of them.
pub(super) struct Models;

const RULES: &[Rule] = &[rule!(Error "bad-model"), rule!(Error "unknown-provider"), rule!(Error "thinking-not-taken")];

impl Lint for Models {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &Subject<'_>, findings: &mut Vec<Diagnostic>) {
        let job = subject.job;
        for spec in std::iter::once(&job.model).chain(job.agents().filter_map(|agent| agent.model)) {
            let name = match &spec.value {
                ModelSpec::Name(_) => &spec.node,
                ModelSpec::Options(options) => &options.name.node,
            };
            if let Some(finding) = resolve(spec).err().filter(|_| !name.is_made_up()) {
                findings.push(*finding);
            }
        }
    }
}

/// The model that a job asks for.
///
/// # Errors
/// Where it has no such form, its provider is unknown, or it takes no such option.
pub fn resolve(spec: &Spanned<ModelSpec>) -> Result<Model, Box<Diagnostic>> {
    let node = match &spec.value {
        ModelSpec::Name(_) => &spec.node,
        ModelSpec::Options(options) => &options.name.node,
    };
    let mut model = parse(spec.value.name(), |range| node.place_of(range))?;
    if let Some(thinking) = spec.value.thinking() {
        if !providers::find(&model.provider).is_some_and(|provider| provider.takes_thinking) {
            let message = format!("the provider `{}` takes no `thinking`", model.provider);
            let finding = Diagnostic::error("thinking-not-taken", thinking.place(), message);
            return Err(Box::new(finding.help("remove it")));
        }
        model.thinking = Some(thinking.value);
    }
    Ok(model)
}

/// A model as `--model` names it.
///
/// # Errors
/// Where it has no such form, or its provider is unknown.
pub fn model_argument(text: &str) -> Result<Model, Box<Diagnostic>> {
    let source = Source::new("--model", text);
    parse(text, |span| Place { source: source.clone(), span })
}

fn parse(text: &str, place: impl Fn(std::ops::Range<usize>) -> Place) -> Result<Model, Box<Diagnostic>> {
    let bad = |message: &str| Diagnostic::error("bad-model", place(0..text.len()), message);
    let known = || PROVIDERS.iter().map(|provider| provider.name);
    let form = "write `PROVIDER/MODEL`, such as `anthropic/claude-sonnet-4-5`";
    let Some((provider, name)) = text.split_once('/') else {
        let finding = bad("a model is named with its provider");
        return Err(Box::new(match text.starts_with("claude") && !text.contains(char::is_whitespace) {
            true => finding.help(format!("write `anthropic/{text}`")).replace_with(format!("anthropic/{text}")),
            false => finding.help(form),
        }));
    };
    if providers::find(provider).is_none() {
        let message = format!("there is no provider `{provider}`");
        let finding = Diagnostic::error("unknown-provider", place(0..provider.len()), message);
        return Err(Box::new(match nearest(provider, known()) {
            Some(meant) => finding.help(format!("did you mean `{meant}`?")).replace_with(meant),
            None => finding.help(format!("there are {}", listed(known()))),
        }));
    }
    let malformed = name.is_empty()
        || name.contains(char::is_control)
        || (provider != "replay" && name.contains(char::is_whitespace));
    if malformed {
        return Err(Box::new(bad("this isn't the name of a model").help(form)));
    }
    Ok(Model { provider: provider.to_owned(), name: name.to_owned(), thinking: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_names_provider_and_model() {
        let model = model_argument("replay/jobs/a b.yaml").unwrap();
        assert_eq!((model.provider.as_str(), model.name.as_str()), ("replay", "jobs/a b.yaml"));
        for (text, code) in [
            ("claude-sonnet-4-5", "bad-model"),
            ("", "bad-model"),
            ("anthropic/", "bad-model"),
            ("anthropic/claude sonnet", "bad-model"),
            ("antropic/claude-sonnet-4-5", "unknown-provider"),
            ("/x", "unknown-provider"),
        ] {
            assert_eq!(model_argument(text).unwrap_err().code, code, "{text}");
        }
    }
}
