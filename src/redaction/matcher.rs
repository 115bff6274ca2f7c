//! Finds secrets in all their encodings. Text in which no secret can begin is skipped quickly; the rest is searched byte by byte.

use std::collections::VecDeque;
use std::sync::Arc;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};

use super::encodings;

/// The most consecutive blanks and line breaks in an encoded secret, in bytes.
const MAX_GAP_BYTES: u32 = 64;

/// Patterns for all encodings of all secrets.
pub(super) struct SecretMatcher {
    /// Matched exactly.
    exact: PatternSet,
    /// Matched with line breaks in between: base64 and hexadecimal.
    wrapped: PatternSet,
    starts: PatternStarts,
}

/// Byte strings, each with the marker that replaces it.
struct PatternSet {
    automaton: NFA,
    labels: Vec<Arc<str>>,
    /// The length of the longest, in bytes.
    max_len: usize,
    start: StateID,
}

/// The pairs of bytes with which a match can begin, one bit for each pair: the bit of the first byte plus 256 times the second.
struct PatternStarts(Box<[u64; 1 << 10]>);

impl PatternStarts {
    fn new<'a>(exact: impl Iterator<Item = &'a [u8]>, wrapped: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut starts = Self(Box::new([0; 1 << 10]));
        for pattern in exact {
            starts.add(pattern);
        }
        for pattern in wrapped {
            starts.add(pattern);
            // The first line can end after one byte.
            pattern
                .first()
                .into_iter()
                .for_each(|first| [b'\n', b'\r'].into_iter().for_each(|next| starts.set(*first, next)));
        }
        starts
    }

    fn add(&mut self, pattern: &[u8]) {
        match pattern {
            [first, second, ..] => self.set(*first, *second),
            [first] => (0..=u8::MAX).for_each(|next| self.set(*first, next)),
            [] => {}
        }
    }

    fn set(&mut self, first: u8, second: u8) {
        let pair = u16::from_le_bytes([first, second]);
        self.0[usize::from(pair >> 6)] |= 1 << (pair & 63);
    }

    /// 1 if a match can begin with these two bytes. The other bits have no meaning.
    fn bit(&self, first: u8, second: u8) -> u64 {
        let pair = u16::from_le_bytes([first, second]);
        self.0[usize::from(pair >> 6)] >> (pair & 63)
    }

    /// How many bytes at the beginning can be skipped, as no match begins in them. The last byte can always be the first of a
    /// match.
    fn skippable(&self, bytes: &[u8]) -> usize {
        const STEP: usize = 8;
        let mut at = 0;
        // Many pairs at once, without a branch for each.
        while let Some(block) = bytes.get(at..=at + STEP) {
            let found = (0..STEP).fold(0, |found, place| found | self.bit(block[place], block[place + 1]));
            if found & 1 == 1 {
                break;
            }
            at += STEP;
        }
        let mut rest = bytes[at..].iter().zip(&bytes[(at + 1).min(bytes.len())..]);
        let found = rest.position(|(first, second)| self.bit(*first, *second) & 1 == 1);
        found.map_or(bytes.len().saturating_sub(1), |more| at + more)
    }
}

impl SecretMatcher {
    /// Takes the marker and the value of each secret; `None` if there are no secrets.
    pub(super) fn new<'a>(secrets: impl Iterator<Item = (Arc<str>, &'a str)>) -> Option<Self> {
        let (mut exact, mut wrapped) = (Vec::new(), Vec::new());
        for (label, value) in secrets {
            let forms = encodings::encoded_forms(value);
            exact.extend(forms.exact.into_iter().map(|form| (form, Arc::clone(&label))));
            wrapped.extend(forms.wrapped.into_iter().map(|form| (form, Arc::clone(&label))));
        }
        let starts = PatternStarts::new(
            exact.iter().map(|(form, _)| form.as_slice()),
            wrapped.iter().map(|(form, _)| form.as_slice()),
        );
        Some(Self { exact: PatternSet::new(exact)?, wrapped: PatternSet::new(wrapped)?, starts })
    }

    pub(super) fn max_match_bytes(&self) -> usize {
        self.exact.max_len.max(self.wrapped.max_len)
    }
}

impl PatternSet {
    fn new(forms: Vec<(Vec<u8>, Arc<str>)>) -> Option<Self> {
        let max_len = forms.iter().map(|(form, _)| form.len()).max()?;
        let (forms, labels): (Vec<_>, Vec<_>) = forms.into_iter().unzip();
        // Fails only for patterns with more than 2 GiB of states, which don't fit into an environment.
        let automaton = NFA::builder().match_kind(MatchKind::Standard).build(&forms).ok()?;
        // The builder always creates an unanchored start state.
        let start = automaton.start_state(Anchored::No).ok()?;
        Some(Self { automaton, labels, max_len, start })
    }

    /// Consumes a byte, and reports length and label of each pattern that ends with it.
    fn step(&self, state: &mut StateID, byte: u8, mut found: impl FnMut(usize, &Arc<str>)) {
        *state = self.automaton.next_state(Anchored::No, *state, byte);
        // A special state is a match, or the start.
        if self.automaton.is_special(*state) && self.automaton.is_match(*state) {
            for index in 0..self.automaton.match_len(*state) {
                let form = self.automaton.match_pattern(*state, index);
                found(self.automaton.pattern_len(form), &self.labels[form.as_usize()]);
            }
        }
    }
}

/// The state of a search through a stream of bytes.
pub(super) struct MatchState {
    /// The position of the next byte.
    at: u64,
    exact: StateID,
    wrapped: StateID,
    /// Where the oldest unfinished match with line breaks can begin.
    wrapped_since: u64,
    /// Start and end of the gaps since `wrapped_since`, within the length of the longest pattern.
    gaps: VecDeque<(u64, u64)>,
    /// Line feeds, and bytes in all, of the gap before the next byte.
    line_feeds: u32,
    gap: u32,
}

impl MatchState {
    pub(super) fn new(matcher: &SecretMatcher) -> Self {
        Self {
            at: 0,
            exact: matcher.exact.start,
            wrapped: matcher.wrapped.start,
            wrapped_since: 0,
            gaps: VecDeque::new(),
            line_feeds: 0,
            gap: 0,
        }
    }

    /// Whether any pattern occurs in these bytes.
    pub(super) fn contains_secret(matcher: &SecretMatcher, bytes: &[u8]) -> bool {
        let mut any = false;
        Self::new(matcher).search(matcher, bytes, |_, _, _| {
            any = true;
            false
        });
        any
    }

    /// Consumes bytes, and reports start, end and label of each pattern that ends in them, until `found` returns false.
    pub(super) fn search(
        &mut self,
        matcher: &SecretMatcher,
        mut bytes: &[u8],
        mut found: impl FnMut(u64, u64, &Arc<str>) -> bool,
    ) {
        let mut goes_on = true;
        while goes_on && !bytes.is_empty() {
            if self.exact == matcher.exact.start && self.wrapped == matcher.wrapped.start {
                let skipped = matcher.starts.skippable(bytes);
                self.at += skipped as u64;
                self.reset_wrapped();
                bytes = &bytes[skipped..];
            }
            let Some((byte, rest)) = bytes.split_first() else { break };
            bytes = rest;
            self.step(matcher, *byte, |start, end, label| goes_on &= found(start, end, label));
        }
    }

    fn step(&mut self, matcher: &SecretMatcher, byte: u8, mut found: impl FnMut(u64, u64, &Arc<str>)) {
        let position = self.at;
        self.at += 1;
        let end = self.at;
        matcher.exact.step(&mut self.exact, byte, |length, label| found(end - length as u64, end, label));
        let is_gap = matches!(byte, b'\n' | b'\r') || (self.gap > 0 && matches!(byte, b' ' | b'\t'));
        if is_gap {
            self.gap += 1;
            self.line_feeds += u32::from(byte == b'\n');
            // Encoded text has no empty lines.
            if self.line_feeds > 1 || self.gap > MAX_GAP_BYTES {
                self.wrapped = matcher.wrapped.start;
                self.reset_wrapped();
            }
            return;
        }
        if self.gap > 0 {
            self.gaps.push_back((position - u64::from(self.gap), position));
        }
        (self.line_feeds, self.gap) = (0, 0);
        let gaps = &self.gaps;
        matcher
            .wrapped
            .step(&mut self.wrapped, byte, |length, label| found(start_before(gaps, end, length), end, label));
        if self.wrapped == matcher.wrapped.start {
            self.reset_wrapped();
        } else if let Some((_, gap_end)) = self.gaps.front()
            && self.gaps.len() > matcher.wrapped.max_len
        {
            self.wrapped_since = self.wrapped_since.max(*gap_end);
            self.gaps.pop_front();
        }
    }

    /// Forgets what was before the next byte.
    fn reset_wrapped(&mut self) {
        (self.line_feeds, self.gap) = (0, 0);
        self.gaps.clear();
        self.wrapped_since = self.at;
    }

    /// The position of the first byte at which an unfinished match can begin, or an earlier one: what is held back is searched
    /// again if a secret is added.
    pub(super) fn safe_until(&self, matcher: &SecretMatcher) -> u64 {
        let exact = self.at.saturating_sub(matcher.exact.max_len as u64 - 1);
        let last = self.at - u64::from(self.gap);
        let wrapped = start_before(&self.gaps, last, matcher.wrapped.max_len - 1).max(self.wrapped_since);
        exact.min(wrapped)
    }
}

/// The position of the byte that is followed by `length - 1` bytes outside of gaps before `end`.
fn start_before(gaps: &VecDeque<(u64, u64)>, end: u64, length: usize) -> u64 {
    let mut start = end.saturating_sub(length as u64);
    for (gap_start, gap_end) in gaps.iter().rev() {
        if start >= *gap_end {
            break;
        }
        start = start.saturating_sub(gap_end - gap_start);
    }
    start
}
