//! `outputs.json`: all that a run proposes, derived from its journal at its end.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::entry::Entry;
use super::trigger::Trigger;

/// The file's name in a record.
pub const OUTPUTS_FILE: &str = "outputs.json";

/// The content of `outputs.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutputsFile {
    /// The version of this format: 1.
    pub format: u32,
    /// The run's id.
    pub run_id: String,
    /// The job's name.
    pub job: String,
    /// SHA-256 of the job file, in hexadecimal digits.
    pub job_sha256: String,
    /// SHA-256 of the files that the job file names, by their paths from the job file's folder.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// The checksum of the journal's last line, the head of the chain of all of them.
    pub journal_head: String,
    /// What started the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// The accepted outputs, in the order of their first acceptance.
    pub entries: Vec<Entry>,
    /// Why nothing is to be done, if the agent said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nothing_to_do: Option<String>,
    /// The run's own changes, if an output needs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Patch>,
}

/// The changes of a run, which are in its record as `changes.patch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Patch {
    /// The commit that was checked out when the run started.
    pub base_commit: String,
    /// SHA-256 of the patch, in hexadecimal digits.
    pub sha256: String,
    /// The changed files, sorted by path.
    pub files: Vec<PatchFile>,
    /// The length of the patch.
    pub bytes: u64,
}

/// A changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PatchFile {
    /// Its path from the workspace.
    pub path: String,
    /// What happened to it: `added`, `modified`, `deleted`.
    pub change: String,
}
