//! Names, sizes and places that the source may and may not have.

use super::source::{files, read, root, sources};

/// Words that say nothing, or something else than they should.
const NO_NAMES: [&str; 12] = [
    "session", "context", "manager", "handler", "service", "util", "utils", "helper", "helpers", "core", "misc",
    "common",
];

/// The longest source file, its tests aside, in lines.
const MAX_LINES: usize = 400;

/// Files that may be longer, each with its reason.
const LONGER: [(&str, &str); 0] = [];

#[test]
fn modules_are_named_for_what_they_are() {
    for file in sources() {
        let inside = file.code.lines().filter_map(|line| line.trim().trim_start_matches("pub ").strip_prefix("mod "));
        let inside = inside.map(|name| name.trim_end_matches([';', '{', ' ']));
        for name in file.module.iter().map(String::as_str).chain(inside) {
            assert!(!NO_NAMES.contains(&name), "{} has a module {name:?}", file.path.display());
        }
    }
}

#[test]
fn a_file_holds_one_idea() {
    let mut long = Vec::new();
    for file in sources() {
        let path = file.path.to_string_lossy();
        let lines = file.code.trim_end().lines().count();
        if lines > MAX_LINES && !LONGER.iter().any(|(known, _)| *known == path) {
            long.push(format!("{path}: {lines} lines"));
        }
    }
    assert!(long.is_empty(), "look for the second idea in them:\n{}", long.join("\n"));
    for (path, _) in LONGER {
        assert!(root().join(path).exists(), "{path} is gone: take it off the list");
    }
}

#[test]
fn nothing_names_the_machine_that_it_was_made_on() {
    let here = root().to_string_lossy().into_owned();
    let folders = ["src", "tests", "benches", "jobs", "schemas", ".github", ".ci"];
    let top = std::fs::read_dir(root()).unwrap().flatten().map(|entry| entry.path()).filter(|path| path.is_file());
    for path in folders.into_iter().flat_map(files).chain(top) {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        assert!(!text.contains(&here), "{} names this machine's folder", path.display());
    }
}

#[test]
fn every_dependency_comes_from_one_registry() {
    let lock = read("Cargo.lock");
    let mut sources: Vec<&str> = lock.lines().filter(|line| line.starts_with("source = ")).collect();
    sources.sort_unstable();
    sources.dedup();
    assert!(matches!(sources.as_slice(), [one] if one.starts_with("source = \"registry+")), "{sources:?}");
}

#[test]
fn every_dependency_has_its_reason() {
    let manifest = read("Cargo.toml");
    let (mut in_dependencies, mut reason) = (false, false);
    let mut count = 0;
    for line in manifest.lines() {
        match line.trim() {
            head if head.starts_with('[') => (in_dependencies, reason) = (head.ends_with("dependencies]"), false),
            "" => reason = false,
            comment if comment.starts_with('#') => reason = true,
            dependency if in_dependencies && dependency.contains('=') => {
                count += 1;
                assert!(reason, "no comment says why: {dependency}");
            }
            _ => {}
        }
    }
    assert!(count > 20, "only {count} dependencies were seen");
}
