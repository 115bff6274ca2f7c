//! Runs a case: `legwork run` in a separate process, offline, with a fresh copy of the fixture.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::evaluate::{Evaluation, evaluate};
use super::{Case, CaseReport, Failure, fixture, snapshot};
use crate::event::{JournalEntry, RunModel, RunResult};
use crate::git::GitProgram;
use crate::running_clock;
use crate::workspace::remove_folder::remove_folder;

/// The time for a run to end after SIGTERM.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(6);
/// The most bytes of stderr to keep.
const MAX_STDERR_BYTES: usize = 16 * 1024;
/// The longest event to read, in bytes.
const MAX_EVENT_BYTES: u64 = 256 << 20;

/// The environment variables that a run inherits. They include no keys and no variables of CI systems.
const INHERITED_VARIABLES: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"];

/// The configuration for all cases.
#[derive(Debug)]
pub struct RunnerConfig {
    /// The legwork executable.
    pub executable: PathBuf,
    /// The git program, for cases with commits.
    pub git: Option<GitProgram>,
    /// The environment variables.
    pub variables: BTreeMap<String, String>,
    /// The sandbox arguments for `legwork run`.
    pub sandbox: Vec<std::ffi::OsString>,
    /// Whether to update snapshots.
    pub accept: bool,
    /// Whether the jobs are untrusted.
    pub untrusted: bool,
    /// The number of runs of each case. A case with varying results fails.
    pub repeat: NonZeroU32,
    /// Stops all runs when cancelled.
    pub stop: CancellationToken,
}

/// A run of a case.
#[derive(Debug)]
pub struct CaseRun<'a> {
    /// The case.
    pub case: &'a Case,
    /// The canonical path of a folder for this run, which needn't exist yet.
    pub folder: PathBuf,
    /// The configuration.
    pub config: &'a RunnerConfig,
}

/// Runs a case the configured number of times and evaluates it. `None` if it was stopped. The folder is kept only if the case
/// failed. For a flaky case, it contains the two runs that differ.
pub async fn run_case(run: CaseRun<'_>) -> Option<CaseReport> {
    let began = Instant::now();
    let CaseRun { case, folder, config } = &run;
    let times = config.repeat.get();
    let numbered = |number: u32| match times {
        1 => folder.clone(),
        _ => folder.join(format!("run-{number}")),
    };
    let (mut evaluation, mut flaky) = (Evaluation::default(), None);
    for number in 1..=times {
        let one = CaseRun { case, folder: numbered(number), config };
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
        match stale.update() {
            Ok(()) => updated.push(shown),
            Err(error) => failures.push(Failure::new(format!("can't write {shown}: {error}"))),
        }
    }
    (failures, updated)
}

impl CaseRun<'_> {
    fn workspace(&self) -> PathBuf {
        self.folder.join("work")
    }

    fn runs_folder(&self) -> PathBuf {
        self.folder.join("runs")
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
        let mut child = self
            .command()
            .spawn()
            .map_err(|error| Failure::new(format!("can't start {}: {error}", self.config.executable.display())))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (counts, stderr, (status, timed_out)) =
            futures_util::future::join3(count_events(stdout), read_tail(stderr), self.wait(&mut child)).await;
        if timed_out {
            let message = format!("timed out after {} s", self.case.timeout().as_secs());
            return Err(Failure::new(message).detail(stderr));
        }
        let Some(result) = counts.started.as_ref().and_then(|(_, started)| self.result(&started.run_id)) else {
            let message = format!("the run ended without a result: {}", ending(status));
            return Err(Failure::new(message).detail(stderr));
        };
        Ok(evaluate(self.case, &result, &counts, &self.workspace()))
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

    fn command(&self) -> Command {
        let Self { case, config, .. } = self;
        let mut command = Command::new(&config.executable);
        let model = format!("replay/{}", case.replies.display());
        command.arg("run").arg(&case.job_file).args([
            "--offline",
            "--local-context",
            "--format",
            "jsonl",
            "--model",
            &model,
        ]);
        command.arg("--workspace").arg(self.workspace()).arg("--out").arg(self.runs_folder()).args(&config.sandbox);
        if config.untrusted {
            command.arg("--untrusted");
        }
        if let Some(inputs) = &case.inputs {
            command.arg("--inputs").arg(inputs);
        }
        for name in &case.missing_secrets {
            command.arg("--set").arg(format!("{name}={}", placeholder_secret(name)));
        }
        let is_passed = |name: &str| {
            INHERITED_VARIABLES.contains(&name)
                || name.starts_with("LC_")
                || case.env.iter().any(|granted| granted == name)
        };
        let variables = config.variables.iter().filter(|(name, _)| is_passed(name));
        command
            .env_clear()
            .envs(variables)
            .current_dir(self.workspace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A signal from the terminal must reach only this process, which passes it on.
            .process_group(0)
            .kill_on_drop(true);
        command
    }

    /// Waits for the run to end. Ends it after the timeout or when all runs are stopped. Returns whether it timed out.
    async fn wait(&self, child: &mut Child) -> (std::io::Result<ExitStatus>, bool) {
        let timed_out = tokio::select! {
            status = child.wait() => return (status, false),
            () = running_clock::sleep(self.case.timeout()) => true,
            () = self.config.stop.cancelled() => false,
        };
        if let Some(pid) = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
            let _ = kill_process(pid, Signal::TERM);
        }
        if let Ok(status) = tokio::time::timeout(SHUTDOWN_GRACE, child.wait()).await {
            return (status, timed_out);
        }
        let _ = child.start_kill();
        (child.wait().await, timed_out)
    }

    fn result(&self, run_id: &str) -> Option<RunResult> {
        let path = self.runs_folder().join(&self.case.job).join(run_id).join("result.json");
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }
}

/// The placeholder value of a secret input without a value in the case.
pub fn placeholder_secret(name: &str) -> String {
    format!("placeholder-for-{name}")
}

/// Counts events as they arrive. Skips lines that aren't events.
async fn count_events(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> RunModel {
    let mut counts = RunModel::default();
    let Some(pipe) = pipe else { return counts };
    let mut lines = BufReader::with_capacity(64 * 1024, pipe);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut lines).take(MAX_EVENT_BYTES).read_until(b'\n', &mut line).await {
        let entry = str::from_utf8(&line).ok().and_then(|line| JournalEntry::from_json(line.trim_end()).ok());
        if let Some(entry) = entry {
            counts.apply(&entry.agent, &entry.event, entry.at);
        }
        line.clear();
    }
    counts
}

/// Reads output and returns its end.
async fn read_tail(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let (mut kept, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = pipe.read(&mut piece).await {
        kept.extend_from_slice(&piece[..length]);
        if kept.len() > 2 * MAX_STDERR_BYTES {
            kept.drain(..kept.len() - MAX_STDERR_BYTES);
        }
    }
    let from = kept.len().saturating_sub(MAX_STDERR_BYTES);
    String::from_utf8_lossy(&kept[from..]).trim_end().to_owned()
}

fn ending(status: std::io::Result<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status)) {
        Ok((Some(code), _)) => format!("exit code {code}"),
        Ok((None, status)) => status.to_string(),
        Err(error) => error.to_string(),
    }
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
