//! One request, from what is set aside for it to what came of it.

use tokio::time::Instant;

use super::context_window::mark_window_cut;
use super::request_observer::{RequestObserver, RetryStop};
use super::{Agent, AgentStep, RunAbort, redact_reply};
use crate::budget::{LimitHit, RequestEstimate};
use crate::event::{ReplyReceived, RequestFailed, RequestStarted};
use crate::message::{Reply, Usage};
use crate::providers::{ProviderErrorKind, ReplyRequest};

/// What a request is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum RequestKind {
    /// The next turn.
    Turn,
    /// The last word, without tools.
    Final,
    /// A summary of all but so many of the last turns.
    Summary { kept_turns: u32, max_tokens: u32 },
}

/// What came of a request.
pub(super) enum RequestOutcome {
    Reply(Reply),
    LimitReached(LimitHit),
    /// There was no room for it in the model's window.
    ContextFull {
        /// What the provider said.
        reason: String,
        /// Whether it named a window that nobody had known.
        is_new_window: bool,
    },
}

impl Agent<'_> {
    /// Makes one request with the conversation as it is.
    pub(super) async fn send_request(&mut self, kind: RequestKind) -> Result<RequestOutcome, RunAbort> {
        // First of all: what was done before is told even where there is no time left to do more.
        if let Some(answer) = self.take_journaled_request(kind) {
            return answer;
        }
        let is_closing = matches!(kind, RequestKind::Final);
        let (max_tokens, kept_turns) = match kind {
            RequestKind::Turn | RequestKind::Final => (self.cap_to_window(self.planned.max_tokens), None),
            RequestKind::Summary { kept_turns, max_tokens } => (max_tokens, Some(kept_turns)),
        };
        self.tree.wait_for_output().await?;
        self.tree.admit(&self.id, AgentStep::Request(!is_closing))?;
        let (tree, model) = (self.tree, &self.planned.model);
        let rates = tree.rates(model, self.prompt_tokens());
        let wish = RequestEstimate {
            prompt_tokens: self.prompt_tokens(),
            max_tokens,
            rates,
            reserves_final_request: !is_closing && !self.toolbox.is_empty(),
        };
        let reserved = tokio::select! {
            biased;
            halt = tree.wait_for_abort(&self.id) => return Err(halt),
            reserved = tree.reserve(&self.id, kept_turns.is_some(), wish) => reserved,
        };
        let reservation = match reserved {
            Ok(reservation) => reservation,
            Err(hit) => return Ok(RequestOutcome::LimitReached(hit)),
        };
        self.budget_cap = Some((reservation.max_tokens, reservation.limit)).filter(|(left, _)| *left < max_tokens);
        let tools_allowed = matches!(kind, RequestKind::Turn);
        let turn = if tools_allowed { self.turns + 1 } else { self.turns };
        self.record(RequestStarted {
            turn,
            max_tokens: reservation.max_tokens,
            tools_allowed,
            reserved_tokens: reservation.tokens,
            reserved_cost_usd: rates.map(|_| reservation.cost),
            kept_turns: kept_turns,
        })?;
        let begun = Instant::now();
        let watch = RequestObserver::new(tree, &self.id, model, &reservation);
        let request = ReplyRequest {
            max_tokens: reservation.max_tokens,
            tools_allowed,
            // A parent is told of a subagent that said nothing, checks see what was done, and data is asked for once more.
            requires_content: self.subagent.is_none() && tree.plan.checks.is_empty() && self.planned.returns.is_none(),
            deadline: tree.deadline.into(),
        };
        let asked = tokio::select! {
            biased;
            halt = tree.wait_for_abort(&self.id) => Err(halt),
            () = watch.wait_until_stopped() => Err(RunAbort::journal_failed_earlier()),
            asked = self.conversation.ask(request, &watch) => Ok(asked),
        };
        let used = match &asked {
            Ok(Ok(reply)) => reply.usage,
            Ok(Err(fault)) => fault.usage,
            // What a try has used that was under way when the run stopped, nobody knows; the journal has what was
            // reserved for it.
            Err(_) => Usage::default(),
        };
        let (mut spent, failed_cost, ended) = watch.finish();
        let cost = tree.cost(model, &used);
        reservation.settle(&used, cost);
        spent += used;
        self.usage += spent;
        let cost = failed_cost.zip(cost).map(|(failed, used)| failed + used);
        self.cost_usd = self.cost_usd.zip(cost).map(|(before, now)| before + now);
        match ended {
            Some(RetryStop::JournalFailed(error)) => return Err(RunAbort::journal_write_failed(&error)),
            Some(RetryStop::LimitReached(hit)) => {
                // What its tries used stands in their own events.
                let why = hit.message.clone();
                self.record(RequestFailed {
                    kind: ProviderErrorKind::Failed,
                    reason: why,
                    usage: Usage::default(),
                    window: None,
                })?;
                return Ok(RequestOutcome::LimitReached(hit));
            }
            None => {}
        }
        let reply = match asked? {
            Ok(mut reply) => {
                if matches!(kind, RequestKind::Turn)
                    && max_tokens < self.planned.max_tokens
                    && self.budget_cap.is_none()
                {
                    mark_window_cut(&mut reply);
                }
                redact_reply::redact_reply(&tree.mask, reply)
            }
            Err(fault) => {
                let why = tree.mask.redact(&fault.message).into_owned();
                let is_news = match &tree.replay_driver {
                    None => self.learn_window(fault.context_window, max_tokens),
                    Some(_) => fault.context_window.is_some(),
                };
                let window = fault.context_window.filter(|_| is_news);
                self.record(RequestFailed { kind: fault.kind, reason: why, usage: used, window })?;
                return match fault.kind {
                    ProviderErrorKind::ContextFull => {
                        Ok(RequestOutcome::ContextFull { reason: fault.message, is_new_window: is_news })
                    }
                    _ => Err(fault.into()),
                };
            }
        };
        self.record(ReplyReceived {
            turn,
            reply: reply.clone(),
            duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        })?;
        self.apply_reply(kind, &reply);
        Ok(RequestOutcome::Reply(reply))
    }

    pub(super) fn apply_reply(&mut self, kind: RequestKind, reply: &Reply) {
        if matches!(kind, RequestKind::Summary { .. }) {
            return;
        }
        self.last_measured = Some((reply.usage.prompt(), self.conversation.prompt_bytes()));
        // Its blocks are masked; a secret can reach from one into the next. A reply without text leaves none: what was said
        // before it is a remark, not the answer.
        self.last_text = self.tree.mask.redact(&reply.text()).into_owned();
    }
}
