//! Limits of the whole run, each at its boundary.

use serde_json::{Value, json};

use crate::running::run_failures::assert_complete_record;
use crate::running::runs::folder_with;
use crate::running::signals::assert_no_processes;
use crate::support::job::{EndedRun, Job};
use crate::support::server::{Answer, KEY, Request, ScriptedAgents, Server};
use crate::support::tcp_peer::{PeerBehaviour, TcpPeer};
use crate::support::test_folder::TestFolder;

fn run(folder: &TestFolder, server: &Server) -> EndedRun {
    Job::in_folder(folder).anthropic(server).run()
}

/// Checks the outcome and the exit code, and that the record is complete.
#[track_caller]
fn assert_outcome(ended: &EndedRun, code: u8, outcome: &str) -> Value {
    ended.assert_code(code);
    assert_complete_record(&ended.run_folder());
    let result = ended.run_folder().result();
    assert_eq!((&result["outcome"], &result["exit_code"]), (&json!(outcome), &json!(code)), "{}", ended.full_output());
    result
}

fn timed(tools: &str, of_subagents: &str) -> TestFolder {
    folder_with(&format!(
        "parent:\n  prompt: Go.\n  tools: {tools}\nsubagents:\n  a: {{ tools: {of_subagents} }}\nlimits: {{ wall_clock: 5s, parallel_subagents: 2 }}\n"
    ))
}

#[test]
fn the_wall_clock_stops_a_connection_that_is_never_answered() {
    let folder = timed("[task]", "[glob]");
    let peer = TcpPeer::start(PeerBehaviour::Silent);
    let job = Job::in_folder(&folder).env("ANTHROPIC_BASE_URL", peer.url());
    assert_outcome(&job.env("ANTHROPIC_API_KEY", KEY).run(), 4, "timed_out");
    peer.wait_for(1);
}

#[test]
fn the_wall_clock_stops_a_stream_and_drops_its_content() {
    let folder = timed("[task, write_file]", "[glob]");
    let server = Server::start(|_: &Request| {
        let half = Answer::text("half").then_call("write_file", &json!({"path": "ran", "content": ""}));
        half.cut_after_events(4).pings(std::time::Duration::from_millis(50))
    });
    let ended = run(&folder, &server);
    assert_eq!(assert_outcome(&ended, 4, "timed_out")["text"], "");
    assert!(!folder.exists("ran"));
}

#[test]
fn the_wall_clock_stops_all_subagents_running_and_waiting() {
    let folder = timed("[task]", "[bash]");
    let stubborn = "exec 9>lock; flock -s 9; trap '' TERM; setsid bash -c 'trap \"\" TERM; sleep 421' & sleep 421";
    let server = Server::start(move |request: &Request| match request.prompt().as_str() {
        "Go." => Answer::calls(&["tool", "hang", "wait"].map(|prompt| ("task", json!({"prompt": prompt})))),
        "tool" => Answer::calls(&[("bash", json!({"command": stubborn}))]),
        _ => Answer::empty().hang(),
    });
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(4);
    assert_complete_record(&ended.run_folder());
    let result = ended.run_folder().result();
    let outcomes: Vec<&Value> = result["subagents"].as_array().unwrap().iter().map(|child| &child["outcome"]).collect();
    assert!(outcomes.iter().all(|outcome| **outcome != "completed"), "{outcomes:?}");
    assert_eq!(server.count(), 3, "the third had no place");
    assert_no_processes(&folder);
}

#[test]
fn a_pause_longer_than_the_remaining_time_is_not_started() {
    let folder = folder_with("parent:\n  prompt: Go.\n  tools: []\nlimits: { wall_clock: 50s }\n");
    let server = Server::start(|_: &Request| {
        Answer::status(429).header("retry-after", "200").error("rate_limit_error", "slow down")
    });
    let result = assert_outcome(&run(&folder, &server), 75, "provider_failed");
    assert!(result["duration_ms"].as_u64().unwrap() < 50_000, "{result}");
    assert!(result["error"]["message"].as_str().unwrap().contains("the next try would start in 200.0 s"), "{result}");
    assert_eq!(server.count(), 1);
}

#[test]
fn tool_calls_of_all_agents_are_counted_together() {
    let folder = folder_with(
        "parent:\n  prompt: Go.\n  tools: [task, glob]\nsubagents:\n  a: { tools: [glob] }\nlimits: { tool_calls: 5 }\n",
    );
    let glob = || ("glob", json!({"pattern": "*"}));
    let server = Server::start(move |request: &Request| match (request.prompt().as_str(), request.can_call_tools()) {
        (_, false) => Answer::text("So far."),
        ("Go.", _) => Answer::calls(&["one", "two"].map(|prompt| ("task", json!({"prompt": prompt})))),
        _ => Answer::calls(&[glob(), glob()]),
    });
    let ended = run(&folder, &server);
    ended.assert_stdout("So far.\n");
    let result = assert_outcome(&ended, 4, "budget_exceeded");
    assert!(result["error"]["message"].as_str().unwrap().contains("all its 5 tool calls"), "{result}");
    let counted = |of: &Value| of["tool_calls"].as_u64().unwrap();
    let all = counted(&result) + result["subagents"].as_array().unwrap().iter().map(counted).sum::<u64>();
    assert_eq!(all, 5);
}

#[test]
fn subagents_beyond_the_limit_do_not_start_and_the_parent_makes_its_final_request() {
    let folder = folder_with(
        "parent:\n  prompt: Go.\n  tools: [task]\nsubagents:\n  a: { tools: [] }\nlimits: { subagents: 2 }\n",
    );
    let server = Server::start(|request: &Request| match (request.prompt().as_str(), request.turn()) {
        ("Go.", 0) => Answer::calls(&["1", "2", "3", "4", "5"].map(|prompt| ("task", json!({"prompt": prompt})))),
        ("Go.", _) => Answer::text("Two of five."),
        _ => Answer::text("done"),
    });
    let ended = run(&folder, &server);
    ended.assert_stdout("Two of five.\n");
    let result = assert_outcome(&ended, 4, "budget_exceeded");
    assert_eq!(result["subagents"].as_array().unwrap().len(), 2);
    let requests = server.finish();
    assert_eq!(requests.len(), 4);
    let last = &requests[3];
    let results = last.results();
    let not_run = results.iter().filter(|result| result.is_error && result.text.contains("all its 2 subagents"));
    assert_eq!((results.len(), not_run.count(), last.can_call_tools()), (5, 3, false));
}

#[test]
fn a_limit_without_room_for_the_prompt_makes_no_request() {
    let long = "word ".repeat(20_000);
    for limit in ["tokens: 2000", "tokens: 1", "cost_usd: 0.000001", "tokens: 20000, cost_usd: 100"] {
        let folder = folder_with(&format!("parent:\n  prompt: {long}\n  tools: [glob]\nlimits: {{ {limit} }}\n"));
        let server = Server::start(ScriptedAgents::of([]));
        let ended = run(&folder, &server);
        ended.assert_stdout("");
        let result = assert_outcome(&ended, 4, "budget_exceeded");
        assert_eq!((&result["turns"], &result["usage"]["input_tokens"]), (&json!(0), &json!(0)), "{limit}");
        assert_eq!(server.count(), 0, "{limit}");
    }
}

#[test]
fn a_final_request_before_any_turn_is_reported_as_such() {
    let folder = folder_with("parent:\n  prompt: Work.\n  tools: [glob]\nlimits: { tokens: 2000 }\n");
    let server = Server::start(ScriptedAgents::of([Answer::text("I couldn't.")]));
    let ended = run(&folder, &server);
    let result = assert_outcome(&ended, 4, "budget_exceeded");
    assert_eq!(result["turns"], 0);
    let record = ended.run_folder();
    for text in [record.transcript(), record.file("report.html")] {
        assert!(text.contains("Final reply") && text.contains("I couldn") && !text.contains("Turn 0"), "{text}");
    }
    let requests = server.finish();
    assert!((256..2000).contains(&requests[0].max_tokens()));

    // After a turn, the final request doesn't count as a second turn with the same number.
    let folder = folder_with("parent:\n  prompt: Work.\n  tools: [glob]\n  max_turns: 1\n");
    let server = Server::start(ScriptedAgents::of([
        Answer::calls(&[("glob", json!({"pattern": "*"}))]),
        Answer::text("One turn."),
    ]));
    let ended = run(&folder, &server);
    assert_eq!(assert_outcome(&ended, 4, "turn_limit")["turns"], 1);
    let transcript = ended.run_folder().transcript();
    assert_eq!((transcript.matches("## Turn 1").count(), transcript.matches("## Final reply").count()), (1, 1));
}

#[test]
fn results_are_truncated_to_make_room_for_the_final_request() {
    let folder = folder_with("parent:\n  prompt: Work.\n  tools: [read_file]\nlimits: { tokens: 9000 }\n");
    folder.write("long.txt", "some words to fill a line\n".repeat(1_500));
    let read = Answer::calls(&[("read_file", json!({"path": "long.txt"}))]).usage(900, 50);
    let server = Server::start(ScriptedAgents::of([read, Answer::text("It is long.").usage(3_000, 20)]));
    let ended = run(&folder, &server);
    ended.assert_stdout("It is long.\n");
    let result = assert_outcome(&ended, 4, "budget_exceeded");
    assert_eq!(result["turns"], 1);
    let requests = server.finish();
    let results = requests[1].results();
    assert!(results[0].text.len() < 25_000 && results[0].text.contains("some words"), "{}", results[0].text.len());
    assert!(!requests[1].can_call_tools());
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
}

#[test]
fn the_cost_of_partly_failed_requests_counts() {
    let folder =
        folder_with("parent:\n  prompt: Work.\n  tools: [glob]\n  max_tokens: 500\nlimits: { cost_usd: 0.03 }\n");
    // Each costs 0.0045 dollars. After the fifth, the limit doesn't allow another attempt.
    let server = Server::start(|_: &Request| Answer::text("lost").usage(1_500, 0).cut_after_events(4));
    let ended = run(&folder, &server);
    ended.assert_stdout("");
    let result = assert_outcome(&ended, 4, "budget_exceeded");
    let cost = result["cost_usd"].as_f64().unwrap();
    assert!(cost > 0.015 && cost <= 0.03, "{cost}");
    assert!((3..=6).contains(&server.count()), "{}", server.count());
}

#[test]
fn twenty_consecutive_failures_end_the_run_and_a_success_resets_the_count() {
    let job = "parent:\n  prompt: Try.\n  tools: [read_file]\n  max_turns: 60\n";
    let read = |path: String| ("read_file", json!({ "path": path }));
    let folder = folder_with(job);
    let server = Server::start(move |request: &Request| {
        // One call succeeds after nineteen failures.
        let turn = request.turn();
        Answer::calls(&[if turn == 19 { read("job.yaml".into()) } else { read(format!("missing-{turn}")) }])
    });
    let ended = run(&folder, &server);
    let result = assert_outcome(&ended, 4, "stuck");
    assert!(result["error"]["message"].as_str().unwrap().contains("20 calls failed in a row"), "{result}");
    assert_eq!(server.finish().len(), 40, "nineteen, one that succeeded, and twenty");

    // Five equal calls in one reply count as five.
    let folder = folder_with(job);
    let server = Server::start(move |_: &Request| Answer::calls(&[(); 5].map(|()| read("missing".into()))));
    let ended = run(&folder, &server);
    let result = assert_outcome(&ended, 4, "stuck");
    assert!(result["error"]["message"].as_str().unwrap().contains("`read_file` failed 5 times"), "{result}");
    assert_eq!(server.finish().len(), 1);

    // Four equal failures in a row aren't stuck, even if they recur.
    let folder = folder_with(job);
    let server = Server::start(move |request: &Request| match request.turn() {
        10 => Answer::text("Enough."),
        turn if turn % 5 == 4 => Answer::calls(&[read("job.yaml".into())]),
        _ => Answer::calls(&[read("missing".into())]),
    });
    assert_outcome(&run(&folder, &server), 0, "completed");
}

#[test]
fn every_agent_has_its_own_turn_count() {
    let folder = folder_with(
        "parent:\n  prompt: Go.\n  tools: [task]\n  max_turns: 2\nsubagents:\n  a: { tools: [glob], max_turns: 3 }\n  \
         b: { tools: [glob], max_turns: 1 }\n",
    );
    let server = Server::start(|request: &Request| match (request.prompt().as_str(), request.can_call_tools()) {
        (_, false) => Answer::text("So far."),
        ("Go.", _) if request.turn() == 1 => Answer::text("Both are back."),
        ("Go.", _) => Answer::calls(&[
            ("task", json!({"agent": "a", "prompt": "long"})),
            ("task", json!({"agent": "b", "prompt": "short"})),
        ]),
        _ => Answer::calls(&[("glob", json!({"pattern": "*"}))]),
    });
    let ended = run(&folder, &server);
    let result = assert_outcome(&ended, 0, "completed");
    let children = result["subagents"].as_array().unwrap();
    let seen: Vec<_> = children.iter().map(|child| (child["outcome"].as_str().unwrap(), &child["turns"])).collect();
    assert_eq!(seen, [("turn_limit", &json!(3)), ("turn_limit", &json!(1))]);
    assert_eq!(server.finish().len(), 2 + 4 + 2);
}
