//! Executes the runs of cases as `legwork run --offline --local-context` does, with only those variables of the user that can't
//! change what a job does.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Mutex;

use tokio_util::sync::CancellationToken;

use crate::cases::{Case, CaseEnd, CaseEngine, placeholder_secret};
use crate::cli::env::CliEnv;
use crate::cli::output::Console;
use crate::cli::prepared_job::{JobArgs, PreparedJob};
use crate::cli::progress::RunProgress;
use crate::cli::sandbox_options::SandboxOptions;
use crate::error::Error;
use crate::event::{RunModel, RunResult, StateRead};
use crate::record::{Recorder, new_run_id};
use crate::run::{OpenRecord, RunIdentity, Signals, StateSource, run_date};

/// The environment variables that each run gets. They include no keys and no variables of CI systems.
const INHERITED_VARIABLES: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"];

/// Executes the runs of cases.
pub(super) struct OfflineEngine<'a> {
    pub(super) env: &'a CliEnv,
    pub(super) sandbox_options: SandboxOptions,
    /// Whether the jobs are untrusted.
    pub(super) untrusted: bool,
    pub(super) signals: Signals,
}

impl CaseEngine for OfflineEngine<'_> {
    async fn execute(&self, case: &Case, workspace: &Path, runs: &Path, stop: CancellationToken) -> CaseEnd {
        let env = self.env_of(case, workspace);
        let ended = self.run(case, runs, &env, self.signals.with_stop(stop)).await;
        let ended = ended.map_err(|error| {
            env.console.error(&error);
            error.exit_code()
        });
        CaseEnd { ended, output: env.console.kept_text() }
    }
}

impl OfflineEngine<'_> {
    /// The environment of a run. What it prints is kept.
    fn env_of(&self, case: &Case, workspace: &Path) -> CliEnv {
        let is_passed = |name: &String| {
            INHERITED_VARIABLES.contains(&name.as_str()) || name.starts_with("LC_") || case.env.contains(name)
        };
        let variables = self.env.variables.iter().filter(|(name, _)| is_passed(name));
        CliEnv {
            variables: variables.map(|(name, value)| (name.clone(), value.clone())).collect(),
            current_folder: workspace.to_owned(),
            // The workspace is elsewhere, and what is in the checkout isn't a program of the user.
            checkout: Some(self.env.current_folder.clone()),
            arguments: Vec::new(),
            console: Console::kept(),
            clock: self.env.clock,
            prices: self.env.prices.clone(),
            servers: self.env.servers.clone(),
            warned: Mutex::new(HashSet::new()),
        }
    }

    async fn run(
        &self,
        case: &Case,
        runs: &Path,
        env: &CliEnv,
        signals: Signals,
    ) -> Result<(RunResult, RunModel), Error> {
        let args = JobArgs {
            job: case.job_file.clone(),
            stdin_name: None,
            set: case.missing_secrets.iter().map(|name| format!("{name}={}", placeholder_secret(name))).collect(),
            set_env: Vec::new(),
            inputs: case.inputs.clone(),
            event: case.event.clone(),
            number: None,
            model: Some(format!("replay/{}", case.replies.display())),
            workspace: env.current_folder.clone(),
            out: runs.to_owned(),
            sandbox_options: self.sandbox_options.clone(),
            untrusted: self.untrusted,
            offline: true,
            local_context: true,
            quiet: false,
        };
        let job = PreparedJob::read(&args, BTreeMap::new(), false, env)?;
        let inputs = job.inputs()?;
        let started = (env.clock)();
        let (run_id, run_date) = (new_run_id(&job.checked.job_dir, started), run_date(started));
        let workspace = job.checked.workspace.clone();
        let run = RunIdentity { workspace: &workspace, run_id: &run_id, run_date: &run_date };
        let (plan, secret_inputs) = job.checked.plan(&inputs, run)?;
        job.check_options(&plan)?;
        let secrets = job.host.secrets(&plan, &secret_inputs);
        let job = job.connect(&plan, secrets, None)?;
        let record_key = (job.host.record_key)(&workspace)?;
        let recorder = Recorder::create(&job.checked.out, &job.checked.job_dir, &run_id, record_key)?;
        let mut setup = job.set_up(plan, &recorder.folder, signals)?;
        setup.prepared.given_steps = case.before.clone();
        let state = case.state.clone();
        setup.prepared.state = state.map(|value| StateSource::Given(StateRead { value, sha256: None }));
        let (plan, signals) = (&setup.prepared.plan, &setup.backends.signals);
        let progress = RunProgress::start(env, false, plan, env.prices()?, None, signals);
        setup.observers.push(progress.observer());
        let ended = setup.execute(OpenRecord { recorder, before: None }).await?;
        Ok((ended.result, ended.model))
    }
}
