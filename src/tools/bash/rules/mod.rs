//! Rules for `bash`: which commands a job allows. They are a convenience, not a security boundary: many programs can run
//! other programs.

use std::path::Path;

use super::ast::SimpleCommand;
use super::cross_check::parse_and_cross_check;
use super::working_dirs::{WorkingDirs, is_cd};
use crate::message::ToolError;

/// The syntax of a rule, for people.
pub(super) const RULE_FORM: &str = "a rule is one simple command; `*` as its last word stands for any further words";

/// A regular expression that matches every valid rule. It also matches invalid rules that only a shell parser can detect,
/// such as some with quotes.
pub(super) const RULE_PATTERN: &str = concat!(
    r##"["'\\#\n]|"##,
    r"^(?![ \t]*\*?[ \t]*$)",
    r"(?![ \t]*[A-Za-z_][A-Za-z0-9_]*\+?=)",
    r"(?!.*\$[A-Za-z0-9_{])",
    r"[^`()<>|&?*;]+(\s\*)?\s*$",
);

/// A filter that needs no rule after a pipe. It reads standard input and opens no file: file arguments aren't allowed, because
/// rules don't say which files may be read, and `sort` and `uniq` can write some.
struct Filter {
    name: &'static str,
    /// Short options without a value.
    flags: &'static str,
    /// Short options with a value that names no file.
    valued: &'static str,
    /// How many words that aren't options it takes without opening them.
    operands: usize,
    /// Whether `-20` is a number of lines.
    takes_count: bool,
}

const fn filter(name: &'static str, flags: &'static str, valued: &'static str, operands: usize) -> Filter {
    Filter { name, flags, valued, operands, takes_count: false }
}

/// The filters. Left out are `-f`, `-r` and `-R` of `grep`, `-f` and `-L` of `jq`, `-f` of `tail`, `-o` and `-T` of `sort`, and all
/// long options.
const FILTERS: [Filter; 11] = [
    Filter { takes_count: true, ..filter("head", "qvz", "nc", 0) },
    Filter { takes_count: true, ..filter("tail", "qvz", "nc", 0) },
    filter("wc", "lcwmL", "", 0),
    filter("sort", "rnuhVfbdigMRsz", "kt", 0),
    filter("uniq", "cdDuiz", "fsw", 0),
    filter("cat", "AbeEnstTuv", "", 0),
    filter("nl", "p", "bdfhilnsvw", 0),
    filter("cut", "nsz", "bcdf", 0),
    filter("tr", "cCdst", "", 2),
    Filter { takes_count: true, ..filter("grep", "abcEFGhHiIlLnoPqsTvwxyzZ", "ABCem", 1) },
    filter("jq", "acCejMnrRsS", "", 1),
];

/// Words with which a program of `jq` reads the environment or files.
const JQ_READERS: [&str; 7] = ["env", "ENV", "import", "include", "modulemeta", "get_search_list", "input_filename"];

/// The rules of a job.
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
    /// Parses rules.
    ///
    /// # Errors
    /// What is wrong with the first invalid rule.
    pub(super) fn new(patterns: &[String]) -> Result<Self, String> {
        Ok(Self { patterns: patterns.iter().map(|text| parse_rule(text)).collect::<Result<_, _>>()? })
    }

    /// The allowed commands, for people and models.
    pub(super) fn describe(&self) -> String {
        let patterns: Vec<_> = self.patterns.iter().map(|pattern| format!("`{}`", pattern.text)).collect();
        format!(
            "{} (`*` stands for any further words), joined by `|`, `&&`, `||` or `;`. Also allowed: `cd` within the \
             workspace, `2>&1`, `>/dev/null`, and pipes into head, tail, wc, sort, uniq, cat, nl, cut, tr, grep and jq with \
             short options and without file arguments. Not allowed: variables, wildcards, substitutions, assignments, loops, other redirections, background jobs",
            if patterns.is_empty() { "no commands".to_owned() } else { patterns.join(", ") }
        )
    }

    /// Checks a command and returns it in the canonical form to run.
    pub(super) fn check(&self, command: &str, root: &Path) -> Result<String, ToolError> {
        self.authorize(command, root)
            .map_err(|why| ToolError(format!("not allowed: {why}. Allowed: {}.", self.describe())))
    }

    /// Checks a command without a workspace, where no folder is a link.
    ///
    /// # Errors
    /// Why the command isn't allowed.
    pub(super) fn test(&self, command: &str) -> Result<(), String> {
        // A path that doesn't exist anywhere.
        self.authorize(command, Path::new("/\0")).map(drop)
    }

    /// The command in the canonical form to run, or why it isn't allowed.
    fn authorize(&self, command: &str, root: &Path) -> Result<String, String> {
        let mut script = parse_and_cross_check(command).map_err(|unsupported| unsupported.to_string())?;
        let mut working_dirs = WorkingDirs::at(root);
        for pipeline in &mut script.pipelines {
            let possible_dirs = working_dirs.before().to_vec();
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
                // `./build` is another program in another folder.
                let is_relative_path = command.words[0].contains('/') && !command.words[0].starts_with('/');
                if is_relative_path && possible_dirs.iter().any(|folder| folder != root) {
                    return Err(format!("`{}` is a relative path after a `cd`", shown()));
                }
            }
            working_dirs.pass(pipeline, root)?;
        }
        Ok(script.to_shell())
    }
}

fn parse_rule(text: &str) -> Result<CommandPattern, String> {
    let text = text.trim_matches([' ', '\t', '\r', '\n']);
    let (fixed, open) = match text.strip_suffix('*') {
        Some("") => {
            return Err("it allows every command; to do that, remove `allow`".to_owned());
        }
        Some(fixed) if fixed.ends_with([' ', '\t']) => (fixed, true),
        _ => (text, false),
    };
    let mut script = parse_and_cross_check(fixed).map_err(|unsupported| {
        if unsupported.what.contains("wildcard `*`") {
            "`*` can only be the last word, by itself".to_owned()
        } else {
            format!("it contains {unsupported}")
        }
    })?;
    let is_single_command = script.pipelines.len() == 1 && script.pipelines[0].is_single_command();
    let command = script.pipelines.pop().and_then(|mut pipeline| pipeline.commands.pop());
    let Some(command) = command.filter(|_| is_single_command) else {
        return Err("it must be one simple command".to_owned());
    };
    check_nothing_between(fixed, &command.raw)?;
    if command.words[0].is_empty() {
        return Err("it names no program".to_owned());
    }
    match changes_shell_state(&command.words) {
        Some(why) => Err(format!("`{}` can't be allowed by a rule: {why}", command.words[0])),
        None => Ok(CommandPattern { text: text.to_owned(), words: command.words, allows_more_words: open }),
    }
}

/// Refuses what a rule may not contain although a command may: anything but blanks between its words. Otherwise fewer words
/// would have to match than were written: `rm # *` would be `rm` with any further words.
fn check_nothing_between(text: &str, words: &[String]) -> Result<(), String> {
    let without_blanks = |text: &str| text.replace([' ', '\t'], "");
    if without_blanks(text) == without_blanks(&words.concat()) {
        return Ok(());
    }
    Err(match text {
        _ if text.contains('\n') => "it contains a line break; a rule is one line",
        _ if text.contains('#') => "it contains a comment (`#`); quote the `#` if it is part of a word",
        _ => "it must be one simple command",
    }
    .to_owned())
}

/// The words of a rule, and whether any further ones may follow; `None` if it is invalid.
pub(super) fn rule_words(rule: &str) -> Option<(Vec<String>, bool)> {
    parse_rule(rule).ok().map(|pattern| (pattern.words, pattern.allows_more_words))
}

impl CommandPattern {
    fn matches(&self, words: &[String]) -> bool {
        if self.allows_more_words { words.starts_with(&self.words) } else { words == self.words }
    }
}

/// Builtins that change variables, aliases, functions, options or the working directory of the shell, or run text that no
/// rule has checked. Source: bash(1), "Shell Builtin Commands".
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

/// Why a command could change the meaning of the next one, for example by setting `PATH`; `None` if it can't.
fn changes_shell_state(words: &[String]) -> Option<&'static str> {
    const ASSIGNS: &str = "it can set variables of the shell";
    let (name, operands) = words.split_first()?;
    match name.as_str() {
        name if STATEFUL_BUILTINS.contains(&name) => {
            Some("this builtin changes the state of the shell or runs text that can't be checked")
        }
        "printf" => {
            let operands = operands.strip_prefix(&["--".to_owned()]).unwrap_or(operands);
            let format = operands.first()?;
            let assigns = (operands.len() == words.len() - 1 && format.starts_with("-v")) || writes_variable(format);
            assigns.then_some(ASSIGNS)
        }
        "wait" => operands.iter().any(|word| has_short_option(word, 'p')).then_some(ASSIGNS),
        "test" | "[" => operands.iter().any(|word| word == "-v").then_some("it evaluates a variable of the shell"),
        // `exec` and `command` run the rest as a command.
        "command" | "exec" => {
            let rest = operands.iter().position(|word| !word.starts_with('-')).map(|first| &operands[first..])?;
            if rest[0] == "cd" {
                Some("it changes the working directory of the shell")
            } else {
                changes_shell_state(rest)
            }
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

/// Whether a word is a group of short options that contains this one.
fn has_short_option(word: &str, option: char) -> bool {
    word.strip_prefix('-').is_some_and(|short| !short.starts_with('-') && short.contains(option))
}

/// Whether a command is one of [`FILTERS`] that opens no file.
fn is_filter(command: &SimpleCommand) -> bool {
    let Some((name, words)) = command.words.split_first() else { return false };
    let Some(filter) = FILTERS.iter().find(|filter| filter.name == name) else { return false };
    let (mut operands, mut has_pattern_option) = (Vec::new(), false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(short) = word.strip_prefix('-').filter(|short| !short.is_empty()) else {
            operands.push(word.as_str());
            continue;
        };
        // `-20`, or flags and then at most one option, whose value is the rest of the word or the next word.
        let count = filter.takes_count && short.bytes().all(|byte| byte.is_ascii_digit());
        let rest = short.trim_start_matches(|flag| filter.flags.contains(flag));
        let is_allowed = match rest.chars().next() {
            None => true,
            Some(letter) if filter.valued.contains(letter) => {
                has_pattern_option |= letter == 'e';
                rest.len() > 1 || words.next().is_some()
            }
            Some(_) => count,
        };
        if !is_allowed {
            return false;
        }
    }
    // With `-e`, the first operand of `grep` is no pattern but a file.
    let max_operands = if has_pattern_option { 0 } else { filter.operands };
    operands.len() <= max_operands && (filter.name != "jq" || operands.iter().all(|program| !reads_more(program)))
}

/// Whether a program of `jq` may read more than its input: environment variables, whose values aren't masked once they are
/// changed, or modules, which are files.
fn reads_more(program: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    program.split(|letter| !is_part(letter)).any(|word| JQ_READERS.contains(&word))
}

#[cfg(test)]
mod tests;
