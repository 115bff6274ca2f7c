//! Removes secrets from text, whole or as a stream.
//!
//! A secret is found as it is, line by line if it has several lines, by its texts if it is JSON, and in the encodings in which programs pass on text:
//! base64 at each of its three alignments (RFC 4648, both alphabets) and hexadecimal, with or without line breaks, URL percent
//! codes and JSON string escapes.

mod encodings;
mod matcher;
mod parts;
mod secret_names;
mod shared_secrets;
mod stream;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

pub use self::encodings::base64;
use self::matcher::MatchState;
pub use self::parts::MIN_SECRET_CHARS;
use self::parts::secret_parts;
pub use self::secret_names::is_secret_name;
use self::shared_secrets::SharedSecrets;
pub use self::stream::StreamRedactor;

/// How every marker that replaces a secret begins. Tools refuse to write it to files.
pub const MARKER_PREFIX: &str = "[masked:";

/// Replaces the secrets of a run in text. Cheap to clone. Clones share their secrets, including those that are added later.
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: SharedSecrets,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redactor")
    }
}

impl Redactor {
    /// Takes names and values of secrets. Also returns the names of those that are too short to be redacted (below
    /// [`MIN_SECRET_CHARS`]). Empty values are ignored.
    pub fn new(secrets: &[(String, String)]) -> (Self, Vec<String>) {
        let (long, short): (Vec<_>, Vec<_>) = secrets
            .iter()
            .filter(|(_, value)| !value.trim().is_empty())
            .partition(|(_, value)| value.trim().chars().count() >= MIN_SECRET_CHARS);
        let secrets = SharedSecrets::new(long.into_iter().map(|(name, value)| (marker(name), value.clone())).collect());
        (Self { secrets }, short.into_iter().map(|(name, _)| name.clone()).collect())
    }

    /// Adds a secret that became known later, such as a renewed key. From now on, all clones and their streams redact it, too.
    pub fn add(&self, name: &str, value: &str) {
        self.secrets.add(marker(name), value);
    }

    /// Whether there is nothing to redact.
    pub fn is_empty(&self) -> bool {
        self.secrets.matcher().is_none()
    }

    /// The length in bytes of the longest form of a secret; 0 without secrets. Text that will be cut must be redacted with
    /// this much text after the cut.
    pub fn max_match_bytes(&self) -> usize {
        self.secrets.matcher().map_or(0, |matcher| matcher.max_match_bytes())
    }

    /// Whether a text contains a secret.
    pub fn contains_secret(&self, text: &str) -> bool {
        self.contains_secret_bytes(text.as_bytes())
    }

    /// Whether a content that needn't be text contains a secret.
    pub fn contains_secret_bytes(&self, content: &[u8]) -> bool {
        self.secrets.matcher().is_some_and(|matcher| MatchState::contains_secret(&matcher, content))
    }

    /// Replaces every secret by `[masked:NAME]`.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !self.contains_secret(text) {
            return Cow::Borrowed(text);
        }
        let mut stream = self.stream();
        let mut redacted = stream.feed(text.as_bytes()).into_owned();
        redacted.extend(stream.finish());
        Cow::Owned(String::from_utf8(redacted).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into()))
    }

    /// Redacts all texts of a JSON value, the names of fields included.
    #[must_use]
    pub fn redact_json(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.redact(&text).into_owned()),
            Value::Array(items) => items.into_iter().map(|item| self.redact_json(item)).collect(),
            Value::Object(fields) => {
                let redacted =
                    |(name, value): (String, Value)| (self.redact(&name).into_owned(), self.redact_json(value));
                Value::Object(fields.into_iter().map(redacted).collect())
            }
            other => other,
        }
    }

    /// A redactor for bytes that come in pieces.
    pub fn stream(&self) -> StreamRedactor {
        StreamRedactor::new(self.secrets.clone())
    }
}

/// The marker that replaces a secret.
fn marker(name: &str) -> Arc<str> {
    format!("{MARKER_PREFIX}{name}]").into()
}

/// The parts of a secret that a CI system should mask in its log, which it masks line by line: the whole value if it has one
/// line, and the parts that are secrets by themselves. Nothing if the secret is too short.
pub fn log_mask_lines(value: &str) -> BTreeSet<String> {
    let value = value.trim();
    if value.chars().count() < MIN_SECRET_CHARS {
        return BTreeSet::new();
    }
    let whole = std::iter::once(value.to_owned());
    whole.chain(secret_parts(value)).filter(|part| !part.contains(['\n', '\r'])).collect()
}

#[cfg(test)]
mod tests {
    use super::shared_secrets::MAX_ADDED;
    use super::*;

    fn redactor(secrets: &[(&str, &str)]) -> Redactor {
        let secrets: Vec<_> = secrets.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Redactor::new(&secrets).0
    }

    fn in_pieces(redactor: &Redactor, text: &str, size: usize) -> String {
        let mut stream = redactor.stream();
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            out.extend_from_slice(&stream.feed(piece));
        }
        out.extend(stream.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_plain_secret_is_redacted_and_other_text_is_not() {
        let redactor = redactor(&[("TOKEN", "hunter2-hunter2")]);
        assert_eq!(redactor.redact("a hunter2-hunter2 b"), "a [masked:TOKEN] b");
        assert!(matches!(redactor.redact("hunter2"), Cow::Borrowed("hunter2")));
    }

    #[test]
    fn the_texts_in_a_json_secret_are_redacted_in_every_encoding() {
        let value = "p?>~ssw0rd-\u{ff}-and-more";
        let redactor = redactor(&[("KEY", &serde_json::json!({ "password": value }).to_string())]);
        for before in ["", "a", "ab"] {
            let standard = base64(&format!("{before}{value} and more text"));
            let url_safe = standard.replace('+', "-").replace('/', "_");
            for encoded in [standard, url_safe] {
                assert!(redactor.redact(&encoded).contains("[masked:KEY]"), "{encoded}");
            }
        }
        let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(redactor.redact(&hex), "[masked:KEY]");
    }

    #[test]
    fn short_secrets_are_reported_and_empty_ones_ignored() {
        let secrets = [("A".to_owned(), "short".to_owned()), ("B".to_owned(), String::new())];
        let (redactor, short) = Redactor::new(&secrets);
        assert_eq!(short, ["A"]);
        assert!(redactor.is_empty());
        assert_eq!(redactor.redact("short"), "short");
    }

    #[test]
    fn a_secret_split_over_pieces_never_leaks() {
        let redactor = redactor(&[("TOKEN", "hunter2-hunter2"), ("OTHER", "2-hunter2 and more")]);
        let text = "x hunter2-hunter2 y hunter2-hunter2hunter2-hunter2 z hunter2-hunter2 and more ä hunter2-hunter";
        let whole = redactor.redact(text).into_owned();
        assert_eq!(whole, "x [masked:TOKEN] y [masked:TOKEN][masked:TOKEN] z [masked:TOKEN] ä hunter2-hunter");
        for size in 1..40 {
            assert_eq!(in_pieces(&redactor, text, size), whole, "pieces of {size}");
        }
    }

    #[test]
    fn overlapping_secrets_become_one_marker_without_much_buffering() {
        let redactor = redactor(&[("A", "aaaaaaaaaa")]);
        let mut stream = redactor.stream();
        let mut out = Vec::new();
        for _ in 0..1000 {
            out.extend_from_slice(&stream.feed(&[b'a'; 1000]));
            assert!(stream.buffered_bytes() < 100);
        }
        out.extend(stream.finish());
        assert_eq!(String::from_utf8(out).unwrap(), "[masked:A]");
    }

    #[test]
    fn an_added_secret_is_redacted_by_clones_and_open_streams() {
        let first = redactor(&[("TOKEN", "hunter2-hunter2")]);
        let clone = first.clone();
        let text = "x hunter2-hunter2 y key-1-key-1-key-1 hunter2-hunter2";
        // The secret is added while the stream holds back any part of either.
        for cut in 0..=text.len() {
            let redactor = redactor(&[("TOKEN", "hunter2-hunter2")]);
            let mut stream = redactor.stream();
            let mut out = stream.feed(&text.as_bytes()[..cut.min(22)]).into_owned();
            redactor.clone().add("KEY", "key-1-key-1-key-1");
            out.extend_from_slice(&stream.feed(&text.as_bytes()[cut.min(22)..]));
            out.extend(stream.finish());
            assert_eq!(String::from_utf8(out).unwrap(), "x [masked:TOKEN] y [masked:KEY] [masked:TOKEN]", "{cut}");
        }
        assert!(!clone.contains_secret("key-1-key-1-key-1"));
        first.add("KEY", "key-1-key-1-key-1");
        assert_eq!(clone.redact("a key-1-key-1-key-1"), "a [masked:KEY]");
        // Without any secret at the start.
        let none = Redactor::default();
        let mut stream = none.stream();
        assert_eq!(&*stream.feed(b"abc"), b"abc");
        none.add("KEY", "key-1-key-1-key-1");
        let mut out = stream.feed(b"key-1-key-1-key-1 z").into_owned();
        out.extend(stream.finish());
        assert_eq!(String::from_utf8(out).unwrap(), "[masked:KEY] z");
        // Old keys are forgotten, others aren't.
        for number in 0..MAX_ADDED {
            first.add("KEY", &format!("another-key-{number}"));
        }
        assert!(first.contains_secret("another-key-0") && first.contains_secret("hunter2-hunter2"));
        assert!(!first.contains_secret("key-1-key-1-key-1"));
    }

    #[test]
    fn without_secrets_bytes_are_passed_through() {
        let redactor = Redactor::default();
        assert!(matches!(redactor.stream().feed(b"abc"), Cow::Borrowed(b"abc")));
        assert!(redactor.stream().finish().is_empty());
    }

    #[test]
    fn encoded_secrets_with_line_breaks_are_found() {
        let token = "github_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ0123456789abcdefghijABCDEFGHIJ0123456789klmnop";
        let redactor = redactor(&[("TOKEN", token)]);
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
            let whole = redactor.redact(&text).into_owned();
            assert_eq!(whole, expected);
            for size in 1..90 {
                assert_eq!(in_pieces(&redactor, &text, size), whole, "pieces of {size}");
            }
        }
        // An empty line ends an encoded secret, so that text isn't held back forever.
        assert!(redactor.redact(&base64.replacen('\n', "\n\n", 1)).contains("YWJnaXRodWJf"));
        let mut stream = redactor.stream();
        for _ in 0..100 {
            let _ = stream.feed("\n".repeat(1000).as_bytes());
            let _ = stream.feed(("YWJnaXRodWJf\n".to_owned() + &" ".repeat(1000)).as_bytes());
        }
        assert!(stream.buffered_bytes() < 3000, "{}", stream.buffered_bytes());
    }

    #[test]
    fn the_lines_of_a_secret_are_redacted_except_plain_words() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nEFAASC/9x=\nclusters:\n}\n-----END KEY-----\n";
        let redactor = redactor(&[("KEY", key)]);
        assert_eq!(
            redactor.redact("   2\tMIIEvQIBADANBgkqhkiG9w0BAQ\n   3\tEFAASC/9x="),
            "   2\t[masked:KEY]\n   3\t[masked:KEY]"
        );
        assert_eq!(redactor.redact("-----BEGIN KEY-----\nclusters:\n}"), "-----BEGIN KEY-----\nclusters:\n}");
        assert_eq!(redactor.redact(key), "[masked:KEY]");
        let lines = |value: &str| log_mask_lines(value).into_iter().collect::<Vec<_>>();
        assert_eq!(lines(key), ["EFAASC/9x=", "MIIEvQIBADANBgkqhkiG9w0BAQ"]);
        assert_eq!(lines(" hunter2-hunter2\n"), ["hunter2-hunter2"]);
        assert_eq!(lines("hunter2"), Vec::<String>::new());
    }

    #[test]
    fn the_texts_of_a_json_secret_are_redacted_in_every_encoding() {
        let key =
            "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----\n";
        let secret =
            serde_json::json!({ "type": "service_account", "password": "S3cr3t/value 99x", "private_key": key });
        let redactor = redactor(&[("ACCOUNT", &secret.to_string())]);
        for text in [
            "S3cr3t/value 99x".to_owned(),
            "S3cr3t%2Fvalue%2099x".to_owned(),
            format!("x {}", base64("S3cr3t/value 99x")),
            crate::text::hex(b"S3cr3t/value 99x"),
            key.to_owned(),
            key.replace('\n', "\\n"),
            "  2\tMIIEvQIBADANBgkqhkiG9w0B".to_owned(),
            secret.to_string(),
        ] {
            assert!(redactor.redact(&text).contains("[masked:ACCOUNT]"), "{text}");
        }
        assert_eq!(redactor.redact("a service_account"), "a service_account");
        assert!(!redactor.redact(key).contains("MII"));
    }

    #[test]
    fn skipping_text_finds_what_a_search_byte_by_byte_finds() {
        let redactor = redactor(&[("TOKEN", "hunter2-hunter2"), ("KEY", "aab\"aab/aab\naabaabaabaabaab7")]);
        let (base64, hex) = (base64("xhunter2-hunter2y"), crate::text::hex(b"hunter2-hunter2"));
        let wrapped = |text: &str, width: usize, end: &str| {
            let lines = text.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap());
            lines.collect::<Vec<_>>().join(end)
        };
        let mut pieces = vec!["hunter2-hunter2".to_owned(), "hunter2-".to_owned(), "h".to_owned(), "a".to_owned()];
        pieces.extend(
            ["aab\"aab/aab", "aab\\\"aab", "aabaabaabaabaab7", "\n", "\r\n", "\n\n", " ", "\t", "x", "ä"]
                .map(str::to_owned),
        );
        for width in [1, 2, 5, 8] {
            pieces.extend(["\n", "\r\n", "\n  ", "\n\n"].map(|end| wrapped(&base64, width, end)));
            pieces.extend(["\n", "\r\n  "].map(|end| wrapped(&hex, width, end)));
        }
        // A fixed sequence of pseudo-random numbers.
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 40).unwrap()
        };
        let mut redacted = 0;
        for _ in 0..300 {
            let text: String = (0..next() % 12).map(|_| pieces[next() % pieces.len()].as_str()).collect();
            // A single byte is never skipped.
            let expected = in_pieces(&redactor, &text, 1);
            assert_eq!(redactor.redact(&text), expected, "{text:?}");
            for size in [2, 3, 7, 64] {
                assert_eq!(in_pieces(&redactor, &text, size), expected, "{text:?} in pieces of {size}");
            }
            redacted += usize::from(expected != text);
        }
        assert!((100..300).contains(&redacted), "{redacted}");
    }
}
