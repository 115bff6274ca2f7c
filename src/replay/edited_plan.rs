//! The plan of an edited job, for the inputs of a recorded run.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::Replay;
use crate::context_files::WorkspaceFiles;
use crate::diagnostic::{Diagnostic, Source};
use crate::error::Error;
use crate::job::Job;
use crate::lints::{self, JobTrust, UserConfig, ValidJob};
use crate::plan::{InputValues, Plan, RunContext};
use crate::pricing::Prices;
use crate::providers::user_servers::UserServers;
use crate::providers::{Model, PROVIDERS};
use crate::record::is_timestamp;
use crate::run::run_date;
use crate::template::JobDir;
use crate::yaml;

impl Replay {
    /// The plan of an edited job with the recorded inputs, and warnings about the job. Context files and skills that the record
    /// doesn't have are read in `workspace`.
    ///
    /// # Errors
    /// All mistakes in the job, or in its inputs.
    pub fn edited_plan(
        &self,
        source: &Arc<Source>,
        prompts: Option<&JobDir>,
        prices: &Prices,
        workspace: WorkspaceFiles,
    ) -> Result<(Plan, Vec<Diagnostic>), Error> {
        let started = self.started();
        let recorded = &started.plan;
        // The record has the APIs of its servers, and no request is sent.
        let servers = UserServers::recorded(recorded.models());
        let providers = PROVIDERS.iter().map(|entry| entry.name);
        let providers = providers.chain(recorded.models().map(|model| model.provider.as_str()));
        let local_providers = providers.map(str::to_owned).collect();
        let user_config = UserConfig { servers, prices: prices.clone(), local_providers, skips_tool_lock: true };
        let files = WorkspaceFiles { recorded: recorded.files.clone(), ..workspace };
        let checked = lints::check_in(source, prompts, JobTrust::Trusted, &user_config, Some(&files));
        let Some(job) = checked.job else { return Err(Error::Invalid(checked.findings)) };
        let mut inputs = recorded_inputs(&job, recorded, &self.folder);
        inputs.use_recorded(&recorded.attachments);
        let run_id = &started.run_id;
        let context = RunContext {
            workspace: started.workspace.clone(),
            inputs_from: None,
            run_id: run_id.clone(),
            run_date: match is_timestamp(run_id) {
                true => format!("{}-{}-{}", &run_id[..4], &run_id[4..6], &run_id[6..8]),
                false => run_date(self.started_at()),
            },
            model_override: model_override(&started.job_file, recorded, &user_config.servers),
            trigger: recorded.outputs.as_ref().and_then(|outputs| outputs.trigger.clone()),
        };
        let with_replay_help = |finding: Diagnostic| match finding.code {
            "missing-input" => finding.help("add a default: the record has no value for this input"),
            _ => finding,
        };
        let planned = Plan::new(&job, &inputs, &context);
        let (mut plan, _) =
            planned.map_err(|findings| Error::Invalid(findings.into_iter().map(with_replay_help).collect()))?;
        // No server is started.
        for (name, server) in &recorded.mcp {
            if let Some(tools) = &server.tools {
                plan.set_server_tools(name, tools.clone());
            }
        }
        Ok((plan, checked.findings))
    }
}

/// The recorded values of the inputs that the job still has. Secret inputs get a placeholder, as they are neither in the
/// record nor in the plan.
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
    let mut inputs = InputValues::default();
    inputs.file(&Source::new(format!("{name} (inputs)"), format!("{:#}", Value::Object(values))));
    inputs
}

/// The `--model` of the recorded run, which is known from the job having another model than the plan.
fn model_override(job_file: &str, plan: &Plan, servers: &UserServers) -> Option<Model> {
    let source = Source::new("job.yaml", job_file);
    let job = yaml::read::<Job>(&source).value?;
    let job_model = lints::resolve(&job.model, servers).ok()?;
    (job_model != plan.parent.model).then(|| plan.parent.model.clone())
}
