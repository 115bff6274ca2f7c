//! Short excerpts of bodies that aren't replies: pages, proxies' notices, binary data.

use crate::providers::transport::endpoint::Endpoint;

/// The maximum length of an excerpt in characters.
const MAX_EXCERPT_CHARS: usize = 200;

/// An excerpt of a body without secrets: the title of a page, or its text if it has no title.
pub(crate) fn excerpt_of(body: &[u8], media_type: &str, endpoint: &Endpoint) -> String {
    if is_binary(body) {
        return "binary data".to_owned();
    }
    let text = endpoint.redact(&String::from_utf8_lossy(body));
    if media_type.contains("html") || text.trim_start().starts_with('<') {
        return match title(&text) {
            Some(title) => format!("a page titled \"{title}\""),
            None => format!("a page: {}", shorten(&strip_tags(&text))),
        };
    }
    shorten(&text)
}

fn shorten(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_EXCERPT_CHARS).collect()
}

/// Whether a body is binary data rather than text.
fn is_binary(body: &[u8]) -> bool {
    let start = &body[..body.len().min(1_000)];
    let odd = String::from_utf8_lossy(start)
        .chars()
        .filter(|c| *c == '\u{fffd}' || c.is_control() && !c.is_whitespace())
        .count();
    start.contains(&0) || odd * 10 > start.len()
}

fn title(page: &str) -> Option<String> {
    let lower = page.to_ascii_lowercase();
    let opened = lower.find("<title")?;
    let start = opened + lower[opened..].find('>')? + 1;
    let end = start + lower[start..].find("</title")?;
    let title = shorten(page.get(start..end)?);
    (!title.is_empty()).then_some(title)
}

/// A page's text without tags, styles and scripts.
fn strip_tags(page: &str) -> String {
    const MAX_CHARS: usize = 16 << 10;
    let mut text = String::new();
    let mut rest = page.char_indices().nth(MAX_CHARS).map_or(page, |(end, _)| &page[..end]);
    while let Some((before, tag)) = rest.split_once('<') {
        text.push_str(before);
        text.push(' ');
        let begins = |name: &str| tag.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        let end = ["script", "style"].into_iter().find(|name| begins(name)).map(|name| format!("</{name}"));
        let skipped = end.map_or(Some(0), |end| tag.to_ascii_lowercase().find(&end));
        rest = skipped.and_then(|skipped| tag[skipped..].split_once('>')).map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_html_page_is_shown_by_its_title_or_its_text() {
        for (page, expected) in [
            ("<title>\n Sign  in</title><p>x", Some("Sign in")),
            ("<TITLE lang=en>Ä</TITLE>", Some("Ä")),
            ("<title></title>", None),
            ("<title>never ends", None),
        ] {
            assert_eq!(title(page).as_deref(), expected, "{page}");
        }
        let page = "<html><head><style>a > b {}</style><SCRIPT>if (a < b) {}</SCRIPT></head>\n<h1>504 Gateway\nTime-out</h1> now <";
        assert_eq!(shorten(&strip_tags(page)), "504 Gateway Time-out now");
        assert_eq!(shorten(&strip_tags("<İ<style")), "");
    }

    #[test]
    fn binary_data_is_distinguished_from_text() {
        for (bytes, is) in [
            (b"".as_slice(), false),
            ("Ollama läuft: \u{1b}[1mja\r\n".as_bytes(), false),
            (b"\x89PNG\r\n\x1a\n\0\0", true),
            (b"<\0h\0t\0", true),
            (b"\x1f\x8b\x08\xff\xfe\xfd\xfca", true),
        ] {
            assert_eq!(is_binary(bytes), is, "{bytes:?}");
        }
    }
}
