//! Jobs that end with data: the result of the parent, and the data that subagents return.

mod result_file;
mod schemas;
mod subagent_results;

use serde_json::{Value, json};

use crate::support::job::Job;
use crate::support::record::RunFolder;
use crate::support::server::{Answer, Checks, Request, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

const RUN: &[&str] = &["run", "job.yaml"];
const JSON: &[&str] = &["run", "job.yaml", "--format", "json"];

const FINDINGS: &str = "
result:
  schema:
    type: object
    required: [verdict, findings]
    additionalProperties: false
    properties:
      verdict: { enum: [good, bad] }
      findings: { type: array, items: { type: object, required: [line], properties: { line: { type: integer } } } }
";

/// A job whose parent has these tools and ends with data that matches this schema.
fn job(tools: &str, result: &str) -> TestFolder {
    let folder = TestFolder::new();
    let head = "model: anthropic/claude-haiku-4-5\nlimits: { tokens: 1000000 }\n";
    folder.write("job.yaml", format!("{head}parent: {{ prompt: Go., tools: [{tools}] }}\n{result}"));
    folder
}

fn submit(data: &Value) -> Answer {
    Answer::calls(&[("submit_result", data.clone())])
}

fn valid_data() -> Value {
    json!({ "verdict": "good", "findings": [{ "line": 3 }] })
}

fn outcome(record: &RunFolder) -> (Value, Value) {
    let result = record.result();
    (result["outcome"].clone(), result["result"].clone())
}

#[test]
fn a_valid_result_is_in_the_record_and_on_stdout() {
    let folder = job("", FINDINGS);
    let server = Server::start(ScriptedAgents::of([submit(&valid_data()), Answer::text("It is good.")]));
    let ended = folder.legwork(JSON).anthropic(&server).run();
    ended.assert_code(0);
    assert_eq!(ended.json()["result"], valid_data());
    assert_eq!((&ended.json()["outcome"], &ended.json()["text"]), (&json!("completed"), &json!("It is good.")));
    assert_eq!(outcome(&ended.run_folder()), (json!("completed"), valid_data()));
    let requests = server.finish();
    let tools = requests[0].body()["tools"].as_array().unwrap().clone();
    assert_eq!((tools.len(), &tools[0]["name"]), (1, &json!("submit_result")));
    assert_eq!(tools[0]["input_schema"]["required"], json!(["verdict", "findings"]));
    let result = &requests[1].results()[0];
    assert!(!result.is_error && result.text.starts_with("Accepted"), "{result:?}");
    assert!(requests[0].system().contains("`submit_result`"));
    let transcript = ended.run_folder().transcript();
    assert!(transcript.contains("## Result\n\n```json\n{\n  \"verdict\": \"good\""), "{transcript}");
}

#[test]
fn an_enum_has_the_values_of_a_list_input() {
    let from_input = FINDINGS.replace("{ enum: [good, bad] }", "{ enum: '{{ inputs.verdicts }}' }");
    let folder = job("", &format!("inputs: {{ verdicts: {{ type: list }} }}\n{from_input}"));
    let validated = folder.legwork(&["validate", "job.yaml"]).run();
    validated.assert_code(0);
    assert!(!validated.stderr.contains("unused-input"), "{}", validated.stderr);
    let set = |values: &'static str| [RUN, &["--set", values]].concat();
    let data = |verdict: &str| json!({ "verdict": verdict, "findings": [] });
    let replies = [submit(&data("bad")), submit(&data("fair")), Answer::text("It is fair.")];
    let server = Server::start(ScriptedAgents::of(replies));
    let ended = folder.legwork(&set("verdicts=good,fair")).anthropic(&server).run();
    ended.assert_code(0);
    assert_eq!(outcome(&ended.run_folder()), (json!("completed"), data("fair")));
    let requests = server.finish();
    let verdict = &requests[0].body()["tools"][0]["input_schema"]["properties"]["verdict"];
    assert_eq!(*verdict, json!({ "enum": ["good", "fair"] }));
    let refused = &requests[1].results()[0].text;
    assert!(refused.contains("/verdict: expected one of [\"good\",\"fair\"], found \"bad\""), "{refused}");

    let empty = folder.legwork(&set("verdicts=")).run();
    empty.assert_code(3);
    assert!(empty.stderr.contains("the input `verdicts` is an empty list"), "{}", empty.stderr);
}

#[test]
fn all_schema_violations_are_reported_and_can_be_fixed() {
    let folder = job("", FINDINGS);
    let wrong = json!({ "verdict": "fine", "findings": [{ "line": "3" }, {}], "more": 1 });
    let server = Server::start(ScriptedAgents::of([submit(&wrong), submit(&valid_data()), Answer::text("Mended.")]));
    Job::in_folder(&folder).anthropic(&server).run().assert_code(0).assert_stdout("Mended.\n");
    let requests = server.finish();
    let result = &requests[1].results()[0];
    assert!(result.is_error);
    for line in [
        "for 4 reasons",
        "- /verdict: expected one of [\"good\",\"bad\"], found \"fine\"",
        "- /findings/0/line: expected a whole number, found \"3\"",
        "- /findings/1: \"line\" is missing",
        "- the whole value: the schema doesn't allow \"more\"",
    ] {
        assert!(result.text.contains(line), "{line}\n{}", result.text);
    }
}

#[test]
fn a_missing_result_is_requested_one_more_time() {
    let folder = job("", FINDINGS);
    let server = Server::start(ScriptedAgents::of([Answer::text("Good."), submit(&valid_data()), Answer::empty()]));
    let ended = folder.legwork(RUN).anthropic(&server).run();
    // The last reply is empty, so the data is the answer.
    ended.assert_code(0);
    assert_eq!(ended.json(), valid_data());
    assert!(!ended.stderr.contains("the answer is empty"), "{}", ended.stderr);
    assert_eq!(outcome(&ended.run_folder()), (json!("completed"), valid_data()));
    let requests = server.finish();
    assert_eq!(requests.len(), 3);
    let last = requests[1].body()["messages"].as_array().unwrap().last().unwrap().to_string();
    assert!(last.contains("Call `submit_result` now"), "{last}");
    let notes = ended.run_folder().events().into_iter().filter(|event| event["type"] == "note_sent").count();
    assert_eq!((notes, ended.run_folder().transcript().matches("Call `submit_result` now").count()), (1, 1));

    let server = Server::start(ScriptedAgents::of([Answer::text("Good."), Answer::text("I mean it.")]));
    let ended = Job::in_folder(&folder).anthropic(&server).run();
    ended
        .assert_code(1)
        .assert_stdout("I mean it.\n")
        .assert_error_contains("result_invalid")
        .assert_error_contains("without a result that matches");
    assert_eq!(outcome(&ended.run_folder()), (json!("result_invalid"), Value::Null));
    assert_eq!(ended.run_folder().result()["error"]["code"], "result_invalid");
    server.finish();

    // An empty reply isn't added to the message history.
    let server = Server::start(ScriptedAgents::of([Answer::empty(), submit(&json!({})), Answer::empty()]));
    let ended = Job::in_folder(&folder).anthropic(&server).run();
    ended.assert_code(1).assert_stdout("");
    assert_eq!(outcome(&ended.run_folder()), (json!("result_invalid"), Value::Null));
    let requests = server.finish();
    assert_eq!(requests[1].body()["messages"].as_array().unwrap().len(), 1, "the text is after the prompt");
}

#[test]
fn a_text_that_is_valid_data_is_the_result() {
    for text in [
        valid_data().to_string(),
        format!("  {:#}\n", valid_data()),
        format!("Here it is:\n\n```json\n{:#}\n```\n\nThat is all.", valid_data()),
        format!("```\n{}\n```", valid_data()),
        format!("~~~json\n\u{feff}{}\n~~~", valid_data()),
        format!("\u{feff}{}", valid_data()),
        format!("It is {}, as {{promised}}.", valid_data()),
    ] {
        let folder = job("", FINDINGS);
        let server = Server::start(ScriptedAgents::of([Answer::text(&text)]));
        let ended = Job::in_folder(&folder).anthropic(&server).run();
        ended.assert_code(0);
        assert_eq!(outcome(&ended.run_folder()), (json!("completed"), valid_data()), "{text}");
        let taken: Vec<Value> =
            ended.run_folder().events().into_iter().filter(|it| it["type"] == "result_taken").collect();
        assert_eq!((taken.len(), &taken[0]["data"]["result"]), (1, &valid_data()));
        assert!(ended.run_folder().transcript().contains("was taken as the result"));
        server.finish();
    }
}

#[test]
fn a_text_that_is_not_exactly_valid_data_is_not_the_result() {
    let two = format!("```json\n{0}\n```\nor\n```json\n{0}\n```", valid_data());
    let other = format!("```python\n{}\n```", valid_data());
    let both = format!("It is {0} or {0}", valid_data());
    for text in [&two, &other, &both, "{\"verdict\": \"fine\", \"findings\": []}", "{}", "null"] {
        let folder = job("", FINDINGS);
        let server = Server::start(ScriptedAgents::of([Answer::text(text), Answer::text(text)]));
        let ended = Job::in_folder(&folder).anthropic(&server).run();
        ended.assert_code(1);
        assert_eq!(outcome(&ended.run_folder()), (json!("result_invalid"), Value::Null), "{text}");
        server.finish();
    }
}

#[test]
fn the_reminder_says_what_is_wrong_with_the_json_of_a_text() {
    let folder = job("", "result: { schema: { type: object, required: [n], properties: { n: { type: integer } } } }\n");
    let wrong = Answer::text("```json\n{\"n\": \"3\"}\n```");
    let server = Server::start(ScriptedAgents::of([wrong, Answer::text("{\"n\": 3}")]));
    let ended = Job::in_folder(&folder).anthropic(&server).run();
    ended.assert_code(0);
    assert_eq!(outcome(&ended.run_folder()), (json!("completed"), json!({ "n": 3 })));
    let requests = server.finish();
    let last = requests[1].body()["messages"].as_array().unwrap().last().unwrap().to_string();
    assert!(last.contains("isn't the data") && last.contains("/n: expected a whole number"), "{last}");
}

#[test]
fn data_that_is_no_object_can_be_a_text() {
    for (text, data) in [("[1, 2]", json!([1, 2])), ("{\"result\": [3]}", json!([3]))] {
        let folder = job("", "result: { schema: { type: array, items: { type: integer } } }\n");
        let server = Server::start(ScriptedAgents::of([Answer::text(text)]));
        let ended = Job::in_folder(&folder).anthropic(&server).run();
        ended.assert_code(0);
        assert_eq!(outcome(&ended.run_folder()), (json!("completed"), data));
    }
}

#[test]
fn a_later_text_replaces_an_earlier_one_but_no_submitted_data() {
    let bad = json!({ "verdict": "bad", "findings": [] });
    let checks = format!("{FINDINGS}checks: [{{ name: done, run: test -e done }}]\nrepairs: 1\n");
    let repair = || Answer::calls(&[("bash", json!({ "command": "touch done" }))]);
    let text = |data: &Value| Answer::text(&data.to_string());
    for (answers, expected) in [
        (vec![text(&valid_data()), repair(), text(&bad)], &bad),
        (vec![text(&valid_data()), repair(), Answer::text("Done.")], &valid_data()),
        (vec![submit(&valid_data()), text(&bad), repair(), text(&bad)], &valid_data()),
    ] {
        for killed_after in [0, 4, 5, 7, 8, 9] {
            let folder = job("bash", &checks);
            let server = Server::with(Checks::AllowRepeats, ScriptedAgents::of(answers.clone()));
            let started = folder.legwork(RUN).anthropic(&server);
            let mut ended = match killed_after {
                0 => started.run(),
                events => started.env("LEGWORK_KILL_AFTER", events.to_string()).run(),
            };
            if ended.signal() == Some(9) {
                ended = folder.legwork(&["resume", "latest"]).anthropic(&server).run();
            }
            ended.assert_code(0);
            assert_eq!(
                outcome(&ended.run_folder()),
                (json!("completed"), expected.clone()),
                "killed after {killed_after} events"
            );
        }
    }
}

#[test]
fn the_last_of_several_submissions_counts() {
    let folder = job("glob", FINDINGS);
    let bad = json!({ "verdict": "bad", "findings": [] });
    let beside = Answer::calls(&[
        ("submit_result", valid_data()),
        ("glob", json!({ "pattern": "*" })),
        ("submit_result", bad.clone()),
    ]);
    let server = Server::start(ScriptedAgents::of([beside, submit(&json!({})), Answer::empty()]));
    let ended = Job::in_folder(&folder).anthropic(&server).run();
    // The last reply is empty, so the data is the answer.
    ended.assert_code(0).assert_stdout("{\n  \"verdict\": \"bad\",\n  \"findings\": []\n}\n");
    assert_eq!(outcome(&ended.run_folder()), (json!("completed"), bad));
    let results = server.finish()[1].results();
    assert!(results.len() == 3 && results.iter().all(|result| !result.is_error), "{results:?}");
}

#[test]
fn data_that_is_not_an_object_is_wrapped_in_one() {
    let folder =
        job("", "result: { schema: { type: array, items: { $ref: '#/$defs/n' }, $defs: { n: { type: integer } } } }\n");
    let server = Server::start(ScriptedAgents::of([
        submit(&json!({ "result": [1, "2"] })),
        submit(&json!({ "result": [1, 2] })),
        Answer::empty(),
    ]));
    let ended = Job::in_folder(&folder).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("[\n  1,\n  2\n]\n");
    let requests = server.finish();
    let schema = &requests[0].body()["tools"][0]["input_schema"];
    assert_eq!((&schema["type"], &schema["$defs"]["n"]["type"]), (&json!("object"), &json!("integer")));
    assert!(requests[1].results()[0].text.contains("- /result/1: expected a whole number"));
}

#[test]
fn a_result_is_kept_when_a_limit_ends_the_run() {
    let folder = job("glob", FINDINGS);
    folder.write("job.yaml", folder.read("job.yaml").replace("Go.", "Go., max_turns: 2"));
    let glob = || Answer::calls(&[("glob", json!({ "pattern": "*" }))]);
    let server = Server::start(ScriptedAgents::of([submit(&valid_data()), glob(), Answer::text("Summed up.")]));
    let ended = Job::in_folder(&folder).anthropic(&server).run();
    ended.assert_code(4);
    assert_eq!(outcome(&ended.run_folder()), (json!("turn_limit"), valid_data()));
    server.finish();
    let server = Server::start(ScriptedAgents::of([glob(), Answer::text("Nothing."), Answer::text("Summed up.")]));
    let ended = Job::in_folder(&folder).anthropic(&server).run();
    ended.assert_code(4);
    assert_eq!(outcome(&ended.run_folder()), (json!("turn_limit"), Value::Null), "there was no turn left to ask again");
}

#[test]
fn the_last_text_after_a_limit_can_be_the_data() {
    let folder = job("read_file", FINDINGS);
    folder.write("job.yaml", folder.read("job.yaml").replace("Go.", "Go., max_turns: 1")).write("a.txt", "alpha\n");
    let text = format!("```json\n{}\n```", valid_data());
    for killed_after in [None, Some(7), Some(8), Some(9), Some(10)] {
        let text = text.clone();
        let server = Server::with(Checks::AllowRepeats, move |request: &Request| match request.results().len() {
            0 => Answer::calls(&[("read_file", json!({ "path": "a.txt" }))]),
            _ => Answer::text(&text),
        });
        let mut run = folder.legwork(RUN).anthropic(&server);
        if let Some(killed_after) = killed_after {
            run = run.env("LEGWORK_KILL_AFTER", killed_after.to_string());
        }
        let mut ended = run.run();
        if ended.signal() == Some(9) {
            ended = folder.legwork(&["resume", "latest"]).anthropic(&server).run();
        }
        ended.assert_code(4);
        assert_eq!(outcome(&ended.run_folder()), (json!("turn_limit"), valid_data()), "{killed_after:?}");
    }
}

#[test]
fn repeating_the_same_wrong_submission_is_stuck() {
    let folder = job("", FINDINGS);
    let server = Server::start(ScriptedAgents::of(vec![submit(&json!({ "verdict": 1 })); 5]));
    let ended = Job::in_folder(&folder).anthropic(&server).run();
    ended.assert_code(4).assert_error_contains("the same call of `submit_result` failed 5 times");
    assert_eq!(outcome(&ended.run_folder()), (json!("stuck"), Value::Null));
}

#[test]
fn a_secret_in_a_result_is_redacted_everywhere() {
    let folder = job("", "result: { schema: { type: object } }\nenv: [DEPLOY_TOKEN]\n");
    let data = json!({ "note": "it is hunter2-hunter2", "hunter2-hunter2": 1 });
    // Redacted text is sent back to the provider in a different form.
    let server = Server::start(ScriptedAgents::of([submit(&data).allow_changed_echo(), Answer::empty()]));
    let ended = folder
        .legwork(JSON)
        .arg("--result")
        .arg("out.json")
        .anthropic(&server)
        .env("DEPLOY_TOKEN", "hunter2-hunter2")
        .run();
    ended.assert_code(0).assert_not_printed("hunter2");
    assert_eq!(ended.json()["result"], json!({ "note": "it is [masked:DEPLOY_TOKEN]", "[masked:DEPLOY_TOKEN]": 1 }));
    ended.run_folder().assert_absent("hunter2");
    assert!(!folder.read("out.json").contains("hunter2"));
}

#[test]
fn an_interrupted_run_keeps_its_submission() {
    let folder = || {
        let folder = job(
            "task",
            "subagents: { worker: { tools: [], returns: { schema: { type: array } } } }\nresult: { schema: { type: object, required: [a] } }\n",
        );
        let script = json!({
            "parent": [
                { "calls": [{ "tool": "task", "input": { "prompt": "Count." } }] },
                { "text": "Done?" },
                { "calls": [{ "tool": "submit_result", "input": {} }, { "tool": "submit_result", "input": { "a": 1 } }] },
                { "text": "All done." },
            ],
            "subagents": { "worker-1": [
                { "text": "Counted." },
                { "calls": [{ "tool": "submit_result", "input": { "result": [1, 2] } }] },
                { "text": "Yes." },
            ] },
        });
        folder.write("replies.yaml", script.to_string());
        folder
    };
    let run = ["run", "job.yaml", "--model", "replay/replies.yaml", "--result", "out.json"];
    let whole = folder();
    let ended = whole.legwork(&run).run();
    ended.assert_code(0).assert_stdout("All done.\n");
    let lines =
        |record: &crate::support::record::RunFolder| (record.events().len(), record.events_of("worker-1").len());
    let (parents, childs) = lines(&ended.run_folder());
    let task = |events: &[Value]| {
        let results = events.iter().filter(|event| event["type"] == "call_finished" && event["data"]["tool"] == "task");
        results.map(|event| event["data"]["result"]["text"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(task(&ended.run_folder().events()), ["[1,2]"]);
    for after in 1..(parents + childs) as u64 {
        let folder = folder();
        let cut = folder.legwork(&run).env("LEGWORK_KILL_AFTER", after.to_string()).run();
        assert_eq!(cut.signal(), Some(9), "{after}");
        assert!(!folder.exists("out.json"));
        let ended = folder.legwork(&["resume", "latest", "--result", "out.json"]).run();
        ended.assert_code(0).assert_stdout("All done.\n");
        assert_eq!(outcome(&ended.run_folder()), (json!("completed"), json!({ "a": 1 })), "{after}");
        assert_eq!(folder.read("out.json"), "{\n  \"a\": 1\n}\n", "{after}");
        let record = ended.run_folder();
        assert_eq!(task(&record.events()), ["[1,2]"], "{after}");
        assert_eq!(record.result()["turns"], 4, "{after}");
        let result = record.events().into_iter().filter(|event| event["type"] == "note_sent").count();
        assert_eq!(result, 1, "{after}");
        assert!(record.summary("worker-1").contains("```json\n[\n  1,\n  2\n]\n```"), "{after}");
    }
}
