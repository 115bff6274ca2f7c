//! Servers of the user's own, named in `providers.toml` in the user's configuration folder:
//!
//! ```toml
//! [providers.local]
//! api = "openai-chat"                      # a provider of ours that asks servers
//! base_url = "http://127.0.0.1:8080/v1"    # may hold credentials
//! key_env = "LOCAL_API_KEY"                # the variable with the key; without it, none is sent
//! context = 32768                          # the window of its models, or a table with one for each: { qwen3 = 40960 }
//! ```
//!
//! A job says `local/MODEL` then. It can't name an endpoint or a key itself: the file is the machine's, not the job's.

mod parse;
mod redact;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use super::{Model, PROVIDERS, ProviderSpec, ServerInfo, base_url, find};
use crate::diagnostic::{Rule, rule};

pub use self::parse::{ParsedServers, unreadable};

/// What can be wrong with the file, beside what is wrong with any file.
pub const RULES: &[Rule] = &[rule!(Error "api-key-in-file"), rule!(Error "reserved-name")];

/// The file's name in legwork's configuration folder.
pub const FILE_NAME: &str = "providers.toml";

/// The servers that the user's own configuration names, in its order.
#[derive(Debug, Clone, Default)]
pub struct UserServers {
    servers: Arc<[UserServer]>,
    /// Where they are named, or would be, as it is shown to the user.
    file: Option<Arc<str>>,
    /// Names that the file holds, and that are wrong in some way: nothing is said of those who use them.
    invalid_names: Arc<[String]>,
    /// Whether it is so broken that it may hold any name.
    is_unparsable: bool,
    /// Those that a record tells of.
    recorded: Arc<[(String, ServerInfo)]>,
    /// The windows of models at those, by the models' whole names.
    recorded_windows: Arc<[(String, u64)]>,
}

/// How many tokens prompt and reply of a server's models may have together.
#[derive(Debug, Clone, Default)]
struct ContextWindows {
    /// Of any of them.
    all: Option<u64>,
    /// Of single ones.
    models: Vec<(String, u64)>,
}

/// A server of the user's own.
#[derive(Clone)]
pub struct UserServer {
    name: String,
    file: Arc<str>,
    api: &'static str,
    base_url: String,
    key_env: Option<String>,
    context_windows: ContextWindows,
}

impl fmt::Debug for UserServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its address can hold a password.
        f.debug_struct("Server").field("name", &self.name).field("api", &self.api).finish_non_exhaustive()
    }
}

impl UserServer {
    /// Its name, the part before the `/` of a model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that names it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The provider of ours whose API it speaks.
    pub fn api(&self) -> &'static str {
        self.api
    }

    /// Its base address, which can hold credentials.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The variable with its key; `None` where no key is sent.
    pub fn key_env(&self) -> Option<&str> {
        self.key_env.as_deref()
    }

    /// What a model of it says of the server.
    pub fn info(&self) -> ServerInfo {
        let home = find(self.api).and_then(|entry| entry.default_endpoint);
        let is_official = home.is_some_and(|home| base_url::is_on_host_of(&self.base_url, home.base_url));
        ServerInfo { api: self.api.to_owned(), is_official }
    }
}

impl UserServers {
    /// Those that these models of a record were asked at. They can't be asked again by it.
    pub fn recorded<'a>(models: impl Iterator<Item = &'a Model>) -> Self {
        let models: Vec<_> = models.filter_map(|model| Some((model, model.server.clone()?))).collect();
        let windows = models.iter().filter_map(|(model, _)| Some((model.to_string(), model.context?)));
        Self {
            recorded_windows: windows.collect(),
            recorded: models.iter().map(|(model, served)| (model.provider.clone(), served.clone())).collect(),
            ..Self::default()
        }
    }

    /// None yet, where the file would be.
    pub fn empty_in(file: &str) -> Self {
        Self { file: Some(file.into()), ..Self::default() }
    }

    /// Whatever stands in a file that can't be read.
    pub fn unreadable_in(file: &str) -> Self {
        Self { is_unparsable: true, ..Self::empty_in(file) }
    }

    /// The server of that name.
    pub fn get(&self, name: &str) -> Option<&UserServer> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// How the server of that name is spoken to.
    pub fn server_info(&self, name: &str) -> Option<ServerInfo> {
        let recorded = || self.recorded.iter().find(|(known, _)| known == name).map(|(_, served)| served.clone());
        self.get(name).map(UserServer::info).or_else(recorded)
    }

    /// How many tokens prompt and reply of a model at the server of that name may have together, where the file says.
    pub fn context_window(&self, name: &str, model: &str) -> Option<u64> {
        let windows = self.get(name).map(|server| &server.context_windows);
        let own = windows.and_then(|windows| windows.models.iter().find(|(known, _)| known == model));
        let whole = format!("{name}/{model}");
        let recorded = || self.recorded_windows.iter().find(|(known, _)| *known == whole).map(|(_, window)| *window);
        own.map(|(_, window)| *window).or_else(|| windows?.all).or_else(recorded)
    }

    /// Whether the file holds something of that name, or may hold it, that can't be used.
    pub fn is_invalid(&self, name: &str) -> bool {
        self.is_unparsable || self.invalid_names.iter().any(|broken| broken == name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &UserServer> {
        self.servers.iter()
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(UserServer::name)
    }

    /// The variables with their keys.
    pub fn key_envs(&self) -> impl Iterator<Item = &str> {
        self.iter().filter_map(UserServer::key_env)
    }

    /// Where they are named, or would be.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }
}

/// The providers of ours that ask servers: what `api` can be.
fn apis() -> impl Iterator<Item = &'static ProviderSpec> {
    PROVIDERS.iter().filter(|entry| entry.default_endpoint.is_some())
}
