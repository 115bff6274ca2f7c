//! Redaction of text that comes in pieces.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use super::matcher::{MatchState, SecretMatcher};
use super::shared_secrets::SharedSecrets;

/// Redacts a stream of bytes. Holds back about as many bytes as the longest form of a secret has, so that a secret that is
/// split across pieces never leaks.
pub struct StreamRedactor {
    source: SharedSecrets,
    matcher: Option<(Arc<SecretMatcher>, MatchState)>,
    /// Input that wasn't returned yet; begins at `offset`.
    buffered: Vec<u8>,
    offset: u64,
    /// Ranges to redact that end after `offset`, disjoint and in order.
    ranges: VecDeque<RedactedRange>,
}

struct RedactedRange {
    start: u64,
    end: u64,
    label: Arc<str>,
    /// The marker was already returned.
    marker_emitted: bool,
}

impl StreamRedactor {
    pub(super) fn new(source: SharedSecrets) -> Self {
        let matcher = source.matcher().map(|matcher| {
            let state = MatchState::new(&matcher);
            (matcher, state)
        });
        Self { source, matcher, buffered: Vec::new(), offset: 0, ranges: VecDeque::new() }
    }

    /// Uses the current secrets, if some were added. What is held back is searched again.
    fn follow_source(&mut self) {
        let current = self.source.matcher();
        let is_same = match (&current, &self.matcher) {
            (Some(current), Some((known, _))) => Arc::ptr_eq(current, known),
            (current, known) => current.is_none() && known.is_none(),
        };
        if is_same {
            return;
        }
        let mut pending = std::mem::take(&mut self.buffered);
        // The rest of a secret whose marker was returned.
        if let Some(range) = self.ranges.front().filter(|range| range.marker_emitted) {
            let rest = usize::try_from(range.end.saturating_sub(self.offset)).unwrap_or(usize::MAX);
            pending.drain(..rest.min(pending.len()));
        }
        *self = Self::new(self.source.clone());
        self.buffer(&pending);
    }

    fn buffer(&mut self, piece: &[u8]) {
        if let Some((matcher, state)) = &mut self.matcher {
            state.search(matcher, piece, |start, end, label| {
                add_range(&mut self.ranges, start, end, label);
                true
            });
        }
        self.buffered.extend_from_slice(piece);
    }

    /// Takes a piece and returns what can't be part of a secret any more.
    pub fn feed<'a>(&mut self, piece: &'a [u8]) -> Cow<'a, [u8]> {
        self.follow_source();
        if self.matcher.is_none() {
            return Cow::Borrowed(piece);
        }
        self.buffer(piece);
        let limit = self.matcher.as_ref().map_or(self.offset, |(matcher, state)| state.safe_until(matcher));
        Cow::Owned(self.release_until(limit))
    }

    /// Returns the rest and resets the stream.
    pub fn finish(&mut self) -> Vec<u8> {
        self.follow_source();
        let rest = self.release_until(self.offset + self.buffered.len() as u64);
        *self = Self::new(self.source.clone());
        rest
    }

    #[cfg(test)]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.buffered.len()
    }

    /// Returns everything before `limit`, where no later match can begin.
    fn release_until(&mut self, limit: u64) -> Vec<u8> {
        if limit <= self.offset {
            return Vec::new();
        }
        let index = |at: u64| usize::try_from(at.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let mut out = Vec::with_capacity(index(limit));
        let mut at = self.offset;
        while let Some(range) = self.ranges.front_mut() {
            if range.start >= limit {
                break;
            }
            out.extend_from_slice(&self.buffered[index(at)..index(range.start.max(at))]);
            if !range.marker_emitted {
                out.extend_from_slice(range.label.as_bytes());
            }
            if range.end > limit {
                range.marker_emitted = true;
                at = limit;
                break;
            }
            at = range.end;
            self.ranges.pop_front();
        }
        out.extend_from_slice(&self.buffered[index(at)..index(limit)]);
        self.buffered.drain(..index(limit));
        self.offset = limit;
        out
    }
}

/// Adds a range that ends after all others; overlapping ranges are merged.
fn add_range(ranges: &mut VecDeque<RedactedRange>, start: u64, end: u64, label: &Arc<str>) {
    let mut range = RedactedRange { start, end, label: Arc::clone(label), marker_emitted: false };
    while let Some(last) = ranges.pop_back_if(|last| last.end > range.start) {
        if last.start < range.start || last.marker_emitted {
            range = RedactedRange { end: range.end, ..last };
        }
    }
    ranges.push_back(range);
}
