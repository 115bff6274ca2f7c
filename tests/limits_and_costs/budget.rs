//! A run's spending stays within its limits, and a run near a limit makes one final request.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::running::runs::folder_with;
use crate::support::job::{EndedRun, Job};
use crate::support::server::{Answer, Request, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

fn run(folder: &TestFolder, server: &Server) -> EndedRun {
    Job::in_folder(folder).anthropic(server).run()
}

fn tokens(result: &Value) -> u64 {
    result["usage"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

/// A parent that starts three subagents at once.
fn three_subagents_job(limits: &str) -> TestFolder {
    folder_with(&format!(
        "parent:\n  prompt: Ask three.\n  tools: [task]\nsubagents:\n  child: {{ tools: [] }}\nlimits: {{ {limits} }}\n"
    ))
}

fn delegate_to_three() -> Answer {
    Answer::calls(&["one", "two", "three"].map(|prompt| ("task", json!({"prompt": prompt}))))
}

#[test]
fn subagents_wait_for_tokens_reserved_by_others() {
    let folder = three_subagents_job("tokens: 10000");
    let server = Server::start(|request: &Request| match (request.prompt().as_str(), request.turn()) {
        ("Ask three.", 0) => delegate_to_three(),
        ("Ask three.", _) => Answer::text("All three."),
        _ => Answer::text("short"),
    });
    let ended = run(&folder, &server);
    ended.assert_code(0).assert_stdout("All three.\n");
    let requests = server.finish();
    assert_eq!(requests.len(), 5);
    let children = requests.iter().filter(|request| request.prompt() != "Ask three.");
    assert!(children.map(|request| request.max_tokens()).all(|asked| asked == 4000), "none was made shorter");
}

#[test]
fn waiting_for_reserved_tokens_ends_with_the_wall_clock_or_a_signal() {
    let hanging = || {
        Server::start(|request: &Request| match request.prompt().as_str() {
            "Ask three." => delegate_to_three(),
            _ => Answer::empty().hang(),
        })
    };
    let (folder, server) = (three_subagents_job("tokens: 10000, wall_clock: 5s"), hanging());
    let ended = run(&folder, &server);
    ended.assert_code(4);
    let result = ended.run_folder().result();
    assert_eq!(result["outcome"], "timed_out");
    assert_eq!(server.count(), 2, "two children never came to their request");

    let (folder, server) = (three_subagents_job("tokens: 10000"), hanging());
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
    server.wait_for(2);
    running.signal(Signal::TERM);
    let ended = running.wait();
    ended.assert_code(143);
    let result = ended.run_folder().result();
    let outcomes: Vec<&Value> = result["subagents"].as_array().unwrap().iter().map(|child| &child["outcome"]).collect();
    assert_eq!(outcomes, ["interrupted"; 3]);
}

#[test]
fn parallel_subagents_do_not_exceed_the_limit() {
    let greedy = |request: &Request| {
        let asked = request.max_tokens();
        // An estimate of the prompt's tokens: one for every four bytes.
        let prompt = request.bytes().len() as u64 / 4;
        match request.prompt().as_str() {
            "Ask three." if request.turn() == 0 => delegate_to_three().usage(prompt, 100),
            "Ask three." => Answer::text("What I know.").usage(prompt, asked),
            _ if request.can_call_tools() => Answer::calls(&[("glob", json!({"pattern": "*"}))]).usage(prompt, asked),
            _ => Answer::text("So far.").usage(prompt, asked),
        }
    };
    for (limits, limit) in [("tokens: 40000", 40_000.0), ("cost_usd: 0.4", 0.4)] {
        let folder = folder_with(&format!(
            "parent:\n  prompt: Ask three.\n  tools: [task]\nsubagents:\n  child: {{ tools: [glob] }}\nlimits: {{ {limits} }}\n"
        ));
        let server = Server::start(greedy);
        let ended = run(&folder, &server);
        ended.assert_code(4).assert_stdout("What I know.\n");
        let result = ended.run_folder().result();
        assert_eq!(result["outcome"], "budget_exceeded");
        let spent =
            if limits.starts_with("tokens") { tokens(&result) as f64 } else { result["cost_usd"].as_f64().unwrap() };
        assert!(spent <= limit && spent > limit * 0.5, "{limits}: {spent} is spent");
        let last_words =
            result["subagents"].as_array().unwrap().iter().filter(|child| child["outcome"] == "budget_exceeded");
        assert!(last_words.count() > 0);
        assert!(server.finish().len() < 30);
    }
}

#[test]
fn a_run_near_a_limit_makes_one_final_request_without_tools() {
    for limit in ["tokens: 12000", "cost_usd: 0.15"] {
        let folder = folder_with(&format!("parent:\n  prompt: Work.\n  tools: [glob]\nlimits: {{ {limit} }}\n"));
        let server = Server::start(|request: &Request| {
            if request.can_call_tools() {
                Answer::calls(&[("glob", json!({"pattern": "*"}))]).usage(1_000, 600)
            } else {
                Answer::text("Summed up.").usage(1_000, 200)
            }
        });
        let ended = run(&folder, &server);
        ended.assert_code(4).assert_stdout("Summed up.\n").assert_error_contains("budget_exceeded");
        let record = ended.run_folder();
        let result = record.result();
        assert_eq!(result["outcome"], "budget_exceeded");
        assert!(result["error"]["message"].as_str().unwrap().contains("isn't enough to continue"), "{result}");
        match limit {
            "tokens: 12000" => assert!(tokens(&result) <= 12_000, "{result}"),
            _ => assert!(result["cost_usd"].as_f64().unwrap() <= 0.15, "{result}"),
        }
        let kinds: Vec<Value> = record.events().iter().map(|event| event["type"].clone()).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == "limit_reached").count(), 1);
        let requests = server.finish();
        let (last, others) = requests.split_last().unwrap();
        assert!(others.len() > 2 && others.iter().all(|request| request.can_call_tools()), "{}", others.len());
        assert!(
            !last.can_call_tools() && last.last_text().contains("The work ends here") && !last.results().is_empty()
        );
    }
}

#[test]
fn a_run_with_a_limit_too_small_for_tools_makes_one_request_without_them() {
    let folder = folder_with("parent:\n  prompt: Work.\n  tools: [glob]\nlimits: { tokens: 2000 }\n");
    let server = Server::start(ScriptedAgents::of([Answer::text("I couldn't.")]));
    run(&folder, &server).assert_code(4).assert_stdout("I couldn't.\n");
    let requests = server.finish();
    assert!(!requests[0].can_call_tools() && requests[0].max_tokens() < 2000);
    assert_eq!(requests[0].messages().len(), 1, "prompt and remark are one message");

    let folder = folder_with("parent:\n  prompt: Work.\n  tools: [glob]\nlimits: { tokens: 100 }\n");
    let server = Server::start(ScriptedAgents::of([]));
    run(&folder, &server).assert_code(4).assert_stdout("").assert_error_contains("0 of 100 tokens are used");
    assert_eq!(server.count(), 0);
}

#[test]
fn a_call_cut_by_the_budget_is_dropped_and_a_final_request_follows() {
    let folder = folder_with("parent:\n  prompt: Write.\n  tools: [write_file, glob]\nlimits: { tokens: 12000 }\n");
    let glob = Answer::calls(&[("glob", json!({"pattern": "*"}))]).usage(1_000, 100);
    let write = Answer::calls(&[("write_file", json!({"path": "a.txt", "content": "a"}))]).stop("max_tokens");
    let server = Server::start(ScriptedAgents::of([glob, write, Answer::text("Nothing is written.")]));
    let ended = run(&folder, &server);
    ended.assert_code(4).assert_stdout("Nothing is written.\n");
    assert!(!folder.exists("a.txt"));
    assert_eq!(ended.run_folder().result()["outcome"], "budget_exceeded");
    let requests = server.finish();
    assert!(requests[1].max_tokens() < 8000 && !requests[2].can_call_tools());
    assert_eq!(requests[2].messages().len(), 3, "the cut reply isn't in it");
}

#[test]
fn failed_attempts_that_use_tokens_do_not_exceed_the_limit() {
    let folder =
        folder_with("parent:\n  prompt: Work.\n  tools: [glob]\n  max_tokens: 500\nlimits: { tokens: 6000 }\n");
    let server = Server::start(|_: &Request| Answer::text("lost").usage(1_400, 0).cut_after_events(4));
    let ended = run(&folder, &server);
    ended.assert_code(4).assert_stdout("");
    let result = ended.run_folder().result();
    assert_eq!(result["outcome"], "budget_exceeded");
    assert!((5_000..=6_000).contains(&tokens(&result)), "{result}");
    assert_eq!(server.count(), 4, "a fifth would need more than is left");
}

#[test]
fn an_unknown_cost_is_null_and_no_limit_is_enforced_on_an_estimate() {
    let folder = folder_with(
        "parent:\n  prompt: Ask.\n  tools: [task]\nsubagents:\n  odd: { tools: [], model: anthropic/unheard-of }\n",
    );
    let server = Server::start(
        ScriptedAgents::new()
            .agent("Ask.", [Answer::calls(&[("task", json!({"prompt": "Odd?"}))]), Answer::text("ok")])
            .agent("Odd?", [Answer::text("odd")]),
    );
    let ended = run(&folder, &server);
    ended.assert_code(0);
    let result = ended.run_folder().result();
    assert_eq!((&result["cost_usd"], &result["subagents"][0]["cost_usd"]), (&Value::Null, &Value::Null));
    assert_eq!(tokens(&result), 3 * 19, "tokens are known anyway");

    let job = folder.read("job.yaml");
    folder.write("job.yaml", format!("{job}limits: {{ cost_usd: 1 }}\n"));
    let server = Server::start(ScriptedAgents::of([]));
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(3).assert_stderr_contains("unknown-price").assert_stderr_contains("unheard-of");
    assert_eq!(server.count(), 0);
}

#[test]
fn twenty_consecutive_failures_are_stuck_and_the_parent_gets_a_stuck_subagents_error() {
    let folder = folder_with(
        "parent:\n  prompt: Ask.\n  tools: [task]\nsubagents:\n  child: { tools: [read_file], max_turns: 40 }\n",
    );
    let server = Server::start(|request: &Request| match request.prompt().as_str() {
        "Ask." if request.turn() == 0 => Answer::calls(&[("task", json!({"prompt": "Try."}))]),
        "Ask." => Answer::text("It was stuck."),
        _ => Answer::calls(&[("read_file", json!({"path": format!("missing-{}.txt", request.turn())}))]),
    });
    let ended = run(&folder, &server);
    ended.assert_code(0).assert_stdout("It was stuck.\n");
    let requests = server.finish();
    assert_eq!(requests.len(), 22, "twenty of the child, two of the parent");
    let result = &requests[21].results()[0];
    assert!(result.is_error && result.text.contains("stuck"), "{}", result.text);
    assert_eq!(ended.run_folder().result()["subagents"][0]["outcome"], "stuck");
}
