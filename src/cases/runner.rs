//! Runs a case, offline, with a fresh copy of the fixture, and evaluates it.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroU32;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::evaluate::{Evaluation, evaluate};
use super::{Case, CaseReport, Failure, fixture, snapshot};
use crate::event::{RunModel, RunResult};
use crate::git::GitProgram;
use crate::running_clock;
use crate::workspace::remove_folder::remove_folder;

/// The time for a run to end after it was stopped.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(6);
/// The exit code of a program of Rust that panicked.
const EXIT_PANIC: u8 = 101;

/// Executes the runs of cases. Several threads can use it, each with a runtime of its own.
pub trait CaseEngine: Sync {
    /// Executes the job of a case in this workspace, offline and with the replies of the case, and writes the record to a new
    /// folder in `runs`. Cancelling `stop` ends the run early.
    fn execute(
        &self,
        case: &Case,
        workspace: &Path,
        runs: &Path,
        stop: CancellationToken,
    ) -> impl Future<Output = CaseEnd>;
}

/// How the run of a case ended.
pub struct CaseEnd {
    /// Its result, and what has happened; or the exit code of `legwork run` if it couldn't run.
    pub ended: Result<(RunResult, RunModel), u8>,
    /// The end of what `legwork run` would have printed to stderr.
    pub output: String,
}

/// The configuration for all cases.
#[derive(Debug)]
pub struct RunnerConfig {
    /// The git program, for cases with commits.
    pub git: Option<GitProgram>,
    /// Whether to update snapshots.
    pub accept: bool,
    /// The number of runs of each case. A case with varying results fails.
    pub repeat: NonZeroU32,
    /// Stops all runs when cancelled.
    pub stop: CancellationToken,
}

/// A run of a case.
#[derive(Debug)]
pub struct CaseRun<'a, E> {
    /// The case.
    pub case: &'a Case,
    /// The canonical path of a folder for this run, which needn't exist yet.
    pub folder: PathBuf,
    /// The configuration.
    pub config: &'a RunnerConfig,
    /// Executes it.
    pub engine: &'a E,
}

/// Runs a case the configured number of times and evaluates it. `None` if it was stopped. The folder is kept only if the case
/// failed. For a flaky case, it contains the two runs that differ.
pub async fn run_case<E: CaseEngine>(run: CaseRun<'_, E>) -> Option<CaseReport> {
    let began = Instant::now();
    let CaseRun { case, folder, config, engine } = &run;
    let times = config.repeat.get();
    let numbered = |number: u32| match times {
        1 => folder.clone(),
        _ => folder.join(format!("run-{number}")),
    };
    let (mut evaluation, mut flaky) = (Evaluation::default(), None);
    for number in 1..=times {
        let one = CaseRun { case, folder: numbered(number), config, engine: *engine };
        let Some(next) = one.run_once().await else {
            remove(folder).await;
            return None;
        };
        flaky = (number > 1).then(|| first_difference(case, &evaluation, &next, number)).flatten();
        if flaky.is_some() {
            evaluation.failures.extend(next.failures);
            break;
        }
        if number > 1 {
            remove(&numbered(number - 1)).await;
        }
        evaluation = next;
    }
    let (failures, updated) = match flaky {
        Some(flaky) => (std::iter::once(flaky).chain(evaluation.failures).collect(), Vec::new()),
        None => accept_snapshots(case, evaluation, config.accept),
    };
    let passed = failures.is_empty();
    if passed {
        remove(folder).await;
    }
    let (job, name) = case.name.split_once('/').unwrap_or((&case.name, ""));
    Some(CaseReport {
        name: case.name.clone(),
        job: job.to_owned(),
        case: name.to_owned(),
        folder: case.display_path.clone(),
        duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        kept_folder: (!passed && folder.exists()).then(|| folder.clone()),
        failures,
        updated_snapshots: updated,
    })
}

async fn remove(folder: &Path) {
    let folder = folder.to_owned();
    let _ = tokio::task::spawn_blocking(move || remove_folder(&folder)).await;
}

/// The first difference between two runs of a flaky case.
fn first_difference(case: &Case, one: &Evaluation, other: &Evaluation, number: u32) -> Option<Failure> {
    let previous = number - 1;
    let flaky = |what: String| Failure::new(format!("the case is flaky: {what}"));
    if one.outcome != other.outcome {
        let [one, other] = [one, other].map(|run| run.outcome.map_or("no result".to_owned(), |it| format!("`{it}`")));
        return Some(flaky(format!("the outcome is {one} in run {previous} and {other} in run {number}")));
    }
    let failure = |failure: &Failure| (failure.place.clone(), failure.message.clone());
    for (these, those, run) in [(one, other, previous), (other, one, number)] {
        let others: Vec<_> = those.failures.iter().map(failure).collect();
        if let Some(only) = these.failures.iter().find(|only| !others.contains(&failure(only))) {
            return Some(flaky(format!("only in run {run}, {}", only.message)));
        }
    }
    let paths: BTreeSet<&Path> =
        one.stale_snapshots.iter().chain(&other.stale_snapshots).map(|(stale, _)| stale.path.as_path()).collect();
    paths.into_iter().find_map(|path| {
        let contents = |evaluation: &Evaluation| {
            match evaluation.stale_snapshots.iter().find(|(stale, _)| stale.path == path) {
                Some((stale, _)) => stale.actual.clone(),
                // The snapshot equals the actual contents.
                None => snapshot::read(&case.folder, path).unwrap_or_default(),
            }
        };
        let (first, second) = (contents(one), contents(other));
        let shown = path.strip_prefix(&case.folder).unwrap_or(path).display();
        (first != second).then(|| {
            flaky(format!("{shown} differs between run {previous} and run {number}"))
                .detail(snapshot::diff(&first, &second))
        })
    })
}

/// Updates the snapshots if `accept` is set and nothing else failed. Returns the failures and the updated snapshots.
fn accept_snapshots(case: &Case, evaluation: Evaluation, accept: bool) -> (Vec<Failure>, Vec<String>) {
    let Evaluation { mut failures, stale_snapshots: stale, .. } = evaluation;
    if !accept || !failures.is_empty() {
        failures.extend(stale.into_iter().map(|(_, failure)| failure));
        return (failures, Vec::new());
    }
    let mut updated = Vec::new();
    for (stale, _) in stale {
        let name = stale.path.strip_prefix(&case.folder).unwrap_or(&stale.path);
        let shown = format!("{}/{}", case.display_path, name.display());
        match stale.update(&case.folder) {
            Ok(()) => updated.push(shown),
            Err(error) => failures.push(Failure::new(format!("can't write {shown}: {error}"))),
        }
    }
    (failures, updated)
}

impl<E: CaseEngine> CaseRun<'_, E> {
    fn workspace(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// Runs the case once. `None` if all runs were stopped.
    async fn run_once(&self) -> Option<Evaluation> {
        if self.config.stop.is_cancelled() {
            return None;
        }
        let evaluated = self.execute().await;
        let evaluation =
            evaluated.unwrap_or_else(|failure| Evaluation { failures: vec![failure], ..Evaluation::default() });
        (!self.config.stop.is_cancelled()).then_some(evaluation)
    }

    async fn execute(&self) -> Result<Evaluation, Failure> {
        self.prepare().await?;
        let Self { case, folder, config, engine } = self;
        let (workspace, runs, stop) = (self.workspace(), folder.join("runs"), config.stop.child_token());
        let run = engine.execute(case, &workspace, &runs, stop.clone());
        // A panic is a bug, and mustn't take the other cases with it.
        let mut run = pin!(AssertUnwindSafe(run).catch_unwind());
        let (mut end, mut timed_out) = (None, false);
        tokio::select! {
            biased;
            ended = &mut run => end = Some(ended),
            () = stop.cancelled() => {}
            () = running_clock::sleep(case.timeout()) => timed_out = true,
        }
        if end.is_none() {
            stop.cancel();
            end = tokio::time::timeout(SHUTDOWN_GRACE, run).await.ok();
        }
        let panicked = |_| CaseEnd { ended: Err(EXIT_PANIC), output: "this is a bug in legwork".to_owned() };
        let end = end.map(|end| end.unwrap_or_else(panicked));
        if timed_out {
            let message = format!("timed out after {} s", case.timeout().as_secs());
            return Err(Failure::new(message).detail(end.map(|end| end.output).unwrap_or_default()));
        }
        let Some(CaseEnd { ended, output }) = end else { return Err(Failure::new("the run didn't stop")) };
        let without_result =
            |code| Failure::new(format!("the run ended without a result: exit code {code}")).detail(output);
        let (result, model) = ended.map_err(without_result)?;
        Ok(evaluate(case, &result, &model, &workspace))
    }

    /// Creates the workspace from the fixture.
    async fn prepare(&self) -> Result<(), Failure> {
        let (workspace, case) = (self.workspace(), self.case.folder.clone());
        let git = self.case.expect.git.as_ref();
        let commits = git.map(|git| git.value.clone());
        let program = self.config.git.clone();
        let created = tokio::task::spawn_blocking(move || -> Result<(), String> {
            fs::create_dir_all(&workspace).map_err(|error| format!("{}: {error}", workspace.display()))?;
            let fixture = case.join(super::WORKSPACE_FOLDER);
            match commits {
                Some(commits) => fixture::create_repository(&case, &workspace, &commits, program.as_ref()),
                None if fixture.exists() => fixture::copy_fixture(&fixture, &workspace)
                    .map_err(|error| format!("can't copy {}: {error}", fixture.display())),
                None => Ok(()),
            }
        });
        let failed = |why: String| Failure::new("can't create the workspace").detail(why).at_value(git);
        created.await.unwrap_or_else(|error| Err(error.to_string())).map_err(failed)
    }
}

/// The placeholder value of a secret input without a value in the case.
pub fn placeholder_secret(name: &str) -> String {
    format!("placeholder-for-{name}")
}

/// Creates a temporary folder for cases, which is removed when dropped. Also returns its canonical path.
///
/// # Errors
/// The folder can't be created.
pub fn temporary_folder() -> std::io::Result<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::Builder::new().prefix("legwork-cases-").tempdir()?;
    let path = Path::new(folder.path()).canonicalize()?;
    Ok((folder, path))
}
