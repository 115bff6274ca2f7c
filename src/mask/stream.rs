//! Text that comes in pieces.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use super::Mask;
use super::scan::{Forms, Scan};

/// Masks a stream of bytes. Holds back as many bytes as the longest form of a secret has, so that a secret that is
/// split over pieces never leaks; it never holds many more.
pub struct MaskStream {
    masked: Option<(Arc<Forms>, Scan)>,
    /// What came in and was not given out; begins at `offset`.
    held: Vec<u8>,
    offset: u64,
    /// Hidden ranges that reach beyond `offset`, disjoint and in order.
    hits: VecDeque<Hit>,
}

struct Hit {
    start: u64,
    end: u64,
    label: Arc<str>,
    /// Its label was given out already.
    told: bool,
}

impl MaskStream {
    pub(super) fn new(forms: Option<Arc<Forms>>) -> Self {
        let masked = forms.map(|forms| {
            let scan = Scan::new(&forms);
            (forms, scan)
        });
        Self { masked, held: Vec::new(), offset: 0, hits: VecDeque::new() }
    }

    /// Takes a piece and gives out what is certain.
    pub fn feed<'a>(&mut self, piece: &'a [u8]) -> Cow<'a, [u8]> {
        let Some((forms, scan)) = &mut self.masked else { return Cow::Borrowed(piece) };
        let hits = &mut self.hits;
        for byte in piece {
            scan.step(forms, *byte, |start, end, label| hide(hits, start, end, label));
        }
        self.held.extend_from_slice(piece);
        let certain = scan.certain(forms);
        Cow::Owned(self.release(certain))
    }

    /// Gives out the rest. What is fed afterwards begins anew.
    pub fn finish(&mut self) -> Vec<u8> {
        let rest = self.release(self.offset + self.held.len() as u64);
        *self = Self::new(self.masked.take().map(|(forms, _)| forms));
        rest
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Gives out what lies before `limit`. No later hit can begin there.
    fn release(&mut self, limit: u64) -> Vec<u8> {
        if limit <= self.offset {
            return Vec::new();
        }
        let place = |at: u64| usize::try_from(at.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let mut out = Vec::with_capacity(place(limit));
        let mut at = self.offset;
        while let Some(hit) = self.hits.front_mut() {
            if hit.start >= limit {
                break;
            }
            out.extend_from_slice(&self.held[place(at)..place(hit.start.max(at))]);
            if !hit.told {
                out.extend_from_slice(hit.label.as_bytes());
            }
            if hit.end > limit {
                hit.told = true;
                at = limit;
                break;
            }
            at = hit.end;
            self.hits.pop_front();
        }
        out.extend_from_slice(&self.held[place(at)..place(limit)]);
        self.held.drain(..place(limit));
        self.offset = limit;
        out
    }
}

/// Adds a range whose end is not before that of any other; overlapping ranges become one.
fn hide(hits: &mut VecDeque<Hit>, start: u64, end: u64, label: &Arc<str>) {
    let mut hit = Hit { start, end, label: Arc::clone(label), told: false };
    while let Some(last) = hits.pop_back_if(|last| last.end > hit.start) {
        if last.start < hit.start || last.told {
            hit = Hit { end: hit.end, ..last };
        }
    }
    hits.push_back(hit);
}

/// The same for text: every piece that it gives out is text, too.
pub struct MaskedText {
    stream: MaskStream,
    /// The beginning of a character whose end was held back.
    torn: Vec<u8>,
}

impl MaskedText {
    /// Begins with nothing.
    pub fn new(mask: &Mask) -> Self {
        Self { stream: mask.stream(), torn: Vec::new() }
    }

    /// Takes a piece and gives out what is certain.
    pub fn feed<'a>(&mut self, piece: &'a str) -> Cow<'a, str> {
        match self.stream.feed(piece.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(piece),
            Cow::Owned(bytes) => Cow::Owned(self.whole(&bytes)),
        }
    }

    /// Gives out the rest.
    pub fn finish(&mut self) -> String {
        let rest = self.stream.finish();
        self.whole(&rest)
    }

    fn whole(&mut self, bytes: &[u8]) -> String {
        self.torn.extend_from_slice(bytes);
        let end = match std::str::from_utf8(&self.torn) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.torn.len(),
        };
        let rest = self.torn.split_off(end);
        String::from_utf8_lossy(&std::mem::replace(&mut self.torn, rest)).into_owned()
    }
}
