//! Builds the document from parser events, and reports errors in anchors, keys, tags and documents.

mod keys;
mod scalars;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use granit_parser::{Event, Parser, Span, StructureStyle};

use super::findings::{Findings, excerpt};
use super::limits::{FLATTEN, MAX_BYTES, MAX_DEPTH, MAX_EXPANDED, MAX_NODES, clamp_range, parser_options};
use super::node::{Content, FormatHints, NodeData, Tree};
use super::scalar::{self, Scalar, Style};
use super::syntax_recovery::{self, RecoveryGap};
use super::{recovery_gaps, unicode_spaces, utf8};
use crate::diagnostic::{Diagnostic, Source, SourceSpan};

/// The result of parsing.
pub(super) struct ParseOutcome {
    /// The document; partial after a syntax error, absent if nothing is left of it.
    pub(super) tree: Option<Arc<Tree>>,
    /// The findings.
    pub(super) found: Findings,
    /// The parts of the text that aren't in the tree.
    pub(super) gaps: Vec<SourceSpan>,
}

/// Parses a source's one document.
pub(super) fn parse_document(source: &Arc<Source>, hints: &'static FormatHints) -> ParseOutcome {
    let mut found = Findings::default();
    let place = |span| SourceSpan { source: Arc::clone(source), range: span };
    let nothing = |mut found: Findings, finding| {
        found.push(finding);
        ParseOutcome { tree: None, found, gaps: vec![place(0..source.text.len())] }
    };
    if source.text.len() > MAX_BYTES {
        let finding = Diagnostic::error("too-large", place(0..0), "the text is larger than 4 MiB").help(SPLIT);
        return nothing(found, finding);
    }
    let mut text = Cow::Borrowed(source.text.as_str());
    let (mut gaps, mut lost) = (Vec::new(), Vec::new());
    for finding in utf8::control_characters(source) {
        let span = finding.span.range.clone();
        if source.text[span.clone()].starts_with('\0') {
            return nothing(found, finding);
        }
        let end = utf8::escape_sequence_end(&source.text, span.end);
        found.push(finding);
        gaps.push(RecoveryGap { span: span.start..end, is_data_lost: false });
    }
    if !gaps.is_empty() {
        text = Cow::Owned(syntax_recovery::blank_gaps(&text, &gaps));
    } else if let Some((normalized, spaces, findings)) = unicode_spaces::normalize_indentation(source) {
        findings.into_iter().for_each(|finding| found.push(finding));
        (text, gaps) = (Cow::Owned(normalized), spaces);
    }
    let recovered_text;
    let mut outcome = TreeBuilder::new(source, &text, &[]).read();
    if let Err(ParseAbort::Syntax) = outcome {
        let recovered = match syntax_recovery::recover_syntax(source, text.to_string()) {
            Ok(recovered) => recovered,
            Err(finding) => return nothing(found, *finding),
        };
        recovered.found.into_iter().for_each(|finding| found.push(finding));
        if recovered.is_truncated {
            found.mark_truncated();
        }
        let kept: Vec<RecoveryGap>;
        (lost, kept) = recovered.gaps.into_iter().partition(|gap| gap.is_data_lost);
        gaps.extend(kept);
        recovered_text = recovered.text;
        outcome = TreeBuilder::new(source, &recovered_text, &lost).read();
    }
    let parsed = match outcome {
        Ok(parsed) => parsed,
        Err(ParseAbort::Finding(finding)) => return nothing(found, *finding),
        Err(ParseAbort::Syntax) => return ParseOutcome { tree: None, found, gaps: vec![place(0..source.text.len())] },
    };
    let TreeBuilder { mut nodes, found: more, weight, root, second, .. } = parsed;
    found.merge(more);
    let root = root.filter(|root| {
        !matches!(&nodes[*root as usize].content, Content::Scalar { text, value: Scalar::Null, .. } if text.is_empty())
    });
    let Some(root) = root else {
        if lost.is_empty() {
            let finding = Diagnostic::error("empty-file", place(0..0), "the file is empty");
            found.push(finding.help("write a job into it, or use another file"));
        }
        return ParseOutcome { tree: None, found, gaps: vec![place(0..source.text.len())] };
    };
    recovery_gaps::mark_incomplete(&mut nodes, root, &lost, source);
    if let Some(start) = second {
        nodes[root as usize].is_incomplete = true;
        lost.push(RecoveryGap { span: start..source.text.len(), is_data_lost: true });
    }
    gaps.append(&mut lost);
    let gaps = gaps.into_iter().map(|gap| place(gap.span)).collect();
    ParseOutcome { tree: Some(Arc::new(Tree { source: Arc::clone(source), nodes, root, weight, hints })), found, gaps }
}

/// The help for a file that is too large.
const SPLIT: &str = "move long texts into files of their own";
/// A list or mapping that isn't closed yet.
struct Frame {
    index: u32,
    anchor: usize,
    /// The items of a list, or the keys and values of a mapping in turn.
    items: Vec<u32>,
    mapping: bool,
    flow: bool,
    /// The number of levels below.
    height: usize,
    weight_before: u64,
}

/// The help for an alias without an anchor.
const ANCHOR: &str = "put the anchor `&NAME` before its value, or quote a string that starts with `*`";

/// A node that aliases can refer to.
enum Anchor {
    /// Its list or mapping isn't closed yet.
    Open,
    Closed {
        index: u32,
        height: usize,
        weight: u64,
    },
}

struct TreeBuilder<'a> {
    source: &'a Arc<Source>,
    /// The parsed text: the source's text without the gaps.
    text: &'a str,
    /// The gaps with lost text.
    gaps: &'a [RecoveryGap],
    nodes: Vec<NodeData>,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Anchor>,
    /// The anchors of scalars with their places, and all anchors that an alias refers to.
    scalar_anchors: Vec<(usize, Range<usize>)>,
    used_anchors: HashSet<usize>,
    has_unknown_alias: bool,
    found: Findings,
    weight: u64,
    root: Option<u32>,
    /// Where a second document starts.
    second: Option<usize>,
}

/// Why parsing stopped.
enum ParseAbort {
    /// An error after which the rest can't be read.
    Finding(Box<Diagnostic>),
    /// A syntax error.
    Syntax,
}

impl<'a> TreeBuilder<'a> {
    fn new(source: &'a Arc<Source>, text: &'a str, gaps: &'a [RecoveryGap]) -> Self {
        Self {
            source,
            text,
            gaps,
            nodes: Vec::new(),
            frames: Vec::new(),
            anchors: HashMap::new(),
            scalar_anchors: Vec::new(),
            used_anchors: HashSet::new(),
            has_unknown_alias: false,
            found: Findings::default(),
            weight: 0,
            root: None,
            second: None,
        }
    }

    fn read(mut self) -> Result<Self, ParseAbort> {
        let mut documents = 0;
        for event in Parser::new_from_str_with_options(self.text, parser_options()) {
            let (event, span) = event.map_err(|_| ParseAbort::Syntax)?;
            let range = self.range(&span);
            if self.nodes.len() >= MAX_NODES {
                return Err(self.stop("too-large", range, format!("the file has more than {MAX_NODES} values"), SPLIT));
            }
            match event {
                Event::DocumentStart(..) => {
                    documents += 1;
                    if documents > 1 {
                        self.second = Some(range.start);
                        let help = "one file holds one document; move this one to its own";
                        self.report("multiple-documents", range, "a second document starts here", help);
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
                    self.has_unknown_alias = true;
                    let message = format!("no anchor `&{}` before this alias", excerpt(&name));
                    self.push_invalid("unknown-anchor", range, message, ANCHOR);
                }
                _ => {}
            }
        }
        // An unknown alias may be meant for any of them.
        if self.gaps.is_empty() && !self.has_unknown_alias {
            self.unused_anchors();
        }
        Ok(self)
    }

    fn range(&self, span: &Span) -> Range<usize> {
        clamp_range(&self.source.text, span.byte_range().unwrap_or(0..0))
    }

    fn place(&self, span: Range<usize>) -> SourceSpan {
        SourceSpan { source: Arc::clone(self.source), range: span }
    }

    fn stop(&self, code: &'static str, span: Range<usize>, message: String, help: &str) -> ParseAbort {
        ParseAbort::Finding(Box::new(Diagnostic::error(code, self.place(span), message).help(help)))
    }

    fn report(&mut self, code: &'static str, span: Range<usize>, message: impl Into<String>, help: &str) {
        let finding = Diagnostic::error(code, self.place(span), message).help(help);
        self.found.push(finding);
    }

    fn push(&mut self, span: Range<usize>, content: Content) -> u32 {
        self.nodes.push(NodeData { span, content, key: None, parent: None, is_incomplete: false });
        (self.nodes.len() - 1) as u32
    }

    /// Reports an error and adds a node in its place.
    fn push_invalid(&mut self, code: &'static str, span: Range<usize>, message: String, help: &str) {
        self.report(code, span.clone(), message, help);
        let index = self.push(span, Content::Invalid);
        self.attach(index, 0);
    }

    /// Adds a finished node to its list or mapping.
    fn attach(&mut self, index: u32, height: usize) {
        let Some(frame) = self.frames.last_mut() else {
            self.root.get_or_insert(index);
            return;
        };
        frame.height = frame.height.max(height + 1);
        let entry = &mut self.nodes[index as usize];
        let is_absent = entry.span.is_empty() && matches!(&entry.content, Content::Scalar { value: Scalar::Null, .. });
        if is_absent && !frame.mapping && recovery_gaps::is_item_in_gap(self.gaps, self.text, entry.span.start) {
            entry.content = Content::Invalid;
        }
        frame.items.push(index);
        if frame.mapping && frame.items.len().is_multiple_of(2) {
            let key = frame.items[frame.items.len() - 2];
            let key_span = self.nodes[key as usize].span.clone();
            let entry = &mut self.nodes[index as usize];
            entry.key = Some(key);
            if is_absent {
                if recovery_gaps::is_value_in_gap(self.gaps, self.source, self.text, &key_span) {
                    entry.content = Content::Invalid;
                }
                entry.span = key_span;
            }
        }
    }

    fn open(&mut self, span: Range<usize>, anchor: usize, mapping: bool, flow: bool) -> Result<(), ParseAbort> {
        if self.frames.len() >= MAX_DEPTH {
            return Err(self.stop("too-deep", span, format!("nested more than {MAX_DEPTH} levels deep"), FLATTEN));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, Anchor::Open);
        }
        let weight_before = self.weight;
        self.weight += 1;
        let index = self.push(span, Content::Invalid);
        self.frames.push(Frame { index, anchor, items: Vec::new(), mapping, flow, height: 0, weight_before });
        Ok(())
    }

    fn alias(&mut self, anchor: usize, span: Range<usize>) {
        let name = excerpt(&self.text[span.clone()]);
        self.used_anchors.insert(anchor);
        let (code, message, help) = match self.anchors.get(&anchor) {
            Some(Anchor::Closed { height, .. }) if self.frames.len() + height > MAX_DEPTH => {
                ("too-deep", format!("the alias `{name}` nests more than {MAX_DEPTH} levels deep"), FLATTEN)
            }
            Some(Anchor::Closed { weight, .. }) if self.weight + weight > MAX_EXPANDED => {
                let message = format!("with the alias `{name}`, the file has too many values");
                ("too-large", message, "use fewer aliases of aliases")
            }
            Some(Anchor::Closed { index, height, weight }) => {
                let (target, height) = (*index, *height);
                self.weight += weight;
                let index = self.push(span, Content::Alias(target));
                return self.attach(index, height);
            }
            Some(Anchor::Open) => {
                let message = format!("the alias `{name}` refers to a value that contains it");
                ("cyclic-alias", message, "write the value out, or move the anchor to a part without the alias")
            }
            None => ("unknown-anchor", format!("no anchor for the alias `{name}`"), ANCHOR),
        };
        self.push_invalid(code, span, message, help);
    }

    fn close(&mut self, end: &Range<usize>) {
        let Some(frame) = self.frames.pop() else { return };
        for item in &frame.items {
            self.nodes[*item as usize].parent = Some(frame.index);
        }
        let span = match (frame.flow, frame.items.first()) {
            (false, Some(first)) => {
                let mut start = self.nodes[*first as usize].span.start;
                if !frame.mapping {
                    start = dash_before(self.text, start);
                }
                let ends = frame.items.iter().map(|item| self.nodes[*item as usize].span.end);
                start..ends.max().unwrap_or(start).max(start)
            }
            _ => self.nodes[frame.index as usize].span.start..end.end,
        };
        // A lost item could have been anything.
        let lacks_items = !frame.mapping
            && frame.items.iter().any(|item| matches!(self.nodes[*item as usize].content, Content::Invalid));
        let content = if frame.mapping { self.mapping(&frame.items, &span) } else { Content::List(frame.items.into()) };
        let entry = &mut self.nodes[frame.index as usize];
        entry.span = span;
        entry.content = content;
        entry.is_incomplete = lacks_items;
        if frame.anchor != 0 {
            let weight = self.weight - frame.weight_before;
            self.anchors.insert(frame.anchor, Anchor::Closed { index: frame.index, height: frame.height, weight });
        }
        self.attach(frame.index, frame.height);
    }
}

/// The start of a block list, which is the dash before its first item.
fn dash_before(text: &str, item: usize) -> usize {
    let before = text[..item].trim_end();
    if before.ends_with('-') { before.len() - 1 } else { item }
}
