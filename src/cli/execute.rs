//! Executes runs. For `run` and `resume`: with live progress, the answer on stdout, and the closing lines on stderr.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use serde_json::Value;
use tokio::sync::watch;

use super::env::CliEnv;
use super::export::send_traces;
use super::next_command::NextCommand;
use super::output::{printable, shell_quote};
use super::output_files::OutputFiles;
use super::progress::{RunProgress, can_be_live};
use super::sandbox_options::{CopiesOf, PreparedSandbox};
use super::secrets::RunSecrets;
use super::tool_servers::{self, StartContext, WantedServer};
use super::{ci_files, output_queue, replay_source};
use crate::budget::SharedBudget;
use crate::error::Error;
use crate::event::{JournalEntry, Outcome, RunOptions, RunResult};
use crate::formats;
use crate::git::GitProgram;
use crate::job::{Job, allows_model_name, allows_tool};
use crate::journal::Fault;
use crate::lints::{CostTracking, UserConfig};
use crate::mcp::{ScriptedServers, ServerSpec, ServerStart, Servers, ToolDefinitions};
use crate::plan::Plan;
use crate::plan::SharedPrefixes;
use crate::process::WITHHELD;
use crate::providers::user_servers::UserServers;
use crate::providers::{ConnectContext, Model, PROVIDERS, Provider, ProviderError, ProviderErrorKind, SettingsContext};
use crate::record::{Record, Recorder};
use crate::redaction::Redactor;
use crate::run::{ResumeState, Run, RunObserver, Signals, UsedLimit, connect};
use crate::sandbox::programs::Folders;
use crate::sandbox::protected_paths::Repositories;
use crate::tools::ToolDefinition;

/// The wall-clock limit of the output queue for runs without one: a year.
const NO_TIME_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

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
    /// The git program, if there is one that no command can have changed.
    pub(super) git: Option<GitProgram>,
    pub(super) options: RunOptions,
    pub(super) resume_state: Option<ResumeState>,
    pub(super) signals: Signals,
    /// Show what happens.
    pub(super) observers: Vec<Arc<dyn RunObserver>>,
    /// The budget of the map that the run is a row of.
    pub(super) map_budget: Option<Arc<dyn SharedBudget>>,
    /// What the rows of that map share.
    pub(super) shared_prefixes: Arc<SharedPrefixes>,
}

/// Where the answer of a run goes.
pub(super) struct PrintedRun<'a> {
    /// The run folder, as the user would write it.
    pub(super) display_folder: &'a Path,
    /// The format of the answer on stdout.
    pub(super) format: &'a str,
    /// The files of `--result` and similar options.
    pub(super) files: OutputFiles,
    /// How to go on with it if it ends early.
    pub(super) next: NextCommand,
}

/// A run that has ended. Its record is complete.
pub(super) struct ExecutedRun {
    pub(super) result: RunResult,
    /// The values of its inputs, as the record has them.
    pub(super) inputs: IndexMap<String, Value>,
    /// What to tell the user about the workspace.
    pub(super) warnings: Vec<String>,
}

/// Executes a run with live progress on stderr, and prints its answer. Returns the exit code.
pub(super) fn execute_and_print(mut run: Execution<'_>, printed: &PrintedRun<'_>, env: &CliEnv) -> Result<u8, Error> {
    run.secrets.register_github_masks(env);
    let jsonl = printed.format == "jsonl";
    env.console.eprint(&format!("record: {}", printable(&printed.display_folder.to_string_lossy())));
    let runtime = start_runtime()?;
    let time_limit = run.plan.limits.wall_clock_ms.map_or(NO_TIME_LIMIT, Duration::from_millis).min(NO_TIME_LIMIT);
    let time_left = time_limit.saturating_sub(run.resume_state.as_ref().map(ResumeState::elapsed).unwrap_or_default());
    let output_ready = output_queue::start(Instant::now() + time_left)
        .map_err(Error::environment("the output thread can't be started"))?;
    // JSON lines on the same terminal would break up the live lines.
    let is_live = can_be_live(env) && !(jsonl && std::io::stdout().is_terminal());
    let progress = RunProgress::start(env, is_live, &run.plan, env.prices()?, run.resume_state.as_ref(), &run.signals);
    let mut observers = vec![progress.observer()];
    if jsonl {
        observers.push(Arc::new(JsonlObserver { out: env.console }));
    }
    run.observers.splice(0..0, observers);
    let (record, sends_traces) = (run.recorder.folder.clone(), !run.options.offline);
    let executed = runtime.block_on(execute(run, output_ready, env));
    drop(progress);
    let ExecutedRun { result, warnings, .. } = executed?;
    // The files are written before the warnings and the answer, since a reader of the output may stall.
    let written = printed.files.write(&result, printed.display_folder, env);
    warnings.iter().for_each(|warning| env.console.warning(warning));
    let limit = limit_to_raise(&record, &result);
    print_outcome(printed, env, &result, limit.as_ref());
    if let Some(path) = printed.files.result_path(&result).filter(|_| written.is_ok()) {
        env.console.eprint(&format!("result: {}", printable(&path.to_string_lossy())));
    }
    if sends_traces {
        let sent = runtime.block_on(send_traces(&record, result.outcome, env));
        let warnings = sent.unwrap_or_else(|warning| vec![warning]);
        warnings.iter().for_each(|warning| env.console.warning(warning));
    }
    // All processes have ended with their calls. A thread that reads from a slow disk must not delay the exit.
    runtime.shutdown_background();
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
    let written = printed.files.write(result, printed.display_folder, env);
    print_outcome(printed, env, result, limit_to_raise(&record.folder, result).as_ref());
    written
}

/// The limit that ended a run, and must be raised before it can go on.
fn limit_to_raise(record: &Path, result: &RunResult) -> Option<UsedLimit> {
    if !result.outcome.is_a_limit() {
        return None;
    }
    let state = ResumeState::new(Record::open(record).ok()?.journals().ok()?)?;
    state.used_limit(result).ok()?
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
    let workspace = PathBuf::from(&run.plan.workspace);
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
    let (specs, network) = (run.plan.mcp.values(), run.plan.network);
    let sandboxes = tool_servers::sandboxes(specs, network, &run.sandbox, || run.recorder.lock())?;
    let (sandbox, found) =
        run.sandbox.for_record(&run.recorder.folder, run.recorder.lock(), run.recorder.origin_check())?;
    let is_resumed = run.resume_state.is_some();
    let begun = Instant::now();
    let elapsed = run.resume_state.as_ref().map(ResumeState::elapsed).unwrap_or_default();
    let time_limit = run.plan.limits.wall_clock_ms.map(Duration::from_millis);
    let context = StartContext {
        sandbox: &sandbox,
        sandboxes,
        workspace: &run.plan.workspace.clone(),
        redactor: &redactor,
        stop: &run.signals.stop,
        deadline: time_limit.and_then(|limit| begun.checked_add(limit.saturating_sub(elapsed))),
        is_offline: run.options.offline,
    };
    let servers = start_servers(&mut run.plan, &run.scripts, context, is_resumed, env).await;
    let servers = servers.map_err(|error| match run.signals.first() {
        Some(signal) => Error::StoppedAtStart { signal },
        None => error,
    })?;
    let new_repositories = Arc::new(OnceLock::new());
    let tracks_changes = run.plan.changes_files();
    let plan = run.plan.redacted(&redactor);
    let inputs = plan.inputs.clone();
    let result = Run {
        plan,
        job_file: run.job_file,
        protected: run.protected_paths,
        found,
        out: run.runs_folder,
        home: env.variable("HOME").map(PathBuf::from),
        git: run.git,
        outputs: env.console.output_files(),
        providers: run.providers,
        prices: env.prices()?.clone(),
        mask: redactor,
        environment,
        sandbox,
        servers,
        servers_took: begun.elapsed(),
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
        shared_prefixes: run.shared_prefixes,
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
    Ok(ExecutedRun { result, inputs, warnings })
}

/// Starts the tool servers of a plan, and adds their tools to it. `None` if it has none.
async fn start_servers(
    plan: &mut Plan,
    scripts: &BTreeMap<String, String>,
    context: StartContext<'_>,
    is_resumed: bool,
    env: &CliEnv,
) -> Result<Option<Arc<Servers>>, Error> {
    if plan.mcp.is_empty() {
        return Ok(None);
    }
    let scripted = scripted_servers(plan, scripts)?;
    let wanted = |(name, spec): (&String, &ServerSpec)| WantedServer {
        name: name.clone(),
        spec: spec.clone(),
        allow: plan.allowed_server_tools(name),
    };
    let wanted = plan.mcp.iter().filter(|(name, _)| !scripted.names.contains(*name)).map(wanted);
    let wanted: Vec<WantedServer> = wanted.collect();
    let ServerStart { servers, tools, missing } = tool_servers::start(wanted, scripted, context, env).await?;
    for (name, tools) in tools {
        // Those of the lock file or the record were compared with these.
        if plan.mcp.get(&name).is_some_and(|server| server.tools.is_none()) {
            plan.set_server_tools(&name, tools);
        }
    }
    for error in missing {
        env.console.warning(&printable(&format!("{error}; the run goes on without it")));
        // A resumed agent has seen the tools: its calls fail.
        if !is_resumed {
            plan.set_server_tools(&error.server, ToolDefinitions::new());
            if let Some(server) = plan.mcp.get_mut(&error.server) {
                server.missing = Some(error.why);
            }
        }
    }
    if let Some(why) = plan.too_many_tools() {
        let _ = servers.stop(false).await;
        return Err(Error::ToolServer(why));
    }
    Ok(Some(servers))
}

/// The servers whose answers are in the scripts of a plan's models. Adds their tools to the plan, unless a lock file has them.
fn scripted_servers(plan: &mut Plan, scripts: &BTreeMap<String, String>) -> Result<ScriptedServers, Error> {
    let mut scripted = ScriptedServers::default();
    for (model, path) in scripts {
        let script = replay_source::open_replay_source(Path::new(path), None)?;
        for (name, tools) in script.servers {
            let Some(server) = plan.mcp.get(&name) else { continue };
            if server.tools.is_none() {
                let allowed = plan.allowed_server_tools(&name);
                let own = |(tool, definition): (String, ToolDefinition)| (own_tool_name(&tool, &allowed), definition);
                let mut tools: ToolDefinitions = tools.into_iter().map(own).collect();
                for tool in allowed.into_iter().filter(|tool| !tool.ends_with('*')) {
                    tools.entry(tool).or_insert_with(ToolDefinition::unknown);
                }
                plan.set_server_tools(&name, tools);
            }
            scripted.names.insert(name);
        }
        let is_of_model = |agent: &str| {
            plan.agent(agent).is_some_and(|agent| agent.model.is_scripted() && agent.model.name == *model)
        };
        scripted.answers.extend(script.answers.into_iter().filter(|((agent, _), _)| is_of_model(agent)));
    }
    Ok(scripted)
}

/// The name on its server of a tool that a script names as the model knows it, as far as the allowlists tell.
fn own_tool_name(tool: &str, allowed: &[String]) -> String {
    if allowed.iter().any(|pattern| allows_tool(pattern, tool)) {
        return tool.to_owned();
    }
    let start = allowed.iter().filter(|pattern| allows_model_name(pattern, tool)).find_map(|it| it.strip_suffix('*'));
    match start {
        Some(start) => start.chars().chain(tool.chars().skip(start.chars().count())).collect(),
        None => tool.to_owned(),
    }
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
    for model in plan.models().filter(|_| plan.limits.cost_usd.is_some()) {
        if CostTracking::of(model, plan.limits.tokens.is_some(), user_config) == CostTracking::Unknown {
            let message = format!("the price of `{model}` is unknown, so limits.cost_usd can't be enforced");
            let hint = format!("add its price to your prices.toml, in `[models.\"{model}\"]`");
            return Err(Error::Provider(ProviderError::new(ProviderErrorKind::Rejected, message).with_hint(hint)));
        }
    }
    Ok(())
}

/// Connects to the providers of a plan's models for which `is_wanted` is true. If the job is known, scripts must match it.
///
/// `writable` are the folders of `--allow-write` and of the records.
pub(super) fn connect_providers(
    env: &CliEnv,
    plan: &Plan,
    writable: &[PathBuf],
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
    let changeable = env.changeable_folders(Path::new(&plan.workspace), writable);
    let is_configured =
        |model: &Model| servers.get(&model.provider).is_some() || servers.settings(&model.provider).is_some();
    if plan.models().any(is_configured) {
        env.check_user_config(&changeable)?;
    }
    let program_variables = key_program_variables(env, servers, &changeable);
    let providers = connect(plan, is_wanted, |model| {
        let script = scripts.get(&model.name).filter(|_| model.is_scripted());
        Ok(ConnectContext {
            env: &variable,
            server: servers.get(&model.provider),
            settings: servers.settings(&model.provider).map(|settings| SettingsContext {
                settings,
                variables: &program_variables,
                changeable: &changeable,
            }),
            script: script.map(open_script).transpose()?,
            user_agent: concat!("legwork/", env!("CARGO_PKG_VERSION")),
            redactor,
            providers: PROVIDERS,
        })
    })?;
    for warning in providers.values().filter_map(|provider| provider.warning()) {
        env.console.warning(&warning);
    }
    for ready in providers.values().filter_map(|provider| provider.prepare()) {
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
fn print_outcome(printed: &PrintedRun<'_>, env: &CliEnv, result: &RunResult, limit: Option<&UsedLimit>) {
    let folder = printed.display_folder;
    let stats = formats::run_stats::summary_line(result);
    match &result.error {
        Some(error) => {
            env.console.eprint_problem(&format!("{}: {}", error.code, printable(&error.message)));
            if let Some(hint) = &error.hint {
                env.console.eprint_problem(&format!("help:   {}", printable(hint)));
            }
            env.console.eprint(&format!("used:   {stats}"));
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
    ci_files::write_run(env, result, folder, next.as_deref());
    env.console.print_untrusted(&formats::find(formats::ANSWERS, printed.format)(result));
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

/// Starts the async runtime of a command.
pub(super) fn start_runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::environment("the async runtime can't be started"))
}
