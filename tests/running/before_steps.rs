//! Steps before the agent: their values, files and failures, and runs that are skipped because there is nothing to do.

use serde_json::{Value, json};

use crate::boundary::sandbox::path_without_bwrap;
use crate::support::bubblewrap::bubblewrap_works;
use crate::support::program::{Program, ProgramOutput};
use crate::support::test_folder::TestFolder;

/// A folder with a job that has these keys, and a script with one reply.
fn folder(more: &str) -> TestFolder {
    let folder = TestFolder::new();
    let prompt = if more.contains("parent:") { "" } else { "parent: { prompt: 'Go {{ before.n }}', tools: [] }\n" };
    folder
        .write("job.yaml", format!("model: anthropic/claude-haiku-4-5\nlimits: {{ tokens: 1000000 }}\n{more}{prompt}"))
        .write("replies.yaml", "parent:\n  - text: Done.\n");
    folder
}

fn program(folder: &TestFolder, arguments: &[&str]) -> Program {
    folder.legwork(&["run", "job.yaml", "--model", "replay/replies.yaml"]).args(arguments)
}

/// Most runs have no sandbox, which would slow each command.
fn run(folder: &TestFolder) -> ProgramOutput {
    program(folder, &["--sandbox", "off"]).run()
}

fn prompt(ended: &ProgramOutput) -> String {
    let events = ended.run_folder().events();
    let started = events.iter().find(|event| event["type"] == "agent_started").expect("an agent");
    started["data"]["prompt"].as_str().unwrap().to_owned()
}

fn kinds(ended: &ProgramOutput) -> Vec<String> {
    ended.run_folder().events().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn values_are_text_or_json_and_inputs_are_variables() {
    let folder = folder(
        "inputs:\n  topic: { type: string, default: dogs }\nbefore:\n  - { name: n, run: 'printf \"%s\\n\\n\" \"$INPUT_TOPIC\"; echo people >&2' }\n  \
         - { name: list, run: 'echo \"[{\\\"a\\\": 1}]\"', schema: { type: array } }\nparent: { prompt: '{{ before.n }}|{{ before.list }}|\
         {{ before.list[0].a }}', tools: [] }\n",
    );
    let ended = run(&folder);
    ended.assert_code(0).assert_stdout("Done.\n");
    assert_eq!(prompt(&ended), "dogs\n|[{\"a\":1}]|1");
    let events = ended.run_folder().events();
    let finished = events.iter().find(|event| event["type"] == "before_finished").unwrap();
    assert_eq!((&finished["data"]["value"], &finished["data"]["stderr"]), (&json!("dogs\n"), &json!("people\n")));
    let steps = &ended.run_folder().result()["before"];
    assert_eq!((&steps[0]["name"], &steps[1]["passed"]), (&json!("n"), &json!(true)));
    assert!(ended.run_folder().transcript().contains("step list"), "{}", ended.run_folder().transcript());
    folder.legwork(&["replay", "latest"]).run().assert_code(0).assert_stdout_contains("equal");
}

#[test]
fn a_skipped_run_needs_no_key_and_asks_nothing() {
    let folder = folder(
        "before: [{ name: n, run: 'echo \"[]\"', schema: { type: array } }]\nskip_if: '{{ before.n | length == 0 }}'\n",
    );
    let run = |arguments: &[&str]| folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).args(arguments).run();
    let ended = run(&["--junit", "junit.xml"]);
    ended.assert_code(0).assert_stdout("").assert_stderr_contains("`skip_if` is true: {{ before.n | length == 0 }}");
    let result = ended.run_folder().result();
    assert_eq!((&result["outcome"], &result["exit_code"], &result["turns"]), (&json!("skipped"), &json!(0), &json!(0)));
    assert_eq!(result["skipped_by"], "{{ before.n | length == 0 }}");
    assert_eq!(kinds(&ended)[3..], ["run_skipped", "agent_finished", "workspace_changed", "run_finished"]);
    let junit = folder.read("junit.xml");
    assert!(junit.contains("<skipped message=\"nothing to do") && junit.contains("skipped=\"1\""), "{junit}");
    assert!(ended.run_folder().file("report.html").contains("no agent started"));
    folder.legwork(&["replay", "latest"]).run().assert_code(0).assert_stdout_contains("equal");
    folder.legwork(&["resume", "latest"]).run().assert_stderr_contains("only an interrupted run can be resumed");
    // With a key it is final.
    run(&["--key", "k"]).assert_code(0);
    run(&["--key", "k"]).assert_code(0).assert_stderr_contains("has ended before");
}

#[test]
fn a_missing_key_is_found_when_the_agent_starts() {
    let folder = folder("before: [{ name: n, run: echo x }]\nskip_if: 'false'\n");
    let ended = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).run();
    ended.assert_code(5).assert_stderr_contains("ANTHROPIC_API_KEY is not set");
    assert_eq!(ended.run_folder().result()["outcome"], "provider_rejected");
    assert!(kinds(&ended).contains(&"before_finished".to_owned()));
}

#[test]
fn a_failed_step_ends_the_run_and_runs_again_on_resume() {
    let folder = folder(
        "before:\n  - { name: first, run: 'echo first >> ran' }\n  - { name: n, run: 'echo n >> ran; echo why >&2; test -e ready; echo ok' }\n",
    );
    let ended = run(&folder);
    ended.assert_code(5).assert_stderr_contains("the step `n` before the agent failed: exit code 1: why");
    assert_eq!(ended.run_folder().result()["outcome"], "environment_failed");
    folder.write("ready", "");
    let resumed = folder.legwork(&["resume", "latest", "--sandbox", "off"]).run();
    resumed.assert_code(0).assert_stdout("Done.\n");
    assert_eq!(folder.read("ran"), "first\nn\nn\n");
    folder.legwork(&["replay", "latest"]).run().assert_code(0).assert_stdout_contains("equal");
}

#[test]
fn the_event_is_among_the_files_of_steps() {
    let folder = folder(
        "before: [{ name: n, run: 'test -e ready; cat \"$LEGWORK_FILES/event.json\"', schema: { type: object } }]\n\
         parent: { prompt: '{{ before.n.issue.title }}', tools: [] }\n",
    );
    let event = json!({ "issue": { "number": 3, "title": "{{ bug }}" }, "repository": { "full_name": "o/r" } });
    std::fs::write(folder.home().join("event.json"), event.to_string()).unwrap();
    let named = ["--sandbox", "off", "--event"];
    let ended = program(&folder, &named).arg(folder.home().join("event.json")).run();
    ended.assert_code(5).assert_stderr_contains("the step `n` before the agent failed");
    folder.write("ready", "");
    // A resumed run has it from the record.
    let resumed = folder.legwork(&["resume", "latest", "--sandbox", "off"]).run();
    resumed.assert_code(0);
    assert_eq!(prompt(&resumed), "{{ bug }}");
    folder.legwork(&["replay", "latest"]).run().assert_code(0).assert_stdout_contains("equal");
    let shown = program(&folder, &["--sandbox", "off", "--before-only"]);
    let shown = shown.env("GITHUB_EVENT_PATH", folder.home().join("event.json")).run();
    shown.assert_code(0).assert_stdout_contains("{{ bug }}");
    folder.write("event.json", "{}");
    let ended = program(&folder, &["--event", "event.json"]).run();
    ended.assert_code(2).assert_stderr_contains("isn't an event of a forge");
    // Without an event there is no such file, whatever a container knows of it.
    let ended = program(&folder, &["--sandbox", "off"]).env("GITHUB_EVENT_PATH", "/nowhere/event.json").run();
    ended.assert_code(5).assert_stderr_contains("event.json: No such file");
}

#[test]
fn an_optional_step_is_null_with_a_warning() {
    let folder = folder(
        "before: [{ name: n, run: 'exit 3', optional: true }]\nparent: { prompt: 'Go {{ before.n is none }}', tools: [] }\n",
    );
    let ended = run(&folder);
    ended.assert_code(0).assert_stderr_contains("step n: failed: exit code 3");
    assert_eq!(prompt(&ended), "Go True");
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
}

#[test]
fn each_bad_output_is_one_clear_sentence() {
    let long = "printf '%01048577d' 0";
    for (step, why) in [
        (format!("{{ name: n, run: \"{long}\" }}"), "it printed more than 1 MiB"),
        ("{ name: n, run: 'yes' }".to_owned(), "it printed more than 1 MiB"),
        (
            "{ name: n, run: 'echo x', schema: { type: array } }".to_owned(),
            "its output isn't JSON: expected value at line 1 column 1",
        ),
        (
            "{ name: n, run: 'echo \"[1, {}]\"', schema: { items: { type: integer } } }".to_owned(),
            "/1: expected a whole number",
        ),
        ("{ name: n, run: 'printf \"[\\377]\"', schema: {} }".to_owned(), "isn't UTF-8 at byte 1"),
        ("{ name: n, run: sleep 60, timeout: 1s }".to_owned(), "timed out after 1s"),
        (
            "{ name: n, run: 'truncate -s 101M \"$LEGWORK_FILES/large\"' }".to_owned(),
            "it left more than 100 MB in $LEGWORK_FILES",
        ),
    ] {
        let folder = folder(&format!("before: [{step}]\n"));
        let ended = run(&folder);
        ended.assert_code(5).assert_stderr_contains(why);
        assert_eq!(ended.run_folder().result()["outcome"], "environment_failed", "{step}");
    }
    let exact = folder(
        "before: [{ name: n, run: \"printf '%01048576d' 0\" }]\nparent: { prompt: '{{ before.n | length }}', tools: [] }\n",
    );
    let ended = run(&exact);
    ended.assert_code(0);
    assert_eq!(prompt(&ended), "1048576");
}

#[test]
fn a_condition_that_is_neither_true_nor_false_ends_the_run() {
    for (keys, why) in [
        ("skip_if: '{{ before.n }}'\n", "`skip_if` must render to `true` or `false`, not `maybe`"),
        ("checks: [{ name: c, run: 'true', when: '{{ before.n }}' }]\n", "the check `c`: `when` must render to"),
        ("parent: { prompt: '{{ before.n.a.b }}', tools: [] }\n", "prompt line 1: the template can't be rendered"),
    ] {
        let folder = folder(&format!("before: [{{ name: n, run: echo maybe }}]\n{keys}"));
        run(&folder).assert_code(5).assert_stderr_contains(why);
    }
}

#[test]
fn agents_and_checks_read_the_files_and_change_none() {
    // In landlock a command that changes them ends the run, as the next test shows.
    let touch = if bubblewrap_works() { "; touch $LEGWORK_FILES/x" } else { "" };
    let folder = folder(
        "before: [{ name: n, run: 'mkdir \"$LEGWORK_FILES/d\"; echo secret-plan > \"$LEGWORK_FILES/d/a.txt\"; echo made > made.txt; pwd' }]\n\
         parent: { prompt: 'Read {{ before.files }}', tools: [bash, read_file, grep, glob] }\nchecks: [{ name: c, run: 'grep -q plan \
         \"$LEGWORK_FILES/d/a.txt\"' }]\n",
    );
    folder.write(
        "replies.yaml",
        format!("parent:\n  - calls: [{{ tool: bash, input: {{ command: 'cat $LEGWORK_FILES/d/a.txt{touch}' }} }}]\n  - text: Done.\n"),
    );
    let ended = program(&folder, &[]).run();
    ended.assert_code(0);
    let record = ended.run_folder();
    assert!(record.transcript().contains("secret-plan"), "{}", record.transcript());
    assert_eq!(record.file("files/d/a.txt"), "secret-plan\n");
    assert!(!record.path().join("files/x").exists());
    let result = record.result();
    assert_eq!(result["changes"], json!([]), "what a step changes isn't a change of the run");
    assert!(folder.at("made.txt").exists());
    // The files of a record elsewhere can be read by their absolute path.
    let out = TestFolder::new();
    let path = out.at("runs/job/k/files/d/a.txt").to_string_lossy().into_owned();
    folder.write(
        "replies.yaml",
        format!("parent:\n  - calls: [{{ tool: read_file, input: {{ path: {path} }} }}, {{ tool: bash, input: {{ command: 'cat {path}' }} }}]\n  - text: Done.\n"),
    );
    let elsewhere = program(&folder, &["--key", "k", "--out"]).args([out.at("runs")]).run();
    elsewhere.assert_code(0);
    let transcript = out.read("runs/job/k/transcript.md");
    assert_eq!(transcript.matches("secret-plan").count(), 2, "{transcript}");
}

#[test]
fn steps_run_in_landlock_and_their_files_stay_as_they_are() {
    let folder = folder(
        "inputs:\n  item: { type: string, default: a }\nbefore:\n  - { name: m, run: 'echo m', once: true }\n  \
         - { name: n, run: 'echo plan > \"$LEGWORK_FILES/a\"' }\n  - { name: o, run: 'cat \"$LEGWORK_FILES/a\"; echo more > \"$LEGWORK_FILES/b\"' }\n\
         parent: { prompt: '{{ before.o }}', tools: [bash] }\n",
    );
    folder.write("rows.csv", "item\na\nb\n");
    let call = |command: &str| {
        folder.write(
            "replies.yaml",
            format!("parent:\n  - calls: [{{ tool: bash, input: {{ command: '{command}' }} }}]\n  - text: Done.\n"),
        );
    };
    let programs = path_without_bwrap(&folder);
    let in_landlock = |run: Program| run.env("PATH", &programs).run();
    call("cat $LEGWORK_FILES/a $LEGWORK_FILES/b");
    let ended = in_landlock(program(&folder, &[]));
    if ended.stderr.contains("landlock can't be used") {
        eprintln!("skipped: no landlock here");
        return;
    }
    ended.assert_code(0);
    assert_eq!(prompt(&ended), "plan");
    assert!(ended.run_folder().transcript().contains("plan\nmore"), "{}", ended.run_folder().transcript());
    let rows = ["map", "job.yaml", "--rows", "rows.csv", "--id", "item", "--model", "replay/replies.yaml"];
    in_landlock(folder.legwork(&rows)).assert_code(0);
    // No kernel keeps a command from changing them there, so the run ends, and they are as before.
    for (key, change) in
        [("w", "echo x > $LEGWORK_FILES/a"), ("n", "echo x > $LEGWORK_FILES/new"), ("r", "/bin/rm -r $LEGWORK_FILES")]
    {
        call(change);
        let ended = in_landlock(program(&folder, &["--key", key]));
        ended.assert_code(5).assert_stderr_contains("changed protected files");
        let files = folder.at("runs/job").join(key).join("files");
        assert_eq!(std::fs::read_to_string(files.join("a")).unwrap(), "plan\n", "{change}");
        assert!(!files.join("new").exists(), "{change}");
    }
}

#[test]
fn a_step_that_was_killed_in_the_middle_runs_again() {
    let folder = folder(
        "before:\n  - { name: first, run: 'echo first >> ran; echo 1 > \"$LEGWORK_FILES/one\"' }\n  - { name: n, run: 'echo n >> ran; cat \"$LEGWORK_FILES/one\"' }\n",
    );
    // After run_started, before_started, before_finished, before_started.
    let killed = program(&folder, &["--sandbox", "off"]).env("LEGWORK_KILL_AFTER", "4").run();
    assert_eq!(killed.signal(), Some(9), "{}", killed.full_output());
    let resumed = folder.legwork(&["resume", "latest", "--sandbox", "off"]).run();
    resumed.assert_code(0);
    assert_eq!(prompt(&resumed), "Go 1");
    let ran = folder.read("ran");
    assert_eq!(ran.matches("first").count(), 1, "{ran}");
}

#[test]
fn the_plan_shows_what_is_not_known_yet() {
    let folder = folder(
        "before: [{ name: n, run: make list, schema: { type: array }, optional: true }]\nskip_if: '{{ before.n == [] }}'\n\
         parent: { prompt: 'Go {{ before.n }}:{% for a in before.n %} {{ a.title }}{% endfor %}', tools: [] }\n",
    );
    let shown = folder.legwork(&["run", "job.yaml", "--dry-run"]).run();
    shown.assert_code(0);
    for part in [
        "| Go <before.n>: <before.n[].title>",
        "n (at most 2 min, JSON, optional)",
        "| make list",
        "skip_if     {{ before.n == [] }}",
    ] {
        shown.assert_stdout_contains(part);
    }
    let plan = folder.legwork(&["run", "job.yaml", "--dry-run", "--format", "json"]).run();
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    let plan = plan.get("plan").unwrap_or(&plan);
    assert_eq!(plan["late"]["texts"]["(skip_if)"], "{{ before.n == [] }}");
}

#[test]
fn only_the_steps_run_and_no_record_is_left() {
    let folder = folder(
        "before: [{ name: n, run: 'echo 5; echo x > \"$LEGWORK_FILES/x\"', schema: { type: integer } }]\nskip_if: '{{ before.n > 4 }}'\n",
    );
    let ended = folder.legwork(&["run", "job.yaml", "--before-only", "--sandbox", "off"]).run();
    ended.assert_code(0).assert_stderr_contains("skip_if: true");
    assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap(), json!({ "n": 5 }));
    assert!(!folder.at("runs").exists());
    folder.write("job.yaml", folder.read("job.yaml").replace("echo 5", "exit 4"));
    let failed = folder.legwork(&["run", "job.yaml", "--before-only", "--sandbox", "off"]).run();
    failed.assert_code(5).assert_stderr_contains("the step `n` before the agent failed");
}

#[test]
fn an_untrusted_job_has_no_steps() {
    let folder = folder("before: [{ name: n, run: echo x }]\n");
    let refused = folder.legwork(&["validate", "job.yaml", "--untrusted"]).run();
    refused.assert_code(3).assert_stdout_contains("an untrusted job can't have the step `n` before the agent");
}

#[test]
fn a_map_runs_a_step_once_or_for_each_row() {
    let folder = folder(
        "inputs:\n  item: { type: string }\nbefore:\n  - { name: once, run: 'echo once >> \"$COUNT\"; echo shared; echo f > \"$LEGWORK_FILES/f\"', once: true }\n  \
         - { name: n, run: 'echo each >> \"$COUNT\"; cat \"$LEGWORK_FILES/f\"; echo $INPUT_ITEM' }\nenv: [COUNT]\n\
         skip_if: \"{{ inputs.item == 'b' }}\"\nparent: { prompt: '{{ before.once }} {{ before.n }}', tools: [] }\n",
    );
    folder.write("rows.csv", "item\na\nb\n");
    let count = folder.at("count");
    let map = || {
        let arguments = ["map", "job.yaml", "--rows", "rows.csv", "--id", "item", "--model", "replay/replies.yaml"];
        folder.legwork(&arguments).args(["--sandbox", "off", "--junit", "junit.xml"]).env("COUNT", &count).run()
    };
    map().assert_code(0);
    let lines = folder.read("count");
    assert_eq!((lines.matches("once").count(), lines.matches("each").count()), (1, 2), "{lines}");
    let events = folder.read("runs/job/map-rows/rows/a/events.jsonl");
    assert!(events.contains("\"prompt\":\"shared f\\na\""), "{events}");
    let results = folder.read("runs/job/map-rows/results.jsonl");
    assert!(results.contains("\"outcome\":\"skipped\"") && results.contains("\"outcome\":\"completed\""), "{results}");
    let skipped = "<skipped message=\"nothing to do: skip_if is true: {{ inputs.item == 'b' }}\"/>";
    assert!(folder.read("junit.xml").contains(skipped), "{}", folder.read("junit.xml"));
    map().assert_code(0).assert_stderr_contains("2 ended before");
    // From the records alone.
    assert!(folder.read("junit.xml").contains(skipped), "{}", folder.read("junit.xml"));
    let gathered =
        folder.legwork(&["gather", "runs/job/map-rows", "--to", "gathered", "--junit", "gathered.xml"]).run();
    gathered.assert_code(0);
    assert!(folder.read("gathered.xml").contains(skipped), "{}", folder.read("gathered.xml"));
    // One more row takes the value of the first start.
    folder.write("rows.csv", "item\na\nb\nc\n");
    map().assert_code(0);
    assert_eq!(folder.read("count").matches("once").count(), 1);
}

#[test]
fn a_case_gives_the_values() {
    let folder =
        folder("before: [{ name: n, run: 'exit 9', schema: { type: array } }]\nskip_if: '{{ before.n == [] }}'\n");
    folder
        .write("tests/job/some/script.yaml", "parent:\n  - text: Done.\n")
        .write("tests/job/some/expect.yaml", "outcome: completed\n")
        .write("tests/job/some/before.yaml", "n: [1]\n")
        .write("tests/job/none/script.yaml", "parent:\n  - text: Never asked.\n")
        .write("tests/job/none/expect.yaml", "outcome: skipped\n")
        .write("tests/job/none/before.yaml", "n: []\n");
    folder.legwork(&["test"]).run().assert_code(0);
    for (before, why) in [
        ("n: 1\n", "the value doesn't fit the schema of the step"),
        ("m: []\nn: []\n", "the job has no step `m`"),
        ("{}\n", "the value of the step `n` is missing"),
    ] {
        folder.write("tests/job/none/before.yaml", before);
        folder.legwork(&["test"]).run().assert_code(3).assert_stderr_contains(why);
    }
    std::fs::remove_file(folder.at("tests/job/none/before.yaml")).unwrap();
    folder.legwork(&["test"]).run().assert_code(3).assert_stderr_contains("before.yaml");
}
