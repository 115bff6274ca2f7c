//! A parsed document: an arena of nodes with their spans, without cycles, and handles to its parts.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::decode_error::ErrorDetail;
use super::findings::excerpt;
use super::scalar::{self, Scalar, Style};
use super::scalar_spans::ScalarSpanMap;
use crate::diagnostic::{Source, SourceSpan, Suggestion, suggest};

#[derive(Debug)]
pub(super) enum Content {
    /// The decoded text and what the core schema makes of it.
    Scalar {
        text: Box<str>,
        style: Style,
        value: Scalar,
    },
    List(Box<[u32]>),
    /// Keys and values; no two keys are equal, all are scalars.
    Mapping(Box<[(u32, u32)]>),
    /// Refers to an earlier, complete node.
    Alias(u32),
    /// An error that is already reported.
    Invalid,
}

#[derive(Debug)]
pub(super) struct NodeData {
    pub(super) span: Range<usize>,
    pub(super) content: Content,
    /// The key that this node is the value of.
    pub(super) key: Option<u32>,
    /// The list or mapping that this node is a part of.
    pub(super) parent: Option<u32>,
    /// Whether a list or mapping may have lost entries to a syntax error.
    pub(super) is_incomplete: bool,
}

#[derive(Debug)]
pub(super) struct Tree {
    pub(super) source: Arc<Source>,
    pub(super) nodes: Vec<NodeData>,
    pub(super) root: u32,
    /// The number of nodes and 32-byte pieces of text, aliases followed.
    pub(super) weight: u64,
    pub(super) hints: &'static FormatHints,
}

/// Keys, each with the keys of other formats that mean the same. A word may have several meanings: the first whose key is
/// known and free in the mapping counts.
pub type KeyAliases = &'static [(&'static str, &'static [&'static str])];

/// What is known about the keys of a file format. The decoder uses it to make its findings more helpful.
#[derive(Debug)]
pub struct FormatHints {
    /// Keys of other formats.
    pub key_aliases: KeyAliases,
    /// Completes an error at a value, or at an unknown key, before it is reported.
    pub complete_error: fn(&Node, &mut ErrorDetail),
    /// Whether a key that a mapping lacks is in a wrong place, and reported there.
    pub is_misplaced: fn(&Node, &str) -> bool,
}

/// Hints for a format about which nothing is known.
pub static NO_HINTS: FormatHints =
    FormatHints { key_aliases: &[], complete_error: |_, _| (), is_misplaced: |_, _| false };

/// A key in lower case without dashes and underscores.
fn fold_key(key: &str) -> impl Iterator<Item = char> + '_ {
    key.chars().filter(|letter| !matches!(letter, '-' | '_')).flat_map(char::to_lowercase)
}

impl Tree {
    /// Guesses which of a mapping's fields an unknown key means: one that differs only in case, dashes and underscores, one
    /// that the key is an alias of (preferably an `absent` one), or the nearest.
    pub(super) fn guess_key(
        &self,
        word: &str,
        fields: &[&'static str],
        absent: &[&'static str],
    ) -> Option<Suggestion<'static>> {
        let same = |other: &str| fold_key(word).eq(fold_key(other));
        if let Some(name) = fields.iter().copied().find(|key| same(key)) {
            return Some(Suggestion { name, is_certain: true });
        }
        let is_meaning = |(_, aliases): &&(_, &[&str])| aliases.iter().any(|alias| same(alias));
        let meanings = || self.hints.key_aliases.iter().filter(is_meaning).map(|(here, _)| *here);
        let fitting = || meanings().filter(|here| fields.contains(here));
        if let Some(name) = fitting().find(|here| absent.contains(here)).or_else(|| fitting().next()) {
            // A word with two meanings, or one that is a key of another mapping, is uncertain.
            let is_key = self.hints.key_aliases.iter().any(|(here, _)| same(here));
            return Some(Suggestion { name, is_certain: !is_key && meanings().count() == 1 });
        }
        suggest(word, fields.iter().copied())
    }

    pub(super) fn node_data(&self, index: u32) -> &NodeData {
        &self.nodes[index as usize]
    }

    /// The node that an alias refers to, or the node itself.
    pub(super) fn resolve_alias(&self, index: u32) -> u32 {
        let mut index = index;
        while let Content::Alias(target) = self.node_data(index).content {
            index = target;
        }
        index
    }

    /// The content, aliases followed.
    pub(super) fn content(&self, index: u32) -> &Content {
        &self.node_data(self.resolve_alias(index)).content
    }

    pub(super) fn place(&self, index: u32) -> SourceSpan {
        SourceSpan { source: Arc::clone(&self.source), range: self.node_data(index).span.clone() }
    }

    /// The text of a scalar as decoded, whatever its type; `None` for anything else.
    pub(super) fn text(&self, index: u32) -> Option<&str> {
        match self.content(index) {
            Content::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The entry of a mapping with the key `name`.
    pub(super) fn pair(&self, index: u32, name: &str) -> Option<(u32, u32)> {
        match self.content(index) {
            Content::Mapping(pairs) => pairs.iter().copied().find(|(key, _)| self.text(*key) == Some(name)),
            _ => None,
        }
    }
}

/// The name by which our deserializer recognizes [`Node`].
pub(super) const NODE: &str = "$legwork::yaml::Node";

thread_local! {
    /// Carries a node from the deserializer to the visitor that it calls next.
    static PASSED_NODE: RefCell<Option<Node>> = const { RefCell::new(None) };
}

/// An undecoded part of a document. Cloning is cheap: the document is shared.
#[derive(Clone)]
pub struct Node {
    pub(super) tree: Arc<Tree>,
    pub(super) index: u32,
    pub(super) is_placeholder: bool,
}

/// The kind of a [`Node`] in the core schema; aliases are followed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NodeKind<'a> {
    /// `null`, `~` or nothing at all.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// An integer; one beyond 128 bits is a [`NodeKind::Number`].
    Integer(i128),
    /// Any other number, or infinity, or NaN.
    Number(f64),
    /// A string, decoded.
    String(&'a str),
    /// A list; see [`Node::items`].
    List,
    /// A mapping; see [`Node::entries`].
    Mapping,
    /// An error that is already reported, such as an unknown anchor or a missing key. A `Deserialize` may fail on it with
    /// any error, which isn't shown.
    Invalid,
}

impl Node {
    pub(super) fn root(tree: Arc<Tree>) -> Self {
        let index = tree.root;
        Self { tree, index, is_placeholder: false }
    }

    fn sibling(&self, index: u32) -> Self {
        Self { tree: Arc::clone(&self.tree), index, is_placeholder: self.is_placeholder }
    }

    /// Its place; for an alias, the alias. The place of a missing value (`key:`) is its key.
    pub fn place(&self) -> SourceSpan {
        self.tree.place(self.index)
    }

    /// The place to report something missing in it: its own key, else its first key, else itself.
    pub fn place_for_missing(&self) -> SourceSpan {
        if let Some(key) = self.own_key() {
            return key.place();
        }
        match &self.tree.node_data(self.index).content {
            Content::Mapping(pairs) if !self.tree.source.text[self.place().range].starts_with('{') => {
                pairs.first().map_or_else(|| self.place(), |(key, _)| self.tree.place(*key))
            }
            _ => self.place(),
        }
    }

    /// Whether its decoded value is a placeholder, because the real one is wrong. Findings about it are noise.
    pub fn is_placeholder(&self) -> bool {
        self.is_placeholder
    }

    /// Whether it is a list or mapping that may have lost entries to a syntax error.
    pub fn is_incomplete(&self) -> bool {
        self.tree.node_data(self.tree.resolve_alias(self.index)).is_incomplete
    }

    /// Its content; a placeholder has none.
    fn content(&self) -> &Content {
        if self.is_placeholder { &Content::Invalid } else { self.tree.content(self.index) }
    }

    /// Its kind.
    pub fn kind(&self) -> NodeKind<'_> {
        match self.content() {
            Content::Scalar { text, value, .. } => match *value {
                Scalar::Null => NodeKind::Null,
                Scalar::Boolean(value) => NodeKind::Boolean(value),
                Scalar::Integer(value) => NodeKind::Integer(value),
                Scalar::Number(value) => NodeKind::Number(value),
                Scalar::String => NodeKind::String(text),
            },
            Content::List(_) => NodeKind::List,
            Content::Mapping(_) => NodeKind::Mapping,
            Content::Invalid | Content::Alias(_) => NodeKind::Invalid,
        }
    }

    /// The text of a string; `None` for any other scalar.
    pub fn as_str(&self) -> Option<&str> {
        match self.kind() {
            NodeKind::String(text) => Some(text),
            _ => None,
        }
    }

    /// The text of any scalar without quotes and escapes (`1.10` stays `1.10`).
    pub fn text(&self) -> Option<&str> {
        match self.content() {
            Content::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Whether it is `null`, `~` or nothing at all.
    pub fn is_null(&self) -> bool {
        self.kind() == NodeKind::Null
    }

    /// Whether it is a scalar without quotes that isn't a block text.
    pub fn is_plain(&self) -> bool {
        matches!(self.content(), Content::Scalar { style: Style::Plain, .. })
    }

    /// The number in an unquoted string like `1_000`, which is a number only in YAML 1.1.
    pub fn without_underscores(&self) -> Option<String> {
        let text = self.as_str().filter(|text| self.is_plain() && text.contains('_'))?;
        let fits = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'-' | b'+'));
        let bare = text.replace('_', "");
        let digit = |letter: char| letter.is_ascii_digit();
        let ends = |text: &str| text.starts_with(digit) && text.ends_with(digit);
        (fits && ends(text.trim_start_matches(['+', '-'])) && scalar::plain(&bare) != Scalar::String).then_some(bare)
    }

    /// The place of a scalar's text within its quotes, or of any other value. For an alias, the place of its value.
    pub fn content_place(&self) -> SourceSpan {
        let target = self.tree.resolve_alias(self.index);
        let mut place = self.tree.place(target);
        if let Content::Scalar { style: Style::Single | Style::Double, .. } = self.tree.content(target)
            && place.range.len() >= 2
        {
            place.range = place.range.start + 1..place.range.end - 1;
        }
        place
    }

    /// The items of a list in order; none for any other kind.
    pub fn items(&self) -> impl Iterator<Item = Self> + '_ {
        let items: &[u32] = match self.content() {
            Content::List(items) => items,
            _ => &[],
        };
        items.iter().map(|item| self.sibling(*item))
    }

    /// The keys and values of a mapping in order; none for any other kind.
    pub fn entries(&self) -> impl Iterator<Item = (Self, Self)> + '_ {
        let pairs: &[(u32, u32)] = match self.content() {
            Content::Mapping(pairs) => pairs,
            _ => &[],
        };
        pairs.iter().map(|(key, value)| (self.sibling(*key), self.sibling(*value)))
    }

    /// The value of a mapping's key.
    pub fn get(&self, key: &str) -> Option<Self> {
        self.entries().find(|(name, _)| name.text() == Some(key)).map(|(_, value)| value)
    }

    /// The key that it is the value of.
    pub fn own_key(&self) -> Option<Self> {
        self.tree.node_data(self.index).key.map(|key| self.sibling(key))
    }

    /// The list or mapping that it is a part of.
    pub fn parent(&self) -> Option<Self> {
        self.tree.node_data(self.index).parent.map(|parent| self.sibling(parent))
    }

    /// The keys that lead to it from the root; an item of a list has the key "".
    pub fn path(&self) -> Vec<&str> {
        let mut path = Vec::new();
        let mut node = self.tree.node_data(self.index);
        while let Some(parent) = node.parent {
            path.push(node.key.and_then(|key| self.tree.text(key)).unwrap_or_default());
            node = self.tree.node_data(parent);
        }
        path.reverse();
        path
    }

    /// Whether it is a block text, after `|` or `>`.
    pub fn is_block(&self) -> bool {
        matches!(self.content(), Content::Scalar { style: Style::Literal | Style::Folded, .. })
    }

    /// Describes it for a message: `the string "yes"`, `a list`, `nothing`.
    pub fn describe(&self) -> String {
        let text = || excerpt(self.text().unwrap_or_default());
        match self.kind() {
            NodeKind::Null if self.text() == Some("") => "nothing".to_owned(),
            NodeKind::Null => "null".to_owned(),
            NodeKind::Boolean(value) => format!("the boolean {value}"),
            NodeKind::Integer(_) => format!("the integer {}", text()),
            NodeKind::Number(_) => format!("the number {}", text()),
            NodeKind::String(_) => format!("the string \"{}\"", text()),
            NodeKind::List => "a list".to_owned(),
            NodeKind::Mapping => "a mapping".to_owned(),
            NodeKind::Invalid => "an error".to_owned(),
        }
    }

    /// Converts it to JSON. Keys are strings, and so are numbers that JSON doesn't have. A value that is an error is null.
    pub fn to_json(&self) -> serde_json::Value {
        self.convert_to_json(false)
    }

    /// Like [`Self::to_json`], without the entries of mappings whose values are errors.
    pub fn to_json_without_errors(&self) -> serde_json::Value {
        self.convert_to_json(true)
    }

    fn convert_to_json(&self, without_errors: bool) -> serde_json::Value {
        use serde_json::Value;
        match self.kind() {
            NodeKind::Null | NodeKind::Invalid => Value::Null,
            NodeKind::Boolean(value) => Value::Bool(value),
            NodeKind::String(text) => Value::String(text.to_owned()),
            NodeKind::List => Value::Array(self.items().map(|item| item.convert_to_json(without_errors)).collect()),
            NodeKind::Mapping => Value::Object(
                self.entries()
                    .filter(|(_, value)| !without_errors || value.kind() != NodeKind::Invalid)
                    .map(|(key, value)| {
                        (key.text().unwrap_or_default().to_owned(), value.convert_to_json(without_errors))
                    })
                    .collect(),
            ),
            NodeKind::Integer(value) => i64::try_from(value)
                .map(Value::from)
                .or_else(|_| u64::try_from(value).map(Value::from))
                .unwrap_or_else(|_| Value::from(value as f64)),
            NodeKind::Number(value) => serde_json::Number::from_f64(value)
                .map_or_else(|| Value::String(self.text().unwrap_or_default().to_owned()), Value::Number),
        }
    }

    /// Maps ranges of its decoded text to the source. For an alias, of its value.
    pub fn span_map(&self) -> ScalarSpanMap {
        let target = self.tree.resolve_alias(self.index);
        let whole = self.tree.place(target);
        match self.tree.content(target) {
            Content::Scalar { text, style, .. } => ScalarSpanMap::of_scalar(whole, text, *style),
            _ => ScalarSpanMap::of_whole(whole),
        }
    }

    /// The place of one range of bytes of the decoded text; see [`ScalarSpanMap::place_of`].
    pub fn place_of_range(&self, range_in_decoded_text: Range<usize>) -> SourceSpan {
        self.span_map().place_of(range_in_decoded_text)
    }

    /// Passes it to the next visitor on this thread, which calls [`Self::take_passed`].
    pub(super) fn pass_to_visitor(self) {
        PASSED_NODE.with_borrow_mut(|passed| *passed = Some(self));
    }

    pub(super) fn take_passed() -> Option<Self> {
        PASSED_NODE.with_borrow_mut(Option::take)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.place().start();
        write!(f, "Node({line}:{column} {})", self.describe())
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Captured;
        impl<'de> Visitor<'de> for Captured {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a YAML value")
            }

            fn visit_unit<E: serde::de::Error>(self) -> Result<Node, E> {
                Node::take_passed().ok_or_else(|| E::custom("only the YAML reader can capture a node"))
            }
        }
        deserializer.deserialize_newtype_struct(NODE, Captured)
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl schemars::JsonSchema for Node {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Any".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        true.into()
    }
}
