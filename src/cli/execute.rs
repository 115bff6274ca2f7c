//! Executes runs. For `run` and `resume`: with live progress, the answer on stdout, and the closing lines on stderr.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::env::CliEnv;
use super::output::{printable, shell_quote};
use super::result_file::ResultFile;
use super::sandbox_options::{CopiesOf, PreparedSandbox};
use super::secrets::RunSecrets;
use super::{output_queue, progress, replay_source, tool_servers};
use crate::budget::MapBudget;
use crate::error::Error;
use crate::event::{JournalEntry, Outcome, RunOptions, RunResult};
use crate::formats;
use crate::job::Job;
use crate::journal::Fault;
use crate::lints::{CostTracking, UserConfig};
use crate::plan::Plan;
use crate::providers::{ConnectContext, Model, PROVIDERS, Provider, ProviderError, ProviderErrorKind};
use crate::record::{Record, Recorder};
use crate::redaction::Redactor;
use crate::run::{ResumeState, Run, RunObserver, Signals, connect};
use crate::sandbox::programs;
use crate::sandbox::protected_paths::Repositories;

/// The wall-clock limit of the output queue for runs without one: a year.
const NO_TIME_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The most bytes of a step summary: GitHub shows nothing of a longer one
/// (<https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands>).
const MAX_SUMMARY_BYTES: u64 = 1 << 20;

/// A run that is about to start or to resume.
pub(super) struct Execution<'a> {
    pub(super) plan: Plan,
    pub(super) secrets: RunSecrets,
    pub(super) job_file: &'a str,
    /// Absolute paths that tools may not change.
    pub(super) protected_paths: Vec<PathBuf>,
    /// The folder of all runs, absolute.
    pub(super) runs_folder: PathBuf,
    pub(super) sandbox: PreparedSandbox,
    pub(super) providers: BTreeMap<String, Arc<dyn Provider>>,
    pub(super) scripts: BTreeMap<String, String>,
    pub(super) recorder: Recorder,
    pub(super) options: RunOptions,
    pub(super) resume_state: Option<ResumeState>,
    pub(super) signals: Signals,
    /// Show what happens.
    pub(super) observers: Vec<Arc<dyn RunObserver>>,
    /// The budget of the map that the run is a row of.
    pub(super) map_budget: Option<Arc<MapBudget>>,
}

/// Where the answer of a run goes.
pub(super) struct PrintedRun<'a> {
    /// The run folder, as the user would write it.
    pub(super) display_folder: &'a Path,
    /// The format of the answer on stdout.
    pub(super) format: &'a str,
    /// The file of `--result`.
    pub(super) result_file: Option<ResultFile>,
}

/// A run that has ended. Its record is complete.
pub(super) struct ExecutedRun {
    pub(super) result: RunResult,
    /// What to tell the user about the workspace.
    pub(super) warnings: Vec<String>,
}

/// Executes a run with live progress on stderr, and prints its answer. Returns the exit code.
pub(super) fn execute_and_print(mut run: Execution<'_>, printed: PrintedRun<'_>, env: &CliEnv) -> Result<u8, Error> {
    run.secrets.register_github_masks(env);
    let is_dumb = env.variable("TERM").is_none_or(|term| term == "dumb");
    let jsonl = printed.format == "jsonl";
    // JSON lines on the same terminal would break up the live lines.
    let shares_terminal = jsonl && std::io::stdout().is_terminal();
    let mut observers = vec![progress::observer(env.console, !(env.console.is_ci || is_dumb || shares_terminal))];
    if jsonl {
        observers.push(Arc::new(JsonlObserver { out: env.console }));
    }
    run.observers.splice(0..0, observers);
    env.console.eprint(&format!("record: {}", printable(&printed.display_folder.to_string_lossy())));
    let runtime = start_runtime()?;
    let time_limit = run.plan.limits.wall_clock_ms.map_or(NO_TIME_LIMIT, Duration::from_millis).min(NO_TIME_LIMIT);
    let time_left = time_limit.saturating_sub(run.resume_state.as_ref().map(ResumeState::elapsed).unwrap_or_default());
    let output_ready = output_queue::start(Instant::now() + time_left)
        .map_err(Error::environment("the output thread can't be started"))?;
    let ExecutedRun { result, warnings } = runtime.block_on(execute(run, output_ready, env))?;
    // All processes have ended with their calls. A thread that reads from a slow disk must not delay the exit.
    runtime.shutdown_background();
    // The file is written before the warnings and the answer, since a reader of the output may stall.
    let written = printed.result_file.as_ref().map_or(Ok(()), |file| file.write(&result));
    warnings.iter().for_each(|warning| env.console.warning(warning));
    print_outcome(printed.format, env, &result, printed.display_folder);
    if let Some(file) = printed.result_file.filter(|_| written.is_ok() && result.result.is_some()) {
        env.console.eprint(&format!("result: {}", printable(&file.path.to_string_lossy())));
    }
    written.map(|()| result.exit_code)
}

/// Prints the answer of a run that ended before, and with `jsonl` its events.
pub(super) fn print_ended_run(
    record: &Record,
    result: &RunResult,
    printed: &PrintedRun<'_>,
    env: &CliEnv,
) -> Result<(), Error> {
    if printed.format == "jsonl" {
        let mut entries: Vec<JournalEntry> = record.journals()?.into_values().flatten().collect();
        // The order of an agent's own events stays.
        entries.sort_by_key(|entry| entry.at);
        let console = env.console;
        entries.iter().for_each(|entry| console.print(&formats::json::event_line(entry)));
    }
    let written = printed.result_file.as_ref().map_or(Ok(()), |file| file.write(result));
    print_outcome(printed.format, env, result, printed.display_folder);
    written
}

/// Executes a run without printing anything. Several threads can do so at once, each on a runtime of its own; one runtime can
/// execute several runs. `output_ready` is false while the readers of the output don't keep up.
///
/// # Errors
/// The run couldn't start, or its result couldn't be written.
pub(super) async fn execute(
    mut run: Execution<'_>,
    output_ready: watch::Receiver<bool>,
    env: &CliEnv,
) -> Result<ExecutedRun, Error> {
    // Fault injection for tests. It has no effect in release builds.
    let faults = [
        ("LEGWORK_KILL_AFTER", Fault::KillAfter as fn(u64) -> Fault),
        ("LEGWORK_KILL_AT", Fault::KillAt),
        ("LEGWORK_FAIL_AT", Fault::FailAt),
        ("LEGWORK_FAIL_ONCE_AT", Fault::FailOnceAt),
    ];
    run.recorder.faults.fault =
        faults.into_iter().find_map(|(name, fault)| Some(fault(env.variable(name)?.parse().ok()?)));
    let run_id = run.resume_state.as_ref().map_or(&run.recorder.run_id, |state| &state.started.run_id);
    let secrets = run.recorder.digests(run_id, &run.secrets.redacted_command_secrets());
    let RunSecrets { redactor, environment, .. } = run.secrets;
    let path = std::env::split_paths(env.variable("PATH").unwrap_or_default());
    let workspace = PathBuf::from(&run.plan.workspace);
    let writable = [run.sandbox.writable_paths(), vec![workspace.clone(), run.runs_folder.clone()]].concat();
    let git = programs::find("git", path, &writable);
    let confine_copy = run.sandbox.for_copies(
        &run.plan,
        CopiesOf {
            job_files: &run.protected_paths,
            runs_folder: &run.runs_folder,
            home: env.folder_variable("HOME"),
            record: &run.recorder.folder,
            lock: run.recorder.lock(),
            verifier: run.recorder.origin_check(),
        },
    );
    let server_sandboxes = tool_servers::sandboxes(&run.plan, &run.sandbox, &run.recorder)?;
    let (sandbox, found) =
        run.sandbox.for_record(&run.recorder.folder, run.recorder.lock(), run.recorder.origin_check());
    let is_resumed = run.resume_state.is_some();
    let stop = &run.signals.stop;
    let context = tool_servers::StartContext {
        sandbox: &sandbox,
        sandboxes: server_sandboxes,
        redactor: &redactor,
        stop,
        is_resumed,
    };
    let servers = tool_servers::start(&mut run.plan, run.options.offline, context, env).await?;
    let new_repositories = Arc::new(OnceLock::new());
    let tracks_changes = run.plan.changes_files();
    let result = Run {
        plan: run.plan.redacted(&redactor),
        job_file: run.job_file,
        protected: run.protected_paths,
        found,
        out: run.runs_folder,
        home: env.variable("HOME").map(PathBuf::from),
        git,
        outputs: env.console.output_files(),
        providers: run.providers,
        prices: env.prices()?.clone(),
        mask: redactor,
        environment,
        sandbox,
        servers,
        confine_copy,
        recorder: run.recorder,
        observers: run.observers,
        clock: env.clock,
        scripts: run.scripts,
        options: run.options,
        secrets,
        resume_state: run.resume_state,
        signals: run.signals,
        output_ready,
        map_budget: run.map_budget,
        planted_repositories: Arc::clone(&new_repositories),
    }
    .execute()
    .await?;
    let mut warnings = new_repositories.get().map(|found| repository_warnings(&workspace, found)).unwrap_or_default();
    if tracks_changes && result.changes.is_none() {
        warnings.push(
            "the changes to the workspace are unknown (`changes` is null): scanning its files took too long, or the baseline \
             from the start of the run is lost"
                .to_owned(),
        );
    }
    Ok(ExecutedRun { result, warnings })
}

/// Warnings about git repositories that commands created: their configuration takes effect when the user next runs git there.
fn repository_warnings(workspace: &Path, repositories: &Repositories) -> Vec<String> {
    let mut warnings = Vec::new();
    if !repositories.is_complete {
        warnings.push(
            "the workspace has too many files to search for git repositories that commands created: look for folders named \
             `.git` before you run git here"
                .to_owned(),
        );
    }
    let Some(first) = repositories.folders.first() else { return warnings };
    let first = first.strip_prefix(workspace).unwrap_or(first).to_string_lossy();
    let others = match repositories.folders.len() - 1 {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    warnings.push(format!(
        "commands created a git repository, `{}`{others}: git obeys its configuration, so check that before you run git here",
        printable(&first)
    ));
    warnings
}

/// Refuses a cost limit if the price of a model is unknown. A lint checks the limit and the models of the job; this is for
/// limits from the command line, and for resumed runs with other prices or servers.
pub(super) fn check_cost_limit(plan: &Plan, user_config: &UserConfig) -> Result<(), Error> {
    for model in plan.agents().map(|agent| &agent.model).filter(|_| plan.limits.cost_usd.is_some()) {
        if CostTracking::of(model, plan.limits.tokens.is_some(), user_config) == CostTracking::Unknown {
            let message = format!("the price of `{model}` is unknown, so limits.cost_usd can't be enforced");
            let hint = format!("add its price to your prices.toml, in `[models.\"{model}\"]`");
            return Err(Error::Provider(ProviderError::new(ProviderErrorKind::Rejected, message).with_hint(hint)));
        }
    }
    Ok(())
}

/// Connects to the providers of a plan's models for which `is_wanted` is true. If the job is known, scripts must match it.
pub(super) fn connect_providers(
    env: &CliEnv,
    plan: &Plan,
    scripts: &BTreeMap<String, String>,
    redactor: &Redactor,
    job: Option<&Job>,
    is_wanted: &dyn Fn(&Model) -> bool,
) -> Result<BTreeMap<String, Arc<dyn Provider>>, Error> {
    // Includes empty variables, so that errors can say that a variable is empty.
    let variable = |name: &str| env.variables.get(name).cloned();
    let user_config = env.user_config()?;
    let servers = &user_config.servers;
    check_cost_limit(plan, &user_config)?;
    let open_script = |path: &String| {
        Ok(Arc::new(replay_source::open_replay_source(Path::new(path), job)?.relocated_to(&plan.workspace)))
    };
    let providers = connect(plan, is_wanted, |model| {
        let script = scripts.get(&model.name).filter(|_| model.is_scripted());
        Ok(ConnectContext {
            env: &variable,
            server: servers.get(&model.provider),
            script: script.map(open_script).transpose()?,
            user_agent: concat!("legwork/", env!("CARGO_PKG_VERSION")),
            redactor,
            providers: PROVIDERS,
        })
    })?;
    for warning in providers.values().filter_map(|provider| provider.warning()) {
        env.console.warning(&warning);
    }
    Ok(providers)
}

/// Prints the answer to stdout, and to stderr how the run ended and where its record is.
fn print_outcome(format: &str, env: &CliEnv, result: &RunResult, folder: &Path) {
    let stats = formats::run_stats::summary_line(result);
    match &result.error {
        Some(error) => {
            env.console.eprint(&format!("{}: {}", error.code, printable(&error.message)));
            if let Some(hint) = &error.hint {
                env.console.eprint(&format!("help:   {}", printable(hint)));
            }
            env.console.eprint(&format!("used:   {stats}"));
        }
        None => env.console.eprint(&format!("{}: {stats}", result.outcome)),
    }
    if result.outcome == Outcome::Completed && result.result.is_none() && result.text.trim().is_empty() {
        env.console.warning("the answer is empty: the last reply has no text");
    }
    for (what, file) in [("read", "transcript.md"), ("open", "report.html")] {
        let file = folder.join(file);
        // A full disk may have prevented it.
        if env.current_folder.join(&file).exists() {
            env.console.eprint(&format!("{what}:   {}", printable(&file.to_string_lossy())));
        }
    }
    if result.outcome.can_be_resumed() {
        env.console.eprint(&format!("resume: legwork resume {}", printable(&shell_quote(folder))));
    }
    write_step_summary(env, result, folder);
    env.console.print_untrusted(&formats::find(formats::ANSWERS, format)(result));
}

/// Prints each event as a JSON line.
struct JsonlObserver {
    out: super::output::Console,
}

impl RunObserver for JsonlObserver {
    fn event(&self, entry: &JournalEntry) {
        self.out.print(&formats::json::event_line(entry));
    }
}

/// Appends to the step summary of a GitHub workflow. A failure is only a warning.
fn write_step_summary(env: &CliEnv, result: &RunResult, folder: &Path) {
    let path = env.variable("GITHUB_STEP_SUMMARY").filter(|_| env.variable("GITHUB_ACTIONS") == Some("true"));
    let page = formats::step_summary::page(result, &folder.to_string_lossy());
    if let Some(Err(error)) = path.map(|path| append_to_summary(Path::new(path), &page)) {
        env.console.warning(&format!("can't write the step summary: {error}"));
    }
}

fn append_to_summary(path: &Path, page: &str) -> io::Result<()> {
    // Don't block on a FIFO.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let mut file = OpenOptions::new().append(true).create(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let data = file.metadata()?;
    if !data.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if data.len().saturating_add(page.len() as u64) > MAX_SUMMARY_BYTES {
        return Err(io::Error::other("the step summary is full"));
    }
    file.write_all(page.as_bytes())
}

/// Starts the async runtime of a command.
pub(super) fn start_runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::environment("the async runtime can't be started"))
}
