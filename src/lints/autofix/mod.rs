//! Applies the certain fixes of findings, and keeps those that improve the text.
//!
//! This is a pure function of a text and a checker. The result is at least as valid, and unchanged outside of the fixes.

mod files;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Fix, Severity, Source};

pub use files::{PromptReaders, fix_job, fix_prompt, fix_script};

/// How many bytes are checked in total. In a large file with very many errors, the last ones wait for the next time.
const MAX_BYTES: usize = 64 << 20;

/// The least cost of one check, in bytes.
const MIN_CHECK_BYTES: usize = 16 << 10;

/// How many checks are always made, however large the text is.
const MIN_CHECKS: usize = 16;

/// How many further rounds of fixes a fix may reveal before the text has to improve.
const MAX_REVEAL_DEPTH: usize = 4;

/// A replacement in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextEdit {
    /// The replaced bytes.
    pub span: Range<usize>,
    /// The new text.
    pub replacement: String,
}

/// The result of checking a text.
#[derive(Debug)]
pub struct TextReport {
    /// The findings.
    pub findings: Vec<Diagnostic>,
    /// The fixes of the findings.
    pub edits: Vec<TextEdit>,
    /// The counts of findings for each reader of the text.
    counts: Vec<FindingCounts>,
}

impl TextReport {
    /// Counts the findings in `source`, and takes their fixes.
    pub fn of_source(findings: Vec<Diagnostic>, source: &Arc<Source>) -> Self {
        let is_own = |other: &Arc<Source>| Arc::ptr_eq(source, other);
        let counts = vec![FindingCounts::of(findings.iter().filter(|finding| is_own(&finding.span.source)))];
        Self { edits: edits(&findings, is_own, |offset| offset), findings, counts }
    }

    /// Counts the findings of several readers of the text. Their sources are those for which `is_own` is true, and `offset`
    /// maps an offset there to one in the text.
    pub fn of_readers(
        each: Vec<Vec<Diagnostic>>,
        is_own: impl Fn(&Arc<Source>) -> bool,
        offset: impl Fn(usize) -> usize,
    ) -> Self {
        let counts = each.iter().map(FindingCounts::of).collect();
        let findings = each.into_iter().flatten().collect::<Vec<_>>();
        Self { edits: edits(&findings, is_own, offset), findings, counts }
    }

    /// Whether the text improved for one reader and got worse for none.
    fn is_better_than(&self, before: &Self) -> bool {
        let pairs = || self.counts.iter().zip(&before.counts);
        pairs().all(|(now, then)| now.is_less_than(then) || now.is_no_worse_than(then))
            && pairs().any(|(now, then)| now.is_less_than(then))
    }

    /// Whether it has no new errors, except for those that weren't shown before.
    fn has_nothing_new(&self, before: &Self) -> bool {
        self.counts.iter().zip(&before.counts).all(|(now, then)| now.has_nothing_new(then))
    }
}

fn edits(
    findings: &[Diagnostic],
    is_own: impl Fn(&Arc<Source>) -> bool,
    offset: impl Fn(usize) -> usize,
) -> Vec<TextEdit> {
    let fixes = findings.iter().filter_map(|finding| finding.fix.as_ref()).filter(|fix| is_own(&fix.span.source));
    let edit = |fix: &Fix| {
        let span = offset(fix.span.range.start)..offset(fix.span.range.end);
        TextEdit { span, replacement: fix.replacement.clone() }
    };
    fixes.map(edit).collect()
}

/// The result of fixing a text.
#[derive(Debug)]
pub struct FixResult {
    /// The text, perhaps unchanged.
    pub text: String,
    /// How many replacements were made.
    pub applied: usize,
    /// How many fixes were skipped, because they would cause other errors.
    pub skipped: usize,
    /// The remaining findings.
    pub findings: Vec<Diagnostic>,
}

/// Applies the fixes that leave fewer errors, or as many errors and fewer warnings, and repeats until there are none
/// left. Fixing the result again changes nothing. `bytes` is the cost of one check.
pub fn fix_text(text: &str, bytes: usize, check: &mut dyn FnMut(&str) -> TextReport) -> FixResult {
    let mut state = CheckedText { report: check(text), text: text.to_owned() };
    let mut checker = BudgetedChecker { check, bytes: bytes.max(MIN_CHECK_BYTES), made: 0 };
    let mut count = 0;
    loop {
        let (next, made) = match checker.apply_all(&state) {
            Some(found) => found,
            None => checker.apply_one_by_one(state),
        };
        state = next;
        count += made;
        if made == 0 {
            break;
        }
    }
    let left = applicable_edits(&state.text, &state.report.edits).len();
    FixResult { text: state.text, applied: count, skipped: left, findings: state.report.findings }
}

struct CheckedText {
    text: String,
    report: TextReport,
}

/// Checks texts within a budget.
struct BudgetedChecker<'a> {
    check: &'a mut dyn FnMut(&str) -> TextReport,
    bytes: usize,
    made: usize,
}

impl BudgetedChecker<'_> {
    fn check_text(&mut self, text: String) -> Option<CheckedText> {
        if self.made >= MIN_CHECKS && self.made.saturating_mul(self.bytes) >= MAX_BYTES {
            return None;
        }
        self.made += 1;
        Some(CheckedText { report: (self.check)(&text), text })
    }

    /// Applies all fixes at once, if that causes no new errors.
    fn apply_all(&mut self, before: &CheckedText) -> Option<(CheckedText, usize)> {
        let edits = applicable_edits(&before.text, &before.report.edits);
        if edits.is_empty() {
            return None;
        }
        let after = self.check_text(apply_edits(&before.text, &edits))?;
        let is_better = after.report.is_better_than(&before.report) && after.report.has_nothing_new(&before.report);
        is_better.then_some((after, edits.len()))
    }

    /// Applies fixes one by one, the last first, so that the places of the others don't change.
    fn apply_one_by_one(&mut self, mut state: CheckedText) -> (CheckedText, usize) {
        let mut count = 0;
        for edit in applicable_edits(&state.text, &state.report.edits).into_iter().rev() {
            if state.report.edits.contains(&edit)
                && let Some((after, made)) = self.apply_with_revealed(&state, &edit)
            {
                state = after;
                count += made;
            }
        }
        (state, count)
    }

    /// Applies a fix with those that it reveals, if that improves the text.
    fn apply_with_revealed(&mut self, before: &CheckedText, edit: &TextEdit) -> Option<(CheckedText, usize)> {
        let mut made = vec![edit.clone()];
        let mut count = 1;
        let mut known = before.report.edits.clone();
        let mut state = self.check_text(apply_edits(&before.text, &made))?;
        for _ in 0..MAX_REVEAL_DEPTH {
            if state.report.is_better_than(&before.report) {
                return Some((state, count));
            }
            known = shift_edits(&known, &made);
            let revealed: Vec<TextEdit> = state.report.edits.iter().filter(|it| !known.contains(it)).cloned().collect();
            made = applicable_edits(&state.text, &revealed);
            if made.is_empty() {
                return None;
            }
            count += made.len();
            state = self.check_text(apply_edits(&state.text, &made))?;
        }
        None
    }
}

/// Counts of findings.
#[derive(Debug, Default)]
struct FindingCounts {
    errors: BTreeMap<&'static str, usize>,
    /// The number of all findings, warnings included.
    total: usize,
    /// If not all findings are shown, the number of bytes after the last one.
    unreported_bytes: usize,
}

impl FindingCounts {
    fn of<'a>(findings: impl IntoIterator<Item = &'a Diagnostic>) -> Self {
        let mut weight = Self::default();
        for finding in findings {
            weight.total += 1;
            if finding.severity == Severity::Error {
                *weight.errors.entry(finding.code).or_default() += 1;
            }
            if finding.code == "too-many-findings" {
                weight.unreported_bytes +=
                    finding.span.source.text.len().saturating_sub(finding.span.range.start).max(1);
            }
        }
        weight
    }

    fn is_less_than(&self, before: &Self) -> bool {
        let (now, then) = (self.errors.values().sum::<usize>(), before.errors.values().sum::<usize>());
        let is_further = before.unreported_bytes > 0 && self.unreported_bytes < before.unreported_bytes;
        now < then || (now == then && is_further) || (self.errors == before.errors && self.total < before.total)
    }

    fn is_no_worse_than(&self, before: &Self) -> bool {
        self.errors == before.errors && self.total <= before.total && self.unreported_bytes <= before.unreported_bytes
    }

    fn has_nothing_new(&self, before: &Self) -> bool {
        before.unreported_bytes > 0
            || self.errors.iter().all(|(code, count)| before.errors.get(code).is_some_and(|then| count <= then))
    }
}

/// The edits that can be applied at once, in order. Two at the same place contradict each other; of two that overlap, the
/// first is used.
fn applicable_edits(text: &str, edits: &[TextEdit]) -> Vec<TextEdit> {
    let is_change = |edit: &&TextEdit| text.get(edit.span.clone()).is_some_and(|there| there != edit.replacement);
    let mut sorted: Vec<&TextEdit> = edits.iter().filter(is_change).collect();
    sorted.sort_by_key(|edit| (edit.span.start, edit.span.end, edit.replacement.as_str()));
    sorted.dedup();
    let mut found: Vec<TextEdit> = Vec::new();
    for same in sorted.chunk_by(|one, other| one.span == other.span) {
        let [edit] = same else { continue };
        let is_after = |last: &TextEdit| edit.span.start >= last.span.end && edit.span.start > last.span.start;
        if found.last().is_none_or(is_after) {
            found.push((*edit).clone());
        }
    }
    found
}

/// Applies edits that are in order and don't overlap.
fn apply_edits(text: &str, edits: &[TextEdit]) -> String {
    let mut changed = String::with_capacity(text.len());
    let mut done = 0;
    for edit in edits {
        changed += &text[done..edit.span.start];
        changed += &edit.replacement;
        done = edit.span.end;
    }
    changed + &text[done..]
}

/// Moves edits to their places after others were applied.
fn shift_edits(edits: &[TextEdit], made: &[TextEdit]) -> Vec<TextEdit> {
    let shifted = |offset: usize| {
        made.iter().take_while(|edit| edit.span.end <= offset).fold(offset, |offset, edit| {
            // The whole edit is before `offset`, so this is never negative.
            (offset + edit.replacement.len()).saturating_sub(edit.span.len())
        })
    };
    let is_made = |edit: &TextEdit| made.iter().any(|other| other.span == edit.span);
    let shift = |edit: &TextEdit| {
        let span = shifted(edit.span.start)..shifted(edit.span.end);
        TextEdit { span, replacement: edit.replacement.clone() }
    };
    edits.iter().filter(|edit| !is_made(edit)).map(shift).collect()
}

#[cfg(test)]
mod tests;
