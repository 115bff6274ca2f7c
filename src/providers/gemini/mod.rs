//! Google's models over the Gemini API: `POST {base}/v1beta/models/MODEL:streamGenerateContent?alt=sse`, the key in
//! `x-goog-api-key`.
//!
//! The format is that of <https://ai.google.dev/api/generate-content>. The variables are those of Google's own clients
//! (the package google-genai, 3.4): `GOOGLE_API_KEY` takes precedence over `GEMINI_API_KEY`, and
//! `GOOGLE_GEMINI_BASE_URL` is another address. The parts of a reply are sent back unchanged, with the signatures of
//! its thoughts. Gemini 3 and later refuse calls without these
//! (<https://ai.google.dev/gemini-api/docs/thought-signatures>).

mod encode_reply;
mod parts;
mod reply;
mod request;
#[cfg(test)]
pub(super) mod tests;
mod thinking;

use std::sync::Arc;

use serde_json::Value;

use self::request::{GeminiEncoder, VENDOR};
use super::api::{Provider, ProviderError};
use super::env_config::EndpointNames;
use super::errors::api_error::{ClassRow, ErrorClass, ErrorDialect};
use super::spec::{ApiSignature, ConnectContext, DefaultEndpoint, ProviderSpec};
use super::transport::endpoint::Endpoint;
use super::transport::http_conversation::{HttpProvider, ProviderState};
use super::transport::retry::RetryPolicy;
use super::unsupported_options::{ApiLimits, RequestOptions};

const HOST: &str = "generativelanguage.googleapis.com";
const BASE_URL: &str = "https://generativelanguage.googleapis.com";
const KEY_ENV: &str = "GEMINI_API_KEY";
/// The older key variable, which other Google services use, too.
const GOOGLE_KEY_ENV: &str = "GOOGLE_API_KEY";
const BASE_URL_ENV: &str = "GOOGLE_GEMINI_BASE_URL";
const API: &str = "the Gemini API";

/// How a job names this provider.
pub const SPEC: ProviderSpec = ProviderSpec {
    name: "gemini",
    aliases: &["google", "googleai", "google-ai", "ai-studio"],
    alias_help: "Google's models are `gemini/MODEL`",
    key_envs: &[KEY_ENV, GOOGLE_KEY_ENV],
    default_endpoint: Some(DefaultEndpoint { base_url: BASE_URL, base_url_env: BASE_URL_ENV }),
    api: Some(ApiSignature { name: API, matches: is_response }),
    is_common_api: false,
    unsupported_options: |request| LIMITS.unsupported(request),
    // <https://ai.google.dev/gemini-api/docs/image-understanding>
    takes_gifs: false,
    takes_pdfs: true,
    has_hour_cache: false,
    vendor: VENDOR,
    connect,
};

pub(super) const LIMITS: ApiLimits = ApiLimits {
    vendor: VENDOR,
    api: API,
    max_stop_sequences: Some(5),
    rejects_blank_stop: false,
    holds_for_all: true,
    has_flex_tier: true,
    tools_elsewhere: None,
    stop_elsewhere: None,
};

/// <https://ai.google.dev/gemini-api/docs/troubleshooting>. The size of the payload is that of the whole body in bytes.
pub(super) const ERROR_DIALECT: ErrorDialect = ErrorDialect {
    statuses: &[],
    classes: &[
        ClassRow {
            statuses: &[400],
            codes: &["API_KEY_INVALID"],
            phrases: &[&["api key not valid"], &["api key expired"], &["api key not found"]],
            class: ErrorClass::InvalidKey,
        },
        ClassRow { statuses: &[400], codes: &[], phrases: &[&["enable billing"]], class: ErrorClass::BillingExhausted },
        ClassRow {
            statuses: &[400],
            codes: &[],
            phrases: &[&["request payload size exceeds"]],
            class: ErrorClass::ContextFull,
        },
        ClassRow {
            statuses: &[429],
            codes: &[],
            phrases: &[&["credits are depleted"], &["spending cap"], &["spend cap"]],
            class: ErrorClass::BillingExhausted,
        },
    ],
};
static DIALECT: ErrorDialect = ERROR_DIALECT;

fn is_response(value: &Value) -> bool {
    ["candidates", "promptFeedback", "usageMetadata"].iter().any(|key| value.get(key).is_some())
}

fn connect(context: &ConnectContext<'_>) -> Result<Arc<dyn Provider>, ProviderError> {
    let key_of = |name| (context.env)(name).filter(|key| !key.is_empty());
    let (google, gemini) = (key_of(GOOGLE_KEY_ENV), key_of(KEY_ENV));
    let key_env = if google.is_some() { GOOGLE_KEY_ENV } else { KEY_ENV };
    let names = EndpointNames { key_env, base_url_env: BASE_URL_ENV, api: API };
    let mut endpoint = Endpoint::new(context, names, BASE_URL, "/v1beta/models")?;
    if let Some(key) = context.resolve_key(names, endpoint.has_host(HOST))? {
        endpoint.key_header("x-goog-api-key", "", &key);
    }
    if context.takes_key_from_env() && google.is_some() && gemini.is_some() && google != gemini {
        let both = format!("{GOOGLE_KEY_ENV} and {KEY_ENV} are both set");
        endpoint.set_notice(format!("{both}: {GOOGLE_KEY_ENV} is used, as Google's own clients do"));
    }
    let retry_policy = RetryPolicy::new(context, endpoint.identity())?;
    let provider = HttpProvider::new(ProviderState::new(endpoint, retry_policy, &DIALECT), |endpoint, config| {
        if endpoint.has_host(HOST) {
            // The maximum reply length differs from request to request.
            let request = RequestOptions { model: &config.model, has_tools: false, max_tokens: u32::MAX };
            let is_of_request = |option: &str| option == "max_tokens";
            if let Some(problem) = LIMITS.unsupported(&request).into_iter().find(|it| !is_of_request(it.option)) {
                return Err(problem.into());
            }
        }
        Ok(GeminiEncoder::new(config))
    });
    Ok(Arc::new(provider.with_model_addresses(|model| {
        let name = model.name.strip_prefix("models/").unwrap_or(&model.name);
        (format!("{name}:streamGenerateContent"), Some(("alt", "sse")))
    })))
}
