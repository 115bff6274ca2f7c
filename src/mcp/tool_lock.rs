//! The lock file of a job's tool servers: the tools that the job lists, as the servers described them when it was written.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::template::{JobDir, PromptFileError};
use crate::text::sanitize;
use crate::tools::ToolDefinition;

/// The version of the file's format.
const FORMAT: u32 = 1;

/// The tools of one server, by name.
pub type ToolDefinitions = BTreeMap<String, ToolDefinition>;

/// The contents of a lock file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolLock {
    format: u32,
    servers: BTreeMap<String, LockedServer>,
}

/// A server in a lock file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockedServer {
    tools: BTreeMap<String, LockedTool>,
}

/// A tool in a lock file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct LockedTool {
    #[serde(flatten)]
    definition: ToolDefinition,
    /// The digest of the definition: one line to look at in a review. A definition that was edited by hand has another one.
    sha256: String,
}

impl LockedTool {
    fn new(definition: ToolDefinition) -> Self {
        Self { sha256: definition.digest(), definition }
    }
}

impl ToolLock {
    /// Makes a lock of the tools of servers.
    pub fn new(servers: impl IntoIterator<Item = (String, ToolDefinitions)>) -> Self {
        let locked = |(tool, definition)| (tool, LockedTool::new(definition));
        let servers = servers.into_iter().map(|(name, tools): (String, ToolDefinitions)| {
            (name, LockedServer { tools: tools.into_iter().map(locked).collect() })
        });
        Self { format: FORMAT, servers: servers.collect() }
    }

    /// The name of the lock file of a job file: `triage.yaml` has `triage.mcp.lock.json`.
    pub fn file_name(job_file: &str) -> Option<String> {
        let stem = Path::new(job_file).file_stem()?.to_str()?;
        Some(format!("{stem}.mcp.lock.json"))
    }

    /// Reads the lock file in the folder of a job; `None` if there is none.
    ///
    /// # Errors
    /// Why it can't be used, in a sentence.
    pub fn read(job_file: &str, folder: &JobDir) -> Option<Result<Self, String>> {
        let name = Self::file_name(job_file)?;
        let text = match folder.read(&name) {
            Ok(source) => source,
            Err(PromptFileError::Missing) => return None,
            Err(PromptFileError::OutsideJobDir) => {
                return Some(Err(format!("the lock file {name} is a link out of the job's folder")));
            }
            Err(PromptFileError::Unreadable(why)) => return Some(Err(format!("the lock file {name} {why}"))),
        };
        let lock: Result<Self, _> = serde_json::from_str(&text.text);
        Some(match lock {
            Ok(lock) if lock.format == FORMAT => match lock.edited_tool() {
                None => Ok(lock),
                Some((server, tool)) => Err(format!(
                    "the digest of the tool `{}` of the server `{}` in the lock file {name} is wrong: it was edited by hand",
                    sanitize::line(tool),
                    sanitize::line(server)
                )),
            },
            Ok(lock) => {
                Err(format!("the format of the lock file {name} is {}, and this legwork reads {FORMAT}", lock.format))
            }
            Err(error) => Err(format!("the lock file {name} is malformed: {}", sanitize::line(&error.to_string()))),
        })
    }

    /// The first tool whose digest doesn't fit, with its server.
    fn edited_tool(&self) -> Option<(&str, &str)> {
        self.servers.iter().find_map(|(server, locked)| {
            let mut tools = locked.tools.iter();
            let (tool, _) = tools.find(|(_, tool)| tool.sha256 != tool.definition.digest())?;
            Some((server.as_str(), tool.as_str()))
        })
    }

    /// The locked tools of a server.
    pub fn tools(&self, server: &str) -> Option<ToolDefinitions> {
        let locked = self.servers.get(server)?;
        Some(locked.tools.iter().map(|(name, tool)| (name.clone(), tool.definition.clone())).collect())
    }

    /// How many servers and tools it has.
    pub fn counts(&self) -> (usize, usize) {
        (self.servers.len(), self.servers.values().map(|locked| locked.tools.len()).sum())
    }

    /// The text of the file. Characters that a terminal would obey are escaped.
    pub fn to_text(&self) -> String {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        sanitize::escape_json(&(text + "\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(description: &str) -> ToolLock {
        let definition = ToolDefinition { description: description.to_owned(), input_schema: serde_json::json!({}) };
        ToolLock::new([("git".to_owned(), ToolDefinitions::from([("log".to_owned(), definition)]))])
    }

    #[test]
    fn a_lock_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let read = || ToolLock::read("jobs/triage.yaml", &JobDir::open(folder.path()).unwrap());
        assert!(read().is_none());
        let before = lock("evil \u{202e} \u{1b}[2J\n::error::x");
        std::fs::write(folder.path().join("triage.mcp.lock.json"), before.to_text()).unwrap();
        assert_eq!(read().unwrap().unwrap(), before);
        assert!(!before.to_text().contains(['\u{202e}', '\u{1b}']));
        for (text, word) in
            [("{", "malformed"), (r#"{"format":2,"servers":{}}"#, "format"), (r#"{"x":1}"#, "malformed")]
        {
            std::fs::write(folder.path().join("triage.mcp.lock.json"), text).unwrap();
            assert!(read().unwrap().unwrap_err().contains(word), "{text}");
        }
        let edited = before.to_text().replace("evil", "good");
        std::fs::write(folder.path().join("triage.mcp.lock.json"), edited).unwrap();
        assert!(read().unwrap().unwrap_err().contains("edited by hand"));
    }
}
