//! The machine and the user that runs are executed for.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;

use crate::pricing::Prices;
use crate::providers::user_servers::UserServers;
use crate::sandbox::programs::Folders;
use crate::workspace_changes::FileId;

/// What a run knows about the machine and the user that it is executed for.
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
    pub changeable: Box<dyn Fn(&Path) -> Folders + 'a>,
    /// Shows a warning.
    pub warn: Box<dyn Fn(&str) + 'a>,
}

impl Host<'_> {
    /// The value of an environment variable, if it is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        variable(self.variables, name)
    }
}

/// The value of a variable, if it is set and not empty.
pub(super) fn variable<'a>(variables: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
}
