//! What a request has used, where nobody says.

use crate::message::Usage;

/// A guess at a request's tokens: of the prompt three bytes a token, as the loop itself estimates what is new; of the
/// reply four, as the other providers count what was heard of a reply that was cut off.
#[derive(Debug, Clone, Copy)]
pub(in crate::providers) struct UsageEstimate {
    prompt_bytes: usize,
    output_bytes: usize,
}

impl UsageEstimate {
    /// Of a prompt of so many bytes, and nothing of the reply.
    pub(in crate::providers) fn new(prompt_bytes: usize) -> Self {
        Self { prompt_bytes, output_bytes: 0 }
    }

    /// Counts so many bytes of the reply.
    pub(in crate::providers) fn add_output(&mut self, bytes: usize) {
        self.output_bytes += bytes;
    }

    /// What the server counted. Where it didn't, the estimate; nothing as long as there is no sign that the prompt was
    /// looked at. A reply that has no end yet, or that was counted as nothing, counts at least what was heard.
    pub(in crate::providers) fn usage(self, counted: Option<Usage>, has_ended: bool) -> Usage {
        let heard = (self.output_bytes / 4) as u64;
        match counted {
            // Some count a reply before it begins, and never again.
            Some(counted) if has_ended && counted.output_tokens > 0 => counted,
            Some(counted) => Usage { output_tokens: counted.output_tokens.max(heard), ..counted },
            None if has_ended || self.output_bytes > 0 => {
                Usage { input_tokens: (self.prompt_bytes / 3) as u64, output_tokens: heard.max(1), ..Usage::default() }
            }
            None => Usage::default(),
        }
    }
}
