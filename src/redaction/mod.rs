//! Secrets out of text, once, whole or as a stream.
//!
//! A secret is found as it is, line by line where it has lines, and in the forms in which programs pass things on:
//! base64 in its three shifts (RFC 4648, both alphabets) and hexadecimal, with or without line breaks in between, URL
//! percent codes and JSON string escapes.

mod encodings;
mod matcher;
mod stream;

use std::borrow::Cow;
use std::sync::Arc;

use self::matcher::{MatchState, SecretMatcher};
pub use self::stream::{StreamRedactor, TextRedactor};

/// The shortest secret that is masked, in characters: shorter ones would tear holes into innocent text.
pub const MIN_SECRET_CHARS: usize = 8;

/// A text as base64 (RFC 4648), without an end that would depend on what follows.
pub fn base64(text: &str) -> String {
    encodings::base64(text)
}

/// How every mask begins; tools refuse to write it into files.
pub const MARKER_PREFIX: &str = "[masked:";

/// Knows the secrets of a run. Cheap to clone; without secrets it costs nothing.
#[derive(Clone, Default)]
pub struct Redactor {
    matcher: Option<Arc<SecretMatcher>>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mask({} forms)", self.matcher.as_ref().map_or(0, |forms| forms.pattern_count()))
    }
}

impl Redactor {
    /// Takes names and values, and gives back the names of values that are too short to be masked (below
    /// [`SHORTEST`]). Empty values hide nothing and are passed over.
    pub fn new(secrets: &[(String, String)]) -> (Self, Vec<String>) {
        let (long, short): (Vec<_>, Vec<_>) = secrets
            .iter()
            .filter(|(_, value)| !value.trim().is_empty())
            .partition(|(_, value)| value.trim().chars().count() >= MIN_SECRET_CHARS);
        let long = long.into_iter().map(|(name, value)| (format!("{MARKER_PREFIX}{name}]").into(), value.as_str()));
        (
            Self { matcher: SecretMatcher::new(long).map(Arc::new) },
            short.into_iter().map(|(name, _)| name.clone()).collect(),
        )
    }

    /// Whether there is nothing to mask.
    pub fn is_empty(&self) -> bool {
        self.matcher.is_none()
    }

    /// Length in bytes of the longest form of a secret; 0 without secrets. Text that is to be cut must be masked with as
    /// much beyond the cut.
    pub fn max_match_bytes(&self) -> usize {
        self.matcher.as_ref().map_or(0, |forms| forms.max_match_bytes())
    }

    /// The text with `[masked:NAME]` in place of every secret.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(forms) = &self.matcher else { return Cow::Borrowed(text) };
        if !MatchState::contains_secret(forms, text.as_bytes()) {
            return Cow::Borrowed(text);
        }
        let mut stream = self.stream();
        let mut masked = stream.feed(text.as_bytes()).into_owned();
        masked.extend(stream.finish());
        Cow::Owned(String::from_utf8(masked).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into()))
    }

    /// Masks bytes that come in pieces.
    pub fn stream(&self) -> StreamRedactor {
        StreamRedactor::new(self.matcher.clone())
    }
}

/// What of a secret is told to a CI system that masks its log line by line: the whole value, or those of its lines that
/// are masked by themselves. Nothing of one that is too short.
pub fn log_mask_lines(value: &str) -> Vec<&str> {
    match value.trim() {
        short if short.chars().count() < MIN_SECRET_CHARS => Vec::new(),
        one if !one.contains(['\n', '\r']) => vec![one],
        several => encodings::secret_lines(several).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(secrets: &[(&str, &str)]) -> Redactor {
        let secrets: Vec<_> = secrets.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Redactor::new(&secrets).0
    }

    fn in_pieces(mask: &Redactor, text: &str, size: usize) -> String {
        let mut stream = mask.stream();
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            out.extend_from_slice(&stream.feed(piece));
        }
        out.extend(stream.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn finds_a_secret_as_it_is_and_leaves_other_text_alone() {
        let mask = mask(&[("TOKEN", "hunter2-hunter2")]);
        assert_eq!(mask.redact("a hunter2-hunter2 b"), "a [masked:TOKEN] b");
        assert!(matches!(mask.redact("hunter2"), Cow::Borrowed("hunter2")));
    }

    #[test]
    fn short_secrets_are_named_and_empty_ones_ignored() {
        let secrets = [("A".to_owned(), "short".to_owned()), ("B".to_owned(), String::new())];
        let (mask, short) = Redactor::new(&secrets);
        assert_eq!(short, ["A"]);
        assert!(mask.is_empty());
        assert_eq!(mask.redact("short"), "short");
    }

    #[test]
    fn a_secret_split_over_pieces_never_leaks() {
        let mask = mask(&[("TOKEN", "hunter2-hunter2"), ("OTHER", "2-hunter2 and more")]);
        let text = "x hunter2-hunter2 y hunter2-hunter2hunter2-hunter2 z hunter2-hunter2 and more ä hunter2-hunter";
        let whole = mask.redact(text).into_owned();
        assert_eq!(whole, "x [masked:TOKEN] y [masked:TOKEN][masked:TOKEN] z [masked:TOKEN] ä hunter2-hunter");
        for size in 1..40 {
            assert_eq!(in_pieces(&mask, text, size), whole, "pieces of {size}");
        }
    }

    #[test]
    fn a_run_of_overlapping_secrets_is_one_mask_and_stays_small() {
        let mask = mask(&[("A", "aaaaaaaaaa")]);
        let mut stream = mask.stream();
        let mut out = Vec::new();
        for _ in 0..1000 {
            out.extend_from_slice(&stream.feed(&[b'a'; 1000]));
            assert!(stream.buffered_bytes() < 100);
        }
        out.extend(stream.finish());
        assert_eq!(String::from_utf8(out).unwrap(), "[masked:A]");
    }

    #[test]
    fn an_empty_mask_hands_the_bytes_through() {
        let mask = Redactor::default();
        assert!(matches!(mask.stream().feed(b"abc"), Cow::Borrowed(b"abc")));
        assert!(mask.stream().finish().is_empty());
    }

    #[test]
    fn what_programs_break_into_lines_is_found() {
        let token = "github_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ0123456789abcdefghijABCDEFGHIJ0123456789klmnop";
        let mask = mask(&[("TOKEN", token)]);
        // `printf 'ab%s\n' "$TOKEN" | base64`, and with `xxd -p`.
        let base64 = "YWJnaXRodWJfcGF0XzExQUJDREVGRzBhQmNEZUZnSGlKa0xfbU5vUHFSc1R1VndYeVowMTIzNDU2\n\
                      Nzg5YWJjZGVmZ2hpakFCQ0RFRkdISUowMTIzNDU2Nzg5a2xtbm9wCg==\n";
        let hex: String = format!("ab{token}").bytes().map(|byte| format!("{byte:02x}")).collect();
        let hex: Vec<&str> = hex.as_bytes().chunks(60).map(|line| std::str::from_utf8(line).unwrap()).collect();
        for (text, expected) in [
            (base64.to_owned(), "YWJ[masked:TOKEN]Cg==\n"),
            (base64.replace('\n', "\r\n    "), "YWJ[masked:TOKEN]Cg==\r\n    "),
            (hex.join("\n") + "\n", "6162[masked:TOKEN]\n"),
        ] {
            let whole = mask.redact(&text).into_owned();
            assert_eq!(whole, expected);
            for size in 1..90 {
                assert_eq!(in_pieces(&mask, &text, size), whole, "pieces of {size}");
            }
        }
        // An empty line ends it, so that nothing is held back for ever.
        assert!(mask.redact(&base64.replacen('\n', "\n\n", 1)).contains("YWJnaXRodWJf"));
        let mut stream = mask.stream();
        for _ in 0..100 {
            let _ = stream.feed("\n".repeat(1000).as_bytes());
            let _ = stream.feed(("YWJnaXRodWJf\n".to_owned() + &" ".repeat(1000)).as_bytes());
        }
        assert!(stream.buffered_bytes() < 3000, "{}", stream.buffered_bytes());
    }

    #[test]
    fn of_several_lines_each_is_a_secret_but_the_plain_words() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nEFAASC/9x=\nclusters:\n}\n-----END KEY-----\n";
        let mask = mask(&[("KEY", key)]);
        assert_eq!(
            mask.redact("   2\tMIIEvQIBADANBgkqhkiG9w0BAQ\n   3\tEFAASC/9x="),
            "   2\t[masked:KEY]\n   3\t[masked:KEY]"
        );
        assert_eq!(mask.redact("-----BEGIN KEY-----\nclusters:\n}"), "-----BEGIN KEY-----\nclusters:\n}");
        assert_eq!(mask.redact(key), "[masked:KEY]");
        assert_eq!(log_mask_lines(key), ["MIIEvQIBADANBgkqhkiG9w0BAQ", "EFAASC/9x="]);
        assert_eq!(log_mask_lines(" hunter2-hunter2\n"), ["hunter2-hunter2"]);
        assert_eq!(log_mask_lines("hunter2"), Vec::<&str>::new());
    }

    #[test]
    fn text_in_pieces_stays_text() {
        let mask = mask(&[("TOKEN", "hünter2-hünter2")]);
        let text = "ä hünter2-hünter2 ö €uro hünter2";
        let mut shown = TextRedactor::new(&mask);
        let mut pieces: Vec<String> =
            text.chars().map(|letter| shown.feed(letter.encode_utf8(&mut [0; 4])).into_owned()).collect();
        pieces.push(shown.finish());
        assert_eq!(pieces.concat(), "ä [masked:TOKEN] ö €uro hünter2");
        assert!(matches!(TextRedactor::new(&Redactor::default()).feed("abc"), Cow::Borrowed("abc")));
    }
}
