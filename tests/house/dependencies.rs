//! The dependencies: their licences, their registry, and the reasons in `Cargo.toml`.
//!
//! `deny.toml` has the same licences for every platform. These tests check only this platform, and need no other tool.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use super::source::{read, root};
use crate::support::report_skipped;

/// Licences that require at most that their notice is kept.
const ALLOWED: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// Whether allowed licences alone satisfy an SPDX expression. The older `/` is read as `OR`.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    any(&words, &mut at) && at == words.len()
}

fn any(words: &[&str], at: &mut usize) -> bool {
    let mut met = all(words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        // Both sides are parsed, even if the left one decides.
        met |= all(words, at);
    }
    met
}

fn all(words: &[&str], at: &mut usize) -> bool {
    let mut met = one(words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at);
    }
    met
}

fn one(words: &[&str], at: &mut usize) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let met = any(words, at);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return met && closed;
    }
    let mut licence = (*word).to_owned();
    if let [Some(&"WITH"), Some(exception)] = [words.get(*at), words.get(*at + 1)] {
        licence = format!("{licence} WITH {exception}");
        *at += 2;
    }
    ALLOWED.contains(&licence.as_str())
}

#[test]
fn licence_expressions_are_parsed() {
    for good in [
        "MIT",
        "MIT/Apache-2.0",
        "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
        "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        "ISC AND (Apache-2.0 OR ISC) AND (GPL-3.0 OR MIT-0)",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
    ] {
        assert!(is_allowed(good), "{good}");
    }
    for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT AND (GPL-3.0 OR LGPL-2.1)", "GPL-3.0 WITH x OR AGPL-3.0", "(MIT"]
    {
        assert!(!is_allowed(bad), "{bad}");
    }
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let Some(cargo) = std::env::var_os("CARGO") else {
        return report_skipped("cargo, which knows the licences, didn't start the tests");
    };
    let version = Command::new(&cargo).arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--locked", "--format-version=1", "--filter-platform", host])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50, "only {} packages", packages.len());
    for package in packages {
        let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or_default());
        assert!(is_allowed(licence), "{name} is licensed {licence:?}");
    }
}

#[test]
fn deny_toml_has_the_same_list() {
    let deny = read("deny.toml");
    let list = deny.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']')).unwrap().0;
    let listed: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    assert_eq!(listed, ALLOWED);
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
fn every_dependency_has_a_reason() {
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

/// The packages of a lock file, each as a name with a version.
fn locked(lock: &str) -> BTreeSet<String> {
    let field = |package: &str, name: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    let packages = lock.split("[[package]]\n").skip(1);
    packages.map(|package| format!("{} {}", field(package, "name"), field(package, "version"))).collect()
}

/// The fuzz targets have a lock file of their own, which nothing else builds with.
#[test]
fn the_lock_file_of_the_fuzz_targets_is_up_to_date() {
    let (ours, theirs) = (locked(&read("Cargo.lock")), locked(&read("fuzz/Cargo.lock")));
    let manifest = read("Cargo.toml");
    let dependencies = manifest.split("\n[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
    let names = dependencies
        .lines()
        .filter_map(|line| Some(line.split_once(" = ")?.0.trim()))
        .filter(|name| !name.starts_with('#') && ours.iter().any(|package| package.split(' ').next() == Some(name)));
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let of = |packages: &BTreeSet<String>| -> BTreeSet<String> {
            packages.iter().filter(|package| package.split(' ').next() == Some(name)).cloned().collect()
        };
        assert!(
            !of(&theirs).is_empty() && of(&theirs).is_subset(&of(&ours)),
            "{name}: {:?} and {:?}; copy Cargo.lock to fuzz/ and run `cargo metadata` there",
            of(&ours),
            of(&theirs)
        );
    }
}
