//! A prompt cache matches prefixes byte for byte: within a run, after a resume, and across two runs of one job.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::json;
use serde_json::value::RawValue;

use crate::models::providers::MODELS;
use crate::support::record::RunFolder;
use crate::support::server::{Answer, Checks, Request, Server};
use crate::support::test_folder::TestFolder;

const JSON_END_CHARS: [char; 3] = ['"', '}', ']'];
const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// The job uses the built-in system prompts, which must not contain anything specific to a run.
const JOB: &str = "\
model: anthropic/claude-sonnet-4-6
parent: { prompt: Find out., tools: [bash, read_file, task], max_turns: 4 }
subagents:
  explorer: { description: Looks around., tools: [read_file, glob] }
  writer: { description: Writes., tools: [] }
limits: { tokens: 10000000, parallel_subagents: 1 }
";

fn folder() -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB).write("notes/a.txt", "alpha\n");
    folder
}

fn task(agent: &str, prompt: &str) -> (&'static str, serde_json::Value) {
    ("task", json!({"agent": agent, "prompt": prompt}))
}

/// Thinking, parallel calls, a failed call, subagents, and a turn limit whose final request has no tools.
fn answer(request: &Request) -> Answer {
    let glob = ("glob", json!({"pattern": "notes/*"}));
    let read = |path: &str| ("read_file", json!({"path": path}));
    match (request.prompt().as_str(), request.turn()) {
        ("Find out.", 0) => {
            let calls = [read("missing.txt"), ("bash", json!({"command": "echo \"é\"]}"}))];
            Answer::calls(&calls).then_text("I look — é😀.").thinking("Where?", "c2lnbmF0dXJl")
        }
        ("Find out.", 1) => Answer::calls(&[task("explorer", "Explore."), task("writer", "Write.")]),
        ("Find out.", 2 | 3) => Answer::calls(&[read("notes/a.txt")]),
        ("Find out.", _) => Answer::text("Summed up."),
        ("Explore.", 0) => Answer::calls(&[glob, read("notes/a.txt")]),
        ("Explore.", 1) => Answer::calls(&[read("notes/a.txt")]),
        _ => Answer::text("Done."),
    }
}

/// The members of a request except the messages, as written.
type RequestEnvelope = IndexMap<String, String>;

/// Splits a request into the envelope and the messages. Cache marks and the ends of the list and of the last message
/// are removed, because they can change as the list grows.
fn split_request(request: &Request) -> (RequestEnvelope, String) {
    let all: IndexMap<String, Box<RawValue>> = serde_json::from_slice(request.bytes()).unwrap();
    let mut all: RequestEnvelope = all.into_iter().map(|(name, value)| (name, value.get().to_owned())).collect();
    let messages = ["messages", "input", "contents"].iter().find_map(|name| all.shift_remove(*name)).unwrap();
    (all, messages.replace(MARK, "").trim_end_matches(JSON_END_CHARS).to_owned())
}

/// Each agent's requests, in order.
fn by_agent(requests: &[Arc<Request>]) -> BTreeMap<String, Vec<(RequestEnvelope, String)>> {
    let mut agents: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for request in requests {
        assert!(String::from_utf8_lossy(request.bytes()).matches(MARK).count() <= 4);
        agents.entry(request.prompt()).or_default().push(split_request(request));
    }
    agents
}

/// Asserts that each request of an agent starts like the previous one. Only the final request at a limit forbids the
/// tools.
fn assert_cache_prefixes(agents: &BTreeMap<String, Vec<(RequestEnvelope, String)>>) {
    for (agent, requests) in agents {
        for pair in requests.windows(2) {
            let [(around, messages), (next_around, next)] = pair else { unreachable!() };
            assert!(next.starts_with(&**messages), "{agent}: {next}\nbegins otherwise than\n{messages}");
            let differs = |name: &&String| around.get(*name) != next_around.get(*name);
            let other: Vec<&String> = next_around.keys().filter(differs).collect();
            let is_choice = |name: &&String| name.to_lowercase().contains("tool") && *name != "tools";
            assert!(other.iter().all(is_choice) && other.len() <= 1, "{agent}: {other:?}");
        }
    }
}

fn start_run(folder: &TestFolder, server: &Server, model: &str) -> crate::support::program::Program {
    let line = ["run", "job.yaml", "--model", model, "--sandbox", "off"];
    folder.legwork(&line).anthropic(server).openai(server).gemini(server)
}

#[test]
fn requests_of_a_conversation_only_append() {
    for (model, _) in MODELS {
        let folder = folder();
        let server = Server::start(answer);
        start_run(&folder, &server, model).run().assert_code(4);
        let agents = by_agent(&server.finish());
        let counts: Vec<_> = agents.iter().map(|(agent, requests)| (agent.as_str(), requests.len())).collect();
        assert_eq!(counts, [("Explore.", 3), ("Find out.", 5), ("Write.", 1)]);
        assert_cache_prefixes(&agents);
    }
}

#[test]
fn a_resumed_run_starts_with_the_same_prefix() {
    for (model, _) in MODELS {
        let folder = folder();
        let server = Server::with(Checks::AllowRepeats, answer);
        // The run is killed while the first subagent works.
        let cut = start_run(&folder, &server, model).env("LEGWORK_KILL_AFTER", "16").run();
        assert_eq!(cut.signal(), Some(9));
        let before = server.count();
        let line = ["resume", "latest", "--sandbox", "off"];
        folder.legwork(&line).anthropic(&server).openai(&server).gemini(&server).run().assert_code(4);
        let requests = server.finish();
        assert!(before > 1 && requests.len() > before + 1, "{before} of {}", requests.len());
        assert_cache_prefixes(&by_agent(&requests));
    }
}

#[test]
fn two_runs_of_a_job_share_their_prefix() {
    for (model, _) in MODELS {
        let folder = folder();
        let runs = [(), ()].map(|()| {
            let server = Server::start(answer);
            let ended = start_run(&folder, &server, model).run();
            let record = ended.assert_code(4).run_folder();
            let id = record.result()["run_id"].as_str().unwrap().to_owned();
            let day = record.result()["started_at"].as_str().unwrap()[..10].to_owned();
            let requests = server.finish();
            for request in &requests {
                let body = String::from_utf8_lossy(request.bytes()).into_owned();
                assert!(!body.contains(&id) && !body.contains(&day), "nothing of this one run is in it: {body}");
            }
            by_agent(&requests)
        });
        let [one, other] = &runs;
        for (agent, requests) in one {
            assert_eq!(requests[0], other[agent][0], "{agent}");
        }
    }
}

const HOUR_MARK: &str = r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#;

/// A job for the items a0, a1, ... with this system prompt.
fn map_folder(system: &str, items: usize) -> TestFolder {
    let folder = TestFolder::new();
    let job = "model: anthropic/claude-haiku-4-5\ninputs: { item: { type: string } }\nlimits: { cost_usd: 1 }\n";
    let parent =
        format!("parent: {{ system: '{system}', prompt: 'Item {{{{ inputs.item }}}}', tools: [write_file] }}\n");
    folder.write("job.yaml", format!("{job}{parent}"));
    write_rows(&folder, items);
    folder
}

fn write_rows(folder: &TestFolder, items: usize) {
    let lines: String = (0..items).map(|number| format!("a{number}\n")).collect();
    folder.write("rows.csv", format!("item\n{lines}"));
}

/// Writes a file, then answers. Each request reads 1,000 tokens from the cache, and writes 400 for an hour and 200 more.
fn answer_item(request: &Request) -> Answer {
    let answer = match request.turn() {
        0 => Answer::calls(&[("write_file", json!({"path": "a.txt", "content": "a"}))]),
        _ => Answer::text("Done."),
    };
    answer.usage(100, 20).cache(1000, 600).hour_cache(400)
}

fn run_map(folder: &TestFolder, server: &Server, jobs: &str) {
    let line = ["map", "job.yaml", "--rows", "rows.csv", "--id", "item", "--jobs", jobs];
    folder.legwork(&line).env("LEGWORK_RETRY_BASE_MS", "1").anthropic(server).run().assert_code(0);
}

/// How many marks for an hour and for five minutes each request has.
fn marks(server: &Server) -> Vec<(usize, usize)> {
    let count = |request: &Arc<Request>| {
        let body = String::from_utf8_lossy(request.bytes()).into_owned();
        (body.matches(HOUR_MARK).count(), body.matches(MARK).count())
    };
    server.requests().iter().map(count).collect()
}

#[test]
fn the_rows_of_a_map_keep_tools_and_system_prompt_in_the_cache_for_an_hour() {
    let folder = map_folder("You write files.", 10);
    let server = Server::start(answer_item);
    run_map(&folder, &server, "2");
    let marked = marks(&server);
    assert_eq!(marked.len(), 20);
    assert!(marked.iter().all(|(hour, other)| *hour == 2 && matches!(other, 1 | 2)), "{marked:?}");
    for request in server.requests() {
        let (envelope, messages) = split_request(&request);
        assert!(envelope["tools"].contains(HOUR_MARK) && envelope["system"].contains(HOUR_MARK), "{envelope:?}");
        assert!(!messages.contains("ttl"), "{messages}");
    }
    let record = RunFolder::new(folder.at("runs/job/map-rows/rows/a7"));
    let usage = json!({
        "input_tokens": 200, "output_tokens": 40, "cache_read_tokens": 2000, "cache_write_tokens": 1200,
        "cache_write_1h_tokens": 800,
    });
    assert_eq!(record.result()["usage"], usage);
    // Twice 100 tokens at $1 per million, 20 at $5, 1,000 at $0.10, 200 at $1.25 and 400 at $2.
    let cost = 2.0 * (100.0 + 100.0 + 100.0 + 250.0 + 800.0) / 1e6;
    assert!((record.result()["cost_usd"].as_f64().unwrap() - cost).abs() < 1e-12, "{}", record.result()["cost_usd"]);
    let table = folder.read("runs/job/map-rows/results.csv");
    assert!(table.lines().next().unwrap().contains("cache_write_tokens,cache_write_1h_tokens,"), "{table}");
    assert!(table.lines().all(|line| line.starts_with("id") || line.contains(",1200,800,")), "{table}");
    // All of the prompt may be written for an hour.
    for started in record.events().iter().filter(|event| event["type"] == "request_started") {
        let count = |name: &str| started["data"][name].as_f64().unwrap();
        let reserved = (count("reserved_tokens") - count("max_tokens")) * 2e-6 + count("max_tokens") * 5e-6;
        assert!((count("reserved_cost_usd") - reserved).abs() < 1e-9, "{started}");
    }
    let replayed = folder.legwork(&["replay", "runs/job/map-rows/rows/a7"]).run();
    replayed.assert_code(0);
    // Of the rows of this start, too few are left.
    write_rows(&folder, 19);
    run_map(&folder, &server, "2");
    assert!(marks(&server)[20..].iter().all(|(hour, _)| *hour == 0));
    assert_eq!(server.count(), 38);
}

#[test]
fn the_cache_is_for_five_minutes_if_few_rows_or_one_run_would_read_it() {
    for (system, items, jobs) in [("You write files.", 9, "2"), ("You write {{ inputs.item }}.", 10, "1")] {
        let folder = map_folder(system, items);
        let server = Server::start(answer_item);
        run_map(&folder, &server, jobs);
        assert!(
            marks(&server).iter().all(|(hour, other)| *hour == 0 && matches!(other, 3 | 4)),
            "{:?}",
            marks(&server)
        );
    }
    let folder = map_folder("You write files.", 1);
    let server = Server::start(answer_item);
    folder.legwork(&["run", "job.yaml", "--set", "item=a0"]).anthropic(&server).run().assert_code(0);
    assert_eq!(marks(&server), [(0, 3), (0, 4)]);
}

#[test]
fn a_server_that_refuses_an_hour_is_asked_for_it_once() {
    let folder = map_folder("You write files.", 5);
    let server = Server::start(|request: &Request| {
        if String::from_utf8_lossy(request.bytes()).contains(r#""ttl""#) {
            let why = "tools.0.custom.cache_control.ephemeral.ttl: Extra inputs are not permitted";
            return Answer::status(400).error("invalid_request_error", why);
        }
        answer_item(request).hour_cache(0)
    });
    run_map(&folder, &server, "1");
    let marked = marks(&server);
    assert_eq!((marked.len(), marked[0]), (11, (2, 1)));
    assert!(marked[1..].iter().all(|(hour, _)| *hour == 0), "{marked:?}");
    let result = RunFolder::new(folder.at("runs/job/map-rows/rows/a0")).result();
    assert_eq!(result["usage"].get("cache_write_1h_tokens"), None);
}
