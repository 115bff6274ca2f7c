//! A test case, loaded and validated.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::expect::{CASE_SECONDS, Expect};
use crate::diagnostic::Source;

/// A valid case.
#[derive(Debug)]
pub struct Case {
    /// The name: the folders of the job and of the case, `tour/short`.
    pub name: String,
    /// The absolute path of the folder.
    pub folder: PathBuf,
    /// The path of the folder for messages.
    pub display_path: String,
    /// The absolute path of the job file.
    pub job_file: PathBuf,
    /// The name of the job.
    pub job: String,
    /// The absolute path of the script or the record.
    pub replies: PathBuf,
    /// The number of replies for each agent.
    pub reply_counts: BTreeMap<String, usize>,
    /// The absolute path of the inputs, if there are any.
    pub inputs: Option<PathBuf>,
    /// The secret inputs without a value.
    pub missing_secrets: Vec<String>,
    /// The variables that commands see.
    pub env: Vec<String>,
    /// The expectations.
    pub expect: Expect,
    /// The text of `expect.yaml`.
    pub source: Arc<Source>,
}

impl Case {
    /// The timeout.
    pub fn timeout(&self) -> Duration {
        let given = self.expect.timeout.as_ref().map(|timeout| timeout.value.get());
        given.unwrap_or(Duration::from_secs(CASE_SECONDS))
    }
}
