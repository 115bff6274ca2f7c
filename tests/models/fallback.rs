//! Fallback models: which failures they take over, with what conversation, and what the record says about it.

use serde_json::{Value, json};

use crate::support::job::{EndedRun, Job};
use crate::support::program::Program;
use crate::support::record::RunFolder;
use crate::support::server::{Answer, Checks, KEY, Request, Server};
use crate::support::test_folder::TestFolder;

/// A model of each API, and another one of the same API.
const MODELS: [[&str; 2]; 4] = [
    ["anthropic/claude-haiku-4-5", "anthropic/claude-opus-4-6"],
    ["openai/some-model", "openai/other-model"],
    ["openai-chat/chat-model", "openai-chat/other-chat-model"],
    ["gemini/gemini-3.8-flash", "gemini/gemini-3.5-flash"],
];
const SIGNATURE: &str = "c2lnbmVkLWJ5LXRoZS1maXJzdA==";
const THOUGHT: &str = "Only the first model may read this.";

fn folder(model: &str, rest: &str) -> TestFolder {
    let folder = TestFolder::new();
    let parent = "parent: { prompt: Find out., tools: [read_file, glob], max_turns: 9 }";
    folder.write("job.yaml", format!("model: {model}\n{parent}\n{rest}")).write("notes/a.txt", "alpha\n");
    folder
}

fn program(folder: &TestFolder, server: &Server, arguments: &[&str]) -> Program {
    let program = folder.legwork(arguments).env("LEGWORK_RETRY_BASE_MS", "1");
    program.anthropic(server).openai(server).gemini(server)
}

fn run(folder: &TestFolder, server: &Server) -> EndedRun {
    Job::in_folder(folder).anthropic(server).openai(server).gemini(server).run()
}

/// The name of a model in requests.
fn name(model: &str) -> &str {
    model.split_once('/').unwrap().1
}

fn read(path: &str) -> (&'static str, Value) {
    ("read_file", json!({ "path": path }))
}

/// The first model thinks, calls tools twice, and then fails. The other one calls one more and answers.
fn failing_at_turn_2(first: &str) -> impl Fn(&Request) -> Answer + Send + Sync + 'static {
    let first = name(first).to_owned();
    move |request: &Request| {
        let answer = match (request.model() == first, request.turn()) {
            (true, 0) => Answer::calls(&[read("notes/a.txt"), read("missing.txt")]).then_text("I look."),
            (true, 1) => Answer::calls(&[("glob", json!({ "pattern": "notes/*" }))]),
            (true, _) => return Answer::status(500).error("api_error", "Down."),
            (false, 2) => return Answer::calls(&[read("notes/a.txt")]),
            (false, _) => return Answer::text("It says alpha."),
        };
        answer.thinking(THOUGHT, SIGNATURE)
    }
}

fn events(record: &RunFolder, kind: &str) -> Vec<Value> {
    let events = record.events();
    events.into_iter().filter(|event| event["type"] == kind).map(|event| event["data"].clone()).collect()
}

#[test]
fn a_fallback_of_every_api_takes_over_a_conversation_of_every_api() {
    for [first, _] in MODELS {
        for [own, other] in MODELS {
            let second = if own == first { other } else { own };
            let folder = folder(&format!("{{ name: {first}, fallback: [{second}] }}"), "limits: { tokens: 900000 }\n");
            let server = Server::with(Checks::AllowHandover, failing_at_turn_2(first));
            let ended = run(&folder, &server);
            ended.assert_code(0).assert_stdout("It says alpha.\n");
            let requests = server.finish();
            let of_second: Vec<_> = requests.iter().filter(|request| request.model() == name(second)).collect();
            assert_eq!((requests.len(), of_second.len()), (2 + 6 + 2, 2), "{first} {second}");
            // What the first model said and read is there, and nothing that only it accepts.
            let messages = of_second[0].messages();
            assert_eq!(messages.len(), 5, "{messages:?}");
            let text = Value::from(messages).to_string();
            for part in ["Find out.", "I look.", "alpha", "missing.txt", "notes/*"] {
                assert!(text.contains(part), "{part}: {text}");
            }
            for request in &of_second {
                let body = String::from_utf8_lossy(request.bytes());
                for part in [SIGNATURE, THOUGHT] {
                    assert!(!body.contains(part), "{first} {second}: {part} in {body}");
                }
            }
            // Nine letters and digits fit every API.
            assert!(!text.contains("toolu_") && text.contains("call00001"), "{text}");
            let result = ended.run_folder().result();
            assert_eq!((&result["model"], &result["answered_by"]), (&json!(first), &json!(second)));
            folder.legwork(&["replay", "latest"]).run().assert_code(0);
            let exported = folder.legwork(&["export", "latest", "--format", "messages"]).run();
            exported.assert_code(0).assert_stdout_contains("It says alpha.").assert_not_printed(SIGNATURE);
            assert_eq!(exported.json()["model"], of_second[0].raw_body()["model"], "{first} {second}");
        }
    }
}

#[test]
fn the_record_the_report_and_the_cost_say_who_answered() {
    let (first, second) = ("anthropic/claude-haiku-4-5", "openai/gpt-5.1");
    let folder = folder(&format!("{{ name: {first}, fallback: [{second}] }}"), "limits: { cost_usd: 5 }\n");
    let server = Server::with(Checks::AllowHandover, move |request: &Request| {
        match (request.model() == name(first), request.turn()) {
            (true, 0) => Answer::calls(&[read("notes/a.txt")]).usage(100_000, 0),
            (true, _) => Answer::status(500).error("api_error", "Down."),
            (false, _) => Answer::text("It says alpha.").usage(100_000, 4_000),
        }
    });
    let ended = program(&folder, &server, &["run", "job.yaml"]).run();
    ended.assert_code(0).assert_stderr_contains(&format!("{first} failed, {second} answers from here on"));
    let record = ended.run_folder();
    // 0.1M at $1 and 6 at $5, then 0.1M at $1.25 and 4,000 at $10 for a million.
    assert_eq!(record.result()["cost_usd"], json!(0.26503));
    let changed = events(&ended.run_folder(), "model_changed");
    assert_eq!((&changed[0]["from"], &changed[0]["to"], changed.len()), (&json!(first), &json!(second), 1));
    let asked: Vec<Value> =
        events(&ended.run_folder(), "request_started").iter().map(|event| event["model"].clone()).collect();
    assert_eq!(asked, [Value::Null, Value::Null, json!(second)]);
    let note = format!("{first} failed, {second} answers from here on");
    for text in [record.transcript(), record.file("report.html").replace("&#x2f;", "/")] {
        assert!(text.contains(&note) && text.contains(&format!("{first}, then {second} (fallback)")), "{text}");
    }
    let spans = folder.legwork(&["export", "latest", "--format", "otlp"]).run();
    spans.assert_code(0).assert_stdout_contains("gpt-5.1").assert_stdout_contains("legwork.model_changed");
    folder
        .legwork(&["export", "latest", "--format", "atif"])
        .run()
        .assert_code(0)
        .assert_stdout_contains("model_changed");
}

#[test]
fn fallbacks_are_used_in_their_order_and_a_resumed_run_goes_on_with_the_last_one() {
    let model =
        "{ name: anthropic/claude-haiku-4-5, fallback: [openai/b, { name: gemini/gemini-3.8-flash, thinking: low }] }";
    let folder = folder(model, "limits: { tokens: 900000 }\n");
    let server = Server::with(Checks::AllowHandover, |request: &Request| match (request.model(), request.turn()) {
        ("claude-haiku-4-5", 0) => Answer::calls(&[read("notes/a.txt")]),
        _ => Answer::status(500).error("api_error", "Down."),
    });
    let ended = run(&folder, &server);
    ended.assert_code(75);
    let result = ended.run_folder().result();
    assert_eq!((&result["outcome"], &result["answered_by"]), (&json!("provider_failed"), &Value::Null));
    let asked: Vec<String> = server.finish().iter().map(|request| request.model().to_owned()).collect();
    let tries = |model: &str| vec![model.to_owned(); 6];
    assert_eq!(asked[1..], [tries("claude-haiku-4-5"), tries("b"), tries("gemini-3.8-flash")].concat());
    folder.legwork(&["replay", "latest"]).run().assert_code(0);

    let server = Server::with(Checks::AllowHandover, |_: &Request| Answer::text("Done."));
    program(&folder, &server, &["resume", "latest"]).run().assert_code(0).assert_stdout("Done.\n");
    let requests = server.finish();
    assert_eq!((requests.len(), requests[0].model()), (1, "gemini-3.8-flash"));
    assert_eq!(requests[0].raw_body()["generationConfig"]["thinkingConfig"]["thinkingLevel"], json!("LOW"));
    assert!(Value::from(requests[0].messages()).to_string().contains("alpha"));
    assert_eq!(ended.run_folder().result()["answered_by"], json!("gemini/gemini-3.8-flash"));
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
}

#[test]
fn each_agent_falls_back_for_itself() {
    let folder = TestFolder::new();
    let job = "\
model: { name: anthropic/claude-haiku-4-5, fallback: [openai/b] }
parent: { prompt: Find out., tools: [task] }
subagents:
  plain: { description: a, tools: [] }
  other: { description: b, tools: [], model: gemini/gemini-3.8-flash }
limits: { tokens: 900000, parallel_subagents: 1 }
";
    folder.write("job.yaml", job);
    let calls = ["plain", "other"].map(|agent| ("task", json!({ "agent": agent, "prompt": agent })));
    let server = Server::with(Checks::AllowHandover, move |request: &Request| {
        match (request.model(), &*request.prompt(), request.turn()) {
            ("claude-haiku-4-5", "Find out.", 0) => Answer::calls(&calls),
            ("claude-haiku-4-5", "plain", _) => Answer::status(500).error("api_error", "Down."),
            _ => Answer::text("Done."),
        }
    });
    let ended = run(&folder, &server);
    ended.assert_code(0);
    let result = ended.run_folder().result();
    assert_eq!(result["answered_by"], Value::Null);
    let subagents = result["subagents"].as_array().unwrap();
    let answered: Vec<&Value> = subagents.iter().map(|subagent| &subagent["answered_by"]).collect();
    assert_eq!(answered, [&json!("openai/b"), &Value::Null]);
}

#[test]
fn a_rejected_request_is_not_sent_to_a_fallback() {
    let folder = folder("{ name: anthropic/claude-haiku-4-5, fallback: [openai/b] }", "limits: { tokens: 900000 }\n");
    for status in [400, 401, 404] {
        let server = Server::start(move |_: &Request| Answer::status(status).error("api_error", "never"));
        run(&folder, &server).assert_code(5);
        assert_eq!(server.count(), 1);
    }
}

#[test]
fn a_fallback_without_a_key_is_reported_before_anything_is_sent() {
    let folder = folder("{ name: anthropic/claude-haiku-4-5, fallback: [openai/b] }", "limits: { tokens: 900000 }\n");
    let server = Server::start(|_: &Request| Answer::text("never"));
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(5).assert_stderr_contains("OPENAI_API_KEY");
    // What the official address of a model's vendor refuses is known when the run starts, too.
    folder.write(
        "job.yaml",
        "model: { name: anthropic/claude-haiku-4-5, fallback: [{ name: openai/gpt-4.1, thinking: high }] }\n\
         parent: { prompt: Go., tools: [] }\nlimits: { tokens: 900000 }\n",
    );
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).env("OPENAI_API_KEY", KEY).run();
    ended.assert_code(3).assert_stderr_contains("doesn't support `thinking`");
    assert_eq!(server.count(), 0);
}

#[test]
fn another_model_from_the_command_line_has_no_fallback() {
    let folder = folder("{ name: anthropic/claude-haiku-4-5, fallback: [openai/b] }", "limits: { tokens: 900000 }\n");
    let server = Server::start(|_: &Request| Answer::status(500).error("api_error", "Down."));
    let ended = program(&folder, &server, &["run", "job.yaml", "--model", "openai/c"]).run();
    ended
        .assert_code(75)
        .assert_stderr_contains("the `fallback` of anthropic/claude-haiku-4-5 isn't used for openai/c");
    assert_eq!(server.count(), 6);
    assert_eq!(ended.run_folder().plan()["parent"]["fallback"], Value::Null);
}

#[test]
fn the_plan_shows_the_fallbacks() {
    let model = "{ name: anthropic/claude-haiku-4-5, fallback: [openai/gpt-4.1, { name: gemini/gemini-2.5-pro, thinking: low, max_tokens: 9000 }] }";
    let folder = folder(model, "limits: { tokens: 900000 }\n");
    let shown = folder.legwork(&["run", "job.yaml", "--dry-run"]).run();
    shown.assert_code(0).assert_stdout_contains("fallback").assert_stdout_contains("openai/gpt-4.1\n");
    shown.assert_stdout_contains("gemini/gemini-2.5-pro, thinking low, max_tokens 9000");
}

/// A job whose fallback has a window that the conversation doesn't fit, so that it is shortened first.
fn folder_with_small_fallback(compaction: &str) -> TestFolder {
    let model =
        "{ name: anthropic/claude-haiku-4-5, fallback: [{ name: openai/b, context: 12000, max_tokens: 1000 }] }";
    let folder = folder(model, &format!("limits: {{ tokens: 9000000 }}\ncompaction: {compaction}\n"));
    folder.write("notes/long.txt", "A line of words that no one needs.\n".repeat(900));
    folder
}

fn failing_after_long_results(request: &Request) -> Answer {
    match (request.model(), request.turn()) {
        ("claude-haiku-4-5", 0 | 1) => Answer::calls(&[read("notes/long.txt")]),
        ("claude-haiku-4-5", _) => Answer::status(500).error("api_error", "Down."),
        _ if request.last_text().contains("Write a summary now") => Answer::text("The file is long."),
        ("b", _) if request.last_text().contains("Ask me") => Answer::text("never"),
        _ => Answer::text("Done."),
    }
}

#[test]
fn a_conversation_is_shortened_to_the_window_of_the_fallback() {
    for compaction in ["results", "summary"] {
        let folder = folder_with_small_fallback(compaction);
        let server = Server::with(Checks::AllowHandover, failing_after_long_results);
        let ended = run(&folder, &server);
        ended.assert_code(0).assert_stdout("Done.\n");
        for request in server.finish().iter().filter(|request| request.model() == "b") {
            assert!(request.bytes().len() < 40_000, "{compaction}: {} bytes", request.bytes().len());
        }
        let truncated = events(&ended.run_folder(), "results_truncated");
        let calls = events(&ended.run_folder(), "call_started");
        for event in &truncated {
            let known = |id: &Value| calls.iter().any(|call| call["call_id"] == *id);
            assert!(event["call_ids"].as_array().unwrap().iter().all(known), "{event} has the ids of the journal");
        }
        assert!(!truncated.is_empty() || !events(&ended.run_folder(), "context_compacted").is_empty());
        folder.legwork(&["replay", "latest"]).run().assert_code(0);
    }
}

#[test]
fn a_shortened_conversation_of_a_fallback_is_resumed() {
    let folder = folder_with_small_fallback("results");
    let server = Server::with(Checks::AllowHandover, |request: &Request| match request.model() {
        "b" => Answer::status(503).error("api_error", "Down, too."),
        _ => failing_after_long_results(request),
    });
    run(&folder, &server).assert_code(75);
    let server = Server::with(Checks::AllowHandover, failing_after_long_results);
    program(&folder, &server, &["resume", "latest"]).run().assert_code(0).assert_stdout("Done.\n");
    let requests = server.finish();
    assert_eq!((requests.len(), requests[0].model()), (1, "b"));
    assert!(requests[0].bytes().len() < 40_000);
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
}

#[test]
fn a_fallback_works_without_compaction() {
    let model = "{ name: anthropic/claude-haiku-4-5, fallback: [openai/b] }";
    let folder = folder(model, "limits: { tokens: 900000 }\ncompaction: off\n");
    let server = Server::with(Checks::AllowHandover, failing_at_turn_2("anthropic/claude-haiku-4-5"));
    run(&folder, &server).assert_code(0).assert_stdout("It says alpha.\n");
}
