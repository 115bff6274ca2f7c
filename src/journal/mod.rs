//! The journal: the events of one agent, one JSON object per line, each with a checksum over everything up to it. This
//! folder knows lines and bytes, and [`crate::record`] knows where the journals of a run are.
//!
//! The journals of a run are the truth about it. Everything else in a record is derived from them.

mod fault_injection;
mod line_format;
mod reader;
mod seal;
#[cfg(test)]
mod tests;
mod writer;

pub use self::fault_injection::{Fault, FaultInjection};
pub(crate) use self::line_format::RunSealer;
pub use self::line_format::{journal_file, last_checksum};
pub use self::reader::{JournalError, JournalReader};
pub use self::seal::RecordKey;
pub(crate) use self::seal::{RunDigests, is_same_mac};
pub(crate) use self::writer::{Journal, JournalEnd};
