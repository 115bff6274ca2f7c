//! The texts of context files and skills, and where they are read.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::git::GitProgram;
use crate::redaction::Redactor;
use crate::text::hex;

/// Where context files and skills are read.
#[derive(Debug, Clone, Default)]
pub struct WorkspaceFiles {
    /// The workspace, absolute.
    pub root: PathBuf,
    /// The git program, for entries with `ref`.
    pub git: Option<GitProgram>,
    /// Whether entries with `ref` are read in the workspace, too.
    pub ignores_references: bool,
    /// Entries that aren't read again: those of a recorded run.
    pub recorded: AgentFiles,
}

/// The texts of all context files and skills of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentFiles {
    /// The context files, by the entry that names them: `AGENTS.md`, `docs/*.md`, `origin/main:AGENTS.md`.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub context: IndexMap<String, Vec<ContextFile>>,
    /// The skills, by the entry that names them.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub skills: IndexMap<String, Skill>,
}

/// A file whose text is added to system prompts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContextFile {
    /// Its path from the workspace.
    pub path: String,
    /// The branch, tag or commit that the job names. Absent: it is from the workspace.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The commit that it is from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// SHA-256 of its text, in hexadecimal digits. Absent if the text has a secret, which the digest could give away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Its text, with LF line ends.
    pub text: String,
}

/// A skill: instructions that an agent reads when it needs them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skill {
    /// Its name, which is also that of its folder.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// The path of its folder from the workspace.
    pub folder: String,
    /// The branch, tag or commit that the job names. Absent: it is from the workspace.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The commit that it is from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// SHA-256 of its `SKILL.md` with LF line ends. Absent if it has a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The tools that it names as `allowed-tools`. An agent doesn't get a tool by this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<String>,
    /// The instructions: `SKILL.md` below its front matter.
    pub body: String,
}

impl AgentFiles {
    /// The context files of some entries, each once.
    pub fn context_of<'a>(&'a self, entries: &'a [String]) -> impl Iterator<Item = &'a ContextFile> {
        let mut seen = HashSet::new();
        let files = entries.iter().filter_map(|entry| self.context.get(entry)).flatten();
        files.filter(move |file| seen.insert((file.path.as_str(), file.reference.as_deref())))
    }

    /// The skills of some entries.
    pub fn skills_of<'a>(&'a self, entries: &'a [String]) -> impl Iterator<Item = &'a Skill> {
        entries.iter().filter_map(|entry| self.skills.get(entry))
    }

    /// Takes the texts of a record for the entries that both have: a run keeps the texts that it started with.
    pub fn keep_recorded(&mut self, recorded: &Self) {
        for (entry, files) in &mut self.context {
            if let Some(recorded) = recorded.context.get(entry) {
                files.clone_from(recorded);
            }
        }
        for (entry, skill) in &mut self.skills {
            if let Some(recorded) = recorded.skills.get(entry) {
                skill.clone_from(recorded);
            }
        }
    }

    /// Redacts secrets in all texts.
    pub fn redact(&mut self, mask: &Redactor) {
        let hide = |text: &mut String| {
            let redacted = mask.redact(text).into_owned();
            let has_secret = redacted != *text;
            *text = redacted;
            has_secret
        };
        for file in self.context.values_mut().flatten() {
            if hide(&mut file.text) {
                file.sha256 = None;
            }
            hide(&mut file.path);
        }
        for skill in self.skills.values_mut() {
            let names = skill.allowed_tools.iter_mut().chain([&mut skill.description, &mut skill.body]);
            if names.map(hide).fold(false, |any, one| any | one) {
                skill.sha256 = None;
            }
        }
    }
}

/// SHA-256 of a text in hexadecimal digits.
pub(super) fn digest(text: &str) -> String {
    hex(&Sha256::digest(text))
}

/// A path as it is shown and recorded.
pub(super) fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
