//! What a finding is recognised by when it is found again, in a file that has changed elsewhere.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::uri;
use crate::diagnostic::{Diagnostic, SourceSpan};

/// A line longer than this many bytes says nothing of one place in it.
const MAX_LINE_BYTES: usize = 500;
/// Of a place that spans more, the first ones count.
const MAX_LINES: usize = 8;

/// For each finding 32 hexadecimal digits that no other one has. They come from its code, its file's name and what
/// stands in its lines, but not from where these are or how far they are indented; and, where all that is the same
/// twice, from how many came before.
pub(super) fn fingerprints(findings: &[Diagnostic]) -> Vec<String> {
    let mut seen: HashMap<[u8; 32], usize> = HashMap::new();
    let mut prints = Vec::with_capacity(findings.len());
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
        prints.push(digits);
    }
    prints
}

/// What stands in a place's lines, without white space around it; of a very long line the place's own beginning.
fn normalized_lines(place: &SourceSpan) -> String {
    let (source, (first, _), (last, _)) = (&place.source, place.start(), place.end());
    let mut text = String::new();
    for number in first..=last.min(first + MAX_LINES - 1) {
        let line = source.line_span(number);
        let shown = if line.len() > MAX_LINE_BYTES {
            let start = place.range.start.clamp(line.start, line.end);
            let end = place.range.end.clamp(start, line.end).min(start + MAX_LINE_BYTES);
            // A cut inside a character leaves it out.
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
    fn a_finding_keeps_its_print_when_its_line_moves() {
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
    fn no_two_findings_have_the_same() {
        let twice = prints("a.yaml", "[x, y]\n", &[("e", "x"), ("e", "y"), ("e", "y"), ("f", "x")]);
        let mut different = twice.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), twice.len());
        assert_eq!(twice, prints("a.yaml", "\n[x, y]\n", &[("e", "x"), ("e", "y"), ("e", "y"), ("f", "x")]));
    }

    #[test]
    fn a_change_elsewhere_in_a_very_long_line_changes_nothing() {
        let text = |before: &str| format!("{{{before}{}: {} }}", "ä".repeat(600), "ö".repeat(700));
        let part = "ö".repeat(700);
        assert_eq!(prints("a", &text("x"), &[("e", &part)]), prints("a", &text("yy"), &[("e", &part)]));
    }
}
