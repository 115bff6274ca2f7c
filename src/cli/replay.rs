//! `legwork replay`: replays a recorded run offline and reports where it differs.

use std::path::{Path, PathBuf};

use super::arguments::{parse_assignment, read_secret_inputs, resolve_workspace};
use super::env::CliEnv;
use super::output::printable;
use super::read_files;
use super::resume::print_permissions;
use super::sandbox_options::SandboxOptions;
use crate::error::{Error, Obstacle};
use crate::lints::JobTrust;
use crate::plan::Plan;
use crate::pricing::Prices;
use crate::record::{LATEST, RUNS, Record, find_run};
use crate::replay::{LiveTools, Replay};
use crate::run::{SandboxScope, Signals, cannot_resume, head_commit, runs_folder, start_runtime, way_out};
use crate::text::sanitize;
use crate::workspace_changes::has_tracked_files;

/// Options of `legwork replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only the record is needed: no key, no network, no workspace. legwork replays the recorded replies and tool results, and compares \
every agent's turns, messages, calls and results with the record. It ignores times, cost and the sandbox. An interrupted \
run is compared up to its last event.

RUN is a folder, a run id or its first characters, a key, the id of a row, JOB/KEY, MAP/ROW, JOB/MAP/ROW, JOB/latest, or latest.

Exit codes: 0 if nothing differs, 7 if something does, 2 if the record can't be used, 3 if the job of --job is invalid.")]
pub(super) struct ReplayArgs {
    /// The run
    #[arg(default_value = LATEST)]
    run: String,
    /// The folder with the records of runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
    /// Replay with an edited job: report the changes to the plan, and where the conversation would first differ
    ///
    /// The job gets the recorded inputs. New inputs need a default.
    #[arg(long, value_name = "FILE", conflicts_with = "tools")]
    job: Option<PathBuf>,
    /// Run the tools for real and compare their results, too
    ///
    /// They change the workspace as the run did, so it must be as it was before the run, for example a fresh checkout of
    /// the same commit. Results that depend on time, on random names or on an unspecified order differ.
    #[arg(long)]
    pub(super) tools: bool,
    /// With --tools: the folder that the tools work in; default: the run's own
    #[arg(long, value_name = "DIR", requires = "tools")]
    workspace: Option<PathBuf>,
    /// With --tools: set a secret input again, to NAME=VALUE, NAME=@FILE or NAME=@- (standard input)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment, requires = "tools")]
    set: Vec<String>,
    /// With --tools: set a secret input again, to the value of an environment variable
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = parse_assignment, requires = "tools")]
    set_env: Vec<String>,
    /// With --tools: trust a record that was made elsewhere, and print what it permits
    #[arg(long, requires = "tools")]
    trust_record: bool,
    #[command(flatten, next_help_heading = "With --tools")]
    sandbox_options: SandboxOptions,
    /// The output format
    #[arg(long, default_value = "text", value_parser = ["text", "json"])]
    format: String,
}

pub(super) fn replay(options: &ReplayArgs, env: &CliEnv) -> Result<u8, Error> {
    if !options.tools && !options.sandbox_options.is_default() {
        let message = "--sandbox, --allow-read and --allow-write need --tools";
        return Err(Error::usage(message, "Add --tools, or remove them."));
    }
    let folder = find_run(&options.out, &options.run, &has_tracked_files)?;
    let record = Record::open(&folder)?;
    let replay = Replay::read(&record)?;
    env.warn_of_defect(&record);
    // Only an edited job needs prices: the record has the costs.
    let prices = if options.job.is_some() { env.prices()?.clone() } else { Prices::new() };
    let edited = options.job.as_deref().map(|job| edited_plan(job, &replay, &prices, env)).transpose()?;
    let signals = if options.tools { Some(Signals::catch()?) } else { None };
    if options.tools {
        check_origin(options, &record, &replay, &folder, env)?;
    }
    let tools = signals.as_ref().map(|signals| prepare_tools(options, &replay, &folder, signals, env)).transpose()?;
    let runtime = start_runtime()?;
    let report = runtime.block_on(replay.execute(edited.as_ref(), &prices, tools))?;
    // A thread that reads from a slow disk must not delay the exit.
    runtime.shutdown_background();
    for note in &report.left_out {
        env.console.eprint(&printable(note));
    }
    if let Some(signal) = report.stopped {
        env.console.eprint(&format!("{signal}: the replay was interrupted"));
    }
    match options.format.as_str() {
        "json" => env.console.print(&sanitize::escape_json(&format!("{:#}\n", report.json()))),
        _ => env.console.print(&sanitize::text(&report.text())),
    }
    Ok(report.exit_code(signals.and_then(|signals| signals.first())))
}

/// Refuses to run the tools of a record that wasn't made here, unless the user trusts it: its plan says which variables commands
/// get, and what they reach and change.
fn check_origin(
    options: &ReplayArgs,
    record: &Record,
    replay: &Replay,
    folder: &Path,
    env: &CliEnv,
) -> Result<(), Error> {
    let started = replay.started();
    let folders = [options.workspace.as_deref(), Some(Path::new(&started.workspace)), Some(folder)];
    let key = env.record_key(&folders.into_iter().flatten().collect::<Vec<_>>())?;
    if key.is_some_and(|key| record.is_signed_by(&key).unwrap_or(false)) {
        return Ok(());
    }
    print_permissions(&started.plan, env);
    if options.trust_record { Ok(()) } else { Err(cannot_resume(folder, Obstacle::Foreign { has_ended: false })) }
}

/// Prepares the tools of `--tools`, as `legwork resume` does.
fn prepare_tools(
    options: &ReplayArgs,
    replay: &Replay,
    folder: &Path,
    signals: &Signals,
    env: &CliEnv,
) -> Result<LiveTools, Error> {
    let started = replay.started();
    LiveTools::check(started)?;
    let root = resolve_workspace(options.workspace.as_deref().unwrap_or(Path::new(&started.workspace)))?;
    let now = head_commit(&root);
    if now != started.commit {
        let [now, then] = [&now, &started.commit].map(|commit| commit.as_deref().unwrap_or("none"));
        env.console.warning(&format!(
            "the workspace is at another commit than at the start of the run: {now} instead of {then}"
        ));
    }
    let mut plan = (*started.plan).clone();
    plan.workspace = root.to_string_lossy().into_owned();
    let secret_inputs = read_secret_inputs(&options.set, &options.set_env, env, &plan.secret_inputs)?;
    let secrets = env.host()?.secrets(&plan, &secret_inputs);
    let unreadable = |source| Error::Record { path: folder.to_owned(), source };
    let folder = folder.canonicalize().map_err(unreadable)?;
    let runs_folder = runs_folder(&folder, &started.run_id, &plan.job);
    let job_files = started.protected.iter().map(PathBuf::from).collect();
    let confinement =
        options.sandbox_options.confine(env, SandboxScope::new(&plan, &folder), job_files, &runs_folder)?;
    let run_options = options.sandbox_options.to_run_options(&env.current_folder, None);
    let egress = way_out(&plan, &run_options, 0, &env.host()?)?;
    LiveTools::open(&folder, &root, secrets, confinement, (&plan, egress), signals.stop.clone())
}

/// The plan of an edited job with the recorded inputs.
fn edited_plan(path: &Path, replay: &Replay, prices: &Prices, env: &CliEnv) -> Result<Plan, Error> {
    let read = read_files::read_job(path, JobTrust::Trusted);
    let (source, prompts) = read.map_err(|finding| Error::Invalid(vec![finding]))?;
    let files = env.workspace_files(Path::new(&replay.started().plan.workspace));
    let (plan, findings) = replay.edited_plan(&source, prompts.as_ref(), prices, files)?;
    if !findings.is_empty() {
        env.console.findings(&findings);
    }
    Ok(plan)
}
