//! OpenAI's models over the Responses API: `POST {base}/responses`, streamed.
//!
//! The format is that of <https://developers.openai.com/api/reference/resources/responses>. Nothing is stored on the
//! server (`store: false`), so every request contains the whole conversation. The items of a reply are sent back
//! unchanged, with encrypted reasoning (`include: ["reasoning.encrypted_content"]`), so that the model continues its
//! train of thought. The API refuses reasoning without the encryption, or without the item that it led to, so such
//! reasoning is left out.

mod output_item;
mod output_items;
mod reply;
mod request;
#[cfg(test)]
pub(super) mod tests;

use std::sync::Arc;

use serde_json::Value;

use self::request::{OpenaiEncoder, RequestDialect};
use super::api::{Provider, ProviderError};
use super::openai_platform::{self, VENDOR};
use super::spec::{ApiSignature, ConnectContext, ProviderSpec};
use super::transport::http_conversation::HttpProvider;
use super::unsupported_options::ApiLimits;

const API: &str = "the Responses API";

/// How a job names this provider.
pub const SPEC: ProviderSpec = ProviderSpec {
    name: "openai",
    aliases: &["chatgpt", "gpt", "openai-responses"],
    alias_help: "OpenAI's models are `openai/MODEL`",
    key_envs: &[openai_platform::KEY_ENV],
    default_endpoint: Some(openai_platform::DEFAULT_ENDPOINT),
    api: Some(ApiSignature { name: API, matches: is_response }),
    is_common_api: false,
    unsupported_options: |request| LIMITS.unsupported(request),
    takes_gifs: true,
    takes_pdfs: true,
    has_hour_cache: false,
    vendor: VENDOR,
    connect,
};

/// The API has no parameter for stop sequences.
pub(super) const LIMITS: ApiLimits = ApiLimits {
    vendor: VENDOR,
    api: API,
    max_stop_sequences: Some(0),
    rejects_blank_stop: false,
    holds_for_all: true,
    has_flex_tier: true,
    tools_elsewhere: None,
    stop_elsewhere: Some("openai-chat"),
};

fn is_response(value: &Value) -> bool {
    let text = |key| value.get(key).and_then(Value::as_str).unwrap_or_default();
    text("object") == "response" || text("type").starts_with("response.")
}

fn connect(context: &ConnectContext<'_>) -> Result<Arc<dyn Provider>, ProviderError> {
    let state = openai_platform::connect(context, API, "/responses")?;
    Ok(Arc::new(HttpProvider::new(state, |endpoint, config| {
        let has_openai_rules = openai_platform::has_openai_rules(endpoint);
        let effort =
            openai_platform::reasoning_effort(&LIMITS, &config.model, !config.tools.is_empty(), has_openai_rules)?;
        Ok(OpenaiEncoder::new(config, RequestDialect { effort, has_openai_rules }))
    })))
}
