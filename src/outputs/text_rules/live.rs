//! Text as its readers see it, with the place where each character comes from.

use super::entities;

/// What replaces code in a text: it belongs to no word, name or address.
pub(super) const CODE: char = '\u{fffc}';

/// A character of a [`Live`] text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Letter {
    /// The character.
    pub(super) char: char,
    /// The byte of the source where it begins.
    pub(super) at: usize,
    /// Whether it is the first one of a piece of text, such as after a tag or the marks of emphasis. Forges look for names
    /// in each piece, people read over them.
    pub(super) starts_piece: bool,
}

/// How a source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// As it is.
    Plain,
    /// With references decoded.
    Decoded,
    /// With references decoded, and without the backslashes that escape punctuation.
    Unescaped,
}

/// A text without code.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// Its characters.
    pub(super) letters: Vec<Letter>,
    /// Whether the next character starts a piece.
    next_starts: bool,
}

impl Live {
    /// The source without what `is_hidden` says.
    pub(super) fn of_source(source: &str, is_hidden: impl Fn(usize) -> bool, reading: Reading) -> Self {
        let mut live = Self::default();
        let mut at = 0;
        while let Some(char) = source[at..].chars().next() {
            let mut length = char.len_utf8();
            if is_hidden(at) {
                live.push(CODE, at);
            } else if let Some((char, reference)) =
                (char == '&' && reading != Reading::Plain).then(|| entities::decode(&source[at..])).flatten()
            {
                live.push(char, at);
                length = reference;
            } else {
                let next = source.as_bytes().get(at + 1).copied().unwrap_or_default();
                let is_escape = reading == Reading::Unescaped && char == '\\' && next.is_ascii_punctuation();
                if is_escape {
                    live.push(char::from(next), at + 1);
                    length = 2;
                } else {
                    live.push(char, at);
                }
            }
            at += length;
        }
        live
    }

    /// The source as it is, from the byte `begins`.
    pub(super) fn verbatim(text: &str, begins: usize) -> Self {
        let letters =
            text.char_indices().map(|(at, char)| Letter { char, at: begins + at, starts_piece: false }).collect();
        Self { letters, next_starts: false }
    }

    /// Adds a character.
    pub(super) fn push(&mut self, char: char, at: usize) {
        self.letters.push(Letter { char, at, starts_piece: self.next_starts });
        self.next_starts = false;
    }

    /// Adds a text that a parser took from a place of the source, decoded or as it is.
    pub(super) fn push_text(&mut self, text: &str, source: &str, begins: usize) {
        let is_verbatim = source.get(begins..).is_some_and(|source| source.starts_with(text));
        for (offset, char) in text.char_indices() {
            self.push(char, if is_verbatim { begins + offset } else { begins });
        }
    }

    /// The next character starts a piece.
    pub(super) fn break_piece(&mut self) {
        self.next_starts = true;
    }

    /// An empty line, unless there is one already: no word or sentence goes over it.
    pub(super) fn break_block(&mut self, at: usize) {
        let has_text = self.letters.iter().rev().take(2).any(|letter| letter.char != '\n');
        if has_text {
            self.push('\n', at);
            self.push('\n', at);
        }
        self.break_piece();
    }

    /// How many characters there are.
    pub(super) fn len(&self) -> usize {
        self.letters.len()
    }

    /// The character at an index; a line break outside of the text.
    pub(super) fn char(&self, index: usize) -> char {
        self.letters.get(index).map_or('\n', |letter| letter.char)
    }

    /// The byte of the source where the character at an index begins. That of the last one for indexes behind the end.
    pub(super) fn at(&self, index: usize) -> usize {
        self.letters.get(index).or(self.letters.last()).map_or(0, |letter| letter.at)
    }

    /// Whether a character starts a piece.
    pub(super) fn starts_piece(&self, index: usize) -> bool {
        index == 0 || self.letters.get(index).is_some_and(|letter| letter.starts_piece)
    }

    /// The character before an index, unless a piece of text begins there.
    pub(super) fn before(&self, index: usize) -> Option<char> {
        if self.starts_piece(index) { None } else { index.checked_sub(1).map(|before| self.char(before)) }
    }

    /// The end of the run of characters from `index` that fit, at most `max` of them.
    pub(super) fn run(&self, index: usize, max: usize, fits: impl Fn(char) -> bool) -> usize {
        let rest = self.letters.get(index..).unwrap_or_default();
        index + rest.iter().take(max).take_while(|letter| fits(letter.char)).count()
    }

    /// The characters of a range as a string.
    pub(super) fn text(&self, range: std::ops::Range<usize>) -> String {
        self.letters.get(range).unwrap_or_default().iter().map(|letter| letter.char).collect()
    }

    /// Whether an ASCII word begins at an index, in any case.
    pub(super) fn has_word(&self, index: usize, word: &str) -> bool {
        word.chars().enumerate().all(|(offset, char)| self.char(index + offset).eq_ignore_ascii_case(&char))
    }
}

/// Whether a character is a part of a word for the forges' patterns, which know ASCII only.
pub(super) fn is_word(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}
