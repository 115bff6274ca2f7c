//! What happened in a run, event by event: during the run, or from journals that are read. `result.json`, the summaries of
//! subagents, and what comparisons and test cases count follow from it.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{
    AgentFinished, CheckResult, CutOffRequests, Event, FORMAT, Outcome, OutputCalls, PARENT, ProposedOutputs,
    RunFinished, RunResult, RunStarted, StateRead, StateResult, StateSet, StepResult, SubagentResult, Usage,
    WorkspaceChanged, summary_file,
};
use crate::outputs::Accepted;
use crate::pricing;
use crate::text::truncate;

/// The most characters of the error of a failed call.
const MAX_ERROR_CHARS: usize = 500;

/// The most characters that are kept of the value of a step before the agent.
const MAX_STEP_CHARS: usize = 2_000;

/// A step before the agent.
#[derive(Debug, Clone)]
pub struct StepBefore {
    /// How it ended.
    pub result: StepResult,
    /// The beginning of its value, or of what it wrote to standard error if it has none.
    pub shown: String,
    /// How many more characters that has.
    pub more_chars: u64,
}

/// What is known about a run.
#[derive(Debug, Default)]
pub struct RunModel {
    /// The start of the run and its time.
    pub started: Option<(Timestamp, RunStarted)>,
    /// How tools were confined in the last part of the run.
    sandbox: String,
    /// The subagents in the order of the calls.
    order: Vec<String>,
    /// The last end of each subagent.
    subagent_ends: HashMap<String, AgentFinished>,
    /// The subagents that continue since the run was resumed.
    resumed_subagents: HashSet<String>,
    parent: Option<AgentFinished>,
    /// The state at the start, and the one that the run leaves.
    pub state: (Option<StateRead>, Option<StateSet>),
    before: Vec<StepBefore>,
    skipped_by: Option<String>,
    checks: Vec<CheckResult>,
    /// The changes of the run, if they are known.
    pub changed: Option<WorkspaceChanged>,
    end: Option<(Timestamp, RunFinished)>,
    /// What the run proposes to do outside, if it has come to its end.
    pub proposed: Option<Accepted>,
    /// What its calls proposed so far. Subagents' are known only if their events are applied, too.
    output_calls: OutputCalls,
    /// The values of the steps that decide lists of outputs.
    list_steps: Map<String, Value>,
    /// What each agent has done, by its id. Subagents are known only if their events are applied, too.
    pub agents: BTreeMap<String, AgentModel>,
}

/// What an agent has done.
#[derive(Debug, Default)]
pub struct AgentModel {
    /// Its last turn.
    pub turn: u32,
    /// The number of replies, also to requests that aren't turns.
    pub replies: usize,
    /// The text of its last turn.
    pub last_text: String,
    /// The number of calls that were run and have ended, by tool.
    pub calls: BTreeMap<String, u64>,
    /// The failed calls, in the order in which the model asked for them.
    pub failed_calls: Vec<FailedCall>,
    /// The end: outcome, turns and last text. None while it is at work, also again after its run was resumed.
    pub end: Option<(Outcome, u32, String)>,
    /// The parent's description of its task; empty if there is none.
    pub description: String,
    /// The turn of its last request, from 1; 0 before the first.
    pub requested_turn: u32,
    /// What it does while nothing runs.
    pub phase: AgentPhase,
    /// The calls, checks and steps that run, in the order of their starts.
    pub running: Vec<RunningStep>,
    /// The start of the last call, check or step.
    pub last_started: Option<Event>,
    /// The positions of the calls in the last reply, by their ids.
    positions: HashMap<String, usize>,
    /// Whether the last request asks for a summary of the conversation.
    asks_for_summary: bool,
}

/// What an agent does while none of its calls runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AgentPhase {
    /// Before its first request.
    #[default]
    Starting,
    /// Waits for a reply.
    Thinking,
    /// Waits for a summary of its conversation.
    Summarizing,
    /// Sends a request again that failed.
    Retrying,
}

/// A call, a check or a step that runs.
#[derive(Debug)]
pub struct RunningStep {
    /// The id of the call; None of a check or a step, which run one at a time.
    call_id: Option<String>,
    /// Its start.
    pub started: Event,
}

/// A failed call.
#[derive(Debug)]
pub struct FailedCall {
    /// The number of its reply, and its position there.
    place: (usize, usize),
    /// The tool.
    pub tool: String,
    /// The first line of the error.
    pub error: String,
}

impl RunModel {
    /// Takes the next event of an agent and its time.
    pub fn apply(&mut self, agent: &str, event: &Event, at: Timestamp) {
        match self.agents.get_mut(agent) {
            Some(known) => known.apply(agent, event),
            None => self.agents.entry(agent.to_owned()).or_default().apply(agent, event),
        }
        if let (Event::CallFinished(finished), Some((_, started))) = (event, &self.started)
            && let Some(allowed) = &started.plan.outputs
        {
            self.output_calls.apply(agent, allowed, finished);
        }
        if agent == PARENT {
            self.apply_of_parent(event, at);
        }
    }

    /// The steps before the agent that have ended.
    pub fn steps_before(&self) -> &[StepBefore] {
        &self.before
    }

    /// The values of the steps before the agent that decide lists of outputs.
    pub fn list_steps(&self) -> &Map<String, Value> {
        &self.list_steps
    }

    /// What the run proposes to do outside, so far or at its end, and what was refused; `None` if its job has no outputs.
    pub fn proposed_outputs(&self) -> Option<ProposedOutputs> {
        let planned = self.started.as_ref()?.1.plan.outputs.as_ref()?;
        let allowed = planned.with_step_lists(&self.list_steps).unwrap_or_else(|_| planned.clone());
        let mut calls = self.output_calls.clone();
        if let Some(accepted) = &self.proposed {
            calls.accepted.clone_from(accepted);
        }
        let changed = self.changed.as_ref();
        let changed_files = changed.map_or(0, |changed| changed.total.unwrap_or(changed.changes.len() as u64));
        Some(ProposedOutputs { allowed, calls, changed_files, is_final: self.proposed.is_some() })
    }

    fn apply_of_parent(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::RunStarted(started) => {
                self.sandbox.clone_from(&started.sandbox);
                self.started = Some((at, started.clone()));
            }
            Event::Resumed(resumed) => {
                self.sandbox.clone_from(&resumed.sandbox);
                self.agents.values_mut().for_each(|agent| agent.running.clear());
                let continues = |finished: &AgentFinished| finished.outcome.was_cut_off();
                self.resumed_subagents =
                    self.subagent_ends.values().filter(|end| continues(end)).map(|end| end.id.clone()).collect();
                self.parent = self.parent.take().filter(|end| !continues(end));
                self.end = None;
                self.changed = None;
                self.proposed = None;
                self.state.1 = None;
            }
            Event::LimitRaised(raised) => {
                self.parent = None;
                self.resumed_subagents.extend(raised.subagents.iter().cloned());
            }
            Event::CallStarted(started) => {
                let new = started.child.as_ref().filter(|child| !self.order.contains(child));
                self.order.extend(new.cloned());
            }
            Event::StateRead(read) => self.state.0 = Some(read.clone()),
            Event::StateSet(set) => self.state.1 = Some(set.clone()),
            Event::BeforeFinished(finished) => {
                let outputs = self.started.as_ref().and_then(|(_, started)| started.plan.outputs.as_ref());
                if outputs.is_some_and(|outputs| outputs.from_steps.values().any(|step| *step == finished.name)) {
                    self.list_steps.insert(finished.name.clone(), finished.value.clone());
                }
                // One that failed runs again when the run is resumed.
                self.before.retain(|step| step.result.name != finished.name);
                let value = finished.shown();
                let shown = truncate::first(&value, MAX_STEP_CHARS);
                self.before.push(StepBefore {
                    result: StepResult {
                        name: finished.name.clone(),
                        passed: finished.error.is_none(),
                        duration_ms: finished.duration_ms,
                    },
                    shown: shown.to_owned(),
                    more_chars: value[shown.len()..].chars().count() as u64,
                });
            }
            Event::RunSkipped(skipped) => self.skipped_by = Some(skipped.condition.clone()),
            Event::CheckFinished(finished) => self.checks.push(CheckResult {
                name: finished.name.clone(),
                passed: finished.passed,
                attempt: finished.attempt,
                exit_code: finished.exit_code,
                duration_ms: finished.duration_ms,
            }),
            Event::WorkspaceChanged(changed) => self.changed = Some(changed.clone()),
            Event::OutputsProposed(proposed) => self.proposed = Some(proposed.accepted.clone()),
            Event::AgentFinished(finished) if finished.id == PARENT => self.parent = Some(finished.clone()),
            Event::AgentFinished(finished) => {
                self.resumed_subagents.remove(&finished.id);
                self.subagent_ends.insert(finished.id.clone(), finished.clone());
            }
            Event::RunFinished(finished) => self.end = Some((at, finished.clone())),
            _ => {}
        }
    }

    /// The number of calls of a tool by all agents together.
    pub fn total_calls(&self, tool: &str) -> u64 {
        self.agents.values().filter_map(|agent| agent.calls.get(tool)).sum()
    }

    /// The last end of each subagent, in the order of the calls. Each has a summary.
    pub fn summaries(&self) -> impl Iterator<Item = &AgentFinished> + Clone {
        self.order.iter().filter_map(|id| self.subagent_ends.get(id))
    }

    /// A copy with only what the run did outside of its conversations: its start, its changes, what it proposes.
    #[must_use]
    pub fn outside(&self) -> Self {
        Self {
            started: self.started.clone(),
            changed: self.changed.clone(),
            proposed: self.proposed.clone(),
            ..Self::default()
        }
    }

    /// What the run did with the state; `None` if it has read none.
    fn state_result(&self) -> Option<StateResult> {
        let (read, set) = &self.state;
        let before = read.as_ref()?.value.clone();
        Some(match set {
            Some(StateSet { value, difference }) => {
                StateResult { before, after: value.clone(), replaced: true, difference: difference.clone() }
            }
            None => StateResult { after: before.clone(), before, replaced: false, difference: String::new() },
        })
    }

    /// The result of the run; `None` if it hasn't ended.
    pub fn result(&self) -> Option<RunResult> {
        let (started_at, started) = self.started.as_ref()?;
        let (finished_at, end) = self.end.as_ref()?;
        let parent = self.parent.as_ref()?;
        let subagents = self.summaries().filter(|end| !self.resumed_subagents.contains(&end.id));
        let agents = std::iter::once(parent).chain(subagents.clone());
        let (usage, cost_usd) = sum(agents.clone());
        let mut cut_off_requests = CutOffRequests::NONE;
        agents.for_each(|agent| cut_off_requests += agent.cut_off_requests);
        cut_off_requests.reserved_cost_usd = cut_off_requests.reserved_cost_usd.map(pricing::round_usd);
        let unchanged = WorkspaceChanged::default();
        let changed = self.changed.clone().or((!started.plan.changes_files()).then_some(unchanged));
        Some(RunResult {
            format: FORMAT,
            run_id: started.run_id.clone(),
            job: started.job.clone(),
            outcome: end.outcome,
            exit_code: end.exit_code,
            text: parent.text.clone(),
            result: parent.result.clone(),
            skipped_by: self.skipped_by.clone(),
            before: self.before.iter().map(|step| step.result.clone()).collect(),
            state: self.state_result(),
            error: end.error.clone(),
            started_at: *started_at,
            finished_at: *finished_at,
            duration_ms: parent.duration_ms,
            turns: parent.turns,
            tool_calls: parent.tool_calls,
            usage,
            cost_usd,
            cut_off_requests,
            model: started.plan.parent.model.to_string(),
            answered_by: parent.answered_by.clone(),
            sandbox: self.sandbox.clone(),
            subagents: subagents.cloned().map(SubagentResult::from).collect(),
            checks: self.checks.clone(),
            changed_files: changed.as_ref().map(|changed| changed.total.unwrap_or(changed.changes.len() as u64)),
            changes_ignored: changed.as_ref().map(|changed| changed.ignored.clone()).unwrap_or_default(),
            changes_incomplete: changed.as_ref().and_then(|changed| changed.incomplete.clone()),
            changes: changed.map(|changed| changed.changes),
        })
    }
}

impl AgentModel {
    fn apply(&mut self, id: &str, event: &Event) {
        match event {
            Event::AgentStarted(started) => {
                self.description.clone_from(started.description.as_ref().unwrap_or(&String::new()));
            }
            Event::RequestStarted(request) => {
                self.asks_for_summary = request.kept_turns.is_some();
                self.requested_turn = request.turn.max(1);
                self.phase = if self.asks_for_summary { AgentPhase::Summarizing } else { AgentPhase::Thinking };
                self.end = None;
            }
            Event::Retrying(_) => self.phase = AgentPhase::Retrying,
            Event::CallStarted(started) => self.start(Some(&started.call_id), event),
            Event::CheckStarted(_) | Event::BeforeStarted(_) => self.start(None, event),
            Event::CheckFinished(_) | Event::BeforeFinished(_) => self.running.retain(|step| step.call_id.is_some()),
            Event::ReplyReceived(received) => {
                self.replies = self.replies.saturating_add(1);
                let calls = received.reply.tool_calls().enumerate();
                self.positions = calls.map(|(position, call)| (call.id.clone(), position)).collect();
                if !self.asks_for_summary {
                    self.turn = received.turn;
                    self.last_text = received.reply.text();
                }
            }
            Event::CallFinished(finished) => {
                self.running.retain(|step| step.call_id.as_ref() != Some(&finished.result.call_id));
                *self.calls.entry(finished.tool.clone()).or_default() += u64::from(finished.end().was_run());
                if finished.end().is_failure() {
                    // Parallel calls end in any order.
                    let position = self.positions.get(&finished.result.call_id).copied().unwrap_or_default();
                    let place = (self.replies, position);
                    let at = self.failed_calls.partition_point(|call| call.place <= place);
                    let error = finished.result.text.lines().next().unwrap_or_default();
                    let error = truncate::first(error, MAX_ERROR_CHARS).to_owned();
                    self.failed_calls.insert(at, FailedCall { place, tool: finished.tool.clone(), error });
                }
            }
            Event::AgentFinished(finished) if finished.id == id => {
                self.end = Some((finished.outcome, finished.turns, finished.text.clone()));
                self.running.clear();
            }
            _ => {}
        }
    }

    fn start(&mut self, call_id: Option<&String>, event: &Event) {
        self.end = None;
        self.running.push(RunningStep { call_id: call_id.cloned(), started: event.clone() });
        self.last_started = Some(event.clone());
    }
}

/// The usage and the cost of the whole run include those of the subagents.
fn sum<'a>(agents: impl Iterator<Item = &'a AgentFinished>) -> (Usage, Option<f64>) {
    agents.fold((Usage::default(), Some(0.0)), |(mut usage, cost): (Usage, Option<f64>), agent| {
        usage += agent.usage;
        (usage, cost.zip(agent.cost_usd).map(|(all, more)| pricing::round_usd(all + more)))
    })
}

impl From<AgentFinished> for SubagentResult {
    fn from(end: AgentFinished) -> Self {
        Self {
            summary_file: summary_file(&end.id),
            agent: end.subagent.unwrap_or_default(),
            id: end.id,
            description: end.description,
            outcome: end.outcome,
            answered_by: end.answered_by,
            turns: end.turns,
            tool_calls: end.tool_calls,
            usage: end.usage,
            cost_usd: end.cost_usd,
            duration_ms: end.duration_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    use crate::event::{CallFinished, CallStarted, Change, ChangeKind, ReplyReceived, Resumed};
    use crate::message::{Block, BlockContent, Reply, StopReason, ToolCall, ToolResult};

    fn end(id: &str, outcome: Outcome, cost_usd: Option<f64>) -> Event {
        let usage = Usage { input_tokens: 1, ..Usage::default() };
        let (text, subagent) = (String::new(), (id != PARENT).then(|| "a".to_owned()));
        let (turns, tool_calls, duration_ms) = (1, 0, 5);
        let (id, description) = (id.to_owned(), None);
        AgentFinished {
            id,
            subagent,
            description,
            outcome,
            text,
            refusal: None,
            result: None,
            answered_by: None,
            turns,
            tool_calls,
            compactions: 0,
            usage,
            cost_usd,
            cut_off_requests: CutOffRequests::NONE,
            duration_ms,
        }
        .into()
    }

    fn called(child: &str) -> Event {
        let child = Some(child.to_owned());
        CallStarted { call_id: child.clone().unwrap_or_default(), tool: "task".into(), subject: String::new(), child }
            .into()
    }

    fn started() -> Event {
        let agent =
            r#"{"model":{"provider":"anthropic","name":"m"},"system":"","tools":[],"max_turns":1,"max_tokens":1}"#;
        let limits = r#"{"cost_usd":null,"tokens":null,"wall_clock_ms":null,"tool_calls":null,"subagents":null,"parallel_subagents":1}"#;
        let plan = format!(
            r#"{{"format":2,"job":"j","workspace":"/w","inputs":{{}},"parent":{agent},"subagents":{{}},"limits":{limits},"env":[],"network":"none","keep":"always"}}"#
        );
        let data = format!(
            r#"{{"format":2,"version":"1","run_id":"r","job":"j","workspace":"/w","sandbox":"off","job_file":"","plan":{plan}}}"#
        );
        serde_json::from_str::<RunStarted>(&data).unwrap().into()
    }

    fn resumed() -> Event {
        Resumed {
            version: "1".into(),
            workspace: "/w".into(),
            sandbox: "landlock".into(),
            commit: None,
            limits: Default::default(),
            last_seen: None,
            folder: String::new(),
            options: Default::default(),
            secrets: Default::default(),
            has_new_secrets: false,
        }
        .into()
    }

    fn over(outcome: Outcome) -> Event {
        RunFinished { outcome, exit_code: outcome.exit_code(None), error: None }.into()
    }

    fn model_of(events: impl IntoIterator<Item = Event>) -> RunModel {
        let mut model = RunModel::default();
        for (second, event) in events.into_iter().enumerate() {
            model.apply(PARENT, &event, Timestamp::from_second(second as i64).unwrap());
        }
        model
    }

    #[test]
    fn changes_beyond_the_list_are_counted() {
        let change = Change {
            path: "a".into(),
            change: ChangeKind::Added,
            lines_added: Some(2),
            lines_removed: Some(0),
            binary: None,
        };
        let result = |total: Option<u64>, incomplete: Option<&str>| {
            let incomplete = incomplete.map(str::to_owned);
            let changed = WorkspaceChanged {
                changes: vec![change.clone()],
                total,
                patch: String::new(),
                incomplete,
                ignored: Vec::new(),
            };
            let ended = [end(PARENT, Outcome::Completed, None), changed.into(), over(Outcome::Completed)];
            model_of([started()].into_iter().chain(ended)).result().unwrap()
        };
        let all = result(None, None);
        assert_eq!((all.changed_files, &all.changes_incomplete), (Some(1), &None));
        let more = result(Some(7), Some("there is more"));
        assert_eq!((more.changed_files, more.changes_incomplete.as_deref()), (Some(7), Some("there is more")));
    }

    #[test]
    fn a_continued_subagent_is_in_the_result_once_it_has_ended() {
        use Outcome::{Completed, Interrupted};
        let first = || {
            vec![
                started(),
                called("a-1"),
                called("a-2"),
                end("a-2", Completed, Some(0.5)),
                end("a-1", Interrupted, None),
                end(PARENT, Interrupted, Some(0.25)),
                over(Interrupted),
            ]
        };
        let ids = |model: &RunModel| {
            let result = model.result().unwrap();
            (result.subagents.into_iter().map(|subagent| subagent.id).collect::<Vec<_>>(), result.cost_usd)
        };
        assert_eq!(ids(&model_of(first())), (vec!["a-1".to_owned(), "a-2".to_owned()], None));
        let mut second = first();
        second.push(resumed());
        assert!(model_of(second.clone()).result().is_none(), "it continues");
        second.extend([end(PARENT, Interrupted, Some(0.25)), over(Interrupted)]);
        let cut_again = model_of(second.clone());
        assert_eq!(ids(&cut_again), (vec!["a-2".to_owned()], Some(0.75)));
        assert_eq!(cut_again.summaries().count(), 2, "what it said by then is there");
        second.extend([
            resumed(),
            end("a-1", Completed, Some(1.0)),
            end(PARENT, Completed, Some(0.25)),
            over(Completed),
        ]);
        let whole = model_of(second);
        assert_eq!(ids(&whole), (vec!["a-1".to_owned(), "a-2".to_owned()], Some(1.75)));
        let result = whole.result().unwrap();
        assert_eq!((result.sandbox.as_str(), result.usage.input_tokens), ("landlock", 3));
        assert_eq!((result.started_at.as_second(), result.finished_at.as_second()), (0, 13));
    }

    #[test]
    fn failed_calls_are_in_the_order_in_which_the_model_asked_for_them() {
        let mut counts = RunModel::default();
        let mut add = |event: Event| {
            counts.apply(PARENT, &event, Timestamp::UNIX_EPOCH);
        };
        let mut reply = |asked: &[&str], ended: &[&str]| {
            let block = |id: &&str| {
                let input = serde_json::value::to_raw_value(&json!({})).unwrap().into();
                let call = ToolCall { id: (*id).into(), tool: (*id).into(), input, input_error: None };
                Block::from(BlockContent::Call(call))
            };
            let blocks = asked.iter().map(block).collect();
            let (stop, usage) = (StopReason::ToolUse, Usage::default());
            let reply = Reply { blocks, stop, usage, model: None, request_id: None };
            add(ReplyReceived { turn: 1, reply, duration_ms: 1 }.into());
            for id in ended {
                let result = ToolResult {
                    call_id: (*id).into(),
                    text: String::new(),
                    is_error: *id != "fine",
                    ..ToolResult::default()
                };
                let (tool, duration_ms) = ((*id).to_owned(), 1);
                let ended = CallFinished {
                    tool,
                    result,
                    duration_ms,
                    file_version: None,
                    no_result: None,
                    merged: None,
                    proposal: None,
                };
                add(ended.into());
            }
        };
        reply(&["a", "fine", "b", "c"], &["c", "fine", "a", "b"]);
        reply(&["c", "a"], &["a", "c"]);
        let counts = &counts.agents[PARENT];
        let failed: Vec<&str> = counts.failed_calls.iter().map(|call| call.tool.as_str()).collect();
        assert_eq!(failed, ["a", "b", "c", "c", "a"]);
        assert_eq!((counts.replies, counts.calls["a"], counts.calls["fine"]), (2, 2, 1));
    }
}
