//! Counts the bytes of the report, which must stay small enough for a browser.

use std::io::{self, Write};

use crate::text::sanitize;

/// Writes pieces of a page without control characters.
pub(super) struct BoundedWriter<'w> {
    out: &'w mut dyn Write,
    written: usize,
    /// From how many bytes on the conversation isn't continued.
    max_bytes: usize,
}

impl<'w> BoundedWriter<'w> {
    pub(super) fn new(out: &'w mut dyn Write, max_bytes: usize) -> Self {
        Self { out, written: 0, max_bytes }
    }

    pub(super) fn write(&mut self, html: &str) -> io::Result<()> {
        let html = sanitize::replace_control_chars(html);
        self.written += html.len();
        self.out.write_all(html.as_bytes())
    }

    /// Whether nothing more of the conversation has room.
    pub(super) fn is_full(&self) -> bool {
        self.written >= self.max_bytes
    }
}
