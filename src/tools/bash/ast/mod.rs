//! The part of the shell's language that rules can judge: pipelines of plain commands, with every word known before it
//! runs. Whatever would be expanded, substituted, assigned or redirected to a file is a [`Flaw`], and so is any syntax
//! that isn't known here. What was read is written anew, wholly quoted: so what runs is what was judged, even where a
//! shell would have read the original otherwise.

use std::fmt;

use super::lexer::{Lexer, Token};

/// The longest command that is read, in bytes.
pub(super) const MAX_COMMAND: usize = 16 << 10;
/// The most words and redirections of a command and all that is joined to it. With [`MAX_COMMANDS`] it bounds the time that judging takes.
const MAX_WORDS: usize = 1_000;
/// The most commands that are joined.
const MAX_COMMANDS: usize = 100;
/// How much of a command is shown with what is wrong in it, in characters.
const MAX_SHOWN: usize = 60;

/// Words that begin something other than a plain command.
const RESERVED: [&str; 22] = [
    "if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "select", "function",
    "time", "coproc", "in", "{", "}", "[[", "]]", "!",
];

/// Plain commands in the order in which they are written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShellScript {
    pub(super) pipelines: Vec<Pipeline>,
}

/// Commands joined by pipes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pipeline {
    /// Whether its success is turned round by `!`.
    pub(super) negated: bool,
    pub(super) commands: Vec<SimpleCommand>,
    /// What stands between it and the next: `&&`, `||` or `;`.
    pub(super) operator: &'static str,
}

/// A plain command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SimpleCommand {
    /// Its words, unquoted. Never empty.
    pub(super) words: Vec<String>,
    /// The same as they are written, quotes and all.
    raw: Vec<String>,
    /// Harmless redirections, as they are written anew.
    redirections: Vec<String>,
    /// Whether standard error goes into the pipe, too (`|&`).
    pipes_stderr: bool,
}

/// What of a command can't be allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnsupportedSyntax {
    /// What it is, in a few words.
    pub(super) what: String,
    /// Where it begins, as much as can be shown; empty at the end.
    pub(super) excerpt: String,
}

impl UnsupportedSyntax {
    /// One that begins where this part of the command does.
    pub(super) fn new(what: impl Into<String>, from: &str) -> Self {
        let line = from.lines().next().unwrap_or_default();
        let mut part: String = line.chars().take(MAX_SHOWN).collect();
        if part.len() < line.len() {
            part.push('…');
        }
        Self { what: what.into(), excerpt: part.trim().to_owned() }
    }
}

impl fmt::Display for UnsupportedSyntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.excerpt.as_str() {
            "" => f.write_str(&self.what),
            part => write!(f, "{}, here: `{part}`", self.what),
        }
    }
}

/// Reads a command.
///
/// # Errors
/// The first thing in it that can't be judged.
pub(super) fn parse(text: &str) -> Result<ShellScript, UnsupportedSyntax> {
    if text.len() > MAX_COMMAND {
        return Err(UnsupportedSyntax::new(format!("more than {} kB", MAX_COMMAND >> 10), ""));
    }
    let mut lexer = Lexer::new(text);
    script(&mut lexer).map_err(|what| UnsupportedSyntax::new(what, lexer.token()))
}

fn script(lexer: &mut Lexer<'_>) -> Result<ShellScript, String> {
    let mut script = ShellScript { pipelines: Vec::new() };
    let mut pipeline = Pipeline::default();
    let mut command = SimpleCommand::default();
    let (mut words, mut commands) = (0, 0);
    loop {
        let token = lexer.next()?;
        if !matches!(token, Token::Operator(_)) {
            words += 1;
            if words > MAX_WORDS {
                return Err(format!("more than {MAX_WORDS} words"));
            }
        }
        match token {
            Token::Word { text, raw } if command.words.is_empty() && text == raw && RESERVED.contains(&&*text) => {
                if text != "!" || pipeline.negated || !pipeline.commands.is_empty() || !command.redirections.is_empty()
                {
                    return Err(format!("`{text}` (only plain commands can be judged)"));
                }
                pipeline.negated = true;
            }
            Token::Word { text, raw } => {
                // Bash looks for the end of an index across blanks.
                let index = raw.contains('[') && raw != "[";
                if command.words.is_empty() && (index || is_assignment(&text)) {
                    return Err("an assignment".to_owned());
                }
                command.words.push(text);
                command.raw.push(raw);
            }
            Token::Redirection(text) => command.redirections.push(text),
            Token::Operator(joint) if command.words.is_empty() => {
                let waits = command != SimpleCommand::default() || pipeline.negated;
                let after_joint = script.pipelines.last().is_some_and(|last| last.operator != ";");
                match joint {
                    // A blank line, or one that goes on after `|`, `&&` or `||`.
                    "\n" if !waits => {}
                    "" if !waits && pipeline.commands.is_empty() && !after_joint => {
                        return if script.pipelines.is_empty() { Err("no command".to_owned()) } else { Ok(script) };
                    }
                    _ => return Err("a missing command".to_owned()),
                }
            }
            Token::Operator(joint) => {
                commands += 1;
                if commands > MAX_COMMANDS {
                    return Err(format!("more than {MAX_COMMANDS} commands"));
                }
                command.pipes_stderr = joint == "|&";
                pipeline.commands.push(std::mem::take(&mut command));
                if joint == "|" || joint == "|&" {
                    continue;
                }
                pipeline.operator = if joint == "&&" || joint == "||" { joint } else { ";" };
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
        Self { negated: false, commands: Vec::new(), operator: ";" }
    }
}

impl Pipeline {
    /// Whether it is one command and nothing else.
    pub(super) fn is_single_command(&self) -> bool {
        !self.negated && matches!(self.commands.as_slice(), [command] if command.redirections.is_empty())
    }
}

/// What a command consists of, in the order in which it is written, but for redirections, which stand after the words.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScriptToken<'a> {
    /// `!`.
    Not,
    /// A word as it is written, without the line ends that a backslash takes away.
    Word(&'a str),
    /// A redirection, without blanks.
    Redirection(String),
    /// `|`, `|&`, `&&`, `||` or `;`, which also stands for a line's end.
    Operator(&'static str),
}

impl ShellScript {
    /// Its pieces. Together they say all: nothing that can be judged groups commands otherwise than they stand.
    pub(super) fn tokens(&self) -> Vec<ScriptToken<'_>> {
        let mut pieces = Vec::new();
        for (index, pipeline) in self.pipelines.iter().enumerate() {
            pieces.extend(pipeline.negated.then_some(ScriptToken::Not));
            for (index, command) in pipeline.commands.iter().enumerate() {
                pieces.extend(command.raw.iter().map(|word| ScriptToken::Word(word)));
                pieces.extend(command.redirections.iter().cloned().map(ScriptToken::Redirection));
                if index + 1 < pipeline.commands.len() {
                    pieces.push(ScriptToken::Operator(if command.pipes_stderr { "|&" } else { "|" }));
                }
            }
            if index + 1 < self.pipelines.len() {
                pieces.push(ScriptToken::Operator(pipeline.operator));
            }
        }
        pieces
    }

    /// The script as it is to be run: every word quoted.
    pub(super) fn to_shell(&self) -> String {
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
                    text.push_str(if command.pipes_stderr { " |& " } else { " | " });
                }
            }
            if index + 1 < self.pipelines.len() {
                text.push_str(match pipeline.operator {
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

#[cfg(test)]
mod tests;
