//! A model's context window has room for a prompt in addition to the longest reply.

use super::{Lint, LintContext, models};
use crate::diagnostic::{Diagnostic, rule};
use crate::job::{self, AgentModel, MAX_TOKENS};
use crate::providers::{ProviderSpec, RequestOptions};

/// Checks context windows.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Error "context-window-too-small")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let agents = job.agents().collect::<Vec<_>>();
    let models = agents.iter().flat_map(|agent| job.models_of(agent).map(move |model| (agent, model)));
    for (agent, AgentModel { spec, max_tokens: given }) in models {
        let Ok(model) = models::resolve(spec, &subject.user_config.servers) else { continue };
        let max_tokens = job::value_or(given, model.default_max_tokens(agent.default_tokens()));
        let declared = spec.value.options().and_then(|options| options.context.as_ref());
        let options = RequestOptions { model: &model, has_tools: false, max_tokens };
        let is_too_long =
            |entry: &ProviderSpec| (entry.unsupported_options)(&options).iter().any(|one| one.option == "max_tokens");
        if declared.is_none() && model.spec().is_some_and(is_too_long) {
            // The unsupported `max_tokens` is reported already.
            continue;
        }
        let listed = || subject.user_config.prices.context_window(model.price_key());
        let Some(window) = model
            .context
            .or_else(listed)
            .filter(|window| (1..=u64::from(max_tokens)).contains(window) && max_tokens <= MAX_TOKENS)
        else {
            continue;
        };
        let whose = agent.name.map_or_else(|| "the parent".to_owned(), |name| format!("`{}`", name.value));
        let message = format!(
            "the context window of {window} tokens has no room for a prompt: a reply of {whose} may take {max_tokens}"
        );
        let name = models::name_node(spec).place();
        let error = |place| Diagnostic::error("context-window-too-small", place, message);
        findings.push(match (given, declared) {
            (_, Some(context)) => {
                error(context.place()).help("raise `context` to the model's real window, or lower `max_tokens`")
            }
            (Some(given), None) => {
                let finding = error(given.place()).label(name, "the model");
                finding.help("lower it, or set the model's `context` to its real window")
            }
            (None, None) => {
                error(name).help("give the agent a lower `max_tokens`, or set the model's `context` to its real window")
            }
        });
    }
}
