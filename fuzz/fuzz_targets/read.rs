//! Bytes into the reader of YAML, as several types.
#![no_main]

#[allow(dead_code, reason = "the other target uses the rest")]
#[path = "../../tests/properties/holds.rs"]
mod holds;

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
        Err(finding) => return holds::is_sound(&finding),
    };
    whole::<IndexMap<String, Option<Vec<u8>>>>(&source);
    whole::<Spanned<Job>>(&source);
    if let Err(findings) = Script::read(&source) {
        findings.iter().for_each(holds::is_sound);
    }
    let any = whole::<serde_json::Value>(&source);
    if let Some(node) = whole::<Node>(&source) {
        places(&node, 0);
        assert!(any.is_none_or(|any| any == node.to_json()));
    }
});

/// Reads a type; the value, where nothing is wrong with it.
fn whole<T: DeserializeOwned>(source: &Arc<Source>) -> Option<T> {
    let decoded = yaml::read::<T>(source);
    assert!(decoded.value.is_some() || !decoded.findings.is_empty());
    decoded.findings.iter().for_each(holds::is_sound);
    decoded.holes.iter().for_each(holds::lies_within);
    assert!(decoded.findings.is_sorted_by_key(|finding| (finding.place.span.start, finding.place.span.end)));
    decoded.whole().ok()
}

/// Every node has its place, and so has every part of every text. Aliases are followed, so not to the end.
fn places(node: &Node, depth: usize) {
    if depth > 4 {
        return;
    }
    holds::lies_within(&node.place());
    holds::lies_within(&node.head());
    if let Some(text) = node.text() {
        for (at, letter) in text.char_indices().take(50) {
            holds::lies_within(&node.place_of(at..at + letter.len_utf8()));
        }
        holds::lies_within(&node.place_of(text.len()..text.len()));
    }
    for (key, value) in node.entries().take(20) {
        places(&key, depth + 1);
        places(&value, depth + 1);
    }
    node.items().take(20).for_each(|item| places(&item, depth + 1));
}
