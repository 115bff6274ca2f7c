//! HTML in a text: six tags without attributes, and nothing else.

use super::document::Document;
use super::violation::Finding;

/// The tags that a text may have.
const TAGS: &[&str] = &["details", "summary", "br", "sub", "sup", "kbd"];

const WHY: &str = "HTML is limited to <details>, <summary>, <br>, <sub>, <sup> and <kbd> without attributes: use Markdown, \
                   or show it as code in backticks, or write `&lt;` for `<`";
const HINT: &str = ". (From a tag at the beginning of a line to the next empty line Markdown isn't read, not even backticks: \
                    leave a line empty after the tag.)";

/// Finds the first HTML that isn't allowed.
pub(super) fn check(document: &Document<'_>) -> Option<Finding> {
    let source = document.source;
    let mut open: Vec<(&str, usize)> = Vec::new();
    for (at, _) in source.match_indices('<') {
        // An address can be in angle brackets.
        if document.is_code(at) || document.is_address(at) {
            continue;
        }
        let rest = &source[at..];
        if !rest[1..].starts_with(|next: char| next.is_ascii_alphabetic() || matches!(next, '/' | '!' | '?')) {
            continue;
        }
        let is_link = document.views.iter().all(|view| {
            let after = view.links.partition_point(|link| link.range.start < at);
            view.links.get(after).is_some_and(|link| link.range.start == at && link.is_autolink)
        });
        if is_link {
            continue;
        }
        let Some((name, is_end)) = tag(rest) else { return Some(refusal(document, at)) };
        match (name, is_end) {
            ("br", _) => {}
            (name, false) => open.push((name, at)),
            (name, true) => {
                if open.pop().is_none_or(|(opened, _)| opened != name) {
                    let why = format!("</{name}> doesn't end the tag that is open here: open it, or leave it out");
                    return Some(Finding { rule: "unbalanced-html", at, end: at + name.len() + 3, why });
                }
            }
        }
    }
    let unread = document.views.iter().flat_map(|view| &view.html).find(|html| {
        let text = source[html.start..html.end].trim_start();
        text.starts_with('<') && !document.is_code(html.start) && tag(text).is_none() && !text.starts_with("<http")
    });
    if let Some(html) = unread {
        return Some(refusal(document, html.start));
    }
    let (name, at) = open.pop()?;
    let why = format!("<{name}> isn't ended: add </{name}>");
    Some(Finding { rule: "unbalanced-html", at, end: at + name.len() + 2, why })
}

fn refusal(document: &Document<'_>, at: usize) -> Finding {
    let rest = &document.source[at..];
    if rest.starts_with("<!--") {
        let why = "HTML comments aren't visible: leave it out, or show it as code in backticks".to_owned();
        return Finding { rule: "html-comment", at, end: at + 4, why };
    }
    let line = super::lines::line_of(&document.lines, at);
    let hint = if document.raw.in_html.get(line).is_some_and(|in_html| *in_html) { HINT } else { "" };
    let length = rest.find(['>', '\n']).map_or(rest.len(), |end| end + usize::from(rest[end..].starts_with('>')));
    Finding { rule: "raw-html", at, end: at + length, why: format!("{WHY}{hint}") }
}

/// The tag at the beginning of a text, if it is an allowed one, and whether it ends something.
fn tag(text: &str) -> Option<(&'static str, bool)> {
    let inside = text.strip_prefix('<')?;
    let (inside, is_end) = inside.strip_prefix('/').map_or((inside, false), |inside| (inside, true));
    let length = inside.bytes().take(16).take_while(u8::is_ascii_alphanumeric).count();
    let (name, rest) = inside.split_at(length);
    let name = *TAGS.iter().find(|known| known.eq_ignore_ascii_case(name))?;
    let ends: &[&str] = if name == "br" && !is_end { &[">", "/>", " />"] } else { &[">"] };
    (ends.iter().any(|end| rest.starts_with(end)) && (name != "br" || !is_end)).then_some((name, is_end))
}
