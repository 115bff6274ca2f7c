//! Programs that legwork starts: each is found outside of every folder that commands can write to, and git is run in one place.

use std::collections::BTreeSet;

use super::source::{read, sources};

/// The files that start a program, and how it is found. A new one looks for it with `sandbox::programs`, or doesn't start any.
const STARTS: [(&str, &str); 13] = [
    ("src/cases/runner.rs", "legwork itself"),
    ("src/cli/show/mod.rs", "found outside of what commands can change"),
    ("src/cli/show/pager.rs", "/bin/sh, or found outside of what commands can change"),
    ("src/git/program.rs", "the git that was found outside of what commands can change"),
    ("src/process/orphan_guard.rs", "/bin/sh"),
    ("src/process/program.rs", "an absolute path that its caller has checked"),
    ("src/sandbox/bubblewrap.rs", "the bubblewrap that was found in a folder of root or of the user"),
    ("src/sandbox/landlock/mod.rs", "/bin/sh"),
    ("src/sandbox/mod.rs", "in the sandbox"),
    ("src/sandbox/restorer.rs", "legwork itself"),
    ("src/sandbox/scratch_dirs.rs", "/bin/sh"),
    ("src/sandbox/seatbelt/mod.rs", "an absolute path of the system"),
    ("src/process/spawn/mod.rs", "in the sandbox"),
];

/// The calls that make a command, with the argument as it is written.
fn starts(path: &str, code: &str) -> Vec<String> {
    let text = read(path);
    let calls = code.match_indices("Command::new(").filter(|(at, _)| {
        // Not `KeyCommand::new`.
        !code[..*at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_')
    });
    calls.map(|(at, call)| text[at + call.len()..].lines().next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn programs_are_not_looked_up_by_name() {
    let mut starting = BTreeSet::new();
    for file in sources().into_iter().filter(|file| !file.path.ends_with("path_swap_race_tests.rs")) {
        let path = file.path.display().to_string();
        for argument in starts(&path, &file.code) {
            let is_bare_name = argument.strip_prefix('"').is_some_and(|name| !name.starts_with('/'));
            assert!(!is_bare_name, "{path}: `Command::new({argument}` takes whatever PATH has: use sandbox::programs");
            starting.insert(path.clone());
        }
    }
    let known: BTreeSet<String> = STARTS.iter().map(|(path, _)| (*path).to_owned()).collect();
    let new: Vec<&String> = starting.difference(&known).collect();
    assert!(new.is_empty(), "{new:?} start programs: say in STARTS how they are found");
}

#[test]
fn git_is_run_in_one_place() {
    for file in sources() {
        let path = file.path.display().to_string();
        let text = read(&path);
        let is_git = starts(&path, &file.code).iter().any(|argument| argument.contains("git"));
        assert!(!is_git || path == "src/git/program.rs", "{path} starts git: use GitProgram");
        let makes = file.code.contains("GitProgram::new(") && !text.contains("fn git_program");
        assert!(!makes, "{path} makes a GitProgram: use CliEnv::git_program");
    }
}
