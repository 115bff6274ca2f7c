//! Text for people. Findings look like those of rustc.

use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Patch, Renderer, Snippet};
use indexmap::IndexSet;

use super::DisplayOptions;
use super::display::{count, to_json};
use super::excerpt::{self, Excerpt};
use crate::diagnostic::{Diagnostic, Fix, Severity, SourceSpan};
use crate::event::RunResult;
use crate::plan;
use crate::text::pluralize;
use crate::text::sanitize;

/// Labels more than this many lines away from a finding get a snippet of their own.
const MAX_SNIPPET_GAP: usize = 20;
/// The most codes in the hint about `legwork explain`.
const MAX_EXPLAINED_CODES: usize = 3;

pub(super) fn answer(result: &RunResult) -> String {
    match &result.result {
        // The agent gave data and no text.
        Some(data) if result.text.trim().is_empty() => to_json(data),
        _ => result.text.clone(),
    }
}

pub(super) fn findings(findings: &[Diagnostic], display: DisplayOptions) -> String {
    let renderer =
        if display.colour { Renderer::styled() } else { Renderer::plain() }.term_width(display.width.max(40));
    let mut text = String::new();
    for finding in findings {
        text += &render_finding(finding, &renderer);
        text += "\n\n";
    }
    text += &explain_hint(findings);
    let counts: Vec<String> = [Severity::Error, Severity::Warning]
        .into_iter()
        .map(|severity| (count(findings, severity), severity))
        .filter(|(count, _)| *count > 0)
        .map(|(count, severity)| pluralize(count as u64, severity.as_str()))
        .collect();
    if !counts.is_empty() {
        text += &counts.join(", ");
        text.push('\n');
    }
    text
}

/// A hint how to learn more about the first few codes.
fn explain_hint(findings: &[Diagnostic]) -> String {
    let explained =
        findings.iter().map(|finding| finding.code).filter(|code| plan::rules().any(|rule| rule.code == *code));
    let codes: IndexSet<&str> = explained.collect();
    match codes.is_empty() {
        true => String::new(),
        false => {
            let first: Vec<&str> = codes.into_iter().take(MAX_EXPLAINED_CODES).collect();
            format!("To learn more, try `legwork explain {}`.\n", first.join(" "))
        }
    }
}

fn render_finding(finding: &Diagnostic, renderer: &Renderer) -> String {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(sanitize::line(&finding.message)).id(finding.code);
    let mut group = Group::with_title(title);
    if finding.span.source.text.is_empty() {
        // There is no line to show: the file is empty or missing.
        let (line, column) = finding.span.start();
        let name = sanitize::line(&finding.span.source.name);
        group = group.element(Origin::path(name).line(line).char_column(column));
        if let Some(help) = &finding.help {
            group = group.element(Level::HELP.message(sanitize::line(help)));
        }
        return renderer.render(&[group]);
    }
    let (near, far): (Vec<_>, Vec<_>) = finding.labels.iter().partition(|label| is_near(&finding.span, &label.span));
    let shown = std::iter::once(&finding.span).chain(near.iter().map(|label| &label.span));
    let spans: Vec<Range<usize>> = shown.map(|span| span.range.clone()).collect();
    let excerpt = excerpt::excerpt_around(&finding.span.source, &spans);
    let mut headers = vec![location_headers(&finding.span, &excerpt)];
    let mut annotations = vec![AnnotationKind::Primary.span(excerpt.spans[0].clone())];
    for (label, span) in near.iter().zip(&excerpt.spans[1..]) {
        annotations.push(AnnotationKind::Context.span(span.clone()).label(sanitize::line(&label.text)));
    }
    group = group.element(snippet(&finding.span, excerpt, annotations));
    for label in far {
        let excerpt = excerpt::excerpt_around(&label.span.source, std::slice::from_ref(&label.span.range));
        headers.push(location_headers(&label.span, &excerpt));
        let annotation = AnnotationKind::Context.span(excerpt.spans[0].clone()).label(sanitize::line(&label.text));
        group = group.element(snippet(&label.span, excerpt, vec![annotation]));
    }
    let help = finding.help.as_deref().map(sanitize::line);
    let report = match (&finding.fix, help) {
        (Some(fix), help) => vec![group, suggestion(fix, help)],
        (None, Some(help)) => vec![group.element(Level::HELP.message(help))],
        (None, None) => vec![group],
    };
    let mut text = renderer.render(&report);
    for (rendered, right) in headers.iter().filter(|(rendered, right)| rendered != right) {
        let title_end = text.find('\n').unwrap_or(0);
        let rest = text.split_off(title_end);
        text += &rest.replacen(rendered, right, 1);
    }
    text
}

fn suggestion(fix: &Fix, help: Option<String>) -> Group<'static> {
    let excerpt = excerpt::excerpt_around(&fix.span.source, std::slice::from_ref(&fix.span.range));
    let patch = Patch::new(excerpt.spans[0].clone(), sanitize::line(&fix.replacement));
    let title = Level::HELP.secondary_title(help.unwrap_or_else(|| "replace it with this".to_owned()));
    Group::with_title(title).element(Snippet::source(excerpt.text).line_start(excerpt.first_line).patch(patch))
}

fn snippet(
    span: &SourceSpan,
    excerpt: Excerpt,
    annotations: Vec<Annotation<'static>>,
) -> Snippet<'static, Annotation<'static>> {
    let name = sanitize::line(&span.source.name);
    Snippet::source(excerpt.text).line_start(excerpt.first_line).path(name).annotations(annotations)
}

/// `file:line:column` as rendered, and as it should be: in an excerpt, columns differ from those in the file.
fn location_headers(span: &SourceSpan, excerpt: &Excerpt) -> (String, String) {
    let name = sanitize::line(&span.source.name);
    let (line, column) = span.start();
    let before = &excerpt.text[..excerpt.spans[0].start];
    let shown = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (format!("{name}:{line}:{shown}"), format!("{name}:{line}:{column}"))
}

fn is_near(span: &SourceSpan, other: &SourceSpan) -> bool {
    let first_line = |span: &SourceSpan| excerpt::line_range(&span.source, &span.range).0;
    Arc::ptr_eq(&span.source, &other.source) && first_line(span).abs_diff(first_line(other)) <= MAX_SNIPPET_GAP
}
