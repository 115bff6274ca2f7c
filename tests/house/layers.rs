//! Layering: a module uses only modules above it in `src/lib.rs`, files don't form cycles, and no provider uses
//! another.

use std::collections::BTreeSet;

use super::file_graph::FileGraph;
use super::source::{read, sources};

/// Modules of `src/` whose files may still form a cycle. Don't add to this list.
const MODULES_WITH_CYCLES: &[&str] = &[];

/// Providers that still use the folder of another one. Don't add to this list.
const PROVIDERS_THAT_USE_OTHERS: &[&str] = &[];

/// The modules in `src/lib.rs` from top to bottom, which is the order of the layers.
fn layers() -> Vec<String> {
    let lines = read("src/lib.rs");
    let names = lines.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    names.map(ToOwned::to_owned).collect()
}

/// The module of `src/` that a file belongs to: `tools` for `src/tools/bash/mod.rs`.
fn top_module(path: &str) -> &str {
    path.trim_start_matches("src/").split('/').next().unwrap_or_default().trim_end_matches(".rs")
}

#[test]
fn every_module_has_a_layer() {
    let layers = layers();
    for file in sources() {
        let Some(top) = file.module.first() else { continue };
        assert!(layers.contains(top), "{}: `{top}` isn't in src/lib.rs", file.path.display());
    }
}

#[test]
fn a_module_uses_only_modules_above_it() {
    let layers = layers();
    let layer = |path: &str| layers.iter().position(|name| name == top_module(path));
    let graph = FileGraph::of_the_source();
    let upward = graph.edges().filter(|edge| layer(edge.to) > layer(edge.from) && layer(edge.from).is_some());
    let upward: Vec<String> =
        upward.map(|edge| format!("{} uses {} of {}", edge.from, edge.names.join(", "), edge.to)).collect();
    assert!(upward.is_empty(), "src/lib.rs has the used module below the one that uses it:\n{}", upward.join("\n"));
}

#[test]
fn no_files_form_a_cycle() {
    let graph = FileGraph::of_the_source();
    let (mut report, mut count) = (String::new(), 0);
    for cycle in graph.cycles() {
        let files: BTreeSet<&str> = cycle.iter().map(|edge| edge.from).collect();
        if files.iter().all(|file| MODULES_WITH_CYCLES.contains(&top_module(file))) {
            continue;
        }
        count += 1;
        report += &format!("\n{} files use each other:\n", files.len());
        for edge in cycle {
            report += &format!("  {} uses {} of {}\n", edge.from, edge.names.join(", "), edge.to);
        }
    }
    assert!(count == 0, "{count} cycles between files of src/\n{report}");
}

#[test]
fn no_provider_uses_another() {
    // A provider is a folder with the file that declares its row.
    let sources = sources();
    let providers: BTreeSet<&str> = sources
        .iter()
        .filter(|file| file.module.len() == 2 && file.module[0] == "providers")
        .filter(|file| super::registries::declares_row(&file.code))
        .map(|file| file.module[1].as_str())
        .collect();
    assert!(providers.len() >= 5, "only {providers:?} are providers");
    let provider = |path: &str| {
        let name = path.strip_prefix("src/providers/")?.split('/').next()?.trim_end_matches(".rs").to_owned();
        providers.contains(name.as_str()).then_some(name)
    };
    let graph = FileGraph::of_the_source();
    let mut wrong = Vec::new();
    for edge in graph.edges() {
        let (Some(from), Some(to)) = (provider(edge.from), provider(edge.to)) else { continue };
        if from != to && !PROVIDERS_THAT_USE_OTHERS.contains(&from.as_str()) {
            wrong.push(format!("{} uses {} of {}", edge.from, edge.names.join(", "), edge.to));
        }
    }
    assert!(wrong.is_empty(), "what providers share belongs in a file of its own:\n{}", wrong.join("\n"));
}
