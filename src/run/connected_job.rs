//! A job whose providers are connected, and which can then run many times.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checked_job::CheckedJob;
use super::confinement::{Confinement, RunPlaces, SandboxRequest, SandboxScope};
use super::connect::{Scripts, connect_scripts};
use super::host::Host;
use super::secrets::RunSecrets;
use super::session::{Backends, Prepared, RunSetup};
use super::signals::Signals;
use crate::error::Error;
use crate::event::RunOptions;
use crate::plan::Plan;
use crate::providers::{Contact, Provider};

/// A job with all that its runs share. Several threads can start runs of it, each with a runtime of its own.
pub struct ConnectedJob<'a> {
    /// The job.
    pub checked: CheckedJob,
    /// The machine and the user.
    pub host: Host<'a>,
    /// The secrets of all runs. Secret inputs are the same for all of them.
    pub secrets: RunSecrets,
    /// The providers that send requests, which all runs share.
    pub providers: BTreeMap<String, Arc<dyn Provider>>,
    /// What the other models answer from.
    pub scripts: Scripts,
    /// What the user permits to commands.
    pub sandbox: SandboxRequest,
    /// The files and folders around each run.
    pub places: RunPlaces,
    /// The user's configuration files. No tool may change them where they are in the workspace.
    pub config_files: Vec<PathBuf>,
    /// The options of the command line, as the journals record them.
    pub options: RunOptions,
}

impl ConnectedJob<'_> {
    /// The best of what the requests to the providers have shown so far.
    pub fn contact(&self) -> Contact {
        self.providers.values().map(|provider| provider.contact()).max().unwrap_or(Contact::Answered)
    }

    /// A run that can start as soon as its record, which will be this folder, is open. This searches the workspace, so it may take some time.
    ///
    /// # Errors
    /// A model has no script, or the sandbox doesn't work here.
    pub fn set_up(&self, plan: Plan, record: &Path, signals: Signals) -> Result<RunSetup<'_>, Error> {
        let mut providers = self.providers.clone();
        providers.extend(connect_scripts(&plan, &self.scripts, &self.secrets.redactor)?);
        let mut places = self.places.clone();
        places.job_files.extend(self.config_files.iter().filter(|file| file.starts_with(&plan.workspace)).cloned());
        let scope = SandboxScope::new(&plan, record);
        let confinement = Confinement::prepare(self.sandbox.clone(), scope, places)?;
        confinement.warning().iter().for_each(|warning| (self.host.warn)(warning));
        let backends = Backends::new(self.host.clone(), providers, self.checked.git.clone(), signals);
        let prepared = Prepared {
            plan,
            secrets: self.secrets.clone(),
            job_file: &self.checked.source.text,
            job_files: self.checked.job_file_digests(),
            scripts: self.scripts.clone(),
            options: self.options.clone(),
            given_steps: serde_json::Map::new(),
            given_files: None,
            event: self.checked.event.clone(),
            state: None,
        };
        Ok(RunSetup { prepared, confinement, backends, observers: Vec::new() })
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
