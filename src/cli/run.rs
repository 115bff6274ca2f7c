//! `legwork run`: runs a job, or prints its plan with `--dry-run`.

use std::path::PathBuf;

use super::arguments::{RUN_EXIT_CODES, format_parser, parse_assignment, parse_limits};
use super::env::CliEnv;
use super::execute::{PrintedRun, execute_and_print};
use super::prepared_job::{JobArgs, PreparedJob, RunIdentity, RunParts};
use super::result_file::ResultFile;
use super::save_case::CaseRecorder;
use crate::error::Error;
use crate::formats::{self, PlanPreview};
use crate::plan::Plan;
use crate::record::{Recorder, new_run_id};
use crate::run::Signals;

/// Options of `legwork run`.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXIT_CODES)]
pub(super) struct RunArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Replace a limit of the job; may be repeated
    ///
    /// The limits are cost_usd, tokens, wall_clock, tool_calls, subagents, parallel_subagents, max_turns (the parent's)
    /// and SUBAGENT.max_turns.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment, conflicts_with = "save_case")]
    limit: Vec<String>,
    /// What to print to stdout
    ///
    /// `text` prints the parent's last text, or its result if there is no text; `json` prints the contents of result.json;
    /// `jsonl` prints each event as it happens, one JSON value per line.
    #[arg(long, default_value = "text", value_parser = format_parser(formats::ANSWERS))]
    format: String,
    /// Also write the job's result to this file
    ///
    /// If the run ends without a result, the file doesn't exist afterwards.
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
    /// Save this run as a test case: tests/JOB/NAME next to the job file
    #[arg(long, value_name = "NAME", conflicts_with = "dry_run")]
    save_case: Option<String>,
    /// Print the plan and stop: no key, no network, no process
    ///
    /// The plan has every rendered prompt, tool and limit, the sandbox, and the most that the run can cost.
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run, also print the tool descriptions that the models get
    #[arg(long, requires = "dry_run")]
    verbose: bool,
}

pub(super) fn run(options: &RunArgs, env: &CliEnv) -> Result<u8, Error> {
    let args = &options.job;
    // Before the file of an earlier run is removed.
    args.sandbox_options.require_for_untrusted(args.untrusted)?;
    let is_job =
        |file: &&PathBuf| file.canonicalize().is_ok_and(|file| args.job.canonicalize().is_ok_and(|job| job == file));
    if let Some(file) = options.result.as_ref().filter(is_job) {
        let message = format!("--result {} is the job file", file.display());
        return Err(Error::usage(message, "Choose another file for the result."));
    }
    let result_path = options.result.as_deref().filter(|_| !options.dry_run);
    let result_file = ResultFile::prepare(result_path)?;
    let job = PreparedJob::read(args, parse_limits(&options.limit), env)?;
    let inputs = job.inputs()?;
    let started = (env.clock)();
    let (run_id, run_date) = match options.dry_run {
        true => ("<run.id>".to_owned(), "<run.date>".to_owned()),
        false => (new_run_id(&job.out, job.job.name(), started), started.strftime("%Y-%m-%d").to_string()),
    };
    let run = RunIdentity { workspace: &job.workspace, run_id: &run_id, run_date: &run_date };
    let (plan, secret_inputs) = job.plan(&inputs, run)?;
    job.check_options(&plan)?;
    ResultFile::check_result_option(options.result.as_deref(), &plan)?;
    let secrets = job.secrets(&plan, &secret_inputs);
    if options.dry_run {
        return print_plan(options, env, &plan.redacted(&secrets.redactor));
    }

    let job = job.connect(&plan, secrets)?;
    let providers = job.providers(&plan)?;
    job.prepared.check_out()?;
    result_file.iter().try_for_each(ResultFile::make_folder)?;
    let (workspace, out) = (&job.prepared.workspace, &job.prepared.out);
    let begin_case = |name| CaseRecorder::begin(name, &args.job, workspace, out, &job.secrets.redactor);
    let case = options.save_case.as_deref().map(begin_case).transpose()?;
    // From here on, a signal must let the record be closed.
    let signals = Signals::catch()?;
    let sandbox = job.sandbox(&plan)?;
    let recorder = Recorder::create(out, &plan.job, &run_id, env.record_key(&[workspace])?)?;
    let display_folder = args.out.join(&plan.job).join(&recorder.run_id);
    let record = recorder.folder.clone();
    let options_to_record = args.to_run_options(env, options.result.as_deref());
    let parts = RunParts {
        plan: plan.clone(),
        providers,
        sandbox,
        recorder,
        options: options_to_record,
        resume_state: None,
        signals,
    };
    let mut execution = job.execution(parts)?;
    execution.observers.extend(case.as_ref().map(CaseRecorder::observer));
    let printed = PrintedRun { display_folder: &display_folder, format: &options.format, result_file };
    let code = execute_and_print(execution, printed, env)?;
    if let Some(case) = case {
        case.finish(&plan, &record, &args.sandbox_options, env);
    }
    Ok(code)
}

/// Prints a plan.
fn print_plan(options: &RunArgs, env: &CliEnv, plan: &Plan) -> Result<u8, Error> {
    if options.verbose && options.format != "text" {
        let message = format!("--verbose has no effect with --format {}", options.format);
        return Err(Error::usage(message, "Remove one of the two options."));
    }
    let preview = PlanPreview {
        plan,
        cost_bound: &plan.cost_bound(env.prices()?, (env.clock)()),
        sandbox: &options.job.sandbox_options.describe(plan),
        verbose: options.verbose,
        display: env.console.stdout_display(),
    };
    env.console.print_formatted(&options.format, &formats::find(formats::PLANS, &options.format)(&preview));
    Ok(0)
}
