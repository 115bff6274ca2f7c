//! What happens in a run, as data: every step is an [`Event`]; the journal keeps them, formats show them.

mod agent_finished;
mod agent_id;
mod call_order;
mod journal_entry;
mod outcome;
mod run_result;
mod run_summary;

use std::collections::BTreeMap;
use std::io;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::agent_finished::AgentFinished;
pub use self::agent_id::is_agent_id;
pub use self::call_order::{CallOrder, in_call_order};
pub use self::journal_entry::JournalEntry;
pub use self::outcome::{EXIT_ENVIRONMENT, EXIT_INVALID, EXIT_USAGE, Outcome};
pub use self::run_result::{Change, ChangeKind, CheckResult, ErrorInfo, RunResult, SubagentResult, summary_file};
pub use self::run_summary::RunSummary;
pub use crate::message::Usage;
use crate::message::{Reply, ToolResult};
use crate::plan::Plan;
use crate::providers::{ProviderErrorKind, Retry};
use crate::tools::FileVersion;

pub use crate::plan::FORMAT;

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

            fn data(&self) -> serde_json::Result<Box<RawValue>> {
                match self { $(Self::$name(data) => serde_json::value::to_raw_value(data),)* }
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
    /// The run begins.
    RunStarted = "run_started",
    /// The run goes on after it was cut off; in the parent's journal.
    Resumed = "resumed",
    /// An agent begins.
    AgentStarted = "agent_started",
    /// A request is about to be made.
    RequestStarted = "request_started",
    /// A try failed and another follows.
    Retrying = "retrying",
    /// A whole reply has come.
    ReplyReceived = "reply_received",
    /// No reply came, and no further try follows.
    RequestFailed = "request_failed",
    /// A reply can't be used and is asked for again.
    ReplyDiscarded = "reply_discarded",
    /// Old results were shortened, to make room in the model's window.
    ResultsTruncated = "results_truncated",
    /// What went before was replaced by its summary, to make room in the model's window.
    ContextCompacted = "context_compacted",
    /// A call is about to be answered.
    CallStarted = "call_started",
    /// A call has its answer.
    CallFinished = "call_finished",
    /// legwork says something to the model beside answers.
    NoteSent = "note_sent",
    /// A limit bit.
    LimitReached = "limit_reached",
    /// The limit that had ended an agent was raised, and the agent goes on from before it.
    LimitRaised = "limit_raised",
    /// One of the job's checks is about to be run.
    CheckStarted = "check_started",
    /// One of the job's checks has ended.
    CheckFinished = "check_finished",
    /// What the run has changed in the workspace; just before its last line.
    WorkspaceChanged = "workspace_changed",
    /// An agent has ended; in its own journal, and a subagent's in its parent's as well.
    AgentFinished = "agent_finished",
    /// The run has ended; the last line.
    RunFinished = "run_finished",
}

/// The run begins.
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
    /// The scripts that models of the plan answer from, by the model's name, absolute.
    #[serde(default)]
    pub scripts: BTreeMap<String, String>,
    /// The record's folder, absolute: where the run began.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub folder: String,
    /// What the command line asked for, as far as it holds when the run goes on.
    #[serde(default, skip_serializing_if = "RunOptions::is_empty")]
    pub options: RunOptions,
    /// Of each secret that commands see an HMAC of its value, by its name: a run that goes on with another value can't mask
    /// this one any more. None where there is no key for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// The job file's text: `job.yaml`.
    pub job_file: String,
    /// What runs: `plan.json`.
    pub plan: Box<Plan>,
}

/// What the command line asked for, as far as it holds when the run goes on. Paths are absolute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunOptions {
    /// `--sandbox`, where it was given.
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
    /// `--untrusted`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// `--offline`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub offline: bool,
}

impl RunOptions {
    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The run goes on after it was cut off.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Resumed {
    /// Version of the legwork that goes on.
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
    /// When the part before was last seen to go on, where it was killed: its time counts up to then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_seen: Option<Timestamp>,
    /// The record's folder, absolute: where it is now.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub folder: String,
    /// What the command line asked for, this time or before.
    #[serde(default, skip_serializing_if = "RunOptions::is_empty")]
    pub options: RunOptions,
    /// As when the run began, of the values that the secrets have now.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Whether a secret had another value before, and so nothing of files' contents is kept from here on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_new_secrets: bool,
}

/// An agent begins.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AgentStarted {
    /// Which subagent of the plan it is; none for the parent.
    pub subagent: Option<String>,
    /// The parent's words for the task.
    pub description: Option<String>,
    /// Who answers.
    pub model: String,
    /// Its first message.
    pub prompt: String,
}

/// A request is about to be made.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RequestStarted {
    /// Which turn its reply will be, from 1; the last request without tools has the number of the turn before.
    pub turn: u32,
    /// The output tokens that it really asks for, after what the budget leaves.
    pub max_tokens: u32,
    /// Whether the model may call tools.
    pub tools_allowed: bool,
    /// Tokens set aside for it until its real usage is known.
    pub reserved_tokens: u64,
    /// What these cost in US dollars, where the price is known.
    #[serde(default)]
    pub reserved_cost_usd: Option<f64>,
    /// How many of the last turns stay as they are, where it asks for a summary of all before them, to make room. Such a
    /// request is no turn, and its reply no part of the conversation. Left out for every other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_turns: Option<u32>,
}

/// A try failed and another follows.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Retrying {
    /// What and when.
    pub retry: Retry,
}

/// A whole reply has come.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ReplyReceived {
    /// Its turn.
    pub turn: u32,
    /// The reply, block for block.
    pub reply: Reply,
    /// From request to last byte, retries included, in milliseconds.
    pub duration_ms: u64,
}

/// No reply came, and no further try follows.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RequestFailed {
    /// What that means for the run.
    pub kind: ProviderErrorKind,
    /// Why, in one sentence.
    pub reason: String,
    /// What the last try has used of tokens, as far as it is known; earlier ones have their own events.
    pub usage: Usage,
    /// How many tokens prompt and reply may have together, where the prompt was too long, the server said so, and nobody had
    /// known: what the run goes by from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
}

/// A reply can't be used and is asked for again.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ReplyDiscarded {
    /// Why, in one sentence.
    pub reason: String,
}

/// Old results were shortened, to make room in the model's window.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ResultsTruncated {
    /// The calls that they answer, in the order of the conversation.
    pub call_ids: Vec<String>,
    /// How many characters each has now at most.
    pub chars: u64,
    /// Tokens of the conversation, as estimated, before.
    pub tokens_before: u64,
    /// The same after.
    pub tokens_after: u64,
}

/// What went before was replaced by its summary, to make room in the model's window.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ContextCompacted {
    /// The model's summary. It stands behind the prompt now, and the turns that were kept follow.
    pub summary: String,
    /// How many of the last turns stay as they are.
    pub kept_turns: u32,
    /// Tokens of the conversation, as estimated, before.
    pub tokens_before: u64,
    /// The same after.
    pub tokens_after: u64,
}

/// A call is about to be answered.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CallStarted {
    /// The call's id in the reply.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// What it is about, in one short line: a command, a path, a pattern.
    pub subject: String,
    /// The subagent that answers a `task` call.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "agent_id::optional_agent_id")]
    pub child: Option<String>,
}

/// A call has its answer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CallFinished {
    /// The tool's name.
    pub tool: String,
    /// What the model is told.
    pub result: ToolResult,
    /// From start to answer, in milliseconds.
    pub duration_ms: u64,
    /// The file that it showed or wrote, as the agent knows it since then. Left out where the call did no such thing, or
    /// the file holds a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_version: Option<FileVersion>,
}

/// legwork says something to the model beside answers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NoteSent {
    /// What.
    pub text: String,
}

/// A limit bit.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LimitReached {
    /// Its key in the job file: `max_turns`, `limits.cost_usd`.
    pub limit: String,
    /// What happened, in one sentence.
    pub message: String,
}

/// The limit that had ended an agent was raised. What the agent did because of the limit, its last request without tools
/// above all, is no longer part of its conversation; what that used stays spent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LimitRaised {
    /// The limit, as `limit_reached` named it.
    pub limit: String,
    /// The subagents that the limit had ended. They go on, too, and their `task` calls are answered again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subagents: Vec<String>,
    /// The ids of the calls that were refused because of the limit. They are run now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<String>,
}

/// One of the job's checks is about to be run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CheckStarted {
    /// Its name.
    pub name: String,
    /// Which attempt, from 1.
    pub attempt: u32,
}

/// One of the job's checks has ended.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CheckFinished {
    /// Its name.
    pub name: String,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// Whether it passed.
    pub passed: bool,
    /// The command's exit code; null where it had none.
    pub exit_code: Option<i32>,
    /// What it printed, masked and bounded; and why it has no exit code, where that is so.
    pub output: String,
    /// Its running time in milliseconds.
    pub duration_ms: u64,
}

/// What the run has changed in the workspace.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceChanged {
    /// The files, in the order of their paths.
    pub changes: Vec<Change>,
    /// How many files have changed, where that is more than `changes` lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// `changes.patch`: the same as a unified diff, masked and bounded.
    pub patch: String,
    /// What is left out of either, in one sentence, where something is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
}

/// The run has ended.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RunFinished {
    /// How.
    pub outcome: Outcome,
    /// The exit code.
    pub exit_code: u8,
    /// What the operator must know, where it didn't go well.
    pub error: Option<ErrorInfo>,
}

/// Where a run's events go. The loop knows no files: it hands each step over and goes on when it is kept.
pub trait Sink: Send + Sync {
    /// Keeps an event of an agent.
    ///
    /// # Errors
    /// Where it couldn't be kept; the run must stop before the next step.
    fn record(&self, agent: &str, event: Event, durability: Durability) -> io::Result<()>;

    /// A piece of an agent's text as it streams in; to be shown, never kept.
    fn text(&self, agent: &str, piece: &str);
}

/// How safe an event must be before the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// With the operating system: it outlives this process.
    Written,
    /// On the disk: it outlives the machine.
    Flushed,
}
