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

mod call;
mod reply;
mod request;
#[cfg(test)]
pub(super) mod tests;
mod thoughts;

use std::sync::Arc;

use self::request::{Body, Way};
use super::dialogue::{Dialogue, Shared};
use super::openai::{effort, endpoint, fault, taken};
use super::{Connect, Conversation, Entry, Fault, Provider, Setup};

/// How a job names this provider.
pub const ENTRY: Entry = Entry {
    name: "openai-chat",
    keys: &[endpoint::KEY],
    home: Some(endpoint::HOME),
    untaken: taken::over_chat,
    prices: "openai",
    connect,
};

fn connect(connect: &Connect<'_>) -> Result<Arc<dyn Provider>, Fault> {
    let (endpoint, patience) = endpoint::connect(connect, "the Chat Completions API", "/chat/completions")?;
    Ok(Arc::new(OpenaiChat { shared: Arc::new(Shared::new(endpoint, patience, &fault::MANNERS)) }))
}

struct OpenaiChat {
    shared: Arc<Shared>,
}

impl Provider for OpenaiChat {
    fn open(&self, setup: Setup) -> Result<Box<dyn Conversation>, Fault> {
        let model = setup.model.name.clone();
        let has_openai_rules = endpoint::has_openai_rules(&self.shared.endpoint);
        let effort = if has_openai_rules {
            effort::over_chat(&model, setup.model.thinking, !setup.tools.is_empty())?
        } else {
            effort::elsewhere(&model, setup.model.thinking)
        };
        let way = Way { effort, has_openai_rules, takes_cache_key: endpoint::is_official(&self.shared.endpoint) };
        Dialogue::open(&self.shared, model, Body::new(&setup, way))
    }

    fn warning(&self) -> Option<String> {
        self.shared.endpoint.warning()
    }
}
