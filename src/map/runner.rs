//! Runs the rows of a map.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use indexmap::IndexMap;
use serde_json::Value;
use tokio::sync::watch;

use super::map_plan::MapPlan;
use super::observer::{EndedRow, MapObserver};
use super::once_steps::OnceSteps;
use super::open_map::OpenMap;
use super::outage::{AfterFailure, OutageGate, RowWatch};
use super::recorded_row::{has_ended_in, needs_no_workspace};
use super::workspaces::isolation_error;
use crate::agent::MapShare;
use crate::budget::SharedBudget;
use crate::error::Error;
use crate::event::{Outcome, RunResult};
use crate::exit_code::{EXIT_ENVIRONMENT, EXIT_INVALID, EXIT_TEMPORARY, EXIT_USAGE};
use crate::plan::InputValues;
use crate::process::RunDeadline;
use crate::record::{FlushQueue, PreviousAttempt, RunSlot};
use crate::run::{
    ConnectedJob, Ended, KeyedRun, KeyedTarget, OpenRecord, RunObserver, RunSetup, Signals, Start, open_keyed_run,
    run_many,
};
use crate::sync::IgnorePoison;
use crate::text::sanitize;

/// How many ignored files a warning names.
const MAX_NAMED: usize = 10;

/// A row whose record was opened.
enum OpenedRow<'a> {
    Ended(Box<RunResult>),
    Open(Box<(RunSetup<'a>, OpenRecord)>),
}

/// A row that has ended.
struct RowEnd {
    result: Box<RunResult>,
    /// Its inputs, if it has run here: another process may have been faster.
    inputs: Option<IndexMap<String, Value>>,
}

/// Runs the rows of a map.
pub(super) struct MapRunner<'a> {
    pub(super) plan: &'a MapPlan,
    pub(super) map: &'a OpenMap,
    pub(super) job: &'a ConnectedJob<'a>,
    pub(super) observer: &'a dyn MapObserver,
    pub(super) stop: MapStop,
    pub(super) flow: RowFlow,
    pub(super) tally: Tally,
    /// The values of the steps that run once for all rows.
    pub(super) once: OnceSteps,
}

/// What stops a map from outside.
pub(super) struct MapStop {
    /// The time limit also stops the rows, but isn't a signal.
    pub(super) signals: Signals,
    pub(super) deadline: RunDeadline,
}

/// When rows start, and continue.
pub(super) struct RowFlow {
    /// How many rows run at once.
    pub(super) jobs: usize,
    /// Whether the provider is down.
    pub(super) outages: Arc<OutageGate>,
    /// False while the readers of the output don't keep up.
    pub(super) output_ready: watch::Receiver<bool>,
    /// Flushes the records of all rows.
    pub(super) flush_queue: FlushQueue,
}

/// What has become of the rows, apart from their results.
#[derive(Default)]
pub(super) struct Tally {
    /// How many have ended without success.
    pub(super) failures: AtomicUsize,
    /// The exit codes of those that this process couldn't run, by id. What other rows have is in their records.
    pub(super) errors: Mutex<HashMap<String, u8>>,
    /// The first failure to write the results.
    pub(super) result_error: Mutex<Option<io::Error>>,
}

impl MapRunner<'_> {
    /// Runs the rows with these numbers. Returns those that weren't started.
    pub(super) fn run_all(&self, rows: Vec<usize>) -> Result<Vec<usize>, Error> {
        let may_start = |row| if self.may_continue() { self.flow.outages.may_start(row) } else { Start::Never };
        let run = async |number: usize, slot: Arc<RunSlot>| {
            let MapStop { signals, deadline } = &self.stop;
            let time_is_up = async {
                deadline.expired().await;
                signals.stop.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                runs_again = self.run_row(number, slot) => runs_again,
                () = time_is_up => false,
            }
        };
        run_many(rows, self.flow.jobs, &may_start, &run)
    }

    /// Whether more rows may start.
    fn may_continue(&self) -> bool {
        let failures = self.tally.failures.load(Ordering::SeqCst);
        !self.stop.signals.stop.is_cancelled()
            && self.plan.options.max_failures.is_none_or(|most| failures < most as usize)
            && self.map.budget.exhausted().is_none()
            && !self.stop.deadline.is_expired()
            && self.has_folder()
            && self.tally.result_error.lock().ignore_poison().is_none()
    }

    /// Whether the map's folder is still there. If it isn't, that is why the map ends: its rows must not continue in half a folder,
    /// without the ledger.
    fn has_folder(&self) -> bool {
        let is_there = self.map.has_folder();
        if !is_there {
            let why = "the map's folder was removed or replaced while the map ran";
            *self.tally.result_error.lock().ignore_poison() = Some(io::Error::new(io::ErrorKind::NotFound, why));
        }
        is_there
    }

    /// Runs a row. Returns whether it is to continue when its provider is back.
    async fn run_row(&self, number: usize, slot: Arc<RunSlot>) -> bool {
        let watch = self.flow.outages.watch();
        let ended = self.execute_row(number, slot, &watch).await;
        if self.waits(number, &watch, &ended) {
            return true;
        }
        if is_failure(self.show_end(number, &ended)) {
            self.tally.failures.fetch_add(1, Ordering::SeqCst);
        }
        let id = &self.plan.rows.rows[number].id;
        let written = {
            let mut results = self.map.results.lock().ignore_poison();
            let taken = match ended {
                Ok(RowEnd { result, inputs: Some(inputs) }) => results.row_ended(id, inputs, *result),
                _ => results.row_not_run(id),
            };
            taken.and_then(|()| results.update())
        };
        if let Err(error) = written {
            self.tally.result_error.lock().ignore_poison().get_or_insert(error);
        }
        false
    }

    /// Tells the other rows how this one has ended. Returns whether it waits until its provider is back.
    fn waits(&self, number: usize, watch: &RowWatch, ended: &Result<RowEnd, Error>) -> bool {
        let outages = &self.flow.outages;
        let ran = ended.as_ref().ok().filter(|end| end.inputs.is_some()).map(|end| &end.result);
        match ran {
            Some(result) if result.outcome == Outcome::ProviderFailed => {
                let after = outages.row_failed(number, watch, self.job.contact(), result.error.as_ref());
                if let AfterFailure::Wait { is_first } = after {
                    let limit = is_first.then(|| outages.limit());
                    self.observer.row_waits(&self.plan.rows.rows[number].id, result, limit);
                    return true;
                }
            }
            Some(result) if result.outcome == Outcome::ProviderRejected => {
                outages.row_refused(self.job.contact(), result.error.as_ref());
                outages.row_ended(number);
            }
            _ => outages.row_ended(number),
        }
        false
    }

    /// Shows how a row has ended. Returns its exit code.
    fn show_end(&self, number: usize, ended: &Result<RowEnd, Error>) -> u8 {
        let row = &self.plan.rows.rows[number];
        let label = row.label.as_ref().map(|label| self.job.secrets.redactor.redact(label));
        let show = |result, code| {
            let is_failure = is_failure(code);
            self.observer.row_ended(&EndedRow { id: &row.id, label: label.as_deref(), result, is_failure });
        };
        match ended {
            Ok(RowEnd { result, .. }) => {
                show(Ok(result), result.exit_code);
                result.exit_code
            }
            Err(Error::InUse { .. } | Error::KeyInUse { .. } | Error::TakenOver { .. }) => {
                show(Err("another process runs it"), EXIT_TEMPORARY);
                EXIT_TEMPORARY
            }
            Err(error) => {
                show(Err(&reason(error)), error.exit_code());
                // The row hasn't failed: something around it keeps it from running.
                let code = match error.exit_code() {
                    EXIT_USAGE | EXIT_INVALID => EXIT_ENVIRONMENT,
                    code => code,
                };
                self.tally.errors.lock().ignore_poison().insert(row.id.clone(), code);
                code
            }
        }
    }

    /// Runs a row to its end.
    async fn execute_row(&self, number: usize, slot: Arc<RunSlot>, watch: &Arc<RowWatch>) -> Result<RowEnd, Error> {
        let row = &self.plan.rows.rows[number];
        let mut inputs = self.plan.inputs.clone();
        inputs.set_row(&self.plan.rows.source, row.clone());
        let (mut setup, mut record) = match self.open_row(&row.id, &inputs)? {
            OpenedRow::Ended(result) => return Ok(RowEnd { result, inputs: None }),
            OpenedRow::Open(open) => *open,
        };
        setup.observers.extend(self.observer.row_started(&row.id, &setup.prepared.plan, record.before.as_ref()));
        setup.observers.push(Arc::clone(watch) as Arc<dyn RunObserver>);
        setup.prepared.given_steps.clone_from(&self.once.values);
        setup.prepared.given_files.clone_from(&self.once.files);
        setup.backends.map = MapShare {
            budget: Some(Arc::clone(&self.map.budget) as Arc<dyn SharedBudget>),
            prefixes: Arc::clone(&self.plan.checked.shared_prefixes),
        };
        setup.backends.output_ready = self.flow.output_ready.clone();
        record.recorder.flush_queue = Some(self.flow.flush_queue.clone());
        record.recorder.slot = Some(slot);
        let folder = record.recorder.folder.clone();
        let ended = setup.execute(record).await?;
        let of_record = self.observer.row_recorded(&folder, ended.result.outcome).await;
        ended.warnings().iter().chain(&of_record).for_each(|warning| self.observer.warning(&row.id, warning));
        self.leave_workspace(&row.id, &ended);
        Ok(RowEnd { result: Box::new(ended.result), inputs: Some(ended.inputs) })
    }

    /// Removes the workspace of a row that is final, unless it has something that the record doesn't have.
    fn leave_workspace(&self, id: &str, ended: &Ended) {
        let has_ended = match ended.result.outcome {
            Outcome::BudgetExceeded => has_ended_in(&self.plan.folder.row(id)),
            outcome => !outcome.can_be_resumed(),
        };
        let ignored = &ended.result.changes_ignored;
        if !ignored.is_empty() {
            let named = ignored.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more = if ignored.len() > MAX_NAMED { ", ..." } else { "" };
            let why = "git ignores what the row made here, so changes.patch doesn't have it, and it is removed with the row's \
                       workspace";
            self.observer.warning(id, &format!("{why}: {}{more}", sanitize::line(&named)));
        }
        match &ended.result.changes_incomplete {
            Some(why) if has_ended && self.map.workspaces.are_own() => {
                let path = shown(&self.map.workspaces.path(id));
                let warning = format!("changes.patch isn't complete: {why}; the row's workspace is kept: {path}");
                self.observer.warning(id, &warning);
            }
            None if has_ended => self.remove_workspace(id),
            _ => {}
        }
    }

    /// Opens the record of a row, and makes its workspace if it starts.
    ///
    /// # Errors
    /// If the row can't run here.
    fn open_row(&self, id: &str, inputs: &InputValues) -> Result<OpenedRow<'_>, Error> {
        let Self { plan, map, job, .. } = self;
        let folder = plan.folder.row(id);
        let workspace = map.workspaces.path(id);
        let target = KeyedTarget {
            folder: &folder,
            workspace: &workspace,
            make_workspace: &|| map.workspaces.make(id).map(drop).map_err(isolation_error),
            links_latest: false,
            is_row: true,
            // Another process may have run the row again since all rows were checked.
            set_aside: plan.checked.retried.get(id).copied().map(PreviousAttempt::EndedAt),
            now: (job.host.clock)(),
            key: (job.host.record_key)(&workspace)?,
        };
        let open = match open_keyed_run(&job.checked, inputs, &job.secrets, &target)? {
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
        let setup = job.set_up(open.plan, &open.record.recorder.folder, self.stop.signals.clone())?;
        Ok(OpenedRow::Open(Box::new((setup, open.record))))
    }

    /// Removes the workspace of a row that is final.
    fn remove_workspace(&self, id: &str) {
        if let Err(error) = self.map.workspaces.remove(id) {
            self.observer.warning(id, &format!("its workspace can't be removed: {error}"));
        }
    }
}

/// Whether a row with this exit code counts as a failure.
fn is_failure(code: u8) -> bool {
    code != 0 && code != EXIT_TEMPORARY && code < 128
}

/// Why a row couldn't run, in one line.
fn reason(error: &Error) -> String {
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
    why
}

/// The path of a row's record or workspace, as messages name it.
fn shown(path: &Path) -> String {
    sanitize::line(&path.to_string_lossy())
}
