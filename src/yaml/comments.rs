//! Comments that are directives.

use std::ops::Range;
use std::sync::Arc;

use granit_parser::{Event, Parser};

use super::limits::{MAX_BYTES, clamp_range, parser_options};
use super::syntax_recovery;
use crate::diagnostic::{Source, SourceSpan};

/// The mark of a directive.
const DIRECTIVE_PREFIX: &str = "legwork:";

/// The comments that contain `legwork:`, from their `#` to the end of their lines, in order. Quoted strings and block texts
/// have no comments, and neither have parts that can't be read.
pub fn directive_comments(source: &Arc<Source>) -> Vec<SourceSpan> {
    let text = &source.text;
    if !text.contains(DIRECTIVE_PREFIX) || text.len() > MAX_BYTES || text.contains('\0') {
        return Vec::new();
    }
    let spans = match marked(text) {
        Ok(spans) => spans,
        Err(()) => syntax_recovery::recover_syntax(source, text.clone())
            .ok()
            .and_then(|recovered| marked(&recovered.text).ok())
            .unwrap_or_default(),
    };
    spans.into_iter().map(|span| SourceSpan { source: Arc::clone(source), range: span }).collect()
}

fn marked(text: &str) -> Result<Vec<Range<usize>>, ()> {
    let mut options = parser_options();
    options.emit_comments = true;
    let mut found = Vec::new();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(drop)?;
        if matches!(event, Event::Comment(..)) {
            let span = clamp_range(text, span.byte_range().unwrap_or(0..0));
            let comment = text[span.clone()].trim_end();
            if comment.contains(DIRECTIVE_PREFIX) {
                found.push(span.start..span.start + comment.len());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, (usize, usize))> {
        let places = directive_comments(&Source::new("f.yaml", text));
        places.iter().map(|place| (place.source.text[place.range.clone()].to_owned(), place.start())).collect()
    }

    #[test]
    fn only_real_comments_count() {
        let text = "\
# legwork: first
a: 1  # legwork: behind a value
b: \"# legwork: quoted\" # legwork: behind quotes
c: '# legwork: quoted'
d: text# legwork: no comment
e: |  # legwork: at a header
  # legwork: part of the text
  x
  # legwork: this too
# another
f:
  # legwork: indented
  - [x, # legwork: within brackets
     y]
# legwork: last";
        let lines: Vec<usize> = found(text).iter().map(|(_, (line, _))| *line).collect();
        assert_eq!(lines, [1, 2, 3, 6, 12, 13, 15]);
        assert_eq!(found(text)[1], ("# legwork: behind a value".to_owned(), (2, 7)));
        assert_eq!(found("a: 1 # nothing\n"), []);
    }

    #[test]
    fn line_ends_and_wide_letters_do_not_shift_places() {
        let text = "\u{feff}# legwork: ä\r\nü: \"日本\" # legwork: 日 \r\nk: |\r\n  # legwork: no\r\n# legwork: é\r\n";
        let expected = [("# legwork: ä", (1, 1)), ("# legwork: 日", (2, 9)), ("# legwork: é", (5, 1))];
        assert_eq!(found(text), expected.map(|(text, place)| (text.to_owned(), place)));
    }

    #[test]
    fn a_broken_file_has_comments_too() {
        let text =
            "a: b: c # legwork: lost\n# legwork: one\nd: [x\n# legwork: two\ne: \"# legwork: no\n# legwork: three\n";
        let lines: Vec<usize> = found(text).iter().map(|(_, (line, _))| *line).collect();
        assert_eq!(lines, [2, 4, 6]);
        assert_eq!(found("# legwork: x\n[[[[[\0"), []);
        assert_eq!(found(&format!("# legwork: x\n{}", "[".repeat(200_000))), []);
    }

    #[test]
    fn many_comments_in_a_row() {
        let text = format!("{}a: 1\n", "# legwork: x\n".repeat(3000));
        assert_eq!(found(&text).len(), 3000);
    }
}
