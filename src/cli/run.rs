//! `legwork run`: from a job file to a record, or with `--dry-run` to the plan.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::execute::{Execution, check_cost_limit, connect_providers, execute};
use super::result_file::ResultFile;
use super::sandbox_options::SandboxOptions;
use super::save_case::CaseRecorder;
use super::secrets::RunSecrets;
use super::symlink_guard::reject_escaping_symlinks;
use super::{CliEnv, format_parser, read_files};
use crate::diagnostic::Severity;
use crate::error::Error;
use crate::event::RunOptions;
use crate::formats::{self, PlanPreview, Subject};
use crate::job::Network;
use crate::lints::{self, JobTrust, ValidJob};
use crate::plan::{InputValues, LimitOverrideError, MAX_VALUE_BYTES, Plan, RunContext, SecretInputs, ValueSource};
use crate::record::{RUNS, Recorder};
use crate::run::Signals;

/// Options of `legwork run`.
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// The job file
    job: PathBuf,
    /// Give an input: NAME=VALUE; NAME=@FILE takes a file's text, NAME=@- standard input
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    set: Vec<String>,
    /// Give an input the value of an environment variable
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = parse_assignment)]
    set_env: Vec<String>,
    /// Give inputs from a YAML or JSON file; --set goes before it
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Use this model for every agent: PROVIDER/NAME, or replay/FILE for a script or a recorded run; options that the job
    /// asks of its own models, such as `thinking`, are left behind with them
    #[arg(long)]
    model: Option<String>,
    /// The folder that the tools work in
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
    /// Where runs are recorded
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
    /// Put this limit in the place of the job's: cost_usd, tokens, wall_clock, tool_calls, subagents, parallel_subagents,
    /// max_turns, or SUBAGENT.max_turns; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment, conflicts_with = "save_case")]
    limit: Vec<String>,
    #[command(flatten)]
    sandbox_options: SandboxOptions,
    /// What stdout gets: the last text, result.json, or the events as they happen
    #[arg(long, default_value = "text", value_parser = format_parser(Subject::Run))]
    format: String,
    /// Write the data that the job ends with to this file, too; without data there is no such file after the run
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
    /// Take the job for a stranger's: refuse what only trusted ones get, such as `env` and `network: open`
    #[arg(long)]
    untrusted: bool,
    /// Reach nothing over the network: models answer from scripts or records alone, and commands get none even where the
    /// job says so
    #[arg(long)]
    offline: bool,
    /// Make a case for `legwork test` of this run: tests/JOB/NAME beside the job file
    #[arg(long, value_name = "NAME", conflicts_with = "dry_run")]
    save_case: Option<String>,
    /// Print the plan and stop: no key, no network, no process
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: show what models are told of each tool, too
    #[arg(long, requires = "dry_run")]
    verbose: bool,
}

pub(super) fn run(options: &RunArgs, around: &CliEnv) -> Result<u8, Error> {
    let invalid = |finding| Error::Invalid(vec![finding]);
    if options.untrusted && options.sandbox_options.is_off() {
        return Err(Error::Usage {
            message: "an untrusted job is not run without a sandbox".into(),
            hint: Some("Leave out one of --untrusted and --sandbox off.".into()),
        });
    }
    if let Some(file) = options.result.as_ref().filter(|file| is_same_file(file, &options.job)) {
        return Err(Error::Usage {
            message: format!("--result {}: that is the job file", file.display()),
            hint: Some("Name another file for the result.".into()),
        });
    }
    let asked_for = options.result.as_deref().filter(|_| !options.dry_run);
    let result_file = ResultFile::prepare(asked_for)?;
    let workspace = resolve_workspace(&options.workspace)?;
    let origin = JobTrust::from_untrusted_flag(options.untrusted);
    let (source, folder) = read_files::read_job(&options.job, origin).map_err(invalid)?;
    let own = around.user_config()?;
    let checked = lints::check_with(&source, folder.as_ref(), origin, &own);
    let Some(job) = checked.job else { return Err(Error::Invalid(checked.findings)) };
    let model = options.model.as_deref().map(|model| lints::model_argument(model, &own.servers)).transpose();
    let replaced = parse_limits(&options.limit);
    let mut findings = checked.findings;
    if let Ok(Some(model)) = &model
        && model.is_scripted()
    {
        findings.retain(|finding| !lints::COST_WARNINGS.contains(&finding.code));
    }
    if replaced.contains_key("cost_usd") {
        findings.retain(|finding| finding.code != "no-cost-limit");
    }
    if !findings.is_empty() {
        around.console.findings(&findings);
    }
    let given = read_inputs(options, around)?;
    let model = model.map_err(|finding| invalid(*finding))?;
    let facts = |run_id: &str, run_date: &str| RunContext {
        workspace: workspace.to_string_lossy().into_owned(),
        run_id: run_id.to_owned(),
        run_date: run_date.to_owned(),
        model_override: model.clone(),
    };
    let (plan, secrets) = build_plan(options, &job, &given, &facts("<run.id>", "<run.date>"))?;
    if replaced.contains_key("cost_usd") {
        check_cost_limit(&plan, &own)?;
    }
    // The job's own models were looked at; one from the command line takes their place.
    match model.as_ref().and_then(|model| lints::unknown_price(&job.job().limits, model, &own)) {
        Some(finding) if finding.severity == Severity::Error => return Err(invalid(finding)),
        Some(finding) => around.console.findings(&[finding]),
        None => {}
    }
    if let Some((message, help)) = model.as_ref().and_then(lints::retirement) {
        around.console.warning(&format!("{message}; {help}"));
    }
    // Scripts take no wishes, and whoever tests with one knows.
    if let Some(model) = model.as_ref().filter(|model| !model.is_scripted()) {
        lints::dropped_options(job.job(), model, &own.servers)
            .iter()
            .for_each(|warning| around.console.warning(warning));
    }
    ResultFile::check_result_option(options.result.as_deref(), &plan)?;
    let confidences = RunSecrets::new(around, &own.servers, &plan, &secrets);
    if options.dry_run {
        return print_plan(options, around, &plan.redacted(&confidences.mask));
    }

    let scripts = replay_sources(options, around, &plan);
    let providers = connect_providers(around, &plan, &scripts, &confidences.mask, Some(job.job()))?;
    let hint = "Remove the link, or name the folder that it leads to: --out DIR.";
    reject_escaping_symlinks(&around.current_folder, &options.out.join(job.name()), hint)?;
    if let Some(file) = &result_file {
        file.make_folder()?;
    }
    let out = around.current_folder.join(&options.out);
    let saving = match &options.save_case {
        Some(name) => Some(CaseRecorder::begin(name, &options.job, &workspace, &out, &confidences.mask)?),
        None => None,
    };
    // From here on there is something to be closed.
    let signals = Signals::catch()?;
    let started = (around.clock)();
    let mut protected: Vec<PathBuf> =
        protected_paths(&options.job, &job).into_iter().chain(scripts.values().cloned()).collect();
    protected.iter().try_for_each(|path| require_utf8(path))?;
    protected.extend(around.user_config_files_below(&workspace));
    let confined = options.sandbox_options.prepare_sandbox(around, &plan, &protected, &out)?;
    let recorder = Recorder::create(&out, job.name(), started, around.record_key(&[&workspace])?)?;
    let shown_folder = options.out.join(job.name()).join(recorder.run_id());
    let today = started.strftime("%Y-%m-%d").to_string();
    let (plan, _) = build_plan(options, &job, &given, &facts(recorder.run_id(), &today))?;
    let out = out.canonicalize().map_err(|source| Error::Record { path: out.clone(), source })?;
    let record = recorder.folder().to_owned();
    let code = execute(
        Execution {
            plan: plan.clone(),
            secrets: confidences,
            job_file: &source.text,
            protected_paths: protected,
            runs_folder: out,
            sandbox: confined,
            display_folder: &shown_folder,
            format: &options.format,
            providers,
            scripts,
            recorder,
            result_file,
            options: RunOptions {
                result: options
                    .result
                    .as_ref()
                    .map(|file| around.current_folder.join(file).to_string_lossy().into_owned()),
                untrusted: options.untrusted,
                offline: options.offline,
                ..options.sandbox_options.to_run_options(&around.current_folder)
            },
            resume_state: None,
            signals,
            observer: saving.as_ref().map(CaseRecorder::observer),
        },
        around,
    )?;
    if let Some(saving) = saving {
        saving.finish(&plan, &record, &options.sandbox_options, around);
    }
    Ok(code)
}

fn build_plan(
    options: &RunArgs,
    job: &ValidJob,
    given: &InputValues,
    facts: &RunContext,
) -> Result<(Plan, SecretInputs), Error> {
    let (mut plan, secrets) = Plan::new(job, given, facts).map_err(Error::Invalid)?;
    plan.set_limits(&parse_limits(&options.limit)).map_err(limit_error)?;
    if options.offline {
        if let Some(agent) = plan.agents().find(|agent| !agent.model.is_scripted()) {
            return Err(Error::Usage {
                message: format!("{} is reached over the network, and --offline forbids that", agent.model),
                hint: Some("Answer from a script: --model replay/FILE.".into()),
            });
        }
        plan.network = Network::None;
    }
    Ok((plan, secrets))
}

/// Whether two paths lead to one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Prints a plan.
fn print_plan(options: &RunArgs, around: &CliEnv, plan: &Plan) -> Result<u8, Error> {
    if options.verbose && options.format != "text" {
        return Err(Error::Usage {
            message: format!("--verbose has nothing to add to --format {}", options.format),
            hint: Some("Leave one of the two out.".into()),
        });
    }
    let preview = PlanPreview {
        plan,
        cost_bound: &plan.cost_bound(around.prices()?, (around.clock)()),
        sandbox: &options.sandbox_options.describe(plan),
        verbose: options.verbose,
        display: around.console.stdout_display(),
    };
    let text = formats::find(&options.format).and_then(|format| format.plan(&preview));
    around.console.print_formatted(&options.format, &text.unwrap_or_default());
    Ok(0)
}

pub(super) fn resolve_workspace(folder: &Path) -> Result<PathBuf, Error> {
    let refused = |why: String| Error::Usage {
        message: format!("--workspace {}: {why}", folder.display()),
        hint: Some("Name a folder that exists.".into()),
    };
    let absolute = folder.canonicalize().map_err(|error| refused(error.to_string()))?;
    if !absolute.is_dir() {
        return Err(refused("it is no folder".into()));
    }
    require_utf8(&absolute)?;
    Ok(absolute)
}

/// Refuses a path that no record could name: records are text.
fn require_utf8(path: &Path) -> Result<(), Error> {
    if path.to_str().is_some() {
        return Ok(());
    }
    Err(Error::Usage {
        message: format!("{}: this path is not valid UTF-8, and a run's record couldn't name it", path.display()),
        hint: Some("Rename the folder or file, or use another one.".into()),
    })
}

/// Everything that `--set`, `--set-env` and `--inputs` say.
fn read_inputs(options: &RunArgs, around: &CliEnv) -> Result<InputValues, Error> {
    let mut given = InputValues::default();
    if let Some(path) = &options.inputs {
        given.file(&read_files::read_source(path).map_err(|finding| Error::Invalid(vec![finding]))?);
    }
    add_input_arguments(&mut given, &options.set, &options.set_env, around);
    Ok(given)
}

/// The secret inputs of a run that goes on, which no record holds.
pub(super) fn read_secret_inputs(
    set: &[String],
    set_env: &[String],
    around: &CliEnv,
    names: &[String],
) -> Result<SecretInputs, Error> {
    let mut given = InputValues::default();
    add_input_arguments(&mut given, set, set_env, around);
    given.secret_inputs(names).map_err(Error::Invalid)
}

fn add_input_arguments(given: &mut InputValues, set: &[String], set_env: &[String], around: &CliEnv) {
    for argument in set {
        given.set(argument, |contents| match contents {
            ValueSource::Stdin => {
                let mut bytes = Vec::new();
                std::io::stdin().take(MAX_VALUE_BYTES as u64 + 2).read_to_end(&mut bytes)?;
                Ok(bytes)
            }
            ValueSource::File(path) => {
                read_files::read_bounded(Path::new(path), MAX_VALUE_BYTES + 1).map_err(std::io::Error::other)
            }
        });
    }
    for argument in set_env {
        given.set_env(argument, |variable| around.variables.get(variable).map(Into::into));
    }
}

/// What `--limit` says, by the limits' names; where one is given twice, the last one counts.
pub(super) fn parse_limits(arguments: &[String]) -> BTreeMap<String, String> {
    let pairs = arguments.iter().filter_map(|argument| argument.split_once('='));
    // As the journal and messages name them, too.
    let name = |name: &str| name.strip_prefix("limits.").or(name.strip_prefix("parent.")).unwrap_or(name).to_owned();
    pairs.map(|(key, value)| (name(key), value.to_owned())).collect()
}

pub(super) fn limit_error(bad: LimitOverrideError) -> Error {
    Error::Usage { message: bad.message, hint: Some(bad.hint) }
}

/// An argument of the form `NAME=...`.
pub(super) fn parse_assignment(argument: &str) -> Result<String, &'static str> {
    match argument.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(argument.to_owned()),
        _ => Err("there is no `=` after a name"),
    }
}

/// The scripts that models answer from, absolute. One that the command line names lies relative to the current folder,
/// one that the job names relative to the job's.
fn replay_sources(options: &RunArgs, around: &CliEnv, plan: &Plan) -> BTreeMap<String, PathBuf> {
    let folder = if options.model.is_some() { None } else { options.job.parent() };
    let folder = around.current_folder.join(folder.unwrap_or(Path::new("")));
    let replayed = plan.agents().map(|agent| &agent.model).filter(|model| model.is_scripted());
    replayed.map(|model| (model.name.clone(), folder.join(&model.name))).collect()
}

/// The job file and what its texts and schemas are made of, absolute; what an include would take if it were there is among it.
fn protected_paths(job_file: &Path, job: &ValidJob) -> Vec<PathBuf> {
    let folder = job_file.parent().unwrap_or(Path::new(""));
    let templates = &job.prompts().templates;
    let files = templates.files().chain(templates.missing()).chain(job.schemas().files());
    let files = files.map(|file| folder.join(file));
    let absolute = |path: PathBuf| std::path::absolute(path).ok();
    std::iter::once(job_file.to_owned()).chain(files).filter_map(absolute).collect()
}
