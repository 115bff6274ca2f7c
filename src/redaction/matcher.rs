//! Finds secrets in all their encodings, byte by byte.

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
}

/// Byte strings, each with the marker that replaces it.
struct PatternSet {
    automaton: NFA,
    labels: Vec<Arc<str>>,
    /// The length of the longest, in bytes.
    max_len: usize,
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
        Some(Self { exact: PatternSet::new(exact)?, wrapped: PatternSet::new(wrapped)? })
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
        Some(Self { automaton, labels, max_len })
    }

    fn start(&self) -> StateID {
        // The builder always creates an unanchored start state.
        self.automaton.start_state(Anchored::No).unwrap_or(StateID::ZERO)
    }

    /// Consumes a byte, and reports length and label of each pattern that ends with it.
    fn step(&self, state: &mut StateID, byte: u8, mut found: impl FnMut(usize, &Arc<str>)) {
        *state = self.automaton.next_state(Anchored::No, *state, byte);
        if self.automaton.is_match(*state) {
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
    /// The positions of the last bytes that can be part of an encoded secret, up to the length of the longest pattern.
    encoded_positions: VecDeque<u64>,
    /// Line feeds, and bytes in all, since the last of these positions.
    line_feeds: u32,
    gap: u32,
}

impl MatchState {
    pub(super) fn new(matcher: &SecretMatcher) -> Self {
        Self {
            at: 0,
            exact: matcher.exact.start(),
            wrapped: matcher.wrapped.start(),
            encoded_positions: VecDeque::new(),
            line_feeds: 0,
            gap: 0,
        }
    }

    /// Whether any pattern occurs in these bytes.
    pub(super) fn contains_secret(matcher: &SecretMatcher, bytes: &[u8]) -> bool {
        let mut state = Self::new(matcher);
        let mut any = false;
        bytes.iter().any(|byte| {
            state.step(matcher, *byte, |_, _, _| any = true);
            any
        })
    }

    /// Consumes a byte, and reports start, end and label of each pattern that ends with it.
    pub(super) fn step(&mut self, matcher: &SecretMatcher, byte: u8, mut found: impl FnMut(u64, u64, &Arc<str>)) {
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
                self.reset_wrapped(matcher);
            }
            return;
        }
        (self.line_feeds, self.gap) = (0, 0);
        if self.encoded_positions.len() == matcher.wrapped.max_len {
            self.encoded_positions.pop_front();
        }
        self.encoded_positions.push_back(position);
        let positions = &self.encoded_positions;
        matcher.wrapped.step(&mut self.wrapped, byte, |length, label| {
            let start = positions.len().checked_sub(length).and_then(|at| positions.get(at));
            found(start.copied().unwrap_or(position), end, label);
        });
    }

    fn reset_wrapped(&mut self, matcher: &SecretMatcher) {
        (self.line_feeds, self.gap) = (0, 0);
        self.encoded_positions.clear();
        self.wrapped = matcher.wrapped.start();
    }

    /// The position of the first byte at which an unfinished match can begin.
    pub(super) fn safe_until(&self, matcher: &SecretMatcher) -> u64 {
        let exact = self.at.saturating_sub(matcher.exact.max_len as u64 - 1);
        let open = self.encoded_positions.len().min(matcher.wrapped.max_len - 1);
        exact.min(self.encoded_positions.get(self.encoded_positions.len() - open).copied().unwrap_or(self.at))
    }
}
