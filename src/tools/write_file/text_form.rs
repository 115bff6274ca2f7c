//! The form of a text file: its encoding, its byte order mark and its line endings.

use crate::tools::edit_file::with_crlf;

const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// The form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextForm {
    encoding: Encoding,
    line_endings: LineEndings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Utf8WithMark,
    Utf16Le,
    Utf16Be,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEndings {
    Lf,
    Crlf,
    Mixed,
}

impl TextForm {
    /// The form of a file with this content.
    pub(super) fn of(content: &[u8]) -> Self {
        let (encoding, (breaks, crlf)) = match content {
            // Two more zeros are the mark of UTF-32.
            [0xff, 0xfe, 0, 0, ..] => (Encoding::Utf8, count_breaks(content.iter().copied().map(u16::from))),
            [0xff, 0xfe, rest @ ..] => (Encoding::Utf16Le, count_breaks(units(rest, u16::from_le_bytes))),
            [0xfe, 0xff, rest @ ..] => (Encoding::Utf16Be, count_breaks(units(rest, u16::from_be_bytes))),
            _ => {
                let has_mark = content.starts_with(UTF8_MARK);
                let encoding = if has_mark { Encoding::Utf8WithMark } else { Encoding::Utf8 };
                (encoding, count_breaks(content.iter().copied().map(u16::from)))
            }
        };
        let line_endings = match crlf {
            0 => LineEndings::Lf,
            all if all == breaks => LineEndings::Crlf,
            _ => LineEndings::Mixed,
        };
        Self { encoding, line_endings }
    }

    /// A text in this form. Line endings that it has itself stay.
    pub(super) fn encode(self, text: &str) -> Vec<u8> {
        let crlf = self.is_converted(text).then(|| with_crlf(text));
        let text = crlf.as_deref().unwrap_or(text);
        let in_utf16 = |to_bytes: fn(u16) -> [u8; 2]| {
            let marked = std::iter::once(0xfeff).chain(text.strip_prefix('\u{feff}').unwrap_or(text).encode_utf16());
            marked.flat_map(to_bytes).collect()
        };
        match self.encoding {
            Encoding::Utf8WithMark if !text.starts_with('\u{feff}') => [UTF8_MARK, text.as_bytes()].concat(),
            Encoding::Utf8 | Encoding::Utf8WithMark => text.as_bytes().to_vec(),
            Encoding::Utf16Le => in_utf16(u16::to_le_bytes),
            Encoding::Utf16Be => in_utf16(u16::to_be_bytes),
        }
    }

    /// What of a file in this form a new text keeps or changes, for the model; empty if there is nothing to say.
    pub(super) fn describe(self, text: &str) -> String {
        let mut notes = Vec::new();
        match self.encoding {
            Encoding::Utf8 => {}
            Encoding::Utf8WithMark => notes.push("its UTF-8 byte order mark was kept"),
            Encoding::Utf16Le | Encoding::Utf16Be => notes.push("its encoding UTF-16 was kept"),
        }
        match self.line_endings {
            LineEndings::Crlf if self.is_converted(text) => notes.push("its CRLF line endings were kept"),
            LineEndings::Mixed => notes.push("it had mixed line endings, CRLF and LF, and now has those of `content`"),
            LineEndings::Crlf | LineEndings::Lf => {}
        }
        notes.iter().map(|note| format!("; {note}")).collect()
    }

    fn is_converted(self, text: &str) -> bool {
        self.line_endings == LineEndings::Crlf && text.contains('\n') && !text.contains("\r\n")
    }
}

fn units(bytes: &[u8], from_bytes: fn([u8; 2]) -> u16) -> impl Iterator<Item = u16> {
    bytes.as_chunks::<2>().0.iter().map(move |unit| from_bytes(*unit))
}

/// How many line breaks there are, and how many of them are CRLF.
fn count_breaks(units: impl Iterator<Item = u16>) -> (usize, usize) {
    let mut last = 0;
    let mut counts = (0, 0);
    for unit in units {
        if unit == u16::from(b'\n') {
            counts.0 += 1;
            counts.1 += usize::from(last == u16::from(b'\r'));
        }
        last = unit;
    }
    counts
}
