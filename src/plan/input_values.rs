//! The values for inputs from the command line, before the job is read.

use std::sync::Arc;

use super::input_attachments::InputAttachment;
use super::row::Row;
use crate::diagnostic::{Diagnostic, Rule, Source, SourceSpan, rule, suggest_name};
use crate::job::value::ListSeparator;

/// The rules for the values of inputs.
pub const RULES: &[Rule] = &[
    rule!(Error "bad-set-argument"),
    rule!(Error "unreadable-input"),
    rule!(Error "unknown-input"),
    rule!(Error "missing-input"),
    rule!(Error "missing-trigger"),
    rule!(Error "bad-input"),
    rule!(Error "duplicate-input"),
];

/// The greatest size of a value from a file, standard input or a variable, in bytes.
pub const MAX_VALUE_BYTES: usize = 1024 * 1024;

/// The values of a job's secret inputs, by name. `{:?}` shows the names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretInputs(Vec<(String, String)>);

impl SecretInputs {
    pub(super) fn push(&mut self, name: &str, value: String) {
        self.0.push((name.to_owned(), value));
    }

    /// The inputs' names, as the job writes them, and their values, in the job's order.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }
}

impl std::fmt::Debug for SecretInputs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.0.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "))
    }
}

/// Values for a job's inputs. `--set` and `--set-env` take precedence over `--inputs`, and so does a row. An input that both
/// an argument and a row give is an error.
#[derive(Debug, Clone, Default)]
pub struct InputValues {
    pub(super) texts: Vec<InputArgument>,
    pub(super) files: Vec<Arc<Source>>,
    /// A row of a file, and that file.
    pub(super) row: Option<(Arc<Source>, Row)>,
    pub(super) findings: Vec<Diagnostic>,
    /// The images and documents of a recorded run, which needn't be read again.
    pub(super) recorded: Vec<InputAttachment>,
    /// Whether images and documents aren't read, because there is no workspace yet.
    pub(super) reads_no_files: bool,
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
#[derive(Clone)]
pub(super) struct InputArgument {
    pub(super) name: String,
    pub(super) value: String,
    /// How the items of a list are separated: by commas if the argument contains the value itself, not the name of its source.
    pub(super) listing: ListSeparator,
    /// Whether the value is the path of a file from the current folder.
    pub(super) is_named_file: bool,
    option: &'static str,
    argument: String,
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
        let shown = if may_be_secret && self.listing == ListSeparator::Commas {
            &self.argument[..start]
        } else {
            &self.argument
        };
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
        self.add("--set", argument, "write `--set NAME=VALUE`", |value| {
            let Some(from) = value.strip_prefix('@') else { return Ok((value.to_owned(), ListSeparator::Commas)) };
            if from.starts_with('@') {
                return Ok((from.to_owned(), ListSeparator::Commas));
            }
            let (source, name) = match from {
                "-" => (ValueSource::Stdin, "standard input".to_owned()),
                path => (ValueSource::File(path), format!("`{path}`")),
            };
            let (why, help) = match read(source).map(String::from_utf8) {
                Ok(Ok(text)) if text.len() <= MAX_VALUE_BYTES => {
                    let text = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
                    return Ok((text.to_owned(), ListSeparator::Lines));
                }
                Ok(Ok(_)) => (
                    "it is larger than 1 MiB".to_owned(),
                    "give a shorter text, or the path of a file that an agent can read",
                ),
                Ok(Err(_)) => ("it isn't UTF-8 text".to_owned(), "save it as UTF-8 text"),
                Err(error) if from == "-" => {
                    (error.to_string(), "pipe a text into legwork, or give a file with `@FILE`")
                }
                Err(error) if std::path::Path::new(from).exists() => {
                    (error.to_string(), "name a regular file that you have permission to read")
                }
                Err(error) => {
                    (error.to_string(), "name a file that exists; write a value that begins with `@` as `@@`")
                }
            };
            Err((format!("{name} can't be read: {why}"), help.to_owned()))
        });
    }

    /// Adds `--set NAME=VALUE` for an input that is an image: `NAME=@FILE` is the path of a file from the current folder.
    pub fn set_image(&mut self, argument: &str) {
        let mut is_named_file = false;
        let before = self.texts.len();
        self.add("--set", argument, "write `--set NAME=PATH`", |value| {
            let path = value.strip_prefix('@').filter(|path| !path.starts_with('@'));
            is_named_file = path.is_some();
            match path {
                Some("-") => {
                    let message = "an image can't be read from standard input".to_owned();
                    Err((message, "save it to a file, and name that: `@FILE`".to_owned()))
                }
                Some(path) => Ok((path.to_owned(), ListSeparator::Commas)),
                None => Ok((value.strip_prefix('@').unwrap_or(value).to_owned(), ListSeparator::Commas)),
            }
        });
        self.texts[before..].iter_mut().for_each(|text| text.is_named_file = is_named_file);
    }

    /// Uses the images and documents of a recorded run instead of files.
    pub fn use_recorded(&mut self, attachments: &[InputAttachment]) {
        self.recorded = attachments.to_vec();
    }

    /// Reads no images and documents: only the values are checked.
    pub fn read_no_files(&mut self) {
        self.reads_no_files = true;
    }

    /// Adds `--set-env NAME=VARIABLE`; `read` looks up the variable. The items of a list are one per line.
    pub fn set_env(&mut self, argument: &str, read: impl FnOnce(&str) -> Option<std::ffi::OsString>) {
        self.add("--set-env", argument, "write `--set-env NAME=VARIABLE`", |variable| {
            let shorter = || format!("give `{variable}` a text of at most 1 MiB");
            let (why, help) = match read(variable).map(std::ffi::OsString::into_string) {
                Some(Ok(value)) if value.len() <= MAX_VALUE_BYTES => return Ok((value, ListSeparator::Lines)),
                Some(Ok(_)) => ("is larger than 1 MiB", shorter()),
                Some(Err(_)) => ("isn't UTF-8 text", shorter()),
                None => (
                    "isn't set",
                    format!("set `{variable}` in the environment of legwork, or give the input another way"),
                ),
            };
            Err((format!("the environment variable `{variable}` {why}"), help))
        });
    }

    /// Adds `--inputs FILE`: a mapping of names to values, YAML or JSON.
    pub fn file(&mut self, source: &Arc<Source>) {
        self.files.push(source.clone());
    }

    /// Sets the row of a rows file, instead of an earlier one.
    pub fn set_row(&mut self, source: &Arc<Source>, row: Row) {
        self.row = Some((Arc::clone(source), row));
    }

    /// Whether a place is in an argument of `--set` or `--set-env`, or in a file of `--inputs`.
    pub fn is_in_option(&self, place: &SourceSpan) -> bool {
        let name = &place.source.name;
        name.starts_with("--") || self.files.iter().any(|file| file.name == *name)
    }

    /// The values for the secret inputs of an existing plan. Exactly these inputs must be given.
    ///
    /// # Errors
    /// The inputs that are missing, empty or unknown.
    pub fn secret_inputs(&self, names: &[String]) -> Result<SecretInputs, Vec<Diagnostic>> {
        let mut findings = self.findings.clone();
        let mut secrets = SecretInputs::default();
        for text in self.texts.iter().filter(|text| !names.contains(&text.name)) {
            let (name, _) = text.places(true);
            let message = format!("`{}` isn't a secret input of this run", text.name);
            let finding = Diagnostic::error("unknown-input", name, message);
            findings.push(match suggest_name(&text.name, names.iter().map(String::as_str)) {
                Some(meant) => finding.help(format!("did you mean `{meant}`?")),
                None => finding.help("other inputs are in the run's plan and can't be changed"),
            });
        }
        for name in names {
            match self.texts.iter().find(|text| text.name == *name) {
                Some(text) if text.value.trim().is_empty() => {
                    let message = format!("the input `{name}` is secret, and empty");
                    let finding = Diagnostic::error("bad-input", text.places(true).1, message);
                    findings.push(finding.help("set the variable in the environment of legwork"));
                }
                Some(text) => secrets.push(name, text.value.clone()),
                None if !self.findings.is_empty() => {}
                None => {
                    let place = SourceSpan { source: Source::new("--set-env", ""), range: 0..0 };
                    let message = format!("the secret input `{name}` isn't recorded and must be given again");
                    let finding = Diagnostic::error("missing-input", place, message);
                    findings.push(finding.help(format!("give it with `--set-env {name}=VARIABLE`")));
                }
            }
        }
        if findings.is_empty() { Ok(secrets) } else { Err(findings) }
    }

    /// Adds an argument. `read` gets what follows the name, and returns the value, or a message and its help.
    fn add(
        &mut self,
        option: &'static str,
        argument: &str,
        form: &str,
        read: impl FnOnce(&str) -> Result<(String, ListSeparator), (String, String)>,
    ) {
        let mut report = |code, range, message: String, help| {
            let place = SourceSpan { source: Source::new(option, argument), range };
            self.findings.push(Diagnostic::error(code, place, message).help(help));
        };
        let Some((name, value)) = argument.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            let message = format!("`{option}` takes a name and a value");
            return report("bad-set-argument", 0..argument.len(), message, form.to_owned());
        };
        let (value, listing) = match read(value) {
            Ok(value) => value,
            Err((message, help)) => {
                return report("unreadable-input", name.len() + 1..argument.len(), message, help);
            }
        };
        let (name, argument) = (name.to_owned(), argument.to_owned());
        let text = InputArgument { name, value, listing, is_named_file: false, option, argument };
        match self.texts.iter().find(|earlier| earlier.name == text.name) {
            None => self.texts.push(text),
            Some(first) => {
                let message = format!("the input `{}` is given twice", text.name);
                let finding = Diagnostic::error("duplicate-input", text.places(true).0, message);
                self.findings.push(finding.label(first.places(true).0, "first here").help("give it once"));
            }
        }
    }
}
