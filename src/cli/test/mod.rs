//! `legwork test`: runs the cases of jobs, side by side, and holds what happens against what is expected.

mod discover;
mod load;

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};

use self::load::CaseLoader;
use super::sandbox_options::SandboxOptions;
use super::{CliEnv, format_parser};
use crate::cases::{Case, CaseReport, CaseRun, RunnerConfig, TestReport, run_case, temporary_folder};
use crate::error::Error;
use crate::formats::{self, Subject};
use crate::lints::JobTrust;
use crate::run::Signals;

/// How long runs may take to end after a signal, and their folders to go; what ends the process otherwise.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(15);

/// How often a case is run at least before its snapshots are renewed.
const MIN_RUNS_TO_ACCEPT: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// The exit code where a case failed.
const EXIT_FAILED: u8 = 1;

/// Options of `legwork test`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 where every case passed, 1 where one failed, 2 for a wrong command line and where there is no case at all, \
3 where a case or its job is invalid: then none is run.")]
pub(super) struct TestArgs {
    /// Job files, folders, folders of cases, or cases; default: jobs where there is such a folder, else .
    paths: Vec<PathBuf>,
    /// Only cases with this in their names, JOB/CASE; may be repeated
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Renew the snapshots of cases in which nothing else is wrong; each case is run at least twice, and a snapshot that
    /// isn't the same each time is refused
    #[arg(long)]
    accept: bool,
    /// Run each case this many times; one that doesn't come out the same each time is flaky, and fails
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    repeat: NonZeroU32,
    /// How many cases run at once; default: as many as there are processors
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<NonZeroUsize>,
    /// How to print what came of them
    #[arg(long, default_value = "text", value_parser = format_parser(Subject::Cases))]
    format: String,
    /// The cases and their jobs are not from somebody you trust: refuse jobs that ask for env, secret inputs, an open
    /// network, checks, a model that answers from a file, and the like, and links to files
    #[arg(long)]
    untrusted: bool,
    #[command(flatten)]
    sandbox_options: SandboxOptions,
}

pub(super) fn test(options: &TestArgs, around: &CliEnv) -> Result<u8, Error> {
    if options.untrusted && options.sandbox_options.is_off() {
        return Err(Error::Usage {
            message: "an untrusted job is not run without a sandbox".into(),
            hint: Some("Leave out one of --untrusted and --sandbox off.".into()),
        });
    }
    let cases = load_cases(options, around)?;
    let signals = Signals::catch_within(SHUTDOWN_GRACE)?;
    let how = TestRunConfig {
        accept: options.accept,
        repeat: options.repeat,
        parallelism: options.jobs,
        untrusted: options.untrusted,
    };
    let report = run_cases(&cases, how, &options.sandbox_options, around, &signals, &|case| {
        print_case(options, around, case);
    })?;
    let format = formats::find(&options.format);
    let shown = format.and_then(|format| format.test_report(&report, around.console.stdout_display()));
    around.console.print_formatted(&options.format, &shown.unwrap_or_default());
    Ok(match signals.first() {
        Some(signal) if report.interrupted => 128 + signal,
        _ if report.failed() > 0 => EXIT_FAILED,
        _ => 0,
    })
}

/// Shows a case as it ends: where stdout is for a program, on stderr.
fn print_case(options: &TestArgs, around: &CliEnv, case: &CaseReport) {
    let line = |name: &str, look| formats::find(name).and_then(|format| format.case_result(case, look));
    match line(&options.format, around.console.stdout_display()) {
        Some(line) => around.console.print_formatted(&options.format, &line),
        None => around.console.eprint(&line("text", around.console.stderr_display()).unwrap_or_default()),
    }
}

fn load_cases(options: &TestArgs, around: &CliEnv) -> Result<Vec<Case>, Error> {
    let usual = if around.current_folder.join("jobs").is_dir() { "jobs" } else { "." };
    let paths = if options.paths.is_empty() { vec![PathBuf::from(usual)] } else { options.paths.clone() };
    let (found, findings) = discover::discover(&paths);
    let mut loading = CaseLoader::new(
        &around.current_folder,
        around.user_config()?,
        JobTrust::from_untrusted_flag(options.untrusted),
    );
    loading.findings.extend(findings);
    let is_wanted = |folder: &Path| {
        let parts: Vec<_> = folder.iter().rev().take(2).map(|part| part.to_string_lossy()).collect();
        let name = parts.into_iter().rev().collect::<Vec<_>>().join("/");
        options.filter.is_empty() || options.filter.iter().any(|text| name.contains(text.as_str()))
    };
    let all = found.len();
    let wanted: Vec<_> = found.into_iter().filter(|found| is_wanted(&found.folder)).collect();
    if wanted.is_empty() && loading.findings.is_empty() {
        let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Error::Usage {
            message: match all {
                0 => format!("there is no case in {}", shown.join(", ")),
                1 => format!("the only case hasn't {} in its name", options.filter.join(" or ")),
                all => format!("none of {all} cases has {} in its name", options.filter.join(" or ")),
            },
            hint: Some(
                "A case is a folder tests/JOB/CASE beside the job file; `legwork run JOB --save-case CASE` makes one."
                    .into(),
            ),
        });
    }
    let cases: Vec<Case> = wanted.iter().filter_map(|found| loading.load_case(found)).collect();
    if loading.findings.is_empty() { Ok(cases) } else { Err(Error::Invalid(loading.findings)) }
}

/// The case in a folder.
///
/// # Errors
/// Where something is wrong with it.
pub(super) fn load_case(folder: &Path, around: &CliEnv) -> Result<Vec<Case>, Error> {
    let (found, findings) = discover::discover(&[folder.to_owned()]);
    let mut loading = CaseLoader::new(&around.current_folder, around.user_config()?, JobTrust::Trusted);
    loading.findings.extend(findings);
    let cases: Vec<Case> = found.iter().filter_map(|found| loading.load_case(found)).collect();
    if loading.findings.is_empty() { Ok(cases) } else { Err(Error::Invalid(loading.findings)) }
}

/// How cases are run.
#[derive(Debug, Clone, Copy)]
pub(super) struct TestRunConfig {
    /// Whether snapshots are renewed.
    pub(super) accept: bool,
    /// How often each case is run.
    pub(super) repeat: NonZeroU32,
    /// How many cases run at once; `None`: as many as there are processors.
    pub(super) parallelism: Option<NonZeroUsize>,
    /// Whether their jobs get no more than the workspace.
    pub(super) untrusted: bool,
}

impl TestRunConfig {
    /// Once, nothing renewed.
    pub(super) const ONCE: Self = Self { accept: false, repeat: NonZeroU32::MIN, parallelism: None, untrusted: false };
}

/// Runs cases side by side and tells of each as it ends.
pub(super) fn run_cases(
    cases: &[Case],
    how: TestRunConfig,
    confinement: &SandboxOptions,
    around: &CliEnv,
    signals: &Signals,
    show: &dyn Fn(&CaseReport),
) -> Result<TestReport, Error> {
    let failed = |message: &str| {
        let message = message.to_owned();
        move |source| Error::Environment { message, source }
    };
    let began = Instant::now();
    #[allow(clippy::disallowed_methods)]
    let executable = std::env::current_exe().map_err(failed("this program's own file can't be found"))?;
    let (temporary, folder) = temporary_folder().map_err(failed("there is no place for temporary files"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed("the run time can't be started"))?;
    let given = RunnerConfig {
        executable,
        variables: around.variables.clone(),
        sandbox: confinement.to_arguments(&around.current_folder),
        untrusted: how.untrusted,
        accept: how.accept,
        // What is stored has to come out the same again.
        repeat: if how.accept { how.repeat.max(MIN_RUNS_TO_ACCEPT) } else { how.repeat },
        stop: signals.stop(),
    };
    let usual = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let at_once = how.parallelism.unwrap_or(usual).get();
    let mut reports = runtime.block_on(async {
        let attempts = cases.iter().enumerate().map(|(number, case)| {
            let folder = folder.join(format!("{number}-{}", case.name.replace('/', "-")));
            run_case(CaseRun { case, folder, config: &given })
        });
        let mut ended = stream::iter(attempts).buffer_unordered(at_once);
        let mut reports = Vec::new();
        while let Some(report) = ended.next().await {
            let Some(report) = report else { continue };
            show(&report);
            reports.push(report);
        }
        reports
    });
    runtime.shutdown_background();
    reports.sort_by(|one, other| one.name.cmp(&other.name));
    let interrupted = signals.first().is_some() && reports.len() < cases.len();
    if reports.iter().any(|report| report.kept_folder.is_some()) {
        let _ = temporary.keep();
    }
    let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(TestReport { cases: reports, duration_ms, interrupted })
}
