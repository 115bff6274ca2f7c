//! From parser events to the arena. Whatever is wrong with anchors, keys, tags and documents is found here.

mod aliases;
mod keys;
mod scalars;

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use granit_parser::{Event, Options, Parser, Span, StructureStyle};

use self::aliases::{ANCHOR, Anchor};
use super::findings::{Findings, excerpt};
use super::mend::{self, Hole};
use super::scalar::{self, Scalar};
use super::tree::{Content, Entry, Style, Synonyms, Tree};
use super::{MAX_DEPTH, MAX_EXPANDED, MAX_NODES, bytes, spaces, torn};
use crate::diagnostic::{Diagnostic, Place, Source};

/// What came of a source's text.
pub(super) struct Built {
    /// The one document; partial where the syntax is wrong, absent where nothing is left of it.
    pub(super) tree: Option<Arc<Tree>>,
    /// Everything found on the way.
    pub(super) found: Findings,
    /// What of the text isn't in the tree.
    pub(super) holes: Vec<Place>,
}

/// Reads a source's one document.
pub(super) fn tree(source: &Arc<Source>, synonyms: Synonyms) -> Built {
    let mut found = Findings::default();
    let place = |span| Place { source: Arc::clone(source), span };
    let nothing = |mut found: Findings, finding| {
        found.push(finding);
        Built { tree: None, found, holes: vec![place(0..source.text.len())] }
    };
    if source.text.len() > bytes::MAX_BYTES {
        let finding = Diagnostic::error("too-large", place(0..0), "the text is larger than 4 MiB").help(SPLIT);
        return nothing(found, finding);
    }
    let mut text = Cow::Borrowed(source.text.as_str());
    let (mut holes, mut lost) = (Vec::new(), Vec::new());
    for finding in bytes::control_characters(source) {
        let span = finding.place.span.clone();
        if source.text[span.clone()].starts_with('\0') {
            return nothing(found, finding);
        }
        let end = bytes::escape_sequence_end(&source.text, span.end);
        found.push(finding);
        holes.push(Hole { span: span.start..end, lost: false });
    }
    if !holes.is_empty() {
        text = Cow::Owned(mend::blanked(&text, &holes));
    } else if let Some(spaces) = spaces::in_indentation(source) {
        spaces.found.into_iter().for_each(|finding| found.push(finding));
        holes = spaces.holes;
        text = Cow::Owned(spaces.text);
    }
    let mut outcome = Builder::new(source, &text, &[]).read();
    if let Err(Stop::Syntax) = outcome {
        let mended = match mend::mend(source, text.into_owned()) {
            Ok(mended) => mended,
            Err(finding) => return nothing(found, *finding),
        };
        mended.found.into_iter().for_each(|finding| found.push(finding));
        if mended.cut_short {
            found.cut_short();
        }
        let (gone, kept): (Vec<Hole>, Vec<Hole>) = mended.holes.into_iter().partition(|hole| hole.lost);
        holes.extend(kept);
        outcome = Builder::new(source, &mended.text, &gone).read();
        lost = gone;
    }
    let parsed = match outcome {
        Ok(parsed) => parsed,
        Err(Stop::Finding(finding)) => return nothing(found, *finding),
        Err(Stop::Syntax) => return Built { tree: None, found, holes: vec![place(0..source.text.len())] },
    };
    let Parsed { mut entries, found: more, weight, root, second } = parsed;
    found.take(more);
    let root = root.filter(|root| {
        !matches!(&entries[*root as usize].content, Content::Scalar { text, value: Scalar::Null, .. } if text.is_empty())
    });
    let Some(root) = root else {
        if lost.is_empty() {
            let finding = Diagnostic::error("empty-file", place(0..0), "the file is empty");
            found.push(finding.help("write something into it, or name another file"));
        }
        return Built { tree: None, found, holes: vec![place(0..source.text.len())] };
    };
    torn::mark(&mut entries, root, &lost, source);
    if let Some(start) = second {
        entries[root as usize].torn = true;
        lost.push(Hole { span: start..source.text.len(), lost: true });
    }
    holes.append(&mut lost);
    let holes = holes.into_iter().map(|hole| place(hole.span)).collect();
    Built { tree: Some(Arc::new(Tree { source: Arc::clone(source), entries, root, weight, synonyms })), found, holes }
}

/// What to do where a file is too large.
const SPLIT: &str = "move long texts into files of their own";
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

struct Builder<'a> {
    source: &'a Arc<Source>,
    /// What is parsed: the source's text, but for the holes.
    text: &'a str,
    /// Where something that the author wrote is gone.
    holes: &'a [Hole],
    entries: Vec<Entry>,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Anchor>,
    found: Findings,
    weight: u64,
    root: Option<u32>,
    /// Where a second document starts.
    second: Option<usize>,
}

/// What a text that the parser takes holds.
struct Parsed {
    entries: Vec<Entry>,
    found: Findings,
    weight: u64,
    root: Option<u32>,
    /// Where a second document starts.
    second: Option<usize>,
}

/// What ends the reading of a text.
enum Stop {
    /// A mistake behind which there is no sense in reading on.
    Finding(Box<Diagnostic>),
    /// The parser doesn't take the text.
    Syntax,
}

/// How the parser is set up.
pub(super) fn options() -> Options {
    granit_parser::options! {
        emit_unresolved_aliases: true,
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    }
}

impl<'a> Builder<'a> {
    fn new(source: &'a Arc<Source>, text: &'a str, holes: &'a [Hole]) -> Self {
        Self {
            source,
            text,
            holes,
            entries: Vec::new(),
            frames: Vec::new(),
            anchors: HashMap::new(),
            found: Findings::default(),
            weight: 0,
            root: None,
            second: None,
        }
    }

    fn read(mut self) -> Result<Parsed, Stop> {
        let mut documents = 0;
        for event in Parser::new_from_str_with_options(self.text, options()) {
            let (event, span) = event.map_err(|_| Stop::Syntax)?;
            let range = self.range(&span);
            if self.entries.len() >= MAX_NODES {
                return Err(self.stop("too-large", range, format!("the file has more than {MAX_NODES} values"), SPLIT));
            }
            match event {
                Event::DocumentStart(..) => {
                    documents += 1;
                    if documents > 1 {
                        self.second = Some(range.start);
                        let help = "one file holds one document; move this one to its own";
                        self.report("second-document", range, "a second document starts here", help);
                        break;
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
        let Self { entries, found, weight, root, second, .. } = self;
        Ok(Parsed { entries, found, weight, root, second })
    }

    fn range(&self, span: &Span) -> Range<usize> {
        clip(&self.source.text, span.byte_range().unwrap_or(0..0))
    }

    fn place(&self, span: Range<usize>) -> Place {
        Place { source: Arc::clone(self.source), span }
    }

    fn stop(&self, code: &'static str, span: Range<usize>, message: String, help: &str) -> Stop {
        Stop::Finding(Box::new(Diagnostic::error(code, self.place(span), message).help(help)))
    }

    fn report(&mut self, code: &'static str, span: Range<usize>, message: impl Into<String>, help: &str) {
        let finding = Diagnostic::error(code, self.place(span), message).help(help);
        self.found.push(finding);
    }

    fn push(&mut self, span: Range<usize>, content: Content) -> u32 {
        self.entries.push(Entry { span, content, key: None, torn: false });
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
        let entry = &mut self.entries[index as usize];
        if !frame.mapping
            && entry.span.is_empty()
            && matches!(&entry.content, Content::Scalar { value: Scalar::Null, .. })
            && torn::is_gone_item(self.holes, self.text, entry.span.start)
        {
            entry.content = Content::Broken;
        }
        frame.items.push(index);
        if frame.mapping && frame.items.len().is_multiple_of(2) {
            let key = frame.items[frame.items.len() - 2];
            let key_span = self.entries[key as usize].span.clone();
            let entry = &mut self.entries[index as usize];
            entry.key = Some(key);
            if entry.span.is_empty() && matches!(&entry.content, Content::Scalar { value: Scalar::Null, .. }) {
                if torn::is_gone(self.holes, self.source, self.text, &key_span) {
                    entry.content = Content::Broken;
                }
                entry.span = key_span;
            }
        }
    }

    fn open(&mut self, span: Range<usize>, anchor: usize, mapping: bool, flow: bool) -> Result<(), Stop> {
        if self.frames.len() >= MAX_DEPTH {
            return Err(self.stop("too-deep", span, format!("nested more than {MAX_DEPTH} levels deep"), FLATTEN));
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
                    start = dash_before(self.text, start);
                }
                let ends = frame.items.iter().map(|item| self.entries[*item as usize].span.end);
                start..ends.max().unwrap_or(start).max(start)
            }
            _ => self.entries[frame.index as usize].span.start..end.end,
        };
        // Which item is gone can't be told, so there may have been any.
        let lacks_items = !frame.mapping
            && frame.items.iter().any(|item| matches!(self.entries[*item as usize].content, Content::Broken));
        let content = if frame.mapping { self.mapping(&frame.items, &span) } else { Content::List(frame.items.into()) };
        let entry = &mut self.entries[frame.index as usize];
        entry.span = span;
        entry.content = content;
        entry.torn = lacks_items;
        if frame.anchor != 0 {
            let weight = self.weight - frame.weight_before;
            self.anchors.insert(frame.anchor, Anchor::Closed { index: frame.index, height: frame.height, weight });
        }
        self.attach(frame.index, frame.height);
    }
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
