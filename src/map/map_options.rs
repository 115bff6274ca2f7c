//! What the user asks of a map.

use std::collections::HashSet;

use super::engines::Shard;
use super::limits::WholeMapLimits;
use super::manifest::{MapManifest, RowIds};
use super::recorded_row::RetryRows;
use super::rows::{Rows, original_id};
use crate::error::Error;
use crate::isolation::Isolation;
use crate::text::shell_words::quote_word;

/// How many rows are named in a message.
pub(super) const MAX_NAMED: usize = 5;

/// The options of a start of a map.
#[derive(Debug)]
pub struct MapOptions {
    /// The name of the map, which is that of its folder.
    pub name: String,
    /// The rows file as the user named it.
    pub rows_file: String,
    /// Where the ids of the rows come from.
    pub ids: RowIds,
    /// How many rows run at once.
    pub jobs: usize,
    /// What the map may use.
    pub limits: WholeMapLimits,
    /// The rows that run again.
    pub retry: Option<RetryRows>,
    /// After how many failures no more rows start.
    pub max_failures: Option<u32>,
    /// How the rows are kept apart, if the user says so.
    pub isolation: Option<Isolation>,
    /// The part of the rows that this start runs.
    pub shard: Option<Shard>,
}

impl MapOptions {
    /// Whether this start runs the row.
    pub(super) fn is_of_shard(&self, id: &str) -> bool {
        self.shard.is_none_or(|shard| shard.contains(id))
    }

    /// Refuses other ids than before: with them, all rows would run again.
    pub(super) fn check_ids(&self, manifest: &MapManifest) -> Result<(), Error> {
        let (before, help) = match &manifest.ids {
            Some(ids) if *ids != self.ids => match ids {
                RowIds::Digest => ("without --id".to_owned(), "Remove --id".to_owned()),
                RowIds::Column(column) => (format!("with --id {column}"), format!("Add --id {}", quote_word(column))),
            },
            _ => return Ok(()),
        };
        Err(Error::usage(
            format!("the map was started {before}, and with other ids all its rows would run again"),
            format!("{help}, or choose another name for the map with --name NAME."),
        ))
    }

    /// Refuses to retry rows whose earlier records would get the ids of other rows.
    pub(super) fn check_retry(&self, rows: &Rows) -> Result<(), Error> {
        let ids: HashSet<&str> = rows.rows.iter().map(|row| row.id.as_str()).collect();
        let is_taken = |id: &str| original_id(id).is_some_and(|id| ids.contains(id));
        match rows.rows.iter().filter(|_| self.retry.is_some()).find(|row| is_taken(&row.id)) {
            None => Ok(()),
            Some(row) => Err(Error::usage(
                format!("--retry: the earlier record of another row would have the id of the row `{}`", row.id),
                "Give the rows ids without a number after a dot.",
            )),
        }
    }
}

/// The first few ids of rows, for a message.
pub(super) fn first_names(ids: &[String]) -> String {
    let named = ids.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if ids.len() > MAX_NAMED { format!("{named}, ...") } else { named }
}
