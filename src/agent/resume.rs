//! Steps that the journal holds already.

use super::journal_cursor::{JournaledRequest, NextRequest, RequestEnd, RequestSpend};
use super::{Agent, RequestKind, RequestOutcome, RunAbort};
use crate::budget::LimitHit;
use crate::message::ToolResult;
use crate::providers::{ProviderError, ProviderErrorKind};

/// What the model is told of a call that was begun and whose end nobody saw.
pub const INTERRUPTED_CALL_NOTE: &str = "The run was cut off while this call was under way. Its effect is unknown: it may have \
                           happened, in part or not at all. Look before you do it again.";

impl Agent<'_> {
    /// What came of the next request when it was made; `None` where it has to be made.
    pub(super) fn take_journaled_request(&mut self, kind: RequestKind) -> Option<Result<RequestOutcome, RunAbort>> {
        if self.cursor.is_at_end() {
            // It ended without this request: a closing one that no limit had room for.
            let hit = LimitHit { limit: "limits", message: "there was no room for another request".to_owned() };
            return Some(Ok(RequestOutcome::LimitReached(hit)));
        }
        loop {
            let made = match self.cursor.take_request()? {
                NextRequest::LimitReached(hit) => return Some(Ok(RequestOutcome::LimitReached(hit))),
                NextRequest::Sent(made) => made,
            };
            for spent in made.request_spend() {
                self.count_spend(&spent);
            }
            let JournaledRequest { asked, end, .. } = *made;
            let wished = match kind {
                RequestKind::Turn | RequestKind::Final => self.planned.max_tokens,
                RequestKind::Summary { max_tokens, .. } => max_tokens,
            };
            self.budget_cap = Some((asked.max_tokens, "limits")).filter(|(left, _)| *left < wished);
            match end {
                RequestEnd::Replied(replied) => {
                    self.conversation.skip_recorded_reply();
                    self.apply_reply(kind, &replied.reply);
                    return Some(Ok(RequestOutcome::Reply(replied.reply)));
                }
                // The agent ended with it, or made room.
                RequestEnd::Failed(failed) if failed.kind == ProviderErrorKind::ContextFull => {
                    return Some(Ok(RequestOutcome::ContextFull {
                        reason: failed.reason,
                        is_new_window: failed.window.is_some(),
                    }));
                }
                RequestEnd::Failed(failed) if self.cursor.is_at_end() => {
                    return Some(Err(ProviderError::new(failed.kind, failed.reason).into()));
                }
                // It is made again.
                RequestEnd::Failed(_) | RequestEnd::Unfinished => {}
            }
        }
    }

    /// Counts what was asked for before a limit was raised, and isn't part of the conversation.
    pub(super) fn count_rolled_back(&mut self) {
        for spent in self.cursor.rolled_back_spend() {
            self.count_spend(&spent);
        }
        for _ in 0..self.cursor.rolled_back_replies() {
            self.conversation.skip_recorded_reply();
        }
    }

    /// Counts what a request used that isn't reserved any more.
    fn count_spend(&mut self, spent: &RequestSpend) {
        self.usage += spent.usage;
        let cost = self.tree.journaled_cost(&self.planned.model, spent);
        self.cost_usd = self.cost_usd.zip(cost).map(|(before, now)| before + now);
    }
}

/// The answer to a call that may have had its effect.
pub(super) fn interrupted_result(call_id: &str) -> ToolResult {
    ToolResult { call_id: call_id.to_owned(), text: INTERRUPTED_CALL_NOTE.to_owned(), is_error: true }
}
