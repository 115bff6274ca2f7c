//! The command that continues a run or a map, to be copied into a shell.

use std::path::Path;

use super::env::CliEnv;
use super::output::{printable, quote_word, shell_quote};
use crate::redaction::Redactor;

/// The most characters of a command that is printed.
const MAX_CHARS: usize = 2_000;

/// How to continue a run that has ended early.
#[derive(Debug, Clone)]
pub(super) enum NextCommand {
    /// By `legwork resume` with these options.
    Resume(Vec<String>),
    /// By the same command again, with these arguments; `None` if it can't be printed.
    Again(Option<Vec<String>>),
}

impl NextCommand {
    /// For a run without a key. Secret inputs aren't in the record, so they are set again in the same way. A value on the command
    /// line isn't repeated.
    pub(super) fn resume(set: &[String], set_env: &[String], secret_inputs: &[String], is_signed: bool) -> Self {
        let name_of = |argument: &String| argument.split_once('=').map(|(name, _)| name.to_owned());
        let mut options = if is_signed { Vec::new() } else { vec!["--trust-record".to_owned()] };
        for name in secret_inputs {
            let is_it = |argument: &&String| name_of(argument).as_ref() == Some(name);
            let is_file = |argument: &&String| {
                argument.split_once('=').is_some_and(|(_, value)| value.starts_with('@') && value != "@-")
            };
            let (option, value) = match (set_env.iter().find(is_it), set.iter().filter(is_it).find(is_file)) {
                (Some(argument), _) => ("--set-env", argument.clone()),
                (None, Some(argument)) => ("--set", argument.clone()),
                (None, None) => ("--set", format!("{name}=...")),
            };
            options.extend([option.to_owned(), value]);
        }
        Self::Resume(options)
    }

    /// For a run with a key and for a map: the command line of this process. Without the flags in `without`, which take no value.
    pub(super) fn again(env: &CliEnv, without: &[&str], secret_inputs: &[String], redactor: &Redactor) -> Self {
        let arguments: Option<Vec<&str>> = env.arguments.iter().map(Option::as_deref).collect();
        Self::Again(arguments.and_then(|mut arguments| {
            arguments.retain(|argument| !without.contains(argument));
            is_repeatable(&arguments, secret_inputs, redactor)
                .then(|| arguments.into_iter().map(str::to_owned).collect())
        }))
    }

    /// The line that says how to continue the run in a folder. `limit` is an argument of `--limit` that it needs.
    pub(super) fn line(&self, folder: &Path, limit: Option<&str>) -> String {
        let name = limit.and_then(|limit| limit.split_once('=')).map(|(name, _)| name);
        let limit = limit.map(|limit| format!(" --limit {}", quote_word(limit))).unwrap_or_default();
        match self {
            Self::Resume(options) => {
                let options: String = options.iter().map(|option| format!(" {}", quote_word(option))).collect();
                format!("resume: legwork resume {}{limit}{options}", printable(&shell_quote(folder)))
            }
            Self::Again(Some(arguments)) => {
                format!("resume: {}{limit}", command_line(&without_limit(arguments, name)))
            }
            Self::Again(None) => match limit.as_str() {
                "" => "resume: the same command again".to_owned(),
                limit => format!("resume: the same command again, with{limit}"),
            },
        }
    }
}

/// The arguments without the `--limit` that another one replaces.
fn without_limit<'a>(arguments: &'a [String], name: Option<&str>) -> Vec<&'a str> {
    let is_it = |value: &str| value.split_once('=').is_some_and(|(found, _)| Some(found) == name);
    let mut kept: Vec<&str> = Vec::new();
    for argument in arguments {
        match kept.last() {
            Some(&"--limit") if is_it(argument) => drop(kept.pop()),
            _ if argument.strip_prefix("--limit=").is_some_and(is_it) => {}
            _ => kept.push(argument),
        }
    }
    kept
}

fn command_line(arguments: &[&str]) -> String {
    let words: Vec<String> = arguments.iter().map(|argument| quote_word(argument)).collect();
    format!("legwork {}", words.join(" "))
}

/// Whether the command does the same when it is typed again: without secrets, control characters and standard input.
fn is_repeatable(arguments: &[&str], secret_inputs: &[String], redactor: &Redactor) -> bool {
    let is_secret = |value: &str| {
        value
            .split_once('=')
            .is_some_and(|(name, value)| !value.starts_with('@') && secret_inputs.iter().any(|secret| secret == name))
    };
    let mut before = "";
    for argument in arguments {
        let set = if before == "--set" { Some(*argument) } else { argument.strip_prefix("--set=") };
        let reads_stdin = *argument == "-" || argument.ends_with("=@-") || argument.ends_with("=-");
        if set.is_some_and(is_secret) || reads_stdin || printable(argument) != *argument {
            return false;
        }
        before = argument;
    }
    let command = command_line(arguments);
    command.chars().count() <= MAX_CHARS && redactor.redact(&command) == command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_printed_only_if_it_can_be_repeated() {
        let redactor = Redactor::new(&[("KEY".to_owned(), "hunter2hunter2".to_owned())]).0;
        let secrets = ["token".to_owned()];
        let can_be_printed = |arguments: &[&str]| is_repeatable(arguments, &secrets, &redactor);
        let good = ["run", "it's.yaml", "--set", "a=b c"];
        assert!(can_be_printed(&good));
        assert_eq!(command_line(&good), r"legwork run 'it'\''s.yaml' --set 'a=b c'");
        assert!(can_be_printed(&["map", "j", "--set", "token=@file", "--set-env=token=T"]));
        for bad in [
            &["--set", "token=abc"][..],
            &["--set=token=abc"],
            &["--rows", "-"],
            &["--rows=-"],
            &["--set", "a=@-"],
            &["--set", "a=b\nc"],
            &["--set", "a=hunter2hunter2"],
            &[&"x".repeat(MAX_CHARS)],
        ] {
            assert!(!can_be_printed(bad), "{bad:?}");
        }
    }

    #[test]
    fn secret_inputs_are_set_again() {
        let set = ["a=1", "file=@secret.txt", "typed=abc", "stdin=@-"].map(str::to_owned);
        let secrets = ["file", "typed", "stdin", "variable"].map(str::to_owned);
        let next = NextCommand::resume(&set, &["variable=TOKEN".to_owned()], &secrets, true);
        let line = next.line(Path::new("my runs/j/1"), Some("cost_usd=2"));
        assert_eq!(
            line,
            "resume: legwork resume 'my runs/j/1' --limit cost_usd=2 --set file=@secret.txt --set typed=... --set stdin=... \
             --set-env variable=TOKEN"
        );
        let again = |arguments: Option<&[&str]>| {
            let arguments = arguments.map(|it| it.iter().map(|argument| (*argument).to_owned()).collect());
            NextCommand::Again(arguments).line(Path::new("r"), Some("tokens=5"))
        };
        for old in [&[][..], &["--limit", "tokens=4"], &["--limit=tokens=4"]] {
            let arguments = [&["map", "j"], old, &["--limit", "cost_usd=1"]].concat();
            assert_eq!(again(Some(&arguments)), "resume: legwork map j --limit cost_usd=1 --limit tokens=5");
        }
        assert_eq!(again(None), "resume: the same command again, with --limit tokens=5");
    }
}
