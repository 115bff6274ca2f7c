//! What becomes of an answer without calls: it ends the agent, or the agent is told what is missing and goes on.

use super::submitted::Demand;
use super::{Agent, Halt};
use crate::event::{Outcome, Told};
use crate::message::{Message, Reply};

impl Agent<'_> {
    /// How the agent ends with this answer; `None` where it goes on, with what it is told in `pending`.
    pub(super) async fn conclude(&mut self, reply: Reply) -> Result<Option<Outcome>, Halt> {
        if !self.tree.plan.checks.is_empty() {
            self.tree.ready().await?;
        }
        match self.demand_data() {
            Demand::Met => self.review(reply).await,
            Demand::Unmet => Ok(Some(Outcome::ResultInvalid)),
            Demand::Repeated(text) => {
                self.go_on(reply, text.to_owned())?;
                Ok(None)
            }
        }
    }

    /// Answers the agent, which goes on in the same conversation; in the journal's own words where it has them.
    pub(super) fn go_on(&mut self, reply: Reply, text: String) -> Result<(), Halt> {
        let known = self.past.told();
        self.record(Told { text: text.clone() })?;
        // What a model said without a word is no message.
        if !reply.blocks.is_empty() {
            let tokens = reply.usage.total();
            self.say(Message::Assistant(reply));
            self.known = Some((tokens, self.conversation.size()));
        }
        self.pending.get_or_insert_default().text = Some(known.unwrap_or(text));
        Ok(())
    }
}
