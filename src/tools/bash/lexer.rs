//! The lexer of the strict parser.

use std::str::Chars;

/// A token of a command.
pub(super) enum Token {
    Word {
        /// The unquoted word.
        text: String,
        /// The word as written, without escaped line breaks.
        raw: String,
    },
    /// A harmless redirection in canonical form.
    Redirection(String),
    /// `|`, `|&`, `&&`, `||`, `;` or a line break; empty at the end.
    Operator(&'static str),
}

/// Splits a command into tokens.
pub(super) struct Lexer<'a> {
    /// The remaining characters.
    chars: Chars<'a>,
    /// The command from the beginning of the current token.
    token: &'a str,
}

impl<'a> Lexer<'a> {
    /// Starts at the beginning of a command.
    pub(super) fn new(text: &'a str) -> Self {
        Self { chars: text.chars(), token: text }
    }

    /// The command from the beginning of the current token.
    pub(super) fn token(&self) -> &'a str {
        self.token
    }

    fn peek(&self) -> Option<char> {
        self.chars.clone().next()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        if is_next {
            self.chars.next();
        }
        is_next
    }

    fn skip_blanks(&mut self) {
        while self.eat(' ') || self.eat('\t') {}
    }

    /// The next token.
    ///
    /// # Errors
    /// A short description of unsupported syntax.
    pub(super) fn next(&mut self) -> Result<Token, String> {
        loop {
            self.token = self.chars.as_str();
            match self.peek() {
                None => return Ok(Token::Operator("")),
                Some(' ' | '\t') => {
                    self.chars.next();
                }
                Some('#') => {
                    let rest = self.chars.as_str();
                    self.chars = rest[rest.find('\n').unwrap_or(rest.len())..].chars();
                }
                Some('\\') => {
                    let mut ahead = self.chars.clone();
                    ahead.next();
                    if ahead.next() != Some('\n') {
                        return self.word();
                    }
                    self.chars = ahead;
                }
                Some('\n') => {
                    self.chars.next();
                    return Ok(Token::Operator("\n"));
                }
                Some(';') => {
                    self.chars.next();
                    return if self.peek() == Some(';') { Err("`;;`".into()) } else { Ok(Token::Operator(";")) };
                }
                Some('|') => {
                    self.chars.next();
                    let operator = if self.eat('|') {
                        "||"
                    } else if self.eat('&') {
                        "|&"
                    } else {
                        "|"
                    };
                    return Ok(Token::Operator(operator));
                }
                Some('&') => {
                    self.chars.next();
                    if self.eat('&') {
                        return Ok(Token::Operator("&&"));
                    }
                    return if self.eat('>') {
                        self.redirection("&", '>')
                    } else {
                        Err("a background job (`&`)".into())
                    };
                }
                Some('(' | ')') => return Err("a subshell or function (`(`)".into()),
                Some(operator @ ('<' | '>')) => {
                    self.chars.next();
                    return self.redirection("", operator);
                }
                Some(_) => return self.word(),
            }
        }
    }

    /// Reads a redirection after its first operator character. Only those to /dev/null or between stdout and stderr are
    /// supported.
    fn redirection(&mut self, stream: &str, operator: char) -> Result<Token, String> {
        if self.peek() == Some('(') {
            return Err("a process substitution".into());
        }
        let append = operator == '>' && self.eat('>');
        let duplicate = !append && stream != "&" && self.eat('&');
        if matches!(self.peek(), Some('<' | '>' | '|' | '&')) {
            return Err("a here-document or an unusual redirection".into());
        }
        self.skip_blanks();
        let target = match self.peek() {
            None | Some('\n' | ';' | '(' | ')' | '#') => return Err("a redirection without a target".into()),
            Some(_) => match self.word()? {
                Token::Word { text, raw } if text == raw => text,
                _ => return Err("a redirection".into()),
            },
        };
        let written = match (operator, duplicate, target.as_str()) {
            ('>', true, "1" | "2") => format!("{stream}>&{target}"),
            ('>', false, "/dev/null") => format!("{stream}>{}/dev/null", if append { ">" } else { "" }),
            ('<', false, "/dev/null") if stream.is_empty() || stream == "0" => format!("{stream}</dev/null"),
            _ => return Err("a redirection".into()),
        };
        Ok(Token::Redirection(written))
    }

    fn word(&mut self) -> Result<Token, String> {
        let mut text = String::new();
        let mut raw = String::new();
        let mut quoted = false;
        let mut brace = false;
        let mut bracket = false;
        while let Some(char) = self.peek() {
            match char {
                ' ' | '\t' | '\n' | ';' | '|' | '&' => break,
                '<' | '>' => {
                    if !quoted && ["0", "1", "2"].contains(&text.as_str()) {
                        self.chars.next();
                        return self.redirection(&text, char);
                    }
                    if !quoted && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
                        return Err("a redirection".into());
                    }
                    break;
                }
                '(' | ')' => return Err("a subshell, function or pattern (`(`)".into()),
                '`' => return Err("a command substitution".into()),
                '*' | '?' => return Err(format!("the wildcard `{char}` (quote it to use it literally)")),
                '[' => bracket = true,
                ']' if bracket => return Err("the wildcard `[...]` (quote it to use it literally)".into()),
                '{' => brace = true,
                ',' if brace => return Err("a brace expansion (quote it to use it literally)".into()),
                '.' if brace && text.ends_with('.') => {
                    return Err("a brace expansion (quote it to use it literally)".into());
                }
                '~' if text.is_empty() && !quoted || text.ends_with([':', '=']) => {
                    return Err("the home directory (`~`)".into());
                }
                _ => {}
            }
            self.chars.next();
            match char {
                '\'' => {
                    quoted = true;
                    let rest = self.chars.as_str();
                    let Some(end) = rest.find('\'') else { return Err("an unclosed quote".into()) };
                    text.push_str(&rest[..end]);
                    raw.push('\'');
                    raw.push_str(&rest[..=end]);
                    self.chars = rest[end + 1..].chars();
                }
                '"' => {
                    quoted = true;
                    raw.push('"');
                    self.double_quoted(&mut text, &mut raw)?;
                }
                '\\' => match self.chars.next() {
                    Some('\n') => {}
                    Some(inner) => {
                        quoted = true;
                        text.push(inner);
                        raw.extend(['\\', inner]);
                    }
                    None => return Err("a trailing backslash".into()),
                },
                '$' => {
                    self.literal_dollar("'\"")?;
                    text.push('$');
                    raw.push('$');
                }
                _ => {
                    text.push(char);
                    raw.push(char);
                }
            }
        }
        Ok(Token::Word { text, raw })
    }

    fn double_quoted(&mut self, text: &mut String, raw: &mut String) -> Result<(), String> {
        loop {
            let Some(char) = self.chars.next() else { return Err("an unclosed quote".into()) };
            match char {
                '"' => {
                    raw.push('"');
                    return Ok(());
                }
                '`' => return Err("a command substitution".into()),
                '$' => self.literal_dollar("")?,
                '\\' => match self.chars.next() {
                    Some('\n') => continue,
                    Some(escaped) => {
                        raw.extend(['\\', escaped]);
                        if !matches!(escaped, '$' | '`' | '"' | '\\') {
                            text.push('\\');
                        }
                        text.push(escaped);
                        continue;
                    }
                    None => return Err("an unclosed quote".into()),
                },
                _ => {}
            }
            text.push(char);
            raw.push(char);
        }
    }

    /// Refuses a `$` that a shell could expand with what follows it.
    fn literal_dollar(&mut self, quotes: &str) -> Result<(), String> {
        match self.peek() {
            Some('(') => Err("a command substitution".into()),
            Some(next) if next.is_alphanumeric() || "_{[@*#?$!-\\".contains(next) || quotes.contains(next) => {
                Err("an expansion (`$`)".into())
            }
            _ => Ok(()),
        }
    }
}
