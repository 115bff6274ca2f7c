//! Runs that are cut off anywhere and go on.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::folder::Folder;
use crate::support::program::Ended;
use crate::support::server::{Answer, Checks, Request, Script, Server};

/// A parent that has work done by four subagents, three of them side by side, and works itself.
const JOB: &str = r#"
model: anthropic/claude-haiku-4-5
parent: { prompt: Go., tools: [task, bash, read_file, write_file], max_turns: 60 }
subagents:
  worker: { tools: [bash, read_file, todo] }
limits: { tokens: 100000 }
"#;

fn bash(mark: &str) -> Value {
    json!({ "tool": "bash", "input": { "command": format!("echo {mark} >> log") } })
}

fn task(prompt: &str) -> Value {
    json!({ "tool": "task", "input": { "prompt": prompt, "description": prompt } })
}

fn script() -> Value {
    let reading = json!({ "tool": "read_file", "input": { "path": "job.yaml" } });
    let worker = |name: &str| {
        json!([
            { "calls": [bash(&format!("{name}-a")), reading.clone()] },
            { "calls": [bash(&format!("{name}-b")), bash(&format!("{name}-c"))] },
            { "text": format!("{name} is done.") },
        ])
    };
    json!({
        "parent": [
            { "text": "First.", "calls": [bash("one"), task("a"), task("b"), task("c"), reading.clone(), bash("two")] },
            { "calls": [reading.clone(), reading.clone()] },
            { "calls": [bash("three"), { "tool": "write_file", "input": { "path": "new", "content": "x" } }, task("d")] },
            { "calls": [bash("four")] },
            { "text": "All done." },
        ],
        "subagents": {
            "worker-1": worker("a"), "worker-2": worker("b"), "worker-3": worker("c"), "worker-4": worker("d"),
        },
    })
}

fn prepared() -> Folder {
    let folder = Folder::new();
    folder.write("job.yaml", JOB).write("replies.yaml", script().to_string());
    folder
}

const RUN: &[&str] = &["run", "job.yaml", "--model", "replay/replies.yaml"];

/// What commands have done, each in its order.
fn effects(folder: &Folder) -> Vec<String> {
    if folder.exists("log") { folder.read("log").lines().map(str::to_owned).collect() } else { Vec::new() }
}

/// Nothing was done twice.
fn once(folder: &Folder, why: &str) {
    let mut effects = effects(folder);
    let all = effects.len();
    effects.sort();
    effects.dedup();
    assert_eq!(effects.len(), all, "{why}: {}", folder.read("log"));
}

/// How many events a whole run writes.
fn events() -> u64 {
    let folder = prepared();
    let ended = folder.legwork(RUN).run();
    ended.code(0).stdout_is("All done.\n");
    let record = ended.run_folder();
    let ids = ["worker-1", "worker-2", "worker-3", "worker-4"];
    let children: usize = ids.iter().map(|id| record.events_of(id).len()).sum();
    (record.events().len() + children) as u64
}

/// The end of a run that was cut off and has gone on: as if nothing had happened, but for calls that may have been made.
fn whole(ended: &Ended, folder: &Folder, why: &str) {
    ended.code(0).stdout_is("All done.\n");
    once(folder, why);
    let record = ended.run_folder();
    let result = record.result();
    assert_eq!(result["outcome"], "completed", "{why}");
    assert_eq!(result["turns"], 5, "{why}");
    let children: Vec<&str> =
        result["subagents"].as_array().unwrap().iter().map(|child| child["id"].as_str().unwrap()).collect();
    assert_eq!(children, ["worker-1", "worker-2", "worker-3", "worker-4"], "{why}");
    for child in children {
        assert!(record.summary(child).contains(" is done."), "{why}: {child}");
    }
    let interrupted = record.transcript().matches("was cut off while this call").count();
    let of_children: usize = ["worker-1", "worker-2", "worker-3", "worker-4"]
        .map(|id| record.events_of(id).iter().filter(|event| event.to_string().contains("was cut off while")).count())
        .iter()
        .sum();
    // Every command has had its effect, or the model was told that it may not have.
    assert!(effects(folder).len() + interrupted + of_children >= 16, "{why}: {:?}", effects(folder));
}

/// Cuts a run off after so many events, then lets it go on.
fn cut_and_resume(after: u64) {
    let folder = prepared();
    let why = format!("cut off after {after} events");
    let cut = folder.legwork(RUN).env("LEGWORK_KILL_AFTER", after.to_string()).run();
    assert_eq!(cut.signal(), Some(9), "{why}: {}", cut.stderr);
    let ended = folder.legwork(&["resume", "latest"]).run();
    whole(&ended, &folder, &why);
}

#[test]
fn a_run_that_is_killed_after_any_event_goes_on() {
    let all = events();
    assert!(all > 60, "{all}");
    let threads: Vec<_> = (0..4)
        .map(|first| {
            std::thread::spawn(move || {
                let mut after = first + 1;
                while after < all {
                    cut_and_resume(after);
                    after += 4;
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// The job as far as a loopback server answers it: `Answer`s in turn, one agent.
fn served(tools: &str) -> Folder {
    let folder = Folder::new();
    folder.write(
        "job.yaml",
        format!("model: anthropic/claude-haiku-4-5\nparent: {{ prompt: Go., tools: [{tools}] }}\nlimits: {{ tokens: 100000 }}\n"),
    );
    folder
}

#[test]
fn a_kill_in_a_tool_tells_the_model_and_asks_no_reply_twice() {
    let folder = served("bash");
    let server = Server::with(
        Checks::AllButRepeats,
        Script::of([
            Answer::calls(&[("bash", json!({"command": "echo begun >> log; kill -9 $PPID; sleep 61"}))]),
            Answer::text("Gone on."),
        ]),
    );
    // A sandbox would keep the command from it.
    let cut = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).provider(&server).run();
    assert_eq!(cut.signal(), Some(9));
    assert!(!cut.run_folder().has("result.json"));
    let ended = folder.legwork(&["resume", "latest"]).provider(&server).run();
    ended.code(0).stdout_is("Gone on.\n");
    assert_eq!(folder.read("log"), "begun\n");
    let requests = server.finish();
    assert_eq!(requests.len(), 2, "the recorded reply isn't asked for again");
    let results = requests[1].results();
    assert!(results.len() == 1 && results[0].is_error && results[0].text.contains("effect is unknown"), "{results:?}");
    let result = ended.run_folder().result();
    assert_eq!((&result["turns"], &result["tool_calls"]), (&json!(2), &json!(1)));
}

#[test]
fn a_kill_in_a_request_asks_again_and_counts_what_it_had_reserved() {
    let folder = served("");
    let first = std::sync::atomic::AtomicBool::new(true);
    let server = Server::with(Checks::AllButRepeats, move |_: &Request| {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            Answer::empty().hang()
        } else {
            Answer::text("Now.")
        }
    });
    let running = folder.legwork(&["run", "job.yaml"]).provider(&server).spawn();
    server.wait_for(1);
    running.signal(Signal::KILL);
    let cut = running.wait();
    let asked = cut.run_folder().events().into_iter().find(|event| event["type"] == "asked").unwrap();
    let ended = folder.legwork(&["resume", "job/latest"]).provider(&server).run();
    ended.code(0).stdout_is("Now.\n");
    let usage = &ended.run_folder().result()["usage"];
    assert!(usage["output_tokens"].as_u64().unwrap() >= 8_000, "{usage}");
    let used: u64 = usage.as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert!(used > asked["data"]["reserved_tokens"].as_u64().unwrap(), "{usage}");
    assert!(ended.run_folder().result()["cost_usd"].as_f64().unwrap() > 0.04, "8,000 output tokens at $5 a million");
}

#[test]
fn a_run_that_a_signal_or_its_provider_ended_goes_on() {
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
    let server = Server::with(Checks::AllButRepeats, move |_: &Request| {
        answers.lock().unwrap().next().expect("one request more")
    });
    folder.legwork(&["run", "job.yaml"]).provider(&server).run().code(5).stderr_has("no credit");
    let running = folder.legwork(&["resume", "latest"]).provider(&server).spawn();
    server.wait_for(3);
    running.signal(Signal::TERM);
    running.wait().code(143);
    let ended = folder.legwork(&["resume", "latest"]).provider(&server).run();
    ended.code(0).stdout_is("At last.\n");
    assert_eq!(folder.read("log"), "one\ntwo\n");
    assert_eq!(server.finish().len(), 5);
    let record = ended.run_folder();
    assert_eq!(record.events().iter().filter(|event| event["type"] == "resumed").count(), 2);
    assert_eq!(record.result()["turns"], 3);
    assert_eq!(record.transcript().matches("## Resumed at ").count(), 2);
}

#[test]
fn a_run_that_has_ended_says_so_with_its_exit_code() {
    let folder = prepared();
    folder.legwork(RUN).run().code(0);
    let before = folder.legwork(&["show"]).run().stdout;
    folder.legwork(&["resume", "latest"]).run().code(0).stdout_is("").stderr_has("has ended: completed");
    folder.write("job.yaml", JOB.replace("max_turns: 60", "max_turns: 1"));
    folder.legwork(RUN).run().code(4);
    folder.legwork(&["resume", "latest"]).run().code(4).stdout_is("").stderr_has("has ended: turn_limit");
    folder.legwork(&["resume", "nonesuch"]).run().code(2);
    assert!(before.contains("All done."));
}

#[test]
fn a_run_that_goes_on_can_be_cut_off_again_and_again() {
    let folder = prepared();
    let mut next: &[&str] = RUN;
    for cut in 0..200 {
        let ended = folder.legwork(next).env("LEGWORK_KILL_AFTER", "3").run();
        if ended.signal().is_none() {
            assert!(cut > 10, "it was cut off {cut} times");
            return whole(&ended, &folder, "cut off after every third event");
        }
        next = &["resume", "latest"];
    }
    panic!("it never ends");
}

#[test]
fn a_run_is_not_resumed_while_it_goes_on() {
    let folder = served("");
    let server = Server::start(|_: &Request| Answer::empty().hang());
    let running = folder.legwork(&["run", "job.yaml"]).provider(&server).spawn();
    server.wait_for(1);
    folder.legwork(&["resume", "latest"]).provider(&server).run().code(5).stderr_has("still going on");
    running.signal(Signal::KILL);
    running.wait();
}

#[test]
fn another_commit_is_refused_unless_forced() {
    let folder = prepared();
    folder.commit_all();
    folder.legwork(RUN).env("LEGWORK_KILL_AFTER", "12").run();
    folder.git(&["commit", "--quiet", "--allow-empty", "--message=more"]);
    folder.legwork(&["resume", "latest"]).run().code(2).stdout_is("").stderr_has("--force");
    let ended = folder.legwork(&["resume", "latest", "--force"]).run();
    whole(&ended, &folder, "forced");
}

#[test]
fn a_secret_input_has_to_be_given_again() {
    let folder = Folder::new();
    folder.write("job.yaml", "model: anthropic/claude-haiku-4-5\ninputs: { token: { type: string, secret: true } }\nparent: { prompt: Go., tools: [bash] }\n");
    folder.write("replies.yaml", "parent:\n  - calls: [{ tool: bash, input: { command: kill -9 $PPID } }]\n  - calls: [{ tool: bash, input: { command: 'echo $INPUT_TOKEN > said' } }]\n  - text: Over.\n");
    let given = |line: &[&str]| folder.legwork(line).arg("--set-env").arg("token=T").env("T", "hush-hush-hush");
    let give = |line: &[&str]| given(line).run();
    // A sandbox would keep the command from it.
    assert_eq!(given(RUN).args(["--sandbox", "off"]).run().signal(), Some(9));
    folder.legwork(&["resume", "latest"]).run().code(3).stderr_has("--set-env token=VARIABLE");
    folder.legwork(&["resume", "latest", "--set", "other=x"]).run().code(3).stderr_has("`other` is no secret input");
    let ended = give(&["resume", "latest"]);
    ended.code(0).stdout_is("Over.\n");
    assert_eq!(folder.read("said"), "hush-hush-hush\n");
    ended.run_folder().nowhere("hush-hush-hush");
}

#[test]
fn a_journal_that_is_cut_at_any_byte_goes_on_or_says_why_not() {
    let whole_run = prepared();
    whole_run.legwork(RUN).run().code(0);
    let latest = whole_run.at("runs/job/latest").canonicalize().unwrap();
    let journal = std::fs::read(latest.join("events.jsonl")).unwrap();
    let cuts: Vec<usize> = (0..40).map(|part| journal.len() * part / 40 + part % 7).collect();
    for cut in cuts {
        let folder = prepared();
        let copy = folder.at("runs/job/20260101-000000-aaaaaa");
        copy_all(&latest, &copy);
        std::fs::remove_file(copy.join("result.json")).unwrap();
        std::fs::write(copy.join("events.jsonl"), &journal[..cut]).unwrap();
        std::os::unix::fs::symlink("20260101-000000-aaaaaa", folder.at("runs/job/latest")).unwrap();
        let ended = folder.legwork(&["resume", "latest", "--workspace", ".", "--force"]).run();
        let has_begun = journal[..cut].contains(&b'\n');
        if has_begun {
            ended.code(0).stdout_is("All done.\n");
            once(&folder, &format!("cut at {cut}"));
        } else {
            ended.code(2).stderr_has("start the job anew");
        }
    }
}

#[test]
fn a_journal_that_was_changed_is_refused() {
    let folder = prepared();
    folder.legwork(RUN).env("LEGWORK_KILL_AFTER", "12").run();
    let path = folder.at("runs/job/latest/events.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("echo one", "echo 0ne", 1)).unwrap();
    folder.legwork(&["resume", "latest"]).run().code(2).stdout_is("").stderr_has("was changed after it was written");
    assert!(!folder.exists("log") || folder.read("log") == "one\n");
}

fn copy_all(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A disk that fails at any operation ends the run before its next step, and what was recorded goes on elsewhere.
#[test]
fn a_disk_that_fails_at_any_operation_loses_nothing() {
    let mut operation = 1;
    loop {
        let folder = prepared();
        let failed = folder.legwork(RUN).env("LEGWORK_FAIL_AT", operation.to_string()).run();
        let why = format!("the disk fails at operation {operation}");
        once(&folder, &why);
        if failed.stdout == "All done.\n" && folder.at("runs/job/latest/result.json").exists() {
            failed.code(0);
            assert!(operation > 100, "only {operation} operations");
            return;
        }
        failed.code(5);
        let resumed = folder.legwork(&["resume", "latest"]).run();
        if folder.exists("runs/job/latest/events.jsonl") && folder.read("runs/job/latest/events.jsonl").contains('\n') {
            whole(&resumed, &folder, &why);
        } else {
            resumed.code(2);
        }
        operation += 1 + operation / 12;
    }
}
