//! Claude, and whatever speaks the Messages API: `POST /v1/messages`.
//!
//! We send `anthropic-version: 2023-06-01` with the key in `x-api-key`. The newest version, 2026-10-21, takes away
//! `temperature`, `top_p`, `top_k`, documents in assistant messages and citations in user messages
//! (<https://platform.claude.com/docs/en/api/migration-2026-10-21>). Of these we send `temperature` alone, where a job asks for
//! it and the model takes it, as those before Claude 4.7 do ([`taken`]): only the older version does that. It is also the one
//! that the gateways and compatible servers speak which `ANTHROPIC_BASE_URL` may name (Bedrock has the newer one only for
//! Claude 4.7 and later, <https://platform.claude.com/docs/en/api/versioning>). The API takes a key in
//! `x-api-key` or as `Authorization: Bearer`, as its official clients send it from version 2.0 on. Some compatible servers
//! take only the latter (such as MiniMax's), so an endpoint other than Anthropic's own gets both.

mod block;
mod error_dialect;
mod model_limits;
mod model_name;
mod reply;
mod request;
#[cfg(test)]
pub(super) mod tests;
mod thinking;

use std::sync::Arc;

use self::request::AnthropicEncoder;
pub(super) use self::thinking::{has_prefix_bound_thinking, is_prefix_mismatch};
use super::{ConnectContext, Conversation, ConversationConfig, DefaultEndpoint, Provider, ProviderError, ProviderSpec};
use crate::providers::env_config::EndpointNames;
use crate::providers::transport::http::Endpoint;
use crate::providers::transport::http_conversation::{HttpConversation, ProviderState};
use crate::providers::transport::retry::RetryPolicy;

const NAMES: EndpointNames =
    EndpointNames { key_env: "ANTHROPIC_API_KEY", base_url_env: "ANTHROPIC_BASE_URL", api: "the Messages API" };
const HOST: &str = "api.anthropic.com";
const BASE_URL: &str = "https://api.anthropic.com";

/// How a job names this provider.
pub const SPEC: ProviderSpec = ProviderSpec {
    name: "anthropic",
    key_envs: &[NAMES.key_env],
    default_endpoint: Some(DefaultEndpoint { base_url: BASE_URL, base_url_env: NAMES.base_url_env }),
    unsupported_options: model_limits::unsupported_options,
    price_provider: "anthropic",
    connect,
};

fn connect(connect: &ConnectContext<'_>) -> Result<Arc<dyn Provider>, ProviderError> {
    let key = connect.resolve_key(NAMES, true)?;
    let mut endpoint = Endpoint::new(connect, NAMES, BASE_URL, "/v1/messages")?;
    endpoint.header("anthropic-version", "2023-06-01");
    if let Some(key) = key {
        endpoint.secret_header("x-api-key", "", &key);
        if !endpoint.has_host(HOST) && !endpoint.has_credentials() {
            endpoint.secret_header("authorization", "Bearer ", &key);
        }
    }
    let patience = RetryPolicy::new(connect.env, &endpoint)?;
    Ok(Arc::new(Anthropic { shared: Arc::new(ProviderState::new(endpoint, patience, &error_dialect::ERROR_DIALECT)) }))
}

struct Anthropic {
    shared: Arc<ProviderState>,
}

impl Provider for Anthropic {
    fn open(&self, setup: ConversationConfig) -> Result<Box<dyn Conversation>, ProviderError> {
        let model = setup.model.name.clone();
        thinking::check_supported(&model, setup.model.thinking)?;
        HttpConversation::open(&self.shared, model, AnthropicEncoder::new(setup))
    }

    fn warning(&self) -> Option<String> {
        self.shared.endpoint.warning()
    }
}
