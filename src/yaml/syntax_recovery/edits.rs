//! Edits that keep every other byte of a text in its place.

use std::ops::Range;

/// A part of the source that reads differently in the recovered text.
#[derive(Debug, Clone)]
pub(in super::super) struct RecoveryGap {
    pub(in super::super) span: Range<usize>,
    /// Whether something that the author wrote is gone.
    pub(in super::super) is_data_lost: bool,
}

/// A replacement of every byte of a span, except for line ends.
#[derive(Clone)]
pub(super) struct RecoveryEdit {
    pub(super) span: Range<usize>,
    pub(super) fill: u8,
    pub(super) is_data_lost: bool,
}

impl RecoveryEdit {
    /// Leaves a span out.
    pub(super) fn blank(span: Range<usize>) -> Self {
        Self { span, fill: b' ', is_data_lost: true }
    }

    /// Leaves a value out, with a null in its place: between brackets there must be one.
    pub(super) fn null(span: Range<usize>) -> Vec<Self> {
        let first = Self { span: span.start..span.start + 1, fill: b'~', is_data_lost: true };
        vec![Self::blank(span), first]
    }
}

/// Blanks gaps out of a text.
pub(in super::super) fn blank_gaps(text: &str, gaps: &[RecoveryGap]) -> String {
    let edits: Vec<RecoveryEdit> = gaps.iter().map(|gap| RecoveryEdit::blank(gap.span.clone())).collect();
    apply_edits(text, &edits)
}

pub(super) fn apply_edits(text: &str, edits: &[RecoveryEdit]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for RecoveryEdit { span, fill, .. } in edits {
        for byte in bytes.get_mut(span.clone()).into_iter().flatten() {
            if *fill != b' ' || !matches!(byte, b'\n' | b'\r') {
                *byte = *fill;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| " ".repeat(text.len()))
}
