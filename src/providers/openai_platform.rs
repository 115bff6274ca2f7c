//! What OpenAI's two APIs share: address, keys, model options and prompt cache.

use std::borrow::Cow;

use reqwest::header::HeaderValue;
use sha2::{Digest, Sha256};

use super::api::{ConversationConfig, ProviderError};
use super::env_config::EndpointNames;
use super::model::Model;
use super::spec::{ConnectContext, DefaultEndpoint};
use super::transport::endpoint::Endpoint;
use super::transport::http_conversation::ProviderState;
use super::transport::retry::RetryPolicy;
use super::unsupported_options::{ApiLimits, UnsupportedOption, explicit_temperature};
use crate::job::Thinking;
use crate::models::{Capabilities, ThinkingControl, ThinkingOff, effort_name};
use crate::providers::errors::api_error::ErrorDialect;

const HOST: &str = "api.openai.com";
const BASE_URL: &str = "https://api.openai.com/v1";
const BASE_URL_ENV: &str = "OPENAI_BASE_URL";
/// The default address.
pub(super) const DEFAULT_ENDPOINT: DefaultEndpoint = DefaultEndpoint { base_url: BASE_URL, base_url_env: BASE_URL_ENV };
/// The variable with the key.
pub(super) const KEY_ENV: &str = "OPENAI_API_KEY";
/// The variables with the ids of an organization and a project, and their headers, as of OpenAI's own clients.
const ID_HEADERS: [(&str, &str); 2] =
    [("OPENAI_ORG_ID", "openai-organization"), ("OPENAI_PROJECT_ID", "openai-project")];
/// The vendor of the models.
pub(super) const VENDOR: &str = "openai";
/// The APIs have no error classes beyond the common ones.
pub(super) static ERROR_DIALECT: ErrorDialect = ErrorDialect { statuses: &[], classes: &[] };
/// The maximum length of a tool's name.
pub(super) const MAX_TOOL_NAME_CHARS: usize = 64;

/// Connects to an API at `path` below the base address: `https://api.openai.com/v1`, or `OPENAI_BASE_URL`, which
/// OpenAI's own clients read, too. OpenAI itself requires a key. Other servers get it if it is set, unless the address
/// has credentials.
///
/// # Errors
/// The address or the key is malformed, or a required key is missing.
pub(super) fn connect(
    context: &ConnectContext<'_>,
    api: &'static str,
    path: &str,
) -> Result<ProviderState, ProviderError> {
    let names = EndpointNames { key_env: KEY_ENV, base_url_env: BASE_URL_ENV, api };
    let mut endpoint = Endpoint::new(context, names, BASE_URL, path)?;
    if let Some(key) = context.resolve_key(names, is_official(&endpoint))? {
        if endpoint.has_credentials() {
            endpoint.unsent_key(&key);
        } else {
            endpoint.key_header("authorization", "Bearer ", &key);
        }
    }
    if context.server.is_none() {
        for (variable, header) in ID_HEADERS {
            let Some(id) = (context.env)(variable).filter(|id| !id.is_empty()) else { continue };
            let value = HeaderValue::from_str(&id).map_err(|_| {
                let what = format!("{variable} contains a line break or a control character");
                ProviderError::rejected(what).with_hint("set it to the id and nothing else")
            })?;
            endpoint.value_header(header, value);
        }
    }
    let retry_policy = RetryPolicy::new(context, endpoint.identity())?;
    Ok(ProviderState::new(endpoint, retry_policy, &ERROR_DIALECT))
}

/// Whether the endpoint is OpenAI's own, in any region (`eu.api.openai.com`).
pub(super) fn is_official(endpoint: &Endpoint) -> bool {
    endpoint.has_host(HOST) || endpoint.host().ends_with(&format!(".{HOST}"))
}

/// Whether the endpoint serves OpenAI's models under OpenAI's rules: OpenAI's own endpoints, and Azure's.
pub(super) fn has_openai_rules(endpoint: &Endpoint) -> bool {
    const AZURE: [&str; 3] = [".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"];
    is_official(endpoint) || AZURE.iter().any(|suffix| endpoint.host().ends_with(suffix))
}

/// The reasoning effort to request; `None` for the model's default.
///
/// # Errors
/// The model doesn't support what the job requests. Only OpenAI's own rules are checked.
pub(super) fn reasoning_effort(
    limits: &ApiLimits,
    model: &Model,
    has_tools: bool,
    has_openai_rules: bool,
) -> Result<Option<&'static str>, UnsupportedOption> {
    if !has_openai_rules {
        return Ok(effort_at_other_server(&model.name, model.thinking));
    }
    let thinking = limits.check_thinking(model, has_tools)?;
    let off = Capabilities::of(VENDOR, &model.name).thinking.off;
    Ok(match (thinking, off) {
        (Some(Thinking::Off), ThinkingOff::Omit) => None,
        (Some(Thinking::Off), ThinkingOff::Word(word)) => Some(word),
        (thinking, _) => thinking.map(effort_name),
    })
}

/// The reasoning effort to request from other servers. OpenAI's models use the same effort names there. Unsupported
/// efforts aren't reported, because the server may have another model with that name. A name with a `/` is a gateway's,
/// which has its own effort names.
fn effort_at_other_server(name: &str, thinking: Option<Thinking>) -> Option<&'static str> {
    match Capabilities::of(VENDOR, name).thinking.off {
        ThinkingOff::Omit if thinking == Some(Thinking::Off) && !name.contains('/') => None,
        ThinkingOff::Word(word) if thinking == Some(Thinking::Off) && !name.contains('/') => Some(word),
        _ => thinking.map(effort_name),
    }
}

/// The member that asks for flex processing (<https://developers.openai.com/api/docs/guides/flex-processing>), with a leading
/// comma.
pub(super) const FLEX_TIER: &str = r#","service_tier":"flex""#;

/// The temperature to send with this effort.
pub(super) fn temperature(model: &Model, effort: Option<&str>) -> Option<f64> {
    let thinking = if effort == Some(effort_name(Thinking::Off)) { Some(Thinking::Off) } else { model.thinking };
    explicit_temperature(VENDOR, model, thinking).or(model.temperature.filter(|_| model.name.contains('/')))
}

/// Whether a model returns encrypted reasoning; requesting it from others is an error.
pub(super) fn returns_reasoning(name: &str) -> bool {
    Capabilities::of(VENDOR, name).thinking.control != ThinkingControl::Unsupported
}

/// The member `prompt_cache_key` with a leading comma: requests with the same key are routed to the same prompt cache
/// (<https://developers.openai.com/api/docs/guides/prompt-caching>). It is the same for each agent of a job in every
/// run, as long as its system prompt and tools stay the same.
pub(super) fn cache_key(config: &ConversationConfig) -> String {
    let mut hash = Sha256::new();
    for part in [&config.model.name, &config.agent, &config.system] {
        hash.update(part);
        hash.update([0]);
    }
    for tool in &config.tools {
        hash.update(serde_json::to_vec(tool).unwrap_or_default());
    }
    let key: String = hash.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!(r#","prompt_cache_key":"legwork-{key}""#)
}

/// A tool result, marked if the call failed, because the APIs have no field for that.
pub(super) fn mark_failure(text: &str, is_error: bool) -> Cow<'_, str> {
    if is_error { Cow::Owned(format!("Error: {text}")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::unsupported_options::RequestOptions;
    use crate::providers::{openai, openai_chat};

    fn responses(name: &str, thinking: Option<Thinking>) -> Result<Option<&'static str>, UnsupportedOption> {
        let model = Model { thinking, ..Model::new("openai", name) };
        reasoning_effort(&openai::LIMITS, &model, true, true)
    }

    fn chat(
        name: &str,
        thinking: Option<Thinking>,
        has_tools: bool,
    ) -> Result<Option<&'static str>, UnsupportedOption> {
        let model = Model { thinking, ..Model::new("openai-chat", name) };
        reasoning_effort(&openai_chat::LIMITS, &model, has_tools, true)
    }

    fn unsupported_by_responses(request: &RequestOptions<'_>) -> Vec<UnsupportedOption> {
        openai::LIMITS.unsupported(request)
    }

    fn unsupported_by_chat_completions(request: &RequestOptions<'_>) -> Vec<UnsupportedOption> {
        openai_chat::LIMITS.unsupported(request)
    }

    #[test]
    fn every_model_generation_gets_its_thinking_options() {
        const FOUR: [Thinking; 4] = [Thinking::Off, Thinking::Low, Thinking::Medium, Thinking::High];
        let (no, left_out) = (Err(()), Ok(None));
        let [none, minimal, low, medium, high] =
            ["none", "minimal", "low", "medium", "high"].map(|word| Ok(Some(word)));
        for (model, expected) in [
            ("gpt-3.5-turbo-0125", [left_out, no, no, no]),
            ("gpt-4o-mini", [left_out, no, no, no]),
            ("gpt-4.1", [left_out, no, no, no]),
            ("ft:gpt-4.1-mini-2025-04-14:acme::x", [left_out, no, no, no]),
            ("chatgpt-4o-latest", [left_out, no, no, no]),
            ("gpt-5.2-chat-latest", [left_out, no, no, no]),
            ("o3", [no, low, medium, high]),
            ("o4-mini-2025-04-16", [no, low, medium, high]),
            ("gpt-5.1-codex-mini", [no, low, medium, high]),
            ("gpt-oss-20b", [no, low, medium, high]),
            ("gpt-5", [minimal, low, medium, high]),
            ("gpt-5-nano-2025-08-07", [minimal, low, medium, high]),
            ("gpt-5-pro", [no, no, no, high]),
            ("gpt-5.4-pro", [no, no, medium, high]),
            ("gpt-5.1", [none, low, medium, high]),
            ("gpt-5.6-sol", [none, low, medium, high]),
            ("gpt-6-sol", [none, low, medium, high]),
            ("gpt-6.1-terra", [none, low, medium, high]),
            ("gpt-6-astra", [no, low, medium, high]),
            ("gpt-6.1-sol", [no, low, medium, high]),
            ("somebodys-own", [none, low, medium, high]),
        ] {
            let said = FOUR.map(|thinking| responses(model, Some(thinking)).map_err(|_| ()));
            assert_eq!(said, expected, "{model}");
            assert_eq!(responses(model, None), Ok(None));
        }
    }

    #[test]
    fn chat_completions_cannot_combine_thinking_with_tools() {
        let (low, off) = (Some(Thinking::Low), Some(Thinking::Off));
        for (model, thinking, has_tools, expected) in [
            ("gpt-5", low, true, Ok(Some("low"))),
            ("gpt-5", off, true, Ok(Some("minimal"))),
            ("gpt-5.3", None, true, Ok(None)),
            ("gpt-5.4-mini", None, true, Ok(Some("none"))),
            ("gpt-5.4-mini", None, false, Ok(None)),
            ("gpt-6.1-terra", low, false, Ok(Some("low"))),
            ("gpt-6.1-terra", low, true, Err("thinking")),
            ("gpt-6-astra", None, false, Ok(None)),
            ("gpt-6-astra", None, true, Err("name")),
            ("gpt-6.1-sol", low, true, Err("name")),
            ("gpt-6-sol", None, true, Ok(Some("none"))),
            ("o3", low, true, Ok(Some("low"))),
            ("gpt-4.1", None, true, Ok(None)),
            ("gpt-4.1", low, true, Err("thinking")),
            ("somebodys-own", low, true, Ok(Some("low"))),
        ] {
            let said = chat(model, thinking, has_tools).map_err(|untaken| untaken.option);
            assert_eq!(said, expected, "{model} {thinking:?} {has_tools}");
        }
        let untaken = chat("gpt-5.6-sol", low, true).unwrap_err();
        assert!(untaken.help.contains("`openai/gpt-5.6-sol`"), "{untaken:?}");
    }

    #[test]
    fn a_models_effort_names_apply_at_other_servers() {
        let (off, high) = (Some(Thinking::Off), Some(Thinking::High));
        for (model, thinking, expected) in [
            ("gpt-5", off, Some("minimal")),
            ("gpt-5.1", off, Some("none")),
            ("gpt-4.1", off, None),
            ("gpt-4.1", high, Some("high")),
            ("o3", off, Some("none")),
            ("openai/gpt-5", off, Some("none")),
            ("somebodys-own", off, Some("none")),
            ("somebodys-own", high, Some("high")),
            ("gpt-5", None, None),
        ] {
            assert_eq!(effort_at_other_server(model, thinking), expected, "{model} {thinking:?}");
        }
    }

    #[test]
    fn reasoning_is_requested_from_models_that_have_it() {
        assert!(
            returns_reasoning("gpt-5")
                && returns_reasoning("o1")
                && returns_reasoning("somebodys-own")
                && !returns_reasoning("gpt-4o")
        );
    }

    fn asking(name: &str, thinking: Option<Thinking>, temperature: Option<f64>, stops: usize) -> Model {
        let stop = (0..stops).map(|number| format!("END{number}")).collect();
        Model { thinking, temperature, stop, ..Model::new("openai", name) }
    }

    fn options(untaken: &[UnsupportedOption]) -> Vec<&'static str> {
        untaken.iter().map(|untaken| untaken.option).collect()
    }

    #[test]
    fn thinking_models_accept_no_temperature() {
        let (low, off) = (Some(Thinking::Low), Some(Thinking::Off));
        for (name, thinking, over_responses_taken, over_chat_taken) in [
            ("gpt-4.1", None, true, true),
            ("gpt-4o-search-preview", None, false, false),
            ("gpt-5.2-chat-latest", None, true, true),
            ("o4-mini", None, false, false),
            ("gpt-5-mini", off, false, false),
            ("gpt-5.4-pro", None, false, false),
            ("gpt-5.1", None, true, true),
            ("gpt-5.1", low, false, false),
            ("gpt-5.4-mini", None, true, true),
            // With tools, thinking is turned off in Chat Completions.
            ("gpt-6-luna", None, false, true),
            ("gpt-6-luna", off, true, true),
            ("gpt-oss-20b", low, true, true),
            ("openai/gpt-5", None, true, true),
            ("somebodys-own", low, true, true),
        ] {
            let model = asking(name, thinking, Some(0.0), 0);
            let wish = RequestOptions { model: &model, has_tools: true, max_tokens: 8_000 };
            assert_eq!(unsupported_by_responses(&wish).is_empty(), over_responses_taken, "{name} {thinking:?}");
            assert_eq!(unsupported_by_chat_completions(&wish).is_empty(), over_chat_taken, "{name} {thinking:?}");
            let own = asking(name, thinking, Some(1.0), 0);
            assert_eq!(
                unsupported_by_chat_completions(&RequestOptions { model: &own, ..wish }),
                [],
                "{name} {thinking:?}"
            );
        }
    }

    #[test]
    fn stop_sequences_are_limited_and_only_for_chat_completions() {
        for (name, stops, taken) in [
            ("gpt-4.1", 4, true),
            ("gpt-4.1", 5, false),
            ("o3", 1, false),
            ("o3-mini", 1, true),
            ("gpt-5.2", 1, false),
            ("gpt-5-chat-latest", 1, true),
            ("gpt-5.6-terra", 1, true),
            ("somebodys-own", 9, true),
        ] {
            let model = asking(name, None, None, stops);
            let wish = RequestOptions { model: &model, has_tools: false, max_tokens: 8_000 };
            assert_eq!(options(&unsupported_by_chat_completions(&wish)).is_empty(), taken, "{name} {stops}");
            assert_eq!(options(&unsupported_by_responses(&wish)), ["stop"], "{name}");
        }
    }

    #[test]
    fn max_tokens_is_limited_by_the_model() {
        for (name, most) in [
            ("gpt-3.5-turbo-0125", Some(4_096)),
            ("gpt-4", Some(8_192)),
            ("gpt-4-0613", Some(8_192)),
            ("gpt-4-turbo-2024-04-09", Some(4_096)),
            ("gpt-4-1106-preview", Some(4_096)),
            ("gpt-4-32k", None),
            ("gpt-4o", Some(16_384)),
            ("gpt-4o-2024-05-13", Some(4_096)),
            ("gpt-4o-mini-2024-07-18", Some(16_384)),
            ("ft:gpt-4.1-mini-2025-04-14:acme::x", Some(32_768)),
            ("o1-mini", Some(65_536)),
            ("o3", Some(100_000)),
            ("gpt-5-chat-latest", Some(16_384)),
            ("gpt-5-mini", Some(128_000)),
            ("gpt-5-pro", Some(272_000)),
            ("gpt-5.2-pro", Some(128_000)),
            ("gpt-9-nova", None),
            ("openai/gpt-4o", None),
            ("somebodys-own", None),
        ] {
            let model = asking(name, None, None, 0);
            let refused = |max_tokens| {
                let wish = RequestOptions { model: &model, has_tools: false, max_tokens };
                (options(&unsupported_by_chat_completions(&wish)), options(&unsupported_by_responses(&wish)))
            };
            assert_eq!(refused(most.unwrap_or(1_000_000)), (vec![], vec![]), "{name}");
            let more = most.map(|most| refused(most + 1));
            assert!(more.is_none_or(|more| more == (vec!["max_tokens"], vec!["max_tokens"])), "{name}");
        }
    }

    #[test]
    fn all_unsupported_options_are_reported() {
        let model = asking("gpt-6-astra", Some(Thinking::Off), Some(0.5), 5);
        let wish = RequestOptions { model: &model, has_tools: true, max_tokens: 8_000 };
        assert_eq!(options(&unsupported_by_chat_completions(&wish)), ["temperature", "thinking", "stop"]);
        assert_eq!(options(&unsupported_by_responses(&wish)), ["temperature", "thinking", "stop"]);
    }

    #[test]
    fn a_default_temperature_is_omitted_if_it_could_be_an_error() {
        for (name, word, asked, sent) in [
            ("o3", None, 1.0, None),
            ("gpt-6-luna", Some("none"), 1.0, Some(1.0)),
            ("gpt-6-luna", None, 1.0, None),
            ("gpt-4.1", None, 0.0, Some(0.0)),
            ("openai/gpt-5", None, 1.0, Some(1.0)),
        ] {
            assert_eq!(temperature(&asking(name, None, Some(asked), 0), word), sent, "{name}");
        }
    }
}
