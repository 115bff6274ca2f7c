//! What a format is, and what it gets.

use std::io::{self, Write};

use crate::error::Error;
use crate::event::PARENT;
use crate::providers::user_servers::UserServers;
use crate::record::Record;
use crate::text::sanitize;

/// A format that a recorded run can be exported to.
pub struct ExportFormat {
    /// Its name on the command line.
    pub name: &'static str,
    /// The options that it has, of those that not all formats have: `--with-content`, `--agent`, `--api`.
    pub options: &'static [&'static str],
    /// Writes the record in this format. Returns what is missing, a sentence each.
    pub write: fn(&Export<'_>, &mut dyn Write) -> Result<Vec<String>, ExportError>,
}

/// What to export.
pub struct Export<'a> {
    /// The record.
    pub record: &'a Record,
    /// Reads an environment variable.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The user's servers.
    pub servers: &'a UserServers,
    /// Whether spans have the contents of messages, calls and results.
    pub with_content: bool,
    /// The agent whose messages are exported.
    pub agent: &'a str,
    /// The API whose messages are written; `None` for the one that the agent used.
    pub api: Option<&'a str>,
}

/// Why an export failed.
#[derive(Debug)]
pub enum ExportError {
    /// The record or an option can't be used.
    Failed(Error),
    /// The output can't be written.
    Output(io::Error),
}

impl From<Error> for ExportError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl<'a> Export<'a> {
    /// An export of a record with the default options.
    pub fn new(record: &'a Record, env: &'a dyn Fn(&str) -> Option<String>, servers: &'a UserServers) -> Self {
        Self { record, env, servers, with_content: false, agent: PARENT, api: None }
    }
}

/// Writes a JSON document or line. What could control a terminal or a CI log is escaped, which doesn't change the JSON's meaning.
pub(super) fn write_json(out: &mut dyn Write, json: &str) -> io::Result<()> {
    out.write_all(sanitize::escape_json(json).as_bytes())?;
    out.write_all(b"\n")
}
