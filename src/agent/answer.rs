//! Answers to the calls of one reply: neighbouring reading calls and tasks side by side, all others alone and in
//! order; every call exactly once, in one message, in the order of the calls.

use futures_util::future::{FutureExt, LocalBoxFuture, join_all};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::recall::interrupted;
use super::{Agent, Halt, Step};
use crate::budget::NEWS_TOKENS;
use crate::diagnostic::nearest;
use crate::event::{AgentFinished, CallFinished, CallStarted, Durability, Outcome};
use crate::message::{ToolCall, ToolResult, UserMessage, counted};
use crate::plan::PlannedAgent;
use crate::tools::task::{Task, TaskInput};
use crate::tools::toolbox::{CallLimits, MAX_CHARS, bounded};
use crate::tools::{Refusal, TOOLS};

/// So many reading calls of one agent run at once.
const READERS: usize = 8;

/// A `task` call that a subagent will answer.
struct Delegation<'t> {
    id: String,
    subagent: String,
    planned: &'t PlannedAgent,
    input: TaskInput,
}

/// What will answer a call.
enum Answerer<'t> {
    /// Answered before the run was cut off: by what, and by whom.
    Known(ToolResult, Option<Box<AgentFinished>>),
    /// Begun before the run was cut off, and perhaps done.
    Interrupted,
    /// The subagent had ended when the run was cut off.
    Ended(Box<AgentFinished>),
    /// Not begun any more: the run is over.
    Nobody(Halt),
    Tool,
    Subagent(Delegation<'t>),
    Refused(String),
}

impl<'t> Agent<'t> {
    pub(super) async fn answer(&mut self, calls: Vec<ToolCall>) -> Result<UserMessage, Halt> {
        self.tree.ready().await?;
        self.calls = self.past.calls();
        let mut results = Vec::with_capacity(calls.len());
        let mut rest = calls.as_slice();
        while let Some(first) = rest.first() {
            let together =
                if self.runs_beside(first) { rest.iter().take_while(|call| self.runs_beside(call)).count() } else { 1 };
            let (group, later) = rest.split_at(together);
            results.extend(self.answer_group(group).await?);
            rest = later;
        }
        for (call, result) in calls.iter().zip(&results) {
            self.failures.note(call, result.is_error);
            self.submitted.note(call, result);
        }
        if !self.calls.begun.is_empty() {
            return Err(Halt::unlike(&self.id, "call_started"));
        }
        if self.past.is_over() {
            self.tree.may(&self.id, Step::GoOn)?;
        }
        Ok(UserMessage { results, text: None })
    }

    fn runs_beside(&self, call: &ToolCall) -> bool {
        call.tool == Task::NAME || self.toolbox.reads_only(&call.tool)
    }

    async fn answer_group(&mut self, group: &[ToolCall]) -> Result<Vec<ToolResult>, Halt> {
        let mut answerers = Vec::with_capacity(group.len());
        for call in group {
            answerers.push(self.prepare(call)?);
        }
        let tasks = answerers.iter().filter(|answerer| matches!(answerer, Answerer::Subagent(_))).count() as u64;
        // Whatever they spend, this agent can still read what came of it and sum up.
        let kept = self.prompt_tokens().saturating_add(tasks * NEWS_TOKENS);
        let _kept = (tasks > 0).then(|| self.tree.budget.keep(kept, self.tree.rates(&self.planned.model, kept)));
        let readers = Semaphore::new(READERS);
        let this = &*self;
        let answers = group.iter().zip(answerers).map(|(call, answerer)| this.answer_one(call, answerer, &readers));
        let answered = join_all(answers).await;
        let mut results = Vec::with_capacity(group.len());
        for (result, child) in answered.into_iter().collect::<Result<Vec<_>, Halt>>()? {
            results.push(result);
            if let Some(child) = child
                && child.outcome == Outcome::BudgetExceeded
            {
                self.limit.get_or_insert(crate::budget::LimitHit {
                    limit: "limits",
                    message: self
                        .tree
                        .noted(Outcome::BudgetExceeded)
                        .unwrap_or_else(|| format!("{} reached a limit of the run", child.id)),
                });
            }
        }
        Ok(results)
    }

    /// Counts a call, decides who answers it and writes down that it is about to be answered.
    fn prepare(&mut self, call: &ToolCall) -> Result<Answerer<'t>, Halt> {
        if let Some((call_id, child)) = self.calls.begun.pop_front() {
            return self.take_up(call, &call_id, child);
        }
        // Those beside it that were begun are told to their ends all the same.
        if let Err(halt) = self.tree.may(&self.id, Step::Call) {
            return Ok(Answerer::Nobody(halt));
        }
        let answerer = match self.tree.count_call(&self.id, call) {
            Err(hit) => {
                let refusal = hit.refusal();
                self.limit.get_or_insert(hit);
                Answerer::Refused(refusal)
            }
            Ok(()) => {
                self.tool_calls += 1;
                if call.tool == Task::NAME && self.toolbox.has(Task::NAME) {
                    self.delegate(call, None).map_or_else(Answerer::Refused, Answerer::Subagent)
                } else {
                    Answerer::Tool
                }
            }
        };
        let child = match &answerer {
            Answerer::Subagent(delegation) => Some(delegation.id.clone()),
            _ => None,
        };
        // What changes the world must outlive a crash of the machine, and what a subagent is asked for must outlive the
        // subagent's own journal; reading may simply run again.
        let durability = match &answerer {
            Answerer::Subagent(_) => Durability::Flushed,
            Answerer::Tool if !self.toolbox.reads_only(&call.tool) => Durability::Flushed,
            _ => Durability::Written,
        };
        let event = CallStarted { call_id: call.id.clone(), tool: call.tool.clone(), about: about(call), child };
        self.tree.record(&self.id, event, durability)?;
        match answerer {
            Answerer::Subagent(delegation) => Ok(match self.tree.known_end(&delegation.id) {
                Some(finished) => Answerer::Ended(Box::new(finished)),
                None => Answerer::Subagent(delegation),
            }),
            Answerer::Tool => {
                Ok(self.tree.may(&self.id, Step::Answer(&call.id)).map_or_else(Answerer::Nobody, |()| Answerer::Tool))
            }
            other => Ok(other),
        }
    }

    /// Goes on with a call that was begun before the run was cut off. It is counted already.
    fn take_up(&mut self, call: &ToolCall, call_id: &str, child: Option<String>) -> Result<Answerer<'t>, Halt> {
        self.tool_calls += 1;
        if call_id != call.id {
            return Err(Halt::unlike(&self.id, "call_started"));
        }
        let ended = child.as_ref().and_then(|id| self.calls.children.remove(id));
        if let Some(id) = &child {
            let subagent = id.rsplit_once('-').map_or(id.as_str(), |(subagent, _)| subagent);
            self.tree.take_id(subagent, id);
        }
        if let Some((result, seen)) = self.calls.answer(call_id) {
            self.toolbox.recall(call, &result, seen.as_ref());
            return Ok(Answerer::Known(result, ended.map(Box::new)));
        }
        if let Some(ended) = ended {
            return Ok(Answerer::Ended(Box::new(ended)));
        }
        match child {
            Some(id) => Ok(self.delegate(call, Some(id)).map_or_else(Answerer::Refused, Answerer::Subagent)),
            None if self.toolbox.reads_only(&call.tool) => {
                Ok(self.tree.may_go_on().map_or_else(Answerer::Nobody, |()| Answerer::Tool))
            }
            None => Ok(Answerer::Interrupted),
        }
    }

    /// Who answers a `task` call: a new subagent, or the one of that id. Else what the model is told.
    fn delegate(&mut self, call: &ToolCall, id: Option<String>) -> Result<Delegation<'t>, String> {
        let subagents = &self.tree.plan.subagents;
        let known = || subagents.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        if let Some(why) = &call.broken {
            return Err(why.clone());
        }
        let input = TaskInput::read(&call.input).map_err(|Refusal(why)| why)?;
        let (subagent, planned) = match &input.agent {
            Some(name) => match subagents.get_key_value(name) {
                Some(found) => found,
                None => {
                    let meant = nearest(name, subagents.keys().map(String::as_str));
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

    async fn answer_one(
        &self,
        call: &ToolCall,
        answerer: Answerer<'t>,
        readers: &Semaphore,
    ) -> Result<(ToolResult, Option<AgentFinished>), Halt> {
        let begun = Instant::now();
        let mut seen = None;
        let (result, child) = match answerer {
            Answerer::Known(result, child) => return Ok((result, child.map(|child| *child))),
            Answerer::Nobody(halt) => return Err(halt),
            Answerer::Interrupted => (interrupted(&call.id), None),
            Answerer::Refused(text) => (ToolResult { call_id: call.id.clone(), text, is_error: true }, None),
            Answerer::Tool => {
                let _turn = readers.acquire().await;
                let limits = CallLimits { deadline: self.tree.deadline.into(), cancel: self.tree.stop.clone() };
                let answered = self.toolbox.call(call, limits).await;
                seen = answered.1;
                (answered.0, None)
            }
            Answerer::Ended(finished) => (summary(call, &finished), Some(self.survive(*finished)?)),
            Answerer::Subagent(delegation) => {
                let finished = self.run_child(delegation).await?;
                (summary(call, &finished), Some(finished))
            }
        };
        let event = CallFinished {
            tool: call.tool.clone(),
            result: result.clone(),
            duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            seen,
        };
        self.tree.record(&self.id, event, Durability::Written)?;
        self.tree.is_sound()?;
        Ok((result, child))
    }

    /// Boxed because an agent that delegates runs agents.
    fn run_child<'a>(&'a self, delegation: Delegation<'t>) -> LocalBoxFuture<'a, Result<AgentFinished, Halt>> {
        async move {
            let Delegation { id, subagent, planned, input } = delegation;
            let _place = tokio::select! {
                biased;
                // What a subagent did before is told even where there is no time left to do more.
                halt = self.tree.cut_off_before(&id), if !self.tree.has_past_of(&id) => return Err(halt),
                place = self.tree.children.acquire() => place,
            };
            self.survive(Agent::live(self.tree, id, Some(subagent), input.description, planned, input.prompt).await)
        }
        .boxed_local()
    }

    /// Whether the run goes on after a subagent's end.
    fn survive(&self, finished: AgentFinished) -> Result<AgentFinished, Halt> {
        if finished.outcome.ends_the_run() && finished.outcome != Outcome::BudgetExceeded {
            return Err(self.tree.halted().unwrap_or_else(|| Halt {
                outcome: finished.outcome,
                message: format!("{} ended with {}", finished.id, finished.outcome),
                hint: None,
            }));
        }
        Ok(finished)
    }
}

/// What the parent sees of a child: its data or else its last text, and how it ended where that isn't its own end.
fn summary(call: &ToolCall, finished: &AgentFinished) -> ToolResult {
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
        let turns = counted(u64::from(finished.turns), "turn");
        let told = |why: &str| {
            let line = why.split_whitespace().collect::<Vec<_>>().join(" ");
            format!(" (the model's provider says why: {})", cut(&line, 600))
        };
        let why = finished.refusal.as_deref().map(told).unwrap_or_default();
        format!("[{} ended with {} after {turns}{why}; this is {what}]\n\n{text}", finished.id, finished.outcome)
    };
    let is_error = matches!(finished.outcome, Outcome::Stuck | Outcome::Refused | Outcome::ResultInvalid);
    ToolResult { call_id: call.id.clone(), text: bounded(text, MAX_CHARS), is_error }
}

/// A line of at most so many characters.
fn cut(line: &str, most: usize) -> String {
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// What a call is about, in one line of at most 100 characters: its tool's subject, or else the first text in its input.
fn about(call: &ToolCall) -> String {
    let input: serde_json::Value = match serde_json::from_str(call.input.get()) {
        Ok(input) => input,
        Err(_) => return String::new(),
    };
    let subject = TOOLS.iter().find(|tool| tool.name == call.tool).and_then(|tool| tool.subject);
    let preferred = subject.and_then(|subject| input.get(subject)?.as_str());
    let first = || input.as_object()?.values().find_map(serde_json::Value::as_str);
    let text = preferred.or_else(first).unwrap_or_default();
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let shown: String = line.chars().filter(|letter| !letter.is_control()).collect();
    cut(&shown, 100)
}
