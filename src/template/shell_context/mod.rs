//! Where in a command of bash a quoted value may stand. It is read letter by letter, for a template has it in pieces.
//!
//! A value is printed between single quotes, which is safe where a word can stand and nowhere else. What is hard to
//! tell apart is not guessed at: behind it no value is let through any more.

mod misplaced_value;
mod nested_constructs;

use std::collections::VecDeque;
use std::mem::take;

pub(super) use self::misplaced_value::MisplacedValue;

/// What a command has come to at some letter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct ShellContext {
    /// What is open, the innermost last.
    open_constructs: Vec<OpenConstruct>,
    /// What the last letter leaves undecided.
    pending: PendingToken,
    /// The word so far, quotes and all; of a long one only its beginning.
    word: String,
    /// Whether a `[` is open that may begin a subscript.
    subscript: bool,
    /// Between `[[` and `]]`.
    conditional: bool,
    /// Here-documents that begin at the next line.
    documents: VecDeque<HereDocument>,
    /// Why nothing is sure any more.
    uncertain: Option<MisplacedValue>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum OpenConstruct {
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
    Command(OuterWord),
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
struct OuterWord {
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
enum PendingToken {
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

impl ShellContext {
    /// Reads on.
    pub(super) fn text(&mut self, text: &str) {
        for letter in text.chars() {
            if self.uncertain.is_some() {
                return;
            }
            self.letter(letter);
        }
    }

    /// A value is printed here, as a word or as part of one. The word has it from now on.
    pub(super) fn value(&mut self) -> Result<(), MisplacedValue> {
        if let Some(why) = self.uncertain {
            return Err(why);
        }
        match self.open_constructs.last() {
            None | Some(OpenConstruct::Group { .. } | OpenConstruct::Command(_)) => {}
            Some(OpenConstruct::Single | OpenConstruct::Double | OpenConstruct::Ansi) => {
                return Err(MisplacedValue::Quotes);
            }
            Some(OpenConstruct::Comment) => return Err(MisplacedValue::Comment),
            Some(OpenConstruct::Parameter) => return Err(MisplacedValue::Substituted),
            Some(OpenConstruct::Arithmetic { .. }) => return Err(MisplacedValue::Arithmetic),
            Some(OpenConstruct::Document { .. }) => return Err(MisplacedValue::Document),
        }
        match self.pending {
            PendingToken::Backslash { .. } => return Err(MisplacedValue::Escaped),
            PendingToken::Dollar => return Err(MisplacedValue::Dollar),
            PendingToken::Delimiter { .. } => return Err(MisplacedValue::Document),
            PendingToken::Nothing
            | PendingToken::Group
            | PendingToken::Command
            | PendingToken::GroupEnd
            | PendingToken::Less => {}
        }
        if self.subscript {
            return Err(MisplacedValue::Subscript);
        }
        if self.conditional || self.word == "[[" {
            return Err(MisplacedValue::Conditional);
        }
        self.pending = PendingToken::Nothing;
        self.push('\'');
        Ok(())
    }

    /// Whether a word can begin here.
    pub(super) fn is_between_words(&self) -> bool {
        self.word.is_empty() && !matches!(self.pending, PendingToken::GroupEnd)
    }

    fn mark_uncertain(&mut self, what: &'static str) {
        self.uncertain = Some(MisplacedValue::Uncertain(what));
    }

    fn push(&mut self, letter: char) {
        if self.word.len() < MAX_WORD {
            self.word.push(letter);
        }
    }

    fn letter(&mut self, letter: char) {
        match self.open_constructs.last_mut() {
            None | Some(OpenConstruct::Group { .. } | OpenConstruct::Command(_)) => self.plain(letter),
            Some(OpenConstruct::Single) => {
                if letter == '\'' {
                    self.open_constructs.pop();
                }
            }
            Some(OpenConstruct::Ansi) => match (take(&mut self.pending), letter) {
                (PendingToken::Backslash { .. }, _) => {}
                (_, '\\') => self.pending = PendingToken::Backslash { undecided: false },
                (_, '\'') => drop(self.open_constructs.pop()),
                _ => {}
            },
            Some(OpenConstruct::Double) => self.double(letter),
            Some(OpenConstruct::Comment) => {
                if letter == '\n' {
                    self.open_constructs.pop();
                    self.plain(letter);
                }
            }
            Some(OpenConstruct::Parameter) => self.parameter(letter),
            Some(OpenConstruct::Arithmetic { .. }) => self.arithmetic(letter),
            Some(OpenConstruct::Document { document, line }) => {
                if letter != '\n' {
                    line.push(letter);
                    return;
                }
                let line = take(line);
                if line.ends_with('\\') && !document.is_quoted {
                    return self.mark_uncertain("a line of a here-document that ends with a backslash");
                }
                let bare = if document.strips_tabs { line.trim_start_matches('\t') } else { &line };
                if bare == document.delimiter {
                    self.open_constructs.pop();
                    self.next_document();
                }
            }
        }
    }

    fn next_document(&mut self) {
        if let Some(document) = self.documents.pop_front() {
            self.open_constructs.push(OpenConstruct::Document { document, line: String::new() });
        }
    }

    /// Outside of all quotes.
    fn plain(&mut self, letter: char) {
        let undecided = match take(&mut self.pending) {
            PendingToken::Nothing => false,
            PendingToken::Backslash { undecided } => {
                match letter {
                    '\n' if undecided => self.mark_uncertain("a line that goes on in the midst of a sign"),
                    '\n' => {}
                    letter => {
                        self.push('\\');
                        self.push(letter);
                    }
                }
                return;
            }
            PendingToken::Dollar => {
                if self.dollar(letter) {
                    return;
                }
                true
            }
            PendingToken::Group if letter == '(' => {
                self.open_constructs.pop();
                self.open_constructs.push(OpenConstruct::Arithmetic { depth: 0, closing: false, is_command: true });
                return;
            }
            PendingToken::Command if letter == '(' => {
                self.leave();
                self.open_constructs.push(OpenConstruct::Arithmetic { depth: 0, closing: false, is_command: false });
                return;
            }
            PendingToken::Group | PendingToken::Command => true,
            PendingToken::GroupEnd if letter == '#' => return self.mark_uncertain("`)#`"),
            PendingToken::GroupEnd => false,
            PendingToken::Less if letter == '<' => {
                let document = HereDocument::default();
                self.pending = PendingToken::Delimiter { document, quote: None, begun: false, may_strip: true };
                return;
            }
            PendingToken::Less => true,
            PendingToken::Delimiter { document, quote, begun, may_strip } => {
                return self.delimiter(letter, document, quote, begun, may_strip);
            }
        };
        if self.subscript && !in_expression(letter) && letter != ']' {
            return self.mark_uncertain("a `[`");
        }
        // A mistake there ends the line, not the command: the rest of a value would be a line of its own.
        if matches!(self.open_constructs.last(), Some(OpenConstruct::Group { in_word: true }))
            && "(<>|&;".contains(letter)
        {
            return self.mark_uncertain("such an array");
        }
        match letter {
            '\\' => self.pending = PendingToken::Backslash { undecided },
            '\'' => self.quote(letter, OpenConstruct::Single),
            '"' => self.quote(letter, OpenConstruct::Double),
            '`' => self.uncertain = Some(MisplacedValue::Backquotes),
            '$' => {
                self.push(letter);
                self.pending = PendingToken::Dollar;
            }
            // In some languages bash takes more than two letters for a blank.
            '#' if self.word.ends_with(|last: char| !last.is_ascii_graphic()) => self.mark_uncertain("such a `#`"),
            '#' if self.word.is_empty() => match self.open_constructs.is_empty() {
                true => self.open_constructs.push(OpenConstruct::Comment),
                false => self.mark_uncertain("a comment within parentheses"),
            },
            ' ' | '\t' if self.subscript => {}
            ' ' | '\t' => self.end_word(),
            '\n' => {
                self.end_word();
                if !self.documents.is_empty() {
                    match self.open_constructs.is_empty() {
                        true => self.next_document(),
                        false => self.mark_uncertain("a here-document within parentheses"),
                    }
                }
            }
            '(' if self.conditional => self.mark_uncertain("a parenthesis in `[[ ]]`"),
            ')' if self.conditional => self.mark_uncertain("a parenthesis in `[[ ]]`"),
            '(' => {
                let in_word = !self.word.is_empty();
                self.end_word();
                self.open_constructs.push(OpenConstruct::Group { in_word });
                self.pending = PendingToken::Group;
            }
            ')' => {
                self.end_word();
                self.close();
            }
            '<' => {
                self.end_word();
                self.pending = PendingToken::Less;
            }
            '>' | '|' | '&' | ';' => self.end_word(),
            '[' => {
                let in_array = matches!(self.open_constructs.last(), Some(OpenConstruct::Group { in_word: true }));
                if in_array && self.word.is_empty() {
                    return self.mark_uncertain("a `[` in an array");
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
            self.mark_uncertain("a `[`");
            return true;
        }
        match letter {
            '(' => {
                let outer = OuterWord {
                    word: take(&mut self.word),
                    subscript: take(&mut self.subscript),
                    conditional: take(&mut self.conditional),
                };
                self.open_constructs.push(OpenConstruct::Command(outer));
                self.pending = PendingToken::Command;
            }
            '{' => self.open_constructs.push(OpenConstruct::Parameter),
            '[' => self.mark_uncertain("`$[`"),
            '\'' => self.quote(letter, OpenConstruct::Ansi),
            '"' => self.quote(letter, OpenConstruct::Double),
            '$' | '#' | '?' | '!' | '-' | '*' | '@' => self.push(letter),
            _ => return false,
        }
        true
    }

    fn quote(&mut self, letter: char, open: OpenConstruct) {
        self.push(letter);
        self.open_constructs.push(open);
    }

    /// Ends the innermost `$(`, and goes on with the word that it stands in.
    fn leave(&mut self) {
        if let Some(OpenConstruct::Command(outer)) = self.open_constructs.pop() {
            let OuterWord { word, subscript, conditional } = outer;
            (self.word, self.subscript, self.conditional) = (word, subscript, conditional);
        }
    }

    fn close(&mut self) {
        match self.open_constructs.last() {
            Some(OpenConstruct::Command(_)) => {
                if !self.documents.is_empty() {
                    return self.mark_uncertain("a here-document within parentheses");
                }
                self.leave();
            }
            Some(OpenConstruct::Group { .. }) => {
                self.open_constructs.pop();
                self.pending = PendingToken::GroupEnd;
            }
            // Of a pattern of `case`.
            _ => self.pending = PendingToken::GroupEnd,
        }
    }

    fn end_word(&mut self) {
        match self.word.as_str() {
            "case" if !self.open_constructs.is_empty() => self.mark_uncertain("`case` within parentheses"),
            "[[" if !self.open_constructs.is_empty() => self.mark_uncertain("`[[` within parentheses"),
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
