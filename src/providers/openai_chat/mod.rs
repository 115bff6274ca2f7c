//! Chat Completions, the API of most servers and gateways: `POST {base}/chat/completions`, streamed.
//!
//! The format is that of <https://developers.openai.com/api/reference/resources/chat>. Servers differ, so parsing is
//! lenient (see [`reply`]), and requests contain little that isn't needed:
//! - OpenAI's own endpoints (and Azure's) get `max_completion_tokens`, as their models accept nothing else, and
//!   `prompt_cache_key`; all others get the older `max_tokens`, until one asks for the newer name;
//! - usage is requested (`stream_options`), until a server refuses that;
//! - the API has no field for a failed call, so the text of such a result begins with `Error: `;
//! - reasoning is sent back in the field that it came in, but only together with the calls that it led to: DeepSeek and
//!   others require it there, and some refuse it elsewhere.

mod reasoning;
mod reply;
mod request;
#[cfg(test)]
pub(super) mod tests;
mod tool_calls;

use std::sync::Arc;

use serde_json::Value;

use self::request::{OpenaiChatEncoder, RequestDialect};
use super::api::{Provider, ProviderError};
use super::openai_platform::{self, VENDOR};
use super::spec::{ApiSignature, ConnectContext, ProviderSpec};
use super::transport::http_conversation::HttpProvider;
use super::unsupported_options::ApiLimits;

const API: &str = "the Chat Completions API";

/// How a job names this provider.
pub const SPEC: ProviderSpec = ProviderSpec {
    name: "openai-chat",
    aliases: &[
        "ollama",
        "lmstudio",
        "lm-studio",
        "llama.cpp",
        "llamacpp",
        "vllm",
        "openrouter",
        "litellm",
        "groq",
        "together",
        "mistral",
        "deepseek",
        "xai",
    ],
    alias_help: "write `openai-chat/MODEL` and put the server's address into OPENAI_BASE_URL, or name the server in \
                 providers.toml",
    key_envs: &[openai_platform::KEY_ENV],
    default_endpoint: Some(openai_platform::DEFAULT_ENDPOINT),
    api: Some(ApiSignature { name: API, matches: is_completion }),
    is_common_api: true,
    unsupported_options: |request| LIMITS.unsupported(request),
    takes_gifs: true,
    takes_pdfs: false,
    has_hour_cache: false,
    vendor: VENDOR,
    connect,
};

pub(super) const LIMITS: ApiLimits = ApiLimits {
    vendor: VENDOR,
    api: API,
    max_stop_sequences: Some(4),
    rejects_blank_stop: false,
    holds_for_all: false,
    has_flex_tier: true,
    tools_elsewhere: Some("openai"),
    stop_elsewhere: None,
};

fn is_completion(value: &Value) -> bool {
    let object = value.get("object").and_then(Value::as_str).unwrap_or_default();
    value.get("choices").is_some_and(Value::is_array) || object.starts_with("chat.completion")
}

fn connect(context: &ConnectContext<'_>) -> Result<Arc<dyn Provider>, ProviderError> {
    let state = openai_platform::connect(context, API, "/chat/completions")?;
    Ok(Arc::new(HttpProvider::new(state, |endpoint, config| {
        let has_openai_rules = openai_platform::has_openai_rules(endpoint);
        let effort =
            openai_platform::reasoning_effort(&LIMITS, &config.model, !config.tools.is_empty(), has_openai_rules)?;
        let takes_cache_key = openai_platform::is_official(endpoint);
        Ok(OpenaiChatEncoder::new(config, RequestDialect { effort, has_openai_rules, takes_cache_key }))
    })))
}
