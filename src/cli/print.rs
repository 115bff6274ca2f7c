//! What reaches the terminal: the answer on stdout, everything else on stderr.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

use crate::diagnostic::Diagnostic;
use crate::error::Error;
pub(super) use crate::formats::harmless::line as printable;
use crate::formats::{self, Look};

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

/// Both outputs. A reader who went away is no error: the record has everything.
#[derive(Debug, Clone, Copy)]
pub(super) struct Out {
    colour: Colour,
}

impl Out {
    pub(super) fn new(colour: Colour) -> Self {
        Self { colour }
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

    /// Prints to stdout and ends the line.
    pub(super) fn answer(self, text: &str) {
        let mut out = io::stdout().lock();
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes())).and_then(|()| out.flush());
    }

    /// Prints to stderr and ends the line.
    pub(super) fn beside(self, text: &str) {
        let mut out = io::stderr().lock();
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        let _ = out.write_all(format!("{text}{end}").as_bytes());
    }

    /// Prints a warning to stderr.
    pub(super) fn warning(self, text: &str) {
        self.beside(&format!("{} {text}", self.label("warning:", "33")));
    }

    /// Prints an error with its causes and its hint to stderr.
    pub(super) fn error(self, error: &Error) {
        if let Error::Invalid(findings) = error {
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
        let text = formats::find("text").and_then(|format| format.diagnostics(findings, self.look_beside()));
        self.beside(&text.unwrap_or_default());
    }

    fn label(self, text: &str, colour: &str) -> String {
        if self.look_beside().colour { format!("\u{1b}[1;{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

fn look(colour: bool) -> Look {
    Look { colour, width: terminal_width() }
}

/// Columns of the terminal; 140, as rustc takes it, where there is none.
fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns >= 40).unwrap_or(140)
}
