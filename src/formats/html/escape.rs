//! Escapes text for HTML.

/// A text for HTML, in elements and attributes.
pub(super) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + text.len() / 16);
    for char in text.chars() {
        match char {
            '<' => html += "&lt;",
            '>' => html += "&gt;",
            '&' => html += "&amp;",
            '"' => html += "&quot;",
            '\'' => html += "&#39;",
            _ => html.push(char),
        }
    }
    html
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
