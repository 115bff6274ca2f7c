//! `legwork run`: runs a job, or prints its plan with `--dry-run`.

use std::path::{Path, PathBuf};

use super::arguments::{RUN_EXIT_CODES, format_parser, parse_assignment, parse_limits};
use super::env::CliEnv;
use super::execute::{PrintedRun, execute_and_print, print_ended_run};
use super::next_command::NextCommand;
use super::output::printable;
use super::output_files::OutputFileArgs;
use super::prepared_job::{JobArgs, PreparedJob};
use super::progress::RunProgress;
use super::save_case::CaseRecorder;
use crate::error::{ContinuedBy, Error, Obstacle};
use crate::event::StateRead;
use crate::journal::RecordKey;
use crate::map::rows::name_mistake;
use crate::plan::diff::PlanChange;
use crate::plan::{InputValues, Plan};
use crate::record::{PreviousAttempt, Record, Recorder, create_job_dir, new_run_id};
use crate::reports::{self, PlanPreview, StatePreview};
use crate::run::{
    CheckedJob, ConnectedJob, KeyedRun, KeyedTarget, OpenRun, RunIdentity, Settled, StateFile, StateSource, StepsRun,
    keyed_folder, may_be_unsaved, open_keyed_run, read_state, run_date, start_runtime,
};
use crate::run::{OpenRecord, RunSecrets, Signals};
use crate::text::{pluralize, sanitize};

/// Options of `legwork run`.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXIT_CODES)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) job: JobArgs,
    /// Replace a limit of the job; may be repeated
    ///
    /// The limits are cost_usd, tokens, wall_clock, tool_calls, subagents, upload, parallel_subagents, max_turns (the parent's)
    /// and SUBAGENT.max_turns.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment, conflicts_with = "save_case")]
    limit: Vec<String>,
    /// What to print to stdout
    ///
    /// `text` prints the parent's last text, or its result if there is no text; `json` prints the contents of result.json;
    /// `jsonl` prints each event as it happens, one JSON value per line.
    #[arg(long, default_value = "text", value_parser = format_parser(reports::ANSWERS))]
    format: String,
    #[command(flatten)]
    files: OutputFileArgs,
    /// Give the run a name, so that the same command can be repeated
    ///
    /// The record is RUNS/JOB/KEY. If the run hasn't ended, it is resumed. If it has ended, its answer is printed again with its
    /// exit code, and nothing is asked. If another process executes it, the exit code is 75. If the job or its inputs have
    /// changed since, the exit code is 2.
    #[arg(long, value_name = "KEY", value_parser = parse_key, conflicts_with = "save_case")]
    key: Option<String>,
    /// The file with the state of the job; default: OUT/JOB/state.json
    ///
    /// A run that completes saves its state there for the next one. If another run has the file, the exit code is 75.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// With --key: start again, and keep the record of the earlier run as KEY.1, KEY.2 and so on
    #[arg(long, requires = "key", conflicts_with = "dry_run")]
    fresh: bool,
    /// Save this run as a test case: tests/JOB/NAME next to the job file
    #[arg(long, value_name = "NAME", conflicts_with = "dry_run")]
    save_case: Option<String>,
    /// Print the plan and stop: no key, no network, no process
    ///
    /// The plan has every rendered prompt, tool and limit, the sandbox, and the most that the run can cost. If a context file or
    /// a skill has a `ref`, git reads it.
    #[arg(long)]
    dry_run: bool,
    /// Run only the steps before the agent, print their values as JSON, and stop
    ///
    /// No key is needed, no agent starts, and no record is left.
    #[arg(long, conflicts_with_all = ["dry_run", "key", "save_case"])]
    before_only: bool,
    /// With --dry-run, also print the tool descriptions that the models get
    #[arg(long, requires = "dry_run")]
    verbose: bool,
}

pub(super) fn run(options: &RunArgs, env: &CliEnv) -> Result<u8, Error> {
    let args = &options.job;
    // Before the file of an earlier run is removed.
    args.sandbox_options.require_for_untrusted(args.untrusted)?;
    if args.is_stdin() && options.save_case.is_some() {
        let message = "--save-case needs a job file, and the job is from standard input";
        return Err(Error::usage(message, "Write the job to a file, and run that."));
    }
    options.files.check(Some(&args.job))?;
    // With a key, another process may just be writing the files.
    let is_now = !options.dry_run && !options.before_only && options.key.is_none();
    let mut files = if is_now { options.files.prepare()? } else { OutputFileArgs::default().prepare()? };
    let limits = parse_limits(&options.limit);
    let has_cost_limit = limits.contains_key("cost_usd");
    let mut job = PreparedJob::read(args, limits, has_cost_limit, env)?;
    job.set_state_file(options.state.as_deref())?;
    let inputs = job.inputs()?;
    let started = (env.clock)();
    let run_id = match (&options.key, options.dry_run) {
        (Some(key), _) => key.clone(),
        (None, true) => "<run.id>".to_owned(),
        (None, false) => new_run_id(&job.checked.job_dir, started),
    };
    let run_date = if options.dry_run { "<run.date>".to_owned() } else { run_date(started) };
    let run = RunIdentity { workspace: &job.checked.workspace, run_id: &run_id, run_date: &run_date };
    let (plan, secret_inputs) = job.checked.plan(&inputs, run)?;
    job.check_options(&plan)?;
    options.files.check_result_option(&plan)?;
    let secrets = job.host.secrets(&plan, &secret_inputs);
    if options.dry_run {
        let state = job.state.as_deref();
        return print_plan(options, env, &plan.redacted(&secrets.redactor), state);
    }
    if options.before_only {
        let state = job.state.as_ref().zip(plan.state.as_ref());
        let state = state.map(|(path, planned)| -> Result<_, Error> {
            let first = || StateRead { value: planned.initial.clone(), sha256: None };
            Ok(read_state(path, &plan.job, planned.max_bytes)?.unwrap_or_else(first))
        });
        let state = state.transpose()?;
        let job = job.connect(&plan, secrets, None)?;
        return print_steps(&job, plan, state, &run_id, env);
    }
    if let Some(key) = &options.key {
        let folder = keyed_folder(&job.checked, key);
        let target = KeyedTarget {
            folder: &folder,
            workspace: &job.checked.workspace.clone(),
            make_workspace: &|| Ok(()),
            links_latest: true,
            is_row: false,
            set_aside: options.fresh.then_some(PreviousAttempt::Any),
            now: started,
            key: (job.host.record_key)(&job.checked.workspace)?,
        };
        return run_with_key(options, env, job, &inputs, secrets, &target, &plan);
    }

    let state_path = job.state.clone();
    let job = job.connect(&plan, secrets, options.files.result.as_deref())?;
    // From here on, a signal must let the record be closed.
    let signals = Signals::catch()?;
    args.check_out(&job.checked, env)?;
    let (workspace, out) = (&job.checked.workspace, &job.checked.out);
    let record_key = (job.host.record_key)(workspace)?;
    let next = NextCommand::resume(&args.set, &args.set_env, &plan.secret_inputs, record_key.is_some());
    let state = open_state(&plan, state_path.as_deref(), &job.checked, record_key.as_ref(), env)?;
    let create = || Recorder::create(out, &job.checked.job_dir, &run_id, record_key.clone());
    // The files of steps before the agent are in the record, where the sandbox lets agents read them. Without steps, nothing is
    // begun before the sandbox works.
    let early = (!plan.before.is_empty()).then(create).transpose()?;
    let mut setup = job.set_up(plan.clone(), &job.checked.job_dir.join(&run_id), signals)?;
    files.open_folders()?;
    let redactor = &job.secrets.redactor;
    let begin_case = |name| CaseRecorder::begin(name, &args.job, workspace, out, state.as_ref(), redactor, env);
    let case = options.save_case.as_deref().map(begin_case).transpose()?;
    setup.prepared.state = state.map(|file| StateSource::File(Box::new(file)));
    setup.observers.extend(case.as_ref().map(CaseRecorder::observer));
    let recorder = early.map_or_else(create, Ok)?;
    let display_folder = args.out.join(&plan.job).join(&recorder.run_id);
    let folder = recorder.folder.clone();
    let printed = PrintedRun { display_folder: &display_folder, format: &options.format, files, next };
    let code = execute_and_print(setup, OpenRecord { recorder, before: None }, &printed, env)?;
    if let Some(case) = case {
        case.finish(&plan, &folder, &args.sandbox_options, env);
    }
    Ok(code)
}

/// Takes the file of the state for a run, if its job keeps one.
fn open_state(
    plan: &Plan,
    path: Option<&Path>,
    job: &CheckedJob,
    key: Option<&RecordKey>,
    env: &CliEnv,
) -> Result<Option<StateFile>, Error> {
    let Some(path) = path else { return Ok(None) };
    if path.parent() == Some(&job.job_dir) {
        create_job_dir(&job.out, &job.job_dir)?;
    }
    StateFile::for_plan(plan, path, key, &|warning| env.console.warning(&printable(warning)))
}

/// Runs a job with `--key`. `planned` is the plan of a run that is new.
fn run_with_key(
    options: &RunArgs,
    env: &CliEnv,
    job: PreparedJob<'_>,
    inputs: &InputValues,
    secrets: RunSecrets,
    target: &KeyedTarget<'_>,
    planned: &Plan,
) -> Result<u8, Error> {
    let args = &options.job;
    args.check_out(&job.checked, env)?;
    let display_folder = args.out.join(job.checked.job.name()).join(target.folder.file_name().unwrap_or_default());
    // `--fresh` again would start again.
    let next = |plan: &Plan| NextCommand::again(env, &["--fresh"], &plan.secret_inputs, &secrets.redactor);
    // From here on, a signal must let the record be closed.
    let signals = Signals::catch()?;
    let state_path = job.state.clone();
    let open_state = || open_state(planned, state_path.as_deref(), &job.checked, target.key.as_ref(), env);
    let run_id = target.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // Before its record is completed: it may have been killed before it could save its state.
    let is_unsaved = |path: &PathBuf| may_be_unsaved(path, target.folder, &run_id);
    let mut state = if state_path.as_ref().is_some_and(is_unsaved) { open_state()? } else { None };
    if let Some(file) = &mut state
        && file.settle(target.folder, &run_id, target.key.as_ref())? == Settled::Changed
    {
        let obstacle = Obstacle::StateChanged { file: state_path.unwrap_or_default() };
        return Err(Error::CannotContinue { record: target.folder.to_owned(), obstacle, by: ContinuedBy::Key });
    }
    let opened = open_keyed_run(&job.checked, inputs, &secrets, target).inspect_err(|error| {
        if let Error::CannotContinue { obstacle: Obstacle::OtherPlan { changes }, .. } = error {
            print_changes(changes, env);
        }
    });
    let OpenRun { plan, record } = match opened? {
        KeyedRun::Open(run) => *run,
        KeyedRun::Ended(record) => {
            let mut files = options.files.prepare()?;
            files.open_folders()?;
            let next = next(&record.plan);
            let printed = PrintedRun { display_folder: &display_folder, format: &options.format, files, next };
            return print_ended(&record, &printed, env);
        }
    };
    let mut files = options.files.prepare()?;
    let next = next(&plan);
    let state = if state.is_some() { state } else { open_state()? };
    if let Some(obstacle) = state.as_ref().zip(record.before.as_ref()).and_then(|(file, before)| file.obstacle(before))
    {
        let record = target.folder.to_owned();
        return Err(Error::CannotContinue { record, obstacle, by: ContinuedBy::Key });
    }
    let job = job.connect(&plan, secrets, options.files.result.as_deref())?;
    let mut setup = job.set_up(plan, &record.recorder.folder, signals)?;
    setup.prepared.state = state.map(|file| StateSource::File(Box::new(file)));
    files.open_folders()?;
    let printed = PrintedRun { display_folder: &display_folder, format: &options.format, files, next };
    execute_and_print(setup, record, &printed, env)
}

/// Prints the answer of a run that ended before.
pub(super) fn print_ended(record: &Record, printed: &PrintedRun<'_>, env: &CliEnv) -> Result<u8, Error> {
    let Some(result) = record.result() else {
        let why = "it has no result".to_owned();
        return Err(Error::NotARecord { path: record.folder.clone(), why });
    };
    env.console.eprint(&format!("record: {}", printable(&printed.display_folder.to_string_lossy())));
    env.warn_of_defect(record);
    env.console.eprint("this run has ended before; this is its answer again");
    print_ended_run(record, result, printed, env)?;
    // Not the one in the file, which could be any number.
    Ok(result.outcome.exit_code(None))
}

/// Lists on stderr what differs between the plan of a record and the new one.
fn print_changes(changes: &[PlanChange], env: &CliEnv) {
    const MOST_LINES: usize = 60;
    let text: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let text = text.join("\n");
    let mut lines = text.lines();
    lines.by_ref().take(MOST_LINES).for_each(|line| env.console.eprint_problem(&format!("  {}", printable(line))));
    match lines.count() {
        0 => {}
        more => env.console.eprint_problem(&format!("  ({})", pluralize(more as u64, "more line"))),
    }
}

/// Checks a key, which names a folder.
fn parse_key(key: &str) -> Result<String, String> {
    let help = "use letters, digits, `.`, `_` and `-`, at most 100, with a letter or digit first";
    name_mistake("key", key).map_or_else(|| Ok(key.to_owned()), |why| Err(format!("{why}; {help}")))
}

/// Runs the steps before the agent, and prints their values.
fn print_steps(
    job: &ConnectedJob<'_>,
    plan: Plan,
    state: Option<StateRead>,
    run_id: &str,
    env: &CliEnv,
) -> Result<u8, Error> {
    if plan.before.is_empty() {
        return Err(Error::usage("--before-only: the job has no steps before the agent", "Declare them in `before`."));
    }
    let has_condition = plan.skip_if().is_some();
    let folder = tempfile::tempdir().map_err(Error::environment("a temporary folder can't be created"))?;
    let signals = Signals::catch()?;
    let mut setup = job.set_up(plan, folder.path(), signals.clone())?;
    setup.prepared.state = state.map(StateSource::Given);
    let progress = RunProgress::start(env, false, &setup.prepared.plan, env.prices()?, None, &signals);
    setup.observers.push(progress.observer());
    let runtime = start_runtime()?;
    let ended = runtime.block_on(setup.execute_steps(run_id, folder.path()));
    drop(progress);
    runtime.shutdown_background();
    match ended? {
        Ok(StepsRun { values, is_skipped }) => {
            let text = format!("{:#}\n", serde_json::Value::Object(values));
            env.console.print(&sanitize::escape_json(&text));
            if has_condition {
                env.console.eprint(&format!("skip_if: {is_skipped}"));
            }
            Ok(0)
        }
        Err(abort) => {
            env.console.eprint_problem(&format!("{}: {}", abort.outcome, printable(&abort.message)));
            Ok(abort.outcome.exit_code(signals.first()))
        }
    }
}

/// Prints a plan.
fn print_plan(options: &RunArgs, env: &CliEnv, plan: &Plan, state: Option<&Path>) -> Result<u8, Error> {
    if options.verbose && options.format != "text" {
        let message = format!("--verbose has no effect with --format {}", options.format);
        return Err(Error::usage(message, "Remove one of the two options."));
    }
    let state = state.zip(plan.state.as_ref()).map(|(path, planned)| -> Result<_, Error> {
        let now = read_state(path, &plan.job, planned.max_bytes)?;
        let size = now.map(|now| now.value.to_string().len() as u64);
        Ok(StatePreview { path: path.to_string_lossy().into_owned(), size })
    });
    let preview = PlanPreview {
        state: state.transpose()?,
        plan,
        cost_bound: &plan.cost_bound(env.prices()?, (env.clock)()),
        sandbox: &options.job.sandbox_options.describe(plan),
        verbose: options.verbose,
        display: env.console.stdout_display(),
    };
    env.console.print_formatted(&options.format, &reports::find(reports::PLANS, &options.format)(&preview));
    Ok(0)
}
