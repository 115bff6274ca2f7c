//! No-break spaces and the like in the indentation, as pasted from web pages and word processors.

use std::sync::Arc;

use super::syntax_recovery::{RecoveryGap, lines};
use crate::diagnostic::{Diagnostic, Fix, Source, SourceSpan};

/// Replaces such spaces, with one finding for neighboring lines; `None` if there are none. A block text may have them. The
/// text stays as long as the source.
pub(super) fn normalize_indentation(source: &Arc<Source>) -> Option<(String, Vec<RecoveryGap>, Vec<Diagnostic>)> {
    if source.text.is_ascii() {
        return None;
    }
    let all = lines::Lines { source, text: &source.text };
    let mut bytes = source.text.clone().into_bytes();
    let mut gaps = Vec::new();
    let mut groups: Vec<(usize, std::ops::Range<usize>, char)> = Vec::new();
    // The column of the key of a block text.
    let mut block: Option<usize> = None;
    for line in 1..=all.last() {
        let text = all.text(line);
        let white = text.len() - text.trim_start().len();
        let column = text[..white].chars().count();
        if text.trim().is_empty() || block.is_some_and(|key| column > key) {
            continue;
        }
        let meant = format!("{}{}", " ".repeat(column), &text[white..]);
        let (is_entry, is_header) = lines::is_entry_or_header(&meant);
        block = is_header.then_some(column);
        let Some(odd) = text[..white].chars().find(|letter| !letter.is_ascii()).filter(|_| is_entry) else { continue };
        let start = all.span(line).start;
        let end = start + white;
        bytes[start..end - column].fill(b'\n');
        bytes[end - column..end].fill(b' ');
        gaps.push(RecoveryGap { span: start..end, is_data_lost: false });
        match groups.last_mut() {
            Some((last, span, _)) if *last + 1 == line => {
                *last = line;
                span.end = end;
            }
            _ => groups.push((line, start..end, odd)),
        }
    }
    let found = groups.into_iter().map(|(last, span, odd)| finding(source, last, span, odd)).collect::<Vec<_>>();
    let text = String::from_utf8(bytes).ok()?;
    (!found.is_empty()).then_some((text, gaps, found))
}

/// The finding for some lines. `span` reaches from the indentation of the first line to that of the last one.
fn finding(source: &Arc<Source>, last: usize, span: std::ops::Range<usize>, odd: char) -> Diagnostic {
    let place = |span| SourceSpan { source: Arc::clone(source), range: span };
    let first = source.text[span.clone()].find(odd).map_or(span.start, |at| span.start + at);
    let name = match odd {
        '\u{a0}' | '\u{202f}' => "no-break space",
        '\u{3000}' => "ideographic space",
        _ => "Unicode space",
    };
    let (from, _) = source.position(span.start);
    let rows = if last > from { format!(", here and in the next {}", lines_of(last - from)) } else { String::new() };
    let message = format!("a {name} (U+{:04X}) in the indentation{rows}", u32::from(odd));
    let mut finding = Diagnostic::error("yaml-syntax", place(first..first + odd.len_utf8()), message)
        .help("indent with ordinary spaces: in YAML, any other is part of the key");
    let text = &source.text[span.clone()];
    let with = text.split_inclusive('\n').map(|line| {
        let white = line.len() - line.trim_start_matches(|letter: char| letter.is_whitespace() && letter != '\n').len();
        format!("{}{}", " ".repeat(line[..white].chars().count()), &line[white..])
    });
    // The width of a tab isn't known.
    let has_tab = text.lines().any(|line| line[..line.len() - line.trim_start().len()].contains('\t'));
    finding.fix = (!has_tab).then(|| Fix { span: place(span.clone()), replacement: with.collect() });
    finding
}

fn lines_of(count: usize) -> String {
    if count == 1 { "line".to_owned() } else { format!("{count} lines") }
}
