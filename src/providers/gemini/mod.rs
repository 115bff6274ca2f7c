//! Google's models over the Gemini API: `POST {base}/v1beta/models/MODEL:streamGenerateContent?alt=sse`, the key in
//! `x-goog-api-key`.
//!
//! The form is that of <https://ai.google.dev/api/generate-content>. The variables are those of Google's own clients (the
//! package google-genai, 3.4): `GOOGLE_API_KEY` goes before `GEMINI_API_KEY`, and `GOOGLE_GEMINI_BASE_URL` is another address.
//! What a model said goes back part by part as it came, signatures of its thoughts included; Gemini 3 and later refuse
//! calls without (<https://ai.google.dev/gemini-api/docs/thought-signatures>).

mod ability;
mod fault;
mod history;
mod part;
mod reply;
mod request;
#[cfg(test)]
pub(super) mod tests;

use std::sync::Arc;

use self::ability::Ability;
use self::request::Body;
use super::dialogue::{Dialogue, Learned, Shared};
use super::http::{Endpoint, Names};
use super::retry::Patience;
use super::{Connect, Conversation, Entry, Fault, Home, Model, Provider, Setup, Untaken, Wish};

const HOST: &str = "generativelanguage.googleapis.com";
const ADDRESS: &str = "https://generativelanguage.googleapis.com";
const KEY: &str = "GEMINI_API_KEY";
/// Older, and shared with other services of Google's.
const FIRST_KEY: &str = "GOOGLE_API_KEY";
const BASE: &str = "GOOGLE_GEMINI_BASE_URL";
/// The most that the API takes.
const MOST_STOPS: usize = 5;

/// How a job names this provider.
pub const ENTRY: Entry = Entry {
    name: "gemini",
    keys: &[KEY, FIRST_KEY],
    home: Some(Home { address: ADDRESS, variable: BASE }),
    untaken,
    prices: "google",
    connect,
};

fn untaken(wish: &Wish<'_>) -> Vec<Untaken> {
    let mut untaken = of_model(wish.model);
    let ability = Ability::of(&wish.model.name);
    if untaken.is_empty() && ability.has_no_room(wish.model.thinking, wish.max_tokens) {
        let why =
            format!("{} thinks within `max_tokens`, and {} are too few for that", wish.model.name, wish.max_tokens);
        untaken.push(Untaken::new("thinking", why, "give the agent more `max_tokens`, or leave `thinking` out"));
    }
    untaken.extend(Untaken::too_long(wish, ability.longest_reply));
    untaken
}

fn of_model(model: &Model) -> Vec<Untaken> {
    let ability = Ability::of(&model.name);
    let mut untaken = Vec::new();
    if let Err(why) = ability.check(&model.name, model.thinking) {
        untaken.push(Untaken::new("thinking", why, "leave it out, or name another model"));
    }
    // 1 is every model's own.
    if model.temperature.is_some_and(|temperature| temperature != 1.0) && ability.ignores_temperature {
        let why = format!("{} ignores `temperature`", model.name);
        untaken.push(Untaken::new("temperature", why, "remove it, or name another model"));
    }
    if model.stop.len() > MOST_STOPS {
        let why = format!("the Gemini API takes at most {MOST_STOPS} texts as `stop`");
        untaken.push(Untaken::new("stop", why, format!("keep {MOST_STOPS} of these {}", model.stop.len())));
    }
    untaken
}

fn connect(connect: &Connect<'_>) -> Result<Arc<dyn Provider>, Fault> {
    let is_set = |name| (connect.variable)(name).is_some_and(|key| !key.is_empty());
    let key = if is_set(FIRST_KEY) { FIRST_KEY } else { KEY };
    let names = Names { key, base: BASE, api: "the Gemini API" };
    let mut endpoint = Endpoint::new(connect, names, ADDRESS, "/v1beta/models")?;
    if let Some(key) = connect.key(names, endpoint.is_at(HOST))? {
        endpoint.secret_header("x-goog-api-key", "", &key);
    }
    let is_ours = connect.server.is_none();
    let has_two =
        is_ours && is_set(FIRST_KEY) && is_set(KEY) && (connect.variable)(FIRST_KEY) != (connect.variable)(KEY);
    let patience = Patience::new(connect.variable, &endpoint)?;
    Ok(Arc::new(Gemini { endpoint, patience, has_two, learned: Arc::default() }))
}

struct Gemini {
    /// The folder of the models.
    endpoint: Endpoint,
    patience: Patience,
    /// Whether there are two keys, and not the same.
    has_two: bool,
    /// Each model has an address of its own; what is learned is for all of them.
    learned: Arc<Learned>,
}

impl Provider for Gemini {
    fn open(&self, setup: Setup) -> Result<Box<dyn Conversation>, Fault> {
        let is_official = self.endpoint.is_at(HOST);
        if let Some(untaken) = of_model(&setup.model).into_iter().next().filter(|_| is_official) {
            return Err(untaken.into());
        }
        let name = setup.model.name.strip_prefix("models/").unwrap_or(&setup.model.name);
        let endpoint = self.endpoint.below(&format!("{name}:streamGenerateContent"), ("alt", "sse"));
        let shared = Shared::new(endpoint, self.patience.clone(), &fault::MANNERS);
        let shared = Shared { learned: Arc::clone(&self.learned), ..shared };
        Dialogue::open(&Arc::new(shared), setup.model.name.clone(), Body::new(&setup))
    }

    fn warning(&self) -> Option<String> {
        let two = || format!("{FIRST_KEY} and {KEY} are both set: {FIRST_KEY} is used, as Google's own clients do");
        self.endpoint.warning().or_else(|| self.has_two.then(two))
    }
}
