//! The encodings in which a secret can appear.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::parts::secret_parts;
use crate::text::hex;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The byte strings to search for.
#[derive(Default)]
pub(super) struct EncodedForms {
    /// Matched exactly.
    pub(super) exact: BTreeSet<Vec<u8>>,
    /// Matched with line breaks in between.
    pub(super) wrapped: BTreeSet<Vec<u8>>,
}

/// All encodings of a value and of its parts that are secrets by themselves.
pub(super) fn encoded_forms(value: &str) -> EncodedForms {
    let mut found = EncodedForms::default();
    found.add(value);
    found.add(value.trim());
    secret_parts(value).iter().for_each(|part| found.add(part));
    found
}

impl EncodedForms {
    fn add(&mut self, value: &str) {
        self.exact.insert(value.as_bytes().to_vec());
        for alphabet in [STANDARD, URL_SAFE] {
            for shift in 0..3 {
                self.wrapped.insert(base64_at_shift(value.as_bytes(), shift, alphabet));
            }
        }
        let hex = hex(value.as_bytes());
        self.wrapped.insert(hex.to_uppercase().into_bytes());
        self.wrapped.insert(hex.into_bytes());
        for upper in [false, true] {
            for kept in ["-_.~", "-_.~/", "-_.~!'()*", "-_.*"] {
                let percent = percent(value, kept, upper);
                self.exact.insert(percent.replace("%20", "+").into_bytes());
                self.exact.insert(percent.into_bytes());
            }
        }
        for (ascii, upper) in [(false, false), (true, false), (true, true)] {
            let json = json(value, ascii, upper);
            self.exact.insert(json.replace('/', "\\/").into_bytes());
            self.exact.insert(html_safe(&json).into_bytes());
            self.exact.insert(json.into_bytes());
        }
    }
}

/// Encodes text in base64 (RFC 4648), without the last characters if they would depend on what follows.
pub fn base64(text: &str) -> String {
    base64_at_shift(text.as_bytes(), 0, STANDARD).into_iter().map(char::from).collect()
}

/// The base64 characters that depend only on the value if it follows `shift` other bytes (modulo 3).
fn base64_at_shift(value: &[u8], shift: usize, alphabet: &[u8; 64]) -> Vec<u8> {
    let padded: Vec<u8> = std::iter::repeat_n(0, shift).chain(value.iter().copied()).collect();
    let first = (shift * 8).div_ceil(6);
    let end = padded.len() * 8 / 6;
    (first..end)
        .map(|index| {
            let bit = index * 6;
            let pair = u16::from(padded[bit / 8]) << 8 | u16::from(padded.get(bit / 8 + 1).copied().unwrap_or(0));
            alphabet[usize::from(pair >> (10 - bit % 8) & 0x3f)]
        })
        .collect()
}

/// Percent-encodes everything but letters, digits and `kept` (RFC 3986 section 2). Programs differ in what they keep.
fn percent(value: &str, kept: &str, upper: bool) -> String {
    let mut text = String::with_capacity(value.len() * 3);
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || (byte.is_ascii() && kept.contains(char::from(byte))) {
            text.push(char::from(byte));
        } else {
            text.push('%');
            push_hex(&mut text, u32::from(byte), 2, upper);
        }
    }
    text
}

/// The content of a JSON string (RFC 8259 section 7), optionally in ASCII only.
fn json(value: &str, ascii: bool, upper: bool) -> String {
    let mut text = String::with_capacity(value.len() + 8);
    for char in value.chars() {
        match char {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            char if char < ' ' || (ascii && !char.is_ascii()) => {
                let mut units = [0; 2];
                for unit in char.encode_utf16(&mut units) {
                    text.push_str("\\u");
                    push_hex(&mut text, u32::from(*unit), 4, upper);
                }
            }
            char => text.push(char),
        }
    }
    text
}

/// Escapes the characters that encoders escape for use in HTML.
fn html_safe(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn push_hex(text: &mut String, value: u32, width: usize, upper: bool) {
    // Writing to a String can't fail.
    let _ = if upper { write!(text, "{value:0width$X}") } else { write!(text, "{value:0width$x}") };
}

#[cfg(test)]
mod tests {
    use super::super::Redactor;

    fn is_redacted(secret: &str, text: &str) -> bool {
        let (redactor, _) = Redactor::new(&[("S".into(), secret.into())]);
        redactor.redact(text).contains("[masked:S]")
    }

    #[test]
    fn base64_is_found_at_every_alignment() {
        // The output of `base64` for `p@ssw0rd?>!x` after zero to three other bytes.
        for text in [
            "cEBzc3cwcmQ/PiF4",
            "eHBAc3N3MHJkPz4heA==",
            "eHhwQHNzdzByZD8+IXg=",
            "eHh4cEBzc3cwcmQ/PiF4",
            "cEBzc3cwcmQ_PiF4",
        ] {
            assert!(is_redacted("p@ssw0rd?>!x", text), "{text}");
        }
    }

    #[test]
    fn url_json_and_hex_encodings_are_found() {
        let secret = "pä \"ss/w<rd\n42";
        for text in [
            "p%C3%A4%20%22ss%2Fw%3Crd%0A42",
            "p%c3%a4%20%22ss%2fw%3crd%0a42",
            "p%C3%A4+%22ss%2Fw%3Crd%0A42",
            "p%C3%A4%20%22ss/w%3Crd%0A42",
            "pä \\\"ss/w<rd\\n42",
            "p\\u00e4 \\\"ss/w<rd\\n42",
            "p\\u00E4 \\\"ss/w<rd\\n42",
            "pä \\\"ss\\/w<rd\\n42",
            "pä \\\"ss/w\\u003crd\\n42",
            "70c3a420227373 70c3a4202273732f773c72640a3432",
            "70C3A4202273732F773C72640A3432",
        ] {
            assert!(is_redacted(secret, text), "{text}");
        }
    }

    #[test]
    fn the_lines_of_a_key_are_redacted_but_not_its_header() {
        let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END PRIVATE KEY-----\n";
        assert!(is_redacted(key, "  2\tMIIEvQIBADANBgkqhkiG9w0B"));
        assert!(!is_redacted(key, "-----BEGIN PRIVATE KEY-----"));
        assert!(is_redacted(key, key.trim()));
    }
}
