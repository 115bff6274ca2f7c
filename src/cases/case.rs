//! A test case, loaded and validated, and the files of its folder.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::expect::{CASE_SECONDS, Expect};

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
    /// The absolute path of the event that started the run, if there is one.
    pub event: Option<PathBuf>,
    /// The values of the steps before the agent, by name.
    pub before: serde_json::Map<String, serde_json::Value>,
    /// The state with which the run begins, if the job keeps one.
    pub state: Option<serde_json::Value>,
    /// The secret inputs without a value.
    pub missing_secrets: Vec<String>,
    /// The variables that commands see.
    pub env: Vec<String>,
    /// The expectations.
    pub expect: Expect,
}

impl Case {
    /// The timeout.
    pub fn timeout(&self) -> Duration {
        let given = self.expect.timeout.as_ref().map(|timeout| timeout.value.get());
        given.unwrap_or(Duration::from_secs(CASE_SECONDS))
    }
}

/// The expectations in a case's folder.
pub const EXPECT_FILE: &str = "expect.yaml";
/// The script in a case's folder.
pub const SCRIPT_FILE: &str = "script.yaml";
/// The recorded run in a case's folder, in place of a script.
pub const RECORD_FOLDER: &str = "record";
/// The inputs in a case's folder.
pub const INPUTS_FILE: &str = "inputs.yaml";
/// The event that started the run, in a case's folder, for a job with outputs.
pub const EVENT_FILE: &str = "event.json";
/// The values of the steps before the agent in a case's folder.
pub const BEFORE_FILE: &str = "before.yaml";
/// The folder of the snapshots of files, in a case's folder.
pub const SNAPSHOTS_FOLDER: &str = "expect";
/// The snapshot of the last text in a case's folder.
pub const TEXT_SNAPSHOT: &str = "text.md";
/// The snapshot of what the run proposes, in a case's folder.
pub const OUTPUTS_SNAPSHOT: &str = "outputs.yaml";
/// The folder of all cases, next to the job files.
pub const TESTS_FOLDER: &str = "tests";
