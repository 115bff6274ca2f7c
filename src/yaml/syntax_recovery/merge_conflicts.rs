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

/// Every complete conflict, with the edits that keep its first side.
pub(super) fn conflicts(source: &Arc<Source>, text: &str) -> Vec<(Diagnostic, [RecoveryEdit; 2])> {
    let lines = Lines { source, text };
    let mut found = Vec::new();
    let (mut start, mut middle) = (None, None);
    for line in 1..=lines.last() {
        let text = lines.text(line);
        if text.starts_with(OURS) {
            (start, middle) = (Some(line), None);
        } else if text.starts_with(BASE) || text.trim_end() == THEIRS {
            middle = middle.or(Some(line));
        } else if text.starts_with(END)
            && let (Some(start), Some(middle)) = (start.take(), middle.take())
            && found.len() < MAX_CONFLICTS
        {
            let place = SourceSpan { source: Arc::clone(source), range: lines.content(start) };
            let finding = Diagnostic::error("yaml-syntax", place, "unresolved merge conflict")
                .help("keep one of its two sides, and remove the lines with the markers");
            let theirs = lines.span(middle).start..lines.span(line).end;
            found.push((finding, [RecoveryEdit::blank(lines.span(start)), RecoveryEdit::blank(theirs)]));
        }
    }
    found
}
