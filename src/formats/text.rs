//! For people, as rustc shows its findings.

use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Patch, Renderer, Snippet};

use super::comparison::Comparison;
use super::excerpt::{self, Excerpt};
use super::{Format, Look, Preview, Subject, count, counted, harmless, outcomes, outline, pages, sides};
use crate::cases::{CaseReport, Report};
use crate::diagnostic::{Diagnostic, Fix, Place, Rule, Severity};
use crate::event::RunResult;
use crate::plan;

/// Places further apart than this many lines are shown in snippets of their own.
const NEAR: usize = 20;
/// How many codes are named beside `legwork explain`.
const EXPLAINED: usize = 3;

pub(super) struct Text;

impl Format for Text {
    fn name(&self) -> &'static str {
        "text"
    }

    fn shows(&self) -> &'static [Subject] {
        &[Subject::Diagnostics, Subject::Rules, Subject::Run, Subject::Comparison, Subject::Cases]
    }

    fn plan(&self, preview: &Preview<'_>) -> Option<String> {
        Some(outline::plan(preview))
    }

    fn answer(&self, result: &RunResult) -> Option<String> {
        match &result.result {
            // Nothing was said beside the data.
            Some(data) if result.text.trim().is_empty() => {
                serde_json::to_string_pretty(data).ok().map(|text| harmless::json(&text))
            }
            _ => Some(result.text.clone()),
        }
    }

    fn comparison(&self, comparison: &Comparison, look: Look) -> Option<String> {
        Some(sides::page(comparison, look))
    }

    fn case(&self, case: &CaseReport, look: Look) -> Option<String> {
        Some(outcomes::line(case, look))
    }

    fn cases(&self, report: &Report, look: Look) -> Option<String> {
        Some(outcomes::summary(report, look))
    }

    fn pages(&self, rules: &[&Rule], look: Look) -> Option<String> {
        Some(pages::whole(rules, look))
    }

    fn list(&self, rules: &[&Rule], look: Look) -> Option<String> {
        Some(pages::list(rules, look))
    }

    fn diagnostics(&self, findings: &[Diagnostic], look: Look) -> Option<String> {
        let renderer = if look.colour { Renderer::styled() } else { Renderer::plain() }.term_width(look.width.max(40));
        let mut text = String::new();
        for finding in findings {
            text += &shown(finding, &renderer);
            text += "\n\n";
        }
        text += &explanation(findings);
        let counts: Vec<String> = [Severity::Error, Severity::Warning]
            .into_iter()
            .map(|severity| (count(findings, severity), severity))
            .filter(|(count, _)| *count > 0)
            .map(|(count, severity)| counted(count, severity.as_str()))
            .collect();
        if !counts.is_empty() {
            text += &counts.join(", ");
            text.push('\n');
        }
        Some(text)
    }
}

/// How to learn more about the first few codes.
fn explanation(findings: &[Diagnostic]) -> String {
    let mut codes: Vec<&str> = Vec::new();
    for finding in findings {
        if codes.len() < EXPLAINED && !codes.contains(&finding.code) && plan::rules().any(|it| it.code == finding.code)
        {
            codes.push(finding.code);
        }
    }
    if codes.is_empty() {
        String::new()
    } else {
        format!("To learn more, try `legwork explain {}`.\n", codes.join(" "))
    }
}

fn shown(finding: &Diagnostic, renderer: &Renderer) -> String {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(harmless::line(&finding.message)).id(finding.code);
    let mut group = Group::with_title(title);
    if finding.place.source.text.is_empty() {
        // There is no line to show: the file is empty, or isn't there.
        let (line, column) = finding.place.start();
        let name = harmless::line(&finding.place.source.name);
        group = group.element(Origin::path(name).line(line).char_column(column));
        if let Some(help) = &finding.help {
            group = group.element(Level::HELP.message(harmless::line(help)));
        }
        return renderer.render(&[group]);
    }
    let (near, far): (Vec<_>, Vec<_>) = finding.labels.iter().partition(|label| is_near(&finding.place, &label.place));
    let places = std::iter::once(&finding.place).chain(near.iter().map(|label| &label.place));
    let spans: Vec<Range<usize>> = places.map(|place| place.span.clone()).collect();
    let excerpt = excerpt::around(&finding.place.source, &spans);
    let mut headers = vec![header(&finding.place, &excerpt)];
    let mut annotations = vec![AnnotationKind::Primary.span(excerpt.spans[0].clone())];
    for (label, span) in near.iter().zip(&excerpt.spans[1..]) {
        annotations.push(AnnotationKind::Context.span(span.clone()).label(harmless::line(&label.text)));
    }
    group = group.element(snippet(&finding.place, excerpt, annotations));
    for label in far {
        let excerpt = excerpt::around(&label.place.source, std::slice::from_ref(&label.place.span));
        headers.push(header(&label.place, &excerpt));
        let annotation = AnnotationKind::Context.span(excerpt.spans[0].clone()).label(harmless::line(&label.text));
        group = group.element(snippet(&label.place, excerpt, vec![annotation]));
    }
    let help = finding.help.as_deref().map(harmless::line);
    let mut report = Vec::new();
    match (&finding.fix, help) {
        (Some(fix), help) => {
            report.push(group);
            report.push(suggestion(fix, help));
        }
        (None, Some(help)) => report.push(group.element(Level::HELP.message(help))),
        (None, None) => report.push(group),
    }
    let mut text = renderer.render(&report);
    for (rendered, right) in headers.iter().filter(|(rendered, right)| rendered != right) {
        let title_end = text.find('\n').unwrap_or(0);
        let rest = text.split_off(title_end);
        text += &rest.replacen(rendered, right, 1);
    }
    text
}

fn suggestion(fix: &Fix, help: Option<String>) -> Group<'static> {
    let excerpt = excerpt::around(&fix.place.source, std::slice::from_ref(&fix.place.span));
    let patch = Patch::new(excerpt.spans[0].clone(), harmless::line(&fix.with));
    let title = Level::HELP.secondary_title(help.unwrap_or_else(|| "write this instead".to_owned()));
    Group::with_title(title).element(Snippet::source(excerpt.text).line_start(excerpt.first_line).patch(patch))
}

fn snippet(
    place: &Place,
    excerpt: Excerpt,
    annotations: Vec<Annotation<'static>>,
) -> Snippet<'static, Annotation<'static>> {
    let name = harmless::line(&place.source.name);
    Snippet::source(excerpt.text).line_start(excerpt.first_line).path(name).annotations(annotations)
}

/// `file:line:column` as it is rendered and as it should be: the columns of a line that was cut aren't the file's.
fn header(place: &Place, excerpt: &Excerpt) -> (String, String) {
    let name = harmless::line(&place.source.name);
    let (line, column) = place.start();
    let before = &excerpt.text[..excerpt.spans[0].start];
    let shown = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (format!("{name}:{line}:{shown}"), format!("{name}:{line}:{column}"))
}

fn is_near(place: &Place, other: &Place) -> bool {
    let lines = |place: &Place| excerpt::lines(&place.source, &place.span).0;
    Arc::ptr_eq(&place.source, &other.source) && lines(place).abs_diff(lines(other)) <= NEAR
}
