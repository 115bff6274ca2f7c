//! How far one agent came, as a queue of what it met: its requests, the limits that bit, the answers to its calls.

use std::collections::{HashMap, VecDeque};

use super::moment::Moment;
use crate::agent::{Reviewed, Way};
use crate::budget::LimitHit;
use crate::event::{Event, Shortened};
use crate::message::{Reply, ToolResult};
use crate::providers::{Fault, Retry};

/// One agent's way through its record.
#[derive(Debug, Default)]
pub(super) struct Course {
    marks: VecDeque<Mark>,
    /// The calls that are being answered.
    calls: Option<Calls>,
    /// The request that is under way.
    request: Option<Request>,
    /// What came of the check that is under way.
    checked: Option<Reviewed>,
    /// Whether the request that is under way never came to an end.
    pub(super) is_lost: bool,
}

/// What an agent meets next.
#[derive(Debug)]
pub(super) enum Mark {
    Limit(LimitHit),
    /// Results were shortened.
    Shortened(Shortened),
    Request(Request),
    Calls(Calls),
    /// What came of a check; nothing is known where the run was stopped meanwhile.
    Check(Option<Reviewed>),
}

/// A request that was made.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) max_tokens: u32,
    /// How many turns it leaves as they are, where it is for a summary.
    keeps_turns: Option<u32>,
    pub(super) retries: VecDeque<Retry>,
    pub(super) end: End,
}

/// How a request ended.
#[derive(Debug)]
pub(super) enum End {
    Reply(Box<Reply>),
    Failed(Fault),
    /// What its tries had used left no room for another one.
    Over(LimitHit),
    /// The run was stopped or cut off meanwhile.
    Lost,
}

/// The calls of one reply, as far as they were begun.
#[derive(Debug, Default)]
pub(super) struct Calls {
    begun: usize,
    answers: HashMap<String, VecDeque<ToolResult>>,
}

impl Course {
    pub(super) fn new(moments: &[Moment]) -> Self {
        let mut marks = VecDeque::new();
        for (at, moment) in moments.iter().enumerate() {
            match &moment.event {
                Event::LimitReached(reached) => marks.push_back(Mark::Limit(reached.into())),
                Event::Asked(asked) => {
                    marks.push_back(Mark::Request(Request {
                        max_tokens: asked.max_tokens,
                        keeps_turns: asked.keeps_turns,
                        retries: VecDeque::new(),
                        end: End::Lost,
                    }));
                }
                Event::Shortened(shortened) => marks.push_back(Mark::Shortened(shortened.clone())),
                Event::Retrying(retrying) => {
                    if let Some(Mark::Request(request)) = marks.back_mut() {
                        request.retries.push_back(retrying.retry.clone());
                    }
                }
                Event::Replied(replied) => {
                    if let Some(Mark::Request(request)) = marks.back_mut() {
                        request.end = End::Reply(Box::new(replied.reply.clone()));
                    }
                }
                Event::AskFailed(failed) => {
                    let next = moments.get(at + 1).map(|moment| &moment.event);
                    if let Some(Mark::Request(request)) = marks.back_mut() {
                        request.end = match next {
                            Some(Event::LimitReached(reached)) if reached.message == failed.why => {
                                End::Over(reached.into())
                            }
                            _ => End::Failed(Fault {
                                spent: failed.spent,
                                window: failed.window,
                                ..Fault::new(failed.kind, &failed.why)
                            }),
                        };
                    }
                }
                Event::CheckStarted(_) => marks.push_back(Mark::Check(None)),
                Event::CheckFinished(finished) => {
                    if let Some(Mark::Check(check)) = marks.back_mut() {
                        *check = Some(Reviewed {
                            exit_code: finished.exit_code,
                            output: finished.output.clone(),
                            duration_ms: finished.duration_ms,
                        });
                    }
                }
                Event::CallStarted(_) => of_calls(&mut marks, |calls| calls.begun += 1),
                Event::CallFinished(finished) => {
                    let result = finished.result.clone();
                    of_calls(&mut marks, |calls| {
                        calls.answers.entry(result.call_id.clone()).or_default().push_back(result);
                    });
                }
                _ => {}
            }
        }
        Self { marks, ..Self::default() }
    }

    /// Whether the record holds nothing more.
    pub(super) fn is_over(&self) -> bool {
        self.marks.is_empty()
    }

    /// What comes in place of a request: calls that nobody makes any more aren't in the way, and before a closing one
    /// nor is the limit that made it the last.
    pub(super) fn at_request(&mut self, tools_allowed: bool) -> Option<&Mark> {
        self.calls = None;
        let is_passed = |mark: &mut Mark| match mark {
            Mark::Calls(_) | Mark::Check(_) => true,
            Mark::Limit(_) => !tools_allowed,
            Mark::Request(_) | Mark::Shortened(_) => false,
        };
        while self.marks.pop_front_if(is_passed).is_some() {}
        self.marks.front()
    }

    /// What was done next to make room for a request.
    pub(super) fn way(&self, tools_allowed: bool) -> Way {
        let is_passed = |mark: &&Mark| match mark {
            Mark::Calls(_) | Mark::Check(_) => true,
            Mark::Limit(_) => !tools_allowed,
            Mark::Request(_) | Mark::Shortened(_) => false,
        };
        match self.marks.iter().find(|mark| !is_passed(mark)) {
            Some(Mark::Shortened(Shortened { call_ids, chars, .. })) => {
                Way::Shorten { call_ids: call_ids.clone(), chars: *chars }
            }
            Some(Mark::Request(Request { keeps_turns: Some(kept_turns), .. })) => {
                Way::SumUp { kept_turns: *kept_turns }
            }
            _ => Way::Go,
        }
    }

    /// Takes the results that were shortened next.
    pub(super) fn take_shortened(&mut self) {
        while let Some(mark) = self.marks.pop_front() {
            match mark {
                Mark::Shortened(_) => return,
                Mark::Request(_) => return self.marks.push_front(mark),
                Mark::Calls(_) | Mark::Check(_) | Mark::Limit(_) => {}
            }
        }
    }

    /// Begins the next request, or takes the limit that stands in its place.
    pub(super) fn take_request(&mut self) -> Option<Result<u32, LimitHit>> {
        match self.marks.pop_front()? {
            Mark::Limit(hit) => Some(Err(hit)),
            Mark::Request(request) => {
                self.is_lost = matches!(request.end, End::Lost);
                let max_tokens = request.max_tokens;
                self.request = Some(request);
                Some(Ok(max_tokens))
            }
            Mark::Calls(_) | Mark::Check(_) | Mark::Shortened(_) => None,
        }
    }

    /// What comes of the request that is under way: the failed tries, and the end.
    pub(super) fn take_answer(&mut self) -> Option<(VecDeque<Retry>, End)> {
        let request = self.request.as_mut()?;
        let retries = std::mem::take(&mut request.retries);
        let end = match &request.end {
            End::Over(hit) => {
                // It is asked for after each of the tries.
                request.retries.clone_from(&retries);
                End::Over(hit.clone())
            }
            _ => match self.request.take() {
                Some(request) => request.end,
                None => End::Lost,
            },
        };
        Some((retries, end))
    }

    /// Counts a failed try: the last one of a request that a limit ended meets the limit.
    pub(super) fn failed_try(&mut self) -> Result<(), LimitHit> {
        let Some(Request { retries, end: End::Over(hit), .. }) = &mut self.request else { return Ok(()) };
        retries.pop_front();
        if retries.is_empty() { Err(hit.clone()) } else { Ok(()) }
    }

    /// Begins the next call; `false` where none was begun.
    pub(super) fn begin_call(&mut self) -> bool {
        if self.calls.is_none()
            && let Some(Mark::Calls(calls)) = self.marks.pop_front_if(|mark| matches!(mark, Mark::Calls(_)))
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
    pub(super) fn answer(&self, call_id: &str) -> Option<&ToolResult> {
        self.calls.as_ref()?.answers.get(call_id)?.front()
    }

    /// The answer to a call that was begun, once.
    pub(super) fn take_answer_to(&mut self, call_id: &str) -> Option<ToolResult> {
        self.calls.as_mut()?.answers.get_mut(call_id)?.pop_front()
    }

    /// All calls of a reply are answered.
    pub(super) fn end_calls(&mut self) {
        self.calls = None;
    }

    /// Whether a check comes next.
    pub(super) fn is_at_check(&self) -> bool {
        matches!(self.marks.front(), Some(Mark::Check(_)))
    }

    /// Takes the check that comes next, which has begun; `false` where it never ended.
    pub(super) fn begin_check(&mut self) -> bool {
        self.checked = match self.marks.pop_front_if(|mark| matches!(mark, Mark::Check(_))) {
            Some(Mark::Check(check)) => check,
            _ => None,
        };
        self.checked.is_some()
    }

    /// What came of the check that has begun, once.
    pub(super) fn take_check(&mut self) -> Option<Reviewed> {
        self.checked.take()
    }

    /// The limit that comes next.
    pub(super) fn limit(&self) -> Option<&LimitHit> {
        match self.marks.front() {
            Some(Mark::Limit(hit)) => Some(hit),
            _ => None,
        }
    }
}

/// Adds to the calls that stand last in a queue; to new ones where something else does.
fn of_calls(marks: &mut VecDeque<Mark>, add: impl FnOnce(&mut Calls)) {
    if let Some(Mark::Calls(calls)) = marks.back_mut() {
        return add(calls);
    }
    let mut calls = Calls::default();
    add(&mut calls);
    marks.push_back(Mark::Calls(calls));
}
