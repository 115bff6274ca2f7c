//! Every line matches the schema, and a line that doesn't match is detected.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{RUN, journals, latest, prepared};
use crate::running::runs::folder_with;
use crate::support::bubblewrap::bubblewrap_works;
use crate::support::journal::{checked_lines, list_error, result_error, schema_error};
use crate::support::server::{Answer, Checks, Request, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

/// Every line of every journal of a folder's run, each validated.
fn all_lines(folder: &TestFolder) -> Vec<Value> {
    let record = latest(folder);
    journals(&record).iter().flat_map(|name| checked_lines(name, &record.file(name))).collect()
}

/// A run whose provider throttles, cuts and rejects replies, and which then reaches its turn limit.
fn run_with_provider_errors() -> Vec<Value> {
    let folder = folder_with("parent: { prompt: Go., tools: [bash], max_turns: 3 }\n");
    let call = |command: &str| Answer::calls(&[("bash", json!({ "command": command }))]);
    let answers = [
        Answer::status(529).error("overloaded_error", "busy"),
        call("echo one").thinking("hm", "c2lnbmF0dXJl"),
        Answer::empty().then_broken_call("bash", "{\"command\": \"touch r").stop("max_tokens"),
        Answer::status(400).error("invalid_request_error", "no credit"),
        call("echo two")
            .then_unknown_block(json!({ "type": "block_of_tomorrow", "x": [1.5, null] }))
            .stop("stop_of_tomorrow")
            .nonstandard(),
        Answer::text("So far."),
    ];
    let server = Server::with(Checks::AllowRepeats, ScriptedAgents::of(answers));
    let start = |line: &[&str]| folder.legwork(line).anthropic(&server).env("LEGWORK_RETRY_BASE_MS", "1").run();
    start(&["run", "job.yaml"]).assert_code(5);
    start(&["resume", "latest"]).assert_code(4).assert_stdout("So far.\n");
    all_lines(&folder)
}

/// A run with parallel subagents that is interrupted and resumes.
fn resumed_run() -> Vec<Value> {
    let folder = prepared();
    folder.legwork(RUN).env("LEGWORK_KILL_AFTER", "17").run();
    folder.legwork(&["resume", "latest"]).run().assert_code(0);
    all_lines(&folder)
}

/// A subagent that ends because of a limit of the whole run.
fn run_at_limit() -> Vec<Value> {
    let folder = folder_with("parent: { prompt: Go., tools: [task] }\nlimits: { tool_calls: 2 }\n");
    let server = Server::start(|request: &Request| match (request.prompt().as_str(), request.can_call_tools()) {
        ("Go.", true) => Answer::calls(&[("task", json!({ "prompt": "Look." }))]),
        (_, true) => Answer::calls(&[("glob", json!({ "pattern": "*" })), ("glob", json!({ "pattern": "**" }))]),
        _ => Answer::text("So far."),
    });
    folder.legwork(&["run", "job.yaml"]).anthropic(&server).run().assert_code(4);
    all_lines(&folder)
}

/// A run that resumes after a limit of the whole run ended it, its subagent, and a call.
fn run_with_raised_limit() -> Vec<Value> {
    let folder = TestFolder::new();
    let glob = |pattern: &str| json!({ "tool": "glob", "input": { "pattern": pattern } });
    let task = json!({ "tool": "task", "input": { "prompt": "Look." } });
    let replies = json!({
        "parent": [{ "calls": [task, glob("*")] }, { "text": "So far." }, { "text": "Done." }],
        "subagents": { "general-1": [{ "calls": [glob("*"), glob("**")] }, { "text": "So far." }, { "text": "Done." }] },
    });
    folder.write("replies.yaml", replies.to_string());
    folder.write(
        "job.yaml",
        "model: replay/replies.yaml\nparent: { prompt: Go., tools: [task, glob] }\nlimits: { tool_calls: 2 }\n",
    );
    folder.legwork(&["run", "job.yaml"]).run().assert_code(4);
    folder.legwork(&["resume", "latest", "--limit", "tool_calls=9"]).run().assert_code(0);
    all_lines(&folder)
}

/// A run with a check.
fn run_with_checks() -> Vec<Value> {
    let folder = folder_with("parent: { prompt: Go., tools: [] }\nchecks: [{ name: a, run: 'true' }]\n");
    let server = Server::start(|_: &Request| Answer::text("Done."));
    folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).anthropic(&server).run().assert_code(0);
    all_lines(&folder)
}

/// A run with a step before its agent, which proposes nothing.
fn run_with_steps_and_outputs() -> Vec<Value> {
    let folder = folder_with(
        "parent: { prompt: 'Go {{ before.a }}.', tools: [{ output: [issue] }] }\n\
         before: [{ name: a, run: 'echo text' }]\noutputs: { issue: {} }\n",
    );
    let server = Server::start(|_: &Request| Answer::text("Done."));
    folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).anthropic(&server).run().assert_code(0);
    all_lines(&folder)
}

/// A run that replaces the state of its job.
fn run_with_state() -> Vec<Value> {
    let folder = folder_with("parent: { prompt: 'Go {{ state }}.', tools: [] }\nstate: { schema: {}, initial: [1] }\n");
    let server = Server::with(
        Checks::All,
        ScriptedAgents::of([Answer::calls(&[("set_state", json!({ "value": [2] }))]), Answer::text("Done.")]),
    );
    folder.legwork(&["run", "job.yaml"]).anthropic(&server).run().assert_code(0);
    all_lines(&folder)
}

/// A run that reaches one host and is refused another, or without bubblewrap the lines that it would have.
fn run_with_hosts() -> Vec<Value> {
    if !bubblewrap_works() {
        let line = |kind: &str, data: Value| json!({ "seq": 1, "at": "2026-11-28T12:00:00Z", "agent": "parent", "type": kind, "data": data, "sum": "0123456789abcdef" });
        let used = json!({ "call": "a", "host": "a.test", "port": 7000, "connections": 1, "sent_bytes": 1, "received_bytes": 1 });
        let refused = json!({ "call": "a", "host": "b.test", "port": null, "reason": "not_listed", "count": 1 });
        return vec![line("network_used", used), line("network_refused", refused)];
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("::127.0.0.1:{}", listener.local_addr().unwrap().port());
    let folder = folder_with(
        "parent: { prompt: Go., tools: [] }\nnetwork: { allow: ['a.example.com:7000'] }\n\
         checks: [{ name: c, run: 'echo > /dev/tcp/a.example.com/7000; echo > /dev/tcp/b.example.com/7000 || true' }]\n",
    );
    let server = Server::start(|_: &Request| Answer::text("Done."));
    folder.legwork(&["run", "job.yaml", "--connect-to", &place]).anthropic(&server).run().assert_code(0);
    all_lines(&folder)
}

/// A run without anything to do.
fn skipped_run() -> Vec<Value> {
    let folder = folder_with(
        "parent: { prompt: 'Go.', tools: [] }\nbefore: [{ name: a, run: 'true' }]\nskip_if: \"{{ before.a == '' }}\"\n",
    );
    folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).run().assert_code(0);
    all_lines(&folder)
}

/// A run in which a fallback answers.
fn run_with_fallback() -> Vec<Value> {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: { name: anthropic/claude-haiku-4-5, fallback: [openai/some-model] }\n\
         parent: { prompt: Go., tools: [] }\nlimits: { tokens: 100000 }\n",
    );
    let server = Server::start(|request: &Request| match request.model() {
        "some-model" => Answer::text("Done."),
        _ => Answer::status(500).error("api_error", "Down."),
    });
    let program = folder.legwork(&["run", "job.yaml"]).env("LEGWORK_RETRY_BASE_MS", "1");
    program.anthropic(&server).openai(&server).run().assert_code(0);
    all_lines(&folder)
}

/// A run that exceeds its context window: a result is truncated, and then earlier messages are summarized.
fn compacted_run() -> Vec<Value> {
    let folder = TestFolder::new();
    let job = "model: { name: replay/replies.yaml, context: 4000 }\nparent: { prompt: Go., tools: [read_file], max_tokens: 400 }\n";
    folder.write("job.yaml", format!("{job}limits: {{ tokens: 100000 }}\n"));
    folder.write("notes.txt", "some words to fill a line\n".repeat(60));
    let turn = |number: usize| json!({ "text": format!("Turn {number}. {}", "I think. ".repeat(100)), "calls": [{ "tool": "read_file", "input": { "path": "notes.txt" } }] });
    let mut replies: Vec<Value> = (1..=6).map(turn).collect();
    replies.push(json!({ "text": "It was read.", "kept_turns": 1 }));
    replies.push(json!({ "text": "Done." }));
    folder.write("replies.yaml", json!({ "parent": replies }).to_string());
    folder.legwork(&["run", "job.yaml"]).run().assert_code(0);
    all_lines(&folder)
}

/// The event types in the schema.
/// A run whose request is stopped by a signal, and whose result is taken from its last text.
fn run_with_interrupted_request() -> Vec<Value> {
    let folder = folder_with(
        "parent: { prompt: Go., tools: [] }\nresult: { schema: { type: object, required: [n], properties: { n: { type: integer } } } }\n",
    );
    let first = std::sync::atomic::AtomicBool::new(true);
    let server = Server::with(Checks::AllowRepeats, move |_: &Request| {
        match first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            true => Answer::deltas((0..40).map(|_| "some words ")).cut_after_events(20).hang(),
            false => Answer::text("{\"n\": 3}"),
        }
    });
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
    server.wait_for(1);
    running.signal(rustix::process::Signal::INT);
    running.wait().assert_code(130);
    folder.legwork(&["resume", "latest"]).anthropic(&server).run().assert_code(0);
    all_lines(&folder)
}

fn types() -> BTreeSet<String> {
    let schema = TestFolder::new().legwork(&["schema", "events"]).run().json();
    let types = schema["properties"]["type"]["enum"].as_array().unwrap();
    types.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_line_of_a_real_run_is_valid_and_one_with_a_wrong_field_is_not() {
    let all: Vec<Value> = [
        run_with_raised_limit(),
        run_with_provider_errors(),
        resumed_run(),
        run_at_limit(),
        run_with_checks(),
        run_with_steps_and_outputs(),
        run_with_state(),
        run_with_hosts(),
        skipped_run(),
        compacted_run(),
        run_with_fallback(),
        run_with_interrupted_request(),
    ]
    .concat();
    let mut examples: BTreeMap<String, Value> = BTreeMap::new();
    for line in all {
        examples.entry(line["type"].as_str().unwrap().to_owned()).or_insert(line);
    }
    assert_eq!(examples.keys().cloned().collect::<BTreeSet<_>>(), types(), "an event that no run here has");
    for (name, line) in &examples {
        let spoilt = |why: &str, spoil: &dyn Fn(&mut Value)| {
            let mut line = line.clone();
            spoil(&mut line);
            assert!(schema_error(&line).is_some(), "{name}: {why} is let through: {line}");
        };
        for field in ["seq", "at", "agent", "type", "data", "sum"] {
            spoilt("a missing field", &|line| drop(line.as_object_mut().unwrap().remove(field)));
            spoilt("a field of a wrong type", &|line| line[field] = json!([]));
        }
        spoilt("an unknown field", &|line| line["colour"] = json!("red"));
        spoilt("an unknown field of the data", &|line| line["data"]["colour"] = json!("red"));
        spoilt("an unknown type", &|line| line["type"] = json!("painted"));
        for field in line["data"].as_object().unwrap().keys() {
            // Empty optional fields are omitted.
            let optional = [
                "child",
                "file_version",
                "incomplete",
                "folder",
                "options",
                "limits",
                "last_seen",
                "subagents",
                "calls",
            ];
            let of_step = name == "before_finished";
            let is_optional = optional.contains(&field.as_str()) || (of_step && field == "exit_code");
            if !is_optional {
                spoilt("a missing field of the data", &|line| {
                    drop(line["data"].as_object_mut().unwrap().remove(field));
                });
            }
            // A result, the value of a step and a state can be anything.
            let is_value = field == "value" && (of_step || name.starts_with("state_"));
            if name != "result_taken" && !is_value {
                spoilt("a wrong field of the data", &|line| line["data"][field] = json!([[]]));
            }
        }
        for other in examples.keys().filter(|other| *other != name) {
            spoilt("another type's data", &|line| line["type"] = json!(other));
        }
    }
    let deep: &[(&str, &str)] = &[
        ("reply_received", "/data/reply/usage/output_tokens"),
        ("reply_received", "/data/reply/stop"),
        ("reply_received", "/data/reply/blocks/0/content"),
        ("retrying", "/data/retry/attempt"),
        ("call_finished", "/data/result/is_error"),
        ("agent_finished", "/data/outcome"),
        ("run_started", "/data/plan/parent/max_turns"),
    ];
    for (name, place) in deep {
        let mut line = examples[*name].clone();
        *line.pointer_mut(place).expect(place) = json!("purple");
        assert!(schema_error(&line).is_some(), "{name}: {place} is let through");
    }
}

/// Spoils every field of a value, at any depth, and returns the places at which the schema lets that through.
fn places_without_check(whole: &Value, error: fn(&Value) -> Option<String>) -> BTreeSet<String> {
    let mut through = BTreeSet::new();
    let mut open = vec![String::new()];
    while let Some(place) = open.pop() {
        match whole.pointer(&place).unwrap() {
            Value::Object(fields) => {
                open.extend(fields.keys().map(|name| format!("{place}/{}", name.replace('/', "~1"))));
            }
            Value::Array(items) => open.extend((0..items.len()).map(|at| format!("{place}/{at}"))),
            _ => {}
        }
        let mut spoilt = whole.clone();
        *spoilt.pointer_mut(&place).unwrap() = json!([[]]);
        if error(&spoilt).is_none() {
            through.insert(place);
        }
    }
    through
}

/// Results and lists of all kinds fit their schemas wherever a test reads them. This is the other direction.
#[test]
fn the_schemas_of_results_and_lists_refuse_nonsense() {
    let folder = folder_with(
        "parent: { prompt: Go., tools: [task, write_file] }\nlimits: { cost_usd: 3 }\n\
         checks: [{ name: there, run: test -e b }]\nresult: { schema: { type: object } }\n",
    );
    let server =
        Server::with(Checks::AllowRepeats, |request: &Request| match (request.prompt().as_str(), request.turn()) {
            ("Go.", 0) => Answer::calls(&[
                ("task", json!({ "prompt": "Look.", "description": "Looks." })),
                ("write_file", json!({ "path": "a", "content": "a\n" })),
            ]),
            ("Go.", 1) => Answer::calls(&[("submit_result", json!({ "answer": 1 }))]),
            _ => Answer::text("Done.").usage(100, 10),
        });
    folder.legwork(&["run", "job.yaml"]).anthropic(&server).run().assert_code(1);
    let result = latest(&folder).result();
    assert!(result["subagents"][0]["id"].is_string() && result["checks"][0]["name"] == "there", "{result}");
    let free = |place: &String| !place.starts_with("/result");
    let through: Vec<String> = places_without_check(&result, result_error).into_iter().filter(free).collect();
    assert_eq!(through, [""; 0], "{result:#}");
    // Older results lack these.
    let optional = ["result", "error", "cost_usd", "changes", "changed_files", "changes_incomplete"];
    for name in result.as_object().unwrap().keys().filter(|name| !optional.contains(&name.as_str())) {
        let mut spoilt = result.clone();
        spoilt.as_object_mut().unwrap().remove(name);
        assert!(result_error(&spoilt).is_some(), "{name} can be missing");
    }
    let list = folder.legwork(&["runs", "--format", "json"]).run().json();
    assert_eq!(list_error(&list), None);
    let through = places_without_check(&list, list_error);
    assert_eq!(through, BTreeSet::new(), "{list:#}");
}

/// The format version in a record of another legwork version.
fn write_other_format(folder: &TestFolder, format: u64) {
    let path = folder.at("runs/job/latest/events.jsonl");
    let journal = std::fs::read_to_string(&path).unwrap();
    let (first, rest) = journal.split_once('\n').unwrap();
    let mut line: Value = serde_json::from_str(first).unwrap();
    line["data"]["format"] = json!(format);
    line["data"]["version"] = json!("9.8.7");
    line["data"]["of_tomorrow"] = json!({});
    std::fs::write(&path, format!("{line}\n{rest}")).unwrap();
}

#[test]
fn records_of_other_formats_are_rejected_by_every_command() {
    let folder = prepared();
    folder.legwork(RUN).env("LEGWORK_KILL_AFTER", "12").run();
    write_other_format(&folder, 1);
    let before = latest(&folder).files();
    let replay = ["run", "job.yaml", "--out", "elsewhere", "--model", "replay/runs/job/latest"];
    let commands: [&[&str]; 4] = [&["show"], &["show", "latest", "--rebuild"], &["resume", "latest"], &replay];
    for command in commands {
        let refused = folder.legwork(command).run();
        refused
            .assert_code(2)
            .assert_stdout("")
            .assert_stderr_contains("the record's format is 1, and this legwork reads format 2");
        refused.assert_stderr_contains("Legwork 9.8.7, which wrote it, can read it.");
    }
    assert_eq!(latest(&folder).files(), before);
    assert!(!folder.exists("elsewhere"));
}

#[test]
fn results_of_other_formats_are_rejected() {
    let folder = prepared();
    folder.legwork(RUN).run().assert_code(0);
    let path = folder.at("runs/job/latest/result.json");
    let result = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, result.replacen("\"format\": 2", "\"format\": 3", 1)).unwrap();
    folder
        .legwork(&["show", "--errors"])
        .run()
        .assert_code(2)
        .assert_stderr_contains("the record's format is 3")
        .assert_stderr_contains("which wrote it");
}
