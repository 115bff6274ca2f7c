//! The environment variables that commands may see.

use std::collections::HashMap;

use crate::diagnostic::{Diagnostic, Severity, rule};
use crate::job::{ENV_FORM, HeaderValue};
use crate::process::WITHHELD;
use crate::providers::PROVIDERS;
use crate::yaml::Spanned;

use super::{Lint, LintContext, listed_twice};

/// Keys that providers' own tools and SDKs read, in addition to those that we read. A job that names one would give the
/// key to every command of the model.
const OTHER_KEYS: &[&str] =
    &["CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_ADMIN_KEY", "AZURE_OPENAI_API_KEY", "MISTRAL_API_KEY", "OPENROUTER_API_KEY"];

/// The variable that holds the key that signs records. Like a provider's key, tools can't see it.
pub const RECORD_KEY: &str = "LEGWORK_RECORD_KEY";

/// Checks the names of environment variables.
pub(super) const LINT: Lint = Lint {
    rules: &[
        rule!(Error "bad-env-name"),
        rule!(Error "api-key-in-env"),
        rule!(Error "forbidden-env"),
        rule!(Warning "duplicate-env"),
    ],
    check,
};

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    check_names(subject, &subject.job.env, findings);
    for server in subject.job.mcp.values() {
        let values = server.env.values().map(|(name, _)| name.clone());
        let names: Vec<_> = server.env.names().into_iter().chain(values).collect();
        check_names(subject, &names, findings);
        if let Some(variable) = &server.client_cert {
            let name = Spanned { value: variable.value.env.clone(), node: variable.node.clone() };
            check_names(subject, &[name], findings);
        }
        for value in server.headers.values() {
            if let HeaderValue::Variable(variable) = &value.value {
                let name = Spanned { value: variable.env.clone(), node: value.node.clone() };
                check_names(subject, &[name], findings);
            }
        }
    }
}

/// Checks the names of variables in one list.
fn check_names(subject: &LintContext<'_>, names: &[Spanned<String>], findings: &mut Vec<Diagnostic>) {
    let mut earlier = HashMap::new();
    for name in names.iter().filter(|name| !name.node.is_placeholder()) {
        let text = name.value.as_str();
        let error = |code, message: String| Diagnostic::error(code, name.place(), message);
        if !is_variable(text) {
            let bare = text.split_once('=').map_or(text, |(name, _)| name).trim_matches(['$', '{', '}']);
            let help = match is_variable(bare) {
                true => format!("write only the name, and set its value when you start the job: `{bare}`"),
                false => ENV_FORM.to_owned(),
            };
            findings
                .push(error("bad-env-name", "this isn't the name of an environment variable".to_owned()).help(help));
        } else if is_provider_key(text)
            || subject.user_config.servers.key_envs().any(|key| key.eq_ignore_ascii_case(text))
        {
            let is_record_key = text.eq_ignore_ascii_case(RECORD_KEY);
            let owner = if is_record_key { "the key that signs records" } else { "a provider's key" };
            let finding = error("api-key-in-env", format!("`{text}` is {owner}"));
            findings.push(finding.help("tools never get keys; remove it"));
        } else if WITHHELD.contains(&text) {
            let help = match text.ends_with("_BASE_URL") {
                true => "an endpoint's URL can contain a password; remove it",
                false => "with it a command could change later steps of the workflow; remove it",
            };
            findings.push(error("forbidden-env", format!("tools can't see `{text}`")).help(help));
        } else if let Some(first) = earlier.insert(text, name) {
            findings.push(listed_twice(Severity::Warning, "duplicate-env", text, name.place(), first.place()));
        }
    }
}

/// Whether a variable holds a key that tools may not see.
pub(crate) fn is_provider_key(name: &str) -> bool {
    provider_keys().any(|key| key.eq_ignore_ascii_case(name))
}

/// The variables that hold keys of providers or records, which tools may not see. Some are listed twice.
pub(crate) fn provider_keys() -> impl Iterator<Item = &'static str> {
    PROVIDERS.iter().flat_map(|provider| provider.key_envs).chain(OTHER_KEYS).copied().chain([RECORD_KEY])
}

fn is_variable(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
