//! Where in a command of bash a quoted value may stand. It is read letter by letter, for a template has it in pieces.
//!
//! A value is printed between single quotes, which is safe where a word can stand and nowhere else. What is hard to
//! tell apart is not guessed at: behind it no value is let through any more.

mod misplaced;
mod within;

use std::collections::VecDeque;
use std::mem::take;

pub(super) use self::misplaced::Misplaced;

/// What a command has come to at some letter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Shell {
    /// What is open, the innermost last.
    open: Vec<Open>,
    /// What the last letter leaves undecided.
    last: Last,
    /// The word so far, quotes and all; of a long one only its beginning.
    word: String,
    /// Whether a `[` is open that may begin a subscript.
    subscript: bool,
    /// Between `[[` and `]]`.
    conditional: bool,
    /// Here-documents that begin at the next line.
    documents: VecDeque<HereDocument>,
    /// Why nothing is sure any more.
    lost: Option<Misplaced>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Open {
    Single,
    Double,
    /// `$'...'`
    Ansi,
    Comment,
    /// `(`; `in_word` where it stands within a word, as in `a=(`.
    Group {
        in_word: bool,
    },
    /// `$(`, with the word that it stands in.
    Command(Outer),
    /// `${`
    Parameter,
    /// `((` and `$((`, with the parentheses that are open in it; `closing` behind the first of the last two.
    Arithmetic {
        depth: u32,
        closing: bool,
        is_command: bool,
    },
    /// A here-document, with its line so far.
    Document {
        document: HereDocument,
        line: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Outer {
    word: String,
    subscript: bool,
    conditional: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct HereDocument {
    delimiter: String,
    strips_tabs: bool,
    is_quoted: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
enum Last {
    #[default]
    Nothing,
    /// A backslash; `undecided` where something was undecided before it.
    Backslash {
        undecided: bool,
    },
    Dollar,
    /// `(`, which a second one makes arithmetic.
    Group,
    /// `$(`, likewise.
    Command,
    /// `)`
    GroupEnd,
    /// `<`
    Less,
    /// `<<`, and what is known of its delimiter.
    Delimiter {
        document: HereDocument,
        quote: Option<char>,
        begun: bool,
        may_strip: bool,
    },
}

/// So much of a word is looked at.
const MAX_WORD: usize = 80;

impl Shell {
    /// Reads on.
    pub(super) fn text(&mut self, text: &str) {
        for letter in text.chars() {
            if self.lost.is_some() {
                return;
            }
            self.letter(letter);
        }
    }

    /// A value is printed here, as a word or as part of one. The word has it from now on.
    pub(super) fn value(&mut self) -> Result<(), Misplaced> {
        if let Some(why) = self.lost {
            return Err(why);
        }
        match self.open.last() {
            None | Some(Open::Group { .. } | Open::Command(_)) => {}
            Some(Open::Single | Open::Double | Open::Ansi) => return Err(Misplaced::Quotes),
            Some(Open::Comment) => return Err(Misplaced::Comment),
            Some(Open::Parameter) => return Err(Misplaced::Substituted),
            Some(Open::Arithmetic { .. }) => return Err(Misplaced::Arithmetic),
            Some(Open::Document { .. }) => return Err(Misplaced::Document),
        }
        match self.last {
            Last::Backslash { .. } => return Err(Misplaced::Escaped),
            Last::Dollar => return Err(Misplaced::Dollar),
            Last::Delimiter { .. } => return Err(Misplaced::Document),
            Last::Nothing | Last::Group | Last::Command | Last::GroupEnd | Last::Less => {}
        }
        if self.subscript {
            return Err(Misplaced::Subscript);
        }
        if self.conditional || self.word == "[[" {
            return Err(Misplaced::Conditional);
        }
        self.last = Last::Nothing;
        self.push('\'');
        Ok(())
    }

    /// Whether a word can begin here.
    pub(super) fn is_between_words(&self) -> bool {
        self.word.is_empty() && !matches!(self.last, Last::GroupEnd)
    }

    fn lose(&mut self, what: &'static str) {
        self.lost = Some(Misplaced::Doubtful(what));
    }

    fn push(&mut self, letter: char) {
        if self.word.len() < MAX_WORD {
            self.word.push(letter);
        }
    }

    fn letter(&mut self, letter: char) {
        match self.open.last_mut() {
            None | Some(Open::Group { .. } | Open::Command(_)) => self.plain(letter),
            Some(Open::Single) => {
                if letter == '\'' {
                    self.open.pop();
                }
            }
            Some(Open::Ansi) => match (take(&mut self.last), letter) {
                (Last::Backslash { .. }, _) => {}
                (_, '\\') => self.last = Last::Backslash { undecided: false },
                (_, '\'') => drop(self.open.pop()),
                _ => {}
            },
            Some(Open::Double) => self.double(letter),
            Some(Open::Comment) => {
                if letter == '\n' {
                    self.open.pop();
                    self.plain(letter);
                }
            }
            Some(Open::Parameter) => self.parameter(letter),
            Some(Open::Arithmetic { .. }) => self.arithmetic(letter),
            Some(Open::Document { document, line }) => {
                if letter != '\n' {
                    line.push(letter);
                    return;
                }
                let line = take(line);
                if line.ends_with('\\') && !document.is_quoted {
                    return self.lose("a line of a here-document that ends with a backslash");
                }
                let bare = if document.strips_tabs { line.trim_start_matches('\t') } else { &line };
                if bare == document.delimiter {
                    self.open.pop();
                    self.next_document();
                }
            }
        }
    }

    fn next_document(&mut self) {
        if let Some(document) = self.documents.pop_front() {
            self.open.push(Open::Document { document, line: String::new() });
        }
    }

    /// Outside of all quotes.
    fn plain(&mut self, letter: char) {
        let undecided = match take(&mut self.last) {
            Last::Nothing => false,
            Last::Backslash { undecided } => {
                match letter {
                    '\n' if undecided => self.lose("a line that goes on in the midst of a sign"),
                    '\n' => {}
                    letter => {
                        self.push('\\');
                        self.push(letter);
                    }
                }
                return;
            }
            Last::Dollar => {
                if self.dollar(letter) {
                    return;
                }
                true
            }
            Last::Group if letter == '(' => {
                self.open.pop();
                self.open.push(Open::Arithmetic { depth: 0, closing: false, is_command: true });
                return;
            }
            Last::Command if letter == '(' => {
                self.leave();
                self.open.push(Open::Arithmetic { depth: 0, closing: false, is_command: false });
                return;
            }
            Last::Group | Last::Command => true,
            Last::GroupEnd if letter == '#' => return self.lose("`)#`"),
            Last::GroupEnd => false,
            Last::Less if letter == '<' => {
                let document = HereDocument::default();
                self.last = Last::Delimiter { document, quote: None, begun: false, may_strip: true };
                return;
            }
            Last::Less => true,
            Last::Delimiter { document, quote, begun, may_strip } => {
                return self.delimiter(letter, document, quote, begun, may_strip);
            }
        };
        if self.subscript && !in_expression(letter) && letter != ']' {
            return self.lose("a `[`");
        }
        // A mistake there ends the line, not the command: the rest of a value would be a line of its own.
        if matches!(self.open.last(), Some(Open::Group { in_word: true })) && "(<>|&;".contains(letter) {
            return self.lose("such an array");
        }
        match letter {
            '\\' => self.last = Last::Backslash { undecided },
            '\'' => self.quote(letter, Open::Single),
            '"' => self.quote(letter, Open::Double),
            '`' => self.lost = Some(Misplaced::Backquotes),
            '$' => {
                self.push(letter);
                self.last = Last::Dollar;
            }
            // In some languages bash takes more than two letters for a blank.
            '#' if self.word.ends_with(|last: char| !last.is_ascii_graphic()) => self.lose("such a `#`"),
            '#' if self.word.is_empty() => match self.open.is_empty() {
                true => self.open.push(Open::Comment),
                false => self.lose("a comment within parentheses"),
            },
            ' ' | '\t' if self.subscript => {}
            ' ' | '\t' => self.end_word(),
            '\n' => {
                self.end_word();
                if !self.documents.is_empty() {
                    match self.open.is_empty() {
                        true => self.next_document(),
                        false => self.lose("a here-document within parentheses"),
                    }
                }
            }
            '(' if self.conditional => self.lose("a parenthesis in `[[ ]]`"),
            ')' if self.conditional => self.lose("a parenthesis in `[[ ]]`"),
            '(' => {
                let in_word = !self.word.is_empty();
                self.end_word();
                self.open.push(Open::Group { in_word });
                self.last = Last::Group;
            }
            ')' => {
                self.end_word();
                self.close();
            }
            '<' => {
                self.end_word();
                self.last = Last::Less;
            }
            '>' | '|' | '&' | ';' => self.end_word(),
            '[' => {
                let in_array = matches!(self.open.last(), Some(Open::Group { in_word: true }));
                if in_array && self.word.is_empty() {
                    return self.lose("a `[` in an array");
                }
                self.subscript = is_name(&self.word);
                self.push(letter);
            }
            ']' => {
                self.subscript = false;
                self.push(letter);
            }
            letter => self.push(letter),
        }
    }

    /// Behind `$`. Whether the letter was taken.
    fn dollar(&mut self, letter: char) -> bool {
        if self.subscript && !letter.is_ascii_alphanumeric() && letter != '_' {
            self.lose("a `[`");
            return true;
        }
        match letter {
            '(' => {
                let outer = Outer {
                    word: take(&mut self.word),
                    subscript: take(&mut self.subscript),
                    conditional: take(&mut self.conditional),
                };
                self.open.push(Open::Command(outer));
                self.last = Last::Command;
            }
            '{' => self.open.push(Open::Parameter),
            '[' => self.lose("`$[`"),
            '\'' => self.quote(letter, Open::Ansi),
            '"' => self.quote(letter, Open::Double),
            '$' | '#' | '?' | '!' | '-' | '*' | '@' => self.push(letter),
            _ => return false,
        }
        true
    }

    fn quote(&mut self, letter: char, open: Open) {
        self.push(letter);
        self.open.push(open);
    }

    /// Ends the innermost `$(`, and goes on with the word that it stands in.
    fn leave(&mut self) {
        if let Some(Open::Command(outer)) = self.open.pop() {
            let Outer { word, subscript, conditional } = outer;
            (self.word, self.subscript, self.conditional) = (word, subscript, conditional);
        }
    }

    fn close(&mut self) {
        match self.open.last() {
            Some(Open::Command(_)) => {
                if !self.documents.is_empty() {
                    return self.lose("a here-document within parentheses");
                }
                self.leave();
            }
            Some(Open::Group { .. }) => {
                self.open.pop();
                self.last = Last::GroupEnd;
            }
            // Of a pattern of `case`.
            _ => self.last = Last::GroupEnd,
        }
    }

    fn end_word(&mut self) {
        match self.word.as_str() {
            "case" if !self.open.is_empty() => self.lose("`case` within parentheses"),
            "[[" if !self.open.is_empty() => self.lose("`[[` within parentheses"),
            "[[" => self.conditional = true,
            "]]" => self.conditional = false,
            _ => {}
        }
        self.word.clear();
    }
}

/// Letters of an expression that mean the same wherever they stand.
fn in_expression(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_ +-*/%=!?:,.@~^$".contains(letter)
}

fn is_name(word: &str) -> bool {
    word.chars().next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && word.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
