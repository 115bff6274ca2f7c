//! Replies with nothing in them, and streams that never come to one.
//!
//! Behind the answers to calls a model may have nothing to add, and that is its end. The first reply to a prompt is another
//! matter: nothing was done, and nothing said.

use super::{HttpConversation, MAX_EVENT_BYTES, RequestEncoder};
use crate::message::Reply;
use crate::providers::transport::http_conversation::ProviderState;
use crate::providers::transport::retry::{FailedAttempt, RetryState};
use crate::providers::{ProviderError, ProviderErrorKind, ReplyRequest, Retry};

/// How often a reply with nothing in it is asked for again.
const MAX_EMPTY_RETRIES: u32 = 2;
/// The greatest size in bytes of what comes of a stream between two signs of a reply: several of the largest events.
pub(super) const MAX_BYTES_WITHOUT_PROGRESS: usize = 2 * MAX_EVENT_BYTES;

/// What is done about such a reply.
pub(super) enum EmptyReplyAction {
    /// It is asked for again.
    Retry(Retry),
    /// It is taken as the end that it may be.
    Accept(Reply),
}

impl<B: RequestEncoder> HttpConversation<B> {
    /// Whether a reply that says nothing is hardly meant so: the first one where that is needed, or any where the API has
    /// that fault.
    pub(super) fn is_unexpectedly_empty(&self, ask: &ReplyRequest, reply: &Reply) -> bool {
        let is_needed = ask.requires_content && !self.has_replied;
        ask.tools_allowed && reply.is_empty_reply() && (is_needed || self.encoder.may_reply_empty())
    }

    /// What is done about one; `silent` were like it before.
    ///
    /// # Errors
    /// Nothing was ever said, there is no further try, and the answer is needed.
    pub(super) fn handle_empty_reply(
        &self,
        ask: &ReplyRequest,
        reply: Reply,
        silent: u32,
        tries: &mut RetryState,
    ) -> Result<EmptyReplyAction, ProviderError> {
        let mut failure =
            FailedAttempt::transient(format!("{} sent a reply with nothing in it", self.shared.endpoint.display_url()));
        failure.error.usage = reply.usage;
        let hint = "ask again later, or another model; is the prompt one that can be answered?";
        failure.error.hint = Some(hint.to_owned());
        let again = if silent < MAX_EMPTY_RETRIES {
            tries.after_failure(failure)
        } else {
            failure.error.message.push_str(&format!(" (tried {} times)", silent + 1));
            Err(failure.error)
        };
        match again {
            Ok(retry) => Ok(EmptyReplyAction::Retry(retry)),
            Err(_) if self.has_replied || !ask.requires_content => Ok(EmptyReplyAction::Accept(reply)),
            Err(fault) => Err(fault),
        }
    }

    /// A stream that goes on and on and says nothing. The next one would do the same, for as much traffic.
    pub(super) fn no_progress(&self) -> FailedAttempt {
        let ProviderState { endpoint, .. } = &*self.shared;
        let what = format!(
            "{} sent {MAX_BYTES_WITHOUT_PROGRESS} bytes with nothing of a reply in them",
            endpoint.display_url()
        );
        let hint = format!("is {} the address of {}?", endpoint.labels().base_url_source, endpoint.labels().api);
        FailedAttempt::permanent(ProviderError::new(ProviderErrorKind::Failed, what).with_hint(hint))
    }
}
