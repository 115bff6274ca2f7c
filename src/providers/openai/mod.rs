//! OpenAI's models over the Responses API: `POST {base}/responses`, streamed.
//!
//! The form is that of <https://developers.openai.com/api/reference/resources/responses>. Nothing is kept on the server
//! (`store: false`): every request holds the whole conversation. What a model said goes back item by item as it came,
//! its reasoning encrypted (`include: ["reasoning.encrypted_content"]`), so that it goes on thinking from there. Sending
//! back reasoning without that, or without the item that it led to, is an error there, so such reasoning is left out.
//!
//! What `openai-chat` shares with this provider lies here, too: where OpenAI is, its errors, its words for effort, what its models
//! take.

pub(super) mod endpoint;
pub(super) mod error_dialect;
pub(super) mod model_limits;
mod output_item;
mod output_items;
pub(super) mod reasoning_effort;
mod reply;
mod request;
#[cfg(test)]
pub(super) mod tests;
mod text_parts;
mod token_count;
mod usage_estimate;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use self::request::{OpenaiEncoder, RequestDialect};
pub(super) use self::token_count::deserialize_count;
pub(super) use self::usage_estimate::UsageEstimate;
use super::{ConnectContext, Conversation, ConversationConfig, Provider, ProviderError, ProviderSpec};
use crate::message::{BlockContent, Reply};
use crate::providers::transport::http_conversation::{HttpConversation, ProviderState};

/// The longest call id that is sent back: some gateways keep a model's signature in it.
const MAX_CALL_ID_BYTES: usize = 16 << 10;
/// The longest name of a tool that the APIs take back.
const MAX_TOOL_NAME_CHARS: usize = 64;

/// How a job names this provider.
pub const SPEC: ProviderSpec = ProviderSpec {
    name: "openai",
    key_envs: &[endpoint::KEY_ENV],
    default_endpoint: Some(endpoint::DEFAULT_ENDPOINT),
    unsupported_options: model_limits::unsupported_by_responses,
    price_provider: "openai",
    connect,
};

fn connect(connect: &ConnectContext<'_>) -> Result<Arc<dyn Provider>, ProviderError> {
    let (endpoint, patience) = endpoint::connect(connect, "the Responses API", "/responses")?;
    Ok(Arc::new(Openai { shared: Arc::new(ProviderState::new(endpoint, patience, &error_dialect::ERROR_DIALECT)) }))
}

struct Openai {
    shared: Arc<ProviderState>,
}

impl Provider for Openai {
    fn open(&self, setup: ConversationConfig) -> Result<Box<dyn Conversation>, ProviderError> {
        let model = setup.model.name.clone();
        let has_openai_rules = endpoint::has_openai_rules(&self.shared.endpoint);
        let effort = if has_openai_rules {
            reasoning_effort::for_responses(&model, setup.model.thinking)?
        } else {
            reasoning_effort::for_other_server(&model, setup.model.thinking)
        };
        let way = RequestDialect { effort, has_openai_rules };
        HttpConversation::open(&self.shared, model, OpenaiEncoder::new(&setup, way))
    }

    fn warning(&self) -> Option<String> {
        self.shared.endpoint.warning()
    }
}

/// The member `prompt_cache_key` with a comma before it: requests with one key go where the beginning of their prompt is
/// cached (<https://developers.openai.com/api/docs/guides/prompt-caching>). The same for the same agent of the same job in
/// every run, as long as its system prompt and tools are the same.
pub(super) fn cache_key(setup: &ConversationConfig) -> String {
    let mut hash = Sha256::new();
    for part in [&setup.model.name, &setup.agent, &setup.system] {
        hash.update(part);
        hash.update([0]);
    }
    for tool in &setup.tools {
        hash.update(serde_json::to_vec(tool).unwrap_or_default());
    }
    let key: String = hash.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!(r#","prompt_cache_key":"legwork-{key}""#)
}

/// An answer to a call, marked where it failed: OpenAI's APIs have no field for that.
pub(super) fn mark_failure(text: &str, is_error: bool) -> Cow<'_, str> {
    if is_error { Cow::Owned(format!("Error: {text}")) } else { Cow::Borrowed(text) }
}

/// A tool's name as the APIs take it back: what a model makes up need not be of that form.
pub(super) fn tool_name(written: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name: String = written.chars().take(MAX_TOOL_NAME_CHARS).map(|c| if fits(c) { c } else { '_' }).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// Whether an id can go back as it came: some servers want theirs exactly so, whatever its form.
pub(super) fn is_valid_call_id(id: &str) -> bool {
    !id.trim().is_empty() && id.len() <= MAX_CALL_ID_BYTES && !id.contains(char::is_control)
}

/// Gives calls ids of their own where they have none, or one that is in use: servers send none, the same one twice, or
/// count from zero in every reply.
pub(super) fn assign_call_ids(reply: &mut Reply, taken: &HashSet<String>) {
    let mut fresh: HashSet<String> = HashSet::new();
    let mut number = taken.len();
    for block in &mut reply.blocks {
        let BlockContent::Call(call) = &mut block.content else { continue };
        let mut fits = is_valid_call_id(&call.id);
        while !fits || taken.contains(&call.id) || fresh.contains(&call.id) {
            number += 1;
            // Nine letters and digits: the only form that Mistral's API takes.
            call.id = format!("call{number:05}");
            fits = true;
        }
        fresh.insert(call.id.clone());
    }
}
