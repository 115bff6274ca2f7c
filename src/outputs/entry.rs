//! An output that a call proposed and that was accepted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::output::KindName;

/// The longest key, in bytes.
pub const MAX_KEY: usize = 100;

/// An accepted output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// Its id in the run: the call's `key`, or the output's name and a number, such as `comment-1`.
    pub id: String,
    /// The output's name in the job.
    pub name: String,
    /// What kind of output it is.
    pub kind: KindName,
    /// The `key` that the model gave, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The number of the issue or pull request that it is for; `None` where the kind has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<u64>,
    /// The call's input without `key` and `number`.
    pub data: Value,
    /// The agent that proposed it.
    pub agent: String,
    /// The call that proposed it.
    pub call_id: String,
}

/// What a call proposed, as its event has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Proposal {
    /// An output that was accepted.
    Accepted(Box<Entry>),
    /// That there is nothing to do, and why.
    NothingToDo(String),
}

/// Whether a text can be a key: 1 to [`MAX_KEY`] of `A-Za-z0-9._/-`.
pub fn is_key(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte);
    !text.is_empty() && text.len() <= MAX_KEY && text.bytes().all(is_allowed)
}
