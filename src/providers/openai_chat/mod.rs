//! Chat Completions, which most servers and gateways speak: `POST {base}/chat/completions`, streamed.
//!
//! The form is that of <https://developers.openai.com/api/reference/resources/chat>. Servers differ, so what is read is
//! read generously ([`reply`] says what), and little is sent that isn't needed:
//! - OpenAI's own endpoints (and Azure's) get `max_completion_tokens`, as their models take nothing else, and
//!   `prompt_cache_key`; all others get the older `max_tokens`, until one asks for the newer name;
//! - usage is asked for (`stream_options`), until a server refuses that;
//! - the API has no mark for a call that failed: the text of such an answer begins with `Error: `;
//! - reasoning is sent back in the field that it came in, and only beside the calls that it led to: there DeepSeek's and
//!   others insist on it, elsewhere some refuse it.

mod reasoning;
mod reply;
mod request;
#[cfg(test)]
pub(super) mod tests;
mod tool_calls;

use std::sync::Arc;

use self::request::{OpenaiChatEncoder, RequestDialect};
use super::openai::{endpoint, error_dialect, model_limits, reasoning_effort};
use super::{ConnectContext, Conversation, ConversationConfig, Provider, ProviderError, ProviderSpec};
use crate::providers::transport::http_conversation::{HttpConversation, ProviderState};

/// How a job names this provider.
pub const SPEC: ProviderSpec = ProviderSpec {
    name: "openai-chat",
    key_envs: &[endpoint::KEY_ENV],
    default_endpoint: Some(endpoint::DEFAULT_ENDPOINT),
    unsupported_options: model_limits::unsupported_by_chat_completions,
    price_provider: "openai",
    connect,
};

fn connect(connect: &ConnectContext<'_>) -> Result<Arc<dyn Provider>, ProviderError> {
    let (endpoint, patience) = endpoint::connect(connect, "the Chat Completions API", "/chat/completions")?;
    Ok(Arc::new(OpenaiChat { shared: Arc::new(ProviderState::new(endpoint, patience, &error_dialect::ERROR_DIALECT)) }))
}

struct OpenaiChat {
    shared: Arc<ProviderState>,
}

impl Provider for OpenaiChat {
    fn open(&self, setup: ConversationConfig) -> Result<Box<dyn Conversation>, ProviderError> {
        let model = setup.model.name.clone();
        let has_openai_rules = endpoint::has_openai_rules(&self.shared.endpoint);
        let effort = if has_openai_rules {
            reasoning_effort::for_chat_completions(&model, setup.model.thinking, !setup.tools.is_empty())?
        } else {
            reasoning_effort::for_other_server(&model, setup.model.thinking)
        };
        let way =
            RequestDialect { effort, has_openai_rules, takes_cache_key: endpoint::is_official(&self.shared.endpoint) };
        HttpConversation::open(&self.shared, model, OpenaiChatEncoder::new(&setup, way))
    }

    fn warning(&self) -> Option<String> {
        self.shared.endpoint.warning()
    }
}
