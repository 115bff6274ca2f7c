//! What a tool is: the trait, and what a call gets.

use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::tool_state::ToolState;
use crate::attachment::{Attachment, MediaSupport};
use crate::diagnostic::Diagnostic;
use crate::egress::CallEgress;
use crate::job::GitAccess;
use crate::message::ToolError;
use crate::outputs::Proposal;
use crate::process::spawn::EnvironmentError;
use crate::process::{CallLimits, Environment};
use crate::redaction::Redactor;
use crate::sandbox::Sandbox;
use crate::workspace::Workspace;
use crate::yaml::{Decoded, Node};

/// The longest text of a tool result, in characters.
pub const MAX_RESULT_CHARS: usize = 50_000;

/// A built-in tool, as [`TOOLS`](super::TOOLS) lists it.
pub struct Builtin {
    /// Its name in allowlists and calls.
    pub name: &'static str,
    /// Whether it changes nothing.
    pub reads_only: bool,
    /// Whether it starts commands, so that it needs a sandbox.
    pub starts_commands: bool,
    /// Whether it can change files of the workspace.
    pub changes_files: bool,
    /// Whether its results have the content of files.
    pub reads_content: bool,
    /// Whether only the parent can have it.
    pub parent_only: bool,
    /// The input field that best describes a call; `None` if no single field does.
    pub subject_field: Option<&'static str>,
    /// Validates a job's options (`None` if the job gives none) and returns their canonical form, with all defaults filled
    /// in; null for a tool without options.
    pub parse_options: fn(Option<&Node>) -> Decoded<Value>,
    /// JSON Schema of the options as a job writes them; `None` for a tool without options.
    pub options_schema: fn() -> Option<Value>,
    /// Creates the tool from canonical options.
    pub build: fn(&Value) -> Result<Box<dyn Tool>, String>,
}

/// A tool that a plan grants to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolGrant {
    /// The tool's name.
    pub name: String,
    /// Its canonical options; null for a tool without options.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub options: Value,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, Serialize)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// JSON Schema of its input, an object.
    pub input_schema: Value,
}

impl ToolSpec {
    /// Describes a tool to the model.
    pub fn of(tool: &dyn Tool) -> Self {
        Self::with_git_rules(tool, None)
    }

    /// The same, with what the job allows in git folders.
    pub fn with_git_rules(tool: &dyn Tool, git: Option<GitAccess>) -> Self {
        let description = tool.description() + git.map_or("", |git| tool.git_rules(git));
        Self { name: tool.name().to_owned(), description, input_schema: tool.input_schema() }
    }
}

/// What a call returns to the model.
#[derive(Debug, Default)]
pub struct ToolOutput {
    /// The text.
    pub text: String,
    /// Images and documents that follow it. The toolbox leaves out those that the model doesn't take.
    pub attachments: Vec<Attachment>,
    /// What the call proposes to do outside.
    pub proposal: Option<Proposal>,
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

/// The result of a call, once it is finished.
pub type CallFuture<'a> = BoxFuture<'a, Result<ToolOutput, ToolError>>;

/// A tool that an agent can call. [`TOOLS`](super::TOOLS) lists the built-in ones; a [`Toolbox`](super::toolbox::Toolbox)
/// holds any type that implements this.
pub trait Tool: Send + Sync {
    /// The name by which the model calls it.
    fn name(&self) -> &str;

    /// The description for the model, including the effect of its options.
    fn description(&self) -> String;

    /// JSON Schema of its input, an object.
    fn input_schema(&self) -> Value;

    /// What the description says about git folders.
    fn git_rules(&self, git: GitAccess) -> &'static str {
        let _ = git;
        ""
    }

    /// Whether it changes nothing, so that calls can run concurrently, and again after a kill.
    fn reads_only(&self) -> bool {
        false
    }

    /// Restores what a call left in the agent's state before the run was interrupted. Must have no other effect.
    fn restore_state(&self, input: &RawValue, state: &ToolState) {
        let _ = (input, state);
    }

    /// Performs a call and returns what the model gets.
    ///
    /// # Errors
    /// A [`ToolError`] for the model. It never ends the run.
    fn call<'a>(&'a self, input: &'a RawValue, context: &'a ToolContext<'a>) -> CallFuture<'a>;
}

/// What a call can use.
#[derive(Debug)]
pub struct ToolContext<'a> {
    /// The provider's id of the call.
    pub call_id: &'a str,
    /// The folder that tools work in.
    pub workspace: &'a Arc<Workspace>,
    /// What the agent remembers between calls.
    pub state: &'a Arc<ToolState>,
    /// The run's secrets, for output that must be redacted before it is truncated.
    pub redactor: &'a Redactor,
    /// The environment of commands.
    pub environment: &'a Environment,
    /// How commands are confined.
    pub sandbox: &'a Sandbox,
    /// The hosts that commands may reach; `None` if that is nothing or everything.
    pub egress: Option<&'a CallEgress>,
    /// Which files the agent's model takes.
    pub media: MediaSupport,
    /// When the call must end.
    pub limits: &'a CallLimits,
    /// Set if the run must end after this call.
    pub failure: &'a OnceLock<EnvironmentError>,
}

/// JSON Schema of a tool's options, without references.
pub(super) fn options_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// [`Builtin::parse_options`] of a tool without options.
pub(super) fn no_options(node: Option<&Node>) -> Decoded<Value> {
    let findings = node.filter(|node| !node.is_null()).map(|node| {
        Diagnostic::error("unexpected-tool-options", node.place(), "this tool has no options")
            .help("write only its name")
    });
    Decoded { value: Some(Value::Null), findings: findings.into_iter().collect(), gaps: Vec::new() }
}
