//! The end of an agent that reached a limit: one last request to sum up.

use super::agent_state::Agent;
use super::compaction::CompactionState;
use super::request::{RequestKind, RequestOutcome};
use super::run_state::RunAbort;
use crate::event::{LimitReached, NoteSent, Outcome, ReplyDiscarded};
use crate::message::{Message, Reply};

impl Agent<'_> {
    /// Ends an agent whose reply was cut because the budget had no more tokens for it. A reply with calls is discarded.
    pub(super) async fn finish_after_budget_cut(&mut self, reply: Reply) -> Result<Outcome, RunAbort> {
        let (left, limit) = self.budget_cap.unwrap_or_default();
        let message = format!("a reply was cut: the limits of the run left only {left} tokens for it");
        let hit = LimitReached::new(limit, message);
        if self.toolbox.is_empty() {
            // Its only task was to answer, and this is its answer.
            self.record_limit(Outcome::BudgetExceeded, hit)?;
            return Ok(Outcome::BudgetExceeded);
        }
        if reply.tool_calls().next().is_some() {
            self.record(ReplyDiscarded { reason: hit.message.clone() })?;
        } else {
            self.context.append(Message::Assistant(reply));
        }
        self.finish_at_limit(Outcome::BudgetExceeded, hit).await
    }

    /// Sends one last request, without tools and not a turn, for a summary of the work. Its reply does not change the
    /// outcome.
    pub(super) async fn finish_at_limit(&mut self, outcome: Outcome, hit: LimitReached) -> Result<Outcome, RunAbort> {
        let message = self.record_limit(outcome, hit)?;
        let note = format!(
            "The work ends here: {message}. You can't use tools any more. Answer now with what you have: what you did, \
             what you found, and what is still open."
        );
        // A resumed agent gets the recorded note.
        let recorded = self.cursor.next_note();
        self.record(NoteSent { text: note.clone() })?;
        let note = recorded.unwrap_or(note);
        let pending = self.context.pending.get_or_insert_default();
        pending.text = Some(pending.text.take().map_or(note.clone(), |before| format!("{before}\n{note}")));
        match self.send_final_request().await {
            Err(abort) if abort.is_fatal_during_final_request() => Err(abort),
            Ok(()) | Err(_) => Ok(outcome),
        }
    }

    /// Records the limit that ends the agent, in its recorded form if there is one. Returns the message.
    fn record_limit(&mut self, outcome: Outcome, hit: LimitReached) -> Result<String, RunAbort> {
        let hit = self.cursor.recorded_limit(&hit).unwrap_or(hit);
        self.record(hit.clone())?;
        self.run.note(outcome, &hit.message);
        Ok(hit.message)
    }

    /// Sends the last request. If the limits have no room for it with all results of the last calls, results are truncated
    /// until they do: a summary of less is better than none.
    async fn send_final_request(&mut self) -> Result<(), RunAbort> {
        let mut below = u64::MAX;
        while let RequestOutcome::LimitReached(_) =
            self.request_reply(RequestKind::Final, CompactionState::default()).await?
        {
            let Some((call_ids, chars)) = self.context.history.results_to_truncate(1, below) else { break };
            if self.cursor.is_at_end() || self.cursor.is_replay() {
                break;
            }
            self.truncate_results(&call_ids, chars)?;
            below = chars;
        }
        Ok(())
    }
}
