//! `legwork resume`: continues an interrupted run.

use std::path::{Path, PathBuf};

use super::arguments::{
    RUN_EXIT_CODES, RUN_HELP, format_parser, parse_assignment, parse_limits, read_secret_inputs, resolve_workspace,
};
use super::env::CliEnv;
use super::execute::{PrintedRun, RunSetup, connect_providers, execute_and_print, server_scripts};
use super::next_command::NextCommand;
use super::output::printable;
use super::output_files::OutputFileArgs;
use super::run::print_ended;
use super::sandbox_options::SandboxOptions;
use crate::agent::{MapShare, RunGates};
use crate::error::{ContinuedBy, Error, Obstacle};
use crate::event::{PARENT, RunOptions};
use crate::job::{GitAccess, Network};
use crate::plan::Plan;
use crate::record::{LATEST, ROWS, RUNS, Record, Recorder, ResultSource, ResumedRecord, find_run, is_previous_attempt};
use crate::reports;
use crate::reports::record_files::write_reports;
use crate::run::{Backends, OpenRecord, Prepared, Signals};
use crate::run::{changed_secrets, copied, load_resume_state, other_commit, reached_limit};
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
    /// Resume even if the commit or a secret has changed, or if the record is a copy or has lost its last lines
    ///
    /// Without it, a run isn't resumed if another commit is checked out than at its start, if a secret has another value,
    /// if the record is a copy of one that still exists, or if the disk has lost lines at the end of a journal.
    #[arg(long)]
    force: bool,
    /// Trust a record that was made elsewhere, and print what it permits
    #[arg(long)]
    trust_record: bool,
    /// Replace a limit of the run; may be repeated
    ///
    /// The limits are cost_usd, tokens, wall_clock, tool_calls, subagents, parallel_subagents, max_turns (the parent's)
    /// and SUBAGENT.max_turns. A run that ended at a limit can be resumed with a higher one.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    limit: Vec<String>,
    /// The folder with the records of runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
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
    // An unreadable record is rejected below.
    let workspace = record.as_ref().ok().map(|record| Path::new(&record.plan.workspace));
    let folders = [options.workspace.as_deref(), workspace, Some(&folder)];
    let writable = options.sandbox_options.writable().iter().map(PathBuf::as_path);
    let key = env.record_key(&folders.into_iter().flatten().chain(writable).collect::<Vec<_>>())?;
    let has_key = key.is_some();
    let reopened = match Recorder::resume(&folder, !limits.is_empty(), options.force, key) {
        Err(ended @ Error::RunEnded { outcome, .. }) => {
            // It may have ended since it was opened.
            let mut record = Record::open(&folder)?;
            // The process was killed just before it completed the record and gave its answer.
            if record.state.source() == Some(ResultSource::JournalForMissingFile) {
                Recorder::rebuild(&folder, write_reports)?;
                record = Record::open(&folder)?;
                if !outcome.is_a_limit() {
                    let mut files = options.files.prepare()?;
                    options.files.check_result_option(&record.plan)?;
                    files.open_folders()?;
                    let next = NextCommand::resume(&options.set, &options.set_env, &record.plan.secret_inputs, has_key);
                    let printed = PrintedRun { display_folder: &folder, format: &options.format, files, next };
                    return print_ended(&record, &printed, env);
                }
            }
            env.warn_of_defect(&record);
            let message = printable(&ended.to_string());
            if outcome.is_a_limit() {
                env.console.eprint_problem(&message);
                let state = load_resume_state(record.journals()?, &folder)?;
                let used = record.result().map_or(Ok(None), |result| state.used_limit(result));
                if let Some(used) = used? {
                    let hint = cannot_continue(&folder, reached_limit(&used)).hint().unwrap_or_default();
                    env.console.eprint_problem(&format!("help:   {}", printable(&hint)));
                }
            } else {
                let hint = "only an interrupted run can be resumed (choose another with `legwork resume RUN`)";
                env.console.eprint_problem(&format!("{message}; {hint}"));
            }
            let mut files = options.files.prepare()?;
            options.files.check_result_option(&record.plan)?;
            files.open_folders()?;
            record.result().map_or(Ok(()), |result| files.write(result, &folder, env))?;
            return Ok(ended.exit_code());
        }
        reopened => reopened?,
    };
    let ResumedRecord { recorder, record, journals, last_seen, has_our_key } = reopened;
    if journals.get(PARENT).is_some_and(|entries| !entries.is_empty()) {
        env.warn_of_defect(&record);
    }
    let recorded = record.state.into_result();
    let mut plan = record.plan;
    let servers = env.user_servers()?;
    for model in plan.models_mut() {
        model.server = servers.server_info(&model.provider);
    }
    let mut state = load_resume_state(journals, &folder)?;
    if !has_our_key {
        print_permissions(&plan, env);
        if !options.trust_record {
            return Err(cannot_continue(&folder, Obstacle::Foreign { has_ended: false }));
        }
    }
    if let Some(obstacle) = copied(&state, &recorder).filter(|_| !options.force) {
        return Err(cannot_continue(&folder, obstacle));
    }
    let earlier = match has_our_key {
        true => state.options().clone(),
        // Privileges that only a command line can grant aren't taken from a foreign record.
        false => RunOptions { untrusted: state.options().untrusted, ..RunOptions::default() },
    };
    let sandbox_options = options.sandbox_options.or_recorded(&earlier);
    sandbox_options.require_for_untrusted(earlier.untrusted)?;
    let result = options.files.result.clone().or(earlier.result.as_ref().map(PathBuf::from));
    let files = OutputFileArgs { result, ..options.files.clone() };
    files.check_result_option(&plan)?;
    state.last_seen = last_seen;
    let used = recorded.as_ref().map_or(Ok(None), |result| state.used_limit(result))?;
    state.replace_limits(&mut plan, limits)?;
    if let Some(used) = used.filter(|used| !used.leaves_more(&plan.limits, plan.parent.max_turns)) {
        return Err(cannot_continue(&folder, reached_limit(&used)));
    }
    let (last, _) = state.last_workspace();
    let workspace = resolve_workspace(options.workspace.as_deref().unwrap_or(Path::new(last)))?;
    if let Some(obstacle) = other_commit(&state, &workspace).filter(|_| !options.force) {
        return Err(cannot_continue(&folder, obstacle));
    }
    plan.workspace = workspace.to_string_lossy().into_owned();
    let secret_inputs = read_secret_inputs(&options.set, &options.set_env, env, &plan.secret_inputs)?;
    let scripts = state.started.scripts.clone();
    let secrets = env.secrets(servers, &plan, &secret_inputs);
    match changed_secrets(&state, &recorder, &secrets).filter(|_| has_our_key) {
        Some(Obstacle::ChangedSecrets { names }) if options.force => {
            state.has_new_secrets = true;
            let names = names.join(", ");
            env.console.warning(&format!("the old values of these secrets are no longer masked: {names}"));
        }
        Some(obstacle) => return Err(cannot_continue(&folder, obstacle)),
        None => {}
    }
    let out = runs_folder(&recorder.folder, &state.started.run_id, &plan.job);
    let writable = [sandbox_options.writable(), std::slice::from_ref(&out)].concat();
    let providers = connect_providers(env, &plan, &writable, &scripts, &secrets.redactor, None, &|_| true)?;
    let protected: Vec<PathBuf> = state.started.protected.iter().map(PathBuf::from).collect();
    let confinement = sandbox_options.confine(env, (&plan).into(), protected, &out)?;
    let result_path = files.result.clone();
    let mut files = files.prepare()?;
    files.open_folders()?;
    let next = NextCommand::resume(&options.set, &options.set_env, &plan.secret_inputs, has_key);
    let backends = Backends {
        host: env.host()?,
        providers,
        scripts: server_scripts(&plan, &scripts)?,
        git: env.git_program(&env.changeable_folders(&workspace, &writable)),
        map: MapShare::default(),
        signals,
        output_ready: RunGates::default().output_ready,
    };
    let options_to_record = RunOptions {
        untrusted: earlier.untrusted,
        offline: earlier.offline,
        ..sandbox_options.to_run_options(&env.current_folder, result_path.as_deref())
    };
    let prepared = Prepared { plan, secrets, job_file: "", scripts, options: options_to_record };
    let setup = RunSetup { prepared, confinement, backends, observers: Vec::new() };
    let record = OpenRecord { recorder, before: Some(state) };
    let printed = PrintedRun { display_folder: &folder, format: &options.format, files, next };
    execute_and_print(setup, record, &printed, env)
}

/// The error for a record that can't be resumed.
pub(super) fn cannot_continue(record: &Path, obstacle: Obstacle) -> Error {
    Error::CannotContinue { record: record.to_owned(), obstacle, by: ContinuedBy::Resume }
}

/// The folder of all runs that contains a run folder: `JOB/RUN`, also if `--fresh` has added a number, or the record of a row,
/// `JOB/MAP/rows/ROW`. For a record that was moved elsewhere, only the record itself: tools may use what is around it.
pub(super) fn runs_folder(folder: &Path, run_id: &str, job: &str) -> PathBuf {
    let is_named = folder.ends_with(run_id) || is_previous_attempt(&folder.with_file_name(run_id), folder);
    let of_job = folder.parent().filter(|_| is_named).and_then(|parent| match parent.ends_with(job) {
        true => Some(parent),
        false => parent.parent().filter(|_| parent.ends_with(ROWS))?.parent().filter(|of_job| of_job.ends_with(job)),
    });
    of_job.and_then(Path::parent).unwrap_or(folder).to_owned()
}

/// Prints what a record that was made elsewhere permits.
pub(super) fn print_permissions(plan: &Plan, env: &CliEnv) {
    env.console.eprint_problem("this record permits:");
    permission_lines(plan).iter().for_each(|line| env.console.eprint_problem(&format!("  {}", printable(line))));
}

/// What a record permits the resumed run to do.
fn permission_lines(plan: &Plan) -> Vec<String> {
    let mut lines = vec![format!("workspace: {}", plan.workspace)];
    if plan.network == Network::Open {
        lines.push("network: open".to_owned());
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
        let network = if server.network == Network::Open { ", network: open" } else { "" };
        let variables: Vec<&str> = server.variables().collect();
        let variables =
            if variables.is_empty() { String::new() } else { format!(", variables: {}", variables.join(", ")) };
        lines.push(format!("tool server {name}: {what}{network}{variables}"));
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
    lines.extend(plan.active_checks().map(|check| format!("check {}: {}", check.name, check.run)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_all_runs_is_found_from_each_kind_of_record() {
        let of = |folder: &str, run_id: &str| runs_folder(Path::new(folder), run_id, "job").display().to_string();
        assert_eq!(of("/runs/job/20260101-000000-aaaaaa", "20260101-000000-aaaaaa"), "/runs");
        assert_eq!(of("/runs/job/k", "k"), "/runs");
        assert_eq!(of("/runs/job/k.2", "k"), "/runs", "it was set aside");
        assert_eq!(of("/runs/job/map/rows/7", "7"), "/runs");
        assert_eq!(of("/runs/job/map/rows/7.1", "7"), "/runs");
        for moved in ["/home/k", "/runs/job/other", "/runs/job/k.x", "/runs/job/map/7", "/runs/other/map/rows/7"] {
            let run_id = if moved.ends_with('7') { "7" } else { "k" };
            assert_eq!(of(moved, run_id), moved);
        }
    }
}
