//! Decodes bytes with the YAML reader, into several types.
#![no_main]

#[allow(dead_code, reason = "the other target uses the rest")]
#[path = "../../tests/properties/invariants.rs"]
mod invariants;

use std::sync::Arc;

use indexmap::IndexMap;
use legwork::diagnostic::Source;
use legwork::job::Job;
use legwork::providers::replay::Script;
use legwork::yaml::{self, Node, Spanned};
use libfuzzer_sys::fuzz_target;
use serde::de::DeserializeOwned;

fuzz_target!(|bytes: &[u8]| {
    let source = match yaml::read_bytes("fuzz.yaml", bytes) {
        Ok(source) => source,
        Err(finding) => return invariants::check_finding(&finding),
    };
    decode::<IndexMap<String, Option<Vec<u8>>>>(&source);
    decode::<Spanned<Job>>(&source);
    if let Err(findings) = Script::read(&source) {
        findings.iter().for_each(invariants::check_finding);
    }
    let any = decode::<serde_json::Value>(&source);
    if let Some(node) = decode::<Node>(&source) {
        places(&node, 0);
        assert!(any.is_none_or(|any| any == node.to_json()));
    }
});

/// Decodes a type, and returns the value if there are no findings.
fn decode<T: DeserializeOwned>(source: &Arc<Source>) -> Option<T> {
    let decoded = yaml::read::<T>(source);
    assert!(decoded.value.is_some() || !decoded.findings.is_empty());
    decoded.findings.iter().for_each(invariants::check_finding);
    decoded.gaps.iter().for_each(invariants::check_place);
    assert!(decoded.findings.is_sorted_by_key(|finding| (finding.span.range.start, finding.span.range.end)));
    decoded.into_result().ok()
}

/// Checks the spans of nodes and of the characters in their texts. The depth is bounded because it follows aliases.
fn places(node: &Node, depth: usize) {
    if depth > 4 {
        return;
    }
    invariants::check_place(&node.place());
    invariants::check_place(&node.content_place());
    if let Some(text) = node.text() {
        for (at, letter) in text.char_indices().take(50) {
            invariants::check_place(&node.place_of_range(at..at + letter.len_utf8()));
        }
        invariants::check_place(&node.place_of_range(text.len()..text.len()));
    }
    for (key, value) in node.entries().take(20) {
        places(&key, depth + 1);
        places(&value, depth + 1);
    }
    node.items().take(20).for_each(|item| places(&item, depth + 1));
}
