//! The items of a reply that is being received: which of them an event is about.

use super::output_item::{self, Fields, text_field};
use super::text_parts::TextParts;
use crate::message::{Block, BlockContent};

/// Items, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct OutputItems(Vec<PendingItem>);

/// What an event says of the item that it is about; servers leave out either, or make it up.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemRef<'a> {
    /// The item's id; empty for none.
    pub(super) id: &'a str,
    /// Its number in the reply.
    pub(super) index: Option<u64>,
}

/// An item that is being received.
#[derive(Debug, Default)]
pub(super) struct PendingItem {
    /// Its number in the reply, as far as the server says.
    index: u64,
    fields: Fields,
    is_whole: bool,
    /// What its deltas said: text, or a call's input as far as its bound and one piece beyond it.
    pub(super) text_parts: TextParts,
    /// Whether what they said is a refusal.
    pub(super) is_refusal: bool,
}

impl PendingItem {
    fn is(&self, name: &str, value: &str) -> bool {
        !value.is_empty() && text_field(&self.fields, name).as_deref() == Some(value)
    }

    /// What of a whole message no delta has told; from now on it counts as told.
    pub(super) fn take_unreported_text(&mut self) -> Option<String> {
        if !self.is_whole || !self.is("type", "message") {
            return None;
        }
        let said = output_item::message_text(&self.fields);
        let new = said.strip_prefix(&self.text_parts.text()).filter(|new| !new.is_empty())?.to_owned();
        self.text_parts = TextParts::whole(said);
        Some(new)
    }

    /// Whether a whole item may be this one, which is whole as well.
    fn may_be_same(&self, fields: &Fields) -> bool {
        let [one, other] = [&self.fields, fields].map(|fields| output_item::message_text(fields).trim().to_owned());
        one.starts_with(&other) || other.starts_with(&one)
    }

    /// Whether a whole item says more than this one, which it is.
    fn is_extended_by(&self, fields: &Fields) -> bool {
        match text_field(&self.fields, "type").as_deref() {
            Some("message") => output_item::message_text(fields).len() > output_item::message_text(&self.fields).len(),
            Some("function_call") => output_item::has_input(fields) && !output_item::has_input(&self.fields),
            _ => false,
        }
    }

    /// Takes over what of a thought comes at the end alone: LiteLLM encrypts it then, and the model wants it back.
    fn adopt_encrypted_content(&mut self, mut listed: Fields) {
        const SEAL: &str = "encrypted_content";
        let is_open = self.is("type", "reasoning") && text_field(&self.fields, SEAL).is_none_or(|own| own.is_empty());
        if let Some(sealed) = listed.shift_remove(SEAL).filter(|sealed| is_open && sealed.get().starts_with('"')) {
            self.fields.insert(SEAL.to_owned(), sealed);
        }
    }

    fn finish(self) -> Result<(Option<Block>, bool), serde_json::Error> {
        let is_refused = self.is_refusal || !output_item::refusal(&self.fields).is_empty();
        // Some end an item with less than they said of it.
        let is_hollow = !self.text_parts.is_empty()
            && match text_field(&self.fields, "type").as_deref() {
                Some("message") => output_item::message_text(&self.fields).is_empty(),
                Some("function_call") => !output_item::has_input(&self.fields),
                _ => false,
            };
        let block = if self.is_whole && !is_hollow {
            Some(output_item::to_block(&self.fields)?)
        } else {
            partial_block(&self.fields, self.text_parts.text())
        };
        Ok((block, is_refused))
    }
}

impl OutputItems {
    /// The place of the item that a delta is about: one that still grows, or a new one; `None` where it has ended.
    pub(super) fn open_or_start(&mut self, mark: ItemRef<'_>) -> Option<usize> {
        let open = self.find_open(mark);
        if open.is_none() && self.0.iter().any(|item| item.is("id", mark.id) || Some(item.index) == mark.index) {
            return None;
        }
        Some(open.unwrap_or_else(|| self.start_item(mark.index)))
    }

    /// Takes an item as it begins or ends; returns its place.
    pub(super) fn record_item(&mut self, mark: ItemRef<'_>, fields: Fields, is_whole: bool) -> usize {
        let input = text_field(&fields, "arguments");
        let ended = self.0.iter().position(|item| {
            let is_same = !is_whole || text_field(&item.fields, "arguments") == input;
            item.is_whole && item.is("id", mark.id) && is_same
        });
        if let Some(place) = ended {
            return place;
        }
        // What begins is none that has begun already, unless under the same id.
        let is_new = |item: &PendingItem| is_whole || item.fields.is_empty() || item.is("id", mark.id);
        let place = match self.find_open(mark).filter(|place| is_new(&self.0[*place])) {
            Some(place) => place,
            None => self.start_item(mark.index),
        };
        (self.0[place].fields, self.0[place].is_whole) = (fields, is_whole);
        place
    }

    /// Takes the items that the whole response lists, each of which may have come before, with less; returns the places of
    /// those that are new, became whole or say more.
    pub(super) fn merge_output(&mut self, output: Vec<Fields>) -> Vec<usize> {
        let mut known: Vec<usize> = (0..self.0.len()).collect();
        known.sort_by_key(|place| self.0[*place].index);
        // By their ids first: what else they have in common doesn't tell a new one from another that is known.
        let mut places: Vec<Option<usize>> = vec![None; output.len()];
        for is_by_id in [true, false] {
            for ((index, fields), place) in (0..).zip(&output).zip(&mut places) {
                let word = |name| text_field(fields, name).unwrap_or_default();
                let [id, call_id, kind] = ["id", "call_id", "type"].map(word);
                let like = |test: &dyn Fn(&PendingItem) -> bool| known.iter().position(|place| test(&self.0[*place]));
                let fits = |item: &PendingItem| item.is("type", &kind) && (!item.is_whole || item.may_be_same(fields));
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
                Some(place) if self.0[place].is_whole && !self.0[place].is_extended_by(&fields) => {
                    self.0[place].adopt_encrypted_content(fields);
                    continue;
                }
                Some(place) => place,
                None => self.start_item(Some(index)),
            };
            (self.0[place].fields, self.0[place].is_whole) = (fields, true);
            settled.push(place);
        }
        settled
    }

    /// The item at a place that one of the others gave.
    pub(super) fn get(&mut self, place: usize) -> Option<&mut PendingItem> {
        self.0.get_mut(place)
    }

    /// The blocks that they have become, and whether one refuses.
    ///
    /// # Errors
    /// One can't be written as JSON again, which no item leads to.
    pub(super) fn finish(mut self) -> Result<(Vec<Block>, bool), serde_json::Error> {
        self.0.sort_by_key(|item| item.index);
        let (mut blocks, mut is_refused, mut has_spoken) = (Vec::with_capacity(self.0.len()), false, false);
        for item in self.0 {
            let (block, refuses) = item.finish()?;
            is_refused |= refuses;
            let Some(mut block) = block else { continue };
            if let BlockContent::Text(said) = &mut block.content
                && !said.trim().is_empty()
            {
                // Messages of their own, not pieces of one.
                if std::mem::replace(&mut has_spoken, true) {
                    said.insert_str(0, MESSAGE_SEPARATOR);
                }
            }
            blocks.push(block);
        }
        Ok((blocks, is_refused))
    }

    /// The item that is meant and has not ended.
    fn find_open(&self, mark: ItemRef<'_>) -> Option<usize> {
        let find = |test: &dyn Fn(&PendingItem) -> bool| self.0.iter().rposition(|item| !item.is_whole && test(item));
        find(&|item| item.is("id", mark.id))
            .or_else(|| find(&|item| mark.index.is_none_or(|index| item.index == index)))
    }

    fn start_item(&mut self, index: Option<u64>) -> usize {
        let next = self.0.iter().map(|item| item.index + 1).max().unwrap_or_default();
        self.0.push(PendingItem { index: index.unwrap_or(next), ..PendingItem::default() });
        self.0.len() - 1
    }
}

/// What stands between two messages of a reply.
pub(super) const MESSAGE_SEPARATOR: &str = "\n\n";

/// What is left of an item that never ended.
fn partial_block(fields: &Fields, heard: String) -> Option<Block> {
    let view = match text_field(fields, "type").as_deref() {
        Some("function_call") => {
            let [id, name] = ["call_id", "name"].map(|name| text_field(fields, name).unwrap_or_default());
            BlockContent::Call(output_item::to_tool_call(id, name, Some(&heard)))
        }
        _ if heard.is_empty() => return None,
        _ => BlockContent::Text(heard),
    };
    Some(view.into())
}
