//! Printing: the answer goes to stdout, everything else to stderr.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Stat};

use super::output_queue::{self, Stream};
use crate::diagnostic::Diagnostic;
use crate::error::Error;
use crate::reports;
use crate::reports::DisplayOptions;
use crate::sync::IgnorePoison;
use crate::text::sanitize;
pub(super) use crate::text::sanitize::line as printable;
pub(super) use crate::text::shell_words::{quote_word, shell_quote};
use crate::workspace_changes::FileId;

/// The most bytes that are kept of what isn't printed.
const MAX_KEPT_BYTES: usize = 16 * 1024;

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    Never,
    Always,
    OnTerminal,
}

impl Colour {
    /// Follows `NO_COLOR` (<https://no-color.org>) and `CLICOLOR_FORCE` (<https://bixense.com/clicolors>).
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
}

/// Stdout and stderr. A closed pipe is not an error, as the record has everything. Other errors of stdout, such as a full
/// disk, are: see [`output_queue::finish`].
#[derive(Debug, Clone)]
pub(super) struct Console {
    colour: Colour,
    /// Whether legwork runs in a CI system.
    pub(super) is_ci: bool,
    /// Whether stderr gets only errors and warnings.
    pub(super) is_quiet: bool,
    /// Has the end of what would have been printed, if nothing is.
    kept: Option<Arc<Mutex<Vec<u8>>>>,
}

impl Console {
    pub(super) fn new(variables: &BTreeMap<String, String>) -> Self {
        Self { colour: Colour::from(variables), is_ci: is_ci(variables), is_quiet: false, kept: None }
    }

    /// Keeps the end of what is printed instead of printing it.
    pub(super) fn kept() -> Self {
        Self { colour: Colour::Never, is_ci: false, is_quiet: false, kept: Some(Arc::default()) }
    }

    /// The end of what was kept.
    pub(super) fn kept_text(&self) -> String {
        let kept = self.kept.as_ref().map(|kept| kept.lock().ignore_poison().clone()).unwrap_or_default();
        String::from_utf8_lossy(&kept[kept.len().saturating_sub(MAX_KEPT_BYTES)..]).trim_end().to_owned()
    }

    /// The same console, with or without `--quiet`.
    pub(super) fn quiet(self, is_quiet: bool) -> Self {
        Self { is_quiet, ..self }
    }

    /// Whether stderr is kept in a file.
    pub(super) fn is_stderr_file(&self) -> bool {
        !is_pipe(io::stderr())
    }

    /// The display options for stdout.
    pub(super) fn stdout_display(&self) -> DisplayOptions {
        self.display(io::stdout().is_terminal())
    }

    /// The display options for stderr.
    pub(super) fn stderr_display(&self) -> DisplayOptions {
        self.display(io::stderr().is_terminal())
    }

    fn display(&self, is_terminal: bool) -> DisplayOptions {
        let colour = self.colour == Colour::Always || (self.colour == Colour::OnTerminal && is_terminal);
        DisplayOptions { colour, width: terminal_width() }
    }

    /// Whether a person reads stdout, rather than a program.
    pub(super) fn is_interactive(&self) -> bool {
        self.colour == Colour::Always || io::stdout().is_terminal()
    }

    /// The regular files that stdout and stderr go to.
    pub(super) fn output_files(&self) -> Vec<FileId> {
        let stats = [rustix::fs::fstat(io::stdout()), rustix::fs::fstat(io::stderr())];
        let is_file = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        // The types differ from one architecture to the next.
        #[allow(clippy::unnecessary_cast)]
        stats.into_iter().flatten().filter(is_file).map(|stat| (stat.st_dev as u64, stat.st_ino as u64)).collect()
    }

    /// Prints legwork's own text to stdout, with CI commands neutralized.
    pub(super) fn print_sanitized(&self, text: &str) {
        self.print(&sanitize::ci_log(text));
    }

    /// Prints the output of a format to stdout. Formats for programs are printed as they are: they do their own escaping, and
    /// GitHub's consists of commands.
    pub(super) fn print_formatted(&self, format: &str, text: &str) {
        if is_human_format(format) { self.print_sanitized(text) } else { self.print(text) }
    }

    /// Like [`Console::print_formatted`], to stderr.
    pub(super) fn eprint_formatted(&self, format: &str, text: &str) {
        if is_human_format(format) { self.eprint(text) } else { self.eprint_raw(text) }
    }

    /// Prints to stdout without changes, and ends the line.
    pub(super) fn print(&self, text: &str) {
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        self.write(Stream::Stdout, format!("{text}{end}").as_bytes());
    }

    /// Prints text of models and files to stdout. It is sanitized for a terminal or a CI log, and unchanged for files and
    /// programs. Returns whether it was changed.
    pub(super) fn print_untrusted(&self, text: &str) -> bool {
        let is_log = io::stdout().is_terminal() || (self.is_ci && is_pipe(io::stdout()));
        let sanitized = if is_log { sanitize::text(text) } else { text.into() };
        self.print(&sanitized);
        sanitized != text
    }

    /// Waits this long. Returns true as soon as no one reads stdout any more.
    pub(super) fn wait_while_read(&self, time: Duration) -> bool {
        let stdout = io::stdout();
        let timeout = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let mut outputs = [PollFd::new(&stdout, PollFlags::empty())];
        // A closed reader shows as an error.
        let closed = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        matches!(poll(&mut outputs, Some(&timeout)), Ok(1)) && outputs[0].revents().intersects(closed)
    }

    /// Prints a message of clap: help, the version, or a usage error, which can quote the command line.
    pub(super) fn print_clap_message(&self, error: &clap::Error) -> io::Result<()> {
        let text = error.render().to_string();
        let sanitized = sanitize::text(&text);
        if sanitized == text {
            return error.print();
        }
        self.eprint(&sanitized);
        Ok(())
    }

    /// Prints to stderr and ends the line, with CI commands neutralized. Nothing is printed with `--quiet`.
    pub(super) fn eprint(&self, text: &str) {
        if !self.is_quiet {
            self.eprint_problem(text);
        }
    }

    /// Prints what went wrong to stderr and ends the line, with CI commands neutralized.
    pub(super) fn eprint_problem(&self, text: &str) {
        self.eprint_raw(&sanitize::ci_log(text));
    }

    /// Prints to stderr without changes and ends the line, for text with commands for a CI system.
    pub(super) fn eprint_raw(&self, text: &str) {
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        self.write(Stream::Stderr, format!("{text}{end}").as_bytes());
    }

    fn write(&self, stream: Stream, text: &[u8]) {
        let Some(kept) = &self.kept else { return output_queue::write(stream, text) };
        let mut kept = kept.lock().ignore_poison();
        kept.extend_from_slice(text);
        if kept.len() > 2 * MAX_KEPT_BYTES {
            let surplus = kept.len() - MAX_KEPT_BYTES;
            kept.drain(..surplus);
        }
    }

    /// Prints a warning to stderr.
    pub(super) fn warning(&self, text: &str) {
        self.eprint_problem(&format!("{} {}", self.label("warning:", "33"), printable(text)));
    }

    /// Prints an error with its causes and hint to stderr.
    pub(super) fn error(&self, error: &Error) {
        if let Error::Invalid(findings) | Error::Configuration(findings) = error {
            return self.findings(findings);
        }
        let mut text = format!("{} {}", self.label("error:", "31"), printable(&error.to_string()));
        let mut cause = std::error::Error::source(error);
        while let Some(source) = cause {
            text.push_str(&format!(": {}", printable(&source.to_string())));
            cause = source.source();
        }
        if let Some(hint) = error.hint() {
            text.push_str(&format!("\n{} {}", self.label("help:", "36"), printable(&hint)));
        }
        self.eprint_problem(&text);
    }

    /// Prints findings to stderr as text.
    pub(super) fn findings(&self, findings: &[Diagnostic]) {
        let findings: Vec<Diagnostic> = findings.iter().map(Diagnostic::without_unquotable).collect();
        self.eprint_problem(&reports::find(reports::FINDINGS, "text")(&findings, self.stderr_display()));
    }

    fn label(&self, text: &str, colour: &str) -> String {
        self.stderr_display().paint(text, &format!("1;{colour}"))
    }
}

fn is_human_format(format: &str) -> bool {
    matches!(format, "text" | "concise" | "markdown")
}

/// Whether the variables are those of a CI system. Azure Pipelines and TeamCity don't set `CI`.
fn is_ci(variables: &BTreeMap<String, String>) -> bool {
    let is_set = |name: &&str| variables.get(*name).is_some_and(|value| !["", "0", "false"].contains(&value.as_str()));
    ["CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION"].iter().any(is_set)
}

/// Whether an output is a pipe or a socket.
fn is_pipe(output: impl rustix::fd::AsFd) -> bool {
    let kind = rustix::fs::fstat(output).map(|data| FileType::from_raw_mode(data.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::Socket))
}

/// The width of the terminal, or 140 without one, as in rustc.
fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns >= 40).unwrap_or(140)
}
