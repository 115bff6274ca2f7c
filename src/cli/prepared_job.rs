//! A job that is read, checked and connected once, and can then be run many times.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::arguments::{
    add_input_arguments, parse_assignment, reject_escaping_symlinks, require_utf8, resolve_workspace,
};
use super::env::CliEnv;
use super::execute::{connect_providers, open_scripts};
use super::read_files;
use super::sandbox_options::SandboxOptions;
use crate::context_files::WorkspaceFiles;
use crate::diagnostic::{Severity, Source};
use crate::error::Error;
use crate::event::RunOptions;
use crate::job::{Job, STATE_FILE};
use crate::lints::{self, JobTrust};
use crate::mcp::ToolLock;
use crate::outputs::{Trigger, TriggerError, TriggerQuery};
use crate::plan::{InputValues, Plan, check_trigger};
use crate::record::RUNS;
use crate::run::{CheckedJob, ConnectedJob, Host, RecordKeys, RunSecrets, check_cost_limit};
use crate::sandbox::protected_paths::canonical_as_far_as_possible;
use crate::template::JobDir;

/// The job, and the options that apply to all of its runs.
#[derive(Debug, clap::Args)]
pub(super) struct JobArgs {
    /// The job file, or - for standard input
    pub(super) job: PathBuf,
    /// The file name to use for a job from standard input
    ///
    /// Findings use this name, prompt files are looked up in its folder, and the job's name is made from it unless the job has
    /// one. The file needn't exist. Default: <stdin>, in the current folder.
    #[arg(long, value_name = "PATH")]
    pub(super) stdin_name: Option<PathBuf>,
    /// Set an input: NAME=VALUE, NAME=@FILE for the text of a file (or the image itself), or NAME=@- for standard input
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    pub(super) set: Vec<String>,
    /// Set an input to the value of an environment variable
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = parse_assignment)]
    pub(super) set_env: Vec<String>,
    /// Read inputs from a YAML or JSON file; --set takes precedence
    #[arg(long, value_name = "FILE")]
    pub(super) inputs: Option<PathBuf>,
    /// Use this model for all agents: PROVIDER/NAME, or replay/FILE for a script or a recorded run
    ///
    /// Options that the job sets for its own models, such as `thinking` and `fallback`, are dropped.
    #[arg(long)]
    pub(super) model: Option<String>,
    /// The folder that the tools work in
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(super) workspace: PathBuf,
    /// The folder for the records of runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    pub(super) out: PathBuf,
    /// What started the run on a forge: the JSON file of an event, for a job with outputs or with steps before the agent
    ///
    /// Default: the file in GITHUB_EVENT_PATH, or the merge request of GitLab's variables.
    #[arg(long, value_name = "FILE")]
    pub(super) event: Option<PathBuf>,
    /// The number of the issue or pull request, where the event has none: a schedule, or a workflow that follows another
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) number: Option<u64>,
    #[command(flatten)]
    pub(super) sandbox_options: SandboxOptions,
    /// Treat the job as untrusted: refuse `env`, a `network` and other privileges
    ///
    /// For jobs whose author may use the workspace and nothing else. Also refuses secret inputs, `git: commit`,
    /// `allow_changes`, `before`, `state`, `checks`, tool servers, files of commits (`ref`), models that reply from a file, jobs behind symbolic links and --sandbox off.
    #[arg(long)]
    pub(super) untrusted: bool,
    /// Use no network: replies come from scripts or records only
    ///
    /// Commands get no network, whatever its `network` says.
    #[arg(long)]
    pub(super) offline: bool,
    /// Read context files and skills from the workspace even if the job has a `ref` for them
    ///
    /// To try out changes of them. `legwork test` reads those of a case this way.
    #[arg(long)]
    pub(super) local_context: bool,
    /// Print only errors and warnings to stderr: no progress, no path of the record
    #[arg(long, short)]
    pub(super) quiet: bool,
}

/// What started the run, and the event as it is.
type FoundTrigger = (Option<Trigger>, Option<Arc<[u8]>>);

impl JobArgs {
    /// Whether the job is from standard input.
    pub(super) fn is_stdin(&self) -> bool {
        self.job == Path::new("-")
    }

    /// The path of the job file. That of a job from standard input needn't exist.
    pub(super) fn job_path(&self) -> &Path {
        match self.is_stdin() {
            true => self.stdin_name.as_deref().unwrap_or(Path::new("<stdin>")),
            false => &self.job,
        }
    }

    /// Reads the job, and opens its folder for prompt files.
    fn read_job(&self, origin: JobTrust, env: &CliEnv) -> Result<(Arc<Source>, Option<JobDir>), Error> {
        let invalid = |finding| Error::Invalid(vec![finding]);
        if !self.is_stdin() {
            if self.stdin_name.is_some() {
                return Err(Error::usage("--stdin-name needs `-` as the job", "Remove it, or write `-` for the job."));
            }
            return read_files::read_job(&self.job, origin).map_err(invalid);
        }
        if self.set.iter().any(|argument| argument.ends_with("=@-")) {
            let message = "standard input can't be both the job and the value of an input";
            return Err(Error::usage(message, "Name a file for one of them."));
        }
        if io::stdin().is_terminal() {
            env.console.eprint("reading a job from standard input");
        }
        let path = self.job_path();
        let source = read_files::read_stdin(path).map_err(invalid)?;
        Ok((source, JobDir::open(read_files::parent_folder(path)).ok()))
    }

    /// Refuses a folder of records that a relative path reaches through a link out of the current folder.
    ///
    /// # Errors
    /// Names the link.
    pub(super) fn check_out(&self, checked: &CheckedJob, env: &CliEnv) -> Result<(), Error> {
        let hint = "Remove the link, or name its target: --out DIR.";
        let given = self.out.join(checked.job.name());
        reject_escaping_symlinks(&env.current_folder, &given, hint)?;
        // Not whatever is there by now.
        if canonical_as_far_as_possible(&env.current_folder.join(&given)) == checked.job_dir {
            return Ok(());
        }
        Err(Error::usage(
            format!("`{}` has changed while the job was read", given.display()),
            "Start the command again.",
        ))
    }

    /// What started this process on a forge, for a job with outputs, and the bytes of its event, for one with steps before the
    /// agent.
    fn trigger(&self, job: &Job, env: &CliEnv) -> Result<FoundTrigger, Error> {
        let (event, number) = (self.event.as_deref(), self.number);
        let query = TriggerQuery { event, forge: None, number, variables: &env.variables };
        let usage = |error: TriggerError| Error::usage(error.to_string(), error.hint());
        let (has_outputs, has_steps) = (job.outputs.is_some(), !job.before.is_empty());
        if self.event.is_some() && !has_outputs && !has_steps {
            env.console.warning("the job has no outputs and no steps before the agent, so --event changes nothing");
        }
        let needs_trigger = has_outputs || (has_steps && self.event.is_some());
        let trigger = if needs_trigger { query.trigger().map_err(usage)? } else { None };
        let event = if has_steps { query.event_text().map_err(usage)? } else { None };
        Ok((trigger.filter(|_| has_outputs), event.map(Into::into)))
    }

    /// The options as the journal records them.
    fn to_run_options(&self, env: &CliEnv, result: Option<&Path>) -> RunOptions {
        RunOptions {
            untrusted: self.untrusted,
            offline: self.offline,
            ..self.sandbox_options.to_run_options(&env.current_folder, result)
        }
    }
}

/// A job that was read and checked. Several threads can use it.
pub(super) struct PreparedJob<'a> {
    pub(super) env: &'a CliEnv,
    pub(super) args: &'a JobArgs,
    pub(super) host: Host<'a>,
    pub(super) checked: CheckedJob,
    /// The file of the state, absolute, if the job keeps one.
    pub(super) state: Option<PathBuf>,
}

impl<'a> PreparedJob<'a> {
    /// Reads and checks a job. Warnings go to stderr. `limits` replace those of the job, and apply to each run.
    /// With `has_cost_limit`, the command line limits the cost, so that the job needn't.
    ///
    /// # Errors
    /// The job or an option is invalid.
    pub(super) fn read(
        args: &'a JobArgs,
        limits: BTreeMap<String, String>,
        has_cost_limit: bool,
        env: &'a CliEnv,
    ) -> Result<Self, Error> {
        args.sandbox_options.require_for_untrusted(args.untrusted)?;
        let workspace = resolve_workspace(&args.workspace)?;
        let origin = JobTrust::from_untrusted_flag(args.untrusted);
        let (source, folder) = args.read_job(origin, env)?;
        let user_config = env.user_config()?;
        let writable = args.sandbox_options.writable();
        let git = env.git_program(&env.changeable_folders(&workspace, writable));
        let ignores_references = args.local_context;
        let files = WorkspaceFiles { root: workspace.clone(), git, ignores_references, ..WorkspaceFiles::default() };
        let checked = lints::check_in(&source, folder.as_ref(), origin, &user_config, Some(&files));
        let Some(job) = checked.job else { return Err(Error::Invalid(checked.findings)) };
        let model = args.model.as_deref().map(|model| lints::model_argument(model, &user_config.servers)).transpose();
        let mut findings = checked.findings;
        if matches!(&model, Ok(Some(model)) if model.is_scripted()) {
            findings.retain(|finding| !lints::COST_WARNINGS.contains(&finding.code));
        }
        if has_cost_limit {
            findings.retain(|finding| finding.code != "no-cost-limit");
        }
        if !findings.is_empty() {
            env.console.findings(&findings);
        }
        let model = model.map_err(|finding| Error::Invalid(vec![*finding]))?;
        let out = canonical_as_far_as_possible(&env.current_folder.join(&args.out));
        let job_dir = canonical_as_far_as_possible(&out.join(job.name()));
        let offline = args.offline;
        // Where commands may write. The workspace of a row is another one.
        let changeable = [writable, &[out.clone(), workspace.clone()]].concat();
        let git = env.git_program(&env.changeable_folders(&workspace, &changeable));
        let host = Host { record_key: record_keys(args, &workspace, env), ..env.host()? };
        let (trigger, event) = args.trigger(job.job(), env)?;
        let state = job.job().state.is_some().then(|| job_dir.join(STATE_FILE));
        let checked = CheckedJob {
            source,
            job,
            user_config,
            model,
            workspace,
            out,
            job_dir,
            limits,
            git,
            offline,
            trigger,
            event,
        };
        Ok(Self { env, args, host, checked, state })
    }

    /// Keeps the state in this file.
    ///
    /// # Errors
    /// A relative path leads out of the current folder.
    pub(super) fn set_state_file(&mut self, given: Option<&Path>) -> Result<(), Error> {
        let Some(given) = given else { return Ok(()) };
        if self.state.is_none() {
            self.env.console.warning("the job keeps no state, so --state changes nothing");
            return Ok(());
        }
        reject_escaping_symlinks(
            &self.env.current_folder,
            given,
            "Remove the link, or name its target: --state FILE.",
        )?;
        self.state = Some(self.env.current_folder.join(given));
        Ok(())
    }

    /// The inputs of `--inputs`, `--set` and `--set-env`. Standard input can be read only once.
    ///
    /// # Errors
    /// The file of `--inputs` can't be read.
    pub(super) fn inputs(&self) -> Result<InputValues, Error> {
        let mut inputs = InputValues::default();
        if let Some(path) = &self.args.inputs {
            inputs.file(&read_files::read_source(path).map_err(|finding| Error::Invalid(vec![finding]))?);
        }
        let is_image = |name: &str| self.checked.job.job().is_image(name);
        add_input_arguments(&mut inputs, &self.args.set, &self.args.set_env, self.env, &is_image);
        Ok(inputs)
    }

    /// Checks what the lints didn't see: the limits and the model of the command line. Warnings go to stderr. All runs of a
    /// job have the same models, so one check is enough.
    ///
    /// # Errors
    /// The price of a model isn't known, so a cost limit can't be enforced.
    pub(super) fn check_options(&self, plan: &Plan) -> Result<(), Error> {
        if self.checked.limits.contains_key("cost_usd") {
            check_cost_limit(plan, &self.checked.user_config)?;
        }
        let Some(model) = &self.checked.model else { return Ok(()) };
        match lints::unknown_price(&self.checked.job.job().limits, model, &self.checked.user_config) {
            Some(finding) if finding.severity == Severity::Error => return Err(Error::Invalid(vec![finding])),
            Some(finding) => self.env.console.findings(&[finding]),
            None => {}
        }
        if let Some((message, help)) = lints::retirement(model) {
            self.env.console.warning(&format!("{message}; {help}"));
        }
        // Scripts have no options, so a warning about dropped ones would be noise.
        if !model.is_scripted() {
            let warnings = lints::dropped_options(self.checked.job.job(), model, &self.checked.user_config.servers);
            warnings.iter().for_each(|warning| self.env.console.warning(warning));
        }
        Ok(())
    }

    /// Opens the providers of a plan, which are those of all runs. Nothing is sent. `result` is the path of `--result`, to be
    /// recorded.
    ///
    /// # Errors
    /// A provider or a script can't be used, or a path isn't UTF-8 or doesn't exist.
    pub(super) fn connect(
        self,
        plan: &Plan,
        secrets: RunSecrets,
        result: Option<&Path>,
    ) -> Result<ConnectedJob<'a>, Error> {
        let Self { env, args, checked, .. } = &self;
        check_trigger(&checked.job, plan).map_err(|finding| Error::Invalid(vec![*finding]))?;
        let writable = [args.sandbox_options.writable(), &[checked.out.clone(), checked.workspace.clone()]].concat();
        let scripts = open_scripts(&self.script_paths(plan), Some(checked.job.job()))?;
        let providers = connect_providers(env, plan, &writable, &secrets.redactor)?;
        let mut protected = self.protected_paths();
        protected.extend(scripts.values().map(|script| PathBuf::from(&script.path)));
        protected.iter().try_for_each(|path| require_utf8(path))?;
        Ok(ConnectedJob {
            secrets,
            providers,
            scripts,
            sandbox: args.sandbox_options.request(env)?,
            places: env.run_places(protected, &checked.out),
            config_files: env.user_config_files(),
            options: RunOptions {
                state: self.state.as_ref().map(|path| path.to_string_lossy().into_owned()),
                ..args.to_run_options(env, result)
            },
            host: self.host,
            checked: self.checked,
        })
    }

    /// The absolute paths of the scripts and records that replies come from. Those of the command line are relative to the
    /// current folder, those of the job to the job file.
    fn script_paths(&self, plan: &Plan) -> BTreeMap<String, String> {
        let folder = if self.checked.model.is_some() { None } else { self.args.job_path().parent() };
        let folder = self.env.current_folder.join(folder.unwrap_or(Path::new("")));
        let replayed = plan.models().filter(|model| model.is_scripted());
        replayed.map(|model| (model.name.clone(), folder.join(&model.name).to_string_lossy().into_owned())).collect()
    }

    /// The absolute paths of the job file and of all files that it includes, even of missing ones that an include looks for.
    fn protected_paths(&self) -> Vec<PathBuf> {
        let folder = self.args.job_path().parent().unwrap_or(Path::new(""));
        let templates = &self.checked.job.prompts().templates;
        let files = templates.files().chain(templates.missing.iter().map(String::as_str));
        let files = files.chain(self.checked.job.schemas().files.iter().map(String::as_str));
        let files = files.map(|file| folder.join(file));
        let absolute = |path: PathBuf| std::path::absolute(path).ok();
        // A job from standard input may be the text of a file, which has a name then.
        let job =
            Some(self.args.job_path().to_owned()).filter(|_| !self.args.is_stdin() || self.args.stdin_name.is_some());
        let lock = ToolLock::file_name(&self.args.job_path().to_string_lossy()).map(|name| folder.join(name));
        let lock = lock.filter(|_| !self.checked.job.job().mcp.is_empty());
        job.into_iter().chain(lock).chain(files).chain(self.state.clone()).filter_map(absolute).collect()
    }
}

/// The keys that sign the records of a job's runs. No command may be able to read or change them.
fn record_keys<'a>(args: &'a JobArgs, shared: &Path, env: &'a CliEnv) -> RecordKeys<'a> {
    let writable = args.sandbox_options.writable().iter().map(|folder| env.current_folder.join(folder));
    let (writable, shared): (Vec<PathBuf>, _) = (writable.collect(), shared.to_owned());
    Arc::new(move |workspace| env.record_key_beside(&[&shared, workspace], &writable))
}
