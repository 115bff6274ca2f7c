//! Runs a map from its plan to its end.

use std::sync::Arc;
use std::time::Duration;

use super::engines::Shard;
use super::map_plan::MapPlan;
use super::observer::{MapObserver, MapStart};
use super::once_steps::OnceSteps;
use super::open_map::{OpenMap, discard_snapshot, refresh};
use super::outage::{MapEnd, OutageGate};
use super::results::Results;
use super::runner::{MapRunner, MapStop, RowFlow, Tally};
use crate::error::Error;
use crate::exit_code::{EXIT_ENVIRONMENT, EXIT_FAILED, EXIT_LIMIT, EXIT_TEMPORARY};
use crate::journal::RecordKey;
use crate::plan::Plan;
use crate::process::RunDeadline;
use crate::process::fd_limit::max_concurrent_runs;
use crate::record::{FlushQueue, remove_left_lease, remove_unused_files};
use crate::run::{CheckedJob, ConnectedJob, Host, Signals};
use crate::sync::IgnorePoison;
use crate::text::pluralize;

/// The time of a map without a limit: a year.
const NO_TIME_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// How a start of a map has ended.
pub struct MapEnded {
    /// The results of all rows, also of those that other starts have run.
    pub results: Results,
    /// The exit code of this start.
    pub exit_code: u8,
    /// Why rows are left, if any are that the same command continues.
    pub rest: Option<MapRest>,
    /// Why the tables may be out of date.
    pub failure: Option<Error>,
}

/// Why rows are left.
pub struct MapRest {
    /// Which limit of all processes is used up, in one sentence.
    pub used_up: Option<String>,
    /// An argument of `--limit` with which the map can continue.
    pub limit_argument: Option<String>,
    /// Whether the time is up.
    pub timed_out: bool,
    /// Why the map has ended early, and how long an outage may last.
    pub early_end: Option<(MapEnd, Duration)>,
    /// How many rows weren't started.
    pub unstarted: usize,
}

impl MapPlan {
    /// Removes the leases that killed processes have left in the records of ended rows.
    pub fn remove_left_leases(&self) {
        self.checked.with_lease.iter().for_each(|id| remove_left_lease(&self.folder.row(id)));
    }

    /// Brings the tables up to date if all rows of this shard have ended before. This needs no key and no provider.
    ///
    /// # Errors
    /// The folder can't be used.
    pub fn refresh(self, job: &CheckedJob, host: &Host<'_>) -> Result<MapEnded, Error> {
        let results = refresh(&self, job, host)?;
        let exit_code = exit_code(&results, self.options.shard, |id| {
            self.checked.unusable.contains_key(id).then_some(EXIT_ENVIRONMENT)
        });
        Ok(MapEnded { results, exit_code, rest: None, failure: None })
    }

    /// Runs the rows on threads of their own. `key` signs their records.
    ///
    /// # Errors
    /// No row could start.
    pub fn run(
        mut self,
        job: &ConnectedJob<'_>,
        key: &RecordKey,
        signals: &Signals,
        observer: &dyn MapObserver,
    ) -> Result<MapEnded, Error> {
        let map = OpenMap::open(&self, &job.checked, &job.host, key)?;
        let once = OnceSteps::of(&self, job, signals)?;
        let to_run = std::mem::take(&mut self.checked.to_run);
        let jobs = self.jobs_at_once(to_run.len(), &job.host);
        let time = self.options.limits.wall_clock.unwrap_or(NO_TIME_LIMIT).min(NO_TIME_LIMIT);
        let deadline = RunDeadline::after(time);
        let cut_off = {
            let results = map.results.lock().ignore_poison();
            (results.table().cut_off_requests(), results.table().reserved().1)
        };
        let start = MapStart { rows: to_run.len(), jobs, budget: &map.budget, cut_off, deadline, signals };
        let output_ready = observer.map_started(&start)?;
        let flush_queue = FlushQueue::start().map_err(Error::environment("a thread can't be started"))?;
        let tally = Tally::default();
        let unusable = self.checked.unusable.keys().map(|id| (id.clone(), EXIT_ENVIRONMENT));
        tally.errors.lock().ignore_poison().extend(unusable);
        let runner = MapRunner {
            plan: &self,
            map: &map,
            job,
            observer,
            stop: MapStop { signals: signals.for_part(), deadline },
            flow: RowFlow { jobs, outages: Arc::new(OutageGate::new()), output_ready, flush_queue },
            tally,
            once,
        };
        let unstarted = runner.run_all(to_run);
        remove_unused_files();
        let unstarted = unstarted?.len();
        observer.map_ended();
        let MapRunner { tally, flow, .. } = runner;
        Ok(self.end(map, tally, &flow.outages, deadline, unstarted, signals))
    }

    /// How many rows run at once.
    fn jobs_at_once(&self, rows: usize, host: &Host<'_>) -> usize {
        let asked = self.options.jobs;
        let jobs = asked.min(max_concurrent_runs(agents_of(&self.checked.first.plan)));
        if jobs < asked && rows > jobs {
            (host.warn)(&format!(
                "only {} at once: the limit of open files (see `ulimit -n`) allows no more",
                pluralize(jobs as u64, "row")
            ));
        }
        jobs
    }

    /// Writes the tables, and finds out how the map has ended.
    fn end(
        &self,
        map: OpenMap,
        tally: Tally,
        outages: &OutageGate,
        deadline: RunDeadline,
        unstarted: usize,
        signals: &Signals,
    ) -> MapEnded {
        let timed_out = deadline.is_expired();
        let OpenMap { budget, workspaces, results, .. } = map;
        let mut results = results.into_inner().ignore_poison();
        let closed = budget.close();
        let finished = results.finish();
        discard_snapshot(self, &workspaces, &results);
        let failure = tally.result_error.into_inner().ignore_poison().or_else(|| finished.and(closed).err());
        let failure = failure.map(|source| Error::Record { path: self.folder.path.clone(), source });
        let used_up = budget.exhausted().map(str::to_owned);
        let is_limited = timed_out || used_up.is_some();
        let early_end = outages.end();
        let errors = tally.errors.into_inner().ignore_poison();
        let code = match (signals.first(), &early_end) {
            (Some(signal), _) => 128 + signal,
            _ if is_limited => EXIT_LIMIT,
            (None, Some(MapEnd::Refused(_))) => EXIT_ENVIRONMENT,
            (None, Some(_)) => EXIT_TEMPORARY,
            // By --max-failures: another try would only fail again.
            _ if unstarted > 0 => EXIT_FAILED,
            _ => exit_code(&results, self.options.shard, |id| errors.get(id).copied()),
        };
        let can_continue =
            is_limited || unstarted > 0 || [EXIT_ENVIRONMENT, EXIT_TEMPORARY].contains(&code) || code >= 128;
        let rest = can_continue.then(|| MapRest {
            used_up,
            limit_argument: budget.limit_argument(),
            timed_out,
            early_end: early_end.map(|end| (end, outages.limit())),
            unstarted,
        });
        MapEnded { results, exit_code: code, rest, failure }
    }
}

/// The exit code of the rows of a shard. `known` has those of rows that couldn't run.
fn exit_code(results: &Results, shard: Option<Shard>, known: impl Fn(&str) -> Option<u8>) -> u8 {
    results.table().exit_code_of(|row| {
        let code = known(&row.id).unwrap_or_else(|| row.code());
        shard.is_none_or(|shard| shard.contains(&row.id)).then_some(code)
    })
}

/// How many agents of a row can run at once. A tool server needs about as many descriptors.
fn agents_of(plan: &Plan) -> usize {
    let subagents = if plan.subagents.is_empty() { 0 } else { plan.limits.parallel_subagents as usize };
    1 + subagents + plan.mcp.len()
}
