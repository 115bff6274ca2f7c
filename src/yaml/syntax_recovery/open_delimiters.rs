//! Quotes and brackets in a stretch of text that the parser has looked at and said nothing about yet.

/// What is open at the end of a stretch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OpenDelimiters {
    /// Where the brackets begin that aren't closed, the outermost first.
    pub(super) brackets: Vec<usize>,
    /// Where the quoted string begins that isn't closed, or that the stretch ends with.
    pub(super) quote: Option<usize>,
}

/// Scans `text[from..to]`, which begins outside of quotes and comments.
pub(super) fn scan_open_delimiters(text: &str, from: usize, to: usize) -> OpenDelimiters {
    let bytes = &text.as_bytes()[..to.max(from)];
    let mut open = OpenDelimiters::default();
    let mut at = from;
    while at < bytes.len() {
        let spaces = bytes[..at].iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let before = bytes[..at - spaces].last().copied().unwrap_or(b'\n');
        let begins = matches!(before, b':' | b',' | b'-' | b'?' | b'[' | b'{' | b'\n' | b'\r') || at - spaces <= from;
        match bytes[at] {
            b'#' if spaces > 0 || matches!(before, b'\n' | b'\r') => {
                at += bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - at);
            }
            quote @ (b'"' | b'\'') if begins || !open.brackets.is_empty() => {
                let end = closing_quote(bytes, at, quote);
                let is_last = end.is_none_or(|end| bytes[end..].trim_ascii().is_empty());
                if is_last {
                    open.quote = Some(at);
                }
                at = end.unwrap_or(bytes.len());
                continue;
            }
            // Within brackets no plain text can hold one.
            b'[' | b'{' if begins || !open.brackets.is_empty() => open.brackets.push(at),
            b']' | b'}' => drop(open.brackets.pop()),
            _ => {}
        }
        at += 1;
    }
    open
}

/// The end of a quoted string, its closing quote included.
pub(super) fn closing_quote(bytes: &[u8], open: usize, quote: u8) -> Option<usize> {
    let mut at = open + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quote == b'"' => at += 1,
            byte if byte == quote && quote == b'\'' && bytes.get(at + 1) == Some(&quote) => at += 1,
            byte if byte == quote => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open() {
        for (text, brackets, quote) in [
            ("a: [b, {c: d}, [", &[3, 15][..], None),
            ("a: \"x", &[], Some(3)),
            ("a: \"x\\\" y\" ", &[], Some(3)),
            ("a: 'it''s' b", &[], None),
            ("it's # \"no\n b: 'c", &[], Some(15)),
            ("{\"a\": [\"b\" ", &[0, 6], Some(7)),
            ("x[1] y", &[], None),
            ("[ x {{ y }} ", &[0], None),
        ] {
            assert_eq!(
                scan_open_delimiters(text, 0, text.len()),
                OpenDelimiters { brackets: brackets.to_vec(), quote },
                "{text}"
            );
        }
    }
}
