//! The path of a case's workspace in what is compared.

/// The placeholder for the workspace's path in compared texts, results and files, as the path differs each time.
pub const WORKSPACE_PLACEHOLDER: &str = "/workspace";

/// Replaces the path of the workspace by [`WORKSPACE_PLACEHOLDER`], except within longer paths.
pub fn with_placeholder(text: &str, workspace: &str) -> String {
    crate::providers::replay::relocate_path(text, workspace, WORKSPACE_PLACEHOLDER)
}
