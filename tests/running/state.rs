//! The state that a job keeps between its runs: who reads and replaces it, and what becomes of it when something goes wrong.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::time::Duration;

use serde_json::{Value, json};

use crate::boundary::sandbox::path_without_bwrap;
use crate::support::program::{Program, ProgramOutput};
use crate::support::record::RunFolder;
use crate::support::test_folder::TestFolder;

const FILE: &str = "runs/job/state.json";
const STATE: &str =
    "state:\n  schema: { type: object, required: [n], properties: { n: { type: integer } } }\n  initial: { n: 0 }\n";

/// A folder with a job that keeps a state and has these keys in addition.
fn folder(more: &str) -> TestFolder {
    let folder = TestFolder::new();
    let parent = if more.contains("parent:") { "" } else { "parent: { prompt: 'State: {{ state }}', tools: [] }\n" };
    folder.write("job.yaml", format!("model: replay/job.script.yaml\n{STATE}{more}{parent}"));
    sets(&folder, 1);
    folder
}

/// From now on, a run sets the state to this number.
fn sets(folder: &TestFolder, n: u32) {
    let call = format!("{{ tool: set_state, input: {{ value: {{ n: {n} }} }} }}");
    folder.write("job.script.yaml", format!("parent:\n  - calls: [{call}]\n  - text: Done.\n"));
}

fn program(folder: &TestFolder, arguments: &[&str]) -> Program {
    folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).args(arguments)
}

fn run(folder: &TestFolder) -> ProgramOutput {
    program(folder, &[]).run()
}

fn file(n: i64) -> String {
    format!("{{\"format\":1,\"job\":\"job\",\"value\":{{\"n\":{n}}}}}\n")
}

/// The number in the file; `None` if there is no file.
fn saved(folder: &TestFolder) -> Option<i64> {
    let value: Value = folder.exists(FILE).then(|| serde_json::from_str(&folder.read(FILE)).unwrap())?;
    value["value"]["n"].as_i64()
}

fn state_of(record: &RunFolder) -> (Value, Value, Value) {
    let state = &record.result()["state"];
    (state["before"]["n"].clone(), state["after"]["n"].clone(), state["replaced"].clone())
}

fn assert_no_lock(folder: &TestFolder) {
    assert!(!folder.at("runs/job/.state.json.lock").exists());
}

#[test]
fn a_completed_run_leaves_its_state_to_the_next() {
    let folder = folder("");
    let first = run(&folder);
    first.assert_code(0);
    assert_eq!(folder.read(FILE), file(1));
    assert_eq!(state_of(&first.run_folder()), (json!(0), json!(1), json!(true)));
    sets(&folder, 2);
    let second = run(&folder);
    second.assert_code(0);
    assert_eq!(folder.read(FILE), file(2));
    let record = second.run_folder();
    let events = record.events();
    let of = |kind: &str| events.iter().find(|event| event["type"] == kind).unwrap()["data"].clone();
    assert_eq!(of("agent_started")["prompt"], "State: {\"n\":1}");
    assert_eq!((&of("state_read")["value"], &of("state_set")["value"]), (&json!({ "n": 1 }), &json!({ "n": 2 })));
    assert_eq!(record.result()["state"]["difference"], "@@ -1,3 +1,3 @@\n {\n-  \"n\": 1\n+  \"n\": 2\n }\n");
    for part in ["State at the start", "State for the next run", "+  \"n\": 2"] {
        assert!(record.transcript().contains(part), "{}", record.transcript());
        folder.legwork(&["show", "latest"]).run().assert_code(0).assert_stdout_contains(part);
    }
    assert!(record.file("report.html").contains("State for the next run"));
    assert_no_lock(&folder);
    // A replay needs no file and writes none, and what removes records spares it.
    std::fs::remove_file(folder.at("job.yaml")).unwrap();
    folder.write(FILE, file(7));
    folder.legwork(&["replay", "latest"]).run().assert_code(0).assert_stdout_contains("equal");
    folder.legwork(&["runs", "prune", "--keep", "0"]).run().assert_code(0);
    assert_eq!((saved(&folder), folder.records().len()), (Some(7), 0));
}

#[test]
fn only_a_completed_run_that_sets_a_state_replaces_it() {
    let folder =
        folder("skip_if: '{{ state.n == 5 }}'\nenv: [PASS]\nchecks: [{ name: c, run: 'test \"$PASS\" = yes' }]\n");
    program(&folder, &[]).env("PASS", "no").run().assert_code(1);
    assert_eq!(saved(&folder), None);
    folder.write(FILE, file(5));
    let skipped = run(&folder);
    skipped.assert_code(0);
    assert_eq!(state_of(&skipped.run_folder()), (json!(5), json!(5), json!(false)));
    folder.write(FILE, file(6)).write("job.script.yaml", "parent:\n  - text: Done.\n");
    let before = folder.read(FILE);
    let unset = program(&folder, &[]).env("PASS", "yes").run();
    unset.assert_code(0);
    assert_eq!(state_of(&unset.run_folder()), (json!(6), json!(6), json!(false)));
    assert_eq!(folder.read(FILE), before);
    assert_no_lock(&folder);
}

#[test]
fn a_call_is_refused_where_the_model_can_correct_it() {
    let folder = folder(
        "env: [API_TOKEN]\nparent: { prompt: 'State: {{ state }}', tools: [task] }\nsubagents:\n  a: { description: A., tools: [todo] }\n",
    );
    let job = folder.read("job.yaml");
    folder.write("job.yaml", job.replace("initial: { n: 0 }", "initial: { n: 0 }\n  max: 60B"));
    let call = |value: &str| format!("{{ tool: set_state, input: {{ value: {value} }} }}");
    let calls = [
        call("{ n: one }"),
        call("[1]"),
        call("{ n: 1, a: 'a text that is longer than the sixty bytes of the state' }"),
        call("{ n: 1, a: very-secret-12345 }"),
        call("{ n: 2 }"),
        call("{ n: 3 }"),
    ];
    folder.write(
        "job.script.yaml",
        format!(
            "parent:\n  - calls: [{}]\n  - calls: [{{ tool: task, input: {{ agent: a, prompt: Go. }} }}]\n  - text: Done.\nsubagents:\n  a-1:\n    \
             - calls: [{{ tool: set_state, input: {{ value: {{ n: 9 }} }}, mistaken: true }}]\n    - text: Done.\n",
            calls.join(", ")
        ),
    );
    let ended = program(&folder, &[]).env("API_TOKEN", "very-secret-12345").run();
    ended.assert_code(0);
    let record = ended.run_folder();
    let events = record.events();
    let calls = |kind: &str| {
        let of_kind: Vec<&Value> =
            events.iter().filter(|event| event["type"] == kind && event["data"]["tool"] == "set_state").collect();
        of_kind.into_iter().map(|event| event["data"].clone()).collect::<Vec<_>>()
    };
    // They end in any order.
    let ends = calls("call_finished");
    let answer = |started: &Value| {
        ends.iter().find(|end| end["result"]["call_id"] == started["call_id"]).unwrap()["result"]["text"].to_string()
    };
    let answers: Vec<String> = calls("call_started").iter().map(answer).collect();
    let whys = [
        "/value/n: expected a whole number",
        "/value: expected an object",
        "the limit is 60",
        "it contains the value of a secret",
        "Accepted",
        "Accepted",
    ];
    assert_eq!(answers.len(), whys.len());
    for (answer, why) in answers.iter().zip(whys) {
        assert!(answer.contains(why), "{why}: {answer}");
    }
    assert!(record.events_of("a-1").iter().any(|event| event.to_string().contains("unknown tool `set_state`")));
    assert_eq!(saved(&folder), Some(3), "the last one counts");
    assert!(!folder.read(FILE).contains("secret"));
}

#[test]
fn a_file_that_is_not_the_state_of_the_job_is_refused_and_stays() {
    let folder = folder("");
    for (content, why) in [
        ("{", "this isn't the state of a job: EOF"),
        ("", "this isn't the state of a job: EOF"),
        ("{\"format\":1,\"job\":\"job\"}", "missing field `value`"),
        ("{\"format\":1,\"job\":\"job\",\"value\":1,\"more\":2}", "unknown field `more`"),
        ("{\"format\":9,\"job\":\"job\",\"value\":1}", "the format of the state is 9"),
        ("{\"format\":1,\"job\":\"other\",\"value\":1}", "this is the state of the job `other`, not of `job`"),
        ("{\"format\":1,\"job\":\"job\",\"value\":[1]}", "the state doesn't fit the schema"),
    ] {
        folder.write(FILE, content);
        run(&folder).assert_code(5).assert_stderr_contains(why);
        assert_eq!(folder.read(FILE), content);
        assert_no_lock(&folder);
    }
    let records = folder.records().len();
    let large = format!("{{\"format\":1,\"job\":\"job\",\"value\":{{\"n\":1,\"a\":\"{}\"}}}}", "x".repeat(300_000));
    folder.write(FILE, &large);
    run(&folder).assert_code(5).assert_stderr_contains("and the limit is 256000");
    folder.write(FILE, vec![b' '; 5 << 20]);
    run(&folder).assert_code(5).assert_stderr_contains("it is larger than 4 MiB");
    std::fs::remove_file(folder.at(FILE)).unwrap();
    folder.write("elsewhere.json", file(4));
    symlink(folder.at("elsewhere.json"), folder.at(FILE)).unwrap();
    run(&folder).assert_code(5).assert_stderr_contains("it isn't a regular file");
    std::fs::remove_file(folder.at(FILE)).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, folder.at(FILE), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    run(&folder).assert_code(5).assert_stderr_contains("it isn't a regular file");
    std::fs::remove_file(folder.at(FILE)).unwrap();
    std::fs::create_dir(folder.at(FILE)).unwrap();
    run(&folder).assert_code(5).assert_stderr_contains("it isn't a regular file");
    folder.write("runs/job/.other.json.lock", "");
    program(&folder, &["--state", "runs/job/other.json"])
        .run()
        .assert_code(5)
        .assert_stderr_contains("can't be used as its lock");
    program(&folder, &["--state", "no/folder/state.json"])
        .run()
        .assert_code(5)
        .assert_stderr_contains("its folder can't be opened");
    assert_eq!(folder.records().len(), records, "no record is left");
}

#[test]
fn a_second_run_is_told_to_come_back() {
    let folder = folder("before: [{ name: n, run: 'touch begun; while ! test -e go; do sleep 0.02; done' }]\n");
    let first = program(&folder, &[]).spawn();
    folder.wait_for("begun");
    let second = run(&folder);
    second.assert_code(75).assert_stderr_contains("another run of this job is using its state");
    assert_eq!(folder.records().len(), 1, "the second has left no record");
    program(&folder, &["--key", "k"]).run().assert_code(75);
    folder.legwork(&["run", "job.yaml", "--dry-run"]).run().assert_code(0);
    folder.write("go", "");
    first.wait().assert_code(0);
    assert_eq!(saved(&folder), Some(1));
    run(&folder).assert_code(0);
}

#[test]
fn twenty_processes_replace_it_one_after_the_other() {
    let folder = folder("");
    let start = |n: u32| {
        let call = format!("{{ tool: set_state, input: {{ value: {{ n: {n} }} }} }}");
        folder.write(&format!("{n}.yaml"), format!("parent:\n  - calls: [{call}]\n  - text: Done.\n"));
        program(&folder, &["--key", &format!("k{n}"), "--model", &format!("replay/{n}.yaml")]).spawn()
    };
    let running: Vec<_> = (1..=20).map(|n| (n, start(n))).collect();
    let mut after = BTreeMap::new();
    for (n, running) in running {
        let ended = running.wait();
        if ended.exited_with(75) {
            assert!(!folder.at(format!("runs/job/k{n}")).exists(), "{}", ended.full_output());
            continue;
        }
        ended.assert_code(0);
        let (before, now, _) = state_of(&RunFolder::new(folder.at(format!("runs/job/k{n}"))));
        assert_eq!(now, n);
        assert_eq!(after.insert(before.as_i64().unwrap(), i64::from(n)), None, "two runs began with {before}");
    }
    let mut last = 0;
    for _ in 0..after.len() {
        last = after[&last];
    }
    assert!(!after.is_empty() && saved(&folder) == Some(last), "{after:?}");
    assert_no_lock(&folder);
}

/// The operation on the disk from which on a run is killed: others are killed at the ones before.
const FIRST_OPERATION: u32 = 13;

/// Kills a run at each of its events or operations, and then calls this. Returns how many there are.
fn killed_at_each(variable: &str, then: impl Fn(&TestFolder, &RunFolder)) -> u32 {
    let first = if variable == "LEGWORK_KILL_AT" { FIRST_OPERATION } else { 1 };
    for at in first.. {
        let folder = folder("");
        let killed =
            program(&folder, &["--key", "a"]).env(variable, at.to_string()).timeout(Duration::from_secs(30)).run();
        if killed.signal() != Some(9) {
            return at;
        }
        then(&folder, &RunFolder::new(folder.at("runs/job/a")));
    }
    0
}

/// Whether the journal of a run says that it has completed.
fn has_completed(record: &RunFolder) -> bool {
    let journal = if record.has("events.jsonl") { record.file("events.jsonl") } else { String::new() };
    // The last line may be torn.
    journal.lines().any(|line| line.contains("\"type\":\"run_finished\"") && line.ends_with('}'))
}

#[test]
fn the_state_of_a_killed_run_is_saved_once_by_the_same_command() {
    for variable in ["LEGWORK_KILL_AFTER", "LEGWORK_KILL_AT"] {
        let points = killed_at_each(variable, |folder, record| {
            program(folder, &["--key", "a"]).run().assert_code(0);
            assert_eq!((saved(folder), state_of(record)), (Some(1), (json!(0), json!(1), json!(true))));
            // It isn't saved a second time.
            folder.write(FILE, file(0));
            program(folder, &["--key", "a"]).run().assert_code(0);
            folder.legwork(&["resume", "a"]).run().assert_code(0);
            assert_eq!(saved(folder), Some(0));
            assert_no_lock(folder);
        });
        assert!(points > 8, "{variable}: {points}");
    }
}

#[test]
fn the_state_of_a_killed_run_is_saved_by_resume_or_the_next_run() {
    killed_at_each("LEGWORK_KILL_AFTER", |folder, record| {
        if !record.has("events.jsonl") {
            return;
        }
        folder.legwork(&["resume", "a", "--sandbox", "off"]).run().assert_code(0);
        assert_eq!(saved(folder), Some(1));
        assert_no_lock(folder);
    });
    killed_at_each("LEGWORK_KILL_AT", |folder, record| {
        let completed = has_completed(record);
        sets(folder, 2);
        let next = run(folder);
        next.assert_code(0);
        let (before, ..) = state_of(&RunFolder::new(folder.at("runs/job/latest").canonicalize().unwrap()));
        assert_eq!(before == 1, completed, "{}", next.full_output());
        assert_eq!(saved(folder), Some(2));
        // Nothing of the first run comes back by itself.
        sets(folder, 1);
        if completed {
            program(folder, &["--key", "a"]).run().assert_code(0);
            assert_eq!(saved(folder), Some(2));
        } else if record.has("events.jsonl") && record.file("events.jsonl").contains("\"type\":\"state_read\"") {
            let refused = folder.legwork(&["resume", "a", "--sandbox", "off"]).run();
            refused.assert_code(2).assert_stderr_contains("the state of the job has changed since the run has read it");
            program(folder, &["--key", "a"]).run().assert_code(2);
            assert_eq!(saved(folder), Some(2));
            folder.legwork(&["resume", "a", "--sandbox", "off", "--force"]).run().assert_code(0);
            assert_eq!(saved(folder), Some(1));
        }
    });
}

#[test]
fn a_full_disk_loses_no_state() {
    for variable in ["LEGWORK_FAIL_AT", "LEGWORK_FAIL_ONCE_AT"] {
        for at in FIRST_OPERATION.. {
            let folder = folder("");
            let failed = program(&folder, &["--key", "a"]).env(variable, at.to_string()).run();
            if failed.exited_with(0) {
                assert!(at > FIRST_OPERATION + 8, "{at}");
                break;
            }
            failed.assert_code(5);
            program(&folder, &["--key", "a"]).run().assert_code(0);
            assert_eq!(saved(&folder), Some(1), "{at}: {}", failed.full_output());
            assert_no_lock(&folder);
        }
    }
}

#[test]
fn a_file_that_changes_during_the_run_is_not_overwritten() {
    let folder = folder("before: [{ name: n, run: 'touch begun; while ! test -e go; do sleep 0.02; done' }]\n");
    let first = program(&folder, &["--key", "a"]).spawn();
    folder.wait_for("begun");
    folder.write(FILE, file(8)).write("go", "");
    let ended = first.wait();
    ended
        .assert_code(5)
        .assert_stderr_contains("its state can't be saved")
        .assert_stderr_contains("it has changed since");
    assert_eq!(saved(&folder), Some(8));
    let refused = folder.legwork(&["resume", "a", "--sandbox", "off"]).run();
    refused.assert_code(2).assert_stderr_contains("the state of the job has changed");
    let next = program(&folder, &["--before-only"]).run();
    next.assert_code(0);
    folder.legwork(&["resume", "a", "--sandbox", "off", "--force"]).run().assert_code(0).assert_stdout("Done.\n");
    assert_eq!(saved(&folder), Some(1));
    assert_no_lock(&folder);
}

#[test]
fn another_key_saves_nothing() {
    let folder = folder("");
    // After the last line of the journal.
    let killed = (1..40)
        .map(|at| program(&folder, &["--key", &format!("k{at}")]).env("LEGWORK_KILL_AFTER", at.to_string()).run());
    let is_last = |ended: &ProgramOutput| {
        ended.signal() == Some(9) && folder.records().iter().any(|record| has_completed(&RunFolder::new(record)))
    };
    let mut killed = killed;
    assert!(killed.any(|ended| is_last(&ended)));
    assert_eq!(saved(&folder), None);
    sets(&folder, 2);
    let next = program(&folder, &[]).env("LEGWORK_RECORD_KEY", "another-key-of-sixteen").run();
    next.assert_code(0).assert_stderr_contains("its record was made elsewhere");
    assert_eq!(state_of(&next.run_folder()).0, 0);
}

#[test]
fn what_runs_many_rows_or_trusts_nobody_has_no_state() {
    let folder = folder("inputs: { a: { type: string, default: x } }\n");
    folder.write("rows.csv", "a\n1\n");
    let map = folder.legwork(&["map", "job.yaml", "--rows", "rows.csv"]).run();
    map.assert_code(2).assert_stderr_contains("a map can't run a job with `state`");
    let emit = folder.legwork(&["emit", "github", "job.yaml", "--rows", "rows.csv", "--shards", "1"]).run();
    emit.assert_code(2).assert_stderr_contains("a map can't run a job with `state`");
    assert!(!folder.exists("runs"));
    let refused = folder.legwork(&["validate", "job.yaml", "--untrusted"]).run();
    refused.assert_code(3).assert_stdout_contains("an untrusted job can't keep a state");
    program(&folder, &["--key", "state.json"])
        .run()
        .assert_code(2)
        .assert_stderr_contains("the file of the job's state");
}

#[test]
fn the_dry_run_shows_the_file_and_its_size() {
    let folder = folder("");
    let shown = || folder.legwork(&["run", "job.yaml", "--dry-run"]).run();
    shown()
        .assert_code(0)
        .assert_stdout_contains("state.json (no file yet: the first value is `initial`; at most 256000 bytes)");
    assert!(!folder.exists("runs"));
    folder.write(FILE, file(12));
    shown()
        .assert_stdout_contains("state.json (8 bytes; at most 256000 bytes)")
        .assert_stdout_contains("keeps       the state, with `set_state`");
    folder.write(FILE, "{");
    shown().assert_code(5).assert_stderr_contains("this isn't the state of a job");
    folder
        .write("job.yaml", "model: replay/job.script.yaml\nparent: { prompt: Go., tools: [] }\n")
        .write("job.script.yaml", "parent:\n  - text: Done.\n");
    program(&folder, &["--state", "x.json"]).run().assert_code(0).assert_stderr_contains("the job keeps no state");
}

#[test]
fn commands_and_tools_can_not_write_the_file() {
    let programs = path_without_bwrap(&folder(""));
    for (file, tier) in
        [(FILE, None), ("data/kept.json", None), (FILE, Some(&programs)), ("data/kept.json", Some(&programs))]
    {
        for attack in ["echo x > FILE", "rm -f FILE", "mv FILE FILE.old", "echo '{}' > data/new; cat data/new > FILE"] {
            let folder = folder("parent: { prompt: 'State: {{ state }}', tools: [bash, write_file, grep] }\n");
            let command = attack.replace("FILE", file).replace("rm ", "/bin/rm ").replace("mv ", "/bin/mv ");
            folder.write("data/x", "").write(file, self::file(3)).write(
                "job.script.yaml",
                format!(
                    "parent:\n  - calls: [{{ tool: write_file, input: {{ path: {file}, content: x }} }}, {{ tool: grep, input: {{ pattern: pid }} }}, {{ tool: bash, input: {{ \
                     command: \"{command}\" }} }}]\n  - calls: [{{ tool: set_state, input: {{ value: {{ n: 4 }} }} }}]\n  - text: Done.\n"
                ),
            );
            let mut run = folder.legwork(&["run", "job.yaml", "--state", file]);
            if let Some(programs) = tier {
                run = run.env("PATH", programs);
            }
            let ended = run.run();
            if ended.stderr.contains("can't be used")
                || ended.exited_with(5) && ended.stderr.contains("sandbox_unavailable")
            {
                eprintln!("skipped: no sandbox here");
                return;
            }
            let kept: Value = serde_json::from_str(&folder.read(file)).unwrap();
            let n = kept["value"]["n"].as_i64();
            // In landlock a change ends the run, and is undone.
            assert!(
                n == Some(4) && ended.exited_with(0) || n == Some(3) && ended.exited_with(5),
                "{command}: {n:?} {}",
                ended.full_output()
            );
            if ended.exited_with(0) {
                let changes = ended.run_folder().result()["changes"].to_string();
                assert!(!changes.contains("kept.json") && !changes.contains("lock"), "{changes}");
            }
        }
    }
}

#[test]
fn a_case_gives_a_state_and_expects_one() {
    let folder = folder("");
    folder
        .write("tests/job/some/script.yaml", folder.read("job.script.yaml"))
        .write("tests/job/some/expect.yaml", "state: { is: { n: 1 } }\ntools: { set_state: 1 }\n")
        .write("tests/job/some/state.json", file(41));
    folder.legwork(&["test"]).run().assert_code(0);
    folder.write("tests/job/some/expect.yaml", "state: { has: { n: 2 } }\n");
    folder.legwork(&["test"]).run().assert_code(1).assert_stdout_contains("the state doesn't match at `/n`");
    folder.write("tests/job/some/state.json", "{\"format\":1,\"job\":\"job\",\"value\":{\"n\":\"a\"}}");
    folder
        .legwork(&["test"])
        .run()
        .assert_code(3)
        .assert_stderr_contains("the value doesn't fit the schema of the state");
    std::fs::remove_dir_all(folder.at("tests")).unwrap();
    folder.write(FILE, file(6));
    program(&folder, &["--save-case", "saved"]).run().assert_code(0);
    assert_eq!(folder.read("tests/job/saved/state.json"), file(6));
    assert!(folder.read("tests/job/saved/expect.yaml").contains("state:\n  is:\n    n: 1\n"));
    folder.legwork(&["test"]).run().assert_code(0);
    assert_eq!(saved(&folder), Some(1), "a case writes no file");
}
