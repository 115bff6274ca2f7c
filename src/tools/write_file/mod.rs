//! `write_file`: creates or replaces a file.

mod text_form;

use schemars::JsonSchema;
use serde::Deserialize;

use self::text_form::TextForm;
use super::file_tool::{FileCall, FileTool};
use super::input::{lenient_bool, reject_redacted_text};
use super::tool::Builtin;
use crate::message::ToolError;
use crate::text::pluralize;
use crate::workspace::atomic_write::MAX_FILE_BYTES;

pub(super) const BUILTIN: Builtin = TOOL.builtin("path", |_| Ok(Box::new(TOOL)));
const TOOL: FileTool<WriteFileInput> = FileTool {
    name: "write_file",
    description: "Creates a file, or replaces one that you have read. Creates missing folders. If the file has changed since you \
     read it, read it again first. To change part of a file, use edit_file if available.",
    reads_only: false,
    reads_content: false,
    run: write,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteFileInput {
    /// Path of the file, relative to the workspace.
    #[serde(alias = "file_path")]
    path: String,
    /// The complete content of the file. A file that has CRLF line endings or a byte order mark keeps them.
    content: String,
    /// Whether to replace a file that you haven't read, whatever it contains. Default: false.
    #[serde(default, deserialize_with = "lenient_bool")]
    overwrite: Option<bool>,
}

fn write(input: &WriteFileInput, FileCall { workspace, state, .. }: &FileCall) -> Result<String, ToolError> {
    reject_redacted_text(&input.path)?;
    reject_redacted_text(&input.content)?;
    if input.content.len() as u64 > MAX_FILE_BYTES {
        return Err(ToolError(format!("`content` is larger than {} MB", MAX_FILE_BYTES >> 20)));
    }
    let mut target = workspace.write_target(&input.path)?;
    workspace.with_path_lock(&target.path.clone(), || {
        let mut form = None;
        if target.exists() {
            let shown = target.path.display();
            let before = target.read();
            form = before.as_deref().ok().map(TextForm::of);
            if state.has_seen(&target.path) {
                if state.has_changed(&target.path, &before?) {
                    return Err(ToolError(format!("`{shown}` has changed since you read it; read it again")));
                }
            } else if input.overwrite != Some(true) {
                return Err(ToolError(format!(
                    "`{shown}` exists, and you haven't read it; read it first, or set `overwrite` to true to replace it whatever \
                     it contains"
                )));
            }
        }
        let content = form.map_or_else(|| input.content.clone().into_bytes(), |form| form.encode(&input.content));
        target.write(&content)?;
        state.record_file(&target.path, &content);
        let action = if target.exists() { "replaced" } else { "created" };
        let lines = pluralize(input.content.lines().count() as u64, "line");
        let bytes = pluralize(content.len() as u64, "byte");
        let kept = form.map(|form| form.describe(&input.content)).unwrap_or_default();
        Ok(format!("{action} `{}`: {lines}, {bytes}{kept}", target.path.display()))
    })
}

#[cfg(test)]
mod tests;
