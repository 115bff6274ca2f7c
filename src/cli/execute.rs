//! What `run` and `resume` have in common: a run that goes on before somebody's eyes.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::output::{printable, shell_quote};
use super::result_file::ResultFile;
use super::sandbox_options::PreparedSandbox;
use super::secrets::RunSecrets;
use super::{CliEnv, output_queue, progress, replay_source, step_summary};
use crate::error::Error;
use crate::event::{JournalEntry, Outcome, RunOptions, RunResult};
use crate::formats;
use crate::job::Job;
use crate::lints::{CostTracking, UserConfig};
use crate::plan::Plan;
use crate::providers::{ConnectContext, PROVIDERS, Provider, ProviderError, ProviderErrorKind};
use crate::record::{FaultInjection, Recorder};
use crate::redaction::Redactor;
use crate::run::{self, ResumeState, Run, RunObserver, Signals};
use crate::sandbox::programs;
use crate::sandbox::protected_paths::Repositories;

/// How long readers of the output are waited for where the run has no limit of its own: a year.
const NO_TIME_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// A run that is about to begin or to go on.
pub(super) struct Execution<'a> {
    pub(super) plan: Plan,
    pub(super) secrets: RunSecrets,
    pub(super) job_file: &'a str,
    /// Absolute paths that tools may not change.
    pub(super) protected_paths: Vec<PathBuf>,
    /// The folder of all runs, absolute.
    pub(super) runs_folder: PathBuf,
    pub(super) sandbox: PreparedSandbox,
    /// The run's folder, as the user would name it.
    pub(super) display_folder: &'a Path,
    /// What stdout gets.
    pub(super) format: &'a str,
    pub(super) providers: BTreeMap<String, Arc<dyn Provider>>,
    pub(super) scripts: BTreeMap<String, PathBuf>,
    pub(super) recorder: Recorder,
    /// The file for the data that it ends with.
    pub(super) result_file: Option<ResultFile>,
    pub(super) options: RunOptions,
    pub(super) resume_state: Option<ResumeState>,
    pub(super) signals: Signals,
    /// Who else looks on.
    pub(super) observer: Option<Arc<dyn RunObserver>>,
}

pub(super) fn execute(live: Execution<'_>, around: &CliEnv) -> Result<u8, Error> {
    // Not for users, and without effect in a release.
    let number = |name: &str| around.variable(name).and_then(|number| number.parse().ok());
    for (name, order) in [
        ("LEGWORK_KILL_AFTER", FaultInjection::kill_after as fn(&FaultInjection, u64)),
        ("LEGWORK_KILL_AT", FaultInjection::kill_at),
        ("LEGWORK_FAIL_AT", FaultInjection::fail_at),
        ("LEGWORK_FAIL_ONCE_AT", FaultInjection::fail_once_at),
    ] {
        if let Some(number) = number(name) {
            order(&live.recorder.faults, number);
        }
    }
    live.secrets.register_github_masks(around);
    let run_id = live.resume_state.as_ref().map_or(live.recorder.run_id(), |before| &before.started().run_id);
    let secrets = live.recorder.digests(run_id, &live.secrets.redacted_command_secrets());
    let RunSecrets { mask, environment, .. } = live.secrets;
    let ci = around.console.is_ci();
    let dumb = around.variable("TERM").is_none_or(|term| term == "dumb");
    let jsonl = live.format == "jsonl";
    // Lines of JSON on the same terminal would tear the live lines apart.
    let torn = jsonl && std::io::stdout().is_terminal();
    let mut observers = vec![progress::observer(around.console, !(ci || dumb || torn))];
    if jsonl {
        observers.push(Arc::new(JsonlObserver { out: around.console }));
    }
    observers.extend(live.observer);
    around.console.eprint(&format!("record: {}", printable(&live.display_folder.to_string_lossy())));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::Environment { message: "the run time can't be started".into(), source })?;
    let longest = live.plan.limits.wall_clock_ms.map_or(NO_TIME_LIMIT, Duration::from_millis).min(NO_TIME_LIMIT);
    let left = longest.saturating_sub(live.resume_state.as_ref().map(ResumeState::elapsed).unwrap_or_default());
    let keeps_up = output_queue::start(Instant::now() + left)
        .map_err(|source| Error::Environment { message: "outputs can't be written".into(), source })?;
    let path = std::env::split_paths(around.variable("PATH").unwrap_or_default());
    let writable =
        [live.sandbox.writable_paths(), vec![PathBuf::from(&live.plan.workspace), live.runs_folder.clone()]].concat();
    let git = programs::find("git", path, &writable);
    let (sandbox, found) =
        live.sandbox.for_record(live.recorder.folder(), live.recorder.lock(), live.recorder.origin_check());
    let workspace = PathBuf::from(&live.plan.workspace);
    let planted = Arc::new(OnceLock::new());
    let scripts = live.scripts.into_iter().map(|(name, path)| (name, path.to_string_lossy().into_owned()));
    let has_looked = live.plan.changes_files();
    let result = runtime.block_on(
        Run {
            plan: live.plan.redacted(&mask),
            job_file: live.job_file,
            protected: live.protected_paths,
            found,
            out: live.runs_folder.clone(),
            home: around.variable("HOME").map(PathBuf::from),
            git,
            outputs: around.console.output_files(),
            providers: live.providers,
            prices: around.prices()?.clone(),
            mask,
            environment,
            sandbox,
            recorder: live.recorder,
            observers,
            clock: around.clock,
            scripts: scripts.collect(),
            options: live.options,
            secrets,
            resume_state: live.resume_state,
            signals: live.signals,
            output_ready: keeps_up,
            planted_repositories: Arc::clone(&planted),
        }
        .execute(),
    )?;
    // Calls end with their processes; a thread that still reads a slow disk must not hold the exit back.
    runtime.shutdown_background();
    if let Some(planted) = planted.get() {
        warn_about_new_repositories(around, &workspace, planted);
    }
    let written = live.result_file.as_ref().map_or(Ok(()), |file| file.write(&result));
    if has_looked && result.changes.is_none() {
        around.console.warning(
            "what the run changed in the workspace isn't known (`changes` is null): looking at its files took too long, or \
             the look at the start is lost",
        );
    }
    print_outcome(live.format, around, &result, live.display_folder);
    if let Some(file) = live.result_file.filter(|_| written.is_ok() && result.result.is_some()) {
        around.console.eprint(&format!("result: {}", printable(&file.path().to_string_lossy())));
    }
    written.map(|()| result.exit_code)
}

/// File tools make no repository, but commands can, and the next `git status` of whoever looks at the changes obeys it.
fn warn_about_new_repositories(around: &CliEnv, workspace: &Path, planted: &Repositories) {
    if !planted.is_complete {
        around.console.warning(
            "the workspace has too many files to be searched for git repositories that commands made: look for folders \
             named `.git` before you run git here",
        );
    }
    let Some(first) = planted.folders.first() else { return };
    let first = first.strip_prefix(workspace).unwrap_or(first).to_string_lossy();
    let others = match planted.folders.len() - 1 {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    around.console.warning(&format!(
        "commands made a git repository, `{}`{others}: git does what its configuration says; look at that before you run git here",
        printable(&first)
    ));
}

/// Whether a limit on cost can be kept: every model has a price. A lint says so of the job's own limit and models; this is
/// for a limit from the command line, and for a run that goes on with other prices or servers.
pub(super) fn check_cost_limit(plan: &Plan, own: &UserConfig) -> Result<(), Error> {
    for model in plan.agents().map(|agent| &agent.model).filter(|_| plan.limits.cost_usd.is_some()) {
        if CostTracking::of(model, plan.limits.tokens.is_some(), own) == CostTracking::Unknown {
            let what = format!("the price of `{model}` isn't known, so limits.cost_usd can't be kept");
            let hint = format!("say what it costs at `[models.\"{model}\"]` in your prices.toml");
            return Err(Error::Provider(ProviderError::new(ProviderErrorKind::Rejected, what).with_hint(hint)));
        }
    }
    Ok(())
}

/// Opens what the plan's models need. Where the job is known, scripts have to fit it.
pub(super) fn connect_providers(
    around: &CliEnv,
    plan: &Plan,
    scripts: &BTreeMap<String, PathBuf>,
    mask: &Redactor,
    job: Option<&Job>,
) -> Result<BTreeMap<String, Arc<dyn Provider>>, Error> {
    // One that is set to nothing is told as that.
    let variable = |name: &str| around.variables.get(name).cloned();
    let own = around.user_config()?;
    let servers = &own.servers;
    check_cost_limit(plan, &own)?;
    let providers = run::connect(plan, |model| {
        let script = scripts.get(&model.name).filter(|_| model.is_scripted());
        Ok(ConnectContext {
            env: &variable,
            server: servers.get(&model.provider),
            script: script
                .map(|path| replay_source::open_replay_source(path, job))
                .transpose()?
                .map(|script| Arc::new(script.relocated_to(&plan.workspace))),
            user_agent: concat!("legwork/", env!("CARGO_PKG_VERSION")),
            redactor: mask,
            providers: PROVIDERS,
        })
    })?;
    for warning in providers.values().filter_map(|provider| provider.warning()) {
        around.console.warning(&warning);
    }
    Ok(providers)
}

/// Prints the answer to stdout, and beside it how the run ended and where its record lies.
fn print_outcome(format: &str, around: &CliEnv, result: &RunResult, folder: &Path) {
    let figures = formats::run_stats::summary_line(result);
    match &result.error {
        Some(error) => {
            around.console.eprint(&format!("{}: {}", error.code, printable(&error.message)));
            if let Some(hint) = &error.hint {
                around.console.eprint(&format!("help:   {}", printable(hint)));
            }
            around.console.eprint(&format!("spent:  {figures}"));
        }
        None => around.console.eprint(&format!("{}: {figures}", result.outcome)),
    }
    if result.outcome == Outcome::Completed && result.result.is_none() && result.text.trim().is_empty() {
        around.console.warning("the last reply has no text, so the answer is empty");
    }
    for (what, file) in [("read", "transcript.md"), ("open", "report.html")] {
        let file = folder.join(file);
        // A full disk may have left no room for it.
        if around.current_folder.join(&file).exists() {
            around.console.eprint(&format!("{what}:   {}", printable(&file.to_string_lossy())));
        }
    }
    if result.outcome.can_be_resumed() {
        around.console.eprint(&format!("resume: legwork resume {}", printable(&shell_quote(folder))));
    }
    step_summary::write(around, result, folder);
    if let Some(answer) = formats::find(format).and_then(|format| format.run_result(result)) {
        around.console.print_untrusted(&answer);
    }
}

/// Prints each event as a line of JSON.
struct JsonlObserver {
    out: super::output::Console,
}

impl RunObserver for JsonlObserver {
    fn event(&self, entry: &JournalEntry) {
        if let Some(line) = formats::find("jsonl").and_then(|format| format.event(entry)) {
            self.out.print(&line);
        }
    }

    fn text(&self, _: &str, _: &str) {}
}
