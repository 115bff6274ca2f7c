//! Merge conflicts that version control left in a file.

use std::sync::Arc;

use super::edits::RecoveryEdit;
use super::lines::Lines;
use crate::diagnostic::{Diagnostic, Source, SourceSpan};

/// The markers of the two sides, of their common ancestor, and of the end.
const OURS: &str = "<<<<<<< ";
const BASE: &str = "||||||| ";
const THEIRS: &str = "=======";
const END: &str = ">>>>>>> ";

/// How many conflicts are recognized; more are reported like any other error.
const MAX_CONFLICTS: usize = 100;

/// Whether a line is one of the markers.
pub(super) fn is_marker(text: &str) -> bool {
    [OURS, BASE, END].iter().any(|marker| text.starts_with(marker)) || text.trim_end() == THEIRS
}

/// Every complete conflict, with the edits that keep its first side.
pub(super) fn conflicts(source: &Arc<Source>, text: &str) -> Vec<(Diagnostic, [RecoveryEdit; 2])> {
    let lines = Lines { source, text };
    let mut found = Vec::new();
    let mut line = 1;
    let last = lines.last();
    while line <= last && found.len() < MAX_CONFLICTS {
        if let Some((middle, end)) = lines.text(line).starts_with(OURS).then(|| sides(lines, line, last)).flatten() {
            let place = SourceSpan { source: Arc::clone(source), range: lines.content(line) };
            let finding = Diagnostic::error("yaml-syntax", place, "unresolved merge conflict")
                .help("keep one of its two sides, and remove the lines with the markers");
            let theirs = lines.span(middle).start..lines.span(end).end;
            found.push((finding, [RecoveryEdit::blank(lines.span(line)), RecoveryEdit::blank(theirs)]));
            line = end;
        }
        line += 1;
    }
    found
}

/// The line that ends the first side, and the one that ends the conflict.
fn sides(lines: Lines<'_>, start: usize, last: usize) -> Option<(usize, usize)> {
    let mut middle = None;
    for line in start + 1..=last {
        let text = lines.text(line);
        if text.starts_with(OURS) {
            return None;
        } else if text.starts_with(BASE) || text.trim_end() == THEIRS {
            middle = middle.or(Some(line));
        } else if text.starts_with(END) {
            return middle.map(|middle| (middle, line));
        }
    }
    None
}
