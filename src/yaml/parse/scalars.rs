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
            Some(tag) if tag.suffix() == "!" && tag.handle().is_empty() => Some(Scalar::String),
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
        let index = self.push(range, content);
        if anchor != 0 {
            self.anchors.insert(anchor, Anchor::Closed { index, height: 0, weight });
        }
        self.attach(index, 0);
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

    fn unknown_tag(&mut self, tag: &Tag, span: &Span) {
        let range = span.tag_span().map_or_else(|| self.range(span), |span| self.range(&span));
        let finding =
            Diagnostic::error("unknown-tag", self.place(range), format!("unknown tag `{}`", excerpt(&tag.original())))
                .help("remove it, or put a string that starts with `!` in quotes");
        self.found.push(finding);
    }

    pub(super) fn collection_tag(&mut self, tag: Option<&Tag>, own: &str, span: &Span) {
        match tag.map(|tag| (tag, tag.core_suffix())) {
            None => {}
            Some((_, Some(core))) if core == own => {}
            Some((tag, None)) => self.unknown_tag(tag, span),
            Some((_, Some(core))) => {
                let range = span.tag_span().map_or_else(|| self.range(span), |span| self.range(&span));
                self.report("wrong-type", range, format!("the tag `!!{core}` doesn't fit what follows"), TAG);
            }
        }
    }
}
