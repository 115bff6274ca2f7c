//! `legwork run`: runs a job, or prints its plan with `--dry-run`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::arguments::{
    RUN_EXIT_CODES, add_input_arguments, format_parser, limit_error, parse_assignment, parse_limits,
    reject_escaping_symlinks, require_utf8, resolve_workspace,
};
use super::env::CliEnv;
use super::execute::{Execution, check_cost_limit, connect_providers, execute};
use super::read_files;
use super::result_file::ResultFile;
use super::sandbox_options::SandboxOptions;
use super::save_case::CaseRecorder;
use super::secrets::RunSecrets;
use crate::diagnostic::Severity;
use crate::error::Error;
use crate::event::RunOptions;
use crate::formats::{self, PlanPreview};
use crate::job::Network;
use crate::lints::{self, JobTrust, ValidJob};
use crate::plan::{InputValues, Plan, RunContext};
use crate::record::{RUNS, Recorder, new_run_id};
use crate::run::Signals;

/// Options of `legwork run`.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXIT_CODES)]
pub(super) struct RunArgs {
    /// The job file
    job: PathBuf,
    /// Set an input: NAME=VALUE, NAME=@FILE for the text of a file, or NAME=@- for standard input
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    set: Vec<String>,
    /// Set an input to the value of an environment variable
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = parse_assignment)]
    set_env: Vec<String>,
    /// Read inputs from a YAML or JSON file; --set takes precedence
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Use this model for all agents: PROVIDER/NAME, or replay/FILE for a script or a recorded run
    ///
    /// Options that the job sets for its own models, such as `thinking`, are dropped.
    #[arg(long)]
    model: Option<String>,
    /// The folder that the tools work in
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
    /// The folder for the records of runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
    /// Replace a limit of the job; may be repeated
    ///
    /// The limits are cost_usd, tokens, wall_clock, tool_calls, subagents, parallel_subagents, max_turns (the parent's)
    /// and SUBAGENT.max_turns.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment, conflicts_with = "save_case")]
    limit: Vec<String>,
    #[command(flatten)]
    sandbox_options: SandboxOptions,
    /// What to print to stdout
    ///
    /// `text` prints the parent's last text, or its result if there is no text; `json` prints the contents of result.json;
    /// `jsonl` prints each event as it happens, one JSON value per line.
    #[arg(long, default_value = "text", value_parser = format_parser(formats::ANSWERS))]
    format: String,
    /// Also write the job's result to this file
    ///
    /// If the run ends without a result, the file doesn't exist afterwards.
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
    /// Treat the job as untrusted: refuse `env`, `network: open` and other privileges
    ///
    /// For jobs whose author may use the workspace and nothing else. Also refuses secret inputs, `git: commit`,
    /// `allow_changes`, `checks`, models that reply from a file, jobs behind symbolic links and --sandbox off.
    #[arg(long)]
    untrusted: bool,
    /// Use no network: replies come from scripts or records only
    ///
    /// Commands get no network, even if the job has `network: open`.
    #[arg(long)]
    offline: bool,
    /// Save this run as a test case: tests/JOB/NAME next to the job file
    #[arg(long, value_name = "NAME", conflicts_with = "dry_run")]
    save_case: Option<String>,
    /// Print the plan and stop: no key, no network, no process
    ///
    /// The plan has every rendered prompt, tool and limit, the sandbox, and the most that the run can cost.
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run, also print the tool descriptions that the models get
    #[arg(long, requires = "dry_run")]
    verbose: bool,
}

pub(super) fn run(options: &RunArgs, env: &CliEnv) -> Result<u8, Error> {
    let invalid = |finding| Error::Invalid(vec![finding]);
    options.sandbox_options.require_for_untrusted(options.untrusted)?;
    let is_job =
        |file: &&PathBuf| file.canonicalize().is_ok_and(|file| options.job.canonicalize().is_ok_and(|job| job == file));
    if let Some(file) = options.result.as_ref().filter(is_job) {
        let message = format!("--result {} is the job file", file.display());
        return Err(Error::usage(message, "Choose another file for the result."));
    }
    let result_path = options.result.as_deref().filter(|_| !options.dry_run);
    let result_file = ResultFile::prepare(result_path)?;
    let workspace = resolve_workspace(&options.workspace)?;
    let origin = JobTrust::from_untrusted_flag(options.untrusted);
    let (source, folder) = read_files::read_job(&options.job, origin).map_err(invalid)?;
    let user_config = env.user_config()?;
    let checked = lints::check_with(&source, folder.as_ref(), origin, &user_config);
    let Some(job) = checked.job else { return Err(Error::Invalid(checked.findings)) };
    let model = options.model.as_deref().map(|model| lints::model_argument(model, &user_config.servers)).transpose();
    let limits = parse_limits(&options.limit);
    let mut findings = checked.findings;
    if matches!(&model, Ok(Some(model)) if model.is_scripted()) {
        findings.retain(|finding| !lints::COST_WARNINGS.contains(&finding.code));
    }
    if limits.contains_key("cost_usd") {
        findings.retain(|finding| finding.code != "no-cost-limit");
    }
    if !findings.is_empty() {
        env.console.findings(&findings);
    }
    let mut inputs = InputValues::default();
    if let Some(path) = &options.inputs {
        inputs.file(&read_files::read_source(path).map_err(invalid)?);
    }
    add_input_arguments(&mut inputs, &options.set, &options.set_env, env);
    let model = model.map_err(|finding| invalid(*finding))?;
    let out = env.current_folder.join(&options.out);
    let started = (env.clock)();
    let (run_id, run_date) = match options.dry_run {
        true => ("<run.id>".to_owned(), "<run.date>".to_owned()),
        false => (new_run_id(&out, job.name(), started), started.strftime("%Y-%m-%d").to_string()),
    };
    let context = RunContext {
        workspace: workspace.to_string_lossy().into_owned(),
        run_id,
        run_date,
        model_override: model.clone(),
    };
    let (mut plan, secret_inputs) = Plan::new(&job, &inputs, &context).map_err(Error::Invalid)?;
    plan.set_limits(&limits).map_err(limit_error)?;
    if options.offline {
        if let Some(agent) = plan.agents().find(|agent| !agent.model.is_scripted()) {
            let message = format!("--offline: {} needs the network", agent.model);
            return Err(Error::usage(message, "Reply from a script or a record: --model replay/FILE."));
        }
        plan.network = Network::None;
    }
    if limits.contains_key("cost_usd") {
        check_cost_limit(&plan, &user_config)?;
    }
    // The lints checked the job's own models, but not one from the command line.
    match model.as_ref().and_then(|model| lints::unknown_price(&job.job().limits, model, &user_config)) {
        Some(finding) if finding.severity == Severity::Error => return Err(invalid(finding)),
        Some(finding) => env.console.findings(&[finding]),
        None => {}
    }
    if let Some((message, help)) = model.as_ref().and_then(lints::retirement) {
        env.console.warning(&format!("{message}; {help}"));
    }
    // Scripts have no options, so a warning about dropped ones would be noise.
    if let Some(model) = model.as_ref().filter(|model| !model.is_scripted()) {
        let warnings = lints::dropped_options(job.job(), model, &user_config.servers);
        warnings.iter().for_each(|warning| env.console.warning(warning));
    }
    ResultFile::check_result_option(options.result.as_deref(), &plan)?;
    let secrets = RunSecrets::new(env, &user_config.servers, &plan, &secret_inputs);
    if options.dry_run {
        return print_plan(options, env, &plan.redacted(&secrets.redactor));
    }

    let scripts = replay_sources(options, env, &plan);
    let providers = connect_providers(env, &plan, &scripts, &secrets.redactor, Some(job.job()))?;
    let hint = "Remove the link, or name its target: --out DIR.";
    reject_escaping_symlinks(&env.current_folder, &options.out.join(job.name()), hint)?;
    result_file.iter().try_for_each(ResultFile::make_folder)?;
    let begin_case = |name| CaseRecorder::begin(name, &options.job, &workspace, &out, &secrets.redactor);
    let case = options.save_case.as_deref().map(begin_case).transpose()?;
    // From here on, a signal must let the record be closed.
    let signals = Signals::catch()?;
    let mut protected: Vec<PathBuf> =
        protected_paths(&options.job, &job).into_iter().chain(scripts.values().map(PathBuf::from)).collect();
    protected.iter().try_for_each(|path| require_utf8(path))?;
    protected.extend(env.user_config_files_below(&workspace));
    let sandbox = options.sandbox_options.prepare_sandbox(env, &plan, &protected, &out)?;
    let recorder = Recorder::create(&out, job.name(), &context.run_id, env.record_key(&[&workspace])?)?;
    let shown_folder = options.out.join(job.name()).join(&recorder.run_id);
    let out = out.canonicalize().map_err(|source| Error::Record { path: out.clone(), source })?;
    let record = recorder.folder.clone();
    let code = execute(
        Execution {
            plan: plan.clone(),
            secrets,
            job_file: &source.text,
            protected_paths: protected,
            runs_folder: out,
            sandbox,
            display_folder: &shown_folder,
            format: &options.format,
            providers,
            scripts,
            recorder,
            result_file,
            options: RunOptions {
                untrusted: options.untrusted,
                offline: options.offline,
                ..options.sandbox_options.to_run_options(&env.current_folder, options.result.as_deref())
            },
            resume_state: None,
            signals,
            observer: case.as_ref().map(CaseRecorder::observer),
        },
        env,
    )?;
    if let Some(case) = case {
        case.finish(&plan, &record, &options.sandbox_options, env);
    }
    Ok(code)
}

/// Prints a plan.
fn print_plan(options: &RunArgs, env: &CliEnv, plan: &Plan) -> Result<u8, Error> {
    if options.verbose && options.format != "text" {
        let message = format!("--verbose has no effect with --format {}", options.format);
        return Err(Error::usage(message, "Remove one of the two options."));
    }
    let preview = PlanPreview {
        plan,
        cost_bound: &plan.cost_bound(env.prices()?, (env.clock)()),
        sandbox: &options.sandbox_options.describe(plan),
        verbose: options.verbose,
        display: env.console.stdout_display(),
    };
    env.console.print_formatted(&options.format, &formats::find(formats::PLANS, &options.format)(&preview));
    Ok(0)
}

/// The absolute paths of the scripts and records that replies come from. Those of the command line are relative to the
/// current folder, those of the job to the job file.
fn replay_sources(options: &RunArgs, env: &CliEnv, plan: &Plan) -> BTreeMap<String, String> {
    let folder = if options.model.is_some() { None } else { options.job.parent() };
    let folder = env.current_folder.join(folder.unwrap_or(Path::new("")));
    let replayed = plan.agents().map(|agent| &agent.model).filter(|model| model.is_scripted());
    replayed.map(|model| (model.name.clone(), folder.join(&model.name).to_string_lossy().into_owned())).collect()
}

/// The absolute paths of the job file and of all files that it includes, even of missing ones that an include looks for.
fn protected_paths(job_file: &Path, job: &ValidJob) -> Vec<PathBuf> {
    let folder = job_file.parent().unwrap_or(Path::new(""));
    let templates = &job.prompts().templates;
    let files = templates.files().chain(templates.missing.iter().map(String::as_str));
    let files = files.chain(job.schemas().files.iter().map(String::as_str));
    let files = files.map(|file| folder.join(file));
    let absolute = |path: PathBuf| std::path::absolute(path).ok();
    std::iter::once(job_file.to_owned()).chain(files).filter_map(absolute).collect()
}
