//! `legwork resume`: continues an interrupted run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::arguments::{
    RUN_EXIT_CODES, RUN_HELP, format_parser, parse_assignment, parse_limits, read_secret_inputs, resolve_workspace,
};
use super::env::CliEnv;
use super::execute::{PrintedRun, connect_providers, execute_and_print, open_scripts, recorded_model};
use super::next_command::NextCommand;
use super::output::printable;
use super::output_files::{OutputFileArgs, OutputFiles};
use super::run::print_ended;
use super::sandbox_options::SandboxOptions;
use crate::error::{Error, Obstacle};
use crate::event::{PARENT, RunOptions};
use crate::job::{GitAccess, Network, STATE_FILE};
use crate::journal::RecordKey;
use crate::plan::Plan;
use crate::record::{LATEST, RUNS, Record, Recorder, ResultSource, find_run};
use crate::reports;
use crate::reports::record_files::write_reports;
use crate::run::{
    Backends, OpenRecord, Prepared, ResumedRun, RunSecrets, RunSetup, SandboxScope, Settled, Signals, StateFile,
    StateSource, cannot_resume, connect_scripts, load_resume_state, may_be_unsaved, reached_limit, runs_folder,
};
use crate::workspace_changes::has_tracked_files;

/// Options of `legwork resume`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{RUN_HELP}\n\n{RUN_EXIT_CODES}"))]
pub(super) struct ResumeArgs {
    /// The run
    #[arg(default_value = LATEST)]
    run: String,
    /// Set a secret input again: NAME=VALUE, NAME=@FILE for the text of a file, or NAME=@- for standard input
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    set: Vec<String>,
    /// Set a secret input again, to the value of an environment variable
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = parse_assignment)]
    set_env: Vec<String>,
    /// The folder that the tools work in; default: the run's own
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Resume even if the commit, a secret or the state has changed, or if the record is a copy or has lost its last lines
    ///
    /// Without it, a run isn't resumed if another commit is checked out than at its start, if a secret has another value,
    /// if another run has saved its state since, if the record is a copy of one that still exists, or if the disk has lost lines at the end of a journal.
    #[arg(long)]
    force: bool,
    /// Trust a record that was made elsewhere, and print what it permits
    #[arg(long)]
    trust_record: bool,
    /// Replace a limit of the run; may be repeated
    ///
    /// The limits are cost_usd, tokens, wall_clock, tool_calls, subagents, upload, parallel_subagents, max_turns (the parent's)
    /// and SUBAGENT.max_turns. A run that ended at a limit can be resumed with a higher one.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    limit: Vec<String>,
    /// The folder with the records of runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
    /// The file with the state of the job; default: the run's own
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    #[command(flatten)]
    sandbox_options: SandboxOptions,
    /// What to print to stdout
    ///
    /// `text` prints the parent's last text, or its result if there is no text; `json` prints the contents of result.json;
    /// `jsonl` prints each event as it happens, one JSON value per line.
    #[arg(long, default_value = "text", value_parser = format_parser(reports::ANSWERS))]
    format: String,
    #[command(flatten)]
    files: OutputFileArgs,
    /// Print only errors and warnings to stderr
    #[arg(long, short)]
    pub(super) quiet: bool,
}

pub(super) fn resume(options: &ResumeArgs, env: &CliEnv) -> Result<u8, Error> {
    options.files.check(None)?;
    let folder = find_run(&options.out, &options.run, &has_tracked_files)?;
    let signals = Signals::catch()?;
    let limits = parse_limits(&options.limit);
    let record = Record::open(&folder);
    let key = options.record_key(&folder, record.as_ref().ok(), env)?;
    let has_key = key.is_some();
    let resumed = match Recorder::resume(&folder, !limits.is_empty(), options.force, key.clone()) {
        // It may have ended since it was opened.
        Err(ended @ Error::RunEnded { .. }) => {
            return options.print_ended(&ended, Record::open(&folder)?, &folder, key.as_ref(), env);
        }
        resumed => resumed?,
    };
    if resumed.journals.get(PARENT).is_some_and(|entries| !entries.is_empty()) {
        env.warn_of_defect(&resumed.record);
    }
    let mut run = ResumedRun::new(resumed, &folder, env.user_servers()?)?;
    if !run.has_our_key {
        print_permissions(&run.plan, env);
    }
    run.check_origin(options.trust_record, options.force)?;
    let sandbox_options = options.sandbox_options.or_recorded(&run.options);
    sandbox_options.require_for_untrusted(run.options.untrusted)?;
    let result = options.files.result.clone().or(run.options.result.as_ref().map(PathBuf::from));
    let files = OutputFileArgs { result, ..options.files.clone() };
    files.check_result_option(&run.plan)?;
    run.replace_limits(limits)?;
    let (last, _) = run.state.last_workspace();
    let workspace = resolve_workspace(options.workspace.as_deref().unwrap_or(Path::new(last)))?;
    run.work_in(&workspace, options.force)?;
    let secret_inputs = read_secret_inputs(&options.set, &options.set_env, env, &run.plan.secret_inputs)?;
    let secrets = env.host()?.secrets(&run.plan, &secret_inputs);
    let changed = run.check_secrets(&secrets, options.force)?.join(", ");
    if !changed.is_empty() {
        env.console.warning(&format!("the old values of these secrets are no longer masked: {changed}"));
    }
    let recorded_options = RunOptions {
        untrusted: run.options.untrusted,
        offline: run.options.offline,
        state: options
            .state_path(&run.plan, &run.options, &run.runs_folder(), env)
            .map(|path| path.to_string_lossy().into_owned()),
        ..sandbox_options.to_run_options(&env.current_folder, files.result.as_deref())
    };
    let state = recorded_options.state.as_deref().map(Path::new);
    let warn = |warning: &str| env.console.warning(&printable(warning));
    let state = state.map(|path| StateFile::for_plan(&run.plan, path, key.as_ref(), &warn)).transpose()?.flatten();
    if let Some(obstacle) = state.as_ref().and_then(|file| file.obstacle(&run.state)).filter(|_| !options.force) {
        return Err(cannot_resume(&folder, obstacle));
    }
    let (mut setup, record) = set_up(run, secrets, &sandbox_options, recorded_options, signals, env)?;
    setup.prepared.state = state.map(|file| StateSource::File(Box::new(file)));
    let mut files = files.prepare()?;
    files.open_folders()?;
    let next = NextCommand::resume(&options.set, &options.set_env, &setup.prepared.plan.secret_inputs, has_key);
    let printed = PrintedRun { display_folder: &folder, format: &options.format, files, next };
    execute_and_print(setup, record, &printed, env)
}

impl ResumeArgs {
    /// The file of the state of a run, absolute, if its job keeps one. `runs` is the folder of all runs.
    fn state_path(&self, plan: &Plan, recorded: &RunOptions, runs: &Path, env: &CliEnv) -> Option<PathBuf> {
        plan.state.as_ref()?;
        let given = self.state.as_ref().map(|given| env.current_folder.join(given));
        let recorded = || recorded.state.as_ref().map(PathBuf::from);
        Some(given.or_else(recorded).unwrap_or_else(|| runs.join(&plan.job).join(STATE_FILE)))
    }

    /// Saves the state of a run that has completed and was killed before it could do that.
    fn save_state(&self, record: &Record, folder: &Path, key: Option<&RecordKey>, env: &CliEnv) -> Result<(), Error> {
        let (Some(start), true) = (&record.start, record.plan.state.is_some()) else { return Ok(()) };
        let state = load_resume_state(record.journals()?, folder)?;
        let is_ours = key.is_some_and(|key| record.is_signed_by(key).unwrap_or(false));
        let recorded = if is_ours { state.options().clone() } else { RunOptions::default() };
        let folder = folder.canonicalize().map_err(|source| Error::Record { path: folder.to_owned(), source })?;
        let runs = runs_folder(&folder, &start.run_id, &record.plan.job);
        let Some(path) = self.state_path(&record.plan, &recorded, &runs, env) else { return Ok(()) };
        if !may_be_unsaved(&path, &folder, &start.run_id) {
            return Ok(());
        }
        let warn = |warning: &str| env.console.warning(&printable(warning));
        let Some(mut file) = StateFile::for_plan(&record.plan, &path, key, &warn)? else { return Ok(()) };
        let is_trusted = is_ours || self.trust_record;
        match file.settle_trusted(&folder, &start.run_id, is_trusted, self.force)? {
            Settled::Nothing => Ok(()),
            Settled::Saved => {
                env.console.eprint(&format!("the state is saved now: {}", printable(&path.to_string_lossy())));
                Ok(())
            }
            Settled::Changed => Err(cannot_resume(&folder, Obstacle::StateChanged { file: path })),
            Settled::Foreign => Err(cannot_resume(&folder, Obstacle::Foreign { has_ended: false })),
        }
    }

    /// The key that signs the record, unless a command could read or change it.
    fn record_key(&self, folder: &Path, record: Option<&Record>, env: &CliEnv) -> Result<Option<RecordKey>, Error> {
        // An unreadable record is rejected later.
        let workspace = record.map(|record| Path::new(&record.plan.workspace));
        let folders = [self.workspace.as_deref(), workspace, Some(folder)];
        let folders: Vec<&Path> = folders.into_iter().flatten().collect();
        env.record_key_beside(&folders, self.sandbox_options.writable())
    }

    /// Writes the files of a run that has ended, and says why it can't be resumed. Returns its exit code.
    fn print_ended(
        &self,
        ended: &Error,
        mut record: Record,
        folder: &Path,
        key: Option<&RecordKey>,
        env: &CliEnv,
    ) -> Result<u8, Error> {
        let was_incomplete = record.state.source() == Some(ResultSource::JournalForMissingFile);
        self.save_state(&record, folder, key, env)?;
        let has_key = key.is_some();
        let is_limit = matches!(ended, Error::RunEnded { outcome, .. } if outcome.is_a_limit());
        // The process was killed just before it completed the record and gave its answer.
        if was_incomplete {
            Recorder::rebuild(folder, write_reports)?;
            record = Record::open(folder)?;
            if !is_limit {
                let files = self.open_files(&record)?;
                let next = NextCommand::resume(&self.set, &self.set_env, &record.plan.secret_inputs, has_key);
                let printed = PrintedRun { display_folder: folder, format: &self.format, files, next };
                return print_ended(&record, &printed, env);
            }
        }
        env.warn_of_defect(&record);
        let message = printable(&ended.to_string());
        if is_limit {
            env.console.eprint_problem(&message);
            let state = load_resume_state(record.journals()?, folder)?;
            let used = record.result().map_or(Ok(None), |result| state.used_limit(result));
            if let Some(used) = used? {
                let hint = cannot_resume(folder, reached_limit(&used)).hint().unwrap_or_default();
                env.console.eprint_problem(&format!("help:   {}", printable(&hint)));
            }
        } else {
            let hint = "only an interrupted run can be resumed (choose another with `legwork resume RUN`)";
            env.console.eprint_problem(&format!("{message}; {hint}"));
        }
        let files = self.open_files(&record)?;
        record.result().map_or(Ok(()), |result| files.write(result, &recorded_model(&record), folder, env))?;
        Ok(ended.exit_code())
    }

    /// Opens the folders of the files that a run that has ended writes again.
    fn open_files(&self, record: &Record) -> Result<OutputFiles, Error> {
        let mut files = self.files.prepare()?;
        self.files.check_result_option(&record.plan)?;
        files.open_folders()?;
        Ok(files)
    }
}

/// Connects to the providers of the run, and confines its tools.
fn set_up<'a>(
    run: ResumedRun,
    secrets: RunSecrets,
    sandbox_options: &SandboxOptions,
    options: RunOptions,
    signals: Signals,
    env: &'a CliEnv,
) -> Result<(RunSetup<'a>, OpenRecord), Error> {
    let out = run.runs_folder();
    let writable = [sandbox_options.writable(), std::slice::from_ref(&out)].concat();
    let scripts = open_scripts(&run.state.started.scripts, None)?;
    let mut providers = connect_providers(env, &run.plan, &writable, &secrets.redactor)?;
    providers.extend(connect_scripts(&run.plan, &scripts, &secrets.redactor)?);
    let protected = run.state.started.protected.iter().chain(&options.state).map(PathBuf::from).collect();
    let confinement = sandbox_options.confine(env, SandboxScope::new(&run.plan, run.folder()), protected, &out)?;
    let git = env.git_program(&env.changeable_folders(Path::new(&run.plan.workspace), &writable));
    let backends = Backends::new(env.host()?, providers, git, signals);
    let (plan, record) = run.into_parts();
    let prepared = Prepared {
        plan,
        secrets,
        job_file: "",
        job_files: BTreeMap::new(),
        scripts,
        options,
        given_steps: serde_json::Map::new(),
        given_files: None,
        event: None,
        state: None,
    };
    Ok((RunSetup { prepared, confinement, backends, observers: Vec::new() }, record))
}

/// Prints what a record that was made elsewhere permits.
pub(super) fn print_permissions(plan: &Plan, env: &CliEnv) {
    env.console.eprint_problem("this record permits:");
    permission_lines(plan).iter().for_each(|line| env.console.eprint_problem(&format!("  {}", printable(line))));
}

/// What a record permits the resumed run to do.
fn permission_lines(plan: &Plan) -> Vec<String> {
    let mut lines = vec![format!("workspace: {}", plan.workspace)];
    if !plan.network.is_none() {
        lines.push(format!("network: {}", plan.network));
    }
    let inputs = plan.secret_inputs.iter().map(|name| format!("input {name}"));
    let variables: Vec<String> = plan.env.iter().cloned().chain(inputs).collect();
    if !variables.is_empty() {
        lines.push(format!("variables for commands: {}", variables.join(", ")));
    }
    if plan.git == GitAccess::Commit {
        lines.push("git: commit".to_owned());
    }
    if !plan.allow_changes.is_empty() {
        lines.push(format!("changes allowed: {}", plan.allow_changes.join(", ")));
    }
    for (name, server) in &plan.mcp {
        let what = server.url.clone().unwrap_or_else(|| format!("{:?}", server.command));
        let network = match &server.network {
            Network::None => String::new(),
            network => format!(", network: {network}"),
        };
        let variables: Vec<&str> = server.variables().collect();
        let variables =
            if variables.is_empty() { String::new() } else { format!(", variables: {}", variables.join(", ")) };
        lines.push(format!("tool server {name}: {what}{network}{variables}"));
    }
    if plan.state.is_some() {
        lines.push("state: read, and replaced if the run completes".to_owned());
    }
    let names = std::iter::once("parent").chain(plan.subagents.keys().map(String::as_str));
    for (name, agent) in names.zip(plan.agents()) {
        let tools = agent.tools.iter().map(|tool| match tool.options.as_object() {
            Some(options) if !options.is_empty() => format!("{} {}", tool.name, tool.options),
            _ => tool.name.clone(),
        });
        let tools = if agent.tools.is_empty() { "no tools".to_owned() } else { tools.collect::<Vec<_>>().join(", ") };
        let models: Vec<String> = agent.models().map(ToString::to_string).collect();
        lines.push(format!("{name}: {} with {tools}", models.join(", or ")));
    }
    lines.extend(plan.before.iter().map(|step| format!("step {}: {}", step.name, step.run)));
    lines.extend(plan.active_checks().map(|check| format!("check {}: {}", check.name, check.run)));
    lines
}
