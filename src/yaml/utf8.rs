//! Converts bytes to text, and reports what YAML doesn't allow.

use std::sync::Arc;

use super::limits::MAX_BYTES;
use crate::diagnostic::{Diagnostic, Source, SourceSpan};

/// Checks that a file isn't too large, is UTF-8 and has no NUL. The reader reports other control characters.
///
/// # Errors
/// `too-large`, `not-utf8` at the first byte that isn't, `yaml-syntax` at the first NUL.
pub fn read_bytes(name: &str, bytes: &[u8]) -> Result<Arc<Source>, Diagnostic> {
    if bytes.len() > MAX_BYTES {
        let place = SourceSpan { source: Source::new(name, ""), range: 0..0 };
        return Err(Diagnostic::error("too-large", place, "the file is larger than 4 MiB")
            .help("move long texts into files of their own"));
    }
    let utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            let source = Source::new(name, text);
            match bytes.contains(&0).then(|| control_characters(&source).pop()).flatten() {
                Some(finding) => Err(finding),
                None => Ok(source),
            }
        }
        Err(error) => {
            let good = error.valid_up_to();
            let line_end = bytes[good..].iter().take(80).position(|byte| *byte == b'\n').unwrap_or(80);
            let shown = &bytes[..bytes.len().min(good + line_end)];
            let text = String::from_utf8_lossy(shown).into_owned();
            let end = good + text[good..].chars().next().map_or(0, char::len_utf8);
            let place = SourceSpan { source: Source::new(name, text), range: good..end };
            let finding = if utf16 {
                Diagnostic::error("not-utf8", place, "the file is UTF-16, not UTF-8")
            } else {
                Diagnostic::error("not-utf8", place, format!("the byte 0x{:02X} is not UTF-8", bytes[good]))
            };
            Err(finding.help("save the file as UTF-8"))
        }
    }
}

/// Findings for all runs of characters that YAML doesn't allow (YAML 1.2.2, production 1, `c-printable`), up to the first
/// NUL.
pub(super) fn control_characters(source: &Arc<Source>) -> Vec<Diagnostic> {
    let forbidden = |letter: char| match letter {
        '\t' | '\n' | '\r' | '\u{85}' => false,
        '\u{feff}' => false,
        '\u{fffe}' | '\u{ffff}' => true,
        _ => letter.is_control(),
    };
    let mut found: Vec<Diagnostic> = Vec::new();
    // The first bytes of such characters, so that clean text is checked fast.
    let begins = |byte: &u8| matches!(byte, 0..=8 | 11 | 12 | 14..=31 | 127 | 0xc2 | 0xef);
    if !source.text.as_bytes().iter().any(begins) {
        return found;
    }
    for (start, letter) in source.text.char_indices().filter(|(_, letter)| forbidden(*letter)) {
        let end = start + letter.len_utf8();
        if let Some(last) = found.last_mut().filter(|last| last.span.range.end == start && letter != '\0') {
            last.span.range.end = end;
            continue;
        }
        let place = SourceSpan { source: Arc::clone(source), range: start..end };
        let message = format!("control character U+{:04X} isn't allowed", letter as u32);
        let finding = Diagnostic::error("yaml-syntax", place, message);
        found.push(match letter {
            '\0' => finding.help("this looks like a binary file or UTF-16; save it as UTF-8 text"),
            _ => finding.help(format!("in a double-quoted string it is written \"\\u{:04x}\"", letter as u32)),
        });
        if letter == '\0' || found.len() >= MAX_CONTROLS {
            break;
        }
    }
    found
}

/// The end of the escape sequence (`ESC [ 31 m`, ECMA-48 5.4) whose ESC ends at `at`; `at` if there is none. Its bracket
/// isn't part of YAML.
pub(super) fn escape_sequence_end(text: &str, at: usize) -> usize {
    let rest = text[..at].ends_with('\u{1b}').then(|| text[at..].strip_prefix('[')).flatten().unwrap_or_default();
    let parameters = rest.bytes().take_while(|byte| matches!(byte, b'0'..=b'?')).count();
    match rest.as_bytes().get(parameters) {
        Some(b'@'..=b'~') => at + 1 + parameters + 1,
        _ => at,
    }
}

/// How many runs of control characters are reported.
const MAX_CONTROLS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_bytes_are_reported_with_their_place() {
        for (bytes, code, line_and_column, message) in [
            (&b"a: 1\nb: \xc3\xa4\xff\xff\n"[..], "not-utf8", (2, 5), "the byte 0xFF is not UTF-8"),
            (b"\xff\xfea\0:\0", "not-utf8", (1, 1), "the file is UTF-16, not UTF-8"),
            (b"cut: \xe2\x82", "not-utf8", (1, 6), "the byte 0xE2 is not UTF-8"),
            (b"a\0b\0", "yaml-syntax", (1, 2), "control character U+0000 isn't allowed"),
            (b"a: \x1b\0[31m\n", "yaml-syntax", (1, 5), "control character U+0000 isn't allowed"),
        ] {
            let finding = read_bytes("f.yaml", bytes).unwrap_err();
            assert_eq!((finding.code, finding.span.start(), &*finding.message), (code, line_and_column, message));
        }
        assert_eq!(read_bytes("f.yaml", &vec![b'a'; MAX_BYTES + 1]).unwrap_err().code, "too-large");
        assert!(read_bytes("f.yaml", b"a: \x1b[31m\n").is_ok());
        assert!(read_bytes("f.yaml", "\u{feff}a: \"\u{85}\t\"\r\n".as_bytes()).is_ok());
    }
}
