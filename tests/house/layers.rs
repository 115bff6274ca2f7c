//! A module uses only what stands to its left.

use super::source::{SourceFile, sources};

/// The layers of the design, from left to right.
const LAYERS: [&str; 32] = [
    "text",
    "message",
    "diagnostic",
    "yaml",
    "toml_file",
    "template",
    "json_schema",
    "job",
    "models",
    "redaction",
    "pricing",
    "git",
    "sandbox",
    "workspace",
    "process",
    "tools",
    "providers",
    "lints",
    "plan",
    "event",
    "schema",
    "error",
    "cases",
    "formats",
    "record",
    "workspace_changes",
    "budget",
    "agent",
    "checks",
    "run",
    "replay",
    "cli",
];

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|known| *known == name)
}

/// The names that follow a path to the crate's root in this file: `crate::name`, `crate::{name, other::{..}}`, and
/// as many `super::` as lead up to it.
fn used_modules(file: &SourceFile) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let up = "super::".repeat(file.module.len());
    let mut paths = vec!["crate::"];
    if !up.is_empty() {
        paths.push(&up);
    }
    for path in paths {
        for (at, _) in file.code.match_indices(path) {
            let before = &file.code[..at];
            if before.ends_with("super::") || before.ends_with(|last: char| last.is_alphanumeric() || last == '_') {
                continue;
            }
            let line = before.matches('\n').count() + 1;
            found.extend(first_names(&file.code[at + path.len()..]).into_iter().map(|name| (line, name)));
        }
    }
    found
}

/// The first names of a tree of uses: one, or one for each branch in braces.
fn first_names(tree: &str) -> Vec<String> {
    let name = |text: &str| {
        text.trim_start().chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
    };
    let Some(inside) = tree.strip_prefix('{') else { return vec![name(tree)] };
    let (mut depth, mut start, mut names) = (1, 0, Vec::new());
    for (at, letter) in inside.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && letter == ',') {
            names.push(name(&inside[start..at]));
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    names
}

#[test]
fn every_module_has_a_layer() {
    for file in sources() {
        let Some(top) = file.module.first() else { continue };
        assert!(layer(top).is_some(), "{} is in no layer: what is it?", file.path.display());
    }
}

#[test]
fn a_module_uses_only_what_stands_to_its_left() {
    let mut wrong = Vec::new();
    for file in sources() {
        let Some(own) = file.module.first().and_then(|top| layer(top)) else { continue };
        for (line, name) in used_modules(&file) {
            if layer(&name).is_some_and(|used| used > own) {
                wrong.push(format!("{}:{line}: {} uses {name}", file.path.display(), LAYERS[own]));
            }
        }
    }
    assert!(wrong.is_empty(), "to the right of itself:\n{}", wrong.join("\n"));
}

#[test]
fn every_form_of_use_is_seen() {
    let file = |module: &[&str], code: &str| SourceFile {
        path: "x.rs".into(),
        module: module.iter().map(ToString::to_string).collect(),
        code: code.to_owned(),
    };
    let names = |file: SourceFile| used_modules(&file).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    assert_eq!(names(file(&["plan"], "use crate::job::{Keep, Network};")), ["job"]);
    assert_eq!(names(file(&["plan"], "use crate::{\n job::{Keep, Network},\n run,\n};")), ["job", "run", ""]);
    assert_eq!(names(file(&["plan"], "fn f(x: crate::cli::Y) {} use mycrate::run;")), ["cli"]);
    assert_eq!(names(file(&["plan"], "use super::run;")), ["run"]);
    assert_eq!(names(file(&["tools", "bash"], "use super::Tool; use super::super::run;")), ["run"]);
}
