//! Binary files in patches: the `GIT binary patch` section of git's form, with whole contents. They are packed with zlib and written
//! in base 85, so that a patch stays printable text.

use std::borrow::Cow;

use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

use crate::text::format_size;

/// The line that begins such a section.
pub(crate) const BINARY_PATCH_LINE: &str = "GIT binary patch";
/// What the line with the content's length begins with.
pub(crate) const LITERAL: &str = "literal ";
/// The most bytes that all binary files of a patch have once they are unpacked.
pub(crate) const MAX_UNPACKED_BYTES: usize = 32 << 20;

/// How well contents are packed; git's default.
const LEVEL: u8 = 6;
/// How many packed bytes a line has.
const LINE_BYTES: usize = 52;
/// The digits of git's base 85.
const DIGITS: &[u8; 85] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// The lines of a section that give a file this content; of a deleted file, none.
pub(crate) fn encode(content: &[u8]) -> String {
    let packed = compress_to_vec_zlib(content, LEVEL);
    let mut text = String::with_capacity(packed.len() / 4 * 5 + packed.len() / LINE_BYTES * 2 + 64);
    text += &format!("{BINARY_PATCH_LINE}\n{LITERAL}{}\n", content.len());
    for line in packed.chunks(LINE_BYTES) {
        text.push(length_digit(line.len()));
        for group in line.chunks(4) {
            let mut bytes = [0; 4];
            bytes[..group.len()].copy_from_slice(group);
            let mut number = u32::from_be_bytes(bytes);
            let mut digits = [0; 5];
            for digit in digits.iter_mut().rev() {
                *digit = DIGITS[(number % 85) as usize];
                number /= 85;
            }
            text.extend(digits.map(char::from));
        }
        text.push('\n');
    }
    text + "\n"
}

/// The letter that says how many bytes a line has: `A` is 1, `z` is 52.
fn length_digit(length: usize) -> char {
    let letters = ('A'..='Z').chain('a'..='z');
    letters.clone().nth(length.saturating_sub(1)).unwrap_or('z')
}

/// Adds the packed bytes of a line. `None` if it isn't a line of such a section.
pub(crate) fn decode_line(line: &str, packed: &mut Vec<u8>) -> Option<()> {
    let (first, digits) = line.as_bytes().split_first()?;
    let length = match first {
        letter @ b'A'..=b'Z' => usize::from(letter - b'A') + 1,
        letter @ b'a'..=b'z' => usize::from(letter - b'a') + 27,
        _ => return None,
    };
    if digits.len() != length.div_ceil(4) * 5 {
        return None;
    }
    let end = packed.len() + length;
    for group in digits.chunks(5) {
        let mut number: u32 = 0;
        for digit in group {
            let value = DIGITS.iter().position(|known| known == digit)?;
            number = number.checked_mul(85)?.checked_add(u32::try_from(value).ok()?)?;
        }
        packed.extend(number.to_be_bytes());
    }
    packed.truncate(end);
    Some(())
}

/// The content that was packed, if it has exactly this length.
pub(crate) fn unpack(packed: &[u8], length: usize) -> Option<Vec<u8>> {
    let content = decompress_to_vec_zlib_with_limit(packed, length).ok()?;
    (content.len() == length).then_some(content)
}

/// A section of a patch for people, with the size of a binary file in the place of its content.
pub(crate) fn without_data(section: &str) -> Cow<'_, str> {
    // The lines of a text have a sign before them.
    let Some((header, data)) = section.split_once(&format!("\n{BINARY_PATCH_LINE}\n")) else {
        return Cow::Borrowed(section);
    };
    let (first, rest) = data.split_once("\n\n").unwrap_or((data, ""));
    let length = first.lines().next().and_then(|line| line.strip_prefix(LITERAL)?.parse().ok());
    let size = length.filter(|length| *length > 0).map(|length| format!(", {}", format_size(length)));
    Cow::Owned(format!("{header}\n(binary file{})\n{rest}", size.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(text: &str) -> Option<Vec<u8>> {
        let rest = text.strip_prefix(BINARY_PATCH_LINE)?.strip_prefix('\n')?.strip_prefix(LITERAL)?;
        let (length, lines) = rest.split_once('\n')?;
        let mut packed = Vec::new();
        for line in lines.strip_suffix("\n\n")?.lines() {
            decode_line(line, &mut packed)?;
        }
        unpack(&packed, length.parse().ok()?)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_encoded_is_decoded(content in prop::collection::vec(any::<u8>(), 0..600)) {
            let text = encode(&content);
            prop_assert!(text.lines().skip(2).all(|line| line.len() <= 66), "{}", text);
            prop_assert_eq!(decode(&text), Some(content));
        }
    }

    /// Written by git 2.47 for a file of four bytes, and for a deleted one.
    #[test]
    fn sections_of_git_are_read() {
        assert_eq!(decode("GIT binary patch\nliteral 0\nHcmV?d00001\n\n"), Some(Vec::new()));
        for broken in [
            // Another length, a digit that isn't one, too few and too many digits, a number beyond 32 bits.
            "GIT binary patch\nliteral 1\nHcmV?d00001\n\n",
            "GIT binary patch\nliteral 0\nHcmV?d0000,\n\n",
            "GIT binary patch\nliteral 0\nHcmV?d0000\n\n",
            "GIT binary patch\nliteral 0\nHcmV?d000010\n\n",
            "GIT binary patch\nliteral 0\nH~~~~~00001\n\n",
            "GIT binary patch\nliteral 0\n\u{e4}cmV?d00001\n\n",
        ] {
            assert_eq!(decode(broken), None, "{broken}");
        }
    }

    #[test]
    fn no_content_is_unpacked_beyond_the_length_that_it_names() {
        let packed = compress_to_vec_zlib(&vec![0; 64 << 20], LEVEL);
        assert!(packed.len() < 1 << 17, "{}", packed.len());
        assert_eq!(unpack(&packed, 1000), None);
    }

    #[test]
    fn people_read_the_size_only() {
        let section = format!("diff --git a/x b/x\nnew file mode 100644\n{}# rest\n", encode(&[0; 12_300]));
        assert_eq!(without_data(&section), "diff --git a/x b/x\nnew file mode 100644\n(binary file, 13 kB)\n# rest\n");
        let text = "diff --git a/x b/x\n@@ -0,0 +1,2 @@\n+GIT binary patch\n+literal 3\n";
        assert_eq!(without_data(text), text);
    }
}
