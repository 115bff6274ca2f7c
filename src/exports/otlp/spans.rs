//! The spans of a run: `invoke_workflow` for the run, `invoke_agent` for each agent, `chat` for each request and
//! `execute_tool` for each call. A subagent's span is below the call that started it.

use std::rc::Rc;

use jiff::Timestamp;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use sha2::{Digest, Sha256};

use super::content::{
    Input, arguments, code_attribute, double_attribute, fact_attribute, finish_reason, flag_attribute, input_messages,
    json_attribute, list_attribute, number_attribute, output_messages, text_attribute, text_parts, tool_definitions,
    whole,
};
use super::settings::{TraceParent, TraceSettings};
use crate::conversation::{AgentConversation, Call, CheckAttempt, Conversation, StepKind, Turn, TurnKind};
use crate::event::{CallEnd, Outcome};
use crate::message::Usage;
use crate::plan::PlannedAgent;
use crate::providers::Model;
use crate::reports::step_view::StepView;

type SpanId = [u8; 8];

/// The sampled flag of W3C.
const SAMPLED: u32 = 1;
/// Says that the next flag is known (<https://opentelemetry.io/docs/specs/otlp/>).
const KNOWS_REMOTE: u32 = 0x100;
/// The parent is in another process.
const IS_REMOTE: u32 = 0x200;

/// A span that isn't built yet: it refers to the conversation instead of having copies of its texts.
pub(super) struct SpanSource<'a> {
    run: Rc<Trace<'a>>,
    id: SpanId,
    parent: SpanId,
    subject: Subject<'a>,
}

/// What all spans of a run share.
struct Trace<'a> {
    conversation: &'a Conversation,
    id: [u8; 16],
    parent: Option<&'a TraceParent>,
    run_id: &'a str,
    started_at: Timestamp,
    ended_at: Timestamp,
    with_content: bool,
}

enum Subject<'a> {
    Run,
    Agent(&'a AgentConversation),
    Turn(TurnSubject<'a>),
    Call(&'a AgentConversation, &'a Call),
    Check(&'a AgentConversation, &'a CheckAttempt, usize),
}

struct TurnSubject<'a> {
    agent: &'a AgentConversation,
    at: Timestamp,
    turn: &'a Turn,
    /// What the request added to the conversation.
    input: Vec<Input<'a>>,
    is_compacted: bool,
    /// Whether it isn't part of the conversation any more.
    is_dropped: bool,
}

/// The spans of a run, parents before children.
pub(super) fn of_run<'a>(
    conversation: &'a Conversation,
    settings: &'a TraceSettings,
    with_content: bool,
) -> Vec<SpanSource<'a>> {
    let Some(started_at) = conversation.started.as_ref().map(|(at, _)| *at).or(conversation.parent.started_at) else {
        return Vec::new();
    };
    let run_id = conversation.started.as_ref().map_or("", |(_, started)| &*started.run_id);
    // Ids of runs can be reused: keys, and the rows of maps.
    let seed = format!("{}\0{run_id}\0{started_at}", conversation.plan.job);
    let last_at = conversation.agents().filter_map(|agent| agent.last_at).max().unwrap_or(started_at);
    let trace = Rc::new(Trace {
        conversation,
        id: settings.parent.as_ref().map_or_else(|| digest(&["trace", &seed]), |parent| parent.trace_id),
        parent: settings.parent.as_ref(),
        run_id,
        started_at,
        ended_at: conversation.result.as_ref().map_or(last_at, |result| result.finished_at).max(started_at),
        with_content,
    });
    let mut walk = Walk { trace, seed, spans: Vec::new() };
    let parent = walk.trace.parent.map_or([0; 8], |parent| parent.span_id);
    let run = walk.add("run", parent, Subject::Run);
    let roots = std::iter::once(&conversation.parent).chain(&conversation.orphans);
    roots.for_each(|agent| walk.add_agent(agent, run));
    walk.spans
}

/// The first bytes of a digest, the same for every export.
fn digest<const N: usize>(parts: &[&str]) -> [u8; N] {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update([part.as_bytes(), b"\0"].concat()));
    let mut bytes = [0; N];
    bytes.copy_from_slice(&hash.finalize()[..N]);
    bytes
}

struct Walk<'a> {
    trace: Rc<Trace<'a>>,
    seed: String,
    spans: Vec<SpanSource<'a>>,
}

impl<'a> Walk<'a> {
    fn add(&mut self, path: &str, parent: SpanId, subject: Subject<'a>) -> SpanId {
        let id = digest(&["span", &self.seed, path]);
        self.spans.push(SpanSource { run: Rc::clone(&self.trace), id, parent, subject });
        id
    }

    fn add_agent(&mut self, agent: &'a AgentConversation, parent: SpanId) {
        let name = &agent.id;
        let span = self.add(name, parent, Subject::Agent(agent));
        let mut pending = vec![Input::Text(&agent.prompt)];
        let mut is_compacted = false;
        for (number, step) in agent.steps.iter().enumerate() {
            let path = format!("{name}/{number}");
            match &step.kind {
                StepKind::Turn(turn) => {
                    let is_summary = turn.kind == TurnKind::Summary;
                    let is_used = !is_summary && turn.failed.is_none() && turn.discarded.is_none();
                    let input = match (is_used, is_summary) {
                        (true, _) => std::mem::take(&mut pending),
                        (false, true) => Vec::new(),
                        (false, false) => pending.clone(),
                    };
                    let subject = TurnSubject { agent, at: step.at, turn, input, is_compacted, is_dropped: false };
                    self.add(&path, span, Subject::Turn(subject));
                    for (at, call) in turn.calls.iter().enumerate() {
                        // A call that wasn't started has no span; its subagent can't have started either.
                        if call.started_at.is_none() && call.child.is_none() {
                            continue;
                        }
                        let of_call = self.add(&format!("{path}/{at}"), span, Subject::Call(agent, call));
                        call.child.iter().for_each(|child| self.add_agent(child, of_call));
                    }
                    if is_used && !turn.calls.is_empty() {
                        pending.push(Input::Results(turn));
                    }
                }
                StepKind::Note(text) => pending.push(Input::Text(text)),
                StepKind::Compacted(_, summary) => {
                    is_compacted = true;
                    pending.insert(0, Input::Summary(summary));
                }
                StepKind::Checks(attempt) => {
                    for at in 0..attempt.checks.len() {
                        self.add(&format!("{path}/{at}"), span, Subject::Check(agent, attempt, at));
                    }
                }
                // The others are events of the agent's span.
                _ => {}
            }
        }
        for (number, step) in agent.dropped.iter().enumerate() {
            if let StepKind::Turn(turn) = &step.kind {
                let (at, input) = (step.at, Vec::new());
                let subject = TurnSubject { agent, at, turn, input, is_compacted: false, is_dropped: true };
                self.add(&format!("{name}/dropped/{number}"), span, Subject::Turn(subject));
            }
        }
    }
}

/// The parts of a span that differ by its subject.
struct Parts {
    name: String,
    kind: SpanKind,
    start: Timestamp,
    end: Timestamp,
    attributes: Vec<KeyValue>,
    events: Vec<Event>,
    /// The type of the error, and what happened.
    error: Option<(String, String)>,
}

impl SpanSource<'_> {
    /// Builds the span.
    pub(super) fn build(&self) -> Span {
        let run = &*self.run;
        let mut parts = match &self.subject {
            Subject::Run => run.run(),
            Subject::Agent(agent) => run.agent(agent),
            Subject::Turn(turn) => run.turn(turn),
            Subject::Call(agent, call) => run.call(agent, call),
            Subject::Check(agent, attempt, at) => run.check(agent, attempt, *at),
        };
        let status = parts.error.map(|(kind, message)| {
            parts.attributes.push(text_attribute("error.type", kind));
            Status { code: StatusCode::Error.into(), message }
        });
        let is_remote = matches!(self.subject, Subject::Run) && run.parent.is_some();
        let sampled = run.parent.is_none_or(|parent| parent.is_sampled);
        Span {
            trace_id: run.id.to_vec(),
            span_id: self.id.to_vec(),
            parent_span_id: if self.parent == [0; 8] { Vec::new() } else { self.parent.to_vec() },
            trace_state: run.parent.map(|parent| parent.state.clone()).unwrap_or_default(),
            flags: KNOWS_REMOTE | if sampled { SAMPLED } else { 0 } | if is_remote { IS_REMOTE } else { 0 },
            name: parts.name,
            kind: parts.kind.into(),
            start_time_unix_nano: nanoseconds(parts.start),
            end_time_unix_nano: nanoseconds(parts.end.max(parts.start)),
            attributes: parts.attributes,
            events: parts.events,
            status,
            ..Span::default()
        }
    }
}

impl Trace<'_> {
    fn run(&self) -> Parts {
        let plan = &self.conversation.plan;
        let mut attributes = operation("invoke_workflow");
        attributes.push(text_attribute("gen_ai.agent.name", &*plan.job));
        attributes.extend(plan.description.iter().map(|text| text_attribute("gen_ai.agent.description", text.trim())));
        attributes.push(text_attribute("gen_ai.conversation.id", self.run_id));
        attributes.push(text_attribute("legwork.run.id", self.run_id));
        let result = self.conversation.result.as_ref();
        if let Some(result) = result {
            attributes.push(text_attribute("legwork.outcome", result.outcome.to_string()));
            attributes.push(code_attribute("process.exit.code", result.exit_code.into()));
            attributes.extend(total_usage(&result.usage));
            attributes.extend(result.cost_usd.map(|cost| double_attribute("legwork.cost_usd", cost)));
        }
        let message = || result.and_then(|result| Some(result.error.as_ref()?.message.clone())).unwrap_or_default();
        Parts {
            name: format!("invoke_workflow {}", plan.job),
            kind: SpanKind::Internal,
            start: self.started_at,
            end: self.ended_at,
            attributes,
            events: Vec::new(),
            error: outcome_error(result.map(|result| result.outcome)).map(|kind| (kind, message())),
        }
    }

    fn agent(&self, agent: &AgentConversation) -> Parts {
        let (name, planned) = (self.agent_name(agent), self.planned(agent));
        let mut attributes = operation("invoke_agent");
        attributes.push(text_attribute("gen_ai.agent.name", name));
        attributes.extend(
            planned
                .and_then(|planned| planned.description.as_deref())
                .map(|text| text_attribute("gen_ai.agent.description", text.trim())),
        );
        attributes.push(self.conversation_id(agent));
        attributes.extend(planned.map(|planned| text_attribute("gen_ai.request.model", &*planned.model.name)));
        attributes.push(text_attribute("legwork.agent.id", &*agent.id));
        if let Some(end) = &agent.finished {
            attributes.push(text_attribute("legwork.outcome", end.outcome.to_string()));
            attributes.push(number_attribute("legwork.turns", end.turns.into()));
            attributes.push(number_attribute("legwork.tool_calls", end.tool_calls));
            attributes.extend(total_usage(&end.usage));
            attributes.extend(end.cost_usd.map(|cost| double_attribute("legwork.cost_usd", cost)));
        }
        if self.with_content {
            let prompt = [Input::Text(&agent.prompt)];
            attributes.push(json_attribute("gen_ai.input.messages", &input_messages(&prompt)));
            if let Some(planned) = planned {
                attributes.push(json_attribute(
                    "gen_ai.system_instructions",
                    &text_parts(&self.conversation.plan.system_prompt(planned)),
                ));
                let tools = self.conversation.plan.tool_specs(planned).unwrap_or_default();
                attributes.push(json_attribute("gen_ai.tool.definitions", &tool_definitions(&tools)));
            }
            if let Some(end) = &agent.finished {
                let message = serde_json::json!([{ "role": "assistant", "parts": text_parts(&end.text) }]);
                attributes.push(json_attribute("gen_ai.output.messages", &message));
            }
        }
        let start = agent.started_at.unwrap_or(self.started_at);
        let views = agent.steps.iter().filter_map(|step| Some((step.at, StepView::of_step(step)?)));
        Parts {
            name: format!("invoke_agent {name}"),
            kind: SpanKind::Internal,
            start,
            end: agent.last_at.unwrap_or(start),
            attributes,
            events: views.filter(|(_, view)| view.kind != "note").map(|(at, view)| event(at, &view)).collect(),
            error: outcome_error(agent.finished.as_ref().map(|end| end.outcome)).map(|kind| (kind, String::new())),
        }
    }

    fn turn(&self, subject: &TurnSubject<'_>) -> Parts {
        let TurnSubject { agent, at, turn, input, is_compacted, is_dropped } = subject;
        let model = self.planned(agent).map(|planned| planned.model_named(turn.fallback.as_deref()));
        let model_name = model.map_or(&*agent.model, |model| &*model.name);
        let mut attributes = operation("chat");
        attributes.push(text_attribute("gen_ai.provider.name", model.map_or("unknown", provider_name)));
        attributes.push(text_attribute("gen_ai.request.model", model_name));
        attributes.push(self.conversation_id(agent));
        if model.is_some_and(|model| !model.is_scripted()) {
            attributes.push(flag_attribute("gen_ai.request.stream", true));
        }
        if let Some(model) = model {
            let level = model.thinking.map(|level| serde_json::json!(level));
            let level = level.as_ref().and_then(serde_json::Value::as_str);
            attributes.extend(level.map(|level| text_attribute("gen_ai.request.reasoning.level", level)));
            attributes.extend(model.temperature.map(|value| double_attribute("gen_ai.request.temperature", value)));
            if !model.stop.is_empty() {
                attributes.push(list_attribute("gen_ai.request.stop_sequences", model.stop.iter().cloned()));
            }
        }
        if *is_compacted {
            attributes.push(flag_attribute("gen_ai.conversation.compacted", true));
        }
        attributes.extend(turn.model.iter().map(|model| text_attribute("gen_ai.response.model", &**model)));
        if turn.stop.is_some() || turn.failed.is_some() {
            attributes.push(list_attribute("gen_ai.response.finish_reasons", [finish_reason(turn)]));
        }
        attributes.extend(usage(&turn.usage));
        attributes.extend(turn.cost_usd.map(|cost| double_attribute("legwork.cost_usd", cost)));
        attributes.extend(turn.request_id.iter().map(|id| text_attribute("legwork.request.id", &**id)));
        attributes.push(number_attribute("legwork.turn", turn.number.into()));
        if turn.kind != TurnKind::Turn {
            attributes.push(text_attribute("legwork.request.purpose", turn.kind.name()));
        }
        if *is_dropped {
            attributes.push(flag_attribute("legwork.dropped", true));
        }
        if self.with_content {
            if !input.is_empty() {
                attributes.push(json_attribute("gen_ai.input.messages", &input_messages(input)));
            }
            if !turn.blocks.is_empty() {
                attributes.push(json_attribute("gen_ai.output.messages", &output_messages(turn)));
            }
        }
        let end = self.end(*at, turn.replied_at, turn.duration_ms, agent);
        let retries = turn.retries.iter().map(|(at, retry)| event(*at, &StepView::of_retry(retry)));
        let discarded = turn.discarded.iter().map(|why| event(end, &StepView::of_discarded_reply(why)));
        let events = retries.chain(discarded).collect();
        let unanswered = (turn.stop.is_none() && turn.failed.is_none())
            .then(|| ("interrupted".to_owned(), "there is no reply".to_owned()));
        Parts {
            name: format!("chat {model_name}"),
            kind: SpanKind::Client,
            start: *at,
            end,
            attributes,
            events,
            error: turn.failed.clone().map(|reason| ("request_failed".to_owned(), reason)).or(unanswered),
        }
    }

    fn call(&self, agent: &AgentConversation, call: &Call) -> Parts {
        let mut attributes = operation("execute_tool");
        attributes.push(text_attribute("gen_ai.tool.name", &*call.tool));
        attributes.push(text_attribute("gen_ai.tool.type", "function"));
        attributes.push(text_attribute("gen_ai.tool.call.id", &*call.id));
        attributes.push(text_attribute("gen_ai.agent.name", self.agent_name(agent)));
        attributes.push(self.conversation_id(agent));
        attributes.extend(call.truncated_to.map(|chars| number_attribute("legwork.result.truncated_to", chars)));
        if self.with_content {
            attributes.push(json_attribute("gen_ai.tool.call.arguments", &arguments(call)));
            attributes
                .extend(call.result.as_ref().map(|result| text_attribute("gen_ai.tool.call.result", whole(result))));
        }
        let view = StepView::of_call(call);
        let error = match call.end() {
            CallEnd::Succeeded => None,
            // The text of an error is content.
            CallEnd::Failed => {
                let text = call.result.as_ref().filter(|_| self.with_content).map(whole);
                Some(("tool_error", text.unwrap_or(view.note)))
            }
            CallEnd::Refused(_) => Some(("limit_reached", view.note)),
            CallEnd::NotRun => Some(("not_run", view.note)),
            CallEnd::Interrupted | CallEnd::NotFinished => Some(("interrupted", view.note)),
        };
        let start = call.started_at.or_else(|| call.child.as_ref()?.started_at).unwrap_or(self.started_at);
        Parts {
            name: format!("execute_tool {}", call.tool),
            kind: SpanKind::Internal,
            start,
            end: self.end(start, call.finished_at, call.duration_ms, agent),
            attributes,
            events: Vec::new(),
            error: error.map(|(kind, message)| (kind.to_owned(), message)),
        }
    }

    fn check(&self, agent: &AgentConversation, attempt: &CheckAttempt, at: usize) -> Parts {
        let (name, start, finished) = &attempt.checks[at];
        let mut attributes = vec![
            text_attribute("legwork.check.name", &**name),
            number_attribute("legwork.check.attempt", attempt.attempt.into()),
        ];
        let end = finished.as_ref().map(|(_, end)| end);
        let view = StepView::of_check_at(attempt, at);
        attributes.extend(end.and_then(|end| end.exit_code).map(|code| code_attribute("process.exit.code", code)));
        let error = match end {
            Some(end) if end.passed => None,
            Some(_) => Some(("check_failed".to_owned(), view.note)),
            None => Some(("interrupted".to_owned(), view.note)),
        };
        Parts {
            name: format!("check {name}"),
            kind: SpanKind::Internal,
            start: *start,
            end: self.end(*start, finished.as_ref().map(|(at, _)| *at), end.map_or(0, |end| end.duration_ms), agent),
            attributes,
            events: Vec::new(),
            error,
        }
    }

    /// When something ended: as recorded, or after its duration, or with the last event of its agent.
    fn end(
        &self,
        start: Timestamp,
        recorded: Option<Timestamp>,
        duration_ms: u64,
        agent: &AgentConversation,
    ) -> Timestamp {
        let duration = jiff::SignedDuration::from_millis(i64::try_from(duration_ms).unwrap_or(0));
        let after = || start.checked_add(duration).ok().filter(|_| duration_ms > 0);
        recorded.or_else(after).or(agent.last_at).unwrap_or(self.ended_at)
    }

    fn planned(&self, agent: &AgentConversation) -> Option<&PlannedAgent> {
        let plan = &self.conversation.plan;
        agent.subagent.as_ref().map_or(Some(&plan.parent), |name| plan.subagents.get(name))
    }

    /// The job's name for the parent, and the subagent's name for a subagent.
    fn agent_name<'n>(&'n self, agent: &'n AgentConversation) -> &'n str {
        agent.subagent.as_deref().unwrap_or(&self.conversation.plan.job)
    }

    /// Each agent of a run has a conversation of its own.
    fn conversation_id(&self, agent: &AgentConversation) -> KeyValue {
        let id = match &agent.subagent {
            None => self.run_id.to_owned(),
            Some(_) => format!("{}/{}", self.run_id, agent.id),
        };
        text_attribute("gen_ai.conversation.id", id)
    }
}

fn operation(name: &str) -> Vec<KeyValue> {
    vec![text_attribute("gen_ai.operation.name", name)]
}

/// The tokens of one request. The conventions count cached tokens as input, too.
fn usage(usage: &Usage) -> Vec<KeyValue> {
    let mut attributes = total_usage(usage);
    for (key, tokens) in [
        ("gen_ai.usage.cache_read.input_tokens", usage.cache_read_tokens),
        ("gen_ai.usage.cache_write.input_tokens", usage.cache_write_tokens),
    ] {
        attributes.extend((tokens > 0).then(|| number_attribute(key, tokens)));
    }
    attributes
}

fn total_usage(usage: &Usage) -> Vec<KeyValue> {
    vec![
        number_attribute("gen_ai.usage.input_tokens", usage.prompt()),
        number_attribute("gen_ai.usage.output_tokens", usage.output_tokens),
    ]
}

/// The provider in the conventions' words.
fn provider_name(model: &Model) -> &str {
    match &*model.provider {
        "openai-chat" => "openai",
        "gemini" => "gcp.gemini",
        name => name,
    }
}

/// The type of the error that an outcome is; an agent without an end was interrupted.
fn outcome_error(outcome: Option<Outcome>) -> Option<String> {
    match outcome {
        Some(Outcome::Completed | Outcome::Skipped) => None,
        Some(outcome) => Some(outcome.to_string()),
        None => Some(Outcome::Interrupted.to_string()),
    }
}

/// A step that isn't a span of its own.
fn event(at: Timestamp, view: &StepView<'_>) -> Event {
    let attributes = view.facts.iter().map(|(key, value)| fact_attribute(&format!("legwork.{key}"), value)).collect();
    Event { time_unix_nano: nanoseconds(at), name: format!("legwork.{}", view.kind), attributes, ..Event::default() }
}

fn nanoseconds(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or(0)
}
