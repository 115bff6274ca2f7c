//! What happens while a request waits for its reply: text is shown, failed tries are recorded and counted.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::run_state::RunState;
use crate::budget::Reservation;
use crate::event::{Durability, LimitReached, Retrying};
use crate::message::Usage;
use crate::providers::{Model, Retry, StreamObserver};
use crate::redaction::TextRedactor;

/// Why no further try may follow.
pub(super) enum RetryStop {
    JournalFailed(io::Error),
    /// The failed tries have used so much that the limits leave no room for another one.
    LimitReached(LimitReached),
}

/// Observes one request.
pub(super) struct RequestObserver<'a> {
    run: &'a RunState,
    agent: &'a str,
    model: &'a Model,
    reservation: &'a Reservation<'a>,
    failed_tries: Mutex<FailedTries>,
    /// The text of this try, on its way to the user.
    text_redactor: Mutex<TextRedactor>,
    /// Cancelled when no further try may follow.
    stopped: CancellationToken,
}

struct FailedTries {
    usage: Usage,
    cost: Option<f64>,
    stop: Option<RetryStop>,
}

impl<'a> RequestObserver<'a> {
    pub(super) fn new(run: &'a RunState, agent: &'a str, model: &'a Model, reservation: &'a Reservation<'a>) -> Self {
        Self {
            run,
            agent,
            model,
            reservation,
            failed_tries: Mutex::new(FailedTries { usage: Usage::default(), cost: Some(0.0), stop: None }),
            text_redactor: Mutex::new(run.deps.tools.redactor.text_stream()),
            stopped: CancellationToken::new(),
        }
    }

    /// Waits until no further try may follow.
    pub(super) async fn wait_until_stopped(&self) {
        self.stopped.cancelled().await;
    }

    /// Shows the rest of the text. Returns the usage and the cost of the failed tries, and why no further one may follow.
    pub(super) fn finish(self) -> (Usage, Option<f64>, Option<RetryStop>) {
        let rest = lock(&self.text_redactor).finish();
        if !rest.is_empty() {
            self.run.deps.sink.text(self.agent, &rest);
        }
        let tries = self.failed_tries.into_inner().unwrap_or_else(PoisonError::into_inner);
        (tries.usage, tries.cost, tries.stop)
    }
}

impl StreamObserver for RequestObserver<'_> {
    fn on_text(&self, piece: &str) {
        let piece = lock(&self.text_redactor).feed(piece);
        if !piece.is_empty() {
            self.run.deps.sink.text(self.agent, &piece);
        }
    }

    fn on_retry(&self, retry: &Retry) {
        *lock(&self.text_redactor) = self.run.deps.tools.redactor.text_stream();
        let event = Retrying { retry: retry.clone() }.into();
        let written = self.run.deps.sink.record(self.agent, event, Durability::Written);
        let cost = self.run.cost(self.model, &retry.usage, (self.run.deps.clock)());
        let counted = self.reservation.count_failed(&retry.usage, cost);
        let mut tries = lock(&self.failed_tries);
        tries.usage += retry.usage;
        tries.cost = tries.cost.zip(cost).map(|(before, now)| before + now);
        tries.stop = match (written, counted) {
            (Err(error), _) => Some(RetryStop::JournalFailed(error)),
            (Ok(()), Err(hit)) => Some(RetryStop::LimitReached(hit)),
            (Ok(()), Ok(())) => return,
        };
        self.stopped.cancel();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
