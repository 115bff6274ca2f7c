//! Context files and skills, as a job names them.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::prompt::{OrText, PATH_PATTERN, TextOrMapping};
use crate::yaml::Spanned;

/// How many bytes the context files of an agent may have together by default.
pub const CONTEXT_BYTES: u32 = 32 << 10;
/// The most that `context_bytes` can allow.
pub const MAX_CONTEXT_BYTES: u32 = 1 << 20;
/// The greatest number of entries of `context`, and of `skills`.
pub const MAX_AGENT_FILES: usize = 50;

/// What is wrong with a path that isn't below the workspace.
const OUTSIDE: &str = "the path leads out of the workspace";

/// Files of the workspace whose text is added to system prompts.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged)]
pub enum ContextEntry {
    /// A path or a glob of the workspace.
    Path(#[schemars(regex(pattern = PATH_PATTERN), extend("patternErrorMessage" = OUTSIDE))] String),
    /// A file as it is in a commit.
    Committed(CommittedFile),
}

/// A context file as it is in a commit.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "context file")]
pub struct CommittedFile {
    /// The path of a text file, from the workspace.
    #[schemars(regex(pattern = PATH_PATTERN), extend("patternErrorMessage" = OUTSIDE))]
    pub file: Spanned<String>,
    /// The branch, tag or commit from which it is read, such as `origin/main`. Default: the workspace as it is.
    #[serde(rename = "ref")]
    pub reference: Option<Spanned<String>>,
}

/// A folder with a skill.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged)]
pub enum SkillEntry {
    /// The path of the folder, from the workspace.
    Path(#[schemars(regex(pattern = PATH_PATTERN), extend("patternErrorMessage" = OUTSIDE))] String),
    /// A skill whose `SKILL.md` is read from a commit.
    Committed(CommittedSkill),
}

/// A skill whose `SKILL.md` is read from a commit.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "skill")]
pub struct CommittedSkill {
    /// The path of the skill's folder, from the workspace.
    #[schemars(regex(pattern = PATH_PATTERN), extend("patternErrorMessage" = OUTSIDE))]
    pub folder: Spanned<String>,
    /// The branch, tag or commit from which `SKILL.md` is read, such as `origin/main`. Default: the workspace as it is.
    #[serde(rename = "ref")]
    pub reference: Option<Spanned<String>>,
}

impl ContextEntry {
    /// Its path or glob.
    pub fn path(&self) -> &str {
        match self {
            Self::Path(path) => path,
            Self::Committed(committed) => &committed.file.value,
        }
    }

    /// The commit that it is read from.
    pub fn reference(&self) -> Option<&Spanned<String>> {
        match self {
            Self::Path(_) => None,
            Self::Committed(committed) => committed.reference.as_ref(),
        }
    }

    /// Its name in plans: the path, or `REF:PATH`.
    pub fn label(&self) -> String {
        label(self.path(), self.reference())
    }
}

impl SkillEntry {
    /// The path of its folder.
    pub fn path(&self) -> &str {
        match self {
            Self::Path(path) => path,
            Self::Committed(committed) => &committed.folder.value,
        }
    }

    /// The commit that it is read from.
    pub fn reference(&self) -> Option<&Spanned<String>> {
        match self {
            Self::Path(_) => None,
            Self::Committed(committed) => committed.reference.as_ref(),
        }
    }

    /// Its name in plans: the path, or `REF:PATH`.
    pub fn label(&self) -> String {
        label(self.path(), self.reference())
    }
}

fn label(path: &str, reference: Option<&Spanned<String>>) -> String {
    reference.map_or_else(|| path.to_owned(), |reference| format!("{}:{path}", reference.value))
}

impl OrText<'_> for CommittedFile {
    const EXPECTED: &'static str = "a path, or `{ file: PATH, ref: COMMIT }`";
}

impl OrText<'_> for CommittedSkill {
    const EXPECTED: &'static str = "the path of a folder, or `{ folder: PATH, ref: COMMIT }`";
}

impl<'de> Deserialize<'de> for ContextEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match TextOrMapping::deserialize(deserializer)? {
            TextOrMapping::Text(path) => Self::Path(path),
            TextOrMapping::Mapping(committed) => Self::Committed(committed),
        })
    }
}

impl<'de> Deserialize<'de> for SkillEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match TextOrMapping::deserialize(deserializer)? {
            TextOrMapping::Text(path) => Self::Path(path),
            TextOrMapping::Mapping(committed) => Self::Committed(committed),
        })
    }
}
