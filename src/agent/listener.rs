//! What a provider tells while it is awaited: written down, counted, passed on.

use std::io;
use std::sync::Mutex;

use tokio_util::sync::CancellationToken;

use super::{Tree, lock};
use crate::budget::{LimitHit, Reservation};
use crate::event::{Durability, Retrying};
use crate::mask::MaskedText;
use crate::message::Usage;
use crate::providers::{Model, Retry, Watch};

/// Why no further try may follow.
pub(super) enum Ended {
    /// The journal can't be written.
    Unwritten(io::Error),
    /// What the failed tries have used leaves no room for another one.
    Limit(LimitHit),
}

/// Listens during one request.
pub(super) struct Listener<'a> {
    tree: &'a Tree,
    agent: &'a str,
    model: &'a Model,
    reservation: &'a Reservation<'a>,
    told: Mutex<Told>,
    /// The text of this try, on its way to who looks on.
    shown: Mutex<MaskedText>,
    /// Cancelled with the first reason to end.
    ended: CancellationToken,
}

struct Told {
    spent: Usage,
    cost: Option<f64>,
    ended: Option<Ended>,
}

impl<'a> Listener<'a> {
    pub(super) fn new(tree: &'a Tree, agent: &'a str, model: &'a Model, reservation: &'a Reservation<'a>) -> Self {
        let told = Mutex::new(Told { spent: Usage::default(), cost: Some(0.0), ended: None });
        let shown = Mutex::new(MaskedText::new(&tree.mask));
        Self { tree, agent, model, reservation, told, shown, ended: CancellationToken::new() }
    }

    /// Waits until no further try may follow.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// What the failed tries have used and cost, and why no further one may follow. Shows what was held back of the text.
    pub(super) fn finish(self) -> (Usage, Option<f64>, Option<Ended>) {
        let rest = lock(&self.shown).finish();
        if !rest.is_empty() {
            self.tree.sink.text(self.agent, &rest);
        }
        let told = self.told.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        (told.spent, told.cost, told.ended)
    }
}

impl Watch for Listener<'_> {
    fn text(&self, piece: &str) {
        let piece = lock(&self.shown).feed(piece);
        if !piece.is_empty() {
            self.tree.sink.text(self.agent, &piece);
        }
    }

    fn retrying(&self, retry: &Retry) {
        *lock(&self.shown) = MaskedText::new(&self.tree.mask);
        let why = self.tree.mask.text(&retry.why).into_owned();
        let event = Retrying { retry: Retry { why, ..retry.clone() } }.into();
        let written = self.tree.sink.record(self.agent, event, Durability::Written);
        let cost = self.tree.cost(self.model, &retry.spent);
        let counted = self.tree.count_failed(self.agent, self.reservation, &retry.spent, cost);
        let mut told = lock(&self.told);
        told.spent += retry.spent;
        told.cost = told.cost.zip(cost).map(|(before, now)| before + now);
        told.ended = match (written, counted) {
            (Err(error), _) => Some(Ended::Unwritten(error)),
            (Ok(()), Err(hit)) => Some(Ended::Limit(hit)),
            (Ok(()), Ok(())) => return,
        };
        self.ended.cancel();
    }
}
