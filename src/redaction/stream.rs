//! Text that comes in pieces.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use super::Redactor;
use super::matcher::{MatchState, SecretMatcher};

/// Masks a stream of bytes. Holds back as many bytes as the longest form of a secret has, so that a secret that is
/// split over pieces never leaks; it never holds many more.
pub struct StreamRedactor {
    matcher: Option<(Arc<SecretMatcher>, MatchState)>,
    /// What came in and was not given out; begins at `offset`.
    buffered: Vec<u8>,
    offset: u64,
    /// Hidden ranges that reach beyond `offset`, disjoint and in order.
    ranges: VecDeque<RedactedRange>,
}

struct RedactedRange {
    start: u64,
    end: u64,
    label: Arc<str>,
    /// Its label was given out already.
    marker_emitted: bool,
}

impl StreamRedactor {
    pub(super) fn new(forms: Option<Arc<SecretMatcher>>) -> Self {
        let masked = forms.map(|forms| {
            let scan = MatchState::new(&forms);
            (forms, scan)
        });
        Self { matcher: masked, buffered: Vec::new(), offset: 0, ranges: VecDeque::new() }
    }

    /// Takes a piece and gives out what is certain.
    pub fn feed<'a>(&mut self, piece: &'a [u8]) -> Cow<'a, [u8]> {
        let Some((forms, scan)) = &mut self.matcher else { return Cow::Borrowed(piece) };
        let hits = &mut self.ranges;
        for byte in piece {
            scan.step(forms, *byte, |start, end, label| add_range(hits, start, end, label));
        }
        self.buffered.extend_from_slice(piece);
        let certain = scan.safe_until(forms);
        Cow::Owned(self.release_until(certain))
    }

    /// Gives out the rest. What is fed afterwards begins anew.
    pub fn finish(&mut self) -> Vec<u8> {
        let rest = self.release_until(self.offset + self.buffered.len() as u64);
        *self = Self::new(self.matcher.take().map(|(forms, _)| forms));
        rest
    }

    #[cfg(test)]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.buffered.len()
    }

    /// Gives out what lies before `limit`. No later hit can begin there.
    fn release_until(&mut self, limit: u64) -> Vec<u8> {
        if limit <= self.offset {
            return Vec::new();
        }
        let place = |at: u64| usize::try_from(at.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let mut out = Vec::with_capacity(place(limit));
        let mut at = self.offset;
        while let Some(hit) = self.ranges.front_mut() {
            if hit.start >= limit {
                break;
            }
            out.extend_from_slice(&self.buffered[place(at)..place(hit.start.max(at))]);
            if !hit.marker_emitted {
                out.extend_from_slice(hit.label.as_bytes());
            }
            if hit.end > limit {
                hit.marker_emitted = true;
                at = limit;
                break;
            }
            at = hit.end;
            self.ranges.pop_front();
        }
        out.extend_from_slice(&self.buffered[place(at)..place(limit)]);
        self.buffered.drain(..place(limit));
        self.offset = limit;
        out
    }
}

/// Adds a range whose end is not before that of any other; overlapping ranges become one.
fn add_range(hits: &mut VecDeque<RedactedRange>, start: u64, end: u64, label: &Arc<str>) {
    let mut hit = RedactedRange { start, end, label: Arc::clone(label), marker_emitted: false };
    while let Some(last) = hits.pop_back_if(|last| last.end > hit.start) {
        if last.start < hit.start || last.marker_emitted {
            hit = RedactedRange { end: hit.end, ..last };
        }
    }
    hits.push_back(hit);
}

/// The same for text: every piece that it gives out is text, too.
pub struct TextRedactor {
    stream: StreamRedactor,
    /// The beginning of a character whose end was held back.
    partial_char: Vec<u8>,
}

impl TextRedactor {
    /// Begins with nothing.
    pub fn new(mask: &Redactor) -> Self {
        Self { stream: mask.stream(), partial_char: Vec::new() }
    }

    /// Takes a piece and gives out what is certain.
    pub fn feed<'a>(&mut self, piece: &'a str) -> Cow<'a, str> {
        match self.stream.feed(piece.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(piece),
            Cow::Owned(bytes) => Cow::Owned(self.take_complete_chars(&bytes)),
        }
    }

    /// Gives out the rest.
    pub fn finish(&mut self) -> String {
        let rest = self.stream.finish();
        self.take_complete_chars(&rest)
    }

    fn take_complete_chars(&mut self, bytes: &[u8]) -> String {
        self.partial_char.extend_from_slice(bytes);
        let end = match std::str::from_utf8(&self.partial_char) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.partial_char.len(),
        };
        let rest = self.partial_char.split_off(end);
        String::from_utf8_lossy(&std::mem::replace(&mut self.partial_char, rest)).into_owned()
    }
}
