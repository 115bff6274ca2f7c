//! What a provider tells while it is awaited: written down, counted, passed on.

use std::io;
use std::sync::Mutex;

use tokio_util::sync::CancellationToken;

use super::{RunState, lock};
use crate::budget::{LimitHit, Reservation};
use crate::event::{Durability, Retrying};
use crate::message::Usage;
use crate::providers::{Model, Retry, StreamObserver};
use crate::redaction::TextRedactor;

/// Why no further try may follow.
pub(super) enum RetryStop {
    /// The journal can't be written.
    JournalFailed(io::Error),
    /// What the failed tries have used leaves no room for another one.
    LimitReached(LimitHit),
}

/// Listens during one request.
pub(super) struct RequestObserver<'a> {
    tree: &'a RunState,
    agent: &'a str,
    model: &'a Model,
    reservation: &'a Reservation<'a>,
    failed_tries: Mutex<FailedTries>,
    /// The text of this try, on its way to who looks on.
    text_redactor: Mutex<TextRedactor>,
    /// Cancelled with the first reason to end.
    stopped: CancellationToken,
}

struct FailedTries {
    usage: Usage,
    cost: Option<f64>,
    stop: Option<RetryStop>,
}

impl<'a> RequestObserver<'a> {
    pub(super) fn new(tree: &'a RunState, agent: &'a str, model: &'a Model, reservation: &'a Reservation<'a>) -> Self {
        let told = Mutex::new(FailedTries { usage: Usage::default(), cost: Some(0.0), stop: None });
        let shown = Mutex::new(tree.mask.text_stream());
        Self {
            tree,
            agent,
            model,
            reservation,
            failed_tries: told,
            text_redactor: shown,
            stopped: CancellationToken::new(),
        }
    }

    /// Waits until no further try may follow.
    pub(super) async fn wait_until_stopped(&self) {
        self.stopped.cancelled().await;
    }

    /// What the failed tries have used and cost, and why no further one may follow. Shows what was held back of the text.
    pub(super) fn finish(self) -> (Usage, Option<f64>, Option<RetryStop>) {
        let rest = lock(&self.text_redactor).finish();
        if !rest.is_empty() {
            self.tree.sink.text(self.agent, &rest);
        }
        let told = self.failed_tries.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        (told.usage, told.cost, told.stop)
    }
}

impl StreamObserver for RequestObserver<'_> {
    fn on_text(&self, piece: &str) {
        let piece = lock(&self.text_redactor).feed(piece);
        if !piece.is_empty() {
            self.tree.sink.text(self.agent, &piece);
        }
    }

    fn on_retry(&self, retry: &Retry) {
        *lock(&self.text_redactor) = self.tree.mask.text_stream();
        let why = self.tree.mask.redact(&retry.reason).into_owned();
        let event = Retrying { retry: Retry { reason: why, ..retry.clone() } }.into();
        let written = self.tree.sink.record(self.agent, event, Durability::Written);
        let cost = self.tree.cost(self.model, &retry.usage);
        let counted = self.tree.count_failed(self.agent, self.reservation, &retry.usage, cost);
        let mut told = lock(&self.failed_tries);
        told.usage += retry.usage;
        told.cost = told.cost.zip(cost).map(|(before, now)| before + now);
        told.stop = match (written, counted) {
            (Err(error), _) => Some(RetryStop::JournalFailed(error)),
            (Ok(()), Err(hit)) => Some(RetryStop::LimitReached(hit)),
            (Ok(()), Ok(())) => return,
        };
        self.stopped.cancel();
    }
}
