//! The record of a run, for tests.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::journal;

/// A run's folder.
pub(crate) struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The run's id: the folder's name.
    pub(crate) fn id(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).expect("a run's id is text")
    }

    /// A file's text.
    #[track_caller]
    pub(crate) fn file(&self, name: &str) -> String {
        let path = self.path.join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.path.join(name).exists()
    }

    /// `result.json`, checked against its schema if it is of this format.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        let result = self.json("result.json");
        if result["format"] == legwork::event::FORMAT
            && let Some(fault) = journal::result_error(&result)
        {
            panic!("{fault}: {result}");
        }
        result
    }

    #[track_caller]
    pub(crate) fn plan(&self) -> Value {
        self.json("plan.json")
    }

    #[track_caller]
    pub(crate) fn transcript(&self) -> String {
        self.file("transcript.md")
    }

    /// The parent's journal, line by line, each checked.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Value> {
        journal::checked_lines("events.jsonl", &self.file("events.jsonl"))
    }

    /// A subagent's summary, by its id (`explorer-1`).
    #[track_caller]
    pub(crate) fn summary(&self, id: &str) -> String {
        self.file(&format!("subagents/{id}.md"))
    }

    /// A subagent's own journal, line by line, each checked.
    #[track_caller]
    pub(crate) fn events_of(&self, id: &str) -> Vec<Value> {
        let name = format!("subagents/{id}.events.jsonl");
        journal::checked_lines(&name, &self.file(&name))
    }

    /// Every file, relative and sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![self.path.clone()];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(&folder).expect("a folder of the run").flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    open.push(path);
                } else {
                    found.push(path.strip_prefix(&self.path).expect("below the run").display().to_string());
                }
            }
        }
        found.sort();
        found
    }

    /// Fails if the text is in any file of the run: for secrets.
    #[track_caller]
    pub(crate) fn assert_absent(&self, text: &str) {
        for name in self.files() {
            let bytes = std::fs::read(self.path.join(&name)).expect("a file of the run");
            assert!(!String::from_utf8_lossy(&bytes).contains(text), "{text:?} is in {name}");
        }
    }

    #[track_caller]
    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}
