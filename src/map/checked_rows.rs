//! What a start of a map does with each row, from the rows file and the records.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

use super::check_rows::check_rows;
use super::manifest::MapFolder;
use super::map_options::{MapOptions, first_names};
use super::recorded_row::{RecordedRow, RetryRows, RowPlan, recorded_row};
use super::rows::Rows;
use crate::error::{ContinuedBy, Error, Obstacle};
use crate::plan::{InputValues, SharedPrefixes};
use crate::record::has_lease;
use crate::run::{CheckedJob, Host, RunIdentity, run_date};
use crate::text::pluralize;

/// The rows of a shard, by what is to do with them.
pub(super) struct CheckedRows {
    /// The numbers of those that run, in order.
    pub(super) to_run: Vec<usize>,
    /// How many rows are final.
    pub(super) ended: usize,
    /// How many of `to_run` continue.
    pub(super) resumed: usize,
    /// Those of `to_run` that `--retry` runs again, by id, and when they have ended before.
    pub(super) retried: HashMap<String, Timestamp>,
    /// Those of `ended` whose records were made on another machine or with another key.
    pub(super) foreign: Vec<String>,
    /// Those of `ended` in which a killed process has left its lease.
    pub(super) with_lease: Vec<String>,
    /// Why rows can't run, by id: what has the names of their records can't be used.
    pub(super) unusable: BTreeMap<String, String>,
    /// What is wrong with the records of ended rows that can be used anyway, a message each.
    pub(super) defects: Vec<String>,
    /// The plan of the first row that runs, or of the first row.
    pub(super) first: RowPlan,
    /// What the rows that run share.
    pub(super) shared_prefixes: Arc<SharedPrefixes>,
}

impl CheckedRows {
    /// Checks all rows of the file, and finds out what is to do with those of the shard. Nothing is written.
    ///
    /// # Errors
    /// All mistakes of all rows, or the first row that may not continue.
    pub(super) fn check(
        options: &MapOptions,
        rows: &Rows,
        inputs: &mut InputValues,
        folder: &MapFolder,
        job: &CheckedJob,
        host: &Host<'_>,
    ) -> Result<Self, Error> {
        let recorded = folder.recorded_rows().map_err(|source| Error::Record { path: folder.rows(), source })?;
        let recorded: HashSet<String> = recorded.into_iter().collect();
        let key = if recorded.is_empty() { None } else { (host.record_key)(&job.workspace)? };
        let date = run_date((host.clock)());
        let (mut first, mut redactor) = (None, None);
        let mut found = FoundRows::new(options);
        check_rows(inputs, rows, |number, inputs| {
            let id = &rows.rows[number].id;
            let identity = RunIdentity { workspace: &job.workspace, run_id: id, run_date: &date };
            let (plan, secrets) = job.plan(inputs, identity)?;
            let redactor = redactor.get_or_insert_with(|| host.secrets(&plan, &secrets).redactor);
            let prefixes = SharedPrefixes::of_row(&plan);
            if first.is_none() {
                first = Some(RowPlan { plan, secrets });
            }
            if !options.is_of_shard(id) {
                return Ok(());
            }
            let record = folder.row(id);
            let state = match recorded.contains(id) {
                true => recorded_row(job, inputs, id, &record, redactor, key.as_ref()),
                false => Ok(RecordedRow::New),
            };
            if found.add(number, id, &record, state)? {
                found.shared_prefixes.add_row(&prefixes);
            }
            Ok(())
        })?;
        // A rows file has at least one.
        let first = first.ok_or_else(|| Error::usage("the file has no rows", "Write one row for each run."))?;
        found.finish(rows, folder, first, host)
    }
}

/// The rows that were checked so far.
struct FoundRows {
    retry: Option<RetryRows>,
    to_run: Vec<usize>,
    ended: usize,
    resumed: usize,
    /// Those that run again, by the time when they have ended before.
    retried: Vec<(Timestamp, usize)>,
    foreign: Vec<String>,
    with_lease: Vec<String>,
    unusable: BTreeMap<String, String>,
    defects: Vec<String>,
    /// Those that may not continue.
    obstacles: Vec<(String, Obstacle)>,
    shared_prefixes: SharedPrefixes,
}

impl FoundRows {
    fn new(options: &MapOptions) -> Self {
        Self {
            retry: options.retry,
            to_run: Vec::new(),
            ended: 0,
            resumed: 0,
            retried: Vec::new(),
            foreign: Vec::new(),
            with_lease: Vec::new(),
            unusable: BTreeMap::new(),
            defects: Vec::new(),
            obstacles: Vec::new(),
            shared_prefixes: SharedPrefixes::new(options.jobs),
        }
    }

    /// Adds a row by what its record says. Returns whether it runs.
    fn add(
        &mut self,
        number: usize,
        id: &str,
        record: &Path,
        state: Result<RecordedRow, Error>,
    ) -> Result<bool, Error> {
        let is_retried = |exit_code| self.retry.is_some() && RetryRows::applies(exit_code);
        match state {
            // The other rows run anyway.
            Err(error @ Error::NotARecord { .. }) => {
                let advice = "move the record away, and the row starts again";
                self.unusable.insert(id.to_owned(), format!("the row `{id}` can't run: {error}; {advice}"));
                return Ok(false);
            }
            Err(error) => return Err(error),
            Ok(RecordedRow::CannotContinue(obstacle)) => {
                self.obstacles.push((id.to_owned(), obstacle));
                return Ok(false);
            }
            Ok(RecordedRow::Ended { result, .. }) if is_retried(result.exit_code) => {
                self.retried.push((result.finished_at, number));
            }
            Ok(RecordedRow::Ended { is_foreign, defect, .. }) => {
                self.ended += 1;
                self.foreign.extend(is_foreign.then(|| id.to_owned()));
                self.with_lease.extend(has_lease(record).then(|| id.to_owned()));
                self.defects.extend(defect.map(|defect| format!("the row `{id}`: {defect}")));
                return Ok(false);
            }
            Ok(RecordedRow::Unfinished) => {
                self.resumed += 1;
                self.to_run.push(number);
            }
            Ok(RecordedRow::New) => self.to_run.push(number),
        }
        Ok(true)
    }

    fn finish(
        mut self,
        rows: &Rows,
        folder: &MapFolder,
        first: RowPlan,
        host: &Host<'_>,
    ) -> Result<CheckedRows, Error> {
        if self.obstacles.len() > 1 {
            let others: Vec<String> = self.obstacles[1..].iter().map(|(id, _)| id.clone()).collect();
            let more = pluralize(others.len() as u64, "more row");
            (host.warn)(&format!("{more} can't continue, either: {}", first_names(&others)));
        }
        if let Some((id, obstacle)) = self.obstacles.into_iter().next() {
            return Err(Error::CannotContinue { record: folder.row(&id), obstacle, by: ContinuedBy::Row });
        }
        // Otherwise, rows that fail each time could keep all others from being started if the map stops early each time.
        self.retried.sort_unstable();
        self.to_run.extend(self.retried.iter().map(|(_, number)| *number));
        let retried = self.retried.into_iter();
        Ok(CheckedRows {
            to_run: self.to_run,
            ended: self.ended,
            resumed: self.resumed,
            retried: retried.map(|(ended_at, number)| (rows.rows[number].id.clone(), ended_at)).collect(),
            foreign: self.foreign,
            with_lease: self.with_lease,
            unusable: self.unusable,
            defects: self.defects,
            first,
            shared_prefixes: Arc::new(self.shared_prefixes),
        })
    }
}
