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
mod fault;
mod name;
mod reply;
mod request;
mod taken;
#[cfg(test)]
pub(super) mod tests;
mod thinking;

use std::sync::Arc;

use self::request::Body;
pub(super) use self::thinking::{binds_thinking, is_bound_elsewhere};
use super::dialogue::{Dialogue, Shared};
use super::http::{Endpoint, Names};
use super::retry::Patience;
use super::{Connect, Conversation, Entry, Fault, Home, Provider, Setup};

const NAMES: Names = Names { key: "ANTHROPIC_API_KEY", base: "ANTHROPIC_BASE_URL", api: "the Messages API" };
const HOST: &str = "api.anthropic.com";
const ADDRESS: &str = "https://api.anthropic.com";

/// How a job names this provider.
pub const ENTRY: Entry = Entry {
    name: "anthropic",
    keys: &[NAMES.key],
    home: Some(Home { address: ADDRESS, variable: NAMES.base }),
    untaken: taken::untaken,
    prices: "anthropic",
    connect,
};

fn connect(connect: &Connect<'_>) -> Result<Arc<dyn Provider>, Fault> {
    let key = connect.key(NAMES, true)?;
    let mut endpoint = Endpoint::new(connect, NAMES, ADDRESS, "/v1/messages")?;
    endpoint.header("anthropic-version", "2023-06-01");
    if let Some(key) = key {
        endpoint.secret_header("x-api-key", "", &key);
        if !endpoint.is_at(HOST) && !endpoint.has_credentials() {
            endpoint.secret_header("authorization", "Bearer ", &key);
        }
    }
    let patience = Patience::new(connect.variable, &endpoint)?;
    Ok(Arc::new(Anthropic { shared: Arc::new(Shared::new(endpoint, patience, &fault::MANNERS)) }))
}

struct Anthropic {
    shared: Arc<Shared>,
}

impl Provider for Anthropic {
    fn open(&self, setup: Setup) -> Result<Box<dyn Conversation>, Fault> {
        let model = setup.model.name.clone();
        thinking::check(&model, setup.model.thinking)?;
        Dialogue::open(&self.shared, model, Body::new(setup))
    }

    fn warning(&self) -> Option<String> {
        self.shared.endpoint.warning()
    }
}
