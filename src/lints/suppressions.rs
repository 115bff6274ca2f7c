//! `# legwork: allow CODE` silences a warning, on its own line or on the one below.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Rule, Severity, Source, SourceSpan, rule};
use crate::yaml;

use super::MAX_FINDINGS;

pub(super) const RULES: &[Rule] = &[rule!(Warning "unused-allow")];

const FORM: &str = "write `# legwork: allow CODE`; separate several codes by commas, and put a reason after ` -- `";

/// One code in one comment.
struct Suppression<'a> {
    place: SourceSpan,
    code: &'a str,
    /// The line whose warnings it silences.
    line: usize,
    is_used: bool,
}

/// Removes the warnings that comments allow, and reports comments that have no effect.
pub(super) fn apply(source: &Arc<Source>, rules: &[&'static Rule], findings: &mut Vec<Diagnostic>) {
    let comments = yaml::directive_comments(source);
    if comments.is_empty() {
        return;
    }
    let mut wrong = Vec::new();
    let mut allows = read(source, &comments, rules, &mut wrong);
    let mut by_line: HashMap<(usize, &str), usize> = HashMap::new();
    for (at, allow) in allows.iter().enumerate() {
        by_line.entry((allow.line, allow.code)).or_insert(at);
    }
    findings.retain(|finding| {
        if finding.severity == Severity::Error || !Arc::ptr_eq(&finding.span.source, source) {
            return true;
        }
        let found = by_line.get(&(finding.span.start().0, finding.code)).and_then(|at| allows.get_mut(*at));
        found.map(|allow| allow.is_used = true).is_none()
    });
    // After an error, some warnings may not be found.
    if !findings.iter().any(|finding| finding.severity == Severity::Error) {
        for allow in allows.into_iter().filter(|allow| !allow.is_used) {
            let message = format!("there is no warning `{}` here", allow.code);
            wrong.push(
                Diagnostic::warning("unused-allow", allow.place, message)
                    .help("remove it; a comment applies to its own line, or to the line below if it is alone"),
            );
        }
    }
    findings.append(&mut wrong);
}

/// The codes of all valid comments; the others are reported.
fn read<'a>(
    source: &'a Arc<Source>,
    comments: &[SourceSpan],
    rules: &[&'static Rule],
    wrong: &mut Vec<Diagnostic>,
) -> Vec<Suppression<'a>> {
    let mut allows = Vec::new();
    let mut below = 0;
    for comment in comments {
        let at = |span: Range<usize>| SourceSpan { source: source.clone(), range: span };
        let Some(codes) = parse_directive(source, &comment.range) else { continue };
        let Some(codes) = codes else {
            let finding = Diagnostic::warning("unused-allow", comment.clone(), "this comment has no effect");
            wrong.push(finding.help(FORM));
            continue;
        };
        let line = comment.start().0;
        let is_alone = source.text[source.line_span(line).start..comment.range.start].trim().is_empty();
        if is_alone && line >= below {
            below = line + 1;
            while source.text[source.line_span(below)].trim_start().starts_with('#') {
                below += 1;
            }
        }
        for span in codes {
            let code = &source.text[span.clone()];
            match rules.iter().find(|rule| rule.code == code).map(|rule| rule.severity) {
                Some(Severity::Warning) => {
                    let line = if is_alone { below } else { line };
                    allows.push(Suppression { place: at(span.clone()), code, line, is_used: false });
                }
                Some(Severity::Error) => wrong.push(
                    Diagnostic::warning("unused-allow", at(span.clone()), format!("`{code}` is an error"))
                        .help("only warnings can be silenced: fix the error, and remove this comment"),
                ),
                None => wrong.push(unknown_code(code, rules, at(span.clone()), wrong.len())),
            }
        }
    }
    allows
}

fn unknown_code(code: &str, rules: &[&'static Rule], place: SourceSpan, earlier: usize) -> Diagnostic {
    let finding = Diagnostic::warning("unused-allow", place, format!("there is no warning `{code}`"));
    if earlier >= 2 * MAX_FINDINGS {
        return finding;
    }
    let known = rules.iter().filter(|rule| rule.severity == Severity::Warning).map(|rule| rule.code);
    finding.suggest(code, known, "a finding's code is in brackets after `warning`")
}

/// The ranges of the codes in a `legwork` comment; `Some(None)` if it is malformed.
fn parse_directive(source: &Source, span: &Range<usize>) -> Option<Option<Vec<Range<usize>>>> {
    let text = &source.text[span.clone()];
    let rest = text.trim_start_matches(['#', ' ', '\t']).strip_prefix("legwork")?;
    let rest = rest.trim_start().strip_prefix(':').map(str::trim_start);
    let Some(codes) = rest.and_then(|rest| rest.strip_prefix("allow")).filter(|codes| codes.starts_with([' ', '\t']))
    else {
        return Some(None);
    };
    let mut at = span.end - codes.len();
    let codes = codes.split_once(" -- ").map_or(codes, |(codes, _)| codes);
    let mut found = Vec::new();
    for piece in codes.split(',') {
        let code = piece.trim();
        let from = at + (piece.len() - piece.trim_start().len());
        if code.is_empty() || code.contains(char::is_whitespace) {
            return Some(None);
        }
        found.push(from..from + code.len());
        at += piece.len() + 1;
    }
    Some(Some(found))
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    /// The codes of the remaining findings, with their lines.
    fn left(text: &str) -> Vec<(usize, &'static str)> {
        let findings = check(&Source::new("job.yaml", text), None).findings;
        findings.iter().map(|finding| (finding.span.start().0, finding.code)).collect()
    }

    const REST: &str = "parent:\n  prompt: Hi.\n  tools: [glob]\n";

    #[test]
    fn a_comment_applies_to_its_line_or_the_one_below() {
        let job = |first: &str, model: &str| format!("{first}model: {model}\n{REST}");
        let model = "anthropic/claude-sonnet-5-5";
        for (text, expected) in [
            (job("", model), vec![(1, "no-cost-limit")]),
            (job("", &format!("{model} # legwork: allow no-cost-limit")), vec![]),
            (job("# legwork: allow no-cost-limit -- it is cheap, really\n", model), vec![]),
            (job("# legwork: allow no-cost-limit\n# more words\n", model), vec![]),
            (job("# legwork: allow no-cost-limit, single-turn-with-tools\n", model), vec![(1, "unused-allow")]),
            (job("# legwork: allow no-cost-limit\n\n", model), vec![(1, "unused-allow"), (3, "no-cost-limit")]),
            (job("# legwork: allow no-cost-limits\n", model), vec![(1, "unused-allow"), (2, "no-cost-limit")]),
            (job("# legwork: alow no-cost-limit\n", model), vec![(1, "unused-allow"), (2, "no-cost-limit")]),
            (job("# legwork: allow\n", model), vec![(1, "unused-allow"), (2, "no-cost-limit")]),
            (job("# legwork: allow unknown-tool\n", model), vec![(1, "unused-allow"), (2, "no-cost-limit")]),
            (job("# we say legwork: allow no-cost-limit\n", model), vec![(2, "no-cost-limit")]),
            (
                job("# legwork: allow no-cost-limit\n", &format!("{model} # legwork: allow no-cost-limit")),
                vec![(2, "unused-allow")],
            ),
        ] {
            assert_eq!(left(&text), expected, "{text}");
        }
    }

    #[test]
    fn many_comments_take_linear_time() {
        let text = format!("{}model: anthropic/x\n{REST}", "# legwork: allow no-cost-limit\n".repeat(5_000));
        assert_eq!(left(&text).len(), MAX_FINDINGS + 1);
    }

    #[test]
    fn a_comment_in_a_text_is_ignored() {
        let text = "model: anthropic/claude-sonnet-5-5\nlimits: { tokens: 9 }\nparent:\n  prompt: |\n    # legwork: allow x\n  tools: []\n";
        assert_eq!(left(text), []);
    }

    #[test]
    fn no_comment_is_unused_after_an_error() {
        let text = "# legwork: allow unused-input\ninputs: { a: { type: string } }\nmodel: anthropic/claude-sonnet-5-5\nlimits: { tokens: 9 }\nparent: { prompt: '{{ x', tools: [] }\n";
        assert_eq!(left(text), [(5, "template-syntax")]);
    }
}
