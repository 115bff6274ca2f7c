//! The names of files in the folder of a case.

/// The expectations in a case's folder.
pub const EXPECT_FILE: &str = "expect.yaml";
/// The script in a case's folder.
pub const SCRIPT_FILE: &str = "script.yaml";
/// The recorded run in a case's folder, in place of a script.
pub const RECORD_FOLDER: &str = "record";
/// The inputs in a case's folder.
pub const INPUTS_FILE: &str = "inputs.yaml";
/// The fixture in a case's folder: the initial files of the workspace.
pub const WORKSPACE_FOLDER: &str = "workspace";
/// The folder of the snapshots of files, in a case's folder.
pub const SNAPSHOTS_FOLDER: &str = "expect";
/// The snapshot of the last text in a case's folder.
pub const TEXT_SNAPSHOT: &str = "text.md";
/// The folder of all cases, next to the job files.
pub const TESTS_FOLDER: &str = "tests";

/// The placeholder for the workspace's path in compared texts, results and files, as the path differs each time.
pub const WORKSPACE_PLACEHOLDER: &str = "/workspace";

/// Replaces the path of the workspace by [`WORKSPACE_PLACEHOLDER`], except within longer paths.
pub fn with_placeholder(text: &str, workspace: &str) -> String {
    crate::providers::replay::relocate_path(text, workspace, WORKSPACE_PLACEHOLDER)
}
