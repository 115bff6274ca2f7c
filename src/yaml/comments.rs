//! Comments that speak to us.

use std::sync::Arc;

use crate::diagnostic::{Place, Source};

/// The comments that hold `legwork:`, each from its `#` to the end of its line.
pub fn comments(source: &Arc<Source>) -> Vec<Place> {
    let mut found = Vec::new();
    if !source.text.contains("legwork:") {
        return found;
    }
    let mut at = 0;
    let mut block = None;
    for line in source.text.split_inclusive('\n') {
        let indent = line.len() - line.trim_start().len();
        let is_text = block.is_some_and(|outer| indent > outer || line.trim().is_empty());
        if !is_text {
            block = line.trim_end().ends_with(['|', '>']).then_some(indent);
            let start = line.find(" #").map(|at| at + 1).or(line.starts_with('#').then_some(0));
            if let Some(start) = start.filter(|start| line[*start..].contains("legwork:")) {
                let span = at + start..at + line.trim_end().len();
                found.push(Place { source: source.clone(), span });
            }
        }
        at += line.len();
    }
    found
}
