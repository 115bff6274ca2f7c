//! Invariants of the reader and the lints that apply to any text. The fuzz targets in `fuzz/` check the same ones.

use std::sync::Arc;

use legwork::diagnostic::{Diagnostic, Severity, Source, SourceSpan};
use legwork::lints::{self, LintReport, ValidJob};
use legwork::plan::{InputValues, Plan, RunContext};
use legwork::reports::{DisplayOptions, FINDINGS};
use legwork::template::JobDir;
use legwork::yaml;
use serde_json::Value;

/// Checks a job and asserts all invariants. Returns the findings, and whether the job is valid.
pub(crate) fn check_all(name: &str, bytes: &[u8], folder: Option<&JobDir>) -> (Vec<Diagnostic>, bool) {
    let source = match yaml::read_bytes(name, bytes) {
        Ok(source) => source,
        Err(finding) => {
            check_finding(&finding);
            let findings = vec![finding];
            check_formats(&findings);
            return (findings, false);
        }
    };
    let LintReport { findings, job, .. } = lints::check(&source, folder);
    findings.iter().for_each(check_finding);
    check_order(&source, &findings);
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    assert_eq!(job.is_none(), errors > 0, "{errors} errors in {findings:#?}");
    check_formats(&findings);
    if let Some(job) = job.as_ref().filter(|_| findings.is_empty()) {
        check_plan(job);
    }
    (findings, job.is_some())
}

/// Asserts that a finding has a rule and a message, and that its spans are within their texts.
pub(crate) fn check_finding(finding: &Diagnostic) {
    let rule = lints::rules().find(|rule| rule.code == finding.code);
    let rule = rule.unwrap_or_else(|| panic!("`{}` is no rule's code", finding.code));
    assert_eq!(rule.severity, finding.severity, "{finding:?}");
    assert!(!finding.message.is_empty(), "{finding:?}");
    let labels = finding.labels.iter().map(|label| &label.span);
    for place in [&finding.span].into_iter().chain(labels).chain(finding.fix.as_ref().map(|fix| &fix.span)) {
        check_place(place);
    }
}

/// Asserts that a span is on character boundaries within its text, and that line and column map back to it.
pub(crate) fn check_place(place: &SourceSpan) {
    let SourceSpan { source, range: span } = place;
    assert!(source.text.get(span.clone()).is_some(), "{span:?} of {} bytes: {place:?}", source.text.len());
    for (offset, position) in [(span.start, place.start()), (span.end, place.end())] {
        let mark = if source.text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        assert_eq!(offset_of(source, position), Some(offset.max(mark)), "{position:?} in {:?}", source.text);
    }
}

/// The offset of a line and column.
fn offset_of(source: &Source, (line, column): (usize, usize)) -> Option<usize> {
    let start = source.line_span(line).start;
    let rest = &source.text[start..];
    let offsets = rest.char_indices().map(|(at, _)| start + at).chain([source.text.len()]);
    offsets.into_iter().nth(column.checked_sub(1)?)
}

/// Asserts that findings in the file itself come first, and that those of each text are sorted by position.
fn check_order(first: &Arc<Source>, findings: &[Diagnostic]) {
    let key = |finding: &Diagnostic| {
        let SourceSpan { source, range: span } = &finding.span;
        (if Arc::ptr_eq(first, source) { "" } else { source.name.as_str() }.to_owned(), span.start, span.end)
    };
    assert!(findings.is_sorted_by_key(key), "{findings:#?}");
}

/// Asserts that every format can show the findings, and that no text from the file injects anything into the output.
fn check_formats(findings: &[Diagnostic]) {
    for (name, show) in FINDINGS {
        for (colour, width) in [(false, 140), (true, 40)] {
            let text = show(findings, DisplayOptions { colour, width });
            assert!(text.is_empty() || text.ends_with('\n'), "{name}: {text:?}");
            let steers =
                |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t') && !(colour && letter == '\u{1b}');
            assert!(!text.contains(steers), "{name}: {text:?}");
        }
    }
    let look = DisplayOptions { colour: false, width: 140 };
    let shown = |name: &str| legwork::reports::find(FINDINGS, name)(findings, look);
    let [json, sarif, gitlab] =
        ["json", "sarif", "gitlab"].map(|name| serde_json::from_str::<Value>(&shown(name)).expect(name));
    let listed = json["diagnostics"].as_array().expect("a list");
    assert_eq!(listed.len(), findings.len());
    assert_eq!(sarif["runs"][0]["results"].as_array().map(Vec::len), Some(findings.len()));
    assert_eq!(gitlab.as_array().map(Vec::len), Some(findings.len()));
    assert_eq!(shown("concise").lines().count(), findings.len());
    for (entry, finding) in listed.iter().zip(findings) {
        let ((line, column), (end_line, end_column)) = (finding.span.start(), finding.span.end());
        let numbers = ["line", "column", "end_line", "end_column"].map(|key| entry[key].as_u64());
        assert_eq!(numbers, [line, column, end_line, end_column].map(|number| Some(number as u64)));
        assert!((line, column) <= (end_line, end_column), "{finding:?}");
    }
    for line in shown("github").lines() {
        let is_command = line.starts_with("::error") || line.starts_with("::warning");
        // Findings beyond the limit on annotations are plain lines.
        let is_plain = !line.starts_with("::") && (line.contains(": error[") || line.contains(": warning["));
        assert!(is_command || is_plain, "{line:?}");
    }
}

/// Asserts that a valid job whose inputs all have defaults gives a plan, and the same plan each time.
fn check_plan(job: &ValidJob) {
    if job.job().inputs().any(|(_, input)| input.default.is_none()) {
        return;
    }
    let facts = RunContext {
        workspace: "/workspace".to_owned(),
        inputs_from: None,
        run_id: "<run.id>".to_owned(),
        run_date: "<run.date>".to_owned(),
        model_override: None,
        trigger: None,
    };
    let plan =
        || Plan::new(job, &InputValues::default(), &facts).map(|(plan, _)| serde_json::to_string(&plan).expect("JSON"));
    match plan() {
        Ok(first) => assert_eq!(plan().ok(), Some(first)),
        Err(findings) => panic!("{findings:#?}"),
    }
}
