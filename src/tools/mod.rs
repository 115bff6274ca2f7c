//! What an agent can do. A new tool is one file here and one line in [`TOOLS`].

pub(crate) mod bash;
pub mod check_command;
mod edit_file;
pub mod environment;
mod glob;
mod grep;
mod input;
mod options;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod path_swap_races;
mod read_file;
pub mod submit_result;
pub mod task;
mod todo;
mod tool_state;
pub mod toolbox;
mod write_file;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use self::environment::Environment;
use self::toolbox::CallLimits;
use crate::diagnostic::{Rule, rule};
use crate::redaction::Redactor;
use crate::sandbox::Sandbox;
use crate::workspace::Workspace;
use crate::yaml;

pub use crate::process::reaper::kill_all;
pub use todo::{TodoItem, TodoStatus};
pub use tool_state::{FileVersion, ToolState};

/// How long a tool that only reads may take to notice that its time is up.
const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// A built-in tool, as [`TOOLS`] lists it.
pub struct Builtin {
    /// Its name in allowlists and calls.
    pub name: &'static str,
    /// Whether it changes nothing.
    pub reads_only: bool,
    /// Whether only the parent may have it.
    pub parent_only: bool,
    /// The field of its input that says what a call is about; `None` where no single one does.
    pub subject_field: Option<&'static str>,
    /// Checks a job's options (`None`: the tool was named without any) and gives them in their canonical form: complete,
    /// null where the tool has none.
    pub parse_options: fn(Option<&yaml::Node>) -> yaml::Decoded<Value>,
    /// JSON Schema of the options as a job writes them; `None` where the tool has none.
    pub options_schema: fn() -> Option<Value>,
    /// Makes the tool from canonical options.
    pub build: fn(&Value) -> Result<Box<dyn Tool>, String>,
}

/// What can be wrong with a tool's options, beside those that the reader of YAML finds in any file.
pub const RULES: &[Rule] = &[
    rule!(Error "unexpected-tool-options"),
    rule!(Error "bad-bash-rule"),
    rule!(Error "rule-test-failed"),
    rule!(Warning "empty-allow"),
];

/// All built-in tools.
pub static TOOLS: &[Builtin] = &[
    bash::BUILTIN,
    read_file::BUILTIN,
    write_file::BUILTIN,
    edit_file::BUILTIN,
    glob::BUILTIN,
    grep::BUILTIN,
    todo::BUILTIN,
    task::BUILTIN,
];

/// A tool that an agent was granted, as the plan holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolGrant {
    /// The tool's name.
    pub name: String,
    /// Its options, checked and complete; null where the tool has none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub options: Value,
}

/// A tool as a model sees it.
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
    /// What a model sees of a tool.
    pub fn of(tool: &dyn Tool) -> Self {
        Self { name: tool.name().to_owned(), description: tool.description(), input_schema: tool.input_schema() }
    }
}

/// Something that an agent can do. Built-in ones are listed in [`TOOLS`]; a [`Toolbox`](toolbox::Toolbox) holds anything that
/// implements this.
pub trait Tool: Send + Sync {
    /// Its name, as the model calls it.
    fn name(&self) -> &str;

    /// What the model is told about it, options included.
    fn description(&self) -> String;

    /// JSON Schema of its input, an object.
    fn input_schema(&self) -> Value;

    /// Whether it changes nothing, so that its calls may run side by side and again after a kill.
    fn reads_only(&self) -> bool {
        false
    }

    /// Takes note of a call that was answered before the run was cut off: whatever it left in the agent's memory is there
    /// again. Nothing else may happen.
    fn restore_state(&self, input: &RawValue, memory: &ToolState) {
        let _ = (input, memory);
    }

    /// Does it.
    ///
    /// # Errors
    /// A [`ToolError`] tells the model what went wrong; it never ends the run.
    fn call<'a>(&'a self, input: &'a RawValue, scope: &'a ToolContext<'a>) -> BoxFuture<'a, Result<String, ToolError>>;
}

/// What the model is told about a call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError(pub String);

impl ToolError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// What a call may use.
#[derive(Debug)]
pub struct ToolContext<'a> {
    /// The provider's id of the call.
    pub call_id: &'a str,
    /// The folder that the tools work in.
    pub workspace: &'a Arc<Workspace>,
    /// What the agent remembers from call to call.
    pub state: &'a Arc<ToolState>,
    /// The run's secrets, for output that is too much to be kept unmasked.
    pub mask: &'a Redactor,
    /// What commands see.
    pub environment: &'a Environment,
    /// How commands are confined.
    pub sandbox: &'a Sandbox,
    /// When the call must be over.
    pub limits: &'a CallLimits,
}

/// How many file tools work at once in this process. Each takes up to about 100 MB: a file, what becomes of it, and the
/// patterns of ignore files.
const MAX_FILE_CALLS: usize = 8;

/// Runs file work where waiting for a disk holds nobody up. Further calls wait while [`MAX_FILE_CALLS`] are at work.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    static PERMITS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(MAX_FILE_CALLS);
    // It is never closed.
    let permit = PERMITS.acquire().await.ok();
    let work = move || {
        let _permit = permit;
        work()
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(ToolError(format!("the tool broke: {error}"))),
    }
}

/// As [`off_thread`], for work that changes nothing: nobody waits for it much longer than the call may take. It looks for
/// its end itself, but a slow disk or a slow expression can keep it from that.
async fn run_blocking_until<T: Send + 'static>(
    limits: &CallLimits,
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let over = async {
        tokio::select! {
            () = limits.cancel.cancelled() => {}
            () = tokio::time::sleep_until(limits.deadline.into()) => {}
        }
        tokio::time::sleep(CANCEL_GRACE).await;
    };
    tokio::select! {
        done = run_blocking(work) => done,
        () = over => Err(ToolError::new(limits.stop_reason().unwrap_or("the run's time is up"))),
    }
}
