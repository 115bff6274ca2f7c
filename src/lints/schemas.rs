//! The schemas of the data that agents end with.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value;

use crate::diagnostic::{Diagnostic, Source};
use crate::job::Job;
use crate::json_schema::SchemaReader;
use crate::template::JobDir;

/// A job's schemas, each of which stands alone.
#[derive(Debug, Default)]
pub struct Schemas {
    /// Of the parent's result.
    pub result: Option<Value>,
    /// Of what subagents return, by their names.
    pub returns: IndexMap<String, Value>,
    files: Vec<String>,
    sources: Vec<Arc<Source>>,
}

impl Schemas {
    /// Reads and checks all schemas of a job.
    pub(super) fn load(job: &Job, folder: Option<&JobDir>, findings: &mut Vec<Diagnostic>) -> Self {
        let mut reader = SchemaReader::new(folder);
        let result = job.result.as_ref().and_then(|result| reader.read(&result.schema));
        let mut returns = IndexMap::new();
        for (name, subagent) in &job.subagents {
            if let Some(schema) = subagent.returns.as_ref().and_then(|returns| reader.read(&returns.schema)) {
                returns.insert(name.value.clone(), schema);
            }
        }
        findings.extend(reader.take_findings());
        let files = reader.files().map(str::to_owned).collect();
        Self { result, returns, files, sources: reader.sources().cloned().collect() }
    }

    /// The files that they are made of, as paths from the job's folder.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// The same files, as they were read.
    pub(super) fn sources(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.sources.iter()
    }
}
