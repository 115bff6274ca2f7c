//! Leads the loop along a record: says how far each agent came, and answers in place of models and tools.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;

use super::agent_script::{AgentScript, ScriptStep, ScriptedEnd};
use super::recorded_run::RecordedRun;
use crate::agent::{AgentStep, CheckRun, CheckRunner, CompactionStep, INTERRUPTED_CALL_NOTE, ReplayDriver, RunAbort};
use crate::budget::{Budget, LimitHit};
use crate::event::{AgentFinished, Outcome, PARENT};
use crate::message::{Message, Reply, ToolCall, ToolResult};
use crate::plan::PlannedCheck;
use crate::process::CallLimits;
use crate::providers::{
    Conversation, ConversationConfig, Provider, ProviderError, ProviderErrorKind, ReplyRequest, StreamObserver,
};

/// Leads the loop along a record.
#[derive(Debug)]
pub(super) struct RecordDriver {
    past: Arc<RecordedRun>,
    /// Whether tools run for real.
    pub(super) tools: bool,
    scripts: Mutex<HashMap<String, AgentScript>>,
    /// Where agents left their records, in words.
    divergences: Mutex<BTreeMap<String, String>>,
}

impl RecordDriver {
    pub(super) fn new(past: Arc<RecordedRun>, tools: bool) -> Self {
        let courses = past.agents.iter().map(|(agent, moments)| (agent.clone(), AgentScript::new(moments)));
        Self { scripts: Mutex::new(courses.collect()), past, tools, divergences: Mutex::default() }
    }

    /// Why an agent left its record, where the record had no answer for it.
    pub(super) fn divergence(&self, agent: &str) -> Option<String> {
        self.divergences.lock().unwrap_or_else(PoisonError::into_inner).get(agent).cloned()
    }

    fn scripts(&self) -> MutexGuard<'_, HashMap<String, AgentScript>> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_script<T>(&self, agent: &str, take: impl FnOnce(&mut AgentScript) -> T) -> T {
        take(self.scripts().entry(agent.to_owned()).or_default())
    }

    /// The agent goes where its record doesn't.
    fn diverge(&self, agent: &str, why: &str) -> RunAbort {
        let mut astray = self.divergences.lock().unwrap_or_else(PoisonError::into_inner);
        astray.entry(agent.to_owned()).or_insert_with(|| why.to_owned());
        RunAbort { outcome: Outcome::ReplayDiffers, message: format!("{agent}: {why}"), hint: None }
    }

    /// The agent's record has nothing more.
    fn end_of_record(&self, agent: &str, why: &str) -> RunAbort {
        if self.past.was_aborted(agent) { self.past.abort_of(agent) } else { self.diverge(agent, why) }
    }

    /// What a limit that is used up says; another one after it was replaced.
    fn exhausted_limits(&self, count: fn(&Budget) -> Result<(), LimitHit>) -> impl Iterator<Item = LimitHit> {
        // One less than would overflow where there is no limit.
        self.past.limits.iter().filter_map(move |limits| {
            let budget = Budget::new(limits.clone());
            budget.restore_spend(0, 0.0, u64::MAX - 1, u64::MAX - 1);
            count(&budget).err()
        })
    }

    /// Whether a call was refused for a limit.
    fn check_refused(
        &self,
        agent: &str,
        call: &ToolCall,
        count: fn(&Budget) -> Result<(), LimitHit>,
    ) -> Result<(), LimitHit> {
        let mut hits = self.exhausted_limits(count);
        self.with_script(agent, |course| {
            let answer = course.result(&call.id).filter(|answer| answer.is_error);
            let Some(hit) = answer.and_then(|answer| hits.find(|hit| answer.text == hit.refusal())) else {
                return Ok(());
            };
            course.take_result(&call.id);
            Err(hit)
        })
    }

    /// The greatest length of a reply that the agent asked for where no limit was in the way.
    fn max_tokens(&self, agent: &str) -> Option<u32> {
        self.past.plan().agent(agent).map(|planned| planned.max_tokens)
    }
}

impl ReplayDriver for RecordDriver {
    fn admit(&self, agent: &str, step: AgentStep<'_>) -> Result<(), RunAbort> {
        let halted = || self.past.abort_of(agent);
        match step {
            AgentStep::Start => match self.past.agents.get(agent) {
                Some(moments) if moments.is_empty() => Err(halted()),
                Some(moments) if moments.len() == 1 && self.past.end(agent).is_some() => Err(halted()),
                Some(_) => Ok(()),
                None => Err(self.diverge(agent, "the record has no such agent")),
            },
            AgentStep::Request(tools_allowed) => {
                let next = self.with_script(agent, |course| match course.seek_request(tools_allowed) {
                    Some(ScriptStep::Limit(hit)) if !hit.limit.starts_with("limits") => Some(false),
                    Some(_) => Some(true),
                    None => None,
                });
                match next {
                    Some(true) => Ok(()),
                    // A closing request that there was no room for.
                    None if !tools_allowed && !self.past.was_aborted(agent) => Ok(()),
                    _ => Err(self.end_of_record(agent, "it asks for a reply, and the record has no further one")),
                }
            }
            AgentStep::StartCall if self.with_script(agent, AgentScript::begin_call) => Ok(()),
            AgentStep::StartCall => Err(self.end_of_record(agent, "it begins a call that the record doesn't have")),
            AgentStep::FinishCall(call_id) if self.with_script(agent, |course| course.result(call_id).is_some()) => {
                Ok(())
            }
            AgentStep::FinishCall(_) => Err(self.end_of_record(agent, "the record has no answer to its call")),
            AgentStep::StartCheck if self.with_script(agent, |course| course.is_at_check()) => Ok(()),
            AgentStep::StartCheck => {
                Err(self.end_of_record(agent, "a check is run, and the record has no further one"))
            }
            AgentStep::FinishCheck if self.with_script(agent, AgentScript::begin_check) => Ok(()),
            AgentStep::FinishCheck => Err(self.end_of_record(agent, "the record has no end of its check")),
            AgentStep::Continue => {
                let is_over = self.with_script(agent, |course| {
                    course.end_calls();
                    course.is_exhausted()
                });
                if is_over && self.past.was_aborted(agent) { Err(halted()) } else { Ok(()) }
            }
        }
    }

    fn next_compaction_step(&self, agent: &str, tools_allowed: bool) -> CompactionStep {
        let has_ended_so = || self.past.end(agent).is_some_and(|end| end.outcome == Outcome::ContextFull);
        self.with_script(agent, |course| match course.next_compaction_step(tools_allowed) {
            CompactionStep::Proceed if course.is_exhausted() && has_ended_so() => CompactionStep::GiveUp,
            way => way,
        })
    }

    fn results_truncated(&self, agent: &str) {
        self.with_script(agent, AgentScript::take_truncation);
    }

    fn admit_request(&self, agent: &str, is_summary: bool, max_tokens: u32) -> Result<u32, LimitHit> {
        let nothing = || LimitHit { limit: "limits", message: "there was no room for another request".to_owned() };
        let then = self.with_script(agent, AgentScript::take_request).unwrap_or_else(|| Err(nothing()))?;
        if is_summary {
            return Ok(then);
        }
        // An edited job may want another length; what a limit had lowered stays lowered.
        let was_lowered = self.max_tokens(agent).is_none_or(|planned| then < planned);
        Ok(if was_lowered { then.min(max_tokens) } else { max_tokens })
    }

    fn unfinished_request(&self, agent: &str) -> Option<RunAbort> {
        if !self.with_script(agent, |course| course.is_unfinished) {
            return None;
        }
        if self.past.was_aborted(agent) {
            return Some(self.past.abort_of(agent));
        }
        // A last request that came to nothing changes no outcome.
        Some(RunAbort { outcome: Outcome::TimedOut, message: "the record has no end of it".to_owned(), hint: None })
    }

    fn count_failed_try(&self, agent: &str) -> Result<(), LimitHit> {
        self.with_script(agent, AgentScript::count_failed_try)
    }

    fn admit_call(&self, agent: &str, call: &ToolCall) -> Result<(), LimitHit> {
        self.check_refused(agent, call, Budget::count_call)
    }

    fn admit_subagent(&self, agent: &str, call: &ToolCall) -> Result<(), LimitHit> {
        self.check_refused(agent, call, Budget::count_subagent)
    }

    fn max_turns(&self, agent: &str, planned: u32) -> u32 {
        let recorded = self.past.plan().agent(agent).map(|planned| planned.max_turns);
        // An edited job says for itself how many it has.
        if recorded == Some(planned) { self.past.max_turns(agent, planned) } else { planned }
    }

    fn reached_limit(&self, agent: &str, hit: LimitHit) -> LimitHit {
        self.with_script(agent, |course| course.peek_limit().filter(|then| then.limit.starts_with("limits")).cloned())
            .unwrap_or(hit)
    }

    fn subagent_end(&self, child: &str) -> Option<AgentFinished> {
        self.past.ends.get(child).map(|(end, _)| end.clone())
    }

    fn run_abort(&self) -> Option<RunAbort> {
        self.past.abort.clone()
    }

    fn unstarted_subagent(&self, child: &str) -> Option<RunAbort> {
        self.past.agents.get(child).filter(|moments| moments.is_empty()).map(|_| self.past.abort_of(PARENT))
    }

    fn recorded_result(&self, agent: &str, call_id: &str) -> Option<ToolResult> {
        let result = self.with_script(agent, |course| course.take_result(call_id))?;
        // A call whose end nobody saw has no result that another could be compared with.
        (!self.tools || result.text == INTERRUPTED_CALL_NOTE).then_some(result)
    }
}

impl CheckRunner for RecordDriver {
    fn run<'a>(&'a self, _: &'a PlannedCheck, _: u32, _: &'a CallLimits) -> BoxFuture<'a, Option<CheckRun>> {
        Box::pin(std::future::ready(self.with_script(PARENT, AgentScript::take_check)))
    }
}

/// Gives the recorded replies.
pub(super) struct RecordedProvider(pub(super) Arc<RecordDriver>);

impl Provider for RecordedProvider {
    fn open(&self, setup: ConversationConfig) -> Result<Box<dyn Conversation>, ProviderError> {
        Ok(Box::new(RecordedConversation { guide: Arc::clone(&self.0), agent: setup.agent }))
    }
}

struct RecordedConversation {
    guide: Arc<RecordDriver>,
    agent: String,
}

impl Conversation for RecordedConversation {
    fn push(&mut self, _: &Message) {}

    fn clear(&mut self) {}

    fn ask<'a>(
        &'a mut self,
        _: ReplyRequest,
        watch: &'a dyn StreamObserver,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        let Some((retries, end)) = self.guide.with_script(&self.agent, AgentScript::take_reply) else {
            let fault = ProviderError::new(ProviderErrorKind::Differs, "the record has no reply to this");
            return Box::pin(std::future::ready(Err(fault)));
        };
        for retry in &retries {
            watch.on_retry(retry);
        }
        match end {
            ScriptedEnd::Reply(reply) => Box::pin(std::future::ready(Ok(*reply))),
            ScriptedEnd::Failed(fault) => Box::pin(std::future::ready(Err(fault))),
            // Whoever asks is told by others that it ends.
            ScriptedEnd::LimitReached(_) | ScriptedEnd::Unfinished => Box::pin(std::future::pending()),
        }
    }

    fn prompt_bytes(&self) -> usize {
        0
    }
}
