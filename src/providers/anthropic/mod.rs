//! Claude, and other servers with the Messages API: `POST /v1/messages`.
//!
//! Requests carry `anthropic-version: 2023-06-01`. The newest version, 2026-10-21, removes `temperature`, `top_p`,
//! `top_k`, documents in assistant messages and citations in user messages
//! (<https://platform.claude.com/docs/en/api/migration-2026-10-21>). Jobs may set `temperature` for models before
//! Claude 4.7, which works only with the older version. It is also the version that gateways and compatible servers
//! speak (Bedrock has the newer one only for Claude 4.7 and later,
//! <https://platform.claude.com/docs/en/api/versioning>). The API accepts a key in `x-api-key` or as
//! `Authorization: Bearer`, which its official clients use from version 2.0 on. Some compatible servers (such as
//! MiniMax's) accept only the latter, so endpoints other than Anthropic's own get both.

mod block;
mod reply;
mod request;
#[cfg(test)]
pub(super) mod tests;
mod thinking;

use std::sync::Arc;

use serde_json::Value;

use self::request::AnthropicEncoder;
use self::thinking::VENDOR;
use super::api::{ConversationConfig, Provider, ProviderError};
use super::env_config::EndpointNames;
use super::errors::api_error::{ClassRow, ErrorClass, ErrorDialect};
use super::spec::{ApiSignature, ConnectContext, DefaultEndpoint, ProviderSpec};
use super::transport::endpoint::Endpoint;
use super::transport::http_conversation::{HttpProvider, ProviderState};
use super::transport::retry::RetryPolicy;
use super::unsupported_options::ApiLimits;

const NAMES: EndpointNames =
    EndpointNames { key_env: "ANTHROPIC_API_KEY", base_url_env: "ANTHROPIC_BASE_URL", api: "the Messages API" };
/// The variable with a token that is sent as a bearer token only, as Anthropic's own clients do.
const AUTH_TOKEN_ENV: &str = "ANTHROPIC_AUTH_TOKEN";
const HOST: &str = "api.anthropic.com";
/// The end of the address of Claude on Vertex AI. A model and `:streamRawPredict` follow it.
const VERTEX_PATH: &str = "/publishers/anthropic/models";
const BASE_URL: &str = "https://api.anthropic.com";

/// How a job names this provider.
pub const SPEC: ProviderSpec = ProviderSpec {
    name: "anthropic",
    aliases: &["claude"],
    alias_help: "Claude is `anthropic/MODEL`",
    key_envs: &[NAMES.key_env, AUTH_TOKEN_ENV],
    default_endpoint: Some(DefaultEndpoint { base_url: BASE_URL, base_url_env: NAMES.base_url_env }),
    api: Some(ApiSignature { name: NAMES.api, matches: is_message }),
    is_common_api: false,
    unsupported_options: |request| LIMITS.unsupported(request),
    takes_gifs: true,
    takes_pdfs: true,
    // <https://platform.claude.com/docs/en/build-with-claude/prompt-caching>
    has_hour_cache: true,
    vendor: VENDOR,
    connect,
};

const LIMITS: ApiLimits = ApiLimits {
    vendor: VENDOR,
    api: NAMES.api,
    max_stop_sequences: None,
    rejects_blank_stop: true,
    holds_for_all: false,
    has_flex_tier: false,
    tools_elsewhere: None,
    stop_elsewhere: None,
};

/// <https://platform.claude.com/docs/en/api/errors>.
static ERROR_DIALECT: ErrorDialect = ErrorDialect {
    statuses: &[("billing_error", 402), ("request_too_large", 413), ("timeout_error", 504), ("overloaded_error", 529)],
    classes: &[ClassRow {
        statuses: &[],
        codes: &["enforced_spend_limit_reached"],
        phrases: &[],
        class: ErrorClass::BillingExhausted,
    }],
};

fn is_message(value: &Value) -> bool {
    match value.get("type").and_then(Value::as_str) {
        Some("message") => value.get("content").is_some_and(Value::is_array),
        Some("message_start") => value.get("message").is_some_and(Value::is_object),
        _ => false,
    }
}

fn connect(context: &ConnectContext<'_>) -> Result<Arc<dyn Provider>, ProviderError> {
    let value_of = |name| (context.env)(name).filter(|value| !value.is_empty());
    let token = value_of(AUTH_TOKEN_ENV).filter(|_| context.takes_key_from_env());
    let names = EndpointNames { key_env: if token.is_some() { AUTH_TOKEN_ENV } else { NAMES.key_env }, ..NAMES };
    let key = context.resolve_key(names, true)?;
    let is_vertex = context.server.is_some_and(|server| is_vertex(&server.base_url));
    let path = if is_vertex { VERTEX_PATH } else { "/v1/messages" };
    let mut endpoint = Endpoint::new(context, names, BASE_URL, path)?;
    if token.as_ref().zip(value_of(NAMES.key_env)).is_some_and(|(token, key)| *token != key) {
        let both = format!("{AUTH_TOKEN_ENV} and {} are both set", NAMES.key_env);
        endpoint.set_notice(format!("{both}: {AUTH_TOKEN_ENV} is used"));
    }
    if !is_vertex {
        endpoint.header("anthropic-version", "2023-06-01");
    }
    if let Some(key) = key {
        if token.is_none() && !is_vertex {
            endpoint.key_header("x-api-key", "", &key);
        }
        if endpoint.has_credentials() && token.is_some() {
            endpoint.unsent_key(&key);
        } else if token.is_some() || !endpoint.has_host(HOST) && !endpoint.has_credentials() {
            endpoint.key_header("authorization", "Bearer ", &key);
        }
    }
    let retry_policy = RetryPolicy::new(context, endpoint.identity())?;
    let state = ProviderState::new(endpoint, retry_policy, &ERROR_DIALECT);
    if is_vertex {
        let provider = HttpProvider::new(state, |_, config| new_encoder(config, true));
        return Ok(Arc::new(provider.with_model_addresses(|model| (format!("{}:streamRawPredict", model.name), None))));
    }
    Ok(Arc::new(HttpProvider::new(state, |_, config| new_encoder(config, false))))
}

fn new_encoder(config: &ConversationConfig, is_vertex: bool) -> Result<AnthropicEncoder, ProviderError> {
    LIMITS.check_thinking(&config.model, !config.tools.is_empty())?;
    Ok(AnthropicEncoder::new(config, is_vertex))
}

/// Whether this is the address of Claude on Vertex AI: `https://.../publishers/anthropic/models`.
fn is_vertex(base_url: &str) -> bool {
    base_url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/').ends_with(VERTEX_PATH)
}
