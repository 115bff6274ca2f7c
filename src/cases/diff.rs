//! The difference between a snapshot and the actual contents, for people.

use crate::text::diff::hunks;

/// The most lines of a diff that are shown.
const MAX_LINES: usize = 200;
/// The most bytes of either side to compare line by line.
const MAX_BYTES: usize = 4 << 20;

/// A unified diff from expected to actual contents, or a note if one of them isn't text or is too long.
pub(super) fn unified(expected: &[u8], actual: &[u8]) -> String {
    let (Ok(old), Ok(new)) = (str::from_utf8(expected), str::from_utf8(actual)) else {
        return format!("not text: {} and {} bytes", expected.len(), actual.len());
    };
    if old.len() > MAX_BYTES || new.len() > MAX_BYTES {
        return format!("too long to show: {} and {} bytes", old.len(), new.len());
    }
    let diff: String = hunks(old, new).iter().map(ToString::to_string).collect();
    let diff = diff.replace('\r', "␍");
    let mut lines: Vec<String> =
        ["--- expected", "+++ actual"].into_iter().chain(diff.lines()).map(str::to_owned).collect();
    let omitted = lines.len().saturating_sub(MAX_LINES);
    if omitted > 0 {
        lines.truncate(MAX_LINES);
        lines.push(format!("[{omitted} more lines]"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_with_context() {
        let old: String = (1..=20).map(|line| format!("{line}\n")).collect();
        let new = old.replace("\n10\n", "\nten\n");
        let expected = "--- expected\n+++ actual\n@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13";
        assert_eq!(unified(old.as_bytes(), new.as_bytes()), expected);
        assert!(unified(b"a\n", b"a").ends_with("-a\n+a\n\\ No newline at end of file"));
        assert!(unified(b"a\r\n", b"a\n").contains("-a␍\n+a"));
        assert_eq!(unified(b"\xff", b"abc"), "not text: 1 and 3 bytes");
        let long: String = (0..1000).map(|line| format!("{line}\n")).collect();
        assert!(unified(b"", long.as_bytes()).ends_with("[803 more lines]"));
    }
}
