//! The items of a reply that is being received. Matches events to items.

use super::output_item;
use crate::message::{Block, BlockContent};
use crate::providers::json::{Fields, str_field as text_field};
use crate::providers::tool_calls::to_tool_call;

/// Items, in the order in which they started.
#[derive(Debug, Default)]
pub(super) struct OutputItems(Vec<PendingItem>);

/// An event's reference to an item. Some servers omit either field, or invent it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemRef<'a> {
    /// The item's id; empty for none.
    pub(super) id: &'a str,
    /// Its index in the reply.
    pub(super) index: Option<u64>,
}

/// An item that is being received.
#[derive(Debug, Default)]
pub(super) struct PendingItem {
    /// Its index in the reply, if the server sends it.
    index: u64,
    fields: Fields,
    is_finished: bool,
    /// The text from its deltas, or a call's input up to the size limit and one delta beyond it.
    pub(super) text_parts: TextParts,
    /// Whether the text is a refusal.
    pub(super) is_refusal: bool,
}

impl PendingItem {
    fn is(&self, name: &str, value: &str) -> bool {
        !value.is_empty() && text_field(&self.fields, name).as_deref() == Some(value)
    }

    /// The length in bytes of a finished message's text that no delta contained; later calls don't count it again.
    pub(super) fn count_new_text(&mut self) -> usize {
        if !self.is_finished || !self.is("type", "message") {
            return 0;
        }
        let text = output_item::message_text(&self.fields);
        let new = text.strip_prefix(&self.text_parts.text()).unwrap_or_default().len();
        if new > 0 {
            self.text_parts = TextParts::whole(text);
        }
        new
    }

    /// Whether a finished item may be the same as this finished one, by its text.
    fn may_be_same(&self, fields: &Fields) -> bool {
        let [one, other] = [&self.fields, fields].map(|fields| output_item::message_text(fields).trim().to_owned());
        one.starts_with(&other) || other.starts_with(&one)
    }

    /// Whether a finished version of this item contains more.
    fn is_extended_by(&self, fields: &Fields) -> bool {
        match text_field(&self.fields, "type").as_deref() {
            Some("message") => output_item::message_text(fields).len() > output_item::message_text(&self.fields).len(),
            Some("function_call") => output_item::has_input(fields) && !output_item::has_input(&self.fields),
            _ => false,
        }
    }

    /// Adopts the encrypted form of reasoning, which LiteLLM sends only at the end and the model needs back.
    fn adopt_encrypted_content(&mut self, mut listed: Fields) {
        const SEAL: &str = "encrypted_content";
        let is_open = self.is("type", "reasoning") && text_field(&self.fields, SEAL).is_none_or(|own| own.is_empty());
        if let Some(sealed) = listed.shift_remove(SEAL).filter(|sealed| is_open && sealed.get().starts_with('"')) {
            self.fields.insert(SEAL.to_owned(), sealed);
        }
    }

    /// The finished block, and whether it is a refusal.
    fn finish(self) -> (Option<Block>, bool) {
        let is_refused = self.is_refusal || !output_item::refusal(&self.fields).is_empty();
        // Some servers' final item contains less than its deltas.
        let is_hollow = !self.text_parts.is_empty()
            && match text_field(&self.fields, "type").as_deref() {
                Some("message") => output_item::message_text(&self.fields).is_empty(),
                Some("function_call") => !output_item::has_input(&self.fields),
                _ => false,
            };
        let block = if self.is_finished && !is_hollow {
            Some(output_item::to_block(&self.fields))
        } else {
            partial_block(&self.fields, self.text_parts.text())
        };
        (block, is_refused)
    }
}

impl OutputItems {
    /// The position of a delta's item, which may be new. `None` if the item has ended.
    pub(super) fn open_or_start(&mut self, item_ref: ItemRef<'_>) -> Option<usize> {
        let open = self.find_open(item_ref);
        if open.is_none() && self.0.iter().any(|item| item.is("id", item_ref.id) || Some(item.index) == item_ref.index)
        {
            return None;
        }
        Some(open.unwrap_or_else(|| self.start_item(item_ref.index)))
    }

    /// Takes an item at its start or end; returns its position.
    pub(super) fn record_item(&mut self, item_ref: ItemRef<'_>, fields: Fields, is_finished: bool) -> usize {
        let input = text_field(&fields, "arguments");
        let ended = self.0.iter().position(|item| {
            let is_same = !is_finished || text_field(&item.fields, "arguments") == input;
            item.is_finished && item.is("id", item_ref.id) && is_same
        });
        if let Some(place) = ended {
            return place;
        }
        // An item that starts is a new one, unless another has the same id.
        let is_new = |item: &PendingItem| is_finished || item.fields.is_empty() || item.is("id", item_ref.id);
        let place = match self.find_open(item_ref).filter(|place| is_new(&self.0[*place])) {
            Some(place) => place,
            None => self.start_item(item_ref.index),
        };
        (self.0[place].fields, self.0[place].is_finished) = (fields, is_finished);
        place
    }

    /// Takes the items of the final response. Any of them may have arrived before, at least in part. Returns the
    /// positions of items that are new, newly finished or longer.
    pub(super) fn merge_output(&mut self, output: Vec<Fields>) -> Vec<usize> {
        let mut known: Vec<usize> = (0..self.0.len()).collect();
        known.sort_by_key(|place| self.0[*place].index);
        // Match by id first: other similarities don't distinguish a new item from a known one.
        let mut places: Vec<Option<usize>> = vec![None; output.len()];
        for is_by_id in [true, false] {
            for ((index, fields), place) in (0..).zip(&output).zip(&mut places) {
                let word = |name| text_field(fields, name).unwrap_or_default();
                let [id, call_id, kind] = ["id", "call_id", "type"].map(word);
                let like = |test: &dyn Fn(&PendingItem) -> bool| known.iter().position(|place| test(&self.0[*place]));
                let fits =
                    |item: &PendingItem| item.is("type", &kind) && (!item.is_finished || item.may_be_same(fields));
                let at = if place.is_some() {
                    None
                } else if is_by_id {
                    like(&|item| item.is("id", &id) && item.is("type", &kind))
                        .or_else(|| like(&|item| item.is("call_id", &call_id)))
                } else {
                    like(&|item| item.index == index && fits(item))
                        .or_else(|| like(&fits))
                        .or_else(|| like(&|item| item.fields.is_empty()))
                };
                *place = at.map(|at| known.remove(at)).or(*place);
            }
        }
        let mut settled = Vec::new();
        for ((index, fields), place) in (0..).zip(output).zip(places) {
            if let Some(place) = place {
                self.0[place].index = index;
            }
            let place = match place {
                Some(place) if self.0[place].is_finished && !self.0[place].is_extended_by(&fields) => {
                    self.0[place].adopt_encrypted_content(fields);
                    continue;
                }
                Some(place) => place,
                None => self.start_item(Some(index)),
            };
            (self.0[place].fields, self.0[place].is_finished) = (fields, true);
            settled.push(place);
        }
        settled
    }

    /// The item at a position.
    pub(super) fn get(&mut self, place: usize) -> Option<&mut PendingItem> {
        self.0.get_mut(place)
    }

    /// The finished blocks, and whether one is a refusal.
    pub(super) fn finish(mut self) -> (Vec<Block>, bool) {
        self.0.sort_by_key(|item| item.index);
        let (mut blocks, mut is_refused, mut has_text) = (Vec::with_capacity(self.0.len()), false, false);
        for item in self.0 {
            let (block, refuses) = item.finish();
            is_refused |= refuses;
            let Some(mut block) = block else { continue };
            if let BlockContent::Text(text) = &mut block.content
                && !text.trim().is_empty()
            {
                // Several texts are separate messages.
                if std::mem::replace(&mut has_text, true) {
                    text.insert_str(0, MESSAGE_SEPARATOR);
                }
            }
            blocks.push(block);
        }
        (blocks, is_refused)
    }

    /// The unfinished item that an event refers to.
    fn find_open(&self, item_ref: ItemRef<'_>) -> Option<usize> {
        let find =
            |test: &dyn Fn(&PendingItem) -> bool| self.0.iter().rposition(|item| !item.is_finished && test(item));
        find(&|item| item.is("id", item_ref.id))
            .or_else(|| find(&|item| item_ref.index.is_none_or(|index| item.index == index)))
    }

    fn start_item(&mut self, index: Option<u64>) -> usize {
        let next = self.0.iter().map(|item| item.index.saturating_add(1)).max().unwrap_or_default();
        self.0.push(PendingItem { index: index.unwrap_or(next), ..PendingItem::default() });
        self.0.len() - 1
    }
}

/// Separates the messages of a reply.
const MESSAGE_SEPARATOR: &str = "\n\n";

/// The block of an item that never ended.
fn partial_block(fields: &Fields, text: String) -> Option<Block> {
    let content = match text_field(fields, "type").as_deref() {
        Some("function_call") => {
            let [id, name] = ["call_id", "name"].map(|name| text_field(fields, name).unwrap_or_default().into_owned());
            BlockContent::Call(to_tool_call(id, name, Some(&text)))
        }
        _ if text.is_empty() => return None,
        _ => BlockContent::Text(text),
    };
    Some(content.into())
}

/// The parts of a text, or of a call's input, in order. A part has a `content_index`, which some servers omit or set to
/// 0 for all. Its `done` event repeats the whole part, and may be its only event.
#[derive(Debug, Default)]
pub(super) struct TextParts(Vec<TextPart>);

#[derive(Debug)]
struct TextPart {
    index: Option<u64>,
    text: String,
    has_ended: bool,
}

impl TextParts {
    /// A single, finished part.
    pub(super) fn whole(text: String) -> Self {
        Self(vec![TextPart { index: None, text, has_ended: true }])
    }

    /// Appends to the part with this index, unless there are more than `max_bytes` already. Returns the new text.
    pub(super) fn push_delta<'a>(&mut self, index: Option<u64>, piece: &'a str, max_bytes: usize) -> &'a str {
        let is_full = self.len() > max_bytes;
        let part = self.open_part(index);
        if !is_full {
            part.text.push_str(piece);
        }
        piece
    }

    /// Takes a whole part at its end. Returns the text that no delta contained.
    pub(super) fn end_part<'a>(&mut self, index: Option<u64>, all: &'a str) -> &'a str {
        let is_known = |part: &TextPart| part.has_ended && (all.is_empty() || part.text == all);
        if self.0.iter().any(|part| is_known(part) && (index.is_none() || part.index.is_none() || part.index == index))
        {
            return "";
        }
        let part = self.open_part(index);
        part.has_ended = true;
        let new = all.strip_prefix(part.text.as_str()).unwrap_or_default();
        if !all.is_empty() {
            all.clone_into(&mut part.text);
        }
        new
    }

    /// The unfinished part with this index, or a new one.
    fn open_part(&mut self, index: Option<u64>) -> &mut TextPart {
        let find = |test: &dyn Fn(&TextPart) -> bool| self.0.iter().rposition(|part| !part.has_ended && test(part));
        let at = find(&|part| part.index == index).or_else(|| find(&|part| part.index.is_none() || index.is_none()));
        let at = at.unwrap_or(self.0.len());
        if at == self.0.len() {
            self.0.push(TextPart { index, text: String::new(), has_ended: false });
        }
        &mut self.0[at]
    }

    fn len(&self) -> usize {
        self.0.iter().map(|part| part.text.len()).sum()
    }

    /// Whether there is no text.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole text.
    pub(super) fn text(&self) -> String {
        self.0.iter().map(|part| part.text.as_str()).collect()
    }
}
