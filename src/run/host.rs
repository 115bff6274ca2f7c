//! The machine and the user that runs are executed for.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

use super::secrets::{RunSecrets, variable};
use crate::error::Error;
use crate::journal::RecordKey;
use crate::plan::{Plan, SecretInputs};
use crate::pricing::Prices;
use crate::providers::user_servers::UserServers;
use crate::sandbox::programs::Folders;
use crate::workspace_changes::FileId;

/// Returns the key that signs the records of runs in a workspace, if there is one that no command can read or change.
pub type RecordKeys<'a> = Arc<dyn Fn(&Path) -> Result<Option<RecordKey>, Error> + Send + Sync + 'a>;

/// What a run knows about the machine and the user that it is executed for. Clones are the same machine and user.
#[derive(Clone)]
pub struct Host<'a> {
    /// The environment variables.
    pub variables: &'a BTreeMap<String, String>,
    /// The user's own servers.
    pub servers: &'a UserServers,
    /// What models cost.
    pub prices: &'a Prices,
    /// The current time.
    pub clock: fn() -> Timestamp,
    /// The files that stdout and stderr go to. They don't count as changes of the run.
    pub outputs: Vec<FileId>,
    /// Where a job in this workspace, or a checkout, could have written files.
    pub changeable: Arc<dyn Fn(&Path) -> Folders + Send + Sync + 'a>,
    /// Signs records.
    pub record_key: RecordKeys<'a>,
    /// Shows a warning, unless it was shown before: the rows of a map share their circumstances.
    pub warn: Arc<dyn Fn(&str) + Send + Sync + 'a>,
}

impl Host<'_> {
    /// The value of an environment variable, if it is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        variable(self.variables, name)
    }

    /// The secrets of a run. Warns about those that commands see and that are too short to be masked.
    pub fn secrets(&self, plan: &Plan, secret_inputs: &SecretInputs) -> RunSecrets {
        let secrets = RunSecrets::new(self.variables, self.servers, plan, secret_inputs);
        secrets.warnings().for_each(|warning| (self.warn)(&warning));
        secrets
    }
}
