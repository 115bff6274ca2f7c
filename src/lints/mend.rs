//! Puts certain fixes into a text, and keeps those that make it better.
//!
//! Pure: a text goes in with a way to look at texts, and a text comes out that is at least as valid. What no fix
//! replaces stays byte for byte.

mod files;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Severity, Source};

pub use files::{Readers, job, prompt, script};

/// How many bytes are looked at in all: the last of very many mistakes in a large file wait for the next time.
const MAX_BYTES: usize = 64 << 20;

/// What a look at a text costs at least, in bytes.
const LEAST_BYTES: usize = 16 << 10;

/// How often a text is looked at in any case, however large it is.
const MIN_LOOKS: usize = 16;

/// How deep a fix may reveal others before something has to be better.
const MAX_REVEALED: usize = 4;

/// A replacement in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The bytes that are replaced.
    pub span: Range<usize>,
    /// By what.
    pub with: String,
}

/// What there is to see in a text.
#[derive(Debug)]
pub struct Looked {
    /// Everything that is wrong.
    pub findings: Vec<Diagnostic>,
    /// What would mend some of it.
    pub edits: Vec<Edit>,
    /// What must not grow, one for each way in which the text is read.
    weights: Vec<Weight>,
}

impl Looked {
    /// Weighs the findings in the text itself, which is `source`, and takes their fixes.
    pub fn at(findings: Vec<Diagnostic>, source: &Arc<Source>) -> Self {
        let is_own = |other: &Arc<Source>| Arc::ptr_eq(source, other);
        let weights = vec![Weight::of(findings.iter().filter(|finding| is_own(&finding.place.source)))];
        let edits = edits(&findings, is_own, |offset| offset);
        Self { findings, edits, weights }
    }

    /// Weighs all findings of each of several who read the text. They read it as the sources for which `is_own` holds,
    /// and `offset` says where in the text something stands in these.
    pub fn through(
        each: Vec<Vec<Diagnostic>>,
        is_own: impl Fn(&Arc<Source>) -> bool,
        offset: impl Fn(usize) -> usize,
    ) -> Self {
        let weights = each.iter().map(Weight::of).collect();
        let findings = each.into_iter().flatten().collect::<Vec<_>>();
        let edits = edits(&findings, is_own, offset);
        Self { findings, edits, weights }
    }

    /// Whether less is wrong than before, and nothing else for anyone.
    fn is_better_than(&self, before: &Self) -> bool {
        let pairs = || self.weights.iter().zip(&before.weights);
        pairs().all(|(now, then)| now.is_less_than(then) || now.is_like(then))
            && pairs().any(|(now, then)| now.is_less_than(then))
    }

    /// Whether every error was there before, or is one of too many to be seen then.
    fn has_nothing_new(&self, before: &Self) -> bool {
        self.weights.iter().zip(&before.weights).all(|(now, then)| now.has_nothing_new(then))
    }
}

fn edits(findings: &[Diagnostic], is_own: impl Fn(&Arc<Source>) -> bool, offset: impl Fn(usize) -> usize) -> Vec<Edit> {
    let fixes = findings.iter().filter_map(|finding| finding.fix.as_ref()).filter(|fix| is_own(&fix.place.source));
    fixes
        .map(|fix| Edit { span: offset(fix.place.span.start)..offset(fix.place.span.end), with: fix.with.clone() })
        .collect()
}

/// What came of mending.
#[derive(Debug)]
pub struct Mended {
    /// The text; the same as before where nothing was mended.
    pub text: String,
    /// How many replacements were made.
    pub count: usize,
    /// How many fixes were left out, since they would bring other errors.
    pub left: usize,
    /// What is wrong with the text now.
    pub findings: Vec<Diagnostic>,
}

/// Makes all replacements that leave fewer errors, or as many and fewer warnings, and looks again, until there is
/// none left. Mending the result again changes nothing. `bytes` is how much is read for each look.
pub fn mend(text: &str, bytes: usize, look: &mut dyn FnMut(&str) -> Looked) -> Mended {
    let looked = look(text);
    let mut state = State { text: text.to_owned(), looked };
    let mut looks = Looks { look, bytes: bytes.max(LEAST_BYTES), made: 0 };
    let mut count = 0;
    loop {
        let (next, made) = match looks.together(&state) {
            Some(found) => found,
            None => looks.one_by_one(state),
        };
        state = next;
        count += made;
        if made == 0 {
            break;
        }
    }
    let left = fitting(&state.text, &state.looked.edits).len();
    Mended { text: state.text, count, left, findings: state.looked.findings }
}

struct State {
    text: String,
    looked: Looked,
}

/// Looks at texts while there is something left to spend.
struct Looks<'a> {
    look: &'a mut dyn FnMut(&str) -> Looked,
    bytes: usize,
    made: usize,
}

impl Looks<'_> {
    fn at(&mut self, text: String) -> Option<State> {
        if self.made >= MIN_LOOKS && self.made.saturating_mul(self.bytes) >= MAX_BYTES {
            return None;
        }
        self.made += 1;
        let looked = (self.look)(&text);
        Some(State { text, looked })
    }

    /// All replacements at once, where nothing new is wrong then.
    fn together(&mut self, before: &State) -> Option<(State, usize)> {
        let edits = fitting(&before.text, &before.looked.edits);
        if edits.is_empty() {
            return None;
        }
        let after = self.at(apply(&before.text, &edits))?;
        let is_better = after.looked.is_better_than(&before.looked) && after.looked.has_nothing_new(&before.looked);
        is_better.then_some((after, edits.len()))
    }

    /// Each replacement by itself, the last first, so that the places of the others stay.
    fn one_by_one(&mut self, mut state: State) -> (State, usize) {
        let mut count = 0;
        for edit in fitting(&state.text, &state.looked.edits).into_iter().rev() {
            if state.looked.edits.contains(&edit)
                && let Some((after, made)) = self.alone(&state, &edit)
            {
                state = after;
                count += made;
            }
        }
        (state, count)
    }

    /// A replacement with those that it reveals, where that is better.
    fn alone(&mut self, before: &State, edit: &Edit) -> Option<(State, usize)> {
        let mut made = vec![edit.clone()];
        let mut count = 1;
        let mut known = before.looked.edits.clone();
        let mut state = self.at(apply(&before.text, &made))?;
        for _ in 0..MAX_REVEALED {
            if state.looked.is_better_than(&before.looked) {
                return Some((state, count));
            }
            known = moved(&known, &made);
            let revealed: Vec<Edit> = state.looked.edits.iter().filter(|it| !known.contains(it)).cloned().collect();
            made = fitting(&state.text, &revealed);
            if made.is_empty() {
                return None;
            }
            count += made.len();
            state = self.at(apply(&state.text, &made))?;
        }
        None
    }
}

/// How much is wrong.
#[derive(Debug, PartialEq, Eq)]
struct Weight {
    errors: BTreeMap<&'static str, usize>,
    /// Warnings included.
    total: usize,
    /// Bytes of the text beyond the last finding that is shown, where there are more.
    unseen: usize,
}

impl Weight {
    fn of<'a>(findings: impl IntoIterator<Item = &'a Diagnostic>) -> Self {
        let mut weight = Self { errors: BTreeMap::new(), total: 0, unseen: 0 };
        for finding in findings {
            weight.total += 1;
            if finding.severity == Severity::Error {
                *weight.errors.entry(finding.code).or_default() += 1;
            }
            if finding.code == "too-many" {
                weight.unseen += finding.place.source.text.len().saturating_sub(finding.place.span.start).max(1);
            }
        }
        weight
    }

    fn is_less_than(&self, before: &Self) -> bool {
        let (now, then) = (self.errors.values().sum::<usize>(), before.errors.values().sum::<usize>());
        let is_further = before.unseen > 0 && self.unseen < before.unseen;
        now < then || (now == then && is_further) || (self.errors == before.errors && self.total < before.total)
    }

    fn is_like(&self, before: &Self) -> bool {
        self.errors == before.errors && self.total <= before.total && self.unseen <= before.unseen
    }

    fn has_nothing_new(&self, before: &Self) -> bool {
        before.unseen > 0
            || self.errors.iter().all(|(code, count)| before.errors.get(code).is_some_and(|then| count <= then))
    }
}

/// The replacements that can be made at once, in their order. Two for the same place contradict each other; of two
/// that overlap the first is taken.
fn fitting(text: &str, edits: &[Edit]) -> Vec<Edit> {
    let is_change = |edit: &&Edit| text.get(edit.span.clone()).is_some_and(|there| there != edit.with);
    let mut sorted: Vec<&Edit> = edits.iter().filter(is_change).collect();
    sorted.sort_by_key(|edit| (edit.span.start, edit.span.end, edit.with.as_str()));
    sorted.dedup();
    let mut found: Vec<Edit> = Vec::new();
    for same in sorted.chunk_by(|one, other| one.span == other.span) {
        let [edit] = same else { continue };
        let is_after = |last: &Edit| edit.span.start >= last.span.end && edit.span.start > last.span.start;
        if found.last().is_none_or(is_after) {
            found.push((*edit).clone());
        }
    }
    found
}

/// Makes replacements that don't overlap and are in order.
fn apply(text: &str, edits: &[Edit]) -> String {
    let mut changed = String::with_capacity(text.len());
    let mut done = 0;
    for edit in edits {
        changed += &text[done..edit.span.start];
        changed += &edit.with;
        done = edit.span.end;
    }
    changed + &text[done..]
}

/// Where replacements lie after others were made.
fn moved(edits: &[Edit], made: &[Edit]) -> Vec<Edit> {
    let shifted = |offset: usize| {
        made.iter().take_while(|edit| edit.span.end <= offset).fold(offset, |offset, edit| {
            // The whole lies before `offset`, so that this is never less than nothing.
            (offset + edit.with.len()).saturating_sub(edit.span.len())
        })
    };
    let is_made = |edit: &Edit| made.iter().any(|other| other.span == edit.span);
    let others = edits.iter().filter(|edit| !is_made(edit));
    others
        .map(|edit| Edit { span: shifted(edit.span.start)..shifted(edit.span.end), with: edit.with.clone() })
        .collect()
}

#[cfg(test)]
mod tests;
