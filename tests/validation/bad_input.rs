//! Files that aren't jobs, or are hostile. Each is an error with a position, in bounded memory and time, without a
//! panic.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use serde_json::Value;

use crate::support::program::ProgramOutput;
use crate::support::sample;
use crate::support::test_folder::TestFolder;

/// The limit on the program's data, in KiB.
const MAX_DATA_KIB: u32 = 100_000;

/// The valid part of a job.
const VALID_HEAD: &str =
    "model: anthropic/claude-sonnet-4-6\nlimits: { cost_usd: 1 }\nparent:\n  prompt: Go.\n  tools: []\n";

/// Runs the program with bounded data and a timeout. Linear work never takes that long.
fn run_bounded(folder: &TestFolder, arguments: &[&str]) -> ProgramOutput {
    let program = env!("CARGO_BIN_EXE_legwork");
    let limited = format!("ulimit -d {MAX_DATA_KIB} && exec \"$0\" \"$@\"");
    let shell = [&["-c", limited.as_str(), program], arguments].concat();
    folder.program("/bin/sh", &shell).timeout(Duration::from_secs(120)).run()
}

/// The findings of a file that must be rejected: code, line and column of each.
#[track_caller]
fn errors_in(text: impl AsRef<[u8]>) -> Vec<(String, u64, u64)> {
    let folder = TestFolder::new();
    folder.write("job.yaml", text);
    errors(&folder, "job.yaml")
}

#[track_caller]
fn errors(folder: &TestFolder, path: &str) -> Vec<(String, u64, u64)> {
    let ended = run_bounded(folder, &["validate", "--format", "json", path]);
    ended.assert_code(3).assert_not_printed("panicked").assert_stderr("");
    let found = ended.json()["diagnostics"].as_array().unwrap().clone();
    let number = |finding: &Value, key: &str| finding[key].as_u64().filter(|number| *number > 0).unwrap();
    let place = |finding: &Value| (number(finding, "line"), number(finding, "column"));
    let errors = found.iter().filter(|finding| finding["severity"] == "error");
    errors.map(|error| (error["code"].as_str().unwrap().to_owned(), place(error).0, place(error).1)).collect()
}

/// Asserts that a file has exactly one error, at this position.
#[track_caller]
fn assert_only_error(text: impl AsRef<[u8]>, code: &str, line: u64, column: u64) {
    assert_eq!(errors_in(text), [(code.to_owned(), line, column)]);
}

/// Asserts that a file has many errors of one kind, and that the last one counts the rest.
#[track_caller]
fn assert_error_among(text: &str, code: &str, line: u64, column: u64) {
    let found = errors_in(text);
    assert_eq!(found.first(), Some(&(code.to_owned(), line, column)), "{found:?}");
    assert!(found.len() > 90 && found.len() <= 101, "{found:?}");
    assert_eq!(found.last().map(|(code, ..)| code.as_str()), Some("too-many-findings"), "{found:?}");
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

#[test]
fn special_files_are_rejected_without_opening_them() {
    let folder = TestFolder::new();
    folder.write("full/notes.txt", "x");
    symlink("loop.yaml", folder.at("loop.yaml")).unwrap();
    symlink("gone", folder.at("dangling.yaml")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(folder.at("pipe.yaml")).status().unwrap().success());
    for path in
        ["full", "loop.yaml", "dangling.yaml", "pipe.yaml", "gone.yaml", "/dev/zero", "/dev/null", "full/notes.txt/x"]
    {
        assert_eq!(errors(&folder, path), [("unreadable".to_owned(), 1, 1)], "{path}");
        let ended = run_bounded(&folder, &["run", path, "--dry-run"]);
        ended.assert_code(3).assert_stdout("").assert_stderr_contains("can't read").assert_not_printed("panicked");
    }
    folder.write("shut.yaml", VALID_HEAD);
    std::fs::set_permissions(folder.at("shut.yaml"), PermissionsExt::from_mode(0o000)).unwrap();
    // Root can read all files.
    if std::fs::File::open(folder.at("shut.yaml")).is_err() {
        assert_eq!(errors(&folder, "shut.yaml"), [("unreadable".to_owned(), 1, 1)]);
    }
}

#[test]
fn binary_files_are_rejected_at_the_first_invalid_byte() {
    let utf16 = |bytes: fn(u16) -> [u8; 2]| VALID_HEAD.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
    assert_only_error([b"\xff\xfe".as_slice(), &utf16(u16::to_le_bytes)].concat(), "not-utf8", 1, 1);
    assert_only_error([b"\xfe\xff".as_slice(), &utf16(u16::to_be_bytes)].concat(), "not-utf8", 1, 1);
    assert_only_error(utf16(u16::to_le_bytes), "yaml-syntax", 1, 2);
    assert_only_error(utf16(u16::to_be_bytes), "yaml-syntax", 1, 1);
    assert_only_error([VALID_HEAD.as_bytes(), b"env: [\xc3\xa4\xff]\n"].concat(), "not-utf8", 6, 8);
    assert_only_error(format!("{VALID_HEAD}env: [a\0b]\n"), "yaml-syntax", 6, 8);
    assert_only_error(format!("model: {}\n", "x".repeat(30_000_000)), "too-large", 1, 1);
}

#[test]
fn files_that_are_not_jobs_are_rejected() {
    assert_only_error("", "empty-file", 1, 1);
    assert_only_error("\u{feff}", "empty-file", 1, 1);
    assert_only_error("# one\n\n# two", "empty-file", 1, 1);
    assert_only_error("---\n...\n", "empty-file", 1, 1);
    assert_only_error("- a\n- b\n", "wrong-type", 1, 1);
    assert_only_error("just text\n", "wrong-type", 1, 1);
    assert_only_error(format!("{VALID_HEAD}---\n{VALID_HEAD}"), "multiple-documents", 6, 1);
}

#[test]
fn nesting_beyond_the_limit_is_rejected_at_its_position() {
    assert_only_error("[".repeat(200_000), "too-deep", 1, 65);
    assert_only_error(format!("{}{}", "[".repeat(200_000), "]".repeat(200_000)), "too-deep", 1, 65);
    assert_only_error("{a: ".repeat(200_000), "too-deep", 1, 257);
    assert_only_error("- ".repeat(200_000), "too-deep", 1, 129);
    assert_only_error(lines(300, |depth| format!("{}a:\n", " ".repeat(depth))), "too-deep", 65, 65);
    let prompt = |text: &str| VALID_HEAD.replace("Go.", &format!("\"{text}\""));
    assert_only_error(prompt(&format!("{{{{ {}", "(".repeat(200_000))), "template-syntax", 4, 12);
    assert_only_error(prompt(&format!("{{% set x = {}", "{'a': [".repeat(50_000))), "template-syntax", 4, 12);
    assert_only_error(prompt(&"{% for a in [1] %}".repeat(100_000)), "template-syntax", 4, 2670);
}

#[test]
fn nested_aliases_are_counted_before_expansion() {
    let ten = |name: String| vec![name; 10].join(", ");
    let bomb = lines(30, |level| match level {
        0 => format!("a0: &a0 [{}]\n", ten("x".to_owned())),
        _ => format!("a{level}: &a{level} [{}]\n", ten(format!("*a{}", level - 1))),
    });
    for text in [bomb.clone(), format!("{VALID_HEAD}{bomb}")] {
        let found = errors_in(text);
        assert!(found.iter().any(|(code, ..)| code == "too-large"), "{found:?}");
    }
    let text = format!("{VALID_HEAD}env: [&a \"{}\"{}]\n", "x".repeat(1_000_000), ", *a".repeat(1_000));
    let found = errors_in(text);
    assert!(found.iter().any(|(code, ..)| code == "too-large"), "{found:?}");
}

#[test]
fn a_very_large_number_of_mistakes_is_counted() {
    assert_error_among(
        &format!("{VALID_HEAD}{}", lines(100_000, |number| format!("k{number}: 1\n"))),
        "unknown-key",
        6,
        1,
    );
    assert_error_among(&format!("{VALID_HEAD}{}", lines(20_000, |_| "env: []\n".to_owned())), "duplicate-key", 7, 1);
    let wrong =
        format!("{VALID_HEAD}subagents:\n{}", lines(70_000, |n| format!("  agent-{n}: {}\n", "long text ".repeat(4))));
    assert!(wrong.len() > 3 << 20);
    // Each of them takes another pass, so a large file isn't searched for all of them.
    let found = errors_in(wrong);
    assert!(found.len() > 5, "{found:?}");
    assert!(found[..found.len() - 1].iter().all(|(code, ..)| code == "wrong-type"), "{found:?}");
    assert_eq!(found.last().map(|(code, ..)| code.as_str()), Some("too-many-findings"), "{found:?}");
}

#[test]
fn a_very_large_number_of_tools_variables_and_rules_is_visited_once() {
    let listed = |count: usize, item: fn(usize) -> String| (0..count).map(item).collect::<Vec<_>>().join(", ");
    assert_error_among(
        &VALID_HEAD.replace("[]", &format!("[{}]", listed(20_000, |n| format!("tool{n}")))),
        "unknown-tool",
        5,
        11,
    );
    assert_error_among(&format!("{VALID_HEAD}env: [{}]\n", listed(20_000, |n| format!("{n}X"))), "bad-env-name", 6, 7);
}

#[test]
fn a_very_large_number_of_inputs_is_bounded() {
    let inputs =
        |count| format!("{VALID_HEAD}inputs:\n{}", lines(count, |number| format!("  i{number}: {{ type: string }}\n")));
    assert_only_error(inputs(100_000), "too-large", 62_503, 11);
    let misspelt = inputs(10_000).replace("Go.", &format!("'{}'", "{{ inputs.o1 }}".repeat(10_000)));
    assert_error_among(&misspelt, "undefined-variable", 4, 22);
}

#[test]
fn a_very_large_number_of_tags_is_visited_once() {
    let prompt = |count: usize, line: fn(usize) -> String| {
        VALID_HEAD.replace(" Go.", &format!(" |\n{}", lines(count, line).trim_end()))
    };
    assert_error_among(&prompt(100_000, |n| format!("    {{{{ no{n} }}}}\n")), "undefined-variable", 5, 8);
    assert_error_among(&prompt(20_000, |n| format!("    {{{{ run.no{n} }}}}\n")), "undefined-variable", 5, 12);
    assert_error_among(&prompt(20_000, |n| format!("    {{{{ 1 | no{n} }}}}\n")), "unknown-filter", 5, 12);
    assert_error_among(&prompt(20_000, |n| format!("    {{% include 'f{n}' %}}\n")), "unreadable-file", 5, 16);
}

#[test]
fn a_very_long_name_is_rejected_quickly() {
    let long = "x".repeat(1_000_000);
    for (text, code, line, column) in [
        (VALID_HEAD.replace("[]", &format!("[{long}]")), "unknown-tool", 5, 11),
        (VALID_HEAD.replace("[]", &format!("[bash: {{ ? {long} : 1 }}]")), "unknown-key", 5, 21),
        (format!("{VALID_HEAD}? {long}\n: 1\n"), "unknown-key", 6, 3),
        (format!("{VALID_HEAD}network: {long}\n"), "unknown-value", 6, 10),
        (VALID_HEAD.replace("anthropic", &long), "unknown-provider", 1, 8),
        (VALID_HEAD.replace("Go.", &format!("'{{{{ {long} }}}}'")), "undefined-variable", 4, 15),
        (VALID_HEAD.replace("Go.", &format!("'{{{{ 1 | {long} }}}}'")), "unknown-filter", 4, 19),
        (VALID_HEAD.replace("Go.", &format!("{{ file: {long} }}")), "unreadable-file", 4, 19),
    ] {
        assert_only_error(text, code, line, column);
    }
}

#[test]
fn a_mistake_in_a_very_long_line_is_shown_with_its_context() {
    let long = "x".repeat(1_000_000);
    assert_only_error(format!("{VALID_HEAD}env: [\"{long}\" y]\n"), "yaml-syntax", 6, 1_000_010);
    let folder = TestFolder::new();
    folder.write("job.yaml", format!("{VALID_HEAD}env: [\"{long}\" y]\n"));
    folder.write("many.yaml", format!("{VALID_HEAD}env: [{}]\n", "0 x, ".repeat(100_000)));
    for (path, most) in [("job.yaml", 5_000), ("many.yaml", 200_000)] {
        let shown = run_bounded(&folder, &["validate", path]);
        shown.assert_code(3).assert_not_printed("panicked").assert_stdout_contains(&format!("{path}:6:"));
        assert!(shown.stdout.len() < most, "{path}: {} bytes", shown.stdout.len());
    }
}

/// How many templates are tried: every third one, so that both kinds of places are among them.
const MOST_TEMPLATES: usize = 20;
/// The limit on the address space for rendering, in KiB.
const MAX_ADDRESS_SPACE_KIB: u32 = 1_000_000;

#[test]
fn an_oversized_template_is_refused_early() {
    for (number, text) in sample(include_str!("../oversized_templates.txt").lines().enumerate(), MOST_TEMPLATES) {
        // Half of the sizes are known when the file is checked, the others only when the input is given.
        let text = if number % 2 == 0 { text.to_owned() } else { format!("{{{{ inputs.x }}}}{text}") };
        let folder = TestFolder::new();
        let inputs = "inputs: { x: { type: string } }\n";
        let job = format!(
            "model: anthropic/claude-sonnet-4-5\nlimits: {{ cost_usd: 1 }}\n{inputs}parent:\n  tools: []\n  prompt: {}\n",
            serde_json::to_string(&text).unwrap()
        );
        folder.write("job.yaml", job);
        let program = env!("CARGO_BIN_EXE_legwork");
        let limited = format!("ulimit -v {MAX_ADDRESS_SPACE_KIB} && exec \"$0\" \"$@\"");
        let arguments = ["-c", &limited, program, "run", "job.yaml", "--dry-run", "--set", "x=1"];
        let ended = folder.program("/bin/sh", &arguments).timeout(Duration::from_secs(120)).run();
        ended
            .assert_code(3)
            .assert_not_printed("panicked")
            .assert_not_printed("memory allocation")
            .assert_stderr_contains("render-failed");
    }
}
