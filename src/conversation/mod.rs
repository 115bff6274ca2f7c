//! A recorded run as people read it: agents, their turns, and each call with its result. Transcript, `show`, report, step
//! summary and exports all show this one model.

mod read;
#[cfg(test)]
mod tests;

use jiff::Timestamp;

pub use self::read::{AgentReader, MAX_SHOWN_CHARS};
use crate::event::{
    AgentFinished, BeforeFinished, CallEnd, CheckFinished, ContextCompacted, LimitReached, MergedChanges, ModelChanged,
    NetworkRefused, NetworkUsed, NoResult, ProposedOutputs, ResultsTruncated, Resumed, RunResult, RunStarted,
    WorkspaceChanged,
};
use crate::message::{StopReason, Usage};
use crate::plan::Plan;
use crate::providers::Retry;

/// A recorded run, or what of it can be read.
#[derive(Debug)]
pub struct Conversation {
    /// The plan of the run.
    pub plan: Plan,
    /// The first event and its time; `None` if the journal doesn't have it.
    pub started: Option<(Timestamp, RunStarted)>,
    /// How the run ended, as `result.json` or else the journal says; `None` if it hasn't.
    pub result: Option<RunResult>,
    /// The parent.
    pub parent: AgentConversation,
    /// Subagents that have a journal, but no call of the parent that can be read.
    pub orphans: Vec<AgentConversation>,
    /// The files that the run changed.
    pub changes: Option<WorkspaceChanged>,
    /// What it proposes to do outside, and what was refused; `None` if its job has no outputs.
    pub proposed: Option<ProposedOutputs>,
    /// What of the record is missing or damaged, a sentence each.
    pub missing: Vec<String>,
    /// Whether a journal can't be read to its end, for another reason than an incomplete last line.
    pub is_damaged: bool,
}

/// What one agent did.
#[derive(Debug, Default)]
pub struct AgentConversation {
    /// Its id: `parent`, `explorer-1`.
    pub id: String,
    /// Which subagent of the plan it is; none for the parent.
    pub subagent: Option<String>,
    /// The parent's description of the task.
    pub description: Option<String>,
    /// Its model.
    pub model: String,
    /// Its first message.
    pub prompt: Text,
    /// When it started.
    pub started_at: Option<Timestamp>,
    /// When its last event happened.
    pub last_at: Option<Timestamp>,
    /// How it ended; `None` if it hasn't, or its journal ends early.
    pub finished: Option<AgentFinished>,
    /// What happened, in order. Nothing of it is in here twice.
    pub steps: Vec<Step>,
    /// What is no longer part of the conversation: requests that were sent again because the run was interrupted, and what
    /// followed a limit that was raised later. What they used counts as spent.
    pub dropped: Vec<Step>,
    /// Whether its journal isn't there any more: `steps` is empty although the agent ran. Then `prompt` is from its call.
    pub has_no_journal: bool,
}

/// A step of an agent.
#[derive(Debug)]
pub struct Step {
    /// When it happened, or started.
    pub at: Timestamp,
    /// What happened.
    pub kind: StepKind,
}

/// What happened in a step.
#[derive(Debug)]
pub enum StepKind {
    /// A request with its reply and the calls of the reply.
    Turn(Box<Turn>),
    /// A step before the agent, and its value. The value in the event is null.
    Before(BeforeFinished, Text),
    /// There was nothing to do: this condition was true.
    Skipped(String),
    /// The state with which the run began, as JSON.
    StateRead(Text),
    /// The state that the run leaves to the next one: how it differs from the one before.
    StateSet(Text),
    /// A note of legwork's own to the model: findings of checks, a repair, the turns that are left.
    Note(Text),
    /// The agent's model failed, and a fallback answers from here on.
    ModelChanged(ModelChanged),
    /// Old results were truncated to make room.
    ResultsTruncated(ResultsTruncated),
    /// Older turns were replaced by a summary. The summary's text is the second value; the event's own is empty. The step
    /// before is the request for it, a turn of [`TurnKind::Summary`].
    Compacted(ContextCompacted, Text),
    /// The text of the reply before became the agent's data.
    ResultTaken,
    /// A limit was reached.
    LimitReached(LimitReached),
    /// The limit with this key was raised, and the agent continues from before it. What followed the limit is in
    /// [`AgentConversation::dropped`].
    LimitRaised(String),
    /// A host was reached.
    NetworkUsed(NetworkUsed),
    /// A host wasn't reached.
    NetworkRefused(NetworkRefused),
    /// The run was resumed here.
    Resumed(Box<Resumed>),
    /// One attempt of the job's checks.
    Checks(CheckAttempt),
}

/// One attempt of the job's checks.
#[derive(Debug)]
pub struct CheckAttempt {
    /// Its number, from 1.
    pub attempt: u32,
    /// The checks in the order in which they ran: name, start, and the end if there was one. Of a long output, the beginning
    /// and the end are kept.
    pub checks: Vec<TimedCheck>,
}

/// A check: its name, its start, and its end if there was one.
pub type TimedCheck = (String, Timestamp, Option<(Timestamp, CheckFinished)>);

/// The purpose of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TurnKind {
    /// A turn of the conversation.
    #[default]
    Turn,
    /// The final request without tools, after a limit. It isn't a turn.
    FinalReply,
    /// A request for a summary of the conversation. It isn't a turn.
    Summary,
}

/// A request with its reply and the calls of the reply.
#[derive(Debug, Default)]
pub struct Turn {
    /// Its number, from 1. A request that failed permanently, one for a summary and the final reply have the number of a turn, too:
    /// only the turn that is [`Turn::is_turn`] has its number alone.
    pub number: u32,
    /// The purpose of the request.
    pub kind: TurnKind,
    /// When the reply was complete, or the request had failed permanently; `None` if the run ended before.
    pub replied_at: Option<Timestamp>,
    /// From request to last byte, retries included, in milliseconds.
    pub duration_ms: u64,
    /// The tries that failed, each with when.
    pub retries: Vec<(Timestamp, Retry)>,
    /// Why there is no reply, if the request failed permanently.
    pub failed: Option<String>,
    /// Why the reply couldn't be used, if it was discarded. The next turn has the next number.
    pub discarded: Option<String>,
    /// Whether the reply has nothing but thinking.
    pub is_empty: bool,
    /// The reply's blocks in order. A call is in `calls`.
    pub blocks: Vec<ReplyBlock>,
    /// The calls in the order in which the model asked for them.
    pub calls: Vec<Call>,
    /// Why the model stopped.
    pub stop: Option<StopReason>,
    /// The fallback model that was asked; `None` for the agent's own.
    pub fallback: Option<String>,
    /// The model that answered, if the server says so.
    pub model: Option<String>,
    /// The server's id of the request.
    pub request_id: Option<String>,
    /// The tokens of the request and the reply. Each of the `retries` has its own.
    pub usage: Usage,
    /// Their cost in US dollars. `None` if a price isn't known, the agent hasn't finished, or its total in the record shows that
    /// it had other prices than those in the list.
    pub cost_usd: Option<f64>,
}

/// A block of a reply.
#[derive(Debug)]
pub enum ReplyBlock {
    /// Text of the model.
    Text(Text),
    /// Thinking of the model.
    Thinking(Text),
    /// A call: its index in the turn's `calls`.
    Call(usize),
    /// The model refused, and why.
    Refusal(Text),
    /// A block of a type that legwork keeps without knowing it.
    Other(String),
}

/// A tool call with its result, if it has one.
#[derive(Debug, Default)]
pub struct Call {
    /// Its id in the reply.
    pub id: String,
    /// The tool's name.
    pub tool: String,
    /// Its main argument on one short line: a command, a path, a pattern. May be empty.
    pub subject: String,
    /// Its input as JSON.
    pub input: Text,
    /// When it started; `None` if it didn't, as the reply was discarded or the run ended before.
    pub started_at: Option<Timestamp>,
    /// When its result was there.
    pub finished_at: Option<Timestamp>,
    /// From start to result, in milliseconds.
    pub duration_ms: u64,
    /// Whether the result is an error of the tool.
    pub is_error: bool,
    /// The result that the model reads; `None` if the call has none.
    pub result: Option<Text>,
    /// Why the tool has no result of its own, if legwork answered the call instead.
    pub no_result: Option<NoResult>,
    /// How the changes of a subagent with a workspace of its own came back.
    pub merged: Option<MergedChanges>,
    /// The most characters of the result that the model still saw later, if it was truncated to make room.
    pub truncated_to: Option<u64>,
    /// The subagent that answered the call. Only the parent has subagents.
    pub child: Option<Box<AgentConversation>>,
}

impl Call {
    /// How it ended.
    pub fn end(&self) -> CallEnd<'_> {
        match &self.result {
            None if self.started_at.is_none() && self.no_result.is_none() => CallEnd::NotRun,
            None if self.no_result.is_none() => CallEnd::NotFinished,
            _ => CallEnd::of_result(self.no_result.as_ref(), self.is_error),
        }
    }
}

impl TurnKind {
    /// The name in exports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::FinalReply => "final_reply",
            Self::Summary => "summary",
        }
    }
}

impl Turn {
    /// Whether it is a turn of the conversation with a reply: not a failed request, a summary or the final reply.
    pub fn is_turn(&self) -> bool {
        self.kind == TurnKind::Turn && self.failed.is_none() && self.replied_at.is_some()
    }
}

/// A text, of which the beginning is kept if it is very long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text {
    /// The beginning, or all of it.
    pub shown: String,
    /// How many more characters it has.
    pub omitted_chars: u64,
}
