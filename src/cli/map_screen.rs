//! What the command line shows of a map while it runs and at its end. It also sends the traces of the rows.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use indicatif::HumanDuration;
use tokio::sync::{OnceCell, watch};

use super::env::CliEnv;
use super::execute::register_github_masks;
use super::export::send_traces;
use super::next_command::NextCommand;
use super::output::printable;
use super::output_target::OutputTarget;
use super::progress::MapProgress;
use super::{ci_files, output_queue};
use crate::error::Error;
use crate::event::{Outcome, RunResult};
use crate::map::outage::MapEnd;
use crate::map::tables::map_summary;
use crate::map::{EndedRow, MapEnded, MapObserver, MapRest, MapStart, Results};
use crate::plan::Plan;
use crate::run::{ConnectedJob, ResumeState, RunObserver};
use crate::text::pluralize;

/// Shows a map on stderr.
pub(super) struct MapScreen<'a> {
    env: &'a CliEnv,
    job: &'a ConnectedJob<'a>,
    progress: OnceLock<MapProgress>,
    /// Whether the traces of the first row that ended were sent, or none are to be sent.
    has_collector: OnceCell<bool>,
    /// Whether the traces of a row couldn't be sent.
    has_lost_traces: AtomicBool,
}

impl<'a> MapScreen<'a> {
    pub(super) fn new(env: &'a CliEnv, job: &'a ConnectedJob<'a>) -> Self {
        let (progress, has_collector) = (OnceLock::new(), OnceCell::new());
        Self { env, job, progress, has_collector, has_lost_traces: AtomicBool::new(false) }
    }

    /// Sends the traces of a row. Returns warnings.
    async fn send_traces(&self, record: &Path, outcome: Outcome) -> Vec<String> {
        let send = || send_traces(record, outcome, self.env);
        let mut sent = None;
        // The other rows wait for the first answer: a dead collector isn't asked a hundred times at once.
        let is_alive = async { sent.insert(send().await).is_ok() };
        let is_alive = *self.has_collector.get_or_init(|| is_alive).await;
        if sent.is_none() && is_alive && !self.has_lost_traces.load(Ordering::SeqCst) {
            sent = Some(send().await);
        }
        match sent.unwrap_or_else(|| Ok(Vec::new())) {
            Ok(warnings) => warnings,
            // Waiting for a dead collector after each row would take hours.
            Err(warning) if !self.has_lost_traces.swap(true, Ordering::SeqCst) => {
                vec![format!("{warning}; those of the other rows aren't sent, either")]
            }
            Err(_) => Vec::new(),
        }
    }
}

impl MapObserver for MapScreen<'_> {
    fn map_started(&self, start: &MapStart<'_>) -> Result<watch::Receiver<bool>, Error> {
        register_github_masks(&self.job.secrets, self.env);
        let output_ready = output_queue::start(start.deadline.end())
            .map_err(Error::environment("the output thread can't be started"))?;
        self.progress.get_or_init(|| MapProgress::start(self.env, start));
        Ok(output_ready)
    }

    fn row_started(&self, id: &str, plan: &Plan, before: Option<&ResumeState>) -> Option<Arc<dyn RunObserver>> {
        let progress = self.progress.get()?;
        Some(progress.row_started(id, plan, self.job.host.prices, before))
    }

    fn row_recorded<'b>(&'b self, record: &'b Path, outcome: Outcome) -> LocalBoxFuture<'b, Vec<String>> {
        match self.job.checked.offline {
            true => Box::pin(std::future::ready(Vec::new())),
            false => Box::pin(self.send_traces(record, outcome)),
        }
    }

    fn row_waits(&self, id: &str, result: &RunResult, limit: Option<Duration>) {
        self.progress.get().iter().for_each(|progress| progress.row_waits(id, result, limit));
    }

    fn row_ended(&self, row: &EndedRow<'_>) {
        self.progress.get().iter().for_each(|progress| progress.row_ended(row));
    }

    fn warning(&self, id: &str, text: &str) {
        self.progress.get().iter().for_each(|progress| progress.warning(id, text));
    }

    fn map_ended(&self) {
        self.progress.get().iter().for_each(|progress| progress.finish());
    }
}

/// Where the end of a map is shown.
pub(super) struct PrintedMap {
    /// The folder, as the user would write it.
    pub(super) folder: PathBuf,
    /// The same, absolute.
    pub(super) real_folder: PathBuf,
    pub(super) next: NextCommand,
    /// The file of `--junit`.
    pub(super) junit: Option<OutputTarget>,
}

impl PrintedMap {
    /// Prints how a map has ended. Returns its exit code.
    pub(super) fn print(&self, ended: MapEnded, env: &CliEnv) -> Result<u8, Error> {
        let MapEnded { results, exit_code, rest, failure } = ended;
        let junit = self.junit.as_ref().map_or(Ok(()), |junit| junit.write(&results.junit()));
        rest.iter().for_each(|rest| print_rest(rest, env));
        if self.real_folder.is_dir() {
            print_summary(&results, &self.folder, env);
        }
        failure.map_or(junit, Err)?;
        let next = rest.map(|rest| self.next.line(&self.real_folder, rest.limit_argument.as_deref()));
        next.iter().for_each(|next| env.console.eprint(next));
        ci_files::write_map(env, results.table(), exit_code, &self.folder, next.as_deref());
        Ok(exit_code)
    }
}

/// Prints to stderr why rows are left.
fn print_rest(rest: &MapRest, env: &CliEnv) {
    if let Some(reason) = &rest.used_up {
        env.console.eprint_problem(&format!("limit:  {reason}"));
    }
    if rest.timed_out {
        env.console.eprint_problem("limit:  the time of the map is up");
    }
    if let Some((end, limit)) = &rest.early_end {
        print_early_end(end, *limit, env);
    }
    if rest.unstarted > 0 {
        let count = pluralize(rest.unstarted as u64, "row");
        env.console.eprint_problem(&format!("not started: {count}; the same command continues the map"));
    }
}

/// Prints to stderr why no more rows have started. `limit` is how long an outage may last.
fn print_early_end(end: &MapEnd, limit: Duration, env: &CliEnv) {
    let time = HumanDuration(limit);
    let (what, error) = match end {
        MapEnd::Outage => (format!("limit:  the provider hasn't replied for {time}"), &None),
        MapEnd::NeverReached(error) => (format!("stopped: no row has reached the provider for {time}"), error),
        MapEnd::Refused(error) => {
            ("stopped: the provider refuses every row, and has replied to none".to_owned(), error)
        }
    };
    let why = error.as_ref().map(|error| format!(": {}", printable(&error.message))).unwrap_or_default();
    env.console.eprint_problem(&format!("{what}{why}"));
    if let Some(hint) = error.as_ref().and_then(|error| error.hint.as_ref()) {
        env.console.eprint_problem(&format!("help:   {}", printable(hint)));
    }
}

/// Prints to stderr how the rows ended, and where the tables are.
fn print_summary(results: &Results, shown_folder: &Path, env: &CliEnv) {
    let summary = map_summary(results.table(), env.console.stderr_display());
    match results.have_completed() {
        true => env.console.eprint(summary.trim_end()),
        false => env.console.eprint_problem(summary.trim_end()),
    }
    for (what, file) in [("table", "results.csv"), ("open", "report.html")] {
        let path = shown_folder.join(file);
        env.console.eprint(&format!("{:<7} {}", format!("{what}:"), printable(&path.to_string_lossy())));
    }
}
