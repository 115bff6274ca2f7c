//! SARIF 2.1.0 (<https://docs.oasis-open.org/sarif/sarif/v2.1.0/>), for GitHub code scanning and editors.

use serde_json::{Value, json};

use super::display::to_json;
use super::{DisplayOptions, fingerprint, rule_docs, uri};
use crate::diagnostic::{Diagnostic, Fix, Label, Rule, Severity, SourceSpan};
use crate::plan;
use crate::text::pluralize;
use crate::text::sanitize;

/// The most results that GitHub accepts per run
/// (<https://docs.github.com/en/code-security/code-scanning/troubleshooting-sarif-uploads/results-exceed-limit>).
const MAX_RESULTS: usize = 25_000;
/// The most locations per result that GitHub keeps.
const MAX_LOCATIONS: usize = 100;
/// The layout of rule pages as plain text.
const PLAIN: DisplayOptions = DisplayOptions { colour: false, width: 80 };

pub(super) fn findings(findings: &[Diagnostic], _: DisplayOptions) -> String {
    to_json(&log(findings, MAX_RESULTS))
}

/// The log, with at most `max` results.
fn log(findings: &[Diagnostic], max: usize) -> Value {
    let mut rules: Vec<&Rule> =
        plan::rules().filter(|rule| findings.iter().any(|finding| finding.code == rule.code)).collect();
    rules.sort_by_key(|rule| rule.code);
    let mut results: Vec<(Severity, Value)> = findings
        .iter()
        .zip(fingerprint::fingerprints(findings))
        .map(|(finding, print)| (finding.severity, result(finding, &rules, &print)))
        .collect();
    let omitted = results.len().saturating_sub(max);
    if omitted > 0 {
        // A stable sort: errors first, each severity in file order.
        results.sort_by_key(|(severity, _)| *severity);
        results.truncate(max);
    }
    let text = format!("{} omitted: a run holds at most {max}", pluralize(omitted as u64, "finding"));
    let notification = (omitted > 0).then(|| json!({ "level": "warning", "message": { "text": text } }));
    json!({
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {
                "driver": {
                    "name": env!("CARGO_PKG_NAME"),
                    "semanticVersion": env!("CARGO_PKG_VERSION"),
                    "version": env!("CARGO_PKG_VERSION"),
                    "rules": rules.iter().map(|rule| rule_descriptor(rule)).collect::<Vec<_>>(),
                },
            },
            "invocations": [{
                "executionSuccessful": true,
                "toolExecutionNotifications": notification.into_iter().collect::<Vec<_>>(),
            }],
            "columnKind": "unicodeCodePoints",
            "results": results.into_iter().map(|(_, result)| result).collect::<Vec<_>>(),
        }],
    })
}

fn rule_descriptor(rule: &Rule) -> Value {
    let (full, _) = rule.page.split_once("\n## ").unwrap_or((rule.page, ""));
    json!({
        "id": rule.code,
        "shortDescription": { "text": rule.summary() },
        "fullDescription": { "text": rule_docs::body(full, PLAIN).trim_end() },
        "help": { "text": rule_docs::body(rule.page, PLAIN), "markdown": rule.page },
        "defaultConfiguration": { "level": rule.severity.as_str() },
    })
}

fn result(finding: &Diagnostic, rules: &[&Rule], print: &str) -> Value {
    let mut result = json!({
        "ruleId": finding.code,
        "level": finding.severity.as_str(),
        "message": message(&finding.message, finding.help.as_deref()),
        "locations": [location(&finding.span)],
        // Not `primaryLocationLineHash`: the GitHub upload action computes that one, and warns about other values.
        "partialFingerprints": { "legwork/v1": print },
    });
    if let Some(index) = rules.iter().position(|rule| rule.code == finding.code) {
        result["ruleIndex"] = index.into();
    }
    if !finding.labels.is_empty() {
        let related = |(at, label): (usize, &Label)| {
            let mut location = location(&label.span);
            location["id"] = (at + 1).into();
            location["message"] = message(&label.text, None);
            location
        };
        result["relatedLocations"] = finding.labels.iter().take(MAX_LOCATIONS).enumerate().map(related).collect();
    }
    if let Some(fix) = &finding.fix {
        result["fixes"] = json!([fix_object(fix, finding.help.as_deref())]);
    }
    result
}

/// A plain text message. Escapes `[text](target)`, which SARIF viewers show as a link.
fn message(message: &str, help: Option<&str>) -> Value {
    let shown = |text: &str| sanitize::line(text).replace("](", "\\](");
    let text = shown(message);
    json!({ "text": help.map(|help| format!("{text}\n{}", shown(help))).unwrap_or(text) })
}

fn location(place: &SourceSpan) -> Value {
    json!({ "physicalLocation": { "artifactLocation": artifact(place), "region": region(place) } })
}

fn artifact(place: &SourceSpan) -> Value {
    let uri = uri::file_uri(&place.source.name);
    if uri.starts_with("file:") { json!({ "uri": uri }) } else { json!({ "uri": uri, "uriBaseId": "%SRCROOT%" }) }
}

/// A region. Lines and columns are 1-based and the end is exclusive.
fn region(place: &SourceSpan) -> Value {
    let ((line, column), (end_line, end_column)) = (place.start(), place.end());
    json!({ "startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column })
}

fn fix_object(fix: &Fix, help: Option<&str>) -> Value {
    json!({
        "description": message(help.unwrap_or("replace it with this"), None),
        "artifactChanges": [{
            "artifactLocation": artifact(&fix.span),
            "replacements": [{ "deletedRegion": region(&fix.span), "insertedContent": { "text": fix.replacement } }],
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Source;

    #[test]
    fn results_are_limited_and_errors_come_first() {
        let place = SourceSpan { source: Source::new("a.yaml", "x\n"), range: 0..1 };
        let warning = Diagnostic::warning("duplicate-env", place.clone(), "m");
        let findings = [vec![warning; 3], vec![Diagnostic::error("unknown-tool", place, "m")]].concat();
        let bounded = log(&findings, 2);
        let levels = |log: &Value| {
            let results = log["runs"][0]["results"].as_array().unwrap().iter();
            results.map(|result| result["level"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let notes = |log: &Value| log["runs"][0]["invocations"][0]["toolExecutionNotifications"].clone();
        assert_eq!(levels(&bounded), ["error", "warning"]);
        assert_eq!(notes(&bounded)[0]["message"]["text"], "2 findings omitted: a run holds at most 2");
        let whole = log(&findings, 4);
        assert_eq!(levels(&whole), ["warning", "warning", "warning", "error"]);
        assert_eq!(notes(&whole), json!([]));
    }
}
