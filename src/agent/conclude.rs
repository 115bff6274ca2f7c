//! What becomes of an answer without calls: it ends the agent, or the agent is told what is missing and goes on.

use super::{Agent, Halt};
use crate::event::Outcome;
use crate::message::Reply;

impl Agent<'_> {
    /// How the agent ends with this answer; `None` where it goes on, with what it is told in `pending`.
    pub(super) async fn conclude(&mut self, reply: Reply) -> Result<Option<Outcome>, Halt> {
        self.review(reply).await
    }
}
