//! What becomes of an answer without calls: it ends the agent, or the agent is told what is missing and goes on.

use super::structured_output::OutputStatus;
use super::{Agent, RunAbort};
use crate::event::{NoteSent, Outcome};
use crate::message::{Message, Reply};

impl Agent<'_> {
    /// How the agent ends with this answer; `None` where it goes on, with what it is told in `pending`.
    pub(super) async fn conclude(&mut self, reply: Reply) -> Result<Option<Outcome>, RunAbort> {
        if !self.tree.plan.checks.is_empty() {
            self.tree.wait_for_baseline().await?;
        }
        match self.output_status() {
            OutputStatus::Satisfied => self.run_checks(reply).await,
            OutputStatus::Missing => Ok(Some(Outcome::ResultInvalid)),
            OutputStatus::Reminded(text) => {
                self.continue_with_note(reply, text.to_owned())?;
                Ok(None)
            }
        }
    }

    /// Answers the agent, which goes on in the same conversation; in the journal's own words where it has them.
    pub(super) fn continue_with_note(&mut self, reply: Reply, text: String) -> Result<(), RunAbort> {
        let known = self.cursor.peek_note();
        self.record(NoteSent { text: text.clone() })?;
        // What a model said without a word is no message.
        if !reply.blocks.is_empty() {
            let tokens = reply.usage.total();
            self.append_message(Message::Assistant(reply));
            self.last_measured = Some((tokens, self.conversation.prompt_bytes()));
        }
        self.pending.get_or_insert_default().text = Some(known.unwrap_or(text));
        Ok(())
    }
}
