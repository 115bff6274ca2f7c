//! Removes secrets from text, whole or as a stream.
//!
//! A secret is found as it is, line by line if it has several lines, and in the encodings in which programs pass on text:
//! base64 at each of its three alignments (RFC 4648, both alphabets) and hexadecimal, with or without line breaks, URL percent
//! codes and JSON string escapes.

mod encodings;
mod matcher;
mod redactor;
mod stream;

pub use self::encodings::{MIN_SECRET_CHARS, base64};
pub use self::redactor::{MARKER_PREFIX, Redactor, log_mask_lines};
pub use self::stream::{StreamRedactor, TextRedactor};
