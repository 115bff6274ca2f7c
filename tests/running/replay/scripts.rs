//! Scripts that don't match their job are reported with positions, before anything runs if possible.

use crate::support::test_folder::TestFolder;

const JOB: &str = "
model: replay/replies.yaml
parent: { prompt: Go., tools: [read_file, task] }
subagents:
  reader: { description: Reads., tools: [read_file] }
  writer: { description: Writes., tools: [] }
limits: { tokens: 100000 }
";

fn with(script: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB).write("replies.yaml", script);
    folder
}

#[test]
fn a_script_with_too_few_replies_is_reported_with_its_position() {
    let folder = with("parent:\n  - calls: [{ tool: read_file, input: { path: job.yaml } }]\n");
    let ended = folder.legwork(&["run", "job.yaml"]).run();
    ended.assert_code(7).assert_stderr_contains("replies.yaml:2:3 has no reply 2 for the agent parent");
    let result = ended.run_folder().result();
    assert_eq!((result["outcome"].as_str(), result["exit_code"].as_u64()), (Some("replay_differs"), Some(7)));
}

#[test]
fn unused_replies_are_reported_with_their_position() {
    let folder =
        with("parent:\n  - text: Done.\n  - text: More.\n  - text: And more.\nsubagents:\n  reader-1: [{ text: x }]\n");
    let ended = folder.legwork(&["run", "job.yaml"]).run();
    ended
        .assert_code(7)
        .assert_stdout("Done.\n")
        .assert_stderr_contains("replies.yaml:3:5: the run ended after the agent parent used 1 of 3");
    let run = ended.run_folder();
    let result = run.result();
    assert_eq!((result["outcome"].as_str(), result["exit_code"].as_u64()), (Some("replay_differs"), Some(7)));
    assert_eq!(result["error"]["code"], "replay_differs");
    let events = run.events();
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["data"]["outcome"]), (&"run_finished".into(), &"replay_differs".into()));
    // A run that ends early for another reason has the outcome of that reason.
    folder.write("job.yaml", JOB.replace("{ prompt: Go.,", "{ max_turns: 1, prompt: Go.,"));
    folder.write("replies.yaml", "parent:\n  - calls: [{ tool: read_file }]\n  - text: Sum.\n  - text: More.\n");
    folder.legwork(&["run", "job.yaml"]).run().assert_code(4);
}

#[test]
fn a_record_with_unused_replies_is_reported() {
    let folder = with("parent:\n  - calls: [{ tool: read_file, input: { path: job.yaml } }]\n  - text: Done.\n");
    let record = folder.legwork(&["run", "job.yaml"]).run().assert_code(0).run_folder();
    let record = record.path().strip_prefix(folder.path()).unwrap().to_owned();
    let model = format!("replay/{}", record.display());
    folder.legwork(&["run", "job.yaml", "--model", &model]).run().assert_code(0);
    folder.write("job.yaml", JOB.replace("{ prompt: Go.,", "{ max_turns: 1, prompt: Go.,"));
    let run = folder.legwork(&["run", "job.yaml", "--model", &model]).run();
    run.assert_code(4);
}

#[test]
fn unknown_tools_and_subagents_in_a_script_are_found_before_anything_runs() {
    for (script, place, message) in [
        (
            "parent: [{ text: x }]\nsubagents:\n  nonesuch-1: [{ text: x }]\n",
            "3:3",
            "the job has no subagent `nonesuch`",
        ),
        ("parent: [{ calls: [{ tool: reed_file }] }]\n", "1:28", "the parent has no tool `reed_file`"),
        ("parent: [{ calls: [{ tool: bash }] }]\n", "1:28", "the parent has no tool `bash`"),
        (
            "parent: [{ text: x }]\nsubagents:\n  writer-1: [{ calls: [{ tool: read_file }] }]\n",
            "3:32",
            "writer-1 has no tool `read_file`",
        ),
        (
            "parent: [{ calls: [{ tool: task, input: { prompt: x, agent: nobody } }] }]\n",
            "1:61",
            "the job has no subagent `nobody`",
        ),
    ] {
        let folder = with(script);
        let ended = folder.legwork(&["run", "job.yaml"]).run();
        ended
            .assert_code(3)
            .assert_stdout("")
            .assert_stderr_contains(message)
            .assert_stderr_contains(&format!("replies.yaml:{place}"));
        assert!(!folder.exists("runs"), "{script}");
    }
}

#[test]
fn an_invalid_call_is_made_and_answered_with_an_error() {
    let folder = with(
        "parent:\n  - calls:\n      - { tool: bash, mistaken: true }\n      - { tool: task, input: { prompt: x, agent: \
         nobody }, mistaken: true }\n  - text: Done.\n",
    );
    let run = folder.legwork(&["run", "job.yaml"]).run().assert_code(0).run_folder();
    let findings: Vec<String> =
        run.events().iter().filter_map(|it| Some(it["data"]["result"]["text"].as_str()?.to_owned())).collect();
    assert!(
        findings[0].contains("unknown tool `bash`") && findings[1].contains("No subagent is called `nobody`"),
        "{findings:?}"
    );
}
