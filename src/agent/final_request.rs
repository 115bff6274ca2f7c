//! The end by a limit: one last request, to sum up.

use super::compaction::CompactionState;
use super::{Agent, RequestOutcome, RunAbort};
use crate::budget::LimitHit;
use crate::event::{LimitReached, NoteSent, Outcome, ReplyDiscarded};
use crate::message::{Message, Reply};

impl Agent<'_> {
    /// The reply would have been longer, but the budget had no more for it. One amid its calls is dropped.
    pub(super) async fn handle_budget_cut(&mut self, reply: Reply) -> Result<Outcome, RunAbort> {
        let (left, limit) = self.budget_cap.unwrap_or_default();
        let message = format!("a reply was cut: the limits of the run left only {left} tokens for it");
        let LimitHit { limit, message } = self.tree.reached_limit(&self.id, LimitHit { limit, message });
        if self.toolbox.is_empty() {
            // It had nothing to do but to answer, and this is its answer.
            self.record(LimitReached { limit: limit.into(), message: message.clone() })?;
            self.tree.note(Outcome::BudgetExceeded, &message);
            return Ok(Outcome::BudgetExceeded);
        }
        if reply.tool_calls().next().is_some() {
            self.record(ReplyDiscarded { reason: message.clone() })?;
        } else {
            self.append_message(Message::Assistant(reply));
        }
        self.finish_at_limit(Outcome::BudgetExceeded, limit, &message).await
    }

    /// One last request, without tools and not a turn, to sum up what there is. Whatever comes of it, the outcome
    /// stays what it was.
    pub(super) async fn finish_at_limit(
        &mut self,
        outcome: Outcome,
        limit: &str,
        message: &str,
    ) -> Result<Outcome, RunAbort> {
        self.record(LimitReached { limit: limit.into(), message: message.into() })?;
        self.tree.note(outcome, message);
        let note = format!(
            "The work ends here: {message}. No tool can be used any more. Answer now with what you have: what was \
             done, what was found, and what is still open."
        );
        // Where it was asked for before, in the words of that time.
        let note = self.cursor.peek_note().unwrap_or(note);
        self.record(NoteSent { text: note.clone() })?;
        let pending = self.pending.get_or_insert_default();
        pending.text = Some(pending.text.take().map_or(note.clone(), |before| format!("{before}\n{note}")));
        match self.send_final_request().await {
            Ok(()) => Ok(outcome),
            Err(halt) if halt.is_fatal_during_final_request() => Err(halt),
            Err(_) => Ok(outcome),
        }
    }

    /// Makes the last request. Where the limits have no room for it with all that the last calls answered, results are
    /// shortened until they have: a summary of less is better than none.
    async fn send_final_request(&mut self) -> Result<(), RunAbort> {
        let mut below = u64::MAX;
        while let RequestOutcome::LimitReached(_) = self.request_reply(false, CompactionState::default()).await? {
            let Some((call_ids, chars)) = self.history.results_to_truncate(1, below) else { break };
            if self.cursor.is_at_end() || self.tree.replay_driver.is_some() {
                break;
            }
            self.truncate_results(&call_ids, chars)?;
            below = chars;
        }
        Ok(())
    }
}
