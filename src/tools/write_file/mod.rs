//! `write_file`: creates or replaces a file.

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::input::{parse, schema};
use super::{Builtin, Tool, ToolContext, ToolError, ToolState, Workspace, options, run_blocking};
use crate::message::pluralize;
use crate::redaction;
use crate::workspace::atomic_write::MAX_FILE;

pub(super) const BUILTIN: Builtin = Builtin {
    name: "write_file",
    reads_only: false,
    parent_only: false,
    subject_field: Some("path"),
    parse_options: options::none,
    options_schema: || None,
    build: |_| Ok(Box::new(WriteFile)),
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteFileInput {
    /// Path of the file, from the workspace.
    #[serde(alias = "file_path")]
    path: String,
    /// The whole text of the file.
    content: String,
}

struct WriteFile;

impl Tool for WriteFile {
    fn name(&self) -> &str {
        "write_file"
    }

    fn description(&self) -> String {
        "Creates a file, or replaces the whole of an existing one. Missing folders are made. To change a part of a file, \
         use edit_file if you have it."
            .into()
    }

    fn input_schema(&self) -> Value {
        schema::<WriteFileInput>()
    }

    fn call<'a>(&'a self, input: &'a RawValue, scope: &'a ToolContext<'a>) -> BoxFuture<'a, Result<String, ToolError>> {
        Box::pin(async move {
            let input: WriteFileInput = parse(input)?;
            let (workspace, memory) = (scope.workspace.clone(), scope.state.clone());
            run_blocking(move || write(&input, &workspace, &memory)).await
        })
    }
}

fn write(input: &WriteFileInput, workspace: &Workspace, memory: &ToolState) -> Result<String, ToolError> {
    reject_redacted_text(&input.path)?;
    reject_redacted_text(&input.content)?;
    if input.content.len() as u64 > MAX_FILE {
        return Err(ToolError(format!("the content is larger than {} MB", MAX_FILE >> 20)));
    }
    let mut target = workspace.target(&input.path)?;
    workspace.with_path_lock(&target.path.clone(), || {
        target.write(input.content.as_bytes())?;
        memory.record_file(&target.path, input.content.as_bytes());
        let done = if target.exists() { "replaced" } else { "created" };
        let lines = pluralize(input.content.lines().count() as u64, "line");
        let bytes = pluralize(input.content.len() as u64, "byte");
        Ok(format!("{done} `{}`: {lines}, {bytes}", target.path.display()))
    })
}

/// Refuses text in which a secret is masked: written to a file, the mask would take the secret's place.
pub(super) fn reject_redacted_text(text: &str) -> Result<(), ToolError> {
    if text.contains(redaction::MARKER_PREFIX) {
        return Err(ToolError(format!(
            "the text holds `{}`: a secret is hidden there, and writing it would destroy what is in the file; leave that \
             part out",
            redaction::MARKER_PREFIX
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
