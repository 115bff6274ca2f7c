//! A prompt cache matches prefixes byte for byte: within a run, after a resume, and across two runs of one job.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::json;
use serde_json::value::RawValue;

use crate::providers::MODELS;
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
