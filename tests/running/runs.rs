//! Whole runs: the loop, its subagents and its outcomes.

mod outcomes;

use serde_json::{Value, json};

use crate::support::job::{EndedRun, Job};
use crate::support::server::{Answer, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

const MODEL: &str = "model: anthropic/claude-sonnet-4-6\n";

/// A folder with a job. The model is added to the job's text.
pub(crate) fn folder_with(job: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", format!("{MODEL}{job}"));
    folder
}

fn run(folder: &TestFolder, server: &Server) -> EndedRun {
    Job::in_folder(folder).anthropic(server).run()
}

fn outcome(ended: &EndedRun) -> Value {
    ended.run_folder().result()["outcome"].clone()
}

#[test]
fn the_smallest_job_runs() {
    let folder = folder_with("parent:\n  prompt: Say hello.\n  tools: []\n");
    let server = Server::start(ScriptedAgents::of([Answer::text("Hello.")]));
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended
        .assert_code(0)
        .assert_stdout("Hello.\n")
        .assert_not_printed("sandbox")
        .assert_stderr_contains("record: runs/job/");
    let result = ended.run_folder().result();
    assert_eq!(result["outcome"], "completed");
    assert_eq!(result["text"], "Hello.");
    assert_eq!(result["usage"]["input_tokens"], 12);
    assert_eq!(result["turns"], 1);
    assert_eq!(result["sandbox"], "unused");
    assert!(result["cost_usd"].as_f64().unwrap() > 0.0);
    let requests = server.finish();
    assert!(requests[0].body().get("tools").is_none_or(|tools| tools.as_array().unwrap().is_empty()));
    assert_eq!(requests[0].prompt(), "Say hello.");
    assert_eq!(requests[0].max_tokens(), 8000);
}

const ALL_TOOLS: &str = r#"
inputs:
  who: { type: string, default: world }
parent:
  system: You are the parent in {{ workspace }}.
  prompt: Greet {{ inputs.who }} thoroughly.
  tools: [bash, read_file, write_file, edit_file, glob, grep, todo, task]
subagents:
  explorer:
    description: Looks around.
    system: You explore.
    tools: [read_file, glob, grep]
  writer:
    description: Writes things.
    system: You write.
    tools: [write_file, bash]
"#;

fn all_tools() -> TestFolder {
    let folder = folder_with(ALL_TOOLS);
    folder.write("notes/a.txt", "alpha\nbeta\n").write("notes/b.txt", "gamma\n");
    folder
}

#[test]
fn two_kinds_of_subagents_and_all_eight_tools_run_against_the_server() {
    let folder = all_tools();
    let server = Server::start(
        ScriptedAgents::new()
            .agent(
                "Greet world thoroughly",
                [
                    Answer::calls(&[("todo", json!({"items": [{"text": "look", "status": "in_progress"}]}))]),
                    Answer::calls(&[
                        ("glob", json!({"pattern": "notes/*.txt"})),
                        ("grep", json!({"pattern": "gam+a"})),
                        ("read_file", json!({"path": "notes/a.txt"})),
                        (
                            "task",
                            json!({"agent": "explorer", "description": "look", "prompt": "What is in notes/b.txt?"}),
                        ),
                        ("task", json!({"agent": "writer", "prompt": "Write c.txt."})),
                        ("write_file", json!({"path": "new/d.txt", "content": "one two\n"})),
                        ("edit_file", json!({"path": "new/d.txt", "old_text": "two", "new_text": "three"})),
                        ("bash", json!({"command": "cat new/d.txt; echo err >&2; exit 3"})),
                    ]),
                    Answer::text("All done."),
                ],
            )
            .agent(
                "What is in notes/b.txt?",
                [
                    Answer::calls(&[("read_file", json!({"path": "notes/b.txt"}))]).thinking("hm", "c2lnbmF0dXJl"),
                    Answer::text("It says gamma."),
                ],
            )
            .agent(
                "Write c.txt.",
                [
                    Answer::calls(&[("write_file", json!({"path": "c.txt", "content": "c\n"}))]),
                    Answer::text("Written."),
                ],
            ),
    );
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("All done.\n");
    assert_eq!(folder.read("new/d.txt"), "one three\n");
    assert_eq!(folder.read("c.txt"), "c\n");

    let requests = server.finish();
    let last = requests.iter().rfind(|request| request.prompt().contains("Greet world")).unwrap();
    let results = last.results();
    assert_eq!(results.len(), 8);
    assert!(results[0].text.contains("notes/a.txt") && results[0].text.contains("notes/b.txt"));
    assert!(results[1].text.contains("notes/b.txt:1:gamma"), "{}", results[1].text);
    assert!(results[2].text.contains("1\talpha"), "{}", results[2].text);
    assert_eq!((results[3].text.as_str(), results[3].is_error), ("It says gamma.", false));
    assert_eq!(results[4].text, "Written.");
    assert!(!results[5].is_error && !results[6].is_error);
    assert!(results[7].is_error && results[7].text.contains("one three\nerr\n") && results[7].text.contains('3'));
    let whole = String::from_utf8_lossy(last.bytes());
    assert!(!whole.contains("signature"), "nothing of a child's history is in the parent's");
    let child = requests.iter().find(|request| request.prompt().contains("notes/b.txt")).unwrap();
    assert_eq!(child.messages().len(), 1);
    assert_eq!(child.tools(), ["read_file", "glob", "grep"]);
    assert!(child.system().contains("You explore."));

    let record = ended.run_folder();
    let result = record.result();
    assert_eq!(result["tool_calls"], 9);
    let ids: Vec<&str> = result["subagents"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["explorer-1", "writer-1"]);
    assert_eq!(result["subagents"][0]["description"], "look");
    assert_eq!(result["subagents"][0]["summary_file"], "subagents/explorer-1.md");
    assert_eq!(result["usage"]["output_tokens"], 7 * 7, "seven replies of seven tokens, children included");
    let page = record.summary("explorer-1");
    let (summary, conversation) = page.split_once("\n# explorer-1: completed\n").expect("its conversation follows");
    assert!(summary.ends_with("It says gamma.\n"), "{page}");
    assert!(conversation.contains("## Prompt") && conversation.contains("## Turn 2"), "{page}");
    assert_eq!(record.events_of("explorer-1").last().unwrap()["type"], "agent_finished");
    assert_eq!(record.events().last().unwrap()["type"], "run_finished");
    for file in ["job.yaml", "plan.json", "events.jsonl", "transcript.md", "report.html", "result.json"] {
        assert!(record.has(file), "{file}");
    }
    assert_eq!(record.file("job.yaml"), folder.read("job.yaml"));
    let transcript = record.transcript();
    for part in ["Greet world thoroughly.", "All done.", "subagents/explorer-1.md", "one three", "- [ ] look"] {
        assert!(transcript.contains(part), "{part} is missing in\n{transcript}");
    }
}

#[test]
fn the_same_job_runs_from_its_script_without_a_key() {
    let folder = all_tools();
    folder.write(
        "job.script.yaml",
        r#"
parent:
  - calls:
      - { tool: todo, input: { items: [{ text: look, status: done }] } }
      - { tool: glob, input: { pattern: "notes/*.txt" } }
      - { tool: grep, input: { pattern: beta, output: files } }
      - { tool: read_file, input: { path: notes/a.txt } }
      - { tool: task, input: { agent: explorer, prompt: Look. } }
      - { tool: task, input: { agent: writer, prompt: Write. } }
      - { tool: write_file, input: { path: d.txt, content: "one\n" } }
      - { tool: edit_file, input: { path: d.txt, old_text: one, new_text: two } }
      - { tool: bash, input: { command: cat d.txt } }
  - text: Done.
subagents:
  explorer-1:
    - text: Nothing new.
  writer-1:
    - calls: [{ tool: bash, input: { command: "echo hi > e.txt" } }]
    - text: Wrote it.
"#,
    );
    let ended = folder.legwork(&["run", "job.yaml", "--model", "replay/job.script.yaml"]).run();
    ended.assert_code(0).assert_stdout("Done.\n");
    let record = ended.run_folder();
    let failed: Vec<_> =
        record.events().into_iter().filter(|event| event["data"]["result"]["is_error"] == true).collect();
    assert_eq!(failed, Vec::<Value>::new());
    assert_eq!(folder.read("e.txt"), "hi\n");
    assert_eq!(folder.read("d.txt"), "two\n");
    assert!(record.summary("writer-1").contains("Wrote it."));

    // The record can be used as a script.
    std::fs::remove_file(folder.at("e.txt")).unwrap();
    let again =
        folder.legwork(&["run", "job.yaml", "--model"]).arg(format!("replay/{}", record.path().display())).run();
    again.assert_code(0).assert_stdout("Done.\n");
    assert_eq!(folder.read("e.txt"), "hi\n", "tools run for real");
}

#[test]
fn subagents_run_in_parallel_up_to_the_limit_and_results_are_in_call_order() {
    let folder = folder_with(
        "parent:\n  prompt: Ask four.\n  tools: [task]\nsubagents:\n  a:\n    tools: []\n  b:\n    tools: []\n\
         limits: { parallel_subagents: 2 }\n",
    );
    let running = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let most = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (now, top) = (running.clone(), most.clone());
    let server = Server::start(move |request: &crate::support::server::Request| {
        use std::sync::atomic::Ordering::SeqCst;
        if request.prompt().contains("Ask four") {
            let task = |agent: &str, prompt: &str| ("task", json!({"agent": agent, "prompt": prompt}));
            return match request.turn() {
                0 => Answer::calls(&[task("a", "one"), task("b", "two"), task("a", "three"), task("a", "four")]),
                _ => Answer::text("ok"),
            };
        }
        top.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
        // The first subagent is the slowest, so the subagents don't end in the order of the calls.
        std::thread::sleep(std::time::Duration::from_millis(if request.prompt() == "one" { 150 } else { 50 }));
        now.fetch_sub(1, SeqCst);
        Answer::text(&format!("answer {}", request.prompt()))
    });
    let ended = run(&folder, &server);
    ended.assert_code(0);
    assert_eq!(most.load(std::sync::atomic::Ordering::SeqCst), 2);
    let requests = server.finish();
    let texts: Vec<String> = requests.last().unwrap().results().into_iter().map(|result| result.text).collect();
    assert_eq!(texts, ["answer one", "answer two", "answer three", "answer four"]);
    let result = ended.run_folder().result();
    let ids: Vec<&str> = result["subagents"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["a-1", "b-1", "a-2", "a-3"]);
    assert!(ended.run_folder().summary("a-3").contains("answer four"));
}

#[test]
fn task_without_subagents_delegates_to_general() {
    let folder = folder_with("parent:\n  prompt: Delegate.\n  tools: [task, todo, glob]\n");
    let server = Server::start(
        ScriptedAgents::new()
            .agent("Delegate.", [Answer::calls(&[("task", json!({"prompt": "Do it."}))]), Answer::text("done")])
            .agent("Do it.", [Answer::empty()]),
    );
    let ended = run(&folder, &server);
    ended.assert_code(0);
    let requests = server.finish();
    assert_eq!(requests[1].tools(), ["todo", "glob"]);
    assert_eq!(requests[2].results()[0].text, "(no summary)");
    assert!(ended.run_folder().has("subagents/general-1.md"));
}

/// Text before calls isn't the answer. The answer is the text of the last reply, even if it is empty.
#[test]
fn text_before_an_empty_final_reply_is_not_the_answer() {
    let folder =
        folder_with("parent:\n  prompt: Delegate.\n  tools: [task]\nsubagents:\n  short:\n    tools: [glob]\n");
    let server = Server::start(
        ScriptedAgents::new()
            .agent(
                "Delegate.",
                [Answer::calls(&[("task", json!({"prompt": "Look."}))]).then_text("I'll look first."), Answer::empty()],
            )
            .agent(
                "Look.",
                [Answer::calls(&[("glob", json!({"pattern": "*"}))]).then_text("Let me see."), Answer::empty()],
            ),
    );
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended
        .assert_code(0)
        .assert_stdout("")
        .assert_stderr_contains("warning: the answer is empty: the last reply has no text");
    assert_eq!(server.finish()[3].results()[0].text, "(no summary)");
    let result = ended.run_folder().result();
    assert_eq!((&result["outcome"], &result["text"]), (&json!("completed"), &json!("")));
    assert!(ended.run_folder().summary("short-1").contains("(no summary)"));
}

#[test]
fn a_turn_limit_leads_to_one_more_request_without_tools() {
    let folder = folder_with("parent:\n  prompt: Go on and on.\n  tools: [glob]\n  max_turns: 2\n");
    let glob = || Answer::calls(&[("glob", json!({"pattern": "*"}))]);
    let server = Server::start(ScriptedAgents::of([glob(), glob(), Answer::text("This far I came.")]));
    let ended = run(&folder, &server);
    ended.assert_code(4).assert_stdout("This far I came.\n").assert_error_contains("turn_limit");
    let requests = server.finish();
    assert_eq!(requests[2].body()["tool_choice"]["type"], "none");
    assert_eq!(requests[2].tools(), ["glob"], "the tools stay listed");
    let result = ended.run_folder().result();
    assert_eq!((&result["outcome"], &result["turns"]), (&json!("turn_limit"), &json!(2)));
    assert_eq!(result["error"]["code"], "turn_limit");
}

#[test]
fn the_parent_gets_a_subagents_limit_with_its_summary() {
    let folder = folder_with(
        "parent:\n  prompt: Delegate.\n  tools: [task]\nsubagents:\n  short:\n    tools: [glob]\n    max_turns: 1\n",
    );
    let server = Server::start(
        ScriptedAgents::new()
            .agent("Delegate.", [Answer::calls(&[("task", json!({"prompt": "Look."}))]), Answer::text("ok")])
            .agent("Look.", [Answer::calls(&[("glob", json!({"pattern": "*"}))]), Answer::text("Half of it.")]),
    );
    let ended = run(&folder, &server);
    ended.assert_code(0);
    let result = &server.finish()[3].results()[0].text;
    assert!(result.contains("turn_limit") && result.ends_with("Half of it."), "{result}");
    assert_eq!(ended.run_folder().result()["subagents"][0]["outcome"], "turn_limit");
}

#[test]
fn mistakes_of_the_model_are_reported_to_it_and_the_run_continues() {
    let folder = folder_with(
        "parent:\n  prompt: Err.\n  tools: [read_file, task]\nsubagents:\n  one: { tools: [] }\n  two: { tools: [] }\n",
    );
    let server = Server::start(ScriptedAgents::of([
        Answer::calls(&[
            ("read_fiel", json!({"path": "x"})),
            ("bash", json!({"command": "true"})),
            ("read_file", json!({"paht": "x"})),
            ("read_file", json!({"path": "missing.txt"})),
            ("task", json!({"prompt": "x"})),
            ("task", json!({"agent": "three", "prompt": "x"})),
            ("task", json!({"agent": "one", "prompt": "  "})),
            ("read_file", json!(["not", "an", "object"])),
        ])
        .then_broken_call("read_file", "{\"path\": "),
        Answer::text("Sorry."),
    ]));
    let ended = run(&folder, &server);
    ended.assert_code(0).assert_stdout("Sorry.\n");
    let results = server.finish()[1].results();
    assert_eq!(results.len(), 9);
    assert!(results.iter().all(|result| result.is_error), "{results:?}");
    assert!(results[0].text.contains("read_file"), "{}", results[0].text);
    assert!(results[1].text.contains("bash"));
    assert!(results[2].text.contains("paht"));
    assert!(results[4].text.contains("one, two"));
    assert_eq!(ended.run_folder().result()["subagents"], json!([]));
}

#[test]
fn the_transcript_stays_readable_after_an_open_code_block() {
    let folder = folder_with("parent:\n  prompt: Hi.\n  tools: [glob]\n");
    let server = Server::start(ScriptedAgents::of([
        Answer::calls(&[("glob", json!({"pattern": "`*`"}))])
            .then_block(json!({"type": "text", "text": "```sh\nls\u{1b}[31m"})),
        Answer::text("Done."),
    ]));
    let ended = run(&folder, &server);
    ended.assert_code(0);
    let record = ended.run_folder();
    let transcript = std::fs::read_to_string(record.path().join("transcript.md")).unwrap();
    assert!(transcript.contains("```sh\nls␛[31m\n```\n"), "{transcript}");
    let page = std::fs::read_to_string(record.path().join("report.html")).unwrap();
    assert!(page.contains("ls␛[31m") && !page.contains('\u{1b}'));
}

#[test]
fn task_results_are_bounded_and_bad_calls_are_explained() {
    let folder = folder_with(ALL_TOOLS);
    let server = Server::start(
        ScriptedAgents::new()
            .agent(
                "Greet",
                [
                    Answer::calls(&[
                        ("task", json!({"agent": "explorer", "prompt": "Talk."})),
                        ("task", json!({"agent": "explorer"})),
                        ("task", json!({"agent": "x".repeat(60_000), "prompt": "Talk."})),
                    ]),
                    Answer::text("Done."),
                ],
            )
            .agent("Talk.", [Answer::text(&format!("begin{}end", "ä".repeat(60_000)))]),
    );
    folder.legwork(&["run", "job.yaml"]).anthropic(&server).run().assert_code(0);
    let requests = server.finish();
    let results = requests.last().unwrap().results();
    let text = &results[0].text;
    assert!(text.chars().count() <= 50_000 && text.starts_with("begin") && text.ends_with("end"));
    assert!(text.contains("characters left out"));
    assert!(results[1].text.contains("missing field `prompt`; expected {\"prompt\": string"), "{}", results[1].text);
    assert!(results[2].text.len() < 500 && results[2].text.contains("There are: explorer, writer"));
}

#[test]
fn blocks_are_sent_back_unchanged_however_they_were_streamed() {
    let unknown = json!({"type": "hologram", "payload": {"b": 1, "a": [null, "ü"]}});
    let ways: [fn(Answer) -> Answer; 3] = [|answer| answer, Answer::non_streaming, |answer| answer.chunk(1)];
    for way in ways {
        let folder = folder_with("parent:\n  prompt: Think.\n  tools: [glob]\n");
        let first = Answer::text("Ähm.")
            .thinking("First this.", "c2lnbmVk")
            .then_block(json!({"type": "redacted_thinking", "data": "b3BhcXVl"}))
            .then_unknown_block(unknown.clone())
            .then_call("glob", &json!({"pattern": "*"}));
        let server = Server::start(ScriptedAgents::of([way(first), way(Answer::text("Done."))]));
        run(&folder, &server).assert_code(0).assert_stdout("Done.\n");
        let requests = server.finish();
        let sent_back = requests[1].messages()[1]["content"].as_array().unwrap().clone();
        let types: Vec<&str> = sent_back.iter().map(|block| block["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["thinking", "text", "redacted_thinking", "hologram", "tool_use"]);
        assert_eq!(sent_back[0]["signature"], "c2lnbmVk");
        assert_eq!(sent_back[3], unknown);
        let marks =
            |request: usize| requests[request].bytes().windows(15).filter(|at| *at == b"\"cache_control\"").count();
        assert!((2..=4).contains(&marks(0)) && (2..=4).contains(&marks(1)));
    }
}
