//! How far one agent came, as a queue of what it met: its requests, the limits that bit, the answers to its calls.

use std::collections::{HashMap, VecDeque};

use super::normalized_event::NormalizedEvent;
use crate::agent::{CheckRun, CompactionStep};
use crate::budget::LimitHit;
use crate::event::{Event, ResultsTruncated};
use crate::message::{Reply, ToolResult};
use crate::providers::{ProviderError, Retry};

/// One agent's way through its record.
#[derive(Debug, Default)]
pub(super) struct AgentScript {
    steps: VecDeque<ScriptStep>,
    /// The calls that are being answered.
    calls: Option<ScriptedCalls>,
    /// The request that is under way.
    request: Option<ScriptedRequest>,
    /// What came of the check that is under way.
    check_run: Option<CheckRun>,
    /// Whether the request that is under way never came to an end.
    pub(super) is_unfinished: bool,
}

/// What an agent meets next.
#[derive(Debug)]
pub(super) enum ScriptStep {
    Limit(LimitHit),
    /// Results were shortened.
    ResultsTruncated(ResultsTruncated),
    Request(ScriptedRequest),
    Calls(ScriptedCalls),
    /// What came of a check; nothing is known where the run was stopped meanwhile.
    Check(Option<CheckRun>),
}

/// A request that was made.
#[derive(Debug)]
pub(super) struct ScriptedRequest {
    pub(super) max_tokens: u32,
    /// How many turns it leaves as they are, where it is for a summary.
    kept_turns: Option<u32>,
    pub(super) retries: VecDeque<Retry>,
    pub(super) end: ScriptedEnd,
}

/// How a request ended.
#[derive(Debug)]
pub(super) enum ScriptedEnd {
    Reply(Box<Reply>),
    Failed(ProviderError),
    /// What its tries had used left no room for another one.
    LimitReached(LimitHit),
    /// The run was stopped or cut off meanwhile.
    Unfinished,
}

/// The calls of one reply, as far as they were begun.
#[derive(Debug, Default)]
pub(super) struct ScriptedCalls {
    begun: usize,
    answers: HashMap<String, VecDeque<ToolResult>>,
}

impl AgentScript {
    pub(super) fn new(moments: &[NormalizedEvent]) -> Self {
        let mut marks = VecDeque::new();
        for (at, moment) in moments.iter().enumerate() {
            match &moment.event {
                Event::LimitReached(reached) => marks.push_back(ScriptStep::Limit(reached.into())),
                Event::RequestStarted(asked) => {
                    marks.push_back(ScriptStep::Request(ScriptedRequest {
                        max_tokens: asked.max_tokens,
                        kept_turns: asked.kept_turns,
                        retries: VecDeque::new(),
                        end: ScriptedEnd::Unfinished,
                    }));
                }
                Event::ResultsTruncated(shortened) => marks.push_back(ScriptStep::ResultsTruncated(shortened.clone())),
                Event::Retrying(retrying) => {
                    if let Some(ScriptStep::Request(request)) = marks.back_mut() {
                        request.retries.push_back(retrying.retry.clone());
                    }
                }
                Event::ReplyReceived(replied) => {
                    if let Some(ScriptStep::Request(request)) = marks.back_mut() {
                        request.end = ScriptedEnd::Reply(Box::new(replied.reply.clone()));
                    }
                }
                Event::RequestFailed(failed) => {
                    let next = moments.get(at + 1).map(|moment| &moment.event);
                    if let Some(ScriptStep::Request(request)) = marks.back_mut() {
                        request.end = match next {
                            Some(Event::LimitReached(reached)) if reached.message == failed.reason => {
                                ScriptedEnd::LimitReached(reached.into())
                            }
                            _ => ScriptedEnd::Failed(ProviderError {
                                usage: failed.usage,
                                context_window: failed.window,
                                ..ProviderError::new(failed.kind, &failed.reason)
                            }),
                        };
                    }
                }
                Event::CheckStarted(_) => marks.push_back(ScriptStep::Check(None)),
                Event::CheckFinished(finished) => {
                    if let Some(ScriptStep::Check(check)) = marks.back_mut() {
                        *check = Some(CheckRun {
                            exit_code: finished.exit_code,
                            output: finished.output.clone(),
                            duration_ms: finished.duration_ms,
                        });
                    }
                }
                Event::CallStarted(_) => add_to_last_calls(&mut marks, |calls| calls.begun += 1),
                Event::CallFinished(finished) => {
                    let result = finished.result.clone();
                    add_to_last_calls(&mut marks, |calls| {
                        calls.answers.entry(result.call_id.clone()).or_default().push_back(result);
                    });
                }
                _ => {}
            }
        }
        Self { steps: marks, ..Self::default() }
    }

    /// Whether the record holds nothing more.
    pub(super) fn is_exhausted(&self) -> bool {
        self.steps.is_empty()
    }

    /// What comes in place of a request: calls that nobody makes any more aren't in the way, and before a closing one
    /// nor is the limit that made it the last.
    pub(super) fn seek_request(&mut self, tools_allowed: bool) -> Option<&ScriptStep> {
        self.calls = None;
        let is_passed = |mark: &mut ScriptStep| match mark {
            ScriptStep::Calls(_) | ScriptStep::Check(_) => true,
            ScriptStep::Limit(_) => !tools_allowed,
            ScriptStep::Request(_) | ScriptStep::ResultsTruncated(_) => false,
        };
        while self.steps.pop_front_if(is_passed).is_some() {}
        self.steps.front()
    }

    /// What was done next to make room for a request.
    pub(super) fn next_compaction_step(&self, tools_allowed: bool) -> CompactionStep {
        let is_passed = |mark: &&ScriptStep| match mark {
            ScriptStep::Calls(_) | ScriptStep::Check(_) => true,
            ScriptStep::Limit(_) => !tools_allowed,
            ScriptStep::Request(_) | ScriptStep::ResultsTruncated(_) => false,
        };
        match self.steps.iter().find(|mark| !is_passed(mark)) {
            Some(ScriptStep::ResultsTruncated(ResultsTruncated { call_ids, chars, .. })) => {
                CompactionStep::TruncateResults { call_ids: call_ids.clone(), chars: *chars }
            }
            Some(ScriptStep::Request(ScriptedRequest { kept_turns: Some(kept_turns), .. })) => {
                CompactionStep::Summarize { kept_turns: *kept_turns }
            }
            _ => CompactionStep::Proceed,
        }
    }

    /// Takes the results that were shortened next.
    pub(super) fn take_truncation(&mut self) {
        while let Some(mark) = self.steps.pop_front() {
            match mark {
                ScriptStep::ResultsTruncated(_) => return,
                ScriptStep::Request(_) => return self.steps.push_front(mark),
                ScriptStep::Calls(_) | ScriptStep::Check(_) | ScriptStep::Limit(_) => {}
            }
        }
    }

    /// Begins the next request, or takes the limit that stands in its place.
    pub(super) fn take_request(&mut self) -> Option<Result<u32, LimitHit>> {
        match self.steps.pop_front()? {
            ScriptStep::Limit(hit) => Some(Err(hit)),
            ScriptStep::Request(request) => {
                self.is_unfinished = matches!(request.end, ScriptedEnd::Unfinished);
                let max_tokens = request.max_tokens;
                self.request = Some(request);
                Some(Ok(max_tokens))
            }
            ScriptStep::Calls(_) | ScriptStep::Check(_) | ScriptStep::ResultsTruncated(_) => None,
        }
    }

    /// What comes of the request that is under way: the failed tries, and the end.
    pub(super) fn take_reply(&mut self) -> Option<(VecDeque<Retry>, ScriptedEnd)> {
        let request = self.request.as_mut()?;
        let retries = std::mem::take(&mut request.retries);
        let end = match &request.end {
            ScriptedEnd::LimitReached(hit) => {
                // It is asked for after each of the tries.
                request.retries.clone_from(&retries);
                ScriptedEnd::LimitReached(hit.clone())
            }
            _ => match self.request.take() {
                Some(request) => request.end,
                None => ScriptedEnd::Unfinished,
            },
        };
        Some((retries, end))
    }

    /// Counts a failed try: the last one of a request that a limit ended meets the limit.
    pub(super) fn count_failed_try(&mut self) -> Result<(), LimitHit> {
        let Some(ScriptedRequest { retries, end: ScriptedEnd::LimitReached(hit), .. }) = &mut self.request else {
            return Ok(());
        };
        retries.pop_front();
        if retries.is_empty() { Err(hit.clone()) } else { Ok(()) }
    }

    /// Begins the next call; `false` where none was begun.
    pub(super) fn begin_call(&mut self) -> bool {
        if self.calls.is_none()
            && let Some(ScriptStep::Calls(calls)) = self.steps.pop_front_if(|mark| matches!(mark, ScriptStep::Calls(_)))
        {
            self.calls = Some(calls);
        }
        match &mut self.calls {
            Some(calls) if calls.begun > 0 => {
                calls.begun -= 1;
                true
            }
            _ => false,
        }
    }

    /// The answer to a call that was begun, which stays.
    pub(super) fn result(&self, call_id: &str) -> Option<&ToolResult> {
        self.calls.as_ref()?.answers.get(call_id)?.front()
    }

    /// The answer to a call that was begun, once.
    pub(super) fn take_result(&mut self, call_id: &str) -> Option<ToolResult> {
        self.calls.as_mut()?.answers.get_mut(call_id)?.pop_front()
    }

    /// All calls of a reply are answered.
    pub(super) fn end_calls(&mut self) {
        self.calls = None;
    }

    /// Whether a check comes next.
    pub(super) fn is_at_check(&self) -> bool {
        matches!(self.steps.front(), Some(ScriptStep::Check(_)))
    }

    /// Takes the check that comes next, which has begun; `false` where it never ended.
    pub(super) fn begin_check(&mut self) -> bool {
        self.check_run = match self.steps.pop_front_if(|mark| matches!(mark, ScriptStep::Check(_))) {
            Some(ScriptStep::Check(check)) => check,
            _ => None,
        };
        self.check_run.is_some()
    }

    /// What came of the check that has begun, once.
    pub(super) fn take_check(&mut self) -> Option<CheckRun> {
        self.check_run.take()
    }

    /// The limit that comes next.
    pub(super) fn peek_limit(&self) -> Option<&LimitHit> {
        match self.steps.front() {
            Some(ScriptStep::Limit(hit)) => Some(hit),
            _ => None,
        }
    }
}

/// Adds to the calls that stand last in a queue; to new ones where something else does.
fn add_to_last_calls(marks: &mut VecDeque<ScriptStep>, add: impl FnOnce(&mut ScriptedCalls)) {
    if let Some(ScriptStep::Calls(calls)) = marks.back_mut() {
        return add(calls);
    }
    let mut calls = ScriptedCalls::default();
    add(&mut calls);
    marks.push_back(ScriptStep::Calls(calls));
}
