//! Secrets out of text, once, whole or as a stream.
//!
//! A secret is found as it is, line by line where it has lines, and in the forms in which programs pass things on:
//! base64 in its three shifts (RFC 4648, both alphabets), hexadecimal, URL percent codes and JSON string escapes.

mod forms;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};

/// The shortest secret that is masked, in characters: shorter ones would tear holes into innocent text.
pub const SHORTEST: usize = 8;

/// How every mask begins; tools refuse to write it into files.
pub const OPENING: &str = "[masked:";

/// Knows the secrets of a run. Cheap to clone; without secrets it costs nothing.
#[derive(Clone, Default)]
pub struct Mask {
    patterns: Option<Arc<Patterns>>,
}

struct Patterns {
    automaton: NFA,
    /// By pattern: what stands in its place.
    labels: Vec<Arc<str>>,
    /// Length in bytes of the longest pattern.
    longest: usize,
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mask({} forms)", self.patterns.as_ref().map_or(0, |patterns| patterns.labels.len()))
    }
}

impl Mask {
    /// Takes names and values, and gives back the names of values that are too short to be masked (below
    /// [`SHORTEST`]). Empty values hide nothing and are passed over.
    pub fn new(secrets: &[(String, String)]) -> (Self, Vec<String>) {
        let mut short = Vec::new();
        let mut found = Vec::new();
        let mut labels: Vec<Arc<str>> = Vec::new();
        for (name, value) in secrets {
            if value.trim().is_empty() {
                continue;
            }
            if value.trim().chars().count() < SHORTEST {
                short.push(name.clone());
                continue;
            }
            let label: Arc<str> = format!("{OPENING}{name}]").into();
            for form in forms::of(value) {
                found.push(form);
                labels.push(Arc::clone(&label));
            }
        }
        if found.is_empty() {
            return (Self::default(), short);
        }
        let longest = found.iter().map(Vec::len).max().unwrap_or(1);
        let automaton = NFA::builder().match_kind(MatchKind::Standard).build(&found);
        // A build fails only where the patterns exceed 2 GiB of states, which no environment can hold.
        let patterns = automaton.ok().map(|automaton| Arc::new(Patterns { automaton, labels, longest }));
        (Self { patterns }, short)
    }

    /// Whether there is nothing to mask.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_none()
    }

    /// Length in bytes of the longest form of a secret; 0 without secrets. Text that is to be cut must be masked with as
    /// much beyond the cut.
    pub fn reach(&self) -> usize {
        self.patterns.as_ref().map_or(0, |patterns| patterns.longest)
    }

    /// The text with `[masked:NAME]` in place of every secret.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(patterns) = &self.patterns else { return Cow::Borrowed(text) };
        if !patterns.occur_in(text.as_bytes()) {
            return Cow::Borrowed(text);
        }
        let mut stream = self.stream();
        let mut masked = stream.feed(text.as_bytes()).into_owned();
        masked.extend(stream.finish());
        Cow::Owned(String::from_utf8(masked).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into()))
    }

    /// Masks text that comes in pieces.
    pub fn stream(&self) -> MaskStream {
        MaskStream {
            state: self.patterns.as_ref().map_or(StateID::ZERO, |patterns| patterns.start()),
            patterns: self.patterns.clone(),
            held: Vec::new(),
            offset: 0,
            hits: VecDeque::new(),
        }
    }
}

impl Patterns {
    fn start(&self) -> StateID {
        // An unanchored start exists for every automaton that the builder makes.
        self.automaton.start_state(Anchored::No).unwrap_or(StateID::ZERO)
    }

    fn occur_in(&self, bytes: &[u8]) -> bool {
        let mut state = self.start();
        bytes.iter().any(|byte| {
            state = self.automaton.next_state(Anchored::No, state, *byte);
            self.automaton.is_match(state)
        })
    }
}

/// Masks a stream of bytes. Holds back as many bytes as the longest form of a secret has, so that a secret that is
/// split over pieces never leaks; it never holds more.
pub struct MaskStream {
    patterns: Option<Arc<Patterns>>,
    state: StateID,
    /// What came in and was not given out; begins at `offset`.
    held: Vec<u8>,
    offset: u64,
    /// Hidden ranges that reach beyond `offset`, disjoint and in order.
    hits: VecDeque<Hit>,
}

struct Hit {
    start: u64,
    end: u64,
    pattern: usize,
    /// Its label was given out already.
    told: bool,
}

impl MaskStream {
    /// Takes a piece and gives out what is certain.
    pub fn feed<'a>(&mut self, piece: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(patterns) = self.patterns.clone() else { return Cow::Borrowed(piece) };
        let mut at = self.offset + self.held.len() as u64;
        for byte in piece {
            at += 1;
            self.state = patterns.automaton.next_state(Anchored::No, self.state, *byte);
            if patterns.automaton.is_match(self.state) {
                for index in 0..patterns.automaton.match_len(self.state) {
                    let pattern = patterns.automaton.match_pattern(self.state, index);
                    self.hide(at - patterns.automaton.pattern_len(pattern) as u64, at, pattern.as_usize());
                }
            }
        }
        self.held.extend_from_slice(piece);
        Cow::Owned(self.release(&patterns, at.saturating_sub(patterns.longest as u64 - 1)))
    }

    /// Gives out the rest.
    pub fn finish(&mut self) -> Vec<u8> {
        let Some(patterns) = self.patterns.clone() else { return Vec::new() };
        self.state = patterns.start();
        self.release(&patterns, self.offset + self.held.len() as u64)
    }

    /// Adds a range whose end is not before that of any other; overlapping ranges become one.
    fn hide(&mut self, start: u64, end: u64, pattern: usize) {
        let mut hit = Hit { start, end, pattern, told: false };
        while let Some(last) = self.hits.back() {
            if last.end <= hit.start {
                break;
            }
            if last.start < hit.start || last.told {
                hit = Hit { start: last.start, end: hit.end, pattern: last.pattern, told: last.told };
            }
            self.hits.pop_back();
        }
        self.hits.push_back(hit);
    }

    /// Gives out what lies before `limit`. No later hit can begin there.
    fn release(&mut self, patterns: &Patterns, limit: u64) -> Vec<u8> {
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
                out.extend_from_slice(patterns.labels[hit.pattern].as_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(secrets: &[(&str, &str)]) -> Mask {
        let secrets: Vec<_> = secrets.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Mask::new(&secrets).0
    }

    fn in_pieces(mask: &Mask, text: &str, size: usize) -> String {
        let mut stream = mask.stream();
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            out.extend_from_slice(&stream.feed(piece));
        }
        out.extend(stream.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn finds_a_secret_as_it_is_and_leaves_other_text_alone() {
        let mask = mask(&[("TOKEN", "hunter2-hunter2")]);
        assert_eq!(mask.text("a hunter2-hunter2 b"), "a [masked:TOKEN] b");
        assert!(matches!(mask.text("hunter2"), Cow::Borrowed("hunter2")));
    }

    #[test]
    fn short_secrets_are_named_and_empty_ones_ignored() {
        let secrets = [("A".to_owned(), "short".to_owned()), ("B".to_owned(), String::new())];
        let (mask, short) = Mask::new(&secrets);
        assert_eq!(short, ["A"]);
        assert!(mask.is_empty());
        assert_eq!(mask.text("short"), "short");
    }

    #[test]
    fn a_secret_split_over_pieces_never_leaks() {
        let mask = mask(&[("TOKEN", "hunter2-hunter2"), ("OTHER", "2-hunter2 and more")]);
        let text = "x hunter2-hunter2 y hunter2-hunter2hunter2-hunter2 z hunter2-hunter2 and more ä hunter2-hunter";
        let whole = mask.text(text).into_owned();
        assert_eq!(whole, "x [masked:TOKEN] y [masked:TOKEN][masked:TOKEN] z [masked:TOKEN] ä hunter2-hunter");
        for size in 1..40 {
            assert_eq!(in_pieces(&mask, text, size), whole, "pieces of {size}");
        }
    }

    #[test]
    fn a_run_of_overlapping_secrets_is_one_mask_and_stays_small() {
        let mask = mask(&[("A", "aaaaaaaaaa")]);
        let mut stream = mask.stream();
        let mut out = Vec::new();
        for _ in 0..1000 {
            out.extend_from_slice(&stream.feed(&[b'a'; 1000]));
            assert!(stream.held.len() < 100);
        }
        out.extend(stream.finish());
        assert_eq!(String::from_utf8(out).unwrap(), "[masked:A]");
    }

    #[test]
    fn an_empty_mask_hands_the_bytes_through() {
        let mask = Mask::default();
        assert!(matches!(mask.stream().feed(b"abc"), Cow::Borrowed(b"abc")));
        assert!(mask.stream().finish().is_empty());
    }
}
