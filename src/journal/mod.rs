//! The journal: the events of one agent, one JSON object per line, each with a checksum over everything up to it.
//!
//! The journals of a run are the truth about it. Everything else in a record is derived from them.

mod fault_injection;
mod journal_set;
mod line_format;
mod reader;
pub(crate) mod record_files;
mod seal;
#[cfg(test)]
mod tests;
mod writer;

pub use self::fault_injection::FaultInjection;
pub(crate) use self::journal_set::JournalSet;
pub use self::line_format::journal_file;
pub use self::reader::{JournalError, JournalReader};
pub use self::seal::RecordKey;
pub(crate) use self::seal::digest_secrets;
pub(crate) use self::writer::JournalEnd;
