//! What stands in the place of an answer: pages, notices of what stands before a server, errors in anybody's words.

use serde_json::Value;

use crate::providers::errors::classification::ApiError;
use crate::providers::openai::error_dialect as widespread;
use crate::providers::transport::http::Endpoint;

/// The most characters of a text that are shown.
const MAX_EXCERPT_CHARS: usize = 200;

/// A foreign body in a few words: of a page its title, or its text where it has none. Without secrets.
pub(crate) fn excerpt(body: &[u8], media_type: &str, endpoint: &Endpoint) -> String {
    if is_binary(body) {
        return "bytes that are no text".to_owned();
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

/// Whether somebody would see nothing but rubbish.
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

/// A page's text, what styles and scripts hold left out.
fn strip_tags(page: &str) -> String {
    const MOST: usize = 16 << 10;
    let mut text = String::new();
    let mut rest = page.char_indices().nth(MOST).map_or(page, |(end, _)| &page[..end]);
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

/// What JSON says went wrong, where it says so in some form that isn't the API's own: an `error` of any kind, FastAPI's
/// `detail`, Cloudflare's `errors`, vLLM's `"object": "error"`, a `success` that is none, a code of HTTP's.
pub(crate) fn parse_any_error(json: &str) -> Option<ApiError> {
    let value: Value = serde_json::from_str(json).ok()?;
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(&value);
    let is_some = |key: &str| value.get(key).is_some_and(|it| it.is_object() || it.is_string() || it == true);
    let holds = |key: &str| value.get(key).is_some_and(|it| it.as_array().is_some_and(|list| !list.is_empty()));
    let is_no = |key: &str| value.get(key).is_some_and(|it| it == false);
    let status = ["code", "status", "statusCode"].iter().find_map(|key| value.get(*key)?.as_u64());
    let status = status.and_then(|status| u16::try_from(status).ok()).filter(|status| (400..600).contains(status));
    let is_error = is_some("error")
        || holds("errors")
        || is_some("detail")
        || holds("detail")
        || is_no("success")
        || value.get("object").is_some_and(|object| object == "error")
        || status.is_some();
    if !is_error {
        return None;
    }
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut said = (widespread::ERROR_DIALECT.parse)(json).unwrap_or_default();
    said.message = said.message.or_else(|| text("message")).or_else(|| text("msg"));
    said.status = said.status.or(status);
    if said.message.is_none() {
        said.message = Some(json.chars().take(MAX_EXCERPT_CHARS).collect());
    }
    Some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_known_in_many_forms_and_nothing_else_is_one() {
        for (json, message, status) in [
            (r#"{"error": true, "message": "out of luck"}"#, "out of luck", None),
            (r#"{"error": "asleep"}"#, "asleep", None),
            (r#"[{"error": {"code": 429, "message": "slowly"}}]"#, "slowly", Some(429)),
            (r#"{"errors": [{"message": "bad", "code": 1000}], "success": false}"#, "bad", None),
            (r#"{"detail": "Not authenticated"}"#, "Not authenticated", None),
            (r#"{"detail": [{"loc": ["x"], "msg": "field required"}]}"#, "field required", None),
            (r#"{"object": "error", "message": "no such model", "code": 404}"#, "no such model", Some(404)),
            (r#"{"code": 401, "msg": "invalid token"}"#, "invalid token", Some(401)),
            (r#"{"success": false, "why": 3}"#, r#"{"success": false, "why": 3}"#, None),
        ] {
            let said = parse_any_error(json).unwrap();
            assert_eq!((said.message.as_deref(), said.status), (Some(message), status), "{json}");
        }
        for json in [
            r#"{"message": "Welcome"}"#,
            r#"{"error": null, "errors": [], "code": 0}"#,
            r#"{"status": "ok"}"#,
            r#"{"choices": []}"#,
            "[]",
            "null",
            "<html>",
        ] {
            assert!(parse_any_error(json).is_none(), "{json}");
        }
    }

    #[test]
    fn a_page_is_shown_by_its_title_or_its_text() {
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
    fn rubbish_is_told_from_text() {
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
