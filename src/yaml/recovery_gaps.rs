//! What the holes that syntax errors leave have taken away, as far as the lines around them tell.

use std::ops::Range;

use super::syntax_recovery::RecoveryGap;
use super::tree::{Content, NodeData};
use crate::diagnostic::Source;

/// Whether the value behind a key that has none is gone: the key is followed by a hole that isn't beside the key.
pub(super) fn is_value_in_gap(holes: &[RecoveryGap], source: &Source, text: &str, key: &Range<usize>) -> bool {
    let is_filler = |letter: char| matches!(letter, ' ' | '\t' | '\r' | '\n' | ':');
    holes.iter().filter(|hole| hole.span.start >= key.end).any(|hole| {
        let between = &text[key.end..hole.span.start];
        // A tab hides how deep the line was.
        let has_tab = source.text[hole.span.clone()].trim_start_matches(' ').starts_with('\t');
        between.trim_matches(is_filler).is_empty()
            && (has_tab
                || !between.contains('\n')
                || column(text, hole.span.start) > column(text, key.start)
                || !is_entry(source.text[hole.span.clone()].lines().next().unwrap_or_default()))
    })
}

/// Whether an item that is nothing, at a place, is gone: a hole stands where it should.
pub(super) fn is_item_in_gap(holes: &[RecoveryGap], text: &str, at: usize) -> bool {
    let is_filler = |letter: char| matches!(letter, ' ' | '\t' | '-');
    holes.iter().any(|hole| {
        let between = &text[hole.span.start.min(at)..hole.span.start.max(at)];
        let same_line = between.len() <= hole.span.len() || at <= hole.span.start;
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

/// Marks the lists and mappings that the lost lines may have belonged to: of those that were open there, the ones that
/// begin in a line's own column, else the nearest on both sides.
pub(super) fn mark_incomplete(entries: &mut [NodeData], root: u32, holes: &[RecoveryGap], source: &Source) {
    for hole in holes {
        let open = open_at(entries, root, hole.span.start);
        let columns: Vec<(usize, u32)> =
            open.iter().map(|index| (column(&source.text, entries[*index as usize].span.start), *index)).collect();
        let within = open.iter().rev().find(|index| entries[**index as usize].span.end >= hole.span.end);
        if let Some(index) = within.filter(|index| is_flow(&entries[**index as usize], source)) {
            entries[*index as usize].is_incomplete = true;
            continue;
        }
        for column in columns_of(hole, source) {
            let Some(column) = column else {
                open.iter().for_each(|index| entries[*index as usize].is_incomplete = true);
                continue;
            };
            let exact = columns.iter().filter(|(own, _)| *own == column);
            let below = columns.iter().filter(|(own, _)| *own < column).max_by_key(|(own, _)| *own);
            let above = columns.iter().filter(|(own, _)| *own > column).min_by_key(|(own, _)| *own);
            let mut nearest: Vec<u32> = exact.map(|(_, index)| *index).collect();
            if nearest.is_empty() {
                nearest.extend(below.into_iter().chain(above).map(|(_, index)| *index));
            }
            for index in nearest {
                entries[index as usize].is_incomplete = true;
            }
        }
    }
}

fn is_flow(entry: &NodeData, source: &Source) -> bool {
    source.text[entry.span.clone()].starts_with(['[', '{'])
}

/// The columns in which the lines of a hole begin, where that says anything: a tab, dash, quote or bracket may be what
/// is wrong. The first line counts only where nothing stands before the hole.
fn columns_of(hole: &RecoveryGap, source: &Source) -> Vec<Option<usize>> {
    let start = hole.span.start - column(&source.text, hole.span.start);
    let mark = if start == 0 && source.text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let start = (start + mark).min(hole.span.start);
    let is_whole = source.text[start..hole.span.start].trim().is_empty();
    let mut columns: Vec<Option<usize>> = source.text[start..hole.span.end]
        .split(['\n', '\r'])
        .skip(usize::from(!is_whole))
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let text = line.trim_start_matches(' ');
            (!text.starts_with(['\t', '-', '"', '\'', '[', ']', '{', '}'])).then(|| line.len() - text.len())
        })
        .collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// The lists and mappings that were open at a place, the outermost first.
fn open_at(entries: &[NodeData], root: u32, at: usize) -> Vec<u32> {
    let mut open = Vec::new();
    let mut current = root;
    loop {
        let last = match &entries[current as usize].content {
            Content::Mapping(pairs) => {
                pairs.iter().rev().find(|(key, _)| starts_by(entries, *key, at)).map(|(_, value)| *value)
            }
            Content::List(items) => items.iter().rev().copied().find(|part| starts_by(entries, *part, at)),
            _ => return open,
        };
        open.push(current);
        match last {
            Some(part) => current = part,
            None => return open,
        }
    }
}

fn starts_by(entries: &[NodeData], part: u32, at: usize) -> bool {
    entries[part as usize].span.start <= at
}
