//! Collects findings without duplicates, up to a bound, and sorts them by place.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use super::limits::MAX_FINDINGS;
use crate::diagnostic::{Diagnostic, OmittedFindings};
use crate::text::truncate;

/// How many findings are kept before sorting.
const MAX_KEPT: usize = 1000;

/// Findings without duplicates, up to a bound.
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<Diagnostic>,
    /// All findings, those included that are only counted. The message is a hash, because there can be very many.
    seen: HashSet<(&'static str, usize, usize, usize, u64)>,
    /// The count of findings that aren't kept.
    more: OmittedFindings,
}

impl Findings {
    /// Adds a finding, unless there is an equal one.
    pub fn push(&mut self, finding: Diagnostic) {
        let mut message = DefaultHasher::new();
        finding.message.hash(&mut message);
        let Range { start, end } = finding.span.range;
        let source = Arc::as_ptr(&finding.span.source).addr();
        if !self.seen.insert((finding.code, source, start, end, message.finish())) {
            return;
        }
        // A nested decoding may have omitted findings already.
        if self.list.len() < MAX_KEPT && finding.omitted.is_none() {
            self.list.push(finding);
        } else {
            self.more.add(&finding);
        }
    }

    /// Adds all findings of another collection.
    pub(super) fn merge(&mut self, other: Self) {
        other.list.into_iter().for_each(|finding| self.push(finding));
        self.more.errors += other.more.errors;
        self.more.warnings += other.more.warnings;
        self.more.at_least |= other.more.at_least;
    }

    /// Records that there may be more findings.
    pub fn mark_truncated(&mut self) {
        self.more.at_least = true;
    }

    /// Whether further findings are only counted.
    pub fn is_full(&self) -> bool {
        self.list.len() >= MAX_KEPT
    }

    /// All findings, sorted by place; those beyond the bound are only counted.
    pub fn finish(mut self) -> Vec<Diagnostic> {
        if let Some(first) = self.list.first() {
            let source = Arc::clone(&first.span.source);
            self.list.sort_by_key(|finding| {
                let elsewhere = !Arc::ptr_eq(&finding.span.source, &source);
                (elsewhere, finding.span.range.start, finding.span.range.end)
            });
        }
        let mut unshown = self.more;
        self.list.iter().skip(MAX_FINDINGS).for_each(|finding| unshown.add(finding));
        if unshown != OmittedFindings::default() {
            let next = self.list.get(MAX_FINDINGS).or(self.list.last()).map(|finding| finding.span.clone());
            self.list.truncate(MAX_FINDINGS);
            self.list.extend(next.map(|place| unshown.to_diagnostic(place)));
        }
        self.list
    }
}

/// A short excerpt of a file's text for a message, in one line and without control characters.
pub(super) fn excerpt(text: &str) -> String {
    truncate::ellipsize(text, 40).replace(char::is_control, " ")
}
