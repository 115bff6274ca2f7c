//! The values for inputs from the command line, before the job is read.

use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Rule, Source, SourceSpan, rule};
use crate::job::value::ListSeparator;

/// The rules for the values of inputs.
pub const RULES: &[Rule] = &[
    rule!(Error "bad-set-argument"),
    rule!(Error "unreadable-input"),
    rule!(Error "unknown-input"),
    rule!(Error "missing-input"),
    rule!(Error "bad-input"),
    rule!(Error "duplicate-input"),
];

/// The greatest size of a value from a file, standard input or a variable, in bytes.
pub const MAX_VALUE_BYTES: usize = 1024 * 1024;

/// Values for a job's inputs. `--set` and `--set-env` take precedence over `--inputs`.
#[derive(Debug, Default)]
pub struct InputValues {
    pub(super) texts: Vec<InputArgument>,
    pub(super) files: Vec<Arc<Source>>,
    pub(super) findings: Vec<Diagnostic>,
}

/// The source of a value in `--set NAME=@...`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueSource<'a> {
    /// The file at a path.
    File(&'a str),
    /// Standard input.
    Stdin,
}

/// One value from an argument.
pub(super) struct InputArgument {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) listing: ListSeparator,
    option: &'static str,
    argument: String,
    /// Whether the argument contains the value itself, not the name of its source.
    literal: bool,
}

impl std::fmt::Debug for InputArgument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.option, self.name)
    }
}

impl InputArgument {
    /// The places of the argument's name and value. A value that may be secret isn't in the place's text.
    pub(super) fn places(&self, may_be_secret: bool) -> (SourceSpan, SourceSpan) {
        let start = self.name.len() + 1;
        let shown = if self.literal && may_be_secret { &self.argument[..start] } else { &self.argument };
        let source = Source::new(self.option, shown);
        let end = source.text.len();
        (SourceSpan { source: source.clone(), range: 0..self.name.len() }, SourceSpan { source, range: start..end })
    }
}

impl InputValues {
    /// Adds `--set NAME=VALUE`. `NAME=@FILE` and `NAME=@-` take the value from a file or standard input, which `read`
    /// reads (not much more than [`MAX_VALUE_BYTES`]), without its last line end. `NAME=@@VALUE` is a value that begins with
    /// `@`. The items of a list are separated by commas in an argument, and are one per line in a file.
    pub fn set(&mut self, argument: &str, read: impl FnOnce(ValueSource<'_>) -> std::io::Result<Vec<u8>>) {
        let Some((name, value)) = self.split("--set", argument, "write `--set NAME=VALUE`") else { return };
        if let Some(escaped) = value.strip_prefix("@@") {
            self.push("--set", argument, name, format!("@{escaped}"), ListSeparator::Commas, true);
        } else if let Some(from) = value.strip_prefix('@') {
            let bytes = read(if from == "-" { ValueSource::Stdin } else { ValueSource::File(from) });
            match bytes.map_err(|error| error.to_string()).and_then(decode_text) {
                Ok(text) => self.push("--set", argument, name, text, ListSeparator::Lines, false),
                Err(why) => {
                    let what = if from == "-" { "standard input".to_owned() } else { format!("`{from}`") };
                    let place =
                        SourceSpan { source: Source::new("--set", argument), range: name.len() + 1..argument.len() };
                    let finding = Diagnostic::error("unreadable-input", place, format!("{what} can't be read: {why}"));
                    self.findings.push(finding.help(unreadable_help(from, &why)));
                }
            }
        } else {
            self.push("--set", argument, name, value.to_owned(), ListSeparator::Commas, true);
        }
    }

    /// Adds `--set-env NAME=VARIABLE`; `read` looks up the variable. The items of a list are one per line.
    pub fn set_env(&mut self, argument: &str, read: impl FnOnce(&str) -> Option<std::ffi::OsString>) {
        let form = "write `--set-env NAME=VARIABLE`";
        let Some((name, variable)) = self.split("--set-env", argument, form) else { return };
        let value = match read(variable).map(std::ffi::OsString::into_string) {
            Some(Ok(value)) if value.len() > MAX_VALUE_BYTES => Err("is larger than 1 MiB"),
            Some(Ok(value)) => Ok(value),
            Some(Err(_)) => Err("isn't UTF-8 text"),
            None => Err("isn't set"),
        };
        match value {
            Ok(value) => self.push("--set-env", argument, name, value, ListSeparator::Lines, false),
            Err(why) => {
                let place =
                    SourceSpan { source: Source::new("--set-env", argument), range: name.len() + 1..argument.len() };
                let message = format!("the environment variable `{variable}` {why}");
                let help = match why {
                    "isn't set" => {
                        format!("set `{variable}` in the environment of legwork, or give the input another way")
                    }
                    _ => format!("give `{variable}` a text of at most 1 MiB"),
                };
                self.findings.push(Diagnostic::error("unreadable-input", place, message).help(help));
            }
        }
    }

    /// Adds `--inputs FILE`: a mapping of names to values, YAML or JSON.
    pub fn file(&mut self, source: &Arc<Source>) {
        self.files.push(source.clone());
    }

    fn push(
        &mut self,
        option: &'static str,
        argument: &str,
        name: &str,
        value: String,
        listing: ListSeparator,
        literal: bool,
    ) {
        let (name, argument) = (name.to_owned(), argument.to_owned());
        self.texts.push(InputArgument { name, value, listing, option, argument, literal });
    }

    fn split<'a>(&mut self, option: &str, argument: &'a str, form: &str) -> Option<(&'a str, &'a str)> {
        match argument.split_once('=').filter(|(name, _)| !name.is_empty()) {
            Some(pair) => Some(pair),
            None => {
                let place = SourceSpan { source: Source::new(option, argument), range: 0..argument.len() };
                self.findings.push(
                    Diagnostic::error("bad-set-argument", place, format!("`{option}` takes a name and a value"))
                        .help(form),
                );
                None
            }
        }
    }
}

const TOO_LARGE: &str = "it is larger than 1 MiB";
const NOT_UTF8: &str = "it isn't UTF-8 text";

/// The help for `@FROM` that can't be read.
fn unreadable_help(from: &str, why: &str) -> &'static str {
    match why {
        TOO_LARGE => "give a shorter text, or the path of a file that an agent can read",
        NOT_UTF8 => "save it as UTF-8 text",
        _ if from == "-" => "pipe a text into legwork, or give a file with `@FILE`",
        _ if std::path::Path::new(from).exists() => "name a regular file that you have permission to read",
        _ => "name a file that exists; write a value that begins with `@` as `@@`",
    }
}

/// Decodes a text without its last line end.
fn decode_text(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.len() > MAX_VALUE_BYTES {
        return Err(TOO_LARGE.to_owned());
    }
    let mut text = String::from_utf8(bytes).map_err(|_| NOT_UTF8.to_owned())?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}
