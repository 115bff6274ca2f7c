//! How many tokens a prompt or a reply takes, estimated from its bytes and from the provider's last count.

/// Tokens of a prompt are estimated at this many bytes each.
const BYTES_PER_TOKEN: u64 = 3;
/// Tokens of a reply are estimated at this many bytes each.
const BYTES_PER_REPLY_TOKEN: usize = 4;
/// No tokenizer needs less than one token for this many bytes of a long text. Prose has four to five.
pub(crate) const MAX_BYTES_PER_TOKEN: u64 = 6;

/// Estimates the tokens of a prompt from its size.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TokenEstimator {
    /// The tokens that the provider counted last, and the size of the prompt in bytes at that time.
    counted: Option<(u64, usize)>,
}

impl TokenEstimator {
    /// Takes a count of the provider for a prompt of this size. A count of 0 means that it doesn't count.
    pub(crate) fn set(&mut self, tokens: u64, bytes: usize) {
        self.counted = Some((tokens, bytes));
    }

    /// Whether the provider has answered a request yet.
    pub(crate) fn has_count(&self) -> bool {
        self.counted.is_some()
    }

    /// The probable number of tokens.
    pub(crate) fn likely(&self, bytes: usize) -> u64 {
        let (tokens, new) = self.split(bytes);
        tokens.saturating_add(new / BYTES_PER_TOKEN)
    }

    /// A high estimate, for what must fit the window: new text counts as dense in tokens, and a count that leaves out
    /// cached tokens isn't believed.
    pub(crate) fn high(&self, bytes: usize) -> u64 {
        let (tokens, new) = self.split(bytes);
        tokens.saturating_add(new * 2 / 5).max(bytes as u64 / 8)
    }

    /// The smallest possible number of tokens.
    pub(crate) fn low(bytes: usize) -> u64 {
        bytes as u64 / MAX_BYTES_PER_TOKEN
    }

    fn split(&self, bytes: usize) -> (u64, u64) {
        let (tokens, before) = self.counted.filter(|(tokens, _)| *tokens > 0).unwrap_or_default();
        (tokens, bytes.saturating_sub(before) as u64)
    }
}

/// The size of a text that is estimated at this many tokens.
pub(crate) fn text_bytes(tokens: u64) -> usize {
    usize::try_from(tokens.saturating_mul(BYTES_PER_TOKEN)).unwrap_or(usize::MAX)
}

/// The probable number of tokens of a reply.
pub(crate) fn reply_tokens(bytes: usize) -> u64 {
    (bytes / BYTES_PER_REPLY_TOKEN) as u64
}
