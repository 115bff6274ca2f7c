//! Unsuccessful outcomes, and limits.

use super::*;

#[test]
fn a_cut_answer_or_a_refusal_is_not_successful() {
    for (stop, code, name) in [
        ("max_tokens", 4, "reply_cut"),
        ("refusal", 1, "refused"),
        ("model_context_window_exceeded", 4, "context_full"),
    ] {
        let folder = folder_with("parent:\n  prompt: Talk.\n  tools: []\n");
        let server = Server::start(ScriptedAgents::of([Answer::text("Half a").stop(stop)]));
        let ended = run(&folder, &server);
        ended.assert_code(code).assert_stdout("Half a\n").assert_error_contains(name);
        assert_eq!(outcome(&ended), name);
        server.finish();
    }
}

#[test]
fn a_reply_cut_within_its_calls_is_discarded_and_retried_once() {
    let job = "parent:\n  prompt: Write.\n  tools: [write_file]\n";
    let cut = || Answer::calls(&[("write_file", json!({"path": "a.txt", "content": "a"}))]).stop("max_tokens");
    let folder = folder_with(job);
    let server = Server::start(ScriptedAgents::of([cut(), Answer::text("Without, then.")]));
    run(&folder, &server).assert_code(0);
    assert!(!folder.exists("a.txt"), "none of its tools ran");
    assert_eq!(server.finish()[1].messages().len(), 1);

    let last_turn = folder_with(&format!("{job}  max_turns: 1\n"));
    let server = Server::start(ScriptedAgents::of([cut()]));
    let ended = run(&last_turn, &server);
    ended.assert_code(4);
    assert_eq!(outcome(&ended), "reply_cut");
    server.finish();

    let folder = folder_with(job);
    let server = Server::start(ScriptedAgents::of([cut(), cut()]));
    let ended = run(&folder, &server);
    ended.assert_code(4);
    assert_eq!(outcome(&ended), "reply_cut");
    server.finish();
}

#[test]
fn a_paused_reply_is_continued() {
    let folder = folder_with("parent:\n  prompt: Search.\n  tools: []\n");
    let block = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}});
    let again = Answer::text("Still searching.").stop("pause_turn");
    let server = Server::start(ScriptedAgents::of([
        Answer::empty().then_block(block).stop("pause_turn"),
        again,
        Answer::text("Found."),
    ]));
    run(&folder, &server).assert_code(0).assert_stdout("Found.\n");
    let requests = server.finish();
    let blocks = |request: usize| requests[request].messages()[1]["content"].as_array().map_or(0, Vec::len);
    assert_eq!((requests[1].messages().len(), blocks(1)), (2, 1));
    assert_eq!((requests[2].messages().len(), blocks(2)), (2, 2), "one message holds both");
}

#[test]
fn the_same_failing_call_five_times_in_a_row_is_stuck() {
    let folder = folder_with("parent:\n  prompt: Try.\n  tools: [read_file]\n");
    let server = Server::start(|_: &crate::support::server::Request| {
        Answer::calls(&[("read_file", json!({"path": "missing.txt"}))])
    });
    let ended = run(&folder, &server);
    ended.assert_code(4);
    assert_eq!(outcome(&ended), "stuck");
    assert_eq!(server.finish().len(), 5);
}

#[test]
fn limits_of_the_whole_run_end_it() {
    let cases = [
        ("tool_calls: 2", "budget_exceeded"),
        ("subagents: 1", "budget_exceeded"),
        ("tokens: 12000", "budget_exceeded"),
        ("cost_usd: 0.05", "budget_exceeded"),
    ];
    for (limit, name) in cases {
        let folder = folder_with(&format!(
            "parent:\n  prompt: Spend.\n  tools: [glob, task]\nsubagents:\n  child: {{ tools: [glob] }}\nlimits: {{ {limit} }}\n"
        ));
        let server = Server::start(|request: &crate::support::server::Request| {
            if !request.can_call_tools() {
                return Answer::text("Summed up.");
            }
            match request.prompt().as_str() {
                "Spend." => Answer::calls(&[("task", json!({"prompt": "Spend more."}))]).usage(1_000, 500),
                _ => Answer::text("spent").usage(1_000, 500),
            }
        });
        let ended = run(&folder, &server);
        ended.assert_code(4).assert_error_contains(name);
        let result = ended.run_folder().result();
        assert_eq!(result["outcome"], name, "{limit}");
        assert!(result["error"]["hint"].is_string());
        assert!(server.count() < 20, "{limit}");
        server.finish();
    }
}

#[test]
fn a_reservation_lowers_max_tokens_to_what_is_left() {
    let folder = folder_with("parent:\n  prompt: Hi.\n  tools: []\nlimits: { tokens: 2000 }\n");
    let server = Server::start(ScriptedAgents::of([Answer::text("Hi.")]));
    run(&folder, &server).assert_code(0);
    let max_tokens = server.finish()[0].max_tokens();
    assert!((256..2000).contains(&max_tokens), "{max_tokens}");
}

#[test]
fn calls_beyond_a_limit_do_not_count_as_stuck() {
    let folder = folder_with("parent:\n  prompt: Go.\n  tools: [glob]\nlimits: { tool_calls: 3 }\n");
    let many: Vec<_> = (0..40).map(|_| ("glob", json!({"pattern": "*"}))).collect();
    let server = Server::start(ScriptedAgents::of([Answer::calls(&many), Answer::text("So far.")]));
    let ended = run(&folder, &server);
    ended.assert_code(4).assert_stdout("So far.\n");
    assert_eq!(outcome(&ended), "budget_exceeded");
    assert_eq!(ended.run_folder().result()["tool_calls"], 3);
    assert_eq!(server.finish()[1].results().len(), 40);
}

#[test]
fn a_reply_cut_by_the_budget_ends_as_budget_exceeded() {
    let folder = folder_with("parent:\n  prompt: Hi.\n  tools: []\nlimits: { tokens: 2000 }\n");
    let server = Server::start(ScriptedAgents::of([Answer::text("Half a").stop("max_tokens")]));
    let ended = run(&folder, &server);
    ended.assert_code(4).assert_stdout("Half a\n");
    assert_eq!(outcome(&ended), "budget_exceeded");
    assert!(ended.run_folder().events().iter().any(|event| event["type"] == "limit_reached"));
}

#[test]
fn a_cost_limit_without_a_price_is_rejected_before_anything_is_spent() {
    let folder = folder_with("parent:\n  prompt: Hi.\n  tools: []\nlimits: { cost_usd: 1 }\n");
    let server = Server::start(ScriptedAgents::of([]));
    let ended = folder.legwork(&["run", "job.yaml", "--model", "anthropic/unheard-of"]).anthropic(&server).run();
    ended.assert_code(3).assert_stdout("").assert_stderr_contains("unheard-of").assert_stderr_contains("cost_usd");
    assert_eq!(folder.list(), ["job.yaml"]);
    assert_eq!(server.count(), 0);
}
