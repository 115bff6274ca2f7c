//! Finding the forms of secrets, byte by byte.

use std::collections::VecDeque;
use std::sync::Arc;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};

use super::forms;

/// The most blanks and line breaks that an encoded secret may have in a row, in bytes.
const LONGEST_GAP: u32 = 64;

/// All forms of all secrets.
pub(super) struct Forms {
    /// Those that are found as they are.
    exact: Finder,
    /// Those that programs break into lines: base64 and hexadecimal.
    broken: Finder,
}

/// Byte strings, each with what stands in its place.
struct Finder {
    automaton: NFA,
    labels: Vec<Arc<str>>,
    /// Length in bytes of the longest.
    longest: usize,
}

impl Forms {
    /// Takes what stands in the place of each secret, and the secrets; `None` without any.
    pub(super) fn new<'a>(secrets: impl Iterator<Item = (Arc<str>, &'a str)>) -> Option<Self> {
        let (mut exact, mut broken) = (Vec::new(), Vec::new());
        for (label, value) in secrets {
            let forms = forms::of(value);
            exact.extend(forms.exact.into_iter().map(|form| (form, Arc::clone(&label))));
            broken.extend(forms.broken.into_iter().map(|form| (form, Arc::clone(&label))));
        }
        Some(Self { exact: Finder::new(exact)?, broken: Finder::new(broken)? })
    }

    pub(super) fn count(&self) -> usize {
        self.exact.labels.len() + self.broken.labels.len()
    }

    pub(super) fn longest(&self) -> usize {
        self.exact.longest.max(self.broken.longest)
    }
}

impl Finder {
    fn new(forms: Vec<(Vec<u8>, Arc<str>)>) -> Option<Self> {
        let longest = forms.iter().map(|(form, _)| form.len()).max()?;
        let (forms, labels): (Vec<_>, Vec<_>) = forms.into_iter().unzip();
        // A build fails only where the patterns exceed 2 GiB of states, which no environment can hold.
        let automaton = NFA::builder().match_kind(MatchKind::Standard).build(&forms).ok()?;
        Some(Self { automaton, labels, longest })
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
pub(super) struct Scan {
    /// The number of the next byte.
    at: u64,
    exact: StateID,
    broken: StateID,
    /// The numbers of the last bytes that can be part of an encoded secret, as many as the longest form has.
    places: VecDeque<u64>,
    /// Line feeds since the last of them, and bytes in all.
    feeds: u32,
    gap: u32,
}

impl Scan {
    pub(super) fn new(forms: &Forms) -> Self {
        Self {
            at: 0,
            exact: forms.exact.start(),
            broken: forms.broken.start(),
            places: VecDeque::new(),
            feeds: 0,
            gap: 0,
        }
    }

    /// Whether any form occurs.
    pub(super) fn occur(forms: &Forms, bytes: &[u8]) -> bool {
        let mut scan = Self::new(forms);
        let mut any = false;
        bytes.iter().any(|byte| {
            scan.step(forms, *byte, |_, _, _| any = true);
            any
        })
    }

    /// Goes on by a byte, and tells start, end and label of each form that ends with it.
    pub(super) fn step(&mut self, forms: &Forms, byte: u8, mut found: impl FnMut(u64, u64, &Arc<str>)) {
        let place = self.at;
        self.at += 1;
        let end = self.at;
        forms.exact.step(&mut self.exact, byte, |length, label| found(end - length as u64, end, label));
        let is_gap = matches!(byte, b'\n' | b'\r') || (self.gap > 0 && matches!(byte, b' ' | b'\t'));
        if is_gap {
            self.gap += 1;
            self.feeds += u32::from(byte == b'\n');
            // What is encoded has no empty lines.
            if self.feeds > 1 || self.gap > LONGEST_GAP {
                self.forget(forms);
            }
            return;
        }
        (self.feeds, self.gap) = (0, 0);
        if self.places.len() == forms.broken.longest {
            self.places.pop_front();
        }
        self.places.push_back(place);
        let places = &self.places;
        forms.broken.step(&mut self.broken, byte, |length, label| {
            let start = places.len().checked_sub(length).and_then(|at| places.get(at));
            found(start.copied().unwrap_or(place), end, label);
        });
    }

    fn forget(&mut self, forms: &Forms) {
        (self.feeds, self.gap) = (0, 0);
        self.places.clear();
        self.broken = forms.broken.start();
    }

    /// The number of the first byte that a form which is yet to end can begin with.
    pub(super) fn certain(&self, forms: &Forms) -> u64 {
        let exact = self.at.saturating_sub(forms.exact.longest as u64 - 1);
        let open = self.places.len().min(forms.broken.longest - 1);
        exact.min(self.places.get(self.places.len() - open).copied().unwrap_or(self.at))
    }
}
