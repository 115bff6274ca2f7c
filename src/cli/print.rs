//! What reaches the terminal: the answer on stdout, everything else on stderr.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::{FileType, Stat};

use super::outputs::{self, Stream};
use crate::changes::FileId;
use crate::diagnostic::Diagnostic;
use crate::error::Error;
pub(super) use crate::formats::harmless::line as printable;
use crate::formats::{self, Look, harmless};

/// A path as one word of a shell's command line that no command takes for an option.
pub(super) fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let text = if text.starts_with('-') { format!("./{text}") } else { text.into_owned() };
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./,:+@%".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    Never,
    Always,
    OnTerminal,
}

impl Colour {
    /// `NO_COLOR` and `CLICOLOR_FORCE` as <https://no-color.org> and <https://bixense.com/clicolors> say.
    pub(super) fn from(variables: &BTreeMap<String, String>) -> Self {
        let set = |name: &str| variables.get(name).is_some_and(|value| !value.is_empty());
        if set("NO_COLOR") {
            Self::Never
        } else if set("CLICOLOR_FORCE") && variables.get("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
            Self::Always
        } else if variables.get("TERM").is_some_and(|term| term == "dumb") {
            Self::Never
        } else {
            Self::OnTerminal
        }
    }

    fn on(self, is_terminal: bool) -> bool {
        self == Self::Always || (self == Self::OnTerminal && is_terminal)
    }
}

/// Why stdout didn't take everything, where that is nobody's wish.
static UNPRINTED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Both outputs. A reader who went away is no error: the record has everything. A full disk below stdout is one, see
/// [`Out::take_failure`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Out {
    colour: Colour,
    ci: bool,
}

impl Out {
    pub(super) fn new(variables: &BTreeMap<String, String>) -> Self {
        Self { colour: Colour::from(variables), ci: is_ci(variables) }
    }

    /// Whether a CI system reads along.
    pub(super) fn is_ci(self) -> bool {
        self.ci
    }

    /// Whether what goes to stderr stays, in a file.
    pub(super) fn keeps_stderr(self) -> bool {
        !is_passing(io::stderr())
    }

    /// How text for stdout looks.
    pub(super) fn look(self) -> Look {
        look(self.colour.on(io::stdout().is_terminal()))
    }

    /// How text for stderr looks.
    pub(super) fn look_beside(self) -> Look {
        look(self.colour.on(io::stderr().is_terminal()))
    }

    /// Whether stdout is read by a person rather than by a program.
    pub(super) fn is_for_person(self) -> bool {
        self.colour == Colour::Always || io::stdout().is_terminal()
    }

    /// The regular files that stdout and stderr go to.
    pub(super) fn files(self) -> Vec<FileId> {
        let stats = [rustix::fs::fstat(io::stdout()), rustix::fs::fstat(io::stderr())];
        let is_file = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        // The types differ from one architecture to the next.
        #[allow(clippy::unnecessary_cast)]
        stats.into_iter().flatten().filter(is_file).map(|stat| (stat.st_dev as u64, stat.st_ino as u64)).collect()
    }

    /// Prints lines of our own to stdout. No name in them becomes a command for a CI system.
    pub(super) fn lines(self, text: &str) {
        self.answer(&harmless::log(text));
    }

    /// Prints to stdout what a format has made. One for programs keeps every byte: it takes care of names itself, and
    /// GitHub's consists of commands.
    pub(super) fn formatted(self, format: &str, text: &str) {
        if is_for_people(format) { self.lines(text) } else { self.answer(text) }
    }

    /// As [`Out::formatted`], on stderr.
    pub(super) fn formatted_beside(self, format: &str, text: &str) {
        if is_for_people(format) { self.beside(text) } else { self.command(text) }
    }

    /// Prints to stdout and ends the line: JSON, or what is meant for a program.
    pub(super) fn answer(self, text: &str) {
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        if let Err(error) = outputs::write(Stream::Stdout, format!("{text}{end}").as_bytes()) {
            self.fail(error);
        }
    }

    /// Takes note that stdout lacks something, unless its reader went away.
    fn fail(self, error: io::Error) {
        if error.kind() != io::ErrorKind::BrokenPipe {
            UNPRINTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
        }
    }

    /// Waits for the readers of what was printed while a run went on.
    pub(super) fn finish(self) {
        if let Err(error) = outputs::finish() {
            self.fail(error);
        }
    }

    /// Why stdout lacks something of the answer, once; `None` where it has it all or its reader went away.
    pub(super) fn take_failure(self) -> Option<io::Error> {
        UNPRINTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }

    /// As [`Out::answer`], for text of models and files. Where it is read by a terminal, or by a CI system that follows the
    /// output, nothing in it steers them; into a file or a program it goes byte for byte. Tells whether it was changed.
    pub(super) fn foreign(self, text: &str) -> bool {
        let is_followed = io::stdout().is_terminal() || (self.ci && is_passing(io::stdout()));
        let harmless = if is_followed { harmless::text(text) } else { text.into() };
        self.answer(&harmless);
        harmless != text
    }

    /// Prints what clap says: help, the version, or what is wrong with the command line, which it quotes.
    pub(super) fn usage(self, error: &clap::Error) -> io::Result<()> {
        let text = error.render().to_string();
        let harmless = harmless::text(&text);
        if harmless == text {
            return error.print();
        }
        self.beside(&harmless);
        Ok(())
    }

    /// Prints to stderr and ends the line. No name in it becomes a command for a CI system.
    pub(super) fn beside(self, text: &str) {
        self.command(&harmless::log(text));
    }

    /// As [`Out::beside`], for what a CI system is meant to obey.
    pub(super) fn command(self, text: &str) {
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        // A reader who went away is no error.
        let _ = outputs::write(Stream::Stderr, format!("{text}{end}").as_bytes());
    }

    /// Prints a warning to stderr.
    pub(super) fn warning(self, text: &str) {
        self.beside(&format!("{} {}", self.label("warning:", "33"), printable(text)));
    }

    /// Prints an error with its causes and its hint to stderr.
    pub(super) fn error(self, error: &Error) {
        if let Error::Invalid(findings) | Error::Configuration(findings) = error {
            return self.findings(findings);
        }
        let mut text = format!("{} {}", self.label("error:", "31"), printable(&error.to_string()));
        let mut cause = std::error::Error::source(error);
        while let Some(deeper) = cause {
            text.push_str(&format!(": {}", printable(&deeper.to_string())));
            cause = deeper.source();
        }
        if let Some(hint) = error.hint() {
            text.push_str(&format!("\n{} {}", self.label("help:", "36"), printable(&hint)));
        }
        self.beside(&text);
    }

    /// Prints findings to stderr, as text.
    pub(super) fn findings(self, findings: &[Diagnostic]) {
        let findings: Vec<Diagnostic> = findings.iter().map(Diagnostic::shown).collect();
        let text = formats::find("text").and_then(|format| format.diagnostics(&findings, self.look_beside()));
        self.beside(&text.unwrap_or_default());
    }

    fn label(self, text: &str, colour: &str) -> String {
        if self.look_beside().colour { format!("\u{1b}[1;{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

fn is_for_people(format: &str) -> bool {
    matches!(format, "text" | "concise" | "markdown")
}

/// Whether these are the variables of a CI system. Azure Pipelines and TeamCity set no `CI`.
fn is_ci(variables: &BTreeMap<String, String>) -> bool {
    let on = |name: &&str| variables.get(*name).is_some_and(|value| !["", "0", "false"].contains(&value.as_str()));
    ["CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION"].iter().any(on)
}

/// Whether an output is handed on, rather than kept in a file or thrown away.
fn is_passing(output: impl rustix::fd::AsFd) -> bool {
    use rustix::fs::FileType;
    let kind = rustix::fs::fstat(output).map(|data| FileType::from_raw_mode(data.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::Socket))
}

fn look(colour: bool) -> Look {
    Look { colour, width: terminal_width() }
}

/// Columns of the terminal; 140, as rustc takes it, where there is none.
fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns >= 40).unwrap_or(140)
}
