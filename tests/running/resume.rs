//! Runs that are interrupted at any point and resume.

mod damaged_journals;
mod disk_failures;
mod interruptions;
mod kill_points;
mod workload;

use rustix::process::Signal;
use serde_json::{Value, json};

use self::workload::{RUN, Workload};
use crate::running::run_failures::wait_until;
use crate::support::journal::with_checksums;
use crate::support::server::{Answer, Checks, Request, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

/// The job for a loopback server that sends one `Answer` after the other to a single agent.
fn served(tools: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        format!("model: anthropic/claude-haiku-4-5\nparent: {{ prompt: Go., tools: [{tools}] }}\nlimits: {{ tokens: 100000 }}\n"),
    );
    folder
}

#[test]
fn a_kill_during_a_tool_call_is_reported_to_the_model_without_repeated_requests() {
    let folder = served("bash");
    let server = Server::with(
        Checks::AllowRepeats,
        ScriptedAgents::of([
            Answer::calls(&[(
                "bash",
                json!({"command": "echo begun >> log; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 61"}),
            )]),
            Answer::text("Gone on."),
        ]),
    );
    // A sandbox would prevent the command from killing the runner.
    let cut = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).anthropic(&server).run();
    assert_eq!(cut.signal(), Some(9));
    assert!(!cut.run_folder().has("result.json"));
    let ended = folder.legwork(&["resume", "latest"]).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("Gone on.\n");
    assert_eq!(folder.read("log"), "begun\n");
    let requests = server.finish();
    assert_eq!(requests.len(), 2, "the recorded reply isn't asked for again");
    let results = requests[1].results();
    assert!(results.len() == 1 && results[0].is_error && results[0].text.contains("effect is unknown"), "{results:?}");
    let result = ended.run_folder().result();
    assert_eq!((&result["turns"], &result["tool_calls"]), (&json!(2), &json!(1)));
}

#[test]
fn a_kill_during_a_request_repeats_it_and_counts_the_reservation() {
    let folder = served("");
    let first = std::sync::atomic::AtomicBool::new(true);
    let server = Server::with(Checks::AllowRepeats, move |_: &Request| {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            Answer::empty().hang()
        } else {
            Answer::text("Now.")
        }
    });
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
    server.wait_for(1);
    running.signal(Signal::KILL);
    let cut = running.wait();
    let request = cut.run_folder().events().into_iter().find(|event| event["type"] == "request_started").unwrap();
    let ended = folder.legwork(&["resume", "job/latest"]).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("Now.\n");
    let usage = &ended.run_folder().result()["usage"];
    assert!(usage["output_tokens"].as_u64().unwrap() >= 8_000, "{usage}");
    let used: u64 = usage.as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert!(used > request["data"]["reserved_tokens"].as_u64().unwrap(), "{usage}");
    assert!(ended.run_folder().result()["cost_usd"].as_f64().unwrap() > 0.04, "8,000 output tokens at $5 a million");
    let cut_off = &ended.run_folder().result()["cut_off_requests"];
    assert_eq!((&cut_off["count"], &cut_off["reserved_tokens"]), (&json!(1), &request["data"]["reserved_tokens"]));
    ended.assert_stderr_contains("reserved for 1 request that was cut off");
}

#[test]
fn a_request_that_a_signal_stops_costs_what_has_arrived() {
    let folder = served("");
    let first = std::sync::atomic::AtomicBool::new(true);
    let server = Server::with(Checks::AllowRepeats, move |_: &Request| {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            Answer::deltas((0..40).map(|_| "some words ")).usage(1_000, 400).cut_after_events(20).hang()
        } else {
            Answer::text("Now.").usage(1_000, 10)
        }
    });
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
    server.wait_for(1);
    running.signal(Signal::INT);
    let cut = running.wait();
    cut.assert_code(130);
    let result = cut.run_folder().result();
    let cost = result["cost_usd"].as_f64().unwrap();
    assert!(cost < 0.004, "the 8,000 tokens that were reserved would cost $0.04: {result}");
    assert!(result["cut_off_requests"].is_null(), "{result}");
    let interrupted: Vec<Value> =
        cut.run_folder().events().into_iter().filter(|event| event["type"] == "request_interrupted").collect();
    assert_eq!(interrupted[0]["data"]["usage"], result["usage"]);
    let ended = folder.legwork(&["resume", "latest"]).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("Now.\n");
    let whole = ended.run_folder().result()["cost_usd"].as_f64().unwrap();
    assert!((whole - cost - 0.00105).abs() < 1e-6, "{cost} and then {whole}");
}

#[test]
fn a_journal_that_has_lost_lines_that_were_on_the_disk_is_not_resumed() {
    let folder = served("bash");
    let call = |command: &str| Answer::calls(&[("bash", json!({ "command": command }))]);
    let kill = "echo two >> log; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 61";
    let script = [call("echo one >> log"), call(kill), call("echo one >> log"), Answer::text("Done.")];
    let server = Server::with(Checks::AllowRepeats, ScriptedAgents::of(script));
    let cut = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).anthropic(&server).run();
    assert_eq!(cut.signal(), Some(9));
    let path = cut.run_folder().path().join("events.jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    // The disk has lost all after the first line.
    let first = whole.lines().next().unwrap();
    std::fs::write(&path, format!("{first}\n")).unwrap();
    let resume = |more: &[&str]| folder.legwork(&[&["resume", "latest"], more].concat()).anthropic(&server).run();
    for _ in 0..2 {
        let refused = resume(&[]);
        refused.assert_code(2).assert_stderr_contains("has lost lines at its end: it has 1, and");
        refused.assert_stderr_contains("--force");
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }
    resume(&["--force"]).assert_code(0).assert_stdout("Done.\n");
    assert_eq!(folder.read("log"), "one\ntwo\none\n");
}

/// Without a lease any more, the end of a stopped run says that lines are missing: in its own journal, and in a subagent's.
#[test]
fn a_stopped_run_whose_journal_has_lost_whole_lines_is_not_continued() {
    let job = "model: anthropic/claude-sonnet-4-5\ninputs: { item: { type: string, default: x } }\n\
               parent: { prompt: Go., tools: [task, bash] }\nsubagents: { a: { tools: [bash] } }\n";
    let call = |command: &str| Answer::calls(&[("bash", json!({ "command": command }))]);
    let keyed = ["run", "job.yaml", "--sandbox", "off", "--key", "k"];
    let map = ["map", "job.yaml", "--sandbox", "off", "--rows", "rows.csv", "--id", "item", "--isolate", "none"];
    let cases: [(&str, &[&str], &str, &str, usize); 4] = [
        ("a run", &keyed[..4], "latest", "events.jsonl", 3),
        ("a subagent", &keyed[..4], "latest", "subagents/a-1.events.jsonl", 2),
        ("a run with a key", &keyed, "k", "events.jsonl", 1),
        ("a row", &map, "map-rows/rows/a", "events.jsonl", 1),
    ];
    for (what, start, record, journal, lost) in cases {
        let folder = TestFolder::new();
        folder.write("job.yaml", job);
        folder.write("rows.csv", "item\na\n");
        let server = Server::with(Checks::AllowRepeats, move |request: &Request| {
            let is_child = request.prompt() == "child";
            match (is_child || !journal.starts_with("subagents"), request.turn()) {
                (false, 0) => Answer::calls(&[("task", json!({ "prompt": "child", "agent": "a" }))]),
                (true, 0) => call("echo one >> log"),
                (true, 1) => call("touch waiting; sleep 61"),
                _ => Answer::text("Done."),
            }
        });
        let running = folder.legwork(start).anthropic(&server).spawn();
        wait_until(|| folder.exists("waiting"));
        running.signal(Signal::TERM);
        running.wait().assert_code(143);
        let path = folder.at(format!("runs/job/{record}/{journal}"));
        let whole = std::fs::read_to_string(&path).unwrap();
        let kept = whole.lines().count().saturating_sub(lost);
        let cut: String = whole.split_inclusive('\n').take(kept).collect();
        std::fs::write(&path, &cut).unwrap();
        let again = if record == "latest" { &["resume", "latest", "--sandbox", "off"][..] } else { start };
        for _ in 0..2 {
            let refused = folder.legwork(again).anthropic(&server).run();
            refused.assert_code(if what == "a row" { 5 } else { 2 });
            refused.assert_stderr_contains(&format!("has lost lines at its end: it has {kept}, and at least "));
            refused.assert_stderr_contains("--force");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), cut, "{what}");
        }
        let record = format!("runs/job/{record}");
        let forced = folder.legwork(&["resume", &record, "--force", "--sandbox", "off"]);
        forced.anthropic(&server).run().assert_code(0);
    }
}

#[test]
fn a_keyed_run_that_has_lost_its_journal_does_not_start_again() {
    let folder = served("bash");
    let kill = "echo one >> log; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 61";
    let script = [Answer::calls(&[("bash", json!({ "command": kill }))]), Answer::text("Done.")];
    let server = Server::with(Checks::AllowRepeats, ScriptedAgents::of(script));
    let run = |more: &[&str]| {
        let keyed = ["run", "job.yaml", "--key", "k", "--sandbox", "off"];
        folder.legwork(&[&keyed, more].concat()).anthropic(&server).run()
    };
    assert_eq!(run(&[]).signal(), Some(9));
    std::fs::write(folder.at("runs/job/k/events.jsonl"), "").unwrap();
    run(&[]).assert_code(2).assert_stderr_contains("has lost lines at its end: it has 0, and");
    run(&["--fresh"]).assert_code(0).assert_stdout("Done.\n");
    assert_eq!(folder.read("log"), "one\n");
}

#[test]
fn a_journal_that_has_lost_only_lines_that_were_not_on_the_disk_is_resumed() {
    let folder = served("bash");
    let kill = "echo two >> log; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 61";
    let script = [Answer::calls(&[("bash", json!({ "command": kill }))]), Answer::text("Done.")];
    let server = Server::with(Checks::AllowRepeats, ScriptedAgents::of(script));
    let cut = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).anthropic(&server).run();
    assert_eq!(cut.signal(), Some(9));
    folder.legwork(&["resume", "latest"]).anthropic(&server).run().assert_code(0);
    assert_eq!(folder.read("log"), "two\n");
}

#[test]
fn a_run_ended_by_a_signal_or_its_provider_resumes() {
    let folder = served("bash");
    let answers = std::sync::Mutex::new(
        [
            Answer::calls(&[("bash", json!({"command": "echo one >> log"}))]),
            Answer::status(400).error("invalid_request_error", "no credit"),
            Answer::empty().hang(),
            Answer::calls(&[("bash", json!({"command": "echo two >> log"}))]),
            Answer::text("At last."),
        ]
        .into_iter(),
    );
    let server = Server::with(Checks::AllowRepeats, move |_: &Request| {
        answers.lock().unwrap().next().expect("one request more")
    });
    folder.legwork(&["run", "job.yaml"]).anthropic(&server).run().assert_code(5).assert_stderr_contains("no credit");
    let running = folder.legwork(&["resume", "latest"]).anthropic(&server).spawn();
    server.wait_for(3);
    running.signal(Signal::TERM);
    running.wait().assert_code(143);
    let ended = folder.legwork(&["resume", "latest"]).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("At last.\n");
    assert_eq!(folder.read("log"), "one\ntwo\n");
    assert_eq!(server.finish().len(), 5);
    let record = ended.run_folder();
    assert_eq!(record.events().iter().filter(|event| event["type"] == "resumed").count(), 2);
    assert_eq!(record.result()["turns"], 3);
    assert_eq!(record.transcript().matches("## Resumed at ").count(), 2);
}

/// Earlier versions recorded half of a surrogate pair as the model wrote it. Its call had failed.
#[test]
fn half_a_surrogate_pair_in_an_old_journal_is_neither_sent_nor_exported() {
    let folder = served("read_file");
    folder.allow_forged_records();
    let first = Server::start(ScriptedAgents::of([
        Answer::calls(&[("read_file", json!({ "path": "none-HALF" }))]),
        Answer::status(400).error("invalid_request_error", "no credit"),
    ]));
    let cut = folder.legwork(&["run", "job.yaml"]).anthropic(&first).run();
    cut.assert_code(5).assert_stderr_contains("no credit");
    let server = Server::with(Checks::AllowHandover, |request: &Request| {
        let body = String::from_utf8(request.bytes().to_vec()).unwrap();
        assert!(body.contains("none-") && !body.contains("\\ud83d"), "{body}");
        Answer::text("Done.")
    });
    let path = cut.run_folder().path().join("events.jsonl");
    let journal = std::fs::read_to_string(&path).unwrap();
    let old = journal.replace("\"input\":{\"path\":\"none-HALF\"}", "\"input\":{\"path\":\"none-\\ud83d\"}");
    let old = old.replace("\"subject\":\"none-HALF\"", "\"subject\":\"\"");
    assert_ne!(old, journal);
    std::fs::write(&path, with_checksums(&old)).unwrap();
    folder.legwork(&["resume", "latest"]).anthropic(&server).run().assert_code(0).assert_stdout("Done.\n");
    assert_eq!(server.finish().len(), 1);
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
    folder.legwork(&["show", "latest"]).run().assert_code(0).assert_stdout_contains("none-\u{fffd}");
    folder.legwork(&["diff", "latest", "latest"]).run().assert_code(0);
    for options in ["otlp --with-content", "atif", "messages", "messages --api openai", "messages --api gemini"] {
        let options: Vec<&str> = ["export", "--format"].into_iter().chain(options.split(' ')).collect();
        let ended = folder.legwork(&options).run();
        ended.assert_code(0);
        assert!(ended.stdout.contains("none-") && !ended.stdout.contains("ud83d"), "{options:?}: {}", ended.stdout);
    }
    let trajectory = folder.legwork(&["export", "--format", "atif"]).run().json();
    assert!(trajectory.to_string().contains(r#""arguments":{"path":"none-"#), "{trajectory}");
}

#[test]
fn a_finished_run_is_reported_with_its_exit_code() {
    let folder = Workload::short().folder();
    folder.legwork(RUN).run().assert_code(0);
    let before = folder.legwork(&["show"]).run().stdout;
    folder
        .legwork(&["resume", "latest"])
        .run()
        .assert_code(0)
        .assert_stdout("")
        .assert_stderr_contains("has ended: completed");
    folder.write("job.yaml", folder.read("job.yaml").replace("max_turns: 60", "max_turns: 1"));
    folder.legwork(RUN).run().assert_code(4);
    folder
        .legwork(&["resume", "latest"])
        .run()
        .assert_code(4)
        .assert_stdout("")
        .assert_stderr_contains("has ended: turn_limit");
    folder.legwork(&["resume", "nonesuch"]).run().assert_code(2);
    assert!(before.contains("All done."));
}

#[test]
fn an_active_run_is_not_resumed() {
    let folder = served("");
    let server = Server::start(|_: &Request| Answer::empty().hang());
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
    server.wait_for(1);
    folder
        .legwork(&["resume", "latest"])
        .anthropic(&server)
        .run()
        .assert_code(5)
        .assert_stderr_contains("still running");
    running.signal(Signal::KILL);
    running.wait();
}

#[test]
fn another_commit_is_rejected_unless_forced() {
    let folder = Workload::short().folder();
    folder.commit_all();
    folder.legwork(RUN).env("LEGWORK_KILL_AFTER", "12").run();
    folder.git(&["commit", "--quiet", "--allow-empty", "--message=more"]);
    folder.legwork(&["resume", "latest"]).run().assert_code(2).assert_stdout("").assert_stderr_contains("--force");
    let ended = folder.legwork(&["resume", "latest", "--force"]).run();
    Workload::short().assert_complete(&ended, &folder, "forced");
}

#[test]
fn a_secret_input_must_be_given_again() {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: anthropic/claude-haiku-4-5\ninputs: { token: { type: string, secret: true } }\nparent: { prompt: Go., tools: [bash] }\n");
    folder.write("replies.yaml", "parent:\n  - calls: [{ tool: bash, input: { command: kill -9 $(cut -d' ' -f4 /proc/$PPID/stat) } }]\n  - calls: [{ tool: bash, input: { command: 'echo $INPUT_TOKEN > said' } }]\n  - text: Over.\n");
    let given = |line: &[&str]| folder.legwork(line).arg("--set-env").arg("token=T").env("T", "hush-hush-hush");
    let give = |line: &[&str]| given(line).run();
    // A sandbox would prevent the command from killing the runner.
    assert_eq!(given(RUN).run().signal(), Some(9));
    folder.legwork(&["resume", "latest"]).run().assert_code(3).assert_stderr_contains("--set-env token=VARIABLE");
    folder
        .legwork(&["resume", "latest", "--set", "other=x"])
        .run()
        .assert_code(3)
        .assert_stderr_contains("`other` isn't a secret input");
    let ended = give(&["resume", "latest"]);
    ended.assert_code(0).assert_stdout("Over.\n");
    assert_eq!(folder.read("said"), "hush-hush-hush\n");
    ended.run_folder().assert_absent("hush-hush-hush");
}

#[test]
fn a_changed_journal_is_rejected() {
    let folder = Workload::short().folder();
    folder.legwork(RUN).env("LEGWORK_KILL_AFTER", "12").run();
    let path = folder.at("runs/job/latest/events.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("echo one", "echo 0ne", 1)).unwrap();
    folder
        .legwork(&["resume", "latest"])
        .run()
        .assert_code(2)
        .assert_stdout("")
        .assert_stderr_contains("was changed after it was written");
    assert!(!folder.exists("log") || folder.read("log") == "one\n");
}

/// The command waits for the heartbeat to change, so time passes on machines of any speed.
#[test]
fn time_in_a_killed_command_is_counted() {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: replay/r.yaml\nparent: { prompt: Go., tools: [bash] }\n");
    let command = "for i in 1 2; do was=$(cat runs/job/latest/lease); while [ \"$was\" = \"$(cat runs/job/latest/lease)\" ]; \
                   do sleep 0.05; done; done; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat)";
    let script = json!({"parent": [{"calls": [{"tool": "bash", "input": {"command": command}}]}, {"text": "Over."}]});
    folder.write("r.yaml", script.to_string());
    // A sandbox would prevent the command from killing the runner.
    let cut = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).run();
    assert_eq!(cut.signal(), Some(9));
    assert!(cut.run_folder().has("lease"));
    let ended = folder.legwork(&["resume", "latest"]).run();
    ended.assert_code(0).assert_stdout("Over.\n");
    let record = ended.run_folder();
    assert!(!record.has("lease"), "it has ended");
    let events = record.events();
    let at = |time: &Value| time.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let begun = events.iter().find(|event| event["type"] == "call_started").unwrap();
    let resumed = events.iter().find(|event| event["type"] == "resumed").unwrap();
    let ran = at(&resumed["data"]["last_seen"]).duration_since(at(&begun["at"])).as_millis();
    assert!(ran >= 900, "{ran}");
    let counted = record.result()["duration_ms"].as_u64().unwrap();
    assert!(u128::from(counted) >= ran as u128, "{counted} of {ran} ms");
}

#[test]
fn changes_are_complete_after_a_kill_between_the_last_steps() {
    for left in ["result.json", "result.json and workspace.start"] {
        let folder = Workload::short().folder();
        let ended = folder.legwork(RUN).run();
        let record = ended.run_folder();
        let changes = record.result()["changes"].clone();
        let patch = record.file("changes.patch");
        assert!(!changes.as_array().unwrap().is_empty());
        assert!(!record.has("workspace.start"), "it goes last");
        // This is the state after a kill before the result was written.
        std::fs::remove_file(record.path().join("result.json")).unwrap();
        if left == "result.json" {
            std::fs::write(record.path().join("workspace.start"), "").unwrap();
        }
        let resumed = folder.legwork(&["resume", "latest"]).run();
        resumed.assert_code(0);
        assert_eq!(
            (record.result()["changes"].clone(), record.file("changes.patch")),
            (changes, patch),
            "without {left}"
        );
    }
}

#[test]
fn partial_files_left_by_a_kill_are_removed() {
    let folder = Workload::short().folder();
    folder.legwork(RUN).env("LEGWORK_KILL_AFTER", "30").run();
    let latest = folder.at("runs/job/latest").canonicalize().unwrap();
    for name in [".tmp-legwork-abcdef", "subagents/.tmp-legwork-ghijkl", ".tmp-mine"] {
        std::fs::create_dir_all(latest.join("subagents")).unwrap();
        std::fs::write(latest.join(name), "half").unwrap();
    }
    let ended = folder.legwork(&["resume", "latest"]).run();
    ended.assert_code(0);
    let left: Vec<String> = folder.list().into_iter().filter(|name| name.contains(".tmp")).collect();
    assert!(left.len() == 1 && left[0].ends_with(".tmp-mine"), "{left:?}");
}

#[test]
fn a_run_that_could_not_start_leaves_no_record() {
    let folder = Workload::short().folder();
    folder.legwork(RUN).run().assert_code(0);
    let (before, latest) = (folder.list(), std::fs::read_link(folder.at("runs/job/latest")).unwrap());
    let mut begun = false;
    for number in 1..20 {
        let failed = folder.legwork(RUN).env("LEGWORK_FAIL_AT", number.to_string()).run();
        failed.assert_code(5);
        if folder.list() != before {
            begun = true;
            break;
        }
        failed.assert_stderr_contains("--out").assert_not_printed("resume");
        assert_eq!(std::fs::read_link(folder.at("runs/job/latest")).unwrap(), latest, "{number}");
    }
    assert!(begun);
    assert_ne!(std::fs::read_link(folder.at("runs/job/latest")).unwrap(), latest);
}

#[test]
fn a_record_that_fails_during_the_run_names_the_resume_command() {
    let folder = Workload::short().folder();
    let failed = folder.legwork(RUN).env("LEGWORK_FAIL_AT", "40").run();
    failed.assert_code(5).assert_stderr_contains("help:").assert_not_printed("--out");
    let run = failed.run_folder();
    failed.assert_stderr_contains(&format!(
        "Free some disk space, then resume the run: legwork resume {}",
        run.path().display()
    ));
    let ended = folder.legwork(&["resume"]).arg(run.path()).run();
    ended.assert_code(0);
}
