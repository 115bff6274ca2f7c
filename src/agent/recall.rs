//! Steps that the journal holds already.

use super::past::{End, Made, Request, Spent};
use super::{Agent, Answer, Halt, Kind};
use crate::budget::LimitHit;
use crate::message::ToolResult;
use crate::providers::{Fault, FaultKind};

/// What the model is told of a call that was begun and whose end nobody saw.
pub const INTERRUPTED: &str = "The run was cut off while this call was under way. Its effect is unknown: it may have \
                           happened, in part or not at all. Look before you do it again.";

impl Agent<'_> {
    /// What came of the next request when it was made; `None` where it has to be made.
    pub(super) fn recall(&mut self, kind: Kind) -> Option<Result<Answer, Halt>> {
        if self.past.ends() {
            // It ended without this request: a closing one that no limit had room for.
            let hit = LimitHit { limit: "limits", message: "there was no room for another request".to_owned() };
            return Some(Ok(Answer::Limit(hit)));
        }
        loop {
            let made = match self.past.request()? {
                Request::Refused(hit) => return Some(Ok(Answer::Limit(hit))),
                Request::Made(made) => made,
            };
            for spent in made.spent() {
                self.count(&spent);
            }
            let Made { asked, end, .. } = *made;
            let wished = match kind {
                Kind::Turn | Kind::Closing => self.planned.max_tokens,
                Kind::Summary { max_tokens, .. } => max_tokens,
            };
            self.lowered = Some((asked.max_tokens, "limits")).filter(|(left, _)| *left < wished);
            match end {
                End::Replied(replied) => {
                    self.conversation.recall();
                    self.take_in(kind, &replied.reply);
                    return Some(Ok(Answer::Reply(replied.reply)));
                }
                // The agent ended with it, or made room.
                End::Failed(failed) if failed.kind == FaultKind::ContextFull => {
                    return Some(Ok(Answer::Full { why: failed.why, is_news: failed.window.is_some() }));
                }
                End::Failed(failed) if self.past.ends() => {
                    return Some(Err(Fault::new(failed.kind, failed.why).into()));
                }
                // It is made again.
                End::Failed(_) | End::Lost => {}
            }
        }
    }

    /// Counts what was asked for before a limit was raised, and isn't part of the conversation.
    pub(super) fn count_undone(&mut self) {
        for spent in self.past.undone_spent() {
            self.count(&spent);
        }
        for _ in 0..self.past.undone_replies() {
            self.conversation.recall();
        }
    }

    /// Counts what a request used that isn't reserved any more.
    fn count(&mut self, spent: &Spent) {
        self.usage += spent.usage;
        let cost = self.tree.cost_of(&self.planned.model, spent);
        self.cost_usd = self.cost_usd.zip(cost).map(|(before, now)| before + now);
    }
}

/// The answer to a call that may have had its effect.
pub(super) fn interrupted(call_id: &str) -> ToolResult {
    ToolResult { call_id: call_id.to_owned(), text: INTERRUPTED.to_owned(), is_error: true }
}
