//! Rules for `bash`: which commands a job allows. They are a convenience, not the boundary: programs have escapes of their
//! own.

use std::path::Path;

use super::ast::SimpleCommand;
use super::cross_check::parse_and_cross_check;
use super::lexer::{Lexer, Token};
use super::working_dirs::{WorkingDirs, is_cd};
use crate::tools::ToolError;

/// A rule in words.
pub(super) const RULE_FORM: &str =
    "a rule is the words of one plain command; `*` as the last word stands for any further ones";

/// A regular expression that lets every good rule through, and of the bad ones only those that take a shell's reader to
/// tell, such as any with quotes.
pub(super) const RULE_PATTERN: &str = concat!(
    r##"["'\\#\n]|"##,
    r"^(?![ \t]*\*?[ \t]*$)",
    r"(?![ \t]*[A-Za-z_][A-Za-z0-9_]*\+?=)",
    r"(?!.*\$[A-Za-z0-9_{])",
    r"[^`()<>|&?*;]+(\s\*)?\s*$",
);

/// A pipe into one of these is free: its name, its flags, its options with a value. None may name a file, for `sort` and
/// `uniq` can write one.
const FILTERS: [(&str, &str, &str); 5] = [
    ("head", "qvz", "nc"),
    ("tail", "qvz", "nc"),
    ("wc", "lcwmL", ""),
    ("sort", "rnuhVfbdigMRsz", "kt"),
    ("uniq", "cdDuiz", "fsw"),
];

/// What a job allows.
#[derive(Debug, Clone)]
pub(super) struct CommandRules {
    patterns: Vec<CommandPattern>,
}

#[derive(Debug, Clone)]
struct CommandPattern {
    text: String,
    words: Vec<String>,
    /// Whether any further words may follow.
    allows_more_words: bool,
}

impl CommandRules {
    /// Reads patterns.
    ///
    /// # Errors
    /// The index of the first bad pattern, and what is wrong with it.
    pub(super) fn new(patterns: &[String]) -> Result<Self, (usize, String)> {
        let read = patterns.iter().enumerate().map(|(at, text)| pattern(text).map_err(|why| (at, why)));
        Ok(Self { patterns: read.collect::<Result<_, _>>()? })
    }

    /// The patterns and what is free, for people and models.
    pub(super) fn describe(&self) -> String {
        let patterns: Vec<_> = self.patterns.iter().map(|pattern| format!("`{}`", pattern.text)).collect();
        format!(
            "{} (`*`: any further words), alone or joined by `|`, `&&`, `||` and `;`. Also `cd` beneath the workspace, \
             `2>&1`, `>/dev/null`, and pipes into head, tail, wc, sort and uniq without files. No variables, wildcards, \
             substitutions, assignments, loops, other redirections or background jobs",
            if patterns.is_empty() { "no commands".to_owned() } else { patterns.join(", ") }
        )
    }

    /// The command as it is to be run, if every part of it is allowed.
    pub(super) fn check(&self, command: &str, root: &Path) -> Result<String, ToolError> {
        self.authorize(command, root)
            .map_err(|why| ToolError(format!("not allowed: {why}. Allowed: {}.", self.describe())))
    }

    /// Whether the command is allowed wherever the workspace is; a folder that it enters counts as one without links.
    ///
    /// # Errors
    /// Why it isn't.
    pub(super) fn test(&self, command: &str) -> Result<(), String> {
        // No path on any disk holds a NUL.
        self.authorize(command, Path::new("/\0")).map(drop)
    }

    /// The command as it is to be run, or why it can't be.
    fn authorize(&self, command: &str, root: &Path) -> Result<String, String> {
        let mut script = parse_and_cross_check(command).map_err(|flaw| flaw.to_string())?;
        let mut reached = WorkingDirs::at(root);
        for pipeline in &mut script.pipelines {
            let entered = reached.before().to_vec();
            for (index, command) in pipeline.commands.iter().enumerate() {
                if is_cd(command) || (index > 0 && is_filter(command)) {
                    continue;
                }
                let shown = || command.words.join(" ").chars().take(200).collect::<String>();
                if !self.patterns.iter().any(|pattern| pattern.matches(&command.words)) {
                    return Err(format!("`{}` matches no rule", shown()));
                }
                if let Some(why) = changes_shell_state(&command.words) {
                    return Err(format!("`{}` ({why})", shown()));
                }
                // `./build` means another program in another folder.
                let by_path = command.words[0].contains('/') && !command.words[0].starts_with('/');
                if by_path && entered.iter().any(|folder| folder != root) {
                    return Err(format!("`{}` is named by its path from the workspace, but follows a `cd`", shown()));
                }
            }
            reached.pass(pipeline, root)?;
        }
        Ok(script.to_shell())
    }
}

fn pattern(text: &str) -> Result<CommandPattern, String> {
    let text = text.trim_matches([' ', '\t', '\r', '\n']);
    let (fixed, open) = match text.strip_suffix('*') {
        Some("") => {
            return Err("it allows every command; leave `allow` out to say that".to_owned());
        }
        Some(fixed) if fixed.ends_with([' ', '\t']) => (fixed, true),
        _ => (text, false),
    };
    let mut script = parse_and_cross_check(fixed).map_err(|flaw| {
        if flaw.what.contains("wildcard `*`") {
            "`*` can only be the last word, by itself".to_owned()
        } else {
            format!("it holds {flaw}")
        }
    })?;
    if let Some(left_out) = unsupported_in_rule(fixed) {
        return Err(left_out);
    }
    let plain = script.pipelines.len() == 1 && script.pipelines[0].is_single_command();
    match script.pipelines.pop().and_then(|mut pipeline| pipeline.commands.pop()) {
        Some(command) if plain && command.words.first().is_some_and(String::is_empty) => {
            Err("it names no program".to_owned())
        }
        Some(command) if plain => match changes_shell_state(&command.words) {
            Some(why) => Err(format!("`{}` is never allowed under rules: {why}", command.words[0])),
            None => Ok(CommandPattern { text: text.to_owned(), words: command.words, allows_more_words: open }),
        },
        _ => Err("it must be one plain command".to_owned()),
    }
}

/// What a rule holds beside its words. A command may hold it; in a rule it would make the words that must match fewer
/// than those that were written: `rm # *` would be `rm` with any words behind it.
fn unsupported_in_rule(text: &str) -> Option<String> {
    let mut lexer = Lexer::new(text);
    let mut rest = text;
    loop {
        let token = lexer.next();
        let between = rest.trim_start_matches([' ', '\t']);
        match token {
            Ok(Token::Word { raw, .. }) => match between.strip_prefix(raw.as_str()) {
                Some(behind) => rest = behind,
                None if between.starts_with('#') => {
                    return Some("it holds a comment (`#`); quote it if it is meant".into());
                }
                None => return Some("it holds a line end; a rule is one line".into()),
            },
            Ok(Token::Operator("")) if between.is_empty() => return None,
            Ok(Token::Operator("")) if between.starts_with('#') => {
                return Some("it holds a comment (`#`); quote it if it is meant".into());
            }
            Ok(Token::Operator(_)) => return Some("it must be one plain command".into()),
            Ok(Token::Redirection(_)) => return Some("it holds a redirection".into()),
            Err(_) => return None,
        }
    }
}

/// The words of a rule, and whether any further ones may follow; `None` where it is wrong.
pub(super) fn words(rule: &str) -> Option<(Vec<String>, bool)> {
    pattern(rule).ok().map(|pattern| (pattern.words, pattern.allows_more_words))
}

impl CommandPattern {
    fn matches(&self, words: &[String]) -> bool {
        if self.allows_more_words { words.starts_with(&self.words) } else { words == self.words }
    }
}

/// Builtins that set variables, aliases, functions, options or the current folder of the shell that runs the next command,
/// or run text that no rule has judged. Source: bash(1), "Shell Builtin Commands".
const STATEFUL_BUILTINS: [&str; 32] = [
    ".",
    "alias",
    "bind",
    "builtin",
    "compgen",
    "complete",
    "compopt",
    "declare",
    "dirs",
    "enable",
    "eval",
    "export",
    "fc",
    "getopts",
    "hash",
    "history",
    "jobs",
    "let",
    "local",
    "mapfile",
    "popd",
    "pushd",
    "read",
    "readarray",
    "readonly",
    "set",
    "shopt",
    "source",
    "trap",
    "typeset",
    "unalias",
    "unset",
];

/// Why a command, allowed by its words, could change what the next one means; `None` if it can't. Setting `PATH` would
/// replace every program after it.
fn changes_shell_state(words: &[String]) -> Option<&'static str> {
    const ASSIGNS: &str = "it can set variables of the shell";
    let (name, operands) = words.split_first()?;
    match name.as_str() {
        name if STATEFUL_BUILTINS.contains(&name) => {
            Some("this builtin changes the state of the shell or runs text that can't be judged")
        }
        "printf" => {
            let operands = operands.strip_prefix(&["--".to_owned()]).unwrap_or(operands);
            let format = operands.first()?;
            let assigns = (operands.len() == words.len() - 1 && format.starts_with("-v")) || writes_variable(format);
            assigns.then_some(ASSIGNS)
        }
        "wait" => operands.iter().any(|word| is_flag(word, 'p')).then_some(ASSIGNS),
        "test" | "[" => operands.iter().any(|word| word == "-v").then_some("it looks up a variable of the shell"),
        // `exec` and `command` run the rest as a command.
        "command" | "exec" => {
            let rest = operands.iter().position(|word| !word.starts_with('-')).map(|first| &operands[first..])?;
            if rest[0] == "cd" { Some("it changes the folder of the shell") } else { changes_shell_state(rest) }
        }
        _ => None,
    }
}

/// Whether a format of `printf` has the conversion `%n`, which stores a number in a variable.
fn writes_variable(format: &str) -> bool {
    let mut rest = format;
    while let Some((_, conversion)) = rest.split_once('%') {
        let conversion = conversion.trim_start_matches(|c: char| c.is_ascii_digit() || "#'-+ .*hjlLqtz".contains(c));
        let mut letters = conversion.chars();
        match letters.next() {
            Some('n') => return true,
            // `%%`, or any other conversion.
            Some(_) => rest = letters.as_str(),
            None => return false,
        }
    }
    false
}

/// Whether a word is a group of short options with this one in it.
fn is_flag(word: &str, option: char) -> bool {
    word.strip_prefix('-').is_some_and(|short| !short.starts_with('-') && short.contains(option))
}

/// Whether a command only passes on a part of its standard input.
fn is_filter(command: &SimpleCommand) -> bool {
    let Some((name, options)) = command.words.split_first() else { return false };
    let Some((_, flags, valued)) = FILTERS.iter().find(|(known, ..)| known == name) else { return false };
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let Some(short) = option.strip_prefix('-') else { return false };
        // `-20`, or flags and then at most one option, whose value is the rest of the word or the next word.
        let count = (*name == "head" || *name == "tail") && short.bytes().all(|byte| byte.is_ascii_digit());
        let rest = short.trim_start_matches(|flag| flags.contains(flag));
        let fine = match rest.chars().next() {
            _ if short.is_empty() => false,
            None => true,
            Some(letter) if valued.contains(letter) => rest.len() > 1 || options.next().is_some(),
            Some(_) => count,
        };
        if !fine {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests;
