//! `legwork run`: from a job file to a record, or with `--dry-run` to the plan.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Surroundings, format_parser, input, progress, script};
use crate::error::Error;
use crate::event::{Entry, RunResult};
use crate::formats::{self, Preview, Subject};
use crate::lints::{self, ValidJob};
use crate::mask::Mask;
use crate::plan::{Contents, Given, MAX_VALUE_BYTES, Plan, RunFacts, Secrets};
use crate::providers::{Connect, Model, Provider};
use crate::record::{RUNS, Recorder};
use crate::run::{self, Observer, Run, SANDBOX};
use crate::tools::environment::Environment;

/// Options of `legwork run`.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// The job file
    job: PathBuf,
    /// Give an input: NAME=VALUE; NAME=@FILE takes a file's text, NAME=@- standard input
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<String>,
    /// Give an input the value of an environment variable
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = pair)]
    set_env: Vec<String>,
    /// Give inputs from a YAML or JSON file; --set goes before it
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Use this model for every agent: PROVIDER/NAME, or replay/FILE for a script or a recorded run
    #[arg(long)]
    model: Option<String>,
    /// The folder that the tools work in
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
    /// Where runs are recorded
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
    /// What stdout gets: the last text, result.json, or the events as they happen
    #[arg(long, default_value = "text", value_parser = format_parser(Subject::Run))]
    format: String,
    /// Print the plan and stop: no key, no network, no process
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: show what models are told of each tool, too
    #[arg(long, requires = "dry_run")]
    verbose: bool,
}

/// What the sandbox's tier means.
const UNCONFINED: &str = "they can do whatever you can do";

pub(super) fn run(options: &Options, around: &Surroundings) -> Result<u8, Error> {
    let invalid = |finding| Error::Invalid(vec![finding]);
    let workspace = workspace(&options.workspace)?;
    let (source, folder) = input::read_job(&options.job).map_err(invalid)?;
    let checked = lints::check(&source, folder.as_ref());
    let Some(job) = checked.job else { return Err(Error::Invalid(checked.findings)) };
    if !checked.findings.is_empty() {
        around.out.findings(&checked.findings);
    }
    let given = given(options, around)?;
    let model = options.model.as_deref().map(lints::model_argument).transpose().map_err(|finding| invalid(*finding))?;
    let facts = |run_id: &str, run_date: &str| RunFacts {
        workspace: workspace.to_string_lossy().into_owned(),
        run_id: run_id.to_owned(),
        run_date: run_date.to_owned(),
        model_override: model.clone(),
    };
    let (plan, secrets) = Plan::new(&job, &given, &facts("<run.id>", "<run.date>")).map_err(Error::Invalid)?;
    if let Some(limit) = &job.job().limits.cost_usd {
        // The job's own models were looked at; one from the command line takes their place.
        let unpriced = model.as_ref().and_then(|model| lints::unpriced(limit.place(), model));
        if let Some(finding) = unpriced {
            return Err(invalid(finding));
        }
    }
    if options.dry_run {
        let (mask, _) = confidences(around, &plan, &secrets);
        return preview(options, around, &plan.masked(&mask));
    }

    let providers = connect(options, around, &plan, model.is_some())?;
    let out = around.folder.join(&options.out);
    let started = (around.clock)();
    let recorder = Recorder::create(&out, job.name(), started)?;
    let shown_folder = options.out.join(job.name()).join(recorder.run_id());
    let today = started.strftime("%Y-%m-%d").to_string();
    let (plan, secrets) = Plan::new(&job, &given, &facts(recorder.run_id(), &today)).map_err(Error::Invalid)?;
    let out = out.canonicalize().map_err(|source| Error::Record { path: out.clone(), source })?;
    let (mask, environment) = confidences(around, &plan, &secrets);
    let plan = plan.masked(&mask);
    let ci = around.variable("CI").is_some_and(|ci| ci != "false" && ci != "0");
    let dumb = around.variable("TERM").is_none_or(|term| term == "dumb");
    let jsonl = options.format == "jsonl";
    // Lines of JSON on the same terminal would tear the live lines apart.
    let torn = jsonl && std::io::stdout().is_terminal();
    let live = !(ci || dumb || torn);
    let mut observers = vec![progress::observer(around.out, live)];
    if jsonl {
        observers.push(Arc::new(Lines { out: around.out }));
    }
    around.out.warning(&format!("tools are not confined (sandbox: {SANDBOX}): {UNCONFINED}"));
    around.out.beside(&format!("record: {}", shown_folder.display()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::Environment { message: "the run time can't be started".into(), source })?;
    let result = runtime.block_on(
        Run {
            plan,
            job_file: source.text.as_bytes(),
            protected: protected(&options.job, &job),
            out,
            providers,
            mask,
            environment,
            recorder,
            observers,
            clock: around.clock,
        }
        .live(),
    )?;
    // Calls end with their processes; a thread that still reads a slow disk must not hold the exit back.
    runtime.shutdown_background();
    report(options, around, &result, &shown_folder);
    Ok(result.exit_code)
}

/// Prints a plan.
fn preview(options: &Options, around: &Surroundings, plan: &Plan) -> Result<u8, Error> {
    if options.verbose && options.format != "text" {
        return Err(Error::Usage {
            message: format!("--verbose has nothing to add to --format {}", options.format),
            hint: Some("Leave one of the two out.".into()),
        });
    }
    let preview = Preview {
        plan,
        most_cost: &plan.most_cost((around.clock)()),
        sandbox: &format!("{SANDBOX}: tools are not confined, {UNCONFINED}"),
        verbose: options.verbose,
        look: around.out.look(),
    };
    let text = formats::find(&options.format).and_then(|format| format.plan(&preview));
    around.out.answer(&text.unwrap_or_default());
    Ok(0)
}

fn workspace(folder: &Path) -> Result<PathBuf, Error> {
    let refused = |why: String| Error::Usage {
        message: format!("--workspace {}: {why}", folder.display()),
        hint: Some("Name a folder that exists.".into()),
    };
    let absolute = folder.canonicalize().map_err(|error| refused(error.to_string()))?;
    if absolute.is_dir() { Ok(absolute) } else { Err(refused("it is no folder".into())) }
}

/// Everything that `--set`, `--set-env` and `--inputs` say.
fn given(options: &Options, around: &Surroundings) -> Result<Given, Error> {
    let mut given = Given::default();
    if let Some(path) = &options.inputs {
        given.file(&input::read_source(path).map_err(|finding| Error::Invalid(vec![finding]))?);
    }
    for argument in &options.set {
        given.set(argument, |contents| match contents {
            Contents::Stdin => {
                let mut bytes = Vec::new();
                std::io::stdin().take(MAX_VALUE_BYTES as u64 + 2).read_to_end(&mut bytes)?;
                Ok(bytes)
            }
            Contents::File(path) => {
                input::read_bounded(Path::new(path), MAX_VALUE_BYTES + 1).map_err(std::io::Error::other)
            }
        });
    }
    for argument in &options.set_env {
        given.set_env(argument, |variable| around.variables.get(variable).map(Into::into));
    }
    Ok(given)
}

/// An argument of the form `NAME=...`.
fn pair(argument: &str) -> Result<String, &'static str> {
    match argument.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(argument.to_owned()),
        _ => Err("there is no `=` after a name"),
    }
}

/// Opens what the plan's models need. A script that the command line names lies relative to the current folder, one
/// that the job names relative to the job's.
fn connect(
    options: &Options,
    around: &Surroundings,
    plan: &Plan,
    from_command_line: bool,
) -> Result<BTreeMap<String, Arc<dyn Provider>>, Error> {
    let folder = if from_command_line { None } else { options.job.parent() };
    let open_script = |model: &Model| match folder {
        Some(folder) => script::open(&folder.join(&model.name)),
        None => script::open(Path::new(&model.name)),
    };
    let variable = |name: &str| around.variable(name).map(str::to_owned);
    run::connect(plan, |model| {
        Ok(Connect {
            variable: &variable,
            script: if model.provider == "replay" { Some(open_script(model)?) } else { None },
            user_agent: concat!("legwork/", env!("CARGO_PKG_VERSION")),
        })
    })
}

/// What must be masked, and what `bash` sees.
fn confidences(around: &Surroundings, plan: &Plan, secrets: &Secrets) -> (Mask, Environment) {
    let mut masked: Vec<(String, String)> = secrets.pairs().to_vec();
    masked.extend(
        plan.env
            .iter()
            .filter(|name| looks_secret(name))
            .filter_map(|name| Some((name.clone(), around.variable(name)?.to_owned()))),
    );
    let (mask, too_short) = Mask::new(&masked);
    for name in too_short {
        around.out.warning(&format!("{name} is too short to be masked; it may show in the record"));
    }
    (mask, Environment::from(&around.variables, &plan.env, secrets.pairs()))
}

/// Whether a variable's name says that its value is a secret.
fn looks_secret(name: &str) -> bool {
    ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL", "AUTH"].iter().any(|part| name.contains(part))
}

/// The job file and its prompts, absolute.
fn protected(job_file: &Path, job: &ValidJob) -> Vec<PathBuf> {
    let folder = job_file.parent().unwrap_or(Path::new(""));
    let prompts = job.prompts().templates.files().map(|file| folder.join(file));
    std::iter::once(job_file.to_owned()).chain(prompts).filter_map(|path| path.canonicalize().ok()).collect()
}

/// Prints the answer to stdout, and beside it how the run ended and where its record lies.
fn report(options: &Options, around: &Surroundings, result: &RunResult, folder: &Path) {
    let figures = formats::figures::sum(result);
    match &result.error {
        Some(error) => {
            around.out.beside(&format!("{}: {}", error.code, super::print::printable(&error.message)));
            if let Some(hint) = &error.hint {
                around.out.beside(&format!("help:   {}", super::print::printable(hint)));
            }
            around.out.beside(&format!("spent:  {figures}"));
        }
        None => around.out.beside(&format!("{}: {figures}", result.outcome)),
    }
    for (what, file) in [("read", "transcript.md"), ("open", "report.html")] {
        let file = folder.join(file);
        // A full disk may have left no room for it.
        if around.folder.join(&file).exists() {
            around.out.beside(&format!("{what}:   {}", file.display()));
        }
    }
    let answer = formats::find(&options.format).and_then(|format| format.answer(result));
    if let Some(answer) = answer {
        around.out.answer(&answer);
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
