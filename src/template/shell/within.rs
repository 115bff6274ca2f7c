//! What stands within quotes, braces and arithmetic of a command, and begins a here-document.

use std::mem::take;

use super::{HereDocument, Last, Misplaced, Open, Shell, in_expression};

impl Shell {
    /// Behind `<<`.
    pub(super) fn delimiter(
        &mut self,
        letter: char,
        mut document: HereDocument,
        quote: Option<char>,
        begun: bool,
        may_strip: bool,
    ) {
        let next = |document, quote, begun| Last::Delimiter { document, quote, begun, may_strip: false };
        match (letter, quote) {
            // A here-string: a word like any other.
            ('<', None) if may_strip => {}
            ('-', None) if may_strip => {
                document.strips_tabs = true;
                self.last = next(document, None, false);
            }
            (letter, Some(open)) if letter == open => self.last = next(document, None, true),
            (letter, _) if letter.is_ascii_alphanumeric() || letter == '_' => {
                document.delimiter.push(letter);
                self.last = next(document, quote, true);
            }
            ('\'' | '"', None) if !begun => {
                document.is_quoted = true;
                self.last = next(document, Some(letter), true);
            }
            (' ' | '\t', None) if !begun => self.last = next(document, None, false),
            (' ' | '\t' | '\n' | ';' | '|' | '&' | '<' | '>', None) if !document.delimiter.is_empty() => {
                if !self.open.is_empty() || self.conditional {
                    return self.lose("a here-document within parentheses");
                }
                self.documents.push_back(document);
                self.plain(letter);
            }
            _ => self.lose("a here-document with such a delimiter"),
        }
    }

    pub(super) fn double(&mut self, letter: char) {
        let undecided = match take(&mut self.last) {
            Last::Backslash { undecided } => {
                if undecided && letter == '\n' {
                    self.lose("a line that goes on in the midst of a sign");
                }
                return;
            }
            Last::Dollar => match letter {
                '(' | '{' | '[' => {
                    self.dollar(letter);
                    return;
                }
                _ => true,
            },
            _ => false,
        };
        match letter {
            '\\' => self.last = Last::Backslash { undecided },
            '$' => self.last = Last::Dollar,
            '`' => self.lost = Some(Misplaced::Backquotes),
            '"' => drop(self.open.pop()),
            _ => {}
        }
    }

    pub(super) fn parameter(&mut self, letter: char) {
        let behind_dollar = matches!(take(&mut self.last), Last::Dollar);
        match letter {
            '}' => drop(self.open.pop()),
            '$' if !behind_dollar => self.last = Last::Dollar,
            letter if letter.is_ascii_alphanumeric() || "_:-+=?#%/^,.@*![]~ ".contains(letter) => {}
            _ => self.lose("`${` with more than a name"),
        }
    }

    pub(super) fn arithmetic(&mut self, letter: char) {
        let behind_dollar = matches!(take(&mut self.last), Last::Dollar);
        let Some(Open::Arithmetic { depth, closing, is_command }) = self.open.last_mut() else { return };
        match letter {
            ')' if *closing => {
                let is_command = *is_command;
                self.open.pop();
                match is_command {
                    true => self.last = Last::GroupEnd,
                    false => self.push(')'),
                }
            }
            _ if *closing => self.lose("`((`"),
            ')' if *depth == 0 => *closing = true,
            ')' => *depth -= 1,
            '(' if !behind_dollar => *depth += 1,
            '$' if !behind_dollar => self.last = Last::Dollar,
            letter if in_expression(letter) && letter != '[' || "<>&|;".contains(letter) => {}
            _ => self.lose("`((`"),
        }
    }
}
