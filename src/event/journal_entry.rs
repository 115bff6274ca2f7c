//! The lines of a journal.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Event;
use super::agent_id::borrowed_agent_id;

/// A line of a journal: one event, with its number, its time and its agent.
#[derive(Debug, Clone)]
pub struct JournalEntry {
    /// Its number in its journal, from 1.
    pub seq: u64,
    /// When it happened.
    pub at: Timestamp,
    /// The agent.
    pub agent: String,
    /// What happened.
    pub event: Event,
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    seq: u64,
    at: Timestamp,
    #[serde(borrow, deserialize_with = "borrowed_agent_id")]
    agent: Cow<'a, str>,
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
        let json = serde_json::to_string(&Line {
            seq: self.seq,
            at: self.at,
            agent: Cow::Borrowed(&self.agent),
            kind: Cow::Borrowed(self.event.kind()),
            data: Cow::Owned(self.event.data()?),
        })?;
        Ok(if json.contains(['\n', '\r']) { json.replace(['\n', '\r'], " ") } else { json })
    }

    /// Parses a line. Its checksum is ignored here.
    ///
    /// # Errors
    /// The line isn't a journal entry.
    pub fn from_json(line: &str) -> serde_json::Result<Self> {
        let line: Line<'_> = serde_json::from_str(line)?;
        Ok(Self {
            seq: line.seq,
            at: line.at,
            agent: line.agent.into_owned(),
            event: Event::parse(&line.kind, &line.data)?,
        })
    }
}
