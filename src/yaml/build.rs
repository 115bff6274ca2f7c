//! From parser events to the arena. Whatever is wrong with anchors, keys, tags and documents is found here.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle, Tag};

use super::findings::{Findings, excerpt};
use super::scalar::{self, Scalar};
use super::tree::{Content, Entry, Style, Tree};
use super::{MAX_DEPTH, MAX_EXPANDED, MAX_NODES, bytes, syntax};
use crate::diagnostic::{Diagnostic, Place, Source};

/// The source's one document, if it has one and its syntax is right, and everything found on the way.
pub(super) fn tree(source: &Arc<Source>) -> (Option<Arc<Tree>>, Findings) {
    let mut builder = Builder {
        source,
        entries: Vec::new(),
        frames: Vec::new(),
        anchors: HashMap::new(),
        found: Findings::default(),
        weight: 0,
        root: None,
    };
    let outcome = builder.read();
    let Builder { entries, mut found, weight, root, .. } = builder;
    if let Err(stop) = outcome {
        found.push(*stop);
        return (None, found);
    }
    match root.filter(|root| {
        !matches!(&entries[*root as usize].content, Content::Scalar { text, value: Scalar::Null, .. } if text.is_empty())
    }) {
        Some(root) => (Some(Arc::new(Tree { source: Arc::clone(source), entries, root, weight })), found),
        None => {
            let place = Place { source: Arc::clone(source), span: 0..0 };
            found.push(Diagnostic::error("empty-file", place, "the file is empty").help("write something into it, or name another file"));
            (None, found)
        }
    }
}

/// What to do where a file is too large.
const SPLIT: &str = "move long texts into files of their own";
/// What to do where an alias has no anchor.
const ANCHOR: &str =
    "put the anchor `&NAME` before the value that it stands for, or quote a string that starts with `*`";
/// What to do where a tag and its value differ.
const TAG: &str = "remove the tag, or write a value that fits it";
/// What to do where values lie too deep in one another.
pub(super) const FLATTEN: &str = "nest fewer lists and mappings in one another";

/// A list or mapping that isn't closed yet.
struct Frame {
    index: u32,
    anchor: usize,
    /// Of a mapping, keys and values by turns.
    items: Vec<u32>,
    mapping: bool,
    flow: bool,
    /// How many levels lie below.
    height: usize,
    weight_before: u64,
}

enum Anchor {
    /// Its list or mapping isn't closed yet.
    Open,
    Closed {
        index: u32,
        height: usize,
        weight: u64,
    },
}

struct Builder<'a> {
    source: &'a Arc<Source>,
    entries: Vec<Entry>,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Anchor>,
    found: Findings,
    weight: u64,
    root: Option<u32>,
}

/// What ends the reading of a file.
type Stop = Box<Diagnostic>;

impl Builder<'_> {
    fn read(&mut self) -> Result<(), Stop> {
        if self.source.text.len() > bytes::MAX_BYTES {
            let finding = self.stop("too-large", 0..0, "the text is larger than 4 MiB".to_owned());
            return Err(Box::new(finding.help(SPLIT)));
        }
        if let Some(finding) = bytes::control_character(self.source) {
            return Err(Box::new(finding));
        }
        let options = granit_parser::options! {
            emit_unresolved_aliases: true,
            emit_comments: false,
            flow_nesting_limit: MAX_DEPTH,
            block_nesting_limit: MAX_DEPTH,
        };
        let source = Arc::clone(self.source);
        let mut documents = 0;
        for event in Parser::new_from_str_with_options(&source.text, options) {
            let (event, span) = event.map_err(|error| Box::new(syntax::finding(&source, &error)))?;
            let range = self.range(&span);
            if self.entries.len() >= MAX_NODES {
                let finding = self.stop("too-large", range, format!("the file has more than {MAX_NODES} values"));
                return Err(Box::new(finding.help(SPLIT)));
            }
            match event {
                Event::DocumentStart(..) => {
                    documents += 1;
                    if documents > 1 {
                        let finding = self.stop("second-document", range, "a second document starts here".to_owned());
                        return Err(Box::new(finding.help("one file holds one document; move this one to its own")));
                    }
                }
                Event::Scalar(text, style, anchor, tag) => self.scalar(&text, style, anchor, tag.as_deref(), &span),
                Event::SequenceStart(style, anchor, tag) => {
                    self.collection_tag(tag.as_deref(), "seq", &span);
                    self.open(range, anchor, false, style == StructureStyle::Flow)?;
                }
                Event::MappingStart(style, anchor, tag) => {
                    self.collection_tag(tag.as_deref(), "map", &span);
                    self.open(range, anchor, true, style == StructureStyle::Flow)?;
                }
                Event::SequenceEnd | Event::MappingEnd => self.close(&range),
                Event::Alias(anchor) => self.alias(anchor, range),
                Event::UnresolvedAlias(name) => {
                    let message = format!("no anchor `&{}` before this alias", excerpt(&name));
                    self.report("unknown-anchor", range.clone(), message, ANCHOR);
                    self.broken(range);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn range(&self, span: &Span) -> Range<usize> {
        clip(&self.source.text, span.byte_range().unwrap_or(0..0))
    }

    fn place(&self, span: Range<usize>) -> Place {
        Place { source: Arc::clone(self.source), span }
    }

    fn stop(&self, code: &'static str, span: Range<usize>, message: String) -> Stop {
        Box::new(Diagnostic::error(code, self.place(span), message))
    }

    fn report(&mut self, code: &'static str, span: Range<usize>, message: impl Into<String>, help: &str) {
        let finding = Diagnostic::error(code, self.place(span), message).help(help);
        self.found.push(finding);
    }

    fn push(&mut self, span: Range<usize>, content: Content) -> u32 {
        self.entries.push(Entry { span, content, key: None });
        (self.entries.len() - 1) as u32
    }

    fn broken(&mut self, span: Range<usize>) {
        let index = self.push(span, Content::Broken);
        self.attach(index, 0);
    }

    /// Puts a finished node where it belongs.
    fn attach(&mut self, index: u32, height: usize) {
        let Some(frame) = self.frames.last_mut() else {
            self.root.get_or_insert(index);
            return;
        };
        frame.height = frame.height.max(height + 1);
        frame.items.push(index);
        if frame.mapping && frame.items.len().is_multiple_of(2) {
            let key = frame.items[frame.items.len() - 2];
            let key_span = self.entries[key as usize].span.clone();
            let entry = &mut self.entries[index as usize];
            entry.key = Some(key);
            if entry.span.is_empty() && matches!(&entry.content, Content::Scalar { value: Scalar::Null, .. }) {
                entry.span = key_span;
            }
        }
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, anchor: usize, tag: Option<&Tag>, span: &Span) {
        let mut range = self.range(span);
        let (style, text) = match style {
            ScalarStyle::Plain if range.is_empty() => (Style::Plain, ""),
            ScalarStyle::Plain => (Style::Plain, text),
            ScalarStyle::SingleQuoted => (Style::Single, text),
            ScalarStyle::DoubleQuoted => (Style::Double, text),
            ScalarStyle::Literal => (Style::Literal, text),
            ScalarStyle::Folded => (Style::Folded, text),
        };
        if matches!(style, Style::Literal | Style::Folded) {
            range.end = range.start + self.source.text[range.clone()].trim_end().len();
        }
        let untagged = if style == Style::Plain { scalar::plain(text) } else { Scalar::String };
        let value = match tag {
            None => untagged,
            Some(tag) if tag.suffix() == "!" && tag.handle().is_empty() => Scalar::String,
            Some(tag) => match tag.core_suffix() {
                None => {
                    self.unknown_tag(tag, span);
                    untagged
                }
                Some(core) => scalar::tagged(core, text).unwrap_or_else(|| {
                    let message = format!("`{}` doesn't fit its tag `!!{core}`", excerpt(text));
                    self.report("wrong-type", range.clone(), message, TAG);
                    untagged
                }),
            },
        };
        let weight = 1 + text.len() as u64 / 32;
        self.weight += weight;
        let index = self.push(range, Content::Scalar { text: text.into(), style, value });
        if anchor != 0 {
            self.anchors.insert(anchor, Anchor::Closed { index, height: 0, weight });
        }
        self.attach(index, 0);
    }

    fn unknown_tag(&mut self, tag: &Tag, span: &Span) {
        let range = span.tag_span().map_or_else(|| self.range(span), |span| self.range(&span));
        let finding =
            Diagnostic::error("unknown-tag", self.place(range), format!("unknown tag `{}`", excerpt(&tag.original())))
                .help("remove it, or put a string that starts with `!` in quotes");
        self.found.push(finding);
    }

    fn collection_tag(&mut self, tag: Option<&Tag>, own: &str, span: &Span) {
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

    fn open(&mut self, span: Range<usize>, anchor: usize, mapping: bool, flow: bool) -> Result<(), Stop> {
        if self.frames.len() >= MAX_DEPTH {
            let finding = self.stop("too-deep", span, format!("nested more than {MAX_DEPTH} levels deep"));
            return Err(Box::new(finding.help(FLATTEN)));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, Anchor::Open);
        }
        let weight_before = self.weight;
        self.weight += 1;
        let index = self.push(span, Content::Broken);
        self.frames.push(Frame { index, anchor, items: Vec::new(), mapping, flow, height: 0, weight_before });
        Ok(())
    }

    fn close(&mut self, end: &Range<usize>) {
        let Some(frame) = self.frames.pop() else { return };
        let span = match (frame.flow, frame.items.first()) {
            (false, Some(first)) => {
                let mut start = self.entries[*first as usize].span.start;
                if !frame.mapping {
                    start = dash_before(&self.source.text, start);
                }
                let ends = frame.items.iter().map(|item| self.entries[*item as usize].span.end);
                start..ends.max().unwrap_or(start).max(start)
            }
            _ => self.entries[frame.index as usize].span.start..end.end,
        };
        let content = if frame.mapping { self.mapping(&frame.items, &span) } else { Content::List(frame.items.into()) };
        let entry = &mut self.entries[frame.index as usize];
        entry.span = span;
        entry.content = content;
        if frame.anchor != 0 {
            let weight = self.weight - frame.weight_before;
            self.anchors.insert(frame.anchor, Anchor::Closed { index: frame.index, height: frame.height, weight });
        }
        self.attach(frame.index, frame.height);
    }

    /// The entries of a mapping, without those whose key is wrong.
    fn mapping(&mut self, items: &[u32], span: &Range<usize>) -> Content {
        let mut pairs: Vec<(u32, u32)> = Vec::with_capacity(items.len() / 2);
        let mut first: HashMap<&str, u32> = HashMap::with_capacity(items.len() / 2);
        let mut wrong = Vec::new();
        let mut holds_template = false;
        for (key, value) in items.chunks_exact(2).map(|pair| (pair[0], pair[1])) {
            let key_span = self.entries[key as usize].span.clone();
            let place = self.place(key_span.clone());
            let mut target = key;
            while let Content::Alias(next) = self.entries[target as usize].content {
                target = next;
            }
            match &self.entries[target as usize].content {
                Content::Broken => {}
                Content::Scalar { text, style: Style::Plain, value: Scalar::String } if &**text == "<<" => wrong.push(
                    Diagnostic::error("merge-key", place, "merge keys (`<<`) are not part of YAML 1.2")
                        .help("write the keys out, or let an alias (`*name`) stand for a whole value"),
                ),
                Content::Scalar { text, .. } => match first.get(&**text) {
                    None => {
                        first.insert(text, key);
                        pairs.push((key, value));
                    }
                    Some(earlier) => {
                        let earlier = self.place(self.entries[*earlier as usize].span.clone());
                        let message = format!("key `{}` is set twice in this mapping", excerpt(text));
                        wrong.push(
                            Diagnostic::error("duplicate-key", place, message)
                                .label(earlier, "first set here")
                                .help("remove one of the two"),
                        );
                    }
                },
                Content::Mapping(_) if self.source.text[span.clone()].starts_with("{{") => {
                    holds_template = true;
                    let place = self.place(span.clone());
                    wrong.push(template_without_quotes(place));
                }
                _ => wrong.push(
                    Diagnostic::error("wrong-type", place, "a key must be a scalar")
                        .help("write a single word as the key, in quotes if it begins with a bracket"),
                ),
            }
        }
        for finding in wrong {
            self.found.push(finding);
        }
        if holds_template { Content::Broken } else { Content::Mapping(pairs.into()) }
    }

    fn alias(&mut self, anchor: usize, span: Range<usize>) {
        let name = excerpt(&self.source.text[span.clone()]);
        match self.anchors.get(&anchor) {
            Some(Anchor::Closed { index, height, weight }) => {
                let (target, height, weight) = (*index, *height, *weight);
                if self.frames.len() + height > MAX_DEPTH {
                    let message = format!("the alias `{name}` nests more than {MAX_DEPTH} levels deep");
                    self.report("too-deep", span.clone(), message, FLATTEN);
                    self.broken(span);
                } else if self.weight + weight > MAX_EXPANDED {
                    let message = format!("with the alias `{name}` the file stands for too many values");
                    self.report("too-large", span.clone(), message, "use fewer aliases of aliases");
                    self.broken(span);
                } else {
                    self.weight += weight;
                    let index = self.push(span, Content::Alias(target));
                    self.attach(index, height);
                }
            }
            Some(Anchor::Open) => {
                let message = format!("the alias `{name}` stands for something that it is part of");
                self.report(
                    "cyclic-alias",
                    span.clone(),
                    message,
                    "write the value out, or move the anchor to a part without it",
                );
                self.broken(span);
            }
            None => {
                self.report("unknown-anchor", span.clone(), format!("no anchor for the alias `{name}`"), ANCHOR);
                self.broken(span);
            }
        }
    }
}

fn template_without_quotes(place: Place) -> Diagnostic {
    let written = place.source.text[place.span.clone()].to_owned();
    let finding = Diagnostic::error("yaml-syntax", place, "a value that starts with `{{` needs quotes")
        .help("without quotes `{` opens a mapping");
    if written.contains(['"', '\\', '\n', '\r']) { finding } else { finding.replace_with(format!("\"{written}\"")) }
}

/// A range that lies within the text, on character boundaries.
pub(super) fn clip(text: &str, range: Range<usize>) -> Range<usize> {
    let boundary = |mut at: usize| {
        at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let start = boundary(range.start);
    start..boundary(range.end).max(start)
}

/// A block list begins at its first dash; what is known is where its first item does.
fn dash_before(text: &str, item: usize) -> usize {
    let before = text[..item].trim_end();
    if before.ends_with('-') { before.len() - 1 } else { item }
}
