//! What is code in a text, found without a Markdown parser.
//!
//! A second opinion: it knows less of Markdown than a parser does, and says "code" only where no renderer can see anything
//! else. Only what the parser calls code, too, is free of the rules.

use std::collections::HashMap;
use std::ops::Range;

use super::lines::{Prefix, fence_run, prefix, unquoted};

/// A fenced block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fence {
    /// Its first and its last line, those of the fences.
    pub(super) first: usize,
    /// See above.
    pub(super) last: usize,
    /// Whether a fence ends it.
    pub(super) is_closed: bool,
}

/// What is code by this module.
#[derive(Debug, Default)]
pub(super) struct RawCode {
    /// The fenced blocks.
    pub(super) fences: Vec<Fence>,
    /// The code spans, with their backticks.
    pub(super) spans: Vec<Range<usize>>,
    /// The lines that can be indented code.
    pub(super) indented: Vec<usize>,
    /// Whether each line can be in a block of HTML, where Markdown isn't read.
    pub(super) in_html: Vec<bool>,
}

/// Tags that begin a block of HTML even within a paragraph.
const BLOCK_TAGS: &[&str] = &["details", "summary"];
/// Tags that do so alone on a line.
const INLINE_TAGS: &[&str] = &["br", "sub", "sup", "kbd"];

/// Finds code.
pub(super) fn scan(source: &str, lines: &[Range<usize>]) -> RawCode {
    let lines: Vec<Line<'_>> = lines.iter().map(|range| Line::new(source, range.clone())).collect();
    let mut code = RawCode::default();
    find_blocks(&lines, &mut code);
    let mut in_fence = vec![false; lines.len()];
    for fence in &code.fences {
        in_fence[fence.first..=fence.last].fill(true);
    }
    code.indented = indented(&lines, &in_fence);
    find_spans(source, &lines, &in_fence, &mut code);
    code
}

/// A line.
struct Line<'a> {
    range: Range<usize>,
    text: &'a str,
    prefix: Prefix,
    is_blank: bool,
}

impl<'a> Line<'a> {
    fn new(source: &'a str, range: Range<usize>) -> Self {
        let text = &source[range.clone()];
        Self { range, text, prefix: prefix(text), is_blank: unquoted(text).is_empty() }
    }

    /// The line without the markers before its text.
    fn rest(&self) -> &'a str {
        &self.text[self.prefix.length..]
    }

    /// Whether it explains a term, on forges that have lists of terms.
    fn is_definition(&self) -> bool {
        self.rest().strip_prefix([':', '~']).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
    }

    /// Whether it starts a new block, so that no code span continues from the previous line.
    fn begins_block(&self) -> bool {
        self.prefix.has_marker || self.is_definition() || self.rest().starts_with(['#', '|', '<'])
    }
}

/// Finds fenced blocks, and the lines that can be in a block of HTML: from a tag at the beginning of a line to the next
/// empty line.
fn find_blocks(lines: &[Line<'_>], code: &mut RawCode) {
    let mut open: Option<(char, usize)> = None;
    let mut in_html = false;
    for (index, line) in lines.iter().enumerate() {
        if let Some((mark, length)) = open {
            let is_end = closes(line.text, mark, length);
            if let Some(fence) = code.fences.last_mut() {
                fence.last = index;
                fence.is_closed = is_end;
            }
            open = open.filter(|_| !is_end);
        } else {
            in_html = !line.is_blank && (in_html || begins_html(line.rest()));
            let is_fence = |(mark, length): &(char, usize)| *mark == '~' || !line.rest()[*length..].contains('`');
            open = fence_run(line.rest()).filter(is_fence).filter(|_| !in_html);
            if open.is_some() {
                code.fences.push(Fence { first: index, last: index, is_closed: false });
            }
        }
        code.in_html.push(in_html);
    }
}

/// The lines that are indented by four columns after an empty line, and can't belong to an item of a list.
fn indented(lines: &[Line<'_>], in_fence: &[bool]) -> Vec<usize> {
    let mut indented = Vec::new();
    let (mut in_list, mut was_blank, mut was_code) = (false, true, false);
    for (index, line) in lines.iter().enumerate() {
        let is_text = !line.is_blank && !in_fence[index];
        if line.prefix.has_marker || line.is_definition() {
            in_list = true;
        } else if is_text && was_blank && line.prefix.indent == 0 {
            in_list = false;
        }
        was_code = is_text && !in_list && line.prefix.indent >= 4 && (was_blank || was_code);
        if was_code {
            indented.push(index);
        }
        was_blank = !is_text;
    }
    indented
}

/// Finds code spans.
fn find_spans(source: &str, lines: &[Line<'_>], in_fence: &[bool], code: &mut RawCode) {
    // The lines so far in which a span can continue.
    let mut region: Option<Range<usize>> = None;
    let (mut is_table, mut begins_paragraph) = (false, true);
    // Some parsers read what follows an unpaired run of backticks in another way, up to the end of the paragraph.
    let mut is_clear = true;
    for (index, line) in lines.iter().enumerate() {
        let is_text = !line.is_blank && !in_fence[index];
        if !is_text || is_table || code.in_html[index] || line.begins_block() {
            is_clear &= region.take().is_none_or(|region| spans(source, region, is_table, &mut code.spans));
        }
        if is_text && begins_paragraph {
            is_table = has_delimiter_row(&lines[index..], &in_fence[index..]);
        }
        begins_paragraph = !is_text;
        is_clear |= !is_text;
        if is_text && is_clear && !code.in_html[index] {
            region = Some(region.map_or(line.range.start, |region| region.start)..line.range.end);
        }
    }
    if let Some(region) = region {
        spans(source, region, is_table, &mut code.spans);
    }
}

/// Whether a line ends a fenced block.
fn closes(line: &str, mark: char, length: usize) -> bool {
    let text = unquoted(line);
    fence_run(text).is_some_and(|(end, run)| end == mark && run >= length && text[run..].trim().is_empty())
}

/// Whether a block of HTML can begin with a text.
fn begins_html(text: &str) -> bool {
    let Some(tag) = text.strip_prefix('<') else { return false };
    let tag = tag.strip_prefix('/').unwrap_or(tag);
    let length = tag.bytes().take(16).take_while(u8::is_ascii_alphanumeric).count();
    let (name, rest) = tag.split_at(length);
    let is_one_of = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    let is_alone = rest.trim_start_matches([' ', '/']).strip_prefix('>').is_some_and(|rest| rest.trim().is_empty());
    is_one_of(BLOCK_TAGS) || is_alone && is_one_of(INLINE_TAGS)
}

/// Whether the lines up to the next empty one have a row that makes a table of them.
fn has_delimiter_row(lines: &[Line<'_>], in_fence: &[bool]) -> bool {
    let lines = lines.iter().zip(in_fence).take_while(|(line, in_fence)| !**in_fence && !line.is_blank);
    let is_mark = |char| matches!(char, '|' | ':' | '-' | ' ' | '\t');
    // The markers before the text may include the first hyphens, as those of lists.
    lines.into_iter().any(|(line, _)| line.text.contains('-') && line.rest().chars().all(is_mark))
}

/// Finds the code spans of a paragraph up to the first unmatched run of backticks. Returns whether all are matched.
fn spans(source: &str, region: Range<usize>, is_table: bool, found: &mut Vec<Range<usize>>) -> bool {
    let text = &source[region.clone()];
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, _) in text.match_indices('`') {
        match runs.last_mut() {
            Some(run) if run.end == at => run.end += 1,
            _ => runs.push(at..at + 1),
        }
    }
    // The runs of each length that weren't passed yet, the next one last.
    let mut by_length: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, run) in runs.iter().enumerate().rev() {
        by_length.entry(run.len()).or_default().push(index);
    }
    let footnote = odd_footnote(text);
    // Some parsers let an address include backticks, up to the next space.
    let (mut passed, mut in_address) = (0, false);
    let mut index = 0;
    while index < runs.len() {
        let run = runs[index].clone();
        let backslashes = text[..run.start].len() - text[..run.start].trim_end_matches('\\').len();
        let begins = run.start + backslashes % 2;
        in_address = ends_in_address(&text[passed..run.start], in_address);
        passed = run.start;
        if in_address || begins >= footnote {
            return false;
        }
        if begins == run.end {
            index += 1;
            continue;
        }
        let closing = by_length.get_mut(&(run.end - begins)).and_then(|later| {
            while later.last().is_some_and(|later| *later <= index) {
                later.pop();
            }
            later.last().copied()
        });
        let Some(closing) = closing else { return false };
        let span = begins..runs[closing].end;
        if !is_table || !has_cell_border(&text[span.clone()]) {
            found.push(region.start + span.start..region.start + span.end);
        }
        passed = span.end;
        index = closing + 1;
    }
    true
}

/// Where something begins that looks like a reference to a footnote, but isn't one: GitHub shows its source, backticks
/// included. The end of the text if there is nothing.
fn odd_footnote(text: &str) -> usize {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_odd = |(at, opening): &(usize, &str)| {
        let name = &text.as_bytes()[at + opening.len()..];
        name.get(name.iter().take(100).take_while(|byte| is_name(byte)).count()) != Some(&b']')
    };
    text.match_indices("[^").find(is_odd).map_or(text.len(), |(at, _)| at)
}

/// Whether a text ends within an address that a renderer makes a link of. `is_inside` says whether it begins within one.
fn ends_in_address(text: &str, is_inside: bool) -> bool {
    let last = text.rfind(|char: char| char.is_whitespace() || char == '<');
    let word = last.map_or(text, |last| &text[last..]);
    let word = word.strip_prefix('<').and_then(|word| word.split_once('>')).map_or(word, |(_, word)| word);
    let www = word.as_bytes().windows(4).any(|part| part.eq_ignore_ascii_case(b"www."));
    (is_inside && last.is_none()) || word.contains(':') && (word.contains(":/") || word.contains("mailto:")) || www
}

/// Whether a text has a `|` without a backslash.
fn has_cell_border(text: &str) -> bool {
    text.match_indices('|').any(|(at, _)| (at - text[..at].trim_end_matches('\\').len()).is_multiple_of(2))
}

#[cfg(test)]
mod tests {
    use super::super::lines::lines;
    use super::*;

    #[test]
    fn spans_are_paired_within_their_paragraph() {
        for (text, expected) in [
            ("a `b` ``c`d`` e", vec!["`b`", "``c`d``"]),
            ("a \\`b` c` d", vec!["` c`"]),
            ("a \\\\`b` c", vec!["`b`"]),
            ("a `b\nc` d", vec!["`b\nc`"]),
            ("a `b\n\nc` d", vec![]),
            ("a `b\n- c` d `e`", vec![]),
            ("| `a | b` |\n|---|---|\n| `c` | `d \\| e` |", vec!["`c`", "`d \\| e`"]),
            ("a `b | c`\n\n| d |\n|---|\n| e |", vec!["`b | c`"]),
            ("<details>\n`a`\n\n`b`", vec!["`b`"]),
            ("a\n<br>\n`b`", vec![]),
            ("`a` [^1] `b` [^c d `e`", vec!["`a`", "`b`"]),
            ("<br>\n`b`", vec![]),
            ("```\n`a`\n```\n`b`", vec!["`b`"]),
            ("https://a`b` c `d", vec![]),
            ("www.a`b`", vec![]),
            ("`https://a`,`b` <https://c>`d` https://e `f`", vec!["`https://a`", "`b`", "`d`", "`f`"]),
            ("`a ``b``", vec![]),
            ("```` a ```b``` ````", vec!["```` a ```b``` ````"]),
        ] {
            let spans = scan(text, &lines(text)).spans;
            assert_eq!(spans.iter().map(|span| &text[span.clone()]).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn fences_are_paired() {
        let fence = |first, last, is_closed| Fence { first, last, is_closed };
        for (text, expected) in [
            ("```\na\n```", vec![fence(0, 2, true)]),
            ("````\n```\na\n```\n````\nb", vec![fence(0, 4, true)]),
            ("~~~ a`b\n```\n~~~~  \n```", vec![fence(0, 2, true), fence(3, 3, false)]),
            ("- ```\n  a\n  ```\n> ~~~\n> ~~~", vec![fence(0, 2, true), fence(3, 4, true)]),
            ("``` a`b\nc", vec![]),
            ("```\n``` a\n- ```\n", vec![fence(0, 2, false)]),
        ] {
            assert_eq!(scan(text, &lines(text)).fences, expected, "{text}");
        }
    }
}
