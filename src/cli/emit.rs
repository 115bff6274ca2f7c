//! `legwork emit`: prints a file that submits a map to an engine.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;

use super::arguments::{ColumnArgs, add_input_arguments, parse_assignment, parse_limits, resolve_workspace};
use super::env::CliEnv;
use super::read_files;
use crate::diagnostic::{Diagnostic, Source, SourceSpan};
use crate::error::Error;
use crate::git::Repository;
use crate::isolation;
use crate::job::{Job, Network};
use crate::lints::{self, JobTrust, RECORD_KEY, ValidJob};
use crate::map::engines::{self, ENGINES, Engine, MapCommand};
use crate::map::rows::{self, RowFormat, default_map_name};
use crate::map::{WholeMapLimits, check_rows, refuse_state};
use crate::mcp::ServerSpec;
use crate::outputs::KindName;
use crate::plan::{InputValues, Plan, RunContext};
use crate::providers::Model;
use crate::providers::user_servers::{ServerSettings, UserServers};
use crate::record::RUNS;
use crate::redaction::is_secret_name;
use crate::run::run_date;

/// Options of `legwork emit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file starts `legwork map` once for each shard. Exit code 75 and signals are tried again, and then only what isn't finished runs; \
the exit codes 1 to 5 and 7 are final. What has to be prepared, such as keys, is in the file's comments.

Exit codes: 0; 2 for a usage error; 3 if the job or the rows are invalid; 5 if prices.toml or providers.toml has mistakes.")]
pub(super) struct EmitArgs {
    /// The engine
    #[arg(value_parser = PossibleValuesParser::new(ENGINES.iter().map(|engine| engine.name)))]
    engine: String,
    /// The job file
    job: PathBuf,
    /// The rows: a CSV file with a header line, JSONL, or a JSON array of objects
    #[arg(long, value_name = "FILE")]
    rows: PathBuf,
    /// The number of processes that share the rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    shards: u32,
    /// The container image with legwork, for engines that run containers
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// The column with the ids of the rows
    #[arg(long, value_name = "COLUMN")]
    id: Option<String>,
    #[command(flatten)]
    columns: ColumnArgs,
    /// How many rows each process runs at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    jobs: Option<u32>,
    /// The name of the map; default: map- and the name of the rows file
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Set an input of all rows: NAME=VALUE, or NAME=@FILE for the text of a file
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    set: Vec<String>,
    /// Set an input of all rows to the value of an environment variable, which the engine treats as a secret
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = parse_assignment)]
    set_env: Vec<String>,
    /// Use this model for all agents: PROVIDER/NAME, or replay/FILE for a script or a recorded run
    #[arg(long)]
    model: Option<String>,
    /// Limit the whole map: cost_usd, tokens or wall_clock; may be repeated
    ///
    /// On GitHub and GitLab, the processes can't see what the others spend, so each gets an equal part of cost_usd and tokens.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    limit: Vec<String>,
    /// How rows are kept apart
    #[arg(long, value_parser = ["worktree", "copy", "none"])]
    isolate: Option<String>,
    /// The folder for the records of runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
}

pub(super) fn emit(options: &EmitArgs, env: &CliEnv) -> Result<u8, Error> {
    let Some(engine) = engines::find(&options.engine) else {
        return Err(Error::usage(format!("unknown engine `{}`", options.engine), "`legwork emit --help` lists them."));
    };
    options.check_engine(engine)?;
    let checkout_root = options.checkout_root(engine)?;
    let job_path = options.file("JOB", &options.job, engine)?;
    let rows_path = options.file("--rows", &options.rows, engine)?;
    let out = path("--out", &options.out, engine)?;
    WholeMapLimits::parse(parse_limits(&options.limit))?;
    let limits = options.limits(engine)?;

    let config = env.user_config()?;
    let origin = JobTrust::from_untrusted_flag(false);
    let (source, folder) =
        read_files::read_job(&options.job, origin).map_err(|finding| Error::Invalid(vec![finding]))?;
    let workspace = env.workspace_files(&resolve_workspace(Path::new("."))?);
    let checked = lints::check_in(&source, folder.as_ref(), origin, &config, Some(&workspace));
    let Some(job) = checked.job else { return Err(Error::Invalid(checked.findings)) };
    refuse_state(&job)?;
    let mut findings = checked.findings;
    let model = options.model.as_deref().map(|model| lints::model_argument(model, &config.servers)).transpose();
    let model = model.map_err(|finding| Error::Invalid(vec![*finding]))?;
    if let Some(model) = model.as_ref().filter(|model| model.is_scripted()) {
        options.file("--model", Path::new(&model.name), engine)?;
        let file = Path::new(&model.name);
        if !file.is_file() && !file.is_dir() {
            let what = if file.exists() { "it isn't a file" } else { "there is no such file" };
            let message = format!("--model {model}: {what}");
            return Err(Error::usage(message, "Name a script or the folder of a recorded run."));
        }
        findings.retain(|finding| !lints::COST_WARNINGS.contains(&finding.code));
    }
    if options.limit.iter().any(|limit| limit.starts_with("cost_usd=")) {
        findings.retain(|finding| finding.code != "no-cost-limit");
    }
    if !findings.is_empty() {
        env.console.findings(&findings);
    }
    options.check_shown(job.job(), engine)?;
    let script = model.as_ref().filter(|model| model.is_scripted()).map(|model| &model.name);
    let repository = checkout_root.as_deref().and_then(Repository::discover);
    let git = env.git_program(&env.changeable_folders(&env.current_folder, &[]));
    let repository = repository.as_ref().zip(git.as_ref());
    let is_missing = |file: &&String| {
        repository.is_some_and(|(repository, git)| isolation::is_ignored(git, repository, file.as_ref()))
    };
    for file in [&job_path, &rows_path].into_iter().chain(script).filter(is_missing) {
        env.console.warning(&format!("git ignores {file}, so {} doesn't have it", engine.name));
    }
    let count = options.check_rows(&job, &rows_path, model.as_ref(), env)?;
    if count < options.shards as usize {
        let message = format!("{} shards share {count} rows, so some have nothing to do", options.shards);
        env.console.warning(&message);
    }
    if limits != options.limit {
        let message = format!("the processes of {} don't see what the others spend; each gets ", engine.name);
        env.console.warning(&format!("{message}--limit {}", limits.join(" --limit ")));
    }
    let name = options.map_name()?;
    let servers = &config.servers;
    let job_models: Vec<Model> =
        lints::model_specs(job.job()).filter_map(|spec| lints::resolve(spec, servers).ok()).collect();
    let models = model.as_ref().map_or(job_models.as_slice(), std::slice::from_ref);
    let (secrets, variables) = options.variables(job.job(), models, servers, env);
    // A job is valid only where the servers of its models are known, even if `--model` replaces the models.
    let needs_providers_file = models.iter().any(|model| servers.settings(&model.provider).is_some())
        || job_models.iter().any(|model| model.server.is_some());
    let outputs = output_kinds(job.job());
    if !outputs.is_empty() && !engine.publishes {
        env.console
            .warning(&format!("{} publishes nothing: run `legwork publish` when the map has ended", engine.name));
    }
    let file = engine.emit(&MapCommand {
        job_file: &job_path,
        outputs: &outputs,
        job: job.name(),
        name: options.name.as_deref(),
        words: &options.words(&job_path, &rows_path, &out, &limits),
        folder: &format!("{}/{}/{name}", out.trim_end_matches('/'), job.name()),
        rows: &rows_path,
        id: options.id.as_deref(),
        columns: options.columns.word().as_deref(),
        shards: options.shards,
        secrets: &secrets,
        variables: &variables,
        needs_providers_file,
        image: options.image.as_deref(),
    });
    let file = file.map_err(io::Error::other).map_err(Error::environment("the file can't be made"))?;
    env.console.print(file.trim_end());
    Ok(0)
}

/// The kinds of what the job may propose.
fn output_kinds(job: &Job) -> Vec<KindName> {
    job.outputs().filter_map(|(name, output)| output.kind(&name.value)).collect()
}

impl EmitArgs {
    /// Checks what the engine supports.
    fn check_engine(&self, engine: &Engine) -> Result<(), Error> {
        let Engine { name, max_shards, needs_image, .. } = engine;
        if self.shards > *max_shards {
            let message = format!("--shards {}: {name} can start {max_shards} at most", self.shards);
            return Err(Error::usage(message, "Give each process more rows at once with --jobs N."));
        }
        match &self.image {
            None if *needs_image => {
                let hint = "Name an image that contains legwork: --image IMAGE.";
                Err(Error::usage(format!("{name} runs containers, so it needs an image"), hint))
            }
            Some(_) if !needs_image => {
                Err(Error::usage(format!("--image: {name} doesn't run containers"), "Remove the option."))
            }
            Some(image) if image.is_empty() || image.starts_with('-') || image.contains(char::is_whitespace) => {
                let hint = "Write it like registry.example/legwork:1.";
                Err(Error::usage(format!("--image `{image}`: this isn't the name of an image"), hint))
            }
            Some(image) => require_visible("--image", image),
            None => Ok(()),
        }
    }

    /// The root of the git repository that the processes check out. They start there, so it has to be the current folder.
    fn checkout_root(&self, engine: &Engine) -> Result<Option<PathBuf>, Error> {
        let folder = resolve_workspace(Path::new("."))?;
        let is_checkout = engine.is_elsewhere && !engine.shares_folder;
        let Some(repository) = Repository::discover(&folder).filter(|_| is_checkout) else { return Ok(None) };
        let root = repository.worktree;
        if root == folder {
            return Ok(Some(root));
        }
        let message = format!("{} starts in the root of the repository, not in this folder", self.engine);
        Err(Error::usage(message, format!("Run it in {}, with paths from there.", root.display())))
    }

    /// The path of a file for the command line of the processes.
    fn file(&self, option: &str, file: &Path, engine: &Engine) -> Result<String, Error> {
        if file == Path::new("-") {
            let message = format!("{option} -: the processes that {} starts have no standard input", engine.name);
            return Err(Error::usage(message, "Name a file."));
        }
        path(option, file, engine)
    }

    /// The limits of each process. If the processes don't share a ledger, each gets an equal part of what the map may spend.
    fn limits(&self, engine: &Engine) -> Result<Vec<String>, Error> {
        let part = |limit: &String| {
            let Some((name, value)) = limit.split_once('=').filter(|_| !engine.shares_folder && self.shards > 1) else {
                return Ok(limit.clone());
            };
            let part = match name.rsplit('.').next().unwrap_or(name) {
                "cost_usd" => {
                    let micros = value.parse::<f64>().unwrap_or_default() * 1e6 / f64::from(self.shards);
                    Some(micros.floor() / 1e6).filter(|usd| *usd > 0.0).map(|usd| usd.to_string())
                }
                "tokens" => {
                    let tokens = value.parse::<u64>().unwrap_or_default() / u64::from(self.shards);
                    Some(tokens).filter(|tokens| *tokens > 0).map(|tokens| tokens.to_string())
                }
                _ => return Ok(limit.clone()),
            };
            part.map(|part| format!("{name}={part}")).ok_or_else(|| {
                let message = format!("--limit {limit}: {} shards can't share so little", self.shards);
                Error::usage(message, "Use fewer shards, or a higher limit.")
            })
        };
        self.limit.iter().map(part).collect()
    }

    /// Checks what the file would show of `--set`, `--set-env` and `--limit`.
    fn check_shown(&self, job: &Job, engine: &Engine) -> Result<(), Error> {
        self.limit.iter().try_for_each(|limit| require_visible("--limit", limit))?;
        self.id.iter().try_for_each(|id| require_visible("--id", id))?;
        let names = self.columns.columns.iter().chain(&self.columns.ignore_columns);
        { names }.try_for_each(|name| require_visible("--columns", name))?;
        for argument in &self.set_env {
            require_visible("--set-env", argument)?;
            let variable = argument.split_once('=').map_or("", |(_, variable)| variable);
            if !is_variable(variable) {
                let message = format!("--set-env {argument}: `{variable}` isn't the name of a variable");
                return Err(Error::usage(message, "Write it with letters, digits and `_`."));
            }
        }
        for argument in &self.set {
            let Some((name, value)) = argument.split_once('=') else { continue };
            if job.inputs().any(|(declared, input)| declared.value == name && input.is_secret()) {
                let place = SourceSpan { source: Source::new("--set", format!("{name}=")), range: 0..name.len() };
                let message = format!("the input `{name}` is secret, and its value would be in the file");
                let finding = Diagnostic::error("bad-input", place, message);
                return Err(Error::Invalid(vec![finding.help(format!("give it with `--set-env {name}=VARIABLE`"))]));
            }
            require_visible(&format!("--set {name}"), value)?;
            if let Some(file) = value.strip_prefix('@').filter(|file| !file.starts_with('@')) {
                self.file(&format!("--set {name}"), Path::new(file), engine)?;
            }
        }
        Ok(())
    }

    /// Reads the rows, checks them as `legwork map` does, and returns how many there are.
    fn check_rows(&self, job: &ValidJob, name: &str, model: Option<&Model>, env: &CliEnv) -> Result<usize, Error> {
        let content = read_files::read_bounded(&self.rows, rows::MAX_FILE_BYTES)
            .map_err(|why| Error::Invalid(vec![read_files::unreadable_file(&self.rows, &why)]))?;
        let format = RowFormat::detect(&self.rows, &content);
        let rows = rows::read(name, content, format, self.columns.with_id(self.id.as_deref()), job.job())
            .map_err(Error::Invalid)?;
        let mut inputs = InputValues::default();
        add_input_arguments(&mut inputs, &self.set, &[], env, &|name| job.job().is_image(name));
        for argument in &self.set_env {
            // The variable needn't be set here.
            inputs.set_env(argument, |variable| Some(env.variable(variable).unwrap_or("unset").into()));
        }
        let mut context = RunContext {
            workspace: resolve_workspace(Path::new("."))?.to_string_lossy().into_owned(),
            inputs_from: None,
            run_id: String::new(),
            run_date: run_date((env.clock)()),
            model_override: model.cloned(),
            trigger: None,
        };
        check_rows(&mut inputs, &rows, |number, inputs| {
            context.run_id.clone_from(&rows.rows[number].id);
            let Err(mut findings) = Plan::new(job, inputs, &context) else { return Ok(()) };
            findings.retain(|finding| finding.span.source.name != "--set-env" || finding.code != "bad-input");
            if findings.is_empty() { Ok(()) } else { Err(Error::Invalid(findings)) }
        })?;
        Ok(rows.rows.len())
    }

    fn map_name(&self) -> Result<String, Error> {
        let name = self.name.clone().unwrap_or_else(|| default_map_name(&self.rows));
        match rows::name_mistake("name of the map", &name) {
            None => Ok(name),
            Some(why) => {
                let hint = "Choose a name of letters, digits, `.`, `_` and `-`, a letter or digit first: --name NAME.";
                Err(Error::usage(why, hint))
            }
        }
    }

    /// The variables that the processes need: those that an engine has to treat as secrets, and the others. Secrets are
    /// keys of providers, the job's `env` if the name is that of a secret, the same of its tool servers and their headers,
    /// and `--set-env`.
    fn variables(
        &self,
        job: &Job,
        models: &[Model],
        servers: &UserServers,
        env: &CliEnv,
    ) -> (Vec<String>, Vec<String>) {
        let tool_servers: Vec<ServerSpec> =
            job.mcp.values().map(|server| ServerSpec::new(server, Network::None)).collect();
        let declared = job.env.iter().map(|name| name.value.clone());
        let declared = declared.chain(tool_servers.iter().flat_map(|server| server.env.iter().cloned()));
        let (declared_secrets, mut others): (Vec<String>, Vec<String>) =
            declared.partition(|name| is_secret_name(name));
        let mut secrets: Vec<String> = models.iter().flat_map(|model| key_variables(model, servers, env)).collect();
        secrets.extend(declared_secrets);
        secrets.extend(tool_servers.iter().flat_map(ServerSpec::header_variables).map(str::to_owned));
        secrets.extend(self.set_env.iter().filter_map(|argument| Some(argument.split_once('=')?.1.to_owned())));
        let mut seen = HashSet::from([RECORD_KEY.to_owned()]);
        for names in [&mut secrets, &mut others] {
            names.retain(|name| seen.insert(name.clone()));
        }
        (secrets, others)
    }

    /// The words of the command without its shard.
    fn words(&self, job: &str, rows: &str, out: &str, limits: &[String]) -> Vec<String> {
        let jobs = self.jobs.map(|jobs| jobs.to_string());
        let list = |names: &[String]| (!names.is_empty()).then(|| names.join(","));
        let (columns, ignored) = (list(&self.columns.columns), list(&self.columns.ignore_columns));
        let single = [
            ("--rows", Some(rows)),
            ("--id", self.id.as_deref()),
            ("--columns", columns.as_deref()),
            ("--ignore-columns", ignored.as_deref()),
            ("--jobs", jobs.as_deref()),
            ("--name", self.name.as_deref()),
            ("--model", self.model.as_deref()),
            ("--isolate", self.isolate.as_deref()),
            ("--out", Some(out).filter(|out| *out != RUNS)),
        ];
        let repeated = [("--set", self.set.as_slice()), ("--set-env", &self.set_env), ("--limit", limits)];
        let options = single.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let options =
            options.chain(repeated.into_iter().flat_map(|(name, all)| all.iter().map(move |one| (name, one.as_str()))));
        let command = ["legwork", "map", job].into_iter().map(str::to_owned);
        command
            .chain(options.flat_map(|(name, value)| match value.starts_with('-') {
                // Otherwise the value would be read as an option.
                true => vec![format!("{name}={value}")],
                false => vec![name.to_owned(), value.to_owned()],
            }))
            .collect()
    }
}

/// The variables with the key for a model: those of the user's own server, else the provider's, preferably one that is set here;
/// and those of headers and query parameters.
fn key_variables(model: &Model, servers: &UserServers, env: &CliEnv) -> Vec<String> {
    let settings = servers.settings(&model.provider);
    let mut names: Vec<String> = settings.into_iter().flat_map(ServerSettings::value_envs).map(str::to_owned).collect();
    if let Some(server) = servers.get(&model.provider) {
        names.extend(server.key_env.clone());
    } else if !settings.is_some_and(ServerSettings::has_key_command) {
        let keys = model.spec().map_or(&[][..], |spec| spec.key_envs);
        let is_set = |name: &&&str| env.variable(name).is_some();
        names.extend(keys.iter().rev().find(is_set).or_else(|| keys.first()).map(|name| (*name).to_owned()));
    }
    names
}

/// A path for the command line of the processes. They start in their copy of the current folder.
fn path(option: &str, path: &Path, engine: &Engine) -> Result<String, Error> {
    let Some(text) = path.to_str() else {
        let message = format!("{option} {}: this path isn't valid UTF-8", path.display());
        return Err(Error::usage(message, "Rename the file or folder, or use another one."));
    };
    require_visible(option, text)?;
    let leaves = path.is_absolute() || path.components().any(|part| part == std::path::Component::ParentDir);
    if leaves && engine.is_elsewhere {
        let message = format!("{option} {text}: {} has only the files of the repository", engine.name);
        return Err(Error::usage(message, "Give a path below the current folder."));
    }
    Ok(if text.starts_with('-') { format!("./{text}") } else { text.to_owned() })
}

/// Refuses line breaks and other characters that would let the file mean something other than it shows.
fn require_visible(option: &str, text: &str) -> Result<(), Error> {
    let is_hidden = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    match text.chars().find(|letter| is_hidden(*letter)) {
        None => Ok(()),
        Some(letter) => Err(Error::usage(
            format!("{option}: the character U+{:04X} can't be in such a file", u32::from(letter)),
            "Remove it, or put the value of an input into a file: --set NAME=@FILE.",
        )),
    }
}

/// Whether a shell can have a variable of that name.
fn is_variable(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
