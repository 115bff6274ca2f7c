//! Steps of a run in words. The transcript, `show`, the report, the exports and the lines of progress say the same about a
//! step, because all of them ask here.

use serde_json::{Value, json};

use super::run_stats;
use crate::conversation::{AgentConversation, Call, CheckAttempt, ReplyBlock, Step, StepKind, Text, Turn, TurnKind};
use crate::event::{
    AgentFinished, BeforeFinished, CallEnd, CallFinished, CheckFinished, ContextCompacted, Event, LimitReached,
    ModelChanged, NetworkRefused, NetworkUsed, ResultsTruncated,
};
use crate::message::StopReason;
use crate::providers::Retry;
use crate::text::pluralize;

/// The titles of the state at the start and at the end.
const STATE_READ: &str = "State at the start";
const STATE_SET: &str = "State for the next run";

fn before_title(name: &str) -> String {
    format!("step {name}")
}

/// A step, or a part of one, in words. All texts are untrusted.
#[derive(Debug, Default)]
pub struct StepView<'a> {
    /// What kind of step it is, as the exports name it: `limit_reached`.
    pub kind: &'static str,
    /// What it is: `Limit max_turns`, `bash`, `check tests pass`.
    pub title: String,
    /// The main argument of a call; may be empty.
    pub argument: &'a str,
    /// The subagent that answers a call.
    pub child: Option<&'a AgentConversation>,
    /// How it ended, or why it happened; may be empty.
    pub note: String,
    /// How long it took, in milliseconds, if that says something.
    pub duration_ms: Option<u64>,
    /// Whether something went wrong.
    pub severity: Severity,
    /// A text that belongs to it, below a heading that may be empty.
    pub block: Option<(&'static str, &'a Text)>,
    /// The same for programs.
    pub facts: Vec<(&'static str, Value)>,
}

/// Whether something went wrong in a step.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Nothing went wrong.
    #[default]
    Normal,
    /// Something failed, or a limit was reached.
    Failure,
}

impl Severity {
    fn of(is_failure: bool) -> Self {
        if is_failure { Self::Failure } else { Self::Normal }
    }
}

impl<'a> StepView<'a> {
    fn new(kind: &'static str, title: impl Into<String>, note: impl Into<String>) -> Self {
        Self { kind, title: title.into(), note: note.into(), ..Self::default() }
    }

    fn failure(kind: &'static str, title: impl Into<String>, note: impl Into<String>) -> Self {
        Self { severity: Severity::Failure, ..Self::new(kind, title, note) }
    }

    fn with_facts(mut self, facts: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        self.facts.extend(facts);
        self
    }

    /// A step; `None` for a turn and for checks, which have parts.
    pub fn of_step(step: &'a Step) -> Option<Self> {
        Some(match &step.kind {
            StepKind::Turn(_) | StepKind::Checks(_) => return None,
            StepKind::Before(step, value) => {
                Self { block: (!value.shown.is_empty()).then_some(("", value)), ..Self::of_before(step) }
            }
            StepKind::Skipped(condition) => Self::of_skip(condition),
            StepKind::StateRead(value) => Self { block: Some(("", value)), ..Self::new("state_read", STATE_READ, "") },
            StepKind::StateSet(difference) => {
                Self { block: Some(("", difference)), ..Self::new("state_set", STATE_SET, "") }
            }
            StepKind::Note(text) => Self { block: Some(("", text)), ..Self::new("note", "legwork to the model", "") },
            StepKind::ModelChanged(event) => Self::of_model_change(event),
            StepKind::ResultsTruncated(event) => Self::of_truncation(event),
            StepKind::Compacted(event, summary) => {
                Self { block: Some(("Conversation summary", summary)), ..Self::of_compaction(event) }
            }
            StepKind::ResultTaken => Self::of_taken_result(),
            StepKind::LimitReached(event) => Self::of_limit(event),
            StepKind::LimitRaised(limit) => Self::of_raised_limit(limit),
            StepKind::NetworkUsed(event) => Self::of_used_host(event),
            StepKind::NetworkRefused(event) => Self::of_refused_host(event),
            StepKind::Resumed(resumed) => {
                let limits: Vec<String> =
                    resumed.limits.iter().map(|(name, value)| format!("{name}={value}")).collect();
                let with = if limits.is_empty() { String::new() } else { format!(", with {}", limits.join(", ")) };
                let at = step.at.strftime("%Y-%m-%d %H:%M:%S UTC");
                Self::new("resumed", format!("Resumed at {at}{with}"), "")
                    .with_facts([("version", json!(resumed.version))])
            }
        })
    }

    /// An event that is a step or a part of one; `None` if nothing is said about it.
    pub fn of_event(event: &'a Event) -> Option<Self> {
        Some(match event {
            Event::BeforeStarted(started) => Self::new("before", before_title(&started.name), ""),
            Event::BeforeFinished(finished) => Self::of_before(finished),
            Event::RunSkipped(skipped) => Self::of_skip(&skipped.condition),
            Event::StateSet(_) => Self::new("state_set", STATE_SET, ""),
            Event::Retrying(retrying) => Self::of_retry(&retrying.retry),
            Event::ReplyDiscarded(discarded) => Self::of_discarded_reply(&discarded.reason),
            Event::ModelChanged(event) => Self::of_model_change(event),
            Event::ResultsTruncated(event) => Self::of_truncation(event),
            Event::ContextCompacted(event) => Self::of_compaction(event),
            Event::ResultTaken(_) => Self::of_taken_result(),
            Event::LimitReached(event) => Self::of_limit(event),
            Event::LimitRaised(raised) => Self::of_raised_limit(&raised.limit),
            Event::NetworkUsed(event) => Self::of_used_host(event),
            Event::NetworkRefused(event) => Self::of_refused_host(event),
            Event::CallFinished(finished) => Self::of_finished_call(finished),
            Event::CheckStarted(started) => Self::new("check", check_title(&started.name, started.attempt), ""),
            Event::CheckFinished(finished) => Self::of_check(&finished.name, finished.attempt, Some(finished)),
            _ => return None,
        })
    }

    /// A host that was reached.
    fn of_used_host(event: &NetworkUsed) -> Self {
        let NetworkUsed { call, host, port, connections, sent_bytes, received_bytes } = event;
        let note = format!(
            "{}, {} sent, {} received",
            pluralize(*connections, "connection"),
            pluralize(*sent_bytes, "byte"),
            pluralize(*received_bytes, "byte"),
        );
        Self::new("network_used", format!("Network {host}:{port}"), note).with_facts([
            ("call", json!(call)),
            ("host", json!(host)),
            ("port", json!(port)),
            ("connections", json!(connections)),
            ("sent_bytes", json!(sent_bytes)),
            ("received_bytes", json!(received_bytes)),
        ])
    }

    /// A host that wasn't reached.
    fn of_refused_host(event: &NetworkRefused) -> Self {
        let NetworkRefused { call, host, port, reason, count } = event;
        let times = if *count == 1 { String::new() } else { format!(", {count} times") };
        Self::failure("network_refused", format!("No access to {}", event.target()), format!("{reason}{times}"))
            .with_facts([
                ("call", json!(call)),
                ("host", json!(host)),
                ("port", json!(port)),
                ("reason", json!(reason)),
                ("count", json!(count)),
            ])
    }

    /// A step before the agent.
    fn of_before(step: &BeforeFinished) -> Self {
        let note = match (&step.error, &step.warning) {
            (Some(error), _) => format!("failed: {error}"),
            (None, Some(warning)) => warning.clone(),
            (None, None) => String::new(),
        };
        Self {
            duration_ms: Some(step.duration_ms),
            severity: Severity::of(step.error.is_some()),
            ..Self::new("before", before_title(&step.name), note)
        }
        .with_facts([("step", json!(step.name)), ("exit_code", json!(step.exit_code))])
    }

    fn of_skip(condition: &str) -> Self {
        Self::new("run_skipped", "Skipped", format!("`skip_if` is true: {condition}"))
            .with_facts([("condition", json!(condition))])
    }

    /// A tool call.
    pub fn of_call(call: &'a Call) -> Self {
        let child = call.child.as_deref();
        Self { argument: &call.subject, child, ..Self::of_ended_call(&call.tool, call.end(), call.duration_ms) }
    }

    /// A call that has its result, without what was asked.
    fn of_finished_call(finished: &CallFinished) -> Self {
        Self::of_ended_call(&finished.tool, finished.end(), finished.duration_ms)
    }

    fn of_ended_call(tool: &str, end: CallEnd<'_>, duration_ms: u64) -> Self {
        let note = if end.is_failure() { end.to_string() } else { String::new() };
        let duration_ms = matches!(end, CallEnd::Succeeded | CallEnd::Failed).then_some(duration_ms);
        Self { duration_ms, severity: Severity::of(end.is_failure()), ..Self::new("call", tool, note) }
    }

    /// The check at this index of an attempt.
    pub fn of_check_at(attempt: &CheckAttempt, index: usize) -> Self {
        let (name, _, end) = &attempt.checks[index];
        Self::of_check(name, attempt.attempt, end.as_ref().map(|(_, end)| end))
    }

    fn of_check(name: &str, attempt: u32, end: Option<&CheckFinished>) -> Self {
        let note =
            end.map_or(CallEnd::NotFinished.to_string(), |end| run_stats::check_verdict(end.passed, end.exit_code));
        let exit_code = end.and_then(|end| end.exit_code);
        Self {
            duration_ms: end.map(|end| end.duration_ms),
            severity: Severity::of(!end.is_some_and(|end| end.passed)),
            ..Self::new("check", check_title(name, attempt), note)
        }
        .with_facts([("check", json!(name)), ("attempt", json!(attempt)), ("exit_code", json!(exit_code))])
    }

    /// A try of a request that failed.
    pub fn of_retry(retry: &Retry) -> Self {
        let title = format!("Attempt {} failed, retrying in {}", retry.attempt, run_stats::duration(retry.wait_ms));
        Self::failure("retry", title, &retry.reason).with_facts([
            ("attempt", json!(retry.attempt)),
            ("wait_ms", json!(retry.wait_ms)),
            ("reason", json!(retry.reason)),
        ])
    }

    /// A reply that can't be used.
    pub fn of_discarded_reply(why: &str) -> Self {
        Self::failure("reply_discarded", "Reply discarded", why).with_facts([("reason", json!(why))])
    }

    fn of_model_change(event: &ModelChanged) -> Self {
        let note = format!("{} failed, {} answers from here on: {}", event.from, event.to, event.reason);
        Self::failure("model_changed", "Fallback", note)
            .with_facts([("model", json!(event.to)), ("reason", json!(event.reason))])
    }

    fn of_truncation(event: &ResultsTruncated) -> Self {
        Self::new("results_truncated", "Compaction", run_stats::truncation_summary(event)).with_facts([
            ("call_ids", json!(event.call_ids)),
            ("chars", json!(event.chars)),
            ("tokens_before", json!(event.tokens_before)),
            ("tokens_after", json!(event.tokens_after)),
        ])
    }

    fn of_compaction(event: &ContextCompacted) -> Self {
        Self::new("context_compacted", "Compaction", run_stats::compaction_summary(event)).with_facts([
            ("kept_turns", json!(event.kept_turns)),
            ("tokens_before", json!(event.tokens_before)),
            ("tokens_after", json!(event.tokens_after)),
        ])
    }

    fn of_taken_result() -> Self {
        let note = "the text of the reply was taken as the result, because it is JSON that matches the schema";
        Self::new("result_taken", "Result", note)
    }

    /// A limit that was reached.
    pub fn of_limit(event: &LimitReached) -> Self {
        Self::failure("limit_reached", format!("Limit {}", event.limit), &event.message)
            .with_facts([("limit", json!(event.limit)), ("reason", json!(event.message))])
    }

    fn of_raised_limit(limit: &str) -> Self {
        let note =
            "the run continues from before the limit was reached; the final request counts only towards the cost";
        Self::new("limit_raised", format!("Limit {limit} raised"), note).with_facts([("limit", json!(limit))])
    }

    /// The end of a subagent that wasn't successful.
    pub fn of_agent_end(end: &AgentFinished) -> Self {
        Self::failure("agent_finished", format!("ended with {}", end.outcome), "")
    }

    /// How it ended and how long it took: `failed, 2.5 s`.
    pub fn outcome(&self) -> String {
        let time = self.duration_ms.map(run_stats::duration);
        Some(self.note.clone()).filter(|note| !note.is_empty()).into_iter().chain(time).collect::<Vec<_>>().join(", ")
    }

    /// Whether it is something that runs, whose outcome is in parentheses.
    pub fn is_timed(&self) -> bool {
        matches!(self.kind, "call" | "check")
    }

    /// All of it in a line: `bash cargo test (failed, 2.5 s)`, `Limit max_turns: 50 of 50 turns are used`.
    pub fn line(&self) -> String {
        let child = self.child.map(|child| format!(": {}", child.id)).unwrap_or_default();
        let argument = if self.argument.is_empty() { String::new() } else { format!(" {}", self.argument) };
        let what = format!("{}{argument}{child}", self.title);
        match self.outcome() {
            outcome if outcome.is_empty() => what,
            outcome if self.is_timed() => format!("{what} ({outcome})"),
            outcome => format!("{what}: {outcome}"),
        }
    }
}

/// The title of a request with its reply.
pub fn turn_title(turn: &Turn) -> String {
    match turn.kind {
        TurnKind::Turn => format!("Turn {}", turn.number),
        TurnKind::FinalReply => "Final reply".to_owned(),
        TurnKind::Summary => "Request for a summary".to_owned(),
    }
}

/// The title of an attempt of the checks.
pub fn checks_title(attempt: &CheckAttempt) -> String {
    match attempt.attempt {
        0 | 1 => "Checks".to_owned(),
        number => format!("Checks (attempt {number})"),
    }
}

fn check_title(name: &str, attempt: u32) -> String {
    match attempt {
        0 | 1 => format!("check {name}"),
        number => format!("check {name} (attempt {number})"),
    }
}

/// What is said before the blocks of a reply: failed tries, and why there is no reply, or none that can be used.
pub fn notes_before_reply(turn: &Turn, has_ended: bool) -> Vec<StepView<'_>> {
    let mut notes: Vec<StepView<'_>> = turn.retries.iter().map(|(_, retry)| StepView::of_retry(retry)).collect();
    match (&turn.failed, turn.replied_at) {
        (Some(why), _) => notes.push(StepView::failure("request_failed", "No reply", why)),
        (None, None) if has_ended => {
            notes.push(StepView::failure("request_failed", "The run ended before the reply", ""));
        }
        (None, None) => notes.push(StepView::new("request_started", "No reply yet", "")),
        (None, Some(_)) => {
            let unusable = turn.unusable_summary_reason().filter(|_| turn.kind == TurnKind::Summary);
            notes.extend(
                unusable.map(|why| {
                    StepView::failure("unusable_summary", "Compaction failed", format!("the summary {why}"))
                }),
            );
            notes.extend(turn.is_empty.then(|| StepView::new("empty_reply", "Empty reply", "")));
        }
    }
    notes
}

/// What is said after the blocks of a reply: why it stopped early, and why it wasn't used.
pub fn notes_after_reply(turn: &Turn) -> Vec<StepView<'_>> {
    let is_explained =
        turn.kind == TurnKind::Summary || turn.blocks.iter().any(|block| matches!(block, ReplyBlock::Refusal(_)));
    let cut_off = |by: &str| StepView::failure("stop", format!("The reply was cut off by {by}"), "");
    let stop = match turn.stop.as_ref().filter(|_| !is_explained) {
        Some(StopReason::MaxTokens) => Some(cut_off("max_tokens")),
        Some(StopReason::ContextFull) => Some(cut_off("the context window")),
        Some(StopReason::Refusal) => Some(of_refusal("")),
        Some(StopReason::Other(reason)) => Some(StepView::failure("stop", "The model stopped", reason)),
        _ => None,
    };
    stop.into_iter().chain(turn.discarded.as_deref().map(StepView::of_discarded_reply)).collect()
}

/// The model's refusal to answer.
pub fn of_refusal(why: &str) -> StepView<'_> {
    StepView::failure("refusal", "The model refused", why)
}
