//! `write_file`: creates or replaces a file.

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::input::{parse, schema};
use super::replace::MAX_FILE;
use super::{Builtin, Memory, Refusal, Scope, Tool, Workspace, off_thread, options};
use crate::mask;
use crate::message::counted;

pub(super) const BUILTIN: Builtin = Builtin {
    name: "write_file",
    reads_only: false,
    parent_only: false,
    subject: Some("path"),
    options: options::none,
    options_schema: || None,
    build: |_| Ok(Box::new(WriteFile)),
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
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
        schema::<Input>()
    }

    fn call<'a>(&'a self, input: &'a RawValue, scope: &'a Scope<'a>) -> BoxFuture<'a, Result<String, Refusal>> {
        Box::pin(async move {
            let input: Input = parse(input)?;
            let (workspace, memory) = (scope.workspace.clone(), scope.memory.clone());
            off_thread(move || write(&input, &workspace, &memory)).await
        })
    }
}

fn write(input: &Input, workspace: &Workspace, memory: &Memory) -> Result<String, Refusal> {
    refuse_masks(&input.path)?;
    refuse_masks(&input.content)?;
    if input.content.len() as u64 > MAX_FILE {
        return Err(Refusal(format!("the content is larger than {} MB", MAX_FILE >> 20)));
    }
    let mut target = workspace.target(&input.path)?;
    workspace.locked(&target.path.clone(), || {
        target.write(input.content.as_bytes())?;
        memory.saw(&target.path, input.content.as_bytes());
        let done = if target.exists() { "replaced" } else { "created" };
        let lines = counted(input.content.lines().count() as u64, "line");
        let bytes = counted(input.content.len() as u64, "byte");
        Ok(format!("{done} `{}`: {lines}, {bytes}", target.path.display()))
    })
}

/// Refuses text in which a secret is masked: written to a file, the mask would take the secret's place.
pub(super) fn refuse_masks(text: &str) -> Result<(), Refusal> {
    if text.contains(mask::OPENING) {
        return Err(Refusal(format!(
            "the text holds `{}`: a secret is hidden there, and writing it would destroy what is in the file; leave that \
             part out",
            mask::OPENING
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
