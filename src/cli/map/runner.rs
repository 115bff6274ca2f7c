//! Runs the rows of a map.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use indexmap::IndexMap;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{OnceCell, watch};

use crate::agent::MapShare;
use crate::budget::SharedBudget;
use crate::cli::env::CliEnv;
use crate::cli::execute::RunSetup;
use crate::cli::export::send_traces;
use crate::cli::output::printable;
use crate::cli::prepared_job::ConnectedJob;
use crate::cli::progress::MapProgress;
use crate::error::Error;
use crate::event::{Outcome, RunResult};
use crate::exit_code::{EXIT_ENVIRONMENT, EXIT_INVALID, EXIT_TEMPORARY, EXIT_USAGE};
use crate::isolation::IsolationError;
use crate::map::MapBudget;
use crate::map::outage::{AfterFailure, OutageGate, RowWatch};
use crate::map::recorded_row::{has_ended_in, needs_no_workspace};
use crate::map::rows::Rows;
use crate::map::schedule::{self, Start};
use crate::map::{MapFolder, Results, RowWorkspaces};
use crate::plan::{InputValues, SharedPrefixes};
use crate::process::RunDeadline;
use crate::record::{FlushQueue, PreviousAttempt, RunSlot};
use crate::run::{KeyedRun, KeyedTarget, OpenRecord, RunObserver, Signals, open_keyed_run};
use crate::sync::IgnorePoison;
use crate::workspace::open_beneath::file_id;
use crate::workspace::open_root::OpenRoot;

/// How many ignored files a warning names.
const MAX_NAMED: usize = 10;

/// The values of a run's inputs.
type Inputs = IndexMap<String, Value>;

/// A row whose record was opened.
enum OpenedRow<'a> {
    Ended(Box<RunResult>),
    Open(Box<(RunSetup<'a>, OpenRecord)>),
}

/// Runs the rows of a map.
pub(super) struct MapRunner<'a> {
    /// How many rows run at once.
    pub(super) jobs: usize,
    /// After how many failures no more rows start.
    pub(super) max_failures: Option<u32>,
    /// The rows that run again, by id, and when they have ended before.
    pub(super) retried: HashMap<String, Timestamp>,
    pub(super) env: &'a CliEnv,
    pub(super) job: &'a ConnectedJob<'a>,
    pub(super) rows: &'a Rows,
    pub(super) inputs: &'a InputValues,
    pub(super) folder: &'a MapFolder,
    /// The folder as it was opened at the start, so that another one in its place is noticed.
    pub(super) opened_folder: OpenRoot,
    pub(super) workspaces: &'a RowWorkspaces,
    pub(super) budget: &'a Arc<MapBudget>,
    pub(super) shared_prefixes: Arc<SharedPrefixes>,
    /// Flushes the records of all rows.
    pub(super) flush_queue: FlushQueue,
    pub(super) signals: Signals,
    pub(super) deadline: RunDeadline,
    pub(super) output_ready: watch::Receiver<bool>,
    pub(super) progress: MapProgress,
    pub(super) results: Mutex<&'a mut Results>,
    /// Whether the provider is down.
    pub(super) outages: Arc<OutageGate>,
    /// How many rows have ended without success.
    pub(super) failures: AtomicUsize,
    /// The exit codes of the rows that this process couldn't run, by id. What other rows have is in their records.
    pub(super) errors: Mutex<HashMap<String, u8>>,
    /// The first failure to write the results.
    pub(super) result_error: Mutex<Option<io::Error>>,
    /// Whether the traces of the first row that ended were sent, or none are to be sent.
    pub(super) has_collector: OnceCell<bool>,
    /// Whether the traces of a row couldn't be sent.
    pub(super) has_lost_traces: AtomicBool,
}

impl MapRunner<'_> {
    /// Runs the rows with these numbers. Returns those that weren't started.
    pub(super) fn run_all(&self, rows: Vec<usize>) -> Result<Vec<usize>, Error> {
        let may_start = |row| {
            let failures = self.failures.load(Ordering::SeqCst);
            let may_any = !self.signals.stop.is_cancelled()
                && self.max_failures.is_none_or(|most| failures < most as usize)
                && self.budget.exhausted().is_none()
                && !self.deadline.is_expired()
                && self.has_folder()
                && self.result_error.lock().ignore_poison().is_none();
            if may_any { self.outages.may_start(row) } else { Start::Never }
        };
        let run = async |number: usize, slot: Arc<RunSlot>| {
            let stop = self.signals.stop.clone();
            let time_is_up = async {
                self.deadline.expired().await;
                stop.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                runs_again = self.run_row(number, slot) => runs_again,
                () = time_is_up => false,
            }
        };
        schedule::run_rows(rows, self.jobs, &may_start, &run)
    }

    /// Runs a row. Returns whether it is to continue when its provider is back.
    async fn run_row(&self, number: usize, slot: Arc<RunSlot>) -> bool {
        let id = &self.rows.rows[number].id;
        let watch = self.outages.watch();
        let ended = self.execute_row(number, slot, &watch).await;
        match &ended {
            Ok((result, Some(_))) if result.outcome == Outcome::ProviderFailed => {
                let after = self.outages.row_failed(number, &watch, self.job.contact(), result.error.as_ref());
                if let AfterFailure::Wait { is_first } = after {
                    self.progress.row_waits(id, result, is_first.then(|| self.outages.limit()));
                    return true;
                }
            }
            Ok((result, Some(_))) if result.outcome == Outcome::ProviderRejected => {
                self.outages.row_refused(self.job.contact(), result.error.as_ref());
                self.outages.row_ended(number);
            }
            _ => self.outages.row_ended(number),
        }
        let label = self.rows.rows[number].label.as_ref();
        let label = label.map(|label| self.job.secrets.redactor.redact(label));
        let label = label.as_deref();
        let is_failure = |code: u8| code != 0 && code != EXIT_TEMPORARY && code < 128;
        let code = match &ended {
            Ok((result, _)) => {
                self.progress.row_ended(id, label, Ok(result), is_failure(result.exit_code));
                result.exit_code
            }
            Err(Error::InUse { .. } | Error::KeyInUse { .. } | Error::TakenOver { .. }) => {
                self.progress.row_ended(id, label, Err("another process runs it"), false);
                EXIT_TEMPORARY
            }
            Err(error) => {
                let mut why = error.to_string();
                let mut cause = std::error::Error::source(error);
                while let Some(source) = cause {
                    why.push_str(&format!(": {source}"));
                    cause = source.source();
                }
                if let Error::Invalid(findings) = error {
                    why = findings.first().map(|finding| finding.message.clone()).unwrap_or(why);
                }
                let has_hint = matches!(error, Error::Usage { .. } | Error::CannotContinue { .. });
                if let Some(hint) = error.hint().filter(|_| has_hint) {
                    why.push_str(&format!(". {}", hint.trim_end_matches('.')));
                }
                self.progress.row_ended(id, label, Err(&why), is_failure(error.exit_code()));
                // The row hasn't failed: something around it keeps it from running.
                let code = match error.exit_code() {
                    EXIT_USAGE | EXIT_INVALID => EXIT_ENVIRONMENT,
                    code => code,
                };
                self.errors.lock().ignore_poison().insert(id.clone(), code);
                code
            }
        };
        if is_failure(code) {
            self.failures.fetch_add(1, Ordering::SeqCst);
        }
        let written = {
            let mut results = self.results.lock().ignore_poison();
            let taken = match ended {
                Ok((result, Some(inputs))) => results.row_ended(id, inputs, *result),
                _ => results.row_not_run(id),
            };
            taken.and_then(|()| results.update())
        };
        if let Err(error) = written {
            self.result_error.lock().ignore_poison().get_or_insert(error);
        }
        false
    }

    /// Runs a row. Returns its result, and its inputs if it has run here: another process may have been faster.
    async fn execute_row(
        &self,
        number: usize,
        slot: Arc<RunSlot>,
        watch: &Arc<RowWatch>,
    ) -> Result<(Box<RunResult>, Option<Inputs>), Error> {
        let row = &self.rows.rows[number];
        let mut inputs = self.inputs.clone();
        inputs.set_row(&self.rows.source, row.clone());
        let open = match self.open_row(&row.id, &inputs)? {
            OpenedRow::Ended(result) => return Ok((result, None)),
            OpenedRow::Open(open) => open,
        };
        let (mut setup, mut record) = *open;
        let prices = self.env.prices()?;
        let observer = self.progress.row_started(&row.id, &setup.prepared.plan, prices, record.before.as_ref());
        setup.observers.extend([observer, Arc::clone(watch) as Arc<dyn RunObserver>]);
        setup.backends.map = MapShare {
            budget: Some(Arc::clone(self.budget) as Arc<dyn SharedBudget>),
            prefixes: Arc::clone(&self.shared_prefixes),
        };
        setup.backends.output_ready = self.output_ready.clone();
        record.recorder.flush_queue = Some(self.flush_queue.clone());
        record.recorder.slot = Some(slot);
        let (folder, sends_traces) = (record.recorder.folder.clone(), !setup.prepared.options.offline);
        let executed = setup.execute(record).await?;
        let mut warnings = executed.warnings();
        if sends_traces {
            let send = || send_traces(&folder, executed.result.outcome, self.env);
            let mut sent = None;
            // The other rows wait for the first answer: a dead collector isn't asked a hundred times at once.
            let is_alive = async { sent.insert(send().await).is_ok() };
            let is_alive = *self.has_collector.get_or_init(|| is_alive).await;
            if sent.is_none() && is_alive && !self.has_lost_traces.load(Ordering::SeqCst) {
                sent = Some(send().await);
            }
            match sent.unwrap_or_else(|| Ok(Vec::new())) {
                Ok(sent) => warnings.extend(sent),
                // Waiting for a dead collector after each row would take hours.
                Err(warning) if !self.has_lost_traces.swap(true, Ordering::SeqCst) => {
                    warnings.push(format!("{warning}; those of the other rows aren't sent, either"));
                }
                Err(_) => {}
            }
        }
        warnings.iter().for_each(|warning| self.progress.warning(&row.id, warning));
        let has_ended = match executed.result.outcome {
            Outcome::BudgetExceeded => has_ended_in(&self.folder.row(&row.id)),
            outcome => !outcome.can_be_resumed(),
        };
        let ignored = &executed.result.changes_ignored;
        if !ignored.is_empty() {
            let named = ignored.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more = if ignored.len() > MAX_NAMED { ", ..." } else { "" };
            let why = "git ignores what the row made here, so changes.patch doesn't have it, and it is removed with the row's \
                       workspace";
            self.progress.warning(&row.id, &format!("{why}: {}{more}", printable(&named)));
        }
        match &executed.result.changes_incomplete {
            Some(why) if has_ended && self.workspaces.are_own() => {
                let path = shown(&self.workspaces.path(&row.id));
                let warning = format!("changes.patch isn't complete: {why}; the row's workspace is kept: {path}");
                self.progress.warning(&row.id, &warning);
            }
            None if has_ended => self.remove_workspace(&row.id),
            _ => {}
        }
        Ok((Box::new(executed.result), Some(executed.inputs)))
    }
}

/// The path of a row's record, as messages name it.
fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

impl MapRunner<'_> {
    /// Whether the map's folder is still there. If it isn't, that is why the map ends: its rows must not continue in half a folder,
    /// without the ledger.
    fn has_folder(&self) -> bool {
        let same = fs::metadata(&self.folder.path).and_then(|found| {
            let opened = self.opened_folder.stat("".as_ref())?;
            Ok((found.dev(), found.ino()) == file_id(&opened))
        });
        let is_there = same.is_ok_and(|same| same);
        if !is_there {
            let why = "the map's folder was removed or replaced while the map ran";
            *self.result_error.lock().ignore_poison() = Some(io::Error::new(io::ErrorKind::NotFound, why));
        }
        is_there
    }

    /// Opens the record of a row, and makes its workspace if it starts.
    ///
    /// # Errors
    /// If the row can't run here.
    fn open_row(&self, id: &str, inputs: &InputValues) -> Result<OpenedRow<'_>, Error> {
        let folder = self.folder.row(id);
        let prepared = &self.job.prepared;
        let workspace = self.workspaces.path(id);
        let target = KeyedTarget {
            folder: &folder,
            workspace: &workspace,
            make_workspace: &|| self.workspaces.make(id).map(drop).map_err(isolation_error),
            links_latest: false,
            is_row: true,
            // Another process may have run the row again since all rows were checked.
            set_aside: self.retried.get(id).copied().map(PreviousAttempt::EndedAt),
            now: (self.env.clock)(),
            key: prepared.record_key(&workspace)?,
        };
        let open = match open_keyed_run(&prepared.checked, inputs, &self.job.secrets, &target)? {
            KeyedRun::Open(open) => *open,
            KeyedRun::Ended(record) => {
                // Its process may have been killed before it removed the workspace.
                if needs_no_workspace(&folder) {
                    self.remove_workspace(id);
                }
                let gone = || Error::NotARecord { path: folder.clone(), why: "its result is gone".to_owned() };
                return record.state.into_result().map(|result| OpenedRow::Ended(Box::new(result))).ok_or_else(gone);
            }
        };
        if open.record.before.is_some() && !workspace.is_dir() {
            return Err(Error::usage(
                "its workspace was removed, so it can't continue",
                format!("Remove its record, and the row starts again: {}", shown(&folder)),
            ));
        }
        let setup = self.job.set_up(open.plan, None, self.signals.clone())?;
        Ok(OpenedRow::Open(Box::new((setup, open.record))))
    }

    /// Removes the workspace of a row that is final.
    fn remove_workspace(&self, id: &str) {
        if let Err(error) = self.workspaces.remove(id) {
            self.progress.warning(id, &format!("its workspace can't be removed: {error}"));
        }
    }
}

pub(super) fn isolation_error(error: IsolationError) -> Error {
    let failed = "the rows' workspaces can't be made";
    match error {
        IsolationError::Io { path, source } => {
            Error::environment(format!("{failed} (--isolate none shares the workspace): `{}`", path.display()))(source)
        }
        error => Error::environment(format!("{failed} (--isolate copy doesn't use git)"))(io::Error::other(error)),
    }
}
