//! A command's words and what joins them: the lexer of the strict reader.

use std::str::Chars;

/// What a command is made of.
pub(super) enum Token {
    Word {
        /// Unquoted.
        text: String,
        /// As it is written, without the line ends that a backslash takes away.
        raw: String,
    },
    /// A harmless redirection in its canonical form.
    Redirection(String),
    /// `|`, `|&`, `&&`, `||`, `;`, a line end; empty at the end.
    Operator(&'static str),
}

/// Takes a command apart.
pub(super) struct Lexer<'a> {
    /// What hasn't been read.
    chars: Chars<'a>,
    /// The same from the beginning of the last token.
    token: &'a str,
}

impl<'a> Lexer<'a> {
    /// Begins at the command's beginning.
    pub(super) fn new(text: &'a str) -> Self {
        Self { chars: text.chars(), token: text }
    }

    /// The command from the beginning of the last token.
    pub(super) fn token(&self) -> &'a str {
        self.token
    }

    fn peek(&self) -> Option<char> {
        self.chars.clone().next()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.chars.next();
        }
        is_there
    }

    fn skip_blanks(&mut self) {
        while self.eat(' ') || self.eat('\t') {}
    }

    /// The next token.
    ///
    /// # Errors
    /// What in it can't be judged, in a few words.
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
                    let joint = if self.eat('|') {
                        "||"
                    } else if self.eat('&') {
                        "|&"
                    } else {
                        "|"
                    };
                    return Ok(Token::Operator(joint));
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

    /// After its first operator character. Only what goes nowhere or joins the two outputs is let through.
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
            None | Some('\n' | ';' | '(' | ')' | '#') => return Err("a redirection to nothing".into()),
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
                '*' | '?' => return Err(format!("the wildcard `{char}` (quote it if it is meant as it is)")),
                '[' => bracket = true,
                ']' if bracket => return Err("the wildcard `[...]` (quote it if it is meant as it is)".into()),
                '{' => brace = true,
                ',' if brace => return Err("a brace expansion (quote it if it is meant as it is)".into()),
                '.' if brace && text.ends_with('.') => {
                    return Err("a brace expansion (quote it if it is meant as it is)".into());
                }
                '~' if text.is_empty() && !quoted || text.ends_with([':', '=']) => {
                    return Err("the home folder (`~`)".into());
                }
                _ => {}
            }
            self.chars.next();
            match char {
                '\'' => {
                    quoted = true;
                    let rest = self.chars.as_str();
                    let Some(end) = rest.find('\'') else { return Err("a quote without an end".into()) };
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
                    None => return Err("a backslash at the end".into()),
                },
                '$' => {
                    self.lone_dollar("'\"")?;
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
            let Some(char) = self.chars.next() else { return Err("a quote without an end".into()) };
            match char {
                '"' => {
                    raw.push('"');
                    return Ok(());
                }
                '`' => return Err("a command substitution".into()),
                '$' => self.lone_dollar("")?,
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
                    None => return Err("a quote without an end".into()),
                },
                _ => {}
            }
            text.push(char);
            raw.push(char);
        }
    }

    /// A `$` is itself only where nothing follows that it could expand.
    fn lone_dollar(&mut self, quotes: &str) -> Result<(), String> {
        match self.peek() {
            Some('(') => Err("a command substitution".into()),
            Some(next) if next.is_alphanumeric() || "_{[@*#?$!-\\".contains(next) || quotes.contains(next) => {
                Err("an expansion (`$`)".into())
            }
            _ => Ok(()),
        }
    }
}
