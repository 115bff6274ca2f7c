//! Executes runs. For `run` and `resume`: with live progress, the answer on stdout, and the closing lines on stderr.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::env::CliEnv;
use super::export::send_traces;
use super::next_command::NextCommand;
use super::output::{printable, shell_quote};
use super::output_files::OutputFiles;
use super::progress::{RunProgress, can_be_live};
use super::{ci_files, output_queue, replay_source};
use crate::error::Error;
use crate::event::{JournalEntry, Outcome, RunModel, RunResult};
use crate::job::Job;
use crate::plan::Plan;
use crate::process::{WITHHELD, fd_limit};
use crate::providers::user_servers::UserServers;
use crate::providers::{ConnectContext, Model, PROVIDERS, Provider, SettingsContext};
use crate::record::Record;
use crate::redaction::Redactor;
use crate::reports;
use crate::run::{
    OpenRecord, OpenedScript, ResumeState, RunObserver, RunSecrets, RunSetup, Scripts, Signals, USER_AGENT, UsedLimit,
    check_cost_limit, connect, start_runtime,
};
use crate::running_clock::RunningInstant;
use crate::sandbox::programs::Folders;

/// The wall-clock limit of the output queue for runs without one: a year.
const NO_TIME_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Where the answer of a run goes.
pub(super) struct PrintedRun<'a> {
    /// The run folder, as the user would write it.
    pub(super) display_folder: &'a Path,
    /// The format of the answer on stdout.
    pub(super) format: &'a str,
    /// The files of `--result` and similar options.
    pub(super) files: OutputFiles,
    /// How to continue it if it ends early.
    pub(super) next: NextCommand,
}

/// Executes a run with live progress on stderr, and prints its answer. Returns the exit code.
pub(super) fn execute_and_print(
    mut run: RunSetup<'_>,
    record: OpenRecord,
    printed: &PrintedRun<'_>,
    env: &CliEnv,
) -> Result<u8, Error> {
    register_github_masks(&run.prepared.secrets, env);
    let jsonl = printed.format == "jsonl";
    env.console.eprint(&format!("record: {}", printable(&printed.display_folder.to_string_lossy())));
    let runtime = start_runtime()?;
    let (plan, before) = (&run.prepared.plan, record.before.as_ref());
    let time_limit = plan.limits.wall_clock_ms.map_or(NO_TIME_LIMIT, Duration::from_millis).min(NO_TIME_LIMIT);
    let time_left = time_limit.saturating_sub(before.map(ResumeState::elapsed).unwrap_or_default());
    run.backends.output_ready = output_queue::start(RunningInstant::now() + time_left)
        .map_err(Error::environment("the output thread can't be started"))?;
    // JSON lines on the same terminal would break up the live lines.
    let is_live = can_be_live(env) && !(jsonl && std::io::stdout().is_terminal());
    let progress = RunProgress::start(env, is_live, plan, env.prices()?, before, &run.backends.signals);
    let mut observers = vec![progress.observer()];
    if jsonl {
        observers.push(Arc::new(JsonlObserver { out: env.console.clone() }));
    }
    run.observers.splice(0..0, observers);
    let (folder, sends_traces) = (record.recorder.folder.clone(), !run.prepared.options.offline);
    let ended = runtime.block_on(run.execute(record));
    drop(progress);
    let ended = ended?;
    let result = &ended.result;
    // The files are written before the warnings and the answer, since a reader of the output may stall.
    let written = printed.files.write(result, &ended.model, printed.display_folder, env);
    ended.warnings().iter().for_each(|warning| env.console.warning(warning));
    let limit = limit_to_raise(&folder, result);
    print_outcome(printed, env, result, &ended.model, limit.as_ref());
    if let Some(path) = printed.files.result_path(result).filter(|_| written.is_ok()) {
        env.console.eprint(&format!("result: {}", printable(&path.to_string_lossy())));
    }
    if sends_traces {
        let sent = runtime.block_on(send_traces(&folder, result.outcome, env));
        let warnings = sent.unwrap_or_else(|warning| vec![warning]);
        warnings.iter().for_each(|warning| env.console.warning(warning));
    }
    // All processes have ended with their calls. A thread that reads from a slow disk must not delay the exit.
    runtime.shutdown_background();
    written.map(|()| result.exit_code)
}

/// Registers secrets with the GitHub runner, which masks them in the log and in later steps. The runner also reads commands
/// from stderr. If stderr is a file, nothing is registered, since the file would keep the secrets.
pub(super) fn register_github_masks(secrets: &RunSecrets, env: &CliEnv) {
    if env.variable("GITHUB_ACTIONS") != Some("true") || env.console.is_stderr_file() {
        return;
    }
    for line in secrets.log_mask_lines() {
        env.console.eprint_raw(&format!("::add-mask::{}", line.replace('%', "%25")));
    }
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
        let console = &env.console;
        entries.iter().for_each(|entry| console.print(&reports::json::event_line(entry)));
    }
    let model = recorded_model(record);
    let written = printed.files.write(result, &model, printed.display_folder, env);
    print_outcome(printed, env, result, &model, limit_to_raise(&record.folder, result).as_ref());
    written
}

/// What only the journals of a run that ended before say: what it proposed, and the values of its steps.
pub(super) fn recorded_model(record: &Record) -> RunModel {
    match record.plan.outputs.is_some() || !record.plan.before.is_empty() {
        true => record.model(),
        false => RunModel::default(),
    }
}

/// The limit that ended a run, and must be raised before it can continue.
fn limit_to_raise(record: &Path, result: &RunResult) -> Option<UsedLimit> {
    if !result.outcome.is_a_limit() {
        return None;
    }
    let state = ResumeState::new(Record::open(record).ok()?.journals().ok()?)?;
    state.used_limit(result).ok()?
}

/// Opens the scripts and records that models of a plan answer from, by the models' names. If the job is known, scripts must match
/// it.
pub(super) fn open_scripts(paths: &BTreeMap<String, String>, job: Option<&Job>) -> Result<Scripts, Error> {
    let open = |(model, path): (&String, &String)| {
        let script = replay_source::open_replay_source(Path::new(path), job)?;
        Ok((model.clone(), OpenedScript { path: path.clone(), script }))
    };
    paths.iter().map(open).collect()
}

/// Connects to the providers of a plan's models, except for those that answer from scripts. Nothing is sent.
///
/// `writable` are the folders of `--allow-write` and of the records.
pub(super) fn connect_providers(
    env: &CliEnv,
    plan: &Plan,
    writable: &[PathBuf],
    redactor: &Redactor,
) -> Result<BTreeMap<String, Arc<dyn Provider>>, Error> {
    if let Some((limit, needed)) = fd_limit::too_low_for(plan.mcp.len()) {
        return Err(Error::FewDescriptors { limit, needed });
    }
    // Includes empty variables, so that errors can say that a variable is empty.
    let variable = |name: &str| env.variables.get(name).cloned();
    let user_config = env.user_config()?;
    let servers = &user_config.servers;
    check_cost_limit(plan, &user_config)?;
    let changeable = env.changeable_folders(Path::new(&plan.workspace), writable);
    let is_configured =
        |model: &Model| servers.get(&model.provider).is_some() || servers.settings(&model.provider).is_some();
    if plan.models().any(is_configured) {
        env.check_user_config(&changeable)?;
    }
    let program_variables = key_program_variables(env, servers, &changeable);
    let providers = connect(plan, &|model| !model.is_scripted(), |model| {
        Ok(ConnectContext {
            env: &variable,
            server: servers.get(&model.provider),
            settings: servers.settings(&model.provider).map(|settings| SettingsContext {
                settings,
                variables: &program_variables,
                changeable: &changeable,
            }),
            script: None,
            user_agent: USER_AGENT,
            redactor,
            providers: PROVIDERS,
        })
    })?;
    for warning in providers.values().filter_map(|provider| provider.warning()) {
        env.console.warning(&warning);
    }
    // A run that may be skipped needs no key yet.
    let prepared = providers.values().filter(|_| !plan.may_not_start());
    for ready in prepared.filter_map(|provider| provider.prepare()) {
        start_runtime()?.block_on(Signals::exit_unless_done(ready))?.map_err(Error::Provider)?;
    }
    Ok(providers)
}

/// The environment of commands that print keys: that of other programs, without the keys of servers. They get nothing from the
/// job.
pub(super) fn key_program_variables(
    env: &CliEnv,
    servers: &UserServers,
    changeable: &Folders,
) -> BTreeMap<String, String> {
    let mut variables = env.program_variables(changeable);
    variables.retain(|name, _| !servers.key_envs().any(|key| key == name) && !WITHHELD.contains(&name.as_str()));
    variables
}

/// Prints the answer to stdout, and to stderr how the run ended and where its record is.
fn print_outcome(
    printed: &PrintedRun<'_>,
    env: &CliEnv,
    result: &RunResult,
    model: &RunModel,
    limit: Option<&UsedLimit>,
) {
    let folder = printed.display_folder;
    let stats = reports::run_stats::summary_line(result);
    match &result.error {
        Some(error) => {
            env.console.eprint_problem(&format!("{}: {}", error.code, printable(&error.message)));
            if let Some(hint) = &error.hint {
                env.console.eprint_problem(&format!("help:   {}", printable(hint)));
            }
            env.console.eprint(&format!("used:   {stats}"));
        }
        None if result.outcome == Outcome::Skipped => {
            let condition = result.skipped_by.as_deref().unwrap_or_default();
            env.console.eprint(&format!("skipped: nothing to do: `skip_if` is true: {}", printable(condition)));
        }
        None if result.exit_code != 0 => env.console.eprint_problem(&format!("{}: {stats}", result.outcome)),
        None => env.console.eprint(&format!("{}: {stats}", result.outcome)),
    }
    if result.outcome == Outcome::Completed && result.result.is_none() && result.text.trim().is_empty() {
        env.console.warning("the answer is empty: the last reply has no text");
    }
    let has_errors = result.exit_code != 0 && result.outcome != Outcome::Interrupted;
    if has_errors {
        env.console.eprint(&format!("errors: legwork show {} --errors", printable(&shell_quote(folder))));
    }
    for (what, file) in [("read", "transcript.md"), ("open", "report.html")] {
        let file = folder.join(file);
        if has_errors && what == "read" {
            continue;
        }
        // A full disk may have prevented it.
        if env.current_folder.join(&file).exists() {
            env.console.eprint(&format!("{what}:   {}", printable(&file.to_string_lossy())));
        }
    }
    if let Some(limit) = limit {
        env.console.eprint(&format!("limit:  {}; the command below allows twice as much", limit.used()));
    }
    let next = (result.outcome.can_be_resumed() || limit.is_some()).then(|| {
        let argument = limit.map(UsedLimit::argument);
        printed.next.line(folder, argument.as_deref())
    });
    next.iter().for_each(|next| env.console.eprint(next));
    ci_files::write_run(env, result, model, folder, next.as_deref());
    env.console.print_untrusted(&reports::find(reports::ANSWERS, printed.format)(result));
}

/// Prints each event as a JSON line.
struct JsonlObserver {
    out: super::output::Console,
}

impl RunObserver for JsonlObserver {
    fn event(&self, entry: &JournalEntry) {
        self.out.print(&reports::json::event_line(entry));
    }
}
