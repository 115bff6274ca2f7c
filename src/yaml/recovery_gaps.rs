//! Which values, items and entries a gap in the text took away, so that they aren't reported as missing.

use std::ops::Range;

use super::node::{Content, NodeData};
use super::syntax_recovery::RecoveryGap;
use crate::diagnostic::Source;

/// Whether a key has no value because it is in a gap: a gap follows the key, and doesn't start with another key of the same
/// level.
pub(super) fn is_value_in_gap(gaps: &[RecoveryGap], source: &Source, text: &str, key: &Range<usize>) -> bool {
    let is_filler = |letter: char| matches!(letter, ' ' | '\t' | '\r' | '\n' | ':');
    gaps.iter().filter(|gap| gap.span.start >= key.end).any(|gap| {
        let between = &text[key.end..gap.span.start];
        // A tab hides how deep the line was.
        let has_tab = source.text[gap.span.clone()].trim_start_matches(' ').starts_with('\t');
        between.trim_matches(is_filler).is_empty()
            && (has_tab
                || !between.contains('\n')
                || column(text, gap.span.start) > column(text, key.start)
                || !is_entry(source.text[gap.span.clone()].lines().next().unwrap_or_default()))
    })
}

/// Whether an empty list item is empty because its value is in a gap.
pub(super) fn is_item_in_gap(gaps: &[RecoveryGap], text: &str, at: usize) -> bool {
    let is_filler = |letter: char| matches!(letter, ' ' | '\t' | '-');
    gaps.iter().any(|gap| {
        let between = &text[gap.span.start.min(at)..gap.span.start.max(at)];
        let same_line = between.len() <= gap.span.len() || at <= gap.span.start;
        same_line && between.trim_matches(is_filler).is_empty()
    })
}

/// Whether a line looks like a key with or without a value, or like an item.
fn is_entry(line: &str) -> bool {
    let line = line.trim();
    !line.starts_with(['"', '\'', '[', ']', '{', '}'])
        && (line.contains(": ") || line.ends_with(':') || line.starts_with("- "))
}

fn column(text: &str, at: usize) -> usize {
    at - text[..at].rfind(['\n', '\r']).map_or(0, |end| end + 1)
}

/// Marks the lists and mappings that a gap may have taken entries from: the innermost one around it if that is between
/// brackets, else all that are open where its lines start.
pub(super) fn mark_incomplete(nodes: &mut [NodeData], root: u32, gaps: &[RecoveryGap], source: &Source) {
    for gap in gaps {
        let open = open_at(nodes, root, gap.span.start);
        let around =
            open.iter().rev().map(|index| *index as usize).find(|index| nodes[*index].span.end >= gap.span.end);
        if let Some(flow) = around.filter(|index| source.text[nodes[*index].span.clone()].starts_with(['[', '{'])) {
            nodes[flow].is_incomplete = true;
        } else if takes_lines(gap, source) {
            open.into_iter().for_each(|index| nodes[index as usize].is_incomplete = true);
        }
    }
}

/// Whether a gap begins a line, or reaches over several.
fn takes_lines(gap: &RecoveryGap, source: &Source) -> bool {
    let start = gap.span.start - column(&source.text, gap.span.start);
    source.text[start..gap.span.start].trim().is_empty() || source.text[gap.span.clone()].trim().contains(['\n', '\r'])
}

/// The lists and mappings that were open at a place, the outermost first.
fn open_at(nodes: &[NodeData], root: u32, at: usize) -> Vec<u32> {
    let mut open = Vec::new();
    let mut current = root;
    loop {
        let last = match &nodes[current as usize].content {
            Content::Mapping(pairs) => {
                pairs.iter().rev().find(|(key, _)| starts_by(nodes, *key, at)).map(|(_, value)| *value)
            }
            Content::List(items) => items.iter().rev().copied().find(|part| starts_by(nodes, *part, at)),
            _ => return open,
        };
        open.push(current);
        match last {
            Some(part) => current = part,
            None => return open,
        }
    }
}

fn starts_by(nodes: &[NodeData], part: u32, at: usize) -> bool {
    nodes[part as usize].span.start <= at
}
