//! A text as several Markdown parsers read it.
//!
//! Forges differ in which extensions they have. So the text is parsed without any, with those of GitHub, and with all that
//! some forge has. What one of these readings shows is checked; only what is code in each of them, and by
//! [`code`](super::code), is free of the rules.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, LinkType, Options, Parser, Tag, TagEnd};

use super::code::{self, RawCode};
use super::lines::{line_of, lines};
use super::live::{CODE, Live, Reading};

/// A link or an image.
#[derive(Debug)]
pub(super) struct Link {
    /// All of it.
    pub(super) range: Range<usize>,
    /// Its address, decoded.
    pub(super) destination: String,
    /// Whether it has a title.
    pub(super) has_title: bool,
    /// Whether it is an address in angle brackets.
    pub(super) is_autolink: bool,
}

/// A block of code.
#[derive(Debug)]
pub(super) struct Block {
    /// All of it.
    pub(super) range: Range<usize>,
    /// What its fence says that it is; `None` if it is indented.
    pub(super) info: Option<String>,
}

/// How one parser reads a text.
#[derive(Debug, Default)]
pub(super) struct View {
    /// The code spans.
    pub(super) spans: Vec<Range<usize>>,
    /// The blocks of code.
    pub(super) blocks: Vec<Block>,
    /// The links.
    pub(super) links: Vec<Link>,
    /// The images.
    pub(super) images: Vec<Range<usize>>,
    /// The pieces of HTML.
    pub(super) html: Vec<Range<usize>>,
    /// The definitions of links that are used elsewhere.
    pub(super) definitions: Vec<Range<usize>>,
    /// The addresses of links, from the bracket before them.
    tails: Vec<Range<usize>>,
    /// The text that a reader sees.
    pub(super) live: Live,
    /// The ends of the links in `live`, as indexes.
    pub(super) linked: Vec<Range<usize>>,
}

/// A text with everything that is known of its structure.
#[derive(Debug)]
pub(super) struct Document<'a> {
    /// The text.
    pub(super) source: &'a str,
    /// Its lines.
    pub(super) lines: Vec<Range<usize>>,
    /// How parsers read it; that of GitHub is the first.
    pub(super) views: Vec<View>,
    /// What is code without a parser.
    pub(super) raw: RawCode,
    /// Whether each byte is code, by all.
    is_code: Vec<bool>,
    /// Whether each byte is a part of a link's address, by all parsers.
    is_tail: Vec<bool>,
}

impl<'a> Document<'a> {
    /// Reads a text.
    pub(super) fn new(source: &'a str) -> Self {
        let lines = lines(source);
        let github = Options::ENABLE_TABLES
            | Options::ENABLE_FOOTNOTES
            | Options::ENABLE_STRIKETHROUGH
            | Options::ENABLE_TASKLISTS
            | Options::ENABLE_GFM;
        let all = github
            | Options::ENABLE_MATH
            | Options::ENABLE_DEFINITION_LIST
            | Options::ENABLE_SUPERSCRIPT
            | Options::ENABLE_SUBSCRIPT
            | Options::ENABLE_WIKILINKS;
        let views = [github, Options::empty(), all].map(|options| View::new(source, options)).into();
        let raw = code::scan(source, &lines);
        let mut document = Self { source, lines, views, raw, is_code: Vec::new(), is_tail: Vec::new() };
        document.is_code = document.agreed_code();
        document.is_tail = document.agreed(|view| view.tails.clone());
        document
    }

    /// Whether a byte is code.
    pub(super) fn is_code(&self, at: usize) -> bool {
        self.is_code.get(at).copied().unwrap_or_default()
    }

    /// Whether a byte is a part of a link's address.
    pub(super) fn is_address(&self, at: usize) -> bool {
        self.is_tail.get(at).copied().unwrap_or_default()
    }

    /// The bytes that all parsers put into a range of some kind.
    fn agreed(&self, ranges: impl Fn(&View) -> Vec<Range<usize>>) -> Vec<bool> {
        let mut counts = vec![0; self.source.len()];
        for view in &self.views {
            for range in ranges(view) {
                counts.get_mut(range).into_iter().flatten().for_each(|count| *count += 1);
            }
        }
        counts.into_iter().map(|count| count >= self.views.len()).collect()
    }

    /// What is a code span by all, and what is a block of code by all.
    fn agreed_code(&self) -> Vec<bool> {
        let line = |index: &usize| self.lines[*index].clone();
        let fences = self.raw.fences.iter().map(|fence| self.lines[fence.first].start..self.lines[fence.last].end);
        let raw_blocks = self.covered(fences.chain(self.raw.indented.iter().map(line)));
        let raw_spans = self.covered(self.raw.spans.iter().cloned());
        let blocks = self.agreed(|view| view.blocks.iter().map(|block| block.range.clone()).collect());
        let spans = self.agreed(|view| view.spans.clone());
        let is_code = |at: usize| blocks[at] && raw_blocks[at] || spans[at] && raw_spans[at];
        (0..self.source.len()).map(is_code).collect()
    }

    /// The bytes that are in one of some ranges.
    fn covered(&self, ranges: impl Iterator<Item = Range<usize>>) -> Vec<bool> {
        let mut covered = vec![false; self.source.len()];
        for range in ranges {
            covered.get_mut(range).into_iter().flatten().for_each(|covered| *covered = true);
        }
        covered
    }

    /// The first and last lines of the fenced blocks of GitHub's reading.
    pub(super) fn parsed_fences(&self) -> Vec<(usize, usize)> {
        let Some(view) = self.views.first() else { return Vec::new() };
        let fenced = view.blocks.iter().filter(|block| block.info.is_some());
        let lines_of = |block: &super::document::Block| {
            let text = self.source[block.range.clone()].trim_end();
            let last = block.range.start + text.len().saturating_sub(1);
            (line_of(&self.lines, block.range.start), line_of(&self.lines, last))
        };
        fenced.map(lines_of).collect()
    }
}

impl View {
    fn new(source: &str, options: Options) -> Self {
        let mut view = Self::default();
        let parser = Parser::new_ext(source, options);
        let definitions = parser.reference_definitions().iter();
        view.definitions =
            definitions.filter(|(label, _)| !label.starts_with('^')).map(|(_, it)| it.span.clone()).collect();
        view.definitions.sort_unstable_by_key(|span| span.start);
        // Each open link: its number, and where its text ends so far.
        let mut open: Vec<(usize, usize)> = Vec::new();
        let mut in_code_block = false;
        for (event, range) in parser.into_offset_iter() {
            let is_end = matches!(event, Event::End(TagEnd::Link | TagEnd::Image));
            if !is_end && let Some((_, text_ends)) = open.last_mut() {
                *text_ends = range.end.max(*text_ends);
            }
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    in_code_block = true;
                    let info = match kind {
                        CodeBlockKind::Fenced(info) => Some(info.into_string()),
                        CodeBlockKind::Indented => None,
                    };
                    view.live.break_block(range.start);
                    view.blocks.push(Block { range, info });
                }
                Event::End(TagEnd::CodeBlock) => {
                    in_code_block = false;
                    view.live.push(CODE, range.start);
                    view.live.break_block(range.start);
                }
                Event::Text(_) if in_code_block => {}
                Event::Code(_) => {
                    view.live.push(CODE, range.start);
                    view.live.break_piece();
                    view.spans.push(range);
                }
                Event::Text(text) => view.live.push_text(&text, source, range.start),
                Event::InlineMath(text) | Event::DisplayMath(text) => {
                    view.live.break_piece();
                    view.live.push_text(&text, source, range.start + usize::from(source[range].starts_with("$$")) + 1);
                    view.live.break_piece();
                }
                Event::Html(_) => {
                    view.push_html(source, &range);
                    view.html.push(range);
                }
                Event::InlineHtml(_) => {
                    view.live.break_piece();
                    view.html.push(range);
                }
                Event::SoftBreak | Event::HardBreak => {
                    view.live.push('\n', range.start);
                    view.live.break_piece();
                }
                Event::FootnoteReference(_) => {
                    view.live.push(CODE, range.start);
                    view.live.break_piece();
                }
                Event::Start(Tag::Link { link_type, dest_url, title, .. }) => {
                    open.push((view.links.len(), range.start + 1));
                    view.live.break_piece();
                    view.linked.push(view.live.len()..view.live.len());
                    let is_autolink = matches!(link_type, LinkType::Autolink | LinkType::Email);
                    let destination = match link_type {
                        LinkType::Email => format!("mailto:{dest_url}"),
                        _ => dest_url.into_string(),
                    };
                    view.links.push(Link { range, destination, has_title: !title.is_empty(), is_autolink });
                }
                Event::End(TagEnd::Link) => {
                    view.live.break_piece();
                    if let Some((link, text_ends)) = open.pop() {
                        view.linked[link].end = view.live.len();
                        let tail = text_ends.min(range.end)..range.end;
                        view.tails.extend(source[tail.clone()].starts_with("](").then_some(tail));
                    }
                }
                Event::Start(Tag::Image { .. }) => {
                    view.live.break_piece();
                    view.images.push(range);
                }
                Event::Start(Tag::Emphasis | Tag::Strong | Tag::Strikethrough | Tag::Superscript | Tag::Subscript)
                | Event::End(
                    TagEnd::Emphasis
                    | TagEnd::Strong
                    | TagEnd::Strikethrough
                    | TagEnd::Superscript
                    | TagEnd::Subscript
                    | TagEnd::Image,
                ) => view.live.break_piece(),
                Event::Rule | Event::TaskListMarker(_) | Event::Start(_) | Event::End(_) => {
                    view.live.break_block(range.start);
                }
            }
        }
        view
    }

    /// Adds the text of a piece of HTML, without its tags.
    fn push_html(&mut self, source: &str, range: &Range<usize>) {
        let html = &source[range.clone()];
        let decoded = Live::of_source(html, |_| false, Reading::Decoded);
        let mut in_tag = false;
        for letter in decoded.letters {
            // Only a `<` of the source opens a tag, not a decoded one.
            let is_source = html[letter.at..].starts_with(letter.char);
            match letter.char {
                '<' if is_source => in_tag = true,
                '>' if is_source && in_tag => {
                    in_tag = false;
                    self.live.break_piece();
                }
                _ if in_tag => {}
                char => self.live.push(char, range.start + letter.at),
            }
        }
    }
}
