//! `legwork export`: traces, trajectories and messages of recorded runs, and traces that are sent when a run has ended.

pub(crate) mod collector;
mod sending;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::house::source::read;
use crate::support::program::ProgramOutput;
use crate::support::server::{Answer, KEY, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

/// What could harm a terminal or a log, and breaks JSON that isn't escaped.
const HOSTILE: &str = "\u{1b}[2J\u{202e}\u{200b}\u{e0041}##[add-mask]x</script> \"\\\n";

const JOB: &str = "
description: Looks at notes.
parent:
  system: You lead.
  prompt: Find out.
  tools: [glob, read_file, write_file, task]
subagents:
  explorer: { description: Reads a note., system: You explore., tools: [read_file] }
checks: [{ name: exists, run: test -e out.txt }]
repairs: 1
limits: { tokens: 1000000 }
";

/// A job with a failing call, two parallel subagents, a check that fails first, and a request that is sent again.
pub(crate) fn folder(model: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", format!("model: {model}{JOB}"));
    folder.write("notes/a.txt", "alpha\n").write("notes/b.txt", "beta\n");
    folder
}

pub(crate) fn script() -> ScriptedAgents {
    let task =
        |note: &str| ("task", json!({ "agent": "explorer", "description": note, "prompt": format!("Read {note}.") }));
    let explorer = |note: &str| {
        let path = json!({ "path": format!("notes/{note}.txt") });
        [Answer::calls(&[("read_file", path)]).cache(40, 5), Answer::text(&format!("{note} is read"))]
    };
    ScriptedAgents::new().agent("Read a.", explorer("a")).agent("Read b.", explorer("b")).agent(
        "Find out.",
        [
            Answer::status(503),
            Answer::calls(&[("glob", json!({ "pattern": "**/*.txt" })), ("read_file", json!({ "path": HOSTILE }))])
                .then_text(HOSTILE),
            Answer::calls(&[task("a"), task("b")]),
            Answer::text("Done."),
            Answer::calls(&[("write_file", json!({ "path": "out.txt", "content": HOSTILE }))]),
            Answer::text("Now it exists."),
        ],
    )
}

fn run(folder: &TestFolder, server: &Server) -> ProgramOutput {
    let run = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).anthropic(server).openai(server).gemini(server);
    run.env("LEGWORK_RETRY_BASE_MS", "1").run()
}

fn export(folder: &TestFolder, arguments: &[&str]) -> ProgramOutput {
    let ended = folder.legwork(&[&["export"], arguments].concat()).run();
    ended.assert_code(0);
    // Whatever the models wrote, the output can be shown.
    for char in ["\u{1b}", "\u{202e}", "\u{200b}", "\u{e0041}", "##[add"] {
        ended.assert_not_printed(char);
    }
    ended
}

fn recorded() -> TestFolder {
    let folder = folder("anthropic/claude-sonnet-4-5");
    run(&folder, &Server::start(script())).assert_code(0);
    folder
}

/// The spans of OTLP's JSON, and the attributes of each by their names.
fn spans(lines: &[Value]) -> Vec<(Value, BTreeMap<String, Value>)> {
    let of = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let spans = lines.iter().flat_map(|line| of(line, "resourceSpans")).flat_map(|it| of(&it, "scopeSpans"));
    let attribute = |it: Value| (it["key"].as_str().unwrap().to_owned(), it["value"].clone());
    let spans = spans.flat_map(|it| of(&it, "spans"));
    spans.map(|span| (span.clone(), of(&span, "attributes").into_iter().map(attribute).collect())).collect()
}

/// The tree of spans, a line each: the depth, the name, and `!` for an error.
pub(crate) fn tree(spans: &[(String, String, String, bool)]) -> Vec<String> {
    fn add(spans: &[(String, String, String, bool)], parent: &str, depth: usize, lines: &mut Vec<String>) {
        for (id, _, name, is_error) in spans.iter().filter(|(_, above, ..)| above == parent) {
            lines.push(format!("{}{name}{}", "  ".repeat(depth), if *is_error { " !" } else { "" }));
            add(spans, id, depth + 1, lines);
        }
    }
    let mut lines = Vec::new();
    add(spans, "", 0, &mut lines);
    assert_eq!(lines.len(), spans.len(), "each span has a parent in the trace: {spans:#?}");
    lines
}

pub(crate) const TREE: [&str; 20] = [
    "invoke_workflow job",
    "  invoke_agent job",
    "    chat claude-sonnet-4-5",
    "    execute_tool glob",
    "    execute_tool read_file !",
    "    chat claude-sonnet-4-5",
    "    execute_tool task",
    "      invoke_agent explorer",
    "        chat claude-sonnet-4-5",
    "        execute_tool read_file",
    "        chat claude-sonnet-4-5",
    "    execute_tool task",
    "      invoke_agent explorer",
    "        chat claude-sonnet-4-5",
    "        execute_tool read_file",
    "        chat claude-sonnet-4-5",
    "    chat claude-sonnet-4-5",
    "    check exists !",
    "    chat claude-sonnet-4-5",
    "    execute_tool write_file",
];

#[test]
fn the_spans_of_a_run_are_a_tree_with_the_same_ids_each_time() {
    let folder = recorded();
    let first = export(&folder, &["--format", "otlp"]);
    let spans = spans(&first.json_lines());
    let text = |span: &Value, key: &str| span[key].as_str().unwrap().to_owned();
    let named: Vec<_> = spans
        .iter()
        .map(|(span, _)| {
            let is_error = span["status"]["code"] == 2;
            (text(span, "spanId"), text(span, "parentSpanId"), text(span, "name"), is_error)
        })
        .collect();
    let tree = tree(&named);
    assert_eq!(tree[..TREE.len()], TREE, "{tree:#?}");
    assert_eq!(tree[TREE.len()..], ["    chat claude-sonnet-4-5", "    check exists"]);
    assert_eq!(first.stdout, export(&folder, &["--format", "otlp"]).stdout, "the ids are derived from the run");
    let time = |span: &Value, key: &str| text(span, key).parse::<u64>().unwrap();
    for (span, _) in &spans {
        assert_eq!((text(span, "traceId").len(), text(span, "spanId").len()), (32, 16));
        let parent = spans.iter().find(|(parent, _)| parent["spanId"] == span["parentSpanId"]);
        assert!(time(span, "startTimeUnixNano") <= time(span, "endTimeUnixNano"), "{span}");
        assert!(parent.is_none_or(|(parent, _)| time(parent, "startTimeUnixNano") <= time(span, "startTimeUnixNano")));
    }
    // Cached tokens are input, too: 12 and 40 and 5.
    let cached: Vec<_> =
        spans.iter().filter(|(_, it)| it.contains_key("gen_ai.usage.cache_read.input_tokens")).collect();
    assert_eq!(cached.len(), 2);
    assert_eq!(cached[0].1["gen_ai.usage.input_tokens"]["intValue"], "57");
    assert_eq!(cached[0].1["gen_ai.usage.cache_write.input_tokens"]["intValue"], "5");
    let retried: Vec<&Value> = spans.iter().map(|(span, _)| &span["events"][0]["name"]).collect();
    assert_eq!(retried[2], "legwork.retry", "{retried:?}");
}

/// Every attribute is one of the conventions or begins with `legwork.`, on the right span, with the right type.
#[test]
fn spans_follow_the_conventions() {
    let conventions: Value = serde_json::from_str(&read("tests/exports/genai_conventions.json")).unwrap();
    let folder = recorded();
    for with_content in [false, true] {
        let options: &[&str] =
            if with_content { &["--format", "otlp", "--with-content"] } else { &["--format", "otlp"] };
        let mut seen = BTreeSet::new();
        for (span, attributes) in spans(&export(&folder, options).json_lines()) {
            for (name, value) in &attributes {
                let type_name = value.as_object().unwrap().keys().next().unwrap();
                match &conventions["types"][name] {
                    Value::String(expected) => assert_eq!(type_name, expected, "{name}"),
                    _ => assert!(name.starts_with("legwork.") || name == "process.exit.code", "{name}"),
                }
                let allowed = &conventions["values"][name];
                assert!(allowed.is_null() || allowed.as_array().unwrap().contains(&value["stringValue"]), "{name}");
            }
            let Some(operation) = attributes.get("gen_ai.operation.name") else {
                assert!(span["name"].as_str().unwrap().starts_with("check "), "{span}");
                continue;
            };
            let operation = operation["stringValue"].as_str().unwrap();
            let expected = &conventions["spans"][operation];
            let list = |key: &str| -> BTreeSet<String> { serde_json::from_value(expected[key].clone()).unwrap() };
            let have: BTreeSet<String> =
                attributes.keys().filter(|name| !name.starts_with("legwork.")).cloned().collect();
            let have: BTreeSet<String> = have.into_iter().filter(|name| name != "process.exit.code").collect();
            let needed: BTreeSet<String> = &list("required") | &list("recommended");
            assert!(have.is_superset(&needed), "{operation} lacks {:?}", &needed - &have);
            let allowed = &needed | &list("optional");
            let allowed = if with_content { &allowed | &list("opt_in") } else { allowed };
            assert!(have.is_subset(&allowed), "{operation} has {:?}", &have - &allowed);
            assert_eq!(span["kind"], expected["kind"], "{operation}");
            let subject = attributes[expected["name"].as_str().unwrap()]["stringValue"].as_str().unwrap();
            assert_eq!(span["name"], format!("{operation} {subject}"));
            assert_eq!(span["status"]["code"] == 2, have.contains("error.type"), "{span}");
            seen.extend(have);
        }
        for content in ["gen_ai.input.messages", "gen_ai.tool.call.result", "gen_ai.system_instructions"] {
            assert_eq!(seen.contains(content), with_content, "{content}");
        }
    }
}

#[test]
fn contents_of_messages_are_exported_only_if_asked_for() {
    let folder = recorded();
    let plain = export(&folder, &["--format", "otlp"]);
    for content in ["Find out.", "You lead", "alpha", "Now it exists", "add-mask"] {
        plain.assert_not_printed(content);
    }
    let lines = export(&folder, &["--format", "otlp", "--with-content"]).json_lines();
    let spans = spans(&lines);
    let content = |at: usize, name: &str| -> Value {
        serde_json::from_str(spans[at].1[name]["stringValue"].as_str().unwrap()).unwrap()
    };
    let part = json!([{ "type": "text", "content": "Find out." }]);
    assert_eq!(content(2, "gen_ai.input.messages"), json!([{ "role": "user", "parts": part }]));
    let output = content(2, "gen_ai.output.messages");
    assert_eq!(output[0]["finish_reason"], "tool_call");
    let texts: Vec<&Value> = output[0]["parts"].as_array().unwrap().iter().map(|part| &part["type"]).collect();
    assert_eq!(texts, ["tool_call", "tool_call", "text"]);
    assert_eq!(output[0]["parts"][2]["content"], HOSTILE);
    assert_eq!(content(3, "gen_ai.tool.call.arguments"), json!({ "pattern": "**/*.txt" }));
    // The second request has only what is new.
    let results = content(5, "gen_ai.input.messages");
    assert_eq!(results.as_array().unwrap().len(), 1);
    assert_eq!(results[0]["role"], "tool");
    assert!(results[0]["parts"][0]["response"].as_str().unwrap().contains("notes/a.txt"), "{results}");
}

#[test]
fn trajectories_match_the_schema_of_the_format() {
    // From the format's own repository, <https://github.com/harbor-framework/harbor>, under the Apache License 2.0.
    let schema: Value = serde_json::from_str(&read("tests/exports/atif-1.8.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let folder = recorded();
    let trajectory = export(&folder, &["--format", "atif"]).json();
    let errors: Vec<String> =
        validator.iter_errors(&trajectory).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert_eq!(errors, [""; 0]);
    assert!(!validator.is_valid(&json!({ "agent": {}, "steps": [] })), "the schema can fail");
    let subagents = trajectory["subagent_trajectories"].as_array().unwrap();
    assert_eq!(subagents.len(), 2);
    let mut references = Vec::new();
    for trajectory in subagents.iter().chain([&trajectory]) {
        let steps = trajectory["steps"].as_array().unwrap();
        assert_eq!(trajectory["final_metrics"]["total_steps"], steps.len());
        for (at, step) in steps.iter().enumerate() {
            assert_eq!(step["step_id"], at + 1);
            let calls = step["tool_calls"].as_array().cloned().unwrap_or_default();
            for result in step["observation"]["results"].as_array().into_iter().flatten() {
                let id = &result["source_call_id"];
                assert!(id.is_null() || calls.iter().any(|call| call["tool_call_id"] == *id), "{step}");
                references.extend(result["subagent_trajectory_ref"][0]["trajectory_id"].as_str().map(str::to_owned));
            }
        }
    }
    assert_eq!(references, ["explorer-1", "explorer-2"]);
    assert_eq!(subagents.iter().map(|it| it["trajectory_id"].as_str().unwrap()).collect::<Vec<_>>(), references);
    let steps = trajectory["steps"].as_array().unwrap();
    let sources: Vec<&str> = steps.iter().map(|step| step["source"].as_str().unwrap()).collect();
    assert_eq!(
        sources,
        ["system", "user", "agent", "agent", "agent", "system", "user", "agent", "agent", "system"],
        "{steps:#?}"
    );
    assert_eq!(steps[2]["message"], HOSTILE);
    assert_eq!(steps[2]["extra"]["retries"].as_array().unwrap().len(), 1);
    assert_eq!(steps[7]["tool_calls"][0]["arguments"]["content"], HOSTILE);
    assert_eq!(steps[5]["extra"]["exit_code"], 1);
}

/// The messages of a request's body, without marks for the cache.
fn messages(body: &Value) -> Vec<Value> {
    fn without_marks(value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                let members = members.iter().filter(|(key, _)| *key != "cache_control");
                members.map(|(key, value)| (key.clone(), without_marks(value))).collect()
            }
            Value::Array(items) => items.iter().map(without_marks).collect(),
            other => other.clone(),
        }
    }
    let list = ["messages", "input", "contents"].into_iter().find_map(|key| body[key].as_array());
    list.expect("messages").iter().map(without_marks).collect()
}

#[test]
fn exported_messages_are_those_that_the_provider_got_and_the_last_reply() {
    for model in ["anthropic/claude-sonnet-4-5", "openai/gpt-5.1", "openai-chat/some-model", "gemini/gemini-2.5-flash"]
    {
        let folder = folder(model);
        let server = Server::start(script());
        run(&folder, &server).assert_code(0);
        let requests = server.finish();
        for (agent, prompt, last) in [
            ("parent", "Find out.", "Now it exists."),
            ("explorer-1", "Read a.", "a is read"),
            ("explorer-2", "Read b.", "b is read"),
        ] {
            let sent = requests.iter().rfind(|request| request.prompt().contains(prompt)).unwrap();
            let base = server_free_url();
            let exported = folder
                .legwork(&["export", "--format", "messages", "--agent", agent])
                .env("ANTHROPIC_BASE_URL", &base)
                .env("OPENAI_BASE_URL", format!("{base}/v1"))
                .env("GOOGLE_GEMINI_BASE_URL", &base)
                .run();
            exported.assert_code(0).assert_stderr("");
            let exported = exported.json();
            let (then, now) = (messages(sent.raw_body()), messages(&exported));
            assert_eq!(now[..then.len()], then, "{model} {agent}");
            let [reply] = &now[then.len()..] else { panic!("{model} {agent}: {now:#?}") };
            assert!(reply.to_string().contains(last), "{reply}");
            for (key, value) in sent.raw_body().as_object().unwrap() {
                let is_list = ["messages", "input", "contents"].contains(&key.as_str());
                assert!(is_list || exported[key] == *value, "{model}: {key} is {} instead of {value}", exported[key]);
            }
        }
    }
}

/// An address that nothing listens on.
fn server_free_url() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn messages_can_be_written_for_another_api() {
    let folder = recorded();
    for (api, list) in [("openai", "input"), ("openai-chat", "messages"), ("gemini", "contents")] {
        let body = export(&folder, &["--format", "messages", "--api", api]).json();
        let texts = body[list].to_string();
        assert!(
            texts.contains("Find out.") && texts.contains("Now it exists.") && texts.contains("out.txt"),
            "{texts}"
        );
        assert!(!body.to_string().contains("claude"), "another API doesn't have the model");
    }
}

#[test]
fn an_export_replaces_no_record_and_follows_no_link_to_elsewhere() {
    let folder = recorded();
    let record = std::fs::read_link(folder.at("runs/job/latest")).unwrap();
    let journal = format!("runs/job/{}/events.jsonl", record.display());
    let before = folder.read(&journal);
    std::os::unix::fs::symlink(folder.home(), folder.at("link")).unwrap();
    for (file, why) in [(journal.as_str(), "it is part of a record"), ("link/trace.json", "outside this folder")] {
        let refused = folder.legwork(&["export", "--format", "atif", "--output", file]).run();
        refused.assert_code(2).assert_stderr_contains(why);
    }
    assert_eq!(folder.read(&journal), before);
    assert!(!folder.home().join("trace.json").exists());
}

#[test]
fn wrong_options_are_refused_with_what_to_do() {
    let folder = recorded();
    for (arguments, message) in [
        (vec!["--format", "atif", "--with-content"], "--with-content has no effect with --format atif"),
        (vec!["--format", "otlp", "--agent", "parent"], "--agent has no effect with --format otlp"),
        (vec!["--format", "messages", "--agent", "explorer-3"], "no conversation of `explorer-3`"),
        (vec!["--format", "messages", "--agent", "../x"], "an agent is `parent`, or a subagent and its number"),
        (vec!["--format", "otlp", "--output", "missing/x"], "can't write missing/x"),
        (vec!["--format", "xml"], "possible values: otlp, atif, messages"),
    ] {
        let ended = folder.legwork(&[&["export"], &*arguments].concat()).run();
        ended.assert_code(2).assert_stdout("").assert_stderr_contains(message);
    }
    let scripted = TestFolder::new();
    scripted.write("job.yaml", "model: replay/s.yaml\nparent: { prompt: Hello., tools: [] }\n");
    scripted.write("s.yaml", "parent: [{ text: Hi. }]\n");
    scripted.legwork(&["run", "job.yaml"]).run().assert_code(0);
    let ended = scripted.legwork(&["export", "--format", "messages"]).run();
    ended.assert_code(2).assert_stderr_contains("Choose one with --api: anthropic, openai, openai-chat, gemini");
}

#[test]
fn a_file_is_written_whole_and_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = recorded();
    let stdout = export(&folder, &["--format", "atif"]).stdout;
    let ended = export(&folder, &["--format", "atif", "--output", "run.json"]);
    ended.assert_stdout("").assert_stderr("written: run.json\n");
    assert_eq!(folder.read("run.json"), stdout);
    let mode = folder.at("run.json").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it has what the record has");
    // A failure leaves the file as it was.
    let failed =
        folder.legwork(&["export", "--format", "messages", "--agent", "explorer-9", "--output", "run.json"]).run();
    failed.assert_code(2);
    assert_eq!(folder.read("run.json"), stdout);
    assert!(folder.list().iter().all(|name| !name.contains(".legwork-")), "{:?}", folder.list());
}

#[test]
fn what_is_left_of_a_damaged_record_is_exported() {
    let folder = recorded();
    folder.allow_forged_records();
    let record = folder.records().pop().unwrap();
    let journal = record.join("events.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // The second turn's calls have started; the next line is torn.
    let at = lines.iter().position(|line| line.contains("explorer-1")).unwrap() + 1;
    std::fs::write(&journal, format!("{}\n{}", lines[..at].join("\n"), &lines[at][..20])).unwrap();
    std::fs::remove_file(record.join("result.json")).unwrap();
    std::fs::remove_file(record.join("subagents/explorer-2.events.jsonl")).unwrap();
    for format in ["otlp", "atif", "messages"] {
        let ended = folder.legwork(&["export", "--format", format]).run();
        ended.assert_code(0).assert_stderr_contains("warning: ");
        let printed = ended.stdout;
        assert!(printed.contains("read_file") && printed.ends_with("}\n"), "{format}: {printed}");
        assert!(!printed.contains("Now it exists"), "{format}");
    }
    let schema: Value = serde_json::from_str(&read("tests/exports/atif-1.8.schema.json")).unwrap();
    let trajectory = export(&folder, &["--format", "atif"]).json();
    assert!(jsonschema::is_valid(&schema, &trajectory));
    assert!(!trajectory["extra"]["missing"].as_array().unwrap().is_empty());
    let spans = spans(&export(&folder, &["--format", "otlp"]).json_lines());
    assert_eq!(spans[0].1["error.type"]["stringValue"], "interrupted");
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let folder = recorded();
    for format in ["otlp", "atif"] {
        let program = env!("CARGO_BIN_EXE_legwork");
        let command = format!("set -o pipefail; '{program}' export --format {format} | head -c 10");
        folder.program("bash", &["-c", &command]).run().assert_code(0).assert_stderr("");
    }
}

#[test]
fn exports_have_no_keys() {
    let folder = recorded();
    for format in ["otlp", "atif", "messages"] {
        export(&folder, &["--format", format]).assert_not_printed(KEY);
    }
}
