//! The reader as its users see it.

mod adversarial;
mod errors;
mod oracle;
mod spans;
mod types;

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{Decoded, read};
use crate::diagnostic::{Diagnostic, Source};

fn decoded<T: DeserializeOwned>(text: &str) -> Decoded<T> {
    read(&Source::new("test.yaml", text))
}

fn whole<T: DeserializeOwned>(text: &str) -> T {
    decoded(text).into_result().unwrap_or_else(|findings| panic!("{text}\n{}", listed(&findings)))
}

/// `line:column-line:column code message` of each finding.
fn listed(findings: &[Diagnostic]) -> String {
    let mut list = String::new();
    for finding in findings {
        let ((line, column), (end_line, end_column)) = (finding.span.start(), finding.span.end());
        let span = if end_line == line {
            format!("{line}:{column}-{end_column}")
        } else {
            format!("{line}:{column}-{end_line}:{end_column}")
        };
        list += &format!("{span} {}: {}\n", finding.code, finding.message);
    }
    list
}

fn findings<T: DeserializeOwned>(text: &str) -> String {
    listed(&decoded::<T>(text).findings)
}

fn slice(place: &crate::diagnostic::SourceSpan) -> String {
    place.source.text[place.range.clone()].to_owned()
}

#[test]
fn sources_are_shared_between_places() {
    let source = Source::new("a", "x: 1");
    let node: super::Node = read(&source).into_result().unwrap();
    assert!(Arc::ptr_eq(&node.place().source, &source));
}
