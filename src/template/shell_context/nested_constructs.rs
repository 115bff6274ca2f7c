//! What stands within quotes, braces and arithmetic of a command, and begins a here-document.

use std::mem::take;

use super::{HereDocument, MisplacedValue, OpenConstruct, PendingToken, ShellContext, in_expression};

impl ShellContext {
    /// Behind `<<`.
    pub(super) fn delimiter(
        &mut self,
        letter: char,
        mut document: HereDocument,
        quote: Option<char>,
        begun: bool,
        may_strip: bool,
    ) {
        let next = |document, quote, begun| PendingToken::Delimiter { document, quote, begun, may_strip: false };
        match (letter, quote) {
            // A here-string: a word like any other.
            ('<', None) if may_strip => {}
            ('-', None) if may_strip => {
                document.strips_tabs = true;
                self.pending = next(document, None, false);
            }
            (letter, Some(open)) if letter == open => self.pending = next(document, None, true),
            (letter, _) if letter.is_ascii_alphanumeric() || letter == '_' => {
                document.delimiter.push(letter);
                self.pending = next(document, quote, true);
            }
            ('\'' | '"', None) if !begun => {
                document.is_quoted = true;
                self.pending = next(document, Some(letter), true);
            }
            (' ' | '\t', None) if !begun => self.pending = next(document, None, false),
            (' ' | '\t' | '\n' | ';' | '|' | '&' | '<' | '>', None) if !document.delimiter.is_empty() => {
                if !self.open_constructs.is_empty() || self.conditional {
                    return self.mark_uncertain("a here-document within parentheses");
                }
                self.documents.push_back(document);
                self.plain(letter);
            }
            _ => self.mark_uncertain("a here-document with such a delimiter"),
        }
    }

    pub(super) fn double(&mut self, letter: char) {
        let undecided = match take(&mut self.pending) {
            PendingToken::Backslash { undecided } => {
                if undecided && letter == '\n' {
                    self.mark_uncertain("a line that goes on in the midst of a sign");
                }
                return;
            }
            PendingToken::Dollar => match letter {
                '(' | '{' | '[' => {
                    self.dollar(letter);
                    return;
                }
                _ => true,
            },
            _ => false,
        };
        match letter {
            '\\' => self.pending = PendingToken::Backslash { undecided },
            '$' => self.pending = PendingToken::Dollar,
            '`' => self.uncertain = Some(MisplacedValue::Backquotes),
            '"' => drop(self.open_constructs.pop()),
            _ => {}
        }
    }

    pub(super) fn parameter(&mut self, letter: char) {
        let behind_dollar = matches!(take(&mut self.pending), PendingToken::Dollar);
        match letter {
            '}' => drop(self.open_constructs.pop()),
            '$' if !behind_dollar => self.pending = PendingToken::Dollar,
            letter if letter.is_ascii_alphanumeric() || "_:-+=?#%/^,.@*![]~ ".contains(letter) => {}
            _ => self.mark_uncertain("`${` with more than a name"),
        }
    }

    pub(super) fn arithmetic(&mut self, letter: char) {
        let behind_dollar = matches!(take(&mut self.pending), PendingToken::Dollar);
        let Some(OpenConstruct::Arithmetic { depth, closing, is_command }) = self.open_constructs.last_mut() else {
            return;
        };
        match letter {
            ')' if *closing => {
                let is_command = *is_command;
                self.open_constructs.pop();
                match is_command {
                    true => self.pending = PendingToken::GroupEnd,
                    false => self.push(')'),
                }
            }
            _ if *closing => self.mark_uncertain("`((`"),
            ')' if *depth == 0 => *closing = true,
            ')' => *depth -= 1,
            '(' if !behind_dollar => *depth += 1,
            '$' if !behind_dollar => self.pending = PendingToken::Dollar,
            letter if in_expression(letter) && letter != '[' || "<>&|;".contains(letter) => {}
            _ => self.mark_uncertain("`((`"),
        }
    }
}
