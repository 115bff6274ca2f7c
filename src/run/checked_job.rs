//! A job that was checked and can be run many times, with what all of its runs share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use crate::diagnostic::Source;
use crate::error::Error;
use crate::git::GitProgram;
use crate::lints::{CostTracking, UserConfig, ValidJob};
use crate::outputs::Trigger;
use crate::plan::{InputValues, Plan, RunContext, SecretInputs};
use crate::providers::{Model, ProviderError, ProviderErrorKind};

/// A job that was read and checked. Several threads can use it.
#[derive(Debug)]
pub struct CheckedJob {
    /// The job file.
    pub source: Arc<Source>,
    /// The job.
    pub job: ValidJob,
    /// The user's servers and prices.
    pub user_config: UserConfig,
    /// The model that replaces those of all agents.
    pub model: Option<Model>,
    /// The folder that the tools work in, absolute. A row of a map may have its own.
    pub workspace: PathBuf,
    /// The folder of all records. This and the next are canonical paths of folders that needn't exist. Links in them are followed
    /// once, when the job is read.
    pub out: PathBuf,
    /// The job's folder in it.
    pub job_dir: PathBuf,
    /// The limits from outside the job that apply to each run, by name.
    pub limits: BTreeMap<String, String>,
    /// The git program, if there is one that no command can have changed.
    pub git: Option<GitProgram>,
    /// Whether no run uses a network.
    pub offline: bool,
    /// What started the runs on a forge, if anything is known about it.
    pub trigger: Option<Trigger>,
    /// The bytes of the event that started the runs, for steps before the agent.
    pub event: Option<Arc<[u8]>>,
}

/// What distinguishes a run from others of the same job and inputs.
#[derive(Debug, Clone, Copy)]
pub struct RunIdentity<'a> {
    /// The folder that the tools work in, absolute.
    pub workspace: &'a Path,
    /// Its id.
    pub run_id: &'a str,
    /// The day on which it started, `YYYY-MM-DD`.
    pub run_date: &'a str,
}

impl CheckedJob {
    /// SHA-256 of the files that the job file names, if it has outputs: `publish` compares them with those of its checkout.
    pub fn job_file_digests(&self) -> BTreeMap<String, String> {
        if self.job.job().outputs.is_some() { self.job.file_digests() } else { BTreeMap::new() }
    }

    /// The plan of a run, and the values of its secret inputs.
    ///
    /// # Errors
    /// All mistakes in the inputs, an invalid limit, or a model that `--offline` doesn't allow.
    pub fn plan(&self, inputs: &InputValues, run: RunIdentity<'_>) -> Result<(Plan, SecretInputs), Error> {
        let context = RunContext {
            workspace: run.workspace.to_string_lossy().into_owned(),
            inputs_from: Some(self.workspace.to_string_lossy().into_owned()),
            run_id: run.run_id.to_owned(),
            run_date: run.run_date.to_owned(),
            model_override: self.model.clone(),
            trigger: self.trigger.clone(),
        };
        let (mut plan, secrets) = Plan::new(&self.job, inputs, &context).map_err(Error::Invalid)?;
        plan.set_limits(&self.limits)?;
        if self.offline {
            if let Some(model) = plan.models().find(|model| !model.is_scripted()) {
                let message = format!("--offline: {model} needs the network");
                return Err(Error::usage(message, "Reply from a script or a record: --model replay/FILE."));
            }
            plan.close_network();
        }
        Ok((plan, secrets))
    }
}

/// Refuses a cost limit if the price of a model is unknown. A lint checks the limit and the models of the job; this is for
/// limits from the command line, and for resumed runs with other prices or servers.
///
/// # Errors
/// Names the model.
pub fn check_cost_limit(plan: &Plan, user_config: &UserConfig) -> Result<(), Error> {
    for model in plan.models().filter(|_| plan.limits.cost_usd.is_some()) {
        if CostTracking::of(model, plan.limits.tokens.is_some(), user_config) == CostTracking::Unknown {
            let message = format!("the price of `{model}` is unknown, so limits.cost_usd can't be enforced");
            let hint = format!("add its price to your prices.toml, in `[models.\"{model}\"]`");
            return Err(Error::Provider(ProviderError::new(ProviderErrorKind::Rejected, message).with_hint(hint)));
        }
    }
    Ok(())
}

/// The day of a time, as templates see it.
pub fn run_date(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}
