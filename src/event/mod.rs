//! The events of a run: the journal keeps them, and formats show them.

mod call_end;
mod cut_off_requests;
mod journal_entry;
mod outcome;
mod output_calls;
mod run_model;
mod run_result;
mod run_use;
mod stopwatch;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

pub use self::call_end::CallEnd;
pub use self::cut_off_requests::CutOffRequests;
pub use self::journal_entry::{JournalEntry, is_agent_id};
pub use self::outcome::Outcome;
pub use self::output_calls::{OutputCalls, ProposedOutputs, RefusedOutput};
pub use self::run_model::{AgentModel, AgentPhase, FailedCall, RunModel, RunningStep, StepBefore};
pub use self::run_result::{
    Change, ChangeKind, CheckResult, ErrorInfo, RunResult, StateResult, StepResult, SubagentResult, summary_file,
};
pub use self::run_use::{AgentUse, RunUse, Spend, request_cost};
pub use self::stopwatch::{Stopwatch, running_time};
use crate::attachment::Attachment;
use crate::egress::RefusedReason;
pub use crate::message::Usage;
use crate::message::{Reply, ToolResult};
use crate::outputs::{Accepted, Proposal};
use crate::plan::Plan;
use crate::providers::{ProviderErrorKind, Retry};
use crate::tools::FileVersion;

use crate::text::{diff, truncate};

pub use crate::plan::FORMAT;

/// The longest difference between two states, in characters.
const MAX_DIFFERENCE_CHARS: usize = 20_000;

/// The parent's id; a subagent's is its name and a number, `explorer-1`.
pub const PARENT: &str = "parent";

macro_rules! events {
    ($($(#[doc = $doc:literal])* $name:ident = $kind:literal,)*) => {
        /// One step of a run.
        #[derive(Debug, Clone)]
        pub enum Event {
            $($(#[doc = $doc])* $name($name),)*
        }

        impl Event {
            /// The name that a journal line carries in `type`.
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$name(_) => $kind,)* }
            }

            fn serialize_data<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self { $(Self::$name(data) => data.serialize(serializer),)* }
            }

            fn parse(kind: &str, data: &RawValue) -> serde_json::Result<Self> {
                match kind {
                    $($kind => Ok(Self::$name(serde_json::from_str(data.get())?)),)*
                    other => Err(serde::de::Error::custom(format!("unknown event `{other}`"))),
                }
            }

            /// What `data` is for each `type`, as JSON Schema, with what the event means.
            pub fn schemas(generator: &mut SchemaGenerator) -> Vec<(&'static str, &'static str, Schema)> {
                vec![$(($kind, concat!($($doc),*), generator.subschema_for::<$name>()),)*]
            }
        }

        $(impl From<$name> for Event {
            fn from(data: $name) -> Self { Self::$name(data) }
        })*
    };
}

events! {
    /// The run starts.
    RunStarted = "run_started",
    /// An interrupted run continues; in the parent's journal.
    Resumed = "resumed",
    /// The state that the run begins with, if its job keeps one; in the parent's journal.
    StateRead = "state_read",
    /// A step before the agent starts; in the parent's journal.
    BeforeStarted = "before_started",
    /// A step before the agent has ended.
    BeforeFinished = "before_finished",
    /// There is nothing to do: no agent starts.
    RunSkipped = "run_skipped",
    /// An agent starts.
    AgentStarted = "agent_started",
    /// A request is about to be sent.
    RequestStarted = "request_started",
    /// A try failed and another follows.
    Retrying = "retrying",
    /// A complete reply has arrived.
    ReplyReceived = "reply_received",
    /// No reply arrived, and no further try follows.
    RequestFailed = "request_failed",
    /// The run was stopped before a reply had arrived.
    RequestInterrupted = "request_interrupted",
    /// The agent's model failed, and from here on another one answers.
    ModelChanged = "model_changed",
    /// A reply can't be used, and the model is asked again.
    ReplyDiscarded = "reply_discarded",
    /// Old results were truncated to make room in the model's window.
    ResultsTruncated = "results_truncated",
    /// Older turns were replaced by a summary to make room in the model's window.
    ContextCompacted = "context_compacted",
    /// A tool call starts.
    CallStarted = "call_started",
    /// A tool call has its result.
    CallFinished = "call_finished",
    /// A host that a command, a check, a step or a tool server reached.
    NetworkUsed = "network_used",
    /// A host that it didn't reach.
    NetworkRefused = "network_refused",
    /// legwork sends a note of its own to the model.
    NoteSent = "note_sent",
    /// The text of a reply became an agent's data.
    ResultTaken = "result_taken",
    /// A limit was reached.
    LimitReached = "limit_reached",
    /// The limit that had ended an agent was raised, and the agent continues from before it.
    LimitRaised = "limit_raised",
    /// One of the job's checks starts.
    CheckStarted = "check_started",
    /// One of the job's checks has ended.
    CheckFinished = "check_finished",
    /// The changes of the run in the workspace; just before the last line.
    WorkspaceChanged = "workspace_changed",
    /// What the run proposes to do outside, all of it together; before the last line.
    OutputsProposed = "outputs_proposed",
    /// The state that the run leaves to the next one, if it has completed and replaced it; before the last line.
    StateSet = "state_set",
    /// An agent has ended; in its own journal, and a subagent's in its parent's as well.
    AgentFinished = "agent_finished",
    /// The run has ended; the last line.
    RunFinished = "run_finished",
}

/// The run starts.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RunStarted {
    /// Version of the journal's format: 2.
    pub format: u32,
    /// Version of the legwork that wrote it.
    pub version: String,
    /// The run's id.
    pub run_id: String,
    /// The job's name.
    pub job: String,
    /// The workspace, absolute.
    pub workspace: String,
    /// How tools are confined.
    pub sandbox: String,
    /// The commit that is checked out in the workspace, where there is one.
    #[serde(default)]
    pub commit: Option<String>,
    /// The job file and its prompts, absolute: what tools may not change.
    #[serde(default)]
    pub protected: Vec<String>,
    /// The absolute paths of the scripts that models of the plan answer from, by the model's name.
    #[serde(default)]
    pub scripts: BTreeMap<String, String>,
    /// The absolute path of the record's folder when the run started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub folder: String,
    /// The options of the command line that also hold when the run is resumed.
    #[serde(default, skip_serializing_if = "RunOptions::is_empty")]
    pub options: RunOptions,
    /// An HMAC of the value of each secret that commands see, by its name. A resume with another value can't redact this one
    /// any more. Empty without a key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// SHA-256 of the files that the job file names, by their paths from its folder, if the job has outputs: `publish` compares
    /// them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub job_files: BTreeMap<String, String>,
    /// The job file's text: `job.yaml`.
    pub job_file: String,
    /// What runs: `plan.json`.
    pub plan: Box<Plan>,
}

/// The options of the command line that also hold when the run is resumed. Paths are absolute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunOptions {
    /// `--sandbox`, if it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// `--allow-read`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_read: Vec<String>,
    /// `--allow-write`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_write: Vec<String>,
    /// `--result`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The file of the state: `--state`, or its default. Absent if the job keeps none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// `--allow-private`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_private: Vec<String>,
    /// `--connect-to`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connect_to: Vec<String>,
    /// `--untrusted`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// `--offline`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub offline: bool,
}

impl RunOptions {
    /// Whether no option was given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An interrupted run continues.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Resumed {
    /// Version of the legwork that resumes the run.
    pub version: String,
    /// The workspace, absolute.
    pub workspace: String,
    /// How tools are confined.
    pub sandbox: String,
    /// The commit that is checked out in the workspace, where there is one.
    pub commit: Option<String>,
    /// The limits that `--limit` replaced, from here on: `cost_usd`, `max_turns`, `explorer.max_turns`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
    /// When the part before was last alive, if it was killed: its running time counts up to then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_seen: Option<Timestamp>,
    /// The absolute path of the record's folder now.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub folder: String,
    /// The options of the command line, of this time or before.
    #[serde(default, skip_serializing_if = "RunOptions::is_empty")]
    pub options: RunOptions,
    /// An HMAC of the current value of each secret, as in `run_started`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Whether a secret had another value before. From here on, no contents of files are kept then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_new_secrets: bool,
}

/// The state that the run begins with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StateRead {
    /// The value, redacted.
    pub value: serde_json::Value,
    /// SHA-256 of the file that it is from; absent if there was none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// The state that the run leaves to the next one. After the last line it is written to its file, if it isn't there yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StateSet {
    /// The value.
    pub value: serde_json::Value,
    /// How it differs from the value in `state_read`: a diff of both as JSON, at most 20,000 characters; empty if it doesn't.
    pub difference: String,
}

impl StateSet {
    /// A value in place of the one before.
    pub fn new(before: &serde_json::Value, value: &serde_json::Value) -> Self {
        let difference = diff::unified(&format!("{before:#}\n"), &format!("{value:#}\n"));
        Self { value: value.clone(), difference: truncate::truncate_middle(difference, MAX_DIFFERENCE_CHARS) }
    }
}

/// A step before the agent starts. One without an end, because the run was interrupted, runs again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BeforeStarted {
    /// Its name.
    pub name: String,
}

/// A step before the agent has ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BeforeFinished {
    /// Its name.
    pub name: String,
    /// Its value, redacted: text or JSON. Null if it failed.
    pub value: serde_json::Value,
    /// Why it failed, in one sentence; null if it didn't. The run continues if the step is optional, and ends otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the user should know about its value, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// The command's exit code; null if it had none.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// What it wrote to standard error, redacted and truncated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// Its running time in milliseconds.
    pub duration_ms: u64,
}

impl BeforeFinished {
    /// The value as people read it, or what the step wrote to standard error if it has none.
    pub fn shown(&self) -> Cow<'_, str> {
        let value = match &self.value {
            serde_json::Value::String(text) => Cow::Borrowed(text.as_str()),
            serde_json::Value::Null => Cow::default(),
            data => Cow::Owned(format!("{data:#}")),
        };
        if value.is_empty() { Cow::Borrowed(&self.stderr) } else { value }
    }
}

/// There is nothing to do: `skip_if` is true, and no agent starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunSkipped {
    /// The condition as the job has it.
    pub condition: String,
}

/// An agent starts.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AgentStarted {
    /// Which subagent of the plan it is; none for the parent.
    pub subagent: Option<String>,
    /// The parent's description of the task.
    pub description: Option<String>,
    /// Its model.
    pub model: String,
    /// Its first message.
    pub prompt: String,
}

/// A request is about to be sent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RequestStarted {
    /// The turn of its reply, from 1. A final request without tools has the number of the turn before.
    pub turn: u32,
    /// The output tokens that it asks for: as planned, or what the budget leaves.
    pub max_tokens: u32,
    /// Whether the model may call tools.
    pub tools_allowed: bool,
    /// The tokens that are reserved for it until its real usage is known.
    pub reserved_tokens: u64,
    /// Their cost in US dollars, if the price is known.
    #[serde(default)]
    pub reserved_cost_usd: Option<f64>,
    /// How many of the last turns are kept, if the request asks for a summary of all turns before them. Such a request isn't a
    /// turn, and its reply isn't part of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_turns: Option<u32>,
    /// The fallback model that it is sent to; absent for the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A try failed and another follows.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Retrying {
    /// The failed try, and when the next one follows.
    pub retry: Retry,
}

/// A complete reply has arrived.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ReplyReceived {
    /// Its turn.
    pub turn: u32,
    /// The reply, block for block.
    pub reply: Reply,
    /// From request to last byte, retries included, in milliseconds.
    pub duration_ms: u64,
}

/// No reply arrived, and no further try follows.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RequestFailed {
    /// What the failure means for the run.
    pub kind: ProviderErrorKind,
    /// Why, in one sentence.
    pub reason: String,
    /// The tokens that the last try used, if known. Earlier tries have their own events.
    pub usage: Usage,
    /// How many tokens the prompt and the reply may have together, if the prompt was too long and the server reported a window
    /// that wasn't known. The run uses it from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
}

/// The run was stopped before a reply had arrived. Nothing is recorded if the process was killed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RequestInterrupted {
    /// The tokens of what had arrived: of the prompt, and of the part of the reply. The budget of a run that is resumed counts what was
    /// reserved instead, because the provider may count more.
    pub usage: Usage,
}

/// The agent's model failed after all retries, and from here on its next fallback answers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ModelChanged {
    /// The model that failed.
    pub from: String,
    /// The model that answers now.
    pub to: String,
    /// Why the first one failed, in one sentence.
    pub reason: String,
}

/// A reply can't be used, and the model is asked again.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ReplyDiscarded {
    /// Why, in one sentence.
    pub reason: String,
}

/// Old results were truncated to make room in the model's window.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ResultsTruncated {
    /// The calls that they belong to, in the order of the conversation.
    pub call_ids: Vec<String>,
    /// The most characters that each has now.
    pub chars: u64,
    /// Whether only their images and documents were removed, because the request with them was refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// The estimated tokens of the conversation before.
    pub tokens_before: u64,
    /// The estimated tokens of the conversation after.
    pub tokens_after: u64,
}

/// Older turns were replaced by a summary to make room in the model's window.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ContextCompacted {
    /// The model's summary. It now follows the prompt, and the kept turns follow it.
    pub summary: String,
    /// How many of the last turns were kept.
    pub kept_turns: u32,
    /// The estimated tokens of the conversation before.
    pub tokens_before: u64,
    /// The estimated tokens of the conversation after.
    pub tokens_after: u64,
}

/// A tool call starts.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CallStarted {
    /// The call's id in the reply.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// Its subject in one short line: a command, a path, a pattern.
    pub subject: String,
    /// The subagent that answers a `task` call.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "journal_entry::optional_agent_id")]
    pub child: Option<String>,
}

/// A tool call has its result.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CallFinished {
    /// The tool's name.
    pub tool: String,
    /// The result that the model reads.
    pub result: ToolResult,
    /// From start to result, in milliseconds.
    pub duration_ms: u64,
    /// The version of the file that it read or wrote. Left out if it did neither, or the file contains a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_version: Option<FileVersion>,
    /// Why the tool has no result of its own, if legwork answered the call instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_result: Option<NoResult>,
    /// How the changes of a subagent with a workspace of its own came back into the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<MergedChanges>,
    /// What the call proposed to do outside, if it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<Proposal>,
}

/// A host that a command, a check, a step or a tool server reached. A call can have several of them for the same host: what is in one
/// isn't in another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkUsed {
    /// The id of the call; `check NAME`, `step NAME` or `server NAME` for what isn't a call.
    pub call: String,
    /// The host's name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How many connections were made.
    pub connections: u64,
    /// The bytes that were sent.
    pub sent_bytes: u64,
    /// The bytes that were received.
    pub received_bytes: u64,
}

/// A host that a command, a check, a step or a tool server didn't reach. At most 100 a call, and 1,000 a run; the last one counts the
/// rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkRefused {
    /// The id of the call; `check NAME`, `step NAME` or `server NAME` for what isn't a call.
    pub call: String,
    /// The name, or the address if no name was used.
    pub host: String,
    /// The port; null if a name was looked up.
    pub port: Option<u16>,
    /// Why.
    pub reason: RefusedReason,
    /// How often.
    pub count: u64,
}

impl NetworkRefused {
    /// What was refused: `files.example.com:443`.
    pub fn target(&self) -> String {
        self.port.map_or_else(|| self.host.clone(), |port| format!("{}:{port}", self.host))
    }
}

/// How the changes of a subagent with a workspace of its own came back into the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MergedChanges {
    /// The files that the subagent changed, from the workspace. The workspace has the changes now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Why none of its changes were applied: each file that conflicts, and how.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    /// Whether some of the changes may be in the workspace in spite of the conflicts, because the run was interrupted before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_be_partial: bool,
    /// What isn't known about the changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Why a call has no result of its tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NoResult {
    /// The call wasn't run because of the limit with this key.
    Limit(String),
    /// The run was interrupted during the call, so its effect is unknown.
    Interrupted,
}

/// legwork sends a note of its own to the model.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NoteSent {
    /// The note.
    pub text: String,
}

/// The text of a last reply was taken as the agent's data: it is JSON that matches the schema, and the model hadn't submitted
/// any.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ResultTaken {
    /// The data.
    pub result: serde_json::Value,
}

/// A limit was reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitReached {
    /// Its key in the job file: `max_turns`, `limits.cost_usd`.
    pub limit: String,
    /// What happened, in one sentence.
    pub message: String,
}

impl LimitReached {
    /// A limit and what happened.
    pub fn new(limit: &str, message: impl Into<String>) -> Self {
        Self { limit: limit.to_owned(), message: message.into() }
    }

    /// Whether it is a limit of the whole run.
    pub fn is_run_limit(&self) -> bool {
        self.limit.starts_with("limits")
    }
}

/// The limit that had ended an agent was raised. What the agent did because of the limit, such as its final request, is no
/// longer part of its conversation, but counts as spent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LimitRaised {
    /// The limit, as `limit_reached` named it.
    pub limit: String,
    /// The subagents that the limit had ended. They continue, too, and their `task` calls get new results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subagents: Vec<String>,
    /// The ids of the calls that were refused because of the limit. They run now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<String>,
}

/// One of the job's checks starts.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CheckStarted {
    /// Its name.
    pub name: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

/// One of the job's checks has ended.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CheckFinished {
    /// Its name.
    pub name: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Whether it passed.
    pub passed: bool,
    /// The command's exit code; null if it had none.
    pub exit_code: Option<i32>,
    /// Its output, redacted and truncated, and the reason if it has no exit code.
    pub output: String,
    /// Its running time in milliseconds.
    pub duration_ms: u64,
}

/// The changes of the run in the workspace.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceChanged {
    /// The files, in the order of their paths.
    pub changes: Vec<Change>,
    /// How many files have changed, if that is more than `changes` lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The contents of `changes.patch`: a unified diff, redacted and bounded.
    pub patch: String,
    /// What `changes` and `patch` leave out, in one sentence, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// The files and folders that the run made or changed and that git ignores, if it had a workspace of its own, with which they
    /// are removed. At most 100; folders end with `/`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
}

/// What the run proposes to do outside: what its agents proposed and no later call replaced. `outputs.json` has it, too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutputsProposed {
    /// The accepted outputs and, if there are none, why nothing is to be done.
    pub accepted: Accepted,
}

/// An agent has ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentFinished {
    /// Its id.
    #[serde(deserialize_with = "journal_entry::agent_id")]
    pub id: String,
    /// Which subagent of the plan it was; none for the parent.
    pub subagent: Option<String>,
    /// The parent's description of the task.
    pub description: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// Its last text; empty if it had none.
    pub text: String,
    /// Why the model refused, if it did and its provider says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The data that it ended with, if it had to end with data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// The fallback model that gave the last reply; absent if it was the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// The replies that it got, without the one to a final request.
    pub turns: u32,
    /// The tool calls that it made.
    pub tool_calls: u64,
    /// How many times its conversation was compacted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub compactions: u32,
    /// Its own tokens.
    pub usage: Usage,
    /// Its own cost in US dollars, if every price is known.
    pub cost_usd: Option<f64>,
    /// The requests that were cut off; absent if there are none. The tokens and the cost contain what was reserved for them.
    #[serde(default, skip_serializing_if = "CutOffRequests::is_none")]
    pub cut_off_requests: CutOffRequests,
    /// Its running time in milliseconds.
    pub duration_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The run has ended.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RunFinished {
    /// How it ended.
    pub outcome: Outcome,
    /// The exit code.
    pub exit_code: u8,
    /// The error, if the run didn't complete.
    pub error: Option<ErrorInfo>,
}

/// Where the events of a run go. The loop knows no files: it hands each event over and continues once it is recorded.
pub trait Sink: Send + Sync {
    /// Records an event of an agent.
    ///
    /// # Errors
    /// The event couldn't be recorded; the run must stop before the next step.
    fn record(&self, agent: &str, event: Event) -> io::Result<()>;

    /// Returns once an agent's events are on the disk: they survive a crash of the machine, and not only of this process.
    ///
    /// # Errors
    /// They may not be on the disk; the run must stop before the next step.
    fn flush<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, io::Result<()>>;

    /// Keeps the bytes of an image or a document, before an event names it.
    ///
    /// # Errors
    /// They couldn't be kept; the run must stop before the next step.
    fn keep(&self, attachment: &Attachment) -> io::Result<()> {
        let _ = attachment;
        Ok(())
    }
}
