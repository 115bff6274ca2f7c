//! `legwork replay`: runs a recorded run again, offline, and says where it differs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::output::printable;
use super::resume::runs_folder;
use super::run::{parse_assignment, read_secret_inputs, resolve_workspace};
use super::sandbox_options::SandboxOptions;
use super::secrets::RunSecrets;
use super::{CliEnv, read_files};
use crate::agent::ToolDeps;
use crate::diagnostic::{Diagnostic, Source};
use crate::error::Error;
use crate::job::Job;
use crate::lints::{self, JobTrust, UserConfig, ValidJob};
use crate::plan::{InputValues, Plan, RunContext};
use crate::pricing::Prices;
use crate::providers::user_servers::UserServers;
use crate::providers::{Model, PROVIDERS};
use crate::record::{LATEST, RUNS, Record, find_run};
use crate::replay::{LiveTools, Replay};
use crate::run::{Signals, commit};
use crate::text::sanitize;
use crate::workspace::Workspace;
use crate::workspace_changes::has_tracked_files;
use crate::yaml;

/// Options of `legwork replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The record is all that is needed: no key, no network, no workspace. Replies and results come from it, and what came of \
them then is compared with what comes of them now: turns, messages, calls and results of every agent; never times, \
cost or the sandbox. A run that was cut off is compared up to there.

Exit codes: 0 where all is equal, 7 where something differs, 2 where the record can't be used, 3 where the job of --job \
is invalid.")]
pub(super) struct ReplayArgs {
    /// A folder, a run id or the start of one, JOB/latest, or latest
    #[arg(default_value = LATEST)]
    run: String,
    /// Where the runs lie
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
    /// Replay with this edited job instead: say what differs in the plan, and where the conversation would first be another
    ///
    /// It gets the recorded inputs; one that is new needs a default.
    #[arg(long, value_name = "FILE", conflicts_with = "tools")]
    job: Option<PathBuf>,
    /// Run the tools for real, and compare their results, too
    ///
    /// They change the workspace as the run did. So it must be as it was before the run: a fresh checkout of the same
    /// commit, say. What depends on the time, on names made at random or on an order that nobody promises differs.
    #[arg(long)]
    tools: bool,
    /// With --tools: the folder that they work in; default: the run's own
    #[arg(long, value_name = "DIR", requires = "tools")]
    workspace: Option<PathBuf>,
    /// With --tools: give a secret input again: NAME=VALUE; NAME=@FILE takes a file's text, NAME=@- standard input
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment, requires = "tools")]
    set: Vec<String>,
    /// With --tools: give a secret input again, from an environment variable
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = parse_assignment, requires = "tools")]
    set_env: Vec<String>,
    #[command(flatten, next_help_heading = "With --tools")]
    sandbox_options: SandboxOptions,
    /// What stdout gets
    #[arg(long, default_value = "text", value_parser = ["text", "json"])]
    format: String,
}

impl ReplayArgs {
    /// Whether tools run for real.
    pub(super) fn runs_tools(&self) -> bool {
        self.tools
    }
}

pub(super) fn replay(options: &ReplayArgs, around: &CliEnv) -> Result<u8, Error> {
    if !options.tools && !options.sandbox_options.is_default() {
        return Err(Error::Usage {
            message: "--sandbox, --allow-read and --allow-write go with --tools: without it nothing runs".into(),
            hint: Some("Add --tools, or leave them out.".into()),
        });
    }
    let folder = find_run(&options.out, &options.run, &has_tracked_files)?;
    let record = Record::open(&folder)?;
    let replay = Replay::read(&record)?;
    // Of what was recorded nothing is priced again.
    let prices = if options.job.is_some() { around.prices()?.clone() } else { Prices::new() };
    let edited = options.job.as_deref().map(|job| edited_plan(job, &replay, &folder, around)).transpose()?;
    let signals = if options.tools { Some(Signals::catch()?) } else { None };
    let tools =
        signals.as_ref().map(|signals| prepare_tools(options, &replay, &folder, signals, around)).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::Environment { message: "the run time can't be started".into(), source })?;
    let report = runtime.block_on(replay.execute(edited.as_ref(), &prices, tools))?;
    // A thread that still reads a slow disk must not hold the exit back.
    runtime.shutdown_background();
    for left_out in &report.left_out {
        around.console.eprint(&printable(left_out));
    }
    if let Some(stopped) = report.stopped {
        around.console.eprint(&format!("{stopped}: the replay was stopped before its end"));
    }
    match options.format.as_str() {
        "json" => around.console.print(&sanitize::escape_json(&format!("{:#}\n", report.json()))),
        _ => around.console.print(&sanitize::text(&report.text())),
    }
    Ok(report.exit_code(signals.and_then(|signals| signals.first())))
}

/// Where tools run for real: as `legwork resume` has them.
fn prepare_tools(
    options: &ReplayArgs,
    replay: &Replay,
    folder: &Path,
    signals: &Signals,
    around: &CliEnv,
) -> Result<LiveTools, Error> {
    let started = replay.started();
    let root = resolve_workspace(options.workspace.as_deref().unwrap_or(Path::new(&started.workspace)))?;
    let now = commit(&root);
    if now != started.commit {
        let named = |commit: Option<&str>| commit.unwrap_or("none").to_owned();
        around.console.warning(&format!(
            "the workspace is at another commit than the run began with: {} instead of {}",
            named(now.as_deref()),
            named(started.commit.as_deref())
        ));
    }
    let mut plan = (*started.plan).clone();
    plan.workspace = root.to_string_lossy().into_owned();
    let secrets = read_secret_inputs(&options.set, &options.set_env, around, &plan.secret_inputs)?;
    let RunSecrets { mask, environment, .. } = RunSecrets::new(around, around.user_servers()?, &plan, &secrets);
    let unreadable = |source| Error::Record { path: folder.to_owned(), source };
    let folder = folder.canonicalize().map_err(unreadable)?;
    let out = runs_folder(&folder, &started.run_id, &plan.job);
    let protected: Vec<PathBuf> = started.protected.iter().map(PathBuf::from).collect();
    let confined = options.sandbox_options.prepare_sandbox(around, &plan, &protected, &out)?;
    let (sandbox, found) = confined.for_record(&folder, None, None);
    let kept = found.map_or(protected, |found| found.paths).into_iter().chain([folder]).collect();
    let workspace = Workspace::open(&root, kept, vec![out]);
    let workspace = workspace.map_err(|source| Error::Workspace { path: root, source })?;
    let deps = ToolDeps {
        workspace: Arc::new(workspace),
        redactor: Arc::new(mask),
        environment: Arc::new(environment),
        sandbox,
    };
    Ok(LiveTools { deps, stop: signals.stop() })
}

/// The plan that an edited job makes of the recorded inputs.
fn edited_plan(path: &Path, replay: &Replay, folder: &Path, around: &CliEnv) -> Result<Plan, Error> {
    let (source, prompts) =
        read_files::read_job(path, JobTrust::Trusted).map_err(|finding| Error::Invalid(vec![finding]))?;
    // The record knows how its servers are spoken to, and none is asked.
    let recorded = || replay.started().plan.agents().map(|agent| &agent.model);
    let servers = UserServers::recorded(recorded());
    let all = PROVIDERS.iter().map(|entry| entry.name).chain(recorded().map(|model| model.provider.as_str()));
    let here = all.map(str::to_owned).collect();
    let own = UserConfig { servers, prices: around.prices()?.clone(), local_providers: here };
    let checked = lints::check_with(&source, prompts.as_ref(), JobTrust::Trusted, &own);
    let Some(job) = checked.job else { return Err(Error::Invalid(checked.findings)) };
    if !checked.findings.is_empty() {
        around.console.findings(&checked.findings);
    }
    let started = replay.started();
    let given = recorded_inputs(&job, &started.plan, folder);
    let date = started.run_id.get(..8).filter(|date| date.bytes().all(|digit| digit.is_ascii_digit()));
    let facts = RunContext {
        workspace: started.workspace.clone(),
        run_id: started.run_id.clone(),
        run_date: date.map(|date| format!("{}-{}-{}", &date[..4], &date[4..6], &date[6..])).unwrap_or_default(),
        model_override: model_override(&started.job_file, &started.plan, &own.servers),
    };
    let (plan, _) = Plan::new(&job, &given, &facts).map_err(|findings| {
        let of_replay = |finding: Diagnostic| match finding.code {
            "missing-input" => finding.help("give it a default: the record has no value for it"),
            _ => finding,
        };
        Error::Invalid(findings.into_iter().map(of_replay).collect())
    })?;
    Ok(plan)
}

/// The recorded values of the inputs that the job still has. Those of secret ones are in no record and in no plan, so that
/// anything can stand for them.
fn recorded_inputs(job: &ValidJob, plan: &Plan, folder: &Path) -> InputValues {
    let mut values = Map::new();
    for (name, declared) in job.job().inputs.iter().flat_map(|inputs| &inputs.value) {
        let name = &name.value;
        if declared.is_secret() {
            values.insert(name.clone(), Value::from("not recorded"));
        } else if let Some(value) = plan.inputs.get(name) {
            values.insert(name.clone(), value.clone());
        }
    }
    let name = folder.join("plan.json").to_string_lossy().into_owned();
    let mut given = InputValues::default();
    given.file(&Arc::clone(&Source::new(format!("{name} (inputs)"), format!("{:#}", Value::Object(values)))));
    given
}

/// The model that the command line gave the recorded run, where it did: another than the job's own.
fn model_override(job_file: &str, plan: &Plan, servers: &UserServers) -> Option<Model> {
    let source = Source::new("job.yaml", job_file);
    let job = yaml::read::<Job>(&source).value?;
    let own = lints::resolve(&job.model, servers).ok()?;
    (own != plan.parent.model).then(|| plan.parent.model.clone())
}
