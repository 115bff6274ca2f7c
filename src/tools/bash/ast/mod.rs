//! A strict parser for the part of the shell language that rules can check: pipelines of simple commands whose words are
//! known before they run. Expansions, substitutions, assignments, redirections to files and all other syntax are refused as
//! [`UnsupportedSyntax`]. The parsed commands are printed again with every word quoted, so that what runs is what was
//! checked, even if a shell would parse the original differently.

use std::fmt;

use super::lexer::{Lexer, Token};

/// The longest command that is parsed, in bytes.
const MAX_COMMAND_BYTES: usize = 16 << 10;
/// The most words and redirections in all commands together. With [`MAX_COMMANDS`], it limits the time that checking takes.
const MAX_WORDS: usize = 1_000;
/// The most commands.
const MAX_COMMANDS: usize = 100;
/// How much of a command an error shows, in characters.
const MAX_EXCERPT_CHARS: usize = 60;

/// Words that begin something other than a simple command.
const RESERVED: [&str; 22] = [
    "if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "select", "function",
    "time", "coproc", "in", "{", "}", "[[", "]]", "!",
];

/// Pipelines in source order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShellScript {
    pub(super) pipelines: Vec<Pipeline>,
}

/// Commands joined by pipes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pipeline {
    /// Whether `!` negates its exit status.
    pub(super) negated: bool,
    pub(super) commands: Vec<SimpleCommand>,
    /// The operator that follows it: `&&`, `||` or `;`.
    pub(super) operator: &'static str,
}

/// A simple command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SimpleCommand {
    /// Its words, unquoted. Never empty.
    pub(super) words: Vec<String>,
    /// Its words as written, including quotes.
    pub(super) raw: Vec<String>,
    /// Harmless redirections, in canonical form.
    redirections: Vec<String>,
    /// Whether its stderr is piped as well (`|&`).
    pipes_stderr: bool,
}

/// The syntax in a command that can't be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnsupportedSyntax {
    /// What it is, in a few words.
    pub(super) what: String,
    /// The beginning of it; empty at the end of the command.
    pub(super) excerpt: String,
}

impl UnsupportedSyntax {
    /// Unsupported syntax at the beginning of `from`.
    pub(super) fn new(what: impl Into<String>, from: &str) -> Self {
        let line = from.lines().next().unwrap_or_default();
        let mut part: String = line.chars().take(MAX_EXCERPT_CHARS).collect();
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
            part => write!(f, "{} at `{part}`", self.what),
        }
    }
}

/// Parses a command.
///
/// # Errors
/// The first unsupported syntax.
pub(super) fn parse(text: &str) -> Result<ShellScript, UnsupportedSyntax> {
    if text.len() > MAX_COMMAND_BYTES {
        return Err(UnsupportedSyntax::new(format!("more than {} kB", MAX_COMMAND_BYTES >> 10), ""));
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
                    return Err(format!("`{text}` (only simple commands are supported)"));
                }
                pipeline.negated = true;
            }
            Token::Word { text, raw } => {
                // Bash looks for the end of an array index even after blanks.
                let is_index = raw.contains('[') && raw != "[";
                if command.words.is_empty() && (is_index || is_assignment(&text)) {
                    return Err("an assignment".to_owned());
                }
                command.words.push(text);
                command.raw.push(raw);
            }
            Token::Redirection(text) => command.redirections.push(text),
            Token::Operator(operator) if command.words.is_empty() => {
                let is_incomplete = command != SimpleCommand::default() || pipeline.negated;
                let expects_command = script.pipelines.last().is_some_and(|last| last.operator != ";");
                match operator {
                    // A blank line, or a line break after `|`, `&&` or `||`.
                    "\n" if !is_incomplete => {}
                    "" if !is_incomplete && pipeline.commands.is_empty() && !expects_command => {
                        return if script.pipelines.is_empty() { Err("no command".to_owned()) } else { Ok(script) };
                    }
                    _ => return Err("a missing command".to_owned()),
                }
            }
            Token::Operator(operator) => {
                commands += 1;
                if commands > MAX_COMMANDS {
                    return Err(format!("more than {MAX_COMMANDS} commands"));
                }
                command.pipes_stderr = operator == "|&";
                pipeline.commands.push(std::mem::take(&mut command));
                if operator == "|" || operator == "|&" {
                    continue;
                }
                pipeline.operator = if operator == "&&" || operator == "||" { operator } else { ";" };
                script.pipelines.push(std::mem::take(&mut pipeline));
                if operator.is_empty() {
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
    /// Whether it is one command without redirections.
    pub(super) fn is_single_command(&self) -> bool {
        !self.negated && matches!(self.commands.as_slice(), [command] if command.redirections.is_empty())
    }
}

/// A token of a parsed command. Redirections follow the words of their command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScriptToken<'a> {
    /// `!`.
    Not,
    /// A word as written, without escaped line breaks.
    Word(&'a str),
    /// A redirection, without blanks.
    Redirection(String),
    /// `|`, `|&`, `&&`, `||` or `;`, which also stands for a line break.
    Operator(&'static str),
}

impl ShellScript {
    /// Its tokens, which represent it completely, because the supported syntax has no grouping.
    pub(super) fn tokens(&self) -> Vec<ScriptToken<'_>> {
        let mut tokens = Vec::new();
        for (index, pipeline) in self.pipelines.iter().enumerate() {
            tokens.extend(pipeline.negated.then_some(ScriptToken::Not));
            for (index, command) in pipeline.commands.iter().enumerate() {
                tokens.extend(command.raw.iter().map(|word| ScriptToken::Word(word)));
                tokens.extend(command.redirections.iter().cloned().map(ScriptToken::Redirection));
                if index + 1 < pipeline.commands.len() {
                    tokens.push(ScriptToken::Operator(if command.pipes_stderr { "|&" } else { "|" }));
                }
            }
            if index + 1 < self.pipelines.len() {
                tokens.push(ScriptToken::Operator(pipeline.operator));
            }
        }
        tokens
    }

    /// The script to run, with every word quoted.
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

/// Whether a shell could parse a command's first word as `NAME=value`, `NAME+=value` or `NAME[1]=value`.
fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|char| char.is_ascii_alphanumeric() || "_+[]".contains(char))
}

#[cfg(test)]
mod tests;
