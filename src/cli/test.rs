//! `legwork test`: runs the cases of jobs, side by side, and holds what happens against what is expected.

mod find;
mod load;

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};

use self::load::Loading;
use super::confine::Confinement;
use super::{Surroundings, format_parser};
use crate::cases::{Attempt, Case, CaseReport, Given, Report, attempt, temporary_folder};
use crate::error::Error;
use crate::formats::{self, Subject};
use crate::lints::Origin;
use crate::run::Signals;

/// How long runs may take to end after a signal, and their folders to go; what ends the process otherwise.
const GRACE: Duration = Duration::from_secs(15);

/// How often a case is run at least before its snapshots are renewed.
const TWICE: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// The exit code where a case failed.
const EXIT_FAILED: u8 = 1;

/// Options of `legwork test`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 where every case passed, 1 where one failed, 2 for a wrong command line and where there is no case at all, \
3 where a case or its job is invalid: then none is run.")]
pub(super) struct Options {
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
    confinement: Confinement,
}

pub(super) fn test(options: &Options, around: &Surroundings) -> Result<u8, Error> {
    if options.untrusted && options.confinement.is_off() {
        return Err(Error::Usage {
            message: "an untrusted job is not run without a sandbox".into(),
            hint: Some("Leave out one of --untrusted and --sandbox off.".into()),
        });
    }
    let cases = load(options, around)?;
    let signals = Signals::catch_within(GRACE)?;
    let how =
        How { accept: options.accept, repeat: options.repeat, at_once: options.jobs, untrusted: options.untrusted };
    let report = run(&cases, how, &options.confinement, around, &signals, &|case| {
        show(options, around, case);
    })?;
    let format = formats::find(&options.format);
    let shown = format.and_then(|format| format.cases(&report, around.out.look()));
    around.out.formatted(&options.format, &shown.unwrap_or_default());
    Ok(match signals.first() {
        Some(signal) if report.interrupted => 128 + signal,
        _ if report.failed() > 0 => EXIT_FAILED,
        _ => 0,
    })
}

/// Shows a case as it ends: where stdout is for a program, on stderr.
fn show(options: &Options, around: &Surroundings, case: &CaseReport) {
    let line = |name: &str, look| formats::find(name).and_then(|format| format.case(case, look));
    match line(&options.format, around.out.look()) {
        Some(line) => around.out.formatted(&options.format, &line),
        None => around.out.beside(&line("text", around.out.look_beside()).unwrap_or_default()),
    }
}

fn load(options: &Options, around: &Surroundings) -> Result<Vec<Case>, Error> {
    let usual = if around.folder.join("jobs").is_dir() { "jobs" } else { "." };
    let paths = if options.paths.is_empty() { vec![PathBuf::from(usual)] } else { options.paths.clone() };
    let (found, findings) = find::named(&paths);
    let mut loading = Loading::new(&around.folder, around.own()?, Origin::from(options.untrusted));
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
    let cases: Vec<Case> = wanted.iter().filter_map(|found| loading.case(found)).collect();
    if loading.findings.is_empty() { Ok(cases) } else { Err(Error::Invalid(loading.findings)) }
}

/// The case in a folder.
///
/// # Errors
/// Where something is wrong with it.
pub(super) fn one(folder: &Path, around: &Surroundings) -> Result<Vec<Case>, Error> {
    let (found, findings) = find::named(&[folder.to_owned()]);
    let mut loading = Loading::new(&around.folder, around.own()?, Origin::Trusted);
    loading.findings.extend(findings);
    let cases: Vec<Case> = found.iter().filter_map(|found| loading.case(found)).collect();
    if loading.findings.is_empty() { Ok(cases) } else { Err(Error::Invalid(loading.findings)) }
}

/// How cases are run.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    /// Whether snapshots are renewed.
    pub(super) accept: bool,
    /// How often each case is run.
    pub(super) repeat: NonZeroU32,
    /// How many cases run at once; `None`: as many as there are processors.
    pub(super) at_once: Option<NonZeroUsize>,
    /// Whether their jobs get no more than the workspace.
    pub(super) untrusted: bool,
}

impl How {
    /// Once, nothing renewed.
    pub(super) const ONCE: Self = Self { accept: false, repeat: NonZeroU32::MIN, at_once: None, untrusted: false };
}

/// Runs cases side by side and tells of each as it ends.
pub(super) fn run(
    cases: &[Case],
    how: How,
    confinement: &Confinement,
    around: &Surroundings,
    signals: &Signals,
    show: &dyn Fn(&CaseReport),
) -> Result<Report, Error> {
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
    let given = Given {
        executable,
        variables: around.variables.clone(),
        sandbox: confinement.arguments(&around.folder),
        untrusted: how.untrusted,
        accept: how.accept,
        // What is stored has to come out the same again.
        repeat: if how.accept { how.repeat.max(TWICE) } else { how.repeat },
        stop: signals.stop(),
    };
    let usual = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let at_once = how.at_once.unwrap_or(usual).get();
    let mut reports = runtime.block_on(async {
        let attempts = cases.iter().enumerate().map(|(number, case)| {
            let folder = folder.join(format!("{number}-{}", case.name.replace('/', "-")));
            attempt(Attempt { case, folder, given: &given })
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
    if reports.iter().any(|report| report.kept.is_some()) {
        let _ = temporary.keep();
    }
    let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Report { cases: reports, duration_ms, interrupted })
}
