//! A line of a journal.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Event;
use super::agent_id::borrowed_agent_id;

/// One event with its circumstances: a line of a journal.
#[derive(Debug, Clone)]
pub struct JournalEntry {
    /// Number in its journal, from 1.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// Whose.
    pub agent: String,
    /// What.
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
    /// One line of JSON without a line end. Raw JSON that a reply holds may have line ends between its parts: a space
    /// stands for each.
    ///
    /// # Errors
    /// Where a value can't be written as JSON.
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

    /// Reads a line back; a checksum beside the fields is ignored here.
    ///
    /// # Errors
    /// Where the line isn't one of [`Entry::to_json`]'s.
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
