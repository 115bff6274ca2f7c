//! How much of the model's window a prompt and a reply may take.

use super::agent_state::Agent;

/// A reply gets at least the window divided by this, in tokens.
const MIN_REPLY_DIVISOR: u64 = 8;
/// The window divided by this is left free where a reply gets everything that the prompt leaves.
const SLACK_DIVISOR: u64 = 32;

impl Agent<'_> {
    /// How many tokens the prompt and the reply may have together, if that is known.
    pub(super) fn window(&self) -> Option<u64> {
        self.context.known_window.into_iter().chain(self.run.reported_window(self.model)).min()
    }

    /// Takes the window that a server reported when a prompt was too long. Returns whether it wasn't known. A window that
    /// is larger than the prompt and the reply together isn't believed.
    pub(super) fn learn_window(&self, reported: Option<u64>, max_tokens: u32) -> bool {
        let prompt = self.context.high_tokens().max(self.context.bytes() as u64 / 2);
        let most = prompt.saturating_add(u64::from(max_tokens));
        let known = self.window();
        let is_new = |window: &u64| *window <= most && known.is_none_or(|known| *window < known);
        let Some(window) = reported.filter(is_new) else { return false };
        self.run.record_window(self.model, window);
        true
    }

    /// How many of `max_tokens` the window leaves for the next reply.
    pub(super) fn cap_to_window(&self, max_tokens: u32) -> u32 {
        let Some(window) = self.window() else { return max_tokens };
        let left = window.saturating_sub(self.context.high_tokens());
        if left >= u64::from(max_tokens) {
            return max_tokens;
        }
        // Servers add tokens around the messages that no estimate has.
        let left = left.saturating_sub(window / SLACK_DIVISOR).max(window / MIN_REPLY_DIVISOR).max(1);
        max_tokens.min(u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Whether a prompt of this size leaves room for a useful reply.
    pub(super) fn leaves_room_for_reply(&self, tokens: u64) -> bool {
        tokens <= self.context.prompt_limit
            && self.window().is_some_and(|window| tokens.saturating_add(window / MIN_REPLY_DIVISOR) <= window)
    }
}
