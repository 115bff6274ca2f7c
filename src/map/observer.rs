//! Who watches a map.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::sync::watch;

use super::budget::MapBudget;
use crate::agent::RunGates;
use crate::error::Error;
use crate::event::{CutOffRequests, Outcome, RunResult};
use crate::plan::Plan;
use crate::process::RunDeadline;
use crate::run::{ResumeState, RunObserver, Signals};

/// What is known when the rows of a map are about to start.
pub struct MapStart<'a> {
    /// How many rows run.
    pub rows: usize,
    /// How many of them at once.
    pub jobs: usize,
    /// What all processes of the map use.
    pub budget: &'a Arc<MapBudget>,
    /// The requests of earlier starts that were cut off, and what is reserved in US dollars for those of rows that haven't ended.
    pub cut_off: (CutOffRequests, f64),
    /// When the time of the map is up.
    pub deadline: RunDeadline,
    /// What stops it.
    pub signals: &'a Signals,
}

/// A row that has ended.
pub struct EndedRow<'a> {
    /// Its id.
    pub id: &'a str,
    /// What people call it.
    pub label: Option<&'a str>,
    /// Its result, or why there is none.
    pub result: Result<&'a RunResult, &'a str>,
    /// Whether it counts as a failure.
    pub is_failure: bool,
}

/// Shows what happens in a map. Several threads call it.
pub trait MapObserver: Sync {
    /// The rows are about to start. Returns a value that is false while the readers of the output don't keep up; the agents of all
    /// rows wait then.
    ///
    /// # Errors
    /// Nothing can be shown. No row starts then.
    fn map_started(&self, _start: &MapStart<'_>) -> Result<watch::Receiver<bool>, Error> {
        Ok(RunGates::default().output_ready)
    }

    /// A row starts, or continues from what it has done before. Its events go to what is returned.
    fn row_started(&self, _id: &str, _plan: &Plan, _before: Option<&ResumeState>) -> Option<Arc<dyn RunObserver>> {
        None
    }

    /// The record of a row is complete. Returns warnings.
    fn row_recorded<'a>(&'a self, _record: &'a Path, _outcome: Outcome) -> LocalBoxFuture<'a, Vec<String>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// A row waits until its provider is back. With `limit`, it is the first one, and this is how long it waits at most.
    fn row_waits(&self, _id: &str, _result: &RunResult, _limit: Option<Duration>) {}

    /// A row has ended.
    fn row_ended(&self, _row: &EndedRow<'_>) {}

    /// The user should know this about a row.
    fn warning(&self, _id: &str, _text: &str) {}

    /// No row runs any more.
    fn map_ended(&self) {}
}

/// Shows nothing.
impl MapObserver for () {}
