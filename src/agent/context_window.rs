//! How much prompt and reply may have together, as far as anybody says.

use std::collections::HashMap;
use std::sync::Mutex;

use super::{Agent, RunState, lock};
use crate::message::{Reply, StopReason};
use crate::providers::Model;

/// A reply has room for at least one in so many of the window's tokens.
const MIN_REPLY_DIVISOR: u64 = 8;
/// One in so many tokens of a window is left free where a reply gets all that the prompt leaves.
const SLACK_DIVISOR: u64 = 32;

/// What servers said of their models' windows in this run, when a prompt was too long; by the models' names.
#[derive(Debug, Default)]
pub(super) struct LearnedWindows(Mutex<HashMap<String, u64>>);

impl RunState {
    /// How many tokens a model's prompt and reply may have together, where nobody has met its end yet: as the job says, else
    /// as the table of prices does.
    pub(super) fn window(&self, model: &Model) -> Option<u64> {
        model.context.or_else(|| self.prices.context_window(model.price_key()))
    }

    /// How many tokens a model's prompt may have, where that is less than its window. What the job says of the window is the
    /// whole of it.
    pub(super) fn prompt_limit(&self, model: &Model) -> Option<u64> {
        if model.context.is_some() { None } else { self.prices.prompt_limit(model.price_key()) }
    }

    /// The same as far as its server said it in this run.
    pub(super) fn learned_window(&self, model: &Model) -> Option<u64> {
        lock(&self.learned_windows.0).get(&model.to_string()).copied()
    }

    /// Takes note of what a server said.
    pub(super) fn record_window(&self, model: &Model, window: u64) {
        let mut windows = lock(&self.learned_windows.0);
        let known = windows.entry(model.to_string()).or_insert(window);
        *known = window.min(*known);
    }
}

impl Agent<'_> {
    /// How many tokens prompt and reply may have together, where that is known.
    pub(super) fn window(&mut self) -> Option<u64> {
        let model = &self.planned.model;
        let known = *self.window.get_or_insert_with(|| self.tree.window(model));
        let said = self.tree.learned_window(model);
        known.into_iter().chain(said).min()
    }

    /// Takes note of the window that a server named when the prompt was too long; whether that is news. What is more than the
    /// prompt and the reply could have taken is no reason for it.
    pub(super) fn learn_window(&mut self, window: Option<u64>, max_tokens: u32) -> bool {
        let densest = self.max_prompt_estimate().max(self.conversation.prompt_bytes() as u64 / 2);
        let most = densest.saturating_add(u64::from(max_tokens));
        let known = self.window();
        let Some(said) = window.filter(|said| *said <= most && known.is_none_or(|known| *said < known)) else {
            return false;
        };
        self.tree.record_window(&self.planned.model, said);
        true
    }

    /// How many of `max_tokens` the window leaves for the next reply.
    pub(super) fn cap_to_window(&mut self, max_tokens: u32) -> u32 {
        // Where a record is replayed, it says what was asked for.
        let window = if self.tree.replay_driver.is_some() { None } else { self.window() };
        let Some(window) = window else { return max_tokens };
        let left = window.saturating_sub(self.max_prompt_estimate());
        if left >= u64::from(max_tokens) {
            return max_tokens;
        }
        // What goes around the messages isn't in anybody's count.
        let left = left.saturating_sub(window / SLACK_DIVISOR).max(window / MIN_REPLY_DIVISOR).max(1);
        max_tokens.min(u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Whether the window leaves anything worth the name for a reply to so long a prompt.
    pub(super) fn leaves_room_for_reply(&mut self, tokens: u64) -> bool {
        tokens <= self.prompt_limit()
            && self.window().is_some_and(|window| tokens.saturating_add(window / MIN_REPLY_DIVISOR) <= window)
    }

    /// The most tokens of a prompt, whatever the window is.
    pub(super) fn prompt_limit(&mut self) -> u64 {
        *self.prompt_limit.get_or_insert_with(|| self.tree.prompt_limit(&self.planned.model).unwrap_or(u64::MAX))
    }
}

/// A reply that was cut where the window ends: it was asked for no longer than that.
pub(super) fn mark_window_cut(reply: &mut Reply) {
    if reply.stop == StopReason::MaxTokens {
        reply.stop = StopReason::ContextFull;
    }
}
