//! Fingerprints, by which a finding is recognized after other parts of its file changed.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::uri;
use crate::diagnostic::{Diagnostic, SourceSpan};

/// Of a longer line, only the part from the start of the finding counts.
const MAX_LINE_BYTES: usize = 500;
/// Of a longer finding, only the first lines count.
const MAX_LINES: usize = 8;

/// Returns a unique fingerprint of 32 hexadecimal digits for each finding. It depends on the code, the file name and the
/// text of the lines, but not on their numbers or their indentation. If all of that occurs repeatedly, it also depends on
/// the number of earlier occurrences.
pub(super) fn fingerprints(findings: &[Diagnostic]) -> Vec<String> {
    let mut seen: HashMap<[u8; 32], usize> = HashMap::new();
    let mut fingerprints = Vec::with_capacity(findings.len());
    for finding in findings {
        let mut hash = Sha256::new();
        for part in [finding.code, uri::strip_dot_slash(&finding.span.source.name), &normalized_lines(&finding.span)] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let earlier = seen.entry(hash.clone().finalize().into()).or_default();
        hash.update(earlier.to_be_bytes());
        *earlier += 1;
        let digits = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        fingerprints.push(digits);
    }
    fingerprints
}

/// The text of the lines of a span, trimmed. Of a very long line, the text from the start of the span.
fn normalized_lines(span: &SourceSpan) -> String {
    let (source, (first, _), (last, _)) = (&span.source, span.start(), span.end());
    let mut text = String::new();
    for number in first..=last.min(first + MAX_LINES - 1) {
        let line = source.line_span(number);
        let shown = if line.len() > MAX_LINE_BYTES {
            let start = span.range.start.clamp(line.start, line.end);
            let end = span.range.end.clamp(start, line.end).min(start + MAX_LINE_BYTES);
            // Don't cut within a character.
            (start..=end).rev().find_map(|end| source.text.get(start..end)).unwrap_or_default()
        } else {
            source.text[line].trim()
        };
        text += shown;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::diagnostic::Source;

    fn prints(name: &str, text: &str, places: &[(&'static str, &str)]) -> Vec<String> {
        let source = Source::new(name, text);
        let found: Vec<Diagnostic> = places
            .iter()
            .map(|(code, part)| {
                let start = text.find(part).unwrap();
                let place = SourceSpan { source: Arc::clone(&source), range: start..start + part.len() };
                Diagnostic::error(code, place, "m")
            })
            .collect();
        fingerprints(&found)
    }

    #[test]
    fn a_finding_keeps_its_fingerprint_when_its_line_moves() {
        let here = prints("jobs/a.yaml", "a: 1\nbad: x\n", &[("e", "bad")]);
        assert_eq!(here, prints("./jobs/a.yaml", "# new\n\na: 2\n  bad: x\r\nc: 3", &[("e", "bad")]));
        assert!(here[0].len() == 32 && here[0].bytes().all(|digit| digit.is_ascii_hexdigit()), "{here:?}");
        for (name, text, code) in [
            ("jobs/b.yaml", "bad: x\n", "e"),
            ("jobs/a.yaml", "bad: y\n", "e"),
            ("jobs/a.yaml", "bad: x\n", "f"),
            ("jobs/a.yam", "bad: x\n", "le"),
        ] {
            assert_ne!(here, prints(name, text, &[(code, "bad")]), "{name} {text} {code}");
        }
    }

    #[test]
    fn fingerprints_are_unique() {
        let twice = prints("a.yaml", "[x, y]\n", &[("e", "x"), ("e", "y"), ("e", "y"), ("f", "x")]);
        let mut different = twice.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), twice.len());
        assert_eq!(twice, prints("a.yaml", "\n[x, y]\n", &[("e", "x"), ("e", "y"), ("e", "y"), ("f", "x")]));
    }

    #[test]
    fn changes_elsewhere_in_a_very_long_line_dont_matter() {
        let text = |before: &str| format!("{{{before}{}: {} }}", "ä".repeat(600), "ö".repeat(700));
        let part = "ö".repeat(700);
        assert_eq!(prints("a", &text("x"), &[("e", &part)]), prints("a", &text("yy"), &[("e", &part)]));
    }
}
