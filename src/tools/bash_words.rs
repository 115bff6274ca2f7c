//! The part of the shell's language that rules can judge: pipelines of plain commands, with every word known before it
//! runs. Whatever would be expanded, substituted, assigned or redirected to a file is an error, and so is any syntax
//! that isn't known here. What was read is written anew, wholly quoted: so what runs is what was judged, even where a
//! shell would have read the original otherwise.

use std::iter::Peekable;
use std::str::Chars;

/// The longest command that is read, in bytes.
pub(super) const MAX_COMMAND: usize = 16 << 10;

/// Words that begin something other than a plain command.
const RESERVED: [&str; 22] = [
    "if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "select", "function",
    "time", "coproc", "in", "{", "}", "[[", "]]", "!",
];

/// Plain commands in the order in which they are written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) pipelines: Vec<Pipeline>,
}

/// Commands joined by pipes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pipeline {
    /// Whether its success is turned round by `!`.
    pub(super) negated: bool,
    pub(super) commands: Vec<Command>,
    /// What stands between it and the next: `&&`, `||` or `;`.
    pub(super) then: &'static str,
}

/// A plain command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Command {
    /// Its words, unquoted. Never empty.
    pub(super) words: Vec<String>,
    /// Harmless redirections, as they are written anew.
    redirections: Vec<String>,
    /// Whether standard error goes into the pipe, too (`|&`).
    both: bool,
}

/// Reads a command, or says in a few words what in it can't be allowed.
pub(super) fn read(text: &str) -> Result<Script, String> {
    if text.len() > MAX_COMMAND {
        return Err(format!("more than {} kB", MAX_COMMAND >> 10));
    }
    let mut lexer = Lexer { chars: text.chars().peekable() };
    let mut script = Script { pipelines: Vec::new() };
    let mut pipeline = Pipeline::default();
    let mut command = Command::default();
    loop {
        match lexer.next()? {
            Token::Word { text, quoted: false } if command.words.is_empty() && RESERVED.contains(&text.as_str()) => {
                if text != "!" || pipeline.negated || !pipeline.commands.is_empty() || !command.redirections.is_empty()
                {
                    return Err(format!("`{text}` (only plain commands can be judged)"));
                }
                pipeline.negated = true;
            }
            Token::Word { text, .. } => {
                if command.words.is_empty() && is_assignment(&text) {
                    return Err(format!("the assignment `{text}`"));
                }
                command.words.push(text);
            }
            Token::Redirection(text) => command.redirections.push(text),
            Token::Joint(joint) if command.words.is_empty() => {
                let waits = command != Command::default() || pipeline.negated;
                let after_joint = script.pipelines.last().is_some_and(|last| last.then != ";");
                match joint {
                    // A blank line, or one that goes on after `|`, `&&` or `||`.
                    "\n" if !waits => {}
                    "" if !waits && pipeline.commands.is_empty() && !after_joint => {
                        return if script.pipelines.is_empty() { Err("no command".to_owned()) } else { Ok(script) };
                    }
                    _ => return Err("a missing command".to_owned()),
                }
            }
            Token::Joint(joint) => {
                command.both = joint == "|&";
                pipeline.commands.push(std::mem::take(&mut command));
                if joint == "|" || joint == "|&" {
                    continue;
                }
                pipeline.then = if joint == "&&" || joint == "||" { joint } else { ";" };
                script.pipelines.push(std::mem::take(&mut pipeline));
                if joint.is_empty() {
                    return Ok(script);
                }
            }
        }
    }
}

impl Default for Pipeline {
    fn default() -> Self {
        Self { negated: false, commands: Vec::new(), then: ";" }
    }
}

impl Pipeline {
    /// Whether it is one command and nothing else.
    pub(super) fn is_plain(&self) -> bool {
        !self.negated && matches!(self.commands.as_slice(), [command] if command.redirections.is_empty())
    }
}

impl Script {
    /// The script as it is to be run: every word quoted.
    pub(super) fn write(&self) -> String {
        let mut text = String::new();
        for (index, pipeline) in self.pipelines.iter().enumerate() {
            if pipeline.negated {
                text.push_str("! ");
            }
            for (index, command) in pipeline.commands.iter().enumerate() {
                let words = command.words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
                let parts: Vec<_> = words.chain(command.redirections.iter().cloned()).collect();
                text.push_str(&parts.join(" "));
                if index + 1 < pipeline.commands.len() {
                    text.push_str(if command.both { " |& " } else { " | " });
                }
            }
            if index + 1 < self.pipelines.len() {
                text.push_str(match pipeline.then {
                    ";" => "\n",
                    "&&" => " && ",
                    _ => " || ",
                });
            }
        }
        text
    }
}

/// Whether a shell could take a command's first word for `NAME=value`, `NAME+=value` or `NAME[1]=value`.
fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|char| char.is_ascii_alphanumeric() || "_+[]".contains(char))
}

enum Token {
    Word {
        text: String,
        quoted: bool,
    },
    /// A harmless redirection in its canonical form.
    Redirection(String),
    /// `|`, `|&`, `&&`, `||`, `;`, a line end; empty at the end.
    Joint(&'static str),
}

struct Lexer<'a> {
    chars: Peekable<Chars<'a>>,
}

impl Lexer<'_> {
    fn eat(&mut self, wanted: char) -> bool {
        self.chars.next_if_eq(&wanted).is_some()
    }

    fn next(&mut self) -> Result<Token, String> {
        loop {
            match self.chars.peek() {
                None => return Ok(Token::Joint("")),
                Some(' ' | '\t') => {
                    self.chars.next();
                }
                Some('#') => while self.chars.next_if(|char| *char != '\n').is_some() {},
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
                    return Ok(Token::Joint("\n"));
                }
                Some(';') => {
                    self.chars.next();
                    return if self.chars.peek() == Some(&';') { Err("`;;`".into()) } else { Ok(Token::Joint(";")) };
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
                    return Ok(Token::Joint(joint));
                }
                Some('&') => {
                    self.chars.next();
                    if self.eat('&') {
                        return Ok(Token::Joint("&&"));
                    }
                    return if self.eat('>') {
                        self.redirection("&", '>')
                    } else {
                        Err("a background job (`&`)".into())
                    };
                }
                Some('(' | ')') => return Err("a subshell or function (`(`)".into()),
                Some(&operator @ ('<' | '>')) => {
                    self.chars.next();
                    return self.redirection("", operator);
                }
                Some(_) => return self.word(),
            }
        }
    }

    /// After its first operator character. Only what goes nowhere or joins the two outputs is let through.
    fn redirection(&mut self, stream: &str, operator: char) -> Result<Token, String> {
        if self.chars.peek() == Some(&'(') {
            return Err("a process substitution".into());
        }
        let append = operator == '>' && self.eat('>');
        let duplicate = !append && stream != "&" && self.eat('&');
        if matches!(self.chars.peek(), Some('<' | '>' | '|' | '&')) {
            return Err("a here-document or an unusual redirection".into());
        }
        while self.chars.next_if(|char| *char == ' ' || *char == '\t').is_some() {}
        let target = match self.chars.peek() {
            None | Some('\n' | ';' | '(' | ')' | '#') => return Err("a redirection to nothing".into()),
            Some(_) => match self.word()? {
                Token::Word { text, .. } => text,
                _ => return Err("a redirection to nothing".into()),
            },
        };
        let written = match (operator, duplicate, target.as_str()) {
            ('>', true, "1" | "2") => format!("{stream}>&{target}"),
            ('>', false, "/dev/null") => format!("{stream}>{}/dev/null", if append { ">" } else { "" }),
            ('<', false, "/dev/null") if stream.is_empty() || stream == "0" => "</dev/null".to_owned(),
            _ => return Err(format!("a redirection (`{operator}{target}`)")),
        };
        Ok(Token::Redirection(written))
    }

    fn word(&mut self) -> Result<Token, String> {
        let mut text = String::new();
        let mut quoted = false;
        let mut brace = false;
        let mut bracket = false;
        while let Some(&char) = self.chars.peek() {
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
                    loop {
                        match self.chars.next() {
                            Some('\'') => break,
                            Some(inner) => text.push(inner),
                            None => return Err("a quote without an end".into()),
                        }
                    }
                }
                '"' => {
                    quoted = true;
                    self.double_quoted(&mut text)?;
                }
                '\\' => match self.chars.next() {
                    Some('\n') => {}
                    Some(inner) => {
                        quoted = true;
                        text.push(inner);
                    }
                    None => return Err("a backslash at the end".into()),
                },
                '$' => {
                    self.lone_dollar("'\"")?;
                    text.push('$');
                }
                _ => text.push(char),
            }
        }
        Ok(Token::Word { text, quoted })
    }

    fn double_quoted(&mut self, text: &mut String) -> Result<(), String> {
        loop {
            match self.chars.next() {
                Some('"') => return Ok(()),
                Some('`') => return Err("a command substitution".into()),
                Some('$') => {
                    self.lone_dollar("")?;
                    text.push('$');
                }
                Some('\\') => match self.chars.next() {
                    Some('\n') => {}
                    Some(escaped @ ('$' | '`' | '"' | '\\')) => text.push(escaped),
                    Some(other) => text.extend(['\\', other]),
                    None => return Err("a quote without an end".into()),
                },
                Some(char) => text.push(char),
                None => return Err("a quote without an end".into()),
            }
        }
    }

    /// A `$` is itself only where nothing follows that it could expand.
    fn lone_dollar(&mut self, quotes: &str) -> Result<(), String> {
        match self.chars.peek() {
            Some('(') => Err("a command substitution".into()),
            Some(&next) if next.is_alphanumeric() || "_{[@*#?$!-\\".contains(next) || quotes.contains(next) => {
                Err("an expansion (`$`)".into())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
