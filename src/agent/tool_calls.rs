//! The calls of one reply. Neighbouring `task` calls and reading calls run side by side; all others run alone and in order.
//! Every call gets exactly one result, and the results go back in one message, in the order of the calls.

use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture, join_all};
use tokio::sync::Semaphore;

use super::agent_state::Agent;
use super::journal_cursor::{Recorded, RecordedCall};
use super::network::CallNetwork;
use super::run_abort::RunAbort;
use crate::budget::{SUBAGENT_SUMMARY_TOKENS, TOOL_CALLS_KEY};
use crate::diagnostic::suggest_name;
use crate::event::{AgentFinished, CallFinished, CallStarted, LimitReached, MergedChanges, NoResult, Outcome};
use crate::job::SubagentWorkspace;
use crate::message::{ToolCall, ToolResult, UserMessage};
use crate::plan::PlannedAgent;
use crate::process::spawn::EnvironmentError;
use crate::running_clock::RunningInstant;
use crate::text::truncate::ellipsize;
use crate::text::{pluralize, sanitize};
use crate::tools::task::{Task, TaskInput};
use crate::tools::toolbox::{MAX_RESULT_CHARS, truncate_middle};
use crate::tools::{ToolError, call_subject};

/// How many reading calls of one agent run at once.
const MAX_PARALLEL_READS: usize = 8;

/// What the model reads as the result of a call that had started when the run was interrupted.
const INTERRUPTED_CALL_NOTE: &str = "The run was interrupted during this call. Its effect is unknown: all, part or none of \
                                     it may have happened. Check before you repeat it.";

/// The longest list of changed files in a result, in characters.
const MAX_MERGE_NOTE: usize = 800;

/// A subagent that answers a `task` call.
struct Delegation<'t> {
    id: String,
    subagent: String,
    planned: &'t PlannedAgent,
    input: TaskInput,
    /// In a replay, how its changes came back into the workspace.
    merged: Option<MergedChanges>,
}

/// How far a call has come.
enum CallProgress {
    /// Its result is recorded.
    Done(ToolResult, Option<AgentFinished>),
    /// Its subagent has ended, and the changes in the subagent's copy of the workspace aren't merged yet.
    Unmerged {
        end: Box<CallFinished>,
        child: AgentFinished,
        /// Whether an earlier part of the run may have merged some of them.
        may_be_partial: bool,
    },
}

/// How a call gets its result.
enum CallDisposition<'t> {
    /// From the record, with the end of the subagent that answered it.
    Recorded(Box<CallFinished>, Option<AgentFinished>),
    /// From a subagent that had ended before.
    SubagentEnded(AgentFinished, Option<MergedChanges>),
    /// Not at all: the run is over.
    Aborted(RunAbort),
    Tool,
    Subagent(Delegation<'t>),
    /// From legwork: the tool isn't run, for this reason. The text says this to the model.
    NotRun(String, Option<NoResult>),
}

impl CallDisposition<'_> {
    /// The subagent that answers the call.
    fn child(&self) -> Option<String> {
        match self {
            Self::Subagent(delegation) => Some(delegation.id.clone()),
            Self::SubagentEnded(end, _) => Some(end.id.clone()),
            _ => None,
        }
    }
}

impl<'t> Agent<'t> {
    /// Runs the calls of a reply. Returns the message with their results.
    pub(super) async fn run_calls(&mut self, calls: Vec<ToolCall>) -> Result<UserMessage, RunAbort> {
        self.run.wait_for_baseline().await?;
        self.cursor.begin_calls();
        let mut results = Vec::with_capacity(calls.len());
        let mut rest = calls.as_slice();
        while let Some(first) = rest.first() {
            let count = match self.runs_in_parallel(first) {
                true => rest.iter().take_while(|call| self.runs_in_parallel(call)).count(),
                false => 1,
            };
            let (group, later) = rest.split_at(count);
            results.extend(self.run_call_group(group).await?);
            rest = later;
        }
        for (call, result) in calls.iter().zip(&results) {
            self.stuck_detector.record(call, result.is_error);
            self.output.record_call(call, result);
            if self.is_parent() {
                self.run.take_set_state(call, result);
            }
        }
        self.cursor.end_calls()?;
        if self.cursor.is_exhausted() {
            self.go_live("request_started", "the record ends here")?;
        }
        if let Some(hit) = self.cursor.next_run_limit() {
            self.limit = Some(hit);
        }
        Ok(UserMessage::results(results))
    }

    fn runs_in_parallel(&self, call: &ToolCall) -> bool {
        call.tool == Task::NAME || self.toolbox.reads_only(&call.tool)
    }

    async fn run_call_group(&mut self, group: &[ToolCall]) -> Result<Vec<ToolResult>, RunAbort> {
        let mut dispositions = Vec::with_capacity(group.len());
        for call in group {
            dispositions.push(self.prepare(call)?);
        }
        // Calls with effects must be on the disk before they start, and so must the requests for subagents before the subagents'
        // own journals. A reading call can simply run again.
        let has_effects = |(call, disposition): (&ToolCall, &CallDisposition<'_>)| match disposition {
            CallDisposition::Subagent(_) => true,
            CallDisposition::Tool => !self.toolbox.reads_only(&call.tool),
            _ => false,
        };
        if group.iter().zip(&dispositions).any(has_effects) {
            self.run.flush(self.id()).await?;
        }
        for disposition in &dispositions {
            self.open_copy(disposition).await?;
        }
        let is_subagent = |disposition: &&CallDisposition<'_>| matches!(disposition, CallDisposition::Subagent(_));
        let subagents = dispositions.iter().filter(is_subagent).count() as u64;
        // Whatever the subagents spend, this agent can still read their summaries and sum up.
        let held = self.context.likely_tokens().saturating_add(subagents * SUBAGENT_SUMMARY_TOKENS);
        let _hold = (subagents > 0).then(|| self.run.budget.hold(held, self.run.rates(self.planned, self.model, held)));
        let read_slots = Semaphore::new(MAX_PARALLEL_READS);
        let this = &*self;
        let calls =
            group.iter().zip(dispositions).map(|(call, disposition)| this.run_call(call, disposition, &read_slots));
        let finished = join_all(calls).await;
        let mut results = Vec::with_capacity(group.len());
        for progress in finished.into_iter().collect::<Result<Vec<_>, RunAbort>>()? {
            let (result, child) = match progress {
                CallProgress::Done(result, child) => (result, child),
                CallProgress::Unmerged { end, child, may_be_partial } => {
                    (self.merge_copy(*end, &child, may_be_partial).await?, Some(child))
                }
            };
            results.push(result);
            if let Some(child) = child.filter(|child| child.outcome == Outcome::BudgetExceeded) {
                let reason = self.run.last_note(Outcome::BudgetExceeded);
                let message = reason.unwrap_or_else(|| format!("{} reached a limit of the run", child.id));
                self.limit.get_or_insert(LimitReached::new("limits", message));
            }
        }
        if !self.cursor.is_replay()
            && let Some(hit) = self.run.upload_reached()
        {
            self.limit.get_or_insert(hit);
        }
        Ok(results)
    }

    /// Decides how a call gets its result, and records that it starts.
    fn prepare(&mut self, call: &ToolCall) -> Result<CallDisposition<'t>, RunAbort> {
        let has_tool = self.toolbox.has(&call.tool);
        match self.cursor.take_call(call, has_tool)? {
            Some(recorded) => self.repeat_call(call, recorded),
            None => match self.go_live("call_started", "it starts a call that the record doesn't have") {
                Ok(()) => self.start_call(call),
                // The calls of the group that have started are completed in any case.
                Err(abort) => Ok(CallDisposition::Aborted(abort)),
            },
        }
    }

    /// Starts a call for the first time.
    fn start_call(&mut self, call: &ToolCall) -> Result<CallDisposition<'t>, RunAbort> {
        let disposition = match self.run.budget.count_call() {
            Err(hit) => self.refuse(hit),
            Ok(()) => {
                self.summary.tool_calls += 1;
                if self.delegates(call) { self.delegate(call, None, None) } else { CallDisposition::Tool }
            }
        };
        self.run.record(self.id(), call_started(call, disposition.child()))?;
        Ok(disposition)
    }

    /// Takes a call from the record. The budget has counted it.
    fn repeat_call(&mut self, call: &ToolCall, recorded: RecordedCall) -> Result<CallDisposition<'t>, RunAbort> {
        let RecordedCall { child, mut child_end, end, merged } = recorded;
        let is_uncounted = matches!(&end, Recorded::Known(CallFinished { no_result: Some(NoResult::Limit(key)), .. })
            if key == TOOL_CALLS_KEY);
        self.summary.tool_calls += u64::from(!is_uncounted);
        child.iter().for_each(|id| self.run.mark_id_used(id));
        let disposition = match end {
            Recorded::Known(end) => {
                self.toolbox.restore_state(call, &end.result, end.file_version.as_ref());
                // A resumed run has restored all of them at its start.
                if let (Some(proposals), Some(proposal)) = (&self.run.proposals, &end.proposal)
                    && self.cursor.is_replay()
                {
                    proposals.restore(proposal);
                }
                CallDisposition::Recorded(Box::new(end), child_end.take())
            }
            Recorded::Rerun if self.delegates(call) => self.delegate(call, child, merged),
            Recorded::Rerun => CallDisposition::Tool,
            Recorded::Unfinished if self.cursor.is_replay() => {
                CallDisposition::Aborted(self.leave_record("the record has no result of its call"))
            }
            Recorded::Unfinished if child.is_some() => self.delegate(call, child, None),
            Recorded::Unfinished if self.toolbox.reads_only(&call.tool) => {
                self.run.check_running().map_or_else(CallDisposition::Aborted, |()| CallDisposition::Tool)
            }
            Recorded::Unfinished => {
                CallDisposition::NotRun(INTERRUPTED_CALL_NOTE.to_owned(), Some(NoResult::Interrupted))
            }
        };
        let disposition = match (disposition, child_end) {
            (CallDisposition::Subagent(delegation), Some(end)) if end.id == delegation.id => {
                CallDisposition::SubagentEnded(end, delegation.merged)
            }
            (disposition, _) => disposition,
        };
        self.record_again(call_started(call, disposition.child()))?;
        Ok(disposition)
    }

    /// Whether a subagent answers a call.
    fn delegates(&self, call: &ToolCall) -> bool {
        call.tool == Task::NAME && self.toolbox.has(Task::NAME)
    }

    /// Refuses a call because of a limit of the run.
    fn refuse(&mut self, hit: LimitReached) -> CallDisposition<'t> {
        let refusal = format!("Not run: {}.", hit.message);
        let key = hit.limit.clone();
        self.limit.get_or_insert(hit);
        CallDisposition::NotRun(refusal, Some(NoResult::Limit(key)))
    }

    /// Chooses the subagent that answers a `task` call: a new one, or the recorded one.
    fn delegate(
        &mut self,
        call: &ToolCall,
        recorded: Option<String>,
        merged: Option<MergedChanges>,
    ) -> CallDisposition<'t> {
        let (subagent, planned, input) = match self.find_subagent(call) {
            Ok(found) => found,
            Err(why) => return CallDisposition::NotRun(why, None),
        };
        // A replay of an edited plan may choose another subagent.
        let is_replay = self.cursor.is_replay();
        let is_same = |id: &String| !is_replay || id.rsplit_once('-').is_some_and(|(name, _)| name == subagent);
        let id = match recorded.filter(is_same) {
            Some(id) => id,
            None => {
                if let Err(hit) = self.run.budget.count_subagent() {
                    return self.refuse(hit);
                }
                self.run.next_id(subagent)
            }
        };
        CallDisposition::Subagent(Delegation { id, subagent: subagent.to_owned(), planned, input, merged })
    }

    /// The kind of subagent that a `task` call asks for.
    fn find_subagent(&self, call: &ToolCall) -> Result<(&'t str, &'t PlannedAgent, TaskInput), String> {
        let run: &'t super::run_state::RunState = self.run;
        let subagents = &run.deps.plan.subagents;
        let names = || subagents.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        if let Some(why) = &call.input_error {
            return Err(why.clone());
        }
        let input = TaskInput::read(&call.input).map_err(|ToolError(why)| why)?;
        let (subagent, planned) = match &input.agent {
            Some(name) => subagents.get_key_value(name).ok_or_else(|| {
                let near = suggest_name(name, subagents.keys().map(String::as_str));
                let near = near.map(|near| format!(" Did you mean `{near}`?")).unwrap_or_default();
                let name: String = name.chars().take(100).collect();
                format!("No subagent is called `{name}`.{near} There are: {}.", names())
            })?,
            None => match (subagents.len(), subagents.first()) {
                (1, Some(only)) => only,
                _ => return Err(format!("`agent` is missing. There are: {}.", names())),
            },
        };
        Ok((subagent, planned, input))
    }

    async fn run_call(
        &self,
        call: &ToolCall,
        disposition: CallDisposition<'t>,
        read_slots: &Semaphore,
    ) -> Result<CallProgress, RunAbort> {
        let started = RunningInstant::now();
        let mut end = CallFinished {
            tool: call.tool.clone(),
            result: ToolResult { call_id: call.id.clone(), is_error: true, ..ToolResult::default() },
            duration_ms: 0,
            file_version: None,
            no_result: None,
            merged: None,
            proposal: None,
        };
        let (mut child, mut failure, mut copy) = (None, None, None);
        match disposition {
            CallDisposition::Recorded(mut recorded, child) if !self.cursor.is_replay() => {
                recorded.result.attachments.iter_mut().try_for_each(|attachment| self.load(attachment))?;
                return Ok(CallProgress::Done(recorded.result, child));
            }
            CallDisposition::Recorded(recorded, its_child) => (end, child) = (*recorded, its_child),
            CallDisposition::Aborted(abort) => return Err(abort),
            CallDisposition::NotRun(text, no_result) => (end.result.text, end.no_result) = (text, no_result),
            CallDisposition::Tool => {
                let _slot = read_slots.acquire().await;
                let mut network = CallNetwork::new(self.run, self.id(), &call.id, self.toolbox.egress());
                let egress = network.egress();
                let work = self.toolbox.call_with(call, self.run.call_limits(), egress.as_ref());
                let mut outcome = network.watch(work).await?;
                if let Some(traffic) = self.toolbox.take_server_traffic(call) {
                    network.add(&traffic)?;
                }
                if let Some(note) = network.finish()? {
                    let text = std::mem::take(&mut outcome.result.text);
                    let most = MAX_RESULT_CHARS.saturating_sub(note.chars().count() + 1);
                    outcome.result.text = format!("{}\n{note}", truncate_middle(text, most));
                }
                (end.result, end.file_version, failure) = (outcome.result, outcome.file_version, outcome.failure);
                end.proposal = outcome.proposal;
            }
            CallDisposition::SubagentEnded(finished, merged) => {
                end.result = subagent_tool_result(call, &finished);
                copy = self.has_copy(&finished.id).then_some((merged, true));
                child = Some(self.propagate_fatal(finished)?);
            }
            CallDisposition::Subagent(delegation) => {
                let merged = delegation.merged.clone();
                copy = self.has_copy(&delegation.id).then(|| (merged, self.run.has_recorded_steps(&delegation.id)));
                let finished = self.run_subagent(delegation).await?;
                end.result = subagent_tool_result(call, &finished);
                child = Some(finished);
            }
        }
        end.duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        match (copy, child) {
            (Some((_, may_be_partial)), Some(child)) if !self.cursor.is_replay() => {
                return Ok(CallProgress::Unmerged { end: Box::new(end), child, may_be_partial });
            }
            (Some((Some(merged), _)), its_child) => {
                add_merged(&mut end, its_child.as_ref().map_or("", |child| &child.id), merged);
                child = its_child;
            }
            (_, its_child) => child = its_child,
        }
        let result = end.result.clone();
        self.run.keep(&result.attachments)?;
        self.run.record(self.id(), end)?;
        self.run.fail(failure)?;
        Ok(CallProgress::Done(result, child))
    }

    /// Whether a subagent works in a copy of the workspace.
    fn has_copy(&self, id: &str) -> bool {
        self.run.deps.plan.agent(id).is_some_and(|planned| planned.workspace == SubagentWorkspace::Own)
    }

    /// Makes the copy of the workspace for a subagent that is about to start, or finds the one that it had. No other call
    /// runs meanwhile.
    async fn open_copy(&self, disposition: &CallDisposition<'t>) -> Result<(), RunAbort> {
        let Some(copies) = &self.run.deps.own_workspaces else { return Ok(()) };
        let Some(id) = disposition.child().filter(|id| self.has_copy(id)) else { return Ok(()) };
        if matches!(disposition, CallDisposition::SubagentEnded(..)) {
            return Ok(());
        }
        if self.run.has_recorded_steps(&id) {
            if !copies.has(&id) {
                return Err(RunAbort::workspace_copy_gone(&id));
            }
        } else {
            // A tool server may have changed git's configuration, which making a copy reads.
            self.run.deps.tools.sandbox.check_protected().map_err(EnvironmentError::Tampered)?;
            let (copies, id, stop) = (Arc::clone(copies), id.clone(), self.run.deps.stop.clone());
            let work = tokio::task::spawn_blocking(move || copies.make(&id, stop));
            tokio::select! {
                biased;
                abort = self.run.wait_for_stop() => return Err(abort),
                made = work => made.unwrap_or_else(|error| Err(error.to_string())).map_err(RunAbort::workspace_copy)?,
            }
        }
        let tools =
            copies.tools(&id, self.run.network_access(&id), &self.run.deps.tools).map_err(RunAbort::workspace_copy)?;
        self.run.set_own_tools(&id, tools);
        Ok(())
    }

    /// Merges the changes in a subagent's copy of the workspace, records the result of its call and removes the copy.
    async fn merge_copy(
        &self,
        mut end: CallFinished,
        child: &AgentFinished,
        may_be_partial: bool,
    ) -> Result<ToolResult, RunAbort> {
        let id = child.id.as_str();
        let Some(copies) = &self.run.deps.own_workspaces else { return Ok(end.result) };
        self.run.deps.tools.sandbox.check_protected().map_err(EnvironmentError::Tampered)?;
        let (merging, stop) = (Arc::clone(copies), self.run.deps.stop.clone());
        let agent = id.to_owned();
        // An agent that a limit ended continues in its copy when the limit is raised.
        let may_continue = child.outcome.is_a_limit();
        let merged = tokio::task::spawn_blocking(move || merging.merge(&agent, may_continue, stop)).await;
        let mut merged = merged.unwrap_or_else(|error| Err(error.to_string())).map_err(RunAbort::workspace_copy)?;
        // A signal shortens the comparison, and a resumed run can repeat it.
        self.run.check_running()?;
        let redactor = &self.run.deps.tools.redactor;
        let texts = merged.files.iter_mut().chain(&mut merged.conflicts).chain(&mut merged.note);
        texts.for_each(|text| *text = redactor.redact(text).into_owned());
        merged.may_be_partial = may_be_partial && !merged.conflicts.is_empty();
        add_merged(&mut end, id, merged);
        let result = end.result.clone();
        // Once the copy is gone, the merge can't be repeated.
        self.run.record(self.id(), end)?;
        self.run.flush(self.id()).await?;
        if !may_continue {
            copies.remove(id);
        }
        Ok(result)
    }

    /// Runs a subagent once there is a place for it. Boxed because agents run agents.
    fn run_subagent<'a>(&'a self, delegation: Delegation<'t>) -> LocalBoxFuture<'a, Result<AgentFinished, RunAbort>> {
        async move {
            let Delegation { id, subagent, planned, input, .. } = delegation;
            if let Some(abort) = self.run.never_started(&id) {
                return Err(abort);
            }
            let _slot = tokio::select! {
                biased;
                // The recorded steps of a subagent come first, even if the run has no time left for new ones.
                abort = self.run.wait_for_stop(), if !self.run.has_recorded_steps(&id) => return Err(abort),
                slot = self.run.subagent_slots.acquire() => slot,
            };
            let summary = Agent::empty_summary(id, Some(subagent), input.description);
            self.propagate_fatal(Agent::run(self.run, planned, summary, input.prompt, RunningInstant::now()).await)
        }
        .boxed_local()
    }

    /// Ends the run if the end of a subagent does.
    fn propagate_fatal(&self, end: AgentFinished) -> Result<AgentFinished, RunAbort> {
        if end.outcome.ends_the_run() && end.outcome != Outcome::BudgetExceeded {
            let message = format!("{} ended with {}", end.id, end.outcome);
            return Err(self.run.abort().unwrap_or_else(|| RunAbort::new(end.outcome, message)));
        }
        Ok(end)
    }
}

fn call_started(call: &ToolCall, child: Option<String>) -> CallStarted {
    CallStarted { call_id: call.id.clone(), tool: call.tool.clone(), subject: call_subject(call), child }
}

/// What the parent reads about a subagent: its data or else its last text, and how it ended unless it completed.
fn subagent_tool_result(call: &ToolCall, end: &AgentFinished) -> ToolResult {
    let data = end.result.as_ref().map(ToString::to_string);
    let last = if end.text.trim().is_empty() { "(no summary)" } else { end.text.as_str() };
    let text = data.as_deref().unwrap_or(last);
    let text = match end.outcome {
        Outcome::Completed => text.to_owned(),
        Outcome::ResultInvalid => format!(
            "[{} ended with {}: it had to return data, and submitted none that matches its schema; this is its last \
             message]\n\n{text}",
            end.id, end.outcome
        ),
        outcome => {
            let what = if data.is_some() { "the data that it had submitted" } else { "its last message" };
            let turns = pluralize(u64::from(end.turns), "turn");
            let refusal = |why: &str| format!(" (the model's provider says why: {})", ellipsize(why, 600));
            let refusal = end.refusal.as_deref().map(refusal).unwrap_or_default();
            format!("[{} ended with {outcome} after {turns}{refusal}; this is {what}]\n\n{text}", end.id)
        }
    };
    let is_error = matches!(end.outcome, Outcome::Stuck | Outcome::Refused | Outcome::ResultInvalid);
    ToolResult {
        call_id: call.id.clone(),
        text: truncate_middle(text, MAX_RESULT_CHARS),
        is_error,
        ..ToolResult::default()
    }
}

/// Adds to a result how the changes of a subagent came back into the workspace.
fn add_merged(end: &mut CallFinished, id: &str, merged: MergedChanges) {
    let count = pluralize(merged.files.len() as u64, "file");
    let mut note = match (merged.conflicts.as_slice(), merged.files.as_slice()) {
        ([], []) => format!("[{id} changed no files"),
        ([], files) => {
            let files: Vec<_> = files.iter().map(|file| format!("`{}`", sanitize::line(file))).collect();
            let files = ellipsize(&files.join(", "), MAX_MERGE_NOTE);
            format!("[{id} changed {count}, and the workspace has its changes now: {files}")
        }
        (conflicts, _) if merged.may_be_partial => format!(
            "[The changes of {id} conflict with the workspace. The run was interrupted, so part of them may be \
             in the workspace already:\n- {}",
            conflicts.join("\n- ")
        ),
        (conflicts, _) => format!(
            "[The changes of {id} conflict with the workspace, so none of them were applied:\n- {}",
            conflicts.join("\n- ")
        ),
    };
    if let Some(gaps) = &merged.note {
        note += "; ";
        note += &ellipsize(&sanitize::line(gaps), MAX_MERGE_NOTE);
    }
    end.result.text = truncate_middle(format!("{note}]\n\n{}", end.result.text), MAX_RESULT_CHARS);
    end.result.is_error |= !merged.conflicts.is_empty();
    end.merged = Some(merged);
}
