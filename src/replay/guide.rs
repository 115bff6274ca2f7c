//! Leads the loop along a record: says how far each agent came, and answers in place of models and tools.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;

use super::course::{Course, End, Mark};
use super::past::Past;
use crate::agent::{Halt, INTERRUPTED, Recorded, Review, Reviewed, Step, Way};
use crate::budget::{Budget, LimitHit};
use crate::event::{AgentFinished, Outcome, PARENT};
use crate::message::{Message, Reply, ToolCall, ToolResult};
use crate::plan::PlannedCheck;
use crate::providers::{Ask, Conversation, Fault, FaultKind, Provider, Setup, Watch};
use crate::tools::toolbox::CallLimits;

/// Leads the loop along a record.
#[derive(Debug)]
pub(super) struct Guide {
    past: Arc<Past>,
    /// Whether tools run for real.
    pub(super) tools: bool,
    courses: Mutex<HashMap<String, Course>>,
    /// Where agents left their records, in words.
    astray: Mutex<BTreeMap<String, String>>,
}

impl Guide {
    pub(super) fn new(past: Arc<Past>, tools: bool) -> Self {
        let courses = past.agents.iter().map(|(agent, moments)| (agent.clone(), Course::new(moments)));
        Self { courses: Mutex::new(courses.collect()), past, tools, astray: Mutex::default() }
    }

    /// Why an agent left its record, where the record had no answer for it.
    pub(super) fn why(&self, agent: &str) -> Option<String> {
        self.astray.lock().unwrap_or_else(PoisonError::into_inner).get(agent).cloned()
    }

    fn courses(&self) -> MutexGuard<'_, HashMap<String, Course>> {
        self.courses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, agent: &str, take: impl FnOnce(&mut Course) -> T) -> T {
        take(self.courses().entry(agent.to_owned()).or_default())
    }

    /// The agent goes where its record doesn't.
    fn differs(&self, agent: &str, why: &str) -> Halt {
        let mut astray = self.astray.lock().unwrap_or_else(PoisonError::into_inner);
        astray.entry(agent.to_owned()).or_insert_with(|| why.to_owned());
        Halt { outcome: Outcome::ReplayDiffers, message: format!("{agent}: {why}"), hint: None }
    }

    /// The agent's record has nothing more.
    fn end(&self, agent: &str, why: &str) -> Halt {
        if self.past.was_halted(agent) { self.past.halt_of(agent) } else { self.differs(agent, why) }
    }

    /// What a limit that is used up says; another one after it was replaced.
    fn used_up(&self, count: fn(&Budget) -> Result<(), LimitHit>) -> impl Iterator<Item = LimitHit> {
        // One less than would overflow where there is no limit.
        self.past.limits.iter().filter_map(move |limits| {
            let budget = Budget::new(limits.clone());
            budget.resume(0, 0.0, u64::MAX - 1, u64::MAX - 1);
            count(&budget).err()
        })
    }

    /// Whether a call was refused for a limit.
    fn refused(
        &self,
        agent: &str,
        call: &ToolCall,
        count: fn(&Budget) -> Result<(), LimitHit>,
    ) -> Result<(), LimitHit> {
        let mut hits = self.used_up(count);
        self.with(agent, |course| {
            let answer = course.answer(&call.id).filter(|answer| answer.is_error);
            let Some(hit) = answer.and_then(|answer| hits.find(|hit| answer.text == hit.refusal())) else {
                return Ok(());
            };
            course.take_answer_to(&call.id);
            Err(hit)
        })
    }

    /// The greatest length of a reply that the agent asked for where no limit was in the way.
    fn max_tokens(&self, agent: &str) -> Option<u32> {
        self.past.plan().agent(agent).map(|planned| planned.max_tokens)
    }
}

impl Recorded for Guide {
    fn may(&self, agent: &str, step: Step<'_>) -> Result<(), Halt> {
        let halted = || self.past.halt_of(agent);
        match step {
            Step::Begin => match self.past.agents.get(agent) {
                Some(moments) if moments.is_empty() => Err(halted()),
                Some(moments) if moments.len() == 1 && self.past.end(agent).is_some() => Err(halted()),
                Some(_) => Ok(()),
                None => Err(self.differs(agent, "the record has no such agent")),
            },
            Step::Request(tools_allowed) => {
                let next = self.with(agent, |course| match course.at_request(tools_allowed) {
                    Some(Mark::Limit(hit)) if !hit.limit.starts_with("limits") => Some(false),
                    Some(_) => Some(true),
                    None => None,
                });
                match next {
                    Some(true) => Ok(()),
                    // A closing request that there was no room for.
                    None if !tools_allowed && !self.past.was_halted(agent) => Ok(()),
                    _ => Err(self.end(agent, "it asks for a reply, and the record has no further one")),
                }
            }
            Step::Call if self.with(agent, Course::begin_call) => Ok(()),
            Step::Call => Err(self.end(agent, "it begins a call that the record doesn't have")),
            Step::Answer(call_id) if self.with(agent, |course| course.answer(call_id).is_some()) => Ok(()),
            Step::Answer(_) => Err(self.end(agent, "the record has no answer to its call")),
            Step::Check if self.with(agent, |course| course.is_at_check()) => Ok(()),
            Step::Check => Err(self.end(agent, "a check is run, and the record has no further one")),
            Step::Checked if self.with(agent, Course::begin_check) => Ok(()),
            Step::Checked => Err(self.end(agent, "the record has no end of its check")),
            Step::GoOn => {
                let is_over = self.with(agent, |course| {
                    course.end_calls();
                    course.is_over()
                });
                if is_over && self.past.was_halted(agent) { Err(halted()) } else { Ok(()) }
            }
        }
    }

    fn way(&self, agent: &str, tools_allowed: bool) -> Way {
        let has_ended_so = || self.past.end(agent).is_some_and(|end| end.outcome == Outcome::ContextFull);
        self.with(agent, |course| match course.way(tools_allowed) {
            Way::Go if course.is_over() && has_ended_so() => Way::Full,
            way => way,
        })
    }

    fn shortened(&self, agent: &str) {
        self.with(agent, Course::take_shortened);
    }

    fn request(&self, agent: &str, is_summary: bool, max_tokens: u32) -> Result<u32, LimitHit> {
        let nothing = || LimitHit { limit: "limits", message: "there was no room for another request".to_owned() };
        let then = self.with(agent, Course::take_request).unwrap_or_else(|| Err(nothing()))?;
        if is_summary {
            return Ok(then);
        }
        // An edited job may want another length; what a limit had lowered stays lowered.
        let was_lowered = self.max_tokens(agent).is_none_or(|planned| then < planned);
        Ok(if was_lowered { then.min(max_tokens) } else { max_tokens })
    }

    fn lost(&self, agent: &str) -> Option<Halt> {
        if !self.with(agent, |course| course.is_lost) {
            return None;
        }
        if self.past.was_halted(agent) {
            return Some(self.past.halt_of(agent));
        }
        // A last request that came to nothing changes no outcome.
        Some(Halt { outcome: Outcome::TimedOut, message: "the record has no end of it".to_owned(), hint: None })
    }

    fn failed_try(&self, agent: &str) -> Result<(), LimitHit> {
        self.with(agent, Course::failed_try)
    }

    fn call(&self, agent: &str, call: &ToolCall) -> Result<(), LimitHit> {
        self.refused(agent, call, Budget::count_call)
    }

    fn subagent(&self, agent: &str, call: &ToolCall) -> Result<(), LimitHit> {
        self.refused(agent, call, Budget::count_subagent)
    }

    fn max_turns(&self, agent: &str, planned: u32) -> u32 {
        let recorded = self.past.plan().agent(agent).map(|planned| planned.max_turns);
        // An edited job says for itself how many it has.
        if recorded == Some(planned) { self.past.max_turns(agent, planned) } else { planned }
    }

    fn limit(&self, agent: &str, hit: LimitHit) -> LimitHit {
        self.with(agent, |course| course.limit().filter(|then| then.limit.starts_with("limits")).cloned())
            .unwrap_or(hit)
    }

    fn ended(&self, child: &str) -> Option<AgentFinished> {
        self.past.ends.get(child).map(|(end, _)| end.clone())
    }

    fn halted(&self) -> Option<Halt> {
        self.past.halt.clone()
    }

    fn unbegun(&self, child: &str) -> Option<Halt> {
        self.past.agents.get(child).filter(|moments| moments.is_empty()).map(|_| self.past.halt_of(PARENT))
    }

    fn result(&self, agent: &str, call_id: &str) -> Option<ToolResult> {
        let result = self.with(agent, |course| course.take_answer_to(call_id))?;
        // A call whose end nobody saw has no result that another could be compared with.
        (!self.tools || result.text == INTERRUPTED).then_some(result)
    }
}

impl Review for Guide {
    fn check<'a>(&'a self, _: &'a PlannedCheck, _: u32, _: &'a CallLimits) -> BoxFuture<'a, Option<Reviewed>> {
        Box::pin(std::future::ready(self.with(PARENT, Course::take_check)))
    }
}

/// Gives the recorded replies.
pub(super) struct Replies(pub(super) Arc<Guide>);

impl Provider for Replies {
    fn open(&self, setup: Setup) -> Result<Box<dyn Conversation>, Fault> {
        Ok(Box::new(Dialogue { guide: Arc::clone(&self.0), agent: setup.agent }))
    }
}

struct Dialogue {
    guide: Arc<Guide>,
    agent: String,
}

impl Conversation for Dialogue {
    fn push(&mut self, _: &Message) {}

    fn clear(&mut self) {}

    fn ask<'a>(&'a mut self, _: Ask, watch: &'a dyn Watch) -> BoxFuture<'a, Result<Reply, Fault>> {
        let Some((retries, end)) = self.guide.with(&self.agent, Course::take_answer) else {
            let fault = Fault::new(FaultKind::Differs, "the record has no reply to this");
            return Box::pin(std::future::ready(Err(fault)));
        };
        for retry in &retries {
            watch.retrying(retry);
        }
        match end {
            End::Reply(reply) => Box::pin(std::future::ready(Ok(*reply))),
            End::Failed(fault) => Box::pin(std::future::ready(Err(fault))),
            // Whoever asks is told by others that it ends.
            End::Over(_) | End::Lost => Box::pin(std::future::pending()),
        }
    }

    fn size(&self) -> usize {
        0
    }
}
