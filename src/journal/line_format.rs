//! The format of a journal: the file's name, and how a line ends.
//!
//! A line is the JSON of an entry with one or two more fields at its end: a `mac` if the line is sealed (see [`super::seal`]),
//! and a `sum`, the first 16 hexadecimal digits of SHA-256 over the `sum` of the line before (nothing for the first line) and
//! the line without this field.

use std::io;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::seal::{MAC_FIELD, RecordKey, SEAL_FIELD};
use crate::event::{Event, FORMAT, JournalEntry, PARENT};
use crate::text::hex;

const CHECKSUM_FIELD: &str = ",\"sum\":\"";
const CHECKSUM_DIGITS: usize = 16;

/// The path of an agent's journal in the run's folder.
pub fn journal_file(agent: &str) -> String {
    if agent == PARENT { "events.jsonl".to_owned() } else { format!("subagents/{agent}.events.jsonl") }
}

/// Whether lines with this event are sealed: where a run begins or is resumed.
pub(super) fn is_sealed(event: &Event) -> bool {
    matches!(event, Event::RunStarted(_) | Event::Resumed(_))
}

/// Makes the seal of a run from the line with which it ends.
pub(crate) type RunSealer<'a> = &'a dyn Fn(&str) -> String;

/// Formats a line, sealed if it should be and there is a key, with the seal of the whole run at its end. Also returns its checksum.
pub(super) fn encode(
    entry: &JournalEntry,
    previous_sum: &str,
    key: Option<&RecordKey>,
    seal: Option<RunSealer<'_>>,
) -> io::Result<(String, String)> {
    let mut line = entry.to_json()?;
    line.pop(); // the closing brace
    if let Some(key) = key.filter(|_| is_sealed(&entry.event)) {
        let mac = key.mac(previous_sum, &line);
        line.push_str(MAC_FIELD);
        line.push_str(&mac);
        line.push('"');
    }
    if let Some(seal) = seal {
        let seal = seal(&line);
        line.push_str(SEAL_FIELD);
        line.push_str(&seal);
        line.push('"');
    }
    let sum = checksum(previous_sum, &line);
    line.push_str(CHECKSUM_FIELD);
    line.push_str(&sum);
    line.push_str("\"}\n");
    Ok((line, sum))
}

/// Splits a line, without its line feed, into the part before the checksum and the checksum.
pub(super) fn split_checksum(line: &str) -> Option<(&str, &str)> {
    line.strip_suffix("\"}")?.rsplit_once(CHECKSUM_FIELD)
}

/// Splits a line without its checksum into the part before the seal of the run and that seal.
pub(super) fn split_seal(body: &str) -> Option<(&str, &str)> {
    body.strip_suffix('"')?.rsplit_once(SEAL_FIELD)
}

/// The checksum of the last line at the end of a journal; `None` if that line is incomplete.
pub fn last_checksum(tail: &[u8]) -> Option<String> {
    let lines = tail.strip_suffix(b"\n")?;
    let start = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let line = std::str::from_utf8(&lines[start..]).ok()?;
    split_checksum(line).map(|(_, sum)| sum.to_owned())
}

pub(super) fn checksum(previous_sum: &str, line: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(previous_sum);
    hasher.update(line);
    hex(&hasher.finalize()[..CHECKSUM_DIGITS / 2])
}

/// The format and the program version in a run's first line, if the format isn't [`FORMAT`]. This version can't verify
/// anything else in such a line.
pub(super) fn other_format(line: &[u8]) -> Option<(u64, Option<String>)> {
    #[derive(Deserialize)]
    struct Line {
        data: Data,
    }
    #[derive(Deserialize)]
    struct Data {
        format: u64,
        version: Option<String>,
    }
    let Data { format, version } = serde_json::from_slice::<Line>(line).ok()?.data;
    (format != u64::from(FORMAT)).then_some((format, version))
}
