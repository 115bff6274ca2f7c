//! The lines of a journal, and the ids of agents, which are also file names in a record.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::{Event, PARENT};

/// A line of a journal: one event, with its number, its time and its agent.
#[derive(Debug, Clone)]
pub struct JournalEntry {
    /// Its number in its journal, from 1.
    pub seq: u64,
    /// When it happened.
    pub at: Timestamp,
    /// For how long this part of the run couldn't run before it, because the process was stopped or the machine slept.
    pub suspended_ms: u64,
    /// The agent.
    pub agent: String,
    /// What happened.
    pub event: Event,
}

#[derive(Serialize)]
struct LineRef<'a> {
    seq: u64,
    at: Timestamp,
    #[serde(skip_serializing_if = "is_zero")]
    suspended_ms: u64,
    agent: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    data: EventData<'a>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The data of an event, without its type.
struct EventData<'a>(&'a Event);

impl Serialize for EventData<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize_data(serializer)
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    seq: u64,
    at: Timestamp,
    #[serde(default)]
    suspended_ms: u64,
    #[serde(deserialize_with = "agent_id")]
    agent: String,
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    data: Cow<'a, RawValue>,
}

impl JournalEntry {
    /// Formats one line of JSON without a line end. Line ends within the raw JSON of a reply become spaces.
    ///
    /// # Errors
    /// A value can't be written as JSON.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let Self { seq, at, suspended_ms, ref agent, ref event } = *self;
        let line = LineRef { seq, at, suspended_ms, agent, kind: event.kind(), data: EventData(event) };
        let json = serde_json::to_string(&line)?;
        let has_line_end = memchr::memchr2(b'\n', b'\r', json.as_bytes()).is_some();
        Ok(if has_line_end { json.replace(['\n', '\r'], " ") } else { json })
    }

    /// Parses a line. Its checksum is ignored here.
    ///
    /// # Errors
    /// The line isn't a journal entry.
    pub fn from_json(line: &str) -> serde_json::Result<Self> {
        let line: Line<'_> = serde_json::from_str(line)?;
        let event = Event::parse(&line.kind, &line.data)?;
        Ok(Self { seq: line.seq, at: line.at, suspended_ms: line.suspended_ms, agent: line.agent, event })
    }
}

/// The longest name of a subagent with its number, in bytes.
const MAX_LENGTH: usize = 64 + 21;

/// Whether a text is an agent's id: `parent`, or a subagent's name and number such as `explorer-1`.
pub fn is_agent_id(text: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    let is_number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_subagent = || text.rsplit_once('-').is_some_and(|(name, number)| is_name(name) && is_number(number));
    text == PARENT || (text.len() <= MAX_LENGTH && is_subagent())
}

pub(super) fn agent_id<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    let id = String::deserialize(input)?;
    if is_agent_id(&id) {
        Ok(id)
    } else {
        Err(D::Error::custom(format!("`{}` is not an agent's id", id.escape_debug())))
    }
}

pub(super) fn optional_agent_id<'de, D: Deserializer<'de>>(input: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    struct AgentId(#[serde(deserialize_with = "agent_id")] String);
    Ok(Option::<AgentId>::deserialize(input)?.map(|AgentId(id)| id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_safe_file_names() {
        for good in ["parent", "explorer-1", "a-b-12", "0-0"] {
            assert!(is_agent_id(good), "{good}");
        }
        for bad in ["", "explorer", "-1", "a-", "../evil-1", "a/b-1", "A-1", "a-1\0", "a\n-1", "a.b-1"] {
            assert!(!is_agent_id(bad), "{bad:?}");
        }
        assert!(!is_agent_id(&format!("{}-1", "a".repeat(100))));
    }
}
