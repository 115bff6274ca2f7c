//! `legwork test`: runs the test cases of jobs in parallel and compares the results with the expectations.

mod discover;
mod engine;
mod load;

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use self::discover::DiscoveredCase;
use self::engine::OfflineEngine;
use self::load::CaseLoader;
use super::arguments::format_parser;
use super::env::CliEnv;
use super::sandbox_options::SandboxOptions;
use crate::cases::{Case, CaseReport, CaseRun, RunnerConfig, TestReport, run_case, temporary_folder};
use crate::error::Error;
use crate::exit_code::EXIT_FAILED;
use crate::lints::JobTrust;
use crate::process::fd_limit::max_concurrent_runs;
use crate::reports::{self, test_text};
use crate::run::{Signals, Start, run_many};
use crate::sync::IgnorePoison;

/// The time after a signal for runs to end and their folders to be removed, before the process is ended.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(15);

/// How many agents of a case are expected to work at once.
const AGENTS_AT_ONCE: usize = 2;

/// The least number of runs before snapshots are updated.
const MIN_RUNS_TO_ACCEPT: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// Options of `legwork test`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 if every case passed, 1 if one failed, 2 for a usage error or if there are no cases, 3 if a case or its job is \
invalid (then no case is run).")]
pub(super) struct TestArgs {
    /// Job files, folders, folders of cases, or cases; default: jobs, or . if there is no such folder
    paths: Vec<PathBuf>,
    /// Run only cases with this text in their names, JOB/CASE; may be repeated
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// The output format
    #[arg(long, default_value = "text", value_parser = format_parser(reports::TEST_REPORTS))]
    format: String,
    #[command(flatten)]
    run_options: TestRunOptions,
}

/// How to run cases.
#[derive(Debug, clap::Args)]
pub(super) struct TestRunOptions {
    /// Update the snapshots of cases that otherwise pass
    ///
    /// Runs each case at least twice. A snapshot that differs between the runs isn't updated.
    #[arg(long)]
    pub(super) accept: bool,
    /// Run each case this many times; a case with varying results is flaky, and fails
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub(super) repeat: NonZeroU32,
    /// The number of cases to run in parallel; default: the number of processors
    #[arg(long, value_name = "NUMBER")]
    pub(super) jobs: Option<NonZeroUsize>,
    /// Treat the cases and their jobs as untrusted: refuse `env`, a `network` and other privileges
    ///
    /// Also refuses secret inputs, `git: commit`, `allow_changes`, `checks`, tool servers, files of commits (`ref`), models that reply from a file, files behind
    /// symbolic links and --sandbox off.
    #[arg(long)]
    pub(super) untrusted: bool,
    #[command(flatten)]
    pub(super) sandbox_options: SandboxOptions,
}

pub(super) fn test(options: &TestArgs, env: &CliEnv) -> Result<u8, Error> {
    let run_options = &options.run_options;
    run_options.sandbox_options.require_for_untrusted(run_options.untrusted)?;
    let default = if env.current_folder.join("jobs").is_dir() { "jobs" } else { "." };
    let default = [PathBuf::from(default)];
    let paths = if options.paths.is_empty() { &default } else { options.paths.as_slice() };
    let origin = JobTrust::from_untrusted_flag(run_options.untrusted);
    let cases = load_cases(paths, &options.filter, origin, env)?;
    let signals = Signals::catch_within(SHUTDOWN_GRACE)?;
    let report = run_cases(&cases, run_options, env, &signals, &|case| print_case(options, env, case))?;
    let shown = reports::find(reports::TEST_REPORTS, &options.format)(&report, env.console.stdout_display());
    env.console.print_formatted(&options.format, &shown);
    Ok(match signals.first() {
        Some(signal) if report.interrupted => 128 + signal,
        _ if report.failed() > 0 => EXIT_FAILED,
        _ => 0,
    })
}

/// Prints the result of a case: to stdout, or to stderr if the format is for programs.
fn print_case(options: &TestArgs, env: &CliEnv, case: &CaseReport) {
    match options.format.as_str() {
        "text" => env.console.print_sanitized(&test_text::case_line(case, env.console.stdout_display())),
        _ => env.console.eprint(&test_text::case_line(case, env.console.stderr_display())),
    }
}

/// Loads the cases that `paths` stand for and whose names contain one of the texts of `filter`.
///
/// # Errors
/// The findings about the cases, or that there are none.
pub(super) fn load_cases(
    paths: &[PathBuf],
    filter: &[String],
    origin: JobTrust,
    env: &CliEnv,
) -> Result<Vec<Case>, Error> {
    let (found, findings) = discover::discover(paths);
    let mut loader = CaseLoader::new(&env.current_folder, env.user_config()?, origin);
    loader.findings.extend(findings);
    let is_wanted = |found: &&DiscoveredCase| {
        let name = found.name();
        filter.is_empty() || filter.iter().any(|text| name.contains(text.as_str()))
    };
    let wanted: Vec<_> = found.iter().filter(is_wanted).collect();
    if wanted.is_empty() && loader.findings.is_empty() {
        let message = match found.len() {
            0 => {
                let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
                format!("no test cases found in {}", shown.join(", "))
            }
            1 => format!("the only case doesn't match --filter {}", filter.join(" or ")),
            all => format!("none of the {all} cases matches --filter {}", filter.join(" or ")),
        };
        let hint =
            "A case is a folder tests/JOB/CASE next to the job file. `legwork run JOB --save-case CASE` creates one.";
        return Err(Error::usage(message, hint));
    }
    let cases: Vec<Case> = wanted.into_iter().filter_map(|found| loader.load_case(found)).collect();
    if loader.findings.is_empty() { Ok(cases) } else { Err(Error::Invalid(loader.findings)) }
}

/// Runs cases in parallel and calls `show` for each as it ends.
pub(super) fn run_cases(
    cases: &[Case],
    options: &TestRunOptions,
    env: &CliEnv,
    signals: &Signals,
    show: &(dyn Fn(&CaseReport) + Sync),
) -> Result<TestReport, Error> {
    let began = Instant::now();
    let (temporary, folder) = temporary_folder().map_err(Error::environment("a temporary folder can't be created"))?;
    let runner_config = RunnerConfig {
        git: env.git_program(&env.changeable_folders(&env.current_folder, options.sandbox_options.writable())),
        accept: options.accept,
        // A snapshot must be the same in every run.
        repeat: if options.accept { options.repeat.max(MIN_RUNS_TO_ACCEPT) } else { options.repeat },
        stop: signals.stop.clone(),
    };
    let engine = OfflineEngine {
        env,
        sandbox_options: options.sandbox_options.in_folder(&env.current_folder),
        untrusted: options.untrusted,
        signals: signals.clone(),
    };
    let processors = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let jobs = options.jobs.unwrap_or(processors).get().min(max_concurrent_runs(AGENTS_AT_ONCE));
    let reports = Mutex::new(Vec::new());
    let may_start = |_| if signals.stop.is_cancelled() { Start::Never } else { Start::Now };
    let run = async |number: usize, _| {
        let case = &cases[number];
        let folder = folder.join(format!("{number}-{}", case.name.replace('/', "-")));
        if let Some(report) = run_case(CaseRun { case, folder, config: &runner_config, engine: &engine }).await {
            let mut reports = reports.lock().ignore_poison();
            show(&report);
            reports.push(report);
        }
        false
    };
    run_many((0..cases.len()).collect(), jobs, &may_start, &run)?;
    let mut reports = reports.into_inner().ignore_poison();
    reports.sort_by(|one, other| one.name.cmp(&other.name));
    let interrupted = signals.first().is_some() && reports.len() < cases.len();
    if reports.iter().any(|report| report.kept_folder.is_some()) {
        let _ = temporary.keep();
    }
    let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(TestReport { cases: reports, duration_ms, interrupted })
}
