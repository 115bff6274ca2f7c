//! Exports of recorded runs to the formats of other programs. A new format is one file here and one line in [`EXPORTS`].

mod atif;
mod format;
pub mod messages;
pub mod otlp;

use self::format::write_json;
pub use self::format::{Export, ExportError, ExportFormat};

/// Every format.
pub static EXPORTS: &[ExportFormat] = &[otlp::FORMAT, atif::FORMAT, messages::FORMAT];
