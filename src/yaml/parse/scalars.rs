//! Scalars and tags.

use std::ops::Range;

use granit_parser::{ScalarStyle, Span, Tag};

use super::{Anchor, Content, Diagnostic, Scalar, Style, TreeBuilder, excerpt, scalar};

/// The help for a value that doesn't fit its tag.
const TAG: &str = "remove the tag, or write a value that fits it";

impl TreeBuilder<'_> {
    pub(super) fn scalar(&mut self, text: &str, style: ScalarStyle, anchor: usize, tag: Option<&Tag>, span: &Span) {
        let mut range = self.range(span);
        let (style, text) = match style {
            ScalarStyle::Plain if range.is_empty() => (Style::Plain, ""),
            ScalarStyle::Plain => (Style::Plain, text),
            ScalarStyle::SingleQuoted => (Style::Single, text),
            ScalarStyle::DoubleQuoted => (Style::Double, text),
            ScalarStyle::Literal => (Style::Literal, text),
            ScalarStyle::Folded => (Style::Folded, text),
        };
        let mut text = text;
        if matches!(style, Style::Literal | Style::Folded) {
            text = self.without_added_line_end(text, &range);
            range.end = range.start + self.text[range.clone()].trim_end().len();
            if text.trim().is_empty() {
                range = self.header(range);
            }
        }
        if self.gaps.iter().any(|gap| gap.span.start <= range.start && range.end <= gap.span.end) && !range.is_empty() {
            let index = self.push(range, Content::Invalid);
            return self.attach(index, 0);
        }
        let untagged = if style == Style::Plain { scalar::plain(text) } else { Scalar::String };
        let value = match tag {
            None => Some(untagged),
            Some(tag) if tag.suffix() == "!" && tag.handle().is_empty() => self.lone_tag(text, style, &range, span),
            Some(tag) => match tag.core_suffix() {
                None => {
                    self.unknown_tag(tag, span);
                    Some(untagged)
                }
                Some(core) => scalar::tagged(core, text).or_else(|| {
                    let message = format!("`{}` doesn't fit its tag `!!{core}`", excerpt(text));
                    self.report("wrong-type", range.clone(), message, TAG);
                    None
                }),
            },
        };
        let weight = 1 + text.len() as u64 / 32;
        self.weight += weight;
        // A value that doesn't fit its tag is reported once.
        let content = value.map_or(Content::Invalid, |value| Content::Scalar { text: text.into(), style, value });
        let index = self.push(range.clone(), content);
        if anchor != 0 {
            self.anchors.insert(anchor, Anchor::Closed { index, height: 0, weight });
            self.scalar_anchors.extend(self.anchor_before(range.start, style).map(|place| (anchor, place)));
        }
        self.attach(index, 0);
    }

    /// The anchor before a value, which for a block text is in the line of its header.
    fn anchor_before(&self, value: usize, style: Style) -> Option<Range<usize>> {
        let mut before = self.text[..value].trim_end();
        if matches!(style, Style::Literal | Style::Folded) {
            before = before.trim_end_matches(|letter: char| !letter.is_whitespace()).trim_end();
        }
        let line = before.rfind(['\n', '\r']).map_or(0, |end| end + 1);
        let start = line + before[line..].rfind('&')?;
        let is_whole = !before[start..].contains(char::is_whitespace);
        is_whole.then_some(start..before.len())
    }

    /// The `|` or `>` of an empty block text, which the parser places at the next value.
    fn header(&self, range: Range<usize>) -> Range<usize> {
        let before = self.text[..range.start].trim_end();
        let line = before.len() - before.rsplit(['\n', '\r']).next().unwrap_or_default().len();
        match self.text[line..before.len()].rfind([' ', ':']).map(|space| line + space + 1) {
            Some(at) if self.text[at..].starts_with(['|', '>']) => at..before.len(),
            _ => match self.text[..range.start].rfind(['|', '>']) {
                Some(at) => at..at + 1,
                None => range,
            },
        }
    }

    /// A block text without the line break that the parser adds at the end of the input.
    fn without_added_line_end<'t>(&self, text: &'t str, range: &Range<usize>) -> &'t str {
        let last = self.text.rsplit(['\n', '\r']).next().unwrap_or_default();
        match text.strip_suffix('\n') {
            Some(unended) if range.end == self.text.len() && !last.trim_matches(' ').is_empty() => unended,
            _ => text,
        }
    }

    /// Reports a `!` before a value, which YAML takes away. Before a string without quotes it can only be meant as its first
    /// character; what isn't a string without it may be meant as one, and nothing is known about an empty value.
    fn lone_tag(&mut self, text: &str, style: Style, range: &Range<usize>, span: &Span) -> Option<Scalar> {
        let tag = span.tag_span().map_or_else(|| range.clone(), |span| self.range(&span));
        let message = "this `!` is a tag of YAML, and no part of the text";
        let finding = Diagnostic::error("unknown-tag", self.place(tag.start..range.end.max(tag.end)), message);
        let written = self.text.get(tag.start..range.end).unwrap_or_default();
        let is_text = style == Style::Plain && scalar::plain(text) == Scalar::String && !written.contains(['\n', '\r']);
        self.found.push(match is_text {
            true => {
                let quoted = format!("'{}'", written.replace('\'', "''"));
                finding.help(format!("put the text in quotes: {}", excerpt(&quoted))).replace_with(quoted)
            }
            false if text.is_empty() => finding.help("put a text that starts with `!` in quotes"),
            false => finding.help("put the whole text in quotes if `!` belongs to it; else remove the `!`"),
        });
        (!text.is_empty()).then_some(Scalar::String)
    }

    /// Reports an anchor that no alias refers to: it is probably the start of a text.
    pub(super) fn unused_anchors(&mut self) {
        let anchors = std::mem::take(&mut self.scalar_anchors);
        for (_, place) in anchors.into_iter().filter(|(anchor, _)| !self.used_anchors.contains(anchor)) {
            let name = excerpt(&self.text[place.clone()]);
            let message = format!("`{name}` is an anchor of YAML that no alias uses, and no part of the text");
            let finding = Diagnostic::warning("unused-anchor", self.place(place), message);
            self.found.push(finding.help("put a text that starts with `&` in quotes, or remove the anchor"));
        }
    }

    fn unknown_tag(&mut self, tag: &Tag, span: &Span) {
        let range = span.tag_span().map_or_else(|| self.range(span), |span| self.range(&span));
        let message = match tag.suffix() == "!" && tag.handle().is_empty() {
            true => "this `!` is a tag of YAML, and no part of the text".to_owned(),
            false => format!("unknown tag `{}`", excerpt(&tag.original())),
        };
        let finding = Diagnostic::error("unknown-tag", self.place(range), message)
            .help("put a text that starts with `!` in quotes; to use text from a file, write `{ file: PATH }`");
        self.found.push(finding);
    }

    pub(super) fn collection_tag(&mut self, tag: Option<&Tag>, expected: &str, span: &Span) {
        match tag.map(|tag| (tag, tag.core_suffix())) {
            None => {}
            Some((_, Some(core))) if core == expected => {}
            Some((tag, None)) => self.unknown_tag(tag, span),
            Some((_, Some(core))) => {
                let range = span.tag_span().map_or_else(|| self.range(span), |span| self.range(&span));
                self.report("wrong-type", range, format!("the tag `!!{core}` doesn't fit what follows"), TAG);
            }
        }
    }
}
