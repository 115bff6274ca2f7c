//! Schemas in files, and schemas that are rejected.

use std::net::TcpListener;

use serde_json::json;

use super::job;

#[test]
fn a_schema_of_several_files_is_bundled_in_the_plan() {
    let folder = job("bash, write_file", "result: { schema: { file: schemas/review.json } }\n");
    folder
        .write(
            "schemas/review.json",
            r##"{ "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "required": ["findings"],
                "properties": { "findings": { "type": "array", "items": { "$ref": "parts/finding.yaml" } }, "prompt": { "const": "{{ not.rendered }}" } } }"##,
        )
        .write("schemas/parts/finding.yaml", "type: object\nproperties:\n  line: { type: integer }\n  causes: { type: array, items: { $ref: '#' } }\n");
    folder.write(
        "replies.yaml",
        json!({ "parent": [
            { "calls": [{ "tool": "write_file", "input": { "path": "schemas/parts/finding.yaml", "content": "{}", "overwrite": true } }] },
            { "calls": [{ "tool": "submit_result", "input": { "findings": [{ "causes": [{ "line": "x" }] }] } }] },
            { "calls": [{ "tool": "submit_result", "input": { "findings": [{ "causes": [{ "line": 1 }] }] } }] },
            { "text": "Found." },
        ] })
        .to_string(),
    );
    folder.legwork(&["validate", "job.yaml"]).run().assert_code(0);
    let ended = folder.legwork(&["run", "job.yaml", "--model", "replay/replies.yaml"]).run();
    ended.assert_code(0).assert_stdout("Found.\n");
    let record = ended.run_folder();
    let returns = &record.plan()["parent"]["returns"];
    assert_eq!(returns["properties"]["findings"]["items"]["$ref"], "#/$defs/finding");
    assert_eq!(returns["$defs"]["finding"]["properties"]["causes"]["items"]["$ref"], "#/$defs/finding");
    assert_eq!(returns["properties"]["prompt"]["const"], "{{ not.rendered }}");
    let events = record.events();
    let results: Vec<_> =
        events.iter().filter(|event| event["type"] == "call_finished").map(|event| &event["data"]["result"]).collect();
    assert!(results[0]["is_error"] == true, "a schema stays as it is: {}", results[0]);
    assert!(
        results[1]["text"].as_str().unwrap().contains("- /findings/0/causes/0/line: expected a whole number"),
        "{}",
        results[1]
    );
    // The record is sufficient, without the schema's files.
    let protected = &events[0]["data"]["protected"];
    assert!(protected.to_string().contains("schemas/parts/finding.yaml"), "{protected}");
}

#[test]
fn nothing_is_fetched_and_no_file_outside_is_read() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let folder = job(
        "",
        &format!(
            "result:\n  schema:\n    type: object\n    properties:\n      a: {{ $ref: 'http://{address}/a.json' }}\n      b: {{ $ref: '../b.json' }}\n      c: {{ $ref: 'file:///etc/hostname' }}\n"
        ),
    );
    let ended = folder.legwork(&["validate", "job.yaml", "--format", "concise"]).run();
    ended.assert_code(3);
    ended
        .assert_stdout_contains("job.yaml:8:18: error[bad-reference]")
        .assert_stdout_contains("nothing is ever fetched");
    ended
        .assert_stdout_contains("job.yaml:9:18: error[outside-folder]")
        .assert_stdout_contains("job.yaml:10:18: error[bad-reference]");
    folder.legwork(&["run", "job.yaml", "--model", "replay/none.yaml"]).run().assert_code(3);
    let connection = listener.accept();
    assert!(connection.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "no connection");
}

#[test]
fn the_submit_tool_cannot_be_listed() {
    let folder = job("submit_result", "result: { schema: { type: object } }\n");
    let ended = folder.legwork(&["validate", "job.yaml"]).run();
    ended
        .assert_code(3)
        .assert_stdout_contains("unknown-tool")
        .assert_stdout_contains("it is added by `result`; remove it");
}

#[test]
fn a_schema_from_standard_input_has_no_files() {
    let folder = job("", "");
    let text = "model: replay/x.yaml\nparent: { prompt: x, tools: [] }\nresult: { schema: { file: a.json } }\n";
    folder.legwork(&["validate", "-"]).stdin(text).run().assert_code(3);
}
