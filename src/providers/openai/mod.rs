//! OpenAI's models over the Responses API: `POST {base}/responses`, streamed.
//!
//! The form is that of <https://developers.openai.com/api/reference/resources/responses>. Nothing is kept on the server
//! (`store: false`): every request holds the whole conversation. What a model said goes back item by item as it came,
//! its reasoning encrypted (`include: ["reasoning.encrypted_content"]`), so that it goes on thinking from there. Sending
//! back reasoning without that, or without the item that it led to, is an error there, so such reasoning is left out.
//!
//! What `openai-chat` shares with this provider lies here, too: where OpenAI is, its errors, its words for effort, what its models
//! take.

mod count;
pub(super) mod effort;
pub(super) mod endpoint;
mod estimate;
pub(super) mod fault;
mod heard;
mod item;
mod items;
mod reply;
mod request;
pub(super) mod taken;
#[cfg(test)]
pub(super) mod tests;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use sha2::{Digest, Sha256};

pub(super) use self::count::count;
pub(super) use self::estimate::Estimate;
use self::request::{Body, Way};
use super::dialogue::{Dialogue, Shared};
use super::{Connect, Conversation, Entry, Fault, Provider, Setup};
use crate::message::{Reply, View};

/// The longest call id that is sent back: some gateways keep a model's signature in it.
const LONGEST_ID: usize = 16 << 10;
/// The longest name of a tool that the APIs take back.
const LONGEST_NAME: usize = 64;

/// How a job names this provider.
pub const ENTRY: Entry = Entry {
    name: "openai",
    keys: &[endpoint::KEY],
    home: Some(endpoint::HOME),
    untaken: taken::over_responses,
    prices: "openai",
    connect,
};

fn connect(connect: &Connect<'_>) -> Result<Arc<dyn Provider>, Fault> {
    let (endpoint, patience) = endpoint::connect(connect, "the Responses API", "/responses")?;
    Ok(Arc::new(Openai { shared: Arc::new(Shared::new(endpoint, patience, &fault::MANNERS)) }))
}

struct Openai {
    shared: Arc<Shared>,
}

impl Provider for Openai {
    fn open(&self, setup: Setup) -> Result<Box<dyn Conversation>, Fault> {
        let model = setup.model.name.clone();
        let has_openai_rules = endpoint::has_openai_rules(&self.shared.endpoint);
        let effort = if has_openai_rules {
            effort::of_openai(&model, setup.model.thinking)?
        } else {
            effort::elsewhere(&model, setup.model.thinking)
        };
        let way = Way { effort, has_openai_rules };
        Dialogue::open(&self.shared, model, Body::new(&setup, way))
    }

    fn warning(&self) -> Option<String> {
        self.shared.endpoint.warning()
    }
}

/// The member `prompt_cache_key` with a comma before it: requests with one key go where the beginning of their prompt is
/// cached (<https://developers.openai.com/api/docs/guides/prompt-caching>). The same for the same agent of the same job in
/// every run, as long as its system prompt and tools are the same.
pub(super) fn cache_key(setup: &Setup) -> String {
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
pub(super) fn failed(text: &str, is_error: bool) -> Cow<'_, str> {
    if is_error { Cow::Owned(format!("Error: {text}")) } else { Cow::Borrowed(text) }
}

/// A tool's name as the APIs take it back: what a model makes up need not be of that form.
pub(super) fn tool_name(written: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name: String = written.chars().take(LONGEST_NAME).map(|c| if fits(c) { c } else { '_' }).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// Whether an id can go back as it came: some servers want theirs exactly so, whatever its form.
pub(super) fn is_id(id: &str) -> bool {
    !id.trim().is_empty() && id.len() <= LONGEST_ID && !id.contains(char::is_control)
}

/// Gives calls ids of their own where they have none, or one that is in use: servers send none, the same one twice, or
/// count from zero in every reply.
pub(super) fn name_calls(reply: &mut Reply, taken: &HashSet<String>) {
    let mut fresh: HashSet<String> = HashSet::new();
    let mut number = taken.len();
    for block in &mut reply.blocks {
        let View::Call(call) = &mut block.view else { continue };
        let mut fits = is_id(&call.id);
        while !fits || taken.contains(&call.id) || fresh.contains(&call.id) {
            number += 1;
            // Nine letters and digits: the only form that Mistral's API takes.
            call.id = format!("call{number:05}");
            fits = true;
        }
        fresh.insert(call.id.clone());
    }
}
