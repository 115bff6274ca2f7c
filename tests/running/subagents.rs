//! A subagent has only its own tools and rules, and the limits of the run apply to it.

mod own_workspace;

use serde_json::{Value, json};

use crate::running::runs::folder_with;
use crate::support::server::{Answer, Request, ScriptedAgents, Server};

const JOB: &str = "
env: [SHARED_WORD]
parent:
  prompt: Parent.
  tools: [task, write_file, bash: { allow: [\"echo *\"] }]
subagents:
  reader:
    description: Reads.
    tools: [read_file]
  printer:
    description: Prints.
    tools: [bash: { allow: [\"printenv *\"] }]
    max_turns: 2
";

fn task(agent: &str) -> Value {
    json!({ "agent": agent, "prompt": format!("Child {agent}.") })
}

#[test]
fn the_parent_gets_the_reason_of_a_subagents_refusal() {
    let folder = folder_with(JOB.replace("[task, write_file", "[task").as_str());
    let script = || {
        ScriptedAgents::new()
            .agent("Child reader.", [Answer::text("Not that.").stop("refusal")])
            .agent("Parent.", [Answer::calls(&[("task", task("reader"))]), Answer::text("Done.")])
    };
    for (model, why) in [
        ("gemini/gemini-2.5-flash", " (the model's provider says why: SAFETY)"),
        ("openai-chat/x", " (the model's provider says why: content_filter)"),
    ] {
        let server = Server::start(script());
        let run =
            folder.legwork(&["run", "job.yaml", "--model", model]).anthropic(&server).openai(&server).gemini(&server);
        let ended = run.env("SHARED_WORD", "shared").run();
        ended.assert_code(0).assert_stdout("Done.\n");
        let requests = server.finish();
        let result = &requests.last().unwrap().results()[0];
        let expected =
            format!("[reader-1 ended with refused after 1 turn{why}; this is its last message]\n\nNot that.");
        assert!(result.is_error && result.text == expected, "{}", result.text);
        assert!(ended.run_folder().transcript().contains(&expected));
        folder.legwork(&["replay", "latest"]).run().assert_code(0);
    }
}

#[test]
fn a_subagent_has_only_its_own_tools_and_rules() {
    let folder = folder_with(JOB);
    let calls = |calls: &[(&str, Value)]| Answer::calls(calls);
    let bash = |command: &str| ("bash", json!({ "command": command }));
    let beyond = [
        ("write_file", json!({ "path": "a", "content": "x" })),
        bash("echo a > a"),
        ("task", task("printer")),
        ("todo", json!({ "items": [] })),
    ];
    let script = ScriptedAgents::new()
        .agent("Child reader.", [calls(&beyond), Answer::text("Read.")])
        .agent("Child printer.", [calls(&[bash("printenv SHARED_WORD"), bash("echo hello")]), Answer::text("Printed.")])
        .agent(
            "Parent.",
            [
                calls(&[("task", task("reader")), ("task", task("printer"))]),
                calls(&[
                    bash("echo hello"),
                    bash("printenv SHARED_WORD"),
                    ("read_file", json!({ "path": "job.yaml" })),
                ]),
                Answer::text("Done."),
            ],
        );
    let server = Server::start(script);
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).env("SHARED_WORD", "shared").run();
    ended.assert_code(0).assert_stdout("Done.\n");
    let requests = server.finish();
    let of = |words: &str| requests.iter().filter(|request| request.prompt() == words).cloned().collect::<Vec<_>>();
    let (parent, reader, printer) = (of("Parent."), of("Child reader."), of("Child printer."));
    assert_eq!(parent[0].tools(), ["task", "write_file", "bash"]);
    assert_eq!((reader[0].tools(), printer[0].tools()), (vec!["read_file"], vec!["bash"]));
    for result in reader[1].results() {
        assert!(result.is_error && result.text.contains("unknown tool"), "{result:?}");
    }
    let fails = |request: &Request| request.results().iter().map(|it| it.is_error).collect::<Vec<_>>();
    assert_eq!(printer[1].results()[0].text, "shared");
    assert_eq!(fails(&printer[1]), [false, true]);
    assert_eq!(fails(&parent[2]), [false, true, true]);
    assert!(!folder.exists("a"));
}

#[test]
fn a_subagent_cannot_raise_its_limits() {
    let folder = folder_with(&format!("{JOB}limits: {{ tool_calls: 3, subagents: 1 }}\n"));
    let input = json!({ "agent": "printer", "prompt": "Child printer.", "max_turns": 99, "tools": ["write_file"] });
    let print = || ("bash", json!({ "command": "printenv SHARED_WORD" }));
    let server = Server::start(move |request: &Request| match (request.prompt().as_str(), request.turn()) {
        ("Child printer.", 0) => Answer::calls(&[print(), print(), print(), print()]),
        ("Parent.", 0) => Answer::calls(&[("task", input.clone()), ("task", task("printer"))]),
        ("Parent.", 1) if request.can_call_tools() => Answer::calls(&[("task", task("printer"))]),
        _ => Answer::text("End."),
    });
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).env("SHARED_WORD", "shared").run();
    let result = ended.run_folder().result();
    assert!(["budget_exceeded", "completed"].contains(&result["outcome"].as_str().unwrap()), "{}", ended.full_output());
    let calls = result["tool_calls"].as_u64().unwrap()
        + result["subagents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|child| child["tool_calls"].as_u64().unwrap())
            .sum::<u64>();
    assert!(calls <= 3, "{result}");
    assert!(result["subagents"].as_array().unwrap().len() <= 1, "{result}");
}

#[test]
fn only_the_parent_can_have_task() {
    let folder =
        folder_with("parent: { prompt: x, tools: [task] }\nsubagents: { a: { description: b, tools: [task] } }\n");
    folder.legwork(&["validate", "job.yaml"]).run().assert_code(3).assert_stdout_contains("task-in-subagent");
    for key in ["env: [HOME]", "limits: { tokens: 9 }", "subagents: {}", "sandbox: off"] {
        let folder = folder_with(&format!(
            "parent: {{ prompt: x, tools: [task] }}\nsubagents: {{ a: {{ description: b, tools: [], {key} }} }}\n"
        ));
        folder.legwork(&["validate", "job.yaml"]).run().assert_code(3).assert_stdout_contains("unknown-key");
    }
}
