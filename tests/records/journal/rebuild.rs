//! Everything in a record except the journals can be rebuilt from the journals.

use std::collections::BTreeMap;

use rustix::process::Signal;

use super::{JOB, RUN, journals, latest, prepared};
use crate::running::runs::folder_with;
use crate::support::program::ProgramOutput;
use crate::support::record::RunFolder;
use crate::support::server::{Answer, Checks, Request, Server};
use crate::support::test_folder::TestFolder;

/// Every file of a record except its journals and the baseline of the workspace, byte for byte.
fn artifacts(record: &RunFolder) -> BTreeMap<String, Vec<u8>> {
    let journals = journals(record);
    let names = record.files().into_iter().filter(|name| !journals.contains(name) && name != "workspace.start");
    names.map(|name| (name.clone(), std::fs::read(record.path().join(&name)).unwrap())).collect()
}

fn rebuild(folder: &TestFolder) -> ProgramOutput {
    folder.legwork(&["show", "latest", "--rebuild"]).run()
}

/// Removes everything that can be rebuilt, triggers the rebuild, and compares.
fn assert_rebuilt(folder: &TestFolder, files: &[&str]) {
    let record = latest(folder);
    let before = artifacts(&record);
    let names: Vec<&str> = before.keys().map(String::as_str).collect();
    assert_eq!(names, files);
    let untouched = rebuild(folder);
    untouched.assert_code(0).assert_stderr("").assert_not_printed("created ").assert_not_printed("replaced ");
    before.keys().for_each(|name| std::fs::remove_file(record.path().join(name)).unwrap());
    let missing = rebuild(folder);
    missing.assert_code(0).assert_stderr("");
    for name in names {
        missing.assert_stdout_contains(&format!("created    {name}\n"));
    }
    for (name, content) in artifacts(&record) {
        let [was, is] = [&before[&name], &content].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        // Without its journal, the conversation of a subagent can't be written again.
        if name == "report.html" && was.contains("id=\"worker-1.t1\"") && !record.has("subagents/worker-1.events.jsonl")
        {
            assert!(!is.contains("id=\"worker-1.t1\"") && is.contains("id=\"worker-1\""));
            continue;
        }
        let journal = name.replace(".md", ".events.jsonl");
        let is_summary = name.starts_with("subagents/") && !record.has(&journal);
        let part =
            |page: &str| if is_summary { page.split("\n# ").next().unwrap().to_owned() } else { page.to_owned() };
        assert_eq!(part(&is), part(&was), "{name}");
    }
    assert_eq!(artifacts(&record).len(), before.len());
}

const ALL: &[&str] = &[
    "changes.patch",
    "job.yaml",
    "plan.json",
    "report.html",
    "result.json",
    "subagents/worker-1.md",
    "subagents/worker-2.md",
    "transcript.md",
];

#[test]
fn a_record_is_rebuilt_byte_for_byte() {
    let folder = prepared();
    folder.legwork(RUN).run().assert_code(0);
    assert_rebuilt(&folder, ALL);
    assert_eq!(latest(&folder).file("job.yaml"), JOB);
    folder.legwork(&["show"]).run().assert_code(0).assert_stdout_contains("All\n\ndone: `x`.");
}

#[test]
fn the_record_of_a_resumed_run_is_rebuilt() {
    for after in [9, 17, 25, 33] {
        let folder = prepared();
        folder.legwork(RUN).env("LEGWORK_KILL_AFTER", after.to_string()).run();
        folder.legwork(&["resume", "latest"]).run().assert_code(0);
        assert_rebuilt(&folder, ALL);
    }
}

#[test]
fn a_record_is_rebuilt_without_the_subagent_journals() {
    let folder = prepared();
    folder.write("job.yaml", format!("{JOB}keep: never\n"));
    folder.legwork(RUN).run().assert_code(0);
    assert_eq!(journals(&latest(&folder)), ["events.jsonl"]);
    assert_rebuilt(&folder, ALL);
}

#[test]
fn runs_ended_by_a_provider_or_a_signal_are_rebuilt_with_their_costs() {
    let folder = folder_with("parent: { prompt: Go., tools: [task, bash] }\nsubagents: { a: { tools: [bash] } }\n");
    let answer = |text: &str| Answer::text(text).usage(1_234_567, 7_919).cache(77_777, 333);
    let server = Server::with(Checks::AllowRepeats, move |request: &Request| match request.prompt().as_str() {
        "Go." if request.turn() == 0 => Answer::calls(&[("task", serde_json::json!({ "prompt": "x" }))]).usage(3, 1),
        "x" => answer("Summary."),
        _ => Answer::status(400).error("invalid_request_error", "no credit"),
    });
    folder.legwork(&["run", "job.yaml"]).anthropic(&server).run().assert_code(5);
    assert!(latest(&folder).result()["cost_usd"].as_f64().unwrap() > 1.0);
    let files = ["job.yaml", "plan.json", "report.html", "result.json", "subagents/a-1.md", "transcript.md"];
    assert_rebuilt(&folder, &files);

    let folder = folder_with("parent: { prompt: Go., tools: [task] }\nsubagents: { a: { tools: [bash] } }\n");
    let server = Server::start(|request: &Request| match request.prompt().as_str() {
        "Go." => Answer::calls(&[("task", serde_json::json!({ "prompt": "x" }))]),
        _ => Answer::empty().hang(),
    });
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
    server.wait_for(2);
    running.signal(Signal::TERM);
    running.wait().assert_code(143);
    assert_rebuilt(&folder, &files);
}

#[test]
fn edited_artifacts_are_rebuilt() {
    let folder = prepared();
    folder.legwork(RUN).run().assert_code(0);
    let record = latest(&folder);
    let before = artifacts(&record);
    for name in ["plan.json", "result.json", "subagents/worker-1.md"] {
        std::fs::write(record.path().join(name), "{").unwrap();
    }
    folder
        .legwork(&["show"])
        .run()
        .assert_code(0)
        .assert_stderr_contains("result.json")
        .assert_stdout_contains("All\n");
    let ended = rebuild(&folder);
    ended
        .assert_code(0)
        .assert_stdout_contains("replaced   plan.json\n")
        .assert_stdout_contains("unchanged  transcript.md\n");
    assert_eq!(artifacts(&record), before);
}

/// An interrupted run without `plan.json` and `job.yaml`.
#[test]
fn a_run_resumes_from_its_journals_alone() {
    let folder = prepared();
    folder.legwork(RUN).env("LEGWORK_KILL_AFTER", "17").run();
    let record = latest(&folder);
    artifacts(&record).keys().for_each(|name| std::fs::remove_file(record.path().join(name)).unwrap());
    folder
        .legwork(&["show"])
        .run()
        .assert_code(0)
        .assert_stdout_contains("# job: not finished")
        .assert_stdout_contains("Go 0.1.");
    folder.legwork(&["resume", "latest"]).run().assert_code(0);
    rebuild(&folder).assert_code(0).assert_stdout_contains("unchanged  job.yaml\n");
    assert_rebuilt(&folder, ALL);
}

#[test]
fn a_changed_journal_is_reported_with_its_line_and_nothing_is_rebuilt() {
    for name in ["events.jsonl", "subagents/worker-2.events.jsonl"] {
        let folder = prepared();
        folder.legwork(RUN).run().assert_code(0);
        let record = latest(&folder);
        let journal = record.file(name);
        let line = journal.lines().position(|line| line.contains("call_started") && line.contains("echo")).unwrap();
        let changed: Vec<String> = journal
            .lines()
            .enumerate()
            .map(|(at, text)| if at == line { text.replacen("echo", "rm -r", 1) } else { text.to_owned() })
            .collect();
        std::fs::write(record.path().join(name), changed.join("\n") + "\n").unwrap();
        std::fs::remove_file(record.path().join("transcript.md")).unwrap();
        let refused = rebuild(&folder);
        refused.assert_code(2).assert_stdout("").assert_stderr_contains(name);
        refused.assert_stderr_contains(&format!("line {} was changed after it was written", line + 1));
        assert!(!record.has("transcript.md"));
    }
}

#[test]
fn a_torn_tail_is_reported_and_the_rest_is_rebuilt() {
    let folder = prepared();
    folder.legwork(RUN).run().assert_code(0);
    let record = latest(&folder);
    let journal = record.file("events.jsonl");
    let lines = journal.lines().count();
    std::fs::write(record.path().join("events.jsonl"), &journal[..journal.len() - 9]).unwrap();
    std::fs::remove_file(record.path().join("result.json")).unwrap();
    let ended = rebuild(&folder);
    ended
        .assert_code(0)
        .assert_stderr_contains(&format!("events.jsonl: line {lines} is incomplete"))
        .assert_stderr_contains("no result.json");
    assert!(!record.has("result.json"));
    assert!(record.transcript().starts_with("# job: not finished"));
    // The resumed run supplies the rest.
    folder.legwork(&["resume", "latest"]).run().assert_code(0).assert_stdout("All\n\ndone: `x`.\n");
    // After a run has ended, its baseline is deleted, and the journal has its changes.
    assert_rebuilt(&folder, ALL);
}

#[test]
fn nothing_is_rebuilt_while_the_run_is_active_or_before_it_started() {
    let folder = folder_with("parent: { prompt: Go., tools: [] }\n");
    let server = Server::start(|_: &Request| Answer::empty().hang());
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
    server.wait_for(1);
    rebuild(&folder).assert_code(5).assert_stdout("").assert_stderr_contains("still running");
    running.signal(Signal::KILL);
    running.wait();
    rebuild(&folder).assert_code(0).assert_stderr_contains("no result.json");
    std::fs::write(latest(&folder).path().join("events.jsonl"), "").unwrap();
    rebuild(&folder).assert_code(2).assert_stderr_contains("start a new run");
}
