//! Answers to the calls of one reply: neighbouring reading calls and tasks side by side, all others alone and in
//! order; every call exactly once, in one message, in the order of the calls.

use futures_util::future::{FutureExt, LocalBoxFuture, join_all};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::resume::interrupted_result;
use super::{Agent, AgentStep, RunAbort};
use crate::budget::SUBAGENT_SUMMARY_TOKENS;
use crate::diagnostic::suggest_name;
use crate::event::{AgentFinished, CallFinished, CallStarted, Durability, Outcome};
use crate::message::{ToolCall, ToolResult, UserMessage};
use crate::plan::PlannedAgent;
use crate::text::pluralize;
use crate::tools::task::{Task, TaskInput};
use crate::tools::toolbox::{CallLimits, MAX_RESULT_CHARS, truncate_middle};
use crate::tools::{TOOLS, ToolError};

/// So many reading calls of one agent run at once.
const MAX_PARALLEL_READS: usize = 8;

/// A `task` call that a subagent will answer.
struct Delegation<'t> {
    id: String,
    subagent: String,
    planned: &'t PlannedAgent,
    input: TaskInput,
}

/// What will answer a call.
enum CallDisposition<'t> {
    /// Answered before the run was cut off: by what, and by whom.
    Journaled(ToolResult, Option<Box<AgentFinished>>),
    /// Begun before the run was cut off, and perhaps done.
    Interrupted,
    /// The subagent had ended when the run was cut off.
    SubagentEnded(Box<AgentFinished>),
    /// Not begun any more: the run is over.
    Aborted(RunAbort),
    Tool,
    Subagent(Delegation<'t>),
    Refused(String),
}

impl<'t> Agent<'t> {
    pub(super) async fn run_calls(&mut self, calls: Vec<ToolCall>) -> Result<UserMessage, RunAbort> {
        self.tree.wait_for_baseline().await?;
        self.journaled_calls = self.cursor.take_calls();
        let mut results = Vec::with_capacity(calls.len());
        let mut rest = calls.as_slice();
        while let Some(first) = rest.first() {
            let together =
                if self.runs_beside(first) { rest.iter().take_while(|call| self.runs_beside(call)).count() } else { 1 };
            let (group, later) = rest.split_at(together);
            results.extend(self.run_call_group(group).await?);
            rest = later;
        }
        for (call, result) in calls.iter().zip(&results) {
            self.stuck_detector.record(call, result.is_error);
            self.structured_output.record_call(call, result);
        }
        if !self.journaled_calls.begun.is_empty() {
            return Err(RunAbort::journal_mismatch(&self.id, "call_started"));
        }
        if self.cursor.is_exhausted() {
            self.tree.admit(&self.id, AgentStep::Continue)?;
        }
        Ok(UserMessage { results, text: None })
    }

    fn runs_beside(&self, call: &ToolCall) -> bool {
        call.tool == Task::NAME || self.toolbox.reads_only(&call.tool)
    }

    async fn run_call_group(&mut self, group: &[ToolCall]) -> Result<Vec<ToolResult>, RunAbort> {
        let mut answerers = Vec::with_capacity(group.len());
        for call in group {
            answerers.push(self.prepare(call)?);
        }
        let tasks = answerers.iter().filter(|answerer| matches!(answerer, CallDisposition::Subagent(_))).count() as u64;
        // Whatever they spend, this agent can still read what came of it and sum up.
        let kept = self.prompt_tokens().saturating_add(tasks * SUBAGENT_SUMMARY_TOKENS);
        let _kept = (tasks > 0).then(|| self.tree.budget.hold(kept, self.tree.rates(&self.planned.model, kept)));
        let readers = Semaphore::new(MAX_PARALLEL_READS);
        let this = &*self;
        let answers = group.iter().zip(answerers).map(|(call, answerer)| this.run_call(call, answerer, &readers));
        let answered = join_all(answers).await;
        let mut results = Vec::with_capacity(group.len());
        for (result, child) in answered.into_iter().collect::<Result<Vec<_>, RunAbort>>()? {
            results.push(result);
            if let Some(child) = child
                && child.outcome == Outcome::BudgetExceeded
            {
                self.limit.get_or_insert(crate::budget::LimitHit {
                    limit: "limits",
                    message: self
                        .tree
                        .last_note(Outcome::BudgetExceeded)
                        .unwrap_or_else(|| format!("{} reached a limit of the run", child.id)),
                });
            }
        }
        Ok(results)
    }

    /// Counts a call, decides who answers it and writes down that it is about to be answered.
    fn prepare(&mut self, call: &ToolCall) -> Result<CallDisposition<'t>, RunAbort> {
        if let Some((call_id, child)) = self.journaled_calls.begun.pop_front() {
            return self.resume_call(call, &call_id, child);
        }
        // Those beside it that were begun are told to their ends all the same.
        if let Err(halt) = self.tree.admit(&self.id, AgentStep::StartCall) {
            return Ok(CallDisposition::Aborted(halt));
        }
        let answerer = match self.tree.count_call(&self.id, call) {
            Err(hit) => {
                let refusal = hit.refusal();
                self.limit.get_or_insert(hit);
                CallDisposition::Refused(refusal)
            }
            Ok(()) => {
                self.tool_calls += 1;
                if call.tool == Task::NAME && self.toolbox.has(Task::NAME) {
                    self.delegate(call, None).map_or_else(CallDisposition::Refused, CallDisposition::Subagent)
                } else {
                    CallDisposition::Tool
                }
            }
        };
        let child = match &answerer {
            CallDisposition::Subagent(delegation) => Some(delegation.id.clone()),
            _ => None,
        };
        // What changes the world must outlive a crash of the machine, and what a subagent is asked for must outlive the
        // subagent's own journal; reading may simply run again.
        let durability = match &answerer {
            CallDisposition::Subagent(_) => Durability::Flushed,
            CallDisposition::Tool if !self.toolbox.reads_only(&call.tool) => Durability::Flushed,
            _ => Durability::Written,
        };
        let event =
            CallStarted { call_id: call.id.clone(), tool: call.tool.clone(), subject: call_subject(call), child };
        self.tree.record(&self.id, event, durability)?;
        match answerer {
            CallDisposition::Subagent(delegation) => Ok(match self.tree.recorded_end(&delegation.id) {
                Some(finished) => CallDisposition::SubagentEnded(Box::new(finished)),
                None => CallDisposition::Subagent(delegation),
            }),
            CallDisposition::Tool => Ok(self
                .tree
                .admit(&self.id, AgentStep::FinishCall(&call.id))
                .map_or_else(CallDisposition::Aborted, |()| CallDisposition::Tool)),
            other => Ok(other),
        }
    }

    /// Goes on with a call that was begun before the run was cut off. It is counted already.
    fn resume_call(
        &mut self,
        call: &ToolCall,
        call_id: &str,
        child: Option<String>,
    ) -> Result<CallDisposition<'t>, RunAbort> {
        self.tool_calls += 1;
        if call_id != call.id {
            return Err(RunAbort::journal_mismatch(&self.id, "call_started"));
        }
        let ended = child.as_ref().and_then(|id| self.journaled_calls.children.remove(id));
        if let Some(id) = &child {
            let subagent = id.rsplit_once('-').map_or(id.as_str(), |(subagent, _)| subagent);
            self.tree.mark_id_used(subagent, id);
        }
        if let Some((result, seen)) = self.journaled_calls.take_result(call_id) {
            self.toolbox.restore_state(call, &result, seen.as_ref());
            return Ok(CallDisposition::Journaled(result, ended.map(Box::new)));
        }
        if let Some(ended) = ended {
            return Ok(CallDisposition::SubagentEnded(Box::new(ended)));
        }
        match child {
            Some(id) => {
                Ok(self.delegate(call, Some(id)).map_or_else(CallDisposition::Refused, CallDisposition::Subagent))
            }
            None if self.toolbox.reads_only(&call.tool) => {
                Ok(self.tree.check_running().map_or_else(CallDisposition::Aborted, |()| CallDisposition::Tool))
            }
            None => Ok(CallDisposition::Interrupted),
        }
    }

    /// Who answers a `task` call: a new subagent, or the one of that id. Else what the model is told.
    fn delegate(&mut self, call: &ToolCall, id: Option<String>) -> Result<Delegation<'t>, String> {
        let subagents = &self.tree.plan.subagents;
        let known = || subagents.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        if let Some(why) = &call.input_error {
            return Err(why.clone());
        }
        let input = TaskInput::read(&call.input).map_err(|ToolError(why)| why)?;
        let (subagent, planned) = match &input.agent {
            Some(name) => match subagents.get_key_value(name) {
                Some(found) => found,
                None => {
                    let meant = suggest_name(name, subagents.keys().map(String::as_str));
                    let meant = meant.map(|meant| format!(" Did you mean `{meant}`?")).unwrap_or_default();
                    let name: String = name.chars().take(100).collect();
                    return Err(format!("No subagent is called `{name}`.{meant} There are: {}.", known()));
                }
            },
            None => match (subagents.len(), subagents.first()) {
                (1, Some(only)) => only,
                _ => return Err(format!("`agent` is missing. There are: {}.", known())),
            },
        };
        let id = match id {
            Some(id) => id,
            None => {
                if let Err(hit) = self.tree.count_subagent(&self.id, call) {
                    let refusal = hit.refusal();
                    self.limit.get_or_insert(hit);
                    return Err(refusal);
                }
                self.tree.next_id(subagent)
            }
        };
        Ok(Delegation { id, subagent: subagent.clone(), planned, input })
    }

    async fn run_call(
        &self,
        call: &ToolCall,
        answerer: CallDisposition<'t>,
        readers: &Semaphore,
    ) -> Result<(ToolResult, Option<AgentFinished>), RunAbort> {
        let begun = Instant::now();
        let mut seen = None;
        let (result, child) = match answerer {
            CallDisposition::Journaled(result, child) => return Ok((result, child.map(|child| *child))),
            CallDisposition::Aborted(halt) => return Err(halt),
            CallDisposition::Interrupted => (interrupted_result(&call.id), None),
            CallDisposition::Refused(text) => (ToolResult { call_id: call.id.clone(), text, is_error: true }, None),
            CallDisposition::Tool => {
                let _turn = readers.acquire().await;
                let limits = CallLimits { deadline: self.tree.deadline.into(), cancel: self.tree.stop.clone() };
                let answered = self.toolbox.call(call, limits).await;
                seen = answered.1;
                (answered.0, None)
            }
            CallDisposition::SubagentEnded(finished) => {
                (subagent_tool_result(call, &finished), Some(self.propagate_fatal(*finished)?))
            }
            CallDisposition::Subagent(delegation) => {
                let finished = self.run_subagent(delegation).await?;
                (subagent_tool_result(call, &finished), Some(finished))
            }
        };
        let event = CallFinished {
            tool: call.tool.clone(),
            result: result.clone(),
            duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            file_version: seen,
        };
        self.tree.record(&self.id, event, Durability::Written)?;
        self.tree.check_integrity()?;
        Ok((result, child))
    }

    /// Boxed because an agent that delegates runs agents.
    fn run_subagent<'a>(&'a self, delegation: Delegation<'t>) -> LocalBoxFuture<'a, Result<AgentFinished, RunAbort>> {
        async move {
            let Delegation { id, subagent, planned, input } = delegation;
            let _place = tokio::select! {
                biased;
                // What a subagent did before is told even where there is no time left to do more.
                halt = self.tree.wait_for_abort_before_start(&id), if !self.tree.has_cursor(&id) => return Err(halt),
                place = self.tree.children.acquire() => place,
            };
            self.propagate_fatal(
                Agent::run(self.tree, id, Some(subagent), input.description, planned, input.prompt).await,
            )
        }
        .boxed_local()
    }

    /// Whether the run goes on after a subagent's end.
    fn propagate_fatal(&self, finished: AgentFinished) -> Result<AgentFinished, RunAbort> {
        if finished.outcome.ends_the_run() && finished.outcome != Outcome::BudgetExceeded {
            return Err(self.tree.abort().unwrap_or_else(|| RunAbort {
                outcome: finished.outcome,
                message: format!("{} ended with {}", finished.id, finished.outcome),
                hint: None,
            }));
        }
        Ok(finished)
    }
}

/// What the parent sees of a child: its data or else its last text, and how it ended where that isn't its own end.
fn subagent_tool_result(call: &ToolCall, finished: &AgentFinished) -> ToolResult {
    let data = finished.result.as_ref().map(ToString::to_string);
    let last = if finished.text.trim().is_empty() { "(no summary)" } else { finished.text.as_str() };
    let text = data.as_deref().unwrap_or(last);
    let text = if finished.outcome == Outcome::Completed {
        text.to_owned()
    } else if finished.outcome == Outcome::ResultInvalid {
        format!(
            "[{} ended with {}: it was to return data, and submitted none that fits its schema; this is the last that it \
             said]\n\n{text}",
            finished.id, finished.outcome
        )
    } else {
        let what = if data.is_some() { "the data that it had submitted" } else { "the last that it said" };
        let turns = pluralize(u64::from(finished.turns), "turn");
        let told = |why: &str| {
            let line = why.split_whitespace().collect::<Vec<_>>().join(" ");
            format!(" (the model's provider says why: {})", truncate_line(&line, 600))
        };
        let why = finished.refusal.as_deref().map(told).unwrap_or_default();
        format!("[{} ended with {} after {turns}{why}; this is {what}]\n\n{text}", finished.id, finished.outcome)
    };
    let is_error = matches!(finished.outcome, Outcome::Stuck | Outcome::Refused | Outcome::ResultInvalid);
    ToolResult { call_id: call.id.clone(), text: truncate_middle(text, MAX_RESULT_CHARS), is_error }
}

/// A line of at most so many characters.
fn truncate_line(line: &str, most: usize) -> String {
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// What a call is about, in one line of at most 100 characters: its tool's subject, or else the first text in its input.
fn call_subject(call: &ToolCall) -> String {
    let input: serde_json::Value = match serde_json::from_str(call.input.get()) {
        Ok(input) => input,
        Err(_) => return String::new(),
    };
    let subject = TOOLS.iter().find(|tool| tool.name == call.tool).and_then(|tool| tool.subject_field);
    let preferred = subject.and_then(|subject| input.get(subject)?.as_str());
    let first = || input.as_object()?.values().find_map(serde_json::Value::as_str);
    let text = preferred.or_else(first).unwrap_or_default();
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let shown: String = line.chars().filter(|letter| !letter.is_control()).collect();
    truncate_line(&shown, 100)
}
