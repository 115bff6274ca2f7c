//! `legwork runs`: the list of records.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::in_parallel;
use crate::support::journal::with_checksums;
use crate::support::program::ProgramOutput;
use crate::support::server::{Answer, Checks, Request, Server};
use crate::support::test_folder::TestFolder;

const JOB: &str = "model: replay/r.yaml
inputs: { n: { type: string, default: x } }
parent: { prompt: 'Go {{ inputs.n }}.', tools: [] }
";

/// A folder with a job that a script answers.
fn scripted() -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB).write("r.yaml", "parent: [{ text: Done. }]\n");
    folder
}

/// A folder with a job whose model never answers.
fn hanging() -> (TestFolder, Server) {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: anthropic/claude-haiku-4-5\nparent: { prompt: Go., tools: [] }\n");
    (folder, Server::with(Checks::AllowRepeats, |_: &Request| Answer::empty().hang()))
}

fn runs(folder: &TestFolder, arguments: &[&str]) -> ProgramOutput {
    runs_on(folder, "", arguments)
}

/// The command on a simulated machine, unless its name is empty.
fn runs_on(folder: &TestFolder, machine: &str, arguments: &[&str]) -> ProgramOutput {
    // A run on another machine counts once a second.
    let program = folder.legwork(&["runs"]).args(arguments).env("LEGWORK_LEASE_OBSERVATION_MS", "2000");
    if machine.is_empty() { program.run() } else { program.env("LEGWORK_BOOT_ID", machine).run() }
}

/// The names and the outcomes of the runs in a list.
fn listed(folder: &TestFolder, arguments: &[&str]) -> Vec<(String, String)> {
    statuses(&runs(folder, &["--format", "json"].iter().chain(arguments).copied().collect::<Vec<_>>()))
}

fn statuses(output: &ProgramOutput) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = output.assert_code(0).json();
    list["runs"].as_array().unwrap().iter().map(|run| (text(&run["run"]), text(&run["outcome"]))).collect()
}

fn names(list: &[(String, String)]) -> Vec<&str> {
    list.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn the_time_of_a_killed_run_is_without_its_pauses() {
    let folder = scripted();
    folder.legwork(&["run", "job.yaml", "--key", "killed"]).run().assert_code(0);
    fs::remove_file(folder.at("runs/job/killed/result.json")).unwrap();
    let journal = folder.read("runs/job/killed/events.jsonl");
    let started: Value = serde_json::from_str(journal.lines().next().unwrap()).unwrap();
    let line = |time: &str, kind: &str, data: Value| {
        let at = format!("2026-01-01T{time}Z");
        let entry = json!({ "seq": 1, "at": at, "agent": "parent", "type": kind, "data": data }).to_string();
        format!("{},\"sum\":\"\"}}\n", entry.strip_suffix('}').unwrap())
    };
    let resumed = json!({
        "version": "1", "workspace": "/w", "sandbox": "off", "commit": null, "last_seen": "2026-01-01T00:00:10Z",
    });
    let journal = [
        line("00:00:00", "run_started", started["data"].clone()),
        line("00:00:04", "note_sent", json!({ "text": "Go on." })),
        line("01:00:00", "resumed", resumed),
        line("01:00:05", "note_sent", json!({ "text": "Go on." })),
    ];
    folder.allow_forged_records().write("runs/job/killed/events.jsonl", with_checksums(&journal.concat()));
    let listed = runs(&folder, &["--format", "json"]).assert_code(0).json();
    let run = &listed["runs"][0];
    assert_eq!((&run["outcome"], &run["duration_ms"]), (&json!("interrupted"), &json!(15_000)), "{run}");
}

#[test]
fn runs_keyed_runs_and_maps_are_listed_newest_first() {
    let folder = scripted();
    folder.write("other.yaml", "model: replay/none.yaml\nparent: { prompt: Go., tools: [] }\n");
    folder.write("none.yaml", "parent: []\n").write("rows.csv", "n\none\ntwo\n");
    let first = folder.legwork(&["run", "job.yaml"]).run();
    first.assert_code(0);
    let first = first.run_folder().id().to_owned();
    for more in [&["--key", "nightly"][..], &["--key", "nightly", "--fresh"]] {
        folder.legwork(&["run", "job.yaml"]).args(more).run().assert_code(0);
    }
    folder.legwork(&["map", "job.yaml", "--rows", "rows.csv", "--id", "n"]).run().assert_code(0);
    let failed = folder.legwork(&["run", "other.yaml"]).run();
    failed.assert_code(7);
    let failed = format!("other/{}", failed.run_folder_in("runs/other").id());
    let list = listed(&folder, &[]);
    let own = format!("job/{first}");
    assert_eq!(names(&list), [&failed, "job/map-rows", "job/nightly", "job/nightly.1", &own]);
    let completed = list.iter().filter(|(_, outcome)| outcome == "completed").count();
    assert_eq!((completed, list[0].1.as_str()), (4, "replay_differs"));
    assert_eq!(names(&listed(&folder, &["--job", "other"])), [&failed]);
    assert_eq!(names(&listed(&folder, &["--outcome", "replay_differs", "--outcome", "stuck"])), [&failed]);
    assert_eq!(names(&listed(&folder, &["--outcome", "completed", "--limit", "2"])), ["job/map-rows", "job/nightly"]);
    let with_rows = listed(&folder, &["--rows"]);
    assert!(names(&with_rows).contains(&"job/map-rows/one") && names(&with_rows).contains(&"job/map-rows/two"));
    assert!(!names(&with_rows).contains(&"job/map-rows"));
    // Each name finds its record.
    for name in names(&with_rows) {
        folder.legwork(&["show", name]).run().assert_code(0);
    }
    let map = runs(&folder, &["--format", "json"]).json()["runs"][1].clone();
    assert_eq!((&map["kind"], &map["rows"], &map["turns"]), (&json!("map"), &json!({ "completed": 2 }), &json!(2)));
    let set_aside = runs(&folder, &["--format", "json"]).json()["runs"][3].clone();
    assert_eq!((&set_aside["key"], &set_aside["run_id"]), (&json!("nightly"), &json!("nightly")));
    // The same in a table, whole in a pipe.
    let table = runs(&folder, &[]);
    table.assert_code(0).assert_stdout_contains(&first).assert_stdout_contains("  2 completed  ").assert_stderr("");
    assert_eq!(table.stdout.lines().count(), 6);
    assert!(table.stdout.starts_with("started (UTC)"));
    // It fits the schema.
    let schema = folder.legwork(&["schema", "runs"]).run().json();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for arguments in [&["--format", "json"][..], &["--format", "json", "--rows"]] {
        let list = runs(&folder, arguments).json();
        let errors: Vec<String> = validator.iter_errors(&list).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new());
    }
    assert!(!validator.is_valid(&json!({ "format": 1, "runs": [{ "run": "a/b" }] })));
}

#[test]
fn an_empty_list_is_no_error() {
    let folder = TestFolder::new();
    runs(&folder, &[]).assert_code(0).assert_stdout("").assert_stderr("there are no runs in runs yet\n");
    assert_eq!(runs(&folder, &["--format", "json"]).assert_code(0).json(), json!({ "format": 1, "runs": [] }));
    runs(&folder, &["--outcome", "fine"]).assert_code(2).assert_stderr_contains("completed, skipped, checks_failed");
    assert_eq!(folder.list(), Vec::<String>::new());
}

#[test]
fn a_run_is_running_until_its_process_is_gone() {
    // On this machine its lock says so, on another one or on a file system without locks its lease.
    in_parallel([["", ""], ["elsewhere", ""], ["unlocked", "unlocked"]], |[machine, here]| {
        let (folder, server) = hanging();
        let mut run = folder.legwork(&["run", "job.yaml", "--key", "k"]).anthropic(&server);
        if !machine.is_empty() {
            run = run.env("LEGWORK_BOOT_ID", machine);
        }
        let running = run.spawn();
        server.wait_for(1);
        let list = || statuses(&runs_on(&folder, here, &["--format", "json"]));
        assert_eq!(list(), [("job/k".to_owned(), "running".to_owned())], "{machine}");
        runs_on(&folder, here, &["prune", "--keep", "0", "--include-resumable"])
            .assert_code(0)
            .assert_stdout("")
            .assert_stderr_contains("in use: job/k");
        assert!(running.is_alive() && folder.exists("runs/job/k/events.jsonl"));
        running.signal(Signal::KILL);
        running.wait();
        assert_eq!(list(), [("job/k".to_owned(), "interrupted".to_owned())], "{machine}");
        let row = runs_on(&folder, here, &["--format", "json"]).json()["runs"][0].clone();
        assert_eq!((&row["resumable"], &row["exit_code"]), (&json!(true), &json!(null)));
        assert!(row["started_at"].is_string() && row["ended_at"].is_string() && row["duration_ms"].is_u64());
        // The list doesn't take the lease from it.
        assert!(folder.exists("runs/job/k/lease"));
    });
}

#[test]
fn records_that_cannot_be_read_are_named() {
    let folder = scripted();
    folder.allow_forged_records();
    for key in ["ended-in-journal", "cut", "old", "no-journal", "foreign-line"] {
        folder.legwork(&["run", "job.yaml", "--key", key]).run().assert_code(0);
    }
    let at = |key: &str, file: &str| format!("runs/job/{key}/{file}");
    // It was killed just after the last line.
    fs::remove_file(folder.at(at("ended-in-journal", "result.json"))).unwrap();
    let result = folder.read(&at("cut", "result.json"));
    folder.write(&at("cut", "result.json"), &result[..result.len() / 2]);
    folder.write(&at("old", "result.json"), result.replacen("\"format\": 2", "\"format\": 1", 1));
    for file in ["result.json", "events.jsonl"] {
        fs::remove_file(folder.at(at("no-journal", file))).unwrap();
    }
    fs::remove_file(folder.at(at("foreign-line", "result.json"))).unwrap();
    folder.write(&at("foreign-line", "events.jsonl"), "{\"type\":\"x\"}\n");
    fs::create_dir_all(folder.at("runs/job/20260101-000000-aaaaaa")).unwrap();
    fs::create_dir_all(folder.at("runs/job/.hidden")).unwrap();
    fs::create_dir_all(folder.at("runs/job/notes")).unwrap();
    folder.write("runs/job/notes/todo.txt", "");
    folder.write("runs/job/bad-map/map.json", "{").write("runs/job/file", "");
    let mut list = listed(&folder, &[]);
    list.sort();
    let expected = [
        ("job/20260101-000000-aaaaaa", "not_started"),
        ("job/bad-map", "damaged"),
        ("job/cut", "completed"),
        ("job/ended-in-journal", "completed"),
        ("job/foreign-line", "damaged"),
        ("job/no-journal", "not_started"),
        ("job/old", "other_format"),
    ];
    assert_eq!(list, expected.map(|(name, outcome)| (name.to_owned(), outcome.to_owned())));
    runs(&folder, &[])
        .assert_code(0)
        .assert_stderr_contains("runs/job/old: the record's format is 1, and this legwork reads format 2");
    // None of them is removed by mistake.
    let pruned = runs(&folder, &["prune", "--keep", "0"]);
    pruned.assert_code(0).assert_stderr_contains("kept 3 records, can't be read by this version");
    assert!(folder.exists("runs/job/bad-map") && folder.exists("runs/job/notes"));
    // Its journal says that it has ended.
    assert!(!folder.exists("runs/job/cut"));
    assert!(!folder.exists("runs/job/ended-in-journal") && !folder.exists("runs/job/20260101-000000-aaaaaa"));
}

#[test]
fn a_huge_or_strange_file_does_not_stop_the_list() {
    let folder = scripted();
    folder.allow_forged_records();
    folder.legwork(&["run", "job.yaml", "--key", "good"]).run().assert_code(0);
    for name in ["huge-line", "pipe", "link"] {
        fs::create_dir_all(folder.at("runs/job").join(name)).unwrap();
    }
    // A sparse file.
    let huge = fs::File::create(folder.at("runs/job/huge-line/events.jsonl")).unwrap();
    huge.set_len(1 << 33).unwrap();
    assert!(
        std::process::Command::new("mkfifo").arg(folder.at("runs/job/pipe/result.json")).status().unwrap().success()
    );
    folder.write("elsewhere/result.json", folder.read("runs/job/good/result.json"));
    std::os::unix::fs::symlink(folder.at("elsewhere/result.json"), folder.at("runs/job/link/result.json")).unwrap();
    std::os::unix::fs::symlink(folder.at("elsewhere"), folder.at("runs/job/linked")).unwrap();
    let list = listed(&folder, &[]);
    let outcome = |name: &str| list.iter().find(|(run, _)| run == name).map(|(_, outcome)| outcome.as_str());
    assert_eq!(outcome("job/good"), Some("completed"));
    assert_eq!(outcome("job/huge-line"), Some("damaged"));
    assert_eq!((outcome("job/pipe"), outcome("job/link")), (Some("damaged"), Some("damaged")));
    assert_eq!(outcome("job/linked"), None);
}
