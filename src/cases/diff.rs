//! What differs between a snapshot and what was found, for people.

use crate::text::diff::hunks;

/// The most lines of a diff that are shown.
const MAX_LINES: usize = 200;
/// The most bytes of either side that are compared line by line.
const MAX_BYTES: usize = 4 << 20;

/// A unified diff, the expected side first; one sentence where it is no text, or too long.
pub(super) fn unified(expected: &[u8], found: &[u8]) -> String {
    let (Ok(old), Ok(new)) = (str::from_utf8(expected), str::from_utf8(found)) else {
        return format!("they are no texts: {} and {} bytes", expected.len(), found.len());
    };
    if old.len() > MAX_BYTES || new.len() > MAX_BYTES {
        return format!("they are too long to be shown: {} and {} bytes", old.len(), new.len());
    }
    let diff: String = hunks(old, new).iter().map(ToString::to_string).collect();
    let diff = diff.replace('\r', "␍");
    let mut lines: Vec<String> =
        ["--- expected", "+++ found"].into_iter().chain(diff.lines()).map(str::to_owned).collect();
    let beyond = lines.len().saturating_sub(MAX_LINES);
    if beyond > 0 {
        lines.truncate(MAX_LINES);
        lines.push(format!("[{beyond} more lines]"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_shown_with_what_is_around() {
        let old: String = (1..=20).map(|line| format!("{line}\n")).collect();
        let new = old.replace("\n10\n", "\nten\n");
        let expected = "--- expected\n+++ found\n@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13";
        assert_eq!(unified(old.as_bytes(), new.as_bytes()), expected);
        assert!(unified(b"a\n", b"a").ends_with("-a\n+a\n\\ No newline at end of file"));
        assert!(unified(b"a\r\n", b"a\n").contains("-a␍\n+a"));
        assert_eq!(unified(b"\xff", b"abc"), "they are no texts: 1 and 3 bytes");
        let long: String = (0..1000).map(|line| format!("{line}\n")).collect();
        assert!(unified(b"", long.as_bytes()).ends_with("[803 more lines]"));
    }
}
