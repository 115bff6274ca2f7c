//! The usage of the requests in a journal.

use jiff::Timestamp;

use crate::event::{Event, JournalEntry, RequestStarted};
use crate::message::Usage;

/// The usage of one request.
#[derive(Debug, Clone, Copy)]
pub struct RequestSpend {
    /// When it was made.
    pub at: Timestamp,
    /// Its tokens.
    pub usage: Usage,
    /// The cost in US dollars that was reserved for it, if its real usage isn't known.
    pub reserved_cost_usd: Option<Option<f64>>,
}

impl RequestSpend {
    /// A request with known usage.
    pub(super) fn finished(at: Timestamp, usage: Usage) -> Self {
        Self { at, usage, reserved_cost_usd: None }
    }

    /// A request without a recorded end: it counts as what was reserved for it.
    pub(super) fn unfinished(at: Timestamp, request: &RequestStarted) -> Self {
        let output_tokens = u64::from(request.max_tokens).min(request.reserved_tokens);
        let input_tokens = request.reserved_tokens - output_tokens;
        let usage = Usage { input_tokens, output_tokens, ..Usage::default() };
        Self { at, usage, reserved_cost_usd: Some(request.reserved_cost_usd) }
    }
}

/// The usage of every request of a journal.
pub(super) fn request_spend<'a>(entries: impl IntoIterator<Item = &'a JournalEntry>) -> Vec<RequestSpend> {
    let mut all = Vec::new();
    let mut in_flight: Option<(Timestamp, &RequestStarted)> = None;
    for entry in entries {
        let finished = |usage| in_flight.map(|(at, _)| RequestSpend::finished(at, usage));
        match &entry.event {
            Event::Retrying(retrying) => {
                all.extend(finished(retrying.retry.usage));
                continue;
            }
            Event::ReplyReceived(received) => all.extend(finished(received.reply.usage)),
            Event::RequestFailed(failed) => all.extend(finished(failed.usage)),
            _ => all.extend(in_flight.map(|(at, request)| RequestSpend::unfinished(at, request))),
        }
        in_flight = match &entry.event {
            Event::RequestStarted(request) => Some((entry.at, request)),
            _ => None,
        };
    }
    all.extend(in_flight.map(|(at, request)| RequestSpend::unfinished(at, request)));
    all
}
