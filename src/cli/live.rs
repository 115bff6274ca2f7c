//! What `run` and `resume` have in common: a run that goes on before somebody's eyes.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::confidences::Confidences;
use super::confine::Confined;
use super::print::{printable, shell_word};
use super::result_file::ResultFile;
use super::{Surroundings, outputs, progress, script, step_summary};
use crate::error::Error;
use crate::event::{Entry, Outcome, RunOptions, RunResult};
use crate::formats;
use crate::job::Job;
use crate::lints::{Countable, Own};
use crate::mask::Mask;
use crate::plan::Plan;
use crate::providers::{Connect, Fault, FaultKind, Provider};
use crate::record::{Recorder, Trial};
use crate::run::{self, Before, Observer, Run, Signals};
use crate::sandbox::programs;
use crate::sandbox::protected::Repositories;

/// How long readers of the output are waited for where the run has no limit of its own: a year.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// A run that is about to begin or to go on.
pub(super) struct Live<'a> {
    pub(super) plan: Plan,
    pub(super) confidences: Confidences,
    pub(super) job_file: &'a str,
    /// Absolute paths that tools may not change.
    pub(super) protected: Vec<PathBuf>,
    /// The folder of all runs, absolute.
    pub(super) out: PathBuf,
    pub(super) confined: Confined,
    /// The run's folder, as the user would name it.
    pub(super) shown_folder: &'a Path,
    /// What stdout gets.
    pub(super) format: &'a str,
    pub(super) providers: BTreeMap<String, Arc<dyn Provider>>,
    pub(super) scripts: BTreeMap<String, PathBuf>,
    pub(super) recorder: Recorder,
    /// The file for the data that it ends with.
    pub(super) result_file: Option<ResultFile>,
    pub(super) options: RunOptions,
    pub(super) before: Option<Before>,
    pub(super) signals: Signals,
    /// Who else looks on.
    pub(super) observer: Option<Arc<dyn Observer>>,
}

pub(super) fn live(live: Live<'_>, around: &Surroundings) -> Result<u8, Error> {
    // Not for users, and without effect in a release.
    let number = |name: &str| around.variable(name).and_then(|number| number.parse().ok());
    for (name, order) in [
        ("LEGWORK_KILL_AFTER", Trial::kill_after as fn(&Trial, u64)),
        ("LEGWORK_KILL_AT", Trial::kill_at),
        ("LEGWORK_FAIL_AT", Trial::fail_at),
        ("LEGWORK_FAIL_ONCE_AT", Trial::fail_once_at),
    ] {
        if let Some(number) = number(name) {
            order(&live.recorder.trial, number);
        }
    }
    live.confidences.tell_runner(around);
    let run_id = live.before.as_ref().map_or(live.recorder.run_id(), |before| &before.started().run_id);
    let secrets = live.recorder.digests(run_id, &live.confidences.masked());
    let Confidences { mask, environment, .. } = live.confidences;
    let ci = around.out.is_ci();
    let dumb = around.variable("TERM").is_none_or(|term| term == "dumb");
    let jsonl = live.format == "jsonl";
    // Lines of JSON on the same terminal would tear the live lines apart.
    let torn = jsonl && std::io::stdout().is_terminal();
    let mut observers = vec![progress::observer(around.out, !(ci || dumb || torn))];
    if jsonl {
        observers.push(Arc::new(Lines { out: around.out }));
    }
    observers.extend(live.observer);
    around.out.beside(&format!("record: {}", printable(&live.shown_folder.to_string_lossy())));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::Environment { message: "the run time can't be started".into(), source })?;
    let longest = live.plan.limits.wall_clock_ms.map_or(NO_LIMIT, Duration::from_millis).min(NO_LIMIT);
    let left = longest.saturating_sub(live.before.as_ref().map(Before::elapsed).unwrap_or_default());
    let keeps_up = outputs::queue(Instant::now() + left)
        .map_err(|source| Error::Environment { message: "outputs can't be written".into(), source })?;
    let path = std::env::split_paths(around.variable("PATH").unwrap_or_default());
    let writable = [live.confined.writable(), vec![PathBuf::from(&live.plan.workspace), live.out.clone()]].concat();
    let git = programs::find("git", path, &writable);
    let (sandbox, found) = live.confined.recorded(live.recorder.folder(), live.recorder.lock(), live.recorder.judge());
    let workspace = PathBuf::from(&live.plan.workspace);
    let planted = Arc::new(OnceLock::new());
    let scripts = live.scripts.into_iter().map(|(name, path)| (name, path.to_string_lossy().into_owned()));
    let has_looked = live.plan.changes_files();
    let result = runtime.block_on(
        Run {
            plan: live.plan.masked(&mask),
            job_file: live.job_file,
            protected: live.protected,
            found,
            out: live.out.clone(),
            home: around.variable("HOME").map(PathBuf::from),
            git,
            outputs: around.out.files(),
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
            before: live.before,
            signals: live.signals,
            keeps_up,
            planted: Arc::clone(&planted),
        }
        .live(),
    )?;
    // Calls end with their processes; a thread that still reads a slow disk must not hold the exit back.
    runtime.shutdown_background();
    if let Some(planted) = planted.get() {
        warn_of_planted(around, &workspace, planted);
    }
    let written = live.result_file.as_ref().map_or(Ok(()), |file| file.write(&result));
    if has_looked && result.changes.is_none() {
        around.out.warning(
            "what the run changed in the workspace isn't known (`changes` is null): looking at its files took too long, or \
             the look at the start is lost",
        );
    }
    report(live.format, around, &result, live.shown_folder);
    if let Some(file) = live.result_file.filter(|_| written.is_ok() && result.result.is_some()) {
        around.out.beside(&format!("result: {}", printable(&file.path().to_string_lossy())));
    }
    written.map(|()| result.exit_code)
}

/// File tools make no repository, but commands can, and the next `git status` of whoever looks at the changes obeys it.
fn warn_of_planted(around: &Surroundings, workspace: &Path, planted: &Repositories) {
    if !planted.is_complete {
        around.out.warning(
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
    around.out.warning(&format!(
        "commands made a git repository, `{}`{others}: git does what its configuration says; look at that before you run git here",
        printable(&first)
    ));
}

/// Whether a limit on cost can be kept: every model has a price. A lint says so of the job's own limit and models; this is
/// for a limit from the command line, and for a run that goes on with other prices or servers.
pub(super) fn bound(plan: &Plan, own: &Own) -> Result<(), Error> {
    for model in plan.agents().map(|agent| &agent.model).filter(|_| plan.limits.cost_usd.is_some()) {
        if Countable::of(model, plan.limits.tokens.is_some(), own) == Countable::No {
            let what = format!("the price of `{model}` isn't known, so limits.cost_usd can't be kept");
            let hint = format!("say what it costs at `[models.\"{model}\"]` in your prices.toml");
            return Err(Error::Provider(Fault::new(FaultKind::Rejected, what).hint(hint)));
        }
    }
    Ok(())
}

/// Opens what the plan's models need. Where the job is known, scripts have to fit it.
pub(super) fn connect(
    around: &Surroundings,
    plan: &Plan,
    scripts: &BTreeMap<String, PathBuf>,
    mask: &Mask,
    job: Option<&Job>,
) -> Result<BTreeMap<String, Arc<dyn Provider>>, Error> {
    // One that is set to nothing is told as that.
    let variable = |name: &str| around.variables.get(name).cloned();
    let own = around.own()?;
    let servers = &own.servers;
    bound(plan, &own)?;
    let providers = run::connect(plan, |model| {
        let script = scripts.get(&model.name).filter(|_| model.provider == "replay");
        Ok(Connect {
            variable: &variable,
            server: servers.get(&model.provider),
            script: script
                .map(|path| script::open(path, job))
                .transpose()?
                .map(|script| Arc::new(script.moved_to(&plan.workspace))),
            user_agent: concat!("legwork/", env!("CARGO_PKG_VERSION")),
            mask,
        })
    })?;
    for warning in providers.values().filter_map(|provider| provider.warning()) {
        around.out.warning(&warning);
    }
    Ok(providers)
}

/// Prints the answer to stdout, and beside it how the run ended and where its record lies.
fn report(format: &str, around: &Surroundings, result: &RunResult, folder: &Path) {
    let figures = formats::figures::sum(result);
    match &result.error {
        Some(error) => {
            around.out.beside(&format!("{}: {}", error.code, printable(&error.message)));
            if let Some(hint) = &error.hint {
                around.out.beside(&format!("help:   {}", printable(hint)));
            }
            around.out.beside(&format!("spent:  {figures}"));
        }
        None => around.out.beside(&format!("{}: {figures}", result.outcome)),
    }
    if result.outcome == Outcome::Completed && result.result.is_none() && result.text.trim().is_empty() {
        around.out.warning("the last reply has no text, so the answer is empty");
    }
    for (what, file) in [("read", "transcript.md"), ("open", "report.html")] {
        let file = folder.join(file);
        // A full disk may have left no room for it.
        if around.folder.join(&file).exists() {
            around.out.beside(&format!("{what}:   {}", printable(&file.to_string_lossy())));
        }
    }
    if result.outcome.can_be_resumed() {
        around.out.beside(&format!("resume: legwork resume {}", printable(&shell_word(folder))));
    }
    step_summary::write(around, result, folder);
    if let Some(answer) = formats::find(format).and_then(|format| format.answer(result)) {
        around.out.foreign(&answer);
    }
}

/// Prints each event as a line of JSON.
struct Lines {
    out: super::print::Out,
}

impl Observer for Lines {
    fn event(&self, entry: &Entry) {
        if let Some(line) = formats::find("jsonl").and_then(|format| format.event(entry)) {
            self.out.answer(&line);
        }
    }

    fn text(&self, _: &str, _: &str) {}
}
