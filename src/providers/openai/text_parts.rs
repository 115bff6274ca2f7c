//! What was heard of an item before its end: the parts of a text, or a call's input.
//!
//! A part is known by its `content_index`, which some servers leave out or have as 0 for all. Its end says the whole of it,
//! and may be all that ever comes.

/// Parts, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct TextParts(Vec<TextPart>);

#[derive(Debug)]
struct TextPart {
    index: Option<u64>,
    text: String,
    has_ended: bool,
}

impl TextParts {
    /// One that was heard as a whole.
    pub(super) fn whole(text: String) -> Self {
        Self(vec![TextPart { index: None, text, has_ended: true }])
    }

    /// Takes a piece of the part of that number; of what is longer than `most` bytes, no more. Returns what is new in it.
    pub(super) fn push_delta<'a>(&mut self, index: Option<u64>, piece: &'a str, most: usize) -> &'a str {
        let is_full = self.len() > most;
        let part = self.open_part(index);
        if !is_full {
            part.text.push_str(piece);
        }
        piece
    }

    /// Takes all of a part, at its end. Returns what is new in it.
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

    /// The part of that number that still grows, or a new one.
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

    /// Whether nothing was.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it.
    pub(super) fn text(&self) -> String {
        self.0.iter().map(|part| part.text.as_str()).collect()
    }
}
