//! The Agent Trajectory Interchange Format, version 1.8 (<https://www.harborframework.com/docs/agents/trajectory-format>): what
//! each agent was asked, said and did. Subagents are trajectories inside the parent's, named by the calls that started them.

use std::io::Write;

use serde_json::{Map, Value, json};

use super::{Export, ExportError, ExportFormat, write_json};
use crate::conversation::{AgentConversation, Call, Conversation, ReplyBlock, Step, StepKind, Text, Turn};
use crate::event::CallEnd;
use crate::message::Usage;
use crate::reports::step_view::{StepView, notes_before_reply};

/// One JSON document. Its texts are complete, so all of the conversation is in memory.
pub(super) const FORMAT: ExportFormat = ExportFormat { name: "atif", options: &[], write };

const VERSION: &str = "ATIF-v1.8";

fn write(export: &Export<'_>, out: &mut dyn Write) -> Result<Vec<String>, ExportError> {
    let conversation = export.record.conversation(None);
    let writer = Trajectories { conversation: &conversation };
    write_json(out, &writer.run().to_string())?;
    Ok(conversation.missing)
}

struct Trajectories<'a> {
    conversation: &'a Conversation,
}

impl Trajectories<'_> {
    fn run(&self) -> Value {
        let run = self.conversation;
        let mut trajectory = self.agent(&run.parent);
        let subagents: Vec<Value> =
            run.agents().filter(|agent| agent.id != run.parent.id).map(|agent| self.agent(agent).into()).collect();
        if !subagents.is_empty() {
            trajectory.insert("subagent_trajectories".to_owned(), subagents.into());
        }
        let mut extra = Map::new();
        extra.insert("job".to_owned(), json!(run.plan.job));
        if let Some((_, started)) = &run.started {
            extra.insert("workspace".to_owned(), json!(started.workspace));
            extra.insert("commit".to_owned(), json!(started.commit));
        }
        if let Some(result) = &run.result {
            extra.insert("outcome".to_owned(), json!(result.outcome));
            extra.insert("exit_code".to_owned(), json!(result.exit_code));
            extra.insert("result".to_owned(), json!(result.result));
            extra.insert("checks".to_owned(), json!(result.checks));
        }
        if !run.missing.is_empty() {
            extra.insert("missing".to_owned(), json!(run.missing));
        }
        trajectory.insert("extra".to_owned(), extra.into());
        // The format wants the cost of the whole run here.
        let cost = run.result.as_ref().and_then(|result| result.cost_usd);
        if let Some(metrics) = trajectory.get_mut("final_metrics").and_then(Value::as_object_mut) {
            metrics.insert("total_cost_usd".to_owned(), json!(cost));
        }
        trajectory.into()
    }

    fn session_id(&self) -> &str {
        self.conversation.started.as_ref().map_or(&*self.conversation.plan.job, |(_, started)| &*started.run_id)
    }

    fn agent(&self, agent: &AgentConversation) -> Map<String, Value> {
        let plan = &self.conversation.plan;
        let planned = plan.agent(&agent.id);
        let mut steps = Steps::default();
        let system = planned.map(|planned| plan.system_prompt(planned)).filter(|system| !system.trim().is_empty());
        if let Some(system) = system {
            steps.add(agent.started_at, "system", json!(system));
        }
        let step = steps.add(agent.started_at, "user", whole(&agent.prompt));
        if agent.prompt.is_empty() {
            // A trajectory has at least one step.
            step.insert("extra".to_owned(), json!({ "missing": "the prompt isn't in the record" }));
        }
        agent.steps.iter().for_each(|step| self.step(step, &mut steps));
        let tools = planned.and_then(|planned| plan.tool_specs(planned).ok()).unwrap_or_default();
        let definition = |tool: &crate::tools::ToolSpec| {
            let (name, description, parameters) = (&tool.name, &tool.description, &tool.input_schema);
            json!({ "type": "function", "function": { "name": name, "description": description, "parameters": parameters } })
        };
        let version = self.conversation.started.as_ref().map_or(env!("CARGO_PKG_VERSION"), |(_, run)| &run.version);
        let mut of_agent = json!({
            "name": "legwork",
            "version": version,
            "tool_definitions": tools.iter().map(definition).collect::<Vec<_>>(),
            "extra": { "agent": agent.id, "subagent": agent.subagent },
        });
        let model = planned.map(|planned| planned.model.to_string()).unwrap_or_else(|| agent.model.clone());
        if !model.is_empty() {
            of_agent["model_name"] = json!(model);
        }
        let mut trajectory = Map::new();
        trajectory.insert("schema_version".to_owned(), json!(VERSION));
        trajectory.insert("session_id".to_owned(), json!(self.session_id()));
        trajectory.insert("trajectory_id".to_owned(), json!(agent.id));
        trajectory.insert("agent".to_owned(), of_agent);
        trajectory.insert("final_metrics".to_owned(), final_metrics(agent, steps.0.len()));
        trajectory.insert("steps".to_owned(), steps.0.into());
        if !agent.dropped.is_empty() {
            let notes = "Requests that were sent again after an interruption, or that followed a limit that was raised later, \
                         are left out of the steps.";
            trajectory.insert("notes".to_owned(), json!(notes));
        }
        trajectory
    }

    fn step(&self, step: &Step, steps: &mut Steps) {
        match &step.kind {
            StepKind::Turn(turn) => self.turn(Some(step.at), turn, steps),
            StepKind::Checks(attempt) => {
                for (index, (_, at, end)) in attempt.checks.iter().enumerate() {
                    let added = steps.add_view(*at, &StepView::of_check_at(attempt, index));
                    if let Some((_, end)) = end {
                        added.insert("observation".to_owned(), json!({ "results": [{ "content": end.output }] }));
                    }
                }
            }
            _ => drop(StepView::of_step(step).map(|view| steps.add_view(step.at, &view))),
        }
    }

    fn turn(&self, at: Option<jiff::Timestamp>, turn: &Turn, steps: &mut Steps) {
        let mut extra = Map::new();
        extra.insert("kind".to_owned(), json!(turn.kind.name()));
        extra.insert("turn".to_owned(), json!(turn.number));
        extra.insert("duration_ms".to_owned(), json!(turn.duration_ms));
        extra.extend(turn.request_id.iter().map(|id| ("request_id".to_owned(), json!(id))));
        extra.extend(turn.discarded.iter().map(|reason| ("discarded".to_owned(), json!(reason))));
        extra.extend(turn.stop.iter().map(|stop| ("stop".to_owned(), json!(stop))));
        if !turn.retries.is_empty() {
            let retries: Vec<_> = turn.retries.iter().map(|(_, retry)| retry).collect();
            extra.insert("retries".to_owned(), json!(retries));
        }
        if turn.replied_at.is_none() || turn.failed.is_some() {
            let notes = notes_before_reply(turn, self.conversation.result.is_some());
            let why = notes.last().map(StepView::line);
            extra.insert("kind".to_owned(), json!("request_failed"));
            steps.add(at, "system", json!(why)).insert("extra".to_owned(), extra.into());
            return;
        }
        let said = turn.blocks.iter().filter_map(|block| match block {
            ReplyBlock::Text(text) | ReplyBlock::Refusal(text) => Some(&*text.shown),
            _ => None,
        });
        let thought = turn.blocks.iter().filter_map(|block| match block {
            ReplyBlock::Thinking(text) => Some(&*text.shown),
            _ => None,
        });
        let (message, thinking) = (said.collect::<String>(), thought.collect::<String>());
        let step = steps.add(at, "agent", json!(message));
        let mut set = |key: &str, value: Value| drop(step.insert(key.to_owned(), value));
        if let Some(model) = &turn.model {
            set("model_name", json!(model));
        }
        if !thinking.is_empty() {
            set("reasoning_content", json!(thinking));
        }
        set("llm_call_count", json!(1));
        let mut metrics = usage(&turn.usage, "prompt_tokens", "completion_tokens", "cached_tokens");
        metrics.insert("cost_usd".to_owned(), json!(turn.cost_usd));
        metrics.insert("extra".to_owned(), Value::Object(cache_writes(&turn.usage)));
        set("metrics", metrics.into());
        if !turn.calls.is_empty() {
            set("tool_calls", turn.calls.iter().map(tool_call).collect());
            let results: Vec<Value> = turn.calls.iter().map(|call| self.result(call)).collect();
            set("observation", json!({ "results": results }));
        }
        set("extra", extra.into());
    }

    /// The result of a call, or why it has none.
    fn result(&self, call: &Call) -> Value {
        let mut result = json!({ "source_call_id": call.id });
        if let Some(text) = &call.result {
            result["content"] = whole(text);
        }
        if let Some(child) = &call.child {
            let mut reference = json!({ "trajectory_id": child.id, "session_id": self.session_id() });
            if child.has_no_journal {
                reference["extra"] = json!({ "missing": "its journal isn't in the record" });
            }
            result["subagent_trajectory_ref"] = json!([reference]);
        }
        let mut extra = json!({ "is_error": call.is_error, "duration_ms": call.duration_ms });
        if !matches!(call.end(), CallEnd::Succeeded | CallEnd::Failed) {
            extra["no_result"] = json!(StepView::of_call(call).note);
        }
        if let Some(chars) = call.truncated_to {
            extra["truncated_to"] = json!(chars);
        }
        result["extra"] = extra;
        result
    }
}

/// The steps of a trajectory, numbered from 1.
#[derive(Default)]
struct Steps(Vec<Map<String, Value>>);

impl Steps {
    /// Adds a step of legwork's own: the text that it gave the model, or else what happened in words.
    fn add_view(&mut self, at: jiff::Timestamp, view: &StepView<'_>) -> &mut Map<String, Value> {
        let source = if view.kind == "note" { "user" } else { "system" };
        let message = view.block.map_or_else(|| json!(view.line()), |(_, text)| whole(text));
        let mut extra = Map::from_iter([("kind".to_owned(), json!(view.kind))]);
        extra.extend(view.facts.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        let step = self.add(Some(at), source, message);
        step.insert("extra".to_owned(), extra.into());
        step
    }

    fn add(&mut self, at: Option<jiff::Timestamp>, source: &str, message: Value) -> &mut Map<String, Value> {
        let mut step = Map::new();
        step.insert("step_id".to_owned(), json!(self.0.len() + 1));
        step.extend(at.map(|at| ("timestamp".to_owned(), json!(at.to_string()))));
        step.insert("source".to_owned(), json!(source));
        step.insert("message".to_owned(), message);
        let last = self.0.len();
        self.0.push(step);
        &mut self.0[last]
    }
}

/// The input must be an object. What a model wrote instead is kept apart.
fn tool_call(call: &Call) -> Value {
    let mut value = json!({ "tool_call_id": call.id, "function_name": call.tool });
    match serde_json::from_str::<Value>(&call.input.shown) {
        Ok(input) if input.is_object() => value["arguments"] = input,
        _ => {
            value["arguments"] = json!({});
            value["extra"] = json!({ "input": whole_text(&call.input) });
        }
    }
    value
}

/// The agent's own tokens and cost.
fn final_metrics(agent: &AgentConversation, steps: usize) -> Value {
    let mut metrics = Map::new();
    if let Some(end) = &agent.finished {
        metrics = usage(&end.usage, "total_prompt_tokens", "total_completion_tokens", "total_cached_tokens");
        metrics.insert("total_cost_usd".to_owned(), json!(end.cost_usd));
        let mut extra = json!({
            "outcome": end.outcome,
            "duration_ms": end.duration_ms,
            "cost_usd": end.cost_usd,
        });
        extra.as_object_mut().into_iter().for_each(|extra| extra.extend(cache_writes(&end.usage)));
        metrics.insert("extra".to_owned(), extra);
    }
    metrics.insert("total_steps".to_owned(), json!(steps));
    metrics.into()
}

/// The tokens that were written to a cache, and those of them that it keeps for an hour, if there are any.
fn cache_writes(usage: &Usage) -> Map<String, Value> {
    let writes =
        [("cache_write_tokens", usage.cache_write_tokens), ("cache_write_1h_tokens", usage.cache_write_1h_tokens)];
    let shown = writes.into_iter().filter(|(key, tokens)| *key == "cache_write_tokens" || *tokens > 0);
    shown.map(|(key, tokens)| (key.to_owned(), json!(tokens))).collect()
}

fn usage(usage: &Usage, prompt: &str, completion: &str, cached: &str) -> Map<String, Value> {
    let tokens = [(prompt, usage.prompt()), (completion, usage.output_tokens), (cached, usage.cache_read_tokens)];
    tokens.into_iter().map(|(key, tokens)| (key.to_owned(), json!(tokens))).collect()
}

fn whole(text: &Text) -> Value {
    json!(whole_text(text))
}

/// Nothing is omitted, as the conversation was read without a bound.
fn whole_text(text: &Text) -> &str {
    &text.shown
}
