//! What reaches the terminal: the answer on stdout, everything else on stderr.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::{FileType, Stat};

use super::output_queue::{self, Stream};
use crate::diagnostic::Diagnostic;
use crate::error::Error;
use crate::formats;
use crate::formats::DisplayOptions;
use crate::text::sanitize;
pub(super) use crate::text::sanitize::line as printable;
use crate::workspace_changes::FileId;

/// A path as one word of a shell's command line that no command takes for an option.
pub(super) fn shell_quote(path: &Path) -> String {
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

    fn is_enabled(self, is_terminal: bool) -> bool {
        self == Self::Always || (self == Self::OnTerminal && is_terminal)
    }
}

/// Why stdout didn't take everything, where that is nobody's wish.
static STDOUT_ERROR: Mutex<Option<io::Error>> = Mutex::new(None);

/// Both outputs. A reader who went away is no error: the record has everything. A full disk below stdout is one, see
/// [`Console::take_failure`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Console {
    colour: Colour,
    is_ci_log: bool,
}

impl Console {
    pub(super) fn new(variables: &BTreeMap<String, String>) -> Self {
        Self { colour: Colour::from(variables), is_ci_log: is_ci(variables) }
    }

    /// Whether a CI system reads along.
    pub(super) fn is_ci(self) -> bool {
        self.is_ci_log
    }

    /// Whether what goes to stderr stays, in a file.
    pub(super) fn is_stderr_file(self) -> bool {
        !is_pipe(io::stderr())
    }

    /// How text for stdout looks.
    pub(super) fn stdout_display(self) -> DisplayOptions {
        display_options(self.colour.is_enabled(io::stdout().is_terminal()))
    }

    /// How text for stderr looks.
    pub(super) fn stderr_display(self) -> DisplayOptions {
        display_options(self.colour.is_enabled(io::stderr().is_terminal()))
    }

    /// Whether stdout is read by a person rather than by a program.
    pub(super) fn is_interactive(self) -> bool {
        self.colour == Colour::Always || io::stdout().is_terminal()
    }

    /// The regular files that stdout and stderr go to.
    pub(super) fn output_files(self) -> Vec<FileId> {
        let stats = [rustix::fs::fstat(io::stdout()), rustix::fs::fstat(io::stderr())];
        let is_file = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        // The types differ from one architecture to the next.
        #[allow(clippy::unnecessary_cast)]
        stats.into_iter().flatten().filter(is_file).map(|stat| (stat.st_dev as u64, stat.st_ino as u64)).collect()
    }

    /// Prints lines of our own to stdout. No name in them becomes a command for a CI system.
    pub(super) fn print_sanitized(self, text: &str) {
        self.print(&sanitize::ci_log(text));
    }

    /// Prints to stdout what a format has made. One for programs keeps every byte: it takes care of names itself, and
    /// GitHub's consists of commands.
    pub(super) fn print_formatted(self, format: &str, text: &str) {
        if is_human_format(format) { self.print_sanitized(text) } else { self.print(text) }
    }

    /// As [`Console::formatted`], on stderr.
    pub(super) fn eprint_formatted(self, format: &str, text: &str) {
        if is_human_format(format) { self.eprint(text) } else { self.eprint_raw(text) }
    }

    /// Prints to stdout and ends the line: JSON, or what is meant for a program.
    pub(super) fn print(self, text: &str) {
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        if let Err(error) = output_queue::write(Stream::Stdout, format!("{text}{end}").as_bytes()) {
            self.record_stdout_error(error);
        }
    }

    /// Takes note that stdout lacks something, unless its reader went away.
    fn record_stdout_error(self, error: io::Error) {
        if error.kind() != io::ErrorKind::BrokenPipe {
            STDOUT_ERROR.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
        }
    }

    /// Waits for the readers of what was printed while a run went on.
    pub(super) fn flush(self) {
        if let Err(error) = output_queue::drain() {
            self.record_stdout_error(error);
        }
    }

    /// Why stdout lacks something of the answer, once; `None` where it has it all or its reader went away.
    pub(super) fn take_stdout_error(self) -> Option<io::Error> {
        STDOUT_ERROR.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }

    /// As [`Console::answer`], for text of models and files. Where it is read by a terminal, or by a CI system that follows the
    /// output, nothing in it steers them; into a file or a program it goes byte for byte. Tells whether it was changed.
    pub(super) fn print_untrusted(self, text: &str) -> bool {
        let is_followed = io::stdout().is_terminal() || (self.is_ci_log && is_pipe(io::stdout()));
        let harmless = if is_followed { sanitize::text(text) } else { text.into() };
        self.print(&harmless);
        harmless != text
    }

    /// Prints what clap says: help, the version, or what is wrong with the command line, which it quotes.
    pub(super) fn print_clap_message(self, error: &clap::Error) -> io::Result<()> {
        let text = error.render().to_string();
        let harmless = sanitize::text(&text);
        if harmless == text {
            return error.print();
        }
        self.eprint(&harmless);
        Ok(())
    }

    /// Prints to stderr and ends the line. No name in it becomes a command for a CI system.
    pub(super) fn eprint(self, text: &str) {
        self.eprint_raw(&sanitize::ci_log(text));
    }

    /// As [`Console::beside`], for what a CI system is meant to obey.
    pub(super) fn eprint_raw(self, text: &str) {
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        // A reader who went away is no error.
        let _ = output_queue::write(Stream::Stderr, format!("{text}{end}").as_bytes());
    }

    /// Prints a warning to stderr.
    pub(super) fn warning(self, text: &str) {
        self.eprint(&format!("{} {}", self.label("warning:", "33"), printable(text)));
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
        self.eprint(&text);
    }

    /// Prints findings to stderr, as text.
    pub(super) fn findings(self, findings: &[Diagnostic]) {
        let findings: Vec<Diagnostic> = findings.iter().map(Diagnostic::without_unquotable).collect();
        let text = formats::find("text").and_then(|format| format.diagnostics(&findings, self.stderr_display()));
        self.eprint(&text.unwrap_or_default());
    }

    fn label(self, text: &str, colour: &str) -> String {
        if self.stderr_display().colour { format!("\u{1b}[1;{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

fn is_human_format(format: &str) -> bool {
    matches!(format, "text" | "concise" | "markdown")
}

/// Whether these are the variables of a CI system. Azure Pipelines and TeamCity set no `CI`.
fn is_ci(variables: &BTreeMap<String, String>) -> bool {
    let on = |name: &&str| variables.get(*name).is_some_and(|value| !["", "0", "false"].contains(&value.as_str()));
    ["CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION"].iter().any(on)
}

/// Whether an output is handed on, rather than kept in a file or thrown away.
fn is_pipe(output: impl rustix::fd::AsFd) -> bool {
    use rustix::fs::FileType;
    let kind = rustix::fs::fstat(output).map(|data| FileType::from_raw_mode(data.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::Socket))
}

fn display_options(colour: bool) -> DisplayOptions {
    DisplayOptions { colour, width: terminal_width() }
}

/// Columns of the terminal; 140, as rustc takes it, where there is none.
fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns >= 40).unwrap_or(140)
}
