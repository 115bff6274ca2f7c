//! `legwork replay`: repeats a recorded run from its folder alone, and compares. (When the folder of a test is dropped,
//! every run in it is checked to replay without differences.)

mod edited;
mod scripts;
mod tools;

use serde_json::{Value, json};

use crate::support::job::Job;
use crate::support::journal::with_checksums;
use crate::support::record::RunFolder;
use crate::support::test_folder::TestFolder;

const JOB: &str = r#"
model: replay/replies.yaml
inputs:
  what: { type: string, default: notes }
parent:
  system: |
    You lead.
    Be brief.
  prompt: Look at the {{ inputs.what }}.
  tools: [read_file, write_file, todo, task]
subagents:
  reader: { description: Reads., tools: [read_file] }
limits: { tokens: 100000 }
"#;

const SCRIPT: &str = r#"
parent:
  - text: First I read.
    calls:
      - { tool: read_file, input: { path: notes.txt } }
      - { tool: task, input: { prompt: Read it too. } }
      - { tool: task, input: { prompt: And you. } }
  - calls: [{ tool: write_file, input: { path: out.txt, content: "one\ntwo\n" } }, { tool: todoo, mistaken: true }]
  - text: All is read.
subagents:
  reader-1:
    - calls: [{ tool: read_file, input: { path: notes.txt } }]
    - text: It says hello.
  reader-2: [{ text: Nothing more. }]
"#;

/// A recorded run, with its record.
fn record_run(job: &str, script: &str) -> (TestFolder, RunFolder) {
    let folder = TestFolder::new();
    folder.write("job.yaml", job).write("replies.yaml", script).write("notes.txt", "hello\n");
    let ended = Job::in_folder(&folder).run();
    let run = ended.assert_code(0).run_folder();
    (folder, run)
}

/// Changes a journal and updates its checksums.
fn edit_journal(run: &RunFolder, journal: &str, from: &str, to: &str) {
    let text = run.file(journal);
    assert!(text.contains(from), "{from} isn't in {text}");
    std::fs::write(run.path().join(journal), with_checksums(&text.replacen(from, to, 1))).unwrap();
}

#[test]
fn a_copied_record_is_enough_and_nothing_is_written() {
    let (folder, run) = record_run(JOB, SCRIPT);
    let elsewhere = TestFolder::new();
    let copy = elsewhere.at("copy");
    let copied = std::process::Command::new("cp").arg("-r").arg(run.path()).arg(&copy).status().unwrap();
    assert!(copied.success());
    drop(folder);
    let read = |name: &String| (name.clone(), RunFolder::new(&copy).file(name));
    let before: Vec<(String, String)> = RunFolder::new(&copy).files().iter().map(read).collect();
    let listed = elsewhere.list();
    let ended = elsewhere.legwork(&["replay", "copy"]).run();
    ended.assert_code(0).assert_stdout("equal: 3 agents, 6 turns, 6 calls\n").assert_stderr("");
    let after: Vec<(String, String)> = RunFolder::new(&copy).files().iter().map(read).collect();
    assert_eq!((before, listed), (after, elsewhere.list()));
    let json = elsewhere.legwork(&["replay", "copy", "--format", "json"]).run().assert_code(0).json();
    assert_eq!(json["format"], 1);
    assert_eq!(json["outcome"], "equal");
    assert_eq!(json["recorded_outcome"], "completed");
    assert_eq!(json["compared"], json!({ "agents": 3, "turns": 6, "calls": 6 }));
    assert_eq!((&json["differences"], &json["left_out"], &json["plan"]), (&json!([]), &json!([]), &json!([])));
}

#[test]
fn a_run_whose_limit_was_used_up_by_a_killed_request_replays() {
    let folder = TestFolder::new();
    folder
        .write(
            "job.yaml",
            "model: replay/replies.yaml\nlimits: { tokens: 2000 }\nparent: { prompt: Hi., tools: [], max_tokens: 1500 }\n",
        )
        .write("replies.yaml", "parent: [{ text: Hello. }]\n");
    let run = || folder.legwork(&["run", "job.yaml", "--key", "k"]);
    // The third event is the start of the request.
    assert_eq!(run().env("LEGWORK_KILL_AFTER", "3").run().signal(), Some(9));
    run().run().assert_code(4).assert_stderr_contains("of 2000 tokens are used");
    folder.legwork(&["replay", "job/k"]).run().assert_code(0).assert_stdout("equal: 1 agent, 0 turns, 0 calls\n");
}

#[test]
fn the_first_difference_is_shown_with_its_position_as_a_diff() {
    let (folder, run) = record_run(JOB, SCRIPT);
    folder.allow_forged_records();
    // This simulates another version that sent different text to the model.
    edit_journal(&run, "events.jsonl", "unknown tool `todoo`", "todoo? No.");
    let ended = folder.legwork(&["replay", "latest"]).run();
    ended
        .assert_code(7)
        .assert_stdout_contains("first difference at parent, turn 2, event ")
        .assert_stdout_contains(": call_finished\n");
    ended
        .assert_stdout_contains("--- recorded\n+++ replayed\n@@ ")
        .assert_stdout_contains("\n-    text: todoo? No.")
        .assert_stdout_contains("\n+    text: unknown tool");
    let json = folder.legwork(&["replay", "latest", "--format", "json"]).run().assert_code(7).json();
    let difference = &json["differences"][0];
    let line = difference["event"].as_u64().unwrap() as usize;
    assert_eq!(run.events()[line - 1]["data"], {
        let mut data = difference["recorded"]["data"].clone();
        data["duration_ms"] = run.events()[line - 1]["data"]["duration_ms"].clone();
        data
    });
    assert_eq!((&difference["agent"], &difference["turn"]), (&json!("parent"), &json!(2)));
    assert_eq!(json["outcome"], "replay_differs");
}

#[test]
fn a_difference_in_a_subagent_is_reported_before_the_parents_difference() {
    let (folder, run) = record_run(JOB, SCRIPT);
    folder.allow_forged_records();
    edit_journal(&run, "subagents/reader-1.events.jsonl", "It says hello.", "It says goodbye.");
    let ended = folder.legwork(&["replay", "latest"]).run();
    ended.assert_code(7).assert_stdout_contains("first difference at reader-1, turn 2, event ");
    ended
        .assert_stdout_contains("subagents/reader-1.events.jsonl:")
        .assert_stdout_contains("also differs at parent, turn 1");
}

#[test]
fn subagents_without_journals_are_replayed_from_their_summaries() {
    let (folder, run) = record_run(&format!("{JOB}keep: never\n"), SCRIPT);
    assert!(!run.has("subagents/reader-1.events.jsonl"));
    let ended = folder.legwork(&["replay", "latest"]).run();
    ended.assert_code(0).assert_stdout("equal: 1 agent, 3 turns, 5 calls\n");
    ended
        .assert_stderr_contains("reader-1 is replayed as its summary: its journal wasn't kept")
        .assert_stderr_contains("reader-2 is replayed");

    let (folder, run) = record_run(JOB, SCRIPT);
    std::fs::remove_file(run.path().join("subagents/reader-2.events.jsonl")).unwrap();
    let ended = folder.legwork(&["replay", "latest"]).run();
    ended.assert_code(0).assert_stdout("equal: 2 agents, 5 turns, 6 calls\n");
    ended.assert_stderr("reader-2 is replayed as its summary: its journal is missing\n");
}

#[test]
fn an_edited_record_or_one_of_another_version_is_rejected() {
    let (folder, run) = record_run(JOB, SCRIPT);
    let journal = run.file("events.jsonl");
    let path = run.path().join("events.jsonl");
    std::fs::write(&path, journal.replacen("First I read.", "First I write.", 1)).unwrap();
    let line = journal.lines().position(|line| line.contains("First I read.")).unwrap() + 1;
    let ended = folder.legwork(&["replay", "latest"]).run();
    ended
        .assert_code(2)
        .assert_stdout("")
        .assert_stderr_contains(&format!("line {line} was changed after it was written"));
    std::fs::write(&path, journal.replacen("\"format\":2", "\"format\":1", 1)).unwrap();
    let ended = folder.legwork(&["replay", "latest"]).run();
    ended.assert_code(2).assert_stderr_contains("the record's format is 1").assert_stderr_contains("can read it");
}

#[test]
fn a_truncated_record_replays_to_the_truncation() {
    let (folder, run) = record_run(JOB, SCRIPT);
    let whole: Vec<(String, String)> =
        ["events.jsonl", "subagents/reader-1.events.jsonl", "subagents/reader-2.events.jsonl"]
            .iter()
            .map(|name| ((*name).to_owned(), run.file(name)))
            .collect();
    let lines = |text: &str| text.lines().count();
    for (name, text) in &whole {
        // The first line of the parent's journal contains the plan, so it stays.
        for end in 1..lines(text) {
            let cut: String = text.split_inclusive('\n').take(end).collect();
            std::fs::write(run.path().join(name), format!("{cut}{{\"seq\":")).unwrap();
            let ended = folder.legwork(&["replay", "latest"]).run();
            assert!(ended.exited_with(0), "{name} cut after line {end}\n{}", ended.full_output());
            let is_cut = name == "events.jsonl" && !cut.contains(r#""data":{"id":"parent""#);
            let summary = if is_cut { "up to where the record was cut off" } else { "equal: " };
            ended.assert_stdout_contains(summary);
        }
        std::fs::write(run.path().join(name), text).unwrap();
    }
}

#[test]
fn runs_ended_by_a_limit_replay_as_equal_with_the_recorded_limits() {
    for (limits, outcome) in [
        ("limits: { tokens: 100000, tool_calls: 2 }", "budget_exceeded"),
        ("limits: { tokens: 100000, subagents: 1 }", "budget_exceeded"),
    ] {
        let folder = TestFolder::new();
        let job = JOB.replace("limits: { tokens: 100000 }", limits);
        folder.write("job.yaml", job).write("replies.yaml", SCRIPT).write("notes.txt", "hello\n");
        let run = folder.legwork(&["run", "job.yaml"]).run().assert_code(4).run_folder();
        assert_eq!(run.result()["outcome"], outcome);
        folder.legwork(&["replay", "latest"]).run().assert_code(0).assert_stdout_contains("equal: ");
    }
}

#[test]
fn a_folder_without_a_record_is_rejected_as_by_show() {
    let folder = TestFolder::new();
    folder.legwork(&["replay", "latest"]).run().assert_code(2).assert_stderr_contains("there are no runs");
    folder.legwork(&["replay"]).run().assert_code(2).assert_stderr_contains("there are no runs in runs yet");
    let (folder, _) = record_run(JOB, SCRIPT);
    for refused in [
        ["replay", "latest", "--sandbox", "off"],
        ["replay", "latest", "--workspace", "."],
        ["replay", "latest", "--allow-read", "."],
    ] {
        folder.legwork(&refused).run().assert_code(2).assert_stdout("").assert_stderr_contains("--tools");
    }
}

fn differences(json: &Value) -> Vec<(String, u64, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = json["differences"].as_array().unwrap().iter();
    all.map(|it| (text(&it["agent"]), it["turn"].as_u64().unwrap(), text(&it["why"]))).collect()
}
