//! A job that is read, checked and connected once, and can then be run many times.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::arguments::{
    add_input_arguments, parse_assignment, reject_escaping_symlinks, require_utf8, resolve_workspace,
};
use super::env::CliEnv;
use super::execute::{RunSetup, check_cost_limit, connect_providers, server_scripts};
use super::read_files;
use super::sandbox_options::SandboxOptions;
use crate::agent::{MapShare, RunGates};
use crate::context_files::WorkspaceFiles;
use crate::diagnostic::{Severity, Source};
use crate::error::Error;
use crate::event::RunOptions;
use crate::git::GitProgram;
use crate::journal::RecordKey;
use crate::lints::{self, JobTrust};
use crate::mcp::ToolLock;
use crate::plan::{InputValues, Plan, SecretInputs};
use crate::providers::{Contact, Model, Provider};
use crate::record::RUNS;
use crate::run::{Backends, CheckedJob, Prepared, RunSecrets, Signals};
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
    #[command(flatten)]
    pub(super) sandbox_options: SandboxOptions,
    /// Treat the job as untrusted: refuse `env`, `network: open` and other privileges
    ///
    /// For jobs whose author may use the workspace and nothing else. Also refuses secret inputs, `git: commit`,
    /// `allow_changes`, `checks`, tool servers, files of commits (`ref`), models that reply from a file, jobs behind symbolic links and --sandbox off.
    #[arg(long)]
    pub(super) untrusted: bool,
    /// Use no network: replies come from scripts or records only
    ///
    /// Commands get no network, even if the job has `network: open`.
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
    pub(super) checked: CheckedJob,
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
        let git = env.git_program(&env.changeable_folders(&workspace, args.sandbox_options.writable()));
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
        let checked = CheckedJob { source, job, user_config, model, workspace, out, job_dir, limits, offline };
        Ok(Self { env, args, checked })
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

    /// The secrets of all runs. Secret inputs are the same for all of them.
    pub(super) fn secrets(&self, plan: &Plan, secret_inputs: &SecretInputs) -> RunSecrets {
        self.env.secrets(&self.checked.user_config.servers, plan, secret_inputs)
    }

    /// Opens the providers of a plan, which are those of all runs. Nothing is sent.
    ///
    /// # Errors
    /// A provider can't be used, or the folder of the records is behind a link that leads elsewhere.
    pub(super) fn connect(self, plan: &Plan, secrets: RunSecrets) -> Result<ConnectedJob<'a>, Error> {
        let scripts = self.scripts(plan);
        let is_live = |model: &Model| !model.is_scripted();
        let job = Some(self.checked.job.job());
        let writable = self.writable();
        let providers = connect_providers(self.env, plan, &writable, &scripts, &secrets.redactor, job, &is_live)?;
        let protected: Vec<PathBuf> =
            self.protected_paths().into_iter().chain(scripts.values().map(PathBuf::from)).collect();
        let config_files = self.env.user_config_files();
        Ok(ConnectedJob { prepared: self, secrets, scripts, providers, protected, config_files })
    }

    /// The key that signs the records of runs in a workspace, if there is one that no command can read or change.
    ///
    /// # Errors
    /// See [`CliEnv::record_key`].
    pub(super) fn record_key(&self, workspace: &Path) -> Result<Option<RecordKey>, Error> {
        let writable = self.args.sandbox_options.writable().iter().map(|folder| self.env.current_folder.join(folder));
        let folders: Vec<PathBuf> = writable.chain([self.checked.workspace.clone(), workspace.to_owned()]).collect();
        self.env.record_key(&folders.iter().map(PathBuf::as_path).collect::<Vec<_>>())
    }

    /// The git program, if there is one that no command can have changed.
    pub(super) fn git(&self) -> Option<GitProgram> {
        self.env.git_program(&self.env.changeable_folders(&self.checked.workspace, &self.writable()))
    }

    /// Where commands may write: the folders of `--allow-write`, that of the records, and the workspace.
    pub(super) fn writable(&self) -> Vec<PathBuf> {
        // The workspace of a row is another one.
        [self.args.sandbox_options.writable(), &[self.checked.out.clone(), self.checked.workspace.clone()]].concat()
    }

    /// Refuses a folder of records that a relative path reaches through a link out of the current folder.
    ///
    /// # Errors
    /// Names the link.
    pub(super) fn check_out(&self) -> Result<(), Error> {
        let hint = "Remove the link, or name its target: --out DIR.";
        let given = self.args.out.join(self.checked.job.name());
        reject_escaping_symlinks(&self.env.current_folder, &given, hint)?;
        // Not whatever is there by now.
        if canonical_as_far_as_possible(&self.env.current_folder.join(&given)) == self.checked.job_dir {
            return Ok(());
        }
        Err(Error::usage(
            format!("`{}` has changed while the job was read", given.display()),
            "Start the command again.",
        ))
    }

    /// The absolute paths of the scripts and records that replies come from. Those of the command line are relative to the
    /// current folder, those of the job to the job file.
    fn scripts(&self, plan: &Plan) -> BTreeMap<String, String> {
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
        job.into_iter().chain(lock).chain(files).filter_map(absolute).collect()
    }
}

/// A job whose providers are connected. Several threads can start runs of it, each with a runtime of its own.
pub(super) struct ConnectedJob<'a> {
    pub(super) prepared: PreparedJob<'a>,
    pub(super) secrets: RunSecrets,
    scripts: BTreeMap<String, String>,
    /// The providers that all runs share. Each run reads its scripts from their beginnings.
    providers: BTreeMap<String, Arc<dyn Provider>>,
    /// Absolute paths that no tool may change.
    protected: Vec<PathBuf>,
    /// The user's configuration files. No tool may change them either.
    config_files: Vec<PathBuf>,
}

impl<'a> ConnectedJob<'a> {
    /// The best of what the requests to the providers have shown so far.
    pub(super) fn contact(&self) -> Contact {
        self.providers.values().map(|provider| provider.contact()).max().unwrap_or(Contact::Answered)
    }

    /// A run that can start as soon as its record is open. `result` is the path of `--result`, to be recorded. This connects to
    /// its own scripts and searches the workspace, so it may take some time.
    ///
    /// # Errors
    /// A script can't be read or doesn't match the job, the sandbox doesn't work here, or a path isn't UTF-8.
    pub(super) fn set_up(&self, plan: Plan, result: Option<&Path>, signals: Signals) -> Result<RunSetup<'_>, Error> {
        let PreparedJob { env, args, checked: CheckedJob { out, source, .. } } = &self.prepared;
        let providers = self.providers(&plan)?;
        self.protected.iter().try_for_each(|path| require_utf8(path))?;
        let confinement = args.sandbox_options.confine(env, (&plan).into(), self.protected_in(&plan), out)?;
        let backends = Backends {
            host: env.host()?,
            providers,
            scripts: server_scripts(&plan, &self.scripts)?,
            git: self.prepared.git(),
            map: MapShare::default(),
            signals,
            output_ready: RunGates::default().output_ready,
        };
        let prepared = Prepared {
            plan,
            secrets: self.secrets.clone(),
            job_file: &source.text,
            scripts: self.scripts.clone(),
            options: args.to_run_options(env, result),
        };
        Ok(RunSetup { prepared, confinement, backends, observers: Vec::new() })
    }

    /// The providers of one run: those that all runs share, and its own scripts.
    fn providers(&self, plan: &Plan) -> Result<BTreeMap<String, Arc<dyn Provider>>, Error> {
        let PreparedJob { env, checked, .. } = &self.prepared;
        if !plan.models().any(Model::is_scripted) {
            return Ok(self.providers.clone());
        }
        let job = Some(checked.job.job());
        let writable = self.prepared.writable();
        let mut providers =
            connect_providers(env, plan, &writable, &self.scripts, &self.secrets.redactor, job, &Model::is_scripted)?;
        providers.extend(self.providers.iter().map(|(name, provider)| (name.clone(), Arc::clone(provider))));
        Ok(providers)
    }

    fn protected_in(&self, plan: &Plan) -> Vec<PathBuf> {
        let is_below = |file: &&PathBuf| file.starts_with(&plan.workspace);
        self.protected.iter().chain(self.config_files.iter().filter(is_below)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_can_share_a_connected_job() {
        fn is_sync<T: Sync + Send>() {}
        is_sync::<ConnectedJob<'static>>();
    }
}
