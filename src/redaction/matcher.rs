//! Finding the forms of secrets, byte by byte.

use std::collections::VecDeque;
use std::sync::Arc;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};

use super::encodings;

/// The most blanks and line breaks that an encoded secret may have in a row, in bytes.
const MAX_GAP_BYTES: u32 = 64;

/// All forms of all secrets.
pub(super) struct SecretMatcher {
    /// Those that are found as they are.
    exact: PatternSet,
    /// Those that programs break into lines: base64 and hexadecimal.
    wrapped: PatternSet,
}

/// Byte strings, each with what stands in its place.
struct PatternSet {
    automaton: NFA,
    labels: Vec<Arc<str>>,
    /// Length in bytes of the longest.
    max_len: usize,
}

impl SecretMatcher {
    /// Takes what stands in the place of each secret, and the secrets; `None` without any.
    pub(super) fn new<'a>(secrets: impl Iterator<Item = (Arc<str>, &'a str)>) -> Option<Self> {
        let (mut exact, mut broken) = (Vec::new(), Vec::new());
        for (label, value) in secrets {
            let forms = encodings::encoded_forms(value);
            exact.extend(forms.exact.into_iter().map(|form| (form, Arc::clone(&label))));
            broken.extend(forms.wrapped.into_iter().map(|form| (form, Arc::clone(&label))));
        }
        Some(Self { exact: PatternSet::new(exact)?, wrapped: PatternSet::new(broken)? })
    }

    pub(super) fn pattern_count(&self) -> usize {
        self.exact.labels.len() + self.wrapped.labels.len()
    }

    pub(super) fn max_match_bytes(&self) -> usize {
        self.exact.max_len.max(self.wrapped.max_len)
    }
}

impl PatternSet {
    fn new(forms: Vec<(Vec<u8>, Arc<str>)>) -> Option<Self> {
        let longest = forms.iter().map(|(form, _)| form.len()).max()?;
        let (forms, labels): (Vec<_>, Vec<_>) = forms.into_iter().unzip();
        // A build fails only where the patterns exceed 2 GiB of states, which no environment can hold.
        let automaton = NFA::builder().match_kind(MatchKind::Standard).build(&forms).ok()?;
        Some(Self { automaton, labels, max_len: longest })
    }

    fn start(&self) -> StateID {
        // An unanchored start exists for every automaton that the builder makes.
        self.automaton.start_state(Anchored::No).unwrap_or(StateID::ZERO)
    }

    /// Goes on by a byte, and tells the length and the label of each form that ends with it.
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

/// How far a stream of bytes has been looked through.
pub(super) struct MatchState {
    /// The number of the next byte.
    at: u64,
    exact: StateID,
    wrapped: StateID,
    /// The numbers of the last bytes that can be part of an encoded secret, as many as the longest form has.
    encoded_positions: VecDeque<u64>,
    /// Line feeds since the last of them, and bytes in all.
    line_feeds: u32,
    gap: u32,
}

impl MatchState {
    pub(super) fn new(forms: &SecretMatcher) -> Self {
        Self {
            at: 0,
            exact: forms.exact.start(),
            wrapped: forms.wrapped.start(),
            encoded_positions: VecDeque::new(),
            line_feeds: 0,
            gap: 0,
        }
    }

    /// Whether any form occurs.
    pub(super) fn contains_secret(forms: &SecretMatcher, bytes: &[u8]) -> bool {
        let mut scan = Self::new(forms);
        let mut any = false;
        bytes.iter().any(|byte| {
            scan.step(forms, *byte, |_, _, _| any = true);
            any
        })
    }

    /// Goes on by a byte, and tells start, end and label of each form that ends with it.
    pub(super) fn step(&mut self, forms: &SecretMatcher, byte: u8, mut found: impl FnMut(u64, u64, &Arc<str>)) {
        let place = self.at;
        self.at += 1;
        let end = self.at;
        forms.exact.step(&mut self.exact, byte, |length, label| found(end - length as u64, end, label));
        let is_gap = matches!(byte, b'\n' | b'\r') || (self.gap > 0 && matches!(byte, b' ' | b'\t'));
        if is_gap {
            self.gap += 1;
            self.line_feeds += u32::from(byte == b'\n');
            // What is encoded has no empty lines.
            if self.line_feeds > 1 || self.gap > MAX_GAP_BYTES {
                self.reset_wrapped(forms);
            }
            return;
        }
        (self.line_feeds, self.gap) = (0, 0);
        if self.encoded_positions.len() == forms.wrapped.max_len {
            self.encoded_positions.pop_front();
        }
        self.encoded_positions.push_back(place);
        let places = &self.encoded_positions;
        forms.wrapped.step(&mut self.wrapped, byte, |length, label| {
            let start = places.len().checked_sub(length).and_then(|at| places.get(at));
            found(start.copied().unwrap_or(place), end, label);
        });
    }

    fn reset_wrapped(&mut self, forms: &SecretMatcher) {
        (self.line_feeds, self.gap) = (0, 0);
        self.encoded_positions.clear();
        self.wrapped = forms.wrapped.start();
    }

    /// The number of the first byte that a form which is yet to end can begin with.
    pub(super) fn safe_until(&self, forms: &SecretMatcher) -> u64 {
        let exact = self.at.saturating_sub(forms.exact.max_len as u64 - 1);
        let open = self.encoded_positions.len().min(forms.wrapped.max_len - 1);
        exact.min(self.encoded_positions.get(self.encoded_positions.len() - open).copied().unwrap_or(self.at))
    }
}
