//! The exit codes of all commands.

/// Something that ran has failed: a check, a case, a row, or a change that conflicts.
pub const EXIT_FAILED: u8 = 1;
/// A wrong command line.
pub const EXIT_USAGE: u8 = 2;
/// An invalid job file or input.
pub const EXIT_INVALID: u8 = 3;
/// A limit was reached.
pub const EXIT_LIMIT: u8 = 4;
/// The environment fails: a full disk, an unreadable folder.
pub const EXIT_ENVIRONMENT: u8 = 5;
/// A replay differs.
pub const EXIT_DIFFERENT: u8 = 7;
/// The same command can continue later.
pub const EXIT_TEMPORARY: u8 = 75;
/// A signal ended the run: this and its number.
pub const EXIT_SIGNAL: u8 = 128;
