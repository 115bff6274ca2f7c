//! Git commands for snapshots and worktrees, and what they print.

use std::io;
use std::process::{Command, Output};

use super::error::IsolationError;
use crate::git::program;

/// How many of the last lines of what a failed git command prints are reported. The reason is often not in the last one.
const REPORTED_LINES: usize = 4;

/// Runs a git command and returns what it prints.
pub(super) fn run(command: Command, name: &'static str) -> Result<Vec<u8>, IsolationError> {
    let output = program::run(command).map_err(git_error(name))?;
    if output.status.success() { Ok(output.stdout) } else { Err(failure(&output, name)) }
}

/// An error that isn't from git itself.
pub(super) fn git_error(name: &'static str) -> impl Fn(io::Error) -> IsolationError {
    move |error| IsolationError::Git { command: name, message: error.to_string() }
}

/// Why a git command has failed.
fn failure(output: &Output, name: &'static str) -> IsolationError {
    let printed = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(REPORTED_LINES)..].join("; ").replace(":; ", ": ");
    let message = if last.is_empty() { "it printed nothing".to_owned() } else { last };
    IsolationError::Git { command: name, message }
}

/// An entry of `ls-files -v -s -z`: its tag, its mode, its object and its path.
pub(super) type ListedEntry<'a> = (u8, &'a [u8], &'a [u8], &'a [u8]);

fn parse_entry(entry: &[u8]) -> Option<ListedEntry<'_>> {
    let entry = entry.strip_suffix(b"\0").unwrap_or(entry);
    let tab = entry.iter().position(|byte| *byte == b'\t')?;
    let mut words = entry[..tab].split(|byte| *byte == b' ');
    let (tag, mode, object) = (words.next()?, words.next()?, words.next()?);
    Some((*tag.first()?, mode, object, &entry[tab + 1..]))
}

pub(super) fn parse_entries(listing: &[u8]) -> impl Iterator<Item = ListedEntry<'_>> {
    listing.split_inclusive(|byte| *byte == 0).filter_map(parse_entry)
}
