//! Prints conversations to stdout.

use std::io;

use crate::cli::env::CliEnv;
use crate::error::Error;
use crate::reports::conversation_text::Target;

/// Prints a conversation. It is sanitized for a terminal, or else as a format for people.
pub(super) fn print(text: &str, target: Target, env: &CliEnv) {
    match target {
        Target::Terminal(_) => env.console.print(text),
        Target::Markdown => drop(env.console.print_untrusted(text)),
    }
}

/// The error if a conversation can't be written to memory.
pub(super) fn write_failed(source: io::Error) -> Error {
    Error::environment("the conversation can't be written")(source)
}
