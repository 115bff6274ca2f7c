//! The whole life of a job: it runs, is fixed, returns data, becomes a case, and is compared with an edited prompt.

use serde_json::json;

use crate::support::server::{Answer, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

const JOB: &str = r#"
model: anthropic/claude-haiku-4-5
inputs:
  file: { type: path, default: greeting.txt }
parent:
  prompt: Put a greeting for everybody into {{ inputs.file }}.
  tools: [write_file, read_file, task]
subagents:
  counter:
    description: Counts the letters of a file.
    tools: [read_file]
    returns: { schema: { file: schemas/count.json } }
limits: { tokens: 1000000 }
checks:
  - { name: greets the world, run: 'grep -q world "$INPUT_FILE" || { echo it says: $(cat "$INPUT_FILE"); exit 4; }' }
repairs: 1
result:
  schema:
    type: object
    required: [letters]
    additionalProperties: false
    properties: { letters: { type: integer } }
"#;

fn prepared() -> TestFolder {
    let folder = TestFolder::new();
    folder.write("jobs/greet.yaml", JOB).write("README", "A folder.\n");
    folder.write(
        "jobs/schemas/count.json",
        r#"{ "type": "object", "properties": { "count": { "$ref": "number.json" } } }"#,
    );
    folder.write("jobs/schemas/number.json", r#"{ "type": "integer", "minimum": 1 }"#);
    folder
}

fn greeting(text: &str) -> serde_json::Value {
    json!({ "path": "greeting.txt", "content": text })
}

#[test]
fn a_job_is_validated_fixed_run_saved_and_edited() {
    let folder = prepared();
    let server = Server::start(
        ScriptedAgents::new()
            .agent(
                "Put a greeting",
                [
                    Answer::calls(&[("write_file", greeting("hello\n"))]),
                    Answer::calls(&[("submit_result", json!({ "letters": 5 }))]),
                    Answer::text("Hello it is."),
                    // The check failed.
                    Answer::calls(&[
                        ("write_file", greeting("hello world\n")),
                        ("task", json!({ "agent": "counter", "prompt": "How many letters has greeting.txt?" })),
                    ]),
                    Answer::calls(&[("submit_result", json!({ "letters": 10 }))]),
                    Answer::text("Hello world it is."),
                ],
            )
            .agent(
                "How many letters",
                [
                    Answer::calls(&[("read_file", json!({ "path": "greeting.txt" }))]),
                    Answer::calls(&[("submit_result", json!({ "count": 0 }))]),
                    Answer::calls(&[("submit_result", json!({ "count": 10 }))]),
                    Answer::text("Ten."),
                ],
            ),
    );
    let ended = folder
        .legwork(&["run", "jobs/greet.yaml", "--save-case", "world", "--format", "json", "--result", "result.json"])
        .anthropic(&server)
        .run();
    ended.assert_code(0);
    let requests = server.finish();
    let messages: Vec<String> = requests.iter().map(|request| request.last_text()).collect();
    assert!(
        messages.iter().any(|text| text.contains("greets the world (exit code 4)") && text.contains("it says: hello"))
    );
    let of_the_child =
        requests.iter().flat_map(|request| request.results()).find(|result| result.text.contains("\"count\""));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&of_the_child.unwrap().text).unwrap(), json!({ "count": 10 }));
    let result = ended.json();
    assert_eq!((&result["outcome"], &result["result"]), (&json!("completed"), &json!({ "letters": 10 })));
    let attempts: Vec<_> = result["checks"].as_array().unwrap().iter().map(|check| check["passed"].clone()).collect();
    assert_eq!(attempts, [false, true]);
    assert_eq!(result["changes"][0]["path"], "greeting.txt");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&folder.read("result.json")).unwrap(), result["result"]);

    // The case needs neither a key nor a network.
    folder.legwork(&["test"]).run().assert_code(0).assert_stdout_contains("world");
    let run = ended.run_folder();
    folder.legwork(&["replay", run.id()]).run().assert_code(0);

    // An edited prompt changes the conversation from the first turn on, and the output shows it.
    folder.write("jobs/edited.yaml", JOB.replace("a greeting for everybody", "a greeting for nobody"));
    let replayed = folder.legwork(&["replay", run.id(), "--job", "jobs/edited.yaml"]).run();
    replayed
        .assert_code(7)
        .assert_stdout_contains("-Put a greeting for everybody into greeting.txt.")
        .assert_stdout_contains("+Put a greeting for nobody into greeting.txt.")
        .assert_stdout_contains("turn 1");

    // A case with another expectation fails, with a position.
    let expect = folder.read("jobs/tests/greet/world/expect.yaml").replace("10", "11");
    folder.write("jobs/tests/greet/world/expect.yaml", expect);
    folder.legwork(&["test"]).run().assert_code(1).assert_stdout_contains("expect.yaml:").assert_stdout_contains("11");
}
