//! Runs with `--key`: the same command starts, resumes, or only answers again.

use rustix::process::Signal;
use serde_json::json;

use crate::support::in_parallel;
use crate::support::program::{Program, ProgramOutput};
use crate::support::record::RunFolder;
use crate::support::server::{Answer, Checks, KEY, Request, ScriptedAgents, Server};
use crate::support::tcp_peer::ClosedPort;
use crate::support::test_folder::TestFolder;

const RUN: &[&str] = &["run", "job.yaml", "--key", "k"];

fn job(rest: &str) -> String {
    format!(
        "model: anthropic/claude-haiku-4-5\nparent: {{ prompt: Go., tools: [] }}\nlimits: {{ tokens: 100000 }}\n{rest}"
    )
}

fn folder_with(job: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", job);
    folder
}

fn record(folder: &TestFolder, name: &str) -> RunFolder {
    RunFolder::new(folder.at("runs/job").join(name))
}

/// A folder with a job that a script answers.
fn scripted(parent: &str, rest: &str, replies: &serde_json::Value) -> TestFolder {
    let folder = folder_with(&format!("model: replay/r.yaml\nparent: {parent}\n{rest}"));
    folder.write("r.yaml", json!({"parent": replies}).to_string());
    folder
}

/// A command that notes that it ran and then kills legwork.
fn killing() -> serde_json::Value {
    json!({"tool": "bash", "input": {"command": "echo ran >> log; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 61"}})
}

#[test]
fn a_finished_run_answers_again_without_a_request_or_a_key() {
    let folder = folder_with(&job(""));
    let server = Server::start(ScriptedAgents::of([Answer::text("Forty-two.")]));
    let first = folder.legwork(RUN).anthropic(&server).run();
    first.assert_code(0).assert_stdout("Forty-two.\n").assert_stderr_contains("record: runs/job/k\n");
    let before = folder.list();
    assert_eq!(std::fs::read_link(folder.at("runs/job/latest")).unwrap().to_str(), Some("k"));
    let k = record(&folder, "k");
    assert_eq!(k.result()["run_id"], "k");

    let again = |format: &str| folder.legwork(RUN).args(["--format", format]).run();
    let ended = again("text");
    ended.assert_code(0).assert_stdout("Forty-two.\n").assert_stderr_contains("has ended before");
    assert_eq!(again("json").json(), k.result());
    let lines = again("jsonl").json_lines();
    assert_eq!(lines.len(), k.events().len());
    assert_eq!(lines.last().unwrap()["type"], "run_finished");
    assert_eq!(folder.list(), before, "nothing is written");
    assert_eq!(server.finish().len(), 1);
}

#[test]
fn each_exit_code_is_repeated() {
    let text = json!([{"text": "Done."}]);
    let glob = json!({"tool": "glob", "input": {"pattern": "*"}});
    let cases = [
        (0, "{ prompt: Go., tools: [] }", "", text.clone()),
        (1, "{ prompt: Go., tools: [] }", "checks: [{ name: never, run: 'false' }]\n", text),
        (4, "{ prompt: Go., tools: [glob], max_turns: 1 }", "", json!([{"calls": [glob]}, {"text": "So far."}])),
        (7, "{ prompt: Go., tools: [glob] }", "", json!([{"calls": [glob]}])),
    ];
    for (code, parent, rest, replies) in cases {
        let folder = scripted(parent, rest, &replies);
        let first = folder.legwork(RUN).run();
        first.assert_code(code);
        let events = record(&folder, "k").events().len();
        // Nothing can reply now.
        std::fs::remove_file(folder.at("r.yaml")).unwrap();
        let again = folder.legwork(RUN).run();
        again.assert_code(code).assert_stdout(&first.stdout).assert_stderr_contains("has ended before");
        assert_eq!(record(&folder, "k").events().len(), events);
    }
}

#[test]
fn a_killed_run_is_resumed_at_once_and_repeats_no_command() {
    let folder = scripted("{ prompt: Go., tools: [bash] }", "", &json!([{"calls": [killing()]}, {"text": "Over."}]));
    // A sandbox would prevent the command from killing the runner.
    let run = || folder.legwork(RUN).args(["--sandbox", "off"]).run();
    assert_eq!(run().signal(), Some(9));
    assert!(record(&folder, "k").has("lease") && !record(&folder, "k").has("result.json"));
    run().assert_code(0).assert_stdout("Over.\n");
    run().assert_code(0).assert_stdout("Over.\n").assert_stderr_contains("has ended before");
    assert_eq!(folder.read("log"), "ran\n");
    let events = record(&folder, "k").events();
    assert_eq!(events.iter().filter(|event| event["type"] == "resumed").count(), 1);
    assert_eq!(folder.list().iter().filter(|name| name.ends_with("events.jsonl")).count(), 1, "one record");
}

#[test]
fn interrupted_rejected_and_unreachable_runs_are_resumed() {
    let folder = folder_with(&job(""));
    let answers = std::sync::Mutex::new(
        [
            Answer::empty().hang(),
            Answer::status(400).error("invalid_request_error", "no credit"),
            Answer::text("At last."),
        ]
        .into_iter(),
    );
    let server = Server::with(Checks::AllowRepeats, move |_: &Request| {
        answers.lock().unwrap().next().expect("one request more")
    });
    let run = || folder.legwork(RUN).anthropic(&server);
    let running = run().spawn();
    server.wait_for(1);
    running.signal(Signal::TERM);
    running.wait().assert_code(143);
    let closed = ClosedPort::hold();
    let port = closed.address().port();
    let unreachable = folder.legwork(RUN).env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}"));
    unreachable.env("ANTHROPIC_API_KEY", KEY).env("LEGWORK_RETRY_BASE_MS", "1").run().assert_code(75);
    run().run().assert_code(5).assert_stderr_contains("no credit");
    run().run().assert_code(0).assert_stdout("At last.\n");
    run().run().assert_code(0).assert_stdout("At last.\n");
    assert_eq!(server.finish().len(), 3);
    assert_eq!(record(&folder, "k").events().iter().filter(|event| event["type"] == "resumed").count(), 3);
}

/// A run with a key, on a simulated machine unless its name is empty.
fn start_on(folder: &TestFolder, server: &Server, machine: &str) -> Program {
    let program = folder.legwork(RUN).anthropic(server);
    if machine.is_empty() { program } else { program.env("LEGWORK_BOOT_ID", machine) }
}

#[test]
fn a_run_that_another_process_executes_is_left_alone() {
    // A simulated machine has no locks.
    in_parallel([["", ""], ["a", "b"], ["a", "a"]], |[here, there]| {
        let folder = folder_with(&job("result: { schema: { type: object, properties: {} } }\n"));
        let server = Server::with(Checks::AllowRepeats, |_: &Request| Answer::empty().hang());
        let running = start_on(&folder, &server, here).args(["--result", "out.json"]).spawn();
        server.wait_for(1);
        folder.write("out.json", "of the other process");
        let ended = start_on(&folder, &server, there).args(["--result", "out.json"]).run();
        ended.assert_code(75).assert_stdout("").assert_stderr_contains("another process is executing this run");
        assert_eq!(folder.read("out.json"), "of the other process");
        let fresh = start_on(&folder, &server, there).arg("--fresh").run();
        fresh.assert_code(75).assert_stderr_contains("another process");
        assert!(running.is_alive() && !folder.exists("runs/job/k.1"));
        assert_eq!(server.count(), 1);
        running.signal(Signal::KILL);
        running.wait();
    });
}

#[test]
fn a_run_whose_machine_was_lost_is_taken_over() {
    let folder = folder_with(&job(""));
    let first = std::sync::atomic::AtomicBool::new(true);
    let server = Server::with(Checks::AllowRepeats, move |_: &Request| {
        match first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            true => Answer::empty().hang(),
            false => Answer::text("Moved."),
        }
    });
    let lost = start_on(&folder, &server, "a").spawn();
    server.wait_for(1);
    lost.signal(Signal::KILL);
    lost.wait();
    assert!(record(&folder, "k").has("lease"));
    let taken = start_on(&folder, &server, "b").env("LEGWORK_LEASE_OBSERVATION_MS", "300").run();
    taken.assert_code(0).assert_stdout("Moved.\n");
    assert!(!record(&folder, "k").has("lease"));
    assert_eq!(server.finish().len(), 2);
}

#[test]
fn a_process_that_was_suspended_leaves_the_run_to_the_one_that_has_taken_it_over() {
    a_suspended_process_leaves_its_run_to_the_new_owner(|_| None);
}

// There, the files of a run are compared after each command, and what a command added is taken away.
#[cfg(target_os = "linux")]
#[test]
fn a_process_that_was_suspended_in_landlocks_tier_leaves_the_files_of_the_new_owner_alone() {
    a_suspended_process_leaves_its_run_to_the_new_owner(|folder| {
        Some(crate::boundary::sandbox::path_without_bwrap(folder))
    });
}

/// `path` makes the PATH of the processes.
fn a_suspended_process_leaves_its_run_to_the_new_owner(path: impl Fn(&TestFolder) -> Option<std::path::PathBuf>) {
    let folder = folder_with(
        "model: replay/r.yaml\nparent: { prompt: Go., tools: [bash] }\nresult: { schema: { type: object } }\n",
    );
    let wait = json!({ "tool": "bash", "input": { "command": ": > started; until [ -e go ]; do sleep 0.05; done" } });
    let submit = json!({ "tool": "submit_result", "input": {} });
    let replies = json!({ "parent": [{ "calls": [wait] }, { "calls": [submit] }, { "text": "Moved." }] });
    folder.write("r.yaml", replies.to_string());
    let programs = path(&folder);
    let start = |machine: &str| {
        let program = folder.legwork(RUN).env("LEGWORK_BOOT_ID", machine).env("LEGWORK_LEASE_OBSERVATION_MS", "2000");
        programs.iter().fold(program, |program, programs| program.env("PATH", programs))
    };
    let suspended = start("a").spawn();
    folder.wait_for("started");
    suspended.signal(Signal::STOP);
    start("b").run().assert_code(0).assert_stdout("Moved.\n");
    let files = ["result.json", "events.jsonl", "transcript.md"];
    let written = files.map(|file| folder.read(&format!("runs/job/k/{file}")));
    folder.write("go", "");
    suspended.signal(Signal::CONT);
    suspended
        .wait()
        .assert_code(75)
        .assert_stdout("")
        .assert_stderr_contains("another process has taken over this run");
    assert_eq!(files.map(|file| folder.read(&format!("runs/job/k/{file}"))), written);
    start("a").run().assert_code(0).assert_stdout("Moved.\n");
}

#[test]
fn processes_that_start_at_once_run_it_once() {
    let folder = folder_with(&job(""));
    let server =
        Server::start(ScriptedAgents::of([Answer::text("Once.").delay(std::time::Duration::from_millis(200))]));
    let running: Vec<_> = (0..5).map(|_| start_on(&folder, &server, "").spawn()).collect();
    let ended: Vec<ProgramOutput> = running.into_iter().map(crate::support::program::RunningProgram::wait).collect();
    for ended in &ended {
        assert!(ended.exited_with(0) || ended.exited_with(75), "{}", ended.full_output());
    }
    assert!(ended.iter().any(|ended| ended.stdout == "Once.\n"));
    assert_eq!(server.finish().len(), 1);
    folder.legwork(RUN).run().assert_code(0).assert_stdout("Once.\n");
}

/// Names that a file system or a file manager adds to a folder.
#[test]
fn what_a_file_system_keeps_in_a_record_is_no_hindrance() {
    let folder = scripted("{ prompt: Go., tools: [] }", "", &json!([{"text": "Done."}]));
    for name in [".nfs0000000000a1b2c300000001", ".fuse_hidden0000000400000001", ".DS_Store", "._job.yaml"] {
        folder.write(&format!("runs/job/k/{name}"), "");
    }
    folder.write("runs/job/k/.snapshot/hourly/job.yaml", "").write("runs/job/k/lost+found/x", "");
    folder.legwork(RUN).run().assert_code(0).assert_stdout("Done.\n");
    folder.legwork(RUN).run().assert_code(0).assert_stderr_contains("has ended before");
    assert!(folder.exists("runs/job/k/.snapshot/hourly/job.yaml") && folder.exists("runs/job/k/.DS_Store"));
}

#[test]
fn processes_that_start_anew_at_once_leave_complete_records_and_no_leases() {
    let call = json!({"tool": "bash", "input": {"command": "echo ran >> log; sleep 0.05"}});
    let folder = scripted("{ prompt: Go., tools: [bash] }", "", &json!([{"calls": [call]}, {"text": "Done."}]));
    let start = || folder.legwork(RUN).args(["--fresh", "--sandbox", "off"]).spawn();
    let running: Vec<_> = (0..10).map(|_| start()).collect();
    let mut count = 0;
    for running in running {
        let ended = running.wait();
        assert!(ended.exited_with(0) || ended.exited_with(75), "{}", ended.full_output());
        count += usize::from(ended.exited_with(0));
    }
    let records = std::fs::read_dir(folder.at("runs/job")).unwrap().flatten().map(|entry| entry.path());
    let records: Vec<_> = records.filter(|path| !path.ends_with("latest")).collect();
    assert_eq!((records.len(), folder.read("log").lines().count()), (count, count));
    for record in records {
        assert!(record.join("result.json").is_file() && !record.join("lease").exists(), "{}", record.display());
    }
}

#[test]
fn another_plan_is_refused_and_fresh_keeps_the_old_record() {
    let job = |prompt: &str| {
        format!(
            "model: replay/r.yaml\ninputs: {{ who: {{ type: string, default: you }} }}\nparent: {{ prompt: '{prompt} {{{{ inputs.who }}}}', tools: [] }}\n"
        )
    };
    let folder = folder_with(&job("Greet"));
    folder.write("r.yaml", json!({"parent": [{"text": "One."}]}).to_string());
    folder.legwork(RUN).run().assert_code(0);
    folder.write("job.yaml", format!("# a comment changes nothing\n{}", job("Greet")));
    folder.legwork(RUN).run().assert_code(0).assert_stdout("One.\n");
    let other = folder.legwork(RUN).args(["--set", "who=her"]).run();
    other.assert_code(2).assert_stdout("").assert_stderr_contains("these differ: inputs.who, parent.prompt");
    other.assert_stderr_contains("inputs.who: \"you\" -> \"her\"").assert_stderr_contains("--fresh");
    folder.write("job.yaml", job("Forget"));
    folder.write("r.yaml", json!({"parent": [{"text": "Two."}]}).to_string());
    folder.legwork(RUN).run().assert_code(2).assert_stderr_contains("-Greet you").assert_stderr_contains("+Forget you");
    assert!(!folder.exists("runs/job/k.1"));
    let fresh = || folder.legwork(RUN).arg("--fresh").run();
    fresh().assert_code(0).assert_stdout("Two.\n");
    folder.legwork(RUN).run().assert_code(0).assert_stdout("Two.\n");
    folder.write("r.yaml", json!({"parent": [{"text": "Three."}]}).to_string());
    fresh().assert_code(0).assert_stdout("Three.\n");
    let texts = ["k.1", "k.2", "k"].map(|name| record(&folder, name).result()["text"].clone());
    assert_eq!(texts, ["One.", "Two.", "Three."]);
    assert!(!folder.exists("runs/job/k.3"));
    // The kept records are still records.
    folder.legwork(&["show", "k.1"]).run().assert_code(0).assert_stdout_contains("One.");
    folder.legwork(&["replay", "k.2"]).run().assert_code(0);
    folder.legwork(&["diff", "k.1", "job/k"]).run().assert_code(0).assert_stdout_contains("Three.");
    folder.legwork(&["resume", "k.1"]).run().assert_code(0).assert_stderr_contains("has ended: completed");
    // --fresh also replaces a record that can't be read.
    let journal = folder.at("runs/job/k/events.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, text.replacen("run_started", "run_smarted", 1)).unwrap();
    folder.legwork(RUN).run().assert_code(2).assert_stdout("");
    fresh().assert_code(0).assert_stdout("Three.\n");
    assert!(folder.read("runs/job/k.3/events.jsonl").contains("run_smarted"));
    // They aren't taken for runs with these keys.
    folder
        .legwork(&["run", "job.yaml", "--key", "k.1"])
        .run()
        .assert_code(2)
        .assert_stderr_contains("it is an earlier attempt of the run `k`");
}

#[test]
fn a_run_that_was_set_aside_can_be_resumed() {
    let folder = scripted("{ prompt: Go., tools: [bash] }", "", &json!([{"calls": [killing()]}, {"text": "Over."}]));
    folder.legwork(RUN).args(["--sandbox", "off"]).run();
    folder.write("r.yaml", json!({"parent": [{"text": "Fresh."}]}).to_string());
    folder.legwork(RUN).args(["--sandbox", "off", "--fresh"]).run().assert_code(0).assert_stdout("Fresh.\n");
    folder.write("r.yaml", json!({"parent": [{"calls": [killing()]}, {"text": "Over."}]}).to_string());
    let ended = folder.legwork(&["resume", "k.1"]).run();
    ended.assert_code(0).assert_stdout("Over.\n");
    assert_eq!(folder.read("log"), "ran\n");
}

#[test]
fn a_raised_limit_lets_a_run_go_on() {
    let glob = json!({"calls": [{"tool": "glob", "input": {"pattern": "*"}}]});
    let folder = scripted(
        "{ prompt: Go., tools: [glob], max_turns: 1 }",
        "",
        &json!([glob, {"text": "So far."}, {"text": "Complete."}]),
    );
    let run = |more: &[&str]| folder.legwork(RUN).args(more).run();
    run(&[]).assert_code(4).assert_stdout("So far.\n");
    run(&[]).assert_code(4).assert_stdout("So far.\n").assert_stderr_contains(" --limit max_turns=2\n");
    for same in ["max_turns=1", "tool_calls=500"] {
        run(&["--limit", same]).assert_code(4).assert_stdout("So far.\n").assert_stderr_contains("has ended before");
    }
    assert!(!record(&folder, "k").has("lease"));
    run(&["--limit", "max_turns=5"]).assert_code(0).assert_stdout("Complete.\n");
    for more in [&["--limit", "max_turns=5"][..], &[], &["--limit", "max_turns=9"]] {
        run(more).assert_code(0).assert_stdout("Complete.\n").assert_stderr_contains("has ended before");
    }
    run(&["--limit", "max_turns=x"]).assert_code(2);
    let events = record(&folder, "k").events();
    assert_eq!(events.iter().filter(|event| event["type"] == "resumed").count(), 1);
    // The job's own limits are part of its plan.
    folder.write("job.yaml", folder.read("job.yaml").replace("max_turns: 1", "max_turns: 7"));
    run(&[]).assert_code(2).assert_stderr_contains("parent.max_turns: 1 -> 7");
}

#[test]
fn a_limit_of_an_earlier_start_need_not_be_repeated() {
    let folder = scripted("{ prompt: Go., tools: [] }", "", &json!([{"text": "Done."}]));
    let run = |more: &[&str]| folder.legwork(RUN).args(more).run();
    run(&["--limit", "max_turns=3", "--limit", "cost_usd=2"]).assert_code(0);
    for more in [&[][..], &["--limit", "max_turns=3"], &["--limit", "tokens=5000"]] {
        run(more).assert_code(0).assert_stdout("Done.\n").assert_stderr_contains("has ended before");
    }
    folder.write("job.yaml", folder.read("job.yaml").replace("tools: []", "tools: [], max_turns: 7"));
    run(&[]).assert_code(2).assert_stderr_contains("parent.max_turns: 3 -> 7");
}

#[test]
fn a_bad_key_is_a_usage_error() {
    let folder = scripted("{ prompt: Go., tools: [] }", "", &json!([{"text": "Done."}]));
    let long = "x".repeat(101);
    for (key, why) in [
        ("../x", "is a path"),
        ("a/b", "is a path"),
        ("", "is empty"),
        ("latest", "the name of the newest run"),
        ("LATEST", "the name of the newest run"),
        ("map.json", "which is part of a map"),
        ("rows", "which is part of a map"),
        (".hidden", "begin with a letter or digit"),
        ("a b", "has a character that isn't allowed"),
        ("é", "begin with a letter or digit"),
        (&long, "longer than 100"),
    ] {
        let ended = folder.legwork(&["run", "job.yaml"]).arg(format!("--key={key}")).run();
        ended.assert_code(2).assert_stdout("").assert_stderr_contains(why);
    }
    folder.legwork(&["run", "job.yaml", "--fresh"]).run().assert_code(2).assert_stderr_contains("--key");
    folder.legwork(RUN).args(["--save-case", "c"]).run().assert_code(2).assert_stderr_contains("--save-case");
    assert!(!folder.exists("runs") && !folder.exists("tests"));
}

#[test]
fn what_is_no_record_stays_as_it_is() {
    let folder = scripted("{ prompt: Go., tools: [] }", "", &json!([{"text": "Done."}]));
    folder
        .write("runs/job/file", "mine")
        .write("runs/job/map/map.json", "{}")
        .write("runs/job/notes/notes.txt", "mine");
    folder.write("elsewhere/job.yaml", "");
    // Whatever comes first when the folder is listed.
    for name in ["results.jsonl", "results.csv", "report.html", "rows/a/plan.json", "ledger/lock", "other"] {
        folder.write(&format!("runs/job/map/{name}"), "");
    }
    std::os::unix::fs::symlink("../../elsewhere", folder.at("runs/job/link")).unwrap();
    let before = folder.list();
    for (key, why) in [
        ("file", "isn't a folder"),
        ("map", "folder of a map"),
        ("notes", "contains `notes.txt`"),
        ("link", "isn't a folder"),
    ] {
        for more in [&[][..], &["--fresh"]] {
            let ended = folder.legwork(&["run", "job.yaml", "--key", key]).args(more).run();
            ended.assert_code(2).assert_stdout("").assert_stderr_contains(why);
        }
    }
    assert_eq!(folder.list(), before);
}

#[test]
fn a_run_that_was_killed_before_it_started_starts() {
    let folder = scripted("{ prompt: Go., tools: [] }", "", &json!([{"text": "Done."}]));
    // What a process leaves that is killed after it wrote the plan and half of the first event.
    folder
        .write("runs/job/k/job.yaml", "half")
        .write("runs/job/k/plan.json", "{")
        .write("runs/job/k/.tmp-legwork-a", "");
    folder.write("runs/job/k/events.jsonl", "{\"seq\":1,\"at\":\"20");
    folder.legwork(RUN).run().assert_code(0).assert_stdout("Done.\n");
    assert!(!record(&folder, "k").has(".tmp-legwork-a"));
    // And a run that can't start leaves nothing.
    std::fs::remove_file(folder.at("r.yaml")).unwrap();
    folder.legwork(&["run", "job.yaml", "--key", "other"]).run().assert_code(3);
    assert!(!folder.exists("runs/job/other"));
    assert_eq!(std::fs::read_link(folder.at("runs/job/latest")).unwrap().to_str(), Some("k"));
}

#[test]
fn a_dry_run_shows_the_plan_and_touches_nothing() {
    let folder =
        scripted("{ prompt: 'This is {{ run.id }} of {{ run.date }}.', tools: [] }", "", &json!([{"text": "Done."}]));
    let dry = folder.legwork(RUN).arg("--dry-run").run();
    dry.assert_code(0).assert_stdout_contains("This is k of <run.date>.");
    assert!(!folder.exists("runs"));
    folder.legwork(RUN).run().assert_code(0);
    assert!(record(&folder, "k").plan()["parent"]["prompt"].as_str().unwrap().starts_with("This is k of 20"));
    // The id and the day are those of the record.
    folder.legwork(RUN).run().assert_code(0).assert_stdout("Done.\n");
}

#[test]
fn the_workspace_may_be_elsewhere() {
    let folder = scripted(
        "{ prompt: 'Work in {{ workspace }} on {{ inputs.at }}.', tools: [bash] }",
        "inputs: { at: { type: path, default: . } }\n",
        &json!([{"calls": [killing()]}, {"calls": [{"tool": "bash", "input": {"command": "pwd > here"}}]}, {"text": "Done."}]),
    );
    folder.write("one/x", "").write("two/x", "");
    let run = |workspace: &str| folder.legwork(RUN).args(["--sandbox", "off", "--workspace", workspace]).run();
    assert_eq!(run("one").signal(), Some(9));
    run("two").assert_code(0).assert_stdout("Done.\n");
    assert_eq!(folder.read("two/here").trim_end(), folder.at("two").to_str().unwrap());
    run("one").assert_code(0).assert_stdout("Done.\n").assert_stderr_contains("has ended before");
}

#[test]
fn the_result_file_is_written_again() {
    let submit = json!([{"calls": [{"tool": "submit_result", "input": {"n": 1}}]}, {"text": "Said."}]);
    let rest = "result: { schema: { type: object, required: [n], properties: { n: { type: integer } } } }\n";
    let folder = scripted("{ prompt: Go., tools: [] }", rest, &submit);
    let run = || folder.legwork(RUN).args(["--result", "out.json"]).run();
    run().assert_code(0);
    let written = folder.read("out.json");
    folder.write("out.json", "stale");
    run().assert_code(0).assert_stderr_contains("has ended before");
    assert_eq!(folder.read("out.json"), written);
}

#[test]
fn only_records_that_were_made_here_answer() {
    let folder = scripted("{ prompt: Go., tools: [] }", "", &json!([{"text": "Done."}]));
    let run = |key: &str| folder.legwork(RUN).env("LEGWORK_RECORD_KEY", key).run();
    run("a key of a whole cluster").assert_code(0);
    run("a key of another cluster").assert_code(2).assert_stdout("").assert_stderr_contains("another key");
    run("a key of a whole cluster").assert_code(0).assert_stdout("Done.\n");
    // Without any key, a run couldn't be recognized later.
    let bare = folder.legwork(&["run", "job.yaml", "--key", "other"]).env_remove("HOME").run();
    bare.assert_code(2).assert_stderr_contains("LEGWORK_RECORD_KEY");
    assert!(!folder.exists("runs/job/other"));
}

#[test]
fn a_changed_secret_or_commit_stops_a_resume() {
    let folder = scripted(
        "{ prompt: Go., tools: [bash] }",
        "inputs: { token: { type: string, secret: true } }\n",
        &json!([{"calls": [killing()]}, {"text": "Over."}]),
    );
    folder.write(".gitignore", "runs\nlog\n").commit_all();
    let run =
        |secret: &str| folder.legwork(RUN).args(["--sandbox", "off", "--set-env", "token=T"]).env("T", secret).run();
    assert_eq!(run("hush-hush-hush").signal(), Some(9));
    run("other-other-other")
        .assert_code(2)
        .assert_stderr_contains("secrets have changed")
        .assert_stderr_contains("--fresh");
    folder.git(&["commit", "--quiet", "--allow-empty", "--message=more"]);
    run("hush-hush-hush").assert_code(2).assert_stderr_contains("is at commit").assert_stderr_contains("--fresh");
    folder.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    run("hush-hush-hush").assert_code(0).assert_stdout("Over.\n");
    record(&folder, "k").assert_absent("hush-hush-hush");
}

#[test]
fn commands_take_keys_and_rows() {
    let folder = scripted("{ prompt: Go., tools: [bash] }", "", &json!([{"calls": [killing()]}, {"text": "Over."}]));
    let run = |key: &str| folder.legwork(&["run", "job.yaml", "--sandbox", "off", "--key", key]).run();
    folder.write("other.yaml", "model: replay/q.yaml\nparent: { prompt: Go., tools: [] }\n");
    folder.write("q.yaml", json!({"parent": [{"text": "Earlier."}]}).to_string());
    folder.legwork(&["run", "other.yaml"]).run().assert_code(0);
    assert_eq!(run("a").signal(), Some(9));
    folder.legwork(&["show", "latest"]).run().assert_code(0).assert_not_printed("Earlier.");
    folder.legwork(&["show", "a"]).run().assert_code(0);
    folder.legwork(&["resume", "job/a"]).run().assert_code(0).assert_stdout("Over.\n");
    run("a").assert_code(0).assert_stdout("Over.\n");
    assert_eq!(run("row").signal(), Some(9));
    let newest = || {
        let diff = folder.legwork(&["diff", "latest", "a", "--format", "json"]).run();
        diff.assert_code(0).json()["runs"][0]["run_id"].clone()
    };
    assert_eq!(newest(), "row");
    std::fs::create_dir_all(folder.at("runs/job/m/rows")).unwrap();
    std::fs::rename(folder.at("runs/job/row"), folder.at("runs/job/m/rows/row")).unwrap();
    std::fs::remove_file(folder.at("runs/job/latest")).unwrap();
    let resumed = folder.legwork(&["resume", "m/row"]).run();
    resumed.assert_code(0).assert_stdout("Over.\n").assert_stderr_contains("runs/job/m/rows/row");
    for row in ["row", "m/row", "job/m/row"] {
        folder.legwork(&["replay", row]).run().assert_code(0);
        folder.legwork(&["show", row]).run().assert_code(0).assert_stdout_contains("Over.");
        folder.legwork(&["diff", "a", row]).run().assert_code(0);
    }
    folder.legwork(&["show", "x"]).run().assert_code(2).assert_stderr_contains("JOB/MAP/ROW");
    folder.write("runs/job/m/map.json", "{}");
    for map in ["m", "job/m", "runs/job/m"] {
        let shown = folder.legwork(&["show", map]).run();
        shown.assert_code(0).assert_stdout_contains("1 row: 1 completed");
    }
    std::fs::remove_dir_all(folder.at("runs/other")).unwrap();
    assert_eq!(newest(), "a", "rows don't count");
    std::fs::remove_dir_all(folder.at("runs/job/a")).unwrap();
    folder.legwork(&["show", "x"]).run().assert_code(2).assert_not_printed("there are no runs");
}

#[test]
fn an_absolute_path_as_an_input_is_the_same_in_another_workspace() {
    let folder = scripted(
        "{ prompt: 'Look at {{ inputs.at }}.', tools: [] }",
        "inputs: { at: { type: path } }\n",
        &json!([{"text": "Seen."}]),
    );
    folder.write("one/x", "").write("two/x", "").write("two/y", "");
    let run = |workspace: &str, file: &str| {
        let at = format!("at={}", folder.at(workspace).join(file).display());
        folder.legwork(RUN).args(["--workspace", workspace, "--set", &at]).run()
    };
    run("one", "x").assert_code(0);
    run("two", "x").assert_code(0).assert_stderr_contains("has ended before");
    run("two", "y").assert_code(2).assert_stderr_contains("inputs.at: \"x\" -> \"y\"");
}
