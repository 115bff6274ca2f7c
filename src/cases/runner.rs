//! A case that is run: `legwork run` in a process of its own, offline, in a fresh copy of the fixture.

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
use super::run_counts::RunCounts;
use super::{Case, CaseReport, Failure, diff, fixture, git_fixture, snapshot};
use crate::event::{JournalEntry, Outcome, RunResult};

/// How long a run may take to end after it was told to.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(6);
/// How much of what a run prints to stderr is kept, in bytes.
const MAX_STDERR_BYTES: usize = 16 * 1024;
/// The longest event that is read, in bytes.
const MAX_EVENT_BYTES: u64 = 256 << 20;

/// Variables of whoever runs the tests that a run gets. No key is among them, nor what CI systems set.
const INHERITED_VARIABLES: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"];

/// What all cases are given.
#[derive(Debug)]
pub struct RunnerConfig {
    /// The program that runs a job: this one.
    pub executable: PathBuf,
    /// The variables that are set.
    pub variables: BTreeMap<String, String>,
    /// Arguments about the sandbox, for `legwork run`.
    pub sandbox: Vec<std::ffi::OsString>,
    /// Whether snapshots are renewed.
    pub accept: bool,
    /// Whether the jobs get no more than the workspace.
    pub untrusted: bool,
    /// How often each case is run: one that isn't the same each time fails.
    pub repeat: NonZeroU32,
    /// Ends all runs when it is cancelled.
    pub stop: CancellationToken,
}

/// One case that is about to be run.
#[derive(Debug)]
pub struct CaseRun<'a> {
    /// The case.
    pub case: &'a Case,
    /// A folder of its own, which need not be there yet, absolute and without links.
    pub folder: PathBuf,
    /// What it is given.
    pub config: &'a RunnerConfig,
}

/// Runs a case as often as is asked for, and judges it. `None` where it was stopped before its end. Its folder is there
/// afterwards only where the case failed; of a case that is flaky, it holds both runs that differ.
pub async fn run_case(attempt: CaseRun<'_>) -> Option<CaseReport> {
    let began = Instant::now();
    let CaseRun { case, folder, config: given } = &attempt;
    let times = given.repeat.get();
    let numbered = |number: u32| match times {
        1 => folder.clone(),
        _ => folder.join(format!("run-{number}")),
    };
    let (mut found, mut flaky) = (Evaluation::default(), None);
    for number in 1..=times {
        let one = CaseRun { case, folder: numbered(number), config: given };
        let Some(again) = one.run_once().await else {
            remove(folder).await;
            return None;
        };
        flaky = (number > 1).then(|| first_difference(case, &found, &again, number)).flatten();
        if flaky.is_some() {
            found.failures.extend(again.failures);
            break;
        }
        if number > 1 {
            remove(&numbered(number - 1)).await;
        }
        found = again;
    }
    let (failures, renewed) = match flaky {
        Some(flaky) => (std::iter::once(flaky).chain(found.failures).collect(), Vec::new()),
        None => accept_snapshots(case, found, given.accept),
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
        updated_snapshots: renewed,
    })
}

async fn remove(folder: &Path) {
    let folder = folder.to_owned();
    let _ = tokio::task::spawn_blocking(move || fixture::remove(&folder)).await;
}

/// What makes a case flaky: the first thing in which a later run of it differs from an earlier one.
fn first_difference(case: &Case, one: &Evaluation, other: &Evaluation, number: u32) -> Option<Failure> {
    let before = number - 1;
    let flaky = |what: String| Failure::new(format!("the case is flaky: {what}"));
    let name = |outcome: Option<Outcome>| outcome.map_or("no result".to_owned(), |outcome| format!("`{outcome}`"));
    if one.outcome != other.outcome {
        return Some(flaky(format!(
            "the outcome is {} in run {before} and {} in run {number}",
            name(one.outcome),
            name(other.outcome)
        )));
    }
    let failure = |failure: &Failure| (failure.place.clone(), failure.message.clone());
    for (these, those, run) in [(one, other, before), (other, one, number)] {
        let others: Vec<_> = those.failures.iter().map(failure).collect();
        if let Some(only) = these.failures.iter().find(|only| !others.contains(&failure(only))) {
            return Some(flaky(format!("only in run {run}, {}", only.message)));
        }
    }
    let paths: BTreeSet<&Path> =
        one.stale_snapshots.iter().chain(&other.stale_snapshots).map(|(stale, _)| stale.path.as_path()).collect();
    paths.into_iter().find_map(|path| {
        let found = |findings: &Evaluation| {
            let stale = findings.stale_snapshots.iter().find(|(stale, _)| stale.path == path);
            // Where it isn't stale, what was found is what is there.
            stale.map_or_else(
                || snapshot::read(&case.folder, path).unwrap_or_default(),
                |(stale, _)| stale.actual.clone(),
            )
        };
        let (then, now) = (found(one), found(other));
        let shown = path.strip_prefix(&case.folder).unwrap_or(path).display();
        (then != now).then(|| {
            flaky(format!("{shown} isn't the same in run {before} and run {number}")).detail(diff::unified(&then, &now))
        })
    })
}

/// What is a failure in the end. Snapshots are renewed only where nothing else is wrong.
fn accept_snapshots(case: &Case, found: Evaluation, accept: bool) -> (Vec<Failure>, Vec<String>) {
    let Evaluation { mut failures, stale_snapshots: stale, .. } = found;
    if !accept || !failures.is_empty() {
        failures.extend(stale.into_iter().map(|(_, failure)| failure));
        return (failures, Vec::new());
    }
    let mut renewed = Vec::new();
    for (stale, _) in stale {
        let name = stale.path.strip_prefix(&case.folder).unwrap_or(&stale.path);
        let shown = format!("{}/{}", case.display_path, name.display());
        match stale.update() {
            Ok(()) => renewed.push(shown),
            Err(error) => failures.push(Failure::new(format!("{shown} can't be written: {error}"))),
        }
    }
    (failures, renewed)
}

impl CaseRun<'_> {
    fn workspace(&self) -> PathBuf {
        self.folder.join("work")
    }

    fn runs_folder(&self) -> PathBuf {
        self.folder.join("runs")
    }

    /// Runs it once; `None` where everything was stopped.
    async fn run_once(&self) -> Option<Evaluation> {
        if self.config.stop.is_cancelled() {
            return None;
        }
        let ran = self.execute().await;
        match ran {
            _ if self.config.stop.is_cancelled() => None,
            Ok(found) => found,
            Err(failure) => Some(Evaluation { failures: vec![failure], ..Evaluation::default() }),
        }
    }

    async fn execute(&self) -> Result<Option<Evaluation>, Failure> {
        self.prepare().await?;
        if self.config.stop.is_cancelled() {
            return Ok(None);
        }
        let mut child = self
            .command()
            .spawn()
            .map_err(|error| Failure::new(format!("{} can't be started: {error}", self.config.executable.display())))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let read = async {
            let (tally, said) = futures_util::future::join(count_events(stdout), read_tail(stderr)).await;
            (tally, said)
        };
        let ended = async { (self.wait(&mut child).await, ()).0 };
        let ((tally, said), (status, is_late)) = futures_util::future::join(read, ended).await;
        if self.config.stop.is_cancelled() {
            return Ok(None);
        }
        if is_late {
            let message = format!("it took longer than {} s", self.case.timeout().as_secs());
            return Err(Failure::new(message).detail(said));
        }
        let Some(result) = tally.run_id.as_ref().and_then(|id| self.result(id)) else {
            let message = format!("the run didn't come to a result: {}", ending(status));
            return Err(Failure::new(message).detail(said));
        };
        Ok(Some(evaluate(self.case, &result, &tally, &self.workspace())))
    }

    /// Makes the fresh copy of the fixture.
    async fn prepare(&self) -> Result<(), Failure> {
        let (workspace, case) = (self.workspace(), self.case.folder.clone());
        let git = self.case.expect.git.as_ref();
        let commits = git.map(|git| git.value.clone());
        let path = self.config.variables.get("PATH").cloned().unwrap_or_default();
        let made = tokio::task::spawn_blocking(move || -> Result<(), String> {
            fs::create_dir_all(&workspace).map_err(|error| format!("{}: {error}", workspace.display()))?;
            let fixture = case.join(super::WORKSPACE_FOLDER);
            match commits {
                Some(commits) => git_fixture::create_repository(&case, &workspace, &commits, &path),
                None if fixture.exists() => fixture::copy_fixture(&fixture, &workspace)
                    .map_err(|error| format!("{} can't be copied: {error}", fixture.display())),
                None => Ok(()),
            }
        });
        let failed = |why: String| {
            let failure = Failure::new("the workspace can't be made").detail(why);
            match git {
                Some(git) => failure.at(&git.place()),
                None => failure,
            }
        };
        made.await.unwrap_or_else(|error| Err(error.to_string())).map_err(failed)
    }

    fn command(&self) -> Command {
        let Self { case, config: given, .. } = self;
        let mut command = Command::new(&given.executable);
        let model = format!("replay/{}", case.replies.display());
        command.arg("run").arg(&case.job_file).args(["--offline", "--format", "jsonl", "--model", &model]);
        command.arg("--workspace").arg(self.workspace()).arg("--out").arg(self.runs_folder()).args(&given.sandbox);
        if given.untrusted {
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
        let variables = given.variables.iter().filter(|(name, _)| is_passed(name));
        command
            .env_clear()
            .envs(variables)
            .current_dir(self.workspace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A signal to the terminal's whole group is for this process to pass on.
            .process_group(0)
            .kill_on_drop(true);
        command
    }

    /// Waits for the run's end, and brings it about when its time is up or all is to end. Whether it was late.
    async fn wait(&self, child: &mut Child) -> (std::io::Result<ExitStatus>, bool) {
        let is_late = tokio::select! {
            ended = child.wait() => return (ended, false),
            () = tokio::time::sleep(self.case.timeout()) => true,
            () = self.config.stop.cancelled() => false,
        };
        if let Some(pid) = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
            let _ = kill_process(pid, Signal::TERM);
        }
        if let Ok(ended) = tokio::time::timeout(SHUTDOWN_GRACE, child.wait()).await {
            return (ended, is_late);
        }
        let _ = child.start_kill();
        (child.wait().await, is_late)
    }

    fn result(&self, run_id: &str) -> Option<RunResult> {
        let path = self.runs_folder().join(&self.case.job).join(run_id).join("result.json");
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }
}

/// A secret input's value, where a case gives none: no secret.
pub fn placeholder_secret(name: &str) -> String {
    format!("stand-in-for-{name}")
}

/// Counts the events as they come; lines that are none are passed over.
async fn count_events(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> RunCounts {
    let mut tally = RunCounts::default();
    let Some(pipe) = pipe else { return tally };
    let mut lines = BufReader::with_capacity(64 * 1024, pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut lines).take(MAX_EVENT_BYTES).read_until(b'\n', &mut line).await {
            Ok(length) if length > 0 => {
                let entry = str::from_utf8(&line).ok().and_then(|line| JournalEntry::from_json(line.trim_end()).ok());
                if let Some(entry) = entry {
                    tally.add_event(entry);
                }
            }
            _ => break,
        }
    }
    tally.finish();
    tally
}

/// The last of what is printed.
async fn read_tail(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let (mut kept, mut piece) = (Vec::new(), [0; 4096]);
    let Some(mut pipe) = pipe else { return String::new() };
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
    match status {
        Ok(status) => match status.code() {
            Some(code) => format!("exit code {code}"),
            None => status.to_string(),
        },
        Err(error) => error.to_string(),
    }
}

/// A temporary folder for cases, and its path without links. It goes when it is dropped.
///
/// # Errors
/// Where none can be made.
pub fn temporary_folder() -> std::io::Result<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::Builder::new().prefix("legwork-cases-").tempdir()?;
    let path = Path::new(folder.path()).canonicalize()?;
    Ok((folder, path))
}
