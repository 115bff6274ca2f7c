//! The program's own memory while tools read files that are built to exhaust it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::program::ProgramOutput;
use crate::support::test_folder::TestFolder;

/// The limit on the program's data, in KiB.
const MAX_DATA_KIB: u32 = 500_000;

/// Makes the calls, one per reply, with bounded memory.
fn run_calls(folder: &TestFolder, tools: &str, calls: &[(&str, Value)]) -> ProgramOutput {
    folder.write("job.yaml", format!("model: replay/script.yaml\nparent:\n  prompt: Go.\n  tools: [{tools}]\n"));
    let replies = calls.iter().map(|(tool, input)| json!({ "calls": [{ "tool": tool, "input": input }] }));
    let replies: Vec<Value> = replies.chain([json!({ "text": "Done." })]).collect();
    folder.write("script.yaml", json!({ "parent": replies }).to_string());
    let limited = format!("ulimit -d {MAX_DATA_KIB} && exec \"$0\" \"$@\"");
    let shell = ["-c", &limited, env!("CARGO_BIN_EXE_legwork"), "run", "job.yaml"];
    folder.program("/bin/sh", &shell).timeout(Duration::from_secs(120)).run()
}

fn results(ended: &ProgramOutput) -> Vec<(bool, String)> {
    let events = ended.run_folder().events();
    let finished = events.iter().filter(|event| event["type"] == "call_finished").map(|event| &event["data"]["result"]);
    finished.map(|result| (result["is_error"] == true, result["text"].as_str().unwrap().to_owned())).collect()
}

#[test]
fn an_edit_that_would_create_a_huge_file_is_rejected_early() {
    let folder = TestFolder::new();
    folder.write("f", "a".repeat(16 << 20));
    let long: String = (0..2_000_000_u64).map(|number| char::from(b'a' + (number * number % 23) as u8)).collect();
    let edit = |old: &str, new: &str| {
        ("edit_file", json!({ "path": "f", "old_text": old, "new_text": new, "replace_all": true }))
    };
    let ended = run_calls(&folder, "edit_file", &[edit("a", &"y".repeat(5000)), edit(&long, "x"), edit("a", "b")]);
    ended.assert_code(0);
    let results = results(&ended);
    assert!(results[0].0 && results[0].1.contains("would be larger than 16 MB"), "{}", results[0].1);
    assert!(results[1].0 && results[1].1.contains("not found"), "{}", results[1].1);
    assert!(!results[2].0, "{}", results[2].1);
}

#[test]
fn searches_with_huge_patterns_or_ignore_files_take_little_memory() {
    let folder = TestFolder::new();
    folder.write("long.txt", "x".repeat(15 << 20) + "needle");
    let patterns: String = (0..200_000).map(|number| format!("*a{number}*c?d[0-9]*\n")).collect();
    let mut name = String::new();
    for _ in 0..30 {
        name.push_str("d/");
        folder.write(&format!("{name}.gitignore"), &patterns).write(&format!("{name}.ignore"), &patterns);
        folder.write(&format!("{name}x.txt"), "needle\n");
    }
    let grep = |pattern: &str, path: &str| ("grep", json!({ "pattern": pattern, "path": path }));
    let ended = run_calls(
        &folder,
        "grep",
        &[grep("needle", "d"), grep("needle", "long.txt"), grep("a{100000}", "d"), grep("(\\w{1000}){1000}", "d")],
    );
    ended.assert_code(0);
    let results = results(&ended);
    assert_eq!(results[0].1.lines().count(), 30, "{}", results[0].1);
    assert!(results[1].1.contains("needle") && results[1].1.len() < 1000, "{}", results[1].1);
    assert!(results[3].0 && results[3].1.contains("invalid pattern"), "{}", results[3].1);
}
