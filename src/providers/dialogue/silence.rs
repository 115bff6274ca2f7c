//! Replies with nothing in them, and streams that never come to one.
//!
//! Behind the answers to calls a model may have nothing to add, and that is its end. The first reply to a prompt is another
//! matter: nothing was done, and nothing said.

use super::{Body, Dialogue, LARGEST_EVENT};
use crate::message::Reply;
use crate::providers::dialogue::Shared;
use crate::providers::retry::{Failure, Tries};
use crate::providers::{Ask, Fault, FaultKind, Retry};

/// How often a reply with nothing in it is asked for again.
const REPEATS: u32 = 2;
/// The greatest size in bytes of what comes of a stream between two signs of a reply: several of the largest events.
pub(super) const LARGEST_SILENCE: usize = 2 * LARGEST_EVENT;

/// What is done about such a reply.
pub(super) enum Silence {
    /// It is asked for again.
    Again(Retry),
    /// It is taken as the end that it may be.
    Taken(Reply),
}

impl<B: Body> Dialogue<B> {
    /// Whether a reply that says nothing is hardly meant so: the first one where that is needed, or any where the API has
    /// that fault.
    pub(super) fn is_silence_odd(&self, ask: &Ask, reply: &Reply) -> bool {
        let is_needed = ask.needs_words && !self.has_replied;
        ask.tools_allowed && reply.is_silent() && (is_needed || self.body.falls_silent())
    }

    /// What is done about one; `silent` were like it before.
    ///
    /// # Errors
    /// Nothing was ever said, there is no further try, and the answer is needed.
    pub(super) fn silence(&self, ask: &Ask, reply: Reply, silent: u32, tries: &mut Tries) -> Result<Silence, Fault> {
        let mut failure = Failure::passing(format!("{} sent a reply with nothing in it", self.shared.endpoint.shown()));
        failure.fault.spent = reply.usage;
        let hint = "ask again later, or another model; is the prompt one that can be answered?";
        failure.fault.hint = Some(hint.to_owned());
        let again = if silent < REPEATS {
            tries.after(failure)
        } else {
            failure.fault.message.push_str(&format!(" (tried {} times)", silent + 1));
            Err(failure.fault)
        };
        match again {
            Ok(retry) => Ok(Silence::Again(retry)),
            Err(_) if self.has_replied || !ask.needs_words => Ok(Silence::Taken(reply)),
            Err(fault) => Err(fault),
        }
    }

    /// A stream that goes on and on and says nothing. The next one would do the same, for as much traffic.
    pub(super) fn endless(&self) -> Failure {
        let Shared { endpoint, .. } = &*self.shared;
        let what = format!("{} sent {LARGEST_SILENCE} bytes with nothing of a reply in them", endpoint.shown());
        let hint = format!("is {} the address of {}?", endpoint.names().base, endpoint.names().api);
        Failure::last(Fault::new(FaultKind::Failed, what).hint(hint))
    }
}
