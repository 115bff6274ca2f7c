//! The end by a limit: one last request, to sum up.

use super::room::Effort;
use super::{Agent, Answer, Halt};
use crate::budget::LimitHit;
use crate::event::{Dropped, LimitReached, Outcome, Told};
use crate::message::{Message, Reply};

impl Agent<'_> {
    /// The reply would have been longer, but the budget had no more for it. One amid its calls is dropped.
    pub(super) async fn cut_by_the_budget(&mut self, reply: Reply) -> Result<Outcome, Halt> {
        let (left, limit) = self.lowered.unwrap_or_default();
        let message = format!("a reply was cut: the limits of the run left only {left} tokens for it");
        let LimitHit { limit, message } = self.tree.limit(&self.id, LimitHit { limit, message });
        if self.toolbox.is_empty() {
            // It had nothing to do but to answer, and this is its answer.
            self.record(LimitReached { limit: limit.into(), message: message.clone() })?;
            self.tree.note(Outcome::BudgetExceeded, &message);
            return Ok(Outcome::BudgetExceeded);
        }
        if reply.calls().next().is_some() {
            self.record(Dropped { why: message.clone() })?;
        } else {
            self.say(Message::Assistant(reply));
        }
        self.close(Outcome::BudgetExceeded, limit, &message).await
    }

    /// One last request, without tools and not a turn, to sum up what there is. Whatever comes of it, the outcome
    /// stays what it was.
    pub(super) async fn close(&mut self, outcome: Outcome, limit: &str, message: &str) -> Result<Outcome, Halt> {
        self.record(LimitReached { limit: limit.into(), message: message.into() })?;
        self.tree.note(outcome, message);
        let note = format!(
            "The work ends here: {message}. No tool can be used any more. Answer now with what you have: what was \
             done, what was found, and what is still open."
        );
        // Where it was asked for before, in the words of that time.
        let note = self.past.told().unwrap_or(note);
        self.record(Told { text: note.clone() })?;
        let pending = self.pending.get_or_insert_default();
        pending.text = Some(pending.text.take().map_or(note.clone(), |before| format!("{before}\n{note}")));
        match self.ask_to_sum_up().await {
            Ok(()) => Ok(outcome),
            Err(halt) if halt.spoils_a_closing() => Err(halt),
            Err(_) => Ok(outcome),
        }
    }

    /// Makes the last request. Where the limits have no room for it with all that the last calls answered, results are
    /// shortened until they have: a summary of less is better than none.
    async fn ask_to_sum_up(&mut self) -> Result<(), Halt> {
        let mut below = u64::MAX;
        while let Answer::Limit(_) = self.ask(false, Effort::default()).await? {
            let Some((call_ids, chars)) = self.messages.all_results(1, below) else { break };
            if self.past.ends() || self.tree.recorded.is_some() {
                break;
            }
            self.shorten(&call_ids, chars)?;
            below = chars;
        }
        Ok(())
    }
}
