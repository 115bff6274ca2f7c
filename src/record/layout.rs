//! The names of the files and folders of a record.

/// The default folder of all runs.
pub const RUNS: &str = "runs";

/// The newest run, as a name on the command line and as a link in a job's folder.
pub const LATEST: &str = "latest";

/// The state of the workspace at the start of the run. It exists as long as the run can be resumed.
pub const BASELINE_FILE: &str = "workspace.start";

/// What the run has changed in the workspace, if anything.
pub(super) const PATCH_FILE: &str = "changes.patch";

pub(super) const JOB_FILE: &str = "job.yaml";
pub(super) const PLAN_FILE: &str = "plan.json";
pub(super) const RESULT_FILE: &str = "result.json";
