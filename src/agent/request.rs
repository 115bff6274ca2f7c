//! One request, from what is set aside for it to what came of it.

use tokio::time::Instant;

use super::listener::{Ended, Listener};
use super::window::cut_by_the_window;
use super::{Agent, Halt, Step, masked};
use crate::budget::{LimitHit, Wish};
use crate::event::{AskFailed, Asked, Replied};
use crate::message::{Reply, Usage};
use crate::providers::{Ask, FaultKind};

/// What a request is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// The next turn.
    Turn,
    /// The last word, without tools.
    Closing,
    /// A summary of all but so many of the last turns.
    Summary { kept_turns: u32, max_tokens: u32 },
}

/// What came of a request.
pub(super) enum Answer {
    Reply(Reply),
    Limit(LimitHit),
    /// There was no room for it in the model's window.
    Full {
        /// What the provider said.
        why: String,
        /// Whether it named a window that nobody had known.
        is_news: bool,
    },
}

impl Agent<'_> {
    /// Makes one request with the conversation as it is.
    pub(super) async fn request(&mut self, kind: Kind) -> Result<Answer, Halt> {
        // First of all: what was done before is told even where there is no time left to do more.
        if let Some(answer) = self.recall(kind) {
            return answer;
        }
        let is_closing = matches!(kind, Kind::Closing);
        let (max_tokens, keeps_turns) = match kind {
            Kind::Turn | Kind::Closing => (self.left_by_the_window(self.planned.max_tokens), None),
            Kind::Summary { kept_turns, max_tokens } => (max_tokens, Some(kept_turns)),
        };
        self.tree.is_heard().await?;
        self.tree.may(&self.id, Step::Request(!is_closing))?;
        let (tree, model) = (self.tree, &self.planned.model);
        let rates = tree.rates(model, self.prompt_tokens());
        let wish = Wish {
            prompt_tokens: self.prompt_tokens(),
            max_tokens,
            rates,
            leaves_a_last_one: !is_closing && !self.toolbox.is_empty(),
        };
        let reserved = tokio::select! {
            biased;
            halt = tree.cut_off(&self.id) => return Err(halt),
            reserved = tree.reserve(&self.id, keeps_turns.is_some(), wish) => reserved,
        };
        let reservation = match reserved {
            Ok(reservation) => reservation,
            Err(hit) => return Ok(Answer::Limit(hit)),
        };
        self.lowered = Some((reservation.max_tokens, reservation.limit)).filter(|(left, _)| *left < max_tokens);
        let tools_allowed = matches!(kind, Kind::Turn);
        let turn = if tools_allowed { self.turns + 1 } else { self.turns };
        self.record(Asked {
            turn,
            max_tokens: reservation.max_tokens,
            tools_allowed,
            reserved_tokens: reservation.tokens,
            reserved_cost_usd: rates.map(|_| reservation.cost),
            keeps_turns,
        })?;
        let begun = Instant::now();
        let watch = Listener::new(tree, &self.id, model, &reservation);
        let request = Ask {
            max_tokens: reservation.max_tokens,
            tools_allowed,
            // A parent is told of a subagent that said nothing, checks see what was done, and data is asked for once more.
            needs_words: self.subagent.is_none() && tree.plan.checks.is_empty() && self.planned.returns.is_none(),
            deadline: tree.deadline.into(),
        };
        let asked = tokio::select! {
            biased;
            halt = tree.cut_off(&self.id) => Err(halt),
            () = watch.ended() => Err(Halt::unwritten()),
            asked = self.conversation.ask(request, &watch) => Ok(asked),
        };
        let used = match &asked {
            Ok(Ok(reply)) => reply.usage,
            Ok(Err(fault)) => fault.spent,
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
            Some(Ended::Unwritten(error)) => return Err(Halt::journal(&error)),
            Some(Ended::Limit(hit)) => {
                // What its tries used stands in their own events.
                let why = hit.message.clone();
                self.record(AskFailed { kind: FaultKind::Failed, why, spent: Usage::default(), window: None })?;
                return Ok(Answer::Limit(hit));
            }
            None => {}
        }
        let reply = match asked? {
            Ok(mut reply) => {
                if matches!(kind, Kind::Turn) && max_tokens < self.planned.max_tokens && self.lowered.is_none() {
                    cut_by_the_window(&mut reply);
                }
                masked::reply(&tree.mask, reply)
            }
            Err(fault) => {
                let why = tree.mask.text(&fault.message).into_owned();
                let is_news = match &tree.recorded {
                    None => self.learns(fault.window, max_tokens),
                    Some(_) => fault.window.is_some(),
                };
                let window = fault.window.filter(|_| is_news);
                self.record(AskFailed { kind: fault.kind, why, spent: used, window })?;
                return match fault.kind {
                    FaultKind::ContextFull => Ok(Answer::Full { why: fault.message, is_news }),
                    _ => Err(fault.into()),
                };
            }
        };
        self.record(Replied {
            turn,
            reply: reply.clone(),
            duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        })?;
        self.take_in(kind, &reply);
        Ok(Answer::Reply(reply))
    }

    pub(super) fn take_in(&mut self, kind: Kind, reply: &Reply) {
        if matches!(kind, Kind::Summary { .. }) {
            return;
        }
        self.known = Some((reply.usage.prompt(), self.conversation.size()));
        // Its blocks are masked; a secret can reach from one into the next. A reply without text leaves none: what was said
        // before it is a remark, not the answer.
        self.last_text = self.tree.mask.text(&reply.text()).into_owned();
    }
}
