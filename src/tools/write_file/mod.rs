//! `write_file`: creates or replaces a file.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::input::{parse, reject_redacted_text, schema};
use super::tool::{Builtin, CallFuture, Tool, ToolContext, no_options, run_blocking};
use super::tool_state::ToolState;
use crate::message::ToolError;
use crate::text::pluralize;
use crate::workspace::Workspace;
use crate::workspace::atomic_write::MAX_FILE_BYTES;

pub(super) const BUILTIN: Builtin = Builtin {
    name: "write_file",
    reads_only: false,
    parent_only: false,
    subject_field: Some("path"),
    parse_options: no_options,
    options_schema: || None,
    build: |_| Ok(Box::new(WriteFile)),
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteFileInput {
    /// Path of the file, relative to the workspace.
    #[serde(alias = "file_path")]
    path: String,
    /// The complete content of the file.
    content: String,
}

struct WriteFile;

impl Tool for WriteFile {
    fn name(&self) -> &str {
        "write_file"
    }

    fn description(&self) -> String {
        "Writes a file, replacing an existing one. Creates missing folders. To change part of a file, use edit_file if \
         available."
            .into()
    }

    fn input_schema(&self) -> Value {
        schema::<WriteFileInput>()
    }

    fn call<'a>(&'a self, input: &'a RawValue, context: &'a ToolContext<'a>) -> CallFuture<'a> {
        Box::pin(async move {
            let input: WriteFileInput = parse(input)?;
            let (workspace, state) = (context.workspace.clone(), context.state.clone());
            run_blocking(move || write(&input, &workspace, &state)).await
        })
    }
}

fn write(input: &WriteFileInput, workspace: &Workspace, state: &ToolState) -> Result<String, ToolError> {
    reject_redacted_text(&input.path)?;
    reject_redacted_text(&input.content)?;
    if input.content.len() as u64 > MAX_FILE_BYTES {
        return Err(ToolError(format!("`content` is larger than {} MB", MAX_FILE_BYTES >> 20)));
    }
    let mut target = workspace.write_target(&input.path)?;
    workspace.with_path_lock(&target.path.clone(), || {
        target.write(input.content.as_bytes())?;
        state.record_file(&target.path, input.content.as_bytes());
        let action = if target.exists() { "replaced" } else { "created" };
        let lines = pluralize(input.content.lines().count() as u64, "line");
        let bytes = pluralize(input.content.len() as u64, "byte");
        Ok(format!("{action} `{}`: {lines}, {bytes}", target.path.display()))
    })
}

#[cfg(test)]
mod tests;
