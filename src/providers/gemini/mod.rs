//! Google's models over the Gemini API: `POST {base}/v1beta/models/MODEL:streamGenerateContent?alt=sse`, the key in
//! `x-goog-api-key`.
//!
//! The form is that of <https://ai.google.dev/api/generate-content>. The variables are those of Google's own clients (the
//! package google-genai, 3.4): `GOOGLE_API_KEY` goes before `GEMINI_API_KEY`, and `GOOGLE_GEMINI_BASE_URL` is another address.
//! What a model said goes back part by part as it came, signatures of its thoughts included; Gemini 3 and later refuse
//! calls without (<https://ai.google.dev/gemini-api/docs/thought-signatures>).

mod capabilities;
mod encode_reply;
mod error_dialect;
mod parts;
mod reply;
mod request;
#[cfg(test)]
pub(super) mod tests;

use std::sync::Arc;

use self::capabilities::Capabilities;
use self::request::GeminiEncoder;
use super::{
    ConnectContext, Conversation, ConversationConfig, DefaultEndpoint, Model, Provider, ProviderError, ProviderSpec,
    RequestOptions, UnsupportedOption,
};
use crate::providers::env_config::EndpointNames;
use crate::providers::transport::http::Endpoint;
use crate::providers::transport::http_conversation::{HttpConversation, LearnedLimits, ProviderState};
use crate::providers::transport::retry::RetryPolicy;

const HOST: &str = "generativelanguage.googleapis.com";
const BASE_URL: &str = "https://generativelanguage.googleapis.com";
const KEY_ENV: &str = "GEMINI_API_KEY";
/// Older, and shared with other services of Google's.
const GOOGLE_KEY_ENV: &str = "GOOGLE_API_KEY";
const BASE_URL_ENV: &str = "GOOGLE_GEMINI_BASE_URL";
/// The most that the API takes.
const MAX_STOP_SEQUENCES: usize = 5;

/// How a job names this provider.
pub const SPEC: ProviderSpec = ProviderSpec {
    name: "gemini",
    key_envs: &[KEY_ENV, GOOGLE_KEY_ENV],
    default_endpoint: Some(DefaultEndpoint { base_url: BASE_URL, base_url_env: BASE_URL_ENV }),
    unsupported_options,
    price_provider: "google",
    connect,
};

fn unsupported_options(wish: &RequestOptions<'_>) -> Vec<UnsupportedOption> {
    let mut untaken = unsupported_by_model(wish.model);
    let ability = Capabilities::of_model(&wish.model.name);
    if untaken.is_empty() && ability.leaves_no_budget(wish.model.thinking, wish.max_tokens) {
        let why =
            format!("{} thinks within `max_tokens`, and {} are too few for that", wish.model.name, wish.max_tokens);
        untaken.push(UnsupportedOption::new(
            "thinking",
            why,
            "give the agent more `max_tokens`, or leave `thinking` out",
        ));
    }
    untaken.extend(UnsupportedOption::exceeds_reply_limit(wish, ability.max_output_tokens));
    untaken
}

fn unsupported_by_model(model: &Model) -> Vec<UnsupportedOption> {
    let ability = Capabilities::of_model(&model.name);
    let mut untaken = Vec::new();
    if let Err(why) = ability.check_thinking(&model.name, model.thinking) {
        untaken.push(UnsupportedOption::new("thinking", why, "leave it out, or name another model"));
    }
    // 1 is every model's own.
    if model.temperature.is_some_and(|temperature| temperature != 1.0) && ability.ignores_temperature {
        let why = format!("{} ignores `temperature`", model.name);
        untaken.push(UnsupportedOption::new("temperature", why, "remove it, or name another model"));
    }
    if model.stop.len() > MAX_STOP_SEQUENCES {
        let why = format!("the Gemini API takes at most {MAX_STOP_SEQUENCES} texts as `stop`");
        untaken.push(UnsupportedOption::new(
            "stop",
            why,
            format!("keep {MAX_STOP_SEQUENCES} of these {}", model.stop.len()),
        ));
    }
    untaken
}

fn connect(connect: &ConnectContext<'_>) -> Result<Arc<dyn Provider>, ProviderError> {
    let is_set = |name| (connect.env)(name).is_some_and(|key| !key.is_empty());
    let key = if is_set(GOOGLE_KEY_ENV) { GOOGLE_KEY_ENV } else { KEY_ENV };
    let names = EndpointNames { key_env: key, base_url_env: BASE_URL_ENV, api: "the Gemini API" };
    let mut endpoint = Endpoint::new(connect, names, BASE_URL, "/v1beta/models")?;
    if let Some(key) = connect.resolve_key(names, endpoint.has_host(HOST))? {
        endpoint.secret_header("x-goog-api-key", "", &key);
    }
    let is_ours = connect.server.is_none();
    let has_two =
        is_ours && is_set(GOOGLE_KEY_ENV) && is_set(KEY_ENV) && (connect.env)(GOOGLE_KEY_ENV) != (connect.env)(KEY_ENV);
    let patience = RetryPolicy::new(connect.env, &endpoint)?;
    Ok(Arc::new(Gemini { endpoint, retry_policy: patience, has_conflicting_keys: has_two, learned: Arc::default() }))
}

struct Gemini {
    /// The folder of the models.
    endpoint: Endpoint,
    retry_policy: RetryPolicy,
    /// Whether there are two keys, and not the same.
    has_conflicting_keys: bool,
    /// Each model has an address of its own; what is learned is for all of them.
    learned: Arc<LearnedLimits>,
}

impl Provider for Gemini {
    fn open(&self, setup: ConversationConfig) -> Result<Box<dyn Conversation>, ProviderError> {
        let is_official = self.endpoint.has_host(HOST);
        if let Some(untaken) = unsupported_by_model(&setup.model).into_iter().next().filter(|_| is_official) {
            return Err(untaken.into());
        }
        let name = setup.model.name.strip_prefix("models/").unwrap_or(&setup.model.name);
        let endpoint = self.endpoint.child(&format!("{name}:streamGenerateContent"), ("alt", "sse"));
        let shared = ProviderState::new(endpoint, self.retry_policy.clone(), &error_dialect::ERROR_DIALECT);
        let shared = ProviderState { learned: Arc::clone(&self.learned), ..shared };
        HttpConversation::open(&Arc::new(shared), setup.model.name.clone(), GeminiEncoder::new(&setup))
    }

    fn warning(&self) -> Option<String> {
        let two = || {
            format!("{GOOGLE_KEY_ENV} and {KEY_ENV} are both set: {GOOGLE_KEY_ENV} is used, as Google's own clients do")
        };
        self.endpoint.warning().or_else(|| self.has_conflicting_keys.then(two))
    }
}
