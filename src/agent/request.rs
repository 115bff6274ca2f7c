//! One request, from its reservation to its reply. While it waits, failed tries are recorded and counted.

use std::sync::Mutex;

use tokio_util::sync::CancellationToken;

use super::agent_state::Agent;
use super::journal_cursor::{RequestSpend, request_spend};
use super::redact_reply;
use super::run_abort::RunAbort;
use super::run_state::RunState;
use crate::budget::{RequestEstimate, Reservation, ReserveError};
use crate::event::{
    CutOffRequests, Event, LimitReached, Outcome, ReplyReceived, RequestFailed, RequestInterrupted, RequestStarted,
    Retrying,
};
use crate::message::{Reply, StopReason, Usage};
use crate::providers::{Model, ProviderError, ProviderErrorKind, ReplyRequest, Retry, StreamObserver};
use crate::running_clock::RunningInstant;
use crate::sync::IgnorePoison;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// The next turn.
    Turn,
    /// The last answer of an agent that reached a limit, without tools.
    Final,
    /// A summary of all turns but the last ones.
    Summary { kept_turns: u32, max_tokens: u32 },
}

/// The result of a request.
pub(super) enum RequestOutcome {
    Reply(Reply),
    LimitReached(LimitReached),
    /// The model failed after all retries, and a fallback can answer.
    ProviderFailed(ProviderError),
    /// It was refused, perhaps because of the images in the last results.
    ImagesRefused(ProviderError),
    /// It didn't fit the model's window.
    ContextFull {
        /// What the provider said.
        reason: String,
        /// Whether the provider reported a window that wasn't known.
        is_new_window: bool,
    },
}

impl Agent<'_> {
    /// Sends one request with the current conversation, or takes its result from the record.
    pub(super) async fn send_request(&mut self, kind: RequestKind) -> Result<RequestOutcome, RunAbort> {
        // The record comes first, even if the run has no time left for a new request.
        match self.take_recorded_request(kind)? {
            Some(outcome) => Ok(outcome),
            None => self.send_live_request(kind).await,
        }
    }

    /// The recorded result of the next request; `None` if it must be sent.
    fn take_recorded_request(&mut self, kind: RequestKind) -> Result<Option<RequestOutcome>, RunAbort> {
        loop {
            let request = match self.cursor.take_request(kind == RequestKind::Final) {
                Some(Err(hit)) => return Ok(Some(RequestOutcome::LimitReached(hit))),
                Some(Ok(request)) => request,
                None if self.cursor.is_replay() => {
                    return Err(self.leave_record("it asks for a reply, and the record has no further one"));
                }
                None if self.cursor.is_exhausted() => return Ok(None),
                None => return Err(self.cursor.mismatch("request_started")),
            };
            let planned = match kind {
                RequestKind::Turn | RequestKind::Final => self.max_tokens,
                RequestKind::Summary { max_tokens, .. } => max_tokens,
            };
            let max_tokens = request.started.max_tokens;
            self.budget_cap = Some((max_tokens, "limits")).filter(|_| max_tokens < planned);
            request_spend(&request.entries).iter().for_each(|spend| self.count_spend(spend));
            if self.cursor.is_replay() {
                request.entries.iter().try_for_each(|entry| self.record_request_again(kind, &entry.event))?;
            }
            match request.entries.into_iter().next_back().map(|entry| entry.event) {
                Some(Event::ReplyReceived(received)) => {
                    self.context.conversation.skip_recorded_reply();
                    self.apply_reply(kind, &received.reply);
                    return Ok(Some(RequestOutcome::Reply(received.reply)));
                }
                // The agent ended with it, or made room.
                Some(Event::RequestFailed(failed)) if failed.kind == ProviderErrorKind::ContextFull => {
                    let is_new_window = failed.window.is_some();
                    return Ok(Some(RequestOutcome::ContextFull { reason: failed.reason, is_new_window }));
                }
                // A limit left no room for another try, or for a first one after a killed process had reserved the rest.
                _ if self.cursor.next_run_limit().is_some() => {}
                Some(Event::RequestFailed(failed)) if self.cursor.is_model_change_next() && self.has_fallback() => {
                    let error = ProviderError::new(failed.kind, failed.reason);
                    return Ok(Some(RequestOutcome::ProviderFailed(error)));
                }
                Some(Event::RequestFailed(failed)) if self.cursor.is_removal_next() => {
                    let error = ProviderError::new(failed.kind, failed.reason);
                    return Ok(Some(RequestOutcome::ImagesRefused(error)));
                }
                Some(Event::RequestFailed(failed)) if self.cursor.is_at_end() || self.cursor.is_replay() => {
                    return Err(ProviderError::new(failed.kind, failed.reason).into());
                }
                // It is sent again.
                Some(Event::RequestFailed(_)) => {}
                // It has no recorded end.
                _ if self.cursor.is_at_end() => {
                    return Err(RunAbort::new(Outcome::TimedOut, "the time was up during the last request"));
                }
                _ if self.cursor.is_replay() => {
                    return Err(self.leave_record("the record has no end of its request"));
                }
                _ => {}
            }
        }
    }

    /// Records an event of a recorded request again, as the replayed plan has it.
    fn record_request_again(&self, kind: RequestKind, event: &Event) -> Result<(), RunAbort> {
        let turn = self.turn_of(kind);
        self.record_again(match event.clone() {
            Event::RequestStarted(started) => {
                let (tools_allowed, kept_turns) = (kind == RequestKind::Turn, kind.kept_turns());
                RequestStarted { turn, tools_allowed, kept_turns, model: self.fallback_name(), ..started }.into()
            }
            Event::ReplyReceived(received) => ReplyReceived { turn, ..received }.into(),
            other => other,
        })
    }

    async fn send_live_request(&mut self, kind: RequestKind) -> Result<RequestOutcome, RunAbort> {
        let max_tokens = match kind {
            RequestKind::Turn | RequestKind::Final => self.cap_to_window(self.max_tokens),
            RequestKind::Summary { max_tokens, .. } => max_tokens,
        };
        self.run.wait_for(&self.run.deps.gates.output_ready).await?;
        self.run.check_running()?;
        let (run, model) = (self.run, self.model);
        let prompt_tokens = self.context.likely_tokens();
        let rates = run.rates(self.planned, model, prompt_tokens);
        let estimate = RequestEstimate {
            prompt_tokens,
            max_tokens,
            rates,
            reserves_final_request: kind != RequestKind::Final && !self.toolbox.is_empty(),
        };
        let reserved = tokio::select! {
            biased;
            abort = run.wait_for_stop() => return Err(abort),
            reserved = run.budget.reserve(estimate) => reserved,
        };
        let mut reservation = match reserved {
            Ok(reservation) => reservation,
            Err(ReserveError::Limit(hit)) => return Ok(RequestOutcome::LimitReached(hit)),
            Err(ReserveError::Ledger(error)) => {
                let message = format!("the ledger with the budget of the map can't be used: {error}");
                return Err(RunAbort::new(Outcome::EnvironmentFailed, message));
            }
        };
        self.budget_cap = Some((reservation.max_tokens, reservation.limit)).filter(|(left, _)| *left < max_tokens);
        let turn = self.turn_of(kind);
        let tools_allowed = kind == RequestKind::Turn;
        self.record(RequestStarted {
            turn,
            max_tokens: reservation.max_tokens,
            tools_allowed,
            reserved_tokens: reservation.most.tokens,
            reserved_cost_usd: rates.map(|_| reservation.most.cost_usd),
            kept_turns: kind.kept_turns(),
            model: self.fallback_name(),
        })?;
        reservation.mark_sent();
        let started = RunningInstant::now();
        let observer = RequestObserver {
            run,
            agent: &self.summary.id,
            model,
            reservation: &reservation,
            failed_tries: Mutex::new(FailedTries { cost: Some(0.0), ..FailedTries::default() }),
            stopped: CancellationToken::new(),
        };
        let request = ReplyRequest {
            max_tokens: reservation.max_tokens,
            tools_allowed,
            // Otherwise an empty reply is noticed: by the parent of a subagent, by the checks, or by the missing data.
            requires_content: self.is_parent() && run.deps.plan.checks.is_empty() && self.planned.returns.is_none(),
            deadline: run.deadline.end(),
            has_fallback: self.has_fallback(),
        };
        let answer = tokio::select! {
            biased;
            abort = run.wait_for_stop() => Err(abort),
            () = observer.stopped.cancelled() => Err(RunAbort::interrupted()),
            answer = self.context.conversation.ask(request, &observer) => Ok(answer),
        };
        let tries = observer.finish();
        let used = match &answer {
            Ok(Ok(reply)) => reply.usage,
            Ok(Err(error)) => error.usage,
            Err(_) => tries.in_flight,
        };
        let cost = run.cost(model, &used, (run.deps.clock)());
        let is_interrupted = answer.is_err() && tries.limit.is_none();
        match is_interrupted {
            true => reservation.interrupt(&used, cost),
            false => reservation.settle(&used, cost),
        }
        self.add_usage(tries.usage, tries.cost);
        self.add_usage(used, cost);
        if is_interrupted {
            self.record(RequestInterrupted { usage: used })?;
        }
        if let Some(hit) = tries.limit {
            let (kind, reason) = (ProviderErrorKind::Failed, hit.message.clone());
            // The usage of the tries is in their own events.
            self.record(RequestFailed { kind, reason, usage: Usage::default(), window: None })?;
            return Ok(RequestOutcome::LimitReached(hit));
        }
        let mut reply = match answer? {
            Ok(reply) => redact_reply::redact_reply(&run.deps.tools.redactor, reply),
            Err(error) => return self.fail_request(kind, error, used, max_tokens),
        };
        let is_capped_by_window = max_tokens < self.max_tokens && self.budget_cap.is_none();
        if tools_allowed && is_capped_by_window && reply.stop == StopReason::MaxTokens {
            reply.stop = StopReason::ContextFull;
        }
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.record(ReplyReceived { turn, reply: reply.clone(), duration_ms })?;
        self.apply_reply(kind, &reply);
        Ok(RequestOutcome::Reply(reply))
    }

    fn fail_request(
        &mut self,
        kind: RequestKind,
        error: ProviderError,
        usage: Usage,
        max_tokens: u32,
    ) -> Result<RequestOutcome, RunAbort> {
        let has_new_images = kind.kept_turns().is_none() && !self.context.new_images.is_empty();
        let is_new_window = self.learn_window(error.context_window, max_tokens);
        let window = error.context_window.filter(|_| is_new_window);
        self.record(RequestFailed { kind: error.kind, reason: error.message.clone(), usage, window })?;
        match error.kind {
            ProviderErrorKind::ContextFull => Ok(RequestOutcome::ContextFull { reason: error.message, is_new_window }),
            // A file can look like an image and not be one.
            ProviderErrorKind::Rejected if has_new_images && !self.context.history.is_off => {
                Ok(RequestOutcome::ImagesRefused(error))
            }
            ProviderErrorKind::Failed if self.has_fallback() => Ok(RequestOutcome::ProviderFailed(error)),
            _ => Err(error.into()),
        }
    }

    fn apply_reply(&mut self, kind: RequestKind, reply: &Reply) {
        if kind.kept_turns().is_some() {
            return;
        }
        self.context.new_images.clear();
        self.summary.answered_by = self.fallback_name();
        let bytes = self.context.bytes();
        self.context.estimator.set(reply.usage.prompt(), bytes);
        // The blocks are redacted one by one; a secret can span two of them. A reply without text has an empty text: an
        // earlier remark isn't the answer.
        self.summary.text = self.run.deps.tools.redactor.redact(&reply.text()).into_owned();
    }

    fn turn_of(&self, kind: RequestKind) -> u32 {
        self.summary.turns + u32::from(kind == RequestKind::Turn)
    }

    /// Counts the requests that a raised limit removed from the conversation.
    pub(super) fn count_rolled_back(&mut self) {
        for spend in self.cursor.rolled_back_spend() {
            self.count_spend(&spend);
        }
        for _ in 0..self.cursor.rolled_back_replies() {
            self.context.conversation.skip_recorded_reply();
        }
    }

    fn count_spend(&mut self, spend: &RequestSpend) {
        let cost = self.run.recorded_cost(self.planned, spend);
        self.add_usage(spend.usage, cost);
        if spend.reserved_cost_usd.is_some() {
            self.summary.cut_off_requests += CutOffRequests::one(spend.usage.total(), cost);
        }
    }

    fn add_usage(&mut self, usage: Usage, cost: Option<f64>) {
        self.summary.usage += usage;
        self.summary.cost_usd = self.summary.cost_usd.zip(cost).map(|(before, now)| before + now);
    }
}

impl RequestKind {
    fn kept_turns(self) -> Option<u32> {
        match self {
            Self::Summary { kept_turns, .. } => Some(kept_turns),
            Self::Turn | Self::Final => None,
        }
    }
}

/// Observes one request.
struct RequestObserver<'a> {
    run: &'a RunState,
    agent: &'a str,
    model: &'a Model,
    reservation: &'a Reservation<'a>,
    failed_tries: Mutex<FailedTries>,
    /// Cancelled when the limits leave no room for another try.
    stopped: CancellationToken,
}

#[derive(Default)]
struct FailedTries {
    usage: Usage,
    cost: Option<f64>,
    /// The limit that leaves no room for another try.
    limit: Option<LimitReached>,
    /// What the try that is under way has used so far.
    in_flight: Usage,
}

impl RequestObserver<'_> {
    fn finish(self) -> FailedTries {
        self.failed_tries.into_inner().ignore_poison()
    }
}

impl StreamObserver for RequestObserver<'_> {
    fn on_retry(&self, retry: &Retry) {
        // If it can't be recorded, that stops the run.
        let _ = self.run.record(self.agent, Retrying { retry: retry.clone() });
        let cost = self.run.cost(self.model, &retry.usage, (self.run.deps.clock)());
        let mut tries = self.failed_tries.lock().ignore_poison();
        tries.in_flight = Usage::default();
        tries.usage += retry.usage;
        tries.cost = tries.cost.zip(cost).map(|(before, now)| before + now);
        if let Err(hit) = self.reservation.count_failed(&retry.usage, cost) {
            tries.limit = Some(hit);
            self.stopped.cancel();
        }
    }

    fn on_progress(&self, usage: Usage) {
        self.failed_tries.lock().ignore_poison().in_flight = usage;
    }
}
