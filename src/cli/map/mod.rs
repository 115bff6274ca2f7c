//! `legwork map`: runs a job once for each row of a file.

pub(super) mod map_limits;
mod runner;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::ValueEnum;
use indicatif::HumanDuration;
use jiff::Timestamp;
use tokio::sync::OnceCell;

use self::map_limits::WholeMapLimits;
use self::runner::{MapRunner, isolation_error};
use super::arguments::{ColumnArgs, parse_assignment};
use super::env::CliEnv;
use super::execute::{check_cost_limit, register_github_masks};
use super::next_command::NextCommand;
use super::output::{printable, quote_word};
use super::output_files::OutputFileArgs;
use super::output_target::OutputTarget;
use super::prepared_job::{JobArgs, PreparedJob};
use super::progress::MapProgress;
use super::{ci_files, output_queue, read_files};
use crate::error::{ContinuedBy, Error};
use crate::exit_code::{EXIT_ENVIRONMENT, EXIT_FAILED, EXIT_LIMIT, EXIT_TEMPORARY};
use crate::git::Repository;
use crate::isolation::{Isolation, Snapshot};
use crate::journal::RecordKey;
use crate::map::MapBudget;
use crate::map::engines::Shard;
use crate::map::ledger::Ledger;
use crate::map::outage::{MapEnd, OutageGate};
use crate::map::recorded_row::{RecordedRow, RetryRows, RowPlan, needs_no_workspace, recorded_row};
use crate::map::rows::{self, MAX_FILE_BYTES, RowFormat, Rows, name_mistake, original_id, readable_id};
use crate::map::tables::RowSummary;
use crate::map::tables::map_summary;
use crate::map::{MAP_FORMAT, MapFolder, MapManifest, Results, RowIds, RowWorkspaces, check_rows};
use crate::plan::{InputValues, Plan, SharedPrefixes};
use crate::process::RunDeadline;
use crate::process::fd_limit::max_concurrent_runs;
use crate::record::{FlushQueue, create_job_dir, has_lease, new_run_id, remove_left_lease, remove_unused_files};
use crate::reports::{self, PlanPreview};
use crate::run::{RunIdentity, Signals, head_commit, run_date};
use crate::sync::IgnorePoison;
use crate::text::pluralize;
use crate::workspace::open_root::OpenRoot;

/// The time of a map without a limit: a year.
const NO_TIME_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long a map may take to end after a signal: hundreds of rows write their results. GitHub's runner waits for 7.5 seconds
/// before it sends the next signal, and containers for 10.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(7);
/// How many rows are named in a message.
const MAX_NAMED: usize = 5;

const MAP_EXIT_CODES: &str = "\
Exit codes: 0 if all rows completed; 1 if a row ended without success; 2 for a usage error, or if a row's record belongs to \
another plan; 3 if the job or a row is invalid (then no row is run); 4 if a limit of the map was reached; 5 if the environment \
or the provider doesn't allow a row to run; 75 if a row can continue later, by the same command; 128 plus the signal number after \
a signal.";

/// Options of `legwork map`.
#[derive(Debug, clap::Args)]
#[command(after_help = MAP_EXIT_CODES)]
pub(super) struct MapArgs {
    #[command(flatten)]
    pub(in crate::cli) job: JobArgs,
    /// The file with the rows: CSV with a header line, JSONL or JSON; - for standard input
    ///
    /// Each column or key is an input of the job. All rows are checked before the first one runs.
    #[arg(long, value_name = "FILE")]
    rows: PathBuf,
    /// The column with the id of each row, which names its record; default: a digest of the row's values
    ///
    /// Where a value can't name a folder, such as a path, the id is its letters and digits with a short digest.
    #[arg(long, value_name = "COLUMN")]
    id: Option<String>,
    #[command(flatten)]
    columns: ColumnArgs,
    /// How many rows run at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    jobs: u32,
    /// The name of the map; default: map- and the name of the rows file
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Limit the whole map; may be repeated
    ///
    /// The limits are cost_usd and tokens, which hold for all processes and all starts of this map, and wall_clock, which
    /// holds for this process. The limits of the job hold for each row.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    limit: Vec<String>,
    /// Run rows again that have ended before
    ///
    /// `failed` are those that ended with exit code 1 or 4. Their earlier records are kept, with a number after their names.
    #[arg(long, value_enum, value_name = "WHICH")]
    retry: Option<RetryRows>,
    /// Start no more rows after this many have ended without success
    ///
    /// Rows whose provider fails don't count: while it does, no row starts, and one tries again after growing pauses. After
    /// half an hour without a reply, or after a minute if no row has ever reached it, the map ends with exit code 75.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_failures: Option<u32>,
    /// How the rows' workspaces are kept apart; default: worktree or copy if an agent can change files, else none
    ///
    /// `worktree` gives each row a git worktree, `copy` a copy of the folder; both begin with the workspace as it is when the
    /// map starts first, and are removed when the row has ended. With `none`, all rows work in the workspace itself.
    #[arg(long, value_enum)]
    isolate: Option<IsolateArg>,
    /// Run only one of several equal parts of the rows: K/N, or auto for the part that the engine assigns to this process
    ///
    /// `auto` reads the variables of Slurm, Kubernetes, AWS Batch, Cloud Run, GitLab or Buildkite.
    #[arg(long, value_name = "K/N|auto")]
    shard: Option<String>,
    /// Also write the results as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Check everything, print what would run and the plan of the first row, and stop
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IsolateArg {
    /// A git worktree for each row
    Worktree,
    /// A copy of the workspace for each row
    Copy,
    /// The workspace itself for all rows
    None,
}

impl From<IsolateArg> for Isolation {
    fn from(argument: IsolateArg) -> Self {
        match argument {
            IsolateArg::Worktree => Self::Worktree,
            IsolateArg::Copy => Self::Copy,
            IsolateArg::None => Self::None,
        }
    }
}

/// What the check of all rows has found.
struct CheckedRows {
    /// The numbers of the rows of this shard, by what is to do with them.
    to_run: Vec<usize>,
    /// How many rows are final.
    ended: usize,
    /// How many of `to_run` continue.
    resumed: usize,
    /// Those of `to_run` that `--retry` runs again, by id, and when they have ended before.
    retried: HashMap<String, Timestamp>,
    /// Those of `ended` whose records were made on another machine or with another key.
    foreign: Vec<String>,
    /// Those of `ended` in which a killed process has left its lease.
    with_lease: Vec<String>,
    /// Why rows of this shard can't run, by id: what has the names of their records can't be used.
    unusable: BTreeMap<String, String>,
    /// What is wrong with the records of ended rows that can be used anyway, a message each.
    defects: Vec<String>,
    /// The plan of the first row that runs, or of the first row.
    first: RowPlan,
    /// What the rows that run share.
    shared_prefixes: SharedPrefixes,
}

pub(super) fn map(options: &MapArgs, env: &CliEnv) -> Result<u8, Error> {
    let limits = WholeMapLimits::parse(&options.limit)?;
    let shard =
        options.shard.as_deref().map(|shard| Shard::parse(shard, &|name| env.variable(name).map(str::to_owned)));
    let shard = shard.transpose().map_err(|error| Error::usage(error.message, error.hint))?;
    let name = map_name(options)?;
    if options.job.is_stdin() && options.rows.as_os_str() == "-" {
        let message = "standard input can't be both the job and the rows";
        return Err(Error::usage(message, "Name a file for one of them."));
    }
    let job = PreparedJob::read(&options.job, BTreeMap::new(), limits.of_all.cost_usd.is_some(), env)?;
    let rows = read_rows(options, &job)?;
    options.retry.map_or(Ok(()), |_| check_retry(&rows))?;
    let mut inputs = job.inputs()?;
    let folder = MapFolder::new(&job.checked.job_dir, &name);
    let manifest = folder.read_manifest()?;
    manifest.as_ref().map_or(Ok(()), |manifest| check_ids(manifest, options))?;
    folder.check_subfolders()?;
    let checked = check_all(options, &job, &rows, &mut inputs, &folder, shard)?;
    let isolation = isolation(options, &job, &folder, manifest.as_ref(), &checked.first.plan)?;
    job.check_options(&checked.first.plan)?;
    if limits.of_all.cost_usd.is_some() {
        let mut limited = checked.first.plan.clone();
        limited.limits.cost_usd = limits.of_all.cost_usd;
        check_cost_limit(&limited, &env.user_config()?)?;
    }
    if !checked.foreign.is_empty() {
        env.console.warning(&format!(
            "the records of {} were made on another machine or with another key: {}; their results count; if you don't know who \
             made them, move them away",
            pluralize(checked.foreign.len() as u64, "ended row"),
            first_names(&checked.foreign),
        ));
    }
    for message in checked.unusable.values().take(MAX_NAMED).chain(checked.defects.iter().take(MAX_NAMED)) {
        env.console.warning(message);
    }
    let of_shard = checked.to_run.len() + checked.ended + checked.unusable.len();
    let unusable = match checked.unusable.len() {
        0 => String::new(),
        count => format!(", {count} can't run"),
    };
    let summary = format!(
        "{name}: {}{}: {} ended before, {} to continue, {} to start{unusable}",
        pluralize(rows.rows.len() as u64, "row"),
        shard.map(|shard| format!(", {of_shard} of them in shard {shard}")).unwrap_or_default(),
        checked.ended,
        checked.resumed,
        checked.to_run.len() - checked.resumed,
    );
    let secrets = job.secrets(&checked.first.plan, &checked.first.secrets);
    if options.dry_run {
        let repository = Repository::discover(&job.checked.workspace).filter(|_| isolation == Isolation::Worktree);
        if repository.is_some_and(|repository| repository.worktree.join(".gitmodules").exists()) {
            warn_about_submodules(env, "see .gitmodules");
        }
        return print_dry_run(options, env, &summary, isolation, &checked.first.plan.redacted(&secrets.redactor));
    }
    checked.with_lease.iter().for_each(|id| remove_left_lease(&folder.row(id)));
    let junit = options.junit.as_deref().map(|path| prepare_junit(path, options, &job)).transpose()?;
    if checked.to_run.is_empty() {
        env.console.eprint(&printable(&summary));
        let code_of = |row: &RowSummary| {
            let code = if checked.unusable.contains_key(&row.id) { EXIT_ENVIRONMENT } else { row.code() };
            shard.is_none_or(|shard| shard.contains(&row.id)).then_some(code)
        };
        return finish_again(options, &job, &rows, &folder, manifest, code_of, junit.as_ref());
    }
    let Some(key) = job.record_key(&job.checked.workspace)? else {
        let message = "a map needs signed records, or its rows couldn't be recognized later";
        return Err(Error::usage(message, "Set LEGWORK_RECORD_KEY to at least 16 random characters."));
    };
    let next = NextCommand::again(env, &[], &checked.first.plan.secret_inputs, &secrets.redactor);
    let job = job.connect(&checked.first.plan, secrets)?;
    job.prepared.check_out()?;
    // From here on, a signal must let the records be closed.
    let signals = Signals::catch_within(SHUTDOWN_GRACE)?;
    env.console.eprint(&printable(&summary));
    let process = new_run_id(&job.prepared.checked.job_dir, (env.clock)());
    let setup = MapSetup { folder, name: &name, isolation, process: &process, key: &key };
    let (workspaces, preparing) = setup.prepare(options, &job.prepared)?;
    remove_leftovers(&workspaces, &setup.folder, env);
    let budget = setup.budget(&limits)?;
    let _held = setup.folder.hold().map_err(|source| Error::Record { path: setup.folder.path.clone(), source })?;
    // Not earlier: other runs at the same time recognize its folder by one of the two locks.
    drop(preparing);
    let ids: Vec<String> = rows.rows.iter().map(|row| row.id.clone()).collect();
    note_other_rows(&setup.folder, &ids, env);
    let results_failed = |source| Error::Record { path: setup.folder.path.clone(), source };
    let prices = env.prices()?.clone();
    let opened_folder = setup.folder.open().map_err(results_failed)?;
    let mut results =
        Results::open(&setup.folder, job.prepared.checked.job.name(), &ids, prices).map_err(results_failed)?;
    let (usage, cost_usd, _) = results.table().totals();
    budget.count_recorded(usage.total(), cost_usd).map_err(results_failed)?;
    let cut_off = (results.table().cut_off_requests(), results.table().open_cost_usd());
    register_github_masks(&job.secrets, env);
    let time = limits.wall_clock.unwrap_or(NO_TIME_LIMIT).min(NO_TIME_LIMIT);
    let deadline = RunDeadline::after(time);
    let output_ready =
        output_queue::start(deadline.end()).map_err(Error::environment("the output thread can't be started"))?;
    let most = max_concurrent_runs(agents_of(&checked.first.plan));
    let jobs = (options.jobs as usize).min(most);
    if jobs < options.jobs as usize && checked.to_run.len() > jobs {
        env.console.warning(&format!(
            "only {} at once: the limit of open files (see `ulimit -n`) allows no more",
            pluralize(jobs as u64, "row")
        ));
    }
    let progress = MapProgress::start(env, checked.to_run.len(), jobs, &signals, &budget, cut_off);
    let runner = MapRunner {
        jobs,
        max_failures: options.max_failures,
        retried: checked.retried,
        env,
        job: &job,
        rows: &rows,
        inputs: &inputs,
        folder: &setup.folder,
        opened_folder,
        workspaces: &workspaces,
        budget: &budget,
        shared_prefixes: Arc::new(checked.shared_prefixes),
        flush_queue: FlushQueue::start().map_err(Error::environment("a thread can't be started"))?,
        // The time limit also stops the rows, but isn't a signal.
        signals: signals.for_part(),
        deadline,
        output_ready,
        progress,
        results: Mutex::new(&mut results),
        outages: Arc::new(OutageGate::new()),
        failures: AtomicUsize::new(0),
        errors: Mutex::new(checked.unusable.into_keys().map(|id| (id, EXIT_ENVIRONMENT)).collect()),
        result_error: Mutex::default(),
        has_collector: OnceCell::new(),
        has_lost_traces: AtomicBool::new(false),
    };
    let unstarted = runner.run_all(checked.to_run);
    remove_unused_files();
    let unstarted = unstarted?;
    runner.progress.finish();
    let MapRunner { errors, result_error, outages, .. } = runner;
    let errors = errors.into_inner().ignore_poison();
    let result_error = result_error.into_inner().ignore_poison();
    let timed_out = deadline.is_expired();
    let closed = budget.close();
    let finished = results.finish();
    let junit_written = junit.map_or(Ok(()), |junit| junit.write(&results.junit()));
    if has_completed(&results) {
        workspaces.discard_snapshot(|| ids.iter().any(|id| setup.folder.has_changes(id)));
    }
    if let Some(reason) = budget.exhausted() {
        env.console.eprint_problem(&format!("limit:  {reason}"));
    }
    if timed_out {
        env.console.eprint_problem("limit:  the time of the map is up");
    }
    let early_end = outages.end();
    if let Some(end) = &early_end {
        print_early_end(end, outages.limit(), env);
    }
    if !unstarted.is_empty() {
        let count = pluralize(unstarted.len() as u64, "row");
        env.console.eprint_problem(&format!("not started: {count}; the same command continues the map"));
    }
    if setup.folder.path.is_dir() {
        print_summary(&results, &options.job.out.join(job.prepared.checked.job.name()).join(&name), env);
    }
    if let Some(error) = result_error {
        return Err(results_failed(error));
    }
    finished.and(closed).map_err(results_failed)?;
    junit_written?;
    let is_limited = timed_out || budget.exhausted().is_some();
    let code = match signals.first() {
        Some(signal) => 128 + signal,
        None if is_limited => EXIT_LIMIT,
        None if matches!(early_end, Some(MapEnd::Refused(_))) => EXIT_ENVIRONMENT,
        None if early_end.is_some() => EXIT_TEMPORARY,
        // By --max-failures: another try would only fail again.
        None if !unstarted.is_empty() => EXIT_FAILED,
        None => results.table().exit_code_of(|row| {
            let code = errors.get(&row.id).copied().unwrap_or_else(|| row.code());
            shard.is_none_or(|shard| shard.contains(&row.id)).then_some(code)
        }),
    };
    let can_go_on = is_limited || !unstarted.is_empty() || [5, EXIT_TEMPORARY].contains(&code) || code >= 128;
    let next = can_go_on.then(|| next.line(&setup.folder.path, budget.limit_argument().as_deref()));
    next.iter().for_each(|next| env.console.eprint(next));
    let shown = options.job.out.join(job.prepared.checked.job.name()).join(&name);
    ci_files::write_map(env, results.table(), code, &shown, next.as_deref());
    Ok(code)
}

/// Brings the tables up to date if all rows of this shard have ended before. This needs no key and no provider.
fn finish_again(
    options: &MapArgs,
    job: &PreparedJob<'_>,
    rows: &Rows,
    folder: &MapFolder,
    manifest: Option<MapManifest>,
    code_of: impl Fn(&RowSummary) -> Option<u8>,
    junit: Option<&OutputTarget>,
) -> Result<u8, Error> {
    let failed = |source| Error::Record { path: folder.path.clone(), source };
    create_job_dir(&job.checked.out, &folder.path)?;
    let out = OpenRoot::open_canonical(&job.checked.out)
        .map_err(|source| Error::Record { path: job.checked.out.clone(), source })?;
    let name = folder.path.file_name().unwrap_or_default().to_string_lossy();
    let of_rows = MapFolder::workspaces(out.path(), job.checked.job.name(), &name);
    MapFolder::check_workspaces(out.path(), &of_rows)?;
    let snapshot = manifest.and_then(|manifest| manifest.snapshot);
    let snapshot = snapshot.filter(|snapshot| snapshot.is_of(&job.checked.workspace, &of_rows));
    let workspaces = RowWorkspaces::new(&job.checked.workspace, &out, &of_rows, snapshot);
    remove_leftovers(&workspaces, folder, job.env);
    let ids: Vec<String> = rows.rows.iter().map(|row| row.id.clone()).collect();
    note_other_rows(folder, &ids, job.env);
    let shown = options.job.out.join(job.checked.job.name()).join(&*name);
    let prices = job.env.prices()?.clone();
    let mut results = Results::open(folder, job.checked.job.name(), &ids, prices).map_err(failed)?;
    results.finish().map_err(failed)?;
    junit.map_or(Ok(()), |junit| junit.write(&results.junit()))?;
    if has_completed(&results) {
        workspaces.discard_snapshot(|| ids.iter().any(|id| folder.has_changes(id)));
    }
    print_summary(&results, &shown, job.env);
    let code = results.table().exit_code_of(code_of);
    ci_files::write_map(job.env, results.table(), code, &shown, None);
    Ok(code)
}

/// Opens the file of `--junit` before anything is spent, and removes that of an earlier start.
fn prepare_junit(path: &Path, options: &MapArgs, job: &PreparedJob<'_>) -> Result<OutputTarget, Error> {
    let target = OutputFileArgs::open_junit(path, Some(job.args.job_path()), Some(&options.rows))?;
    target.remove()?;
    Ok(target)
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
    match has_completed(results) {
        true => env.console.eprint(summary.trim_end()),
        false => env.console.eprint_problem(summary.trim_end()),
    }
    for (what, file) in [("table", "results.csv"), ("open", "report.html")] {
        let path = shown_folder.join(file);
        env.console.eprint(&format!("{:<7} {}", format!("{what}:"), printable(&path.to_string_lossy())));
    }
}

/// Whether all rows, also those of other shards, have ended with success, so that none starts again.
fn has_completed(results: &Results) -> bool {
    results.table().rows.iter().all(|row| row.exit_code == Some(0))
}

/// The name of a map whose name isn't given: that of the rows file, or what of it can name a folder.
pub(super) fn default_map_name(rows: &Path) -> String {
    readable_id(&format!("map-{}", rows.file_stem().unwrap_or_default().to_string_lossy()))
}

/// The name of the map, which is the name of its folder.
fn map_name(options: &MapArgs) -> Result<String, Error> {
    let name = options.name.clone().unwrap_or_else(|| match options.rows.to_str() {
        Some("-") => "map-stdin".to_owned(),
        _ => default_map_name(&options.rows),
    });
    match name_mistake("name", &name) {
        None => Ok(name),
        Some(why) => Err(Error::usage(
            format!("--name: {why}"),
            "Use letters, digits, `.`, `_` and `-`, at most 100, a letter or digit first.",
        )),
    }
}

fn read_rows(options: &MapArgs, job: &PreparedJob<'_>) -> Result<Rows, Error> {
    let is_stdin = options.rows.as_os_str() == "-";
    if is_stdin && options.job.set.iter().any(|argument| argument.ends_with("=@-")) {
        return Err(Error::usage(
            "--rows - and --set NAME=@- both read standard input",
            "Put the rows or the value into a file.",
        ));
    }
    let unreadable = |why: String| {
        Error::usage(
            format!("--rows {}: {why}", options.rows.display()),
            "Name a CSV, JSONL or JSON file, or - for stdin.",
        )
    };
    let content = if is_stdin {
        let mut content = Vec::new();
        io::stdin()
            .lock()
            .take(MAX_FILE_BYTES as u64 + 1)
            .read_to_end(&mut content)
            .map_err(|error| unreadable(error.to_string()))?;
        content
    } else {
        read_files::read_bounded(&options.rows, MAX_FILE_BYTES).map_err(unreadable)?
    };
    let format = RowFormat::detect(&options.rows, &content);
    let name = if is_stdin { "<stdin>".into() } else { options.rows.to_string_lossy() };
    rows::read(&name, content, format, options.columns.with_id(options.id.as_deref()), job.checked.job.job())
        .map_err(Error::Invalid)
}

/// Checks all rows of the file, and finds out what is to do with those of the shard. Nothing is written.
fn check_all(
    options: &MapArgs,
    job: &PreparedJob<'_>,
    rows: &Rows,
    inputs: &mut InputValues,
    folder: &MapFolder,
    shard: Option<Shard>,
) -> Result<CheckedRows, Error> {
    let recorded: HashSet<String> =
        folder.recorded_rows().map_err(|source| Error::Record { path: folder.rows(), source })?.into_iter().collect();
    let (mut to_run, mut ended, mut resumed) = (Vec::new(), 0, 0);
    let mut retried = Vec::new();
    let mut first: Option<RowPlan> = None;
    let mut redactor = None;
    let mut shared_prefixes = SharedPrefixes::new(options.jobs as usize);
    let (mut others, mut foreign, mut with_lease) = (Vec::new(), Vec::new(), Vec::new());
    let (mut unusable, mut defects) = (BTreeMap::new(), Vec::new());
    let date = run_date((job.env.clock)());
    let key = if recorded.is_empty() { None } else { job.record_key(&job.checked.workspace)? };
    check_rows(inputs, rows, |number, inputs| {
        let id = &rows.rows[number].id;
        let identity = RunIdentity { workspace: &job.checked.workspace, run_id: id, run_date: &date };
        let (plan, secrets) = job.checked.plan(inputs, identity)?;
        let redactor = redactor.get_or_insert_with(|| job.secrets(&plan, &secrets).redactor);
        let prefixes = SharedPrefixes::of_row(&plan);
        if first.is_none() {
            first = Some(RowPlan { plan, secrets });
        }
        if !shard.is_none_or(|shard| shard.contains(id)) {
            return Ok(());
        }
        let recorded_state = || match recorded.contains(id) {
            true => recorded_row(&job.checked, inputs, id, &folder.row(id), redactor, key.as_ref()),
            false => Ok(RecordedRow::New),
        };
        let state = match recorded_state() {
            // The other rows run anyway.
            Err(error @ Error::NotARecord { .. }) => {
                let advice = "move the record away, and the row starts again";
                unusable.insert(id.clone(), format!("the row `{id}` can't run: {error}; {advice}"));
                return Ok(());
            }
            state => state?,
        };
        match state {
            RecordedRow::CannotContinue(obstacle) => others.push((id.clone(), obstacle)),
            RecordedRow::Ended { result, is_foreign, defect }
                if options.retry.is_none() || !RetryRows::applies(result.exit_code) =>
            {
                ended += 1;
                if is_foreign {
                    foreign.push(id.clone());
                }
                if has_lease(&folder.row(id)) {
                    with_lease.push(id.clone());
                }
                defects.extend(defect.map(|defect| format!("the row `{id}`: {defect}")));
            }
            state => {
                resumed += usize::from(matches!(state, RecordedRow::Unfinished));
                match state {
                    RecordedRow::Ended { result, .. } => retried.push((result.finished_at, number)),
                    _ => to_run.push(number),
                }
                shared_prefixes.add_row(&prefixes);
            }
        }
        Ok(())
    })?;
    if others.len() > 1 {
        let more = pluralize(others.len() as u64 - 1, "more row");
        job.env.console.warning(&format!(
            "{more} can't continue, either: {}",
            first_names(&others[1..].iter().map(|(id, _)| id.clone()).collect::<Vec<_>>())
        ));
    }
    if let Some((id, obstacle)) = others.into_iter().next() {
        return Err(Error::CannotContinue { record: folder.row(&id), obstacle, by: ContinuedBy::Row });
    }
    // Otherwise, rows that fail each time could keep all others from being started if the map stops early each time.
    retried.sort_unstable();
    to_run.extend(retried.iter().map(|(_, number)| *number));
    let retried = retried.into_iter().map(|(ended_at, number)| (rows.rows[number].id.clone(), ended_at)).collect();
    // A rows file has at least one.
    let first = first.ok_or_else(|| Error::usage("the file has no rows", "Write one row for each run."))?;
    Ok(CheckedRows { to_run, ended, resumed, retried, foreign, with_lease, unusable, defects, first, shared_prefixes })
}

fn row_ids(options: &MapArgs) -> RowIds {
    options.id.clone().map_or(RowIds::Digest, RowIds::Column)
}

/// Refuses another `--id` than before: with other ids, all rows would run again.
fn check_ids(manifest: &MapManifest, options: &MapArgs) -> Result<(), Error> {
    let (before, help) = match &manifest.ids {
        Some(ids) if *ids != row_ids(options) => match ids {
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

/// How the rows are kept apart: as before, as the user says, or as the job needs it.
fn isolation(
    options: &MapArgs,
    job: &PreparedJob<'_>,
    folder: &MapFolder,
    manifest: Option<&MapManifest>,
    plan: &Plan,
) -> Result<Isolation, Error> {
    let asked = options.isolate.map(Isolation::from);
    let chosen = || {
        asked.unwrap_or_else(|| match plan.changes_files() {
            // Without a commit there can be no worktrees.
            true if head_commit(&job.checked.workspace).is_none() => Isolation::Copy,
            true => Isolation::for_workspace(&job.checked.workspace, job.git().as_ref()),
            false => Isolation::None,
        })
    };
    let Some(manifest) = manifest else { return Ok(chosen()) };
    let key = job.record_key(&job.checked.workspace)?;
    // A command that can write to the folder of runs must not decide that rows change the user's files.
    let is_ours = key.is_some_and(|key| manifest.is_sealed_by(&key, &folder.name()))
        && manifest.job == job.checked.job.name()
        && manifest.workspace.as_ref() == Some(&job.checked.workspace);
    if !is_ours && manifest.isolation != chosen() {
        let (recorded, chosen) = (isolate_argument(manifest.isolation), isolate_argument(chosen()));
        return Err(Error::usage(
            format!(
                "{} was made on another machine, for another workspace or with another key, and says `--isolate {recorded}`, \
                 where this start chooses `--isolate {chosen}`",
                folder.manifest().display()
            ),
            format!(
                "If the map is yours and you want that, add --isolate {recorded}. Otherwise choose another name for the map \
                 with --name NAME, or move its folder away. Machines that share runs need the same LEGWORK_RECORD_KEY."
            ),
        ));
    }
    if asked.is_some_and(|asked| asked != manifest.isolation) {
        return Err(Error::usage(
            "the map was started with another --isolate",
            "Remove --isolate, or choose another name for the map with --name NAME.",
        ));
    }
    Ok(manifest.isolation)
}

/// The value of `--isolate`.
fn isolate_argument(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Worktree => "worktree",
        Isolation::Copy => "copy",
        Isolation::None => "none",
    }
}

fn print_dry_run(
    options: &MapArgs,
    env: &CliEnv,
    summary: &str,
    isolation: Isolation,
    plan: &Plan,
) -> Result<u8, Error> {
    let isolation = match isolation {
        Isolation::Worktree => "a git worktree for each row",
        Isolation::Copy => "a copy of the folder for each row",
        Isolation::None => "shared by all rows",
    };
    env.console
        .print_sanitized(&format!("{}\nworkspace: {isolation}\n\nThe plan of the first row:\n", printable(summary)));
    let preview = PlanPreview {
        plan,
        cost_bound: &plan.cost_bound(env.prices()?, (env.clock)()),
        sandbox: &options.job.sandbox_options.describe(plan),
        verbose: false,
        display: env.console.stdout_display(),
    };
    env.console.print_formatted("text", &reports::find(reports::PLANS, "text")(&preview));
    Ok(0)
}

/// The folder of a map, before its rows run.
struct MapSetup<'a> {
    folder: MapFolder,
    name: &'a str,
    isolation: Isolation,
    /// Distinguishes this process from all others of the map.
    process: &'a str,
    /// Seals the manifest.
    key: &'a RecordKey,
}

impl MapSetup<'_> {
    /// Creates the folder and its manifest, or takes the workspaces from the manifest that is there. Another process may do
    /// the same, but only after the file that is returned is closed.
    fn prepare(&self, options: &MapArgs, job: &PreparedJob<'_>) -> Result<(RowWorkspaces, File), Error> {
        create_job_dir(&job.checked.out, &self.folder.path)?;
        let out = OpenRoot::open_canonical(&job.checked.out)
            .map_err(|source| Error::Record { path: job.checked.out.clone(), source })?;
        let workspaces = MapFolder::workspaces(out.path(), job.checked.job.name(), self.name);
        MapFolder::check_workspaces(out.path(), &workspaces)?;
        let lock = self.folder.lock()?;
        let git = job.git();
        let take = || {
            let git = git.as_ref();
            RowWorkspaces::take_snapshot(self.isolation, &job.checked.workspace, &workspaces, &out, self.process, git)
                .map_err(isolation_error)
        };
        let new = |snapshot, started_at| MapManifest {
            format: MAP_FORMAT,
            job: job.checked.job.name().to_owned(),
            rows_file: options.rows.to_string_lossy().into_owned(),
            ids: Some(row_ids(options)),
            workspace: Some(job.checked.workspace.clone()),
            isolation: self.isolation,
            snapshot,
            started_at,
            mac: None,
        };
        let mut manifest = match self.folder.read_manifest()? {
            Some(manifest) => manifest,
            None => {
                let new = new(take()?, (job.env.clock)());
                match self.folder.write_manifest(&new, self.key, false)? {
                    true => self.folder.read_manifest()?.unwrap_or(new),
                    // Only where the file system has no locks.
                    false => self.folder.read_manifest()?.unwrap_or(new),
                }
            }
        };
        check_ids(&manifest, options)?;
        if manifest.isolation != self.isolation {
            let message = "another process has started the map with another --isolate at the same time";
            return Err(Error::usage(message, "Start it with the same options."));
        }
        let is_ours = manifest.is_sealed_by(self.key, self.name) && manifest.job == job.checked.job.name();
        let is_usable = |snapshot: &Snapshot| {
            snapshot.is_of(&job.checked.workspace, &workspaces) && snapshot.is_available(git.as_ref())
        };
        let is_gone = !manifest.snapshot.as_ref().map_or(self.isolation == Isolation::None, is_usable);
        if !is_ours || is_gone {
            let taken = take()?;
            // An unsealed manifest can name any file.
            if is_gone || taken != manifest.snapshot {
                let why = if is_gone { "is gone" } else { "in map.json isn't sealed with this key" };
                job.env.console.warning(&format!(
                    "the snapshot of the workspace {why}, so rows that start now begin with the workspace as it is now"
                ));
            }
            manifest = match is_ours {
                true => MapManifest { snapshot: taken, ..manifest },
                false => new(taken, manifest.started_at),
            };
            self.folder.write_manifest(&manifest, self.key, true)?;
        }
        RowWorkspaces::remove_unused_snapshots(&out, &workspaces, manifest.snapshot.as_ref());
        let missing = manifest.snapshot.as_ref().map(|snapshot| snapshot.missing_repositories(git.as_ref()));
        let missing = missing.unwrap_or_default();
        if !missing.is_empty() {
            warn_about_submodules(job.env, &first_names(&missing));
        }
        Ok((RowWorkspaces::new(&job.checked.workspace, &out, &workspaces, manifest.snapshot).with_git(git), lock))
    }

    /// The budget that this process shares with others.
    fn budget(&self, limits: &WholeMapLimits) -> Result<Arc<MapBudget>, Error> {
        let path = self.folder.ledger();
        let ledger = Ledger::open(&path, self.process, limits.of_all)
            .map_err(|source| Error::Record { path: path.clone(), source })?;
        Ok(Arc::new(MapBudget::new(ledger, limits.of_all)))
    }
}

/// Removes the workspaces of rows that have ended, which killed processes have left.
fn remove_leftovers(workspaces: &RowWorkspaces, folder: &MapFolder, env: &CliEnv) {
    if let Err(error) = workspaces.remove_leftovers(|id| needs_no_workspace(&folder.row(id))) {
        env.console.warning(&format!("the workspaces of rows that have ended can't be removed: {error}"));
    }
}

/// How many agents of a row can run at once. A tool server needs about as many descriptors.
fn agents_of(plan: &Plan) -> usize {
    let subagents = if plan.subagents.is_empty() { 0 } else { plan.limits.parallel_subagents as usize };
    1 + subagents + plan.mcp.len()
}

/// Says which records belong to no row of the file.
fn note_other_rows(folder: &MapFolder, ids: &[String], env: &CliEnv) {
    let known: HashSet<&str> = ids.iter().map(String::as_str).collect();
    let recorded: HashSet<String> = folder.recorded_rows().unwrap_or_default().into_iter().collect();
    // `--retry` adds a number to the names of earlier records.
    let is_earlier = |id: &str| original_id(id).is_some_and(|id| known.contains(id) || recorded.contains(id));
    let others = recorded.iter().filter(|id| !known.contains(id.as_str()) && !is_earlier(id));
    let mut others: Vec<String> = others.cloned().collect();
    others.sort_unstable();
    if others.is_empty() {
        return;
    }
    env.console.warning(&format!(
        "the map has records of {} that the rows file doesn't have (any more): {}; they are kept, and aren't part of the \
         results",
        pluralize(others.len() as u64, "row"),
        first_names(&others),
    ));
}

/// The first few ids of rows, for a message.
fn first_names(ids: &[String]) -> String {
    let named = ids.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if ids.len() > MAX_NAMED { format!("{named}, ...") } else { named }
}

fn warn_about_submodules(env: &CliEnv, which: &str) {
    env.console.warning(&format!(
        "git worktrees don't have the files of submodules and nested repositories ({which}), so the rows don't see them; with \
         --isolate copy, each row gets a copy of the whole folder",
    ));
}

/// Refuses to retry rows whose earlier records would get the ids of other rows.
fn check_retry(rows: &Rows) -> Result<(), Error> {
    let ids: HashSet<&str> = rows.rows.iter().map(|row| row.id.as_str()).collect();
    match rows.rows.iter().find(|row| original_id(&row.id).is_some_and(|id| ids.contains(id))) {
        None => Ok(()),
        Some(row) => Err(Error::usage(
            format!("--retry: the earlier record of another row would have the id of the row `{}`", row.id),
            "Give the rows ids without a number after a dot.",
        )),
    }
}
