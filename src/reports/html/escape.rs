//! Escapes text for HTML.

/// A text for HTML, in elements and attributes.
pub(super) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + text.len() / 16);
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'<' | b'>' | b'&' | b'"' | b'\'')) {
        html += &rest[..at];
        html += match rest.as_bytes()[at] {
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'&' => "&amp;",
            b'"' => "&quot;",
            _ => "&#39;",
        };
        rest = &rest[at + 1..];
    }
    html + rest
}

/// The length of an escaped text in bytes.
pub(super) fn escaped_length(text: &str) -> usize {
    let added = |byte: u8| match byte {
        b'<' | b'>' => 3,
        b'&' | b'\'' => 4,
        b'"' => 5,
        _ => 0,
    };
    text.bytes().map(|byte| 1 + added(byte)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_that_of_the_escaped_text() {
        assert_eq!(escape("<a>&\"'ä"), "&lt;a&gt;&amp;&quot;&#39;ä");
        assert_eq!(escaped_length("<a>&\"'ä"), escape("<a>&\"'ä").len());
    }
}
