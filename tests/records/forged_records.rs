//! Commands that read a record which anyone could have written: an agent in the workspace, or whoever made an artifact that was
//! downloaded. Each row of the tables changes one thing in a whole record, and every reader gets it.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::boundary::log_injection::assert_harmless;
use crate::support::journal::with_checksums;
use crate::support::test_folder::{TestFolder, empty_folder};

/// Escape sequences, workflow commands, markup and a path, in one text.
const HOSTILE_TEXT: &str = "\u{1b}[2J\u{1b}]8;;http://e\u{7}\u{9b}31m\u{202e}x\u{2066}\u{8}\u{7f}\r::set-output name=a::b\n::add-mask::x\n\
    <img src=x onerror=alert(1)></script><script>FORGED()</script>[c](javascript:FORGED()) \"'onclick=FORGED() ../../../../escaped";

/// The commands that read records. `RUN` is the forged one.
const READERS: [&[&str]; 18] = [
    &["show", "RUN", "--no-pager"],
    &["show", "RUN", "explorer-1", "--no-pager"],
    &["show", "RUN", "--rebuild"],
    &["show", "RUN", "--open"],
    &["runs"],
    &["runs", "--format", "json"],
    &["diff", "RUN", "runs/job/other"],
    &["replay", "RUN"],
    &["replay", "RUN", "--tools"],
    &["run", "job.yaml", "--model", "replay/RUN", "--save-case", "forged"],
    &["test"],
    &["export", "RUN", "--format", "otlp", "--with-content"],
    &["export", "RUN", "--format", "atif"],
    &["export", "RUN", "--format", "messages", "--api", "anthropic"],
    &["gather", "runs/job", "--to", "gathered"],
    &["apply", "RUN", "--trust-record", "--allow-dirty"],
    &["resume", "RUN"],
    &["runs", "prune", "--keep", "0"],
];

/// The files of a record that other programs could have written.
const FILES: [&str; 4] = ["events.jsonl", "subagents/explorer-1.events.jsonl", "plan.json", "result.json"];

/// A workspace with two records of one run, deep enough that a path with some `..` stays in a folder of the test.
struct Workspace {
    outer: tempfile::TempDir,
    folder: TestFolder,
    run: PathBuf,
}

impl Workspace {
    fn new() -> Self {
        let outer = empty_folder();
        let deep = outer.path().join("a/b/c/d");
        std::fs::create_dir_all(&deep).unwrap();
        let folder = TestFolder::new_in(&deep);
        let calls = |calls: Value| json!({ "calls": calls });
        let script = json!({
            "parent": [
                calls(json!([{ "tool": "bash", "input": { "command": "echo hi; echo x > made" } }])),
                calls(json!([{ "tool": "task", "input": { "agent": "explorer", "prompt": "look" } }])),
                calls(json!([{ "tool": "edit_file", "input": { "path": "a.txt", "old_text": "one", "new_text": "two" } }])),
                { "text": "Done." },
            ],
            "subagents": { "explorer-1": [
                calls(json!([{ "tool": "read_file", "input": { "path": "a.txt" } }])),
                { "text": "Seen." },
            ] },
        });
        folder.write("s.script.yaml", script.to_string()).write("a.txt", "one\n").write(
            "job.yaml",
            "model: replay/s.script.yaml\nparent: { prompt: Go., tools: [bash, read_file, edit_file, task] }\n\
             subagents: { explorer: { description: Looks., system: Look., tools: [read_file] } }\n\
             checks: [{ name: looks, run: 'true' }]\n",
        );
        folder.commit_all();
        folder.legwork(&["run", "job.yaml"]).run().assert_code(0);
        let run = folder.at("runs/job/latest").canonicalize().unwrap();
        let copied = std::process::Command::new("cp").arg("-r").arg(&run).arg(folder.at("runs/job/other")).status();
        assert!(copied.unwrap().success());
        folder.allow_forged_records();
        Self { outer, folder, run }
    }

    /// Every value in a file of the record, as its lines.
    fn values(&self, name: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.run.join(name)).unwrap();
        let lines = if name.ends_with('l') { text.lines().collect() } else { vec![text.as_str()] };
        lines.into_iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn set_values(&self, name: &str, values: &[Value]) {
        let line = |value: &Value| {
            let mut value = value.clone();
            match value.as_object_mut().filter(|_| name.ends_with('l')).and_then(|line| line.remove("sum")) {
                // The checksum is the last key.
                Some(_) => format!("{},\"sum\":\"\"}}", value.to_string().strip_suffix('}').unwrap()),
                None => value.to_string(),
            }
        };
        let lines: Vec<String> = values.iter().map(line).collect();
        let text = if name.ends_with('l') { with_checksums(&lines.join("\n")) } else { lines.concat() };
        std::fs::write(self.run.join(name), text).unwrap();
    }

    /// Replaces each value for which `replacement` has another one, given its key.
    fn forge(&self, replacement: &dyn Fn(&str, &Value) -> Option<Value>) {
        for name in FILES {
            let mut values = self.values(name);
            values.iter_mut().for_each(|value| replace_leaves("", value, replacement));
            self.set_values(name, &values);
        }
    }

    /// What is outside the workspace and the home of the test.
    fn outside(&self) -> Vec<PathBuf> {
        let (mut found, mut folders) = (Vec::new(), vec![self.outer.path().to_owned()]);
        while let Some(next) = folders.pop() {
            for entry in std::fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
                if entry == self.folder.path() || entry == self.folder.home() {
                    continue;
                }
                if entry.is_dir() {
                    folders.push(entry.clone());
                }
                found.push(entry);
            }
        }
        found.sort();
        found
    }

    /// Lets these readers have the record. None may crash, print what steers a terminal or a CI system, write active content to the
    /// report, or change anything outside.
    #[track_caller]
    fn assert_are_safe(&self, readers: impl Iterator<Item = &'static [&'static str]>, what: &str) {
        let before = self.outside();
        let run = self.run.strip_prefix(self.folder.path().canonicalize().unwrap()).unwrap();
        let run = run.to_str().unwrap();
        for arguments in readers {
            let arguments: Vec<String> = arguments.iter().map(|argument| argument.replace("RUN", run)).collect();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let ended = self
                .folder
                .legwork(&arguments)
                .env("GITHUB_ACTIONS", "true")
                .env("BROWSER", "true")
                .timeout(Duration::from_secs(120))
                .run();
            assert!(
                ended.signal().is_none() && !ended.exited_with(101),
                "{what}: {arguments:?}: {}",
                ended.full_output()
            );
            assert_harmless(&ended);
            let report = self.run.join("report.html");
            if report.is_file() {
                let report = std::fs::read_to_string(report).unwrap();
                for active in ["<script>FORGED", "<img src=x", "href=\"javascript:", "href='javascript:"] {
                    assert!(!report.contains(active), "{what}: {arguments:?}: {active}");
                }
            }
        }
        assert_eq!(self.outside(), before, "{what}");
    }
}

/// One of `share` readers, others for each row.
fn readers(row: usize, share: usize) -> impl Iterator<Item = &'static [&'static str]> {
    READERS.into_iter().skip(row % share).step_by(share)
}

fn replace_leaves(key: &str, value: &mut Value, replacement: &dyn Fn(&str, &Value) -> Option<Value>) {
    match value {
        Value::Object(entries) => entries.iter_mut().for_each(|(key, value)| replace_leaves(key, value, replacement)),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_leaves(key, item, replacement)),
        leaf => {
            if let Some(other) = replacement(key, leaf) {
                *leaf = other;
            }
        }
    }
}

/// The keys in the files of a record whose values `is_wanted`, without checksums.
fn keys(is_wanted: fn(&Value) -> bool) -> BTreeSet<String> {
    let workspace = Workspace::new();
    let found = std::cell::RefCell::new(BTreeSet::new());
    for name in FILES {
        for mut value in workspace.values(name) {
            replace_leaves("", &mut value, &|key, leaf| {
                (key != "sum" && is_wanted(leaf)).then(|| found.borrow_mut().insert(key.to_owned()));
                None
            });
        }
    }
    found.into_inner()
}

/// Tries each key with each value, all in records of their own, on as many threads as there are processors. One of `share`
/// readers gets each record, always another one.
fn try_keys(keys: &BTreeSet<String>, is_wanted: fn(&Value) -> bool, forged: &[Value], share: usize) {
    let rows: Vec<(usize, (&String, &Value))> =
        keys.iter().flat_map(|key| forged.iter().map(move |value| (key, value))).enumerate().collect();
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let rows = rows.iter().skip(thread).step_by(threads);
            scope.spawn(move || {
                for (row, (key, value)) in rows {
                    let workspace = Workspace::new();
                    workspace.forge(&|name, leaf| (name == *key && is_wanted(leaf)).then(|| (*value).clone()));
                    workspace.assert_are_safe(readers(*row, share), &format!("{key}: {value}"));
                }
            });
        }
    });
}

fn try_hostile_texts(share: usize) {
    let keys = keys(Value::is_string);
    assert!(keys.len() > 20, "{keys:?}");
    try_keys(&keys, Value::is_string, &[json!(HOSTILE_TEXT)], share);
}

fn try_paths(share: usize) {
    let names = [
        "id",
        "agent",
        "run_id",
        "job",
        "path",
        "name",
        "folder",
        "file",
        "workspace",
        "call_id",
        "subagent",
        "sha256",
    ];
    let names: BTreeSet<String> =
        keys(Value::is_string).into_iter().filter(|key| names.contains(&key.as_str())).collect();
    try_keys(&names, Value::is_string, &[json!("../../../../escaped"), json!("a/../../../escaped")], share);
}

fn try_huge_numbers(share: usize) {
    try_keys(&keys(Value::is_number), Value::is_number, &[json!(u64::MAX), json!(-1)], share);
}

fn try_impossible_times(share: usize) {
    let is_time = |value: &Value| {
        value.as_str().is_some_and(|text| text.len() > 19 && text.starts_with("20") && text.ends_with('Z'))
    };
    try_keys(&keys(is_time), is_time, &[json!("9999-12-30T20:00:00Z"), json!("-009999-01-03T00:00:00Z")], share);
}

#[test]
fn hostile_texts_in_a_record_steer_nothing() {
    try_hostile_texts(18);
}

#[test]
fn paths_in_place_of_the_names_in_a_record_lead_nowhere() {
    try_paths(6);
}

#[test]
fn huge_numbers_in_a_record_overflow_nothing() {
    try_huge_numbers(18);
}

#[test]
fn impossible_times_in_a_record_overflow_nothing() {
    try_impossible_times(6);
}

#[test]
#[ignore = "takes minutes: every reader gets every forged record"]
fn no_reader_is_harmed_by_any_forged_record() {
    for table in [try_hostile_texts, try_paths, try_huge_numbers, try_impossible_times] {
        table(1);
    }
}

#[test]
fn links_and_pipes_in_a_record_are_not_followed() {
    for name in FILES.into_iter().chain(["changes.patch", "job.yaml", "report.html", "transcript.md", "lease"]) {
        for is_link in [true, false] {
            let workspace = Workspace::new();
            let victim = workspace.outer.path().join("victim");
            std::fs::write(&victim, "mine\n").unwrap();
            let path = workspace.run.join(name);
            let _ = std::fs::remove_file(&path);
            if is_link {
                symlink(&victim, &path).unwrap();
            } else {
                let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
                assert!(made.success());
            }
            workspace.assert_are_safe(readers(usize::from(is_link), 6), name);
            assert_eq!(std::fs::read_to_string(victim).unwrap(), "mine\n", "{name}");
        }
    }
}

#[test]
fn deep_and_long_lines_in_a_record_are_bounded() {
    let deep =
        |text: &str| text.replacen('{', &format!("{{\"deep\":{}{},", "[".repeat(100_000), "]".repeat(100_000)), 1);
    let long = |text: &str| text.replacen('{', &format!("{{\"long\":\"{}\",", "x".repeat(40 << 20)), 1);
    let changes: [&dyn Fn(&str) -> String; 2] = [&deep, &long];
    for (row, name) in FILES.into_iter().enumerate() {
        for change in changes {
            let workspace = Workspace::new();
            let path = workspace.run.join(name);
            let text = change(&std::fs::read_to_string(&path).unwrap());
            let text = if name.ends_with('l') { with_checksums(&text) } else { text };
            std::fs::write(&path, text).unwrap();
            workspace.assert_are_safe(readers(row, 5), name);
        }
    }
}
