//! Text helpers: plurals, truncation, diffs, and sanitizing for terminals, CI logs and Markdown.

pub(crate) mod bounded;
pub mod diff;
pub(crate) mod folded_path;
pub(crate) mod look_alikes;
pub mod merge;
pub mod sanitize;
pub(crate) mod shell_words;
pub(crate) mod surrogates;
pub mod truncate;
pub(crate) mod utf16;

/// A count with its noun: `1 turn`, `2 turns`. The plural of `noun` must be formed with an `s`.
pub fn pluralize(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A number of bytes for people: `12 kB`, `3.4 MB`.
pub fn format_size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Decodes percent-encoding (`%40`).
pub fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = (*first == b'%').then(|| after.get(..2)).flatten();
        let byte = escaped.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Bytes as lowercase hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
