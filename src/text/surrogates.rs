//! Unpaired surrogates in JSON, which some programs write and Rust's strings can't hold.

use std::borrow::Cow;

/// The escape that replaces an unpaired surrogate: U+FFFD.
const REPLACEMENT: &str = "\\ufffd";

/// A JSON text in which each escape of an unpaired surrogate, such as `\ud83d` alone, is one of U+FFFD.
pub(crate) fn replace_unpaired(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let mut out = String::new();
    let (mut at, mut copied) = (0, 0);
    while let Some(found) = memchr::memchr(b'\\', &bytes[at..]) {
        let start = at + found;
        let Some(unit) = escaped_unit(bytes, start) else {
            // An escape of one character, which may be a backslash.
            at = (start + 2).min(bytes.len());
            continue;
        };
        let is_paired = (0xd800..0xdc00).contains(&unit)
            && escaped_unit(bytes, start + 6).is_some_and(|low| (0xdc00..0xe000).contains(&low));
        if is_paired {
            at = start + 12;
            continue;
        }
        at = start + 6;
        if (0xd800..0xe000).contains(&unit) {
            out.push_str(&json[copied..start]);
            out.push_str(REPLACEMENT);
            copied = at;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[copied..]);
    Cow::Owned(out)
}

/// The UTF-16 unit of the escape `\uXXXX` that starts there.
fn escaped_unit(bytes: &[u8], start: usize) -> Option<u16> {
    let digits = bytes.get(start..start + 6)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |unit: u16, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(unit << 4 | u16::try_from(digit).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unpaired_surrogates_are_replaced() {
        for (json, expected) in [
            (r#""plain \n \\ud83d \ud83d\ude00 \u00e9""#, r#""plain \n \\ud83d \ud83d\ude00 \u00e9""#),
            (r#""x \ud83d y""#, r#""x \ufffd y""#),
            (r#""\uDE00\uD83D""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\\ud83d""#, r#""\\\ufffd""#),
            (r#""é\ud83dé""#, r#""é\ufffdé""#),
            (r#""\ud83"#, r#""\ud83"#),
            ("\"\\", "\"\\"),
        ] {
            assert_eq!(replace_unpaired(json), expected, "{json}");
        }
        let replaced = replace_unpaired(r#""x \ud83d y""#);
        assert_eq!(serde_json::from_str::<String>(&replaced).unwrap(), "x \u{fffd} y");
    }
}
