//! Three-way merges of texts, line by line.

use std::ops::Range;

use similar::{DiffOp, DiffTag};

use super::diff::diff_lines;

/// A part of the base that both sides changed in different ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeConflict {
    /// The first changed line of the base, counted from 1.
    pub line: usize,
}

/// One side's replacement of some lines of the base.
#[derive(Debug)]
struct Change {
    base: Range<usize>,
    side: Range<usize>,
}

/// Applies the changes from `base` to `theirs` to `ours`. Changes of both sides that touch each other are a conflict, unless
/// they are the same.
///
/// # Errors
/// All conflicts.
pub fn merge(base: &str, ours: &str, theirs: &str) -> Result<String, Vec<MergeConflict>> {
    let split = |text| -> Vec<&str> { str::split_inclusive(text, '\n').collect() };
    let (base, our_lines, their_lines) = (split(base), split(ours), split(theirs));
    let (mut our_changes, mut their_changes) =
        (changes(&base, &our_lines).into_iter().peekable(), changes(&base, &their_lines).into_iter().peekable());
    let (mut merged, mut conflicts) = (String::with_capacity(ours.len() + theirs.len() / 4), Vec::new());
    let mut at = 0;
    loop {
        let start = match (our_changes.peek(), their_changes.peek()) {
            (None, None) => break,
            (Some(one), None) | (None, Some(one)) => one.base.start,
            (Some(one), Some(other)) => one.base.start.min(other.base.start),
        };
        // All changes that touch each other, one after the other.
        let (mut end, mut mine, mut other) = (start, Vec::new(), Vec::new());
        loop {
            if let Some(change) = our_changes.next_if(|change| change.base.start <= end) {
                end = end.max(change.base.end);
                mine.push(change);
            } else if let Some(change) = their_changes.next_if(|change| change.base.start <= end) {
                end = end.max(change.base.end);
                other.push(change);
            } else {
                break;
            }
        }
        merged.extend(base[at..start].iter().copied());
        let mine_text = replace(&base, start..end, &mine, &our_lines);
        let other_text = replace(&base, start..end, &other, &their_lines);
        match (mine.is_empty(), other.is_empty()) {
            (_, true) => merged += &mine_text,
            (true, false) => merged += &other_text,
            (false, false) if mine_text == other_text => merged += &mine_text,
            (false, false) => conflicts.push(MergeConflict { line: start + 1 }),
        }
        at = end;
    }
    merged.extend(base[at..].iter().copied());
    if conflicts.is_empty() { Ok(merged) } else { Err(conflicts) }
}

fn changes(base: &[&str], side: &[&str]) -> Vec<Change> {
    let changed = diff_lines(base, side).into_iter().filter(|operation| operation.tag() != DiffTag::Equal);
    changed.map(|operation: DiffOp| Change { base: operation.old_range(), side: operation.new_range() }).collect()
}

/// Some lines of the base with the changes of one side.
fn replace(base: &[&str], range: Range<usize>, changes: &[Change], side: &[&str]) -> String {
    let (mut text, mut at) = (String::new(), range.start);
    for change in changes {
        text.extend(base[at..change.base.start].iter().chain(&side[change.side.clone()]).copied());
        at = change.base.end;
    }
    text.extend(base[at..range.end].iter().copied());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_in_different_places_are_both_kept() {
        let base = "1\n2\n3\n4\n5\n6\n";
        for (ours, theirs, merged) in [
            ("one\n2\n3\n4\n5\n6\n", "1\n2\n3\n4\n5\nsix\n", "one\n2\n3\n4\n5\nsix\n"),
            ("1\n2\nnew\n3\n4\n5\n6\n", "1\n2\n3\n4\n6\n", "1\n2\nnew\n3\n4\n6\n"),
            (base, "1\n", "1\n"),
            ("1\n2\n", base, "1\n2\n"),
            ("x\n", "x\n", "x\n"),
            ("1\n2\n3\n4\n5\n6", "0\n1\n2\n3\n4\n5\n6\n", "0\n1\n2\n3\n4\n5\n6"),
        ] {
            assert_eq!(merge(base, ours, theirs).as_deref(), Ok(merged), "{ours:?} {theirs:?}");
        }
        assert_eq!(merge("", "a\n", "").as_deref(), Ok("a\n"));
    }

    #[test]
    fn different_changes_of_the_same_lines_conflict() {
        for (base, ours, theirs, lines) in [
            ("1\n2\n3\n", "1\nours\n3\n", "1\ntheirs\n3\n", vec![2]),
            ("1\n2\n3\n4\n5\n", "a\n2\n3\n4\nb\n", "c\n2\n3\n4\nd\n", vec![1, 5]),
            ("1\n2\n", "1\nours\n2\n", "1\ntheirs\n2\n", vec![2]),
            ("1\n2\n", "1\n", "1\ntwo\n", vec![2]),
            ("", "ours\n", "theirs\n", vec![1]),
        ] {
            let found: Vec<usize> =
                merge(base, ours, theirs).unwrap_err().into_iter().map(|conflict| conflict.line).collect();
            assert_eq!(found, lines, "{ours:?} {theirs:?}");
        }
    }

    #[test]
    fn a_merge_equals_that_of_git() {
        // `git merge-file` decides the same way whether texts with changes in random places conflict.
        let folder = tempfile::tempdir().unwrap();
        let mut random = 7_u32;
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) % below
        };
        let (mut merged, mut conflicts) = (0, 0);
        for _ in 0..60 {
            let base: Vec<String> = (0..24).map(|line| format!("line {line}")).collect();
            let mut edit = |name: &str| {
                let mut lines = base.clone();
                for change in 0..1 + next(2) {
                    let at = next(24) as usize;
                    lines[at] = format!("{name} {change} {}", next(1_000));
                }
                lines.join("\n") + "\n"
            };
            let (ours, theirs) = (edit("ours"), edit("theirs"));
            let base = base.join("\n") + "\n";
            for (name, text) in [("base", &base), ("ours", &ours), ("theirs", &theirs)] {
                std::fs::write(folder.path().join(name), text).unwrap();
            }
            let git = std::process::Command::new("git")
                .args(["merge-file", "-p", "ours", "base", "theirs"])
                .current_dir(folder.path())
                .output()
                .unwrap();
            match merge(&base, &ours, &theirs) {
                Ok(text) => {
                    assert_eq!((git.status.code(), String::from_utf8_lossy(&git.stdout).as_ref()), (Some(0), &*text));
                    merged += 1;
                }
                Err(_) => {
                    assert_ne!(git.status.code(), Some(0), "{ours}\n{theirs}");
                    conflicts += 1;
                }
            }
        }
        assert!(merged > 20 && conflicts > 5, "{merged} {conflicts}");
    }
}
