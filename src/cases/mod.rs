//! Cases: what a job is tested with. A case's folder, `tests/<job>/<case>/` beside the job file, holds the replies of the
//! models (`script.yaml` or `record/`), what the run is given (`inputs.yaml`, `workspace/`) and what is expected of it
//! (`expect.yaml`, the snapshots in `expect/` and `text.md`).

mod count_range;
mod diff;
mod evaluate;
mod expect;
pub mod fixture;
pub mod generate;
mod git_fixture;
mod matchers;
mod report;
mod run_counts;
mod runner;
mod snapshot;
mod validate;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use self::expect::{CASE_SECONDS, EXPECT_FILE, Expect};
pub use self::report::{CaseReport, Failure, TestReport};
pub use self::runner::{CaseRun, RunnerConfig, placeholder_secret, run_case, temporary_folder};
pub use self::validate::check;
use crate::diagnostic::Source;

/// The script in a case's folder.
pub const SCRIPT_FILE: &str = "script.yaml";
/// The recorded run in a case's folder, in place of a script.
pub const RECORD_FOLDER: &str = "record";
/// The inputs in a case's folder.
pub const INPUTS_FILE: &str = "inputs.yaml";
/// The fixture in a case's folder: what the workspace holds when the run begins.
pub const WORKSPACE_FOLDER: &str = "workspace";
/// The files' snapshots in a case's folder.
pub const SNAPSHOTS_FOLDER: &str = "expect";
/// The snapshot of the last text in a case's folder.
pub const TEXT_SNAPSHOT: &str = "text.md";
/// The folder of all cases, beside the job files.
pub const TESTS_FOLDER: &str = "tests";

/// What stands for the workspace's own path in texts, data and files that are compared, for a case's workspace lies
/// elsewhere each time.
pub const WORKSPACE_PLACEHOLDER: &str = "/workspace";

/// One case, in which nothing is wrong.
#[derive(Debug)]
pub struct Case {
    /// Its name: the folders of the job and of the case, `tour/short`.
    pub name: String,
    /// Its folder, absolute.
    pub folder: PathBuf,
    /// The same as it is shown.
    pub display_path: String,
    /// The job file, absolute.
    pub job_file: PathBuf,
    /// The job's name.
    pub job: String,
    /// The script or the record, absolute.
    pub replies: PathBuf,
    /// How many replies there are for each agent.
    pub reply_counts: BTreeMap<String, usize>,
    /// The inputs, absolute, where there are any.
    pub inputs: Option<PathBuf>,
    /// Secret inputs that nothing gives a value.
    pub missing_secrets: Vec<String>,
    /// Variables that the job grants to commands.
    pub env: Vec<String>,
    /// What is expected.
    pub expect: Expect,
    /// The text of `expect.yaml`.
    pub source: Arc<Source>,
}

impl Case {
    /// How long it may take.
    pub fn timeout(&self) -> Duration {
        let given = self.expect.timeout.as_ref().map(|timeout| timeout.value.get());
        given.unwrap_or(Duration::from_secs(CASE_SECONDS))
    }
}

/// The schema of `expect.yaml`, draft 7, for editors.
pub fn expect_schema() -> serde_json::Value {
    crate::schema::editor_schema_of::<Expect>()
}

/// The text with [`WORKSPACE_MARK`] in place of a workspace's path, wherever that isn't a part of another one's.
pub fn with_placeholder(text: &str, workspace: &str) -> String {
    crate::providers::replay::relocate_path(text, workspace, WORKSPACE_PLACEHOLDER)
}
